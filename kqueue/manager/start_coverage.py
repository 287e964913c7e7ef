"""Measures how well told start times hold: each answer is compared with the starts that the watch brings."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.future.told import HeldStart, ToldStarts
from kqueue.observe import Metrics
from kqueue.runtime.store import Store
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.start_times import StartAnswer, told_starts


class StartCoverage:
    """Counts starts by where they lie beside what was told, for one process."""

    def __init__(self, workloads: Store[wire.Workload], metrics: Metrics, clock: Clock) -> None:
        """`workloads`: the watch's."""
        self._workloads, self._metrics, self._clock = workloads, metrics, clock
        self._told = ToldStarts()

    def stretch(self, queue: str) -> int:
        """Return the thousandths by which the times until p90 of a ClusterQueue are stretched."""
        return self._told.stretch(queue)

    async def on_answer(self, answer: StartAnswer) -> None:
        """Remember the start times of an answer; workloads that have started since its state are compared at once."""
        pace, since = RequestPace(self._clock), answer.at.replace(microsecond=0)
        for told in told_starts(answer):
            await pace.step()
            workload = self._workloads.get(told.key)
            if workload is None or workload.metadata.uid != told.uid:
                continue
            self._told.tell(told)
            start = model.since(workload, names.CONDITION_QUOTA_RESERVED)
            if start is not None and start >= since:
                self._count(self._told.started(told.uid, start))

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Follow a Workload that starts, or is gone."""
        seen = new if new is not None else old
        if seen is None or seen.metadata.uid not in self._told:
            return
        uid, now = seen.metadata.uid, self._clock.now()
        if new is None or model.is_over(new):
            self._count(self._told.left(uid, now))
            return
        start = model.since(new, names.CONDITION_QUOTA_RESERVED)
        if start is not None and (old is None or model.since(old, names.CONDITION_QUOTA_RESERVED) != start):
            self._count(self._told.started(uid, start))

    def _count(self, found: Iterable[HeldStart]) -> None:
        for held in found:
            if held.queue:
                self._metrics.cluster_queue(held.queue).start_told(held.telling, held.outcome)
