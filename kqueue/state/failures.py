"""Read and count a workload's node failures in its status, and choose the nodes that the workload avoids.

A failure is a lost node of the workload, or a pod of the workload that failed on a node.  Failures of one incident
count once: if the pods of a gang fail one after the other, only the node of the first pod gets a failure, and a node
that is lost shortly after its pods failed gets no second failure.  The scheduler avoids a node on which the workload
failed repeatedly until a day has passed without another failure, but uses the node where the workload fits nowhere
else.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from kqueue.api.wire import kueue as wire

REPEATEDLY = 2
"""The number of failures from which a node is avoided."""
REMEMBERED = timedelta(days=1)
"""The time for which failures on a node count after the latest failure there."""
KEPT = 16
"""The largest number of nodes in the status, the latest ones; the maximum of the Workload's schema."""
_ONE_INCIDENT = timedelta(minutes=1)


def failures_on(obj: wire.Workload, host: str, now: datetime) -> int:
    """Return the number of the workload's failures on a host that still count."""
    return next((entry.count for entry in _remembered(obj, now) if entry.name == host), 0)


def avoided(obj: wire.Workload, now: datetime) -> frozenset[str]:
    """Return the hosts on which the workload failed repeatedly."""
    if not obj.status.node_failures:
        return frozenset()
    return frozenset(entry.name for entry in _remembered(obj, now) if entry.count >= REPEATEDLY)


def after_lost_node(obj: wire.Workload, host: str, now: datetime) -> tuple[wire.NodeFailures, ...] | None:
    """Return the failures to write after the workload has lost a node; None: this failure is already counted."""
    known = _remembered(obj, now)
    if any(entry.name == host and now - entry.last_failure_time < _ONE_INCIDENT for entry in known):
        return None
    return _with(known, host, now)


def after_failed_pod(
    obj: wire.Workload, host: str, created: datetime, now: datetime
) -> tuple[wire.NodeFailures, ...] | None:
    """Return the failures to write after a pod, created at `created`, has failed on a host.

    None: the pod existed at the latest failure, so its own failure belongs to that incident or is already counted.
    """
    known = _remembered(obj, now)
    if any(created <= entry.last_failure_time for entry in known):
        return None
    return _with(known, host, max(created, now))


def _remembered(obj: wire.Workload, now: datetime) -> list[wire.NodeFailures]:
    return [entry for entry in obj.status.node_failures if now - entry.last_failure_time < REMEMBERED]


def _with(known: list[wire.NodeFailures], host: str, at: datetime) -> tuple[wire.NodeFailures, ...]:
    """Return the known failures and one more on `host`, the latest last."""
    count = 1 + sum(entry.count for entry in known if entry.name == host)
    others = [entry for entry in known if entry.name != host]
    latest = sorted(others, key=lambda entry: (entry.last_failure_time, entry.name))[-(KEPT - 1) :]
    return (*latest, wire.NodeFailures(name=host, count=count, last_failure_time=at))
