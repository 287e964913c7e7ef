"""Find the LocalQueue of a gang for a pod or a group object that names none, and the Workload of a pod's gang.

Group objects and namespaces are looked up by name and remembered for seconds, so the pods of one gang that are created
together cost one look-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kqueue.api import gang_names
from kqueue.jobs import syntax
from kqueue.jobs.fields import JSON, annotations_of, text
from kqueue.jobs.gang import group_object
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.naming import workload_of_gang
from kqueue.jobs.gang.registry import dialect_of, membership
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.switches import JobFeatures


class GangLookups(Protocol):
    """Reads from the API server, as in `ReviewLookups`."""

    async def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace; empty if it does not exist."""
        ...

    async def has_local_queue(self, namespace: str, name: str) -> bool:
        """Whether the LocalQueue exists."""
        ...

    async def group_object(self, ref: GangRef) -> JSON | None:
        """Return the group object of a gang; None: it does not exist, or the API server does not serve its kind."""
        ...


async def queue_of_pod(pod: JSON, namespace: str, switches: JobFeatures, lookups: GangLookups) -> str:
    """Return the LocalQueue of the pod's gang; empty: the pod is in none, or nothing names a queue for it.

    The queue named `default` is not considered here, and neither are Kueue's own groups.

    Raises:
        LookupFailedError: the API server could not be asked.
    """
    gang = membership(pod, switches)
    if gang is None or gang.framework == KUEUE_GROUPS:
        return ""
    ref = GangRef(framework=gang.framework, namespace=namespace, name=gang.name)
    exists = dialect_of(ref.framework).kinds and syntax.subdomain(ref.name) is None
    obj = await lookups.group_object(ref) if exists else None
    return await queue_of_group(obj, gang.framework, namespace, lookups)


async def workload_of_pod(pod: JSON, namespace: str, switches: JobFeatures, lookups: GangLookups) -> str:
    """Return the name of the Workload that counts the pod's gang; empty: the pod is queued alone, or the gang has no
    Workload because its group object does not exist.

    Raises:
        LookupFailedError: the API server could not be asked.
    """
    gang = membership(pod, switches)
    if gang is None or (gang.framework != KUEUE_GROUPS and gang_names.EXTRA_ANNOTATION in annotations_of(pod)):
        return ""
    ref = GangRef(framework=gang.framework, namespace=namespace, name=gang.name)
    if not dialect_of(ref.framework).kinds:
        return workload_of_gang(ref, switches)
    obj = await lookups.group_object(ref) if syntax.subdomain(ref.name) is None else None
    return workload_of_gang(ref, switches, uid=text(obj, "metadata", "uid")) if obj is not None else ""


async def queue_of_group(obj: JSON | None, framework: str, namespace: str, lookups: GangLookups) -> str:
    """Return the first queue that is named: by the label of the group object, by a field of its kind if a LocalQueue
    has the name, by the label of the namespace; empty: none is.
    """
    if obj is not None:
        named = group_object.queue_of(obj)
        proposed = "" if named else dialect_of(framework).proposed_queue(obj)
        if named or (proposed and await lookups.has_local_queue(namespace, proposed)):
            return named or proposed
    return (await lookups.namespace_labels(namespace)).get(gang_names.GANG_QUEUE_LABEL, "")
