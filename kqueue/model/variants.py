"""The two sides of concurrent admission, as Workloads tell them: a parent, and its variants, one per flavor.

A variant counts as one only if it matches its parent in everything that quota depends on: every user with the right to
create Workloads can write any owner, label and annotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from kqueue.api import gang_names, names, variant_names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import OwnerReference
from kqueue.core.value import value
from kqueue.kube.owned_names import LONG_NAME, owned_name
from kqueue.model.conditions import condition_true


@value(kw_only=True)
class VariantPolicy:
    """The flavors of a ClusterQueue with a concurrentAdmissionPolicy, the most preferred first, and its rules."""

    flavors: tuple[str, ...]
    retains_first: bool = False
    """Whether the first admitted variant is kept; otherwise more preferred flavors are tried while it is admitted."""
    last_acceptable: str | None = None
    """The least preferred flavor to which a workload may move; None: any."""

    def may_move_to(self, flavor: str) -> bool:
        """Whether a workload that is admitted in a less preferred flavor may move to this one."""
        if self.retains_first or flavor not in self.flavors:
            return False
        last = self.last_acceptable
        return last not in self.flavors or self.flavors.index(flavor) <= self.flavors.index(str(last))


def variant_policy(queue: wire.ClusterQueue | None) -> VariantPolicy | None:
    """Return the policy of a ClusterQueue; None: it has none, so no Workload of it gets variants."""
    policy = queue.spec.concurrent_admission_policy if queue is not None else None
    if queue is None or policy is None:
        return None
    named = (flavor.name for group in queue.spec.resource_groups for flavor in group.flavors)
    constraints = policy.migration.constraints
    return VariantPolicy(
        flavors=tuple(dict.fromkeys(named)),
        retains_first=policy.migration.mode == variant_names.MIGRATION_RETAIN,
        last_acceptable=constraints.last_acceptable_flavor_name if constraints is not None else None,
    )


def is_parent(obj: wire.Workload) -> bool:
    """Whether the Workload is marked as a parent, so that it waits in no queue."""
    return obj.metadata.labels.get(variant_names.CONCURRENT_ADMISSION_PARENT_LABEL) == "true"


def owning_workload(obj: wire.Workload) -> OwnerReference | None:
    """Return the Workload that controls this one; None: no Workload does."""
    for owner in obj.metadata.owner_references:
        if owner.controller and owner.kind == names.WORKLOAD_KIND:
            return owner if owner.api_version.partition("/")[0] == names.GROUP else None
    return None


def parent_key(obj: wire.Workload) -> str | None:
    """Return namespace/name of the Workload that controls this one; None: no Workload does, so it is no variant."""
    owner = owning_workload(obj)
    return f"{obj.metadata.namespace}/{owner.name}" if owner is not None else None


def allowed_flavor(obj: wire.Workload) -> str | None:
    """Return the flavor that a variant may use; None: the Workload is no variant."""
    if owning_workload(obj) is None:
        return None
    return obj.metadata.annotations.get(variant_names.ALLOWED_FLAVORS_ANNOTATION, "")


@lru_cache(maxsize=100_000)
def variant_name(parent: str, uid: str, flavor: str, *, limit: int = LONG_NAME) -> str:
    """Return the name of a parent's variant; `parent` and `uid` are those of the parent."""
    base = parent.rpartition("-")[0] or parent
    return owned_name(f"{base}-variant-{flavor}", (names.WORKLOAD_KIND, names.GROUP, parent, uid, flavor), limit=limit)


_TRIED_THEMSELVES = (names.ELASTIC_JOB_ANNOTATION, names.IS_GROUP_WORKLOAD_ANNOTATION)


def may_be_parent(obj: wire.Workload) -> bool:
    """Whether variants may be tried in place of the Workload.

    Slices of elastic jobs and pods beyond a gang's quorum follow another Workload of their job, and a group of pods is
    known by its Workload, so these are tried themselves.
    """
    annotations = obj.metadata.annotations
    if (
        any(annotations.get(key) == "true" for key in _TRIED_THEMSELVES)
        or gang_names.EXTRA_OF_ANNOTATION in annotations
    ):
        return False
    return owning_workload(obj) is None


def waits_for_label(obj: wire.Workload, policy: VariantPolicy | None) -> bool:
    """Whether the Workload must become a parent before anything is decided on it."""
    if policy is None or is_parent(obj) or not may_be_parent(obj):
        return False
    return obj.status.admission is None and not condition_true(obj, names.CONDITION_FINISHED)


def variant_fault(obj: wire.Workload, parent: wire.Workload | None, *, limit: int = LONG_NAME) -> str:
    """Return why a Workload that another one controls is not its variant; empty: it is."""
    owner, flavor = owning_workload(obj), allowed_flavor(obj)
    if owner is None:
        return "no Workload controls it"
    place = (obj.metadata.namespace, owner.name, owner.uid)
    if parent is None or (parent.metadata.namespace, parent.metadata.name, parent.metadata.uid) != place:
        return f"Workload {owner.name}, which controls it, does not exist"
    if not may_be_parent(parent):
        return f"Workload {owner.name}, which controls it, cannot have variants"
    if not flavor or obj.metadata.name != variant_name(parent.metadata.name, owner.uid, flavor, limit=limit):
        return f"its name is not that of a variant of Workload {owner.name} for flavor {flavor or '(none)'}"
    if obj.spec.pod_sets != parent.spec.pod_sets or obj.spec.queue_name != parent.spec.queue_name:
        return f"its pod sets or its queue differ from those of Workload {owner.name}"
    if not any(gate.name == variant_names.CONCURRENT_ADMISSION_GATE for gate in obj.spec.preemption_gates):
        return f"it lacks preemption gate {variant_names.CONCURRENT_ADMISSION_GATE}"
    return ""


def flavors_of(obj: wire.Workload) -> frozenset[str]:
    """Return the flavors of a Workload's admission; empty: it has no admission, or requests no resource."""
    stored = obj.status.admission
    assigned = stored.pod_set_assignments if stored is not None else ()
    return frozenset(flavor for held in assigned for flavor in held.flavors.values())


def admitted_variant_key(parent: wire.Workload, *, limit: int = LONG_NAME) -> str | None:
    """Return namespace/name of the variant whose admission a parent has; None: it has none, or of several flavors."""
    flavors, meta = flavors_of(parent), parent.metadata
    if len(flavors) != 1:
        return None
    return f"{meta.namespace}/{variant_name(meta.name, meta.uid, next(iter(flavors)), limit=limit)}"


def by_flavor(
    owned: Iterable[wire.Workload], parent: wire.Workload, policy: VariantPolicy, *, limit: int = LONG_NAME
) -> tuple[Mapping[str, wire.Workload], tuple[wire.Workload, ...]]:
    """Return the variants of a parent by flavor, in the order of its ClusterQueue, and the other Workloads that it
    controls: they are no variants of it, or their flavor has left the ClusterQueue.
    """
    found: dict[str, wire.Workload] = {}
    others: list[wire.Workload] = []
    for obj in owned:
        flavor = allowed_flavor(obj)
        if flavor in policy.flavors and not variant_fault(obj, parent, limit=limit):
            found[str(flavor)] = obj
        else:
            others.append(obj)
    return {flavor: found[flavor] for flavor in policy.flavors if flavor in found}, tuple(others)
