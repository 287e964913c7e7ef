"""A plan as an object of the API, with its hash; and the sentences about a plan that was not found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import FieldInfo, fields, replace

from kqueue.api import names
from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.clock import utc_text
from kqueue.core.assignment import Domain, TopologyAssignment, encode
from kqueue.core.joint.defrag import DefragPlan, Move, NoPlan, NoPlanReason
from kqueue.core.joint.moving import common_path
from kqueue.core.topology.result import Path
from kqueue.core.workload import PodSetAssignment
from kqueue.state.defrag.planning import AskedGoal, DefragAnswer

JSON = dict[str, Any]
VALID_FOR = timedelta(minutes=10)
"""The time in which a plan can be approved."""


def plan_object(
    answer: DefragAnswer, *, reason: str = "Computed", message: str = "kqueue defrag plan computed it"
) -> JSON:
    """Return the DefragmentationPlan of an answer that has a plan, with its status.

    `reason` and `message` say who has made it, in the condition `Proposed`.
    """
    plan, goal = answer.found, answer.goal
    assert isinstance(plan, DefragPlan)
    assert goal is not None
    status: JSON = {
        "phase": "Proposed",
        "validUntil": utc_text(answer.at + VALID_FOR),
        "flavor": goal.flavor,
        "domain": list(plan.domain),
        "moves": [_move(move) for move in plan.moves],
        "cost": {"podSeconds": plan.cost},
        "gain": {
            "slotsBefore": plan.before.slots,
            "slotsAfter": plan.after.slots,
            "fragmentationBefore": plan.before.thousandths,
            "fragmentationAfter": plan.after.thousandths,
            **({"starts": answer.asked.workload} if answer.asked.workload else {}),
        },
    }
    spec: JSON = {
        "goal": _goal(answer.asked),
        "budget": {"maxMoves": answer.settings.moves, "maxPodMinutes": answer.settings.pod_seconds // 60},
        "approved": "",
    }
    status["hash"] = plan_hash(spec, status)
    status["conditions"] = [change("Proposed", reason, message, utc_text(answer.at))]
    return {
        "apiVersion": names.KQUEUE_API_VERSION,
        "kind": names.DEFRAGMENTATION_PLAN_KIND,
        "metadata": {"name": f"{goal.flavor[:200]}-{status['hash'][7:15]}"},
        "spec": spec,
        "status": status,
    }


def plan_hash(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    """Return the hash of all that a person approves: goal, limits, moves, cost, gain and validity.

    The states of the moves are not among that: they change when the plan is carried out.
    """
    said = {key: value for key, value in status.items() if value is not None}
    text = {"metadata": {}, "spec": spec, "status": said}
    return hash_of(msgspec.convert(text, DefragmentationPlan, strict=False))


def hash_of(plan: DefragmentationPlan) -> str:
    """Return the hash of a plan, see `plan_hash`; the API server's form and the form that was sent have one hash."""
    status = plan.status
    planned = [replace(move, state="Planned", since=None, begun=None, message="") for move in status.moves]
    kept = replace(status, phase=None, hash="", conditions=(), moves=tuple(planned))
    said = _said({"goal": plan.spec.goal, "budget": plan.spec.budget, "plan": kept})
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _said(found: Any) -> Any:
    """Return a value as JSON without the fields that equal their defaults.

    The encoder leaves out a default only where it is the same object in memory, which a text from an answer is not.
    """
    if isinstance(found, msgspec.Struct):
        values = [(field, getattr(found, field.name)) for field in fields(found)]
        return {field.encode_name: _said(value) for field, value in values if not _is_default(field, value)}
    if isinstance(found, Mapping):
        return {key: _said(value) for key, value in found.items()}
    return [_said(value) for value in found] if isinstance(found, tuple) else msgspec.to_builtins(found)


def _is_default(field: FieldInfo, value: Any) -> bool:
    return bool(value == field.default or (field.default_factory is not msgspec.NODEFAULT and not value))


def change(phase: str, reason: str, message: str, at: str) -> JSON:
    """Return the condition about a change of the phase."""
    return {"type": phase, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}


def _goal(asked: AskedGoal) -> JSON:
    if asked.workload:
        namespace, _, name = asked.workload.partition("/")
        return {"workload": {"namespace": namespace, "name": name}}
    return {"flavor": asked.flavor, "level": asked.level, "nodes": asked.nodes}


def _move(move: Move) -> JSON:
    gang = move.gang
    age = {"checkpointAgeSeconds": gang.checkpoint_age} if gang.checkpoint_age is not None else {}
    return {
        "workload": gang.key,
        "uid": gang.uid,
        "assignments": [_assignment(pod_set, move) for pod_set in gang.assigned],
        "pods": gang.pods,
        "from": list(common_path(gang.places, gang.places)),
        "to": list(common_path(move.target.places, move.target.places)),
        "cost": gang.cost,
        **age,
        "state": "Planned",
    }


def _assignment(pod_set: PodSetAssignment, move: Move) -> JSON:
    """Return the flavors and domains that a pod set is to have, in the form of an admission."""
    written: JSON = {"name": pod_set.name, "flavors": dict(pod_set.flavors), "count": pod_set.count}
    places = move.target.places.get(pod_set.name)
    if pod_set.topology is not None and places:
        levels = pod_set.topology.levels
        domains = tuple([Domain(tuple(path[-len(levels) :]), count) for path, count in places])
        written["topologyAssignment"] = encode(TopologyAssignment(levels, domains))
    return written


def why_none(answer: DefragAnswer) -> JSON:
    """Return why there is no plan, with a sentence in `message`."""
    if not isinstance(answer.found, NoPlan):
        return {"plan": None, "reason": "NotPossible", "message": f"no plan: {answer.problem}"}
    none = answer.found
    told: JSON = {
        "plan": None,
        "reason": str(none.reason),
        "message": _sentence(none, answer),
        "slots": none.before.slots,
        "fragmentation": none.before.thousandths,
    }
    if none.domain:
        told |= {"domain": list(none.domain), "missing": none.missing}
        told["blockedBy"] = [
            {"workload": one.key, "pods": one.pods, "reasons": list(one.reasons)} for one in none.blockers
        ]
    if none.cheapest is not None:
        told["cheapestPodSeconds"] = none.cheapest
    return told


def _sentence(none: NoPlan, answer: DefragAnswer) -> str:
    where, limits = _named(none.domain), answer.settings
    match none.reason:
        case NoPlanReason.FITS:
            return "no plan: the gang has room without any move"
        case NoPlanReason.BUDGET:
            cost = pod_minutes(none.cheapest or 0)
            return (
                f"no plan within its limits: moves that cost {cost} would help; the limits are {limits.moves} moves, "
                f"{limits.pods} pods and {pod_minutes(limits.pod_seconds)}"
            )
        case NoPlanReason.GAIN:
            return (
                f"no plan: moves that cost {pod_minutes(none.cheapest or 0)} would help, and the wait of the gang is "
                f"not worth {limits.least_gain / 1000:g} times as much yet"
            )
        case _ if not none.domain:
            return "no plan: the flavor has no nodes"
        case NoPlanReason.TOO_LARGE:
            return f"no plan: {where} comes closest, and lacks room for {none.missing} pods whatever moves"
        case _:
            lacks = f"lacks room for {none.missing} pods" if none.missing else "has workloads without another place"
            stay = "; ".join(f"{one.key} ({', '.join(one.reasons)})" for one in none.blockers)
            return f"no plan: {where} comes closest and {lacks}" + (f"; blocked by {stay}" if stay else "")


def _named(path: Path) -> str:
    return "/".join(path)


def pod_minutes(seconds: int) -> str:
    """Return pod-seconds in the unit for people, rounded up."""
    return f"{-(-seconds // 60)} pod-minutes"
