"""The question itself: which workloads have to go so that this one fits."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core.preemption.classical import classical_targets
from kqueue.core.preemption.fair import fair_targets
from kqueue.core.preemption.target import Preemptor, Rules, Target
from kqueue.core.workload import Snapshot


def find_targets(
    snapshot: Snapshot, preemptor: Preemptor, rules: Rules, *, places: Callable[[], bool] | None = None
) -> tuple[Target, ...]:
    """Workloads that have to go so that the preemptor fits; () when no choice that the policies allow is enough.

    None of them could stay without another one going.  The snapshot is as before afterwards.

    Args:
        snapshot: its queues must have the preemptor's.
        preemptor: `preemptor.alone` asks about one column, as choosing a flavor does.
        rules: the same for all questions of a cycle.
        places: whether the preemptor's pods find domains in the snapshot as it is when asked; None: none are asked for.
    """
    search = classical_targets if rules.fair is None else fair_targets
    return search(snapshot, preemptor, rules, places)
