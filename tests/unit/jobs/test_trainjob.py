"""TrainJob: the JobSet that its runtime makes of it, how it is started and given back, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.kind import Finished, JobContext, PodSetInfo, Refused
from kqueue.jobs.others import Reference, completed, references
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.trainjob import TrainJob
from kqueue.kinds import FRAMEWORKS, JOB_SETS, TRAINING_RUNTIMES
from tests.unit.jobs.builders import JSON, UID, prefixed

KIND, ON, HERE = TrainJob(), JobFeatures(), JobContext()
CLUSTER, NAMESPACED = TRAINING_RUNTIMES
TORCH = Reference(CLUSTER, "", "torch")
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
MANAGER = "kueue.x-k8s.io/manager"
STARTING = "kqueue.dev/starting"
EMPTY = {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}
INFO = PodSetInfo(
    name="node",
    labels={"kueue.x-k8s.io/podset": "node"},
    annotations={"kueue.x-k8s.io/workload": "w"},
    node_selector={"pool": "gpu"},
    tolerations=({"key": "gpu", "operator": "Exists"},),
    scheduling_gates=("kueue.x-k8s.io/topology",),
)


def part(name: str = "node", *, step: str | None = "trainer", container: str = "node", **more: Any) -> JSON:
    """A replicated job of a runtime; `step` None: its template has no labels."""
    resources = {"requests": {"cpu": "1"}}
    pod: JSON = {"containers": [{"name": container, "image": "old", "resources": resources}], **more.pop("pod", {})}
    template: JSON = {"metadata": more.pop("metadata", {}), "spec": pod}
    job: JSON = {"spec": {"template": template, **more.pop("job", {})}}
    if step is not None:
        job["metadata"] = {"labels": {STEP: step}}
    return {"name": name, "template": job, **more}


def runtime(*parts: JSON, policy: JSON | None = None, **spec: Any) -> JSON:
    """A runtime; `policy` None: it has none."""
    template = {"spec": {"replicatedJobs": list(parts or [part()]), **spec}}
    return {
        "metadata": {"name": "torch"},
        "spec": {"template": template, **({} if policy is None else {"mlPolicy": policy})},
    }


def make(
    of: JSON | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    status: JSON | None = None,
    reference: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A queued TrainJob beside its runtime; `of` None: the runtime is not there."""
    job = {
        "apiVersion": KIND.gvk.api_version,
        "kind": "TrainJob",
        "metadata": {
            "name": "train",
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {"suspend": True, "runtimeRef": reference or {"name": "torch"}, "runtimePatches": [EMPTY], **spec},
        "status": status or {},
    }
    return completed(job, {TORCH: of})


def patch_of(*parts: JSON, manager: str = "me") -> JSON:
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": list(parts)}}}}


def of_pods(name: str = "node", **template: Any) -> JSON:
    return {"name": name, "template": {"spec": {"template": template}}}


def written(job: JSON) -> list[JSON]:
    """The patches in kqueue's entry."""
    (entry,) = [one for one in job["spec"]["runtimePatches"] if one["manager"] == MANAGER]
    found: list[JSON] = entry["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs", [])
    return found


def begun(job: JSON, *infos: PodSetInfo) -> JSON:
    """The job after the next write of its start."""
    patch = KIND.start(job, infos or (INFO,))
    assert not isinstance(patch, Refused)
    return apply_merge_patch(job, patch)


def running(of: JSON | None = None, **more: Any) -> JSON:
    return begun(begun(make(of or runtime(), **more)))


def child(name: str = "node", **counts: int) -> JSON:
    return {"name": name, **dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0), **counts}


# --- the runtime ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("TrainJob", "managed by")
def test_a_trainjob_is_found_by_framework_and_by_kind() -> None:
    row = FRAMEWORKS["trainer.kubeflow.org/trainjob"]

    assert isinstance(BY_FRAMEWORK[row.framework], TrainJob)
    assert BY_GROUP_KIND[row.group_kind] is BY_FRAMEWORK[row.framework]
    assert KIND.managed_by(make()) == KIND.own_controller == "trainer.kubeflow.org/trainjob-controller"
    assert KIND.managed_by(make(managedBy="kueue.x-k8s.io/multikueue")) == "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("reference", "read"),
    [
        pytest.param({"name": "torch"}, [TORCH], id="of-the-cluster-by-default"),
        pytest.param(
            {"name": "torch", "kind": "ClusterTrainingRuntime", "apiGroup": "trainer.kubeflow.org"}, [TORCH], id="written"
        ),
        pytest.param(
            {"name": "mine", "kind": "TrainingRuntime"}, [Reference(NAMESPACED, "team", "mine")], id="of-the-namespace"
        ),
        pytest.param({"name": "x", "kind": "Secret"}, [], id="another-kind-is-not-read"),
        pytest.param({"name": "x", "apiGroup": "example.com"}, [], id="another-group-is-not-read"),
        pytest.param({"name": ""}, [], id="no-name"),
    ],
)  # fmt: skip
def test_a_job_names_its_runtime(reference: JSON, read: list[Reference]) -> None:
    assert list(references(KIND, make(reference=reference), None)) == read


@pytest.mark.parametrize(
    ("reference", "path", "said"),
    [
        pytest.param({"name": "torch"}, "spec.runtimeRef.name", "there is no ClusterTrainingRuntime torch", id="missing"),
        pytest.param({"name": "x", "kind": "Secret"}, "spec.runtimeRef", "must be a ClusterTraining", id="of-another-kind"),
        pytest.param({"name": ""}, "spec.runtimeRef.name", "must name a runtime", id="without-a-name"),
    ],
)  # fmt: skip
@pytest.mark.proves("TrainJob", "webhook validation")
def test_a_missing_runtime_is_told(reference: JSON, path: str, said: str) -> None:
    """At submission, and by the reconciler: the field and the remedy."""
    job = make(reference=reference)
    (problem,) = KIND.problems(job, None, HERE)

    assert problem.path == path
    assert said in problem.problem
    with pytest.raises(InvalidObjectError, match=said):
        KIND.pod_sets(job, ON)


def test_a_field_of_the_job_does_not_stand_for_its_runtime() -> None:
    """Whatever a user writes beside the spec."""
    forged = {**make(), "others": {str(TORCH): runtime()}}

    assert [p.path for p in KIND.problems(forged, None, HERE)] == ["spec.runtimeRef.name"]


def test_without_a_queue_a_missing_runtime_is_told_only_with_topology() -> None:
    off = JobContext(switches=JobFeatures(topology=False))

    assert KIND.problems(make(labels={}), None, off) == []
    assert len(KIND.problems(make(labels={}), None, HERE)) == len(KIND.problems(make(), None, off)) == 1


# --- rendering --------------------------------------------------------------------------------------------------------


def counts(job: JSON) -> dict[str, int]:
    return {pod_set["name"]: pod_set["count"] for pod_set in KIND.pod_sets(job, ON)}


@pytest.mark.parametrize(
    ("of", "trainer", "found"),
    [
        pytest.param(runtime(), {}, {"node": 1}, id="one-by-default"),
        pytest.param(runtime(part(job={"parallelism": 3})), {}, {"node": 3}, id="parallelism-without-a-policy"),
        pytest.param(runtime(part(job={"parallelism": 3}), policy={}), {}, {"node": 1}, id="an-empty-policy-has-one-node"),
        pytest.param(runtime(part(job={"completions": 9, "parallelism": 2})), {}, {"node": 2}, id="completions-follow"),
        pytest.param(runtime(policy={"numNodes": 2}), {}, {"node": 2}, id="nodes-of-the-policy"),
        pytest.param(runtime(policy={"numNodes": 2}), {"numNodes": 5}, {"node": 5}, id="nodes-of-the-job-win"),
        pytest.param(runtime(policy={"torch": {}}), {"numNodes": 5}, {"node": 5}, id="torch"),
        pytest.param(runtime(part(replicas=4), policy={"numNodes": 2}), {}, {"node": 2}, id="training-has-one-replica"),
        pytest.param(
            runtime(part("data", step="dataset-initializer", replicas=7), part("model", step="model-initializer"), part()),
            {"numNodes": 3}, {"data": 1, "model": 1, "node": 3}, id="initializers-have-one-replica",
        ),
        pytest.param(
            runtime(part(), part("cache", step=None, replicas=2, job={"parallelism": 3})), {"numNodes": 4},
            {"node": 4, "cache": 6}, id="other-jobs-keep-their-own",
        ),
        pytest.param(
            runtime(part("launcher"), part("node", step=None), policy={"numNodes": 1, "mpi": {}}), {"numNodes": 4},
            {"launcher": 1, "node": 4}, id="mpi",
        ),
        pytest.param(
            runtime(part("launcher"), part("node", step=None), policy={"mpi": {"runLauncherAsNode": True}}),
            {"numNodes": 4}, {"launcher": 1, "node": 3}, id="the-launcher-is-a-node",
        ),
        pytest.param(
            runtime(part("launcher"), part("node", step=None), policy={"mpi": {"runLauncherAsNode": True}}),
            {"numNodes": 1}, {"launcher": 1, "node": 1}, id="at-least-one-more-node",
        ),
    ],
)  # fmt: skip
@pytest.mark.proves("TrainJob", "queueing")
def test_pods_are_counted_as_trainer_makes_them(of: JSON, trainer: JSON, found: dict[str, int]) -> None:
    assert counts(make(of, trainer=trainer)) == found


GPUS = {"limits": {"nvidia.com/gpu": "8"}}
OLD = {"requests": {"cpu": "1"}}


@pytest.mark.parametrize(
    ("of", "trainer", "resources"),
    [
        pytest.param(runtime(), {}, OLD, id="of-the-runtime"),
        pytest.param(runtime(), {"resourcesPerNode": GPUS}, GPUS, id="of-the-job-as-a-whole"),
        pytest.param(runtime(), {"resourcesPerNode": {"claims": [{"name": "x"}]}}, OLD, id="neither-limits-nor-requests"),
        pytest.param(runtime(part(container="sidecar")), {"resourcesPerNode": GPUS}, OLD, id="of-the-container-node-alone"),
        pytest.param(
            runtime(part("launcher", container="launcher"), policy={"mpi": {}}), {"resourcesPerNode": GPUS}, OLD,
            id="not-of-a-launcher",
        ),
        pytest.param(
            runtime(part("launcher", container="launcher"), policy={"mpi": {"runLauncherAsNode": True}}),
            {"resourcesPerNode": GPUS}, GPUS, id="of-a-launcher-that-is-a-node",
        ),
        pytest.param(runtime(part(step=None)), {"resourcesPerNode": GPUS}, OLD, id="not-without-labels"),
    ],
)  # fmt: skip
def test_requests_are_those_of_trainer(of: JSON, trainer: JSON, resources: JSON) -> None:
    (pod_set,) = KIND.pod_sets(make(of, trainer={"image": "new", **trainer}), ON)

    assert pod_set["template"]["spec"]["containers"][0]["resources"] == resources


def test_patches_of_every_manager_are_merged_in_order() -> None:
    """By name of replicated job and container; maps are merged, tolerations replaced; other names match nothing."""
    before = part(pod={"nodeSelector": {"a": "1"}, "tolerations": [{"key": "old"}]}, metadata={"labels": {"l": "1"}})
    first = of_pods(
        metadata={"annotations": prefixed(podset_required_topology="rack")},
        spec={"nodeSelector": {"b": "2"}, "tolerations": [{"key": "new"}], "containers": [{"name": "node", "env": [{"name": "E"}]}]},
    )  # fmt: skip
    second = of_pods(metadata={"labels": {"l": "2"}}, spec={"nodeSelector": {"b": "3"}})
    stranger = of_pods("other", spec={"nodeSelector": {"c": "4"}})
    job = make(runtime(before), runtimePatches=[patch_of(first, stranger), EMPTY, patch_of(second, manager="you")])
    (pod_set,) = KIND.pod_sets(job, ON)
    spec = pod_set["template"]["spec"]

    assert spec["nodeSelector"] == {"a": "1", "b": "3"}
    assert spec["tolerations"] == [{"key": "new"}]
    assert spec["containers"] == [{"name": "node", "image": "old", "resources": OLD, "env": [{"name": "E"}]}]
    assert pod_set["template"]["metadata"]["labels"] == {"l": "2"}
    assert pod_set["topologyRequest"]["required"] == "rack"


@pytest.mark.proves("TrainJob", "ranks")
def test_pods_are_numbered_as_those_of_a_jobset() -> None:
    annotated = part(metadata={"annotations": prefixed(podset_required_topology="rack")})
    (pod_set,) = KIND.pod_sets(make(runtime(annotated), trainer={"numNodes": 4}), ON)

    assert pod_set["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 1,
    }
    assert KIND.pod_selector(make()) == {"jobset.sigs.k8s.io/jobset-name": "train"}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({"spec": None}, id="no-spec"),
        pytest.param({"spec": {"template": {"spec": {"replicatedJobs": ["x", {"name": 5}]}}}}, id="no-objects"),
        pytest.param(runtime(part(replicas=-1, step=None)), id="a-negative-number"),
        pytest.param(runtime(part(job={"parallelism": 2**40})), id="too-many-pods"),
        pytest.param(runtime(part(), part()), id="one-name-twice"),
    ],
)
def test_a_runtime_that_makes_no_pod_sets_is_told(broken: JSON) -> None:
    with pytest.raises(InvalidObjectError) as told:
        KIND.pod_sets(make(broken), ON)

    assert {error.path for error in told.value.errors} == {"spec.runtimeRef"}
    assert {problem.path for problem in KIND.problems(make(broken), None, HERE)} == {"spec.runtimeRef"}


# --- start and stop ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("TrainJob", "start with topology")
def test_a_start_is_two_writes() -> None:
    """The patches while the job is suspended, then the end of the suspension and of the mark."""
    other = patch_of(of_pods(spec={"nodeSelector": {"b": "2"}}))
    job = make(runtime(), runtimePatches=[other, EMPTY])
    first = begun(job)
    second = begun(first)
    template: JSON = {
        "metadata": {"labels": dict(INFO.labels), "annotations": dict(INFO.annotations)},
        "spec": {
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}],
        },
    }

    assert first["spec"]["suspend"] is True
    assert written(first) == [of_pods(**template)]
    assert first["spec"]["runtimePatches"][0] == other
    assert first["metadata"]["annotations"] == {STARTING: "true"}
    assert second["spec"] == {**first["spec"], "suspend": False}
    assert second["metadata"]["annotations"] == {}


def test_an_object_beside_the_job_is_never_written() -> None:
    patch = KIND.start(make(runtime()), (INFO,))

    assert isinstance(patch, dict)
    assert set(patch) == {"metadata", "spec"}
    assert set(KIND.stop(running(), ())[0].patch) == {"spec"}


def test_tolerations_of_the_runtime_stay() -> None:
    """Trainer replaces the list, so the patch has all of them; without further ones it has none."""
    own = {"key": "own", "operator": "Exists"}
    of = runtime(part(pod={"tolerations": [own]}))
    (with_more,) = written(begun(make(of)))
    (without,) = written(begun(make(of), PodSetInfo(name="node", labels={"a": "b"})))

    assert with_more["template"]["spec"]["template"]["spec"]["tolerations"] == [
        own,
        {"key": "gpu", "operator": "Exists"},
    ]
    assert "spec" not in without["template"]["spec"]["template"]


def test_a_job_without_the_entry_gets_one_at_its_start() -> None:
    """It was made while no webhook added the entry."""
    first = begun(make(runtime(), runtimePatches=[]))

    assert [one["manager"] for one in first["spec"]["runtimePatches"]] == [MANAGER]
    assert len(written(first)) == 1


@pytest.mark.parametrize(
    ("of", "infos", "said"),
    [
        pytest.param(runtime(), (), "pod sets", id="another-number-of-pod-sets"),
        pytest.param(runtime(part(pod={"nodeSelector": {"pool": "cpu"}})), (INFO,), "pool", id="another-value"),
        pytest.param(
            runtime(part(metadata={"labels": prefixed(managed="true")})), (INFO,), "label kueue.x-k8s.io/managed",
            id="a-name-that-only-kqueue-may-set",
        ),
        pytest.param(
            runtime(part(pod={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})), (INFO,),
            "scheduling gate kueue.x-k8s.io/admission", id="a-gate-that-only-kqueue-may-set",
        ),
    ],
)  # fmt: skip
def test_a_runtime_that_contradicts_the_admission_is_not_started(
    of: JSON, infos: tuple[PodSetInfo, ...], said: str
) -> None:
    refused = KIND.start(make(of), infos)

    assert isinstance(refused, Refused)
    assert said in str(refused)


def test_between_the_two_writes_the_job_is_what_its_user_wrote() -> None:
    """A controller that is killed there starts it again, and does not take it for one that its user has suspended."""
    job = make(runtime())
    first = begun(job)
    suspended_later = apply_merge_patch(running(), {"spec": {"suspend": True}})

    assert KIND.pod_sets(first, ON) == KIND.pod_sets(job, ON)
    assert KIND.pod_sets(suspended_later, ON) != KIND.pod_sets(job, ON)


def stops(job: JSON) -> list[JSON]:
    """The job after each step of its stop."""
    found = []
    while steps := KIND.stop(job, ()):
        found.append(job := apply_merge_patch(job, steps[0].patch))
        assert len(found) < 4
    return found


@pytest.mark.proves("TrainJob", "stop and restore")
def test_a_stop_suspends_and_then_empties_the_entry() -> None:
    """Which itself stays, as do the entries of others."""
    other = patch_of(of_pods(spec={"nodeSelector": {"b": "2"}}))
    job = make(runtime(), runtimePatches=[other, EMPTY])
    first, second = stops(begun(begun(job)))

    assert first["spec"]["suspend"] is True
    assert len(written(first)) == 1
    assert second["spec"] == job["spec"]
    assert KIND.stop(running(), ())[0].suspends
    assert not KIND.stop(first, ())[0].suspends


def test_while_child_jobs_are_active_the_entry_stays() -> None:
    job = apply_merge_patch(running(), {"spec": {"suspend": True}, "status": {"jobsStatus": [child(active=1)]}})

    assert KIND.active(job)
    assert stops(job) == []
    assert stops(apply_merge_patch(job, {"status": {"jobsStatus": [child()]}}))


@pytest.mark.parametrize("job", [make(runtime()), make(runtime(), runtimePatches=[])], ids=["empty", "no-entry"])
def test_a_stopped_job_is_not_written(job: JSON) -> None:
    assert stops(job) == []


def test_a_start_that_was_interrupted_is_taken_back() -> None:
    job = make(runtime())

    (taken_back,) = stops(begun(job))

    assert taken_back["spec"] == job["spec"]
    assert taken_back["metadata"]["annotations"] == {}


def test_a_job_without_its_runtime_is_stopped() -> None:
    """No runtime is needed for that."""
    job = completed(running(), {TORCH: None})

    assert [one["spec"]["suspend"] for one in stops(job)] == [True, True]


@pytest.mark.parametrize(
    ("status", "active"),
    [
        pytest.param({}, False, id="nothing-known"),
        pytest.param({"jobsStatus": [child(), child("x", active=1)]}, True, id="a-child-job-is-active"),
        pytest.param({"jobsStatus": [child(ready=1, succeeded=1)]}, False, id="none-is-active"),
        pytest.param({"conditions": [{"type": "Suspended", "status": "False"}]}, True, id="the-suspension-is-not-seen-yet"),
    ],
)  # fmt: skip
def test_a_job_is_active_while_a_child_job_is(status: JSON, active: bool) -> None:
    assert KIND.active(make(runtime(), status=status)) is active


def test_only_the_field_suspends() -> None:
    assert KIND.is_suspended(make())
    assert KIND.holds_back(make())
    assert KIND.suspend(make()) == {}
    assert KIND.suspend(make(suspend=False)) == {"spec": {"suspend": True}}
    assert KIND.held_by == "spec.suspend"


# --- its state --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status", "end"),
    [
        pytest.param("Complete", "True", Finished("m", success=True), id="complete"),
        pytest.param("Failed", "True", Finished("m", success=False), id="failed"),
        pytest.param("Failed", "False", None, id="not-failed"),
        pytest.param("Suspended", "True", None, id="suspended"),
    ],
)
@pytest.mark.proves("TrainJob", "finished")
def test_a_job_ends_by_condition(kind: str, status: str, end: Finished | None) -> None:
    job = make(runtime(), status={"conditions": [{"type": kind, "status": status, "message": "m"}]})

    assert KIND.finished(job) == end


TWO = runtime(part("data", step="dataset-initializer"), part("cache", step=None, replicas=2, job={"parallelism": 3}))


@pytest.mark.parametrize(
    ("of", "statuses", "ready"),
    [
        pytest.param(TWO, [], False, id="nothing-known"),
        pytest.param(TWO, [child("data", succeeded=1), child("cache", ready=1)], False, id="one-is-not-ready"),
        pytest.param(TWO, [child("data", succeeded=1), child("cache", ready=2)], True, id="ready-or-succeeded"),
        pytest.param(None, [], False, id="no-runtime-and-nothing-known"),
        pytest.param(None, [child("data", succeeded=1), child("cache")], False, id="no-runtime-and-one-not-ready"),
        pytest.param(None, [child("data", succeeded=1), child("cache", ready=2)], True, id="no-runtime-and-all-ready"),
    ],
)
@pytest.mark.proves("TrainJob", "pods ready")
def test_pods_are_ready_when_all_child_jobs_are(of: JSON | None, statuses: list[JSON], ready: bool) -> None:
    """A runtime that was deleted meanwhile does not make a running job unready."""
    assert KIND.pods_ready(make(of, status={"jobsStatus": statuses})) is ready


@pytest.mark.parametrize(
    ("of", "statuses", "given_back"),
    [
        pytest.param(TWO, [], {}, id="nothing-known"),
        pytest.param(TWO, [child("data", succeeded=1), child("cache", ready=2)], {"data": 1}, id="an-initializer"),
        pytest.param(TWO, [child("cache", succeeded=1)], {"cache": 3}, id="pods-of-each-replica"),
        pytest.param(runtime(part(), failurePolicy={"maxRestarts": 1}), [child(succeeded=1)], {}, id="it-may-restart"),
        pytest.param(None, [child("data", succeeded=1)], {}, id="no-runtime"),
    ],
)
@pytest.mark.proves("TrainJob", "reclaimable pods")
def test_succeeded_child_jobs_give_their_quota_back(
    of: JSON | None, statuses: list[JSON], given_back: dict[str, int]
) -> None:
    assert KIND.reclaimable(make(of, status={"jobsStatus": statuses})) == given_back


# --- a running JobSet -------------------------------------------------------------------------------------------------


def beside(job: JSON, of: JSON | None, *parts: JSON, uid: str = UID, suspend: bool = False) -> JSON:
    """The job with its runtime as it is now and the JobSet that runs it."""
    owner = {"apiVersion": KIND.gvk.api_version, "kind": "TrainJob", "name": "train", "uid": uid, "controller": True}
    metadata = {"name": "train", "namespace": "team", "ownerReferences": [owner]}
    job_set = {"metadata": metadata, "spec": {"suspend": suspend, "replicatedJobs": list(parts)}}
    return completed(job, {TORCH: of, Reference(JOB_SETS, "team", "train"): job_set})


def as_made(pods: int, **more: Any) -> JSON:
    """A replicated job as Trainer writes it, with parts of its own."""
    made = part(job={"parallelism": pods, "completions": pods}, replicas=1, **more)
    container = made["template"]["spec"]["template"]["spec"]["containers"][0]
    container |= {"env": [{"name": "PET_NNODES", "value": str(pods)}], "ports": [{"containerPort": 29500}]}
    return made


SMALL, LARGE = runtime(policy={"numNodes": 2}), runtime(policy={"numNodes": 9})
PLAIN = [{"name": "node", "image": "old", "resources": {"requests": {"cpu": "1"}}}]


@pytest.mark.parametrize(
    ("job", "count"),
    [
        pytest.param(beside(running(SMALL), SMALL, as_made(2)), 2, id="as-rendered"),
        pytest.param(beside(running(SMALL), LARGE, as_made(2)), 2, id="a-later-change-of-the-runtime-does-not-reach-it"),
        pytest.param(beside(running(SMALL), None, as_made(2)), 2, id="without-the-runtime"),
        pytest.param(beside(running(SMALL), SMALL, as_made(9)), 9, id="a-runtime-that-was-larger-for-a-moment"),
        pytest.param(beside(running(SMALL), SMALL, as_made(9), suspend=True), 2, id="a-suspended-jobset-may-still-change"),
        pytest.param(beside(running(SMALL), SMALL, as_made(9), uid="other"), 2, id="the-jobset-of-another"),
        pytest.param(beside(make(SMALL), SMALL, as_made(9)), 2, id="a-suspended-job-is-rendered"),
    ],
)  # fmt: skip
def test_a_running_job_is_what_runs(job: JSON, count: int) -> None:
    """Trainer changes no JobSet that runs; parts that it adds do not matter."""
    (pod_set,) = KIND.pod_sets(job, ON)
    (container,) = pod_set["template"]["spec"]["containers"]

    assert pod_set["count"] == count
    assert "ports" not in container
    assert {key: container[key] for key in PLAIN[0]} == PLAIN[0]


def test_what_runs_may_request_more_than_the_runtime_says() -> None:
    larger = as_made(2)
    larger["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = GPUS
    (pod_set,) = KIND.pod_sets(beside(running(SMALL), SMALL, larger), ON)

    assert pod_set["template"]["spec"]["containers"][0]["resources"] == GPUS


def test_a_running_job_without_its_runtime_is_sound() -> None:
    job = beside(running(SMALL, status={"jobsStatus": [child(ready=1)]}), None, as_made(2))

    assert KIND.problems(job, job, HERE) == []
    assert KIND.pods_ready(job)
    assert list(references(KIND, job)) == [TORCH, Reference(JOB_SETS, "team", "train")]
    assert list(references(KIND, {**job, "metadata": {"namespace": "team"}})) == [TORCH]


def test_host_ports_stay() -> None:
    """They need room on a host."""
    of = part()
    of["template"]["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 1}, {"hostPort": 2}]
    (pod_set,) = KIND.pod_sets(make(runtime(of)), ON)

    assert pod_set["template"]["spec"]["containers"][0]["ports"] == [{"hostPort": 2}]


# --- webhooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("TrainJob", "webhook defaults")
def test_every_new_job_gets_an_empty_entry_and_queued_ones_begin_suspended() -> None:
    """What a user wrote for kqueue's manager is not kept."""
    other = patch_of(of_pods(spec={"nodeSelector": {"b": "2"}}))
    forged = patch_of(of_pods(spec={"nodeSelector": {"x": "y"}}), manager=MANAGER)
    queued = make(suspend=False, runtimePatches=[other])
    free = make(labels={}, suspend=False, runtimePatches=[])
    filled = make(runtimePatches=[forged])

    assert KIND.defaults(queued, HERE) == {"spec": {"suspend": True, "runtimePatches": [other, EMPTY]}}
    assert KIND.defaults(free, HERE) == {"spec": {"runtimePatches": [EMPTY]}}
    assert KIND.defaults(filled, HERE) == {"spec": {"runtimePatches": [EMPTY]}}
    assert KIND.defaults(make(), HERE) == {}
    assert KIND.defaults({**queued, "metadata": {"deletionTimestamp": "now"}}, HERE) == {}


def test_a_job_of_the_default_queue_begins_suspended() -> None:
    patch = KIND.defaults(make(labels={}, suspend=False), JobContext(default_queue=True))

    assert patch == {"metadata": {"labels": prefixed(queue_name="default")}, "spec": {"suspend": True}}


def test_mistakes_of_the_runtime_are_told_with_their_place() -> None:
    """The reference, then kind and name of the runtime and the path in it, and how to mend it."""
    both = prefixed(podset_required_topology="rack", podset_preferred_topology="rack")
    (problem, *_) = KIND.problems(make(runtime(part(metadata={"annotations": both}))), None, HERE)

    assert problem.path == "spec.runtimeRef"
    assert "ClusterTrainingRuntime torch, spec.template.spec.replicatedJobs[0].template" in problem.problem
    assert "spec.runtimePatches" in problem.problem


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        pytest.param(make(runtime()), make(runtime(), labels=prefixed(queue_name="other")), None, id="suspended"),
        pytest.param(
            running(), make(runtime(), suspend=False, labels=prefixed(queue_name="other")),
            "metadata.labels[kueue.x-k8s.io/queue-name]", id="running",
        ),
        pytest.param(
            make(runtime()), make(runtime(), annotations=prefixed(elastic_job="true")),
            "metadata.annotations[kueue.x-k8s.io/elastic-job]", id="elastic",
        ),
    ],
)  # fmt: skip
def test_changes_follow_the_common_rules(old: JSON, new: JSON, path: str | None) -> None:
    found = {problem.path for problem in KIND.problems(new, old, HERE)}

    assert (path in found) if path else found == set()


def test_an_object_that_is_being_deleted_has_no_problems() -> None:
    assert KIND.problems({**make(), "metadata": {"deletionTimestamp": "now"}}, None, HERE) == []


def test_annotations_without_effect_are_told() -> None:
    lonely = part(metadata={"annotations": prefixed(podset_group_name="alone")})

    assert KIND.warnings(make(), HERE) == []
    for warning in KIND.warnings(make(runtime(lonely)), HERE):
        assert warning.startswith("ClusterTrainingRuntime torch, spec.template: ")


def other_shapes(value: Any) -> Iterator[Any]:
    """The value with each part of it replaced by a number, by a list, and left out."""
    if isinstance(value, dict):
        for key, part_of in value.items():
            rest = {name: item for name, item in value.items() if name != key}
            yield from ({**rest, key: changed} for changed in other_shapes(part_of))
            yield rest
    if isinstance(value, list):
        yield from ([changed, *value[1:]] for one in value[:1] for changed in other_shapes(one))
    yield 5
    yield ["x"]


def test_objects_of_any_shape_are_judged() -> None:
    """Whatever part is missing or of another type, in the job and in its runtime."""
    of = runtime(part(), policy={"numNodes": 2, "mpi": {"runLauncherAsNode": True}})
    whole = make(trainer={"numNodes": 2, "resourcesPerNode": GPUS, "image": "i"}, status={"jobsStatus": [child()]})
    jobs = [{**whole, "spec": spec} for spec in other_shapes(whole["spec"])]
    jobs += [{**whole, "status": status} for status in other_shapes(whole["status"])]
    found = [completed(job, {TORCH: of}) for job in jobs]
    found += [make({"metadata": {}, "spec": spec}) for spec in other_shapes(of["spec"])]

    for job in found:
        KIND.defaults(job, HERE)
        KIND.problems(job, None, HERE)
        KIND.problems(job, job, HERE)
        KIND.warnings(job, HERE)
        KIND.pods_ready(job)
        KIND.reclaimable(job)
        KIND.stop(job, ())
    assert len(found) > 100
