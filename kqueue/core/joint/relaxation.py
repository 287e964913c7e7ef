"""The relaxation of a round: the most units that the batch could use if gangs might be split, by flavor.

It is a bound, and never a plan.  Where it keeps a gang whole it also says in which domain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.class_book import Sees
from kqueue.core.joint.classes import NO_LEVEL, ClassInput, PodClass
from kqueue.core.joint.graph import FlowSolver
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.network import Network, build
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import Choice, PlannedAdmission, World
from kqueue.core.topology.arranged import has_domains
from kqueue.core.topology.request import GangDomains, PodSetRequest
from kqueue.core.topology.tree import Tree
from kqueue.core.workload import Head, Snapshot


@dataclass(slots=True)
class Relaxation:
    """The units that the relaxation schedules.

    Args:
        bound: units, over all flavors; no plan schedules more.
        bounds: units by flavor, without workloads that take no part.
        is_by_rank: whether no plan has more units of a class without fewer of an earlier one.
        units: of each workload, by UID.  Workloads of a class share its units, earlier ones first.
        domains: by UID and flavor, the units of each domain of the level of the workload's class.
    """

    bound: int = 0
    bounds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    units: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    shared: dict[tuple[str, str], _Shared] = field(default_factory=dict)
    """By UID and flavor."""
    scheduled: list[tuple[PodClass, int]] = field(default_factory=list)
    """All classes, flavor by flavor in their order, and their units."""
    is_by_rank: bool = True
    arcs: int = 0
    classes: int = 0


@dataclass(slots=True)
class _Shared:
    """The flow of one class, which its members use up."""

    level: int
    units: int
    """The pods of one member."""
    domains: dict[int, int]
    """Units by domain of the level."""
    hosts: dict[int, int] = field(default_factory=dict)
    """Pods by leaf, of gangs that may be anywhere."""


Choices = Mapping[str, Sequence[Choice]]
"""By UID, the flavors that a workload may have, in their order."""


@dataclass(slots=True)
class _Solving:
    """The common input of the networks of one relaxation, and their result."""

    snapshot: Snapshot
    choices: Choices
    unit_of: Mapping[str, Unit]
    how: JointOrder
    solver: FlowSolver
    policies: RoundPolicies | None
    kept: Kept
    found: Relaxation = field(default_factory=Relaxation)

    def network(self, flavor: str, some: Sequence[RankedWorkload]) -> Network | None:
        """Return the network of a flavor for these workloads; None: they have no units in it."""
        if flavor not in self.unit_of:
            return None
        unit = self.unit_of[flavor]
        book = self.kept.book(flavor, self.snapshot.topologies[flavor].tree.levels, unit)
        classes = book.classes(some, self.choices, self.snapshot.queues, self.how, self._sees(flavor))
        rows = self.kept.rows_of(flavor)
        return build(flavor, self.snapshot, classes, unit, self.policies, rows) if classes else None

    def _sees(self, flavor: str) -> Sees | None:
        """Return what the policies of a flavor see of workloads; None: there are no policies."""
        policies = self.policies
        if policies is None:
            return None
        of_flavor = policies.of(flavor)

        def sees(head: Head, requests: Sequence[PodSetRequest]) -> Hashable:
            return tuple([of_flavor.key(policies.judged(head, request, flavor)) for request in requests])

        return sees

    def solve(self, flavor: str, some: Sequence[RankedWorkload]) -> tuple[int, Sequence[PodClass]]:
        """Solve the network of a flavor and add the result; return the most units of any flow, and the classes."""
        network, found = self.network(flavor, some), self.found
        if network is None:
            return 0, ()
        flow = self.solver(network.graph)
        is_by_rank = network.is_by_rank(flow)
        found.is_by_rank &= is_by_rank
        found.arcs += len(network.graph.tails)
        found.classes += len(network.classes)
        scheduled = network.scheduled(flow)
        on_hosts = network.on_hosts(flow)
        for number, (one, units) in enumerate(zip(network.classes, scheduled, strict=True)):
            found.scheduled.append((one, units))
            hosts = on_hosts.get(number, {})
            shared = _Shared(one.form.level, one.form.units, network.domains(flow, number), hosts)
            for member in one.members:
                given = min(units, one.form.units)
                units -= given
                found.units[member.head.uid] += given
                found.shared[member.head.uid, flavor] = shared
        return sum(scheduled) if is_by_rank else self._most(network), network.classes

    def most(self, flavor: str, some: Sequence[RankedWorkload]) -> int:
        """Return the most units that a flavor schedules of these workloads, of whatever rank."""
        network = self.network(flavor, some)
        return self._most(network) if network is not None else 0

    def _most(self, network: Network) -> int:
        return sum(one.demand for one in network.classes) - self.solver(network.for_most()).cost


def relax(
    snapshot: Snapshot,
    order: Sequence[RankedWorkload],
    choices: Choices,
    unit_of: Mapping[str, Unit],
    *,
    how: JointOrder,
    solver: FlowSolver,
    reduced: Collection[str] = (),
    policies: RoundPolicies | None = None,
    kept: Kept | None = None,
) -> Relaxation:
    """Return the relaxation of the batch on the state before the round.

    Workloads whose flavor leaves them out are offered to their next flavor once.  Workloads with pods in several
    flavors with topologies, and those that may start with fewer pods (`reduced`, by UID), take no part, and count fully
    in the bound.  A flavor that some workloads have as a second choice counts in the bound as if all of them were
    offered to it.  `policies`: None: the tightest domains are the cheapest.  `kept`: tables of earlier rounds.

    Raises CostRangeError when the costs are too large for the solver.
    """
    solving = _Solving(snapshot, choices, unit_of, how=how, solver=solver, policies=policies, kept=kept or Kept())
    found = solving.found
    waiting: dict[str, list[RankedWorkload]] = defaultdict(list)
    offered: dict[str, list[RankedWorkload]] = defaultdict(list)
    demand = 0
    for one in order:
        flavors = _flavors(one.head, choices)
        size = max((_units(choice, unit_of) for choice in choices.get(one.head.uid, ())), default=0)
        in_several = len(flavors) > 1 and any(len(choice.requests) > 1 for choice in choices[one.head.uid])
        if in_several or one.head.uid in reduced:
            found.bound += size
            found.units[one.head.uid] = size
            continue
        demand += size
        for flavor in flavors:
            offered[flavor].append(one)
        if flavors:
            waiting[flavors[0]].append(one)
    shared = {flavor for flavor, some in offered.items() if len(some) > len(waiting[flavor])}
    found.is_by_rank = not shared
    found.bounds.update({flavor: solving.most(flavor, offered[flavor]) for flavor in sorted(shared)})
    for turn in range(2):
        left: dict[str, list[RankedWorkload]] = defaultdict(list)
        for flavor in sorted(waiting):
            units, classes = solving.solve(flavor, waiting[flavor])
            if flavor not in shared:
                found.bounds[flavor] += units
            for one in _left_out(found, classes):
                flavors = _flavors(one.head, choices)
                if turn == 0 and len(flavors) > 1:
                    left[flavors[1]].append(one)
        waiting = left
    found.bound += min(demand, sum(found.bounds.values()))
    return found


def _left_out(found: Relaxation, classes: Sequence[PodClass]) -> list[RankedWorkload]:
    return [one for c in classes for one in c.members if not found.units[one.head.uid]]


def class_input(one: RankedWorkload, flavor: str, choices: Choices, unit: Unit) -> ClassInput:
    """Return a workload as an input of classes: its pod sets in the first choice with this flavor."""
    choice = next(choice for choice in choices[one.head.uid] if flavor in choice.requests)
    requests = choice.requests[flavor]
    quota = {pod_set.name: pod_set.quota_requests.get(unit.resource, 0) for pod_set in one.head.pod_sets}
    counted = {name for p in choice.assignment.pod_sets for name in [p.name] if unit.resource in p.flavors}
    return ClassInput(
        ranked=one, requests=requests, quota={name: n if name in counted else 0 for name, n in quota.items()}
    )


def _flavors(head: Head, choices: Choices) -> list[str]:
    return list(dict.fromkeys(flavor for choice in choices.get(head.uid, ()) for flavor in sorted(choice.requests)))


def _units(choice: Choice, unit_of: Mapping[str, Unit]) -> int:
    return sum(unit_of[f].of(requests) for f, requests in choice.requests.items() if f in unit_of)


class FlowGuide:
    """Places a workload in the domain, or on the hosts, to which the relaxation sends all its units."""

    def __init__(self, relaxation: Relaxation) -> None:
        """Take a relaxation, which is not changed."""
        self._unused: dict[int, dict[int, int]] = {}
        self._relaxation = relaxation

    def place(self, world: World, head: Head) -> PlannedAdmission | None:
        """Return the workload in the domain of its level with most unused flow of its class, or on the hosts of this
        flow if it may be anywhere; None: the flow splits it, or there is no room.
        """
        for choice in world.choices(head):
            if len(choice.requests) != 1:
                continue
            (flavor,) = choice.requests
            shared = self._relaxation.shared.get((head.uid, flavor))
            if shared is None:
                continue
            tree = world.snapshot.topologies[flavor].tree
            planned = (
                self._on_hosts(world, choice, shared)
                if shared.level == NO_LEVEL
                else self._in_domain(world, choice, shared, tree)
            )
            if planned is not None:
                return planned
        return None

    def _in_domain(self, world: World, choice: Choice, shared: _Shared, tree: Tree) -> PlannedAdmission | None:
        unused = self._unused.setdefault(id(shared), dict(shared.domains))
        domain = min(unused, key=lambda d: (-unused[d], d), default=None)
        if domain is None or unused[domain] < shared.units:
            return None
        planned = world.place(
            choice, within=GangDomains(levels=tree.levels, paths=(tree.path_of(shared.level, domain),))
        )
        if planned is not None:
            unused[domain] -= shared.units
        return planned

    def _on_hosts(self, world: World, choice: Choice, shared: _Shared) -> PlannedAdmission | None:
        """Take the hosts in path order, each as far as it has room now."""
        ((flavor, requests),) = choice.requests.items()
        if not shared.hosts or len(requests) != 1:
            return None
        (request,), view = requests, world.snapshot.topologies[flavor]
        unused, taken, wanted = self._unused.setdefault(id(shared), dict(shared.hosts)), dict[int, int](), request.count
        for leaf in sorted(unused):
            pods = view.capacity.times(leaf, request.requests.items(), min(unused[leaf], wanted))
            if pods:
                taken[leaf] = pods
                wanted -= pods
            if not wanted:
                break
        if wanted:
            return None
        hint = {request.name: [(view.tree.paths[leaf], pods) for leaf, pods in taken.items()]}
        planned = world.place(choice, hint=hint)
        if planned is None or not all(has_domains(p.topology, hint, p.name) for p in planned.pod_sets if p.topology):
            return None
        for leaf, pods in taken.items():
            unused[leaf] -= pods
        return planned
