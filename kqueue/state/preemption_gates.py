"""The states of a workload's preemption gates, whoever sets them.  A gate without a state is closed."""

from __future__ import annotations

from datetime import datetime

import msgspec

from kqueue.api.wire import kueue as wire
from kqueue.state.conditions import Patch, Stamp

_CLOSED, _OPEN = "Closed", "Open"


def opened_at(obj: wire.Workload, gate: str) -> datetime | None:
    """Return the time at which a gate of a workload was opened; None: it is closed, or absent."""
    times = [each.last_transition_time for each in obj.status.preemption_gates if _is_open(each, gate)]
    return times[0] if times else None


def is_closed(obj: wire.Workload, gate: str) -> bool:
    """Whether the workload has the gate, and it is not open."""
    return any(each.name == gate for each in obj.spec.preemption_gates) and opened_at(obj, gate) is None


def open_gate(obj: wire.Workload, gate: str, *, stamp: Stamp) -> Patch | None:
    """Return a patch that opens a gate; None when it is open, or absent.  Other gates keep their state."""
    if not is_closed(obj, gate):
        return None
    known = {each.name: each for each in obj.status.preemption_gates}
    closed: Patch = {"position": _CLOSED, "lastTransitionTime": stamp.text}
    named = [each.name for each in obj.spec.preemption_gates if each.name != gate]
    gates = [msgspec.to_builtins(known[n]) if n in known else {"name": n, **closed} for n in named]
    gates.append({"name": gate, "position": _OPEN, "lastTransitionTime": stamp.text})
    return {"status": {"preemptionGates": gates}}


def _is_open(state: wire.PreemptionGateState, gate: str) -> bool:
    return state.name == gate and state.position == _OPEN
