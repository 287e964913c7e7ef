"""What a row of `make bench` is, how it is timed, and how it is shown.

To add rows, give a module of this folder a tuple `ROWS` of `Row`: a name, and a function that yields figures.

    def cycle(queues: int) -> Iterator[Figure]:
        world = filled(queues)                                  # not timed
        times = timed(world.cycle, ready=world.refill)          # milliseconds, five repetitions
        check(world.admitted == queues, f"{world.admitted} of {queues} are admitted")
        yield Figure("cycle_ms", times, goal=at_most(50))
        yield Figure("admitted", [world.admitted])

    ROWS = (Row("heads/classical", partial(cycle, 1_000)), Row("heads/huge", partial(cycle, 99_000), alone=True))

Names are paths from the general to the special; `ROWS=` chooses by them, by every beginning of them that ends before
a slash, by the name of the module, and by patterns of these.  The rows of a module run in one process in their order
and may share what `functools.cache` keeps, those that are `alone` in one of their own.  Rows that take minutes are
`asked` for by name: without `ROWS=` they are left out.  The last word of a metric is its unit: `ms`, `mib`, `per_s`,
else plain numbers.

A row with a wrong answer has no figures: what `check` or an assert finds is reported in their place, and the run fails.
To fall short of a goal is a finding, not a failure.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any, Self

from kqueue.runtime.loop import freeze_after_sync

REPETITIONS = 5
_ROUNDS = 60
_REPETITION_S = 0.1
"""A repetition is the median of so many rounds as fit into this time, at most `_ROUNDS`, and of one at least."""


class WrongAnswerError(Exception):
    """What was measured did not do what it should have done."""


def check(holds: bool, otherwise: str) -> None:
    """Fail the row unless this holds."""
    if not holds:
        raise WrongAnswerError(otherwise)


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit that the median is to keep."""

    limit: float
    upper: bool = True

    def reached_by(self, value: float) -> bool:
        """Whether the value is on the right side."""
        return value <= self.limit if self.upper else value >= self.limit


def at_most(limit: float) -> Goal:
    """Less is better."""
    return Goal(limit)


def at_least(limit: float) -> Goal:
    """More is better."""
    return Goal(limit, upper=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric of a row.

    Args:
        metric: what was measured; the last word is the unit.
        samples: one value per repetition; the median counts.
        goal: in the metric's unit; None without.
        floor: the least that is possible, measured in the same run, in the metric's unit; None when it is not known.
    """

    metric: str
    samples: Sequence[float]
    goal: Goal | None = None
    floor: float | None = None

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, Any]:
        """In plain types, for another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        """What `as_json` gave."""
        goal = data["goal"]
        return cls(data["metric"], data["samples"], None if goal is None else Goal(**goal), data["floor"])


@dataclass(frozen=True, slots=True)
class Row:
    """A case to measure.

    Args:
        name: what it is chosen by.
        measure: finds the figures.
        alone: in a process of its own, because of its size or because it leaves traces.
        asked: measured only for a pattern that begins so, because it takes long; empty: like all others.
    """

    name: str
    measure: Callable[[], Iterable[Figure]]
    alone: bool = False
    asked: str = ""

    def chosen(self, module: str, patterns: Sequence[str]) -> bool:
        """Whether these patterns choose this row of that module."""
        if self.asked:
            patterns = [pattern for pattern in patterns if pattern.startswith(self.asked)]
            return bool(patterns) and chosen(self.name, module, patterns)
        return chosen(self.name, module, patterns)


def chosen(name: str, module: str, patterns: Sequence[str]) -> bool:
    """Whether these patterns choose the row of this name; without patterns all are chosen."""
    return not patterns or any(
        fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}/*") or fnmatchcase(module, pattern)
        for pattern in patterns
    )


# --- the clock


def timed(act: Callable[[], object], *, ready: Callable[[], object] = lambda: None) -> list[float]:
    """Milliseconds that `act` takes, per repetition; `ready` runs untimed ahead of each call.

    Garbage is collected first, and what lives is left to the collector as in a controller after its start.
    """
    gc.collect()
    freeze_after_sync()
    return [_repetition(act, ready) for _ in range(REPETITIONS)]


def _repetition(act: Callable[[], object], ready: Callable[[], object]) -> float:
    times: list[float] = []
    until = time.perf_counter() + _REPETITION_S
    while len(times) < _ROUNDS and (not times or time.perf_counter() < until):
        ready()
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def pace() -> float:
    """Milliseconds that a fixed piece of work takes now: what a busy machine adds to it, it adds to figures, too."""

    def work() -> float:
        start = time.perf_counter()
        made = {number: (number, str(number)) for number in range(20_000)}
        assert sum(len(text) for _, text in made.values()) == 88_890
        return time.perf_counter() - start

    return statistics.median(work() for _ in range(5)) * 1e3


# --- the table


HEADER = f"{'case':<47} {'metric':<18} {'median (range)':<30} {'goal':<12} {'mark':<12} x floor"


def line(row: str, figure: Figure) -> str:
    """One figure of a row, under `HEADER`."""
    *_, unit = figure.metric.split("_")
    texts = [_shown(value, unit) for value in (figure.value, min(figure.samples), max(figure.samples))]
    median = texts[0] if len(figure.samples) == 1 else f"{texts[0]} ({texts[1]} - {texts[2]})"
    goal, mark = "", ""
    if figure.goal is not None:
        goal = f"{'<=' if figure.goal.upper else '>='} {_shown(figure.goal.limit, unit)}"
        mark = "reached" if figure.goal.reached_by(figure.value) else "falls short"
    ratio = "" if figure.floor is None else f"{figure.value / figure.floor:7.2f}"
    return f"{row:<47} {figure.metric:<18} {median:<30} {goal:<12} {mark:<12} {ratio}".rstrip()


def _shown(value: float, unit: str) -> str:
    if unit == "ms":
        return f"{value * 1e3:.3g} us" if value < 0.9995 else f"{value:.4g} ms"
    if unit == "mib":
        return f"{value:.1f} MiB"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1_000 else f"{value:.3g}"


def verdict(figures: Iterable[tuple[str, Figure]], paces: Mapping[str, float]) -> Iterator[str]:
    """How many goals were reached, which were not, and how steady the machine was; `paces` by row."""
    judged = [(row, f, f.goal.reached_by(f.value)) for row, f in figures if f.goal is not None]
    best, worst = min(paces.values(), default=0.0), max(paces.values(), default=0.0)
    if judged:
        yield f"\n{sum(reached for *_, reached in judged)} of {len(judged)} goals reached"
    for row, figure, reached in judged:
        if not reached:
            slower = f", at {paces[row] / best:.1f} times the best pace" if row in paces else ""
            yield f"falls short: {row} {figure.metric}{slower}"
    if paces:
        yield f"pace: a fixed piece of work beside the rows took {best:.1f} ms at best, {worst:.1f} ms at worst"
