"""Feature switches: the configuration's gates, under the names of this room."""

from __future__ import annotations

import dataclasses
from typing import Any

from kqueue.config import Configuration
from kqueue.config.gates import GATES as KNOWN
from kqueue.config.without_effect import warnings
from kqueue.jobs.switches import GATES, JobFeatures, switches_from


def test_defaults_are_those_of_the_configuration() -> None:
    """So that a test without configuration tests what users get."""
    assert switches_from(Configuration().enabled) == JobFeatures()


def test_every_gate_turns_its_own_switch() -> None:
    """One gate at a time, and every one of them exists."""
    assert set(GATES.values()) <= set(KNOWN)
    for switch, gate in GATES.items():
        turned = switches_from(lambda name, gate=gate: KNOWN[name].on is not (name == gate))  # type: ignore[misc]

        flipped: dict[str, Any] = {switch: not KNOWN[gate].on}
        assert turned == dataclasses.replace(JobFeatures(), **flipped)


def test_every_gate_of_a_job_kind_has_an_effect() -> None:
    """No user who flips one is told that nothing acts on it."""
    for gate in GATES.values():
        needy = {name: False for name, known in KNOWN.items() if gate in known.needs and known.on}
        flipped = Configuration(feature_gates={**needy, gate: not KNOWN[gate].on})

        assert not [w for w in warnings(flipped) if w.startswith(f"featureGates.{gate}:")]
