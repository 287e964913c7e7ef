"""What is to be done about a pod that runs already."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kqueue.core.quota_requests import Counting
from kqueue.operations.importing.mapping import MappingRule
from kqueue.operations.importing.plan import ImportProblem, ImportSettings, ImportStep, ImportWorld, Skipped, plan

Object = dict[str, Any]


def flavor_quotas(*flavors: str, resources: tuple[str, ...] = ("cpu",)) -> Object:
    """A resource group."""
    quotas = [{"name": r, "nominalQuota": "10"} for r in resources]
    return {"coveredResources": list(resources), "flavors": [{"name": f, "resources": quotas} for f in flavors]}


def world(*groups: Object, checks: bool = False, **more: Any) -> ImportWorld:
    """LocalQueue `main` leads to ClusterQueue `team`; nodes `n-a` and `n-b` are of the flavors `a` and `b`."""
    spec: Object = {"resourceGroups": list(groups) or [flavor_quotas("a", "b")]}
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": "c"}]}
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


TO_MAIN = ImportSettings(rules=[MappingRule(queue="main")])


def test_a_pod_gets_an_admitted_workload_and_the_labels_of_its_queue() -> None:
    """Owned by the pod, in the flavor of its node, at what it asks for."""
    step = plan(pod("n-b"), world(), replace(TO_MAIN, labels={"team": "x"}))
    assert isinstance(step, ImportStep)
    assert step.labels == {"team": "x", "kueue.x-k8s.io/queue-name": "main", "kueue.x-k8s.io/managed": "true"}
    assert step.workload["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert step.workload["spec"]["queueName"] == "main"
    [assigned] = step.admission.pod_sets
    assert (step.admission.queue, dict(assigned.flavors), dict(assigned.usage), assigned.count) == (
        "team", {"cpu": "b"}, {"cpu": 2000}, 1
    )  # fmt: skip


def test_a_pod_that_is_nowhere_yet_gets_the_first_flavor() -> None:
    """Of each group that it asks for something of; the number of pods may cost quota, too."""
    groups = flavor_quotas("b", "a", resources=("cpu", "memory")), flavor_quotas("a", resources=("gpu",))
    step = plan(pod("", cpu="1", gpu="4"), world(*groups, flavor_quotas("b", resources=("pods",))), TO_MAIN)
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
        pytest.param(pod(), world(checks=True), TO_MAIN, "has admission checks", id="admission-checks"),
        pytest.param(pod(spec={"priorityClassName": "x"}), world(), TO_MAIN, "PriorityClass x, which does not exist",
                     id="no-priority-class"),
        pytest.param(marked(workload="w"), world(), TO_MAIN, "its job is queued", id="pod-of-a-queued-job"),
        pytest.param(marked(pod_group_name="g"), world(), TO_MAIN, "group of pods", id="pod-of-a-group"),
        pytest.param(marked(podset_required_topology="rack"), world(), TO_MAIN, "topology", id="wants-a-place"),
        pytest.param(pod(spec={"schedulingGates": [{"name": "g"}]}), world(), TO_MAIN, "scheduling gate", id="gated"),
    ],
)  # fmt: skip
def test_what_is_in_the_way_is_told(of: Object, in_world: ImportWorld, settings: ImportSettings, text: str) -> None:
    """In one sentence."""
    found = plan(of, in_world, settings)
    assert isinstance(found, ImportProblem)
    assert text in found.text


def test_who_is_to_stay_out_or_is_imported_already_is_skipped() -> None:
    """A Workload without admission, or a pod without its label, is gone on with."""
    there = {"metadata": {"name": "w", "namespace": "ns"}, "status": {"admission": {"clusterQueue": "team"}}}
    managed = pod(labels={"kueue.x-k8s.io/managed": "true"})
    assert isinstance(plan(pod(), world(), ImportSettings(rules=[MappingRule(skip=True)])), Skipped)
    assert isinstance(plan(managed, world(workloads={"u": there}), TO_MAIN), Skipped)
    unlabelled = plan(pod(), world(workloads={"u": there}), TO_MAIN)
    waiting = plan(managed, world(workloads={"u": {**there, "status": {}}}), TO_MAIN)
    assert isinstance(unlabelled, ImportStep)
    assert isinstance(waiting, ImportStep)
    assert waiting.workload["metadata"]["name"] == "w"
