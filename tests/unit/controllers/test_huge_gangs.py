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
from tests.unit.controllers.pod_world import Pods
from tests.unit.controllers.test_gang_extras import KEY, ON, QUORUM, of_gang

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


def fill(world: Pods, number: int, *, quorum: str = "2", since: int = 0) -> None:
    """Let the watch bring so many members of gang `g`."""
    for each in range(since, since + number):
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
    """The watch's handlers call as many functions for a member of twenty thousand as for one of twenty."""
    small, huge = make(), make()
    fill(small, 20)
    fill(huge, MANY)

    with Calls() as of_huge:
        fill(huge, 5, since=MANY)
    with Calls() as of_small:
        fill(small, 5, since=MANY)
    assert of_huge.number == of_small.number


async def test_a_look_at_a_gang_costs_in_proportion_to_its_members(make: Callable[..., Pods]) -> None:
    """One reconcile of four thousand members calls at most twice as many functions as one of two thousand."""
    numbers = []
    for members in (2_000, 4_000):
        world = make()
        fill(world, members, quorum="10001")
        await world.reconcile(KEY)
        with Calls() as look:
            await world.reconcile(KEY)
        numbers.append(look.number)

    assert numbers[1] <= 2.1 * numbers[0]


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
