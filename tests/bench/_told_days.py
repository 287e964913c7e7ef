"""Days in which start times are asked for and then compared with the starts: run times are drawn, and learned as they end.

The day itself is a future of the planner with the real run times.  At intervals its state becomes a question whose run
times are what was learned until then, by the code of a controller; arrivals after the question are not in it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from kqueue.core import quota
from kqueue.core.decision import Admit
from kqueue.core.future.day import RememberingDrain
from kqueue.core.future.drain import _Ended
from kqueue.core.future.estimate import estimate, estimate_beyond
from kqueue.core.future.learned import FinishedRun, LearnedRunTimes, RunKeys
from kqueue.core.future.question import (
    DAY,
    DEFAULT_BOUNDS,
    DrainBounds,
    Line,
    StartQuestion,
    WaitingWorkload,
    WorkloadRun,
)
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.core.future.start_times import start_times
from kqueue.core.future.told import WHOLE, HeldStart, StartOutcome, Telling, ToldStarts, told_start
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology import PodSetRequest, TopologyRequest
from kqueue.core.workload import Flavor, Head, PodSet, Preempts, QueueSpec, ResourceGroup, Snapshot
from tests.builders import START

_SPREAD = 0.54
"""Sigma of the logarithm of run times whose p90 is twice their p50."""


@dataclass(slots=True)
class Told:
    """The starts of a day beside what was told, and how often was asked."""

    held: Counter[tuple[Telling, StartOutcome]] = field(default_factory=Counter)
    questions: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """Reasons for which no p90 was told, at all questions."""

    def note(self, found: Iterable[HeldStart]) -> None:
        """Count starts."""
        self.held.update((one.telling, one.outcome) for one in found)

    def percent(self, telling: Telling, *outcomes: StartOutcome) -> int:
        """The part of the starts with a told interval whose outcome is one of these, in percent, rounded down."""
        told = sum(n for (of, outcome), n in self.held.items() if of is telling and outcome is not StartOutcome.UNTOLD)
        return 100 * sum(self.held[telling, outcome] for outcome in outcomes) // max(1, told)


class ToldDay(RememberingDrain):
    """A day that learns run times, and asks for start times."""

    def __init__(self, question: StartQuestion, *, learns: bool = True) -> None:
        """`learns` False: run times are asked for as they are."""
        super().__init__(question)
        self._learned = LearnedRunTimes(most_groups=1_000)
        self._learns, self._starts, self._answers = learns, ToldStarts(), Told()

    def live(self, *, every: int, first: int) -> Told:
        """Let the day pass; ask every so many seconds from `first` on."""
        asked = first
        self._begin()
        self._cycles()
        while (at := self._next_event()) is not None and at <= self._question.bounds.horizon:
            while asked <= at:
                self._ask(asked)
                asked += every
            self._second, self._ended = at, _Ended()
            self._release(self._due(at))
            self._cycles()
        return self._answers

    def _release(self, uids: Iterable[str]) -> None:
        uids = list(uids)
        for uid in uids:
            stay = self.open.get(uid)
            if stay is not None and uid not in self._leaves_early:
                keys = self._keys(self._running[uid].waits_as)
                run = FinishedRun(
                    mark=uid, keys=keys, seconds=self._second - stay.start, ended=int(self._now.timestamp())
                )
                self._learned.learn(run, int(self._now.timestamp()))
        super()._release(uids)

    def _keys(self, workload: WaitingWorkload | None) -> RunKeys:
        assert workload is not None
        queue = workload.head.queue
        request = workload.head.pod_sets[0].request
        shape = f"{queue}/{request.count}/{request.requests}"
        return RunKeys(queue, (f"{shape}/owner", shape, queue))

    def _known(self, workload: WaitingWorkload) -> WaitingWorkload:
        if not self._learns:
            return workload
        learned = self._learned.look(self._keys(workload))
        return replace(workload, run_time=estimate(promised=None, expected=None, learned=learned))

    def _start(self, decision: Admit) -> None:
        super()._start(decision)
        self._answers.note(self._starts.started(decision.head.uid, self._now))

    def _ask(self, second: int) -> None:
        now = self._now0 + timedelta(seconds=second)
        lines: dict[str, list[WaitingWorkload]] = {line.queue: [] for line in self._question.lines}
        for member in sorted(self._lines._members.values(), key=lambda one: one.place):
            one = member.workload
            if one.not_before is None or one.not_before <= now:
                known = self._known(replace(one, not_before=None))
                lines[one.head.queue].append(known)
        running = {uid: self._run(uid, second) for uid in self._world.holders}
        question = replace(
            self._question,
            state=PlannedState(
                snapshot=self._world.snapshot(lines),
                rules=replace(self._question.state.rules, now=now),
                holders=tuple(self._world.holders.values()),
            ),
            lines=tuple(Line(queue=q, is_strict=False, workloads=tuple(some)) for q, some in lines.items()),
            running=running,
            bounds=DEFAULT_BOUNDS,
        )
        answer = start_times(question)
        self._answers.questions += 1
        for queue, some in lines.items():
            for one in some:
                uid, start = one.head.uid, answer.of[one.head.uid]
                told = told_start(
                    start,
                    uid=uid,
                    key=one.head.key,
                    queue=queue,
                    at=now,
                    horizon=DEFAULT_BOUNDS.horizon,
                    stretch=self._starts.stretch(queue) if self._learns else WHOLE,
                )
                if told.p90 is None:
                    self._answers.reasons[told.reason] += 1
                self._starts.tell(told)

    def _run(self, uid: str, second: int) -> WorkloadRun:
        waits_as = self._running[uid].waits_as
        assert waits_as is not None
        known, elapsed = self._known(waits_as), second - self.open[uid].start
        longer = self._learned.look_beyond(self._keys(waits_as), elapsed) if self._learns else None
        return WorkloadRun(run_time=estimate_beyond(known.run_time, elapsed, longer), elapsed=elapsed, waits_as=known)


def published(seed: int, *, per_queue: int, cohorts: int, slower: int = 60) -> StartQuestion:
    """The shape of Kueue's published load: cohorts of 6 ClusterQueues with 20 CPU each, 70 % small, 20 % medium and
    10 % large workloads, which arrive at fixed intervals; all times are `slower` times as long.

    Run times are drawn: half of a class takes the published time or less, one in ten twice that or more.
    """
    chance = random.Random(seed)
    column = FlavorResource("default", "cpu")
    classes = (
        ("small", 70, 1_000, 0.2, 0.1, 50),
        ("medium", 20, 5_000, 0.5, 0.5, 100),
        ("large", 10, 20_000, 1.0, 1.2, 200),
    )
    specs, nodes, lines = {}, {}, []
    for cohort in range(cohorts):
        root = QuotaNode(f"cohort-{cohort}", is_cohort=True)
        for number in range(6):
            name = f"queue-{cohort}-{number}"
            nodes[name] = QuotaNode(name, parent=root, quotas={column: Quota(20_000, borrowing_limit=100_000)})
            root.children.append(nodes[name])
            specs[name] = QueueSpec(
                name=name,
                groups=(ResourceGroup(("cpu",), ("default",)),),
                preempts_own=Preempts.LOWER_PRIORITY,
                reclaims=Preempts.ANY,
            )
            some = [
                _published_one(
                    chance, name, kind, n, cpu, seconds * slower, timedelta(seconds=n * apart * slower), prio
                )
                for kind, share, cpu, seconds, apart, prio in classes
                for n in range(per_queue * share // 100)
            ]
            some.sort(key=lambda one: (-one.head.priority, one.head.timestamp))
            lines.append(Line(queue=name, is_strict=False, workloads=tuple(some)))
        quota.rebuild(root)
    snapshot = Snapshot(
        queues=specs,
        nodes=nodes,
        flavors={"default": Flavor(name="default")},
        topologies={},
        admitted={name: {} for name in nodes},
    )
    return StartQuestion(
        state=PlannedState(snapshot=snapshot, rules=Rules(now=START)),
        lines=tuple(lines),
        bounds=DrainBounds(horizon=DAY, tries=10_000_000, workloads=1_000_000),
    )


def _published_one(
    chance: random.Random, queue: str, kind: str, number: int, cpu: int, half: float, after: timedelta, priority: int
) -> WaitingWorkload:
    seconds = max(1, round(half * chance.lognormvariate(0, _SPREAD)))
    request = PodSetRequest(name="main", count=1, requests={"cpu": cpu}, topology=TopologyRequest())
    head = Head(
        key=f"{queue}/{kind}-{number:04}",
        uid=f"{queue}/{kind}-{number:04}",
        queue=queue,
        priority=priority,
        timestamp=START + after,
        pod_sets=(PodSet(request=request, quota_requests={"cpu": cpu}),),
    )
    return WaitingWorkload(
        head=head,
        run_time=RunTime(p50=seconds, p90=seconds, source=RunTimeSource.LEARNED),
        shape=kind,
        not_before=head.timestamp if after else None,
    )
