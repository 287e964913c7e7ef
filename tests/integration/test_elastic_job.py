"""Elastic jobs on the whole road: they grow and shrink while they run, and only what is admitted runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from kqueue.manager.process import Flags, running
from tests.integration.road import Object, has, job, make_road
from tests.integration.teams import FAST, LONG, Plane, Teams, configuration, flags, make_teams

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox, pytest.mark.proves("Job", "workload slices")]

GATE = "kueue.x-k8s.io/elastic-job"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
MERGE = "application/merge-patch+json"


def with_webhooks(plane: Plane) -> Flags:
    found = flags(plane)
    return dataclasses.replace(
        found,
        parts=found.parts | {"webhooks"},
        webhook_host="127.0.0.1",
        webhook_port=0,
        webhook_url="https://127.0.0.1:{port}",
    )


class Elastic:
    """One tenant with 8 GPUs, and jobs of pods of one GPU."""

    def __init__(self, road: Teams, *, queue: str = "a", gpus: int = 1) -> None:
        self.road, self.cluster, self.queue, self.gpus = road, road.cluster, queue, gpus

    async def submit(
        self, name: str, pods: int, *, run_seconds: int = LONG, marks: Mapping[str, str] | None = None
    ) -> Object:
        """Create an elastic Job; `marks` are annotations of its pods."""
        more: dict[str, Any] = {"queue": self.queue, "gpus": self.gpus, "run_seconds": run_seconds}
        obj = job(name, self.road.namespace, pods=pods, required=None, **more)
        obj["metadata"]["annotations"] = {GATE: "true"}
        obj["spec"]["template"]["metadata"]["annotations"] |= marks or {}
        return await self.cluster.request("POST", self.road.jobs, obj)

    async def scale(self, name: str, pods: int) -> None:
        change = {"spec": {"parallelism": pods, "completions": pods}}
        await self.cluster.request("PATCH", f"{self.road.jobs}/{name}", change, content_type=MERGE)

    async def until_pods(self, name: str, *, running: int, gated: int) -> list[Object]:
        """Wait until so many pods of the Job run, so many are held by the gate, and no others are there."""

        def kinds(listed: Object) -> Mapping[str, list[Object]]:
            found: dict[str, list[Object]] = {"running": [], "gated": [], "other": []}
            for pod in listed["items"]:
                phase = pod["status"].get("phase")
                if pod["metadata"]["labels"].get("batch.kubernetes.io/job-name") != name:
                    continue
                if phase in ("Succeeded", "Failed"):
                    continue
                gates = [g["name"] for g in pod["spec"].get("schedulingGates", [])]
                leaving = bool(pod["metadata"].get("deletionTimestamp"))
                kind = "gated" if GATE in gates else "running" if phase == "Running" and not leaving else "other"
                found[kind].append(pod)
            return found

        def reached(listed: Object) -> bool:
            found = {kind: len(pods) for kind, pods in kinds(listed).items()}
            return found == {"running": running, "gated": gated, "other": 0}

        listed = await self.cluster.until(self.road.pods, reached, what=f"{running} pods run, {gated} are gated")
        return list(kinds(listed)["running"])

    async def slices(self, name: str) -> list[Object]:
        """The Job's Workloads, the oldest first."""
        listed = (await self.cluster.get(self.road.workloads))["items"]
        mine = [w for w in listed if w["metadata"]["ownerReferences"][0]["name"] == name]
        return sorted(mine, key=lambda w: (REPLACES in w["metadata"].get("annotations", {}), w["metadata"]["name"]))

    async def until_slices(self, name: str, *, finished: int, admitted: int, waiting: int = 0) -> list[Object]:
        """Wait until the Job has so many Workloads of each kind."""

        def state(workload: Object) -> str:
            if has(workload, "Finished"):
                return "finished"
            return "admitted" if has(workload, "Admitted") else "waiting"

        def reached(listed: Object) -> bool:
            mine = [w for w in listed["items"] if w["metadata"]["ownerReferences"][0]["name"] == name]
            states = [state(w) for w in mine]
            wanted = {"finished": finished, "admitted": admitted, "waiting": waiting}
            return {kind: states.count(kind) for kind in wanted} == wanted

        what = f"{finished} finished, {admitted} admitted, {waiting} waiting slices of {name}"
        await self.cluster.until(self.road.workloads, reached, what=what)
        return await self.slices(name)

    async def until_used(self, gpus: int) -> None:
        """Wait until the ClusterQueue says that it uses exactly this."""

        def used(queue: Object) -> int:
            usage = queue.get("status", {}).get("flavorsUsage", [])
            return sum(int(r["total"]) for f in usage for r in f["resources"] if r["name"] == "nvidia.com/gpu")

        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/a"
        await self.cluster.until(path, lambda queue: used(queue) == gpus, what=f"{gpus} GPUs in use")


def hosts_of(pods: list[Object]) -> dict[str, str]:
    """Node by pod."""
    return {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in pods}


def finished_reason(workload: Object) -> Any:
    return next(c["reason"] for c in workload["status"]["conditions"] if c["type"] == "Finished")


async def test_a_job_grows_shrinks_and_ends(either_plane: Plane) -> None:
    """Up with quota: a new slice takes over, the extra pods run, the old ones were never touched.  Down: quota is free
    again, in the same slice.  In the end nothing is used.
    """
    elastic = Elastic(await make_teams(either_plane, {"a": 8}))
    async with running(configuration(), with_webhooks(either_plane), timings=FAST) as process:
        await process.operator.ready.wait()
        made = await elastic.submit("grows", 3)
        before = await elastic.until_pods("grows", running=3, gated=0)
        (first,) = await elastic.until_slices("grows", finished=0, admitted=1)
        await elastic.scale("grows", 5)
        after = await elastic.until_pods("grows", running=5, gated=0)
        old, new = await elastic.until_slices("grows", finished=1, admitted=1)
        await elastic.until_used(5)
        await elastic.scale("grows", 2)
        await elastic.until_pods("grows", running=2, gated=0)
        await elastic.until_used(2)
        shrunk = (await elastic.slices("grows"))[-1]
        await elastic.cluster.request("DELETE", f"{elastic.road.jobs}/grows?propagationPolicy=Background")
        await elastic.until_used(0)

    assert [g["name"] for g in made["spec"]["template"]["spec"]["schedulingGates"]] == [GATE]
    assert {p["metadata"]["uid"] for p in before} <= {p["metadata"]["uid"] for p in after}
    assert old["metadata"]["uid"] == first["metadata"]["uid"]
    assert finished_reason(old) == "WorkloadSliceReplaced"
    assert new["metadata"]["annotations"][REPLACES] == f"{elastic.road.namespace}/{old['metadata']['name']}"
    assert new["spec"]["podSets"][0]["template"] == old["spec"]["podSets"][0]["template"], "as its user wrote it"
    assert (shrunk["metadata"]["uid"], shrunk["spec"]["podSets"][0]["count"]) == (new["metadata"]["uid"], 2)


async def test_without_quota_the_old_pods_run_on_and_the_new_ones_wait(either_plane: Plane) -> None:
    """Nobody is stopped for a growth that does not fit; when room comes the gate goes.  Its size may change meanwhile."""
    elastic = Elastic(await make_teams(either_plane, {"a": 8}))
    async with running(configuration(), with_webhooks(either_plane), timings=FAST) as process:
        await process.operator.ready.wait()
        await elastic.submit("other", 4)
        await elastic.until_pods("other", running=4, gated=0)
        await elastic.submit("grows", 3)
        before = await elastic.until_pods("grows", running=3, gated=0)
        await elastic.scale("grows", 7)
        await elastic.until_pods("grows", running=3, gated=4)
        await elastic.until_slices("grows", finished=0, admitted=1, waiting=1)
        await elastic.scale("grows", 6)
        held = await elastic.until_pods("grows", running=3, gated=3)
        _, waiting = await elastic.until_slices("grows", finished=0, admitted=1, waiting=1)
        await elastic.until_used(7)
        await elastic.scale("other", 2)
        after = await elastic.until_pods("grows", running=6, gated=0)
        await elastic.until_slices("grows", finished=1, admitted=1)
        await elastic.until_used(8)

    uids = {p["metadata"]["uid"] for p in before}
    assert {p["metadata"]["uid"] for p in held} == uids
    assert uids < {p["metadata"]["uid"] for p in after}
    assert REPLACES in waiting["metadata"]["annotations"]


async def test_a_job_grows_and_shrinks_where_it_stands(either_plane: Plane) -> None:
    """With topology: pods that run keep their hosts, new ones get theirs, and places of pods that are gone are free."""
    plane = either_plane
    road = await make_road(plane.cluster)
    elastic = Elastic(Teams(plane.cluster, road.namespace), queue="main", gpus=8)
    gates = "featureGates: {ElasticJobsViaWorkloadSlicesWithTAS: true}\n"
    async with running(configuration(gates), with_webhooks(plane), timings=FAST) as process:
        await process.operator.ready.wait()
        await elastic.submit("grows", 3, marks={UNCONSTRAINED: "true"})
        before = hosts_of(await elastic.until_pods("grows", running=3, gated=0))
        await elastic.scale("grows", 5)
        grown = hosts_of(await elastic.until_pods("grows", running=5, gated=0))
        await elastic.until_slices("grows", finished=1, admitted=1)
        await elastic.scale("grows", 2)
        await elastic.until_pods("grows", running=2, gated=0)
        nodes = len((await plane.cluster.get("/api/v1/nodes"))["items"])
        await elastic.submit("fills", nodes - 2, marks={UNCONSTRAINED: "true"})
        filled = hosts_of(await elastic.until_pods("fills", running=nodes - 2, gated=0))

    assert before.items() <= grown.items()
    assert len(set(grown.values())) == 5
    assert len(set(filled.values())) == nodes - 2


async def test_a_grown_job_finishes_with_all_its_slices(either_plane: Plane) -> None:
    """The end of the job is the end of its Workloads, and its quota is free."""
    elastic = Elastic(await make_teams(either_plane, {"a": 8}))
    async with running(configuration(), with_webhooks(either_plane), timings=FAST) as process:
        await process.operator.ready.wait()
        await elastic.submit("ends", 2, run_seconds=4)
        await elastic.until_pods("ends", running=2, gated=0)
        await elastic.scale("ends", 4)
        await elastic.road.until_complete("ends")
        ended = await elastic.until_slices("ends", finished=2, admitted=0)
        await elastic.until_used(0)

    assert [finished_reason(w) for w in ended] == ["WorkloadSliceReplaced", "Succeeded"]
