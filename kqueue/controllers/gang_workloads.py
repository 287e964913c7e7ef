"""Finds the Workload of a gang, and Workloads of earlier group objects of the same name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.group_objects import GroupObjects, watch_group_objects
from kqueue.controllers.manager import Manager
from kqueue.controllers.raw import JSON
from kqueue.jobs.fields import annotations_of
from kqueue.jobs.gang.naming import gang_of_workload, workload_key_of_gang, workload_of_gang
from kqueue.jobs.gang.record import object_uid
from kqueue.jobs.gang.registry import dialect_of, named_queue
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.store import Store, split_key

GANG_INDEX = "gang"
"""Index of Workloads by the key of their gang, in dialects with group objects."""


class GangWorkloads:
    """Workloads by gangs.  Of a gang with a group object the object's UID decides, so that nothing of a deleted object
    counts for a new one of its name.
    """

    def __init__(
        self,
        workloads: Store[wire.Workload],
        objects: GroupObjects,
        switches: JobFeatures,
        is_queue: Callable[[str], bool] = lambda _key: False,
        is_ending: Callable[[str], bool] = lambda _namespace: False,
    ) -> None:
        """Take the parts; `is_queue` returns whether a LocalQueue namespace/name exists, `is_ending` whether a
        namespace is being deleted.
        """
        self._is_queue, self._is_ending = is_queue, is_ending
        self.objects, self.workloads, self._switches = objects, workloads, switches
        workloads.add_index(GANG_INDEX, self.gang_of)

    def key_of(self, gang: str) -> str:
        """Return namespace/name of the Workload that counts the gang, or will; empty: its group object is missing."""
        if ":" not in gang:
            return gang  # of Kueue's groups, the most frequent ones
        ref = GangRef.of_key(gang)
        if not dialect_of(ref.framework).kinds:
            return workload_key_of_gang(gang, self._switches)
        obj = self.objects.get(ref)
        if obj is None:
            return ""
        return f"{ref.namespace}/{workload_of_gang(ref, self._switches, uid=object_uid(obj))}"

    def object_of(self, gang: str) -> JSON | None:
        """Return the group object; None: the gang has none."""
        return self.objects.get(GangRef.of_key(gang)) if ":" in gang else None

    def queue_of(self, gang: str) -> str:
        """Return the LocalQueue that the group object names; empty: it names none, or there is no object."""
        return named_queue(GangRef.of_key(gang).framework, self.object_of(gang), self._is_queue)

    def queues_alone(self, gang: str) -> bool:
        """Whether the group object lets its pods be queued one by one."""
        obj = self.object_of(gang)
        return obj is not None and dialect_of(GangRef.of_key(gang).framework).queues_alone(obj)

    def is_ending(self, gang: str) -> bool:
        """Whether the namespace of the gang is being deleted, so that no pod can be created in it."""
        return self._is_ending(GangRef.of_key(gang).namespace)

    def has_maker(self, gang: str) -> bool:
        """Whether the reconciler of the group object makes the Workload."""
        return ":" in gang and dialect_of(GangRef.of_key(gang).framework).makes_workloads

    def earlier(self, gang: str) -> list[wire.Workload]:
        """Return the Workloads of group objects that have the gang's name and are gone, oldest first."""
        if ":" not in gang:
            return []
        present = self.key_of(gang)
        found = self.workloads.by_index(GANG_INDEX, gang)
        return [workload for workload in found if model.workload_key(workload) != present]

    def left_over(self, gang: str, members: Sequence[ManagedPod]) -> list[ManagedPod]:
        """Return the members that an earlier group object of the name has started, as far as `earlier` does not tell:
        those that have ended and whose Workload is gone, and those beyond the quorum.
        """
        if ":" not in gang or not dialect_of(GangRef.of_key(gang).framework).kinds:
            return []
        present = self.key_of(gang).rpartition("/")[2]
        return [pod for pod in members if not pod.gated and self._is_left_over(pod, present)]

    def _is_left_over(self, pod: ManagedPod, present: str) -> bool:
        name = annotations_of(pod.obj).get(names.WORKLOAD_ANNOTATION, "")
        if not name or name == present:
            return False
        workload = self.workloads.get(f"{split_key(pod.key)[0]}/{name}")
        if workload is None:
            return pod.terminated and not pod.extra
        return pod.extra and workload.metadata.annotations.get(gang_names.EXTRA_OF_ANNOTATION, present) != present

    @staticmethod
    def gang_of(workload: wire.Workload) -> list[str]:
        """Return the key of the gang that the Workload names, if the gang's dialect has group objects; else nothing."""
        metadata = workload.metadata
        if gang_names.GANG_ANNOTATION not in metadata.annotations:
            return []
        key = gang_of_workload(metadata.namespace, metadata.name, metadata.annotations)
        framework = GangRef.of_key(key).framework
        is_owned = metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
        return [key] if is_owned and _has_object(framework) else []


def _has_object(framework: str) -> bool:
    try:
        return bool(dialect_of(framework).kinds)
    except KeyError:
        return False  # a dialect that this version does not have


def controller_uid(workload: wire.Workload) -> str:
    """Return the UID of the Workload's controller; empty: it has none."""
    return next((owner.uid for owner in workload.metadata.owner_references if owner.controller), "")


def started_by(workload: wire.Workload, members: Sequence[ManagedPod]) -> list[ManagedPod]:
    """Return the members that this Workload has started."""
    name = workload.metadata.name
    return [pod for pod in members if not pod.gated and annotations_of(pod.obj).get(names.WORKLOAD_ANNOTATION) == name]


def make_gang_workloads(manager: Manager) -> GangWorkloads:
    """Return the finder of a process."""
    objects = manager.shared(watch_group_objects)
    watches = manager.watches
    is_queue = watches.local_queues.store.__contains__

    def is_ending(namespace: str) -> bool:
        found = watches.namespaces.store.get(namespace)
        return found is not None and found.metadata.deletion_timestamp is not None

    return GangWorkloads(watches.workloads.store, objects, manager.switches, is_queue, is_ending)
