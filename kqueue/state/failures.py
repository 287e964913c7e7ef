"""On which nodes a workload failed, as its status remembers it, and which of them it is to avoid.

A failure is a node that was lost under the workload, or a pod of it that failed on a node.  What belongs together
counts once: a gang whose pods fall one after the other blames the node of the first, and a node that is lost shortly
after pods failed on it is not blamed twice.  A node on which the workload failed repeatedly is avoided until a day has
passed without another failure; it is used all the same where the workload fits nowhere else.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue.api.wire import kueue as wire

REPEATEDLY = 2
"""From so many failures on a node is avoided."""
REMEMBERED = timedelta(days=1)
"""For so long after the last one failures on a node count."""
KEPT = 16
"""Nodes that are remembered, the latest; what the Workload's schema allows."""
_ONE_INCIDENT = timedelta(minutes=1)


def failures_on(obj: wire.Workload, host: str, now: datetime) -> int:
    """How often the workload failed on a host lately."""
    return next((entry.count for entry in _remembered(obj, now) if entry.name == host), 0)


def avoided(obj: wire.Workload, now: datetime) -> frozenset[str]:
    """Hosts on which the workload failed repeatedly."""
    if not obj.status.node_failures:
        return frozenset()
    return frozenset(entry.name for entry in _remembered(obj, now) if entry.count >= REPEATEDLY)


def after_lost_node(obj: wire.Workload, host: str, now: datetime) -> tuple[wire.NodeFailures, ...] | None:
    """What is to be remembered when the workload has just lost a node; None when that is known."""
    known = _remembered(obj, now)
    if any(entry.name == host and now - entry.last_failure_time < _ONE_INCIDENT for entry in known):
        return None
    return _with(known, host, now)


def after_failed_pod(
    obj: wire.Workload, host: str, created: datetime, now: datetime
) -> tuple[wire.NodeFailures, ...] | None:
    """What is to be remembered when a pod, created then, has failed on a host.

    None when the pod was there at the latest failure already: it fell with that one, or was itself counted.
    """
    known = _remembered(obj, now)
    if any(created <= entry.last_failure_time for entry in known):
        return None
    return _with(known, host, max(created, now))


def _remembered(obj: wire.Workload, now: datetime) -> list[wire.NodeFailures]:
    return [entry for entry in obj.status.node_failures if now - entry.last_failure_time < REMEMBERED]


def _with(known: list[wire.NodeFailures], host: str, at: datetime) -> tuple[wire.NodeFailures, ...]:
    """These and one more, the latest last."""
    count = 1 + sum(entry.count for entry in known if entry.name == host)
    others = [entry for entry in known if entry.name != host]
    latest = sorted(others, key=lambda entry: (entry.last_failure_time, entry.name))[-(KEPT - 1) :]
    return (*latest, wire.NodeFailures(name=host, count=count, last_failure_time=at))
