"""The input of a drain: the present state, the waiting workloads in their order, and run times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kqueue.core.backfill.plans import LineRule
from kqueue.core.decision import ALL_LOOKS, SecondLooks
from kqueue.core.future.run_time import NOT_KNOWN, RunTime
from kqueue.core.ordering import DEFAULT_RULES, OrderRules
from kqueue.core.planned_state import PlannedState
from kqueue.core.value import value
from kqueue.core.workload import Head

DAY = 86_400


@value(kw_only=True)
class WaitingWorkload:
    """A waiting workload.

    Args:
        shape: equal for workloads of one ClusterQueue whose tries have the same result.
        not_before: the time until which the workload is not tried; None: it is tried at once.
        on_hold: whether it is not tried before somebody changes it.
    """

    head: Head
    run_time: RunTime = NOT_KNOWN
    shape: str
    not_before: datetime | None = None
    on_hold: bool = False


@value(kw_only=True)
class Line:
    """The waiting workloads of a ClusterQueue in its order; `is_strict`: no workload goes before the one ahead."""

    queue: str
    is_strict: bool
    workloads: tuple[WaitingWorkload, ...]


@value(kw_only=True)
class WorkloadRun:
    """A workload that has quota.

    Args:
        run_time: from its admission, of a workload that has run for `elapsed`.
        elapsed: whole seconds since its admission; 0 if it may not run yet.
        outlived: whether it has run for longer than half of its kind.
        waits_as: the workload as it waits again when it has been preempted; None: it is taken as gone then.
    """

    run_time: RunTime = NOT_KNOWN
    elapsed: int = 0
    outlived: bool = False
    waits_as: WaitingWorkload | None = None


@value(kw_only=True)
class DrainBounds:
    """The limits of a drain.

    Args:
        horizon: seconds from now; what starts later has no start time.
        tries: the largest number of tries of the planner.
        workloads: the largest number of waiting workloads; those behind it in the lines are left out.
    """

    horizon: int = 7 * DAY
    tries: int = 200_000
    workloads: int = 10_000


DEFAULT_BOUNDS = DrainBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartQuestion:
    """The question when waiting workloads start.

    Args:
        state: the snapshot has all ClusterQueues of `lines`, with their trees.  The drain works on copies.
        running: by UID; a workload that is not listed has no known run time.
        order: the rules for the order of a cycle's entries.
        looks: the entries that a cycle nominates a second time.
    """

    state: PlannedState
    lines: tuple[Line, ...]
    running: Mapping[str, WorkloadRun] = field(default_factory=dict)
    order: OrderRules = DEFAULT_RULES
    looks: SecondLooks = ALL_LOOKS
    bounds: DrainBounds = DEFAULT_BOUNDS
    line_of: Mapping[str, LineRule] = field(default_factory=dict)
    """The lines of backfill, by ClusterQueue."""
    planned: Mapping[str, str] = field(default_factory=dict)
    """By line, the UID of the workload with its planned start; its claim is in the snapshot."""
