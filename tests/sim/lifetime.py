"""The life of one owner of a Workload, repeated with a controller that is killed at a different write each time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from kqueue.sandbox.api import PODS, Object
from tests.sim import invariants
from tests.sim.objects import WORKLOADS
from tests.sim.reading import Invariant
from tests.sim.world import World, simulated

LONGEST = 400
"""Limit of each wait, in seconds, wherever the controller is killed."""


class Lifetime(ABC):
    """One run of the life; the controller is killed before or `after` its `at`-th write, 0: never.

    SIGKILL: sent writes take effect, others do not; a new controller without memory starts within a second.
    """

    ALWAYS: ClassVar[tuple[Invariant, ...]]
    """Invariants of every second."""
    AT_REST: ClassVar[tuple[Invariant, ...]]
    """Invariants of the end."""

    def __init__(self, world: World, at: int = 0, *, after: bool = False) -> None:
        self.world, self.at, self.after = world, at, after
        self.died = False

    async def tell(self) -> None:
        """Run the whole life."""
        await self.prepare()
        await self.pass_time(2)
        if self.at:
            self.world.arm_kill(self.at, after=self.after)
        await self.live()
        await self.pass_time(20)
        assert invariants.breaches(self.world, self.AT_REST) == []

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """Create the objects that exist before the first counted write."""

    @abstractmethod
    async def live(self) -> None:
        """Run from the creation to the end of the owner."""

    @abstractmethod
    def look(self) -> None:
        """Fail if an invariant of every second is broken."""

    async def play(self) -> None:  # noqa: B027 - most need nobody beside kqueue
        """Act as other controllers; called every second."""

    async def until(self, reached: Callable[[], bool]) -> None:
        """Let time pass until `reached()` is true."""
        for _ in range(LONGEST):
            if reached():
                return
            await self.pass_time(1)
        raise AssertionError(f"not within {LONGEST} s: {self.told()}")

    def told(self) -> Any:
        """Return facts for the message when a wait fails."""
        return [workload["status"].get("conditions") for workload in self.world.objects(WORKLOADS)]

    async def pass_time(self, seconds: int) -> None:
        """Let seconds pass, check invariants after each, and replace a killed controller."""
        for _ in range(seconds):
            await self.world.pass_time(1)
            if self.world.controller is None:
                self.died = True
                self.world.start_controller()
            found = invariants.breaches(self.world, self.ALWAYS)
            assert found == [], self.at
            self.look()
            await self.play()

    def running(self, belongs: Callable[[Object], bool] = lambda _pod: True) -> list[Object]:
        """Return the running pods that match."""
        return [pod for pod in self.world.objects(PODS) if runs(pod) and belongs(pod)]


def runs(pod: Object) -> bool:
    """Whether the pod runs."""
    return bool((pod.get("status") or {}).get("phase") == "Running")


T = TypeVar("T", bound=Lifetime)


async def told(story: type[T], at: int = 0, *, after: bool = False, **settings: Any) -> T:
    """Run the life in a world of its own and return it; no bug was logged."""
    async with simulated(story.__name__, **settings) as world:
        invariants.watch(world)
        life = story(world, at, after=after)
        await life.tell()
    assert world.bugs == [], f"killed at write {at}"
    return life


async def interrupted(story: type[T], first: int, stride: int, *, after: bool, **settings: Any) -> list[T]:
    """Run the life with a kill at write `first`, and at each `stride`-th later one, until there are no more writes."""
    tellings: list[T] = []
    for at in range(first, 1000, stride):
        life = await told(story, at, after=after, **settings)
        if not life.died:
            return tellings
        tellings.append(life)
    raise AssertionError("the story has no end")
