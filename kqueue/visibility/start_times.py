"""Start times of waiting workloads: the view `starttimes`, and the part `pending.startTime` of explanations.

    GET namespaces/NS/starttimes        the workloads of a namespace
    GET starttimes                      those of all namespaces that the user may read

The times are computed in a child process, at most every 30 seconds, and only when somebody asks.  A user sees the
workloads of namespaces whose Workloads the user may read; others are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import structlog

from kqueue.clock import Clock, utc_text
from kqueue.core.future.question import StartQuestion, WaitingWorkload
from kqueue.core.future.start_times import Assumptions, StartsFailedError, StartTimes
from kqueue.core.future.told import WHOLE, ToldStart, no_start_sentence, stretched, told_start
from kqueue.core.mention import Mention
from kqueue.isolation import isolated, isolated_logged
from kqueue.runtime.deadline import within
from kqueue.runtime.store import ObjectKey, object_key
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only
from kqueue.visibility.question import JSON, AuthorizedQuestion, View
from kqueue.visibility.start_question import StartQuestions, with_added

T = TypeVar("T")

_log = structlog.get_logger(__name__)

LIST_KIND = "StartTimeList"
RENEWED_AFTER, KEPT_FOR = 30.0, 120.0
"""Seconds after which an answer is computed anew when somebody asks, and for which it is given meanwhile."""
_FIRST_WAIT = 2.0
"""Seconds for which an answer waits for start times that are not known yet."""
_RENEWAL_WAIT = 120.0
"""Seconds for which a caller waits that needs start times of now."""
_ADDED_WAIT = 8.0
"""Seconds for which an answer about workloads that do not exist waits for their start times."""
_QUESTIONS_WAIT = 12.0
"""The same for an answer about another state."""
_REST = 4
"""After start times of workloads that do not exist the child process rests so many times as long as they took."""
_LEAST_REST = 2.0
"""The least seconds between two answers about workloads that exist."""
_IDLE_SECONDS = 600.0
"""The time without a question after which the child process ends, which holds a copy of the state."""


class StartComputer(Protocol):
    """Computes start times beside the event loop."""

    async def ask(self, question: StartQuestion) -> StartTimes:
        """Return the start times.  Raises StartsFailedError: there are none."""
        ...

    async def stop(self) -> None:
        """End what the next question starts anew."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnswer:
    """Start times as of a moment.

    Args:
        uids: the UIDs of the workloads, by namespace/name.
        queues: the ClusterQueues of workloads that wait in one, by UID; a workload that leaves its hosts is in none.
        strict: the ClusterQueues with StrictFIFO.
        stretch: the thousandths by which the times until p90 are stretched, by ClusterQueue; others are not.
        left_out: what delays starts and took no time in the drains, by ClusterQueue (`StartQuestions.left_out`).
    """

    at: datetime
    computed: float
    found: StartTimes
    uids: Mapping[str, str]
    queues: Mapping[str, str]
    strict: frozenset[str]
    stretch: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def stretch_of(self, uid: str) -> int:
        """Return the thousandths by which the time until p90 of a workload is stretched."""
        return self.stretch.get(self.queues.get(uid, ""), WHOLE)


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """There are no start times now, for a reason."""

    message: str


async def _wait_for(work: asyncio.Task[None]) -> None:
    """Wait for the end of a task, which goes on if the wait is cancelled."""
    await asyncio.wait([work])


class StartTimesSource:
    """Start times, computed at a bounded rate."""

    def __init__(
        self,
        questions: StartQuestions,
        computer: StartComputer,
        *,
        clock: Clock,
        on_answer: Callable[[StartAnswer], Awaitable[None]] | None = None,
        stretch_of: Callable[[str], int] = lambda _queue: WHOLE,
    ) -> None:
        """`on_answer` is called with each new answer about the workloads that exist.  `stretch_of` returns the
        thousandths by which the times until p90 of a ClusterQueue are stretched.
        """
        self._questions, self._computer, self._clock = questions, computer, clock
        self._on_answer, self._stretch_of = on_answer, stretch_of
        self._answer: StartAnswer | None = None
        self._failure = ""
        self._asked_at, self._begun_at = clock.monotonic(), -RENEWED_AFTER
        self._rest = _LEAST_REST
        self._work: asyncio.Task[None] | None = None
        self._idle: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """Held while a question is read and answered."""
        self._added: asyncio.Task[None] | None = None
        self._rests_until = clock.monotonic()

    async def of_added(self, added: Sequence[WaitingWorkload]) -> StartAnswer | NoAnswer:
        """Return the start times that workloads would have which do not exist, beside all that wait.

        There is one such question at a time, with a rest behind it, so that questions of tenants take a fifth of a core
        at most.
        """
        return await self._aside(lambda: self._computed(added), _ADDED_WAIT)

    async def of_questions(self, questions: Sequence[StartQuestion]) -> list[StartTimes] | NoAnswer:
        """Return the start times of these questions, which are about other states than the present one.

        They take a turn with the questions of `of_added`, and rest like them.
        """
        return await self._aside(lambda: self._each(questions), _QUESTIONS_WAIT)

    async def _each(self, questions: Sequence[StartQuestion]) -> list[StartTimes]:
        async with self._turn:
            return [await self._computer.ask(question) for question in questions]

    async def _aside(self, compute: Callable[[], Awaitable[T]], wait: float) -> T | NoAnswer:
        """Compute start times of another question than that of all waiting workloads, and wait so many seconds."""
        now = self._asked_at = self._clock.monotonic()
        if self._added is not None or now < self._rests_until:
            return NoAnswer("start times are computed for other questions; ask again in some seconds")
        found: list[T | NoAnswer] = []
        self._added = asyncio.get_running_loop().create_task(self._compute_aside(compute, found), name="start times")
        self._wake_idle()
        with contextlib.suppress(TimeoutError):
            await within(self._clock, wait, _wait_for(self._added))
        return found[0] if found else NoAnswer(f"start times take longer than {wait:.0f} s to compute")

    async def _compute_aside(self, compute: Callable[[], Awaitable[T]], found: list[T | NoAnswer]) -> None:
        began = self._clock.monotonic()
        with isolated() as work:
            found.append(await compute())
        now = self._clock.monotonic()
        self._added, self._rests_until = None, now + _REST * (now - began)
        if work.error is not None:
            found.append(NoAnswer(f"start times are not known: {work.error}"))

    async def current(self, about: ObjectKey | None = None) -> StartAnswer | NoAnswer:
        """Return start times that are not older than two minutes; older than 30 seconds, they are renewed meanwhile.

        The first ones are waited for, but not for long.  So are those after a workload has come that the last ones do
        not know (`about`): they are renewed after a rest of four times as long as they took.
        """
        now = self._asked_at = self._clock.monotonic()
        answer = self._answer
        is_new = about is not None and answer is not None and about not in answer.uids
        after = self._rest if is_new else RENEWED_AFTER
        if answer is None or now - answer.computed >= after:
            self._begin(now, after)
        if answer is not None and now - answer.computed <= KEPT_FOR and (not is_new or self._work is None):
            return answer
        if self._work is not None:
            with contextlib.suppress(TimeoutError):
                await within(self._clock, _FIRST_WAIT, _wait_for(self._work))
        if self._work is not None:
            return NoAnswer("start times are being computed; ask again in some seconds")
        return self._last()

    async def renewed(self) -> StartAnswer | NoAnswer:
        """Return start times that are not older than 30 seconds, which may take minutes.

        After a failure the next ones are computed 30 seconds after the begin of the last ones.
        """
        now = self._asked_at = self._clock.monotonic()
        if self._answer is None or now - self._answer.computed >= RENEWED_AFTER:
            self._begin(now)
        if self._work is not None:
            with contextlib.suppress(TimeoutError):
                await within(self._clock, _RENEWAL_WAIT, _wait_for(self._work))
        return NoAnswer("start times take too long to compute") if self._work is not None else self._last()

    def _last(self) -> StartAnswer | NoAnswer:
        """Return the last answer, unless its renewal has failed."""
        if self._answer is None or self._failure:
            return NoAnswer(f"start times are not known: {self._failure or 'none were computed'}; ask again later")
        return self._answer

    def _begin(self, now: float, after: float = RENEWED_AFTER) -> None:
        if self._work is None and now - self._begun_at >= after:
            self._begun_at = now
            self._work = asyncio.get_running_loop().create_task(self._compute(), name="start times")
            self._wake_idle()

    def _wake_idle(self) -> None:
        """Watch for the end of questions, after which the child process ends."""
        if self._idle is None:
            self._idle = asyncio.get_running_loop().create_task(self._end_when_idle(), name="start times are idle")

    async def _compute(self) -> None:
        began = self._clock.monotonic()
        with isolated() as work:
            self._answer, self._failure = await self._computed(), ""
        self._rest = min(RENEWED_AFTER, max(_LEAST_REST, _REST * (self._clock.monotonic() - began)))
        if work.error is None and self._on_answer is not None and self._answer is not None:
            with isolated_logged(_log, "an answer with start times could not be followed"):
                await self._on_answer(self._answer)
        self._work = None
        if work.error is None:
            return
        self._failure = str(work.error)
        known = isinstance(work.error, StartsFailedError)
        _log.warning(
            "start times could not be computed, they are tried again when asked for",
            error=self._failure,
            exc_info=None if known else work.error,
        )

    async def _computed(self, added: Sequence[WaitingWorkload] = ()) -> StartAnswer:
        async with self._turn:
            at = self._clock.now()
            question, keys = await self._questions.read(at, RequestPace(self._clock))
            if added:
                question = with_added(question, added)
            found = await self._computer.ask(question)
        return StartAnswer(
            at=at,
            computed=self._clock.monotonic(),
            found=found,
            uids={key: uid for uid, key in keys.items() if uid in found.of},
            queues={one.head.uid: line.queue for line in question.lines for one in line.workloads},
            strict=frozenset(line.queue for line in question.lines if line.is_strict),
            stretch={line.queue: self._stretch_of(line.queue) for line in question.lines},
            left_out={line.queue: self._questions.left_out(line.queue) for line in question.lines},
        )

    async def _end_when_idle(self) -> None:
        while (left := self._asked_at + _IDLE_SECONDS - self._clock.monotonic()) > 0 or (
            self._work or self._added
        ) is not None:
            await self._clock.sleep(max(left, 1.0))
        self._idle = None
        await self._computer.stop()

    async def stop(self) -> None:
        """End what is under way."""
        for task in (self._work, self._added, self._idle):
            if task is not None:
                task.cancel()
        self._work = self._added = self._idle = None
        await self._computer.stop()


def told_starts(answer: StartAnswer) -> Iterator[ToldStart]:
    """Yield the start time of each workload of an answer, in the form of annotations, metrics and the record."""
    horizon, of = answer.found.assumptions.horizon, answer.found.of
    for key, uid in answer.uids.items():
        queue = answer.queues.get(uid, "")
        yield told_start(
            of[uid],
            uid=uid,
            key=key,
            queue=queue,
            at=answer.at,
            horizon=horizon,
            stretch=answer.stretch_of(uid),
        )


class StartTimeViews:
    """Answers with start times."""

    def __init__(self, source: StartTimesSource, clock: Clock) -> None:
        self._source, self._clock = source, clock

    async def every(self, asked: AuthorizedQuestion) -> JSON:
        """Return the start times of a namespace, or of all that the user may read, by ClusterQueue in its order.

        Raises:
            ConfigError: a parameter cannot be read.
        """
        only(asked.params)
        answer, pace, may = await self._source.current(), RequestPace(self._clock), _Reader(asked)
        if isinstance(answer, NoAnswer):
            return {"kind": LIST_KIND, "metadata": {}, "items": [], "message": answer.message}
        items, hidden = list[JSON](), 0
        for key, uid in answer.uids.items():
            await pace.step()
            namespace, _, name = key.partition("/")
            if asked.namespace not in ("", namespace):
                continue
            if not await may.read(namespace):
                hidden += 1
                continue
            shown: JSON = {"metadata": {"namespace": namespace, "name": name}}
            if uid in answer.queues:
                shown["clusterQueue"] = answer.queues[uid]
            items.append({**shown, "startTime": await shown_start(uid, answer, may)})
        return {
            "kind": LIST_KIND,
            "metadata": {},
            **_head(answer),
            "items": items,
            "hidden": hidden if not asked.namespace else 0,
        }

    async def of_added(self, asked: AuthorizedQuestion, added: Sequence[WaitingWorkload]) -> Mapping[str, JSON]:
        """Return the start times of workloads that do not exist, by UID, as explanations have them."""
        answer, may = await self._source.of_added(added), _Reader(asked)
        uids = [one.head.uid for one in added]
        if isinstance(answer, NoAnswer):
            return {uid: {"known": False, "message": answer.message} for uid in uids}
        head = _head(answer)
        return {uid: {**await shown_start(uid, answer, may), **head} for uid in uids if uid in answer.found.of}

    async def of_questions(self, questions: Sequence[StartQuestion]) -> list[StartTimes] | NoAnswer:
        """Return the start times of questions about other states than the present one."""
        return await self._source.of_questions(questions)

    async def stop(self) -> None:
        """End what computes start times."""
        await self._source.stop()

    def explained(self, explain: View) -> View:
        """Return the view of explanations with `pending.startTime`."""

        async def view(asked: AuthorizedQuestion) -> JSON:
            shown = await explain(asked)
            pending = shown.get("pending")
            if pending is not None:
                pending["startTime"] = await self._part(asked)
            return shown

        return view

    async def _part(self, asked: AuthorizedQuestion) -> JSON:
        key = object_key(asked.namespace, asked.name)
        answer = await self._source.current(key)
        if isinstance(answer, NoAnswer):
            return {"known": False, "message": answer.message}
        uid = answer.uids.get(key)
        if uid is None:
            return {"known": False, "message": f"it did not wait in a queue at {utc_text(answer.at)}; ask again later"}
        return {**await shown_start(uid, answer, _Reader(asked)), **_head(answer)}


class _Reader:
    """The namespaces that a user may read, for one answer."""

    def __init__(self, asked: AuthorizedQuestion) -> None:
        self._asked, self._known = asked, dict[str, bool]()

    async def read(self, namespace: str) -> bool:
        """Whether the user may read the Workloads of a namespace; empty: of all."""
        if namespace not in self._known:
            self._known[namespace] = await self._asked.reads(namespace)
        return self._known[namespace]


async def shown_start(uid: str, answer: StartAnswer, may: _Reader) -> JSON:
    """Return the start time of a workload of the answer as JSON."""
    start, queue = answer.found.of[uid], answer.queues.get(uid)
    shown: JSON = {"known": start.earlier is not None}
    first = start.earlier
    if first is not None:
        shown |= _time("p50", answer.at, first.seconds)
        shown["flavors"] = {name: list(flavors) for name, flavors in first.flavors.items()}
        if first.domains:
            shown["domains"] = [{"domain": list(path), "pods": pods} for path, pods in first.domains]
            if first.domain_count > len(first.domains):
                shown["moreDomains"] = first.domain_count - len(first.domains)
        if first.after_count:
            shown["after"] = await _workloads(first.after, first.after_count, may)
    if start.later is not None:
        stretch = answer.stretch_of(uid)
        shown |= _time("p90", answer.at, stretched(start.later.seconds, stretch))
        if stretch > WHOLE:
            shown["stretchPercent"] = 100 * stretch // WHOLE
    if start.reason is not None:
        shown["reason"] = str(start.reason.reason)
        shown["message"] = no_start_sentence(start.reason, answer.found.assumptions.horizon)
        if start.reason.count:
            shown["unknown"] = await _workloads(start.reason.workloads, start.reason.count, may)
    if queue is not None:
        shown["strategy"] = "StrictFIFO" if queue in answer.strict else "BestEffortFIFO"
        left_out = answer.left_out.get(queue, ())
        if left_out and start.earlier is not None:
            shown["leftOut"] = list(left_out)
    return shown


def _time(name: str, at: datetime, seconds: int) -> JSON:
    return {name: utc_text(at + timedelta(seconds=seconds)), f"{name}Seconds": seconds}


async def _workloads(some: Iterable[Mention], count: int, may: _Reader) -> JSON:
    """Return the workloads that the user may read by name, the number of workloads of a question that have no names
    yet, and the number of all others.
    """
    every = list(some)
    asked = sum(is_asked(one.key) for one in every)
    named = [one.key for one in every if not is_asked(one.key) and await may.read(one.namespace)]
    return {"workloads": named, "others": count - len(named) - asked, **({"asked": asked} if asked else {})}


def is_asked(key: str) -> bool:
    """Whether a key (namespace/name) is that of a workload of a simulation, which no object can have."""
    return "#" in key


def _head(answer: StartAnswer) -> JSON:
    """Return what all start times of an answer share."""
    return {
        "generatedAt": utc_text(answer.at),
        "complete": answer.found.is_complete,
        "assumptions": {
            **shown_assumptions(answer.found.assumptions),
            "arrivals": "no workload arrives, and nothing is changed",
        },
    }


def shown_assumptions(known: Assumptions) -> JSON:
    """Return the facts on which start times depend as JSON."""
    return {
        "horizonSeconds": known.horizon,
        "running": {str(source): count for source, count in sorted(known.running.items())},
        "waiting": {str(source): count for source, count in sorted(known.waiting.items())},
        "outlived": known.outlived,
        "unknown": known.unknown,
    }
