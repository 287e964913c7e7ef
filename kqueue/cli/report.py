"""`kqueue report`: waits, use, packing, evictions and coverage of start times of a span of time."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kqueue.cli.output import printable
from kqueue.errors import ConfigError

if TYPE_CHECKING:
    from kqueue.operations.report.figures import QueueReport
    from kqueue.record.records import FoundCycle, Record

_SOURCE = Annotated[Path, typer.Argument(metavar="RECORD", help="A file or a folder of a record.")]
_FROM = Annotated[
    str, typer.Option("--from", metavar="TIME", help="From this time on: 2026-01-31T22:00:00Z; 7d is seven days ago.")
]
_TO = Annotated[str, typer.Option("--to", metavar="TIME", help="Before this time; in the same forms.")]
_OUTPUT = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="A file whose name ends with .html, .csv, .json or .parquet; `json` and `csv` print to stdout, `-` prints "
        "the page. Without it a summary is printed.",
    ),
]
_SUFFIXES = ".html", ".csv", ".json", ".parquet"
_SPAN = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LOOK_SECONDS = 0.5
_PAGE = "-"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(source: _SOURCE, since: _FROM = "", until: _TO = "", output: _OUTPUT = "") -> None:
    """Report waits by queue, use by queue and flavor, packing, evictions and coverage of start times.

    \b
        kqueue report ./record --from 7d -o report.html

    The figures come from the record of decisions (decisionRecord.path) alone; no cluster is needed.  Figures that the
    record does not have are named, not estimated.  The page is one file without scripts that loads nothing.  CSV and
    Parquet have each figure in a line; Parquet needs `pip install 'kqueue[parquet]'`.

    A record that is cut off or was changed is refused, with the file, the entry and the byte, and nothing is written.
    """
    from kqueue.operations.report.reading import read_report
    from kqueue.record.records import Record

    form = form_of(output)
    now = datetime.now(UTC)
    begin, end = time_of("--from", since, now), time_of("--to", until, now)
    if begin is not None and end is not None and begin >= end:
        raise ConfigError(f"--from {since} is not before --to {until}; change one of them")
    record = Record(source)
    with_progress = _Progress(record) if sys.stderr.isatty() else None
    try:
        found = read_report(record, begin, end, progress=with_progress or _no_progress)
    finally:
        if with_progress is not None:
            with_progress.end()
    for remark in record.remarks:
        print(f"note: {printable(remark)}", file=sys.stderr)
    if form is None:
        from kqueue.cli.report_summary import print_summary

        print_summary(found)
        return
    content = _FORMS[form](found)
    if output in ("json", "csv", _PAGE):
        sys.stdout.buffer.write(content)
        return
    from kqueue.cli.report_files import replace_file

    replace_file(Path(output), content)
    print(f"the report is in {printable(output)}", file=sys.stderr)


def form_of(output: str) -> str | None:
    """Return the suffix of the form that `-o` asks for; None: the summary.

    Raises ConfigError: the form is not known, or cannot be written here.
    """
    if not output:
        return None
    if output == _PAGE:
        return ".html"
    if output in ("json", "csv"):
        return f".{output}"
    suffix = Path(output).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ConfigError(
            f"-o {output:.100}: the name must end with .html, .csv, .json or .parquet; `json`, `csv` and `-` print"
        )
    if suffix == ".parquet":
        from kqueue.cli.report_files import need_parquet

        need_parquet(Path(output))
    return suffix


def time_of(flag: str, text: str, now: datetime) -> datetime | None:
    """Return the time of a flag: an RFC 3339 time, or a span before now; None: the flag is not given.

    Raises ConfigError: it is neither.
    """
    if not text:
        return None
    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ConfigError(
            f"{flag} {text:.60}: must be a time such as 2026-01-31T22:00:00Z or a span such as 7d"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _page(found: QueueReport) -> bytes:
    from kqueue.cli.report_page import report_page

    return report_page(found).encode()


def _csv(found: QueueReport) -> bytes:
    from kqueue.cli.report_files import as_csv

    return as_csv(found)


def _json(found: QueueReport) -> bytes:
    import json

    from kqueue.operations.report.tables import as_json

    return f"{json.dumps(as_json(found), indent=2)}\n".encode()


def _parquet(found: QueueReport) -> bytes:
    from kqueue.cli.report_files import as_parquet

    return as_parquet(found)


_FORMS: dict[str, Callable[[QueueReport], bytes]] = {".html": _page, ".csv": _csv, ".json": _json, ".parquet": _parquet}


def _no_progress(_found: FoundCycle) -> None:
    """Show nothing."""


class _Progress:
    """A line on the terminal that says how much of the record is read."""

    def __init__(self, record: Record) -> None:
        sizes = [path.stat().st_size for path in record.files]
        self._before = dict(zip(record.files, (sum(sizes[:i]) for i in range(len(sizes))), strict=True))
        self._total = max(1, sum(sizes))
        self._next = time.monotonic() + _LOOK_SECONDS

    def __call__(self, found: FoundCycle) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _LOOK_SECONDS
        path, offset = found.read_bytes
        percent = 100 * (self._before[path] + offset) // self._total
        print(f"\r{percent:3} % of the record is read", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Take the line away."""
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
