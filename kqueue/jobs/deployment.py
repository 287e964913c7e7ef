"""The adapter of apps/v1 Deployment: each pod has its own Workload, so replicas are admitted one by one."""

from __future__ import annotations

from kqueue.api import names
from kqueue.errors import FieldError
from kqueue.jobs import serving
from kqueue.jobs.fields import JSON, mapping
from kqueue.jobs.kind import GroupVersionKind, JobContext
from kqueue.jobs.patch import Patch, merge_patch

FRAMEWORK = "deployment"
_WITHOUT_EFFECT = (
    *serving.WITHOUT_EFFECT,
    names.ADMISSION_GATED_BY_ANNOTATION,
    names.CARD_TYPE_ANNOTATION,
    names.CARD_TYPE_PREFERRED_ANNOTATION,
    names.PRIVATE_GROUP_LABEL,
)
"""Annotations without effect on the Deployment itself; they take effect on its template."""


class Deployment:
    """The webhooks' adapter of Deployments; it has no reconciler, because pods are started one by one."""

    framework = FRAMEWORK
    gvk = GroupVersionKind("apps", "v1", "Deployment")
    resource = "deployments"
    defaults_on_update = True
    held_by = ""

    def holds_back(self, job: JSON) -> bool:
        """Return False: the gates of its pods prevent a start, no field of the Deployment does."""
        return False

    def defaults(self, job: JSON, around: JobContext) -> Patch:
        """Return the patch that marks the template's pods to be gated, with queue and priority class of the Deployment.

        No later patch removes these marks.
        """
        new = serving.labelled(job, around)
        if not serving.is_managed(new, around):
            return {}
        annotations = {names.POD_SUSPENDING_PARENT_ANNOTATION: FRAMEWORK}
        return merge_patch(job, serving.with_template(new, labels=serving.queue_labels(new), annotations=annotations))

    def problems(self, new: JSON, old: JSON | None, around: JobContext) -> list[FieldError]:
        """Check the shared rules; queue and priority class against ready pods; the topology of one pod."""
        if mapping(new, "metadata").get("deletionTimestamp"):
            return []
        how, templates = "its pods are queued one by one", serving.only_template(new)
        found = list(serving.problems(new, old, around, templates=templates, kind="Deployment", queued=how))
        if serving.is_managed(new, around):
            found += serving.topology_problems(new, old, around, count=1)
        return found

    def warnings(self, new: JSON, around: JobContext) -> list[str]:
        """Return a warning for each label and annotation without effect."""
        templates = serving.only_template(new)
        return serving.warnings(new, around, templates=templates, kind="Deployment", without_effect=_WITHOUT_EFFECT)
