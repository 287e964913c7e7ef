"""Views of pods with their gang and role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kqueue.api import names
from kqueue.jobs import node_classes
from kqueue.jobs.fields import JSON, annotation_of, annotations_of, labels_of, mapping, text
from kqueue.jobs.gang.key import gang_key
from kqueue.jobs.gang.registry import membership
from kqueue.jobs.gang.value import GangMembership
from kqueue.jobs.pod_shape import role_hash
from kqueue.jobs.pod_view import ManagedPod, creation_of, has_finalizer, is_deleting, is_gated, stopped_by_us
from kqueue.jobs.switches import JobFeatures


def managed_pod(pod: JSON, switches: JobFeatures) -> ManagedPod:
    """Return the view of a pod that has kqueue's label."""
    namespace = text(pod, "metadata", "namespace")
    gang = membership(pod, switches)
    return ManagedPod(
        obj=pod,
        key=f"{namespace}/{text(pod, 'metadata', 'name')}",
        uid=text(pod, "metadata", "uid"),
        group=gang_key(gang.framework, namespace, gang.name) if gang is not None else "",
        role=_noted_role(pod) or role_of(pod, gang) if gang is not None else "",
        phase=text(pod, "status", "phase"),
        gated=is_gated(pod),
        deleting=is_deleting(pod),
        finalizer=has_finalizer(pod),
        stopped=stopped_by_us(pod),
        created=creation_of(pod),
    )


def group_name(pod: Mapping[str, Any], switches: JobFeatures) -> str:
    """Return the name of the group that the pod is in, in any dialect; empty when it is in none."""
    gang = membership(pod, switches)
    return gang.name if gang is not None else ""


def role_of(pod: Mapping[str, Any], gang: GangMembership | None) -> str:
    """Return the role of a new pod: that of its dialect, else pods of one shape play one role."""
    return (
        gang.role
        if gang is not None and gang.role
        else role_hash(mapping(pod, "spec"), more=node_classes.metadata(pod))
    )


def rank_of(pod: Mapping[str, Any], gang: GangMembership | None) -> str | None:
    """Return the pod's rank in its group, a number from 0 as text: the value of the label that an annotation names,
    else what its dialect says; None: it has no rank.
    """
    key = annotations_of(pod).get(names.POD_GROUP_POD_INDEX_LABEL_ANNOTATION)
    if key is not None:
        return labels_of(pod).get(key)
    return gang.rank or None if gang is not None else None


def _noted_role(pod: Mapping[str, Any]) -> str:
    """Return the role that the webhook noted: the additions of a start must not change it."""
    return annotation_of(pod, names.ROLE_HASH_ANNOTATION).lower()
