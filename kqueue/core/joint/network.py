"""The network of one flavor: what the batch could use at most, if gangs might be split.

    source -> quota of cohorts and ClusterQueues -> classes -> domains, widest first -> sink
    source -> unscheduled -> sink

Gangs that need one domain of a level reach it through its port, which carries no more than whole gangs use of it.  A
class has arcs to a bounded number of domains of its level; it reaches the others through the rest of the level, which
leads to all of them, so that the bound stays one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from kqueue.core.joint.classes import NO_LEVEL, GangShape, PodClass
from kqueue.core.joint.costs import PLACE_MAX, Costs, RankCosts
from kqueue.core.joint.fair_shares import FairShares
from kqueue.core.joint.graph import Flow, Graph
from kqueue.core.joint.host_groups import HostGroups, Seats
from kqueue.core.joint.judge import Judge
from kqueue.core.joint.kept import KeptRows
from kqueue.core.joint.policies.topology import TIGHTEST
from kqueue.core.joint.policy import NEVER
from kqueue.core.joint.quota_arcs import quota_arcs
from kqueue.core.joint.reach import Reach, Room, cheapest
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.joint.score import spread as usual_spread
from kqueue.core.joint.units import Unit
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Snapshot, TopologyView

SOURCE, UNSCHEDULED, SINK = range(3)
_FEWEST_ARCS, _MOST_ARCS, _ALL_ARCS = 16, 64, 65_536
"""Arcs of a class to domains of its level: at least, at most, and of all classes together."""
_MOST_COSTS = 512
"""Different costs of hosts in one network."""
_MOST_STEPS = 8
"""Pods of one host whose costs may grow; further ones cost as much as the last of these."""


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network and the meaning of its arcs.

    Args:
        into: per class, the arc that carries its units.
        to_domains: per class, its arcs to domains of its own level: the number of the first one, and the domains.
        quota: the arcs of quota.
        costs: the costs of the ranks.
        moves: by the number of a class that runs and may move, the arc that carries its units to other places.
    """

    graph: Graph
    classes: Sequence[PodClass]
    into: Sequence[int]
    to_domains: Sequence[tuple[int, Ints]]
    quota: range
    costs: Costs
    moves: Mapping[int, int] = field(default_factory=dict)
    hosts: _Hosts | None = None
    """The groups of hosts; None: no class has arcs to hosts."""

    def scheduled(self, flow: Flow) -> list[int]:
        """Return the units of each class that the flow schedules."""
        return [int(flow.units[arc]) for arc in self.into]

    def domains(self, flow: Flow, which: int) -> dict[int, int]:
        """Return the units of a class by domain of its level, as far as they go to it directly."""
        first, domains = self.to_domains[which]
        units = flow.units[first : first + len(domains)]
        used = np.flatnonzero(units)
        return dict(zip(domains[used].tolist(), units[used].tolist(), strict=True))

    def on_hosts(self, flow: Flow) -> dict[int, dict[int, int]]:
        """Return the pods on each leaf, by the number of a class that has arcs to groups of hosts."""
        found: dict[int, dict[int, int]] = {}
        if self.hosts is None:
            return found
        seats = Seats(self.hosts.groups, self.hosts.free)
        for number, (first, groups, fits) in self.hosts.arcs.items():
            size, pods = self.hosts.size_of(self.classes[number]), dict[int, int]()
            for group, units in zip(groups.tolist(), flow.units[first : first + len(groups)].tolist(), strict=True):
                if units >= size:
                    pods.update(seats.take(group, units // size, size, fits))
            found[number] = pods
        return found

    def is_by_rank(self, flow: Flow) -> bool:
        """Whether it is certain that a cheapest flow has the most units of the first rank, then of the second ...

        Where quota and domains bind together, a unit of one rank may take the place of two units of a later one: of one
        that has its quota, and of one that has its domain.  So it is certain if all units pass each quota that is used
        up.
        """
        units, total = flow.units[self.quota.start : self.quota.stop], sum(self.scheduled(flow))
        capacities = np.empty_like(flow.units)
        capacities[self.graph.order] = self.graph.capacities
        used_up = units == capacities[self.quota.start : self.quota.stop]
        if total == self.graph.supplies[SOURCE]:
            return True
        ranks = self.costs.ranks if isinstance(self.costs, RankCosts) else 0
        all_differ = max(one.rank for one in self.classes) <= ranks
        return all_differ and bool((units[used_up & (units > 0)] == total).all())

    def for_most(self) -> Graph:
        """Return the graph whose cheapest flow schedules the most units, of whatever rank."""
        waits = (self.graph.tails == SOURCE) & (self.graph.heads == UNSCHEDULED)
        return replace(self.graph, costs=waits.astype(np.int64))

    def for_points(self) -> Graph:
        """Return the graph in which no place costs anything: waiting and moves alone do."""
        counted = np.isin(self.graph.order, [*self.into, *self.moves.values()])
        waits = (self.graph.tails == SOURCE) & (self.graph.heads == UNSCHEDULED)
        return replace(self.graph, costs=np.where(counted | waits, self.graph.costs, 0))


@dataclass(slots=True)
class _Hosts:
    """The groups of hosts of a network.

    Args:
        first: the node of group 0.
        free: the free units of each leaf.
        seen: the points per unit of the first pod on each leaf, by what the costs of a class follow from.
        arcs: by the number of a class, its first arc, the groups, and the pods that fit on each leaf.
    """

    unit: Unit
    groups: HostGroups
    first: int
    free: Ints
    seen: Mapping[Hashable, Ints]
    arcs: dict[int, tuple[int, Ints, Ints]] = field(default_factory=dict)

    def size_of(self, one: PodClass) -> int:
        """Return the units of one pod."""
        return self.unit.of_pod(one.form.workers)


@dataclass(slots=True)
class _Level:
    """The nodes of one level of domains.

    Args:
        first: the node of domain 0.
        free: the free units of each domain, on hosts that hold at least one pod of a class.
        ports: the node of the port of domain 0; None: no gang needs one domain of the level.
        rest: the nodes of the rest of the level: for gangs that need one domain, and for those that prefer it.
        gangs: for each size of gangs that need one domain, their room by form.
    """

    first: int
    free: Ints
    ports: int | None = None
    rest: dict[bool, int] = field(default_factory=dict)
    gangs: dict[int, list[Room]] = field(default_factory=dict)


_Column = Ints | int


@dataclass(slots=True)
class _Builder:
    """Collects the nodes and arcs of one network.

    Args:
        room: the number of arcs that a class may have.
        kept: rows of earlier networks.
        judge: None: the tightest domains are the cheapest.
    """

    view: TopologyView
    unit: Unit
    classes: Sequence[PodClass]
    room: int
    kept: KeptRows
    judge: Judge | None = None
    nodes: int = 3
    arcs: int = 0
    columns: list[tuple[int, _Column, _Column, _Column, _Column]] = field(default_factory=list)
    levels: list[_Level] = field(default_factory=list)
    whole: int = 0
    """The node of the whole flavor."""
    hosts: _Hosts | None = None
    rooms: dict[int, Room] = field(default_factory=dict)
    """By the identity of a form, which the classes keep."""
    reaches: dict[Hashable, Reach] = field(default_factory=dict)

    def new_nodes(self, number: int = 1) -> int:
        """Return the first of so many new nodes."""
        self.nodes += number
        return self.nodes - number

    def add(self, tails: _Column, heads: _Column, capacities: _Column, costs: _Column = 0) -> int:
        """Add arcs; return the number of the first one."""
        number = 1
        for column in (heads, tails, capacities, costs):
            if isinstance(column, np.ndarray):
                number = len(column)
                break
        self.columns.append((number, tails, heads, capacities, costs))
        self.arcs += number
        return self.arcs - number

    def graph(self, demand: int) -> Graph:
        supplies = [0] * self.nodes
        supplies[SOURCE], supplies[SINK] = demand, -demand
        numbers = np.array([number for number, *_ in self.columns], dtype=np.int64)
        table = np.empty((self.arcs, 4), dtype=np.int64)
        for place in range(4):
            table[:, place] = _one_column([item[place + 1] for item in self.columns], numbers)
        return Graph.of(supplies, table)

    def room_of(self, form: GangShape) -> Room:
        """Return the room for gangs of a form."""
        room = self.rooms.get(id(form))
        if room is None:
            room = self.rooms[id(form)] = Room.of(form, self.view.capacity, self.unit)
        return room

    def seen_key(self, one: PodClass) -> Hashable:
        """Return what the costs of a class follow from."""
        return id(one.form) if self.judge is None else (id(one.form), self.judge.key(one))

    def reach_of(self, one: PodClass, room: Room, level: _Level) -> Reach:
        """Return the arcs of a class to the domains of its level."""
        form, judge, key = one.form, self.judge, self.seen_key(one)
        reach = self.reaches.get(key)
        if reach is None:
            if judge is None:
                reach = self.kept.reach(form, room.gangs, level.free, self.room)
            else:
                reach = Reach.of(room.gangs, judge.domains(one, form.level), form.units, self.room)
            self.reaches[key] = reach
        return reach


def _one_column(parts: Sequence[_Column], numbers: Ints) -> Ints:
    """Return the parts as one array; a part that is a number stands for so many equal entries."""
    are_arrays = np.array([isinstance(part, np.ndarray) for part in parts], dtype=np.bool_)
    found = np.repeat(np.array([0 if isinstance(part, np.ndarray) else part for part in parts]), numbers)
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    if arrays:
        found[np.repeat(are_arrays, numbers)] = np.concatenate(arrays)
    return found


def build(
    flavor: str,
    snapshot: Snapshot,
    classes: Sequence[PodClass],
    unit: Unit,
    policies: RoundPolicies | None = None,
    kept: KeptRows | None = None,
    costs_of: Callable[..., Costs] = RankCosts.of,
) -> Network:
    """Return the network of a flavor's classes on the state before the round; `kept`: rows of earlier networks.

    Running workloads may be among the classes; the state is then that without them.
    """
    view, demand = snapshot.topologies[flavor], sum(one.demand for one in classes)
    room = max(_FEWEST_ARCS, min(_MOST_ARCS, _ALL_ARCS // max(1, len(classes))))
    judge = Judge(flavor, policies, policies.view(flavor, view)) if policies is not None else None
    builder = _Builder(view, unit, classes, room, kept or KeptRows(), judge)
    _add_domains(builder)
    before = builder.arcs
    sources = _add_quota(builder, snapshot, FlavorResource(flavor, unit.resource), demand)
    of_quota = range(before, builder.arcs)
    shares = judge.shares if judge is not None else None
    if shares is not None:
        sources = _add_shares(builder, sources, shares)
    first = builder.new_nodes(len(classes))
    moves: dict[int, int] = {}
    to_domains = [
        _add_class(builder, number, first + number) if one.stay is None else _add_running(builder, number, first, moves)
        for number, one in enumerate(classes)
    ]
    _add_ports(builder)
    costs = costs_of(
        ranks=max((one.rank for one in classes), default=0),
        classes=len(classes),
        levels=len(view.tree.levels),
        nodes=builder.nodes,
        shares=_trees(snapshot, classes) if shares is not None else 0,
    )
    builder.add(SOURCE, UNSCHEDULED, demand, costs.unscheduled)
    builder.add(UNSCHEDULED, SINK, demand)
    begins = builder.add(
        np.array(sources, dtype=np.int64),
        first + np.arange(len(classes)),
        np.array([one.demand for one in classes], dtype=np.int64),
        np.array([costs.unscheduled - costs.reward(one.rank, one.waited) for one in classes], dtype=np.int64),
    )
    into = range(begins, begins + len(classes))
    return Network(builder.graph(demand), classes, into, to_domains, of_quota, costs, moves, builder.hosts)


def _depth(builder: _Builder) -> int:
    """Return the lowest level of the network: that of the deepest request, and at least the parents of the leaves."""
    deepest = max((one.form.level for one in builder.classes), default=NO_LEVEL)
    return min(builder.view.tree.lowest, max(deepest, builder.view.tree.lowest - 1, 0))


def _add_domains(builder: _Builder) -> None:
    """Add the whole flavor and its domains, down to the lowest level that any class looks at."""
    tree, depth = builder.view.tree, _depth(builder)
    row = builder.view.capacity.row(builder.unit.resource)
    usable = np.zeros(len(tree), dtype=np.bool_)
    for shape in {pod_set.shape for one in builder.classes for pod_set in one.form.pods}:
        usable |= pods_per_domain(builder.view.capacity, shape)[-1] > 0
    on_leaves = (row.clip(0) // builder.unit.size) * usable if row is not None else tree.nothing(tree.lowest)
    builder.whole = builder.new_nodes()
    for level in range(depth + 1):
        starts = tree.first_leaf[level]
        free = np.add.reduceat(on_leaves, starts) if len(starts) else on_leaves
        first = builder.new_nodes(len(free))
        parents = builder.levels[-1].first + tree.domain_of(level - 1)[starts] if level else builder.whole
        builder.add(parents, first + np.arange(len(free)), free)
        builder.levels.append(_Level(first, free))
    lowest = builder.levels[-1]
    seen = _costs_of_hosts(builder)
    if seen:
        _add_hosts(builder, lowest, on_leaves, seen)
    else:
        builder.add(lowest.first + np.arange(len(lowest.free)), SINK, lowest.free)


def _costs_of_hosts(builder: _Builder) -> dict[Hashable, tuple[PodClass, Ints]]:
    """Return the points per unit of the first pod on each leaf, by what the costs of a class follow from, and its first
    class.

    Only for classes whose pods may be anywhere, and whose policies look at hosts.  Further classes are left to the
    search.
    """
    found: dict[Hashable, tuple[PodClass, Ints]] = {}
    judge = builder.judge
    if judge is None or not judge.looks_at_hosts or not len(builder.view.tree):
        return found
    for one in builder.classes:
        key = builder.seen_key(one)
        if one.form.level == NO_LEVEL and key not in found and judge.is_free(one):
            found[key] = one, judge.hosts(one, 1)
            if len(found) == _MOST_COSTS:
                break
    return found


def _add_hosts(builder: _Builder, lowest: _Level, free: Ints, seen: Mapping[Hashable, tuple[PodClass, Ints]]) -> None:
    """Add groups of hosts below the lowest domains.

    How costs grow with the pods of a host is what the class with most units says.
    """
    judge, tree = builder.judge, builder.view.tree
    assert judge is not None, "costs of hosts come from policies"
    largest = max((one for one, _ in seen.values()), key=lambda one: one.demand)
    room, unit = builder.room_of(largest.form), builder.unit
    most = min(_MOST_STEPS, int(room.pods[tree.lowest].max(initial=1)))
    growing = [judge.hosts(largest, nth) for nth in range(1, most + 1)]
    fits = {id(one.form): np.minimum(builder.room_of(one.form).pods[tree.lowest], 1) for one, _ in seen.values()}
    groups = HostGroups.of(
        tree.domain_of(len(builder.levels) - 1),
        free,
        [*(row for _, row in seen.values()), *fits.values()],
        growing,
        unit.of_pod(largest.form.workers),
    )
    first = builder.new_nodes(len(groups))
    nodes = first + np.arange(len(groups))
    builder.add(lowest.first + groups.parents, nodes, groups.free)
    for capacities, costs in groups.steps:
        some = np.flatnonzero(capacities)
        builder.add(nodes[some], SINK, capacities[some], costs[some])
    builder.hosts = _Hosts(unit, groups, first, free, {key: row for key, (_, row) in seen.items()})


def _add_quota(builder: _Builder, snapshot: Snapshot, column: FlavorResource, demand: int) -> list[int]:
    """Add the quota of the column; return, per class, the node that its units come from."""
    counted = [one for one in builder.classes if one.form.quota]
    if not counted:
        return [SOURCE] * len(builder.classes)
    per_unit = min(Fraction(*one) for one in {(one.form.quota, one.form.units) for one in counted})
    arcs, nodes = quota_arcs(
        list(dict.fromkeys(one.queue for one in counted)),
        snapshot.nodes,
        column,
        per_unit,
        source=SOURCE,
        new_node=builder.new_nodes,
        most=demand,
    )
    for arc in arcs:
        builder.add(*arc)
    return [nodes[one.queue] if one.form.quota else SOURCE for one in builder.classes]


def _add_shares(builder: _Builder, sources: Sequence[int], shares: FairShares) -> list[int]:
    """Add the steps of shares behind the quota; return, per class, the node that its units come from."""
    demands: dict[tuple[int, str], int] = defaultdict(int)
    for source, one in zip(sources, builder.classes, strict=True):
        demands[source, one.queue] += one.demand
    nodes: dict[tuple[int, str], int] = {}
    for (source, queue), demand in demands.items():
        node = nodes[source, queue] = builder.new_nodes()
        for capacity, cost in shares.arcs(queue, demand):
            builder.add(source, node, capacity, cost)
    return [nodes[source, one.queue] for source, one in zip(sources, builder.classes, strict=True)]


def _trees(snapshot: Snapshot, classes: Sequence[PodClass]) -> int:
    """Return the number of quota trees of the classes."""
    return len({id(snapshot.nodes[one.queue].root) for one in classes})


def _add_class(builder: _Builder, number: int, node: int) -> tuple[int, Ints]:
    """Add the arcs of a class to the domains that may hold its gangs or pods; return those to domains of its level."""
    one = builder.classes[number]
    form, demand, gangs = one.form, one.demand, len(one.members)
    room = builder.room_of(form)
    if form.level == NO_LEVEL:
        everywhere = _everywhere(room, gangs, demand)
        if everywhere:
            _add_anywhere(builder, number, node, room, everywhere)
        return builder.arcs, np.zeros(0, dtype=np.int64)
    level = builder.levels[form.level]
    reach = builder.reach_of(one, room, level)
    if form.required and len(reach.domains):
        _note_gangs(builder, level, form.units, room)
    found = builder.arcs, reach.domains
    first = level.ports if form.required and level.ports is not None else level.first
    builder.add(node, first + reach.domains, np.minimum(demand, reach.capacities), reach.costs)
    if reach.rest is not None:
        rest = _rest(builder, level, required=form.required)
        builder.add(node, rest, min(demand, reach.rest), reach.dearest)
    if not form.required:
        _add_wider(builder, one, node, room, max(TIGHTEST, reach.most))
    return found


def _add_running(builder: _Builder, number: int, first: int, moves: dict[int, int]) -> tuple[int, Ints]:
    """Add the arcs of a running class to the domains where it is; if it may move, others behind the cost of a move."""
    one, node, depth = builder.classes[number], first + number, len(builder.levels) - 1
    stay = one.stay
    assert stay is not None, "only running classes come here"
    domain_of, there = builder.view.tree.domain_of(depth), dict[int, int]()
    for leaf, units in stay.units.items():
        domain = int(domain_of[leaf])
        there[domain] = there.get(domain, 0) + units
    for domain, units in sorted(there.items()):
        builder.add(node, builder.levels[depth].first + domain, units)
    if stay.move is None:
        return builder.arcs, np.zeros(0, dtype=np.int64)
    others = builder.new_nodes()
    moves[number] = builder.add(node, others, one.demand, stay.move)
    return _add_class(builder, number, others)


def _everywhere(room: Room, gangs: int, demand: int) -> int:
    """Return the units of a class that the whole flavor has room for."""
    return min(demand, int(room.units(0, gangs).sum())) if len(room.pods) else 0


def _add_anywhere(builder: _Builder, number: int, node: int, room: Room, everywhere: int) -> None:
    """Add the arcs of a class that may use all domains: to the cheapest groups of hosts, or of domains of the lowest
    level, and to the whole flavor.

    Where policies find no difference, the arc to the whole flavor is enough.
    """
    one, hosts = builder.classes[number], builder.hosts
    depth, lowest = len(builder.levels) - 1, builder.view.tree.lowest
    if hosts is not None and builder.seen_key(one) in hosts.seen:
        row = hosts.seen[builder.seen_key(one)]
        units = hosts.groups.sums(np.where(row == NEVER, 0, room.units(lowest, len(one.members))))
        places, first, costs = np.flatnonzero(units), hosts.first, hosts.groups.firsts(row)
    else:
        found = builder.judge.domains(one, depth) if builder.judge is not None else None
        units = room.units(depth, len(one.members)) if found is not None and found.any() else np.zeros(0, np.int64)
        places, first = np.flatnonzero(units), builder.levels[depth].first
        costs, hosts = found if found is not None else units, None
    nearest = places[cheapest(costs[places], builder.room)]
    arc = builder.arcs
    if len(nearest):
        builder.add(node, first + nearest, np.minimum(one.demand, units[nearest]), costs[nearest])
    dearest = int(costs[places].max(initial=0))
    if hosts is not None:
        hosts.arcs[number] = arc, nearest, room.pods[lowest]
        dearest = min(PLACE_MAX, dearest + 1)  # so that of equal hosts the flow names some
    builder.add(node, builder.whole, everywhere, dearest)


def _add_wider(builder: _Builder, one: PodClass, node: int, room: Room, dearest: int) -> None:
    """Add the arcs of a class that prefers its level to wider domains, each dearer than all domains of its level."""
    spread = builder.judge.spread if builder.judge is not None else usual_spread
    demand, gangs = one.demand, len(one.members)
    for wider in range(one.form.level - 1, -1, -1):
        units = room.units(wider, gangs)
        domains = np.flatnonzero(units)[: builder.room]
        cost = min(PLACE_MAX, spread(wider + 1) + dearest)
        builder.add(node, builder.levels[wider].first + domains, np.minimum(demand, units[domains]), cost)
    everywhere = _everywhere(room, gangs, demand)
    if everywhere:
        builder.add(node, builder.whole, everywhere, min(PLACE_MAX, spread(0) + dearest))


def _note_gangs(builder: _Builder, level: _Level, size: int, room: Room) -> None:
    """Note the domains that gangs of a size reach through the ports of a level."""
    if level.ports is None:
        level.ports = builder.new_nodes(len(level.free))
    noted = level.gangs.setdefault(size, [])
    if room not in noted:
        noted.append(room)


def _rest(builder: _Builder, level: _Level, *, required: bool) -> int:
    """Return the node of the rest of a level, through which all its ports, or all its domains, are reached."""
    known = level.rest.get(required)
    if known is None:
        known = level.rest[required] = builder.new_nodes()
        first = level.ports if required and level.ports is not None else level.first
        builder.add(known, first + np.arange(len(level.free)), level.free)
    return known


def _add_ports(builder: _Builder) -> None:
    """Connect each port with its domain, for as many units as whole gangs use."""
    for level in builder.levels:
        if level.ports is None:
            continue
        sizes, domains = sorted(level.gangs), np.arange(len(level.free))
        reached = np.array([np.any([room.gangs > 0 for room in level.gangs[size]], axis=0) for size in sizes])
        known: dict[tuple[int, bytes], int] = {}
        used = np.empty(len(domains), dtype=np.int64)
        patterns = np.ascontiguousarray(np.packbits(reached, axis=0).T)
        for domain, (free, pattern) in enumerate(zip(level.free.tolist(), patterns, strict=True)):
            key = free, pattern.tobytes()
            if key not in known:
                some = tuple(
                    [size for size, reaches in zip(sizes, reached[:, domain].tolist(), strict=True) if reaches]
                )
                known[key] = builder.kept.most_used(free, some)
            used[domain] = known[key]
        builder.add(level.ports + domains, level.first + domains, used)
