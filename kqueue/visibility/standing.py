"""Where a Workload stands in its life, as its own status says it.  Pure."""

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
from kqueue.visibility.asked import JSON


class State(StrEnum):
    """The one word for it."""

    FINISHED = "Finished"
    LEAVING = "Leaving"
    """Evicted, and its pods are still there."""
    RUNNING = "Running"
    """Admitted."""
    RESERVED = "Reserved"
    """It has quota, and waits for admission checks."""
    DEACTIVATED = "Deactivated"
    EVICTED = "Evicted"
    """It was evicted, and waits to come back."""
    PENDING = "Pending"


class Hindrance(NamedTuple):
    """One thing that keeps a Workload out of its queue: reason, sentence, and the command that ends it, where there is
    one.
    """

    kind: str
    message: str
    command: str = ""

    def shown(self) -> JSON:
        """As JSON."""
        return {name: text for name, text in self._asdict().items() if text}


def state_of(obj: wire.Workload) -> State:
    """Where it stands."""
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
"""States in which it has nothing."""


def told(obj: wire.Workload, now: datetime) -> JSON | None:
    """Why it waits, as its condition says, and since when it says so; None: it says nothing."""
    found = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if found is None or found.status == "True":
        return None
    message = cause_of(found.message)
    return {"reason": found.reason, "message": message, **_since(found, now)}


def evictions(obj: wire.Workload, now: datetime) -> JSON | None:
    """By whom it was evicted, by which rule, how often, and when it comes back; None: it never was."""
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
    """The condition's reason and time are of the reservation that ended the eviction; its message keeps the former
    one.
    """
    since = _since(evicted, now)
    reserved: JSON = {"reservedAgainSecondsAgo": since["secondsAgo"]} if since else {}
    return {"message": evicted.message.removeprefix(PREVIOUSLY), **reserved}


def _returns(obj: wire.Workload, now: datetime) -> str:
    """When it comes back, in words."""
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
    """How it ended; None: it has not."""
    found = model.condition(obj.status.conditions, names.CONDITION_FINISHED)
    if found is None or found.status != "True":
        return None
    shown: JSON = {"reason": found.reason, "message": found.message, **_since(found, now)}
    seconds = obj.status.accumulated_past_execution_time_seconds
    return {**shown, "ranSeconds": seconds} if seconds is not None else shown


def waits_for_checks(obj: wire.Workload) -> list[JSON]:
    """Admission checks that are not ready, and what they say."""
    waiting = [check for check in obj.status.admission_checks if check.state != names.CHECK_READY]
    return [{"name": check.name, "state": check.state, "message": check.message} for check in waiting]


def held_back(obj: wire.Workload, now: datetime) -> list[JSON]:
    """What its own object says keeps it from being tried, beside what its queues and surroundings say."""
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
        add("AdmissionChecks", checks.told(refusing))
    return found


def _since(found: Condition, now: datetime) -> JSON:
    at = found.last_transition_time
    if at is None:
        return {}
    return {"time": utc_text(at), "secondsAgo": max(0, int((now - at).total_seconds()))}
