"""The default of the field that names the controller of a job, for jobs whose queue sends them to other clusters."""

from __future__ import annotations

from kqueue.api import names
from kqueue.config.object_path import put
from kqueue.jobs import rules
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.declared import Declared
from kqueue.jobs.fields import JSON, mapping
from kqueue.jobs.kind import JobContext, JobKind, ReviewedKind
from kqueue.jobs.managed_by import managed_by_path
from kqueue.jobs.patch import Patch, apply_merge_patch, merge_patch


def queue_to_ask(kind: ReviewedKind, job: JSON, patch: Patch, around: JobContext) -> str:
    """Return the queue that decides whether a new job is dispatched; empty: the job is not, whatever its queue.

    `patch` are the other defaults, which may name the queue.  A job that names a controller of the user's keeps it.
    """
    adapter = _adapter(kind)
    if adapter is None or not managed_by_path(adapter) or mapping(job, "metadata").get("deletionTimestamp"):
        return ""
    new = apply_merge_patch(job, patch)
    if adapter.managed_by(new) != adapter.own_controller or not rules.managed(new, around):
        return ""
    return rules.queue_name(new)


def _adapter(kind: ReviewedKind) -> JobKind | None:
    return kind if isinstance(kind, Declared) else BY_FRAMEWORK.get(kind.framework)


def dispatched(kind: ReviewedKind, job: JSON, patch: Patch) -> Patch:
    """Return the defaults with MultiKueue as the job's controller."""
    path = managed_by_path(kind)
    return merge_patch(job, put(apply_merge_patch(job, patch), path, names.MULTIKUEUE_CONTROLLER))
