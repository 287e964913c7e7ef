"""The earliest time at which a waiting workload fits, and the domains that it gets then.

Running workloads are released in the order of their ends on a copy of the present state, until the planner finds room
for the workload.  Claims of preemptors are fulfilled; the room of other claims with a time is taken, as if they had
started.  The search halves the ends: a workload that fits after some ends fits after more of them.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter

from kqueue.core import quota
from kqueue.core.charging import charge_domains, fit_together, same_hosts
from kqueue.core.claims import Claims
from kqueue.core.nomination import NominatedHead, Nominator
from kqueue.core.planned_state import PlannedState, release
from kqueue.core.preemption import Findings
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Claim, Head, Snapshot

RENEWED = timedelta(seconds=5)
"""The least time between two searches for the same workload, unless its planned start is due."""
_PER_STEP = 200
"""Workloads that are released or charged in one step."""


@value(kw_only=True)
class ExpectedEnd:
    """The time at which a workload with quota is taken to end."""

    at: datetime
    workload: Admitted


Steps = Generator[None, None, Claim | None]


def earliest(
    state: PlannedState, head: Head, endings: Iterable[ExpectedEnd], *, now: datetime, guesses: bool = False
) -> Steps:
    """Search in short steps; return the claim with the time, or None: the workload does not fit even after all ends.

    Args:
        state: the present state with the tree of the head's ClusterQueue; it is not changed.
        endings: of workloads with quota, in any order; workloads without one are taken to run for ever.
        now: the time of a claim that needs no end.
        guesses: as in `Claim`.
    """
    spec = state.snapshot.queues.get(head.queue)
    if spec is None:
        return None
    copy = state.copied([head.queue])
    others = [_started(claim) for claim in copy.claims if claim.uid != head.uid]
    claims = Claims(copy, others)
    nominator = Nominator(copy, claims, Findings(state.rules), hooks=state.hooks, explains=False)
    profile = spec.profile.with_algorithm(head.algorithm)
    with claims.fulfilled(besides=head.uid):
        gone = {*claims.leaving(), head.uid}
        ordered = sorted((e for e in endings if e.workload.uid not in gone), key=attrgetter("at"))
        groups = [(at, [e.workload for e in some]) for at, some in groupby(ordered, key=attrgetter("at"))]
        releases = _Releases(copy, [some for _, some in groups])
        found: tuple[int, NominatedHead] | None = None
        low, high, middle = 0, len(groups), len(groups)  # all ends first: without them there is no time at all
        while low <= high:
            yield from releases.move_to(middle)
            entry = nominator.fitting(head, profile, None)
            if entry is None:
                low = middle + 1
            else:
                found, high = (middle, entry), middle - 1
            if found is None:
                return None
            middle = (low + high) // 2
            yield
    assert found is not None, "the first test decides"
    count, entry = found
    ended = [workload for _, some in groups[:count] for workload in some]
    claim = entry.claim()
    return replace(
        claim,
        victims={},
        at=groups[count - 1][0] if count else now,
        ends={w.uid: (w.queue, w.key) for w in _concerned(claim, ended, copy)},
        rank=(head.priority, head.timestamp),
        borrows=entry.level > 0,
        guesses=guesses,
    )


def holds(state: PlannedState, claim: Claim) -> bool:
    """Whether there is room for a claim when the workloads have ended that are to end before its time."""
    copy = state.copied([claim.queue])
    claims = Claims(copy, [_started(other) for other in copy.claims if other.uid != claim.uid])
    with claims.fulfilled(besides=claim.uid):
        for holder in state.holders:
            if holder.uid in claim.ends and holder.uid not in claims.leaving():
                release(holder, copy, copy.nodes)
        node = copy.nodes.get(claim.queue)
        if node is None or not quota.has_room(node, claim.usage):
            return False
        return not claim.domains or (
            claim.domains.keys() <= copy.topologies.keys() and fit_together(claim.domains, copy.topologies)
        )


def _started(claim: Claim) -> Claim:
    """Return a claim with a time as one that needs all its resources now; others are returned as they are."""
    return replace(claim, ends={}) if claim.is_timed else claim


def _concerned(claim: Claim, ended: Iterable[Admitted], snapshot: Snapshot) -> list[Admitted]:
    """Return the workloads whose end frees quota in the tree of the claim, or a host of the claim."""
    tree = {node.name for node in snapshot.nodes[claim.queue].root.walk() if not node.is_cohort}
    hosts = {
        (name, usage.values)
        for flavor, some in claim.domains.items()
        for name in same_hosts(flavor, snapshot.topologies)
        for usage in some
    }
    return [
        w
        for w in ended
        if w.queue in tree or any((f, u.values) in hosts for f, some in w.domains.items() for u in some)
    ]


class _Releases:
    """A copy of the state from which groups of workloads are released, from the first one on."""

    def __init__(self, copy: Snapshot, groups: Sequence[Collection[Admitted]]) -> None:
        self._copy, self._groups, self._count = copy, groups, 0

    def move_to(self, count: int) -> Generator[None, None, None]:
        """Release the first `count` groups, and charge all others again."""
        moved = 0
        while self._count != count:
            forward = self._count < count
            self._count += 1 if forward else -1
            for workload in self._groups[self._count - 1 if forward else self._count]:
                if forward:
                    release(workload, self._copy, self._copy.nodes)
                else:
                    _charge(workload, self._copy)
                moved += 1
                if moved % _PER_STEP == 0:
                    yield


def _charge(workload: Admitted, copy: Snapshot) -> None:
    """Undo `release`."""
    node = copy.nodes.get(workload.queue)
    if node is not None:
        for column, amount in workload.usage.items():
            quota.add_usage(node, column, amount)
    for flavor, domains in workload.domains.items():
        charge_domains(flavor, domains, copy.topologies)
