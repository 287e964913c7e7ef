"""LeaderWorkerSets go the whole road, on both control planes; a double plays their controller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.doubles import collection
from tests.integration.lws_double import PREFIX as LWS
from tests.integration.lws_double import ROW, sets_run
from tests.integration.road import HOST, KUEUE, Object, make_road
from tests.integration.serving import CONFIGURATION, PARTS, PREFIX, Plane, Serving, gates

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]
KIND = "LeaderWorkerSet"
INDEX = f"{PREFIX}component-workload-index"

MISTAKES: list[tuple[Object, str]] = [
    ({"spec": {"leaderWorkerTemplate": {"size": 4}}}, r"leaderWorkerTemplate\.size"),
    ({"metadata": {"labels": {f"{PREFIX}queue-name": "other"}}}, "scale to 0 first"),
    (
        {"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"nodeSelector": {"a": "b"}}}}}},
        r"workerTemplate\.spec\.nodeSelector",
    ),
]
"""Changes of a set that serves, and what is said about them."""


class Sets(Serving):
    """One tenant with LeaderWorkerSets of groups of a leader and workers."""

    def __init__(self, cluster: Any, namespace: str) -> None:
        super().__init__(cluster, namespace, kind=KIND)
        self.collection = collection(ROW, namespace)

    def made(self, name: str, *, replicas: int = 2, gpus: int = 8, **settings: Any) -> Object:
        """As a user writes it: the leader has a template of its own, which asks for no GPU."""
        size, cpu = settings.pop("size", 3), {"cpu": "1"}
        workers = super().made(name, replicas=replicas, gpus=gpus, **settings)
        leaders = super().made(name, replicas=replicas, **settings)["spec"]["template"]
        leaders["spec"]["containers"][0]["resources"] = {"requests": cpu, "limits": cpu}
        template = {"size": size, "leaderTemplate": leaders, "workerTemplate": workers["spec"]["template"]}
        return workers | {
            "apiVersion": f"{ROW.group}/{ROW.version}",
            "spec": {"replicas": replicas, "leaderWorkerTemplate": template},
        }

    async def workloads_of(self, name: str, groups: int) -> list[Object]:
        """Wait until the set has so many Workloads; returns them by the index of their group."""

        def of(listed: Object) -> list[Object]:
            mine = [w for w in listed["items"] if w["metadata"]["annotations"].get(f"{PREFIX}job-owner-name") == name]
            return sorted(mine, key=lambda w: int(w["metadata"]["annotations"][INDEX]))

        found = await self.cluster.until(
            self.workloads, lambda listed: len(of(listed)) == groups, what=f"{groups} groups"
        )
        return of(found)


@asynccontextmanager
async def world(plane: Plane, folder: Path, **settings: Any) -> AsyncIterator[Sets]:
    """Nodes, a tenant, a double of the kind's controller, and kqueue with its webhooks, in which this kind alone is on."""
    road = await make_road(plane.cluster, **settings)
    tenant = Sets(plane.cluster, road.namespace)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    config = parse(CONFIGURATION.format(framework=ROW.framework), source="test", own_namespace="kqueue-system")
    async with (
        sets_run(plane.cluster, folder),
        running(config, flags, timings=Timings(queue_flush_window=0.1)) as process,
    ):
        async with asyncio.timeout(60):
            await process.operator.ready.wait()
        yield tenant


def group_of(pod: Object) -> str:
    found: str = pod["metadata"]["labels"][f"{LWS}group-index"]
    return found


@pytest.mark.proves("LeaderWorkerSet", "queueing")
@pytest.mark.proves("LeaderWorkerSet", "webhook defaults")
@pytest.mark.proves("LeaderWorkerSet", "start with topology")
@pytest.mark.proves("LeaderWorkerSet", "ranks")
@pytest.mark.proves("LeaderWorkerSet", "pods ready")
@pytest.mark.proves("LeaderWorkerSet", "scale")
@pytest.mark.proves("LeaderWorkerSet", "stop and restore")
@pytest.mark.proves("LeaderWorkerSet", "webhook validation")
async def test_each_group_is_a_gang_of_its_own(either_plane: Plane, tmp_path: Path) -> None:
    """Two groups fit and the third is held whole; mistakes in a change are refused; groups that are taken away give
    their quota back, and at the end nothing is left.
    """
    async with world(either_plane, tmp_path, gpus=32) as team:
        with pytest.raises(RequestError, match="queue-name"):
            await team.create("bad", queue="Not_A_Queue")
        await team.create("serve", replicas=3, template={f"{PREFIX}podset-required-topology": RACK_LABEL})
        pods = await team.until_pods("serve", running=6, held=3)
        workloads = await team.workloads_of("serve", 3)
        nodes = {n["metadata"]["name"]: n for n in (await team.cluster.get("/api/v1/nodes"))["items"]}
        (held,) = {group_of(pod) for pod in pods if gates(pod)}
        runs = next(index for index in range(3) if index != int(held))
        await team.until_workload_is(workloads[runs]["metadata"]["name"], "PodsReady")
        await team.cluster.until(
            f"{team.collection}/serve", lambda s: s["status"].get("readyReplicas") == 2, what="2 groups are ready"
        )
        for change, problem in MISTAKES:
            with pytest.raises(RequestError, match=problem):
                await team.patch("serve", change)
        await team.patch("serve", {"spec": {"replicas": 1}})
        await team.workloads_of("serve", 1)
        await team.until_pods("serve", running=3)
        await team.until_reserved(16)
        await team.scale("serve", 0)
        await team.until_workloads(0)
        await team.until_pods("serve", running=0)
        await team.until_reserved(0)

    for index, workload in enumerate(workloads):
        assert workload["metadata"]["name"].startswith(f"leaderworkerset-serve-{index}-")
        assert [(p["name"], p["count"]) for p in workload["spec"]["podSets"]] == [("leader", 1), ("worker", 2)]
    workers = [
        pod for pod in pods if group_of(pod) == str(runs) and f"{LWS}leader-name" in pod["metadata"]["annotations"]
    ]
    workers.sort(key=lambda pod: int(pod["metadata"]["labels"][f"{LWS}worker-index"]))
    labels = [nodes[pod["spec"]["nodeName"]]["metadata"]["labels"] for pod in workers]
    assert len({own[RACK_LABEL] for own in labels}) == 1
    assert [own[HOST] for own in labels] == sorted({own[HOST] for own in labels})


@pytest.mark.proves("LeaderWorkerSet", "eviction and requeue")
@pytest.mark.proves("LeaderWorkerSet", "priority class")
async def test_an_evicted_group_makes_its_pods_anew_and_waits(either_plane: Plane, tmp_path: Path) -> None:
    """One group goes for another set of higher priority, with leader and workers; the other group runs on."""
    async with world(either_plane, tmp_path, gpus=32) as team:
        preemption = {"spec": {"preemption": {"withinClusterQueue": "LowerPriority"}}}
        await team.cluster.request("PATCH", f"{KUEUE}/clusterqueues/team", preemption, content_type=MERGE_PATCH)
        for name, value in (("low", 1), ("high", 10)):
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "metadata": {"name": name},
                    "value": value}  # fmt: skip
            await team.cluster.request("POST", f"{KUEUE}/workloadpriorityclasses", body)
        await team.create("serve", labels={f"{PREFIX}priority-class": "low"})
        await team.until_pods("serve", running=6)
        before = {w["metadata"]["uid"] for w in await team.workloads_of("serve", 2)}
        await team.create("urgent", replicas=1, labels={f"{PREFIX}priority-class": "high"})
        await team.until_pods("urgent", running=3)
        pods = await team.until_pods("serve", running=3, held=3)
        await team.scale("urgent", 0)
        await team.until_pods("serve", running=6)
        after = {w["metadata"]["uid"] for w in await team.workloads_of("serve", 2)}

    assert len({group_of(pod) for pod in pods if gates(pod)}) == 1
    assert after == before
