"""Learns run times from Workloads that finish, in every process, and keeps them in a ConfigMap, in the leader.

    start ──► read the ConfigMap ──► learn from Workloads that have finished, by their ends ──► learn from each end
                                              leader: ... ──► write the ConfigMap ──► pause for an interval ──► ...

The summary names the runs that it contains, so a run counts once, by whichever process it is read.  The next process
learns again what this one has learned after its last write, from the Workloads that still exist.
"""

from __future__ import annotations

import asyncio

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.run_time_names import RUN_TIMES_CONFIG_MAP, RUN_TIMES_FIELD_MANAGER, RUN_TIMES_KEY
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.manager import Manager
from kqueue.controllers.resources import CONFIG_MAPS
from kqueue.core.future.learned import LearnedRunTimes
from kqueue.errors import ApiError, ForbiddenError, NotFoundError, NotLeadingError
from kqueue.model.run_times import successful_run
from kqueue.runtime.client import Client, PatchType
from kqueue.runtime.lane import Lane
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.store import ObjectKey
from kqueue.state.run_summary import DamagedSummaryError, summary_from, summary_text
from kqueue.state.run_times import RunTimes

_log = structlog.get_logger(__name__)

_GATHERED = 3.0
"""Seconds between a change and its write, in which further changes come."""
_RETRIED = 10.0
"""Seconds after which the ConfigMap is read again, if it could not be read."""
_PER_TURN = 200
"""Workloads that teach before the event loop gets a turn."""
_RIGHTS = "allow get, create and patch of this ConfigMap, or set runTimes.learn to false"


class RunSummaryStore:
    """The ConfigMap with what was learned."""

    def __init__(self, client: Client, namespace: str) -> None:
        """`namespace`: that of kqueue."""
        self._client, self._namespace = client, namespace
        self._written: str | None = None
        """The text of the last write of this process; None: another process may have written since."""
        self.where = f"ConfigMap {namespace}/{RUN_TIMES_CONFIG_MAP}"

    async def read(self, learned: LearnedRunTimes) -> None:
        """Take over what the ConfigMap has; a missing one, and one that is damaged, has nothing.

        Raises ApiError: it could not be read.
        """
        try:
            found = await self._client.get_json(CONFIG_MAPS, RUN_TIMES_CONFIG_MAP, self._namespace, lane=Lane.WATCH)
        except NotFoundError:
            return
        text = (found.get("data") or {}).get(RUN_TIMES_KEY)
        place = f"{self.where}, data[{RUN_TIMES_KEY}]"
        try:
            if not isinstance(text, str):
                raise DamagedSummaryError("is missing")
            learned.restore(summary_from(text))
        except (DamagedSummaryError, ValueError) as e:
            _log.warning("learned run times cannot be read, they are learned anew", place=place, error=str(e))
            return
        _log.info("learned run times were read", place=place, groups=learned.groups)

    async def write(self, learned: LearnedRunTimes) -> None:
        """Write what was learned, unless this process has written the same before.

        Raises ApiError: it could not be written.
        """
        text = summary_text(learned.summary())
        if text == self._written:
            return
        metadata = {"name": RUN_TIMES_CONFIG_MAP, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {RUN_TIMES_KEY: text}}
        await self._client.patch(
            CONFIG_MAPS,
            RUN_TIMES_CONFIG_MAP,
            body,
            self._namespace,
            content_type=PatchType.APPLY,
            field_manager=RUN_TIMES_FIELD_MANAGER,
            force=True,
            lane=Lane.WORDS,
        )
        self._written = text

    def forget(self) -> None:
        """Forget the last write: another process may have led since."""
        self._written = None


class RunTimeTeacher:
    """Teaches run times from the Workloads of the watch."""

    def __init__(
        self,
        learned: LearnedRunTimes,
        run_times: RunTimes,
        *,
        store: RunSummaryStore,
        workloads: Reflector[wire.Workload, wire.Workload],
        clock: Clock,
        interval: float,
    ) -> None:
        """`interval`: the least seconds between two writes."""
        self._learned, self._run_times, self._store = learned, run_times, store
        self._workloads, self._clock, self._interval = workloads, clock, interval
        self._before: set[ObjectKey] | None = set()
        """Workloads that have finished before the ConfigMap was read and they taught; None: all of them have."""
        self._may_write = False
        """Whether the ConfigMap was read, so that a write replaces nothing unknown."""
        self._ready, self._changed = asyncio.Event(), asyncio.Event()

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Learn from a Workload that has finished."""
        if new is None or not model.condition_true(new, names.CONDITION_FINISHED):
            return
        if old is not None and model.condition_true(old, names.CONDITION_FINISHED):
            return
        if self._before is None:
            self._learn(new)
        else:
            self._before.add(model.workload_key(new))

    async def read(self) -> None:
        """Read the ConfigMap, then let the Workloads teach that have finished before."""
        while True:
            try:
                await self._store.read(self._learned)
                self._may_write = True
                break
            except ForbiddenError as e:
                forbidden = "learned run times are not kept: their ConfigMap may not be read"
                _log.warning(forbidden, place=self._store.where, error=str(e), remedy=_RIGHTS)
                break
            except ApiError as e:
                _log.warning("learned run times could not be read, tried again", place=self._store.where, error=str(e))
                await self._clock.sleep(_RETRIED)
        await self._workloads.settled.wait()
        while self._before:
            await self._teach(self._before)
        self._before = None
        self._ready.set()

    async def _teach(self, keys: set[ObjectKey]) -> None:
        """Learn from these Workloads in the order of their ends: runs older than the remembered ones count no more.

        Ends that the watch brings meanwhile are left for another call.
        """
        self._before = set()
        found = [w for w in map(self._workloads.store.get, keys) if w is not None]
        runs = [(run.ended, model.workload_key(w), w) for w in found if (run := successful_run(w)) is not None]
        for number, (_, _, workload) in enumerate(sorted(runs, key=lambda run: run[:2]), 1):
            self._learn(workload)
            if number % _PER_TURN == 0:
                await self._clock.sleep(0)

    async def keep(self) -> None:
        """Write what was learned, at most once in an interval, and only after changes."""
        self._store.forget()
        await self._ready.wait()
        while self._may_write:
            await self._changed.wait()
            await self._clock.sleep(_GATHERED)
            self._changed.clear()
            try:
                await self._store.write(self._learned)
            except NotFoundError as e:
                lost = "learned run times are not kept: the namespace does not exist"
                _log.warning(lost, place=self._store.where, error=str(e), remedy="create it, and start kqueue again")
                return
            except (ApiError, NotLeadingError) as e:
                unkept = "learned run times could not be written, tried again after an interval"
                _log.warning(unkept, place=self._store.where, error=str(e), remedy=_RIGHTS)
                self._changed.set()
            await self._clock.sleep(self._interval - _GATHERED)

    def _learn(self, workload: wire.Workload) -> None:
        if self._run_times.learn(workload):
            self._changed.set()


def make_learned(manager: Manager) -> LearnedRunTimes | None:
    """Return what the process learns; None: it learns nothing."""
    settings = manager.config.run_times
    return LearnedRunTimes(most_groups=settings.max_groups) if settings.learn else None


def make_run_times(manager: Manager) -> RunTimes:
    """Return the run times of a process; call it through `manager.shared`."""
    return RunTimes(manager.shared(make_learned), manager.clock.now)


def setup(manager: Manager) -> None:
    """Learn run times, unless the configuration forbids it."""
    learned = manager.shared(make_learned)
    if learned is None:
        return
    teacher = RunTimeTeacher(
        learned,
        manager.shared(make_run_times),
        store=RunSummaryStore(manager.client, manager.config.namespace),
        workloads=manager.watches.workloads,
        clock=manager.clock,
        interval=manager.config.run_times.interval.total_seconds(),
    )
    manager.metrics.learned_groups(lambda: learned.groups)
    manager.watches.workloads.subscribe(teacher.on_workload)
    manager.everywhere.append(teacher.read)
    manager.background.append(teacher.keep)
