"""A planner of rounds in this process, on the fake clock, with faults that a seed decides.

It goes the way of the child process: the messages of a round are encoded one by one while the world goes on, and are
put together again; the answer is bytes, too.  Every plan is checked before it is sent.
"""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any, NoReturn
from unittest import mock

from kqueue.clock import Clock
from kqueue.core.hints import PlanHint
from kqueue.core.joint.answer import PlanAnswer, PlannedEntry, answer_of
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, NoPlan
from kqueue.core.joint.migration import MigrationAnswer
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.manager import joint as manager_joint
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, Sent, pieces, search_pieces
from kqueue.scheduling.joint.process import RoundFailedError
from tests.sim.joint_checks import faults_of_plan
from tests.sim.terms import TermedOperator

NEVER = 1_000_000.0
_SOON = (0.0, 0.0, 0.0, 0.05, 0.3, 1.0, 3.0)
"""Seconds that a plan takes."""


class PlannerFault(StrEnum):
    """What goes wrong in a round."""

    NONE = "none"
    NO_START = "the process cannot be started"
    NEVER_READY = "the process does not get ready"
    KILLED_BEFORE = "the process is killed while messages are sent"
    KILLED_WHILE = "the process is killed while it plans"
    KILLED_AFTER = "the process is killed before it answers"
    NO_ANSWER = "the process never answers"
    LATE = "the answer comes after the time limit"
    OTHER_ROUND = "the answer is of another round"
    STRANGER = "the answer names an unknown workload"
    TOO_FEW = "the answer lacks a workload"
    OVERDRAWN = "the answer gives one host to all"
    NONSENSE = "the answer names hosts, flavors and pod sets that do not exist"
    SPLIT = "the answer has too few pods of each gang"


ANSWERED = frozenset({PlannerFault.NONE, PlannerFault.SPLIT})
"""Faults with which the plan of a round is carried out all the same: each hint is checked by the cycle."""


@dataclass(slots=True, kw_only=True)
class AskedRound:
    """One round as the planner has seen it.

    Args:
        process: the number of the controller process, and `term` its term of leadership.
        world: what the round depends on, as bytes.
        answer: None: there is none, or it is of no use.
    """

    number: int
    process: int
    term: int
    at: float
    era: tuple[float, ...]
    fault: PlannerFault
    uids: tuple[str, ...]
    world: bytes
    messages: int = 0
    answer: PlanAnswer | None = None
    given_up: bool = False


@dataclass(slots=True)
class Desk:
    """All rounds of a world, and the faults that come: those in `next`, then drawn ones."""

    seed: int | str
    per_thousand: int = 0
    """Rounds of a thousand that have a drawn fault."""
    slow: bool = False
    """Whether plans take time."""
    era: Callable[[], tuple[float, ...]] = lambda: ()
    next: list[PlannerFault] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)
    """Seconds that the next plans take."""
    rounds: list[AskedRound] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    processes: int = 0
    kill_at: int | None = None
    """The message before which the process is killed, once; None: a drawn one."""
    searches: int = 0
    """Searches for moves that have an answer."""
    chance: random.Random = field(init=False)
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        """Seed the choices."""
        self.chance = random.Random(f"{self.seed}/planner")

    def draw(self) -> PlannerFault:
        """Return the fault of the next round."""
        struck, drawn = self.chance.randrange(1000) < self.per_thousand, self.chance.choice(list(PlannerFault))
        return self.next.pop(0) if self.next else drawn if struck else PlannerFault.NONE

    def calm(self) -> None:
        """Let nothing go wrong any more."""
        self.per_thousand, self.slow = 0, False
        self.next.clear()
        self.delays.clear()

    def operator(self) -> Callable[..., TermedOperator]:
        """Return a maker of controller processes whose rounds are planned here."""
        return partial(_operator, self)


def _operator(desk: Desk, **given: Any) -> TermedOperator:
    desk.processes, desk.clock = desk.processes + 1, given["clock"]
    planner = SimulatedPlanner(desk, desk.processes)
    with mock.patch.object(manager_joint, "PlanningProcess", return_value=planner):
        planner.operator = TermedOperator(**given)
    return planner.operator


class SimulatedPlanner:
    """Plans rounds for one controller process."""

    operator: TermedOperator

    on_gains: Callable[[MigrationAnswer], None]
    resyncs = 0

    def __init__(self, desk: Desk, process: int) -> None:
        self._desk, self._process = desk, process
        self._fault = PlannerFault.NONE
        self._ends: tuple[Assembly, Sent] | None = None
        self._find = solver() if desk.chance.random() < 0.75 else None  # a process without OR-tools has no bounds
        self.starts = 0
        self._turn = asyncio.Lock()

    async def get_ready(self) -> None:
        """Wait for the end of a search, and start the process unless it runs."""
        async with self._turn:
            await self._start()

    async def _start(self) -> None:
        desk = self._desk
        self._fault = desk.draw()
        if self._fault is PlannerFault.NO_START:
            await self.stop()
            raise RoundFailedError("the planning process does not start: out of memory")
        if self._fault is PlannerFault.NEVER_READY:
            await self.stop()
            await desk.clock.sleep(NEVER)
        if self._ends is None:
            self.starts += 1
            self._ends = Assembly(), Sent()

    def plan(self, number: int, given: RoundInput) -> Coroutine[Any, Any, PlanAnswer]:
        """Return the plan of a round; see `RoundPlanner`."""
        assert self._ends is not None, "it is ready"
        whole = list(pieces(number, given, Sent()))
        messages = pieces(number, given, self._ends[1])
        asked = AskedRound(
            number=number,
            process=self._process,
            term=self.operator.terms,
            at=self._desk.clock.monotonic(),
            era=self._desk.era(),
            fault=self._fault,
            uids=tuple(head.uid for head in given.batch.heads()),
            world=b"",
        )
        self._desk.rounds.append(asked)
        return self._exchange(asked, [next(messages)], messages, whole)

    async def _exchange(
        self, asked: AskedRound, first: list[bytes], others: Iterator[bytes], whole: list[bytes]
    ) -> PlanAnswer:
        async with self._ended_unless_done() as ends:
            ends.callback(_note_end, asked)
            return await self._answer(asked, await self._sent(asked, first, others), whole)

    @asynccontextmanager
    async def _ended_unless_done(self) -> AsyncIterator[ExitStack]:
        """End the process if the block does not come to its end, also when it is cancelled; yield further ends."""
        async with AsyncExitStack() as process:
            process.push_async_callback(self.stop)
            with ExitStack() as ends:
                yield ends
                ends.pop_all()
            process.pop_all()

    async def _sent(self, asked: AskedRound, first: list[bytes], others: Iterator[bytes]) -> RoundInput:
        """Send the messages one by one; return what has arrived."""
        assert self._ends is not None, "it is ready"
        assembly, arrived = self._ends[0], None
        dies = self._desk.kill_at if self._desk.kill_at is not None else self._desk.chance.randrange(8)
        for part in (first, others):
            for data in part:
                if self._fault is PlannerFault.KILLED_BEFORE and asked.messages == dies:
                    _lost(asked)
                arrived = assembly.take(data)
                asked.messages += 1
                await self._desk.clock.sleep(0)
        if self._fault is PlannerFault.KILLED_BEFORE:
            _lost(asked)
        assert arrived is not None, "the last message asks"
        assert not isinstance(arrived, Resync), "no message is lost"
        number, given = arrived
        assert number == asked.number, "rounds are not mixed up"
        assert isinstance(given, RoundInput), "rounds and searches are not mixed up"
        return given

    async def _answer(self, asked: AskedRound, given: RoundInput, whole: list[bytes]) -> PlanAnswer:
        desk = self._desk
        asked.world = _world_of(given)
        if asked.world != _world_of(_assembled(whole)):
            desk.breaches.append(f"round {asked.number} was planned on a state that changed while it was sent")
        if self._fault in (PlannerFault.NO_ANSWER, PlannerFault.LATE):
            await desk.clock.sleep(NEVER if self._fault is PlannerFault.NO_ANSWER else 5.0 + desk.chance.random())
        drawn = desk.chance.choice(_SOON) if desk.slow else 0.0
        seconds = desk.delays.pop(0) if desk.delays else drawn
        if seconds:
            await desk.clock.sleep(seconds)
        if self._fault is PlannerFault.KILLED_WHILE:
            _lost(asked)
        given = replace(given, solver=self._find)
        plan = plan_round(given)
        desk.breaches += [f"round {asked.number}: {told}" for told in faults_of_plan(given, plan)]
        if self._fault is PlannerFault.KILLED_AFTER:
            _lost(asked)
        answer: PlanAnswer = pickle.loads(pickle.dumps(answer_of(asked.number, plan, {"search": 0.0})))
        if self._fault in ANSWERED:
            asked.answer = answer
        return _forged(answer, self._fault)

    async def search(self, question: DefragQuestion) -> DefragPlan | NoPlan:
        """Return the answer to a search for moves; a drawn fault is a process that is lost."""
        async with self._turn:
            if self._ends is None:
                self.starts += 1
                self._ends = Assembly(), Sent()
            assembly, trees = self._ends
            arrived = None
            async with self._ended_unless_done():
                for data in search_pieces(1, question, trees):
                    arrived = assembly.take(data)
                    await self._desk.clock.sleep(0)
                if self._desk.chance.randrange(1000) < self._desk.per_thousand:
                    raise RoundFailedError("the planning process has ended in a search")
            assert arrived is not None, "the last message asks"
            assert not isinstance(arrived, Resync), "no message is lost"
            asked = arrived[1]
            assert isinstance(asked, DefragQuestion), "rounds and searches are not mixed up"
            self._desk.searches += 1
            found: DefragPlan | NoPlan = pickle.loads(pickle.dumps(asked.answer()))
            return found

    async def stop(self) -> None:
        """End the process, with all that it knows."""
        self._ends = None


def _note_end(asked: AskedRound) -> None:
    """Note that a round is given up, if it has no answer."""
    asked.given_up = asked.answer is None


def _lost(asked: AskedRound) -> NoReturn:
    raise RoundFailedError(f"the planning process has ended in round {asked.number}")


def _assembled(messages: list[bytes]) -> RoundInput:
    assembly = Assembly()
    (found,) = [found for data in messages if (found := assembly.take(data)) is not None]
    assert not isinstance(found, Resync), "no message is lost"
    assert isinstance(found[1], RoundInput), "a round was sent"
    return found[1]


def _world_of(given: RoundInput) -> bytes:
    """Return what a plan depends on, but for the time: workloads, free amounts, and who holds quota."""
    snapshot = given.state.snapshot
    views = {
        name: (view.tree.levels, [leaf.path for leaf in view.tree.leaves], view.capacity.tables()[1].tolist())
        for name, view in snapshot.topologies.items()
    }
    held = {queue: sorted(w.uid for w in some.values()) for queue, some in snapshot.admitted.items()}
    batch = {queue: [head.uid for head in heads] for queue, heads in given.batch.queues.items()}
    specs = {name: repr(spec) for name, spec in snapshot.queues.items()}
    claims = sorted(claim.uid for claim in snapshot.claims)
    return repr((sorted(views.items()), sorted(held.items()), batch, sorted(specs.items()), claims)).encode()


def _forged(answer: PlanAnswer, fault: PlannerFault) -> PlanAnswer:
    """Return the answer with its fault."""
    entries = answer.entries
    match fault:
        case PlannerFault.OTHER_ROUND:
            return replace(answer, round=answer.round + 1)
        case PlannerFault.STRANGER:
            return replace(answer, entries=(replace(entries[0], uid="nobody", key="default/nobody"), *entries[1:]))
        case PlannerFault.TOO_FEW:
            return replace(answer, entries=entries[1:])
        case PlannerFault.OVERDRAWN:
            hosts = [path for e in entries if e.is_admitted and e.hint for p in e.hint.places.values() for path, _ in p]
            return _with_hints(answer, lambda hint: _all_on(hint, hosts[0]) if hosts else hint)
        case PlannerFault.SPLIT:
            return _with_hints(answer, lambda hint: replace(hint, places={n: p[:1] for n, p in hint.places.items()}))
        case PlannerFault.NONSENSE:
            where = [(("nowhere", "nothing", "no-host"), 3)]
            lie = partial(replace, flavors={"main": {"cpu": "no-flavor"}, "other": {}}, places={"other": where})
            return _with_hints(answer, lie)
        case _:
            return answer


def _all_on(hint: PlanHint, host: tuple[str, ...]) -> PlanHint:
    return replace(hint, places={name: [(host, sum(n for _, n in places))] for name, places in hint.places.items()})


def _with_hints(answer: PlanAnswer, change: Callable[[PlanHint], PlanHint]) -> PlanAnswer:
    def changed(entry: PlannedEntry) -> PlannedEntry:
        return replace(entry, hint=change(entry.hint)) if entry.is_admitted and entry.hint is not None else entry

    return replace(answer, entries=tuple(changed(entry) for entry in answer.entries))
