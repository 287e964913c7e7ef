"""Members beyond the quorum: when they are marked, and when they are members again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.core.queued import EXTRAS_WAITING
from kqueue.jobs.gang.batch_process import FRAMEWORK as BATCH
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK
from kqueue.jobs.gang.extras import lose_their_base, mark, priority_of_gang, to_mark, to_return
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.match import Match, match, of_present_run
from kqueue.jobs.gang.members import in_order, parted
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import priority_source
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import NOW, at, condition, group_workload, make_pod, member

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
MARKED, EARLY = {"kqueue.dev/extra": "true"}, {"kqueue.dev/extra": "early"}
ADMITTED = condition("Admitted")
TWO = group_workload({"r": 2}, ADMITTED)
STARTED: JSON = {"gated": False, "phase": "Running", "node": "n"}


def pod(name: str, *, role: str = "r", extra: bool = False, early: bool = False, **settings: Any) -> ManagedPod:
    """A gated member of a gang with quorum 2."""
    marks = EARLY if early else MARKED if extra else None
    made = make_pod(name, role=role, annotations=marks, **settings)
    made["metadata"]["labels"] |= {NAME: "g", QUORUM: "2"}
    return managed_pod(made, ON)


def base(**settings: Any) -> list[ManagedPod]:
    return [pod(name, **{**STARTED, **settings}) for name in ("a", "b")]


def extras(number: int, *, start: int = 0, **settings: Any) -> list[ManagedPod]:
    return [pod(f"x{i:02}", born=i + 1, **settings) for i in range(start, start + number)]


def found(*pods: ManagedPod, workload: JSON = TWO) -> Match:
    matched = match(in_order(pods), workload, NOW)
    assert matched is not None
    return matched


def names(pods: tuple[ManagedPod, ...]) -> list[str]:
    return [pod.name for pod in pods]


# --- marking


def test_members_beyond_the_quorum_are_not_deleted() -> None:
    """G3.20, G3.31: also those of a role that the Workload does not have; and they are no misfits."""
    matched = found(*base(), *extras(1), pod("s", role="s", born=9))
    assert (names(matched.extras), matched.excess, matched.strangers) == (["x00", "s"], (), ())


@pytest.mark.parametrize(
    ("pods", "workload", "expected"),
    [
        pytest.param(base(), TWO, ["x00", "x01"], id="the-quorum-is-scheduled"),
        pytest.param([base()[0], pod("b", gated=False)], TWO, [], id="one-of-two-is"),
        pytest.param(base(phase="Succeeded"), TWO, ["x00", "x01"], id="succeeded-counts"),
        pytest.param(base(), group_workload({"r": 2}), [], id="not-admitted"),
        pytest.param(base(), group_workload({"r": 2}, ADMITTED, condition("Evicted")), [], id="evicted"),
        pytest.param([pod("a"), pod("b")], TWO, [], id="not-released"),
    ],
)
def test_extras_are_marked_when_the_quorum_has_started(
    pods: list[ManagedPod], workload: JSON, expected: list[str]
) -> None:
    """G3.22."""
    assert names(to_mark(found(*pods, *extras(2), workload=workload), (), workload)) == expected


def test_with_a_topology_the_release_is_enough() -> None:
    """G3.22: its places are taken from then on."""
    domains = {"levels": ["rack"], "slices": []}
    assigned = {"podSetAssignments": [{"name": "r", "count": 2, "topologyAssignment": domains}]}
    placed = group_workload({"r": 2}, ADMITTED, status={"admission": assigned})
    released = [pod(name, gated=False) for name in ("a", "b")]
    assert names(to_mark(found(*released, *extras(1), workload=placed), (), placed)) == ["x00"]
    assert to_mark(found(*released, *extras(1)), (), TWO) == ()


def test_so_many_extras_wait_at_a_time() -> None:
    """G3.22: oldest first; one that runs or has ended makes room for the next."""
    waiting = extras(40)
    assert names(to_mark(found(*base(), *waiting), (), TWO)) == names(tuple(waiting[:EXTRAS_WAITING]))
    marked = extras(EXTRAS_WAITING, extra=True)
    rest = extras(10, start=EXTRAS_WAITING)
    assert to_mark(found(*base(), *rest), marked, TWO) == ()
    runs = [pod("x00", extra=True, **STARTED), *marked[1:]]
    assert names(to_mark(found(*base(), *rest), runs, TWO)) == [rest[0].name]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(TWO, ["x00", "x01"], id="admitted"),
        pytest.param(group_workload({"r": 2}), [], id="not-admitted"),
        pytest.param(group_workload({"r": 2}, condition("QuotaReserved")), [], id="checks-are-not-ready"),
        pytest.param(group_workload({"r": 2}, ADMITTED, condition("Evicted")), [], id="evicted"),
    ],
)
def test_early_extras_need_the_admission_alone(workload: JSON, expected: list[str]) -> None:
    """G3.69: whether the members of the quorum are released or not."""
    gated = (pod("a"), pod("b"))
    assert names(to_mark(found(*gated, *extras(2), workload=workload), (), workload, early=True)) == expected


def test_only_so_many_early_extras_wait_at_a_time() -> None:
    """G3.22, G3.69."""
    gated, waiting = (pod("a"), pod("b")), extras(40)
    first = waiting[:EXTRAS_WAITING]
    assert names(to_mark(found(*gated, *waiting), (), TWO, early=True)) == names(tuple(first))
    marked = extras(EXTRAS_WAITING, early=True)
    assert to_mark(found(*gated, *waiting[EXTRAS_WAITING:]), marked, TWO, early=True) == ()


def test_an_early_mark_says_so() -> None:
    """Until it is written anew, the pod is an extra that nobody releases."""
    early = apply_merge_patch(pod("x").obj, mark(pod("x"), TWO, early=True))
    assert (managed_pod(early, ON).extra, managed_pod(early, ON).early) == (True, True)
    late = apply_merge_patch(early, mark(managed_pod(early, ON), TWO))
    assert (managed_pod(late, ON).extra, managed_pod(late, ON).early) == (True, False)
    in_group = managed_pod(make_pod("a", group="g", total=2, annotations=EARLY), ON)
    assert (in_group.extra, in_group.early, in_group.alone) == (False, False, False)


def test_members_that_waited_at_the_end_are_marked_then() -> None:
    """G3.26: and those that come later are none of this Workload's."""
    over = {**condition("Finished"), "lastTransitionTime": at(-990)}
    ended = group_workload({"r": 2}, ADMITTED, over)
    late = pod("late", born=20)
    assert names(to_mark(found(*base(phase="Succeeded"), *extras(2), late, workload=ended), (), ended)) == [
        "x00",
        "x01",
    ]


def test_a_mark_brings_queue_and_class_of_the_gang() -> None:
    """G3.23: where the pod has none of its own."""
    workload = group_workload({"r": 2}, spec={"priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "high"}})
    bare = apply_merge_patch(pod("x", queue=None).obj, mark(pod("x", queue=None), workload))
    assert bare["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "main"
    assert bare["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert managed_pod(bare, ON).extra
    own = mark(pod("x", queue="mine", labels={"kueue.x-k8s.io/priority-class": "low"}), workload)
    assert own == {"metadata": {"annotations": MARKED}}


def test_kueues_groups_have_no_extras() -> None:
    """The mark means nothing there."""
    member = managed_pod(make_pod("a", group="g", total=2, annotations=MARKED), ON)
    assert (member.extra, member.alone) == (False, False)
    assert parted([member]) == ([member], ())
    alone = managed_pod(make_pod("a", annotations=MARKED), ON)
    assert (alone.extra, alone.alone) == (False, True)


# --- taking marks back


def test_a_waiting_extra_fills_the_place_of_a_lost_member() -> None:
    """G3.29: the oldest of the role that is gated and has no reservation; one that runs does not (G3.30)."""
    lost = found(base()[0])
    marked = [pod("runs", extra=True, born=0, **STARTED), pod("s", extra=True, role="s"), *extras(3, extra=True)]
    assert names(to_return(lost, marked, TWO, reserved=lambda _: False)) == ["x00"]
    assert names(to_return(lost, marked, TWO, reserved=lambda pod: pod.name == "x00")) == ["x01"]
    assert to_return(found(*base()), marked, TWO, reserved=lambda _: False) == ()
    early = extras(2, early=True)
    assert names(to_return(lost, early, TWO, reserved=lambda _: True)) == ["x00"]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(TWO, False, id="admitted"),
        pytest.param(group_workload({"r": 2}, ADMITTED, condition("Evicted")), True, id="evicted"),
        pytest.param(group_workload({"r": 2}, condition("QuotaReserved", "False")), True, id="waits"),
        pytest.param(group_workload({"r": 2}, ADMITTED, metadata={"deletionTimestamp": at(0)}), True, id="deleted"),
        pytest.param(group_workload({"r": 2}, condition("Finished")), False, id="finished"),
        pytest.param(None, True, id="gone"),
    ],
)
def test_extras_go_with_the_admission_of_their_base(workload: JSON | None, expected: bool) -> None:
    """G3.25, G3.26."""
    assert lose_their_base(extras(1, extra=True), base(), workload) is expected
    assert not lose_their_base((), base(), workload)


def test_extras_outlive_a_base_that_has_ended() -> None:
    """Its Workload may be gone before they are."""
    assert not lose_their_base(extras(1, extra=True), base(phase="Succeeded"), None)


def wpc(name: str) -> JSON:
    return {"kind": "WorkloadPriorityClass", "name": name}


def pc(name: str) -> JSON:
    return {"kind": "PriorityClass", "name": name}


@pytest.mark.parametrize(
    ("label", "reference", "of_object", "wanted"),
    [
        pytest.param("", wpc("gold"), {}, wpc("gold"), id="class of workloads"),
        pytest.param("own", wpc("gold"), {}, wpc("gold"), id="the gang counts before the label"),
        pytest.param("", pc("low"), {}, pc("low"), id="class of pods"),
        pytest.param("own", pc("low"), {}, pc("low"), id="the gang counts before label and class"),
        pytest.param("", {}, {}, None, id="the gang has no class"),
        pytest.param("", None, {"spec": {"priorityClassName": "of-object"}}, pc("of-object"), id="one by one"),
        pytest.param("own", None, {"spec": {"priorityClassName": "of-object"}}, wpc("own"), id="one by one, a label"),
        pytest.param("own", None, {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "gold"}}}, wpc("gold"),
                     id="one by one, the label of the object"),
        pytest.param("", None, {}, pc("high"), id="one by one, the pod's own"),
    ],
)  # fmt: skip
def test_the_class_of_the_gang_is_that_of_its_extras(
    label: str, reference: JSON | None, of_object: JSON, wanted: JSON | None
) -> None:
    """G3.23, G3.35: `reference` is that of the quorum's Workload, None without one."""
    labels = {"kueue.x-k8s.io/priority-class": label} if label else {}
    sets = [{"template": {"spec": {"priorityClassName": "high"}}}]
    workload = None if reference is None else {"spec": {"priorityClassRef": reference}}
    source = priority_source(*priority_of_gang({"metadata": {"labels": labels}}, sets, workload, of_object))
    assert (None if source is None else {"kind": source.kind, "name": source.name}) == wanted


# --- runs


def of_process(name: str, **settings: Any) -> ManagedPod:
    """A member of a BatchProcess, whose reconciler lets go of pods that have ended."""
    made = make_pod(name, role="r", labels={"kqueue.dev/batch-process": "g"}, **settings)
    owner = {"apiVersion": "kqueue.dev/v1alpha1", "kind": "BatchProcess", "name": "g", "uid": "u", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return managed_pod(made, JobFeatures(gangs=(KUEUE_GROUPS, BATCH)))


@pytest.mark.parametrize(
    ("kind", "workload", "settings", "counts"),
    [
        pytest.param(pod, None, {"phase": "Succeeded", "finalizer": False}, False, id="of-an-earlier-run"),
        pytest.param(pod, TWO, {"phase": "Succeeded", "finalizer": False}, False, id="beside-the-next-workload"),
        pytest.param(pod, TWO, {"phase": "Succeeded"}, True, id="of-this-run"),
        pytest.param(pod, None, {"phase": "Failed", "finalizer": False}, True, id="it-failed-and-is-replaced"),
        pytest.param(
            pod,
            group_workload({"r": 2}, condition("Finished")),
            {"phase": "Succeeded", "finalizer": False},
            True,
            id="its-workload-has-finished",
        ),
        pytest.param(member, None, {"phase": "Succeeded", "finalizer": False}, True, id="of-kueue"),
        pytest.param(of_process, TWO, {"phase": "Succeeded", "finalizer": False}, True, id="of-a-batch-process"),
    ],
)
def test_pods_of_an_earlier_run_are_no_members(
    kind: Callable[..., ManagedPod], workload: JSON | None, settings: JSON, counts: bool
) -> None:
    """The next run needs a quorum of its own."""
    ended, fresh = kind("old", gated=False, node="n", **settings), kind("new", born=1)
    assert names(tuple(of_present_run([ended, fresh], workload))) == (["old", "new"] if counts else ["new"])
