"""The record of a gang, which status, deadlines, views and metrics share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kqueue.jobs.gang import coscheduling_labels, podgroup_volcano, podgroup_x_k8s
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import counts_of_gang, gang_of, record_annotations
from kqueue.jobs.gang.value import Gang, GangPhase, GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import NOW, at, condition, group_workload, make_pod

LABELS, PG, VOLCANO = (d.FRAMEWORK for d in (coscheduling_labels, podgroup_x_k8s, podgroup_volcano))
ON = JobFeatures(gangs=(KUEUE_GROUPS, PG, LABELS, VOLCANO))
RULES = GangRules(switches=ON)
RESERVED = (condition("QuotaReserved"), condition("Admitted"))


def labelled(name: str, *, quorum: int = 2, **more: Any) -> ManagedPod:
    """A member of label gang `g`."""
    return view(name, {"pod-group.scheduling.x-k8s.io/name": "g",
                       "pod-group.scheduling.x-k8s.io/min-available": str(quorum)}, **more)  # fmt: skip


def of_object(name: str, **more: Any) -> ManagedPod:
    """A member of PodGroup `g`."""
    return view(name, {"scheduling.x-k8s.io/pod-group": "g"}, **more)


def view(name: str, labels: dict[str, str], **more: Any) -> ManagedPod:
    return managed_pod(make_pod(name, role=more.pop("role", "r"), labels=labels, **more), ON)


def pod_group(minimum: int = 2, **spec: Any) -> JSON:
    meta = {"name": "g", "namespace": "team", "uid": "u", "creationTimestamp": at(-5000)}
    head = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    return {**head, "metadata": meta, "spec": {"minMember": minimum, **spec}}


def record(
    members: list[ManagedPod], obj: JSON | None = None, workload: JSON | None = None, *, of: str = PG, **more: Any
) -> Gang:
    ref = GangRef(framework=of, namespace="team", name="g")
    return gang_of(ref, obj, members, workload, RULES, now=NOW, **more)


# --- identity


def test_the_group_object_identifies_its_gang() -> None:
    """g1_6, g1_7, g1_12."""
    found = record([of_object("a")], pod_group())
    assert (found.uid, found.since) == ("u", NOW - timedelta(seconds=5000))
    assert found.owner is not None
    assert found.owner["uid"] == "u"


def test_the_first_member_identifies_a_gang_without_object() -> None:
    """g1_6, g1_7: as the caller has seen it, then as the Workload keeps it; else the oldest that is left."""
    members = [labelled("b", born=5), labelled("c", born=9)]
    assert (record(members, of=LABELS).uid, record(members, of=LABELS).since) == ("uid-b", members[0].created)
    first = ("uid-a", NOW - timedelta(seconds=2000))
    assert record(members, of=LABELS, first=first).uid == "uid-a"
    kept = group_workload({"r": 2}, metadata={"annotations": record_annotations(None, first)})
    after = record(members, workload=kept, of=LABELS)
    assert (after.uid, after.since) == first


@pytest.mark.parametrize("written", ["soon", "2026-01-01T00:00:00", ""])
def test_a_time_that_a_user_has_damaged_is_not_read(written: str) -> None:
    kept = group_workload({"r": 2}, metadata={"annotations": {"kqueue.dev/gang-since": written}})
    assert record([labelled("b")], workload=kept, of=LABELS).since == labelled("b").created


# --- base, extras, what is missing


def test_an_incomplete_gang_has_a_wish_and_a_problem() -> None:
    found = record([of_object("a")], pod_group(3))
    assert (found.quorum, found.absent) == (3, {"": 2})
    assert found.wish is not None
    assert found.problem is not None
    assert found.problem.message == "the group has 1 of 3 pods; it waits for 2 more"


def test_a_contradiction_leaves_no_wish() -> None:
    found = record([of_object("a")], pod_group(-1))
    assert (found.wish, found.quorum) == (None, 0)
    assert found.problem is not None
    assert not found.problem.incomplete
    assert counts_of_gang(found, None, before=None).phase is GangPhase.PENDING


def test_minima_that_are_missing_are_told_by_role() -> None:
    pods = [view(n, {}, annotations={"scheduling.k8s.io/group-name": "g"}, role="w") for n in "ab"]
    found = record(pods, pod_group(4, minTaskMember={"w": 2, "ps": 1}), of=VOLCANO)
    assert found.absent == {"ps": 1, "": 1}


def test_a_group_object_without_pods_has_a_record() -> None:
    found = record([], pod_group())
    assert (found.uid, found.members, found.absent) == ("u", (), {"": 2})
    assert record([], pod_group(), of=VOLCANO).problem is not None


def test_members_beyond_the_quorum_are_extras() -> None:
    """g1_9: marked or not."""
    marked = of_object("x", born=9, annotations={"kqueue.dev/extra": "true"})
    found = record([of_object("c", born=2), of_object("b", born=1), marked, of_object("a")], pod_group())
    assert [pod.name for pod in found.base] == ["a", "b"]
    assert [pod.name for pod in found.extras] == ["c", "x"]
    assert found.problem is None


def test_while_the_workload_holds_quota_its_counts_fix_the_base() -> None:
    """g1_9, g3_64: the admitted number counts, whatever the object wishes now."""
    held = group_workload({"r": 2}, *RESERVED)
    found = record([of_object("a"), of_object("b", born=1)], pod_group(5), held)
    assert (found.quorum, found.absent, found.problem) == (2, {}, None)
    lost = record([of_object("a")], pod_group(5), held)
    assert lost.absent == {"r": 1}
    waits = record([of_object("a")], pod_group(5), group_workload({"r": 2}, condition("QuotaReserved", "False")))
    assert waits.quorum == 5


def test_the_lowest_priority_counts() -> None:
    """g3_36."""
    members = [of_object("a", priority=10), of_object("b", priority=5), of_object("c", priority=1, phase="Failed")]
    assert record(members, pod_group()).priority == 5


def test_kueues_groups_have_a_record() -> None:
    """Views list them beside the others; beyond their total no pod is an extra."""
    pods = [managed_pod(make_pod(n, group="g", total=2, role="r"), ON) for n in "ab"]
    found = record(pods, of=KUEUE_GROUPS)
    assert (found.quorum, len(found.base), found.extras, found.problem) == (2, 2, (), None)
