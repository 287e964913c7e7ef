"""Jobs, JobSets, training jobs and groups of pods that run are imported whole, or the reason is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.config.declared import DeclaredKind
from kqueue.jobs.declared import Declared
from kqueue.jobs.gang.match import counts_gang, match
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.infos import infos_at_start
from kqueue.jobs.slices import SliceStep, counts_of, slice_of
from kqueue.jobs.slices import plan as plan_slices
from kqueue.jobs.workload import belongs, equivalent
from kqueue.operations.importing.mapping import MappingRule
from kqueue.operations.importing.plan import ImportProblem, ImportSettings, ImportStep, Skipped, plan
from kqueue.operations.importing.units import units_in
from kqueue.state.status import admission_json
from tests.unit.cli.importing.running import (
    KUEUE,
    RACK,
    TO_MAIN,
    TRAINING,
    Object,
    job,
    jobset,
    kind_of,
    made,
    of_job,
    planned,
    pod,
    reference,
    template,
    training,
    world,
)

SWITCHES = TO_MAIN.switches
QUEUE = f"{KUEUE}/queue-name"
NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


def running(framework: str) -> tuple[list[Object], list[Object]]:
    """Objects of a kind, the one that is queued first, and their pods."""
    if framework in ("batch/job", "elastic"):
        obj = job(annotations={f"{KUEUE}/elastic-job": "true"} if framework == "elastic" else {})
        return [obj], of_job(obj, "h00", "h01")
    if framework == "jobset.x-k8s.io/jobset":
        obj, children, pods = jobset()
        return [obj, *children.values()], pods
    obj, pods = training(framework)
    return [obj], pods


def only(found: list[Any]) -> ImportStep:
    """The only plan, which is a step."""
    [step] = found
    assert isinstance(step, ImportStep), getattr(step, "text", step)
    return step


def problem(found: list[Any]) -> str:
    """The text of the only plan, which is a problem."""
    [told] = found
    assert isinstance(told, ImportProblem)
    return told.text


@pytest.mark.parametrize("framework", ["batch/job", "elastic", "jobset.x-k8s.io/jobset", *TRAINING])
def test_the_controller_recognises_the_workload_of_every_kind(framework: str) -> None:
    """It is the job's own, describes it with the additions of the admission, and its pods carry the same marks."""
    objects, pods = running(framework)
    step = only(planned(objects, pods))
    kind, obj = kind_of(objects[0]), objects[0]
    admitted = {**step.workload, "status": {
        "admission": admission_json(step.admission), "conditions": [{"type": "QuotaReserved", "status": "True"}]
    }}  # fmt: skip
    infos = infos_at_start(admitted, {name: dict(one) for name, one in world().flavors.items()}, switches=SWITCHES)
    assert isinstance(infos, tuple)
    assert belongs(obj, admitted)
    assert equivalent(kind.pod_sets(obj, SWITCHES), admitted, infos=infos)
    assert {one.name: one.count for one in step.admission.pod_sets} == {info.name: info.count for info in infos}
    marked, queued = step.changes[:-1], step.changes[-1]
    assert sorted(change.obj["metadata"]["name"] for change in marked) == sorted(p["metadata"]["name"] for p in pods)
    assert {change.annotations[f"{KUEUE}/workload"] for change in marked} == {step.workload["metadata"]["name"]}
    assert {info.name: info.count for info in infos} == {
        name: [change.labels[f"{KUEUE}/podset"] for change in marked].count(name) for name in {i.name for i in infos}
    }
    assert all(QUEUE not in change.labels for change in marked), "the queue comes last"
    assert (queued.obj, dict(queued.labels)) == (obj, {QUEUE: "main"})


def test_declared_kinds_are_imported_as_well() -> None:
    """Whatever is told of the kind is enough: the import knows kinds by their adapters alone."""
    kind = Declared(
        DeclaredKind.model_validate(
            {
                "apiVersion": "example.com/v1", "kind": "Train", "suspend": "spec.hold",
                "podSets": [{"name": "engine", "template": "spec.engine", "replicas": "spec.engines"}],
                "succeeded": {"condition": "Arrived"}, "ready": {"count": "status.ready"},
            }
        )
    )  # fmt: skip
    obj: Object = {
        "apiVersion": "example.com/v1", "kind": "Train", "metadata": {"name": "ice", "namespace": "ns", "uid": "ice"},
        "spec": {"engines": 2, "engine": template(podset_required_topology=RACK)},
    }  # fmt: skip
    pods = of_job(obj, "h00", "h01", of=obj["spec"]["engine"])
    [unit] = units_in([(kind, obj)], pods, SWITCHES)
    step = plan(unit, world(), TO_MAIN)
    assert isinstance(step, ImportStep), getattr(step, "text", step)
    [assigned] = step.admission.pod_sets
    assert (assigned.name, assigned.count, assigned.topology is not None) == ("engine", 2, True)
    assert step.changes[-1].resource.plural == "trains"


def ray_cluster() -> tuple[Object, list[Object]]:
    """A RayCluster of a head and two workers, all of one template."""
    group = {"groupName": "gpus", "replicas": 2, "minReplicas": 0, "maxReplicas": 2, "template": template()}
    spec = {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group]}
    obj = made("ray.io/raycluster", spec)
    kinds = (("head", "headgroup"), ("worker", "gpus"), ("worker", "gpus"))
    return obj, [
        pod(f"p{n}", f"h0{n}", controller=obj, labels={"ray.io/node-type": kind, "ray.io/group": name})
        for n, (kind, name) in enumerate(kinds)
    ]


def test_a_ray_cluster_is_imported_and_a_job_above_it_takes_it_along() -> None:
    """Pods of groups are told apart by the labels of KubeRay."""
    cluster, pods = ray_cluster()
    step = only(planned([cluster], pods))
    assert {one.name: one.count for one in step.admission.pod_sets} == {"head": 1, "gpus": 2}
    above = made(
        "ray.io/rayjob",
        {"rayClusterSpec": cluster["spec"], "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True},
        uid="above",
    )
    above["status"] = {"jobDeploymentStatus": "Running"}
    owned = changed(cluster, ownerReferences=[reference(above)])
    assert only(planned([above, owned], pods)).unit.kind.gvk.kind == "RayJob"
    selecting = changed(above, spec={"clusterSelector": {"ray.io/cluster": "x"}})
    assert isinstance(planned([selecting, owned], pods)[0], Skipped)


def test_a_job_that_its_own_controller_refuses_is_refused() -> None:
    """It runs nothing more until its user changes it."""
    cluster, pods = ray_cluster()
    above = made(
        "ray.io/rayjob",
        {"rayClusterSpec": cluster["spec"], "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": True},
        uid="above",
    )
    above["status"] = {"jobDeploymentStatus": "ValidationFailed", "message": "no"}
    owned = changed(cluster, ownerReferences=[reference(above)])
    assert "KubeRay refuses the job: no" in problem(planned([above, owned], pods))


def changed(obj: Object, **parts: Any) -> Object:
    """A copy with other parts of the metadata, or of spec and status."""
    top = {key: parts.pop(key) for key in ("spec", "status") if key in parts}
    return {**obj, "metadata": {**obj["metadata"], **parts}, **{key: {**obj[key], **v} for key, v in top.items()}}


GATED = {"schedulingGates": [{"name": "g"}]}
CRON = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c", "uid": "c"}}
TRAIN_JOB = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "t", "uid": "t"}}


@pytest.mark.parametrize(
    ("of", "pods", "text"),
    [
        pytest.param(job(3), of_job(job(), "h00", "h01"), "pod set main has 2 of 3 pods", id="partly-running"),
        pytest.param(job(1), of_job(job(), "h00", "h01"), "pod set main has 2 of 1 pods", id="more-pods"),
        pytest.param(job(), of_job(job(), "h00", ""), "pod p1 has no node yet", id="without-a-node"),
        pytest.param(job(), of_job(job(), "h00", "h-b"), "several flavors: h-b (b), h00 (a)", id="several-flavors"),
        pytest.param(job(suspend=True), of_job(job(), "h00", "h01"), "is suspended", id="suspended"),
        pytest.param(job(managedBy="example.com/other"), of_job(job(), "h00", "h01"), "example.com/other runs it",
                     id="of-another-controller"),
        pytest.param(job(annotations={f"{KUEUE}/prebuilt-workload-name": "w"}), of_job(job(), "h00", "h01"),
                     "that its user makes, w", id="prebuilt"),
        pytest.param(job(annotations={f"{KUEUE}/admission-gated-by": "example.com/g"}), of_job(job(), "h00", "h01"),
                     "admission gates hold it, example.com/g", id="admission-gates"),
        pytest.param(changed(job(), ownerReferences=[reference(TRAIN_JOB)]), of_job(job(), "h00", "h01"),
                     "TrainJob t controls it", id="of-a-kind-that-is-not-read"),
        pytest.param(job(), [changed(one, deletionTimestamp="now") for one in of_job(job(), "h00", "h01")],
                     "pod p0 is being deleted", id="restarting"),
        pytest.param(job(), [changed(one, spec=GATED) for one in of_job(job(), "h00", "h01")], "scheduling gate",
                     id="gated"),
        pytest.param(job(), [changed(one, annotations={f"{KUEUE}/workload": "w"}) for one in of_job(job(), "h00", "h01")],
                     "names Workload w", id="pods-of-another-workload"),
        pytest.param(changed(job(), labels={QUEUE: "other"}), of_job(job(), "h00", "h01"), "says other", id="other-queue"),
        pytest.param(job(of={**template(), "spec": {**template()["spec"], "nodeSelector": {"pool": "x"}}}),
                     of_job(job(), "h00", "h01"), "could not be started again", id="contradicts-its-flavor"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_truly_is_refused(of: Object, pods: list[Object], text: str) -> None:
    """In one sentence."""
    assert text in problem(planned([of], pods))


def test_a_drained_queue_would_stop_the_job() -> None:
    """The LocalQueue's own policy, and that of the ClusterQueue."""
    pods = of_job(job(), "h00", "h01")
    queue = world().cluster_queues["team"]
    stopped = {**queue, "spec": {**queue["spec"], "stopPolicy": "HoldAndDrain"}}
    assert "drained" in problem(planned([job()], pods, world(drained=frozenset({("ns", "main")}))))
    assert "drained" in problem(planned([job()], pods, world(cluster_queues={"team": stopped})))


def asking(**annotations: str) -> Object:
    """A template that asks for a topology."""
    return template(**annotations)


RACKED = asking(podset_required_topology=RACK)
SLICED = asking(podset_slice_required_topology=RACK, podset_slice_size="2")


@pytest.mark.parametrize(
    ("of", "nodes", "domains"),
    [
        pytest.param(template(), ("h00", "h10"), None, id="nothing-asked-counts-as-foreign"),
        pytest.param(RACKED, ("h01", "h00", "h01"), {("h00",): 1, ("h01",): 2}, id="one-rack"),
        pytest.param(asking(podset_preferred_topology=RACK), ("h10", "h00"), {("h00",): 1, ("h10",): 1}, id="preferred"),
        pytest.param(asking(podset_unconstrained_topology="true"), ("h10", "h00"), {("h00",): 1, ("h10",): 1},
                     id="unconstrained"),
        pytest.param(SLICED, ("h00", "h01", "h10", "h11"), dict.fromkeys((("h00",), ("h01",), ("h10",), ("h11",)), 1),
                     id="slices"),
    ],
)  # fmt: skip
def test_places_are_those_of_the_nodes(of: Object, nodes: tuple[str, ...], domains: dict[Any, int] | None) -> None:
    """In the order of the full paths, which ranks follow."""
    obj = job(len(nodes), of=of)
    [assigned] = only(planned([obj], of_job(obj, *nodes, of=of))).admission.pod_sets
    topology = assigned.topology
    assert (topology and {d.values: d.count for d in topology.domains}) == domains
    assert topology is None or list(topology.domains) == sorted(topology.domains, key=lambda d: d.values)


def test_a_single_pod_that_asks_for_a_place_has_the_one_of_its_node() -> None:
    """Its mark, queue and label come in one write."""
    step = only(planned([], [pod("p", "h10", RACKED)]))
    [assigned], [change] = step.admission.pod_sets, step.changes
    assert assigned.topology is not None
    assert [d.values for d in assigned.topology.domains] == [("h10",)]
    assert change.annotations[f"{KUEUE}/workload"] == step.workload["metadata"]["name"]
    assert (change.labels[QUEUE], change.finalizer) == ("main", False)


def test_all_levels_are_written_where_the_lowest_is_no_host() -> None:
    """As a cycle writes them."""
    racks = {"dc": {"spec": {"levels": [{"nodeLabel": "pool"}, {"nodeLabel": RACK}]}}}
    obj = job(of=RACKED)
    [assigned] = only(planned([obj], of_job(obj, "h00", "h01", of=RACKED), world(topologies=racks))).admission.pod_sets
    assert assigned.topology is not None
    assert assigned.topology.levels == ("pool", RACK)
    assert [(d.values, d.count) for d in assigned.topology.domains] == [(("a", "r0"), 2)]


@pytest.mark.parametrize(
    ("of", "nodes", "more", "text"),
    [
        pytest.param(RACKED, ("h00", "h10"), {}, "requires one domain of level example.com/rack, and its pods run in r0 and"
                     " r1", id="two-racks"),
        pytest.param(SLICED, ("h00", "h01", "h02", "h10"), {}, "slices of 2 pods", id="slice-across-racks"),
        pytest.param(asking(podset_required_topology="example.com/row"), ("h00", "h01"), {}, "does not have",
                     id="no-such-level"),
        pytest.param(RACKED, ("h00", "h-new"), {}, "node h-new lacks the label kubernetes.io/hostname",
                     id="node-without-level"),
        pytest.param(RACKED, ("h-b", "h-b"), {}, "flavor b has none", id="flavor-without-topology"),
        pytest.param(RACKED, ("h00", "h01"), {"topologies": {}}, "Topology dc", id="topology-is-gone"),
    ],
)  # fmt: skip
def test_places_that_the_request_forbids_are_refused(of: Object, nodes: Any, more: Object, text: str) -> None:
    """A running gang is never called placed where it is not."""
    obj = job(len(nodes), of=of)
    assert text in problem(planned([obj], of_job(obj, *nodes, of=of), world(**more)))


def test_pod_sets_of_one_group_share_their_domain() -> None:
    """Each in one rack is not enough."""
    grouped = asking(podset_required_topology=RACK, podset_group_name="g")
    obj, children, pods = jobset(grouped)
    whole = planned([obj, *children.values()], pods)
    pods[0] = changed(pods[0], spec={"nodeName": "h10"})
    assert len(only(whole).admission.pod_sets) == 2
    assert "requires one domain" in problem(planned([obj, *children.values()], pods))


def test_a_job_that_has_partly_ended_is_imported_without_places_only() -> None:
    """The controller releases the quota of the ended pods; where they were is not known."""
    status = {"status": {"succeeded": 1, "active": 1}}
    plain, racked = changed(job(), **status), changed(job(of=RACKED), **status)
    [assigned] = only(planned([plain], of_job(plain, "h00"))).admission.pod_sets
    assert (assigned.count, dict(assigned.usage)) == (2, {"cpu": 2000})
    assert "have ended are not known" in problem(planned([racked], of_job(racked, "h00", of=RACKED)))


def test_a_jobset_that_restarts_is_refused() -> None:
    """Pods of the old attempt end, or those of the new one are not there yet."""
    obj, children, pods = jobset()
    objects = [obj, *children.values()]
    assert "is being deleted" in problem(planned(objects, [changed(pods[0], deletionTimestamp="now"), *pods[1:]]))
    assert "pod set a has 0 of 1 pods" in problem(planned(objects, pods[1:]))


def test_pods_of_equal_templates_without_a_hint_are_refused() -> None:
    """Which pod set pays for which is not guessed."""
    obj, pods = training("kubeflow.org/pytorchjob")
    unnamed = [changed(one, labels={"app": "x"}) for one in pods]
    assert "may be of the pod sets" in problem(planned([obj], unnamed))
    assert "like no template" in problem(planned([obj], [changed(one, labels={}) for one in pods]))


def test_the_default_class_of_the_pods_is_that_of_the_job() -> None:
    """The API server writes a default PriorityClass into pods, and not into templates."""
    obj = job()
    pods = [changed(one, spec={"priority": 4, "priorityClassName": "usual"}) for one in of_job(obj, "h00", "h01")]
    step = only(planned([obj], pods, world(priorities={("PriorityClass", "usual"): 4})))
    assert (step.workload["spec"]["priority"], step.workload["spec"]["priorityClassRef"]["name"]) == (4, "usual")


def test_rules_match_a_job_by_its_own_labels_first() -> None:
    """Pods of one job go to one queue."""
    rules = [MappingRule(labels={"app": "x"}, queue="main"), MappingRule(labels={"app": "y"}, queue="other")]
    obj = job()
    pods = of_job(obj, "h00", "h01")
    assert only(planned([obj], pods, settings=ImportSettings(rules=rules))).queue == "main"
    mixed = [pods[0], changed(pods[1], labels={"app": "y"})]
    assert "different LocalQueues: main, other" in problem(planned([obj], mixed, settings=ImportSettings(rules=rules)))
    labelled = changed(obj, labels={"app": "x"})
    assert only(planned([labelled], mixed, settings=ImportSettings(rules=rules))).queue == "main"


def test_a_managed_job_is_skipped_whatever_the_rules_say() -> None:
    """Admitted in any queue, or suspended while its pods end."""
    obj = changed(job(), labels={QUEUE: "other"})
    pods = of_job(obj, "h00", "h01")
    admitted = {"metadata": {"name": "w"}, "status": {"admission": {"clusterQueue": "x"}}}
    [found] = planned([obj], pods, world(workloads={"j": [admitted]}), ImportSettings(rules=[]))
    [stops] = planned([changed(obj, spec={"suspend": True})], pods, world(workloads={"j": [{"metadata": {}}]}))
    gate = {"schedulingGates": [{"name": f"{KUEUE}/admission"}]}
    waiting = changed(pod("p", ""), spec=gate, labels={QUEUE: "main", f"{KUEUE}/managed": "true"})
    [waits] = planned([], [waiting], settings=ImportSettings(rules=[]))
    assert isinstance(found, Skipped)
    assert isinstance(stops, Skipped)
    assert isinstance(waits, Skipped)


def member(name: str, node: str, **more: str) -> Object:
    """A pod of group `g` that has two."""
    return pod(name, node, template(pod_group_name="g", pod_group_total_count="2", **more))


def test_a_group_of_pods_is_imported_as_a_whole() -> None:
    """Its Workload has the group's name, its pods own it, and their roles and finalizers are noted."""
    step = only(planned([], [member("p0", "h00"), member("p1", "h01")]))
    [assigned] = step.admission.pod_sets
    assert (step.workload["metadata"]["name"], assigned.count, step.unit.noun) == ("g", 2, "Pod group")
    assert [o["name"] for o in step.workload["metadata"]["ownerReferences"]] == ["p0", "p1"]
    assert {change.annotations[f"{KUEUE}/role-hash"] for change in step.changes} == {assigned.name}
    assert {(change.labels[QUEUE], change.labels[f"{KUEUE}/managed"]) for change in step.changes} == {("main", "true")}
    patch = step.changes[0].patch({"metadata": {"uid": "p0", "resourceVersion": "7", "finalizers": ["x"]}})
    assert patch["metadata"]["finalizers"] == ["x", f"{KUEUE}/managed"]
    assert patch["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        pytest.param([member("p0", "h00")], "1 of 2", id="a-member-is-missing"),
        pytest.param([member(f"p{i}", f"h0{i}") for i in range(3)], "3 of 2 pods", id="one-too-many"),
        pytest.param([member("p0", "h00"), member("p1", "")], "has no node", id="a-member-without-node"),
        pytest.param(
            [member(f"p{i}", f"h{i}0", podset_required_topology=RACK) for i in range(2)], "requires one domain",
            id="two-racks",
        ),
    ],
)  # fmt: skip
def test_a_group_that_is_not_whole_is_refused(pods: list[Object], text: str) -> None:
    """As a gang starts whole."""
    assert text in problem(planned([], pods))


def test_an_elastic_job_is_imported_as_its_first_slice() -> None:
    """Its pods name the slice, so that the pods of a later slice differ from them."""
    objects, pods = running("elastic")
    elastic = replace(TO_MAIN, switches=replace(SWITCHES, elastic_jobs=True))
    step = only(planned(objects, pods, settings=elastic))
    name, marked = step.workload["metadata"]["name"], step.changes[:-1]
    assert step.workload["metadata"]["annotations"][f"{KUEUE}/workload-slice-name"] == name
    assert [change.annotations[f"{KUEUE}/workload-slice-name"] for change in marked] == [name, name]
    [slice_] = [slice_of({**step.workload, "status": {"conditions": [{"type": "QuotaReserved", "status": "True"}]}})]
    planned_slices = plan_slices(counts_of(step.workload["spec"]["podSets"]), [slice_], standing={"main": 2})
    assert (planned_slices.step, planned_slices.runs, planned_slices.ends) == (SliceStep.KEEP, f"ns/{name}", {})


LABELS = "kqueue.dev/coscheduling-labels"
COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/podgroup", "scheduling.volcano.sh/podgroup"
OTHERS = replace(TO_MAIN, switches=replace(SWITCHES, gangs=("pod", LABELS, COSCHEDULING, VOLCANO)))


def group_of(framework: str, quorum: int, **spec: Any) -> Object | None:
    """The object of group `g`; None: the form has none."""
    if framework == LABELS:
        return None
    version = "scheduling.x-k8s.io/v1alpha1" if framework == COSCHEDULING else "scheduling.volcano.sh/v1beta1"
    meta = {"name": "g", "namespace": "ns", "uid": "group", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": {"minMember": quorum, **spec}}


def members_of(framework: str, *nodes: str, quorum: int = 2) -> list[Object]:
    """Pods of group `g`, the oldest first."""
    labels: Object = {
        LABELS: {
            "pod-group.scheduling.x-k8s.io/name": "g",
            "pod-group.scheduling.x-k8s.io/min-available": str(quorum),
        },
        COSCHEDULING: {"scheduling.x-k8s.io/pod-group": "g"},
        VOLCANO: {},
    }[framework]
    annotations = {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": "worker"}
    found = [pod(f"p{i}", node, labels=labels) for i, node in enumerate(nodes)]
    for i, one in enumerate(found):
        one["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{i}Z"
        if framework == VOLCANO:
            one["metadata"]["annotations"] = {**one["metadata"]["annotations"], **annotations}
    return found


def of_groups(framework: str, pods: list[Object], obj: Object | None, around: Any = None) -> list[Any]:
    objects = {} if obj is None else {f"ns/{framework}:g": obj}
    units = units_in([], pods, OTHERS.switches, objects)
    return [plan(unit, around or world(), OTHERS) for unit in units]


@pytest.mark.parametrize("framework", [LABELS, COSCHEDULING, VOLCANO])
def test_a_running_group_of_another_scheduler_is_imported(framework: str) -> None:
    """The gang's controller finds its Workload, and all pods in it."""
    obj, pods = group_of(framework, 2), members_of(framework, "h00", "h01")
    step = only(of_groups(framework, pods, obj))
    workload = {**step.workload, "status": {
        "admission": admission_json(step.admission), "conditions": [{"type": "QuotaReserved", "status": "True"}]
    }}  # fmt: skip
    key = f"ns/{framework}:g"
    marked = [
        {**c.obj, "metadata": {**c.obj["metadata"], "labels": {**c.obj["metadata"]["labels"], **c.labels},
                               "annotations": {**c.obj["metadata"]["annotations"], **c.annotations}}}
        for c in step.changes
    ]  # fmt: skip
    members = in_order(managed_pod(one, OTHERS.switches) for one in marked)
    found = match(members, workload, NOW, group_object=obj)

    assert counts_gang(workload, key, group_object=obj)
    assert found is not None
    assert (len(found.kept), found.extras, found.absent) == (2, (), 0)
    assert all(change.finalizer and change.labels[QUEUE] == "main" for change in step.changes)
    assert sum(one.count for one in step.admission.pod_sets) == 2


def test_pods_beyond_a_quorum_are_imported_alone_behind_it() -> None:
    pods = members_of(VOLCANO, "h00", "h01", "h02")
    obj = group_of(VOLCANO, 2, priorityClassName="high")
    steps = of_groups(VOLCANO, pods, obj, world(priorities={("PriorityClass", "high"): 7}))
    assert all(isinstance(step, ImportStep) for step in steps), steps
    base, extra = steps
    assert [sum(one.count for one in step.admission.pod_sets) for step in steps] == [2, 1]
    assert extra.workload["metadata"]["annotations"]["kqueue.dev/extra-of"] == base.workload["metadata"]["name"]
    assert [change.annotations["kqueue.dev/extra"] for change in extra.changes] == ["true"]
    assert [step.workload["spec"]["priority"] for step in steps] == [7, 7]


@pytest.mark.parametrize(
    ("pods", "obj", "text"),
    [
        pytest.param(members_of(VOLCANO, "h00", "h01"), None, "PodGroup g does not exist", id="no-object"),
        pytest.param(members_of(VOLCANO, "h00"), group_of(VOLCANO, 2), "1 of 2 pods", id="fewer-than-the-quorum"),
        pytest.param(members_of(VOLCANO, "h00", ""), group_of(VOLCANO, 2), "has no node", id="a-member-without-node"),
        pytest.param(
            members_of(VOLCANO, "h00", "h01"),
            changed(group_of(VOLCANO, 2) or {}, labels={QUEUE: "other"}),
            "names LocalQueue other",
            id="another-queue",
        ),
    ],
)
def test_a_group_of_another_scheduler_that_is_not_whole_is_refused(
    pods: list[Object], obj: Object | None, text: str
) -> None:
    [found] = of_groups(VOLCANO, pods, obj)
    assert isinstance(found, ImportProblem)
    assert text in found.text


def test_an_imported_group_is_skipped() -> None:
    """Its group object controls the Workload."""
    obj, pods = group_of(VOLCANO, 2), members_of(VOLCANO, "h00", "h01")
    for one in pods:
        one["metadata"]["labels"] |= {QUEUE: "main", f"{KUEUE}/managed": "true"}
    there = {"metadata": {"name": "w"}, "status": {"admission": {}}}
    admitted = {"metadata": {"name": "w"}, "status": {"admission": {"clusterQueue": "team"}}}
    assert not isinstance(of_groups(VOLCANO, pods, obj, world(workloads={"group": [there]}))[0], Skipped)
    assert isinstance(of_groups(VOLCANO, pods, obj, world(workloads={"group": [admitted]}))[0], Skipped)


def test_pods_belong_to_the_topmost_job_of_their_chain() -> None:
    """Also under a CronJob; a label makes no pod part of a job, and what has ended or ends is left alone."""
    obj = changed(job(), ownerReferences=[reference(CRON)])
    stranger = pod("stranger", "h00", labels={"batch.kubernetes.io/job-name": "j"})
    found = planned([obj], [*of_job(obj, "h00", "h01"), stranger])
    assert [step.unit.name for step in found if isinstance(step, ImportStep)] == ["j", "stranger"]
    ended = changed(obj, status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert planned([ended], of_job(obj, "h00", "h01")) == []
    assert planned([changed(obj, deletionTimestamp="now")], of_job(obj, "h00", "h01")) == []


def test_labels_find_the_job_where_the_chain_is_not_known() -> None:
    """A controller may make pods through objects of its own."""
    obj, pods = training("kubeflow.org/jaxjob")
    between = made("batch/job", {}, uid="unknown")
    for one in pods:
        one["metadata"]["ownerReferences"] = [reference(between)]
        one["metadata"]["labels"]["training.kubeflow.org/job-name"] = "j"
    assert only(planned([obj], pods)).unit.kind.gvk.kind == "JAXJob"


@pytest.mark.parametrize(
    ("now", "text"),
    [
        pytest.param({}, "", id="as-planned"),
        pytest.param({"uid": "other"}, "deleted", id="another-of-that-name"),
        pytest.param({"deletionTimestamp": "now"}, "deleted", id="being-deleted"),
        pytest.param({"status": {"phase": "Succeeded"}}, "ended or moved", id="ended"),
        pytest.param({"spec": {"nodeName": "h02"}}, "ended or moved", id="elsewhere"),
    ],
)
def test_a_pod_that_has_changed_is_not_marked(now: Object, text: str) -> None:
    """What was planned is not true any more."""
    obj = job()
    pods = of_job(obj, "h00", "h01")
    obstacle = only(planned([obj], pods)).changes[0].obstacle(changed(pods[0], **dict(now)))
    assert text in obstacle
    assert bool(text) == bool(obstacle)


@pytest.mark.parametrize(
    "now",
    [
        pytest.param({"spec": {"suspend": True}}, id="suspended"),
        pytest.param({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, id="failed"),
    ],
)
def test_a_job_that_was_stopped_meanwhile_gets_no_queue(now: Object) -> None:
    """A controller would start it again."""
    obj = job()
    queued = only(planned([obj], of_job(obj, "h00", "h01"))).changes[-1]
    assert queued.obstacle(obj) == ""
    assert "stopped or ended" in queued.obstacle(changed(obj, **dict(now)))
    labelled = changed(obj, labels={QUEUE: "main"})
    assert queued.patch(labelled) == {}, "nothing is written twice"
