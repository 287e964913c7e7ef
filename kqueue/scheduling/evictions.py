"""Writes preemptions: each victim gets one eviction that names the preemptor and the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.core.decision import Admit, Preempt
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.preemption import PreemptionReason, Target
from kqueue.core.workload import Admitted, Leader
from kqueue.errors import KqueueError
from kqueue.isolation import isolated
from kqueue.scheduling.context import Context
from kqueue.scheduling.marked_evictions import MarkedEvictions
from kqueue.state import requeueing, status

_log = structlog.get_logger(__name__)

_AT_ONCE = 8
"""Victims of one preemptor that are written at once.  Source: the compatible system."""

_REASONS = {
    PreemptionReason.IN_CLUSTER_QUEUE: "it comes first in the same ClusterQueue",
    PreemptionReason.IN_COHORT_RECLAMATION: "its ClusterQueue takes back quota that was borrowed",
    PreemptionReason.IN_COHORT_FAIR_SHARING: "its ClusterQueue has less than its fair share",
    PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "it borrows with a higher priority",
    PreemptionReason.FLAVOR_MIGRATION: "its flavor is preferred, and their parent moves to it",
}


@dataclass(frozen=True, slots=True)
class _Round:
    """The victims of one decision whose eviction is not written yet, by their keys (namespace/name)."""

    preemptor: wire.Workload
    queue: str
    """The preemptor's ClusterQueue."""
    open: dict[str, Target]


def _as_read_by(victim: Admitted, preemptor: wire.Workload, queue: str) -> str:
    """Name the preemptor as far as readers of the victim may know it."""
    return mentioned((Mention(model.workload_key(preemptor), queue),), readers_of(victim.key))


class Evictions:
    """Evicts the victims of preemptions."""

    def __init__(self, context: Context, *, failed: Callable[[], None]) -> None:
        """`failed` is called when an eviction could not be written and the victim is unchanged."""
        self._cache, self._preemptions = context.state.cache, context.state.preemptions
        self._writes, self._observer, self._clock, self._failed = (
            context.writes,
            context.observer,
            context.clock,
            failed,
        )
        self._backoff = context.settings.gang_backoff
        self._single = MarkedEvictions(self._cache.held, self._writes)

    def begin(self, decision: Preempt, preemptor: wire.Workload) -> None:
        """Mark the victims in the cache, and start a task that evicts all that are not being evicted yet."""
        new = [t for t in decision.targets if self._cache.held.mark_evicted(t.admitted.key, t.admitted.uid)]
        if not new:
            return
        circles = set(self._preemptions.evicts(decision.head.uid, [t.admitted.uid for t in new]))
        if circles:
            victims = [Mention(t.admitted.key, t.admitted.queue) for t in new if t.admitted.uid in circles]
            keys = sorted(victim.key for victim in victims)
            _log.error("preemption goes round in circles", workload=decision.head.key, victims=keys)
            self._observer.preemption_loop(preemptor, queue=decision.head.queue, victims=victims)
        round_ = _Round(preemptor, decision.head.queue, {t.admitted.key: t for t in new})
        self._writes.spawn(self._evict_all(round_), ended=partial(self._settle, round_))

    def make_way(self, decision: Admit, newcomer: wire.Workload) -> None:
        """Start to evict the gangs for which flavors of an admitted workload were kept."""
        for leader in decision.made_way:
            self._send_away(leader, newcomer)

    def _send_away(self, leader: Leader, newcomer: wire.Workload) -> None:
        """Evict a gang; it comes back after a pause and keeps its place."""
        key = model.workload_key(newcomer)
        by = mentioned((Mention(key),), readers_of(leader.workload))
        message = f"made way for {by}, which has a higher priority"

        def change(obj: wire.Workload) -> status.Patch | None:
            now = self._clock.now()
            state = requeueing.next_requeue(obj, self._backoff, now)
            reason, stamp = gang_names.REASON_GANG_MADE_WAY, status.Stamp(now)
            return status.evict(obj, reason=reason, message=message, stamp=stamp, requeue_state=state)

        def written(obj: wire.Workload) -> None:
            _log.info("gang made way", workload=leader.workload, by=key)
            self._observer.made_way(obj, message=message)

        what = "the eviction of a gang that made way"
        self._single.begin(leader.workload, leader.uid, change, what=what, written=written)

    async def _evict_all(self, round_: _Round) -> None:
        left = list(round_.open.values())

        async def work() -> None:
            while left:
                target = left.pop()
                await self._evict(target, round_.preemptor, round_.queue)
                del round_.open[target.admitted.key]

        await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(left)))))

    def _settle(self, round_: _Round, error: BaseException | None) -> None:
        """End the round: take back the mark of each victim whose eviction was not written."""
        if isinstance(error, Exception):
            _log.error("preemptions were not written on a bug", victims=sorted(round_.open), exc_info=error)
        for target in round_.open.values():
            self._not_evicted(target, round_.preemptor)

    async def _evict(self, target: Target, preemptor: wire.Workload, queue: str) -> None:
        victim = target.admitted
        message = (
            f"Makes room for {_as_read_by(victim, preemptor, queue)} (UID {preemptor.metadata.uid}, job UID "
            f"{preemptor.metadata.labels.get(names.JOB_UID_LABEL, 'unknown')}): {_REASONS[target.reason]}; "
            f"from {self._cache.quota.path_of(victim.queue)} to {self._cache.quota.path_of(queue)}"
        )

        def change(obj: wire.Workload) -> status.Patch | None:
            if obj.metadata.uid != victim.uid or model.is_over(obj) or obj.status.admission is None:
                return None
            stamp = status.Stamp(self._clock.now())
            if target.reason is PreemptionReason.FLAVOR_MIGRATION:
                return status.evict(obj, reason=target.reason, message=message, stamp=stamp)
            return status.evict(
                obj, reason=names.REASON_PREEMPTED, message=message, stamp=stamp, preempted=target.reason
            )

        def failed(error: Exception) -> None:
            bug = None if isinstance(error, KqueueError) else error
            _log.warning("a preemption was not written", workload=victim.key, error=str(error), exc_info=bug)
            self._not_evicted(target, preemptor)
            self._failed()

        written = None
        with isolated(failed) as write:
            written = await self._writes.write(victim.key, change)
        if write.error is not None:
            return
        if written is None:
            self._not_written(target, preemptor)
            return
        _log.info("workload preempted", workload=victim.key, by=model.workload_key(preemptor), reason=target.reason)
        self._observer.preempted(written, target=target, queue=queue, preemptor=preemptor, message=message)

    def _not_written(self, target: Target, preemptor: wire.Workload) -> None:
        """Handle a victim that holds no quota by its status. While its own admission is being written, the mark is
        taken back; otherwise it is leaving or gone, and the watch reports that.
        """
        held = self._cache.held.holding(target.admitted.key)
        if held is not None and held.assumed:
            self._not_evicted(target, preemptor)
            self._failed()
        else:
            self._preemptions.not_evicted(preemptor.metadata.uid, target.admitted.uid)

    def _not_evicted(self, target: Target, preemptor: wire.Workload) -> None:
        victim = target.admitted
        self._preemptions.not_evicted(preemptor.metadata.uid, victim.uid)
        self._cache.held.mark_evicted(victim.key, victim.uid, evicted=False)
