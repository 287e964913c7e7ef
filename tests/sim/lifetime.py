"""A story of one owner of a Workload, told again and again, each time with a controller that dies at another write."""

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
"""Seconds within which what a story waits for must come, however the controller dies."""


class Lifetime(ABC):
    """One telling of the story; the controller dies before or `after` its `at`-th write, 0: never.

    SIGKILL: what it had sent is done, nothing else is; another one starts within a second, and knows nothing of it.
    """

    ALWAYS: ClassVar[tuple[Invariant, ...]]
    """What holds at every second."""
    AT_REST: ClassVar[tuple[Invariant, ...]]
    """What holds when all is told."""

    def __init__(self, world: World, at: int = 0, *, after: bool = False) -> None:
        self.world, self.at, self.after = world, at, after
        self.died = False

    async def tell(self) -> None:
        """The whole story."""
        await self.prepare()
        await self.pass_time(2)
        if self.at:
            self.world.arm_kill(self.at, after=self.after)
        await self.live()
        await self.pass_time(20)
        assert invariants.breaches(self.world, self.AT_REST) == []

    async def prepare(self) -> None:  # noqa: B027 - most have nothing to prepare
        """What is there before the first write that counts."""

    @abstractmethod
    async def live(self) -> None:
        """From the creation to the end."""

    @abstractmethod
    def look(self) -> None:
        """Fail where something does not hold that holds at any moment."""

    async def play(self) -> None:  # noqa: B027 - most need nobody beside kqueue
        """What others do of themselves, asked every second."""

    async def until(self, reached: Callable[[], bool]) -> None:
        """Let time pass until it is so."""
        for _ in range(LONGEST):
            if reached():
                return
            await self.pass_time(1)
        raise AssertionError(f"not within {LONGEST} s: {self.told()}")

    def told(self) -> Any:
        """What is worth knowing when the story does not go on."""
        return [workload["status"].get("conditions") for workload in self.world.objects(WORKLOADS)]

    async def pass_time(self, seconds: int) -> None:
        """Second by second, with a look at everything after each; a controller that has died is followed by another."""
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
        """Pods that run, of those that belong to somebody."""
        return [pod for pod in self.world.objects(PODS) if runs(pod) and belongs(pod)]


def runs(pod: Object) -> bool:
    """Whether the pod runs."""
    return bool((pod.get("status") or {}).get("phase") == "Running")


T = TypeVar("T", bound=Lifetime)


async def told(story: type[T], at: int = 0, *, after: bool = False, **settings: Any) -> T:
    """The story as it was told in a world of its own, which stands still now; nothing was logged as a bug."""
    async with simulated(story.__name__, **settings) as world:
        invariants.watch(world)
        life = story(world, at, after=after)
        await life.tell()
    assert world.bugs == [], f"killed at write {at}"
    return life


async def interrupted(story: type[T], first: int, stride: int, *, after: bool, **settings: Any) -> list[T]:
    """The story with a kill at its `first` write, and at every so many later, until it has no more writes."""
    tellings: list[T] = []
    for at in range(first, 1000, stride):
        life = await told(story, at, after=after, **settings)
        if not life.died:
            return tellings
        tellings.append(life)
    raise AssertionError("the story has no end")
