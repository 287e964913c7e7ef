"""Feature gates: defaults, groups, needs."""

from __future__ import annotations

import pytest

from kqueue.config.gates import GATES, gate_problems, parse_gates, resolve_gates


def test_the_defaults_are_consistent() -> None:
    """Nobody has to set a gate to start."""
    assert gate_problems({}) == []


def test_every_need_is_a_gate() -> None:
    """A dependency cannot be misspelt."""
    assert {need for gate in GATES.values() for need in gate.needs} <= set(GATES)


@pytest.mark.parametrize(
    ("wanted", "gate", "on"),
    [
        pytest.param({}, "TopologyAwareScheduling", True, id="beta-is-on"),
        pytest.param({}, "ConcurrentAdmission", False, id="alpha-is-off"),
        pytest.param({"AllAlpha": True}, "ConcurrentAdmission", True, id="all-alpha"),
        pytest.param({"AllAlpha": True, "PriorityBoost": False}, "PriorityBoost", False, id="a-name-beats-its-group"),
        pytest.param({"AllBeta": True}, "UnadmittedWorkloadsExplicitStatus", True, id="all-beta-takes-those-off"),
        pytest.param({"AllBeta": True}, "TASReplaceNodeDueToNotReadyOverFixedTime", False, id="deprecated-is-no-beta"),
    ],
)
def test_gates_resolve(wanted: dict[str, bool], gate: str, on: bool) -> None:
    """Default, then group, then name."""
    assert resolve_gates(wanted)[gate] is on


@pytest.mark.parametrize(
    ("wanted", "gate", "want"),
    [
        pytest.param({"TASProfileMxed": True}, "TASProfileMxed", "did you mean TASProfileMixed?", id="misspelt"),
        pytest.param({"TLSOptions": False}, "TLSOptions", "locked to true", id="locked"),
        pytest.param(
            {"TopologyAwareScheduling": False},
            "TASProfileMixed",
            "needs TopologyAwareScheduling",
            id="default-needs-it",
        ),
        pytest.param(
            {"KueueDRAIntegration": False, "KueueDRAIntegrationExtendedResource": False},
            "KueueDRAIntegrationPartitionableDevices",
            "needs KueueDRAIntegration",
            id="sub-gate-left-on",
        ),
    ],
)
def test_bad_gates_are_named(wanted: dict[str, bool], gate: str, want: str) -> None:
    """Unknown, locked and unsupported gates are errors with a remedy."""
    assert any(name == gate and want in problem for name, problem in gate_problems(wanted))


def test_topology_can_be_switched_off_with_all_that_needs_it() -> None:
    """Switching off a gate and everything on top of it is a valid choice."""
    needing = {name: False for name, gate in GATES.items() if "TopologyAwareScheduling" in gate.needs}
    assert gate_problems({"TopologyAwareScheduling": False} | needing) == []


@pytest.mark.parametrize("text", ["Gate", "Gate=yes", "A=true,B", "=maybe"])
def test_a_malformed_flag_is_refused(text: str) -> None:
    """The flag is a list of Gate=bool."""
    with pytest.raises(ValueError, match="must have the form"):
        parse_gates(text)


def test_the_flag_is_read() -> None:
    """Blanks, case of the value and a trailing comma do not matter."""
    assert parse_gates(" A=true, B=False ,") == {"A": True, "B": False}
