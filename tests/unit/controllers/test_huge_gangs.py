"""Gangs with far more members than any cluster starts at once: their cost, and what a quorum beyond the bound does."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from types import FrameType
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.controllers.gathering import Gathering
from kqueue.controllers.resources import WORKLOADS
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import counts_of_gang
from tests.unit.controllers.pod_world import GROUP, Pods
from tests.unit.controllers.test_gang_extras import KEY, ON, QUORUM, of_gang
from tests.unit.jobs.pods import make_pod

MANY = 20_000
"""Members, as many as half a minute of a busy API server brings."""


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Pods]]:
    worlds: list[Pods] = []

    def build() -> Pods:
        worlds.append(Pods(switches=ON))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


def fill(world: Pods, number: int, *, quorum: str = "2", since: int = 0, key: str = KEY) -> None:
    """Let the watch bring so many members of gang `g`, by its labels or as one of Kueue's groups."""
    for each in range(since, since + number):
        if key == GROUP:
            pod = make_pod(f"p{each}", group="g", total=quorum, born=each)
        else:
            pod = of_gang(f"p{each}", born=each)
            pod["metadata"]["labels"][QUORUM] = quorum
        world.pods.put(f"team/p{each}", managed_pod(pod, ON))


class Calls:
    """The number of calls of Python functions in a block."""

    def __init__(self) -> None:
        self.number = 0

    def __enter__(self) -> Calls:
        self._before = sys.getprofile()
        sys.setprofile(self._note)
        return self

    def _note(self, _frame: FrameType, event: str, _arg: Any) -> None:
        self.number += event == "call"

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)


async def test_an_event_of_a_pod_costs_the_same_in_a_huge_gang(make: Callable[..., Pods]) -> None:
    """The watch's handlers call as many functions for a member of twenty thousand as for one of twenty-five hundred."""
    small, huge = make(), make()
    fill(small, 2_500)
    fill(huge, MANY)

    with Calls() as of_huge:
        fill(huge, 5, since=MANY)
    with Calls() as of_small:
        fill(small, 5, since=MANY)
    assert of_huge.number == of_small.number


@pytest.mark.parametrize(
    ("key", "quorum"),
    [
        pytest.param(KEY, "2", id="labels"),
        pytest.param(KEY, "10001", id="labels-that-contradict-the-bound"),
        pytest.param(GROUP, "2", id="of-kueue"),
    ],
)
async def test_a_look_costs_the_same_whatever_the_number_of_members(
    make: Callable[..., Pods], key: str, quorum: str
) -> None:
    """Reconciler and record of sixteen thousand members call as many functions as those of four thousand."""
    numbers = []
    for members in (4_000, 16_000):
        world = make()
        fill(world, members, quorum=quorum, key=key)
        await world.reconcile(key)
        with Calls() as look:
            await world.reconcile(key)
            world.records.of(key)
        numbers.append(look.number)

    assert numbers[1] <= 1.02 * numbers[0]


async def test_an_event_says_that_later_members_are_not_looked_at(make: Callable[..., Pods]) -> None:
    """A gang of twenty thousand has one such event, on its oldest member that waits."""
    world = make()
    fill(world, MANY)
    await world.reconcile(KEY)
    await world.reconcile(KEY)
    told = [message for message in world.recorder.messages if "kqueue looks at the oldest" in message]

    assert len(told) == 1
    assert told[0].startswith("The group has more than 1002 pods that wait;")


async def test_the_record_of_a_huge_gang_counts_all_members(make: Callable[..., Pods]) -> None:
    world = make()
    fill(world, MANY)
    gang = world.records.of(KEY)

    assert gang is not None
    assert len(gang.members) < MANY
    assert counts_of_gang(gang, None, before=None).present == MANY


async def test_many_events_cause_few_looks() -> None:
    """A gang is looked at a few times in each second, however many events its pods have."""
    clock = FakeClock()
    moments: set[float] = set()
    gathering = Gathering(lambda _key, after=0.0: moments.add(round(clock.monotonic() + after, 1)), clock)
    for _ in range(MANY):
        gathering.add(KEY)
        await clock.advance(1.0 / MANY, turns=0)

    assert len(moments) <= 12


@pytest.mark.parametrize(
    ("quorum", "words"),
    [
        pytest.param("10001", "at most 10000", id="one-too-many"),
        pytest.param("2147483647", "at most 10000", id="int32"),
        pytest.param("9" * 63, "must be a whole number of pods, 1 or more", id="63-digits"),
    ],
)
async def test_a_quorum_beyond_the_bound_makes_no_workload(make: Callable[..., Pods], quorum: str, words: str) -> None:
    """g3_28: with enough members, too; one event says so, and no list of that length is made."""
    world = make()
    fill(world, 10_100, quorum=quorum)
    await world.reconcile(KEY)

    assert world.client.keys(WORKLOADS) == []
    assert words in world.recorder.messages[-1]


async def test_a_quorum_of_two_among_many_is_one_workload_of_two(make: Callable[..., Pods]) -> None:
    """Twenty thousand members beyond the quorum are no part of the Workload, and own nothing of it."""
    world = make()
    fill(world, MANY)
    await world.reconcile(KEY)
    [key] = world.client.keys(WORKLOADS)
    made = world.client.object(WORKLOADS, key)

    assert made is not None
    assert [pod_set["count"] for pod_set in made["spec"]["podSets"]] == [2]
    assert len(made["metadata"]["ownerReferences"]) == 2
