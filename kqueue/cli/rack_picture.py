"""Racks as text: a cell for each host, with a letter for the workload on it; readable without colours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from string import ascii_letters, ascii_uppercase, digits
from typing import TYPE_CHECKING

from kqueue.printable import printable
from kqueue.state.defrag.hosts import FREE, NO_ROOM, SEVERAL, Cells

if TYPE_CHECKING:
    from rich.text import Text

Line = tuple[tuple[str, str], ...]
"""Pieces of a line: text and rich's name of a style."""
MOST_DOMAINS = 24
"""Domains that one picture shows."""
NARROW = 80
_STYLES = ("bold cyan", "bold magenta", "bold yellow", "bold green", "bold blue", "bold red")
_DIM = "dim"
_REST = "*"
"""The cell of a workload for which no letter is left."""
_SIGNS = {FREE: (".", "free"), SEVERAL: ("+", "several workloads"), NO_ROOM: ("#", "no room")}
_GAP = 3


def draw(tables: Sequence[tuple[str, Cells]], names: Mapping[str, str], *, width: int = NARROW) -> list[Line]:
    """Return tables of racks, beside each other if `width` allows it, and a legend.

    Args:
        tables: each with its title; a row for each domain, a cell for each host.
        names: names of workloads by their keys, those that get their letters first in front; the legend has them.
            A workload without a name has its key there.
    """
    paths = list(dict.fromkeys(path for _, cells in tables for path in cells))
    kept, left = paths[:MOST_DOMAINS], len(paths) - MOST_DOMAINS
    shown = {cell for _, cells in tables for path in kept for cell in cells.get(path, ())}
    keys = [*(key for key in names if key in shown), *sorted(shown.difference(names, _SIGNS))]
    letters = _letters({key: names.get(key, key) for key in keys})
    lines = list(_tables(tables, kept, letters, width))
    if left > 0:
        lines.append(((f"  and {left} more domains", _DIM),))
    return [*lines, (), *_legend(letters, names, shown, width)]


def print_picture(lines: Iterable[Line]) -> None:
    """Print a picture to stdout, on a terminal with colours."""
    if not sys.stdout.isatty():
        print("\n".join("".join(text for text, _ in line).rstrip() for line in lines))
        return
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    for line in lines:
        console.print(as_text(line), soft_wrap=True)


def as_text(line: Line) -> Text:
    """Return a line for rich."""
    from rich.text import Text

    return Text.assemble(*line)


def terminal_width() -> int:
    """Return the columns of the terminal; 80 if stdout is none."""
    return shutil.get_terminal_size((NARROW, 24)).columns if sys.stdout.isatty() else NARROW


def _letters(names: Mapping[str, str]) -> Mapping[str, str]:
    """Return a letter for each key: one of its name, without the namespace, if it is not taken yet."""
    free = dict.fromkeys((*ascii_uppercase, *ascii_letters, *digits))
    found = {}
    for key, name in names.items():
        own = [letter for letter in name.rpartition("/")[2].upper() if letter in free]
        letter = next(iter(own), next(iter(free), _REST))
        free.pop(letter, None)
        found[key] = letter
    return found


def _tables(
    tables: Sequence[tuple[str, Cells]], paths: Sequence[tuple[str, ...]], letters: Mapping[str, str], width: int
) -> Iterator[Line]:
    last = [path[-1] for path in paths]
    unique = len(set(last)) == len(last)
    titles = {path: printable(path[-1] if unique else "/".join(path)) for path in paths}
    indent = 2 + max(map(len, titles.values()), default=0) + _GAP
    widths = [max(len(title), *(len(cells.get(path, ())) for path in paths), 0) + _GAP for title, cells in tables]
    if indent + sum(widths) - _GAP > width:
        for title, cells in tables:
            yield (("  " + title, "bold"),)
            yield from _rows([cells], titles, letters, indent, [max(1, width - indent)])
        return
    if any(title for title, _ in tables):
        heads = "".join(title.ljust(columns) for (title, _), columns in zip(tables, widths, strict=True))
        yield ((" " * indent, ""), (heads.rstrip(), "bold"))
    yield from _rows([cells for _, cells in tables], titles, letters, indent, widths)


def _rows(
    tables: Sequence[Cells],
    titles: Mapping[tuple[str, ...], str],
    letters: Mapping[str, str],
    indent: int,
    widths: Sequence[int],
) -> Iterator[Line]:
    """Yield the rows of tables that stand beside each other; a row of one table that is too long goes on below."""
    for path, title in titles.items():
        rows = [cells.get(path, ()) for cells in tables]
        longest = max(map(len, rows))
        step = max(1, longest if len(tables) > 1 else widths[0])
        for start in range(0, max(1, longest), step):
            head = f"  {title if not start else ''}".ljust(indent)
            ends = [*widths[:-1], 0]
            pieces = [_cells(row[start : start + step], letters, end) for row, end in zip(rows, ends, strict=True)]
            yield ((head, ""), *(piece for of_table in pieces for piece in of_table))


def _cells(row: Sequence[str], letters: Mapping[str, str], width: int) -> Iterator[tuple[str, str]]:
    """Yield runs of equal cells, and spaces up to the width."""
    start = 0
    for end in range(1, len(row) + 1):
        if end == len(row) or row[end] != row[start]:
            yield _sign(row[start], letters) * (end - start), _style(row[start], letters)
            start = end
    yield " " * (width - len(row)), ""


def _sign(cell: str, letters: Mapping[str, str]) -> str:
    return _SIGNS[cell][0] if cell in _SIGNS else letters[cell]


def _style(cell: str, letters: Mapping[str, str]) -> str:
    return _DIM if cell in _SIGNS else _STYLES[list(letters).index(cell) % len(_STYLES)]


def _legend(letters: Mapping[str, str], names: Mapping[str, str], shown: Set[str], width: int) -> Iterator[Line]:
    """Yield the meaning of each letter and sign of the picture."""
    entries = [(f"{letter} {printable(names.get(key, key))}", _style(key, letters)) for key, letter in letters.items()]
    entries += [(f"{sign} {meaning}", _DIM) for cell, (sign, meaning) in _SIGNS.items() if cell in shown]
    line: list[tuple[str, str]] = []
    used = 0
    for entry in entries:
        size = len(entry[0]) + _GAP
        if line and used + size > width:
            yield tuple(line)
            line, used = [], 0
        line += [(" " * (_GAP if line else 2), ""), entry]
        used += size
    if line:
        yield tuple(line)
