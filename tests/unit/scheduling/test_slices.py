"""A larger slice of an elastic job is admitted for the difference, and what both hold counts once at every moment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import UnreachableError
from kqueue.runtime.store import Store
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.cache_audit import Told
from tests.unit.controllers.builders import JSON, condition, make_workload, reserved, status_of
from tests.unit.jobs.builders import prefixed
from tests.unit.scheduling.scheduled import Scheduled

pytestmark = pytest.mark.proves("Job", "workload slices")

ON = LoopSettings(elastic=True)
QUOTA = 10


def slice_of(name: str, pods: int, *, replaces: str = "", job: str = "job", **more: object) -> JSON:
    """A slice of pods of one cpu."""
    marks = prefixed(elastic_job="true", workload_slice_name="older")
    if replaces:
        marks |= prefixed(workload_slice_replacement_for=f"ns/{replaces}")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job, "controller": True}
    metadata = {"annotations": marks, "ownerReferences": [owner]}
    return make_workload(name, pods=pods, metadata=metadata, **more)  # type: ignore[arg-type]


def older(pods: int = 6, *conditions: JSON) -> JSON:
    there = (condition("Admitted", reason="Admitted"), *conditions)
    return slice_of("older", pods, status=reserved(*there, pods=pods))


def newer(pods: int = 9, **more: str) -> JSON:
    return slice_of("newer", pods, replaces="older", **more)


def drifts(world: Scheduled) -> list[str]:
    """What an audit against the watches finds to be wrong."""
    told = Told(nodes=Store("nodes"), pods=Store("pods"), workloads=world.workloads)
    return [str(drift) for found in world.cache.audits.audit_steps(told) for drift in found]


async def test_only_the_difference_has_to_fit(make: Callable[..., Scheduled]) -> None:
    """4 cpus are free, 9 are asked for, 6 are there; when it is told, the older one ends and nothing counts twice."""
    world = make(settings=ON)
    world.add(older(), newer())

    assert await world.cycle()

    assert (world.free(), drifts(world)) == (QUOTA - 9, [])
    assert status_of(world.workload("newer"), "QuotaReserved")[0] == "True"
    assert status_of(world.workload("older"), "Finished") == ("True", "WorkloadSliceReplaced")
    assert world.observed.taken_over == [("older", "ns/newer (UID uid-of-newer)")]
    world.sync()
    assert (world.free(), [h.key for h in world.cache.held.holdings()]) == (QUOTA - 9, ["ns/newer"])


async def test_between_the_two_writes_both_count_as_one(make: Callable[..., Scheduled]) -> None:
    """From the decision on, before anything is written, and when its event comes before the older one's end."""
    world = make(settings=ON)
    world.add(older(), newer())
    world.client.fail(UnreachableError("killed"), key="ns/older", times=9)

    await world.cycle()

    assert status_of(world.workload("older"), "Finished") == ("", "")
    for _ in range(2):
        assert (world.free(), drifts(world)) == (QUOTA - 9, [])
        world.sync()
    world.client.change(WORKLOADS, "ns/older", {"metadata": {"labels": {"some": "change"}}})
    world.sync()
    assert (world.free(), [h.key for h in world.cache.held.holdings("team")]) == (QUOTA - 9, ["ns/newer"])


@pytest.mark.parametrize("names", [("older", "newer"), ("newer", "older")], ids=" then ".join)
@pytest.mark.parametrize("ends", [("older", "newer"), ("newer", "older")], ids=" ends before ".join)
async def test_killed_between_the_two_writes(
    make: Callable[..., Scheduled], names: tuple[str, str], ends: tuple[str, str]
) -> None:
    """A new process is told of both, in any order, and later of the end of each, in any order."""
    both = {"older": older(), "newer": newer() | {"status": reserved(pods=9)}}
    world = make(settings=ON)
    for name in names:
        world.add(both[name])
    assert (world.free(), drifts(world)) == (QUOTA - 9, [])

    left = {"older": 6, "newer": 9}
    for name in ends:
        world.client.change(WORKLOADS, f"ns/{name}", {"status": {"conditions": [condition("Finished")]}})
        world.sync()
        del left[name]
        assert (world.free(), drifts(world)) == (QUOTA - sum(left.values()), []), name


async def test_an_admission_that_is_not_written_leaves_the_older_one_as_it_was(make: Callable[..., Scheduled]) -> None:
    """Its quota is held throughout."""
    world = make(settings=ON)
    world.add(older(), newer())
    world.client.fail(UnreachableError("down"), key="ns/newer", times=9)

    await world.cycle()

    assert (world.free(), [h.key for h in world.cache.held.holdings()]) == (QUOTA - 6, ["ns/older"])
    assert status_of(world.workload("older"), "Finished") == ("", "")


@pytest.mark.parametrize(
    ("there", "wants", "admitted", "free"),
    [
        pytest.param(older(), newer(11), False, 4, id="more-than-there-is"),
        pytest.param(older(6, condition("Evicted")), newer(9), False, 4, id="the-older-one-leaves"),
        pytest.param(older(6, condition("Evicted")), newer(4), True, 0, id="the-older-one-leaves-and-both-fit"),
        pytest.param(older(6), newer(9, job="other"), False, 4, id="of-another-job"),
        pytest.param(older(6), newer(3), True, 7, id="fewer"),
    ],
)
async def test_what_a_slice_is_given(
    make: Callable[..., Scheduled], there: JSON, wants: JSON, admitted: bool, free: int
) -> None:
    """It takes over only what stays, of its own job; else both count."""
    world = make(settings=ON)
    world.add(there, wants)
    await world.cycle()
    assert status_of(world.workload("newer"), "QuotaReserved")[0] == ("True" if admitted else "False")
    assert world.free() == free


async def test_without_the_gate_it_is_a_workload_like_any_other(make: Callable[..., Scheduled]) -> None:
    """All of it has to fit, and nobody ends for it."""
    world = make()
    world.add(older(), newer(4))
    await world.cycle()
    assert status_of(world.workload("older"), "Finished") == ("", "")
