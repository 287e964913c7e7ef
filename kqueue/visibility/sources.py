"""The sources of explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.core.backfill.plans import StartPlans
from kqueue.core.hooks import HooksByProfile
from kqueue.core.preemption import Rules
from kqueue.core.workload import Claim
from kqueue.model.variants import is_parent
from kqueue.runtime.store import Store
from kqueue.state.cache import Cache
from kqueue.state.heads import Heads
from kqueue.state.joint_history import JointHistory
from kqueue.state.queues import Queues
from kqueue.state.tries import Tries
from kqueue.visibility.defragmentation import plan_part
from kqueue.visibility.joint_rounds import workload_part
from kqueue.visibility.planned_starts import planned_start_part
from kqueue.visibility.question import JSON
from kqueue.visibility.workload_state import variant_part


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningSource:
    """The inputs of the scheduling loop, for explanations.

    Args:
        rules: returns the rules of preemption at a time for these preemptors (uids).
        claims: returns the resources reserved for preemptors.
        held_by: returns the workload whose pods must be ready before the next admission; empty: there is none.
        hooks: plugins by the profile of a ClusterQueue; only the leader calls them.
        joint: rounds of joint placement; None: there are none.
        starts: the planned starts of workloads.
        plan_for: returns the DefragmentationPlan that stands for a waiting Workload (namespace/name), or None.
    """

    heads: Heads
    tries: Tries
    rules: Callable[[datetime, Iterable[str]], Rules]
    claims: Callable[[], Sequence[Claim]]
    held_by: Callable[[], str]
    hooks: HooksByProfile = field(default_factory=dict)
    joint: JointHistory | None = None
    plan_for: Callable[[str], DefragmentationPlan | None] = lambda _key: None
    starts: StartPlans = field(default_factory=StartPlans)

    def is_parent(self, obj: wire.Workload) -> bool:
        """Whether variants are tried in place of the Workload."""
        return self.heads.variants is not None and is_parent(obj)

    def parts_of(self, obj: wire.Workload, queue: str) -> JSON:
        """Return the parts of an explanation about other objects: its variants in a ClusterQueue, rounds of joint
        placement with the Workload, and the plan for it.
        """
        found: JSON = {}
        if (planned := self.starts.of_workload(obj.metadata.uid)) is not None:
            found["plannedStart"] = planned_start_part(*planned)
        if self.heads.variants is not None and (variants := self.heads.variants.of_parent(obj, queue)):
            found["variants"] = [variant_part(flavor, variant) for flavor, variant in variants.items()]
        joint = workload_part(self.joint, obj.metadata.uid) if self.joint is not None else None
        if joint is not None:
            found["joint"] = joint
        plan = self.plan_for(model.workload_key(obj)) if obj.status.admission is None else None
        if plan is not None:
            found["defragmentation"] = plan_part(plan)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The state for explanations; `namespace_labels` returns None for an unknown namespace."""

    workloads: Store[wire.Workload]
    local_queues: Store[wire.LocalQueue]
    cache: Cache
    queues: Queues
    namespace_labels: Callable[[str], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Whether answers may be old.

    Args:
        leads: whether this process leads.
        silence: seconds since the last event of the watch that has been silent longest.
        stale_after: seconds of silence from which on answers say that they may be old.
    """

    leads: Callable[[], bool]
    silence: Callable[[], float] = lambda: 0.0
    stale_after: float = 180.0
