"""StatefulSets, end to end, with the webhooks: one gang, admitted as a whole, put on hold at 0 replicas."""

from __future__ import annotations

import pytest

from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.road import KUEUE, Object, condition, has
from tests.integration.serving import PREFIX, Plane, Serving, gates, world

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]
KIND = "StatefulSet"
IN_A_RACK = {f"{PREFIX}podset-required-topology": RACK_LABEL}


async def workload_of(team: Serving, name: str) -> Object:
    """The Workload of a StatefulSet."""

    def of(listed: Object) -> list[Object]:
        return [
            w
            for w in listed["items"]
            if any((o["kind"], o["name"]) == (KIND, name) for o in w["metadata"].get("ownerReferences", []))
        ]

    return of(await team.cluster.until(team.workloads, lambda listed: bool(of(listed)), what=f"workload of {name}"))[0]


@pytest.mark.proves("StatefulSet", "queueing")
@pytest.mark.proves("StatefulSet", "webhook defaults")
@pytest.mark.proves("StatefulSet", "start with topology")
@pytest.mark.proves("StatefulSet", "ranks")
@pytest.mark.proves("StatefulSet", "pods ready")
async def test_a_stateful_set_runs_as_one_gang_in_the_order_of_its_indexes(either_plane: Plane) -> None:
    """One Workload for all replicas, one rack, hosts by pod index."""
    async with world(either_plane, KIND) as team:
        await team.create("db", replicas=4, template=IN_A_RACK)
        pods = await team.until_pods("db", running=4)
        racks = await team.racks(pods)
        hosts = [p["spec"]["nodeName"] for p in sorted(pods, key=lambda p: p["metadata"]["name"])]
        (workload,) = await team.until_workloads(1)
        ready = await team.until_workload_is(workload["metadata"]["name"], "PodsReady")
        await team.until_reserved(32)

    assert workload["metadata"]["name"].startswith("statefulset-db-")
    assert workload["metadata"]["annotations"][f"{PREFIX}job-owner-gvk"] == "apps/v1, Kind=StatefulSet"
    assert workload["metadata"]["annotations"][f"{PREFIX}job-owner-name"] == "db"
    assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("main", 4)]
    assert len(racks) == 1
    assert len(set(hosts)) == 4
    assert hosts == sorted(hosts)
    assert has(ready, "Admitted")
    assert not any(f"{PREFIX}managed" in p["metadata"].get("finalizers", []) for p in pods)


@pytest.mark.proves("StatefulSet", "queueing")
async def test_a_stateful_set_starts_whole_or_not_at_all(either_plane: Plane) -> None:
    """With quota for two of three pods all are held; pods that come one after another do so once it is admitted."""
    async with world(either_plane, KIND, gpus=16) as team:
        await team.create("big", replicas=3)
        await team.until_pods("big", running=0, held=3)
        workload = await workload_of(team, "big")
        told = await team.until_workload_is(workload["metadata"]["name"], "QuotaReserved", status="False")
        await team.create("small", replicas=2, podManagementPolicy="OrderedReady")
        await team.until_pods("small", running=2)
        held = await team.until_pods("big", running=0, held=3)

    assert "nvidia.com/gpu" in condition(told, "QuotaReserved")["message"]
    assert [sorted(gates(p)) for p in held] == [["admission", "topology"]] * 3


@pytest.mark.proves("StatefulSet", "queueing")
async def test_what_a_namespace_adds_to_pods_is_paid_for_and_keeps_nobody_back(either_plane: Plane) -> None:
    """A LimitRange fills in requests that the template leaves open: its quota is taken, and the pods start."""
    async with world(either_plane, KIND) as team:
        limits = {"limits": [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "2"}}]}
        body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "usual"}, "spec": limits}
        await team.cluster.request("POST", f"/api/v1/namespaces/{team.namespace}/limitranges", body)
        made = team.made("db")
        for part in made["spec"]["template"]["spec"]["containers"][0]["resources"].values():
            part.pop("cpu", None)
        await team.cluster.request("POST", team.collection, made)
        pods = await team.until_pods("db", running=2)
        (entry,) = (await workload_of(team, "db"))["status"]["admission"]["podSetAssignments"]

    assert [p["spec"]["containers"][0]["resources"]["requests"]["cpu"] for p in pods] == ["2", "2"]
    assert entry["resourceUsage"]["cpu"] == "4"


@pytest.mark.proves("StatefulSet", "scale")
async def test_a_stateful_set_is_put_on_hold_at_0_and_comes_back_with_another_size(either_plane: Plane) -> None:
    """At 0 its quota is free for others and its Workload waits for nobody; scaled up it is queued again as a whole."""
    async with world(either_plane, KIND, gpus=24) as team:
        await team.create("db", replicas=2)
        await team.until_pods("db", running=2)
        workload = (await workload_of(team, "db"))["metadata"]
        await team.scale("db", 0)
        await team.until_workload_is(workload["name"], "QuotaReserved", status="False", reason="OnHold")
        gone = await team.until_pods("db", running=0)
        await team.until_reserved(0)
        await team.create("other", replicas=1)
        await team.until_pods("other", running=1)
        await team.cluster.until(
            f"{team.collection}/db", lambda s: not s["status"].get("replicas"), what="no replicas are left"
        )
        await team.scale("db", 3)
        await team.until_pods("db", running=0, held=3)
        await team.delete("other")
        await team.until_pods("db", running=3)
        after = await workload_of(team, "db")
        await team.until_reserved(24)

    assert gone == []
    assert after["metadata"]["uid"] == workload["uid"]
    assert [p["count"] for p in after["spec"]["podSets"]] == [3]


@pytest.mark.proves("StatefulSet", "scale")
async def test_replicas_beyond_what_was_admitted_wait_and_are_told_of(either_plane: Plane) -> None:
    """`kubectl scale` passes the webhook by: no pod more is started than there is quota for."""
    async with world(either_plane, KIND) as team:
        await team.create("db", replicas=2)
        await team.until_pods("db", running=2)
        await team.cluster.request(
            "PATCH",
            f"{team.collection}/db/scale",
            {"spec": {"replicas": 3}},
            content_type="application/merge-patch+json",
        )
        pods = await team.until_pods("db", running=2, held=1)
        told = await team.until_event("db", "ReplicasDiffer")
        await team.until_reserved(16)
        await team.scale("db", 0)
        await team.until_pods("db", running=0)
        await team.cluster.until(
            f"{team.collection}/db", lambda s: not s["status"].get("replicas"), what="no replicas are left"
        )
        await team.scale("db", 3)
        await team.until_pods("db", running=3)

    assert [p["metadata"]["name"] for p in pods if gates(p)] == ["db-2"]
    assert "spec.replicas is 3, and quota was given for 2" in told


@pytest.mark.proves("StatefulSet", "eviction and requeue")
@pytest.mark.proves("StatefulSet", "priority class")
async def test_an_evicted_stateful_set_makes_its_pods_anew_and_waits(either_plane: Plane) -> None:
    """All its pods go for one of higher priority; new ones are held by the same Workload and start when there is room."""
    async with world(either_plane, KIND, gpus=16) as team:
        queue = f"{KUEUE}/clusterqueues/team"
        preemption = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await team.cluster.request("PATCH", queue, preemption, content_type="application/merge-patch+json")
        for name, value in (("low", 1), ("high", 10)):
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name},
                    "value": value}  # fmt: skip
            await team.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", body)
        await team.create("db", labels={f"{PREFIX}priority-class": "low"})
        await team.until_pods("db", running=2)
        before = (await workload_of(team, "db"))["metadata"]
        await team.create("urgent", replicas=1, labels={f"{PREFIX}priority-class": "high"})
        await team.until_pods("urgent", running=1)
        await team.until_pods("db", running=0, held=2)
        await team.delete("urgent")
        await team.until_pods("db", running=2)
        after = (await workload_of(team, "db"))["metadata"]

    assert after["uid"] == before["uid"]


@pytest.mark.proves("StatefulSet", "queueing")
async def test_a_waiting_stateful_set_moves_to_another_queue(either_plane: Plane) -> None:
    """Its Workload and its pods follow."""
    async with world(either_plane, KIND) as team:
        await team.create("db", queue="nowhere")
        await team.until_pods("db", running=0, held=2)
        await team.patch("db", {"metadata": {"labels": {f"{PREFIX}queue-name": "main"}}})
        pods = await team.until_pods("db", running=2)
        workload = await workload_of(team, "db")

    assert workload["spec"]["queueName"] == "main"
    assert {p["metadata"]["labels"][f"{PREFIX}queue-name"] for p in pods} == {"main"}


async def test_held_pods_of_an_old_revision_are_replaced_unstarted(either_plane: Plane) -> None:
    """One by one in order, the first would be waited for in vain; nothing of it ever runs without quota."""
    async with world(either_plane, KIND, gpus=8) as team:
        await team.create("db", replicas=2, podManagementPolicy="OrderedReady")
        (held,) = await team.until_pods("db", running=0, held=1)
        await team.patch("db", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})

        def replaced(listed: Object) -> bool:
            return any(
                p["metadata"]["name"] == "db-0" and p["metadata"]["annotations"].get("version") == "2"
                for p in listed["items"]
            )

        await team.cluster.until(team.pods, replaced, what="the held pod is of the new revision")
        (new,) = await team.until_pods("db", running=0, held=1)

    assert new["metadata"]["uid"] != held["metadata"]["uid"]
    assert gates(new)


async def test_a_new_image_reaches_a_running_stateful_set_within_its_quota(either_plane: Plane) -> None:
    """Pods are replaced one after another without a new admission."""
    async with world(either_plane, KIND, gpus=16) as team:
        await team.create("db")
        await team.until_pods("db", running=2)
        admitted = condition(await workload_of(team, "db"), "Admitted")["lastTransitionTime"]
        await team.patch("db", {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})

        def replaced(listed: Object) -> bool:
            pods = [p for p in listed["items"] if p["metadata"]["labels"].get("app") == "db"]
            return len(pods) == 2 and all(p["metadata"]["annotations"].get("version") == "2" for p in pods)

        await team.cluster.until(team.pods, replaced, what="all pods are new")
        await team.until_pods("db", running=2)
        after = condition(await workload_of(team, "db"), "Admitted")["lastTransitionTime"]
        await team.until_reserved(16)

    assert after == admitted


@pytest.mark.proves("StatefulSet", "webhook validation")
async def test_mistakes_are_refused_as_the_user_reads_them(either_plane: Plane) -> None:
    """The size of a gang, the shape of its pods, its queue while it serves; images may change."""
    async with world(either_plane, KIND) as team:
        with pytest.raises(RequestError, match="queue-name"):
            await team.create("bad", queue="Not_A_Queue")
        await team.create("db")
        await team.until_pods("db", running=2)
        await team.cluster.until(
            f"{team.collection}/db", lambda s: s["status"].get("readyReplicas") == 2, what="2 replicas are ready"
        )
        with pytest.raises(RequestError, match="can change only to 0 and from 0"):
            await team.scale("db", 3)
        with pytest.raises(RequestError, match="scale to 0 first"):
            await team.patch("db", {"metadata": {"labels": {f"{PREFIX}queue-name": "other"}}})
        with pytest.raises(RequestError, match=r"spec\.template\.spec\.nodeSelector"):
            await team.patch("db", {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}})
        await team.patch("db", {"metadata": {"labels": {"mine": "yes"}}})


@pytest.mark.proves("StatefulSet", "stop and restore")
async def test_a_deleted_stateful_set_leaves_nothing_behind(either_plane: Plane) -> None:
    """Running, waiting or at 0: pods and Workloads go, and quota is free."""
    async with world(either_plane, KIND, gpus=16) as team:
        await team.create("db")
        await team.until_pods("db", running=2)
        await team.create("waits")
        await team.until_pods("waits", running=0, held=2)
        await team.create("empty", replicas=2, gpus=0)
        await team.until_pods("empty", running=2)
        await team.scale("empty", 0)
        await team.until_pods("empty", running=0)
        for name in ("waits", "db", "empty"):
            await team.delete(name)
            await team.until_pods(name, running=0)
        await team.until_workloads(0)
        await team.until_reserved(0)


async def test_a_workload_that_is_deleted_is_made_anew(either_plane: Plane) -> None:
    """Its pods stop, and new ones are queued by a new Workload."""
    async with world(either_plane, KIND) as team:
        await team.create("db")
        await team.until_pods("db", running=2)
        before = (await workload_of(team, "db"))["metadata"]
        await team.cluster.request("DELETE", f"{team.workloads}/{before['name']}")

        def renewed(listed: Object) -> bool:
            return any(w["metadata"]["uid"] != before["uid"] for w in listed["items"])

        await team.cluster.until(team.workloads, renewed, what="another workload")
        await team.until_pods("db", running=2)
        after = (await workload_of(team, "db"))["metadata"]

    assert after["name"] == before["name"]
