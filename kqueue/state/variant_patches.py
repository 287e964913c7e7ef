"""The writes of concurrent admission, each as a pure function from the newest object to a merge patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kqueue import model
from kqueue.api import names, variant_names
from kqueue.api.wire import kueue as wire
from kqueue.kube.owned_names import LONG_NAME
from kqueue.model.variants import variant_name
from kqueue.state import preemption_gates, requeueing, status
from kqueue.state.conditions import Patch, Stamp, conditions_of, status_patch
from kqueue.state.variant_steps import is_reserved, pods_told

_NOT_COPIED = frozenset({names.ADMISSION_GATED_BY_ANNOTATION, "kubectl.kubernetes.io/last-applied-configuration"})
"""Annotations of a parent that its variants do not get: the parent's gates hold them back through the parent."""


def variant_of(parent: Mapping[str, Any], flavor: str, *, active: bool, limit: int = LONG_NAME) -> dict[str, Any]:
    """Return a new variant of a parent, which is given as the API server has it, for one flavor."""
    meta, spec = parent["metadata"], parent["spec"]
    labels = {k: v for k, v in meta.get("labels", {}).items() if k != variant_names.CONCURRENT_ADMISSION_PARENT_LABEL}
    annotations = {k: v for k, v in meta.get("annotations", {}).items() if k not in _NOT_COPIED}
    gates = [
        gate for gate in spec.get("preemptionGates", ()) if gate["name"] != variant_names.CONCURRENT_ADMISSION_GATE
    ]
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKLOAD_KIND,
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.WORKLOAD_KIND,
        "metadata": {
            "name": variant_name(meta["name"], meta["uid"], flavor, limit=limit),
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**annotations, variant_names.ALLOWED_FLAVORS_ANNOTATION: flavor},
            "ownerReferences": [owner],
        },
        "spec": {
            **spec,
            "active": active,
            "preemptionGates": [*gates, {"name": variant_names.CONCURRENT_ADMISSION_GATE}],
        },
    }


def admit_parent(parent: wire.Workload, variant: wire.Workload, *, stamp: Stamp) -> Patch | None:
    """Return a patch that gives the parent the admission of its variant; None when it has it, or may not get it."""
    stored = variant.status.admission
    if stored is None or not model.is_admitted(variant) or parent.status.admission == stored:
        return None
    if not parent.spec.active or model.condition_true(parent, names.CONDITION_FINISHED):
        return None
    if is_reserved(parent) and model.condition_true(parent, names.CONDITION_EVICTED):
        return None  # its pods still end
    conditions, queue = conditions_of(parent, stamp), stored.cluster_queue
    message = f"Quota reserved in ClusterQueue {queue} by variant {variant.metadata.name}"
    conditions.set(names.CONDITION_QUOTA_RESERVED, status=True, reason=names.REASON_QUOTA_RESERVED, message=message)
    status.end_by_reservation(parent, conditions)
    admitted = f"Admitted by ClusterQueue {queue} through variant {variant.metadata.name}"
    conditions.set(names.CONDITION_ADMITTED, status=True, reason=names.REASON_ADMITTED, message=admitted)
    if model.condition(variant.status.conditions, names.CONDITION_PODS_READY) is not None and not is_reserved(parent):
        status.wait_for_start(conditions)
    held = [{**msgspec.to_builtins(one), "name": one.name} for one in stored.pod_set_assignments]
    fields: Patch = {"admission": {"clusterQueue": queue, "podSetAssignments": held}}
    if parent.status.resource_requests:
        fields["resourceRequests"] = None
    if parent.status.finished_pods and not is_reserved(parent):
        fields["finishedPods"] = None
    if parent.status.admission_checks:
        fields["admissionChecks"] = None
    if parent.status.unhealthy_nodes:
        fields["unhealthyNodes"] = None  # the variant's hosts were replaced
    return status_patch(conditions, **fields)


def evict_parent(parent: wire.Workload, *, reason: str, message: str, stamp: Stamp) -> Patch | None:
    """Return a patch that marks the parent as evicted; None when it is, or uses no quota.

    Only the condition is set: the eviction is counted on the variant.
    """
    if not is_reserved(parent) or model.condition_true(parent, names.CONDITION_EVICTED):
        return None
    conditions = conditions_of(parent, stamp)
    conditions.set(names.CONDITION_EVICTED, status=True, reason=reason, message=message)
    return status_patch(conditions)


def evict_variant(variant: wire.Workload, *, reason: str, message: str, stamp: Stamp) -> Patch | None:
    """Return a patch that evicts a variant as its parent was; None when it is evicted, or uses no quota.

    The eviction is counted on the parent.
    """
    patch = status.evict(variant, reason=reason, message=message, stamp=stamp) if is_reserved(variant) else None
    if patch is not None:
        del patch["status"]["schedulingStats"]
    return patch


def release_variant(variant: wire.Workload, *, stamp: Stamp) -> Patch | None:
    """Return a patch that removes the reservation of an evicted variant; None when there is none."""
    evicted = model.condition(variant.status.conditions, names.CONDITION_EVICTED)
    if evicted is None or evicted.status != "True":
        return None
    return status.unreserve(
        variant,
        reason=names.REASON_PENDING_EVALUATION,
        message=evicted.message,
        stamp=stamp,
        requeued=requeueing.returns_at_once(evicted.reason),
    )


def copy_pods(variant: wire.Workload, parent: wire.Workload, *, stamp: Stamp) -> Patch | None:
    """Return a patch that gives the variant what its parent tells of its pods; None when it has it."""
    if pods_told(variant) == pods_told(parent) or not is_reserved(variant):
        return None
    conditions = conditions_of(variant, stamp)
    ready = model.condition(parent.status.conditions, names.CONDITION_PODS_READY)
    if ready is not None:
        conditions.set(
            names.CONDITION_PODS_READY, status=ready.status == "True", reason=ready.reason, message=ready.message
        )
    else:
        conditions.remove(names.CONDITION_PODS_READY)
    fields: Patch = {}
    if variant.status.reclaimable_pods != parent.status.reclaimable_pods:
        fields["reclaimablePods"] = [msgspec.to_builtins(one) for one in parent.status.reclaimable_pods] or None
    if variant.status.finished_pods != parent.status.finished_pods:
        fields["finishedPods"] = [msgspec.to_builtins(one) for one in parent.status.finished_pods] or None
    if variant.status.unhealthy_nodes != parent.status.unhealthy_nodes:
        fields["unhealthyNodes"] = [msgspec.to_builtins(one) for one in parent.status.unhealthy_nodes] or None
    return status_patch(conditions, **fields)


def open_gate(variant: wire.Workload, *, stamp: Stamp) -> Patch | None:
    """Return a patch that opens the variant's gate of concurrent admission; None when it is open, or absent.

    Other gates keep their state; a gate without a state is closed.
    """
    return preemption_gates.open_gate(variant, variant_names.CONCURRENT_ADMISSION_GATE, stamp=stamp)


def priority_of_parent(variant: wire.Workload, parent: wire.Workload) -> Patch | None:
    """Return a patch of the object that copies the parent's priority and its class; None when they are equal."""
    wanted, held = parent.spec, variant.spec
    if (held.priority, held.priority_class_ref) == (wanted.priority, wanted.priority_class_ref):
        return None
    reference = wanted.priority_class_ref
    return {
        "spec": {
            "priority": wanted.priority,
            "priorityClassRef": msgspec.to_builtins(reference) if reference is not None else None,
        }
    }


def switch(variant: wire.Workload, *, active: bool) -> Patch | None:
    """Return a patch of the object that activates or deactivates a variant; None when it is."""
    return None if variant.spec.active is active else {"spec": {"active": active}}


def label(parent: wire.Workload, *, on: bool) -> Patch | None:
    """Return a patch of the object that marks it as a parent, or removes the mark; None when it is correct."""
    key = variant_names.CONCURRENT_ADMISSION_PARENT_LABEL
    if (parent.metadata.labels.get(key) == "true") is on:
        return None
    return {"metadata": {"labels": {key: "true" if on else None}}}
