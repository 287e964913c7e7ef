"""The field of a job that names the controller which runs it, by the row or the declaration of its kind."""

from __future__ import annotations

from kqueue.jobs.declared import Declared
from kqueue.jobs.kind import ReviewedKind
from kqueue.jobs.pod import PlainPod
from kqueue.kinds import FRAMEWORKS


def managed_by_path(kind: ReviewedKind) -> tuple[str, ...]:
    """Return the steps to the field; empty: objects of the kind cannot be run by another cluster."""
    if isinstance(kind, Declared):
        return kind.managed_by_path
    row = FRAMEWORKS.get(kind.framework)
    return tuple(row.managed_by.split(".")) if row is not None and row.managed_by else ()


def can_be_sent(kind: ReviewedKind) -> bool:
    """Whether objects of the kind can be run by another cluster: by the field, or because their gate stays, as pods."""
    return bool(managed_by_path(kind)) or kind.framework == PlainPod.framework
