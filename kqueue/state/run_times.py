"""The run times of Workloads: promised, expected by their users, and learned from Workloads that have finished."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from cachetools import LRUCache

from kqueue.api.wire import kueue as wire
from kqueue.core.future.estimate import estimate, estimate_beyond
from kqueue.core.future.learned import FinishedRun, LearnedRunTimes, RunKeys
from kqueue.core.future.run_time import RunTime
from kqueue.model.run_groups import run_keys, run_mark
from kqueue.model.run_times import expected_run_time, promised_run_time, successful_run

_KEYS_KEPT = 20_000
"""The number of Workloads whose groups are kept: to compute them reads all pod sets."""


class RunTimes:
    """Returns the run time of any Workload.  A look changes nothing that another look can see, and takes the same time
    however much is known.
    """

    def __init__(self, learned: LearnedRunTimes | None, now: Callable[[], datetime]) -> None:
        """Take what is learned; None: nothing is learned, and only promises and expectations count."""
        self._learned, self._now = learned, now
        self._keys: LRUCache[tuple[str, int, str], RunKeys] = LRUCache(_KEYS_KEPT)

    def of(self, obj: wire.Workload) -> RunTime:
        """Return the run time of a Workload from its next admission, or from its present one."""
        learned = self._learned.look(self._keys_of(obj)) if self._learned is not None else None
        return estimate(promised=promised_run_time(obj), expected=expected_run_time(obj.metadata), learned=learned)

    def of_running(self, obj: wire.Workload, elapsed: int) -> tuple[RunTime, bool]:
        """Return the run time of a Workload that has run for `elapsed` seconds, from its admission, and whether it has
        run for longer than half of its kind.
        """
        whole = self.of(obj)
        longer = self._learned.look_beyond(self._keys_of(obj), elapsed) if self._learned is not None else None
        return estimate_beyond(whole, elapsed, longer), whole.p50 is not None and elapsed >= whole.p50

    def learn(self, obj: wire.Workload) -> bool:
        """Count the last run of a Workload that has finished in success; return whether it counts.

        A Workload counts once, however often it is given.
        """
        run = successful_run(obj)
        if self._learned is None or run is None:
            return False
        mark, ended = run_mark(obj.metadata.uid), int(run.ended.timestamp())
        found = FinishedRun(mark=mark, keys=run_keys(obj), seconds=run.seconds, ended=ended)
        return self._learned.learn(found, int(self._now().timestamp()))

    def _keys_of(self, obj: wire.Workload) -> RunKeys:
        meta = obj.metadata
        version = (meta.uid, meta.generation, next((owner.name for owner in meta.owner_references), ""))
        found: RunKeys | None = self._keys.get(version)
        if found is None:
            found = self._keys[version] = run_keys(obj)
        return found
