"""Deployments, end to end, with the webhooks: each replica is queued, started and let go of by itself."""

from __future__ import annotations

import pytest

from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.road import KUEUE, condition, has
from tests.integration.serving import PREFIX, Plane, gates, world

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]
KIND = "Deployment"


@pytest.mark.proves("Deployment", "queueing")
@pytest.mark.proves("Deployment", "webhook defaults")
@pytest.mark.proves("Deployment", "start with topology")
@pytest.mark.proves("Deployment", "pods ready")
async def test_a_deployment_is_admitted_replica_by_replica(either_plane: Plane) -> None:
    """Each pod has a Workload of its own that names the queue; all run in the rack that each asked for."""
    async with world(either_plane, KIND) as team:
        await team.create("web", replicas=3, template={f"{PREFIX}podset-required-topology": RACK_LABEL})
        pods = await team.until_pods("web", running=3)
        for workload in await team.until_workloads(3):
            await team.until_workload_is(workload["metadata"]["name"], "PodsReady")
        workloads = await team.until_workloads(3)
        await team.until_reserved(24)
        await team.cluster.until(
            f"{team.collection}/web", lambda d: d["status"].get("readyReplicas") == 3, what="3 replicas are ready"
        )

    assert {w["spec"]["queueName"] for w in workloads} == {"main"}
    assert {w["metadata"]["ownerReferences"][0]["name"] for w in workloads} == {p["metadata"]["name"] for p in pods}
    assert all(has(w, "Admitted") for w in workloads)
    assert all(p["metadata"]["labels"][f"{PREFIX}managed"] == "true" for p in pods)
    assert not any(f"{PREFIX}managed" in p["metadata"].get("finalizers", []) for p in pods)


@pytest.mark.proves("Deployment", "scale")
async def test_a_deployment_grows_as_far_as_quota_goes_and_gives_back_what_it_sheds(either_plane: Plane) -> None:
    """Replicas without quota wait gated and say why; scaled down, quota is free for others."""
    async with world(either_plane, KIND, gpus=16) as team:
        await team.create("web", replicas=1)
        await team.until_pods("web", running=1)
        await team.patch("web", {"spec": {"replicas": 3}})
        pods = await team.until_pods("web", running=2, held=1)
        waiting = next(p["metadata"]["name"] for p in pods if gates(p))
        workload = next(
            w for w in await team.until_workloads(3) if w["metadata"]["ownerReferences"][0]["name"] == waiting
        )
        told = await team.until_workload_is(workload["metadata"]["name"], "QuotaReserved", status="False")
        await team.create("other", replicas=1)
        await team.until_pods("other", running=0, held=1)
        await team.scale("web", 1)
        await team.until_pods("web", running=1)
        await team.until_pods("other", running=1)
        await team.until_workloads(2)
        await team.until_reserved(16)

    assert "nvidia.com/gpu" in condition(told, "QuotaReserved")["message"]


@pytest.mark.proves("Deployment", "eviction and requeue")
@pytest.mark.proves("Deployment", "priority class")
async def test_an_evicted_replica_is_made_anew_and_waits(either_plane: Plane) -> None:
    """One of higher priority takes its place; the ReplicaSet makes another pod, which is queued until there is room."""
    async with world(either_plane, KIND, gpus=16) as team:
        queue = f"{KUEUE}/clusterqueues/team"
        preemption = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await team.cluster.request("PATCH", queue, preemption, content_type="application/merge-patch+json")
        for name, value in (("low", 1), ("high", 10)):
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name},
                    "value": value}  # fmt: skip
            await team.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", body)
        await team.create("web", labels={f"{PREFIX}priority-class": "low"})
        await team.until_pods("web", running=2)
        await team.create("urgent", replicas=1, labels={f"{PREFIX}priority-class": "high"})
        await team.until_pods("urgent", running=1)
        await team.until_pods("web", running=1, held=1)
        await team.delete("urgent")
        await team.until_pods("web", running=2)


async def test_a_new_template_replaces_replicas_within_the_quota(either_plane: Plane) -> None:
    """Each new pod is admitted before an old one goes."""
    async with world(either_plane, KIND, gpus=24) as team:
        await team.create("web")
        before = {p["metadata"]["name"] for p in await team.until_pods("web", running=2)}
        await team.patch("web", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})

        def replaced(listed: dict[str, list[dict[str, dict[str, str]]]]) -> bool:
            return not before & {p["metadata"]["name"] for p in listed["items"]}

        await team.cluster.until(team.pods, replaced, what="all pods are new")
        await team.until_pods("web", running=2)
        await team.until_reserved(16)


@pytest.mark.proves("Deployment", "webhook validation")
async def test_mistakes_are_refused_as_the_user_reads_them(either_plane: Plane) -> None:
    """No such name of a queue; another queue while it serves; the queue taken away."""
    async with world(either_plane, KIND) as team:
        with pytest.raises(RequestError, match="queue-name"):
            await team.create("bad", queue="Not_A_Queue")
        both = {f"{PREFIX}podset-{word}-topology": RACK_LABEL for word in ("required", "preferred")}
        with pytest.raises(RequestError, match=r"spec\.template\.metadata\.annotations.*exclude each other"):
            await team.create("bad", template=both)
        await team.create("web")
        await team.until_pods("web", running=2)
        await team.cluster.until(
            f"{team.collection}/web", lambda d: d["status"].get("readyReplicas") == 2, what="2 replicas are ready"
        )
        with pytest.raises(RequestError, match="cannot change while pods are ready"):
            await team.patch("web", {"metadata": {"labels": {f"{PREFIX}queue-name": "other"}}})
        with pytest.raises(RequestError, match="cannot be removed once it is set"):
            await team.patch("web", {"metadata": {"labels": {f"{PREFIX}queue-name": None}}})
        await team.patch("web", {"metadata": {"labels": {"mine": "yes"}}})


@pytest.mark.proves("Deployment", "stop and restore")
async def test_a_deleted_deployment_leaves_nothing_behind(either_plane: Plane) -> None:
    """Running and waiting pods go, their Workloads too, and quota is free."""
    async with world(either_plane, KIND, gpus=16) as team:
        await team.create("web", replicas=3)
        await team.until_pods("web", running=2, held=1)
        await team.delete("web")
        await team.until_pods("web", running=0)
        await team.until_workloads(0)
        await team.until_reserved(0)


async def test_a_plain_pod_starts_at_once_where_only_deployments_are_queued(either_plane: Plane) -> None:
    """Nobody would ever take its gate off, so it gets none, with or without a queue."""
    async with world(either_plane, KIND) as team:
        template = team.made("x")["spec"]["template"]
        for name, labels in (("named", {f"{PREFIX}queue-name": "main"}), ("plain", {})):
            metadata = {"name": name, "labels": {"app": name, **labels}}
            await team.cluster.request(
                "POST", team.pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            )
            await team.until_pods(name, running=1)
        for name in ("named", "plain"):
            await team.cluster.request("DELETE", f"{team.pods}/{name}")
