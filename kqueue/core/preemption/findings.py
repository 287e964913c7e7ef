"""Facts about queues that one plan computes during its search for workloads to preempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kqueue.core.preemption.target import Preemptor, Rules
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.value import value
from kqueue.core.workload import Admitted, Preempts


@value()
class Lowest:
    """The lowest priority among the workloads of a queue, and the newest timestamp among the workloads with that
    priority.
    """

    of: Mapping[str, Admitted]
    priority: int
    newest: datetime


@dataclass(frozen=True, slots=True)
class Candidates:
    """Workloads of a queue that a preemptor may preempt, in the order of preemption."""

    of: Mapping[str, Admitted]
    workloads: Sequence[Admitted]


@dataclass(slots=True)
class Findings:
    """The rules of one plan, and results computed under these rules; each plan has its own.

    Args:
        rules: the rules; all findings are valid only under them.
        lowest: lowest priorities by ClusterQueue; each is valid while the queue has the same workloads, so plans may
            share it.
    """

    rules: Rules
    lowest: dict[str, Lowest] = field(default_factory=dict)
    over_quota: dict[tuple[QuotaNode, bool, frozenset[FlavorResource]], tuple[int, list[QuotaNode]]] = field(
        default_factory=dict, init=False
    )
    """Children of cohorts that use more than their quota, with the number of changes of their tree at that time."""
    candidates: dict[tuple[str, Preempts], Candidates] = field(default_factory=dict, init=False)
    """The candidates for the last preemptor, by ClusterQueue and policy."""
    _kept: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    """By UID of a preemptor: UIDs of workloads whose room is kept for others when they end."""
    _asked_for: str = field(default="", init=False)
    spared: dict[str, dict[str, str]] = field(default_factory=dict, init=False)
    """By UID of a preemptor: UIDs of workloads that are not preempted for it, each with the plugin that says so."""
    retry_at: dict[str, datetime] = field(default_factory=dict, init=False)
    """By UID of a preemptor: the earliest time at which a workload that is protected from it now may be preempted."""

    def candidates_of(self, preemptor: Preemptor) -> dict[tuple[str, Preempts], Candidates]:
        """Return the cache of candidates for this preemptor; candidates for another preemptor are dropped to save
        memory.
        """
        if self._asked_for != preemptor.uid:
            self._asked_for, self.candidates = preemptor.uid, {}
        return self.candidates

    def leave_to_end(self, preemptor: str, workloads: frozenset[str]) -> None:
        """Leave workloads (UIDs) alone in all searches for this preemptor: their room is kept for others."""
        self._kept[preemptor] = workloads

    def spare(self, preemptor: str, workloads: Mapping[str, str]) -> None:
        """Leave workloads alone in further searches for this preemptor; `workloads` are UIDs, each with its plugin."""
        self.spared.setdefault(preemptor, {}).update(workloads)
        self._asked_for = ""

    def is_protected(self, workload: Admitted, preemptor: Preemptor) -> bool:
        """Whether a workload may not be preempted for this one, now or ever; records the end of the protection in
        `retry_at`.
        """
        if self._kept and workload.uid in self._kept.get(preemptor.uid, ()):
            return True
        if self.rules.is_spared(workload, preemptor):
            return True
        if self.spared and workload.uid in self.spared.get(preemptor.uid, ()):
            return True
        until = self.rules.protected_until(workload)
        if until is None:
            return False
        known = self.retry_at.get(preemptor.uid)
        if known is None or until < known:
            self.retry_at[preemptor.uid] = until
        return True
