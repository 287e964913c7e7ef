"""`kqueue replay`: a recorded day under another policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kqueue.operations.day_comparison import LivedDay, Waits

_SOURCE = Annotated[Path, typer.Argument(metavar="RECORD", help="A file or a folder of a record.")]
_POLICY = Annotated[
    Path, typer.Option("--policy", metavar="FILE", help="YAML with ClusterQueues, Cohorts or ResourceFlavors.")
]
_CONFIG = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="A Configuration: fair sharing, order and placement.")
]
_SINCE = Annotated[str, typer.Option(metavar="TIME", help="From this time on: 2026-01-31T22:00:00Z.")]
_UNTIL = Annotated[str, typer.Option(metavar="TIME", help="Before this time.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    source: _SOURCE,
    policy: _POLICY,
    config: _CONFIG = None,
    since: _SINCE = "",
    until: _UNTIL = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Run a recorded day under another policy, and compare waits, starts, evictions and use.  No cluster is needed.

    \b
        kqueue replay ./record --policy smaller-quota.yaml --since 2026-01-31T00:00:00Z --until 2026-02-01T00:00:00Z

    Workloads arrive as recorded and run as long as recorded; the planner decides when and where.  Objects in the file
    replace those of the record with the same name, whole.  The day is also run under the policy of the record, so that
    both sides have the same assumptions; the recorded waits are printed beside them.

    \b
    Assumptions: nodes, devices and pods without quota stay as they were when the day began; workloads that did not end
    in the record run on; those that did not start run as long as the middle one of their ClusterQueue; admission
    checks, plugins, pauses after evictions and joint placement do not count.
    """
    from kqueue.cli.record import filter_of
    from kqueue.clock import utc_text
    from kqueue.config import load
    from kqueue.operations.day_comparison import compare, recorded_waits
    from kqueue.operations.day_policy import read_policy
    from kqueue.record.day import read_day
    from kqueue.record.records import Record

    asked = read_policy(policy, load(config) if config is not None else None)
    record = Record(source)
    day = read_day(record, filter_of(since, until))
    before, after = compare(day, asked)
    recorded = recorded_waits(day)
    for remark in record.remarks:
        print(f"note: {printable(remark)}", file=sys.stderr)
    if output is Output.TEXT:
        print(f"{utc_text(day.begin)} to {utc_text(day.end)}: {recorded.arrived} workloads arrived")
        _print(before, after, recorded, day.evictions)
    else:
        from kqueue.cli.output import show

        answer: dict[str, Any] = {
            "begin": utc_text(day.begin),
            "end": utc_text(day.end),
            "recorded": {"waits": recorded._asdict(), "evictions": day.evictions},
            "recordedPolicy": before.shown(),
            "otherPolicy": after.shown(),
        }
        show(answer, output)


def _print(before: LivedDay, after: LivedDay, recorded: Waits, evictions: int) -> None:
    from kqueue.cli.tables import print_table

    headers = ("queue", "policy", "arrived", "started", "mean wait", "p90 wait", "longest", "evictions")
    print_table(headers, _rows(before, after, recorded, evictions))
    print()
    columns = sorted({*before.used_percent, *after.used_percent})
    use = [(name, *(f"{day.used_percent.get(name, 0)} %" for day in (before, after))) for name in columns]
    racks = [f"{day.domains // 100}.{day.domains % 100:02}" for day in (before, after)]
    print_table(("average", "policy of the record", "other"), [*use, ("domains for each start", *racks)])


def _rows(before: LivedDay, after: LivedDay, recorded: Waits, evictions: int) -> Iterator[tuple[object, ...]]:
    from datetime import timedelta

    from kqueue.cli.tables import duration

    def row(queue: str, policy: str, waits: Waits, evicted: int) -> tuple[object, ...]:
        spans = [duration(timedelta(seconds=seconds)) for seconds in (waits.mean, waits.p90, waits.longest)]
        return queue, policy, waits.arrived, waits.started, *spans, evicted

    yield row("all", "as recorded", recorded, evictions)
    yield row("all", "of the record", before.all_waits, sum(before.evictions.values()))
    yield row("all", "other", after.all_waits, sum(after.evictions.values()))
    for queue in before.waits:
        yield row(queue, "of the record", before.waits[queue], before.evictions.get(queue, 0))
        yield row(queue, "other", after.waits[queue], after.evictions.get(queue, 0))
