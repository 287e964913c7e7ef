"""Run times on both control planes: annotations on their way from a Job to its Workload, and the ConfigMap with what was
learned.
"""

from __future__ import annotations

import json

import pytest

from kqueue.api.run_time_names import (
    DEADLINE_SECONDS_ANNOTATION,
    EXPECTED_SECONDS_ANNOTATION,
    RUN_TIMES_CONFIG_MAP,
    RUN_TIMES_FIELD_MANAGER,
    RUN_TIMES_KEY,
)
from kqueue.manager.process import running
from kqueue.state.run_summary import summary_from
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.road import Object, Road, make_road
from tests.integration.test_job_lifecycle import Plane, _submit, configuration, flags

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


def annotated(seconds: str | None) -> Object:
    return {"metadata": {"annotations": {EXPECTED_SECONDS_ANNOTATION: seconds}}}


async def until_told(road: Road, expected: str | None, deadline: str | None) -> None:
    """The only Workload has these annotations."""

    def told(listed: Object) -> bool:
        found = [w["metadata"].get("annotations") or {} for w in listed["items"]]
        keys = (EXPECTED_SECONDS_ANNOTATION, DEADLINE_SECONDS_ANNOTATION)
        return [[one.get(key) for key in keys] for one in found] == [[expected, deadline]]

    await road.cluster.until(road.workloads, told, what=f"a Workload with {expected} and {deadline}")


async def test_run_times_reach_the_workload_and_are_learned(either_plane: Plane) -> None:
    """At creation, after changes, and with a forged deadline; when the Job has succeeded, its run is in the ConfigMap."""
    own = await either_plane.cluster.create_namespace("ours")
    road = await make_road(either_plane.cluster, gpus=8)
    async with running(configuration(f"namespace: {own}\n"), flags(either_plane)):
        notes = {EXPECTED_SECONDS_ANNOTATION: "3600"}
        await road.change_queue(stopPolicy="Hold")
        await _submit(road, "train", pods=1, annotations=notes, spec={"activeDeadlineSeconds": 7_200})
        await until_told(road, "3600", "7200")
        job = f"{road.jobs}/train"
        await road.cluster.request("PATCH", job, annotated("60"), content_type=MERGE_PATCH)
        await until_told(road, "60", "7200")
        workload = (await road.workload_of("train"))["metadata"]["name"]
        forged = {"metadata": {"annotations": {DEADLINE_SECONDS_ANNOTATION: "5"}}}
        await road.cluster.request("PATCH", f"{road.workloads}/{workload}", forged, content_type=MERGE_PATCH)
        await road.cluster.request("PATCH", job, annotated(None), content_type=MERGE_PATCH)
        await until_told(road, None, "7200")

        await road.change_queue(stopPolicy="None")
        await road.until_complete("train")
        path = f"/api/v1/namespaces/{own}/configmaps"

        def found(listed: Object) -> list[Object]:
            return [one for one in listed["items"] if one["metadata"]["name"] == RUN_TIMES_CONFIG_MAP]

        (kept,) = found(await road.cluster.until(path, lambda listed: bool(found(listed)), what="the ConfigMap"))
    summary = summary_from(kept["data"][RUN_TIMES_KEY])
    assert [(name, [sum(n for _, n in g.counts) for g in groups]) for name, groups in summary.namespaces] == [
        (road.namespace, [1, 1, 1])
    ]
    assert json.loads(kept["data"][RUN_TIMES_KEY])["version"] == 1
    assert [one["manager"] for one in kept["metadata"]["managedFields"]] == [RUN_TIMES_FIELD_MANAGER]
