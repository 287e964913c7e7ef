"""Which admission checks a Workload needs, and what their answers ask for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.state import checks
from tests.unit.state.life import NOON, at, check, held, workload

HOUR = 3600


def queue(*rules: dict[str, Any]) -> wire.ClusterQueueSpec:
    """A ClusterQueue of flavors spot and reserved, with these checks."""
    flavors: list[dict[str, Any]] = [{"name": name, "resources": []} for name in ("spot", "reserved")]
    spec = {
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
        "admissionChecksStrategy": {"admissionChecks": list(rules)},
    }
    return msgspec.convert(spec, wire.ClusterQueueSpec)


EVERY, SPOT = {"name": "budget"}, {"name": "spare", "onFlavors": ["spot"]}
BOTH = {"name": "both", "onFlavors": ["reserved", "spot"]}


@pytest.mark.parametrize(
    ("rules", "flavors", "want"),
    [
        pytest.param([EVERY, SPOT], None, ("budget",), id="before a flavor is assigned only those of all flavors"),
        pytest.param([BOTH, SPOT], None, ("both",), id="naming every flavor is being for all"),
        pytest.param([EVERY, SPOT], {"reserved"}, ("budget",), id="not those of other flavors"),
        pytest.param([SPOT, EVERY], {"spot"}, ("budget", "spare"), id="those of an assigned flavor, by name"),
        pytest.param([SPOT], {"reserved", "spot"}, ("spare",), id="one pod set in the flavor is enough"),
        pytest.param([EVERY, SPOT], set(), ("budget",), id="one that requests nothing has no flavor"),
    ],
)
def test_which_checks_are_wanted(rules: list[Any], flavors: set[str] | None, want: tuple[str, ...]) -> None:
    """By the flavors that were assigned."""
    assert checks.wanted_checks(queue(*rules), flavors) == want


def test_a_queue_without_a_strategy_wants_no_checks() -> None:
    """As most have none."""
    assert checks.wanted_checks(wire.ClusterQueueSpec(), None) == ()


@pytest.mark.parametrize(
    ("listed", "wanted", "want"),
    [
        pytest.param([], [], None, id="nothing is wanted"),
        pytest.param([check("a", "Ready")], ["a"], None, id="all stand there"),
        pytest.param([], ["b", "a"], [("a", "Pending"), ("b", "Pending")], id="new ones are pending"),
        pytest.param([check("b", "Ready")], ["b", "a"], [("a", "Pending"), ("b", "Ready")], id="answers stay"),
        pytest.param([check("old"), check("a", "Retry")], ["a"], [("a", "Retry")], id="stale ones go"),
        pytest.param([check("b"), check("a")], ["a", "b"], [("a", "Pending"), ("b", "Pending")], id="in order"),
        pytest.param([check("a")], [], [], id="none is wanted any more"),
    ],
)
def test_the_list_is_brought_in_line(listed: list[Any], wanted: list[str], want: list[tuple[str, str]] | None) -> None:
    """None where nothing is to be written."""
    found = checks.synced_checks(workload(admissionChecks=listed).status.admission_checks, wanted, "now")
    assert (None if found is None else [(c["name"], c["state"]) for c in found]) == want
    assert all(c["lastTransitionTime"] == "now" for c in found or () if c["name"] not in {x["name"] for x in listed})


@pytest.mark.parametrize(
    ("answers", "requeue_at", "want"),
    [
        pytest.param([check("a", "Retry", requeueAfterSeconds=60)], None, 60, id="it says when"),
        pytest.param([check("a", "Retry", requeueAfterSeconds=60), check("b", "Retry", requeueAfterSeconds=90)], None, 90, id="the last one counts"),
        pytest.param([check("a", "Retry")], None, None, id="it does not say when"),
        pytest.param([check("a", "Ready", requeueAfterSeconds=60)], None, None, id="it is ready by now"),
        pytest.param([check("a", "Retry", since=-90, requeueAfterSeconds=60)], None, None, id="its time has passed"),
        pytest.param([check("a", "Retry", requeueAfterSeconds=60)], "2026-01-01T12:02:00Z", None, id="it waits for longer anyway"),
        pytest.param([check("a", "Retry", requeueAfterSeconds=60)], "2026-01-01T12:00:30Z", 60, id="it waits for less"),
        pytest.param([check("a", "Retry", requeueAfterSeconds=60)], "2026-01-01T12:01:00Z", None, id="so it stands there"),
    ],
)  # fmt: skip
def test_a_retry_is_delayed_before_the_eviction(answers: list[Any], requeue_at: str | None, want: int | None) -> None:
    """The time to which requeueAt is moved; None when it is not."""
    obj = workload(admissionChecks=answers, **({"requeueState": {"requeueAt": requeue_at}} if requeue_at else {}))
    assert checks.delayed_until(obj, NOON) == (None if want is None else at(want))


def test_a_time_beyond_the_calendar_is_its_end() -> None:
    """Whatever a check's controller writes, nobody fails on it."""
    answer = check("a", "Retry", requeueAfterSeconds=2**31 - 1) | {"lastTransitionTime": "9999-12-31T23:59:59Z"}
    until = checks.retry_at(workload(admissionChecks=[answer]))
    assert until is not None
    assert until.year == 9999


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param([held("QuotaReserved")], True, id="reserved"),
        pytest.param([held("QuotaReserved"), held("Admitted")], True, id="admitted"),
        pytest.param([held("QuotaReserved"), held("Evicted")], False, id="on its way out"),
        pytest.param([], False, id="waiting"),
    ],
)
def test_who_has_to_answer_to_its_checks(conditions: list[Any], want: bool) -> None:
    """Who holds nothing is not evicted; it is only kept out."""
    assert checks.must_answer(workload(*conditions)) is want


def test_checks_are_told_with_what_they_say() -> None:
    """Refusals before retries, by name."""
    obj = workload(admissionChecks=[check("z", "Rejected"), check("b", "Retry", message="later"), check("c", "Ready")])
    assert checks.messages_of(checks.refusing(obj)) == "z, b: later"
