"""AppWrappers: the pod sets of their components, what a start writes beside the manifests, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kqueue.errors import InvalidObjectError
from kqueue.jobs.appwrapper import AppWrapper
from kqueue.jobs.catalog import BY_FRAMEWORK, BY_GROUP_KIND
from kqueue.jobs.infos import infos_at_stop
from kqueue.jobs.kind import Finished, JobContext, PodSetInfo, Refused
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, equivalent, workload_for
from kqueue.kinds import FRAMEWORKS
from tests.unit.jobs.builders import JSON, UID, make_template, prefixed

WRAPPER = AppWrapper()
ON, HERE = JobFeatures(), JobContext()
RACK = prefixed(podset_required_topology="rack")
TAS = "workload.codeflare.dev.appwrapper/tas-"
BY_INDEX = {"podIndexLabel": "batch.kubernetes.io/job-completion-index"}
TEMPLATE = make_template()


def component(api_version: str, kind: str, spec: JSON, **more: Any) -> JSON:
    """A component with a manifest."""
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "child"}, "spec": spec}
    return {"template": manifest, **more}


def job(annotations: dict[str, str] | None = None, **spec: Any) -> JSON:
    """A component with a batch Job."""
    return component("batch/v1", "Job", {"template": make_template(annotations=annotations), **spec})


def make(
    *components: JSON,
    suspend: bool = True,
    name: str = "wrap",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    status: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A queued AppWrapper; by default around a Job of two pods."""
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": UID,
            "labels": prefixed(queue_name="main") if labels is None else labels,
            "annotations": annotations or {},
        },
        "spec": {"suspend": suspend, "components": list(components) or [job(parallelism=2)], **spec},
        "status": status or {},
    }


def condition(**statuses: str) -> JSON:
    return {"conditions": [{"type": kind, "status": status} for kind, status in statuses.items()]}


def told(problems: list[Any]) -> list[str]:
    return [problem.path for problem in problems]


# --- to a Workload ----------------------------------------------------------------------------------------------------


JOB_SET = {
    "replicatedJobs": [
        {"name": "a", "replicas": 3, "template": {"spec": {"parallelism": 4, "completions": 2, "template": TEMPLATE}}},
        {"name": "b", "template": {"spec": {"template": TEMPLATE}}},
    ]
}
RAY = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [{"template": TEMPLATE, "replicas": 4}, {"template": TEMPLATE}],
}
PYTORCH = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3, "template": TEMPLATE}, "Master": {"template": TEMPLATE}}}
BY_REPLICA = {"podIndexLabel": "training.kubeflow.org/replica-index"}


@pytest.mark.parametrize(
    ("wrapped", "counts", "request_"),
    [
        pytest.param(component("v1", "Pod", TEMPLATE["spec"]), [1], None, id="Pod"),
        pytest.param(
            component("apps/v1", "Deployment", {"replicas": 3, "template": TEMPLATE}), [3], None, id="Deployment"
        ),
        pytest.param(component("apps/v1", "StatefulSet", {"template": TEMPLATE}), [1], None, id="StatefulSet"),
        pytest.param(job(), [1], BY_INDEX, id="Job without numbers"),
        pytest.param(job(parallelism=5, completions=2), [2], BY_INDEX, id="Job with fewer completions"),
        pytest.param(job(parallelism=2, completions=5), [2], BY_INDEX, id="Job with more completions"),
        pytest.param(
            component("jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SET),
            [6, 1],
            {**BY_INDEX, "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index", "subGroupCount": 3},
            id="JobSet",
        ),
        pytest.param(component("kubeflow.org/v1", "PyTorchJob", PYTORCH), [1, 3], BY_REPLICA, id="PyTorchJob"),
        pytest.param(component("ray.io/v1", "RayCluster", RAY), [1, 4, 1], None, id="RayCluster"),
        pytest.param(component("ray.io/v1", "RayJob", {"rayClusterSpec": RAY}), [1, 4, 1], None, id="RayJob"),
    ],
)
def test_pod_sets_of_known_kinds_follow_from_their_manifest(
    wrapped: JSON, counts: list[int], request_: JSON | None
) -> None:
    """As the published AppWrapper infers them; each has the name of the object and its number."""
    found = WRAPPER.pod_sets(make(wrapped), ON)
    assert [p["count"] for p in found] == counts
    assert [p["name"] for p in found] == [f"wrap-{number}" for number in range(len(counts))]
    assert all(p["template"]["spec"] == TEMPLATE["spec"] for p in found)
    assert found[0].get("topologyRequest") == request_
    assert WRAPPER.problems(make(wrapped), None, HERE) == []


def test_declared_pod_sets_have_path_number_and_annotations() -> None:
    """The path may lead through lists; the annotations name the labels that number the pods."""
    spec = {"groups": [{}, {"pods": make_template(annotations=RACK)}]}
    annotations = {f"{TAS}pod-index-label": "example.com/index", f"{TAS}sub-group-index-label": "example.com/group"}
    annotations[f"{TAS}sub-group-count"] = "2"
    declared = {"path": "template.spec.groups[1].pods", "replicas": 4, "annotations": annotations}
    other = {"path": "template.spec.groups[1].pods"}
    wrapped = component("example.com/v1", "Train", spec, podSets=[declared])
    second = component("example.com/v1", "Train", spec, podSets=[other])
    first, last = WRAPPER.pod_sets(make(component("v1", "ConfigMap", {}), wrapped, second), ON)
    assert (first["name"], first["count"], last["name"], last["count"]) == ("wrap-0", 4, "wrap-1", 1)
    assert first["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "example.com/index",
        "subGroupIndexLabel": "example.com/group",
        "subGroupCount": 2,
    }
    assert last["topologyRequest"] == {"required": "rack"}


def test_a_declared_pod_set_of_a_known_kind_keeps_its_ranks() -> None:
    wrapped = {**job(parallelism=2), "podSets": [{"path": "template.spec.template", "replicas": 2}]}
    (found,) = WRAPPER.pod_sets(make(wrapped), ON)
    assert (found["count"], found["topologyRequest"]) == (2, BY_INDEX)


def test_the_catalogue_has_the_kind() -> None:
    row = FRAMEWORKS[WRAPPER.framework]
    assert (row.kind, row.version, row.plural) == ("AppWrapper", "v1beta2", "appwrappers")
    assert isinstance(BY_FRAMEWORK[WRAPPER.framework], AppWrapper)
    assert BY_GROUP_KIND["workload.codeflare.dev", "AppWrapper"] is BY_FRAMEWORK[WRAPPER.framework]


# --- state ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "finished"),
    [
        ({"phase": "Succeeded"}, Finished("AppWrapper finished successfully", success=True)),
        ({"phase": "Failed"}, Finished("AppWrapper failed", success=False)),
        ({"phase": "Failed", **condition(ResourcesDeployed="False")}, Finished("AppWrapper failed", success=False)),
        ({"phase": "Failed", **condition(ResourcesDeployed="True")}, None),
        ({"phase": "Running"}, None),
        ({}, None),
    ],
)
def test_it_has_finished_by_its_phase_when_its_objects_are_gone(status: JSON, finished: Finished | None) -> None:
    assert WRAPPER.finished(make(status=status)) == finished


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_it_is_active_and_ready_by_its_conditions(status: str) -> None:
    assert WRAPPER.active(make(status=condition(QuotaReserved=status))) is (status == "True")
    assert WRAPPER.pods_ready(make(status=condition(PodsReady=status))) is (status == "True")
    assert not WRAPPER.active(make())


def test_its_pods_and_its_controller_have_names() -> None:
    assert WRAPPER.pod_selector(make()) == {"workload.codeflare.dev/appwrapper": "wrap"}
    assert WRAPPER.managed_by(make()) == "workload.codeflare.dev/appwrapper-controller"
    assert WRAPPER.managed_by(make(managedBy="kueue.x-k8s.io/multikueue")) == "kueue.x-k8s.io/multikueue"


# --- start and stop ---------------------------------------------------------------------------------------------------


def info(name: str, *gates: str) -> PodSetInfo:
    return PodSetInfo(
        name=name,
        labels={"kueue.x-k8s.io/podset": name},
        node_selector={"pool": "gpu"},
        tolerations=({"key": "gpu", "operator": "Exists"},),
        scheduling_gates=gates,
    )


def test_a_start_writes_beside_the_manifests_and_a_stop_takes_it_away() -> None:
    """Component by component; manifests stay as they are, and the started object matches its Workload."""
    before = make(component("v1", "ConfigMap", {}), component("ray.io/v1", "RayCluster", RAY), job(parallelism=2))
    given, infos = copy.deepcopy(before), [info(f"wrap-{n}", "example.com/gate") for n in range(4)]
    workload = workload_for(WRAPPER, before, priority=Priority(), switches=ON)
    patch = WRAPPER.start(before, infos)
    assert not isinstance(patch, Refused)
    running = apply_merge_patch(before, patch)
    none, ray, last = running["spec"]["components"]
    assert "podSetInfos" not in none
    assert [len(one["podSetInfos"]) for one in (ray, last)] == [3, 1]
    assert last["podSetInfos"] == [
        {
            "labels": {"kueue.x-k8s.io/podset": "wrap-3"},
            "nodeSelector": {"pool": "gpu"},
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "schedulingGates": [{"name": "example.com/gate"}],
        }
    ]
    assert [one["template"] for one in running["spec"]["components"]] == [
        one["template"] for one in before["spec"]["components"]
    ]
    workload["status"] = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}
    assert equivalent(WRAPPER.pod_sets(running, ON), workload, infos=infos, suspended=False)
    more = copy.deepcopy(running)
    more["spec"]["components"][2]["template"]["spec"]["parallelism"] = 3
    assert not equivalent(WRAPPER.pod_sets(more, ON), workload, infos=infos, suspended=False)

    (step,) = WRAPPER.stop(running, infos_at_stop(workload))
    assert step.suspends
    stopped = apply_merge_patch(running, step.patch)
    assert stopped == given
    assert WRAPPER.stop(stopped, infos_at_stop(workload)) == ()
    assert before == given, "values that are given are not changed"


def test_what_a_user_wrote_beside_the_manifests_is_replaced_and_counts_for_nothing() -> None:
    forged = {"labels": {"kueue.x-k8s.io/podset": "other"}, "tolerations": [{"key": "all"}]}
    job_ = make({**job(parallelism=2), "podSetInfos": [forged]})
    (pod_set,) = WRAPPER.pod_sets(job_, ON)
    assert "tolerations" not in pod_set["template"]["spec"]
    patch = WRAPPER.start(job_, [info("wrap-0")])
    assert not isinstance(patch, Refused)
    (written,) = apply_merge_patch(job_, patch)["spec"]["components"][0]["podSetInfos"]
    assert written["labels"] == {"kueue.x-k8s.io/podset": "wrap-0"}


@pytest.mark.parametrize(
    ("template", "named"),
    [
        pytest.param(make_template(nodeSelector={"pool": "mine"}), "nodeSelector entry pool", id="another selector"),
        pytest.param(make_template(labels=prefixed(podset="other")), "podset", id="another pod set"),
        pytest.param(
            make_template(labels=prefixed(managed="true")), "label kueue.x-k8s.io/managed", id="a reserved label"
        ),
        pytest.param(
            make_template(annotations=prefixed(workload_slice_name="w")),
            "workload-slice-name",
            id="a reserved annotation",
        ),
        pytest.param(
            make_template(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}]),
            "gate kueue.x-k8s.io/topology",
            id="a gate that nothing would remove",
        ),
    ],
)
def test_what_a_start_cannot_change_is_refused_with_its_path(template: JSON, named: str) -> None:
    """The AppWrapper controller would fail with a conflict, or make pods that wait for ever."""
    refused = WRAPPER.start(make(component("batch/v1", "Job", {"template": template})), [info("wrap-0")])
    assert isinstance(refused, Refused)
    assert str(refused).startswith("spec.components[0].template.spec.template: ")
    assert named in str(refused)


def test_a_gate_of_the_admission_may_be_in_the_manifest_too() -> None:
    template = make_template(schedulingGates=[{"name": "kueue.x-k8s.io/topology"}])
    wrapped = make(component("batch/v1", "Job", {"template": template}))
    assert not isinstance(WRAPPER.start(wrapped, [info("wrap-0", "kueue.x-k8s.io/topology")]), Refused)


def test_another_number_of_pod_sets_is_refused_at_the_start() -> None:
    refused = WRAPPER.start(make(), [])
    assert isinstance(refused, Refused)
    assert "1 pod sets and the admission has 0" in str(refused)
    (step,) = WRAPPER.stop(make(suspend=False), [])
    assert step.patch == {"spec": {"suspend": True}}


# --- webhooks ---------------------------------------------------------------------------------------------------------


def test_a_queued_appwrapper_is_suspended_at_its_creation() -> None:
    assert WRAPPER.defaults(make(suspend=False), HERE) == {"spec": {"suspend": True}}
    assert WRAPPER.defaults(make(suspend=False, labels={}), HERE) == {}


def declared(*pod_sets: JSON) -> JSON:
    return make({**job(parallelism=2), "podSets": list(pod_sets)})


PATH = "template.spec.template"
CUSTOM = component("example.com/v1", "Train", {"pods": TEMPLATE})
HOSTS = {**RAY, "workerGroupSpecs": [{"template": TEMPLATE, "numOfHosts": 2}]}


@pytest.mark.parametrize(
    ("wrapped", "path"),
    [
        pytest.param(make(component("v1", "ConfigMap", {})), "spec.components", id="no pods"),
        pytest.param(make(*[job() for _ in range(19)]), "spec.components", id="too many pod sets"),
        pytest.param(
            make(component("workload.codeflare.dev/v1beta2", "AppWrapper", {}), job()),
            "spec.components[0].template",
            id="nested",
        ),
        pytest.param(
            make(component("kubeflow.org/v1", "TFJob", {}), job()), "spec.components[0].podSets", id="a kind of jobs"
        ),
        pytest.param(
            make(component("apps/v1", "DaemonSet", {}), job()), "spec.components[0].podSets", id="a DaemonSet"
        ),
        pytest.param(declared({"path": PATH, "replicas": 1}), "spec.components[0].podSets", id="fewer than there are"),
        pytest.param(
            declared({"path": PATH, "replicas": 2}, {"path": PATH, "replicas": 2}),
            "spec.components[0].podSets",
            id="a path twice",
        ),
        pytest.param(
            make({**CUSTOM, "podSets": [{"path": "template.spec.none"}]}),
            "spec.components[0].template.spec.none",
            id="no template there",
        ),
        pytest.param(
            make({**CUSTOM, "podSets": [{"path": "spec.pods"}]}), "spec.components[0].spec.pods", id="another root"
        ),
        pytest.param(
            make({**CUSTOM, "podSets": [{"path": "template.spec.pods", "replicas": -1}]}),
            "spec.components[0].podSets",
            id="negative",
        ),
        pytest.param(
            make(
                {**CUSTOM, "podSets": [{"path": "template.spec.pods", "annotations": {f"{TAS}pod-index-label": "/"}}]}
            ),
            "spec.components[0].podSets.annotations",
            id="no label",
        ),
        pytest.param(
            make(component("ray.io/v1", "RayCluster", HOSTS)), "spec.components[0].template", id="several hosts"
        ),
        pytest.param(make(name="a.b"), "metadata.name (name of a pod set)", id="a name that no pod set can have"),
        pytest.param(
            make(job({**RACK, **prefixed(podset_preferred_topology="rack")})),
            "spec.components[0].template.spec.template.metadata.annotations",
            id="two levels",
        ),
    ],
)
def test_mistakes_are_refused_with_their_field(wrapped: JSON, path: str) -> None:
    assert set(told(WRAPPER.problems(wrapped, None, HERE))) == {path}
    with pytest.raises(InvalidObjectError, match="AppWrapper team/"):
        WRAPPER.pod_sets(wrapped, ON)


@pytest.mark.parametrize(
    "path", ["template[", "template.spec[9].x", "template..spec", "template.spec.pods[0]", "templates", ""]
)
def test_a_path_that_leads_nowhere_is_no_pod_set_of_nothing(path: str) -> None:
    """Pods that nobody counts would run without quota."""
    assert WRAPPER.problems(make({**CUSTOM, "podSets": [{"path": path}]}), None, HERE)


def test_rules_of_labels_hold_for_new_objects_only() -> None:
    wrong = make(labels=prefixed(queue_name="?"))
    assert told(WRAPPER.problems(wrong, None, HERE)) == ["metadata.labels[kueue.x-k8s.io/queue-name]"]
    assert WRAPPER.problems(wrong, wrong, HERE) == []


def test_the_queue_of_a_running_appwrapper_cannot_change() -> None:
    moved = make(suspend=False, labels=prefixed(queue_name="other"))
    assert told(WRAPPER.problems(moved, make(suspend=False), HERE)) == ["metadata.labels[kueue.x-k8s.io/queue-name]"]


def test_a_prebuilt_workload_is_possible_and_slices_are_not() -> None:
    assert WRAPPER.problems(make(annotations=prefixed(prebuilt_workload_name="mine")), None, HERE) == []
    assert WRAPPER.problems(make(annotations=prefixed(elastic_job="true")), None, HERE)


@pytest.mark.parametrize(
    "components", [None, 7, [None, 3, {"template": []}, {"template": {"kind": 1}, "podSets": [1, {}]}]]
)
def test_an_object_of_any_form_is_read(components: Any) -> None:
    """Webhooks get bodies that nothing has checked."""
    wrapped = make()
    wrapped["spec"]["components"] = components
    assert WRAPPER.problems(wrapped, None, HERE)
    WRAPPER.warnings(wrapped, HERE)
