"""LeaderWorkerSets: their groups with Workloads, the places of their pods, and what the webhook writes and refuses."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.catalog import REVIEWED
from kqueue.jobs.composed import ComposedGroup, GroupPlan, Next, is_marked, outdated, vanished_group
from kqueue.jobs.copied import CopiedKeys
from kqueue.jobs.gang.match import match_prebuilt
from kqueue.jobs.gang.members import in_order, is_fast, is_serving
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.kind import JobContext
from kqueue.jobs.leader_worker_set import FRAMEWORK, LeaderWorkerSet
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod_view import ManagedPod, waits_for_its_parent
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_name
from tests.unit.jobs.builders import UID, make_template, prefixed
from tests.unit.jobs.pods import condition, make_pod

JSON = dict[str, Any]
KIND = LeaderWorkerSet()
HERE, ON = JobContext(), JobFeatures()
LWS = "leaderworkerset.sigs.k8s.io/"
INDEX = f"{LWS}worker-index"
LEADER_AT, WORKER_AT = "spec.leaderWorkerTemplate.leaderTemplate", "spec.leaderWorkerTemplate.workerTemplate"
REQUIRED, GROUP = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-group-name"
QUEUE, PRIORITY = (f"metadata.labels[kueue.x-k8s.io/{name}]" for name in ("queue-name", "priority-class"))
MARKS = prefixed(pod_suspending_parent=FRAMEWORK, pod_group_serving="true")
RESERVED = condition("QuotaReserved")


def made(
    replicas: int | None = 2,
    *,
    size: int | None = 3,
    leader: JSON | None = None,
    worker: JSON | None = None,
    queue: str | None = "main",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    surge: int | str | None = None,
    generation: int = 1,
    status: JSON | None = None,
    **metadata: Any,
) -> JSON:
    """As its user writes it; `leader` and `worker` are its templates."""
    own = {} if queue is None else prefixed(queue_name=queue)
    rolling = {} if surge is None else {"rollingUpdateConfiguration": {"maxSurge": surge}}
    template = {"workerTemplate": worker or make_template(annotations=MARKS)}
    if leader is not None:
        template["leaderTemplate"] = leader
    return {
        "metadata": {
            "name": "serve", "namespace": "team", "uid": UID, "labels": own | (labels or {}),
            "annotations": annotations or {}, "generation": generation, **metadata,
        },
        "spec": {
            "leaderWorkerTemplate": template | ({} if size is None else {"size": size}),
            "rolloutStrategy": {"type": "RollingUpdate", **rolling},
            **({} if replicas is None else {"replicas": replicas}),
        },
        "status": status or {},
    }  # fmt: skip


def member(
    group: int = 0, rank: int = 0, *, name: str = "serve", owner: str = "", parent: str = FRAMEWORK, **settings: Any
) -> ManagedPod:
    """A pod as the controller of LeaderWorkerSets and the webhook make it."""
    leader = f"{name}-{group}"
    labels = {f"{LWS}name": name, f"{LWS}group-index": str(group), INDEX: str(rank)}
    labels |= {"controller-revision-hash": "old", "apps.kubernetes.io/pod-index": str(rank or group)}
    annotations = prefixed(pod_suspending_parent=parent, pod_group_serving="true", role_hash="abc")
    if rank:
        annotations |= {f"{LWS}leader-name": leader}
    own = leader if rank else name
    pod = make_pod(
        f"{leader}-{rank}" if rank else leader, labels=labels, annotations=annotations, finalizer=False, **settings
    )
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner or own, "uid": f"set-{own}"}
    pod["metadata"]["ownerReferences"] = [reference | {"controller": True}]
    return managed_pod(pod, ON)


def groups_of(obj: JSON, switches: JobFeatures = ON) -> list[ComposedGroup]:
    return list(KIND.groups(obj, switches))


def plan_of(obj: JSON, index: int = 0, switches: JobFeatures = ON) -> GroupPlan:
    return GroupPlan(KIND, obj, groups_of(obj, switches)[index], switches)


def workload(obj: JSON, *conditions: JSON, index: int = 0, **changes: Any) -> JSON:
    found = plan_of(obj, index).workload(Priority())
    return apply_merge_patch({**found, "status": {"conditions": list(conditions)}}, changes)


def stamped(found: ManagedPod, obj: JSON, its: JSON, switches: JobFeatures = ON) -> ManagedPod:
    change = plan_of(obj, KIND.group_of(found.obj) or 0, switches).stamp(found, its)
    return managed_pod(apply_merge_patch(found.obj, change), switches)


# --- groups and their Workloads


def test_each_replica_has_a_workload_of_its_own() -> None:
    """10: named after set and index, owned plainly, marked as a group's with its index."""
    obj = made(labels=prefixed(priority_class="high") | {"team": "a"}, annotations=prefixed(admission_gated_by="a.b/c"))
    priority = Priority(value=5, kind="WorkloadPriorityClass", name="high")
    found = [plan_of(obj, index).workload(priority, CopiedKeys(labels=("team",))) for index in range(2)]

    assert [w["metadata"]["name"] for w in found] == [workload_name(KIND.gvk, f"serve-{i}", UID) for i in range(2)]
    assert found[1]["metadata"]["name"].startswith("leaderworkerset-serve-1-")
    assert found[1]["metadata"]["ownerReferences"] == [
        {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "serve", "uid": UID}
    ]
    assert found[1]["metadata"]["labels"] == {"team": "a"} | prefixed(job_uid=UID)
    assert found[1]["metadata"]["annotations"] == prefixed(
        is_group_workload="true",
        component_workload_index="1",
        job_owner_gvk="leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        job_owner_name="serve",
        admission_gated_by="a.b/c",
    )
    assert (found[1]["spec"]["queueName"], found[1]["spec"]["priority"]) == ("main", 5)


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(made(), [("main", 3, {"podIndexLabel": INDEX})], id="one template for all"),
        pytest.param(made(size=None), [("main", 1, {"podIndexLabel": INDEX})], id="one pod is what is not said"),
        pytest.param(
            made(leader=make_template()), [("leader", 1, None), ("worker", 2, {"podIndexLabel": INDEX})],
            id="leaders of their own",
        ),
        pytest.param(
            made(size=1, leader=make_template()), [("leader", 1, None), ("worker", 0, {"podIndexLabel": INDEX})],
            id="leaders alone",
        ),
        pytest.param(
            made(
                leader=make_template(annotations={REQUIRED: "rack", GROUP: "g"}),
                worker=make_template(annotations={REQUIRED: "rack", GROUP: "g"}),
            ),
            [
                ("leader", 1, {"required": "rack", "podSetGroupName": "g"}),
                ("worker", 2, {"required": "rack", "podSetGroupName": "g", "podIndexLabel": INDEX}),
            ],
            id="placed together",
        ),
    ],
)  # fmt: skip
def test_the_pod_sets_of_a_group(obj: JSON, expected: list[tuple[str, int, JSON | None]]) -> None:
    """10: leader and worker, or main; ranks by the worker's index."""
    for group in groups_of(obj):
        assert [(p["name"], p["count"], p.get("topologyRequest")) for p in group.pod_sets] == expected


def test_names_of_the_controller_are_left_out_of_templates() -> None:
    """10: but for the label with the set's name."""
    template = make_template(
        labels={f"{LWS}name": "serve", f"{LWS}group-index": "0", "app": "x"},
        annotations={f"{LWS}size": "3", "mine": "yes"},
    )
    (pod_set,) = groups_of(made(worker=template))[0].pod_sets

    assert pod_set["template"]["metadata"] == {
        "labels": {f"{LWS}name": "serve", "app": "x"},
        "annotations": {"mine": "yes"},
    }


ROLLS = {"type": "UpdateInProgress", "status": "True"}


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        pytest.param(made(3), 3, id="replicas"),
        pytest.param(made(None), 1, id="one by default"),
        pytest.param(made(0), 0, id="none"),
        pytest.param(made(-1), 0, id="a number past the webhook"),
        pytest.param(made(2, status={"replicas": 4, "updatedReplicas": 1}), 2, id="no surge"),
        pytest.param(made(2, surge=2, status={"replicas": 3, "updatedReplicas": 1}), 3, id="a surge that has begun"),
        pytest.param(made(2, surge=2, status={"replicas": 9, "updatedReplicas": 1}), 4, id="never beyond its limit"),
        pytest.param(made(3, surge="50%", status={"replicas": 9, "updatedReplicas": 0}), 5, id="a share, rounded up"),
        pytest.param(made(3, surge="x", status={"replicas": 9, "updatedReplicas": 0}), 3, id="no number"),
        pytest.param(made(2, surge=2, status={"replicas": 4, "updatedReplicas": 2}), 2, id="complete"),
        pytest.param(
            made(2, surge=2, status={"replicas": 4, "updatedReplicas": 2, "conditions": [ROLLS]}), 4,
            id="complete but for what its condition says",
        ),
        pytest.param(made(2, surge=2, status={"replicas": 1, "updatedReplicas": 0}), 2, id="fewer than wanted"),
    ],
)  # fmt: skip
def test_the_number_of_groups(obj: JSON, expected: int) -> None:
    """10: a rolling update that is not complete counts the groups of its surge."""
    assert KIND.group_count(obj) == expected
    assert [group.index for group in groups_of(obj)] == list(range(expected))


@pytest.mark.parametrize(
    ("its", "expected"),
    [
        pytest.param(workload(made(5), index=4), 4, id="of an index that is gone"),
        pytest.param(workload(made(), index=1), None, id="of an index that is there"),
        pytest.param(workload(made(5, uid="other"), index=4), None, id="of an earlier set of this name"),
        pytest.param(
            workload(made(5), index=4, metadata={"annotations": prefixed(is_group_workload=None)}), None,
            id="of no group",
        ),
        pytest.param(
            workload(made(5), index=4, metadata={"annotations": prefixed(component_workload_index="x")}), None,
            id="without a number",
        ),
    ],
)  # fmt: skip
def test_workloads_of_indexes_that_are_gone(its: JSON, expected: int | None) -> None:
    """10: they are deleted, and no others."""
    assert vanished_group(KIND, made(), its) == expected


@pytest.mark.parametrize(
    ("obj", "its", "runs", "expected"),
    [
        pytest.param(made(), None, False, Next.CREATE, id="none yet, or deleted"),
        pytest.param(made(), workload(made(), RESERVED), True, Next.NOTHING, id="runs"),
        pytest.param(made(leader=make_template()), workload(made(leader=make_template())), False, Next.NOTHING, id="waits"),
        pytest.param(
            made(), workload(made(), metadata={"annotations": prefixed(component_workload_index="1")}), False, Next.ADOPT,
            id="with another index",
        ),
        pytest.param(made(annotations=prefixed(admission_gated_by="a.b/c")), workload(made()), False, Next.ADOPT, id="a gate"),
        pytest.param(made(size=4), workload(made(), RESERVED), True, Next.MISFIT, id="another size while pods run"),
        pytest.param(made(size=4), workload(made(), RESERVED), False, Next.GIVE_BACK, id="another size, its pods are gone"),
        pytest.param(made(size=4), workload(made()), False, Next.REWRITE, id="another size while it waits"),
    ],
)  # fmt: skip
def test_what_is_done_with_the_workload_of_a_group(obj: JSON, its: JSON | None, runs: bool, expected: Next) -> None:
    """As for a StatefulSet, group by group."""
    assert plan_of(obj).next_step(its, runs=runs) is expected


def test_a_misfit_is_told_with_its_remedy() -> None:
    assert "delete the pods of the group" in KIND.misfit(groups_of(made(size=4))[1], 3)


# --- pods


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(member(1), True, id="a leader"),
        pytest.param(member(1, 2), True, id="a worker"),
        pytest.param(member(name="other"), False, id="of another set"),
        pytest.param(member(owner="mine"), False, id="a leader of a StatefulSet of somebody's"),
        pytest.param(member(0, 1, owner="serve-1"), False, id="a worker of another leader's StatefulSet"),
        pytest.param(member(0, -1), False, id="no rank"),
        pytest.param(member(-1), False, id="no group"),
    ],
)
def test_pods_of_a_set(found: ManagedPod, expected: bool) -> None:
    """Labels are not enough: the controller has to be the StatefulSet that the set's controller made for the place."""
    assert KIND.is_member(found.obj, made()) is expected


def test_a_pod_names_its_set_if_the_set_suspends_it() -> None:
    alone = member(parent="statefulset")

    assert KIND.owner_name(member().obj) == "serve"
    assert KIND.owner_name(alone.obj) == ""
    assert waits_for_its_parent(member())


@pytest.mark.parametrize("switches", [ON, JobFeatures(identifier_annotations=False)], ids=["annotations", "labels"])
@pytest.mark.parametrize(
    ("leader", "rank", "role"),
    [(None, 0, "main"), (None, 2, "main"), (make_template(), 0, "leader"), (make_template(), 2, "worker")],
)
def test_pods_join_their_group_once(leader: JSON | None, rank: int, role: str, switches: JobFeatures) -> None:
    """10: they are prebuilt, serving members of their role, and not fast; a second look changes nothing."""
    obj = made(leader=leader, labels=prefixed(priority_class="high"))
    its = workload(obj, index=1)
    name = its["metadata"]["name"]
    after = stamped(member(1, rank), obj, its, switches)
    marks, labels = after.obj["metadata"]["annotations"], after.obj["metadata"]["labels"]
    identifiers = marks if switches.identifier_annotations else labels

    assert (after.group, after.role, after.total) == (f"team/{name}", role, 3)
    assert prefixed(pod_group_name=name, prebuilt_workload_name=name).items() <= identifiers.items()
    assert prefixed(queue_name="main", priority_class="high", managed="true").items() <= labels.items()
    assert (is_fast(after), is_serving(after)) == (False, True)
    assert plan_of(obj, 1, switches).stamp(after, its) == {}


@pytest.mark.parametrize(
    ("found", "its"),
    [
        pytest.param(member(deleted=0), workload(made()), id="on its way out"),
        pytest.param(member(gated=False, phase="Failed"), workload(made()), id="ended"),
        pytest.param(member(parent="statefulset"), workload(made()), id="of another parent"),
        pytest.param(member(0, 3), workload(made()), id="beyond the Workload's count"),
        pytest.param(member(), workload(made(leader=make_template())), id="of a role that the Workload does not have"),
        pytest.param(
            stamped(member(), made(uid="other"), workload(made(uid="other"))),
            workload(made()),
            id="of an earlier set of this name",
        ),
    ],
)
def test_pods_that_do_not_join(found: ManagedPod, its: JSON) -> None:
    """They stay as they are, so that the group always matches its Workload."""
    assert plan_of(made()).stamp(found, its) == {}


def test_only_gated_pods_follow_another_queue() -> None:
    """10: a pod that was started stays in the queue that has paid for it."""
    its, moved = workload(made()), made(queue="other")
    held = stamped(member(), made(), its)
    started = managed_pod(apply_merge_patch(held.obj, {"spec": {"schedulingGates": None}}), ON)

    assert plan_of(moved).stamp(held, its) == {"metadata": {"labels": prefixed(queue_name="other")}}
    assert plan_of(moved).stamp(started, its) == {}


def test_a_group_matches_its_workload_before_all_of_its_pods_exist() -> None:
    """10: without fast admission, because the Workload is prebuilt; a leader may start before its workers."""
    obj = made(leader=make_template())
    its = workload(obj)
    found = match_prebuilt([stamped(member(), obj, its)], its, ON)
    more = match_prebuilt(in_order([stamped(member(0, rank), obj, its) for rank in range(3)]), its, ON)

    assert found is not None
    assert more is not None
    assert [pod.role for pod in more.kept] == ["leader", "worker", "worker"]


ROLLING = {"currentRevision": "old", "updateRevision": "new"}


def test_held_leaders_of_an_old_revision_go() -> None:
    """9 and 10: those of the StatefulSet of all leaders; workers go with their leader, and what runs is not ours."""
    leaders = {"metadata": {"name": "serve", "uid": "set-serve"}, "status": ROLLING}
    pods = [member(0), member(1), member(0, 1), member(2, gated=False, phase="Running"), member(3, deleted=0)]
    partition = {"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}}}

    assert [pod.name for pod in outdated(leaders, pods)] == ["serve-0", "serve-1"]
    assert [pod.name for pod in outdated({**leaders, **partition}, pods)] == ["serve-1"]


@pytest.mark.parametrize(
    ("obj", "pods", "expected"),
    [
        pytest.param(made(generation=2), [member()], "serve", id="changed, and a leader waits"),
        pytest.param(made(), [member()], "", id="never changed"),
        pytest.param(made(generation=2), [member(gated=False), member(0, 1)], "", id="only workers wait"),
    ],
)
def test_revisions_are_read_only_where_they_may_matter(obj: JSON, pods: list[ManagedPod], expected: str) -> None:
    assert KIND.rolled_by(obj, pods) == expected


# --- the webhook: defaults


def defaulted(obj: JSON, around: JobContext = HERE) -> JSON:
    found: JSON = apply_merge_patch(obj, KIND.defaults(obj, around))
    return found


def metadata_of(obj: JSON, template: str) -> JSON:
    found: JSON = obj["spec"]["leaderWorkerTemplate"][template]["metadata"]
    return found


def test_its_pods_name_queue_class_and_parent() -> None:
    """10: from the templates on; workers beside a leader template begin with rank 1; once done nothing changes."""
    plain = make_template(labels={"app": "x"})
    done = defaulted(made(leader=plain, worker=plain, labels=prefixed(priority_class="high")))
    labels = {"app": "x"} | prefixed(managed="true", queue_name="main", priority_class="high")

    assert metadata_of(done, "leaderTemplate") == {"labels": labels, "annotations": MARKS}
    assert metadata_of(done, "workerTemplate") == {
        "labels": labels,
        "annotations": MARKS | prefixed(pod_index_offset="1"),
    }
    assert KIND.defaults(done, HERE) == {}
    assert is_marked(KIND, done)
    assert not is_marked(KIND, made(leader=plain))


@pytest.mark.parametrize(
    ("obj", "switches"),
    [
        pytest.param(made(worker=make_template()), ON, id="no leader template"),
        pytest.param(made(leader=make_template(annotations={GROUP: "g", REQUIRED: "r"})), ON, id="placed together"),
        pytest.param(made(leader=make_template()), JobFeatures(topology=False), id="no topology"),
    ],
)
def test_workers_that_begin_with_rank_0(obj: JSON, switches: JobFeatures) -> None:
    """10: only beside a leader template, without a group of pod sets."""
    done = metadata_of(defaulted(obj, JobContext(switches=switches)), "workerTemplate")

    assert done["annotations"] == MARKS


@pytest.mark.parametrize(
    ("obj", "around"),
    [
        pytest.param(made(queue=None), HERE, id="without a queue"),
        pytest.param(made(), JobContext(managed_namespace=False), id="in a namespace that is left out"),
        pytest.param(made(), JobContext(managed_ancestor=True), id="with an owner that is queued itself"),
    ],
)
def test_what_is_not_ours_is_left_alone(obj: JSON, around: JobContext) -> None:
    assert KIND.defaults(obj, around) == {}


def test_defaults_of_the_cluster() -> None:
    """3: queue and class named `default`, also where no queue is needed; the kind is reviewed at updates, too."""
    around = JobContext(default_queue=True, default_priority_class=True)
    without = defaulted(made(queue=None, worker=make_template()), JobContext(manage_without_queue=True))

    assert KIND.defaults(made(queue=None), around)["metadata"]["labels"] == prefixed(
        queue_name="default", priority_class="default"
    )
    assert metadata_of(without, "workerTemplate")["labels"] == prefixed(managed="true")
    assert REVIEWED[FRAMEWORK].defaults_on_update


# --- the webhook: validation


def paths(new: JSON, old: JSON | None = None, around: JobContext = HERE) -> list[str]:
    return [problem.path for problem in KIND.problems(new, old, around)]


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(made(), [], id="sound"),
        pytest.param(made(0), [], id="no replicas"),
        pytest.param(made(1_000_000), [], id="the most"),
        pytest.param(made(1_000_001), ["spec.replicas"], id="too many"),
        pytest.param(made(-1), ["spec.replicas"], id="fewer than none"),
        pytest.param(made(queue="Main"), [QUEUE], id="no name of a queue"),
        pytest.param(
            made(annotations=prefixed(elastic_job="true")), ["metadata.annotations[kueue.x-k8s.io/elastic-job]"],
            id="elastic",
        ),
        pytest.param(
            made(annotations=prefixed(admission_gated_by="x")), ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"],
            id="no gate",
        ),
        pytest.param(
            made(leader=make_template(annotations={REQUIRED: "?"}), worker=make_template(annotations={REQUIRED: "?"})),
            [f"{path}.metadata.annotations[{REQUIRED}]" for path in (LEADER_AT, WORKER_AT)],
            id="no level",
        ),
        pytest.param(
            made(leader=make_template(annotations={REQUIRED: "rack", GROUP: "g"})),
            [f"{LEADER_AT}.metadata.annotations[{GROUP}]"], id="one of a pair",
        ),
        pytest.param(
            made(
                leader=make_template(annotations={REQUIRED: "rack", GROUP: "g"}),
                worker=make_template(annotations={REQUIRED: "block", GROUP: "g"}),
            ),
            [f"{WORKER_AT}.metadata.annotations[{REQUIRED}]"], id="a pair that differs",
        ),
        pytest.param(
            made(size=5, worker=make_template(annotations=prefixed(podset_slice_required_topology="rack", podset_slice_size="2"))),
            [f"{WORKER_AT}.metadata.annotations[kueue.x-k8s.io/podset-slice-size]"], id="slices that do not divide a group",
        ),
        pytest.param(made(queue=None, worker=make_template(annotations={REQUIRED: "?"})), [], id="not ours"),
        pytest.param(made(queue="Main", deletionTimestamp="2026-01-01T00:00:00Z"), [], id="on its way out"),
    ],
)  # fmt: skip
def test_creation(new: JSON, expected: list[str]) -> None:
    """4 and 10: all mistakes, by path; the same rules hold for an update that makes them."""
    assert paths(new) == expected
    assert paths(new, made(queue=None)) == expected


OTHER = make_template(nodeSelector={"a": "b"})
BAD = make_template(annotations={REQUIRED: "?"})


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(made(2), made(7), [], id="replicas may change freely"),
        pytest.param(made(), made(size=4), ["spec.leaderWorkerTemplate.size"], id="size"),
        pytest.param(made(size=1), made(size=None), [], id="one is what is not said"),
        pytest.param(made(), made(leader=make_template()), [LEADER_AT], id="a leader template added"),
        pytest.param(made(leader=make_template()), made(), [LEADER_AT], id="a leader template removed"),
        pytest.param(made(), made(worker=OTHER), [f"{WORKER_AT}.spec.nodeSelector"], id="the place of workers"),
        pytest.param(
            made(leader=make_template()), made(leader=OTHER), [f"{LEADER_AT}.spec.nodeSelector"], id="the place of leaders"
        ),
        pytest.param(
            made(), made(worker=make_template(containers=[{"name": "c", "image": "b", "resources": {"requests": {"cpu": "1"}}}])),
            [], id="an image",
        ),
        pytest.param(made(queue=None), made(size=4), [], id="not ours before"),
        pytest.param(made(queue=None), made(queue=None, size=4), [], id="not ours"),
        pytest.param(made(worker=BAD), made(worker=BAD), [], id="old mistakes stay"),
        pytest.param(
            made(annotations=prefixed(admission_gated_by="a.b/c")), made(annotations=prefixed(admission_gated_by="a.b/d")),
            ["metadata.annotations[kueue.x-k8s.io/admission-gated-by]"], id="a gate more",
        ),
        pytest.param(made(), made(queue="b"), [], id="another queue before it serves"),
        pytest.param(made(status={"readyReplicas": 1}), made(queue="b"), [QUEUE], id="another queue while it serves"),
        pytest.param(made(), made(queue=None), [QUEUE], id="the queue removed"),
        pytest.param(made(labels=prefixed(priority_class="a")), made(), [PRIORITY], id="a class removed"),
        pytest.param(
            made(status={"readyReplicas": 1}), made(labels=prefixed(priority_class="a")), [PRIORITY], id="a class added late"
        ),
        pytest.param(
            made(labels=prefixed(priority_class="a"), status={"readyReplicas": 1}), made(labels=prefixed(priority_class="b")), [],
            id="a class exchanged",
        ),
    ],
)  # fmt: skip
def test_changes(old: JSON, new: JSON, expected: list[str]) -> None:
    """10: a group keeps size and shape while it is queued; the number of groups is free."""
    assert paths(new, old) == expected


def test_the_size_may_change_where_its_gate_is_off() -> None:
    """LWSImmutableGroupSize."""
    assert paths(made(size=4), made(), JobContext(switches=JobFeatures(immutable_group_size=False))) == []


def test_labels_without_effect_are_warned_of() -> None:
    obj = made(
        labels=prefixed(max_exec_time_seconds="5"),
        worker=make_template(annotations=prefixed(podset_unconstrained_topology="false")),
    )
    effect, topology = KIND.warnings(obj, HERE)

    assert effect == "kueue.x-k8s.io/max-exec-time-seconds has no effect on a LeaderWorkerSet"
    assert topology.startswith(WORKER_AT)
    assert (KIND.held_by, KIND.holds_back(obj)) == ("", False)
