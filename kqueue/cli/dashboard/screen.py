"""Pages for a terminal: the same rows with colours and bars, cut to its height.

All text from the cluster goes through `printable`, and rich never reads it as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from kqueue.cli.dashboard import domains, queues
from kqueue.cli.dashboard.amounts import FOREIGN, FREE, HELD
from kqueue.cli.output import printable

JSON = Mapping[str, Any]
_NUMBERS = frozenset({"nodes", "idle", "left out", "free", "held", "foreign", "total", "pending"})
_NUMBERS |= {"gangs wait", "gangs run", "aside", "admitted", "wait", "reserved", "quota", "borrowed", "share"}
_STYLES = {HELD: "green", "▓": "yellow", FOREIGN: "magenta", FREE: "bright_black"}
_LEFT_OUT_SHOWN = 10
_GAP = 2
"""Spaces between columns."""


def queue_page(answer: JSON, resources: Sequence[str], order: queues.Order, *, most: int = 10_000) -> Group:
    """Return all queues in at most `most` lines. A column with equal or missing values in all of them is left out."""
    found = queues.rows(answer, resources, order)
    shares = any(row.share for row in found)
    flavors = len({row.flavor for row in found}) > 1
    gangs = [] if queues.gang_numbers(answer["items"]) else _GANG_HEADERS
    left_out = {*([] if shares else ["share"]), *([] if flavors else ["flavor"]), *gangs}
    headers = [header for header in _QUEUE_HEADERS if header not in left_out]
    shown = found[: max(1, most - 3)] if len(found) + 2 > most else found
    table = _Fitting(headers, [_queue_cells(row) for row in shown], _QUEUE_DROPS)
    parts: list[RenderableType] = [_title(queues.title(answer)), table]
    hidden = sum(bool(row.name) for row in found[len(shown) :]) + answer.get("left", 0)
    if hidden:
        parts.append(_aside(f"and {hidden} more ClusterQueues"))
    stopped = [item for item in answer["items"] if not item["active"]]
    said = [_aside(f"{item['metadata']['name']}: {item['message']}", "red") for item in stopped]
    left = most - len(shown) - 2 - bool(hidden)
    parts += said[: max(0, left)]
    cohorts = queues.cohort_rows(answer, resources)
    if cohorts and len(cohorts) + 2 <= left - len(said):
        parts += [Text(), _plain_table(queues.COHORT_HEADERS, cohorts)]
    return Group(*parts)


_GANG_HEADERS = ("gangs wait", "gangs run")
_QUEUE_HEADERS = (
    *("name", "cohort", "status", "pending", "aside", "admitted", "wait", *_GANG_HEADERS),
    *("flavor", "resource", "held", "quota", "borrowed", "share", "in use"),
)

_QUEUE_DROPS = (
    *("in use", "share", "flavor", "cohort", "borrowed", "aside", "gangs run", "gangs wait", "admitted", "status"),
    "resource",
)
"""Columns that a narrow terminal leaves out, the least needed first."""


def _queue_cells(row: queues.QueueRow) -> dict[str, Text]:
    """Return cells by header. Aside counts the workloads that wait until something changes."""
    texts = {
        "name": row.name,
        "cohort": row.cohort,
        "status": row.status,
        "pending": row.pending,
        "aside": row.inadmissible,
        "admitted": row.admitted,
        "wait": row.longest,
        "gangs wait": row.gangs_waiting,
        "gangs run": row.gangs_running,
        "flavor": row.flavor,
        "resource": row.resource,
        "held": row.reserved,
        "quota": row.quota,
        "borrowed": row.borrowed,
        "share": row.share,
    }
    cells = {header: Text(printable(text)) for header, text in texts.items()}
    cells["in use"] = _bar(row.bar)
    if not row.is_active:
        cells["status"].stylize("bold red")
    if row.inadmissible not in ("", "0"):
        cells["aside"].stylize("yellow")
    cells["borrowed"].stylize("yellow")
    return cells


def topology_page(summary: JSON, resources: Sequence[str], *, most: int = 10_000, whole: bool = True) -> Group:
    """Return one Topology with its flavors, `most` lines for each; `whole`: with gangs and excluded nodes."""
    parts: list[RenderableType] = []
    for flavor in summary["flavors"]:
        parts += _flavor_parts(summary, flavor, resources, most=most, whole=whole)
    if not parts:
        parts = [_title(f"Topology {summary['metadata']['name']}"), _aside("no flavor uses it")]
    return Group(*parts)


def _flavor_parts(
    summary: JSON, flavor: JSON, resources: Sequence[str], *, most: int, whole: bool
) -> list[RenderableType]:
    found = domains.rows(flavor, resources, guides=True)
    shown = found[: max(1, most - 3)] if len(found) + 2 > most else found
    table = _Fitting([*domains.DomainRow.HEADERS, "in use"], [_domain_cells(row) for row in shown], _DOMAIN_DROPS)
    parts: list[RenderableType] = [_title(domains.title(summary, flavor)), table]
    hidden = sum(bool(row.domain) for row in found[len(shown) :])
    if hidden:
        parts.append(_aside(f"and {hidden} more domains"))
    if flavor.get("cut"):
        parts.append(_aside(flavor["cut"]))
    if whole:
        parts += _held_by(flavor)
        parts += _gangs(flavor)
        parts += _left_out(flavor)
    return [*parts, Text()]


_DOMAIN_DROPS = ("in use", "foreign", "idle", "total", "resource", "left out")


def _domain_cells(row: domains.DomainRow) -> dict[str, Text]:
    """Return cells by header."""
    texts = zip(domains.DomainRow.HEADERS, row.cells(), strict=True)
    cells = {header: Text(printable(text)) for header, text in texts}
    cells["in use"] = _bar(row.bar)
    if row.left_out not in ("", "-"):
        cells["left out"].stylize("bold red")
    return cells


def _held_by(flavor: JSON) -> list[RenderableType]:
    lines = domains.held_by(flavor)
    return [Text(), _plain_table(domains.HOLDER_HEADERS, lines)] if lines else []


def _gangs(flavor: JSON) -> list[RenderableType]:
    headers, lines = domains.gangs(flavor)
    return [Text(), _plain_table(headers, lines, numbers=True)] if lines else []


def _left_out(flavor: JSON) -> list[RenderableType]:
    lines = list(domains.left_out(flavor, _LEFT_OUT_SHOWN))
    return [Text(), _plain_table(domains.LEFT_OUT_HEADERS, lines)] if lines else []


def _plain_table(headers: Sequence[str], lines: Iterable[Sequence[str]], *, numbers: bool = False) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for number, header in enumerate(headers):
        table.add_column(header.upper(), justify="right" if numbers and number else "left")
    for line in lines:
        table.add_row(*(Text(printable(cell)) for cell in line))
    return table


class _Fitting:
    """A table that leaves out columns, one by one, if the terminal is too narrow for all."""

    def __init__(self, headers: Sequence[str], rows: Sequence[Mapping[str, Text]], drops: Sequence[str]) -> None:
        """`rows` have a cell for each header; `drops` are the headers that may be left out, the least needed first."""
        self._headers, self._rows, self._drops = headers, rows, drops

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = {
            header: max(len(header), *(row[header].cell_len for row in self._rows)) if self._rows else len(header)
            for header in self._headers
        }
        headers = list(self._headers)
        for header in self._drops:
            if sum(widths[kept] + _GAP for kept in headers) - _GAP <= options.max_width:
                break
            if header in headers:
                headers.remove(header)
        table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for header in headers:
            table.add_column(
                header.upper(),
                justify="right" if header in _NUMBERS else "left",
                no_wrap=True,
                overflow="ellipsis",
            )
        for row in self._rows:
            table.add_row(*(row[header] for header in headers))
        yield table


def _bar(drawn: str) -> Text:
    text = Text()
    for sign, run in groupby(drawn):
        text.append("".join(run), _STYLES.get(sign, ""))
    return text


def _title(words: str) -> Text:
    return Text(printable(words), style="bold")


def _aside(words: str, style: str = "bright_black") -> Text:
    return Text(f"  {printable(words)}", style=style)
