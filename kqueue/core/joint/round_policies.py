"""The policies of one round: for each flavor those that its ClusterQueues agree on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.joint.fair_shares import FairShares
from kqueue.core.joint.policy import JudgedPlace
from kqueue.core.joint.policy_set import PolicySet
from kqueue.core.joint.policy_view import JudgedPods, Neighbours, TreeFacts, WorldView
from kqueue.core.joint.registry import DEFAULT_POLICIES, PolicySpec
from kqueue.core.joint.statistics import NO_STATISTICS, NodeStatistics
from kqueue.core.joint.traits import NO_TRAITS, TraitsOf
from kqueue.core.joint.units import Unit
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, resolve
from kqueue.core.topology.result import DomainUsage, Misfit
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value
from kqueue.core.workload import Head, Snapshot, TopologyView


@value(kw_only=True)
class PolicyInput:
    """The policies of a round, and what they know beside its world.

    Args:
        specs: of the configuration.
        of_queue: of ClusterQueues that name others.
        traits: of waiting and of running workloads.
        off: policies that have failed in this round.
    """

    specs: tuple[PolicySpec, ...] = DEFAULT_POLICIES
    of_queue: Mapping[str, tuple[PolicySpec, ...]] = field(default_factory=dict)
    traits: TraitsOf = field(default_factory=dict)
    statistics: NodeStatistics = NO_STATISTICS
    off: frozenset[str] = frozenset()

    def without(self, policy: str) -> PolicyInput:
        """Return the same input without a policy that has failed."""
        return replace(self, off=self.off | {policy})

    def of(self, queues: Iterable[str]) -> tuple[PolicySpec, ...]:
        """Return the policies on which these ClusterQueues agree, or else those of the configuration."""
        named = [self.of_queue.get(queue) for queue in queues]
        agreed = named[0] if named and all(some == named[0] for some in named) else None
        return tuple([spec for spec in (agreed or self.specs) if spec.name not in self.off])


NO_POLICIES = PolicyInput()


class Residents:
    """Pods by class of interference and by leaf: of running workloads, and of those that a candidate has placed."""

    def __init__(self, traits: TraitsOf, snapshot: Snapshot) -> None:
        """Count the pods that run in the snapshot."""
        self._traits = traits
        self.pods = Neighbours()
        if any(some.interference for some in traits.values()):
            for workloads in snapshot.admitted.values():
                for one in workloads.values():
                    self.note(one.uid, one.domains, 1)

    def note(self, uid: str, domains: Mapping[str, Iterable[DomainUsage]], sign: int) -> None:
        """Add the pods of a workload, or with the sign -1 take them away."""
        name = self._traits.get(uid, NO_TRAITS).interference
        for usage in domains.values() if name else ():
            for one in usage:
                self.pods.note(name, tuple(one.values), sign * one.count)


@dataclass(slots=True)
class RoundPolicies:
    """The policies of the flavors of one round.

    Args:
        start: the state before the round; it must not change.
        queues: by flavor, the ClusterQueues of the batch that may use it.
    """

    given: PolicyInput
    start: Snapshot
    queues: Mapping[str, frozenset[str]]
    unit_of: Mapping[str, Unit] = field(default_factory=dict)
    _sets: dict[str, PolicySet] = field(default_factory=dict)
    _facts: dict[int, TreeFacts] = field(default_factory=dict)

    def of(self, flavor: str) -> PolicySet:
        """Return the policies of a flavor."""
        known = self._sets.get(flavor)
        if known is None:
            specs = self.given.of(sorted(self.queues.get(flavor, ())))
            known = self._sets[flavor] = PolicySet(specs)
        return known

    @property
    def have_say(self) -> bool:
        """Whether the policies of any flavor choose places."""
        return any(self.of(flavor).has_say for flavor in self.queues)

    def shares(self, flavor: str) -> FairShares | None:
        """Return the shares of a flavor's ClusterQueues; None: its policies do not count shares."""
        fairness, unit = self.of(flavor).fairness, self.unit_of.get(flavor)
        if fairness is None or unit is None:
            return None
        queues, nodes = sorted(self.queues.get(flavor, ())), self.start.nodes
        column = FlavorResource(flavor, unit.resource)
        tree = self.start.topologies[flavor].tree
        return FairShares.of(
            {queue: fairness.weight(queue, nodes[queue].weight) for queue in queues},
            int(self._facts_of(tree).allocatable(unit.resource).sum()) // unit.size,
            {queue: nodes[queue].usage.get(column, 0) // unit.size for queue in queues},
        )

    @property
    def count_shares(self) -> bool:
        """Whether the policies of any flavor count shares of ClusterQueues."""
        return any(self.of(flavor).fairness is not None for flavor in self.queues)

    @property
    def by_value(self) -> bool:
        """Whether the policies of any flavor let value decide inside one priority."""
        return any(self.of(flavor).by_value for flavor in self.queues)

    @property
    def static_nodes(self) -> int:
        """The nodes whose reservations counted, because a policy looked at use that was not measured."""
        return len(set[str]().union(*(facts.static for facts in self._facts.values())))

    def residents(self) -> Residents:
        """Return the pods that run before the round, by class of interference."""
        return Residents(self.given.traits, self.start)

    def view(self, flavor: str, now: TopologyView, residents: Residents | None = None) -> WorldView:
        """Return what policies see of a flavor; `residents` None: those before the round."""
        there = residents if residents is not None else self.residents()
        return WorldView(
            flavor=flavor,
            capacity=now.capacity,
            start=self.start.topologies[flavor].capacity,
            facts=self._facts_of(now.tree),
            unit=self.unit_of.get(flavor),
            neighbours=there.pods,
        )

    def judged(self, head: Head, request: PodSetRequest, flavor: str, *, waited: int = 0) -> JudgedPods:
        """Return a pod set of a workload as policies see it."""
        unit = self.unit_of.get(flavor)
        resolved = resolve(request, self.start.topologies[flavor].tree.levels, DEFAULT_PROFILE)
        free = isinstance(resolved, Misfit) or (resolved.unconstrained and resolved.binding is None)
        return JudgedPods(
            queue=head.queue,
            request=request,
            level=-1 if free or isinstance(resolved, Misfit) else resolved.level,
            units=max(1, unit.of_pod(request)) if unit is not None else 1,
            waited=waited,
            traits=self.given.traits.get(head.uid, NO_TRAITS),
        )

    def cost(self, flavor: str, places: Sequence[tuple[JudgedPods, TopologyAssignment]], view: WorldView) -> int:
        """Return the points of the pods of a workload; the view is without them."""
        policies, total = self.of(flavor), 0
        for pods, assignment in places:
            found = [(leaf, d.count) for d in assignment.domains if (leaf := view.tree.leaf_of(d.values)) is not None]
            leaves, counts = np.array(found, dtype=np.int64).reshape(len(found), 2).T
            total += policies.real_cost(JudgedPlace(pods=pods, leaves=leaves, counts=counts), view)
        return total

    def _facts_of(self, tree: Tree) -> TreeFacts:
        known = self._facts.get(id(tree))
        if known is None:
            known = self._facts[id(tree)] = TreeFacts(tree, self.given.statistics)
        return known
