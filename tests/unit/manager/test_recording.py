"""Start times that users are told reach the record."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from kqueue.clock import FakeClock
from kqueue.manager.recording import recording_answers
from kqueue.record.records import Record
from kqueue.visibility.start_times import StartAnswer, StartTimesSource
from tests.unit.record.test_recorder import Counts, make_recorder, plan_once
from tests.unit.visibility.test_start_times import FOR, Cluster


async def test_each_answer_is_recorded_with_its_interval(tmp_path: Path) -> None:
    """The third workload of the answer has no start time, and nothing was told of it."""
    cluster = Cluster()
    clock, recorder = cluster.world.clock, make_recorder(tmp_path / "ring", Counts())
    cluster.source = StartTimesSource(
        cluster.source._questions, cluster.computer, clock=clock, on_answer=recording_answers(recorder, clock)
    )
    answer = await cluster.source.current()
    assert isinstance(answer, StartAnswer)
    plan_once(recorder)
    recorder.stop()
    (found,) = Record(tmp_path / "ring").cycles()
    assert {one.uid: (one.at, one.p90 - one.p50 if one.p90 else None) for one in found.told} == {
        answer.uids[key]: (answer.at, 0) for key in ("ns/first", "other/second")
    }
    assert max(one.at + timedelta(seconds=one.p50) for one in found.told) <= clock.now() + timedelta(seconds=FOR + 60)


def test_without_a_record_nothing_follows_answers() -> None:
    assert recording_answers(None, FakeClock()) is None
