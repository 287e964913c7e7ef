"""Events as kubectl and other clients read them, beside those of other controllers."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqueue.clock import utc_text
from kqueue.config import Timings
from kqueue.controllers.record import ObjectReference
from kqueue.manager.process import RunningOperator, running
from tests.integration.road import Object, Road, make_road
from tests.integration.teams import Plane, configuration, flags

pytestmark = pytest.mark.slow

SOON = Timings(queue_flush_window=0.1, event_series_interval=0.2)


async def test_kubectl_sorts_and_counts_our_events_among_others(either_plane: Plane) -> None:
    """An event of ours stands between older and newer ones of others; a repeat moves its time and its count, and makes no
    second object.  `kubectl describe` shows the count, and clients of events.k8s.io read the same object.
    """
    road = await make_road(either_plane.cluster, shape=(1, 1, 1), gpus=0)
    now = datetime.now(UTC)
    await foreign_event(road, "older", now - timedelta(hours=1))
    await foreign_event(road, "newer", now + timedelta(hours=1))
    async with running(configuration(), flags(either_plane), timings=SOON) as process:
        await road.submit("waits", pods=1)
        first = await until_written(road, "WaitsForTest", process)
        order = await either_plane.kubectl(
            *("get", "events", "-n", road.namespace, "--sort-by=.lastTimestamp"),
            *("-o", "jsonpath={range .items[*]}{.reason}{' '}{end}"),
        )
        table = await either_plane.kubectl("get", "events", "-n", road.namespace, "--sort-by=.lastTimestamp")
        repeated = await until_written(road, "WaitsForTest", process, after=first["lastTimestamp"])
        described = await either_plane.kubectl("describe", "job", "waits", "-n", road.namespace)
        listed = await road.cluster.get(f"/apis/events.k8s.io/v1/namespaces/{road.namespace}/events")

    reasons = order.split()
    assert (reasons[0], reasons[-1]) == ("Older", "Newer")
    assert "WaitsForTest" in reasons[1:-1]
    lines = table.splitlines()
    assert "Older" in lines[1]
    assert "Newer" in lines[-1]
    assert repeated["metadata"]["uid"] == first["metadata"]["uid"]
    assert repeated["firstTimestamp"] == first["firstTimestamp"]
    assert (repeated["source"], repeated["reportingComponent"]) == (
        {"component": "kueue-admission"},
        "kueue-admission",
    )
    assert f"(x{repeated['count']} over " in described
    (same,) = [e for e in listed["items"] if e["reason"] == "WaitsForTest"]
    assert (same["regarding"]["name"], same["note"]) == ("waits", "a sentence")


async def foreign_event(road: Road, name: str, at: datetime) -> None:
    """An event as Kubernetes' own controllers write theirs."""
    about = {"apiVersion": "v1", "kind": "Pod", "name": "other", "namespace": road.namespace}
    when = utc_text(at)
    event: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about,
        "reason": name.title(), "message": "by another controller", "type": "Normal", "count": 1,
        "firstTimestamp": when, "lastTimestamp": when, "source": {"component": "other"},
    }  # fmt: skip
    await road.cluster.request("POST", f"/api/v1/namespaces/{road.namespace}/events", event)


async def until_written(road: Road, reason: str, process: RunningOperator, *, after: str = "") -> Object:
    """The one event of this reason about the Job, recorded again and again until its lastTimestamp is later."""
    job = await road.cluster.get(f"{road.jobs}/waits")
    about = ObjectReference("batch/v1", "Job", "waits", road.namespace, job["metadata"]["uid"])
    async with asyncio.timeout(30):
        while True:
            process.operator.manager.events.record(about, reason=reason, message="a sentence")
            await asyncio.sleep(0.3)
            listed = await road.cluster.get(f"/api/v1/namespaces/{road.namespace}/events")
            found: list[Object] = [e for e in listed["items"] if e["reason"] == reason]
            assert len(found) <= 1
            if found:
                assert found[0].get("lastTimestamp"), "the event has no time by which kubectl could sort it"
                if found[0]["lastTimestamp"] > after:
                    return found[0]
