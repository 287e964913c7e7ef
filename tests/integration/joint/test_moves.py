"""Approved plans are carried out: a rack is freed, and the gang that waits for it starts there."""

from __future__ import annotations

import pytest

from kqueue.clock import SystemClock
from kqueue.operations.defrag import storing
from kqueue.runtime.client import connect
from tests.integration.joint.joint_road import Plane, controlled
from tests.integration.joint.moves_road import MovesRoad, moving, told

pytestmark = pytest.mark.slow


async def test_a_plan_frees_a_rack_and_the_waiting_gang_starts_there(either_plane: Plane) -> None:
    road = await MovesRoad.half_full(either_plane.cluster)
    async with controlled(either_plane, moving()), await connect(either_plane.kubeconfig) as client:
        await road.fill()
        before = await road.racks_of("moves")
        name = await road.propose(client, await road.wait_big())
        await storing.approve(client, name, "", SystemClock().now())
        await road.until_running_pods("big", 4)
        done = await road.until_phase(name, "Done", "Aborted", "Failed", "Superseded")
        assert done["status"]["phase"] == "Done", told(done)
        assert [move["state"] for move in done["status"]["moves"]] == ["Done"]
        assert await road.racks_of("big") == before
        assert await road.racks_of("moves") == await road.racks_of("stays") != before
        assert await road.evictions("moves") == 1
