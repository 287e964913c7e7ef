"""The score of a candidate: the units it admits by rank, then the cost of its places, then the room that it leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.candidate import Candidate
from kqueue.core.joint.policies.topology import SPREAD
from kqueue.core.joint.policy import widest_difference
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.share_account import ShareAccount
from kqueue.core.joint.units import Unit, units
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.quality import fewest_domains
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Shape, resolve
from kqueue.core.topology.result import DomainUsage, Misfit
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value
from kqueue.core.workload import Snapshot


@value()
class Score:
    """A score; the larger one is better.

    Args:
        ranks: the value of each rank, the first one first.
        cost: points of the places; less is better.
        slots: how many more gangs of the largest form would fit, each in one domain.
    """

    ranks: tuple[int, ...]
    cost: int
    slots: int

    def key(self) -> tuple[tuple[int, ...], int, int]:
        """Return the key that orders scores."""
        return self.ranks, -self.cost, self.slots


def spread(level: int) -> int:
    """Return the points per unit for each domain of a level beyond the fewest possible; level 0 is the widest."""
    return widest_difference(SPREAD, level)


def worth(units: int, how: JointOrder, waited: int) -> int:
    """Return the value of so many units in their rank; a workload without units has the value of one.

    `waited`: seconds.
    """
    return max(1, units) * (1 if how is JointOrder.STRICT else 1 + waited)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorer:
    """Scores the candidates of one round.

    Args:
        start: the state before the round; it must not change.
        order: the workloads with their ranks.
        sizes: units by UID, of the first flavors that a workload may have.
        largest: the flavor and pod set of the workload with most units in the batch; None: no workload has units.
        policies: None: places have no other costs than the number of domains.
        new_world: returns a copy of the state before the round; None: there are no policies.
    """

    start: Snapshot
    order: Sequence[RankedWorkload]
    how: JointOrder
    unit_of: Mapping[str, Unit]
    sizes: Mapping[str, int]
    largest: tuple[str, PodSetRequest] | None
    policies: RoundPolicies | None = None
    new_world: Callable[[], World] | None = None
    _fewest: dict[tuple[str, Shape, int], tuple[int, ...]] = field(default_factory=dict, init=False)

    def score(self, candidate: Candidate, world: World) -> Score:
        """Return the score of a candidate, whose admissions are charged to the world."""
        ranks = [0] * max((one.rank for one in self.order), default=0)
        cost, account = 0, ShareAccount(self.policies, self.unit_of)
        for one in self.order:
            planned = candidate.admitted.get(one.head.uid)
            if planned is not None:
                shared = account.take(one, planned.requests)
                ranks[one.rank - 1] += self.value(one, planned) if shared is None else shared
                cost += self.cost(planned)
        return Score(tuple(ranks), cost + self._of_policies(candidate), self._slots(world))

    def _of_policies(self, candidate: Candidate) -> int:
        """Return the points of the policies, workload by workload in the order of admission."""
        if self.new_world is None or self.policies is None or not self.policies.have_say:
            return 0
        world, total = self.new_world(), 0
        for planned in candidate.admitted.values():
            total += world.policy_cost(planned)
            world.admit(planned)
        return total

    def value(self, one: RankedWorkload, planned: PlannedAdmission) -> int:
        """Return the value of an admission in its rank."""
        return worth(units(planned.requests, self.unit_of), self.how, one.waited)

    def promised(self, one: RankedWorkload) -> int:
        """Return the value that the workload has in its rank if it is admitted in its first flavors."""
        return worth(self.sizes.get(one.head.uid, 0), self.how, one.waited)

    def cost(self, planned: PlannedAdmission) -> int:
        """Return the points of the places of a workload: 0 if it uses the fewest domains possible at every level."""
        total = 0
        for flavor, requests in planned.requests.items():
            tree = self.start.topologies[flavor].tree
            weight = max(1, self.unit_of[flavor].of(requests)) if flavor in self.unit_of else 1
            used, fewest = _domains_used(tree, planned.domains[flavor]), self._fewest_domains(flavor, requests)
            points = spread if self.policies is None else self.policies.of(flavor).spread
            beyond = (points(level) * max(0, used[level] - fewest[level]) for level in range(len(used)))
            total += weight * sum(beyond)
        return total

    def _fewest_domains(self, flavor: str, requests: Sequence[PodSetRequest]) -> list[int]:
        """Return, per level, a number of domains below which no placement of all pods was possible at the start."""
        parts = [self._fewest_of(flavor, request) for request in requests]
        return [max(numbers) for numbers in zip(*parts, strict=True)]

    def _fewest_of(self, flavor: str, request: PodSetRequest) -> tuple[int, ...]:
        key = flavor, request.shape, request.count
        known = self._fewest.get(key)
        if known is None:
            rooms = pods_per_domain(self.start.topologies[flavor].capacity, request.shape)
            known = self._fewest[key] = tuple(fewest_domains(room, request.count) for room in rooms)
        return known

    def _slots(self, world: World) -> int:
        """Return how many more gangs of the form with most units would fit, each in one domain of its level."""
        if self.largest is None:
            return 0
        flavor, request = self.largest
        view = world.snapshot.topologies[flavor]
        resolved = resolve(request, view.tree.levels, DEFAULT_PROFILE)
        free = isinstance(resolved, Misfit) or resolved.unconstrained
        level = max(0, view.tree.lowest - 1) if free or isinstance(resolved, Misfit) else resolved.level
        return int((pods_per_domain(view.capacity, request.shape)[level] // request.count).sum())


def _domains_used(tree: Tree, usage: Sequence[DomainUsage]) -> list[int]:
    """Return the number of domains with pods, per level."""
    leaves = [leaf for one in usage if (leaf := tree.leaf_of(one.values)) is not None]
    return [len(set(map(tree.domain_of(level).item, leaves))) for level in range(len(tree.levels))]
