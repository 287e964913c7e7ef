"""`churn/*`: who is evicted soon after its admission, under the load of `load/third`, in virtual time and in memory.

The scheduling loop, its cache and its pacing are as shipped; the clock is a fake one, so no figure but `cpu_s` depends
on the machine.  The API server is a queue: 16 writes at a time, each of which takes as many milliseconds as the row's
name says, those of the jobs and of the generator included.

    makespan_s        until the last Workload is finished, in virtual seconds
    evictions         Workloads that were told to leave
    early_evictions   of these, within 5 s of their admission
    foreseeable       of these, for a preemptor that had been seen to wait when the victim's admission was decided
    empty_cycles      cycles that admitted nobody, of `cycles`
    wait_*_s          mean virtual seconds from creation to the first admission, by class

Source of the load: `_arrivals.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.intake import Intake, IntakeState
from kqueue.controllers.resources import WORKLOADS
from kqueue.core.decision import Phase
from kqueue.core.preemption import Target
from kqueue.jobs.patch import apply_merge_patch
from kqueue.manager.telemetry import CycleObserver, Events
from kqueue.model import DEFAULT_ORDER
from kqueue.observe import Metrics
from kqueue.runtime.lane import Lane
from kqueue.scheduling.context import Lookups, SchedulingState
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.state.cache import Cache
from kqueue.state.charge import Charge
from kqueue.state.holding import Holding
from kqueue.state.holdings import Holdings
from kqueue.state.preemptions import Preemptions
from kqueue.state.queues import Queues
from tests.bench._arrivals import NOMINAL, Kind, Shape, finish, queues, typed, unreserve
from tests.bench._scheduler import World
from tests.bench.table import Figure, Row, check

THIRD = 1 / 3
EARLY_SECONDS = 5.0
IN_FLIGHT = 16
STEP = 0.002
"""Virtual seconds from one turn of the clock to the next."""
LIMIT = 600.0


class Server:
    """Answers each write after its turn, and hands the new version to the watch."""

    def __init__(self, world: ChurnWorld, seconds: float) -> None:
        self._world, self._seconds = world, seconds
        self._places = asyncio.Semaphore(IN_FLIGHT)
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.objects: dict[str, wire.Workload] = {}
        self.bodies: dict[str, dict[str, Any]] = {}
        self.patches: dict[str, list[Mapping[str, Any]]] = {}
        self.writes = Counter[str]()

    def newest(self, key: str) -> wire.Workload | None:
        """The newest version."""
        return self.objects.get(key)

    async def create(self, key: str, body: dict[str, Any]) -> None:
        """A new Workload."""
        await self._serve()
        self._store(key, body)

    async def write(
        self,
        key: str,
        change: Callable[[wire.Workload], Mapping[str, Any] | None],
        *,
        lane: Lane = Lane.STATUS,
        subresource: str | None = "status",
    ) -> wire.Workload | None:
        """As the status writer: one write of an object at a time, on its newest version."""
        del subresource
        async with self._locks[key]:
            if change(self.objects[key]) is None:
                return None
            await self._serve()
            patch = change(self.objects[key])
            if patch is None:
                return None
            self.writes[lane.name] += 1
            self._store(key, apply_merge_patch(self.bodies[key], patch))
            return self.objects[key]

    async def _serve(self) -> None:
        async with self._places:
            await self._world.clock.sleep(self._seconds)

    def _store(self, key: str, body: dict[str, Any]) -> None:
        old, new = self.objects.get(key), msgspec.convert(body, wire.Workload)
        self.bodies[key], self.objects[key] = body, new
        self._world.watched(key, old, new)


class Watcher(CycleObserver):
    """The controller's observer, which also tells the world of cycles and evictions."""

    world: ChurnWorld

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        """Count a cycle that admitted nothing."""
        self.world.empty_cycles += not success
        super().cycle_ended(seconds=seconds, success=success, robbed=robbed, phases=phases)

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        """Count an eviction."""
        super().preempted(workload, target=target, queue=queue, preemptor=preemptor, message=message)
        self.world.evicted(workload, target=target, preemptor=preemptor)


@dataclass(slots=True)
class Life:
    """One workload's times, in virtual seconds."""

    kind: Kind
    made: float
    waits_since: float | None = None
    """Since when the watch shows that it waits; None while it is admitted or being admitted."""
    decided: float = 0.0
    """When its latest admission was decided."""
    started: float = 0.0
    """When its latest admission was seen."""
    admitted: float | None = None
    """When it was first admitted."""
    run: int = 0
    """How often it was started or stopped."""
    finished: bool = False


class WatchedHoldings(Holdings):
    """Notes when an admission is decided, which is before its write begins."""

    world: ChurnWorld

    @classmethod
    def of(cls, world: ChurnWorld, cache: Cache) -> WatchedHoldings:
        """The holdings of a cache that holds nothing yet."""
        made = cls(cache.quota, cache.ledger, cache.requests, DEFAULT_ORDER)
        made.world = world
        return made

    def assumed(self, holding: Holding) -> Charge:
        """An admission is decided."""
        life = self.world.lives[holding.key]
        life.decided, life.waits_since = self.world.clock.monotonic(), None
        return super().assumed(holding)


class ChurnWorld(World):
    """A world whose server takes time, in which workloads run and end."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.shape = Shape(topology=False, share=THIRD)
        self.server = Server(self, seconds)
        self.lives: dict[str, Life] = {}
        self.empty_cycles = self.evictions = self.early = self.foreseeable = self.finished = 0
        self.reasons = Counter[str]()
        preemptions = Preemptions()
        observer = Watcher(Metrics(), Events(self.recorder), self.clock)
        observer.world = self
        self.cache = Cache()
        self.cache.held = WatchedHoldings.of(self, self.cache)
        self.queues = Queues(self.clock.now, lambda: self.loop.wake())
        self.intake = Intake(
            IntakeState(cache=self.cache, queues=self.queues),
            namespace_labels=lambda _namespace: {},
            wake=lambda: self.loop.wake(),
            clock=self.clock,
            tries=lambda: 0.0,
        )
        preemptions.on_ended = self.intake.on_claim_ended
        self.loop = SchedulingLoop(
            SchedulingState(cache=self.cache, queues=self.queues, preemptions=preemptions),
            Lookups(namespace_labels=lambda _namespace: {}, look_at_parked=self.intake.look_at_parked),
            writer=self.server,  # type: ignore[arg-type]
            observer=observer,
            clock=self.clock,
        )
        self.tasks = set[asyncio.Task[None]]()

    def fill(self) -> None:
        """Queues and quota, as in `_arrivals`."""
        self.flavor(topology=False)
        for cohort, members in queues().items():
            self.cohort(cohort)
            for name in members:
                self.queue(
                    name,
                    quota={"cpu": str(NOMINAL)},
                    cohort=cohort,
                    preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
                )

    async def play(self) -> None:
        """Return when all workloads have come and finished."""
        running = asyncio.create_task(self.loop.run())
        arrivals = list(self.shape.arrivals())
        while self.finished < self.shape.workloads:
            check(self.clock.monotonic() < LIMIT, f"{self.finished} finished after {LIMIT} virtual seconds")
            while arrivals and arrivals[0][0] <= self.clock.monotonic():
                self._arrive(*arrivals.pop(0)[1:])
            await self.clock.advance(STEP)
        running.cancel()
        await asyncio.gather(running, *self.tasks, return_exceptions=True)

    def _arrive(self, queue: str, kind: Kind, number: int) -> None:
        body = typed(WORKLOADS, self.shape.workload(queue, kind, number))
        key = f"{queue}/{kind.name}-{number}"
        body["metadata"] |= {"uid": key, "generation": 1, "creationTimestamp": utc_text(self.clock.now())}
        self.lives[key] = Life(kind, self.clock.monotonic())
        self._spawn(self.server.create(key, {**body, "status": {}}))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # --- what the watch shows

    def watched(self, key: str, old: wire.Workload | None, new: wire.Workload) -> None:
        """The controller sees a version, and so do kubelets and jobs."""
        self.intake.on_workload(old, new)
        life, true = self.lives[key], {c.type for c in new.status.conditions if c.status == "True"}
        before = {c.type for c in old.status.conditions if c.status == "True"} if old is not None else set()
        if old is None or (old.status.admission is not None and new.status.admission is None):
            life.waits_since = self.clock.monotonic()
        if names.CONDITION_FINISHED in true:
            self.finished += not life.finished
            life.finished = True
        elif names.CONDITION_EVICTED in true - before:
            life.run += 1
            self._spawn(self.server.write(key, unreserve(self.clock)))
        elif names.CONDITION_ADMITTED in true - before:
            life.run += 1
            if life.admitted is None:
                life.admitted = self.clock.monotonic()
            life.started = self.clock.monotonic()
            self._spawn(self._run(key, life, life.run))

    async def _run(self, key: str, life: Life, run: int) -> None:
        await self.clock.sleep(life.kind.run)
        if life.run == run:
            await self.server.write(key, finish(self.clock))

    def evicted(self, workload: wire.Workload, *, target: Target, preemptor: wire.Workload) -> None:
        """A victim was told."""
        life = self.lives[model.workload_key(workload)]
        other = self.lives[model.workload_key(preemptor)]
        self.evictions += 1
        self.reasons[target.reason.name.lower()] += 1
        if self.clock.monotonic() - life.started <= EARLY_SECONDS:
            self.early += 1
            self.foreseeable += other.waits_since is not None and other.waits_since < life.decided

    def waits(self) -> dict[str, float]:
        """Mean seconds from creation to the first admission, by class."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for life in self.lives.values():
            if life.admitted is not None:
                found[life.kind.name].append(life.admitted - life.made)
        return {name: sum(waited) / len(waited) for name, waited in found.items()}


async def played(seconds: float) -> ChurnWorld:
    """A world in which all have finished."""
    world = ChurnWorld(seconds)
    world.fill()
    await world.play()
    return world


def run(milliseconds: int) -> Iterator[Figure]:
    """One run; it is the same every time."""
    begun = time.process_time()
    world = asyncio.run(played(milliseconds / 1000))
    yield Figure("cpu_s", [time.process_time() - begun])
    yield Figure("makespan_s", [world.clock.monotonic()], floor=world.shape.capacity_bound)
    yield Figure("evictions", [world.evictions])
    for reason, count in sorted(world.reasons.items()):
        yield Figure(f"evicted_{reason}", [count])
    yield Figure("early_evictions", [world.early])
    yield Figure("foreseeable", [world.foreseeable])
    yield Figure("cycles", [world.loop.cycles])
    yield Figure("empty_cycles", [world.empty_cycles])
    yield Figure("writes", [sum(world.server.writes.values())])
    for kind, waited in world.waits().items():
        yield Figure(f"wait_{kind}_s", [waited])


ROWS = tuple(Row(f"churn/{ms}ms", partial(run, ms)) for ms in (1, 20, 50, 100))
