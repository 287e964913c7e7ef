"""A world with one owner of groups of pods, and a controller in it that is killed once at any write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kqueue.controllers.composed import ComposedReconciler
from kqueue.controllers.owner_context import OwnerReports
from kqueue.controllers.resources import PODS, WORKLOADS, resource_of
from kqueue.jobs.composed import ComposedKind
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store
from tests.unit.controllers.fakes import Call
from tests.unit.controllers.pod_world import Pods
from tests.unit.jobs.builders import JSON

MOST = 80
"""More writes than any story has."""


class KilledError(BaseException):
    """The process that wanted to write does not exist any more."""


class Composed(Pods):
    """One owner, and the reconcilers of it and of its groups."""

    def __init__(self, kind: ComposedKind, key: str) -> None:
        super().__init__()
        self.key, self.resource = key, resource_of(kind)
        self.sets: Store[JSON] = Store("owners")
        self.latencies: list[float] = []
        self.reconciler = ComposedReconciler(
            self.context(),
            kind=kind,
            objects=self.sets,
            pods=self.pods,
            pod_writes=self.writes,
            reports=OwnerReports(created=self.latencies.append),
        )

    def write(self, found: JSON) -> None:
        """As its user or its controller does."""
        found["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        self.sets.put(self.key, found)
        self.client.put(self.resource, found)

    def vanish(self, *names: str) -> None:
        """All pods are gone, or those with these names."""
        for key in self.client.keys(PODS):
            if not names or key.partition("/")[2] in names:
                self.client.drop(PODS, key)
        self.sync()

    async def reconcile(self, key: str) -> Result:
        return await (self.reconciler if key == self.key else self.group).reconcile(key)

    async def settle(self) -> None:
        """Both reconcilers, until neither has anything left to do."""
        for _ in range(30):
            groups = self.client.keys(WORKLOADS)
            if not [write for key in [self.key, *groups] for write in await self.look(key)]:
                return
        raise AssertionError(f"it goes on and on: {[str(c) for c in self.client.writes()[-4:]]}")

    def all_held(self) -> list[bool]:
        return [self.gated(name) for name in self.names()]


W = TypeVar("W", bound=Composed)


class Story(Generic[W]):
    """A world whose controller dies once, at its `at`-th write; `done`: the server has seen that one."""

    def __init__(self, make: Callable[[], W], *, at: int = 0, done: bool = False) -> None:
        self._at, self._done, self._writes, self._make = at, done, 0, make
        self.died = False
        self.world = make()
        answer = self.world.client._answer

        async def counted(call: Call, act: Callable[[], Any]) -> Any:
            if call.verb not in ("get", "list"):
                self._writes += 1
                if self._writes == self._at:
                    if self._done:
                        act()
                    raise KilledError
            return await answer(call, act)

        self.world.client._answer = counted  # type: ignore[method-assign]

    async def settle(self) -> None:
        try:
            await self.world.settle()
        except (KilledError, BaseExceptionGroup):
            assert not self.died
            self.died = True
            old = self.world
            await old.close()
            self.world = self._make()
            found = old.sets.get(old.key)
            assert found is not None
            self.world.sets.put(old.key, found)
            self.world.client._objects, self.world.client._version = old.client._objects, old.client._version
            self.world.sync()
            await self.world.settle()
