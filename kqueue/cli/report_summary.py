"""The summary of a report in a terminal."""

from __future__ import annotations

from kqueue.cli.report_page import value_text
from kqueue.cli.tables import print_table
from kqueue.clock import utc_text
from kqueue.operations.report.figures import QueueReport
from kqueue.operations.report.tables import ReportTable, key_texts, tables

_TITLES = {
    "waits": "waits",
    "use": "use",
    "packing": "packing",
    "evictions": "evictions",
    "startTimes": "coverage of start times",
}
_EMPTY = {
    "packing": "no start in this time has topology domains",
    "evictions": "none",
    "startTimes": "not in the record",
}


def print_summary(report: QueueReport) -> None:
    """Print the tables to stdout."""
    found = tables(report)
    print(f"{utc_text(report.record.begin)} to {utc_text(report.record.end)}: {report.record.cycles} cycles")
    for name, title in _TITLES.items():
        table = found[name]
        if table.lines:
            print(f"\n{title}")
            _print(table)
        else:
            print(f"\n{title}: {_EMPTY.get(name, 'none')}")
    facts = found["record"]
    for measure, value in zip(facts.measures, facts.lines[0].values, strict=True):
        if measure.name in ("missing", "endedEarly", "notCarriedOut", "unseenStarts", "stepsBack") and value:
            print(f"note: {measure.title}: {value}")


def _print(table: ReportTable) -> None:
    headers = [*table.keys, *(measure.title for measure in table.measures)]
    rows = []
    for line in table.lines:
        resource = line.keys[table.keys.index("resource")] if "resource" in table.keys else ""
        values = [value_text(m, v, resource) for m, v in zip(table.measures, line.values, strict=True)]
        rows.append([*key_texts(table, line), *values])
    print_table(headers, rows)
