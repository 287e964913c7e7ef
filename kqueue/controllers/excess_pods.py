"""Charges the requests of an owner's pods beyond the owner's admission, for owners of custom kinds.

kqueue cannot know which of these pods the owner's controller created: the controller may run helpers that no pod set
names.  So kqueue stops no pod, but charges the excess requests to the ClusterQueue.  Nothing is charged while the owner
has no more pods than were admitted, because a webhook may add a container to each pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core.topology.node import PodFacts
from kqueue.model import PodView
from kqueue.runtime.store import Store
from kqueue.state.holding import Holding

Amounts = Mapping[str, int]
ChargeAmounts = Callable[[str, str, Amounts], None]
"""Charges amounts of a pod (namespace/name) to a LocalQueue (namespace/name) from now on."""


class ExcessPods:
    """The pods of each owner, and the charges for pods beyond its admission."""

    def __init__(
        self,
        *,
        pods: Store[PodView],
        holding: Callable[[str], Holding | None],
        charge: ChargeAmounts,
        release: Callable[[str], None],
    ) -> None:
        """Begin without pods.

        Args:
            pods: the watch of pods.
            holding: returns the usage of a Workload (namespace/name); None: it has none.
            charge: charges a pod.
            release: ends the charge of a pod, if the pod has one.
        """
        self._pods, self._holding, self._charge, self._release = pods, holding, charge, release
        self._pods_of: dict[str, set[str]] = {}
        self._owner_of: dict[str, str] = {}
        self._charged: dict[str, Amounts] = {}

    def add(self, pod: str, owner: str) -> None:
        """Record that a bound pod belongs to the owner with this UID."""
        if self._owner_of.get(pod) != owner:
            self.remove(pod)
            self._owner_of[pod] = owner
            self._pods_of.setdefault(owner, set()).add(pod)

    def remove(self, pod: str) -> str | None:
        """Forget a pod that has ended or is being deleted.

        Returns its owner's UID if the owner has other pods, else None.
        """
        owner = self._owner_of.pop(pod, None)
        if owner is None:
            return None
        self._set(pod, {}, "")
        left = self._pods_of[owner]
        left.discard(pod)
        if not left:
            del self._pods_of[owner]
        return owner if left else None

    def any_of(self, owner: str) -> str | None:
        """Return a pod of the owner with this UID; None: no pod is known."""
        return next(iter(self._pods_of.get(owner, ())), None)

    def weigh(self, owner: str, workloads: Iterable[wire.Workload]) -> None:
        """Charge the requests of the owner's pods beyond the usage of its Workloads.

        The usage covers the oldest pods first.
        """
        found = (self._holding(model.workload_key(workload)) for workload in workloads)
        holdings = [holding for holding in found if holding is not None]
        running = sorted(self._running(owner), key=lambda pod: (pod[0], pod[1]))
        left = _held(holdings)
        beyond = len(running) > sum(s.count for h in holdings for s in h.admission.pod_sets)
        queue = holdings[0].local_queue if holdings else ""
        for _, key, facts in running:
            excess = _take(left, facts)
            self._set(key, excess if beyond else {}, queue)

    def _running(self, owner: str) -> Iterable[tuple[datetime, str, PodFacts]]:
        """Yield the creation time, the key and the facts of each bound pod of the owner."""
        for key in self._pods_of.get(owner, ()):
            view = self._pods.get(key)
            if view is not None and view.bound is not None and view.custom_owner is not None:
                yield view.custom_owner.pod_created, key, view.bound

    def _set(self, pod: str, amounts: Amounts, queue: str) -> None:
        if self._charged.get(pod, {}) == amounts:
            return
        self._release(pod)
        self._charged.pop(pod, None)
        if amounts and queue:
            self._charged[pod] = amounts
            self._charge(pod, queue, amounts)


def _held(holdings: Iterable[Holding]) -> Counter[str]:
    held = Counter[str]()
    for holding in holdings:
        for column, amount in holding.admission.usage().items():
            held[column.resource] += amount
    return held


def _take(left: Counter[str], pod: PodFacts) -> Amounts:
    """Subtract the requests of a pod from the amounts left; return the missing amounts."""
    missing: dict[str, int] = {}
    for resource, amount in pod.requests:
        paid = min(amount, left[resource])
        left[resource] -= paid
        if amount > paid:
            missing[resource] = amount - paid
    return missing
