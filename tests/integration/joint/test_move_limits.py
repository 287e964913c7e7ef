"""Limits of moves: the time that a state may take, the moves of an hour, and the moves that are under way at once."""

from __future__ import annotations

from copy import deepcopy
from datetime import timedelta

import pytest

from kqueue.runtime.client import connect
from tests.integration.joint.joint_road import LONG, Plane, controlled, until
from tests.integration.joint.moves_road import PLANS, Halt, MovesRoad, moving, told
from tests.integration.joint.test_moves import ENDS, approved, filled
from tests.integration.road import KUEUE, Object, job
from tests.integration.test_gang_order import changes

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox, pytest.mark.mechanism("2.10")]

UNDER_WAY = {"Reserved", "Evicting", "Replacing", "Running"}


async def test_a_move_that_is_late_has_failed_and_its_workload_waits_at_its_place(
    either_plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queue is on hold for longer than `moveTimeout`; nothing is kept any more, and later it runs again."""
    halt = Halt(monkeypatch, "Evicted")
    async with filled(either_plane, moving(move_timeout=timedelta(seconds=10))) as (road, client, operator):
        name = await approved(road, client)
        await halt.until_reached()
        await road.hold()
        halt.go()
        plan = await road.until_phase(name, *ENDS)
        (move,) = plan["status"]["moves"]
        assert (plan["status"]["phase"], move["state"]) == ("Failed", "Failed"), told(plan)
        assert "was not admitted again within 10 s; it waits at its place in its queue" in move["message"]
        await until(lambda: operator.manager.moves.claims() == (), "nothing is kept any more")
        await road.open()
        await road.until_running_pods("moves", 2)
        assert await road.evictions("moves") == 1


async def test_a_plan_waits_while_no_move_of_the_hour_is_left(either_plane: Plane) -> None:
    """It says so, and goes on under a controller that allows more."""
    async with filled(either_plane, moving(max_pods_per_hour=1)) as (road, client, _):
        name = await approved(road, client)

        def waits(plan: Object) -> bool:
            return "joint.rescheduling.maxPodsPerHour is 1" in plan["status"]["moves"][0]["message"]

        plan = await road.cluster.until(f"{PLANS}/{name}", waits, what="the plan says why it waits")
        assert plan["status"]["phase"] == "Approved", told(plan)
        assert {move["state"] for move in plan["status"]["moves"]} == {"Planned"}
        assert await road.evictions("moves") == 0
    async with controlled(either_plane, moving()):
        done = await road.until_phase(name, *ENDS)
        assert done["status"]["phase"] == "Done", told(done)
        await road.until_running_pods("big", 4)


async def add_queue(road: MovesRoad, name: str) -> None:
    """Add a ClusterQueue like the first one, and a LocalQueue for it."""
    first = await road.cluster.get(f"{KUEUE}/clusterqueues/team")
    made = {key: deepcopy(first[key]) for key in ("apiVersion", "kind", "spec")}
    await road.cluster.request("POST", f"{KUEUE}/clusterqueues", {**made, "metadata": {"name": name}})
    local = {"apiVersion": first["apiVersion"], "kind": "LocalQueue", "spec": {"clusterQueue": name}}
    path = f"{KUEUE}/namespaces/{road.namespace}/localqueues"
    await road.cluster.request("POST", path, {**local, "metadata": {"name": name, "namespace": road.namespace}})


@pytest.mark.parametrize("parallel", [1, 2])
async def test_moves_of_two_queues_are_under_way_together_if_that_is_allowed(
    either_plane: Plane, parallel: int
) -> None:
    """Two gangs of one host leave their rack, one after the other or both at once."""
    road = await MovesRoad.half_full(either_plane.cluster)
    await add_queue(road, "other")
    async with controlled(either_plane, moving(parallel_moves=parallel)), await connect(either_plane.kubeconfig) as c:
        for name, queue, pods in (("one", "main", 1), ("two", "other", 1), ("gone", "main", 2), ("stays", "main", 2)):
            made = job(name, road.namespace, pods=pods, run_seconds=LONG, queue=queue)
            if name in ("one", "two"):
                made["metadata"]["annotations"] = {"kqueue.dev/reschedule": "Always"}
            await road.cluster.request("POST", road.jobs, made)
            await road.until_running_pods(name, pods)
        await road.cluster.request("DELETE", f"{road.jobs}/gone?propagationPolicy=Background")
        await road.cluster.until(road.workloads, lambda found: len(found["items"]) == 3, what="gone has no Workload")
        for name in ("one", "two"):
            await road.age(name, 3600)
        since = (await road.cluster.get(PLANS))["metadata"]["resourceVersion"]
        plan = await approved(road, c)
        await road.until_running_pods("big", 4)
        done = await road.until_phase(plan, *ENDS)
        versions = await changes(road.cluster, PLANS, since)

    assert done["status"]["phase"] == "Done", told(done)
    states = [[move["state"] for move in version.get("status", {}).get("moves", ())] for version in versions]
    assert max(sum(state in UNDER_WAY for state in some) for some in states) == parallel
    assert [move["state"] for move in done["status"]["moves"]] == ["Done", "Done"]
