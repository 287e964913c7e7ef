"""Owners of groups of pods, as StatefulSets and LeaderWorkerSets are, that other clusters run.

Such an owner has no field that names its controller.  Its pods on the manager keep their gates, and a copy of the owner
goes to the one cluster that admits its groups.  The controllers of the manager write the status of the original
themselves, so no status of a copy comes back.  Source: Kueue.
"""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.api import kind_names, names
from kqueue.api.wire import kueue as wire
from kqueue.jobs.composed import ComposedKind, names_of_workload
from kqueue.jobs.fields import JSON, whole
from kqueue.jobs.kind import Finished, GroupVersionKind, PodSetInfo, StopStep
from kqueue.jobs.patch import Patch
from kqueue.jobs.switches import JobFeatures


class SentOwner:
    """The facts that MultiKueue needs about one kind of such owners."""

    own_controller = ""

    def __init__(self, kind: ComposedKind) -> None:
        self.framework, self.gvk, self.resource, self._kind = kind.framework, kind.gvk, kind.resource, kind

    def workload_name(self, obj: JSON, switches: JobFeatures) -> str:
        """Return the name of the Workload of the first group of an owner, or of its original if it is a copy."""
        return names_of_workload(self._kind.gvk, self._kind.group_name(obj, 0), obj, switches)[0]

    def scaled(self, job: JSON, copy: JSON) -> Patch:
        """Return the patch by which a copy gets the number of replicas of its original; empty: it has it."""
        wanted = whole(job, "spec", "replicas")
        return {} if wanted == whole(copy, "spec", "replicas") else {"spec": {"replicas": wanted}}

    def managed_by(self, job: JSON) -> str:
        """Return nothing: no controller can be named."""
        return ""

    def holds_back(self, job: JSON) -> bool:
        """Return False: the gates of its pods prevent a start."""
        return False

    def is_suspended(self, job: JSON) -> bool:
        """Return False: the gates of its pods prevent a start."""
        return False

    def active(self, job: JSON) -> bool:
        """Return True: its status does not say which groups have pods."""
        return True

    def finished(self, job: JSON) -> Finished | None:
        """Return None: it runs until it is deleted."""
        return None

    def stop(self, job: JSON, infos: Sequence[PodSetInfo]) -> tuple[StopStep, ...]:
        """Return no steps: no admission changes it."""
        return ()


def owner_of_groups(workload: wire.Workload) -> str:
    """Return the key of the owner of several groups of pods by the annotations of the Workload of one of them, which
    its copies have, too; empty: the Workload is of no such group.
    """
    namespace, annotations = workload.metadata.namespace, workload.metadata.annotations
    if kind_names.COMPONENT_WORKLOAD_INDEX_ANNOTATION not in annotations:
        return ""
    kind, name = annotations.get(names.JOB_OWNER_GVK_ANNOTATION), annotations.get(names.JOB_OWNER_NAME_ANNOTATION)
    return _key(kind, namespace, name) if kind and name else ""


def index_of_owner(workload: wire.Workload) -> list[str]:
    """Return the index values of a Workload: that key, or none."""
    owner = owner_of_groups(workload)
    return [owner] if owner else []


def owner_key(gvk: GroupVersionKind, namespace: str, name: str) -> str:
    """Return the same key by kind and name of the owner."""
    return _key(f"{gvk.api_version}, Kind={gvk.kind}", namespace, name)


def _key(kind: str, namespace: str, name: str) -> str:
    return f"{namespace}/{name} of {kind}"
