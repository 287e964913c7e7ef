"""Variants of concurrent admission as the planner sees them: their flavor, and the sibling that is admitted."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.core.value import value
from kqueue.core.workload import Sibling, Variant
from kqueue.kube.owned_names import LONG_NAME
from kqueue.model.variants import (
    VariantPolicy,
    allowed_flavor,
    flavors_of,
    is_parent,
    owning_workload,
    variant_fault,
    variant_name,
    variant_policy,
    waits_for_label,
)
from kqueue.state.cache import Cache


@value(kw_only=True)
class VariantRules:
    """Rules of concurrent admission: `limit` is the largest number of characters of a variant's name."""

    limit: int = LONG_NAME


class KeptOut(NamedTuple):
    """The reason and the message of a Workload that is not tried, whatever is free."""

    reason: str
    message: str


class Variants:
    """Reads the variants among the heads of ClusterQueues."""

    def __init__(self, cache: Cache, newest: Callable[[str], wire.Workload | None], rules: VariantRules) -> None:
        """Take the cache; `newest` returns the latest version of a Workload."""
        self._cache, self._newest, self._limit = cache, newest, rules.limit

    def _policy(self, queue: str) -> VariantPolicy | None:
        return variant_policy(self._cache.quota.queue_object(queue))

    def kept_out(self, obj: wire.Workload, queue: str) -> KeptOut | None:
        """Return why a Workload must not be tried in a ClusterQueue; None: it may be.

        A parent is never tried, also before it has its label: it would be admitted beside its variants.  A Workload
        that another one controls is tried only if it is a variant of that one.
        """
        policy = self._policy(queue)
        if is_parent(obj) or waits_for_label(obj, policy):
            return KeptOut(names.REASON_PENDING_EVALUATION, "Its variants are tried in its place, one per flavor")
        key = model.parent_key(obj)
        if key is None:
            return None
        fault = variant_fault(obj, self._newest(key), limit=self._limit)
        if not fault and policy is None:
            fault = f"ClusterQueue {queue} has no concurrentAdmissionPolicy"
        return KeptOut(names.REASON_MISCONFIGURED, f"It is no variant: {fault}") if fault else None

    def of_parent(self, obj: wire.Workload, queue: str) -> dict[str, wire.Workload | None]:
        """Return the variants of a parent by flavor, in the order of its ClusterQueue; empty: it is no parent.

        None stands for a variant that does not exist.
        """
        policy = self._policy(queue)
        if policy is None or not is_parent(obj):
            return {}
        meta, found = obj.metadata, dict[str, wire.Workload | None]()
        for flavor in policy.flavors:
            variant = self._newest(f"{meta.namespace}/{variant_name(meta.name, meta.uid, flavor, limit=self._limit)}")
            is_one = variant is not None and not variant_fault(variant, obj, limit=self._limit)
            found[flavor] = variant if is_one else None
        return found

    def read(self, obj: wire.Workload, queue: str) -> Variant | None:
        """Return a variant with its admitted sibling; None: the Workload is none."""
        owner, flavor = owning_workload(obj), allowed_flavor(obj)
        if owner is None or not flavor:
            return None
        policy = self._policy(queue)
        if policy is None or flavor not in policy.flavors:
            return Variant(flavor=flavor)
        own, parent = policy.flavors.index(flavor), self._newest(f"{obj.metadata.namespace}/{owner.name}")
        for index, other in enumerate(policy.flavors):
            name = variant_name(owner.name, owner.uid, other, limit=self._limit)
            sibling = self._newest(f"{obj.metadata.namespace}/{name}") if index != own else None
            if sibling is None or variant_fault(sibling, parent, limit=self._limit):
                continue
            held = self._cache.held.holding(model.workload_key(sibling))
            if held is None or held.uid != sibling.metadata.uid or not (held.admitted or held.assumed):
                continue
            found = Sibling(
                key=held.key,
                flavor=other,
                is_preferred=index < own,
                may_leave=policy.may_move_to(flavor),
                is_assumed=held.assumed,
            )
            return Variant(flavor=flavor, sibling=found)
        return Variant(flavor=flavor, sibling=self._running(parent))

    def _running(self, parent: wire.Workload | None) -> Sibling | None:
        """Return the parent in the form of a sibling that stays, while its job uses quota without an admitted variant:
        the variant was deleted, and the job is being stopped.
        """
        held = self._cache.held.known(model.workload_key(parent)) if parent is not None else None
        if parent is None or held is None or held.uid != parent.metadata.uid:
            return None
        used = ", ".join(sorted(flavors_of(parent))) or "(none)"
        return Sibling(key=held.key, flavor=used, is_preferred=True, may_leave=False, is_assumed=False)
