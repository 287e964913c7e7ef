"""Start times that were told: what the record keeps of them, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kqueue.core.decision import Admit, Decision
from kqueue.core.workload import Admission, Head
from kqueue.record.chain import DamagedRecordError
from kqueue.record.entries import FORMAT, Begin, End, StartTimesTold, ToldIntervalForm, to_text
from kqueue.record.queries import Filter, save
from kqueue.record.records import Record
from kqueue.record.ring import files_in
from kqueue.record.told import ToldInterval, ToldIntervals
from tests.builders import START
from tests.unit.record.recorded import cycles
from tests.unit.record.test_files import BEGIN, END, make_ring, recorded, write_chain
from tests.unit.record.test_recorder import Counts, make_recorder, plan_once

BEGIN_NOW = to_text(Begin(format=2, version="v9.9.9", time=START.isoformat()))


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def started(*uids: str) -> list[Decision]:
    heads = [Head(key=f"ns/{uid}", uid=uid, queue="q", priority=0, timestamp=START, pod_sets=()) for uid in uids]
    return [Admit(head=head, admission=Admission(queue="q", pod_sets=())) for head in heads]


def shown(some: Iterable[ToldInterval]) -> list[tuple[str, int, int | None]]:
    return [(one.uid, (one.at - START) // timedelta(seconds=1), one.p90) for one in some]


def test_the_first_and_the_last_told_interval_are_kept() -> None:
    """However often a start time is told, the record has two for each start."""
    told = ToldIntervals()
    for second in range(5):
        told.note(at(second), [("a", 10, 20 + second), ("b", 1, 2)])
    assert shown(told.taken([])) == [("a", 0, 20), ("b", 0, 2)]
    told.note(at(7), [("a", 10, 27)])
    assert shown(told.taken(started("a"))) == [("a", 7, 27)]
    assert shown(told.taken(started("a"))) == []
    assert shown(told.taken(started("b"))) == [("b", 4, 2)]


def test_the_first_interval_has_an_end() -> None:
    told = ToldIntervals()
    told.note(at(0), [("a", 10, None)])
    assert shown(told.taken([])) == []
    told.note(at(1), [("a", 10, 30)])
    told.note(at(2), [("a", 10, None)])
    assert shown(told.taken(started("a"))) == [("a", 1, 30), ("a", 2, None)]


def test_one_interval_is_first_and_last() -> None:
    told = ToldIntervals()
    told.note(at(0), [("a", 10, 20)])
    assert shown(told.taken(started("a"))) == [("a", 0, 20)]


def test_memory_and_entries_are_bounded() -> None:
    """The workloads that were told first are forgotten; a workload that starts comes before others that wait."""
    told = ToldIntervals(most=3, most_at_once=1)
    for second, uid in enumerate("abcd"):
        told.note(at(second), [(uid, 10, 20)])
    assert shown(told.taken(started("a", "d"))) == [("d", 3, 20), ("b", 1, 20)]
    assert shown(told.taken([])) == [("c", 2, 20)]
    assert shown(told.taken([])) == []


def test_told_intervals_are_read_with_the_next_cycle(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    intervals = [
        (ToldInterval("a", at(3), 5, 8), ToldInterval("b", at(3), 5, None)),
        (),
        (ToldInterval("a", at(4), 0, 0),),
    ]
    for captured, told in zip(cycles(5, 3), intervals, strict=True):
        captured.told = told
        ring.write(captured, START)
    ring.close()
    assert [found.told for found in Record(tmp_path / "ring").cycles()] == intervals


def test_a_recorder_writes_what_was_told(tmp_path: Path) -> None:
    recorder = make_recorder(tmp_path / "ring", Counts())
    recorder.note_start_times(START, [("a", 60, 90)])
    plan_once(recorder)
    recorder.stop()
    (found,) = Record(tmp_path / "ring").cycles()
    assert found.told == (ToldInterval("a", START, 60, 90),)


def test_a_recorder_without_cycles_writes_nothing(tmp_path: Path) -> None:
    """A process that does not lead answers, too; the files belong to the one that leads."""
    recorder = make_recorder(tmp_path / "ring", Counts())
    recorder.note_start_times(START, [("a", 60, 90)])
    recorder.stop()
    assert not (tmp_path / "ring").exists()


def test_a_saved_part_has_the_told_intervals_of_its_workloads(tmp_path: Path) -> None:
    ring = make_ring(tmp_path / "ring")
    captured, later = cycles(5, 2)
    decided = [decision.head.uid for decision in later.decisions]
    captured.told = [ToldInterval(decided[0], at(n), n, 9) for n in range(3)] + [ToldInterval("other", START, 1, 2)]
    for one in (captured, later):
        ring.write(one, START)
    ring.close()
    wanted = Filter(workload=decided[0])
    assert save(Record(tmp_path / "ring"), wanted, tmp_path / "part.kqrecord") >= 1
    told = [one for found in Record(tmp_path / "part.kqrecord").cycles() for one in found.told]
    assert shown(told) == [(decided[0], 0, 9), (decided[0], 2, 9)]


def test_files_of_the_form_without_told_intervals_are_read(tmp_path: Path) -> None:
    path = write_chain(tmp_path / "old.kqrecord", BEGIN, END)
    assert list(Record(path).cycles()) == []


def told_entry(*intervals: tuple[str, str, int, int | None]) -> bytes:
    return to_text(StartTimesTold(starts=[ToldIntervalForm(*one) for one in intervals]))


@pytest.mark.parametrize(
    ("begin", "entry", "says"),
    [
        pytest.param(BEGIN, told_entry(), "form 1 has no start times", id="older form"),
        pytest.param(BEGIN_NOW, told_entry(("a", "noon", 1, 2)), "time", id="time"),
        pytest.param(BEGIN_NOW, told_entry(("a", "2026-01-01T00:00:00", 1, 2)), "time zone", id="time without zone"),
        pytest.param(BEGIN_NOW, told_entry(("a", "9999-12-31T00:00:00Z", 1, 2)), "no year from 1970", id="last year"),
        pytest.param(BEGIN_NOW, told_entry(("a", "2026-01-01T00:00:00Z", 2, 1)), "interval 2 to 1", id="ends first"),
        pytest.param(BEGIN_NOW, told_entry(("a", "2026-01-01T00:00:00Z", -1, 1)), "interval -1 to 1", id="negative"),
        pytest.param(
            BEGIN_NOW, told_entry(("a", "2026-01-01T00:00:00Z", 0, 10**11)), "interval 0 to", id="beyond time"
        ),
        pytest.param(BEGIN_NOW, b'{"type":"told","starts":[["a",1,2,3]]}', "no entry of forms 1 to 3", id="types"),
        pytest.param(
            to_text(Begin(format=4, version="v10", time="")),
            told_entry(),
            "wrote form 4, this is form 3",
            id="newer form",
        ),
    ],
)
def test_forged_told_intervals_are_refused_with_the_place(
    tmp_path: Path, begin: bytes, entry: bytes, says: str
) -> None:
    path = write_chain(tmp_path / "forged.kqrecord", begin, entry, to_text(End()))
    with pytest.raises(DamagedRecordError, match=says) as raised:
        list(Record(path).cycles())
    assert raised.value.entry in (0, 1)


def test_more_told_intervals_than_a_cycle_may_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kqueue.record.records._MOST_TOLD", 2)
    entry = told_entry(*[("a", "2026-01-01T00:00:00Z", 1, 2)] * 3)
    with pytest.raises(DamagedRecordError, match="more than 2 start times"):
        list(Record(write_chain(tmp_path / "many.kqrecord", BEGIN_NOW, entry, END)).cycles())


def test_the_ring_writes_the_newest_form(tmp_path: Path) -> None:
    recorded(tmp_path / "ring", number=1)
    (path,) = files_in(tmp_path / "ring")
    assert next(Record(path).cycles()).begin.format == FORMAT
