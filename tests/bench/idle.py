"""One Workload at a time on a quiet cluster: how long until its admission is written. `make bench ROWS=load/idle`.

kube-apiserver with etcd, and a controller process of its own, as in `load.py`: 30 ClusterQueues of 5 cohorts that are
empty but for the one Workload; in `load/idle/tas` with 640 nodes, and every Workload asks for hosts.  This process
makes a Workload, waits until it is admitted, lets it run for `RUN_SECONDS`, finishes it, and pauses for a drawn time.
All times are taken by this process with a watch of its own.  The controller's watch gets the event of the new Workload
at about the same time, so the time that the delivery of this event takes does not count; that of the admission does.

    event_p50_ms, event_p99_ms      from the event of the new Workload to the event of its admission
    created_p50_ms, created_p99_ms  from the answer to the creation to the event of the admission; where the event of
                                    the new Workload comes before the answer, this is less than the figure above
    least_p50_ms, least_p99_ms      the floor: the same as `event_*`, measured before the controller is started; this
                                    process sends the same status patch as soon as it sees the event
    cores_*                         as in `load/third`, while the controller runs

The row fails when a Workload is not admitted within `PATIENCE`, when quota is overdrawn, or when a placement does not
hold what was asked for.  `KQUEUE_LOAD_SHARE=0.1` makes a tenth of the Workloads.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers import resources as kinds
from kqueue.observe import configure_logs
from kqueue.runtime.client import Client
from kqueue.runtime.loop import run
from tests.bench._arrivals import KINDS, Kind, Life, Player, Shape, Unhindered, queues, typed
from tests.bench._meter import Meter, percentile
from tests.bench.load import SHARE, controller, core_figures, filled, settled, watching
from tests.bench.table import Figure, Row, WrongAnswerError, at_most, check

WORKLOADS, WARM_UP = 60, 3
"""The first ones are not measured: connections are opened, and modules imported, at first use."""
RUN_SECONDS, PAUSE_SECONDS, PATIENCE = 0.1, (0.2, 0.4), 10.0
GOAL_MS = 15
SEED = 17
SMALL = replace(KINDS[0], run=RUN_SECONDS)


class OneByOne(Player):
    """Makes the next Workload when the one before has finished and a drawn time has passed."""

    def __init__(self, client: Client, shape: Shape, *, kind: Kind, workloads: int) -> None:
        """`kind` gives the Workloads their names."""
        super().__init__(client, shape)
        self._kind, self._workloads, self._chance = kind, workloads, random.Random(SEED)
        self._created: dict[str, float] = {}
        self._seen: dict[str, float] = {}
        self._admitted: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def play(self) -> None:
        """Return when all have come and finished.

        Raises:
            WrongAnswerError: one is not admitted and finished in time.
        """
        self.begun = self._loop.time()
        cluster_queues = [queue for cohort in queues().values() for queue in cohort]
        async with asyncio.TaskGroup() as self._tasks:
            for number in range(self._workloads):
                await self._one(cluster_queues[number % len(cluster_queues)], number)
                await asyncio.sleep(self._chance.uniform(*PAUSE_SECONDS))
        self.ended = self._loop.time()

    async def _one(self, queue: str, number: int) -> None:
        key = f"{queue}/{self._kind.name}-{number}"
        life = self.lives[key] = Life(self._kind, queue, number)
        obj = typed(kinds.WORKLOADS, self._shape.workload(queue, self._kind, number))
        await self._client.create(kinds.WORKLOADS, obj)
        self._created[key] = time.perf_counter()
        try:
            async with asyncio.timeout(PATIENCE):
                while not life.finished:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise WrongAnswerError(f"{key} has not finished after {PATIENCE} s\n{self.stuck()}") from None

    def _on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        now = time.perf_counter()  # the event loop's clock may count whole milliseconds
        if new is not None and model.workload_key(new) in self.lives:
            self._seen.setdefault(model.workload_key(new), now)
            if model.condition_true(new, names.CONDITION_ADMITTED):
                self._admitted.setdefault(model.workload_key(new), now)
            super()._on_workload(old, new)
            self._changed.set()

    def from_event(self) -> list[float]:
        """Milliseconds from the event of each Workload to the event of its admission."""
        return self._until_admitted(self._seen)

    def from_creation(self) -> list[float]:
        """Milliseconds from the answer to each creation to the event of the admission."""
        return self._until_admitted(self._created)

    def _until_admitted(self, since: Mapping[str, float]) -> list[float]:
        return [1e3 * (self._admitted[key] - since[key]) for key in list(self.lives)[WARM_UP:]]


class Undecided(Unhindered, OneByOne):
    """Admits each Workload itself, as soon as it is seen."""


async def played(player: OneByOne) -> None:
    """Play to the end, and find nothing wrong."""
    async with watching(player):
        await player.play()
    check(not player.ledger.problems, "\n".join(player.ledger.problems[:10]))
    made = len(player.lives)
    check(player.admissions == made, f"{player.admissions} admissions of {made} workloads")


async def measured(shape: Shape, *, workloads: int) -> list[Figure]:
    """One run: first without a controller, then with it."""
    async with filled(shape, on_sandbox=False) as (folder, servers, client):
        least = Undecided(client, Shape(topology=False), kind=replace(SMALL, name="least"), workloads=workloads)
        await played(least)
        async with controller(servers.kubeconfig, folder / "controller") as (process, _):
            player = OneByOne(client, shape, kind=SMALL, workloads=workloads)
            await settled(client, process, active=True)
            meter = Meter({**servers.pids, "generator": os.getpid(), "controller": process.pid})
            await played(player)
            spent = meter.spent()
            await settled(client, process, active=False)
    return [*figures(player, least), *core_figures(spent, player.ended - player.begun)]


def figures(player: OneByOne, least: OneByOne) -> Iterator[Figure]:
    """Percentiles of all Workloads after the warm-up."""
    since_event, floor = player.from_event(), least.from_event()
    yield Figure("workloads", [len(since_event)])
    for percent, goal in ((50, at_most(GOAL_MS)), (99, None)):
        value, lowest = percentile(since_event, percent), percentile(floor, percent)
        yield Figure(f"event_p{percent}_ms", [value], goal, floor=lowest)
    for percent in (50, 99):
        yield Figure(f"created_p{percent}_ms", [percentile(player.from_creation(), percent)])
    for percent in (50, 99):
        yield Figure(f"least_p{percent}_ms", [percentile(floor, percent)])


def measure(*, topology: bool) -> Iterator[Figure]:
    """A row."""
    share = float(os.environ.get(SHARE, "1"))
    check(0 < share <= 1, f"{SHARE}={share} must be above 0 and at most 1")
    configure_logs("console", "error")
    yield from run(measured(Shape(topology), workloads=WARM_UP + max(1, round(WORKLOADS * share))))


ROWS = tuple(
    Row(f"load/idle/{name}", partial(measure, topology=topology), alone=True, asked="load/idle")
    for name, topology in (("baseline", False), ("tas", True))
)
