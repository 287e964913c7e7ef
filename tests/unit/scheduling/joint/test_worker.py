"""The process that plans: the same plan from the same messages, and after any loss of the process."""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kqueue.core.joint.answer import PlanAnswer, answer_of
from kqueue.core.joint.migration import MigrationAnswer
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.running import RunningInput
from kqueue.core.lost_work import Checkpoints
from kqueue.scheduling.child import read, write
from kqueue.scheduling.joint import worker
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, RoundFailed, Sent, pieces
from kqueue.scheduling.joint.process import PlanningProcess, RoundFailedError
from tests.unit.core.joint.test_migration import FOUR, asked, crowded
from tests.unit.core.joint.test_never_worse import drawn

SEEDS = range(0, 40, 2)

ALONE = """
import sys
from kqueue.scheduling.joint.worker import serve
serve(sys.stdin.buffer, sys.stdout.buffer)
print(*sorted({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def messages(some: Iterable[RoundInput]) -> bytes:
    """The messages of rounds, one after the other, as the process gets them."""
    target, trees = io.BytesIO(), Sent()
    for number, given in enumerate(some):
        for data in pieces(number, replace(given, solver=None), trees):
            write(target, data)
    return target.getvalue()


def answers(data: bytes) -> Iterator[PlanAnswer]:
    """The answers, without the seconds that they took."""
    source = io.BytesIO(data)
    while (found := read(source)) is not None:
        answer = pickle.loads(found)
        assert isinstance(answer, PlanAnswer), answer
        yield replace(answer, seconds={})


def alone(file: Path, hash_seed: int) -> tuple[list[PlanAnswer], set[str]]:
    """The answers of a new interpreter to the messages in a file, and the packages that it has imported."""
    with file.open("rb") as source:
        done = subprocess.run(
            [sys.executable, "-c", ALONE],
            stdin=source,
            capture_output=True,
            check=True,
            env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        )
    return list(answers(done.stdout)), set(done.stderr.decode().split())


@pytest.mark.mechanism("2.22", "2.28")
def test_a_bare_interpreter_answers_a_file_as_any_other(tmp_path: Path) -> None:
    """J1.12: byte for byte, with another order of sets; and without a client of the API server."""
    file = tmp_path / "messages"
    file.write_bytes(messages(map(drawn, SEEDS)))
    first, packages = alone(file, 1)
    second, _ = alone(file, 2)
    assert len(first) == len(SEEDS)
    assert list(map(repr, first)) == list(map(repr, second))
    assert not packages & {"kubernetes_asyncio", "aiohttp", "pydantic", "uvloop", "prometheus_client"}
    here = [answer_of(number, plan_round(drawn(seed)), {}) for number, seed in enumerate(SEEDS)]
    assert list(map(repr, first)) == list(map(repr, here))


def test_messages_change_nothing() -> None:
    """The assembled input plans as the original one, with topologies that are known already."""
    assembly, trees = Assembly(), Sent()
    given = drawn(6)
    wanted = plan_round(given)
    assert wanted.units
    for number in range(3):
        (asked,) = [found for data in pieces(number, given, trees) if (found := assembly.take(data)) is not None]
        assert not isinstance(asked, Resync)
        assert not isinstance(asked, Resync)
        assert asked[0] == number
        assert isinstance(asked[1], RoundInput)
        assert repr(plan_round(replace(asked[1], solver=solver()))) == repr(wanted)


def test_running_workloads_come_with_the_round_and_not_with_the_next_one() -> None:
    assembly, trees = Assembly(), Sent()
    running = RunningInput(
        checkpoints={f"w{n}": Checkpoints(age=n) for n in range(300)},
        movable=tuple([RunningGang(key=f"ns/w{n}", queue="q", requests={}, places={}, usage={}) for n in range(50)]),
    )
    for given in (replace(drawn(6), running=running), drawn(6)):
        (asked,) = [found for data in pieces(1, given, trees) if (found := assembly.take(data)) is not None]
        assert not isinstance(asked, Resync)
        assert isinstance(asked[1], RoundInput)
        assert asked[1].running == given.running


def test_gains_follow_the_plan_of_a_round_with_movable_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    gang = RunningGang(key="ns/w", queue="q", requests={}, places={}, usage={})
    given = replace(drawn(6), running=RunningInput(movable=(gang,)))
    assert [type(one) for one in worker.answers(1, given)] == [PlanAnswer, MigrationAnswer]
    assert [type(one) for one in worker.answers(1, drawn(6))] == [PlanAnswer]

    def fail(_given: RoundInput) -> object:
        raise ValueError("no gain")

    monkeypatch.setattr(worker, "migration_gains", fail)
    plan, gains = worker.answers(1, given)
    assert isinstance(plan, PlanAnswer)
    assert gains == MigrationAnswer(round=1, problem="ValueError: no gain")
    monkeypatch.setattr(worker, "plan_round", fail)
    (failed,) = worker.answers(1, given)
    assert isinstance(failed, RoundFailed)


class Mortal(PlanningProcess):
    """A process that is killed before the message of this number."""

    def __init__(self, dies_before: int) -> None:
        super().__init__()
        self.left: int | None = dies_before

    async def _send(self, process: asyncio.subprocess.Process, data: bytes) -> None:
        if self.left == 0:
            self.left = None
            process.kill()
            await process.wait()
        if self.left is not None:
            self.left -= 1
        await super()._send(process, data)


ROUND = drawn(6)
MESSAGES = len(list(pieces(1, ROUND, Sent())))


@pytest.mark.slow
@pytest.mark.mechanism("2.29")
@pytest.mark.parametrize("before", range(MESSAGES))
async def test_the_next_process_gets_everything_anew(before: int) -> None:
    wanted = repr(answer_of(2, plan_round(ROUND), {}))
    planner = Mortal(before)
    async with asyncio.timeout(120):
        await planner.get_ready()
        with pytest.raises(RoundFailedError):
            await planner.plan(1, ROUND)
        await planner.get_ready()
        answer = await planner.plan(2, ROUND)
        await planner.stop()
    assert planner.starts == 2
    assert repr(replace(answer, seconds={})) == wanted


@pytest.mark.mechanism("2.29")
async def test_a_process_that_is_killed_while_it_plans_has_no_answer() -> None:
    planner = PlanningProcess()
    async with asyncio.timeout(120):
        await planner.get_ready()
        waiting = asyncio.ensure_future(planner.plan(1, ROUND))
        assert planner._process is not None
        planner._process.kill()
        with pytest.raises(RoundFailedError):
            await waiting
        await planner.get_ready()
        assert (await planner.plan(2, ROUND)).units == plan_round(ROUND).units
        await planner.stop()


class Late(PlanningProcess):
    """A process whose second answer, the gains of the first round, is read when `open` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.open = asyncio.Event()

    async def _answer(self, process: asyncio.subprocess.Process) -> object:
        self.reads += 1
        if self.reads == 2:
            await self.open.wait()
        return await super()._answer(process)


async def test_a_round_that_follows_at_once_gets_its_own_plan() -> None:
    """The gains of the first round are still on their way."""
    view, gangs = crowded()
    given, planner, seen = asked(view, [FOUR], gangs, waited=100), Late(), list[MigrationAnswer]()
    planner.on_gains = seen.append
    async with asyncio.timeout(120):
        await planner.get_ready()
        first = await planner.plan(1, given)
        following = asyncio.ensure_future(planner.plan(2, given))
        await asyncio.wait([following], timeout=0.5)
        assert (planner.reads, following.done()) == (2, False)
        planner.open.set()
        second = await following
        while len(seen) < 2:
            await asyncio.sleep(0.01)
        await planner.stop()
    assert [first.round, second.round] == [1, 2]
    assert [(one.round, one.problem, one.gains[0].gain) for one in seen] == [(1, "", 400), (2, "", 400)]
