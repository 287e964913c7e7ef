"""The question itself: which workloads have to go so that this one fits."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core.preemption.candidates import all_are_above
from kqueue.core.preemption.classical import another_queue_borrows, classical_targets
from kqueue.core.preemption.fair import any_other_queue_borrows, fair_targets
from kqueue.core.preemption.findings import Findings
from kqueue.core.preemption.fit import HostNeeds, nothing
from kqueue.core.preemption.simulation import everybody
from kqueue.core.preemption.target import Preemptor, Seeker, Target
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admitted, Preempts, Snapshot

_NEVER = Preempts.NEVER
"""By name, because looking a member up in its class takes 0.1 us, and every head that waits asks."""


def none_may_be_preempted(
    snapshot: Snapshot, seeker: Seeker, needs: frozenset[FlavorResource], findings: Findings
) -> bool:
    """Whether policies alone show that no workload may be preempted for these columns; False: unknown.

    This cheap test decides for most waiting workloads.
    """
    spec, node = snapshot.queues[seeker.queue], snapshot.nodes[seeker.queue]
    if not all_are_above(snapshot, node.name, spec.preempts_own, seeker, findings):
        return False
    if spec.reclaims is _NEVER:
        return True
    borrows = another_queue_borrows if findings.rules.fair is None else any_other_queue_borrows
    return not borrows(node, needs, findings)


def find_targets(
    snapshot: Snapshot,
    preemptor: Preemptor,
    findings: Findings,
    *,
    places: Callable[[], bool] | None = None,
    matters: Callable[[Admitted], bool] = everybody,
    lacks: Callable[[], int] = nothing,
    disturbs: Callable[[Admitted], bool] = everybody,
) -> tuple[Target, ...]:
    """Workloads that have to go so that the preemptor fits; () when no choice that the policies allow is enough.

    None of them could stay without another one going, or the preemptor borrowing where it takes from others.
    The snapshot is as before afterwards.

    Args:
        snapshot: its queues must have the preemptor's.
        preemptor: `preemptor.alone` asks about one column, as choosing a flavor does.
        findings: the same for all questions of a plan.
        places: whether the preemptor's pods find domains in the snapshot as it is when asked; None: none are asked for.
        matters: whether what `places` says may depend on the hosts which a workload holds; see `VictimReach`.
        lacks: how many domains must be given back at least before `places` can say yes.
        disturbs: whether a workload holds any of the domains that `places` found last.
    """
    hosts = HostNeeds(places, matters, lacks, disturbs) if places is not None else None
    search = classical_targets if findings.rules.fair is None else fair_targets
    return search(snapshot, preemptor, findings, hosts)
