"""Another queue on the group object of a gang, which its waiting members follow.

The label of the oldest member counts before that of the group object, so that a difference alone is no change: the
gang's Workload keeps the queue that the group object had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs import rules
from kqueue.jobs.fields import JSON, annotations_of
from kqueue.jobs.gang.group_object import queue_of
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

    @property
    def label(self) -> Patch:
        """The patch of a member."""
        return {"metadata": {"labels": {names.QUEUE_NAME_LABEL: self.wanted}}}


def queue_change(obj: JSON, members: Sequence[ManagedPod], workload: Mapping[str, Any]) -> QueueChange | None:
    """Return the change that the gang is to follow; None: there is none, or the label was taken off."""
    wanted, known = queue_of(obj), annotations_of(workload).get(gang_names.OBJECT_QUEUE_ANNOTATION)
    if not wanted or known is None or wanted == known:
        return None
    if any(not pod.gated and not pod.terminated for pod in members):
        return QueueChange(wanted=wanted, ignored=True)
    waiting = (pod for pod in members if pod.gated and pod.runnable)
    return QueueChange(wanted=wanted, to_label=tuple(p for p in waiting if rules.queue_name(p.obj) != wanted))


def object_queue_annotation(obj: JSON | None) -> dict[str, str]:
    """Return the annotation by which a Workload keeps the queue of the group object, also an empty one."""
    return {gang_names.OBJECT_QUEUE_ANNOTATION: queue_of(obj)} if obj is not None else {}
