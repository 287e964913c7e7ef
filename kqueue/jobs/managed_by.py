"""The field of a job that names the controller which runs it, by the row or the declaration of its kind."""

from __future__ import annotations

from kqueue.jobs.declared import Declared
from kqueue.jobs.kind import ReviewedKind
from kqueue.kinds import FRAMEWORKS


def managed_by_path(kind: ReviewedKind) -> tuple[str, ...]:
    """Return the steps to the field; empty: objects of the kind cannot be run by another cluster."""
    if isinstance(kind, Declared):
        return kind.managed_by_path
    row = FRAMEWORKS.get(kind.framework)
    return tuple(row.managed_by.split(".")) if row is not None and row.managed_by else ()
