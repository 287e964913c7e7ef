"""What a load run counts of the versions of Workloads that a watch delivers, and of the controller's metrics."""

from __future__ import annotations

import pytest
from prometheus_client.samples import Sample

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition, ObjectMeta
from tests.bench._changes import EARLY_SECONDS, Changes, change_kind, cycle_counts, eviction_reason, total

HELD = wire.Admission(cluster_queue="q")


def workload(*conditions: tuple[str, str] | str, held: bool = False, finalizers: tuple[str, ...] = ()) -> wire.Workload:
    """A version of one Workload; a condition is a type that is True, or (type, reason)."""
    pairs = [(one, one) if isinstance(one, str) else one for one in conditions]
    told = tuple(Condition(type=kind, status="True", reason=reason) for kind, reason in pairs)
    return wire.Workload(
        metadata=ObjectMeta(name="w", namespace="ns", finalizers=finalizers),
        status=wire.WorkloadStatus(conditions=told, admission=HELD if held else None),
    )


def waiting(message: str) -> wire.Workload:
    """A version that says why it waits."""
    told = Condition(type="QuotaReserved", status="False", reason="WaitingForQuota", message=message)
    return wire.Workload(metadata=ObjectMeta(name="w", namespace="ns"), status=wire.WorkloadStatus(conditions=(told,)))


NEW, HOLDS = workload(), workload("QuotaReserved", "Admitted", held=True)
EVICTED = workload("QuotaReserved", "Admitted", ("Evicted", "Preempted"), held=True)


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(NEW, HOLDS, "admission", id="an admission that appears is an admission"),
        pytest.param(HOLDS, EVICTED, "eviction", id="an Evicted condition that becomes true is an eviction"),
        pytest.param(NEW, EVICTED, "eviction", id="an eviction counts before an admission of the same version"),
        pytest.param(EVICTED, NEW, None, id="a reservation that is taken away is the bench's own write"),
        pytest.param(HOLDS, workload("Finished", held=True), None, id="the end of a workload is the bench's own write"),
        pytest.param(
            HOLDS, workload("Evicted", "Finished", held=True), None, id="an eviction at the end of a workload is none"
        ),
        pytest.param(NEW, workload(finalizers=("f",)), "finalizers", id="a finalizer that is added is one of its own"),
        pytest.param(NEW, waiting("a"), "words", id="a first reason for waiting is words"),
        pytest.param(waiting("a"), waiting("b"), "words", id="another message is words"),
        pytest.param(
            EVICTED,
            workload("Evicted", ("PodsReady", "x"), held=True),
            "words",
            id="an Evicted condition that stays true is no second eviction",
        ),
        pytest.param(HOLDS, HOLDS, None, id="a version that changes nothing of ours is nothing"),
    ],
)
def test_a_change_has_one_kind(old: wire.Workload, new: wire.Workload, want: str | None) -> None:
    """What a write changed."""
    assert change_kind(old, new) == want


@pytest.mark.parametrize(
    ("seen", "want"),
    [
        pytest.param(
            workload(("Evicted", "Preempted"), ("Preempted", "InCohortReclamation")),
            "InCohortReclamation",
            id="the Preempted condition says it more exactly",
        ),
        pytest.param(workload(("Evicted", "NodeFailures")), "NodeFailures", id="else the Evicted condition says it"),
        pytest.param(waiting("a"), "", id="a workload that was not evicted has no reason"),
    ],
)
def test_the_reason_of_an_eviction(seen: wire.Workload, want: str) -> None:
    """By conditions that are true."""
    assert eviction_reason(seen) == want


def test_a_condition_that_is_over_gives_no_reason() -> None:
    """An old preemption is not the reason of a later eviction."""
    over = Condition(type="Preempted", status="False", reason="InClusterQueue")
    now = Condition(type="Evicted", status="True", reason="Deactivated")
    seen = wire.Workload(metadata=ObjectMeta(name="w"), status=wire.WorkloadStatus(conditions=(over, now)))

    assert eviction_reason(seen) == "Deactivated"


@pytest.mark.parametrize(
    ("versions", "want"),
    [
        pytest.param([(0.0, HOLDS), (EARLY_SECONDS, EVICTED)], 1, id="at the bound an eviction is early"),
        pytest.param([(0.0, HOLDS), (EARLY_SECONDS + 0.1, EVICTED)], 0, id="after the bound it is not"),
        pytest.param(
            [(0.0, HOLDS), (1.0, NEW), (9.0, HOLDS), (10.0, EVICTED)], 1, id="the latest admission is what counts"
        ),
        pytest.param([(0.0, EVICTED)], 0, id="without an admission that was seen it is not early"),
    ],
)
def test_evictions_soon_after_an_admission_are_early(versions: list[tuple[float, wire.Workload]], want: int) -> None:
    """Within `EARLY_SECONDS` of the same workload's latest admission."""
    changes, old = Changes(), NEW

    for now, new in versions:
        changes.add("ns/w", old, new, now=now)
        old = new

    assert (changes.early, changes.kinds["eviction"], changes.reasons["Preempted"]) == (want, 1, 1)


def test_an_admission_of_another_workload_makes_no_eviction_early() -> None:
    """Admissions are remembered by workload."""
    changes = Changes()

    changes.add("ns/a", NEW, HOLDS, now=10.0)
    changes.add("ns/b", HOLDS, EVICTED, now=11.0)

    assert (changes.early, changes.kinds["eviction"]) == (0, 1)


def test_the_first_version_of_a_workload_is_no_change() -> None:
    """What it holds then was written before the watch began."""
    changes = Changes()

    changes.add("ns/w", None, HOLDS, now=1.0)

    assert not changes.kinds


SAMPLES = [
    Sample("kueue_admission_attempts_total", {"result": "success"}, 3),
    Sample("kueue_admission_attempts_total", {"result": "inadmissible"}, 5),
    Sample("kqueue_events_lost_total", {"cause": "queue-full"}, 2),
    Sample("kqueue_events_lost_total", {"cause": "refused"}, 1),
    Sample("kqueue_events_lost_created", {"cause": "refused"}, 1_700_000_000),
]


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        pytest.param("kueue_admission_attempts_total", {}, 8, id="without labels all series add up"),
        pytest.param("kueue_admission_attempts_total", {"result": "success"}, 3, id="labels choose series"),
        pytest.param("kueue_admission_attempts_total", {"result": "other"}, 0, id="a value that is not there is 0"),
        pytest.param("kqueue_nothing_total", {}, 0, id="a metric that is not there is 0"),
        pytest.param("kqueue_events_lost", {}, 0, id="a name is compared as a whole"),
    ],
)
def test_samples_of_one_name_add_up(name: str, labels: dict[str, str], want: float) -> None:
    """With the labels that are asked for."""
    assert total(SAMPLES, name, **labels) == want


def test_counts_of_cycles_and_lost_events() -> None:
    """Cycles of both results, those that admitted nothing, and events lost for any cause."""
    assert dict(cycle_counts(SAMPLES)) == {"cycles": 8, "empty_cycles": 5, "events_lost": 3}


def test_counts_of_a_controller_that_has_done_nothing() -> None:
    """Series that are not there yet count 0."""
    assert dict(cycle_counts([])) == {"cycles": 0, "empty_cycles": 0, "events_lost": 0}
