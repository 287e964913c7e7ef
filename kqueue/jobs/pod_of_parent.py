"""core/v1 Pod where plain pods are not queued: only those are looked at whose parent's template asks for the gate."""

from __future__ import annotations

from kqueue.errors import FieldError
from kqueue.jobs import pod_view, rules
from kqueue.jobs.fields import JSON
from kqueue.jobs.kind import Surroundings
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod import FRAMEWORK, PlainPod


class PodOfParent(PlainPod):
    """The integration `pod` is on for the sake of Deployments and StatefulSets alone.

    A pod that somebody makes is not gated, for nobody would ever start it.
    """

    def defaults(self, job: JSON, around: Surroundings) -> Patch:
        """Gates and role of a pod whose parent is queued."""
        return super().defaults(job, around) if _asks(job) else {}

    def problems(self, new: JSON, old: JSON | None, around: Surroundings) -> list[FieldError]:
        """Those of pods whose parent is queued, or was."""
        if not _asks(new) and (old is None or not _asks(old)):
            return []
        return super().problems(new, old, around)

    def warnings(self, new: JSON, around: Surroundings) -> list[str]:
        """A queue named on a pod that nobody queues."""
        if _asks(new):
            return super().warnings(new, around)
        if not rules.queue_name(new) or around.managed_ancestor:
            return []
        return [f"the pod starts at once: integration {FRAMEWORK} is off, so the queue has no effect on it"]


def _asks(pod: JSON) -> bool:
    return pod_view.suspending_parent(pod) is not None
