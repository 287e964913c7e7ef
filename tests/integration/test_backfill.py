"""Backfill by time on both control planes: what a planned start holds up, also after a restart, that it comes true, and
its annotation.
"""

from __future__ import annotations

import pytest

from kqueue.api.backfill_names import BACKFILL_ANNOTATION
from kqueue.api.run_time_names import START_TIME_ANNOTATION
from kqueue.manager.process import running
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.road import KUEUE, Object, make_road
from tests.integration.test_job_lifecycle import Plane, _submit, configuration, flags

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]
_LONG = 1_200
"""Seconds of a limit that the test does not wait for."""


async def test_a_gang_that_would_starve_starts(either_plane: Plane) -> None:
    """A third of the quota is free, and the gang needs all of it: a job without a limit waits, one with a limit runs."""
    road = await make_road(either_plane.cluster, gpus=24, shape=(1, 1, 4))
    note = {"metadata": {"annotations": {BACKFILL_ANNOTATION: "time"}}}
    await road.cluster.request("PATCH", f"{KUEUE}/clusterqueues/team", note, content_type=MERGE_PATCH)

    async def says(words: str) -> None:
        def told(listed: Object) -> bool:
            return any(
                words in c["message"] for w in listed["items"] for c in w.get("status", {}).get("conditions", ())
            )

        await road.cluster.until(road.workloads, told, what=words)

    async def gang_note(*, is_there: bool) -> None:
        def noted(listed: Object) -> bool:
            gangs = [w["metadata"] for w in listed["items"] if w["metadata"]["name"].startswith("job-gang-")]
            return [START_TIME_ANNOTATION in (one.get("annotations") or {}) for one in gangs] == [is_there]

        await road.cluster.until(road.workloads, noted, what=f"the start time of the gang: {is_there}")

    async with running(configuration(), flags(either_plane)):
        await _submit(road, "half", pods=2, run_seconds=_LONG, spec={"activeDeadlineSeconds": _LONG})
        await road.until_workload("half", "Admitted")
        await road.submit("gang", pods=3)
        await says("; planned to start at ")
    # the plan was in memory; start times are computed when a process begins to lead
    async with running(configuration("startTimes: {annotate: true}\n"), flags(either_plane)):
        await gang_note(is_there=True)
        await _submit(road, "slow", pods=1)
        await says("Its room is kept for ")
        await _submit(road, "quick", pods=1, run_seconds=1, spec={"activeDeadlineSeconds": 60})
        await road.until_complete("quick")
        await road.until_workload("slow", "QuotaReserved", status="False")
        await road.cluster.request("DELETE", f"{road.jobs}/half?propagationPolicy=Background")
        await gang_note(is_there=False)
        await road.until_complete("gang", "slow")
