"""The search for the workloads to preempt so that another workload fits."""

from __future__ import annotations

from collections.abc import Callable

from kqueue.core.preemption.candidates import all_are_above
from kqueue.core.preemption.classical import another_queue_borrows, classical_candidates, classical_targets
from kqueue.core.preemption.fair import any_other_queue_borrows, fair_candidates, fair_targets
from kqueue.core.preemption.findings import Findings
from kqueue.core.preemption.fit import HostNeeds, nothing
from kqueue.core.preemption.simulation import everybody
from kqueue.core.preemption.target import Preemptor, Seeker, Target
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Admitted, Preempts, Snapshot

_NEVER = Preempts.NEVER
"""A constant, because an attribute lookup in an enum takes 0.1 us, and every waiting head makes it."""


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


def all_candidates(snapshot: Snapshot, preemptor: Preemptor, findings: Findings) -> list[Admitted]:
    """Return the workloads that policies let the preemptor preempt, whether they suffice or not.

    Workloads that are protected from it are left out, unless they leave already.
    """
    collect = classical_candidates if findings.rules.fair is None else fair_candidates
    return collect(snapshot, preemptor, findings)


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
    """Return the workloads to preempt so that the preemptor fits; empty: no choice that the policies allow suffices.

    All are necessary: without any one of them, another one would have to go, or the preemptor would borrow while it
    preempts in other queues. The snapshot is unchanged afterwards.

    Args:
        snapshot: its queues must include the preemptor's queue.
        preemptor: for a question about one column, as in the choice of a flavor, the result of `Preemptor.alone`.
            With `only` the targets are among these workloads.
        findings: the same object for all searches of a plan.
        places: returns whether the preemptor's pods find domains in the present snapshot; None: they need no domains.
        matters: returns whether the result of `places` may depend on the hosts of a workload; see `VictimReach`.
        lacks: returns a lower bound of the domains that must be released before `places` can return True.
        disturbs: returns whether a workload uses any of the domains that `places` found last.
    """
    hosts = HostNeeds(places, matters, lacks, disturbs) if places is not None else None
    search = classical_targets if findings.rules.fair is None else fair_targets
    return search(snapshot, preemptor, findings, hosts)
