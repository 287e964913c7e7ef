"""Checks of one plan of a round, with arithmetic of their own: no host and no quota is overdrawn, gangs are whole, levels
are kept, and the score is not below that of one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kqueue.core.demand import Demands
from kqueue.core.joint.baseline import OneByOne, one_by_one
from kqueue.core.joint.candidate import CandidateName
from kqueue.core.joint.plan import JointPlan
from kqueue.core.joint.registry import DEFAULT_POLICIES
from kqueue.core.joint.round import RoundInput
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.workload import Head, PodSetAssignment, Snapshot, TopologyView
from kqueue.sandbox.api import Object
from tests.sim.quota_tree import Column, QuotaTree

_SPREAD = (300, 60)
"""Points of a unit for each domain too many, at the widest level and the next; 1 at all others."""

Path = tuple[str, ...]
Hosts = dict[str, Counter[str]]


def faults_of_plan(given: RoundInput, plan: JointPlan) -> Iterator[str]:
    """Yield one sentence for each fault of a plan."""
    snapshot = given.state.snapshot
    yield from plan.faults
    yield from (f"policy {name} has failed: {why}" for name, why in plan.failed_policies.items())
    if {one.head.uid for one in plan.workloads} != {head.uid for head in given.batch.heads()}:
        yield "the plan has other workloads than the batch"
    admitted = [one.admitted for one in plan.workloads if one.admitted is not None]
    for planned in admitted:
        for pod_set in planned.pod_sets:
            yield from _faults_of_gang(planned.head, pod_set, snapshot)
    yield from _overdrawn_hosts(admitted, snapshot)
    yield from _overdrawn_quota(admitted, snapshot)
    yield from _passed(given, plan)
    if plan.bound is not None and plan.units > plan.bound:
        yield f"{plan.units} units are planned, the bound is {plan.bound}"
    yield from _worse(given, plan)


# --- gangs -----------------------------------------------------------------------------------------------------------


def _request(head: Head, name: str) -> PodSetRequest:
    return next(p.request for p in head.pod_sets if p.name == name)


def _view(pod_set: PodSetAssignment, snapshot: Snapshot) -> TopologyView | None:
    return next((snapshot.topologies[f] for f in pod_set.flavors.values() if f in snapshot.topologies), None)


def _paths(pod_set: PodSetAssignment, view: TopologyView) -> dict[Path, int]:
    """Return the pods by the full path of their leaf; the path is that of the host's labels."""
    by_host = {leaf.path[-1]: leaf.path for leaf in view.tree.leaves}
    domains = pod_set.topology.domains if pod_set.topology is not None else ()
    return {by_host.get(d.values[-1], ("?", *d.values)): d.count for d in domains}


def _faults_of_gang(head: Head, pod_set: PodSetAssignment, snapshot: Snapshot) -> Iterator[str]:
    request, view = _request(head, pod_set.name), _view(pod_set, snapshot)
    told = f"{head.key}/{pod_set.name}"
    if view is None:
        return
    paths = _paths(pod_set, view)
    if sum(paths.values()) != request.count:
        yield f"{told} has {request.count} pods, {sum(paths.values())} have a place"
    yield from (f"{told} has pods on host {path[-1]}, which is not in the topology" for path in paths if "?" in path)
    levels = tuple(view.tree.levels)
    if request.topology.required is not None:
        depth = levels.index(request.topology.required) + 1
        if len({path[:depth] for path in paths}) > 1:
            yield f"{told} must be in one {request.topology.required} and has {sorted(paths)}"
    for layer in request.topology.slices:
        depth = levels.index(layer.level) + 1
        placed: Counter[Path] = Counter()
        for path, count in paths.items():
            placed[path[:depth]] += count
        if not request.ended and any(count % layer.size for count in placed.values()):
            yield f"{told} has slices of {layer.size} in one {layer.level}, and has {dict(placed)}"


# --- hosts and quota -------------------------------------------------------------------------------------------------


def _free(snapshot: Snapshot) -> Hosts:
    """Return the free amounts by host; two flavors may stand on the same hosts."""
    free: Hosts = {}
    for view in snapshot.topologies.values():
        resources, table = view.capacity.tables()
        for number, leaf in enumerate(view.tree.leaves):
            row = {resource: int(table[r, number]) for r, resource in enumerate(resources)}
            known = free.setdefault(leaf.path[-1], Counter(row))
            known.update({r: min(0, amount - known[r]) for r, amount in row.items()})
    return free


def _taken(admitted: Sequence[PlannedAdmission], snapshot: Snapshot) -> Iterator[tuple[str, str, int]]:
    """Yield (host, resource, amount) of all pods of a plan."""
    for planned in admitted:
        for pod_set in planned.pod_sets:
            view = _view(pod_set, snapshot)
            requests = Counter({"pods": 1}) + Counter(dict(_request(planned.head, pod_set.name).requests))
            for path, count in _paths(pod_set, view).items() if view is not None else ():
                yield from ((path[-1], resource, count * amount) for resource, amount in requests.items())


def _overdrawn_hosts(admitted: Sequence[PlannedAdmission], snapshot: Snapshot) -> Iterator[str]:
    free, taken = _free(snapshot), Counter[tuple[str, str]]()
    for host, resource, amount in _taken(admitted, snapshot):
        taken[host, resource] += amount
    for (host, resource), amount in sorted(taken.items()):
        if amount > max(0, free.get(host, Counter())[resource]):
            yield f"host {host} has {free.get(host, Counter())[resource]} {resource} free, the plan takes {amount}"


def _tree(snapshot: Snapshot) -> QuotaTree:
    """Return the quota of a state as objects of the API server would have it."""
    specs: dict[bool, dict[str, Object]] = {True: {}, False: {}}
    left: list[Any] = list({id(queue.root): queue.root for queue in snapshot.nodes.values()}.values())
    while left:
        node = left.pop()
        left += node.children
        flavors = [
            {"name": column[0], "resources": [_written(column[1], quota)]} for column, quota in node.quotas.items()
        ]
        above = {("parentName" if node.is_cohort else "cohortName"): node.parent.name if node.parent else None}
        specs[node.is_cohort][node.name] = {"resourceGroups": [{"flavors": flavors}], **above}
    return QuotaTree(specs[False], specs[True])


def _written(resource: str, quota: Any) -> Object:
    unit = "m" if resource == "cpu" else ""
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    told = {name: f"{amount}{unit}" for name, amount in limits.items() if amount is not None}
    return {"name": resource, "nominalQuota": f"{quota.nominal}{unit}", **told}


def _overdrawn_quota(admitted: Sequence[PlannedAdmission], snapshot: Snapshot) -> Iterator[str]:
    tree = _tree(snapshot)
    usage: defaultdict[str, Counter[Column]] = defaultdict(Counter)
    for queue, workloads in snapshot.admitted.items():
        for workload in workloads.values():
            usage[queue].update({(c[0], c[1]): amount for c, amount in workload.usage.items()})
    for planned in admitted:
        wanted = Counter[Column]()
        for pod_set in planned.pod_sets:
            requests = _request(planned.head, pod_set.name)
            for resource, flavor in pod_set.flavors.items():
                each = 1 if resource == "pods" else requests.requests.get(resource, 0)
                wanted[flavor, resource] += each * requests.count
        for column, amount in wanted.items():
            told = tree.overrun(planned.head.queue, column, amount, usage)
            if told is not None and amount:
                yield f"{planned.head.key} takes too much quota: {told}"
        usage[planned.head.queue].update(wanted)


def _passed(given: RoundInput, plan: JointPlan) -> Iterator[str]:
    """Yield breaches of the order: in a strict queue none is admitted behind one that is left out."""
    admitted = {one.head.uid for one in plan.workloads if one.admitted is not None}
    for queue in sorted(given.batch.strict & set(given.batch.queues)):
        heads = given.batch.queues[queue]
        out = next((n for n, head in enumerate(heads) if head.uid not in admitted), len(heads))
        for head in heads[out + 1 :]:
            if head.uid in admitted:
                yield f"{head.key} is admitted in the strict queue {queue}, {heads[out].key} before it is not"


# --- the score -------------------------------------------------------------------------------------------------------


def _worse(given: RoundInput, plan: JointPlan) -> Iterator[str]:
    """Yield the breach of the promise that the plan is not worse than one by one."""
    policies = [*given.policies.specs, *(spec for some in given.policies.of_queue.values() for spec in some)]
    if not all(spec in DEFAULT_POLICIES for spec in policies):
        chosen, single = plan.scores[plan.chosen].key(), plan.scores[CandidateName.ONE_BY_ONE].key()
        if chosen < single:
            yield f"the plan has the score {chosen}, one by one {single}"
        return
    state = given.state
    greedy = one_by_one(
        World(state, given.batch.queues, demands=Demands(), charged=False),
        given.batch,
        rules=state.rules,
        order=given.order,
    )
    mine = {one.head.uid: one.admitted for one in plan.workloads if one.admitted is not None}
    score = _Scores(given, plan)
    ranks, single_ranks = score.ranks(mine), score.ranks(greedy.admitted)
    if ranks < single_ranks:
        yield f"the plan has the values {ranks} by rank, one by one {single_ranks}"
    if ranks == single_ranks:
        yield from _dearer(score, mine, greedy, snapshot=state.snapshot)


def _dearer(
    score: _Scores, mine: Mapping[str, PlannedAdmission], greedy: OneByOne, *, snapshot: Snapshot
) -> Iterator[str]:
    cost, single = score.cost(mine), score.cost(greedy.admitted)
    if cost > single:
        yield f"the places of the plan cost {cost}, those of one by one {single}"
    if cost == single and not greedy.claims and not snapshot.claims and len(snapshot.topologies) == 1:
        slots, single_slots = score.slots(mine), score.slots(greedy.admitted)
        if slots < single_slots:
            yield f"the plan leaves room for {slots} of the largest gangs, one by one for {single_slots}"


class _Scores:
    """The score of sets of admissions, in the order of a plan."""

    def __init__(self, given: RoundInput, plan: JointPlan) -> None:
        self._given, self._plan, self._snapshot = given, plan, given.state.snapshot
        self._units = {one.flavor: (one.unit.resource, one.unit.size) for one in plan.flavors}

    def _units_of(self, planned: PlannedAdmission) -> dict[str, int]:
        """Return the units of a workload by topology flavor."""
        total: dict[str, int] = {}
        for pod_set in planned.pod_sets:
            request = _request(planned.head, pod_set.name)
            flavor = next((f for f in pod_set.flavors.values() if f in self._snapshot.topologies), None)
            if flavor is not None:
                resource, size = self._units.get(flavor, ("", 1))
                total[flavor] = total.get(flavor, 0) + request.requests.get(resource, 0) // size * request.count
        return total

    def ranks(self, admitted: Mapping[str, PlannedAdmission]) -> list[int]:
        """Return the value of each rank."""
        values = [0] * max((one.rank for one in self._plan.workloads), default=0)
        for one in self._plan.workloads:
            planned = admitted.get(one.head.uid)
            if planned is not None:
                waited = max(0, self._given.waited.get(one.head.uid, 0))
                grows = 1 + waited if self._given.settings.order is JointOrder.PRIORITY else 1
                values[one.rank - 1] += max(1, sum(self._units_of(planned).values())) * grows
        return values

    def cost(self, admitted: Mapping[str, PlannedAdmission]) -> int:
        """Return the points for domains beyond the fewest possible ones."""
        total = 0
        for planned in admitted.values():
            units = self._units_of(planned)
            for flavor, view in self._snapshot.topologies.items():
                mine = [p for p in planned.pod_sets if _view(p, self._snapshot) is view]
                if not mine:
                    continue
                for level in range(len(view.tree.levels)):
                    points = _SPREAD[level] if level < len(_SPREAD) else 1
                    used = len({path[: level + 1] for p in mine for path in _paths(p, view)})
                    fewest = max(self._fewest(_request(planned.head, p.name), view, level) for p in mine)
                    weight = max(1, units.get(flavor, 0)) if flavor in self._units else 1
                    total += weight * points * max(0, used - fewest)
        return total

    def _rooms(self, request: PodSetRequest, view: TopologyView, level: int, taken: Hosts) -> Counter[Path]:
        """Return the pods of a form that fit in each domain of a level."""
        resources, table = view.capacity.tables()
        wanted = Counter({"pods": 1}) + Counter(dict(request.requests))
        rooms: Counter[Path] = Counter()
        for number, leaf in enumerate(view.tree.leaves):
            gone = taken.get(leaf.path[-1], Counter())
            left = {r: max(0, int(table[n, number]) - gone[r]) for n, r in enumerate(resources)}
            rooms[leaf.path[: level + 1]] += min(left.get(r, 0) // amount for r, amount in wanted.items() if amount)
        return rooms

    def _fewest(self, request: PodSetRequest, view: TopologyView, level: int) -> int:
        """Return the number of domains below which no placement of all pods was possible before the round."""
        left, number = request.count, 0
        for room in sorted(self._rooms(request, view, level, {}).values(), reverse=True):
            if left <= 0:
                break
            left, number = left - room, number + 1
        return number

    def slots(self, admitted: Mapping[str, PlannedAdmission]) -> int:
        """Return how many more gangs of the largest form would fit, each in one domain of its level."""
        (view,) = self._snapshot.topologies.values()
        (flavor,) = self._snapshot.topologies
        resource, size = self._units.get(flavor, ("", 1))
        best: tuple[int, PodSetRequest] | None = None
        for one in self._plan.workloads:
            for pod_set in one.head.pod_sets:
                units = pod_set.request.requests.get(resource, 0) // size * pod_set.request.count
                if one.units and units and (best is None or units > best[0]):
                    best = units, pod_set.request
        if best is None:
            return 0
        request, levels = best[1], tuple(view.tree.levels)
        named = request.topology.required or request.topology.preferred
        level = levels.index(named) if named in levels else max(0, len(levels) - 2)
        taken: Hosts = defaultdict(Counter)
        for host, what, amount in _taken(list(admitted.values()), self._snapshot):
            taken[host][what] += amount
        return sum(room // request.count for room in self._rooms(request, view, level, taken).values())
