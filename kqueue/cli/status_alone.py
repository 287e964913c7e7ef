"""An explanation from the Workload's own status, if no controller answers.  It has less, and a note of that."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.visibility import workload_state
from kqueue.visibility.explanation import KIND, summary

JSON = dict[str, Any]


def from_status(found: JSON, *, why: str, now: datetime | None = None) -> JSON:
    """Return an explanation from the object alone; `why` says why the controller was not asked."""
    now = now or datetime.now(UTC)
    obj = msgspec.convert(found, wire.Workload)
    state = workload_state.state_of(obj)
    note = f"the controller did not answer ({why}); this is only what the Workload's own status says"
    shown: JSON = {
        "apiVersion": "visibility.kqueue.dev/v1alpha1",
        "kind": KIND,
        "metadata": {"name": obj.metadata.name, "namespace": obj.metadata.namespace, "uid": obj.metadata.uid},
        "state": str(state),
        "summary": "",
        "asOf": {"time": utc_text(now), "source": "status", "notes": [note]},
        "localQueue": obj.spec.queue_name or "",
    }
    owners = [f"{owner.kind.lower()}/{owner.name}" for owner in obj.metadata.owner_references if owner.controller]
    if owners:
        shown["owner"] = owners[0]
    told = workload_state.told(obj, now)
    if state in workload_state.WAITS:
        shown["pending"] = {"clusterQueue": "", "heldBackBy": workload_state.held_back(obj, now)}
        if told is not None:
            shown["told"] = told
    admission = obj.status.admission
    if admission is not None:
        pod_sets = [
            {
                "name": held.name,
                "count": held.count or 0,
                "flavors": dict(held.flavors),
                "usage": {resource: str(amount) for resource, amount in held.resource_usage.items()},
            }
            for held in admission.pod_set_assignments
        ]
        shown["running"] = {"clusterQueue": admission.cluster_queue, "podSets": pod_sets}
    waiting = workload_state.waits_for_checks(obj)
    if waiting and state is workload_state.State.RESERVED:
        shown["waitsForChecks"] = waiting
    for name, part in (
        ("evictions", workload_state.evictions(obj, now)),
        ("finished", workload_state.finished(obj, now)),
    ):
        if part is not None:
            shown[name] = part
    shown["summary"] = summary(state, shown)
    return shown
