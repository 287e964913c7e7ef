"""Tables as kubectl prints them: plain aligned columns, on a terminal with a little style."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from kqueue.cli.output import printable
from kqueue.clock import api_time, short_span

_GAP = 3
"""Spaces between columns."""
_NARROWEST = 6
"""Columns with their gap are at least this wide, as kubectl's are."""
_FOLDED = 20 + _GAP
"""Columns with their gap are not folded to less than this."""

UNKNOWN = "<unknown>"
"""Text for a time that is missing or cannot be parsed."""
NONE = "<none>"
"""Text for a missing value, in columns that ask for it."""


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header in capitals and one line per row to stdout; every cell goes through `printable`.

    A row is one line, so that `cut` and `grep` work.  On a terminal that is too narrow, long cells are folded inside
    their column if the columns stay readable; if not, the terminal wraps the lines.
    """
    lines = [[title.upper() for title in headers], *([printable(cell) for cell in row] for row in rows)]
    if not (sys.stdout.isatty() and _print_rich(lines)):
        print("\n".join(aligned(lines)))


def aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with cells padded so that columns align; lines have no trailing spaces."""
    widths = _widths(lines)
    return ["".join(_filled(line, widths)).rstrip() for line in lines]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(_NARROWEST - _GAP, *map(_width, column)) + _GAP for column in zip(*lines, strict=True)]


def _filled(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell + " " * (width - _width(cell)) for cell, width in zip(line, widths, strict=True)]


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _print_rich(lines: Sequence[Sequence[str]]) -> bool:
    """Print with style.  Return False, and print nothing, if the terminal is too narrow for columns."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    widths = _widths(lines)
    if sum(min(width, _FOLDED) for width in widths) > console.width:
        return False
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for title, width in zip(lines[0], widths, strict=True):
        table.add_column(title, overflow="fold", no_wrap=width <= _FOLDED)
    for line in lines[1:]:
        table.add_row(*map(Text, line))  # Text: names are never read as rich's markup
    console.print(table)
    return True


def print_nothing_found(namespace: str | None = None) -> None:
    """Say on stderr that a list is empty; `namespace` None means that all of them were searched, or there are none."""
    where = f" in {printable(namespace)} namespace." if namespace else ""
    print(f"No resources found{where}", file=sys.stderr)


def age(since: str | None, now: datetime) -> str:
    """Return the age of an API timestamp (`2026-01-31T08:00:00Z`) in the format of `duration`, else `<unknown>`."""
    moment = api_time(since)
    return UNKNOWN if moment is None else duration(now - moment)


def duration(span: timedelta) -> str:
    """Return a time span in one or two units, as kubectl writes ages: `45s`, `3m5s`, `7h30m`, `5d2h`, `400d`, `3y10d`.

    A clock that is up to two seconds behind the cluster's gives `0s`; further behind, `<invalid>`.

    Source: Kubernetes `duration.HumanDuration`.
    """
    seconds = int(span.total_seconds())  # toward zero
    if seconds < -1:
        return "<invalid>"
    return short_span(max(seconds, 0))
