"""The names of gangs' Workloads, in both directions."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.api import gang_names
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.registry import dialect_of
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name
from kqueue.kube.owned_names import LONG_NAME, SHORT_NAME


def workload_of_gang(ref: GangRef, switches: JobFeatures, *, uid: str = "") -> str:
    """Return the name of the gang's Workload; `uid` is that of the group object, empty where there is none."""
    kind = dialect_of(ref.framework).names_workloads
    if kind is None:
        return ref.name
    return workload_name(kind, ref.name, uid, limit=SHORT_NAME if switches.short_names else LONG_NAME)


def workload_key_of_gang(key: str, switches: JobFeatures) -> str:
    """Return namespace/name of the Workload of the gang with this key, for dialects without a group object."""
    if ":" not in key:
        return key  # of Kueue's groups, the most frequent ones
    ref = GangRef.of_key(key)
    return f"{ref.namespace}/{workload_of_gang(ref, switches)}"


def gang_annotation(ref: GangRef) -> dict[str, str]:
    """Return the annotation by which a Workload names its gang; none for Kueue's groups, whose name is the
    Workload's.
    """
    return {} if ref.framework == KUEUE_GROUPS else {gang_names.GANG_ANNOTATION: f"{ref.framework}:{ref.name}"}


def gang_of_workload(namespace: str, name: str, annotations: Mapping[str, str]) -> str:
    """Return the key of the gang that a Workload counts, if it counts one."""
    framework, colon, group = annotations.get(gang_names.GANG_ANNOTATION, "").partition(":")
    return gang_key(framework, namespace, group) if colon else gang_key(KUEUE_GROUPS, namespace, name)
