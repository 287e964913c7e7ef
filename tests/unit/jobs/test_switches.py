"""Feature switches: the configuration's gates, under the names of this room."""

from __future__ import annotations

import dataclasses

from kqueue.config import Configuration
from kqueue.config.gates import GATES as KNOWN
from kqueue.jobs.switches import GATES, Switches, switches_from


def test_defaults_are_those_of_the_configuration() -> None:
    """So that a test without configuration tests what users get."""
    assert switches_from(Configuration().enabled) == Switches()


def test_every_gate_turns_its_own_switch() -> None:
    """One gate at a time, and every one of them exists."""
    assert set(GATES.values()) <= set(KNOWN)
    for switch, gate in GATES.items():
        turned = switches_from(lambda name, gate=gate: KNOWN[name].on is not (name == gate))  # type: ignore[misc]

        assert turned == dataclasses.replace(Switches(), **{switch: not KNOWN[gate].on})
