"""The DefragmentationPlan that stands for a waiting workload, or why there is none.

    GET defragmentation?workload=NAMESPACE/NAME

Workloads that the plan moves have no name where the user may not read Workloads of their namespace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan, PlannedMove
from kqueue.clock import Clock, utc_text
from kqueue.core.joint.move_steps import PlanPhase
from kqueue.errors import ConfigError, NotFoundError
from kqueue.runtime.store import Store
from kqueue.state.defrag.searches import SearchMemory, waits_for_topology
from kqueue.state.defrag.stored import is_approved, open_plan_for, phase_of, valid_until
from kqueue.state.queues import Queues
from kqueue.visibility.params import only
from kqueue.visibility.question import JSON, AuthorizedQuestion

KIND = "Defragmentation"
_GONE = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalSource:
    """Proposals in this process.

    Args:
        off: why the controller proposes no plans; empty: it does.
        plans: the stored plans; empty where the controller proposes none.
        memory: the searches of this process.
        leads: whether this process leads; others make no searches.
    """

    off: str
    plans: Callable[[], Iterable[DefragmentationPlan]]
    memory: SearchMemory
    leads: Callable[[], bool]


class DefragmentationView:
    """Answers questions about plans."""

    def __init__(
        self, source: ProposalSource, *, workloads: Store[wire.Workload], queues: Queues, clock: Clock
    ) -> None:
        self._source, self._workloads, self._queues, self._clock = source, workloads, queues, clock

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the plan that stands for the Workload of the parameter `workload`, or why there is none.

        Raises:
            NotFoundError: there is no such Workload, or the user may not read it.
            ConfigError: a parameter is wrong.
        """
        only(asked.params, "workload")
        key = asked.params.get("workload", "")
        namespace, slash, name = key.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ConfigError(f"workload={key[:60]!r} must be NAMESPACE/NAME of a waiting Workload")
        obj = self._workloads.get(key) if await asked.reads(namespace) else None
        if obj is None:
            raise NotFoundError(f'workloads.kueue.x-k8s.io "{name[:253]}" not found', status=_GONE)
        found: JSON = {
            "kind": KIND,
            "metadata": {},
            "workload": {"namespace": namespace, "name": name},
            "enabled": not self._source.off,
            "leading": self._source.leads(),
            "plan": None,
        }
        result = self._source.memory.of(obj.metadata.uid)
        if result is not None:
            found["searchedAt"] = utc_text(result.at)
        plan = open_plan_for(self._source.plans(), key, self._clock.now())
        if plan is None:
            reason, message = self._why_none(obj)
            return {**found, "reason": reason, "message": message}
        namespaces = {move.workload.partition("/")[0] for move in plan.status.moves}
        readable = {one for one in sorted(namespaces) if await asked.reads(one)}
        return {**found, "plan": self._shown(plan, readable)}

    def _why_none(self, obj: wire.Workload) -> tuple[str, str]:
        """Return reason and sentence."""
        source = self._source
        if source.off:
            return "Off", f"no plan: the controller proposes none, because {source.off}"
        if obj.status.admission is not None:
            return "DoesNotWait", "no plan: it has its quota already"
        if not waits_for_topology(obj, self._queues):
            return "OtherReason", "no plan: it does not wait for topology, so that moves would not help"
        result = source.memory.of(obj.metadata.uid)
        if result is not None and result.message:
            return result.reason, result.message
        if not source.leads():
            return "NotLeading", "this replica makes no searches; ask again to reach the one that does"
        if result is not None:
            return "Ended", "no plan: the last one has ended; the next search may find another"
        return "NotSearched", "no plan: no search was made for it yet; the first gangs in order are searched for"

    def _shown(self, plan: DefragmentationPlan, readable: set[str]) -> JSON:
        status, name = plan.status, plan.metadata.name
        cost, gain = status.cost, status.gain
        found: JSON = {
            "name": name,
            "phase": phase_of(plan),
            "hash": status.hash,
            "flavor": status.flavor or "",
            "domain": list(status.domain),
            "moves": [_move(move, readable) for move in status.moves],
            "show": f"kqueue defrag show {name}",
        }
        if cost is not None:
            found["cost"] = {"podSeconds": cost.pod_seconds}
        if gain is not None:
            found["gain"] = {
                "slotsBefore": gain.slots_before,
                "slotsAfter": gain.slots_after,
                "fragmentationBefore": gain.fragmentation_before,
                "fragmentationAfter": gain.fragmentation_after,
            }
        if phase_of(plan) == PlanPhase.PROPOSED and not is_approved(plan):
            found["validUntil"] = utc_text(valid_until(plan, self._clock.now()))
            found["approve"] = f"kqueue defrag approve {name} --hash {status.hash}"
        return found


def _move(move: PlannedMove, readable: set[str]) -> JSON:
    namespace, _, name = move.workload.partition("/")
    who: dict[str, Any] = {"namespace": namespace, "name": name} if namespace in readable else {"hidden": True}
    return {
        **who,
        "pods": move.pods,
        "from": list(move.source),
        "to": list(move.to),
        "cost": move.cost,
        "state": move.state,
    }


def plan_part(plan: DefragmentationPlan) -> JSON:
    """Return what the explanation of a waiting workload says about the plan for it; no other workload is named."""
    status, name = plan.status, plan.metadata.name
    seconds = status.cost.pod_seconds if status.cost is not None else 0
    found: JSON = {
        "plan": name,
        "phase": phase_of(plan),
        "moves": len(status.moves),
        "podMinutes": -(-seconds // 60),
        "show": f"kqueue defrag show {name}",
    }
    if phase_of(plan) == PlanPhase.PROPOSED and not is_approved(plan):
        found["approve"] = f"kqueue defrag approve {name} --hash {status.hash}"
    return found
