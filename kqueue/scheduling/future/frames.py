"""The messages between the manager and the process that computes start times.

The state is sent as for rounds of joint placement: topologies, free amounts, workloads and heads in small pieces, and
only what has changed since the last question.  Run times are sent whole with each question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from kqueue.core.backfill.plans import LineRule
from kqueue.core.decision import SecondLooks
from kqueue.core.future.question import DrainBounds, Line, StartQuestion, WaitingWorkload, WorkloadRun
from kqueue.core.future.run_time import RunTime
from kqueue.core.future.start_times import StartTime, StartTimes
from kqueue.core.ordering import OrderRules
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Head, Snapshot
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import WORKLOADS, Held, Sent, dumped, held, parts, state_pieces

_STARTS = 100
"""Start times of one answer."""


@value(kw_only=True)
class WaitFacts:
    """A `WaitingWorkload` without its head."""

    uid: str
    run_time: RunTime
    shape: str
    not_before: datetime | None
    on_hold: bool

    @classmethod
    def of(cls, one: WaitingWorkload) -> WaitFacts:
        """Return the facts of a workload."""
        return cls(
            uid=one.head.uid, run_time=one.run_time, shape=one.shape, not_before=one.not_before, on_hold=one.on_hold
        )

    def whole(self, head: Head) -> WaitingWorkload:
        """Return the workload with its head."""
        return WaitingWorkload(
            head=head, run_time=self.run_time, shape=self.shape, not_before=self.not_before, on_hold=self.on_hold
        )


@value(kw_only=True)
class SentRun:
    """A `WorkloadRun` without the head of `waits_as`."""

    run_time: RunTime
    elapsed: int
    outlived: bool
    waits_as: WaitFacts | None


@value(kw_only=True)
class WaitingPart:
    """Some waiting workloads of a ClusterQueue, in its order."""

    queue: str
    workloads: tuple[WaitFacts, ...]


@value(kw_only=True)
class RunningPart:
    """Some running workloads, by UID."""

    of: Mapping[str, SentRun]


@value(kw_only=True)
class StartsAsked:
    """All that is left of a question; the process answers it.

    Args:
        flavors, admitted: the flavors with domains, and the ClusterQueues with workloads, of the snapshot that was sent
            before without these.
        strict: the ClusterQueues of the question, in their order, and whether each is strict.
        seconds: the time after which the drains stop.
        fingerprint: of all that the process should have.
    """

    number: int
    flavors: tuple[str, ...]
    admitted: tuple[str, ...]
    rules: Rules
    strict: Mapping[str, bool]
    order: OrderRules
    looks: SecondLooks
    bounds: DrainBounds
    line_of: Mapping[str, LineRule]
    planned: Mapping[str, str]
    seconds: float
    fingerprint: int


@value(kw_only=True)
class StartsPart:
    """Some start times, by UID."""

    number: int
    of: Mapping[str, StartTime]


@value(kw_only=True)
class StartsEnd:
    """The end of an answer: all besides the start times."""

    number: int
    rest: StartTimes


@value(kw_only=True)
class StartsFailed:
    """The process has failed on the question, or needs the state anew."""

    number: int
    problem: str
    is_resync: bool = False


def answer_parts(number: int, found: StartTimes) -> Iterator[StartsPart | StartsEnd]:
    """Yield an answer in parts, so that each is read in few milliseconds."""
    for some in parts(found.of.items(), _STARTS):
        yield StartsPart(number=number, of=dict(some))
    rest = StartTimes(of={}, assumptions=found.assumptions, tries=found.tries, is_complete=found.is_complete)
    yield StartsEnd(number=number, rest=rest)


class StartMessages:
    """The messages of one question."""

    def __init__(self, number: int, question: StartQuestion, seconds: float) -> None:
        """Read all of the state that may change after the call."""
        self._number, self._question, self._seconds = number, question, seconds
        snapshot = question.state.snapshot
        self._views: dict[str, Held] = held(snapshot.topologies)
        self._queues = tuple(snapshot.admitted)
        self._rest = dumped(
            Snapshot(
                queues=snapshot.queues,
                nodes=snapshot.nodes,
                flavors=snapshot.flavors,
                topologies={},
                inactive=snapshot.inactive,
                claims=snapshot.claims,
                promises=snapshot.promises,
                leaders=snapshot.leaders,
            )
        )

    def pieces(self, sent: Sent) -> Iterator[bytes]:
        """Yield the messages to a process that has already what was sent, which is changed."""
        question = self._question
        admitted: dict[str, dict[str, Admitted]] = {}
        for holder in question.state.holders:
            admitted.setdefault(holder.queue, {})[holder.key] = holder
        heads = {one.head.uid: one.head for line in question.lines for one in line.workloads}
        for running in question.running.values():
            if running.waits_as is not None:
                heads.setdefault(running.waits_as.head.uid, running.waits_as.head)
        yield from state_pieces(self._views, admitted, heads, sent)
        for line in question.lines:
            for some in parts(line.workloads, WORKLOADS):
                yield dumped(WaitingPart(queue=line.queue, workloads=tuple(map(WaitFacts.of, some))))
        for of in parts(question.running.items(), WORKLOADS):
            yield dumped(RunningPart(of={uid: _facts(running) for uid, running in of}))
        yield self._rest
        yield dumped(
            StartsAsked(
                number=self._number,
                flavors=tuple(self._views),
                admitted=self._queues,
                rules=question.state.rules,
                strict={line.queue: line.is_strict for line in question.lines},
                order=question.order,
                looks=question.looks,
                bounds=question.bounds,
                line_of=question.line_of,
                planned=question.planned,
                seconds=self._seconds,
                fingerprint=sent.fingerprint(),
            )
        )


def _facts(running: WorkloadRun) -> SentRun:
    waits_as = WaitFacts.of(running.waits_as) if running.waits_as is not None else None
    return SentRun(run_time=running.run_time, elapsed=running.elapsed, outlived=running.outlived, waits_as=waits_as)


class StartAssembly:
    """Puts the messages of questions together, in the process."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._state = Assembly()
        self._snapshot = Snapshot(queues={}, nodes={}, flavors={}, topologies={})
        self._waiting: dict[str, list[WaitFacts]] = {}
        self._running: dict[str, SentRun] = {}

    def take(self, message: object) -> tuple[StartsAsked, StartQuestion] | StartsFailed | None:
        """Take a message; return the question that it completes.

        `StartsFailed` with `is_resync`: messages were lost, so that another assembly has to begin with nothing.
        """
        match message:
            case WaitingPart():
                self._waiting.setdefault(message.queue, []).extend(message.workloads)
            case RunningPart():
                self._running.update(message.of)
            case Snapshot():
                self._snapshot = message
            case StartsAsked():
                if not self._state.has_all(message.fingerprint):
                    return StartsFailed(number=message.number, problem="messages were lost", is_resync=True)
                return message, self._question(message)
            case other:
                self._state.follow(other)
        return None

    def _question(self, asked: StartsAsked) -> StartQuestion:
        snapshot = self._state.snapshot(self._snapshot, asked.flavors, asked.admitted)
        waiting, running, self._waiting, self._running = self._waiting, self._running, {}, {}
        return StartQuestion(
            state=PlannedState(snapshot=snapshot, rules=asked.rules, holders=self._state.holders()),
            lines=tuple(
                Line(queue=queue, is_strict=strict, workloads=tuple(map(self._whole, waiting.get(queue, ()))))
                for queue, strict in asked.strict.items()
            ),
            running={
                uid: WorkloadRun(
                    run_time=facts.run_time,
                    elapsed=facts.elapsed,
                    outlived=facts.outlived,
                    waits_as=self._whole(facts.waits_as) if facts.waits_as is not None else None,
                )
                for uid, facts in running.items()
            },
            order=asked.order,
            looks=asked.looks,
            bounds=asked.bounds,
            line_of=asked.line_of,
            planned=asked.planned,
        )

    def _whole(self, facts: WaitFacts) -> WaitingWorkload:
        return facts.whole(self._state.head(facts.uid))
