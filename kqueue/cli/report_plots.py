"""Plots of a report as SVG, which needs neither a script nor another host.

There are two forms: bars whose parts are stacked, and a band over time.  Colours are classes, so that the page's style
chooses them for light and dark; a table beside each plot has its figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from kqueue.printable import printable

SERIES = 8
"""Classes of colours: `c0` to `c7`."""
_WIDTH, _LABEL, _VALUE, _ROW, _BAR = 760, 230, 110, 24, 14
_TOP, _LEFT, _HEIGHT = 8, 48, 160
_LONGEST_LABEL = 32
_TICKS = (0, 25, 50, 75, 100)


class Bar(NamedTuple):
    """A bar: its label, the lengths of its parts, and the text behind it."""

    label: str
    parts: Sequence[int]
    text: str


def bars(about: str, legend: Sequence[str], rows: Sequence[Bar], *, full: int | None = None) -> str:
    """Return a plot with a bar for each row, from zero on.

    Args:
        about: the sentence that says what is shown, for readers who do not see it.
        legend: a text for each part.
        full: the value at which a line stands, such as 100 %; None: there is none.
    """
    return "".join(_bars(about, legend, rows, full))


def _bars(about: str, legend: Sequence[str], rows: Sequence[Bar], full: int | None) -> Iterator[str]:
    longest = max([sum(row.parts) for row in rows] + [full or 0, 1])
    room = _WIDTH - _LABEL - _VALUE
    height = len(rows) * _ROW + _TOP
    yield _legend(legend)
    yield _open(about, height)
    for number, row in enumerate(rows):
        top = number * _ROW + _TOP
        middle = top + _BAR - 3
        yield f'<text class="label" x="{_LABEL - 8}" y="{middle}" text-anchor="end">{_label(row.label)}</text>'
        left = 0
        for part, value in enumerate(row.parts):
            right = left + value
            begin, end = room * left // longest, room * right // longest
            if end > begin:
                where = f'x="{_LABEL + begin}" y="{top}" width="{end - begin}" height="{_BAR}"'
                yield f'<rect class="c{part % SERIES}" {where}/>'
            left = right
        end = room * max(left, full or 0) // longest
        yield f'<text x="{_LABEL + end + 6}" y="{middle}">{_text(row.text)}</text>'
    if full is not None:
        x = _LABEL + room * full // longest
        yield f'<line class="full" x1="{x}" y1="0" x2="{x}" y2="{height}"/>'
    yield "</svg>"


def band(about: str, points: Sequence[tuple[int, int] | None], *, begin: str, end: str) -> str:
    """Return a plot of a band in percent over slots of time; None: the slot is not known, and stays empty.

    `begin` and `end` are the texts at both ends of the time.
    """
    return "".join(_band(about, points, begin, end))


def _band(about: str, points: Sequence[tuple[int, int] | None], begin: str, end: str) -> Iterator[str]:
    most = max([100, *(point[1] for point in points if point is not None)])
    room = _WIDTH - _LEFT - 8

    def y(percent: int) -> int:
        return _TOP + _HEIGHT - _HEIGHT * percent // most

    yield _open(about, _HEIGHT + _TOP + 22)
    for tick in (*_TICKS, *([most] if most >= 125 else [])):
        kind = "full" if tick == 100 else "tick"
        yield f'<line class="{kind}" x1="{_LEFT}" y1="{y(tick)}" x2="{_WIDTH - 8}" y2="{y(tick)}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(tick) + 4}" text-anchor="end">{tick} %</text>'
    for number, point in enumerate(points):
        if point is None:
            continue
        left, right = _LEFT + room * number // len(points), _LEFT + room * (number + 1) // len(points)
        low, high = y(point[0]), y(point[1])
        width = max(1, right - left)
        yield f'<rect class="c0 area" x="{left}" y="{low}" width="{width}" height="{y(0) - low}"/>'
        yield f'<rect class="c1 area" x="{left}" y="{high}" width="{width}" height="{max(1, low - high)}"/>'
    bottom = _HEIGHT + _TOP + 16
    yield f'<text x="{_LEFT}" y="{bottom}">{_text(begin)}</text>'
    yield f'<text x="{_WIDTH - 8}" y="{bottom}" text-anchor="end">{_text(end)}</text></svg>'


def _open(about: str, height: int) -> str:
    return f'<svg role="img" aria-label="{_text(about)}" viewBox="0 0 {_WIDTH} {height}">'


def _legend(legend: Sequence[str]) -> str:
    items = (
        f'<li><svg class="key" viewBox="0 0 12 12" aria-hidden="true"><rect class="c{number % SERIES}" '
        f'x="1" y="1" width="10" height="10"/></svg>{_text(text)}</li>'
        for number, text in enumerate(legend)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _label(text: str) -> str:
    shown = printable(text)
    if len(shown) <= _LONGEST_LABEL:
        return escape(shown)
    return f"<title>{escape(shown)}</title>{escape(shown[: _LONGEST_LABEL - 3])}..."


def _text(text: str) -> str:
    return escape(printable(text))
