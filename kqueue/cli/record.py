"""`kqueue record`: the record of decisions, read from files without a cluster."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption, printable
from kqueue.cli.reaching import reaches_cluster
from kqueue.cli.record_fetch import fetch
from kqueue.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kqueue.core.hooks import HooksByProfile
    from kqueue.record.queries import Filter
    from kqueue.record.records import FoundCycle, Record
    from kqueue.record.replay import Replay

_DIFFERS = 1
_ABOUT = """Read the record of decisions: a file, or the folder of decisionRecord.path.  No cluster is needed.

A record that is cut off or was changed is refused, with the file, the entry and the byte."""
_SOURCE = Annotated[Path, typer.Argument(metavar="RECORD", help="A file or a folder of a record.")]
_SINCE = Annotated[str, typer.Option(metavar="TIME", help="From this time on: 2026-01-31T22:00:00Z.")]
_UNTIL = Annotated[str, typer.Option(metavar="TIME", help="Before this time.")]
_WORKLOAD = Annotated[str, typer.Option("--workload", metavar="NS/NAME", help="A Workload, or its UID.")]
_QUEUE = Annotated[str, typer.Option("--queue", help="A ClusterQueue.")]
_DECISION = Annotated[str, typer.Option("--decision", help="Admit, Preempt or Wait.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=_ABOUT)
    app.add_typer(group, name="record")
    group.command("list")(list_decisions)
    group.command("show")(show_decision)
    group.command("replay")(replay_decisions)
    group.command("save")(save_decisions)
    group.command("fetch")(reaches_cluster(fetch))


def list_decisions(
    source: _SOURCE,
    since: _SINCE = "",
    until: _UNTIL = "",
    workload: _WORKLOAD = "",
    queue: _QUEUE = "",
    decision: _DECISION = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """List decisions: time, cycle, workload, ClusterQueue, decision and cause.

    With --workload, cycles in which the workload waited behind the head of a StrictFIFO ClusterQueue are listed as
    NotTried.
    """
    from kqueue.record.queries import cycles, rows
    from kqueue.record.records import Record

    record = Record(source)
    wanted = filter_of(since, until, workload=workload, queue=queue, decision=decision)
    listed = (row for found in cycles(record, wanted) for row in rows(found, wanted))
    if output is Output.TEXT:
        from kqueue.cli.tables import print_table

        print_table(
            ("time", "cycle", "workload", "queue", "decision", "cause"), (tuple(row.values()) for row in listed)
        )
    else:
        from kqueue.cli.output import show

        show({"decisions": list(listed)}, output)
    _print_remarks(record)


def show_decision(
    source: _SOURCE,
    cycle: Annotated[str, typer.Argument(help="The cycle, as `kqueue record list` names it.")],
    workload: _WORKLOAD = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the decisions of one cycle, and what they were made on: requests, quota, domains and claims."""
    from kqueue.record.records import Record

    record = Record(source)
    wanted = filter_of(workload=workload, cycle=cycle)
    found = next(_wanted_cycles(record, wanted), None)
    if found is None:
        raise ConfigError(f"{source}: no such decision; `kqueue record list {source}` lists all")
    pages = list(_pages(found, wanted))
    if output is not Output.TEXT:
        from kqueue.cli.output import show

        show({"version": found.begin.version, "decisions": pages}, output)
        return
    for page in pages:
        print(f"{page['workload']} in {page['queue']}, cycle {found.name} at {page['time']}, {found.begin.version}")
        print(f"  {page['decision']}: {printable(page['cause'])}")
        for line in page["inputs"]:
            print(f"    {printable(line)}")


def _pages(found: FoundCycle, wanted: Filter) -> Iterator[dict[str, Any]]:
    from kqueue.record.queries import decisions, inputs, not_tried

    cycle = found.recorded()
    for one in decisions(found, wanted):
        yield {**one.row(), "inputs": list(inputs(cycle, one.decision["head"]["uid"])), "answer": one.decision}
    if (row := not_tried(found, wanted)) is not None:
        yield {**row, "inputs": list(inputs(cycle, row["uid"])), "answer": None}


def replay_decisions(
    source: _SOURCE,
    since: _SINCE = "",
    until: _UNTIL = "",
    workload: _WORKLOAD = "",
    cycle: Annotated[str, typer.Option("--cycle", help="One cycle, as `kqueue record list` names it.")] = "",
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A Configuration: its plugins answer, not the record."),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Put recorded cycles to the planner of this version, and compare its decisions with the recorded ones.

    Plugins answer as recorded, and their code is not needed.  With --config the plugins of that file are loaded from
    the installed packages and answer themselves; answers that differ from the recorded ones are printed.

    Exit codes: 0 all decisions are the same, byte for byte; 1 some differ; 2 the record or the call is wrong.
    """
    from kqueue.manager.extensions import load_profiles
    from kqueue.record.records import Record
    from kqueue.record.replay import replay

    load_profiles()
    record = Record(source)
    wanted = filter_of(since, until, workload=workload, cycle=cycle)
    budgeted: set[str] = set()
    hooks = _hooks_of(config, budgeted) if config is not None else None
    same, reports = 0, []
    for found in _wanted_cycles(record, wanted):
        _place_joint_within(found)
        recorded = found.recorded(hooks)
        budgeted.clear()
        budgeted.update(recorded.question.rules.budgeted)
        answer = replay(recorded)
        same += answer.equal
        if not answer.equal or answer.remarks or answer.plugins:
            reports.append(_report(found, answer))
    differing = sum(not report["equal"] for report in reports)
    if output is Output.TEXT:
        _print_reports(reports)
        print(f"{same} cycles are decided as recorded, {differing} differently")
    else:
        from kqueue.cli.output import show

        show({"same": same, "different": differing, "cycles": reports}, output)
    _print_remarks(record)
    if not same and not differing:
        raise ConfigError(f"{source}: no such decision; `kqueue record list {source}` lists all")
    if differing:
        raise typer.Exit(_DIFFERS)


def _report(found: FoundCycle, answer: Replay) -> dict[str, Any]:
    return {
        "cycle": found.name,
        "time": found.entry.now,
        "version": found.begin.version,
        "equal": answer.equal,
        "remarks": list(answer.remarks),
        "plugins": list(answer.plugins),
        "differences": [{"workload": one.workload, "lines": list(one.lines())} for one in answer.differences],
    }


def _hooks_of(config: Path, budgeted: Collection[str]) -> HooksByProfile:
    """Return the plugins of a Configuration; `budgeted` is read at each of their calls."""
    from kqueue.config import load
    from kqueue.manager.plugins import hooks_for_replay

    return hooks_for_replay(load(config).plugins, lambda: budgeted)


def _print_reports(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        print(f"cycle {report['cycle']} at {report['time']}, recorded by {printable(report['version'])}")
        for remark in report["remarks"]:
            print(f"  note: {printable(remark)}")
        for line in report["plugins"]:
            print(f"  plugin: {printable(line)}")
        for one in report["differences"]:
            print(f"  {printable(one['workload'])}")
            for line in one["lines"]:
                print(f"    {printable(line)}")


def save_decisions(
    source: _SOURCE,
    target: Annotated[Path, typer.Option("--to", metavar="FILE", help="The file to write; it must not exist.")],
    since: _SINCE = "",
    until: _UNTIL = "",
    workload: _WORKLOAD = "",
    cycle: Annotated[str, typer.Option("--cycle", help="One cycle, as `kqueue record list` names it.")] = "",
) -> None:
    """Copy cycles with all their inputs into one file, to keep it or to send it.

    The file has the names and requests of all workloads in these cycles, also of other tenants.
    """
    from kqueue.record.queries import save
    from kqueue.record.records import Record

    record = Record(source)
    try:
        number = save(record, filter_of(since, until, workload=workload, cycle=cycle), target)
    except OSError as e:
        problem = (e.strerror or str(e)).lower()
        raise ConfigError(f"{target}: {problem}; give --to a path in a folder that can be written") from e
    _print_remarks(record)
    if not number:
        raise ConfigError(f"{source}: no such decision, and nothing was written")
    print(f"{number} cycles are in {printable(str(target))}", file=sys.stderr)


def _wanted_cycles(record: Record, wanted: Filter) -> Iterator[FoundCycle]:
    from kqueue.record.queries import cycles

    return cycles(record, wanted)


def filter_of(since: str = "", until: str = "", **texts: str) -> Filter:
    """Return the filter of flags.  Raises ConfigError: a flag is wrong."""
    from kqueue.record.queries import Filter

    decision = texts.get("decision", "").capitalize()
    if decision not in ("", "Admit", "Preempt", "Wait"):
        raise ConfigError(f"--decision {decision}: must be Admit, Preempt or Wait")
    return Filter(since=_time("--since", since), until=_time("--until", until), **{**texts, "decision": decision})


def _time(flag: str, text: str) -> datetime | None:
    from datetime import UTC

    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{flag} {text}: must be a time such as 2026-01-31T22:00:00Z") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def _place_joint_within(found: FoundCycle) -> None:
    from kqueue.core.topology.placers import PLACERS, place_joint_by

    within = found.begin.within
    if within and within not in PLACERS:
        raise ConfigError(f"{found.place.path}: no placer {within!r:.40} is installed, by which it was recorded")
    if within:
        place_joint_by(within)


def _print_remarks(record: Record) -> None:
    for remark in record.remarks:
        print(f"note: {printable(remark)}", file=sys.stderr)
