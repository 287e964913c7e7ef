"""A report as tables: the same names and figures for pages, terminals, JSON, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from kqueue.clock import utc_text
from kqueue.operations.report.figures import QueueReport, UseSlot


class FigureUnit(StrEnum):
    """Units of figures."""

    COUNT = "count"
    SECONDS = "seconds"
    PERCENT = "percent"
    AMOUNT = "amount"
    """Of the resource of the line: cpu in milli, everything else in base units."""
    TIME = "unix-seconds"


class Measure(NamedTuple):
    """A figure of each line of a table: its name for programs, its title for people, and its unit."""

    name: str
    title: str
    unit: FigureUnit


class ReportLine(NamedTuple):
    """One line: a text for each key of its table, and a figure for each measure; None: it is not in the record."""

    keys: tuple[str, ...]
    values: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table; the key `queue` is empty in lines for all ClusterQueues."""

    name: str
    keys: tuple[str, ...]
    measures: tuple[Measure, ...]
    lines: tuple[ReportLine, ...]

    def column(self, measure: str) -> int:
        """Return the number of a measure in the values of a line."""
        return [one.name for one in self.measures].index(measure)


KEYS = ("queue", "flavor", "resource", "level", "cause", "told", "time")
"""All keys of tables, in the order of columns in CSV and Parquet."""

_COUNTS = FigureUnit.COUNT
_WAITS = (
    Measure("starts", "starts", _COUNTS),
    Measure("mean", "mean wait", FigureUnit.SECONDS),
    Measure("p50", "half waited at most", FigureUnit.SECONDS),
    Measure("p90", "nine tenths waited at most", FigureUnit.SECONDS),
    Measure("longest", "longest wait", FigureUnit.SECONDS),
    Measure("waiting", "tried, and waiting at the end", _COUNTS),
    Measure("longestWaiting", "longest of their waits so far", FigureUnit.SECONDS),
)
_USE = (
    Measure("nominal", "nominal quota", FigureUnit.AMOUNT),
    Measure("least", "use at least", FigureUnit.AMOUNT),
    Measure("most", "use at most", FigureUnit.AMOUNT),
    Measure("leastPercent", "at least", FigureUnit.PERCENT),
    Measure("mostPercent", "at most", FigureUnit.PERCENT),
    Measure("seconds", "time known", FigureUnit.SECONDS),
)
_USE_OVER_TIME = (
    Measure("leastPercent", "at least", FigureUnit.PERCENT),
    Measure("mostPercent", "at most", FigureUnit.PERCENT),
)
_PACKING = (
    Measure("searches", "placements", _COUNTS),
    Measure("used", "domains used", _COUNTS),
    Measure("fewest", "fewest possible", _COUNTS),
    Measure("tight", "placements with the fewest", _COUNTS),
    Measure("tightPercent", "share of them", FigureUnit.PERCENT),
)
_EVICTIONS = (Measure("evictions", "evictions", _COUNTS),)
_COVERAGE = (
    Measure("insidePercent", "inside", FigureUnit.PERCENT),
    Measure("inside", "starts inside", _COUNTS),
    Measure("before", "starts before", _COUNTS),
    Measure("after", "starts after", _COUNTS),
    Measure("lateP50", "half were late by at most", FigureUnit.SECONDS),
    Measure("overdue", "overdue at the end", _COUNTS),
    Measure("untold", "starts without an interval", _COUNTS),
)
_RECORD = (
    Measure("begin", "first cycle", FigureUnit.TIME),
    Measure("end", "last cycle", FigureUnit.TIME),
    Measure("cycles", "cycles", _COUNTS),
    Measure("missing", "cycles that are missing", _COUNTS),
    Measure("writers", "processes that wrote", _COUNTS),
    Measure("endedEarly", "cycles that ended with an error", _COUNTS),
    Measure("notCarriedOut", "admissions that were not carried out", _COUNTS),
    Measure("unseenStarts", "starts that are not in the record", _COUNTS),
    Measure("stepsBack", "steps of the clock backwards", _COUNTS),
)


def tables(report: QueueReport) -> dict[str, ReportTable]:
    """Return the tables of a report by name; one without any line says that the record has nothing of it."""
    found = (
        ReportTable("waits", ("queue",), _WAITS, tuple(_waits(report))),
        ReportTable("use", ("queue", "flavor", "resource"), _USE, tuple(_use(report))),
        ReportTable("useOverTime", ("flavor", "resource", "time"), _USE_OVER_TIME, tuple(_use_over_time(report))),
        ReportTable("packing", ("queue", "level"), _PACKING, tuple(_packing(report))),
        ReportTable("evictions", ("queue", "cause"), _EVICTIONS, tuple(_evictions(report))),
        ReportTable("startTimes", ("queue", "told"), _COVERAGE, tuple(_coverage(report))),
        ReportTable("record", (), _RECORD, (_record(report),)),
    )
    return {table.name: table for table in found}


def _waits(report: QueueReport) -> Iterator[ReportLine]:
    for queue, one in report.waits.items():
        waits = one.starts, one.mean, one.p50, one.p90, one.longest
        yield ReportLine((queue,), (*waits, one.waiting, one.longest_waiting))


def _use(report: QueueReport) -> Iterator[ReportLine]:
    for (queue, column), one in report.use.items():
        amounts = one.nominal, one.least, one.most, one.least_percent, one.most_percent
        yield ReportLine((queue, column.flavor, column.resource), (*amounts, one.seconds))


def _use_over_time(report: QueueReport) -> Iterator[ReportLine]:
    for column, slots in report.use_over_time.items():
        for number, slot in enumerate(slots):
            begin = report.slots_begin + timedelta(seconds=number * report.slot_seconds)
            yield ReportLine((column.flavor, column.resource, utc_text(begin)), percentages(slot))


def percentages(slot: UseSlot) -> tuple[int | None, int | None]:
    """Return least and most use in percent of the nominal quota; None: there is none, or the time is not known."""
    if not slot.nominal:
        return None, None
    return 100 * slot.least // slot.nominal, 100 * slot.most // slot.nominal


def _packing(report: QueueReport) -> Iterator[ReportLine]:
    for key, one in report.packing.items():
        percent = 100 * one.tight // one.searches if one.searches else None
        yield ReportLine(key, (one.searches, one.used, one.fewest, one.tight, percent))


def _evictions(report: QueueReport) -> Iterator[ReportLine]:
    for key, number in report.evictions.items():
        yield ReportLine(key, (number,))


def _coverage(report: QueueReport) -> Iterator[ReportLine]:
    for key, one in (report.coverage or {}).items():
        starts = one.inside_percent, one.inside, one.before, one.after
        yield ReportLine(key, (*starts, one.late_p50, one.overdue, one.untold))


def _record(report: QueueReport) -> ReportLine:
    one = report.record
    times = int(one.begin.timestamp()), int(one.end.timestamp())
    counts = one.cycles, one.missing, one.writers, one.ended_early
    return ReportLine((), (*times, *counts, one.not_carried_out, one.unseen_starts, one.steps_back))


def as_json(report: QueueReport) -> Mapping[str, Any]:
    """Return the tables as JSON: a list of objects for each table, and one object for the record itself."""
    shown: dict[str, Any] = {
        "begin": utc_text(report.record.begin),
        "end": utc_text(report.record.end),
        "versions": list(report.record.versions),
        "slotSeconds": report.slot_seconds,
    }
    for name, table in tables(report).items():
        names = [one.name for one in table.measures]
        lines = [
            {**dict(zip(table.keys, line.keys, strict=True)), **dict(zip(names, line.values, strict=True))}
            for line in table.lines
        ]
        shown[name] = lines[0] if name == "record" else lines
    if report.coverage is None:
        shown["startTimes"] = None
    return shown


class ReportCell(NamedTuple):
    """One figure with all its keys, as CSV and Parquet have it."""

    table: str
    keys: tuple[str, ...]
    measure: str
    unit: str
    value: int | None


CELL_COLUMNS = ("table", *KEYS, "measure", "unit", "value")


def cells(report: QueueReport) -> Iterator[ReportCell]:
    """Yield all figures; keys that a table does not have are empty."""
    for name, table in tables(report).items():
        for line in table.lines:
            known = dict(zip(table.keys, line.keys, strict=True))
            keys = tuple(known.get(key, "") for key in KEYS)
            for measure, value in zip(table.measures, line.values, strict=True):
                yield ReportCell(name, keys, measure.name, measure.unit, value)


def key_texts(table: ReportTable, line: ReportLine) -> Sequence[str]:
    """Return the keys of a line for people: an empty ClusterQueue is written out."""
    return [text or "all" if key == "queue" else text for key, text in zip(table.keys, line.keys, strict=True)]
