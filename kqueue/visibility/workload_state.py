"""The state of a Workload, derived from its own spec and status.  Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import utc_text
from kqueue.state import checks, requeueing
from kqueue.state.status import PREVIOUSLY
from kqueue.state.waiting import cause_of
from kqueue.visibility.question import JSON


class State(StrEnum):
    """The state of a Workload in one word."""

    FINISHED = "Finished"
    LEAVING = "Leaving"
    """The Workload was evicted, and its pods have not ended yet."""
    RUNNING = "Running"
    """The Workload is admitted."""
    RESERVED = "Reserved"
    """The Workload has quota, and its admission checks are not ready."""
    DEACTIVATED = "Deactivated"
    EVICTED = "Evicted"
    """The Workload was evicted, and waits for quota again."""
    PENDING = "Pending"


class Hindrance(NamedTuple):
    """A reason why a Workload is not in its queue: reason, sentence, and the command that removes it (empty: none)."""

    kind: str
    message: str
    command: str = ""

    def shown(self) -> JSON:
        """Return the hindrance as JSON."""
        return {name: text for name, text in self._asdict().items() if text}


def state_of(obj: wire.Workload) -> State:
    """Return the state of a Workload."""
    if model.condition_true(obj, names.CONDITION_FINISHED):
        return State.FINISHED
    evicted = model.condition_true(obj, names.CONDITION_EVICTED)
    if obj.status.admission is not None:
        if evicted:
            return State.LEAVING
        return State.RUNNING if model.condition_true(obj, names.CONDITION_ADMITTED) else State.RESERVED
    if not obj.spec.active:
        return State.DEACTIVATED
    return State.EVICTED if evicted else State.PENDING


WAITS = frozenset({State.EVICTED, State.PENDING, State.DEACTIVATED})
"""The states without quota."""


def told(obj: wire.Workload, now: datetime) -> JSON | None:
    """Return reason, message and time of the condition QuotaReserved=False; None if the Workload has none."""
    found = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if found is None or found.status == "True":
        return None
    message = cause_of(found.message)
    return {"reason": found.reason, "message": message, **_since(found, now)}


def evictions(obj: wire.Workload, now: datetime) -> JSON | None:
    """Return reason, rule and number of evictions, and the time of the return; None if it was never evicted."""
    evicted = model.condition(obj.status.conditions, names.CONDITION_EVICTED)
    stats = obj.status.scheduling_stats
    counts = [
        {"reason": e.reason, "count": e.count, **({"cause": e.underlying_cause} if e.underlying_cause else {})}
        for e in (stats.evictions if stats is not None else ())
    ]
    if evicted is None and not counts:
        return None
    shown: JSON = {"counts": counts} if counts else {}
    if evicted is not None:
        shown["current"] = evicted.status == "True"
        shown |= _this_eviction(obj, evicted, now) if shown["current"] else _former_eviction(evicted, now)
    return shown


def _this_eviction(obj: wire.Workload, evicted: Condition, now: datetime) -> JSON:
    shown: JSON = {"reason": evicted.reason, "message": evicted.message, **_since(evicted, now)}
    preempted = model.condition(obj.status.conditions, names.CONDITION_PREEMPTED)
    if preempted is not None and preempted.status == "True":
        shown["rule"] = preempted.reason
    return {**shown, "returns": _returns(obj, now)}


def _former_eviction(evicted: Condition, now: datetime) -> JSON:
    """Describe an eviction that has ended. The condition then has reason and time of the reservation that ended the
    eviction, and keeps the eviction's message.
    """
    since = _since(evicted, now)
    reserved: JSON = {"reservedAgainSecondsAgo": since["secondsAgo"]} if since else {}
    return {"message": evicted.message.removeprefix(PREVIOUSLY), **reserved}


def _returns(obj: wire.Workload, now: datetime) -> str:
    """Say when the workload is queued again."""
    until = requeueing.waits_until(obj, now)
    requeued = model.condition(obj.status.conditions, names.CONDITION_REQUEUED)
    if not obj.spec.active:
        return "it does not come back until spec.active is set to true"
    if obj.status.admission is not None:
        after = f", and not before {utc_text(until)}" if until is not None else ""
        return f"it comes back when its pods have ended{after}"
    if until is not None:
        return f"it comes back at {utc_text(until)}"
    if requeued is not None and requeued.status == "False":
        return f"it comes back when this is over: {requeued.reason}"
    return "it is back in its queue"


def finished(obj: wire.Workload, now: datetime) -> JSON | None:
    """Return reason, message and time of the end; None while the workload is not finished."""
    found = model.condition(obj.status.conditions, names.CONDITION_FINISHED)
    if found is None or found.status != "True":
        return None
    shown: JSON = {"reason": found.reason, "message": found.message, **_since(found, now)}
    seconds = obj.status.accumulated_past_execution_time_seconds
    return {**shown, "ranSeconds": seconds} if seconds is not None else shown


def waits_for_checks(obj: wire.Workload) -> list[JSON]:
    """Return name, state and message of each admission check that is not ready."""
    waiting = [check for check in obj.status.admission_checks if check.state != names.CHECK_READY]
    return [{"name": check.name, "state": check.state, "message": check.message} for check in waiting]


def variant_part(flavor: str, variant: wire.Workload | None) -> JSON:
    """Return the variant of a parent for a flavor: its name, its state, and why it waits; None: it does not exist."""
    if variant is None:
        return {"flavor": flavor, "state": "Missing"}
    shown: JSON = {"flavor": flavor, "name": variant.metadata.name, "state": str(state_of(variant))}
    found = model.condition(variant.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if found is not None and found.status != "True" and variant.spec.active:
        shown |= {"reason": found.reason, "message": cause_of(found.message)}
    return shown


def held_back(obj: wire.Workload, now: datetime) -> list[JSON]:
    """Return the reasons in the Workload's own object for which it is not tried."""
    found: list[JSON] = []

    def add(kind: str, message: str) -> None:
        found.append({"kind": kind, "message": message})

    if obj.metadata.deletion_timestamp is not None:
        add("Deleted", f"it is being deleted since {utc_text(obj.metadata.deletion_timestamp)}")
    until = requeueing.waits_until(obj, now)
    if until is not None:
        times = requeueing.times_requeued(obj)
        count = f"; it was sent back {times} time{'s' if times != 1 else ''} so far" if times else ""
        add("BackOff", f"it is not tried before {utc_text(until)}{count}")
    requeued = model.condition(obj.status.conditions, names.CONDITION_REQUEUED)
    if requeued is not None and requeued.status == "False" and until is None and obj.spec.active:
        add("NotRequeued", f"it was not queued again: {requeued.reason}: {requeued.message}")
    reserved = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if reserved is not None and reserved.status != "True" and reserved.reason == names.REASON_ON_HOLD:
        add("OnHold", reserved.message)
    replacement = model.condition(obj.status.conditions, names.CONDITION_WAITING_FOR_REPLACEMENT_PODS)
    if replacement is not None and replacement.status == "True":
        add("WaitingForReplacementPods", replacement.message or "its group lacks pods; create them")
    refusing = checks.refusing(obj)
    if refusing and not obj.spec.active:
        add("AdmissionChecks", checks.messages_of(refusing))
    return found


def _since(found: Condition, now: datetime) -> JSON:
    at = found.last_transition_time
    if at is None:
        return {}
    return {"time": utc_text(at), "secondsAgo": max(0, int((now - at).total_seconds()))}
