"""Backfill by time in a process: the lines, and the guesses that some of them ask for."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.api.wire import kueue as wire
from kqueue.controllers.manager import Manager
from kqueue.controllers.run_times import make_run_times
from kqueue.state.backfill_lines import BackfillLines


def make_lines(manager: Manager) -> BackfillLines:
    """Return the lines of a process; call it through `manager.shared`."""
    return BackfillLines(manager.cache.quota)


def make_guess(manager: Manager) -> Callable[[wire.Workload], int | None]:
    """Return what guesses the run time of a Workload in seconds, where a line asks for it; call it through
    `manager.shared`.
    """
    lines, run_times = manager.shared(make_lines), manager.shared(make_run_times)
    return lambda obj: run_times.of(obj).p90 if lines.guess else None
