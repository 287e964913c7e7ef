"""What the schema cannot say: queues, cohorts, flavors, Workloads and Jobs."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.jobs.switches import Switches
from webhooks import quota, workloads
from webhooks.review import Request
from webhooks.routes import routes

Object = dict[str, Any]


def queue(*resources: Object, covered: list[str] | None = None, **spec: Any) -> Object:
    names = covered if covered is not None else [r["name"] for r in resources]
    groups = [{"coveredResources": names, "flavors": [{"name": "default", "resources": list(resources)}]}]
    return {"metadata": {"name": "team"}, "spec": {"resourceGroups": groups, **spec}}


CPU = {"name": "cpu", "nominalQuota": "10"}
MEMORY = {"name": "memory", "nominalQuota": "1Gi"}
AT = "spec.resourceGroups[0].flavors[0].resources"


@pytest.mark.parametrize(
    ("obj", "paths"),
    [
        pytest.param(queue(CPU, MEMORY), [], id="sound"),
        pytest.param(queue(CPU, MEMORY, covered=["memory", "cpu"]), [f"{AT}[0].name", f"{AT}[1].name"], id="order"),
        pytest.param(queue({"name": "cpu", "nominalQuota": "-1"}), [f"{AT}[0].nominalQuota"], id="negative"),
        pytest.param(queue({"name": "cpu", "nominalQuota": "ten"}), [f"{AT}[0].nominalQuota"], id="malformed"),
        pytest.param(queue(CPU | {"lendingLimit": "5"}), [f"{AT}[0].lendingLimit"], id="lending-to-nobody"),
        pytest.param(
            queue(CPU | {"lendingLimit": "11"}, cohortName="all"),
            [f"{AT}[0].lendingLimit"],
            id="lending-more-than-there-is",
        ),
        pytest.param(
            queue(CPU, covered=["not a name"]),
            ["spec.resourceGroups[0].coveredResources[0]", f"{AT}[0].name"],
            id="bad-resource-name",
        ),
        pytest.param(
            queue(
                CPU, namespaceSelector={"matchExpressions": [{"key": "team", "operator": "Equals", "values": ["a"]}]}
            ),
            ["spec.namespaceSelector.matchExpressions[0].operator"],
            id="unknown-operator",
        ),
        pytest.param(queue(CPU, fairSharing={"weight": "-1"}), ["spec.fairSharing.weight"], id="negative-weight"),
        pytest.param(
            queue(CPU, admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["other"]}]}),
            ["spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]"],
            id="check-on-a-foreign-flavor",
        ),
    ],
)
def test_a_cluster_queue_is_checked_where_the_schema_cannot(obj: Object, paths: list[str]) -> None:
    """Each mistake is named by its path."""
    assert [problem.path for problem in quota.cluster_queue_problems(obj, None)] == paths


def test_a_resource_in_two_groups_is_refused() -> None:
    """A resource and a flavor belong to one group only."""
    obj = queue(CPU)
    obj["spec"]["resourceGroups"] *= 2

    assert len(quota.cluster_queue_problems(obj, None)) == 2


def workload(**pod_set: Any) -> Object:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": pod_set.pop("requests", {})}}]}}
    return {
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"name": "main", "count": 2, "template": template} | pod_set]},
    }


RESERVED = [{"type": "QuotaReserved", "status": "True"}]


@pytest.mark.parametrize(
    ("obj", "paths"),
    [
        pytest.param(workload(requests={"cpu": "1"}), [], id="sound"),
        pytest.param(
            workload(requests={"pods": "1"}),
            ["spec.podSets[0].template.spec.containers[0].resources.requests[pods]"],
            id="pods-are-reserved",
        ),
        pytest.param(
            workload(requests={"cpu": "-1"}),
            ["spec.podSets[0].template.spec.containers[0].resources.requests[cpu]"],
            id="negative",
        ),
        pytest.param(
            workload(topologyRequest={"podSetSliceSize": 2}),
            ["spec.podSets[0].topologyRequest.podSetSliceRequiredTopology"],
            id="slice-size-without-level",
        ),
        pytest.param(workload() | {"status": {"conditions": RESERVED}}, ["status.admission"], id="reserved-nothing"),
        pytest.param(
            workload() | {"status": {"reclaimablePods": [{"name": "main", "count": 3}, {"name": "x", "count": 1}]}},
            ["status.reclaimablePods[0].count", "status.reclaimablePods[1].name"],
            id="reclaimable-pods-that-are-not-there",
        ),
    ],
)
def test_a_workload_is_checked_where_the_schema_cannot(obj: Object, paths: list[str]) -> None:
    """Each mistake is named by its path."""
    assert [problem.path for problem in workloads.problems(obj, None, Switches())] == paths


def test_the_pod_sets_of_a_reserved_workload_cannot_change() -> None:
    """Only before the reservation may the request change."""
    admission = {"clusterQueue": "team", "podSetAssignments": [{"name": "main"}]}
    old = workload() | {"status": {"conditions": RESERVED, "admission": admission}}
    new = workload(count=3) | {"status": old["status"]}

    assert [problem.path for problem in workloads.problems(new, old, Switches())] == ["spec.podSets"]


def job(**annotations: str) -> Object:
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": []}}
    return {
        "kind": "Job",
        "metadata": {"name": "j", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"parallelism": 4, "template": template},
    }


def ask(path: str, obj: Object, *, frameworks: tuple[str, ...] = ("batch/job",)) -> Any:
    request = Request(uid="u", operation="CREATE", obj=obj, old=None)
    return routes(frameworks, Switches())[path](request)


def test_a_queued_job_is_suspended() -> None:
    """The label is enough."""
    assert ask("/mutate-batch-v1-job", job()).patch == {"spec": {"suspend": True}}


def test_a_job_without_label_is_left_alone() -> None:
    """Opting in is by label."""
    obj = job()
    obj["metadata"]["labels"] = {}

    assert ask("/mutate-batch-v1-job", obj).patch == {}


def test_two_topologies_at_once_are_refused() -> None:
    """Required and preferred exclude each other, and the path says where."""
    both = {"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-preferred-topology": "rack"}
    problems = ask("/validate-batch-v1-job", job(**both)).problems

    assert problems
    assert all("spec.template.metadata.annotations" in problem.path for problem in problems)


@pytest.mark.parametrize("path", ["/mutate-batch-v1-job", "/validate-batch-v1-job", "/mutate--v1-pod"])
def test_a_path_whose_integration_is_off_allows_everything(path: str) -> None:
    """One webhook configuration serves every set of integrations."""
    answer = ask(path, job(), frameworks=())

    assert (answer.patch, list(answer.problems)) == ({}, [])
