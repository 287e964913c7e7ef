"""Every kind that is queued can be asked about: its manifests become the Workloads of its controller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kqueue.documents import load_yaml
from kqueue.errors import ConfigError
from kqueue.visibility.question import JSON
from tests.unit.manager.simulated import ALL, QUEUE, Simulated, container, job, results, simulated, template

DECLARED = """
integrations:
  frameworks: [batch/job]
  declaredKinds:
  - apiVersion: example.com/v1
    kind: Bake
    suspend: spec.suspend
    podSets: [{name: oven, template: spec.template, replicas: spec.ovens}]
    active: status.active
    succeeded: {condition: Done}
    failed: {condition: Burnt}
    ready: {sign: {condition: Ready}}
"""
EXAMPLES = sorted(
    file
    for folder in ("kueue", "gangs")
    for file in (Path(__file__).parents[3] / "examples" / folder).glob("*.yaml")
    if file.name != "queues.yaml"
)


@pytest.fixture
async def asked() -> AsyncIterator[Simulated]:
    async with simulated() as found:
        yield found


def obj(api_version: str, kind: str, name: str, spec: JSON, **metadata: Any) -> JSON:
    """An object in LocalQueue `main`."""
    labels = {QUEUE: "main", **metadata.pop("labels", {})}
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": labels, **metadata},
        "spec": spec,
    }


def pod(name: str, *, cpus: int = 1, **metadata: Any) -> JSON:
    return obj("v1", "Pod", name, {"containers": [container(cpus)]}, **metadata)


def jobset() -> JSON:
    replicated = [
        {
            "name": "a",
            "replicas": 2,
            "template": {"spec": {"parallelism": 1, "completions": 1, "template": template()}},
        },
        {"name": "b", "template": {"spec": {"parallelism": 3, "completions": 3, "template": template()}}},
    ]
    return obj("jobset.x-k8s.io/v1alpha2", "JobSet", "set", {"replicatedJobs": replicated})


def pytorch() -> JSON:
    master = {"replicas": 1, "template": template()}
    return obj(
        "kubeflow.org/v1",
        "PyTorchJob",
        "torch",
        {"pytorchReplicaSpecs": {"Master": master, "Worker": {**master, "replicas": 3}}},
    )


def ray() -> JSON:
    group = {"groupName": "w", "replicas": 3, "minReplicas": 3, "maxReplicas": 3, "template": template()}
    return obj(
        "ray.io/v1",
        "RayCluster",
        "ray",
        {"headGroupSpec": {"rayStartParams": {}, "template": template()}, "workerGroupSpecs": [group]},
    )


def leader_worker_set() -> JSON:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template()}}
    return obj("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", spec)


def serving(kind: str) -> JSON:
    made = template(app="a")
    del made["spec"]["restartPolicy"]
    spec: JSON = {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": made}
    return obj("apps/v1", kind, "web", spec)


def group() -> list[JSON]:
    """Two pods of a group of Kueue."""
    metadata: dict[str, Any] = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "pair"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
    }
    return [pod(name, **metadata) for name in ("p0", "p1")]


def coscheduling(pods: int = 3) -> list[JSON]:
    """A PodGroup of two of three pods, which names the queue for them."""
    group = obj("scheduling.x-k8s.io/v1alpha1", "PodGroup", "gang", {"minMember": 2})
    members = [pod(f"m{n}", labels={"scheduling.x-k8s.io/pod-group": "gang"}) for n in range(pods)]
    for member in members:
        del member["metadata"]["labels"][QUEUE]
    return [group, *members]


def batch_process() -> JSON:
    processes = [
        {"name": "teacher", "replicas": 2, "template": {"spec": {"containers": [container()]}}},
        {"name": "student", "replicas": 2, "template": {"spec": {"containers": [container()]}}},
    ]
    spec = {"simpleProcesses": processes, "podGroup": {"minAvailable": 3}}
    return obj("kqueue.dev/v1alpha1", "BatchProcess", "school", spec)


@pytest.mark.parametrize(
    ("manifests", "found"),
    [
        pytest.param([job(pods=2)], [("Job train", 1, 2)], id="Job"),
        pytest.param([jobset()], [("JobSet set", 1, 5)], id="JobSet"),
        pytest.param([pytorch()], [("PyTorchJob torch", 1, 4)], id="PyTorchJob"),
        pytest.param([ray()], [("RayCluster ray", 1, 4)], id="RayCluster"),
        pytest.param([leader_worker_set()], [("LeaderWorkerSet lws", 2, 3)], id="LeaderWorkerSet"),
        pytest.param([serving("StatefulSet")], [("StatefulSet web", 1, 3)], id="StatefulSet"),
        pytest.param([serving("Deployment")], [("Deployment web", 3, 1)], id="Deployment"),
        pytest.param([pod("one")], [("Pod one", 1, 1)], id="Pod"),
        pytest.param(group(), [("gang pair", 1, 2)], id="group-of-pods"),
        pytest.param(coscheduling(), [("gang gang", 1, 2)], id="PodGroup"),
        pytest.param([batch_process()], [("BatchProcess school", 1, 3)], id="BatchProcess"),
    ],
)
async def test_a_kind_becomes_the_workloads_of_its_controller(
    asked: Simulated, manifests: list[JSON], found: list[tuple[str, int, int]]
) -> None:
    """Object, copies and pods of each."""
    answer = await asked.ask(*manifests)
    assert [(one["object"], one["copies"], one["pods"]) for one in answer["workloads"]] == found
    assert answer["startsNow"] is True


@pytest.mark.parametrize("file", [pytest.param(file, id=f"{file.parent.name}-{file.stem}") for file in EXAMPLES])
async def test_the_examples_can_be_asked_about(asked: Simulated, file: Path) -> None:
    """Unchanged, but for the namespace; objects to which a job refers may be in the same file."""
    manifests = load_yaml(file.read_text())
    jobs = [each for each in manifests if each["kind"] not in ("Namespace", "Service")]
    for each in manifests:
        each["metadata"].pop("namespace", None)
    answer = await asked.ask(*jobs, queue="main")
    assert answer["workloads"]


async def test_pods_beyond_the_quorum_are_counted(asked: Simulated) -> None:
    answer = await asked.ask(*coscheduling(), batch_process())
    assert [one["podsBeyondQuorum"] for one in answer["workloads"]] == [1, 1]


async def test_several_objects_share_the_room(asked: Simulated) -> None:
    """In the order of the file where their priorities are equal; a gang is where its first pod is."""
    answer = await asked.ask(job("a", pods=2, cpus=3), *group(), pod("big", cpus=9))
    assert results(answer) == [[("Now", 1)], [("Later", 1)], [("Now", 1)]]


@pytest.mark.parametrize(
    ("manifests", "words"),
    [
        pytest.param(group()[:1], "gang pair", id="a-group-that-lacks-pods"),
        pytest.param(coscheduling(pods=0), "add the pods of the group", id="a-group-without-pods"),
        pytest.param([{**batch_process(), "spec": {}}], "BatchProcess school is not valid", id="no-processes"),
        pytest.param(
            [pod("child", ownerReferences=[{"controller": True, "kind": "ReplicaSet"}])],
            "ask about the controller",
            id="a-child",
        ),
    ],
)
async def test_gangs_that_cannot_be_queued_are_refused(asked: Simulated, manifests: list[JSON], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        await asked.ask(*manifests)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "kind", ["Job", "JobSet", "PyTorchJob", "RayCluster", "LeaderWorkerSet", "BatchProcess", "Pod"]
)
@pytest.mark.parametrize("spec", [None, 1, "text", [], {"template": 5, "replicatedJobs": [[]], "simpleProcesses": 3}])
async def test_nonsense_is_refused_and_never_a_bug(asked: Simulated, kind: str, spec: Any) -> None:
    """Every kind names the object that it refuses."""
    versions = {
        "Job": "batch/v1",
        "JobSet": "jobset.x-k8s.io/v1alpha2",
        "PyTorchJob": "kubeflow.org/v1",
        "RayCluster": "ray.io/v1",
        "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
        "BatchProcess": "kqueue.dev/v1alpha1",
        "Pod": "v1",
    }
    with pytest.raises(ConfigError) as refused:
        await asked.ask(obj(versions[kind], kind, "odd", spec))
    assert "odd" in str(refused.value) or "no workload" in str(refused.value)
    assert "bug" not in str(refused.value)


async def test_a_declared_kind_can_be_asked_about() -> None:
    async with simulated(DECLARED) as asked:
        bake = obj("example.com/v1", "Bake", "bread", {"ovens": 2, "suspend": True, "template": template()})
        answer = await asked.ask(bake)
        assert [(one["object"], one["pods"]) for one in answer["workloads"]] == [("Bake bread", 2)]
        assert asked.asked == [("example.com", "v1", "bakes")]


async def test_a_kind_that_is_off_is_refused_with_those_that_are_on() -> None:
    async with simulated("integrations: {frameworks: [batch/job]}\n") as asked:
        with pytest.raises(ConfigError, match=r"JobSet of jobset\.x-k8s\.io/v1alpha2 is not queued here.*Job"):
            await asked.ask(jobset())
    assert "jobset" in ALL
