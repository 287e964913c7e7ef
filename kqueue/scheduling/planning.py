"""Plans: the input of the planner in a cycle, and the results that are kept for the next plan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

import structlog

from kqueue import model
from kqueue.core.decision import Decision, Phase
from kqueue.core.hints import NO_HINTS, Hints
from kqueue.core.plan_cache import PlanCache
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.preemption import Rules
from kqueue.core.share_order import NextHead
from kqueue.core.workload import Claim, Head, Snapshot
from kqueue.errors import InvalidObjectError
from kqueue.isolation import isolated_logged
from kqueue.scheduling.alarm import Alarm
from kqueue.scheduling.context import Context
from kqueue.scheduling.recording import PlanRecording, recorded
from kqueue.scheduling.stopwatch import Stopwatch
from kqueue.scheduling.strict_lines import StrictLines
from kqueue.state.heads import Heads

_log = structlog.get_logger(__name__)


class PlanMaker:
    """Makes plans from the present state."""

    def __init__(self, context: Context, alarm: Alarm) -> None:
        self._context, self._alarm, state = context, alarm, context.state
        self._cache, self._queues, self._preemptions = state.cache, state.queues, state.preemptions
        self._moves, self._start_plans, self._reservations = state.moves, state.start_plans, state.reservations
        settings = self._settings = context.settings
        self.heads = Heads(state.cache, context.writer.newest, settings.head_options)
        self._kept = PlanCache()
        self._strict_lines = StrictLines(state.queues, self.heads, context.writer.newest, context.clock)

    def snapshot(self, queues: Iterable[str]) -> Snapshot:
        """Return a snapshot of quota and capacity for a plan over heads of these ClusterQueues."""
        return self._cache.snapshot(queues, self.end_claims())

    def decisions(
        self,
        snapshot: Snapshot,
        heads: Sequence[Head],
        watch: Stopwatch[Phase] | None = None,
        hints: Hints = NO_HINTS,
    ) -> Iterator[Decision]:
        """Yield the planner's decisions in their order; `watch` measures the planner's phases; a plan without it
        searches for a fault, and is not recorded.

        `hints`: what a joint plan proposes for some of the heads.
        """
        settings = self._settings
        question = PlanQuestion(
            snapshot=snapshot,
            heads=heads,
            rules=self.rules(self._context.clock.now(), [head.uid for head in heads]),
            order=settings.order,
            held_by=self.held_by(),
            one_at_a_time=settings.block_admission,
            looks=settings.looks,
            hooks=settings.hooks,
            hints=hints,
        )
        next_head: NextHead = self._next_head
        recording: PlanRecording | None = None
        if settings.recorder is not None and watch is not None:
            recording = settings.recorder.begin(question, self._strict_lines.take(heads))
            question, next_head = recording.question, recording.asking(next_head)
        decisions = question.decisions(
            next_head=next_head,
            cache=self._kept,
            enter=watch.enter if watch is not None else _unmeasured,
            planner_failed=_planner_failed,
        )
        return decisions if recording is None else recorded(decisions, recording)

    def forget(self) -> None:
        """Drop cached results, which a failed plan may have made wrong."""
        self._kept = PlanCache()

    def rules(self, now: datetime, preemptors: Iterable[str]) -> Rules:
        """Return the rules of preemption at time `now` for these preemptors (uids)."""
        usage = self._context.state.fair_usage
        return Rules(
            now=now,
            fair=self._settings.fair,
            within_nominal=self._settings.within_nominal,
            local_queue_usage=usage.usages() if usage is not None else None,
            limits=self._cache.quota.run_limits(),
            spared=self._preemptions.spared(preemptors),
            budgeted=self._settings.budgeted(),
        )

    def held_by(self) -> str:
        """Return the workload whose pods must be ready before the next admission; empty when there is none."""
        return (self._cache.held.unready() or "") if self._settings.block_admission else ""

    def may_admit(self, queue: str) -> bool:
        """Whether the ClusterQueue is active, so that its workloads are tried."""
        if self._alarm.rests(queue):
            return False
        return self._cache.quota.queue_spec(queue) is not None and self._cache.quota.inactive(queue) is None

    # --- claims

    def claims(self) -> tuple[Claim, ...]:
        """Return the claims of preemptors and planned workloads that still wait, of moves and of Reservations.

        All claims stay as they are.
        """
        kept = (*self._preemptions.claims(_all), *self._start_plans.claims(_all))
        return (*(claim for claim in kept if self.still_waits(claim)), *self._kept_for_moves(), *self._reserved())

    def end_claims(self) -> tuple[Claim, ...]:
        """Return the claims of preemptors and planned workloads that still wait, of moves and of Reservations.

        All other claims end.
        """
        planned = self._start_plans.claims(self.still_waits) if self._start_plans else ()
        return (*self._preemptions.claims(self.still_waits), *planned, *self._kept_for_moves(), *self._reserved())

    def _kept_for_moves(self) -> tuple[Claim, ...]:
        return self._moves.claims() if self._moves is not None else ()

    def _reserved(self) -> tuple[Claim, ...]:
        return self._reservations.claims() if self._reservations is not None else ()

    def still_waits(self, claim: Claim) -> bool:
        """Whether the preemptor of a claim still waits in an active ClusterQueue."""
        unknown = "checking a claim failed, so no resources are reserved for its preemptor"
        with isolated_logged(_log, unknown, workload=claim.key):
            return self._still_waits(claim)
        return False

    def _still_waits(self, claim: Claim) -> bool:
        obj = self._context.writer.newest(claim.key)
        return (
            obj is not None
            and obj.metadata.uid == claim.uid
            and self._queues.is_known(claim.key)
            and self._queues.cluster_queue_of(model.local_queue_key(obj)) == claim.queue
            and self.may_admit(claim.queue)
        )

    def _next_head(self, queue: str, without: Collection[str]) -> Head | None:
        """Return the next head of a ClusterQueue besides the workloads `without`; None when none can be read."""
        keys, _ = self._queues.front(queue, len(without) + 1)
        for key in keys:
            obj = self._context.writer.newest(key) if key not in without else None
            if obj is None:
                continue
            try:
                return self.heads.make(obj, None, queue=queue, now=self._context.clock.now())
            except InvalidObjectError:
                return None
        return None


def _all(_claim: Claim) -> bool:
    return True


def _unmeasured(_phase: Phase) -> None:
    """Measure nothing: for plans that search for a fault."""


def _planner_failed(name: str, error: Exception) -> None:
    _log.error("planner failed, its workloads are placed one by one", profile=name, exc_info=error)
