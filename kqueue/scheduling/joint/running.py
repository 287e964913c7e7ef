"""Running workloads for rounds: the times of their checkpoints, and the workloads that may be moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from kqueue.api import move_names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.joint.movable import MoveHistory, MoveLimits, MovePolicy
from kqueue.core.joint.moving import RunningGang, Topologies
from kqueue.core.joint.running import NOTHING_RUNS, RunningInput
from kqueue.core.lost_work import Checkpoints
from kqueue.model.moving import move_wishes
from kqueue.scheduling.context import Context
from kqueue.state.defrag.running import running_gang
from kqueue.state.defrag.view import DefragState

RunningSource = Callable[[], Awaitable[RunningInput]]
"""Returns what a round must know of running workloads."""

_TURN = 0.005
"""Seconds of work after which the event loop gets a turn."""
_CHUNK = 16
"""Workloads that are read at once."""


async def nothing_runs() -> RunningInput:
    """Return nothing: running workloads are neither victims nor moved."""
    return NOTHING_RUNS


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningWishes:
    """The wishes of a round about running workloads.

    Args:
        victims: whether rounds propose victims, so that the times of checkpoints count.
        limits: of moves.
        annotated: returns the keys of the Workloads whose users say something about moves or checkpoints.
        history: returns the moves of the last hour.
        budgets: returns the PodDisruptionBudgets that limit moves.
    """

    annotated: Callable[[], Iterable[str]]
    victims: bool = False
    limits: MoveLimits = field(default_factory=MoveLimits)
    history: Callable[[], MoveHistory] = MoveHistory
    budgets: Callable[[], Sequence[wire_core.PodDisruptionBudget]] = tuple

    @property
    def moves(self) -> bool:
        """Whether workloads may be moved at all."""
        return self.limits.migration is not MovePolicy.NEVER and bool(self.limits.moves and self.limits.pods)


class RunningReader:
    """Reads running workloads for rounds; a cluster without annotations about moves costs nothing."""

    def __init__(self, context: Context, wishes: RunningWishes) -> None:
        self._cache, self._newest, self._clock = context.state.cache, context.writer.newest, context.clock
        self._wishes = wishes

    async def read(self) -> RunningInput:
        """Return what a round must know; the event loop gets a turn every few milliseconds."""
        checkpoints, movable = dict[str, Checkpoints](), list[RunningGang]()
        since = self._clock.monotonic()
        if self._wishes.victims:
            for objects in self._chunks(sorted(self._wishes.annotated())):
                for obj in objects.values():
                    wishes = move_wishes(obj.metadata, None, self._clock.now())
                    checkpoints[obj.metadata.uid] = wishes.checkpoints
                since = await self._turn(since)
        if self._wishes.moves:
            topologies: Topologies | None = None
            for objects in self._chunks(self._consenting()):
                topologies = topologies if topologies is not None else self._cache.topologies()
                movable += self._movable(objects, topologies)
                since = await self._turn(since)
        return RunningInput(checkpoints=checkpoints, movable=tuple(movable))

    async def _turn(self, since: float) -> float:
        if self._clock.monotonic() - since < _TURN:
            return since
        await self._clock.sleep(0)
        return self._clock.monotonic()

    def _consenting(self) -> list[str]:
        """Return the workloads that hold quota, and whose users or ClusterQueues say something about moves."""
        keys = set(self._wishes.annotated())
        for queue in self._cache.quota.queue_names():
            obj = self._cache.quota.queue_object(queue)
            if obj is not None and move_names.RESCHEDULE_ANNOTATION in obj.metadata.annotations:
                keys.update(holding.key for holding in self._cache.held.holdings(queue))
        return sorted(keys)

    def _chunks(self, keys: Iterable[str]) -> Iterator[dict[str, wire.Workload]]:
        """Yield some Workloads at a time, by namespace/name: those that hold quota and exist."""
        rest = iter(keys)
        while some := tuple(islice(rest, _CHUNK)):
            held = [key for key in some if self._cache.held.holding(key) is not None]
            found = {key: obj for key in held if (obj := self._newest(key)) is not None}
            if found:
                yield found

    def _movable(self, objects: dict[str, wire.Workload], topologies: Topologies) -> list[RunningGang]:
        state = DefragState(
            cache=self._cache,
            workloads=objects,
            queue_of={},
            budgets=self._wishes.budgets(),
            now=self._clock.now(),
        )
        limits, history = self._wishes.limits, self._wishes.history()
        found = [running_gang(state, key, topologies, limits=limits, history=history) for key in objects]
        return [gang for gang in found if gang is not None and not gang.immovable]
