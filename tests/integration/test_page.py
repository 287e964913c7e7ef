"""`kqueue dashboard` against a controller that runs: each question of the page has an answer of the form that it draws."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from yarl import URL

from tests.integration.road import Object, make_road
from tests.integration.test_doctor import answers
from tests.integration.test_visibility import Plane, visible

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

FEEDS = ("queues", "topologies", "workloads", "starts", "trends", "map/dc")


@asynccontextmanager
async def opened(plane: Plane) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """The command, and a browser that has opened the printed address; with the origin of the page."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "dashboard", "--no-browser", "--kubeconfig", str(plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None, "the output is a pipe"
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        address = URL(line.decode().split()[-1])
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(address.origin(), cookie_jar=jar) as browser:
            await (await browser.get(address)).read()
            yield browser, str(address.origin())
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 20)


async def first_of(browser: aiohttp.ClientSession, feeds: tuple[str, ...]) -> dict[str, Any]:
    """The first answer of each feed."""
    found: dict[str, Any] = {}
    query = "&".join(f"feed={feed}" for feed in feeds)
    timeout = aiohttp.ClientTimeout(total=60)
    async with browser.get(f"/api/events?{query}", timeout=timeout) as stream:
        name = ""
        while len(found) < len(feeds):
            line = (await stream.content.readline()).decode().rstrip()
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.setdefault(name, json.loads(line.removeprefix("data: ")))
    return found


async def test_each_question_of_the_page_has_an_answer(either_plane: Plane) -> None:
    """A gang runs in one rack and another one waits; the rack is drained in thought."""
    road = await make_road(either_plane.cluster, shape=(1, 2, 2))
    async with visible(either_plane):
        await answers(either_plane.cluster)
        await road.submit("runs", pods=2, run_seconds=600)
        await road.until_workload("runs", "PodsReady")
        await road.submit("waits", pods=4, required="cloud.provider.com/topology-rack")
        await road.until_workload("waits", "QuotaReserved", status="False")
        workload = (await road.workload_of("runs"))["metadata"]["name"]
        (flavor,) = (await either_plane.cluster.get(MAP))["flavors"]
        used = flavor["leaves"]["domain"][flavor["leaves"]["holder"].index(0)]
        async with opened(either_plane) as (browser, origin):
            found = await first_of(browser, FEEDS)
            life: Object = await (await browser.get(f"/api/lives/{road.namespace}/{workload}")).json()
            rack = f"{flavor['domains'][0]['name'][0]}/{flavor['domains'][1]['name'][used]}"
            asked = await browser.post("/api/whatifs", json={"drains": [rack]}, headers={"Origin": origin})
            what_if: Object = await asked.json()
            wrong: Object = await (
                await browser.post("/api/whatifs", json={"drains": ["nowhere"]}, headers={"Origin": origin})
            ).json()

    assert {name: answer.get("error") for name, answer in found.items()} == dict.fromkeys(FEEDS)
    assert found["map/dc"]["flavors"][0]["leaves"]["unbound"] == [0] * 4
    assert {one["of"] for one in found["trends"]["series"]} == {
        "waiting",
        "wait",
        "reserved",
        "fragmentation",
        "spread",
    }
    assert [one["metadata"]["name"] for one in found["starts"]["items"]] or found["starts"]["message"]
    assert [one["state"] for one in life["states"]] == ["Pending", "Reserved", "Admitted", "Running"]
    assert {"Created", "Admitted"} <= {one["what"] for one in life["moments"]}
    assert "event" in {one["kind"] for one in life["moments"]}
    assert what_if["lines"][0][0].startswith("0 would start, 1 would be evicted"), what_if
    assert "no topology has the domain 'nowhere'" in wrong["error"]


MAP = "/apis/visibility.kqueue.dev/v1alpha1/topologymaps/dc"
