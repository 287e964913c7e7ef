"""Running workloads as a plan sees them: their places, the cost of a move, and why some of them stay."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.core.charging import counted_in
from kqueue.core.joint.movable import MoveFacts, MoveHistory, MoveLimits, why_immovable
from kqueue.core.joint.moving import RunningGang, Topologies
from kqueue.core.topology import DomainUsage, PodSetRequest
from kqueue.core.topology.result import Path
from kqueue.core.workload import Head
from kqueue.errors import InvalidObjectError
from kqueue.model.moving import MoveWishes, move_wishes, running_seconds
from kqueue.state.defrag.view import DefragState
from kqueue.state.disruption_budgets import covers
from kqueue.state.heads import Heads
from kqueue.state.holding import Holding

_UNREADABLE = "its requests cannot be read"
_ELASTIC = "it is a part of an elastic job"
_DAMAGED = "some of its nodes have failed"
_STEP = 5
"""Workloads between two steps.  Each takes some hundreds of microseconds."""


def running_steps(
    state: DefragState,
    topologies: Topologies,
    found: list[RunningGang],
    *,
    limits: MoveLimits,
    history: MoveHistory,
) -> Iterator[None]:
    """Add all workloads with pods on domains of these flavors to `found`, some between two steps.

    The workloads are those that have domains at the first step: other workloads that begin or end later change nothing.
    """
    heads, judge = Heads(state.cache, state.workloads.get), _limited(limits, history)
    budgets: dict[str, list[wire_core.PodDisruptionBudget]] = defaultdict(list)
    for budget in state.budgets:
        budgets[budget.metadata.namespace].append(budget)
    for number, holding in enumerate(state.cache.held.listed()):
        if number % _STEP == 0:
            yield
        obj = state.workloads.get(holding.key)
        if obj is None or obj.metadata.uid != holding.uid:
            continue
        if any(pod_set.topology is not None for pod_set in holding.admission.pod_sets):
            over = budgets.get(obj.metadata.namespace, ())
            found.append(_gang(state, obj, holding, topologies, judge, heads, over))


def running_gang(
    state: DefragState, key: str, topologies: Topologies, *, limits: MoveLimits, history: MoveHistory
) -> RunningGang | None:
    """Return one workload as `running_steps` does; None: it has no quota, or no pods on domains of these flavors."""
    obj, holding = state.workloads.get(key), state.cache.held.holding(key)
    if obj is None or holding is None or all(pod_set.topology is None for pod_set in holding.admission.pod_sets):
        return None
    heads, judge = Heads(state.cache, state.workloads.get), _limited(limits, history)
    over = [budget for budget in state.budgets if budget.metadata.namespace == obj.metadata.namespace]
    return _gang(state, obj, holding, topologies, judge, heads, over)


def _limited(limits: MoveLimits, history: MoveHistory) -> Callable[[MoveFacts], tuple[str, ...]]:
    return lambda facts: why_immovable(facts, limits, history)


def _gang(
    state: DefragState,
    obj: wire.Workload,
    holding: Holding,
    topologies: Topologies,
    judge: Callable[[MoveFacts], tuple[str, ...]],
    heads: Heads,
    budgets: Iterable[wire_core.PodDisruptionBudget],
) -> RunningGang:
    head, unreadable = _head(heads, obj, holding, state)
    wishes = _wishes(state, obj, holding.queue)
    running = running_seconds(obj, state.now)
    pods = sum(pod_set.count for pod_set in holding.admission.pod_sets)
    placed = _placed(holding, topologies, head)
    minimum = state.cache.quota.run_limits().granted(holding.queue, holding.facts)
    reasons = judge(
        MoveFacts(
            queue=holding.queue,
            pods=pods,
            consent=wishes.consent,
            running=running,
            checkpoint_age=wishes.checkpoint_age,
            minimum_runtime=int(minimum.total_seconds()),
            moved=_moved(obj, running),
            budgets=_budgets(budgets, obj, pods),
        )
    )
    spec = state.cache.quota.queue_spec(holding.queue)
    gang = RunningGang(
        key=holding.key,
        uid=holding.uid,
        assigned=holding.admission.pod_sets,
        queue=holding.queue,
        requests={flavor: tuple(requests) for flavor, (requests, _) in placed.items()},
        places=_places(holding, topologies),
        usage={flavor: tuple(usage) for flavor, (_, usage) in placed.items()},
        lost=wishes.lost(running or 0),
        checkpoint_age=wishes.checkpoint_age,
        immovable=(*reasons, *unreadable, *_oddities(obj, holding)),
    )
    with_profile = gang if spec is None else replace(gang, profile=spec.profile.with_algorithm(_algorithm(head)))
    return replace(with_profile, elsewhere=max(0, pods - gang.pods))


def _moved(obj: wire.Workload, running: int | None) -> int | None:
    """Return the least number of seconds since the last move; None: the workload was never moved.

    A moved workload was admitted again afterwards, so that its last admission is later than any move.
    """
    stats = obj.status.scheduling_stats
    reasons = [count.reason for count in stats.evictions] if stats is not None else []
    return running if names.REASON_RESCHEDULED in reasons else None


def _head(
    heads: Heads, obj: wire.Workload, holding: Holding, state: DefragState
) -> tuple[Head | None, tuple[str, ...]]:
    try:
        return heads.make(obj, None, queue=holding.queue, now=state.now), ()
    except InvalidObjectError:
        return None, (_UNREADABLE,)


def _algorithm(head: Head | None) -> str | None:
    return head.algorithm if head is not None else None


def _wishes(state: DefragState, obj: wire.Workload, queue: str) -> MoveWishes:
    of_queue = state.cache.quota.queue_object(queue)
    wishes = move_wishes(obj.metadata, of_queue.metadata if of_queue is not None else None, state.now)
    state.remarks.extend(f"Workload {model.workload_key(obj)}: {remark}" for remark in wishes.remarks)
    return wishes


def _oddities(obj: wire.Workload, holding: Holding) -> tuple[str, ...]:
    """Return the reasons that no annotation has."""
    elastic = holding.takes_over is not None or model.replaced_key(obj) is not None
    return tuple([text for text, holds in ((_ELASTIC, elastic), (_DAMAGED, bool(obj.status.unhealthy_nodes))) if holds])


def _budgets(budgets: Iterable[wire_core.PodDisruptionBudget], obj: wire.Workload, pods: int) -> tuple[str, ...]:
    """Return the names of the budgets over the pods that do not allow the disruption of all of them.

    `budgets` are those of its namespace.
    """
    over = [b for b in budgets if covers(b, obj)]
    return tuple(sorted(b.metadata.name for b in over if b.status.disruptions_allowed < pods))


def _placed(
    holding: Holding, topologies: Topologies, head: Head | None
) -> Mapping[str, tuple[list[PodSetRequest], list[DomainUsage]]]:
    """Return the pod sets with domains, by flavor, and the usage of their pods."""
    asked = {pod_set.name: pod_set.request for pod_set in head.pod_sets} if head is not None else {}
    avoided = head.avoided if head is not None else frozenset[str]()
    found: dict[str, tuple[list[PodSetRequest], list[DomainUsage]]] = defaultdict(lambda: ([], []))
    for pod_set in holding.admission.pod_sets:
        flavor = counted_in(pod_set, topologies.keys())
        where = pod_set.topology
        if where is None or flavor is None or not where.count:
            continue
        requests, usage = found[flavor]
        per_pod = holding.requests.get(pod_set.name, {})
        request = asked.get(pod_set.name) or PodSetRequest(name=pod_set.name, count=1, requests=per_pod)
        requests.append(replace(request, count=where.count).avoiding(avoided))
        usage.extend([DomainUsage(where.named(d.values), per_pod, d.count) for d in where.domains])
    return found


def _places(holding: Holding, topologies: Topologies) -> dict[str, tuple[tuple[Path, int], ...]]:
    """Return full paths and numbers of pods, by pod set; domains that are gone are left out."""
    found: dict[str, tuple[tuple[Path, int], ...]] = {}
    for pod_set in holding.admission.pod_sets:
        flavor = counted_in(pod_set, topologies.keys())
        if pod_set.topology is None or flavor is None:
            continue
        tree = topologies[flavor].tree
        leaves = [(tree.leaf_of(pod_set.topology.named(d.values)), d.count) for d in pod_set.topology.domains]
        found[pod_set.name] = tuple([(tree.paths[leaf], count) for leaf, count in leaves if leaf is not None])
    return found
