"""Which failures on a node count, what is remembered of them, and which nodes are avoided."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.state import failures

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def make_workload(*entries: tuple[str, int, float]) -> wire.Workload:
    """A Workload that failed on these hosts, so often, the last time so many minutes ago."""
    remembered = [
        {"name": host, "count": count, "lastFailureTime": (NOW - timedelta(minutes=minutes)).isoformat()}
        for host, count, minutes in entries
    ]
    return msgspec.convert({"metadata": {"name": "w"}, "status": {"nodeFailures": remembered}}, wire.Workload)


def counts(entries: tuple[wire.NodeFailures, ...] | None) -> dict[str, int] | None:
    return None if entries is None else {entry.name: entry.count for entry in entries}


@pytest.mark.parametrize(
    ("entry", "is_avoided"),
    [
        pytest.param(("h1", 1, 0), False, id="a host of one failure is not avoided"),
        pytest.param(("h1", 2, 0), True, id="a host of two is"),
        pytest.param(("h1", 9, 24 * 60 - 1), True, id="for a day after the last one"),
        pytest.param(("h1", 9, 24 * 60), False, id="and no longer"),
    ],
)
def test_hosts_of_repeated_failures_are_avoided_for_a_day(entry: tuple[str, int, float], is_avoided: bool) -> None:
    """By the number of failures and the time of the last."""
    assert failures.avoided(make_workload(entry), NOW) == (frozenset({"h1"}) if is_avoided else frozenset())


@pytest.mark.parametrize(
    ("entries", "want"),
    [
        pytest.param([], {"h1": 1}, id="the first failure anywhere"),
        pytest.param([("h2", 1, 0)], {"h2": 1, "h1": 1}, id="several nodes that are lost at once all count"),
        pytest.param([("h1", 1, 1)], {"h1": 2}, id="a minute later it counts again"),
        pytest.param([("h1", 1, 0.9)], None, id="within a minute it is the same failure"),
        pytest.param([("h1", 3, 24 * 60)], {"h1": 1}, id="what is forgotten does not count"),
    ],
)
def test_a_lost_node_counts_once_per_incident(
    entries: list[tuple[str, int, float]], want: dict[str, int] | None
) -> None:
    """Failures after this one; None when nothing new is to be written."""
    assert counts(failures.after_lost_node(make_workload(*entries), "h1", NOW)) == want


@pytest.mark.parametrize(
    ("entries", "age", "want"),
    [
        pytest.param([], 60, {"h1": 1}, id="the first failure anywhere"),
        pytest.param([("h1", 1, 5)], 4, {"h1": 2}, id="a pod that was made after the last failure"),
        pytest.param([("h1", 1, 5)], 5, None, id="a pod that was there at the last failure fell with it"),
        pytest.param([("h2", 1, 5)], 6, None, id="so it did when another host failed"),
        pytest.param([("h2", 1, 24 * 60)], 24 * 60 + 1, {"h1": 1}, id="what is forgotten took nobody along"),
    ],
)
def test_of_pods_that_fall_together_the_first_counts(
    entries: list[tuple[str, int, float]], age: float, want: dict[str, int] | None
) -> None:
    """The pod was made so many minutes ago, and has failed on h1 now."""
    found = failures.after_failed_pod(make_workload(*entries), "h1", NOW - timedelta(minutes=age), NOW)

    assert counts(found) == want


def test_a_pod_counts_once_even_where_its_clock_is_ahead() -> None:
    """The API server's clock made it a minute from now; what is remembered is not before that."""
    created = NOW + timedelta(minutes=1)
    (entry,) = failures.after_failed_pod(make_workload(), "h1", created, NOW) or ()
    again = msgspec.structs.replace(make_workload(), status=wire.WorkloadStatus(node_failures=(entry,)))

    assert failures.after_failed_pod(again, "h1", created, NOW) is None


def test_the_latest_nodes_are_remembered() -> None:
    """As many as the schema allows; the one whose last failure is the oldest makes way."""
    full = make_workload(*[(f"h{i}", 1, 10 + i) for i in range(failures.KEPT)])

    found = failures.after_lost_node(full, "new", NOW)

    assert found is not None
    assert [entry.name for entry in found] == [f"h{i}" for i in range(failures.KEPT - 2, -1, -1)] + ["new"]
