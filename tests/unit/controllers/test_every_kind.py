"""What Kueue's labels do for every custom kind that is held by a flag: class, time limit, prebuilt Workload, manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import WORKLOADS
from tests.unit.controllers.builders import JSON, read, status_of
from tests.unit.controllers.kinds_world import CUSTOM, WITHOUT_FIELD, KindWorld
from tests.unit.jobs.builders import UID, prefixed

EACH = pytest.mark.parametrize("framework", CUSTOM)
WITH_FIELD = tuple(framework for framework in CUSTOM if framework not in WITHOUT_FIELD)
FAR = "kueue.x-k8s.io/multikueue"


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., KindWorld]]:
    worlds: list[KindWorld] = []

    def build(*args: Any, **more: Any) -> KindWorld:
        worlds.append(KindWorld(*args, **more))
        for name, value in (("low", 1), ("high", 9)):
            found = read(wire.WorkloadPriorityClass, {"metadata": {"name": name}, "value": value})
            worlds[-1].workload_priorities.put(name, found)
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


@pytest.mark.proves("Training job", "priority class")
@pytest.mark.proves("TrainJob", "priority class")
@pytest.mark.proves("Ray", "priority class")
@pytest.mark.proves("AppWrapper", "priority class")
@pytest.mark.proves("SparkApplication", "priority class")
@EACH
async def test_a_class_is_written_into_the_workload_and_may_change(
    make: Callable[..., KindWorld], framework: str
) -> None:
    """One write of class and value while the object runs; it is not stopped."""
    world = make(framework, priority_class="low")
    await world.running()
    first = world.found["spec"]
    world.relabel(priority_class="high")
    written = await world.step()
    second = world.found["spec"]

    assert (first["priority"], first["priorityClassRef"]["name"]) == (1, "low")
    assert (second["priority"], second["priorityClassRef"]["name"]) == (9, "high")
    assert (written, await world.step(), world.suspended) == ([f"patch workloads {world.key}"], [], False)


@pytest.mark.proves("Training job", "maximum execution time")
@pytest.mark.proves("TrainJob", "maximum execution time")
@pytest.mark.proves("Ray", "maximum execution time")
@pytest.mark.proves("AppWrapper", "maximum execution time")
@pytest.mark.proves("SparkApplication", "maximum execution time")
@EACH
async def test_a_time_limit_is_written_into_the_workload_and_stops_the_object(
    make: Callable[..., KindWorld], framework: str
) -> None:
    """Another limit is written while it waits; at its end, as the Workload is deactivated, the object is held again."""
    world = make(framework, max_exec_time_seconds="60")
    await world.queued()
    limits = [world.found["spec"]["maximumExecutionTimeSeconds"]]
    world.relabel(max_exec_time_seconds="90")
    await world.running()
    limits.append(world.found["spec"]["maximumExecutionTimeSeconds"])
    world.client.change(WORKLOADS, world.key, {"spec": {"active": False}})
    world.evict("DeactivatedDueToMaximumExecutionTimeExceeded")
    await world.rest()

    assert (limits, world.suspended) == ([60, 90], True)
    assert world.found["spec"]["active"] is False


@pytest.mark.proves("Training job", "prebuilt workload")
@pytest.mark.proves("TrainJob", "prebuilt workload")
@pytest.mark.proves("Ray", "prebuilt workload")
@pytest.mark.proves("AppWrapper", "prebuilt workload")
@pytest.mark.proves("SparkApplication", "prebuilt workload")
@EACH
async def test_an_object_starts_with_the_workload_that_was_made_for_it(
    make: Callable[..., KindWorld], framework: str
) -> None:
    """It waits until that is there, becomes its controller, and gets no other."""
    world = make(framework, prebuilt_workload_name="made")
    await world.step()
    before = world.client.keys(WORKLOADS)
    world.prebuild()
    await world.queued()
    owner = world.found["metadata"]["ownerReferences"][0]
    held = world.suspended
    world.admit()
    await world.rest()

    assert (before, set(world.recorder.warnings)) == ([], {"WorkloadNotFound"})
    assert (owner["kind"], owner["uid"], owner["controller"]) == (world.kind.gvk.kind, UID, True)
    assert world.found["metadata"]["labels"] == prefixed(job_uid=UID)
    assert (held, world.suspended) == (True, False)


@pytest.mark.proves("Training job", "managed by")
@pytest.mark.proves("TrainJob", "managed by")
@pytest.mark.proves("Ray", "managed by")
@pytest.mark.proves("AppWrapper", "managed by")
@pytest.mark.parametrize("framework", WITH_FIELD)
@pytest.mark.parametrize(
    ("by", "queued"),
    [
        pytest.param("example.com/other", True, id="another controller: it obeys the flag as well"),
        pytest.param(FAR, False, id="another cluster, to which nothing here sends it"),
    ],
)
async def test_who_runs_an_object_does_not_matter_to_its_queueing(
    make: Callable[..., KindWorld], framework: str, by: str, queued: bool
) -> None:
    """Only what nobody here can run is left alone, and told so."""
    world = make(framework, by=by)

    written = await world.step()

    assert written == ([f"create workloads {world.key}"] if queued else [])
    assert (world.recorder.warnings, world.manager()) == ([] if queued else ["Unsupported"], by)


async def test_an_object_without_the_field_is_held_while_another_cluster_runs_it(
    make: Callable[..., KindWorld],
) -> None:
    """17.2: it is not started here, and stopped if its user starts it; its quota is charged until the copy has ended."""
    world = make(WITHOUT_FIELD[0])
    world.sent = True
    await world.queued()
    world.admit()
    await world.rest()
    held = world.suspended
    world.client.change(world.resource, "team/sample", {"spec": {"suspend": False}})
    await world.rest()
    again = world.suspended
    world.elsewhere = True
    world.evict("Preempted")
    await world.rest()
    charged = condition_true(world.found, "QuotaReserved")
    world.elsewhere = False
    await world.rest()

    assert (held, again) == (True, True)
    assert (charged, condition_true(world.found, "QuotaReserved")) == (True, False)


def condition_true(workload: JSON, kind: str) -> bool:
    return status_of(workload, kind)[0] == "True"
