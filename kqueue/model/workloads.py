"""The state of a Workload, read from its status and owners, and the keys by which it is found."""

from __future__ import annotations

from kqueue.api import check_names, names
from kqueue.api.wire import kueue as wire
from kqueue.model.conditions import condition, condition_true
from kqueue.model.variants import is_parent, parent_key


def is_owned_by_one_pod(obj: wire.Workload) -> bool:
    """Whether it is the Workload of a pod that is queued alone: the Workload ends with the pod."""
    owners = obj.metadata.owner_references
    return (
        len(owners) == 1
        and (owners[0].api_version, owners[0].kind) == ("v1", "Pod")
        and obj.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) != "true"
    )


def is_ownerless_group(obj: wire.Workload) -> bool:
    """Whether the Workload belongs to a group of pods of which no pod is left: pods are the owners of such a
    Workload.
    """
    metadata = obj.metadata
    return not metadata.owner_references and metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"


def is_admitted(obj: wire.Workload) -> bool:
    """Whether the workload may run: it is admitted, and still has its admission.

    The conditions alone do not prove it: every user with the right to write the status can write any condition.
    """
    return (
        obj.status.admission is not None
        and condition_true(obj, names.CONDITION_QUOTA_RESERVED)
        and condition_true(obj, names.CONDITION_ADMITTED)
    )


def is_eviction_ended(obj: wire.Workload) -> bool:
    """Whether the workload is evicted and its reservation was released.

    `status.admission` may still exist: a client that ends an eviction by server-side apply cannot remove a field that
    another field manager wrote.
    """
    reserved = condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    return reserved is not None and reserved.status == "False" and condition_true(obj, names.CONDITION_EVICTED)


def is_damaged_status(obj: wire.Workload) -> bool:
    """Whether the status was damaged: it is empty, or contradicts itself in a way that no release of a reservation
    causes.

    The status of an evicted workload whose QuotaReserved is False is consistent: the eviction has ended. The result has
    no meaning for a workload that never had a reservation.
    """
    if is_eviction_ended(obj):
        return False
    reserved = condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if reserved is None:
        return True
    holds, has = reserved.status == "True", obj.status.admission is not None
    return holds is not has or (not holds and condition_true(obj, names.CONDITION_ADMITTED))


def is_over(obj: wire.Workload) -> bool:
    """Whether the workload is finished, or inactive without a running job: it uses no quota.

    A workload that is deactivated while its job runs keeps its usage until its last pod is gone and its reservation is
    removed, as with any other eviction.
    """
    if condition_true(obj, names.CONDITION_FINISHED):
        return True
    return not obj.spec.active and obj.status.admission is None


HOLDS, WAITS = "holds", "waits"
"""The two states of a Workload in its status: it uses a ClusterQueue's quota, or waits in a queue."""


def standing(obj: wire.Workload, *, concurrent: bool = False) -> tuple[str, ...]:
    """Return whether the Workload uses quota or waits in a queue, by its status: HOLDS, WAITS, or an empty tuple.

    `concurrent`: parents of variants wait in no queue (gate ConcurrentAdmission).
    """
    if obj.status.admission is not None:
        reserved = condition_true(obj, names.CONDITION_QUOTA_RESERVED)
        return (HOLDS,) if reserved and not is_over(obj) else ()
    return (WAITS,) if is_queueable(obj) and not (concurrent and is_parent(obj)) else ()


def workload_key(obj: wire.Workload) -> str:
    """Return namespace/name of the Workload."""
    return f"{obj.metadata.namespace}/{obj.metadata.name}"


def siblings_key(obj: wire.Workload) -> str:
    """Return the namespace/name by which the Workload's pods are found: all slices of an elastic job share one."""
    slice_name = obj.metadata.annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION)
    return f"{obj.metadata.namespace}/{slice_name or obj.metadata.name}"


def pods_key(obj: wire.Workload) -> str:
    """Return the namespace/name by which the pods that use the Workload's quota are found: those of a variant are its
    parent's.
    """
    return parent_key(obj) or siblings_key(obj)


def taken_over_key(obj: wire.Workload) -> str | None:
    """Return namespace/name of the Workload whose quota is a part of this one's; None: there is none."""
    return parent_key(obj) or replaced_key(obj)


def local_queue_key(obj: wire.Workload) -> str:
    """Return namespace/name of the LocalQueue; the name may be empty."""
    return f"{obj.metadata.namespace}/{obj.spec.queue_name or ''}"


def runtime_classes(obj: wire.Workload) -> list[str]:
    """Return the runtime classes that the Workload's templates name."""
    return [name for p in obj.spec.pod_sets if (name := p.template.spec.runtime_class_name)]


def is_queueable(obj: wire.Workload) -> bool:
    """Whether the Workload may wait in a queue: it has no closed admission gate, is not over, has no reservation, is
    not on hold, its pods are complete, and no admission check has rejected it or asks for a retry.
    """
    metadata = obj.metadata
    if not obj.spec.active or metadata.deletion_timestamp is not None or obj.status.admission is not None:
        return False
    if metadata.annotations.get(names.ADMISSION_GATED_BY_ANNOTATION):
        return False
    for found in obj.status.conditions:
        if found.type in _KEEPS_OUT and found.status == "True":
            return False
        if found.type == names.CONDITION_QUOTA_RESERVED and found.reason == names.REASON_ON_HOLD:
            return False
    return not any(check.state in _REFUSALS for check in obj.status.admission_checks)


_REFUSALS = (names.CHECK_RETRY, names.CHECK_REJECTED)
_KEEPS_OUT = frozenset(
    {names.CONDITION_FINISHED, names.CONDITION_QUOTA_RESERVED, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS}
)
"""Conditions that no queued workload has."""


def waits_for_domains(obj: wire.Workload) -> bool:
    """Whether the Workload has a reservation, and domains that are chosen when its admission checks are ready."""
    stored = obj.status.admission
    return stored is not None and any(
        held.delayed_topology_request == check_names.DELAYED_PENDING and held.topology_assignment is None
        for held in stored.pod_set_assignments
    )


def needs_domains(obj: wire.Workload) -> bool:
    """Whether domains must be chosen now: all checks are ready, and nothing else has happened to the Workload since."""
    checks = obj.status.admission_checks
    return (
        waits_for_domains(obj)
        and bool(checks)
        and all(check.state == names.CHECK_READY for check in checks)
        and condition_true(obj, names.CONDITION_QUOTA_RESERVED)
        and not condition_true(obj, names.CONDITION_ADMITTED)
        and not condition_true(obj, names.CONDITION_EVICTED)
        and not is_over(obj)
        and obj.spec.active
        and obj.metadata.deletion_timestamp is None
    )


def is_placed(obj: wire.Workload) -> bool:
    """Whether the Workload is admitted to domains, and neither over nor evicted, so that its failed hosts are
    replaced.
    """
    stored = obj.status.admission
    return (
        stored is not None
        and any(held.topology_assignment is not None for held in stored.pod_set_assignments)
        and condition_true(obj, names.CONDITION_ADMITTED)
        and not condition_true(obj, names.CONDITION_EVICTED)
        and not is_over(obj)
        and obj.spec.active
        and obj.metadata.deletion_timestamp is None
    )


def replaced_key(obj: wire.Workload) -> str | None:
    """Return namespace/name of the older slice of its elastic job that the Workload replaces; None: it replaces
    none.
    """
    key = obj.metadata.annotations.get(names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION)
    if key is None or key == workload_key(obj) or key.partition("/")[0] != obj.metadata.namespace:
        return None
    return key
