"""Training kinds and MPIJob: what they tell of themselves, how they are started and given back, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs import kubeflow
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.kind import Finished, JobContext, PodSetInfo, Refused
from kqueue.jobs.kubeflow import JAX, MPI, PADDLE, PYTORCH, TENSORFLOW, XGBOOST, TrainingJob
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import PrioritySource, priority_source
from kqueue.kinds import FRAMEWORKS
from tests.unit.jobs.builders import JSON, UID, make_template, prefixed, pruned

ON, HERE = JobFeatures(), JobContext()
RACK = prefixed(podset_required_topology="rack")
FIELDS = {
    PYTORCH: "pytorchReplicaSpecs",
    TENSORFLOW: "tfReplicaSpecs",
    XGBOOST: "xgbReplicaSpecs",
    PADDLE: "paddleReplicaSpecs",
    JAX: "jaxReplicaSpecs",
    MPI: "mpiReplicaSpecs",
}
EACH = pytest.mark.parametrize("kind", FIELDS, ids=lambda kind: kind.gvk.kind)


def replicas(number: int | None = 1, annotations: dict[str, str] | None = None) -> JSON:
    """The replicas of one type; None leaves the number out."""
    template = make_template(annotations=annotations or {})
    return {"template": template, **({} if number is None else {"replicas": number})}


def make(
    kind: TrainingJob = PYTORCH,
    *,
    suspend: bool = True,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    status: JSON | None = None,
    policy: JSON | None = None,
    spec: JSON | None = None,
    types: JSON | None = None,
    **more: JSON,
) -> JSON:
    """A queued job with these replica types; by default two workers."""
    return {
        "apiVersion": kind.gvk.api_version,
        "kind": kind.gvk.kind,
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {
            "runPolicy": {"suspend": suspend, **(policy or {})},
            FIELDS[kind]: {**(types or {}), **more} or {"Worker": replicas(2)},
            **(spec or {}),
        },
        "status": status or {},
    }


def condition(type_: str, status: str = "True", message: str = "") -> JSON:
    return {"conditions": [{"type": type_, "status": status, "message": message}]}


def told(problems: list[Any]) -> list[str]:
    return [problem.path for problem in problems]


# --- to a Workload ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "types", "names"),
    [
        (PYTORCH, ("Worker", "Master"), ["master", "worker"]),
        (
            TENSORFLOW,
            ("Evaluator", "Worker", "PS", "Master", "Chief"),
            ["chief", "master", "ps", "worker", "evaluator"],
        ),
        (XGBOOST, ("Worker", "Master"), ["master", "worker"]),
        (PADDLE, ("Worker",), ["worker"]),
        (JAX, ("Worker",), ["worker"]),
        (MPI, ("Worker", "Launcher"), ["launcher", "worker"]),
    ],
    ids=lambda value: value.gvk.kind if isinstance(value, TrainingJob) else None,
)
def test_there_is_a_pod_set_for_each_replica_type_in_the_order_of_the_kind(
    kind: TrainingJob, types: tuple[str, ...], names: list[str]
) -> None:
    job = make(kind, types={name: replicas(number) for number, name in enumerate(types, 1)})
    found = kind.pod_sets(job, ON)
    assert [pod_set["name"] for pod_set in found] == names
    numbers = {name.lower(): number for number, name in enumerate(types, 1)}
    assert {pod_set["name"]: pod_set["count"] for pod_set in found} == numbers


def test_replicas_are_one_where_they_are_not_written() -> None:
    assert [p["count"] for p in PYTORCH.pod_sets(make(Master=replicas(None), Worker=replicas(0)), ON)] == [1, 0]


@EACH
def test_ranks_come_from_the_replica_index(kind: TrainingJob) -> None:
    (pod_set,) = kind.pod_sets(make(kind, Worker=replicas(2, RACK)), ON)
    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "training.kubeflow.org/replica-index",
    }


@EACH
def test_the_catalogue_has_the_kind(kind: TrainingJob) -> None:
    row = FRAMEWORKS[kind.framework]
    assert (row.kind, row.version, row.plural) == (kind.gvk.kind, kind.gvk.version, kind.resource)
    assert BY_FRAMEWORK[kind.framework] is kind
    assert BY_GROUP_KIND["kubeflow.org", kind.gvk.kind] is kind


@pytest.mark.parametrize(
    ("labels", "policy", "pod", "source"),
    [
        (prefixed(priority_class="mine"), "policy", "pods", PrioritySource("WorkloadPriorityClass", "mine")),
        ({}, "policy", "pods", PrioritySource("PriorityClass", "policy")),
        ({}, "", "pods", PrioritySource("PriorityClass", "pods")),
        ({}, "", "", None),
    ],
)
def test_the_priority_is_that_of_label_policy_or_first_type(
    labels: dict[str, str], policy: str, pod: str, source: PrioritySource | None
) -> None:
    worker = replicas(2)
    worker["template"]["spec"] |= {"priorityClassName": pod} if pod else {}
    scheduling = {"schedulingPolicy": {"priorityClass": policy}} if policy else {}
    job = make(labels=labels, policy=scheduling, Master=replicas(1), Worker=worker)
    assert priority_source(job, PYTORCH.pod_sets(job, ON)) == source


# --- state ------------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize(
    ("status", "finished"),
    [
        (condition("Succeeded", message="done"), Finished("done", success=True)),
        (condition("Failed", message="oops"), Finished("oops", success=False)),
        (condition("Succeeded", "False"), None),
        (condition("Running"), None),
        ({}, None),
    ],
)
def test_it_has_finished_by_its_condition(kind: TrainingJob, status: JSON, finished: Finished | None) -> None:
    assert kind.finished(make(kind, status=status)) == finished


def test_its_pods_are_ready_while_it_runs() -> None:
    assert PYTORCH.pods_ready(make(status=condition("Running")))
    assert not PYTORCH.pods_ready(make(status=condition("Running", "False")))


@pytest.mark.parametrize(("active", "is_active"), [(0, False), (None, False), (2, True)])
def test_it_is_active_while_a_type_has_active_pods(active: int | None, is_active: bool) -> None:
    status = {"replicaStatuses": {"Master": {"succeeded": 1}, "Worker": {"active": active}}}
    assert PYTORCH.active(make(status=status)) is is_active


def test_its_pods_have_labels_with_its_name() -> None:
    assert PYTORCH.pod_selector(make()) == {"training.kubeflow.org/job-name": "train"}
    assert MPI.pod_selector(make(MPI)) == {
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/operator-name": "mpi-operator",
    }


def test_the_controller_is_that_of_the_run_policy_or_the_kinds_own() -> None:
    assert PYTORCH.managed_by(make()) == "kubeflow.org/training-operator"
    assert MPI.managed_by(make(MPI)) == "kubeflow.org/mpi-operator"
    assert PYTORCH.managed_by(make(policy={"managedBy": "kueue.x-k8s.io/multikueue"})) == "kueue.x-k8s.io/multikueue"


# --- start and stop ---------------------------------------------------------------------------------------------------


def info(name: str) -> PodSetInfo:
    return PodSetInfo(
        name=name,
        labels={"kueue.x-k8s.io/podset": name},
        node_selector={"pool": "gpu"},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        scheduling_gates=("kueue.x-k8s.io/topology",),
    )


@EACH
def test_it_is_started_and_given_back_as_it_was(kind: TrainingJob) -> None:
    job = make(kind, policy={"cleanPodPolicy": "None"})
    before = copy.deepcopy(job)
    patch = kind.start(job, [info("worker")])
    assert not isinstance(patch, Refused)
    running = apply_merge_patch(job, patch)
    pod = running["spec"][FIELDS[kind]]["Worker"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "gpu"}
    assert pod["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    assert not kind.is_suspended(running)
    assert running["spec"]["runPolicy"]["cleanPodPolicy"] == "None"

    (step,) = kind.stop(running, [PodSetInfo(name="worker")])
    assert step.suspends
    stopped = apply_merge_patch(running, step.patch)
    assert pruned(stopped["spec"]) == pruned(before["spec"])
    assert kind.stop(stopped, [PodSetInfo(name="worker")]) == ()
    assert job == before, "values that are given are not changed"


def test_another_number_of_pod_sets_is_refused_at_the_start_and_restores_nothing() -> None:
    job = make(Master=replicas(), Worker=replicas(2))
    refused = PYTORCH.start(job, [info("worker")])
    assert isinstance(refused, Refused)
    assert "2 pod sets and the admission has 1" in str(refused)
    running = make(suspend=False, Master=replicas(), Worker=replicas(2))
    (step,) = PYTORCH.stop(running, [info("worker")])
    assert step.patch == {"spec": {"runPolicy": {"suspend": True}}}


def test_only_the_flag_is_written_to_suspend() -> None:
    assert PYTORCH.suspend(make(suspend=False)) == {"spec": {"runPolicy": {"suspend": True}}}
    assert PYTORCH.suspend(make()) == {}


# --- webhooks ---------------------------------------------------------------------------------------------------------


@EACH
def test_a_queued_job_is_suspended_at_its_creation(kind: TrainingJob) -> None:
    assert kind.defaults(make(kind, suspend=False), HERE) == {"spec": {"runPolicy": {"suspend": True}}}
    assert kind.defaults(make(kind, suspend=False, labels={}), HERE) == {}


def test_workers_beside_a_launcher_that_works_have_ranks_from_one_on() -> None:
    types: JSON = {"Launcher": replicas(1), "Worker": replicas(3)}
    both = make(MPI, spec={"runLauncherAsWorker": True}, types=types)
    worker = apply_merge_patch(both, MPI.defaults(both, HERE))["spec"]["mpiReplicaSpecs"]["Worker"]
    assert worker["template"]["metadata"]["annotations"]["kueue.x-k8s.io/pod-index-offset"] == "1"
    grouped = replicas(1, prefixed(podset_group_name="g"))
    for other in (
        make(MPI, types=types),
        make(MPI, spec={"runLauncherAsWorker": True}, Worker=replicas(3)),
        make(MPI, spec={"runLauncherAsWorker": True}, Launcher=grouped, Worker=replicas(3)),
    ):
        assert MPI.defaults(other, HERE) == {}
    assert MPI.defaults(both, JobContext(switches=JobFeatures(topology=False))) == {}


@EACH
def test_a_sound_job_has_no_problems(kind: TrainingJob) -> None:
    job = make(kind, Worker=replicas(2, RACK))
    assert kind.problems(job, None, HERE) == []
    assert kind.problems(job, job, HERE) == []


@pytest.mark.parametrize(
    ("job", "paths"),
    [
        (make(Worker=replicas(-1)), ["spec.pytorchReplicaSpecs.Worker.replicas"]),
        (make(Worker={"replicas": 2}), ["spec.pytorchReplicaSpecs.Worker.template"]),
        (make(Worker=replicas(), Helper=replicas()), ["spec.pytorchReplicaSpecs.Helper"]),
        (make(spec={"pytorchReplicaSpecs": {}}), ["spec.pytorchReplicaSpecs"]),
        (
            make(Worker=replicas(2, {**RACK, **prefixed(podset_preferred_topology="rack")})),
            ["spec.pytorchReplicaSpecs.Worker.template.metadata.annotations"],
        ),
    ],
    ids=["negative", "no template", "unknown type", "no types", "two levels"],
)
def test_mistakes_are_refused_with_their_field(job: JSON, paths: list[str]) -> None:
    assert told(PYTORCH.problems(job, None, HERE)) == paths
    with pytest.raises(InvalidObjectError, match="PyTorchJob team/train"):
        PYTORCH.pod_sets(job, ON)


def test_no_training_job_is_elastic_and_each_may_use_a_prebuilt_workload() -> None:
    job = make(annotations=prefixed(elastic_job="true"))
    assert told(PYTORCH.problems(job, None, HERE)) == ["metadata.annotations[kueue.x-k8s.io/elastic-job]"]
    prebuilt = prefixed(prebuilt_workload_name="mine")
    assert [kind for kind in kubeflow.ALL if kind.problems(make(kind, annotations=prebuilt), None, HERE)] == []


def test_the_queue_of_a_running_job_cannot_change() -> None:
    running = make(suspend=False)
    moved = make(suspend=False, labels=prefixed(queue_name="other"))
    assert told(PYTORCH.problems(moved, running, HERE)) == ["metadata.labels[kueue.x-k8s.io/queue-name]"]
    assert PYTORCH.problems(make(labels=prefixed(queue_name="other")), make(), HERE) == []


def test_a_launcher_and_its_workers_in_one_group_are_checked_as_a_pair() -> None:
    group = prefixed(podset_group_name="g", podset_required_topology="rack")
    pair = make(MPI, Launcher=replicas(1, group), Worker=replicas(2, group))
    assert MPI.problems(pair, None, HERE) == []
    two = make(MPI, Launcher=replicas(2, group), Worker=replicas(2, group))
    assert MPI.problems(two, None, HERE)


def test_an_object_that_is_being_deleted_has_no_problems() -> None:
    job = make(Worker=replicas(-1))
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert PYTORCH.problems(job, job, HERE) == []
    assert PYTORCH.defaults(job, HERE) == {}


def test_all_kinds_are_here() -> None:
    assert set(FIELDS) == set(kubeflow.ALL)
