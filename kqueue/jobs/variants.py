"""Tells the Workloads of a job from their variants, which carry the same labels (concurrent admission)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kqueue.api import names
from kqueue.jobs.fields import objects, text


def without_variants(workloads: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the Workloads that no other Workload controls: only by these a job starts."""
    return [workload for workload in workloads if not _is_controlled_by_workload(workload)]


def _is_controlled_by_workload(workload: Mapping[str, Any]) -> bool:
    controllers = (o for o in objects(workload, "metadata", "ownerReferences") if o.get("controller") is True)
    return any(
        text(o, "kind") == names.WORKLOAD_KIND and text(o, "apiVersion").partition("/")[0] == names.GROUP
        for o in controllers
    )
