"""RayCluster, RayJob and RayService: their pod sets, how they are started and given back, and what is refused."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs import ray
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.kind import ExceptionalKind, Finished, JobContext, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.ray import CLUSTER, JOB, SERVICE, RayObject
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import FRAMEWORKS, OWNERS
from tests.unit.jobs.builders import JSON, UID, make_template, prefixed, pruned

ON, HERE = JobFeatures(), JobContext()
RACK = prefixed(podset_required_topology="rack")
ELASTIC = prefixed(elastic_job="true")
GATE = "kueue.x-k8s.io/elastic-job"
PATHS = {CLUSTER: ("spec",), JOB: ("spec", "rayClusterSpec"), SERVICE: ("spec", "rayClusterConfig")}
EACH = pytest.mark.parametrize("kind", PATHS, ids=lambda kind: kind.gvk.kind)
SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def group(name: str = "small", annotations: dict[str, str] | None = None, **more: Any) -> JSON:
    """A worker group."""
    return {"groupName": name, "template": make_template(annotations=annotations or {}), **more}


def cluster(*groups: JSON, head: JSON | None = None, **more: Any) -> JSON:
    """A cluster spec; by default with one group of two workers."""
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": head or make_template()},
        "workerGroupSpecs": list(groups) or [group(replicas=2)],
        **more,
    }


def make(
    kind: RayObject = CLUSTER,
    *groups: JSON,
    suspend: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    status: JSON | None = None,
    spec: JSON | None = None,
    **more: Any,
) -> JSON:
    """A queued object with this cluster; `spec` are further fields of the object's spec."""
    of_cluster = cluster(*groups, **more)
    flag = {"suspend": suspend}
    whole = {
        CLUSTER: {**of_cluster, **flag},
        JOB: {"shutdownAfterJobFinishes": True, "submissionMode": "HTTPMode", "rayClusterSpec": of_cluster, **flag},
        SERVICE: {"rayClusterConfig": {**of_cluster, **flag}},
    }[kind]
    return {
        "apiVersion": "ray.io/v1",
        "kind": kind.gvk.kind,
        "metadata": {
            "name": "sample",
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {**whole, **(spec or {})},
        "status": status or {},
    }


def told(problems: list[Any]) -> list[str]:
    return [problem.path for problem in problems]


def at(kind: RayObject, rest: str) -> str:
    """The path of a field of the cluster spec."""
    return ".".join([*PATHS[kind], rest])


def counts(kind: RayObject, job: JSON) -> list[tuple[str, int]]:
    return [(pod_set["name"], pod_set["count"]) for pod_set in kind.pod_sets(job, ON)]


def containers(kind: RayObject, job: JSON, number: int = 0) -> list[JSON]:
    found: list[JSON] = kind.pod_sets(job, ON)[number]["template"]["spec"]["containers"]
    return found


# --- to a Workload ----------------------------------------------------------------------------------------------------


@EACH
def test_there_is_a_pod_set_for_the_head_and_for_each_group(kind: RayObject) -> None:
    """Names are in lower case; a group has one pod if no number is written, and as many for each replica as hosts."""
    groups = (group("Small"), group("none", replicas=0), group("tpu", replicas=3, numOfHosts=4))
    assert counts(kind, make(kind, *groups)) == [("head", 1), ("small", 1), ("none", 0), ("tpu", 12)]


@EACH
def test_a_cluster_may_have_no_workers(kind: RayObject) -> None:
    job = make(kind, workerGroupSpecs=[])
    assert counts(kind, job) == [("head", 1)]
    assert kind.problems(job, None, HERE) == []
    start = kind.start(job, [info("head")])
    assert not isinstance(start, Refused)


@EACH
def test_each_template_has_its_topology_request(kind: RayObject) -> None:
    head, workers = kind.pod_sets(make(kind, group(replicas=2, annotations=RACK)), ON)
    assert "topologyRequest" not in head
    assert workers["topologyRequest"] == {"required": "rack"}


@EACH
@pytest.mark.parametrize(
    ("resources", "requests"),
    [
        ({}, {"cpu": "200m", "memory": "256Mi"}),
        ({"requests": {"cpu": "0.1", "memory": "1Gi"}}, {"cpu": "200m", "memory": "1Gi"}),
        ({"limits": {"cpu": "2", "memory": "64Mi"}}, {"memory": "256Mi"}),
        ({"requests": {"cpu": "4", "memory": "8Gi", "gpu": "1"}}, {"cpu": "4", "memory": "8Gi", "gpu": "1"}),
        ({"requests": {"cpu": "much"}}, {"cpu": "much", "memory": "256Mi"}),
    ],
    ids=["none", "too little cpu", "limits are requests", "enough", "no quantity"],
)
def test_the_head_requests_enough_to_clear_redis(kind: RayObject, resources: JSON, requests: JSON) -> None:
    """With fault tolerance, by the field or by the annotation; only its first container."""
    head = {"spec": {"containers": [{"name": "ray", "resources": resources}, {"name": "side", "resources": {}}]}}
    by_field = make(kind, head=head, gcsFaultToleranceOptions={"redisAddress": "redis:6379"})
    by_annotation = make(kind, head=head, annotations={"ray.io/ft-enabled": "True"})
    for job in (by_field, by_annotation):
        first, second = containers(kind, job)
        assert first["resources"]["requests"] == requests
        assert second["resources"] == {}
    assert containers(kind, make(kind, head=head))[0]["resources"] == resources


@pytest.mark.parametrize(
    ("options", "resources"),
    [
        (None, {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}}),
        ({"resources": {"requests": {"cpu": "2"}}}, {"requests": {"cpu": "2"}}),
    ],
    ids=["defaults", "given"],
)
def test_the_autoscaler_is_counted_with_the_head(options: JSON | None, resources: JSON) -> None:
    more: JSON = {} if options is None else {"autoscalerOptions": options}
    job = make(annotations=ELASTIC, enableInTreeAutoscaling=True, **more)
    assert containers(CLUSTER, job)[-1] == {"name": "autoscaler", "resources": resources}
    assert [c["name"] for c in containers(CLUSTER, job, 1)] == [
        c["name"] for c in make_template()["spec"]["containers"]
    ]


@EACH
def test_the_catalogue_has_the_kind(kind: RayObject) -> None:
    row = FRAMEWORKS[kind.framework]
    assert (row.kind, row.version, row.plural) == (kind.gvk.kind, "v1", kind.resource)
    assert BY_FRAMEWORK[kind.framework] is kind
    assert BY_GROUP_KIND["ray.io", kind.gvk.kind] is kind
    assert isinstance(kind, ExceptionalKind)


def test_children_are_those_that_kuberay_makes() -> None:
    """A pod that names a RayJob as its controller is forged: its cluster makes the pods."""
    made: dict[str, object] = {kind: OWNERS["ray.io", kind].makes for kind in ("RayJob", "RayCluster", "RayService")}
    assert made == {
        "RayJob": {("ray.io", "RayCluster"), ("batch", "Job")},
        "RayCluster": {("", "Pod"), ("batch", "Job")},
        "RayService": {("ray.io", "RayCluster")},
    }


# --- the submitter of a RayJob ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "names", "head"),
    [
        ("K8sJobMode", ["head", "small", "submitter"], 1),
        ("", ["head", "small", "submitter"], 1),
        ("HTTPMode", ["head", "small"], 1),
        ("InteractiveMode", ["head", "small"], 1),
        ("SidecarMode", ["head", "small"], 2),
    ],
)
def test_a_submitter_is_counted_where_it_runs(mode: str, names: list[str], head: int) -> None:
    """As a pod of its own, or in the head; the mode of a job that names none is K8sJobMode."""
    job = make(JOB, spec={"submissionMode": mode})
    assert [name for name, _ in counts(JOB, job)] == names
    found = containers(JOB, job)
    assert len(found) == head
    if mode == "SidecarMode":
        assert found[-1] == {"name": "ray-job-submitter", "resources": SUBMITTER}


def test_the_submitter_has_a_default_template_or_its_own() -> None:
    """The default runs the image of the head, with its secrets."""
    head = {"spec": {"containers": [{"name": "ray", "image": "ray:1"}], "imagePullSecrets": [{"name": "s"}]}}
    job = make(JOB, head=head, spec={"submissionMode": "K8sJobMode"})
    assert JOB.pod_sets(job, ON)[-1]["template"]["spec"] == {
        "containers": [{"name": "ray-job-submitter", "resources": SUBMITTER, "image": "ray:1"}],
        "restartPolicy": "Never",
        "imagePullSecrets": [{"name": "s"}],
    }
    own = make_template()
    job["spec"]["submitterPodTemplate"] = own
    assert JOB.pod_sets(job, ON)[-1]["template"]["spec"] == own["spec"]


@pytest.mark.parametrize("own", [None, make_template()], ids=["default", "own"])
def test_the_submitter_gets_the_additions_of_its_pod_set_and_is_given_back(own: JSON | None) -> None:
    """A job without a template of its own has none after a stop either."""
    more = {"submissionMode": "K8sJobMode", **({"submitterPodTemplate": own} if own else {})}
    job = make(JOB, spec=more)
    before = copy.deepcopy(job)
    running = started(JOB, job, ["head", "small", "submitter"])
    template = running["spec"]["submitterPodTemplate"]
    assert template["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "submitter"

    (step,) = JOB.stop(running, [PodSetInfo(name=name) for name in ("head", "small", "submitter")])
    stopped = apply_merge_patch(running, step.patch)
    assert pruned(stopped["spec"]) == pruned(before["spec"])
    assert JOB.stop(stopped, [PodSetInfo(name=name) for name in ("head", "small", "submitter")]) == ()


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "active", "finished"),
    [
        ({}, False, None),
        ({"jobDeploymentStatus": ""}, False, None),
        ({"jobDeploymentStatus": "Suspended"}, False, None),
        ({"jobDeploymentStatus": "Initializing"}, True, None),
        ({"jobDeploymentStatus": "Running", "jobStatus": "SUCCEEDED"}, True, None),
        ({"jobDeploymentStatus": "ValidationFailed"}, True, None),
        (
            {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
            True,
            Finished("done", success=True),
        ),
        ({"jobDeploymentStatus": "Complete", "jobStatus": "STOPPED"}, True, Finished("", success=False)),
        ({"jobDeploymentStatus": "Failed", "message": "oops"}, True, Finished("oops", success=False)),
    ],
)
def test_a_job_has_finished_by_its_deployment_status(status: JSON, active: bool, finished: Finished | None) -> None:
    """It succeeded if Ray says so, whatever KubeRay says."""
    job = make(JOB, status=status)
    assert (JOB.active(job), JOB.finished(job)) == (active, finished)


@pytest.mark.parametrize(
    ("kind", "ready", "other"),
    [
        (CLUSTER, {"state": "ready"}, {"state": "suspended"}),
        (JOB, {"rayClusterStatus": {"state": "ready"}}, {"rayClusterStatus": {"state": "failed"}}),
        (
            SERVICE,
            {"conditions": [{"type": "Ready", "status": "True"}]},
            {"conditions": [{"type": "Ready", "status": "False"}]},
        ),
    ],
    ids=lambda value: value.gvk.kind if isinstance(value, RayObject) else None,
)
def test_pods_are_ready_with_their_cluster_or_service(kind: RayObject, ready: JSON, other: JSON) -> None:
    """Clusters and services are active then, and never finish."""
    assert kind.pods_ready(make(kind, status=ready))
    assert not kind.pods_ready(make(kind, status=other))
    if kind is not JOB:
        assert (kind.active(make(kind, status=ready)), kind.active(make(kind, status=other))) == (True, False)
        assert kind.finished(make(kind, status=ready)) is None


@pytest.mark.parametrize(
    ("kind", "status", "name"),
    [
        (CLUSTER, {}, "sample"),
        (JOB, {"rayClusterName": "sample-x1"}, "sample-x1"),
        (JOB, {}, ""),
        (SERVICE, {"activeServiceStatus": {"rayClusterName": "a"}, "pendingServiceStatus": {"rayClusterName": "b"}}, "a"),
        (SERVICE, {"pendingServiceStatus": {"rayClusterName": "b"}}, "b"),
    ],
)  # fmt: skip
def test_pods_have_the_label_of_their_cluster(kind: RayObject, status: JSON, name: str) -> None:
    assert kind.pod_selector(make(kind, status=status)) == {"ray.io/cluster": name}


@EACH
def test_the_controller_is_named_or_kuberays_own(kind: RayObject) -> None:
    assert kind.managed_by(make(kind)) == "ray.io/kuberay-operator"
    assert kind.managed_by(make(kind, spec={"managedBy": "kueue.x-k8s.io/multikueue"})) == "kueue.x-k8s.io/multikueue"


def test_a_job_that_kuberay_refuses_is_on_hold() -> None:
    refused = make(JOB, status={"jobDeploymentStatus": "ValidationFailed", "message": "no entrypoint"})
    assert "no entrypoint" in JOB.on_hold(refused)
    assert JOB.on_hold(make(JOB, status={"jobDeploymentStatus": "Running", "message": "fine"})) == ""
    assert CLUSTER.on_hold(make()) == SERVICE.on_hold(make(SERVICE)) == ""


def test_a_job_in_a_cluster_that_exists_is_skipped() -> None:
    assert JOB.is_skipped(make(JOB, spec={"clusterSelector": {"ray.io/cluster": "a"}}))
    assert not any(kind.is_skipped(make(kind)) for kind in PATHS)


def test_a_cluster_that_is_being_deleted_cleans_up_until_redis_is_cleared() -> None:
    """KubeRay's finalizer says so, unless the feature gate is off; objects above the cluster wait for it."""
    job = make()
    job["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"],
    }
    assert CLUSTER.cleans_up(job, ON)
    assert not CLUSTER.cleans_up(job, JobFeatures(ray_redis_cleanup=False))
    assert not CLUSTER.cleans_up({**job, "metadata": {**job["metadata"], "finalizers": ["foregroundDeletion"]}}, ON)
    assert not CLUSTER.cleans_up({**job, "metadata": {**job["metadata"], "deletionTimestamp": None}}, ON)
    assert not JOB.cleans_up(job, ON)
    assert not SERVICE.cleans_up(job, ON)


# --- start and stop ---------------------------------------------------------------------------------------------------


def info(name: str, **more: Any) -> PodSetInfo:
    return PodSetInfo(
        name=name,
        labels={"kueue.x-k8s.io/podset": name},
        node_selector={"pool": "gpu"},
        scheduling_gates=("kueue.x-k8s.io/topology",),
        **more,
    )


def started(kind: RayObject, job: JSON, names: list[str]) -> JSON:
    patch = kind.start(job, [info(name) for name in names])
    assert not isinstance(patch, Refused)
    return apply_merge_patch(job, patch)


def spec_of(kind: RayObject, job: JSON) -> JSON:
    for step in PATHS[kind]:
        job = job[step]
    return job


@EACH
def test_it_is_started_and_given_back_as_it_was(kind: RayObject) -> None:
    """Containers that KubeRay adds are counted, and not written."""
    job = make(kind, group("a"), group("b", minReplicas=0, scaleStrategy={}), gcsFaultToleranceOptions={})
    before = copy.deepcopy(job)
    running = started(kind, job, ["head", "a", "b"])
    assert not kind.is_suspended(running)
    spec = spec_of(kind, running)
    for entry, name in zip([spec["headGroupSpec"], *spec["workerGroupSpecs"]], ("head", "a", "b"), strict=True):
        assert entry["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] == name
        assert entry["template"]["spec"]["nodeSelector"] == {"pool": "gpu"}
        assert entry["template"]["spec"]["containers"] == make_template()["spec"]["containers"]
    assert spec["workerGroupSpecs"][1]["scaleStrategy"] == {}

    infos = [PodSetInfo(name=name) for name in ("head", "a", "b")]
    (step,) = kind.stop(running, infos)
    assert step.suspends
    stopped = apply_merge_patch(running, step.patch)
    assert pruned(stopped["spec"]) == pruned(before["spec"])
    assert kind.stop(stopped, infos) == ()
    assert job == before, "values that are given are not changed"


@EACH
def test_another_number_of_pod_sets_is_refused_at_the_start_and_restores_nothing(kind: RayObject) -> None:
    refused = kind.start(make(kind), [info("head")])
    assert isinstance(refused, Refused)
    assert "2 pod sets and the admission has 1" in str(refused)
    running = make(kind, suspend=False)
    (step,) = kind.stop(running, [info("head")])
    assert step.patch == kind.suspend(running)


@EACH
def test_only_the_flag_is_written_to_suspend(kind: RayObject) -> None:
    path = kind.held_by.split(".")
    assert path == (["spec", "rayClusterConfig", "suspend"] if kind is SERVICE else ["spec", "suspend"])
    patch: Any = kind.suspend(make(kind, suspend=False))
    for step in path:
        assert list(patch) == [step]
        patch = patch[step]
    assert patch is True
    assert kind.suspend(make(kind)) == {}


# --- webhooks ---------------------------------------------------------------------------------------------------------


@EACH
def test_a_queued_object_is_suspended_at_its_creation(kind: RayObject) -> None:
    running = make(kind, suspend=False)
    assert kind.defaults(running, HERE) == kind.suspend(running)
    assert kind.defaults(make(kind, suspend=False, labels={}), HERE) == {}
    assert kind.defaults(running, JobContext(managed_ancestor=True)) == {}


def test_a_job_in_a_cluster_that_exists_is_left_alone() -> None:
    """KubeRay cannot suspend it, and no check holds for it; a warning says that it is not queued."""
    job = make(JOB, suspend=False, spec={"clusterSelector": {"a": "b"}, "shutdownAfterJobFinishes": False})
    del job["spec"]["rayClusterSpec"]
    assert JOB.defaults(job, HERE) == {}
    assert JOB.problems(job, None, HERE) == []
    assert JOB.problems(job, job, HERE) == []
    (warning,) = JOB.warnings(job, HERE)
    assert "not queued" in warning


@EACH
def test_a_sound_object_has_no_problems(kind: RayObject) -> None:
    job = make(kind, group(replicas=2, annotations=RACK))
    assert kind.problems(job, None, HERE) == []
    assert kind.problems(job, job, HERE) == []
    assert kind.warnings(job, HERE) == []


@EACH
@pytest.mark.parametrize(
    ("groups", "more", "paths"),
    [
        ([group("head")], {}, ["workerGroupSpecs[0].groupName"]),
        ([group("Head")], {}, ["workerGroupSpecs[0].groupName"]),
        ([group("a"), group("A")], {}, ["workerGroupSpecs[1].groupName"]),
        ([group("a_b")], {}, ["workerGroupSpecs[0].groupName"]),
        ([group(f"g{n}") for n in range(18)], {}, ["workerGroupSpecs"]),
        ([group(replicas=-1)], {}, ["workerGroupSpecs[0].replicas"]),
        ([group(replicas=2**30, numOfHosts=4)], {}, ["workerGroupSpecs[0].replicas"]),
        ([{"groupName": "a"}], {}, ["workerGroupSpecs[0].template"]),
        ([], {"headGroupSpec": {}}, ["headGroupSpec.template"]),
        ([], {"enableInTreeAutoscaling": True}, ["enableInTreeAutoscaling"]),
    ],
    ids=[
        "head", "Head", "twice", "no name of a pod set", "too many", "negative", "too many pods", "no template",
        "no head", "autoscaling",
    ],
)  # fmt: skip
def test_mistakes_of_the_cluster_are_refused_with_their_field(
    kind: RayObject, groups: list[JSON], more: JSON, paths: list[str]
) -> None:
    """Only of an object that is queued."""
    job = make(kind, *groups, **more)
    assert told(kind.problems(job, None, HERE)) == [at(kind, path) for path in paths]
    assert kind.problems({**job, "metadata": {"name": "free"}}, None, HERE) == []
    manages_all = JobContext(manage_without_queue=True)
    assert told(kind.problems({**job, "metadata": {"name": "free"}}, None, manages_all)) == [at(kind, p) for p in paths]
    assert kind.problems(job, None, JobContext(managed_ancestor=True)) == [], "the object above is checked"


def test_head_and_seventeen_groups_are_a_workload() -> None:
    """A submitter with a pod of its own needs one of the 18 pod sets."""
    groups = [group(f"g{number}") for number in range(17)]
    assert CLUSTER.problems(make(CLUSTER, *groups), None, HERE) == []
    job = make(JOB, *groups, spec={"submissionMode": "K8sJobMode"})
    (problem,) = JOB.problems(job, None, HERE)
    assert "at most 16 groups" in str(problem)


def test_an_object_without_a_workload_says_why() -> None:
    with pytest.raises(InvalidObjectError, match=r"RayCluster team/sample.*workerGroupSpecs\[0\]\.replicas"):
        CLUSTER.pod_sets(make(CLUSTER, group(replicas=-1)), ON)


@EACH
def test_topology_annotations_are_always_checked(kind: RayObject) -> None:
    """Of the head and of each group, also of an object without a queue."""
    two = {**RACK, **prefixed(podset_preferred_topology="rack")}
    job = make(kind, group(annotations=two), head=make_template(annotations=two), labels={})
    assert told(kind.problems(job, None, HERE)) == [
        at(kind, "headGroupSpec.template.metadata.annotations"),
        at(kind, "workerGroupSpecs[0].template.metadata.annotations"),
    ]


def test_a_head_and_its_workers_in_one_group_are_checked_as_a_pair() -> None:
    together = prefixed(podset_group_name="g", podset_required_topology="rack")
    job = make(CLUSTER, group(replicas=2, annotations=together), head=make_template(annotations=together))
    assert CLUSTER.problems(job, None, HERE) == []
    assert CLUSTER.problems(make(CLUSTER, group(replicas=2, annotations=together)), None, HERE)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"shutdownAfterJobFinishes": False}, "spec.shutdownAfterJobFinishes"),
        ({"clusterSelector": {"a": "b"}}, "spec.clusterSelector"),
        ({"rayClusterSpec": None}, "spec.rayClusterSpec"),
    ],
    ids=["keeps its cluster", "two clusters", "no cluster"],
)
def test_a_job_has_a_cluster_of_its_own_that_ends_with_it(change: JSON, path: str) -> None:
    job = make(JOB, spec=change)
    assert told(JOB.problems(job, None, HERE)) == [path]
    assert JOB.problems({**job, "metadata": {"name": "free"}}, None, HERE) == []


def test_a_group_may_be_named_submitter_where_there_is_none() -> None:
    job = make(JOB, group("submitter"))
    assert JOB.problems(job, None, HERE) == []
    job["spec"]["submissionMode"] = "K8sJobMode"
    assert told(JOB.problems(job, None, HERE)) == ["spec.rayClusterSpec.workerGroupSpecs[0].groupName"]


@EACH
def test_updates_of_queued_objects_are_checked(kind: RayObject) -> None:
    """Of objects that name a queue, that named one (unless a gate is off), or that need none."""
    queued, free = make(kind, suspend=False), make(kind, suspend=False, labels={})
    queue = ["metadata.labels[kueue.x-k8s.io/queue-name]"]
    assert told(kind.problems(make(kind, suspend=False, labels=prefixed(queue_name="b")), queued, HERE)) == queue
    assert told(kind.problems(free, queued, HERE)) == queue
    off = JobContext(switches=JobFeatures(leaving_validated=False))
    assert kind.problems(free, queued, off) == []
    wrong = make(kind, suspend=False, labels={}, annotations=prefixed(admission_gated_by="nonsense"))
    assert kind.problems(wrong, free, HERE) == []
    assert kind.problems(wrong, free, JobContext(manage_without_queue=True)) != []


def test_an_object_that_is_being_deleted_has_no_problems() -> None:
    for kind in PATHS:
        job = make(kind, group(replicas=-1), enableInTreeAutoscaling=True)
        job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert kind.problems(job, job, HERE) == []
        assert kind.defaults(job, HERE) == {}


# --- elastic clusters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CLUSTER, SERVICE], ids=lambda kind: kind.gvk.kind)
def test_an_elastic_object_is_gated_and_may_scale_by_itself(kind: RayObject) -> None:
    """Its head, too; without the gates it is refused."""
    job = make(kind, suspend=False, annotations=ELASTIC, enableInTreeAutoscaling=True)
    new = apply_merge_patch(job, kind.defaults(job, HERE))
    spec = spec_of(kind, new)
    templates = [spec["headGroupSpec"]["template"], spec["workerGroupSpecs"][0]["template"]]
    assert [t["spec"]["schedulingGates"] for t in templates] == [[{"name": GATE}]] * 2
    assert kind.is_suspended(new)
    assert kind.problems(new, None, HERE) == []
    assert told(kind.problems(job, None, HERE)) == [
        at(kind, "headGroupSpec.template.spec.schedulingGates"),
        at(kind, "workerGroupSpecs[0].template.spec.schedulingGates"),
    ]
    off = JobContext(switches=JobFeatures(elastic_jobs=False))
    assert kind.defaults(make(kind, annotations=ELASTIC), off) == {}
    assert told(kind.problems(new, None, off)) == [at(kind, "enableInTreeAutoscaling")]


def test_an_elastic_job_gets_its_gates_at_the_start() -> None:
    """It may scale by itself, too."""
    job = make(JOB, suspend=False, annotations=ELASTIC, enableInTreeAutoscaling=True)
    new = apply_merge_patch(job, JOB.defaults(job, HERE))
    assert new == {**job, "spec": {**job["spec"], "suspend": True}}
    assert JOB.problems(new, None, HERE) == []
    off = JobContext(switches=JobFeatures(elastic_jobs=False))
    assert told(JOB.problems(new, None, off)) == ["spec.rayClusterSpec.enableInTreeAutoscaling"]
    started = JOB.start(new, [PodSetInfo(name=name, scheduling_gates=(GATE,)) for name in ("head", "small")])
    assert not isinstance(started, Refused)
    spec = spec_of(JOB, apply_merge_patch(new, started))
    assert spec["workerGroupSpecs"][0]["template"]["spec"]["schedulingGates"][-1] == {"name": GATE}


def test_an_elastic_cluster_of_another_controller_does_not_scale_by_itself() -> None:
    for kind in PATHS:
        more = {"managedBy": "kueue.x-k8s.io/multikueue"}
        job = make(kind, annotations=ELASTIC, enableInTreeAutoscaling=True, spec=more)
        job = apply_merge_patch(job, kind.defaults(job, HERE))
        assert told(kind.problems(job, None, HERE)) == ["spec.managedBy"]


def test_an_elastic_cluster_needs_no_level() -> None:
    job = make(CLUSTER, group(replicas=2, annotations=RACK), annotations=ELASTIC)
    job = apply_merge_patch(job, CLUSTER.defaults(job, HERE))
    assert len(CLUSTER.problems(job, None, HERE)) == 1


def test_the_cluster_of_a_started_job_may_have_what_the_start_added() -> None:
    """A place in a topology that its user did not ask for."""
    placed = prefixed(podset_unconstrained_topology="true")
    job = make(CLUSTER, group(replicas=2, annotations=placed), annotations=ELASTIC)
    job = apply_merge_patch(job, CLUSTER.defaults(job, HERE))
    assert len(CLUSTER.problems(job, None, HERE)) == 1
    child = JobContext(managed_ancestor=True)
    assert CLUSTER.problems(job, None, child) == []
    info_of = PodSetInfo(
        name="", annotations={"kueue.x-k8s.io/workload": "one"}, scheduling_gates=("kueue.x-k8s.io/topology", GATE)
    )
    started = CLUSTER.start(job, [replace(info_of, name=name) for name in ("head", "small")])
    assert not isinstance(started, Refused)
    assert CLUSTER.defaults(apply_merge_patch(job, started), child) == {}


def test_a_new_slice_takes_over_started_templates() -> None:
    """The names of its Workload and slice replace those of the older slice."""
    job = make(annotations=ELASTIC)
    names = ("head", "small")
    first = CLUSTER.start(job, [info(n, annotations={"kueue.x-k8s.io/workload": "one"}) for n in names])
    assert not isinstance(first, Refused)
    running = apply_merge_patch(job, first)
    second = CLUSTER.start(running, [info(n, annotations={"kueue.x-k8s.io/workload": "two"}) for n in names])
    assert not isinstance(second, Refused)
    head = apply_merge_patch(running, second)["spec"]["headGroupSpec"]["template"]
    assert head["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == "two"


def test_all_kinds_are_here() -> None:
    assert set(PATHS) == set(ray.ALL)
