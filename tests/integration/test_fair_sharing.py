"""Fair sharing in a tree of cohorts with real Jobs, whose pods take a while to end."""

from __future__ import annotations

from collections import Counter

import pytest

from kqueue.manager.process import RunningOperator, running
from tests.integration.polling import eventually
from tests.integration.road import KUEUE, Object, has, job
from tests.integration.teams import (
    FAIR,
    FAST,
    LONG,
    Plane,
    Teams,
    configuration,
    flags,
    make_priorities,
    make_teams,
    patch,
    post,
    resource_groups,
)
from tests.readings import page_of

pytestmark = pytest.mark.slow

UNITS = 6
WEIGHTS = {"light": "1", "heavy": "2"}
SLOW_SECONDS = 2
LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"}
STOP = "sandbox.kqueue.dev/stop-seconds"


async def make_company(plane: Plane) -> Teams:
    """A cohort with 6 GPUs; below it cohorts of weight 1 and 2, each with a ClusterQueue that has no quota."""
    road = await make_teams(plane, {})
    await make_priorities(plane, high=100, **{f"low-{i}": i for i in range(UNITS)})
    await post(plane, "cohorts", "company", {"resourceGroups": resource_groups(UNITS)})
    for name, weight in WEIGHTS.items():
        cohort = f"{name}-teams"
        await post(plane, "cohorts", cohort, {"parentName": "company", "fairSharing": {"weight": weight}})
        queue = {"namespaceSelector": {}, "cohortName": cohort, "preemption": LOWER}
        await post(plane, "clusterqueues", name, {**queue, "resourceGroups": resource_groups(0, cpus=0)})
        await post(plane, "localqueues", name, {"clusterQueue": name}, namespace=road.namespace)
    return road


def one_gpu(road: Teams, name: str, *, queue: str, priority: str, stop_seconds: int = 0) -> Object:
    """A Job of one pod, which takes so many seconds to end after it was deleted."""
    made = job(name, road.namespace, queue=queue, pods=1, gpus=1, required=None, run_seconds=LONG)
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = priority
    made["spec"]["template"]["metadata"]["annotations"][STOP] = str(stop_seconds)
    return made


def held(listed: Object) -> Counter[str]:
    """Admitted Workloads of each ClusterQueue, without those that were evicted."""
    return Counter(
        w["status"]["admission"]["clusterQueue"]
        for w in listed["items"]
        if has(w, "Admitted") and not has(w, "Evicted")
    )


def preemptions(listed: Object) -> int:
    """How often Workloads were preempted, all together."""
    counts = [e for w in listed["items"] for e in w.get("status", {}).get("schedulingStats", {}).get("evictions", [])]
    return sum(e["count"] for e in counts if e["reason"] == "Preempted")


async def try_all_again(process: RunningOperator, plane: Plane) -> None:
    """A cohort changes, so all Workloads that wait are tried once more; returns when the scheduler is done with them."""

    def value(series: str) -> float:
        found = [line for line in page_of(process.operator.metrics).decode().splitlines() if series in line]
        return sum(float(line.rsplit(" ", 1)[1]) for line in found if not line.startswith("#"))

    attempts = 'kueue_admission_attempts_total{result="inadmissible"'
    before = value(attempts)
    change = {"spec": {"resourceGroups": resource_groups(UNITS, cpus=2000)}}
    await patch(plane, f"{KUEUE}/cohorts/company", change)
    waiting = [f'kueue_pending_workloads{{cluster_queue="{name}"' for name in WEIGHTS]

    def all_tried() -> bool:
        return value(attempts) > before and not any(value(f'{series},status="active"') for series in waiting)

    await eventually(all_tried, within=20)


async def test_weights_of_one_and_two_end_at_two_and_four_units(either_plane: Plane) -> None:
    """Every other victim takes seconds to end; no cohort overtakes one that waits for its victims."""
    road = await make_company(either_plane)
    async with running(configuration(FAIR), flags(either_plane), timings=FAST) as process:
        for i in range(UNITS):
            stop_seconds = SLOW_SECONDS if i % 2 else 0
            low = one_gpu(road, f"low-{i}", queue="light", priority=f"low-{i}", stop_seconds=stop_seconds)
            await road.cluster.request("POST", road.jobs, low)
        await road.until_running(**{f"low-{i}": 1 for i in range(UNITS)})
        for i in range(UNITS):
            for queue in WEIGHTS:
                high = one_gpu(road, f"{queue}-{i}", queue=queue, priority="high")
                await road.cluster.request("POST", road.jobs, high)
        on_target = Counter(light=2, heavy=4)

        def settled(listed: Object) -> bool:
            return held(listed) == on_target and not any(
                has(w, "Admitted") and has(w, "Evicted") for w in listed["items"]
            )

        await road.cluster.until(
            road.workloads, settled, what="2 units of the lighter, 4 of the heavier cohort", seconds=40
        )
        await try_all_again(process, either_plane)
        after = await road.cluster.get(road.workloads)

    assert held(after) == on_target
    assert preemptions(after) == UNITS
