"""What a StatefulSet's Workload and pods are to say, and what is done about it next."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.composed import GroupPlan, Next, outdated
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.gang.match import match_prebuilt
from kqueue.jobs.gang.members import in_order, is_fast, is_serving
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.stateful_set import StatefulSet
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from tests.unit.jobs.builders import UID, prefixed
from tests.unit.jobs.pods import condition, make_pod

JSON = dict[str, Any]
ON, LABELS = JobFeatures(), JobFeatures(identifier_annotations=False)
INDEX = "apps.kubernetes.io/pod-index"
REVISION = "controller-revision-hash"
RESERVED = condition("QuotaReserved")
HELD = condition("QuotaReserved", "False", "OnHold")
WAITS = condition("QuotaReserved", "False", "WaitingForQuota")
OVER = condition("Finished", reason="FailedToStart")


def made(
    replicas: int | None = 3,
    *,
    queue: str = "main",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    template: dict[str, str] | None = None,
    cpu: str = "1",
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    marks = prefixed(pod_suspending_parent="statefulset") | (template or {})
    return {
        "metadata": {
            "name": "db", "namespace": "team", "uid": UID, "annotations": annotations or {},
            "labels": prefixed(queue_name=queue) | (labels or {}),
        },
        "spec": {
            "replicas": replicas,
            "template": {"metadata": {"annotations": marks, "labels": {"app": "db"}}, "spec": {"containers": [container]}},
            **spec,
        },
        "status": status or {},
    }  # fmt: skip


def plan_of(stateful_set: JSON, switches: JobFeatures = ON) -> GroupPlan:
    kind = StatefulSet()
    (group,) = kind.groups(stateful_set, switches)
    return GroupPlan(kind, stateful_set, group, switches)


def workload(stateful_set: JSON, *conditions: JSON, **changes: Any) -> JSON:
    found = plan_of(stateful_set).workload(Priority())
    return apply_merge_patch({**found, "status": {"conditions": list(conditions)}}, changes)


def pod(number: int = 0, *, revision: str = "new", parent: str | None = "statefulset", **settings: Any) -> ManagedPod:
    marks = prefixed(role_hash="abc") | ({} if parent is None else prefixed(pod_suspending_parent=parent))
    labels = {INDEX: str(number), REVISION: revision}
    made_so = make_pod(f"db-{number}", annotations=marks, labels=labels, queue=None, finalizer=False, **settings)
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": UID, "controller": True}
    made_so["metadata"]["ownerReferences"] = [owner]
    return managed_pod(made_so, ON)


def stamped(found: ManagedPod, stateful_set: JSON, its: JSON, switches: JobFeatures = ON) -> ManagedPod:
    change = plan_of(stateful_set, switches).stamp(found, its)
    return managed_pod(apply_merge_patch(found.obj, change), switches)


# --- the Workload


def test_its_workload_is_one_pod_set_of_all_replicas() -> None:
    """9: named by the usual rule, owned plainly, marked as a group's, numbered by the pods' index."""
    stateful_set = made(
        labels=prefixed(priority_class="high") | {"team": "a"}, annotations=prefixed(admission_gated_by="a.b/c")
    )
    found = plan_of(stateful_set).workload(
        Priority(value=5, kind="WorkloadPriorityClass", name="high"), CopiedKeys(labels=("team",))
    )
    (pod_set,) = found["spec"]["podSets"]

    assert found["metadata"]["name"] == plan_of(stateful_set).names[0]
    assert found["metadata"]["name"].startswith("statefulset-db-")
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": UID}
    ]
    assert found["metadata"]["labels"] == {"team": "a"} | prefixed(job_uid=UID)
    assert found["metadata"]["annotations"] == prefixed(
        is_group_workload="true",
        job_owner_gvk="apps/v1, Kind=StatefulSet",
        job_owner_name="db",
        admission_gated_by="a.b/c",
    )
    assert (pod_set["name"], pod_set["count"], pod_set["topologyRequest"]) == ("main", 3, {"podIndexLabel": INDEX})
    assert (found["spec"]["queueName"], found["spec"]["priority"]) == ("main", 5)
    assert found["spec"]["priorityClassRef"]["name"] == "high"


def test_topology_is_asked_for_as_the_template_says() -> None:
    """Annotations of the template, as with a Job."""
    (pod_set,) = plan_of(made(template=prefixed(podset_required_topology="rack"))).group.pod_sets

    assert pod_set["topologyRequest"] == {"required": "rack", "podIndexLabel": INDEX}


ANOTHER = {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]}}
LEAVING = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(
    ("stateful_set", "its", "runs", "expected"),
    [
        pytest.param(made(), None, False, Next.CREATE, id="none yet"),
        pytest.param(made(0), None, False, Next.NOTHING, id="none needed"),
        pytest.param(made(), workload(made()), False, Next.NOTHING, id="waits"),
        pytest.param(made(), workload(made(), RESERVED), True, Next.NOTHING, id="runs"),
        pytest.param(made(), workload(made(), **ANOTHER), False, Next.ADOPT, id="made by somebody else"),
        pytest.param(
            made(), workload(made(), metadata={"annotations": prefixed(admission_gated_by="a.b/c")}), False, Next.ADOPT,
            id="gated by what is gated no more",
        ),
        pytest.param(made(), workload(made(), **LEAVING), False, Next.NOTHING, id="on its way out"),
        pytest.param(made(), workload(made(), OVER), False, Next.OVER, id="at its end before the pods"),
        pytest.param(made(0), workload(made(), OVER), False, Next.NOTHING, id="at its end, and nothing wanted"),
        pytest.param(made(0), workload(made(), RESERVED), True, Next.WAIT, id="quota stays while pods are left"),
        pytest.param(made(0), workload(made(), RESERVED), False, Next.HOLD, id="quota goes with the last pod"),
        pytest.param(made(0), workload(made(), WAITS), False, Next.HOLD, id="who waits for nothing is not in line"),
        pytest.param(made(0), workload(made()), False, Next.HOLD, id="nor is who was never tried"),
        pytest.param(made(0), workload(made(), HELD), False, Next.NOTHING, id="on hold already"),
        pytest.param(made(), workload(made(), HELD), False, Next.RESUME, id="wanted again"),
        pytest.param(made(5), workload(made(), HELD), False, Next.REWRITE, id="wanted again with another size: first that"),
        pytest.param(made(5), workload(made(), WAITS), False, Next.REWRITE, id="another size while it waits"),
        pytest.param(made(cpu="2"), workload(made(), WAITS), False, Next.REWRITE, id="other requests while it waits"),
        pytest.param(made(cpu="1000m"), workload(made(), WAITS), False, Next.NOTHING, id="the same in other words"),
        pytest.param(made(5), workload(made(), RESERVED), True, Next.MISFIT, id="more than were admitted"),
        pytest.param(made(2), workload(made(), RESERVED), True, Next.MISFIT, id="fewer than were admitted"),
        pytest.param(made(5), workload(made(), RESERVED), False, Next.GIVE_BACK, id="another size before any has begun"),
        pytest.param(made(5), workload(made(), WAITS), True, Next.MISFIT, id="another size while evicted pods end"),
        pytest.param(made(None), workload(made(1), RESERVED), True, Next.NOTHING, id="one is what is not said"),
    ],
)  # fmt: skip
def test_what_is_done_with_the_workload(stateful_set: JSON, its: JSON | None, runs: bool, expected: Next) -> None:
    """One thing at a time; the answer of the API server brings the next."""
    assert plan_of(stateful_set).next_step(its, runs=runs) is expected


# --- its pods


@pytest.mark.parametrize("switches", [ON, LABELS], ids=["annotations", "labels"])
def test_pods_join_the_group_once(switches: JobFeatures) -> None:
    """9: they are prebuilt, fast, serving members of role `main`; a second look changes nothing."""
    stateful_set = made(labels=prefixed(priority_class="high"))
    its = workload(stateful_set)
    before = pod(1)
    name = its["metadata"]["name"]
    after = stamped(before, stateful_set, its, switches)
    marks, labels = after.obj["metadata"]["annotations"], after.obj["metadata"]["labels"]
    identifiers = labels if switches is LABELS else marks

    assert after.group == f"team/{name}"
    assert after.role == "main"
    assert prefixed(pod_group_name=name, prebuilt_workload_name=name).items() <= identifiers.items()
    assert prefixed(pod_group_pod_index_label=INDEX, role_hash="main").items() <= marks.items()
    assert marks["kueue.x-k8s.io/pod-group-total-count"] == "3"
    assert (is_fast(after), is_serving(after)) == (True, True)
    assert prefixed(queue_name="main", priority_class="high", managed="true").items() <= labels.items()
    assert plan_of(stateful_set, switches).stamp(after, its) == {}


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(pod(deleted=0), id="on its way out"),
        pytest.param(pod(phase="Failed", gated=False), id="ended"),
        pytest.param(pod(parent=None), id="made before its parent was queued"),
        pytest.param(pod(parent="leaderworkerset.x-k8s.io/leaderworkerset"), id="of another owner of groups"),
    ],
)
def test_pods_that_do_not_join(found: ManagedPod) -> None:
    """They are left alone."""
    assert plan_of(made()).stamp(found, workload(made())) == {}


def test_later_only_queue_and_size_are_handed_on() -> None:
    """Not the priority class; never a size beyond the Workload's."""
    member = stamped(pod(), made(), workload(made()))
    moved = made(queue="other", labels=prefixed(priority_class="new"))

    assert plan_of(moved).stamp(member, workload(made())) == {"metadata": {"labels": prefixed(queue_name="other")}}
    assert plan_of(made(5)).stamp(member, workload(made())) == {}
    assert plan_of(made(2)).stamp(member, workload(made())) == {
        "metadata": {"annotations": prefixed(pod_group_total_count="2")}
    }


def test_a_pod_that_was_started_stays_in_its_queue() -> None:
    """Its webhook would refuse another, and this one has paid for it."""
    member = stamped(pod(), made(), workload(made()))
    started = managed_pod(apply_merge_patch(member.obj, {"spec": {"schedulingGates": None}}), ON)

    assert plan_of(made(queue="other")).stamp(started, workload(made())) == {}


def test_a_pod_of_another_group_stays_in_it() -> None:
    """A group cannot change."""
    member = stamped(pod(), made(), workload(made()))
    other = workload(made(), metadata={"name": "other"})

    assert plan_of(made()).stamp(member, other) == {}


def test_stamped_pods_match_the_workload_also_once_some_have_started() -> None:
    """What a start adds to a pod does not set it apart from those that come later."""
    its = workload(made())
    first, second = (stamped(pod(i), made(), its) for i in range(2))
    marker = {"metadata": {"annotations": prefixed(podset_unconstrained_topology="true")}}
    started = managed_pod(apply_merge_patch(first.obj, {**marker, "spec": {"schedulingGates": None}}), ON)
    found = match_prebuilt(in_order([started, second]), its, ON)

    assert found is not None
    assert [member.name for member in found.kept] == ["db-0", "db-1"]


ROLLING = {"currentRevision": "old", "updateRevision": "new"}


@pytest.mark.parametrize(
    ("stateful_set", "expected"),
    [
        pytest.param(made(status=ROLLING), ["db-0"], id="rolling"),
        pytest.param(made(status={"currentRevision": "old", "updateRevision": "old"}), [], id="at rest"),
        pytest.param(made(), [], id="not looked at yet"),
        pytest.param(made(status=ROLLING, updateStrategy={"type": "OnDelete"}), [], id="on deletion only"),
        pytest.param(
            made(status=ROLLING, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}), [],
            id="below the partition, where it would be made as it was",
        ),
    ],
)  # fmt: skip
def test_held_pods_of_the_old_revision_go(stateful_set: JSON, expected: list[str]) -> None:
    """Started ones are the StatefulSet controller's to replace."""
    pods = [
        pod(0, revision="old"),
        pod(1, revision="old", gated=False, phase="Running"),
        pod(2),
        pod(3, revision="old", deleted=0),
    ]

    assert [found.name for found in outdated(stateful_set, pods)] == expected


def test_what_metrics_read_is_copied_to_the_workload_of_a_set() -> None:
    """Labels and annotations that custom labels of metrics name."""
    own = {"labels": {"tier": "gold"}, "annotations": {"example.com/cost": "7"}}
    stateful_set = {"metadata": {"name": "web", "namespace": "team", "uid": "u", **own}, "spec": {"template": {}}}
    keys = CopiedKeys(metric_labels=("tier", "no"), metric_annotations=("example.com/cost", "no"))
    found = plan_of(stateful_set).workload(Priority(), keys)["metadata"]

    assert (found["labels"]["tier"], found["annotations"]["example.com/cost"]) == ("gold", "7")
    assert "no" not in found["labels"] | found["annotations"]
