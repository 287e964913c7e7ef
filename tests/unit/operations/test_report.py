"""Figures of reports, against values that were computed by hand from the cycles of small records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from kqueue.core.workload import Leader
from kqueue.errors import ConfigError
from kqueue.operations.report.figures import (
    ALL_QUEUES,
    MADE_WAY,
    NOT_RECORDED,
    CoverageFigures,
    PackingFigures,
    QueueReport,
    UseFigures,
    WaitFigures,
    at_tenth,
)
from kqueue.operations.report.reading import read_report
from kqueue.operations.report.use import Slots
from kqueue.record.chain import DamagedRecordError
from kqueue.record.records import Record
from kqueue.record.told import ToldInterval
from tests.builders import START
from tests.recorded_days import COLUMN, make_question, record_day
from tests.unit.operations.small_records import GPUS, SmallRecord, admits, at, head, held, preempts, waits

HOUR = 3600


@pytest.fixture
def record(tmp_path: Path) -> SmallRecord:
    return SmallRecord(tmp_path / "record")


def reported(record: SmallRecord, since: datetime | None = None, until: datetime | None = None) -> QueueReport:
    return read_report(Record(record.closed()), since, until)


@pytest.mark.parametrize(
    ("values", "tenths", "expected"),
    [
        pytest.param([], 5, None, id="none"),
        pytest.param([7], 9, 7, id="one"),
        pytest.param([1, 2], 5, 2, id="the higher one of two"),
        pytest.param(list(range(10)), 9, 9, id="of ten"),
        pytest.param(list(range(11)), 9, 9, id="of eleven"),
    ],
)
def test_values_at_tenths(values: Sequence[int], tenths: int, expected: int | None) -> None:
    assert at_tenth(values, tenths) == expected


# --- waits


def test_waits_are_from_the_line_to_the_decision(record: SmallRecord) -> None:
    record.cycle(10, admits(head("w1", came=0)), waits(head("w2", came=4)), admits(head("w3", "b", came=9)))
    record.cycle(40, admits(head("w2", came=4)), waits(head("w4", came=35)), holds=[held("w1"), held("w3", "b")])
    record.cycle(60, waits(head("w4", came=35)), holds=[held("w1"), held("w2")])
    found = reported(record).waits
    # a: 10 and 36 seconds, w4 waits for 25; b: 1 second
    assert found["a"] == WaitFigures(starts=2, mean=23, p50=36, p90=36, longest=36, waiting=1, longest_waiting=25)
    assert found["b"] == WaitFigures(starts=1, mean=1, p50=1, p90=1, longest=1, waiting=0, longest_waiting=None)
    assert found[ALL_QUEUES] == WaitFigures(
        starts=3, mean=15, p50=10, p90=36, longest=36, waiting=1, longest_waiting=25
    )


def test_an_admission_that_was_not_carried_out_is_no_start(record: SmallRecord) -> None:
    """The next cycle does not hold the workload and tries it again."""
    record.cycle(10, admits(head("w1", came=0)))
    record.cycle(20, admits(head("w1", came=0)))
    record.cycle(30, holds=[held("w1")])
    found = reported(record)
    assert found.waits["a"].starts == 1
    assert found.waits["a"].longest == 20
    assert found.record.not_carried_out == 1


def test_a_stay_that_ended_between_two_cycles_is_a_start(record: SmallRecord) -> None:
    record.cycle(10, admits(head("w1", came=0)))
    record.cycle(20, waits(head("w2", came=15)))
    assert reported(record).waits["a"].starts == 1


def test_an_evicted_workload_is_in_line_again_since_it_was_gone(record: SmallRecord) -> None:
    """Its place in line may be that of its creation, and the time in which it ran is no wait."""
    record.cycle(10, admits(head("w1", came=0)))
    record.cycle(100, holds=[held("w1", evicted=True)])
    record.cycle(110, waits(head("w1", came=0)))
    record.cycle(130, admits(head("w1", came=0)))
    record.cycle(140, holds=[held("w1")])
    assert reported(record).waits["a"] == WaitFigures(
        starts=2, mean=15, p50=20, p90=20, longest=20, waiting=0, longest_waiting=None
    )


def test_workloads_that_run_since_before_the_record_are_no_starts(record: SmallRecord) -> None:
    """A workload that has quota later, without a decision in the record, is a start that the record does not have."""
    record.cycle(10, waits(head("w2", came=5)), holds=[held("w1")])
    record.cycle(20, waits(head("w2", came=5)), holds=[held("w1"), held("w3")])
    found = reported(record)
    assert (found.waits["a"].starts, found.record.unseen_starts) == (0, 1)


def test_a_clock_that_steps_back_makes_no_wait_negative(record: SmallRecord) -> None:
    record.cycle(100, admits(head("w1", came=0)))
    record.cycle(50, admits(head("w2", came=70)), holds=[held("w1")])
    record.cycle(120, holds=[held("w1"), held("w2")])
    found = reported(record)
    assert found.record.steps_back == 1
    assert found.waits["a"].longest == 100
    assert found.waits["a"].p50 == 100
    assert found.waits["a"].mean == 65  # 100 and 30
    assert (found.record.begin, found.record.end) == (at(100), at(120))


# --- use


def test_use_is_between_what_was_decided_and_what_the_next_cycle_saw(record: SmallRecord) -> None:
    """4 of 10 GPUs from second 0 on, gone at some time between seconds 100 and 200; 2 from 200 to 300."""
    record.cycle(0, admits(head("w1"), gpus=4))
    record.cycle(100, waits(head("w2", came=90)), holds=[held("w1", gpus=4)])
    record.cycle(200, admits(head("w2", came=90), gpus=2))
    record.cycle(300, holds=[held("w2", gpus=2)])
    found = reported(record)
    assert found.use["a", GPUS] == UseFigures(
        seconds=300, nominal=10, least=2, most=3, least_percent=20, most_percent=33
    )  # (400 + 0 + 200) and (400 + 400 + 200) of 3000
    assert found.use["b", GPUS] == UseFigures(seconds=300, nominal=10, least=0, most=0, least_percent=0, most_percent=0)
    assert found.use[ALL_QUEUES, GPUS].most_percent == 16
    assert found.use[ALL_QUEUES, GPUS].nominal == 20


def test_use_behind_the_last_cycle_is_not_counted(record: SmallRecord) -> None:
    """Nor is that before the first one, wherever the report begins."""
    record.cycle(0, holds=[held("w1", gpus=5)])
    record.cycle(100, holds=[held("w1", gpus=5)])
    found = reported(record, at(-1000), at(1000))
    assert found.use["a", GPUS].seconds == 100
    assert found.use["a", GPUS].most_percent == 50


def test_quotas_that_change_count_for_their_time(record: SmallRecord) -> None:
    record.cycle(0, holds=[held("w1", gpus=5)])
    record.nominal = 40
    record.cycle(100, holds=[held("w1", gpus=5)])
    record.cycle(200, holds=[held("w1", gpus=5)])
    found = reported(record).use["a", GPUS]
    assert (found.nominal, found.least_percent, found.most_percent) == (25, 20, 20)


def test_use_without_nominal_quota_has_no_percentage(record: SmallRecord) -> None:
    record.nominal = 0
    record.cycle(0, holds=[held("w1", gpus=5)])
    record.cycle(100, holds=[held("w1", gpus=5)])
    found = reported(record).use["a", GPUS]
    assert (found.most, found.least_percent, found.most_percent) == (5, None, None)


def test_use_over_time_is_in_slots(record: SmallRecord) -> None:
    record.cycle(0, admits(head("w1"), gpus=10))
    record.cycle(60, admits(head("w2"), gpus=10), holds=[held("w1", gpus=10)])
    record.cycle(120, holds=[held("w1", gpus=10), held("w2", gpus=10)])
    found = reported(record)
    assert found.slot_seconds == 60
    assert [(100 * slot.least // slot.nominal) for slot in found.use_over_time[GPUS]] == [50, 100]


def test_slots_become_longer_and_keep_their_sums() -> None:
    slots = Slots(most=4)
    minute = 60 * 1_000_000
    for number in range(9):
        slots.add(GPUS, number * minute, (number + 1) * minute, (10, number, number))
    assert slots.length == 4 * minute
    assert [slot.most // minute for slot in slots.found()[GPUS]] == [0 + 1 + 2 + 3, 4 + 5 + 6 + 7, 8]


def test_a_simulated_day_is_within_the_bounds(tmp_path: Path) -> None:
    """What the simulation did is known: its use is between both bounds, its starts and evictions are those of the report."""
    day = record_day(make_question(11, 80, size=(1, 4, 8), seconds=4 * HOUR), tmp_path / "record")
    found = read_report(Record(tmp_path / "record"))
    begin, end = ((time - START) // timedelta(seconds=1) for time in (found.record.begin, found.record.end))
    stays = day.stays
    used = sum(stay.usage[COLUMN] * (min(stay.until or end, end) - stay.start) for stay in stays if stay.start < end)
    bounds = found.use_over_time[COLUMN]
    least, most = sum(slot.least for slot in bounds), sum(slot.most for slot in bounds)
    assert 0 < least <= used * 1_000_000 <= most
    assert most - least < least // 5
    assert found.waits[ALL_QUEUES].starts == len(stays) > 40
    assert sum(found.evictions.values()) == 2 * sum(stay.was_evicted for stay in stays) > 0
    assert begin == min(stay.start for stay in stays)
    again = sum(stay.was_evicted for stay in stays) - (len(stays) - len(day.first_starts()))
    assert 0 < found.waits[ALL_QUEUES].waiting <= 80 - len(day.first_starts()) + again  # some were never tried
    placed = [stay.domains for stay in stays]
    assert found.packing[ALL_QUEUES, "rack"].used == sum(placed)


# --- spans of time


def test_a_span_counts_what_happened_in_it_and_knows_what_was_before(record: SmallRecord) -> None:
    record.cycle(0, admits(head("w1"), gpus=4), waits(head("w2", came=0)))
    record.cycle(100, waits(head("w2", came=0)), holds=[held("w1")])
    record.cycle(200, admits(head("w2", came=0), gpus=4), holds=[held("w1")])
    record.cycle(300, holds=[held("w1"), held("w2")])
    record.cycle(400, admits(head("w9", came=0)))
    found = reported(record, at(150), at(350))
    assert found.waits["a"].starts == 1
    assert found.waits["a"].longest == 200
    assert found.record.cycles == 2
    assert (found.record.begin, found.record.end) == (at(200), at(300))
    assert found.use["a", GPUS].seconds == 150
    assert found.use["a", GPUS].least == 6  # (50 * 4 + 100 * 8) / 150
    assert found.record.unseen_starts == 0


def test_a_span_without_cycles_is_refused_with_the_times_of_the_record(record: SmallRecord) -> None:
    record.cycle(0)
    record.cycle(60)
    with pytest.raises(ConfigError, match=r"it has .*T\d\d:00:00.* to .*T\d\d:01:00.*change --from and --to"):
        reported(record, at(HOUR))
    with pytest.raises(ConfigError, match="and no other: change"):
        reported(record, None, at(0))


# --- packing and evictions


def test_packing_compares_domains_with_the_fewest_possible(record: SmallRecord) -> None:
    record.cycle(0, admits(head("w1"), levels=[("block", 1, 1), ("rack", 3, 2)]), admits(head("w2", "b")))
    record.cycle(1, admits(head("w3"), levels=[("block", 1, 1), ("rack", 2, 2)]))
    record.cycle(2)
    found = reported(record).packing
    assert found == {
        (queue, level): PackingFigures(searches=2, used=used, fewest=fewest, tight=tight)
        for queue in (ALL_QUEUES, "a")
        for level, used, fewest, tight in (("block", 2, 2, 2), ("rack", 5, 4, 1))
    }


def test_evictions_have_their_cause_or_say_that_it_is_missing(record: SmallRecord) -> None:
    """A preemption that is decided again before its victim is marked counts once, also when the mark is seen."""
    runs = [held("w1"), held("w2"), held("w3", "b")]
    record.cycle(0, preempts(head("p", "b"), runs[0]), holds=runs)
    record.cycle(10, preempts(head("p", "b"), runs[0]), holds=runs)
    record.cycle(20, waits(head("p", "b")), holds=[held("w1", evicted=True), held("w2", evicted=True), runs[2]])
    record.cycle(30, holds=[held("w2", evicted=True), held("w3", "b")])
    assert reported(record).evictions == {
        (ALL_QUEUES, "InCohortReclamation"): 1,
        (ALL_QUEUES, NOT_RECORDED): 1,
        ("a", "InCohortReclamation"): 1,
        ("a", NOT_RECORDED): 1,
    }


def test_a_workload_that_was_evicted_before_the_record_is_no_eviction(record: SmallRecord) -> None:
    record.cycle(0, holds=[held("w1", evicted=True)])
    record.cycle(10, holds=[held("w1", evicted=True)])
    assert reported(record).evictions == {}


def test_a_gang_that_makes_way_is_an_eviction(record: SmallRecord) -> None:
    leader = Leader(key="ns/g", workload="ns/w1", uid="w1", queue="a", priority=0, scheduled=1, quorum=2, until=at(99))
    record.cycle(0, replace(admits(head("w2")), made_way=(leader,)), holds=[held("w1")])
    record.cycle(10, holds=[held("w2")])
    assert reported(record).evictions["a", MADE_WAY] == 1


def test_another_writer_goes_on_with_what_the_one_before_has_seen(record: SmallRecord) -> None:
    """Its file begins from nothing, which is no end of all workloads."""
    record.cycle(0, admits(head("w1")), holds=[held("w9")])
    record.cycle(10, holds=[held("w9"), held("w1")])
    record.closed()
    record.next_writer()
    record.cycle(20, holds=[held("w9"), held("w1")])
    record.number += 3
    record.cycle(30, holds=[held("w1", evicted=True)], error="ValueError: broken")
    found = reported(record)
    assert found.evictions["a", NOT_RECORDED] == 1
    assert found.record.unseen_starts == 0
    facts = found.record
    assert (facts.cycles, facts.missing, facts.writers, facts.ended_early) == (4, 3, 2, 1)
    assert facts.versions == ("v9.9.9",)


@pytest.mark.parametrize(
    ("decision", "problem"),
    [
        pytest.param(b'{"decision":"Admit"}', "head", id="no workload"),
        pytest.param(b'{"decision":"Dance","head":{"key":"","uid":"","queue":""}}', "Dance", id="another decision"),
        pytest.param(b"[" * 100_000, "", id="deep"),
        pytest.param(
            b'{"decision":"Preempt","head":{"key":"","uid":"","queue":""},"targets":[1]}', "targets", id="target"
        ),
    ],
)
def test_a_forged_decision_is_refused_with_the_place(record: SmallRecord, decision: bytes, problem: str) -> None:
    """Whoever can write a record can write right hashes."""
    record.cycle(0)
    captured = record.captured(10)
    captured.answers = [decision]
    record.ring.write(captured, at(10))
    with pytest.raises(DamagedRecordError, match=rf"entry \d+ at byte \d+: .*{problem}"):
        reported(record)


def test_a_forged_time_is_refused_with_the_place(record: SmallRecord) -> None:
    record.cycle(0)
    record.cycle(7900 * 366 * 24 * HOUR)
    with pytest.raises(DamagedRecordError, match=r"entry \d+ at byte \d+: .*no year from 1970 to 8999"):
        reported(record)


def test_a_cut_record_is_refused_with_the_place(record: SmallRecord) -> None:
    """Only the newest file of a folder may end in the middle."""
    record.cycle(0, admits(head("w1")))
    record.cycle(10, holds=[held("w1")])
    (path,) = record.closed().iterdir()
    cut = path.with_name("cut.kqrecord")
    cut.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DamagedRecordError, match=r"entry \d+ at byte \d+: the file ends within the entry"):
        read_report(Record(cut))


# --- start times


def covered(record: SmallRecord, started: float, *told: tuple[float, int, int | None]) -> tuple[str, str]:
    """Where a start lies beside the first and the last told interval."""
    record.cycle(0, waits(head("w1")))
    intervals = [ToldInterval("w1", at(when), p50, p90) for when, p50, p90 in told]
    record.cycle(started, admits(head("w1")), told=intervals)
    record.cycle(started + 1, holds=[held("w1")])
    found = reported(record).coverage
    assert found is not None
    return tuple(  # type: ignore[return-value]
        next(name for name in ("before", "inside", "after", "untold") if getattr(found["a", telling], name))
        for telling in ("first", "last")
    )


@pytest.mark.parametrize(
    ("started", "told", "expected"),
    [
        pytest.param(100, [(0, 100, 100)], ("inside", "inside"), id="to the second"),
        pytest.param(105, [(0, 90, 100)], ("inside", "inside"), id="some seconds late"),
        pytest.param(105.5, [(0, 90, 100)], ("after", "after"), id="late"),
        pytest.param(95, [(0, 100, 200)], ("inside", "inside"), id="some seconds early"),
        pytest.param(94, [(0, 100, 200)], ("before", "before"), id="early"),
        pytest.param(100, [(0, 10, 20), (30, 60, 80)], ("after", "inside"), id="the last one held"),
        pytest.param(100, [(0, 90, 110), (30, 0, 5)], ("inside", "after"), id="the first one held"),
        pytest.param(100, [(0, 10, None), (5, 90, 99), (30, 60, None)], ("inside", "untold"), id="no p90"),
        pytest.param(100, [(0, 10, None)], ("untold", "untold"), id="never a p90"),
    ],
)
def test_starts_beside_told_intervals(
    record: SmallRecord, started: float, told: Sequence[tuple[float, int, int | None]], expected: tuple[str, str]
) -> None:
    assert covered(record, started, *told) == expected


def test_coverage_counts_starts_and_overdue_workloads(record: SmallRecord) -> None:
    record.cycle(0, *(waits(head(name)) for name in ("w1", "w2", "w3", "w4")))
    intervals = [ToldInterval(name, at(0), 10, 20) for name in ("w1", "w2", "w3")]
    record.cycle(15, admits(head("w1")), told=intervals)
    record.cycle(50, admits(head("w2")), admits(head("w4")), holds=[held("w1")])
    record.cycle(60, waits(head("w3")), holds=[held("w1"), held("w2"), held("w4")])
    found = reported(record).coverage
    assert found is not None
    expected = CoverageFigures(before=0, inside=1, after=1, untold=1, late_p50=30, overdue=1)
    assert found == {(queue, telling): expected for queue in (ALL_QUEUES, "a") for telling in ("first", "last")}
    assert expected.inside_percent == 50


def test_intervals_of_a_start_that_was_not_carried_out_count_for_the_next_one(record: SmallRecord) -> None:
    record.cycle(0, admits(head("w1")), told=[ToldInterval("w1", at(0), 25, 40)])
    record.cycle(30, admits(head("w1")))
    record.cycle(31, holds=[held("w1")], told=[ToldInterval("w1", at(1), 0, 1)])
    found = reported(record).coverage
    assert found is not None
    assert (found["a", "first"].inside, found["a", "last"].inside) == (1, 1)


def test_a_record_without_told_start_times_has_no_coverage(record: SmallRecord) -> None:
    record.cycle(0, admits(head("w1")))
    assert reported(record).coverage is None
