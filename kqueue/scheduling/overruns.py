"""Evicts workloads that started in kept room on a guess, and still run when the planned start is due.

The guesses are in memory, as planned starts are: after a change of the leader a workload that started before is not
evicted, and the planned start becomes later.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import structlog
from cachetools import LRUCache

from kqueue.api import backfill_names
from kqueue.api.wire import kueue as wire
from kqueue.core.backfill.overruns import in_the_way, overrunning
from kqueue.core.decision import Admit, Decision
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.workload import Admitted, Claim
from kqueue.scheduling.context import Context
from kqueue.scheduling.marked_evictions import MarkedEvictions
from kqueue.state import status

_log = structlog.get_logger(__name__)

_MOST = 10_000
"""Workloads whose guesses are kept; the oldest one is forgotten first, and runs on."""


class Overruns:
    """Remembers on which guesses workloads have started, and ends those that were wrong."""

    def __init__(self, context: Context) -> None:
        self._single = MarkedEvictions(context.state.cache.held, context.writes)
        self._observer, self._clock = context.observer, context.clock
        self._guessed: LRUCache[str, int] = LRUCache(_MOST)
        """Seconds, by UID."""

    def decided(self, decision: Decision) -> None:
        """Follow a decision of the present cycle."""
        if not isinstance(decision, Admit):
            return
        head = decision.head
        self._guessed.pop(head.uid, None)
        if decision.joins and head.promised is None and head.guessed is not None:
            self._guessed[head.uid] = head.guessed

    def over(self, holders: Iterable[Admitted], now: datetime) -> list[Admitted]:
        """Return the workloads with quota that have started on a guess and run longer."""
        return overrunning(holders, self._guessed, now)

    def evict(self, claim: Claim, overrun: Iterable[Admitted], now: datetime) -> list[Admitted]:
        """Begin to evict those of these workloads for which a due planned start waits, and return them."""
        return [one for one in in_the_way(claim, overrun, now) if self._begin(one, claim)]

    def _begin(self, victim: Admitted, claim: Claim) -> bool:
        planned = mentioned((Mention(claim.key, claim.queue),), readers_of(victim.key))
        message = (
            f"It ran longer than the {self._guessed[victim.uid]} s within which it was expected to end, and the "
            f"planned start of {planned} is due. It waits again, and starts only where it delays no planned start"
        )

        def change(obj: wire.Workload) -> status.Patch | None:
            stamp = status.Stamp(self._clock.now())
            return status.evict(obj, reason=backfill_names.REASON_BACKFILL_OVERRUN, message=message, stamp=stamp)

        def written(obj: wire.Workload) -> None:
            _log.info("workload evicted: it ran longer than expected", workload=victim.key, planned=claim.key)
            self._observer.overran(obj, message=message)

        what = "the eviction of a workload that ran longer than expected"
        return self._single.begin(victim.key, victim.uid, change, what=what, written=written)
