"""Another queue on the group object of a gang, which its waiting members follow.

The label of the oldest member counts before the queue of the group object, so that a difference alone is no change:
the gang's Workload keeps the queue that the group object had.  While the gang has no Workload, a member to which kqueue
gave its queue follows the object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs import rules
from kqueue.jobs.fields import annotations_of
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod_view import ManagedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChange:
    """A change of the queue of a group object that its gang has not followed yet."""

    wanted: str
    to_label: tuple[ManagedPod, ...] = ()
    """Members that get the queue; empty: all have it, or the change is ignored."""
    ignored: bool = False
    """Whether a member was released, so that the gang stays in its queue."""

    def label(self, pod: ManagedPod) -> Patch:
        """Return the patch of a member."""
        metadata: Patch = {"labels": {names.QUEUE_NAME_LABEL: self.wanted}}
        if gang_names.GIVEN_QUEUE_ANNOTATION in annotations_of(pod.obj):
            metadata["annotations"] = {gang_names.GIVEN_QUEUE_ANNOTATION: self.wanted}
        return {"metadata": metadata}


def queue_change(wanted: str, members: Sequence[ManagedPod], workload: Mapping[str, Any]) -> QueueChange | None:
    """Return the change that the gang is to follow; None: there is none, or the object names no queue any more.

    `wanted`: the queue that the group object names.
    """
    known = annotations_of(workload).get(gang_names.OBJECT_QUEUE_ANNOTATION)
    if not wanted or known is None or wanted == known:
        return None
    if any(not pod.gated and not pod.terminated for pod in members):
        return QueueChange(wanted=wanted, ignored=True)
    waiting = (pod for pod in members if pod.gated and pod.runnable)
    return QueueChange(wanted=wanted, to_label=tuple(p for p in waiting if rules.queue_name(p.obj) != wanted))


def gathering_change(wanted: str, members: Sequence[ManagedPod]) -> QueueChange | None:
    """Return the change that members of a gang without a Workload are to follow; None: there is none."""
    to_label = tuple(pod for pod in members if pod.gated and pod.runnable and _has_another(pod, wanted))
    return QueueChange(wanted=wanted, to_label=to_label) if wanted and to_label else None


def _has_another(pod: ManagedPod, wanted: str) -> bool:
    queue = rules.queue_name(pod.obj)
    return queue != wanted and queue == annotations_of(pod.obj).get(gang_names.GIVEN_QUEUE_ANNOTATION)
