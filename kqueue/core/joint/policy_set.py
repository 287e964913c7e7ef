"""Several policies as one: the weighed sum of their costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from kqueue.core.joint.costs import PLACE_MAX, WAIT_MAX
from kqueue.core.joint.policies.fairness import FairnessPolicy
from kqueue.core.joint.policies.topology import TopologyPolicy
from kqueue.core.joint.policy import NEVER, Depth, JudgedPlace, PlacePolicy, PolicyFailedError
from kqueue.core.joint.policy_view import JudgedPods, WorldView
from kqueue.core.joint.registry import NORMAL_WEIGHT, PolicyMistake, PolicySpec, make
from kqueue.core.topology.tree import Ints
from kqueue.isolation import isolated

T = TypeVar("T")

_LARGEST_COST = 1 << 53


class PolicySet:
    """The policies of one flavor.

    Costs are summed with their weights, and cut to 0 .. `PLACE_MAX`.  All methods raise PolicyFailedError when a policy
    raises an error, or answers with anything but whole numbers in the right form.
    """

    def __init__(self, specs: Sequence[PolicySpec]) -> None:
        """Make the policies; one that cannot be made fails."""
        self._policies = [(spec.name, spec.weight, _made(spec)) for spec in specs]
        self._in_search = [one for one in self._policies if one[2].in_search]
        self.depth = max((p.depth for _, _, p in self._in_search), key=list(Depth).index, default=Depth.DOMAIN)
        self.by_value = any(policy.by_value for _, _, policy in self._policies)

    @property
    def has_say(self) -> bool:
        """Whether any policy chooses places in the search, or waits for better ones."""
        return bool(self._in_search)

    def key(self, pods: JudgedPods) -> Hashable:
        """Return what the policies see of the pods beyond their requests."""
        return tuple([_asked(name, p.key, pods) for name, _, p in self._policies])

    def waiting(self, pods: JudgedPods) -> int:
        """Return the seconds of waiting that count for a workload: those of the first policy that has any."""
        for name, _, policy in self._policies:
            found = _asked(name, policy.waiting, pods)
            if found is not None:
                return max(0, min(WAIT_MAX, _whole(name, found)))
        return pods.waited

    def domains(self, pods: JudgedPods, level: int, view: WorldView, *, in_search: bool) -> Ints:
        """Return the cost of each domain of a level; `NEVER` is kept.

        `in_search`: of the policies that choose in the search; otherwise of all.
        """
        size, some = view.tree.domains(level), self._in_search if in_search else self._policies
        tables = [
            (weight, _table(name, found, size))
            for name, weight, policy in some
            if (found := _asked(name, lambda p=policy: p.domains(pods, level, view))) is not None
        ]
        return _summed(tables, size)

    def hosts(self, pods: JudgedPods, nth: int, view: WorldView) -> Ints:
        """Return the cost of the n-th further pod on each leaf."""
        size = len(view.tree)
        tables = [
            (weight, _table(name, found, size))
            for name, weight, policy in self._in_search
            if (found := _asked(name, lambda p=policy: p.hosts(pods, nth, view))) is not None
        ]
        return _summed(tables, size)

    def patience(self, pods: JudgedPods, view: WorldView) -> int | None:
        """Return the smallest patience of all policies; None: none of them waits."""
        found = [_asked(name, policy.patience, pods, view) for name, _, policy in self._policies]
        return min(
            [_whole(name, n) for (name, _, _), n in zip(self._policies, found, strict=True) if n is not None],
            default=None,
        )

    def real_cost(self, place: JudgedPlace, view: WorldView) -> int:
        """Return the points of pods on their leaves, at most `PLACE_MAX` for each unit."""
        total = 0
        for name, weight, policy in self._in_search:
            total += weight * max(0, _whole(name, _asked(name, policy.real_cost, place, view)))
        return min(total // NORMAL_WEIGHT, PLACE_MAX * place.pods.units * int(place.counts.sum()))

    @property
    def fairness(self) -> FairnessPolicy | None:
        """The policy of shares; None: there is none."""
        return next((policy for _, _, policy in self._policies if isinstance(policy, FairnessPolicy)), None)

    def spread(self, level: int) -> int:
        """Return the points per unit for each domain of a level beyond the fewest possible; 0 without `topology`."""
        for _, weight, policy in self._policies:
            if isinstance(policy, TopologyPolicy):
                return min(PLACE_MAX, weight * policy.spread(level) // NORMAL_WEIGHT)
        return 0


def _made(spec: PolicySpec) -> PlacePolicy:
    found = _asked(spec.name, make, spec)
    if isinstance(found, PolicyMistake):
        raise PolicyFailedError(spec.name, f"{found.path}: {found.problem}")
    return found


def _asked(name: str, ask: Callable[..., T], *given: object) -> T:
    """Return the answer of a policy."""
    with isolated() as asking:
        return ask(*given)
    raise PolicyFailedError(name, f"{type(asking.error).__name__}: {asking.error}")


def _whole(name: str, found: object) -> int:
    if isinstance(found, int | np.integer) and not isinstance(found, bool):
        return int(found)
    raise PolicyFailedError(name, f"{found!r} is no whole number")


def _table(name: str, found: object, size: int) -> Ints:
    """Return the costs of a policy, cut to the range that counts."""
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iu" or found.dtype == np.uint64:
        raise PolicyFailedError(name, "its costs are no array of whole numbers")
    if found.shape != (size,):
        raise PolicyFailedError(name, f"it gave costs of the form {found.shape} for {size} domains")
    costs = found.astype(np.int64)
    return np.where(costs == NEVER, NEVER, np.clip(costs, 0, _LARGEST_COST // 1_000_000))


def _summed(tables: Sequence[tuple[int, Ints]], size: int) -> Ints:
    total, closed = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.bool_)
    for weight, costs in tables:
        never = costs == NEVER
        closed |= never
        total += weight * np.where(never, 0, costs)
    return np.where(closed, NEVER, np.minimum(total // NORMAL_WEIGHT, PLACE_MAX))
