"""LocalQueue: usage by flavor in the status."""

from __future__ import annotations

from webhooks.conversion.fields import JSON, changed, renamed, without


def to_v1beta1(queue: JSON) -> JSON:
    """Return a LocalQueue of v1beta2 in v1beta1."""
    return changed(queue, "status", lambda status: renamed(status, "flavorsUsage", "flavorUsage"))


def to_v1beta2(queue: JSON) -> JSON:
    """Return a LocalQueue of v1beta1 in v1beta2.  Its list of flavors is derived from other objects, and goes."""
    return changed(queue, "status", lambda status: renamed(without(status, "flavors"), "flavorUsage", "flavorsUsage"))
