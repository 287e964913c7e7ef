"""What is to be done about a pod that runs already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.api.names import MULTIKUEUE_CONTROLLER
from kqueue.core.devices.counting import DeviceRules
from kqueue.core.devices.values import DeviceMapping
from kqueue.core.quota_requests import Counting
from kqueue.jobs.switches import JobFeatures
from kqueue.operations.devices import ClusterDevices
from kqueue.operations.importing import plan as planning
from kqueue.operations.importing.mapping import MappingRule
from kqueue.operations.importing.plan import ImportProblem, ImportSettings, ImportStep, Skipped
from kqueue.operations.importing.units import units_in
from kqueue.operations.importing.world import ImportWorld
from kqueue.state.status import admission_json

Object = dict[str, Any]


def flavor_quotas(*flavors: str, resources: tuple[str, ...] = ("cpu",)) -> Object:
    """A resource group."""
    quotas = [{"name": r, "nominalQuota": "10"} for r in resources]
    return {"coveredResources": list(resources), "flavors": [{"name": f, "resources": quotas} for f in flavors]}


def world(*groups: Object, checks: Object | None = None, **more: Any) -> ImportWorld:
    """LocalQueue `main` leads to ClusterQueue `team`; nodes `n-a` and `n-b` are of the flavors `a` and `b`.

    `checks`: the flavors and the controller of each admission check of `team`.
    """
    spec: Object = {"resourceGroups": list(groups) or [flavor_quotas("a", "b")]}
    if checks:
        listed = [{"name": name, "onFlavors": flavors} for name, (flavors, _) in checks.items()]
        spec["admissionChecksStrategy"] = {"admissionChecks": listed}
        more["checks"] = {name: {"spec": {"controllerName": controller}} for name, (_, controller) in checks.items()}
    settings: Object = {
        "local_queues": {("ns", "main"): "team", ("ns", "astray"): "nobody"},
        "cluster_queues": {"team": {"metadata": {"name": "team"}, "spec": spec}},
        "flavors": {name: {"spec": {"nodeLabels": {"pool": name}}} for name in "ab"},
        "node_labels": {"n-a": {"pool": "a"}, "n-b": {"pool": "b"}, "n-c": {}},
        "priorities": {("PriorityClass", "high"): 7, ("WorkloadPriorityClass", "urgent"): 9},
    }
    return ImportWorld(**{**settings, **more})


def pod(node: str = "n-a", *, labels: Object | None = None, spec: Object | None = None, **requests: str) -> Object:
    """A pod that runs."""
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {"cpu": "2"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels or {}},
        "spec": {"nodeName": node, "containers": [container], **(spec or {})},
    }


def plan(of: Object, in_world: ImportWorld, settings: ImportSettings) -> ImportStep | ImportProblem | Skipped:
    """The plan for the only pod."""
    [unit] = units_in([], [of], JobFeatures())
    return planning.plan(unit, in_world, settings)


TO_MAIN = ImportSettings(rules=[MappingRule(queue="main")])


def test_a_pod_gets_an_admitted_workload_and_the_labels_of_its_queue() -> None:
    """Owned by the pod, in the flavor of its node, at what it asks for."""
    step = plan(pod("n-b"), world(), replace(TO_MAIN, labels={"team": "x"}))
    assert isinstance(step, ImportStep)
    [change] = step.changes
    wanted = {"team": "x", "kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"}
    assert wanted.items() <= change.labels.items()
    assert step.workload["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert step.workload["spec"]["queueName"] == "main"
    [assigned] = step.admission.pod_sets
    assert (step.admission.queue, dict(assigned.flavors), dict(assigned.usage), assigned.count) == (
        "team", {"cpu": "b"}, {"cpu": 2000}, 1
    )  # fmt: skip


def test_a_pod_that_is_nowhere_yet_gets_the_first_flavor() -> None:
    """Of each group that it asks for something of; the number of pods may cost quota, too."""
    groups = flavor_quotas("b", "a", resources=("cpu", "memory")), flavor_quotas("a", resources=("gpu",))
    flavors = {"a": {"spec": {"nodeLabels": {"pool": "a"}}}, "b": {"spec": {"nodeLabels": {"disk": "b"}}}}
    counted = world(*groups, flavor_quotas("b", resources=("pods",)), flavors=flavors)
    step = plan(pod("", cpu="1", gpu="4"), counted, TO_MAIN)
    assert isinstance(step, ImportStep)
    [assigned] = step.admission.pod_sets
    assert dict(assigned.flavors) == {"cpu": "b", "gpu": "a", "pods": "b"}
    assert dict(assigned.usage) == {"cpu": 1000, "gpu": 4, "pods": 1}


def test_resources_that_are_not_counted_need_no_quota() -> None:
    """As the flag or the configuration says."""
    settings = replace(TO_MAIN, counting=Counting(excluded_prefixes=("example.com/",)))
    assert isinstance(plan(pod(**dict[str, Any]({"cpu": "1", "example.com/x": "3"})), world(), settings), ImportStep)


@pytest.mark.parametrize(
    ("of", "value"),
    [
        pytest.param(pod(spec={"priorityClassName": "high"}), 7, id="its-class"),
        pytest.param(pod(labels={"kueue.x-k8s.io/priority-class": "urgent"}), 9, id="its-label"),
        pytest.param(pod(spec={"priority": 3}), 3, id="its-number"),
        pytest.param(pod(), 0, id="nothing-said"),
    ],
)
def test_the_priority_is_the_pods(of: Object, value: int) -> None:
    """Found as the controller finds it."""
    step = plan(of, world(), TO_MAIN)
    assert isinstance(step, ImportStep)
    assert step.workload["spec"]["priority"] == value


def marked(**annotations: str) -> Object:
    """A pod with annotations of ours."""
    made = pod()
    made["metadata"]["annotations"] = {f"kueue.x-k8s.io/{key.replace('_', '-')}": v for key, v in annotations.items()}
    return made


@pytest.mark.parametrize(
    ("of", "in_world", "settings", "text"),
    [
        pytest.param(pod(), world(), ImportSettings(rules=[]), "no rule maps it", id="no-rule"),
        pytest.param(pod(labels={"kueue.x-k8s.io/queue-name": "x"}), world(), TO_MAIN, "says x, the rules say main",
                     id="another-queue"),
        pytest.param(pod(), world(local_queues={}), TO_MAIN, "no LocalQueue main", id="no-localqueue"),
        pytest.param(pod(), world(), ImportSettings(rules=[MappingRule(queue="astray")]), "nobody, which does not exist",
                     id="no-clusterqueue"),
        pytest.param(pod(), world(flavors={}), TO_MAIN, "ResourceFlavor a, which does not exist", id="no-flavor"),
        pytest.param(pod(memory="1Gi"), world(), TO_MAIN, "no quota for memory", id="a-resource-without-quota"),
        pytest.param(pod("n-c"), world(), TO_MAIN, "node n-c has the labels of no flavor in a, b", id="node-of-no-flavor"),
        pytest.param(pod(), world(checks={"k": ([], MULTIKUEUE_CONTROLLER)}), TO_MAIN, "k has other clusters run", id="other-clusters"),
        pytest.param(pod(spec={"priorityClassName": "x"}), world(), TO_MAIN, "PriorityClass x, which does not exist",
                     id="no-priority-class"),
        pytest.param(marked(workload="w"), world(), TO_MAIN, "its job is queued", id="pod-of-a-queued-job"),
        pytest.param(marked(podset_required_topology="example.com/rack"), world(), TO_MAIN, "flavor a has none",
                     id="wants-a-place-in-a-flavor-without-topology"),
        pytest.param(pod(spec={"schedulingGates": [{"name": "g"}]}), world(), TO_MAIN, "scheduling gate", id="gated"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_told(of: Object, in_world: ImportWorld, settings: ImportSettings, text: str) -> None:
    """In one sentence."""
    found = plan(of, in_world, settings)
    assert isinstance(found, ImportProblem)
    assert text in found.text


def stored(step: ImportStep, status: Object) -> ImportWorld:
    """The world after an import that was killed."""
    return world(workloads={"u": [{**step.workload, "status": status}]})


def reserved(step: ImportStep) -> Object:
    """The status of an admitted Workload."""
    condition = {"type": "QuotaReserved", "status": "True", "reason": "r", "message": "", "lastTransitionTime": None}
    return {"admission": admission_json(step.admission), "conditions": [condition]}


def test_checks_of_the_flavors_are_those_that_count_as_passed() -> None:
    checks: Object = {"every": ([], "x.io/a"), "of-a": (["a"], "x.io/a"), "of-b": (["b"], MULTIKUEUE_CONTROLLER)}
    found = plan(pod(), world(checks=checks), TO_MAIN)
    assert isinstance(found, ImportStep)
    assert found.checks == ("every", "of-a")


DRIVER = "gpu.example.com"
CLAIMED = ImportSettings(
    rules=[MappingRule(queue="main")],
    devices=DeviceRules(mappings=(DeviceMapping(resource="gpus", classes=("gpu",)),)),
)


def claiming() -> tuple[Object, ClusterDevices]:
    """A pod that runs with two devices, and the objects behind its claim."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}
    spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
    devices = ClusterDevices(
        classes=[{"metadata": {"name": "gpu"}, "spec": {}}],
        templates=[{"metadata": {"name": "two", "namespace": "ns"}, "spec": spec}],
    )
    return pod(spec={"resourceClaims": [{"name": "r", "resourceClaimTemplateName": "two"}]}), devices


def test_devices_that_run_count_in_quota() -> None:
    of, devices = claiming()
    step = plan(of, world(flavor_quotas("a", resources=("cpu", "gpus")), devices=devices), CLAIMED)
    assert isinstance(step, ImportStep)
    assert dict(step.admission.pod_sets[0].usage) == {"cpu": 2000, "gpus": 2}
    lacking = plan(of, world(devices=devices), CLAIMED)
    assert isinstance(lacking, ImportProblem)
    assert "no quota for gpus" in lacking.text


def test_devices_that_cannot_be_counted_are_in_the_way() -> None:
    of, _ = claiming()
    found = plan(of, world(flavor_quotas("a", resources=("cpu", "gpus"))), CLAIMED)
    assert isinstance(found, ImportProblem)
    assert "ResourceClaimTemplate two does not exist" in found.text


def test_who_is_to_stay_out_or_is_imported_already_is_skipped() -> None:
    """A Workload without admission, or a pod without its label, is gone on with."""
    managed = pod(labels={"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "main"})
    first = plan(pod(), world(), TO_MAIN)
    assert isinstance(first, ImportStep)
    there, waits = stored(first, reserved(first)), stored(first, {})
    assert isinstance(plan(pod(), world(), ImportSettings(rules=[MappingRule(skip=True)])), Skipped)
    assert isinstance(plan(managed, there, TO_MAIN), Skipped)
    unlabelled, waiting = plan(pod(), there, TO_MAIN), plan(managed, waits, TO_MAIN)
    assert isinstance(unlabelled, ImportStep)
    assert isinstance(waiting, ImportStep)
    assert waiting.workload["metadata"]["name"] == unlabelled.workload["metadata"]["name"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param({"spec": {"podSets": []}}, "describes other pods", id="other-pods"),
        pytest.param({"status": {"admission": {"clusterQueue": "other"}}}, "other flavors or places", id="other-queue"),
        pytest.param({"status": {"conditions": [{"type": "Finished", "status": "True"}]}}, "is over", id="finished"),
    ],
)
def test_a_workload_that_says_something_else_is_in_the_way(change: Object, text: str) -> None:
    """Nothing is charged that is not true."""
    first = plan(pod(), world(), TO_MAIN)
    assert isinstance(first, ImportStep)
    there = {**first.workload, "status": reserved(first)}
    there = {**there, **{key: {**there[key], **value} for key, value in change.items()}}
    found = plan(pod(), world(workloads={"u": [there]}), TO_MAIN)
    assert isinstance(found, ImportProblem)
    assert text in found.text
