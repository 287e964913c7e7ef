"""The process that computes start times: the same answers as here, and after any loss of the process."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from kqueue.core.future.question import StartQuestion
from kqueue.core.future.start_times import StartsFailedError, start_times
from kqueue.scheduling.future import worker
from kqueue.scheduling.future.frames import StartAssembly, StartMessages, StartsEnd, StartsFailed, StartsPart
from kqueue.scheduling.future.process import StartTimesProcess
from kqueue.scheduling.joint.frames import Sent
from tests.builders import make_head, make_snapshot
from tests.unit.core.future.worlds import ask, waits

LIMIT = 120


def question(first: int = 100) -> StartQuestion:
    """Two gangs that run in two racks, and three that wait."""
    running = [(make_head("a"), first), (make_head("b"), 250)]
    line = [waits(make_head(f"w{n}", age=9 - n), 60 + n) for n in range(3)]
    return ask(make_snapshot({"team": {"gpu": 64}}), running, line)


def test_the_messages_carry_the_whole_question() -> None:
    """The second time only changes are sent; what is assembled has the same answer each time."""
    assembly, sent, sizes = StartAssembly(), Sent(), []
    for number, first in enumerate((100, 100, 180)):
        pieces = list(StartMessages(number, question(first), 5.0).pieces(sent))
        sizes.append(len(pieces))
        (found,) = [done for data in pieces if (done := assembly.take(pickle.loads(data))) is not None]
        assert not isinstance(found, StartsFailed)
        assert start_times(found[1]) == start_times(question(first))
    assert sizes[1] < sizes[0]


def test_lost_messages_are_found_out() -> None:
    """The process asks for all of the state."""
    sent = Sent()
    list(StartMessages(1, question(), 5.0).pieces(sent))
    assembly = StartAssembly()
    found = [assembly.take(pickle.loads(data)) for data in StartMessages(2, question(), 5.0).pieces(sent)]
    assert found[-1] == StartsFailed(number=2, problem="messages were lost", is_resync=True)


async def test_the_process_answers_as_a_call() -> None:
    """Also a second time, when it has most of the state already."""
    process = StartTimesProcess()
    try:
        async with asyncio.timeout(LIMIT):
            for first in (100, 180):
                assert await process.ask(question(first)) == start_times(question(first))
        assert process.starts == 1
    finally:
        await process.stop()


class Mortal(StartTimesProcess):
    """A process that dies while it computes its first answer."""

    async def _answer(self, process: asyncio.subprocess.Process) -> object:
        if self.starts == 1:
            process.kill()
            await process.wait()
        return await super()._answer(process)


async def test_a_process_that_dies_costs_one_answer() -> None:
    """The next question has a new process."""
    process = Mortal()
    try:
        async with asyncio.timeout(LIMIT):
            with pytest.raises(StartsFailedError, match="has failed"):
                await process.ask(question())
            assert await process.ask(question()) == start_times(question())
        assert process.starts == 2
    finally:
        await process.stop()


async def test_a_process_that_hangs_is_killed() -> None:
    """The deadline is that of the question, and a time beyond it."""
    process = StartTimesProcess(seconds=0.0, grace=0.0)
    async with asyncio.timeout(LIMIT):
        with pytest.raises(StartsFailedError, match="not answered in time"):
            await process.ask(question())
    assert process._process is None


def test_a_drain_beyond_its_time_stops() -> None:
    """The answer says that it is not complete."""
    assembly, sent = StartAssembly(), Sent()
    (found,) = [
        done
        for data in StartMessages(1, question(), -1.0).pieces(sent)
        if (done := assembly.take(pickle.loads(data))) is not None
    ]
    assert not isinstance(found, StartsFailed)
    parts = list(worker.answers(*found))
    assert isinstance(parts[-1], StartsEnd)
    assert not parts[-1].rest.is_complete
    assert isinstance(parts[0], StartsPart)
    assert set(parts[0].of) == {"w0", "w1", "w2"}


def test_a_bug_in_a_drain_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process goes on."""

    def fail(*_args: object, **_more: object) -> None:
        raise ValueError("no such rack")

    assembly, sent = StartAssembly(), Sent()
    (found,) = [
        done
        for data in StartMessages(1, question(), 5.0).pieces(sent)
        if (done := assembly.take(pickle.loads(data))) is not None
    ]
    assert not isinstance(found, StartsFailed)
    monkeypatch.setattr(worker, "start_times", fail)
    assert list(worker.answers(*found)) == [StartsFailed(number=1, problem="ValueError: no such rack")]
