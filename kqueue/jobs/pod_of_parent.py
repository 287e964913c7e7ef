"""The webhooks' adapter of core/v1 Pod for configurations in which some pods have no reconciler that would
start them.
"""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import pod_view, rules
from kqueue.jobs.fields import JSON
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.registry import membership
from kqueue.jobs.kind import JobContext
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch
from kqueue.jobs.pod import FRAMEWORK, PlainPod

_ONE_BY_ONE = "deployment"
"""The parent whose pods need only the reconciler of pods."""


class ReviewedPod(PlainPod):
    """The webhooks' adapter that gates only pods that a reconciler will start.

    Without `pod` among the frameworks plain pods are left alone: the integration is on for the sake of Deployments,
    StatefulSets or gangs of other dialects only.  So are pods whose template requests the gate for a kind that is off:
    no controller would set their group.
    """

    def __init__(self, frameworks: Iterable[str]) -> None:
        """Take the enabled frameworks that have a kind."""
        self._frameworks = frozenset(frameworks)

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return gates and role of a pod that a reconciler will start.

        A parent label that the pod's owners do not confirm is removed, so that the pod counts as a pod without a
        parent.
        """
        if not around.false_parent:
            return super().defaults(job, around) if self._is_started(job, around) else {}
        told = {"metadata": {"annotations": {names.POD_SUSPENDING_PARENT_ANNOTATION: None}}}
        plain = apply_merge_patch(job, told)
        patch = super().defaults(plain, around) if self._is_started(plain, around) else {}
        return merge_patch(job, apply_merge_patch(plain, patch))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Return violations of the rules for pods that are or were gated."""
        if not self._is_started(new, around) and (old is None or not self._is_started(old, around)):
            return []
        return super().problems(new, old, around)

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Warn about a pod that could be queued and is not."""
        if self._is_started(new, around):
            return super().warnings(new, around)
        parent = pod_view.suspending_parent(new)
        if parent is None and (not rules.queue_name(new) or around.managed_ancestor):
            return []
        return [f"the pod starts at once and is not queued: integration {parent or FRAMEWORK} is off"]

    def _is_started(self, pod: JSON, around: JobContext) -> bool:
        parent = pod_view.suspending_parent(pod)
        if parent is not None:
            return parent in (*self._frameworks, _ONE_BY_ONE)
        if FRAMEWORK in self._frameworks:
            return True
        gang = membership(pod, around.switches)
        return gang is not None and gang.framework != KUEUE_GROUPS
