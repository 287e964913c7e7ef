"""The costs of places in a network, by the policies of its flavor."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

import numpy as np

from kqueue.core.joint.classes import PodClass
from kqueue.core.joint.costs import PLACE_MAX
from kqueue.core.joint.fair_shares import FairShares
from kqueue.core.joint.policy import NEVER, Depth
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.topology.tree import Ints


@dataclass(frozen=True, slots=True)
class Judge:
    """The policies of one flavor, on the state before the round."""

    flavor: str
    policies: RoundPolicies
    view: WorldView

    def key(self, one: PodClass) -> Hashable:
        """Return what the costs of a class follow from, beside the form of its gangs."""
        return one.queue, one.sight, one.waited

    def domains(self, one: PodClass, level: int) -> Ints:
        """Return the points per unit of each domain of a level for a class."""
        costs = self.policies.of(self.flavor).domains(self._judged(one), level, self.view, in_search=False)
        return np.minimum(costs, PLACE_MAX)

    @property
    def looks_at_hosts(self) -> bool:
        """Whether hosts of one domain may have different costs."""
        return self.policies.of(self.flavor).depth is Depth.HOST

    def is_free(self, one: PodClass) -> bool:
        """Whether the policies choose each host of the pods of a class."""
        return self._judged(one).is_free and one.form.leader is None

    def hosts(self, one: PodClass, nth: int) -> Ints:
        """Return the points per unit of the n-th pod of a class on each leaf; `NEVER` is kept."""
        costs = self.policies.of(self.flavor).hosts(self._judged(one), nth, self.view)
        return np.where(costs == NEVER, NEVER, np.minimum(costs, PLACE_MAX))

    def _judged(self, one: PodClass) -> JudgedPods:
        return self.policies.judged(one.members[0].head, one.form.workers, self.flavor, waited=one.waited)

    @property
    def shares(self) -> FairShares | None:
        """The shares of ClusterQueues; None: shares do not count."""
        return self.policies.shares(self.flavor)

    @property
    def spread(self) -> Callable[[int], int]:
        """The points per unit for each domain of a level beyond the fewest possible."""
        return self.policies.of(self.flavor).spread
