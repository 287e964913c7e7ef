"""DefragmentationPlans in the API server: stored, listed, approved, ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kqueue.clock import api_time, utc_text
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.errors import ConfigError, ConflictError, NotFoundError
from kqueue.operations.grants import DEFRAG_PLANS, needs
from kqueue.runtime.client import Client
from kqueue.state.defrag.document import change, plan_hash
from kqueue.state.defrag.stored import MOST_PLANS

JSON = dict[str, Any]
_ATTEMPTS = 5
_OPEN = ("Proposed", "Approved")


def phase_of(plan: Mapping[str, Any], now: datetime) -> str:
    """Return the phase of a plan; a proposal whose time is over counts as expired."""
    status = plan.get("status") or {}
    phase, until = str(status.get("phase") or "Proposed"), api_time(status.get("validUntil"))
    return "Expired" if phase == "Proposed" and until is not None and until <= now else phase


async def save(client: Client, plan: JSON) -> JSON:
    """Store a plan and return it as stored.

    Raises:
        ConfigError: as many plans exist as may.
        ApiError: another failure.
    """
    with needs(DEFRAG_PLANS):
        existing = await client.list_json(DEFRAGMENTATION_PLANS)
        if len(existing) >= MOST_PLANS:
            raise ConfigError(
                f"{len(existing)} DefragmentationPlans exist, and {MOST_PLANS} are allowed: delete old ones with "
                "kubectl delete defragmentationplans"
            )
        made = {key: value for key, value in plan.items() if key != "status"}
        await client.create(DEFRAGMENTATION_PLANS, made)
        name = plan["metadata"]["name"]
        return await client.patch(DEFRAGMENTATION_PLANS, name, {"status": plan["status"]}, subresource="status")


async def plans(client: Client) -> list[JSON]:
    """Return all plans, the newest first."""
    with needs(DEFRAG_PLANS):
        found = await client.list_json(DEFRAGMENTATION_PLANS)
    return sorted(found, key=lambda plan: plan["metadata"].get("creationTimestamp") or "", reverse=True)


async def plan_named(client: Client, name: str) -> JSON:
    """Return a plan.  Raises NotFoundError."""
    with needs(DEFRAG_PLANS):
        try:
            return await client.get_json(DEFRAGMENTATION_PLANS, name)
        except NotFoundError:
            raise NotFoundError(f"DefragmentationPlan {name} not found; kqueue defrag list lists all") from None


async def approve(client: Client, name: str, shown: str, now: datetime) -> JSON:
    """Approve the moves that a plan shows; `shown`: the hash that its user has seen, empty: the present one.

    Raises:
        ConfigError: the plan is over, its text does not match its hash, or the hash is not the one that was seen.
        ConflictError: another client has changed the plan meanwhile.
    """
    plan = await plan_named(client, name)
    phase, status = phase_of(plan, now), plan.get("status") or {}
    present = str(status.get("hash") or "")
    if phase not in _OPEN:
        raise ConfigError(f"DefragmentationPlan {name} is {phase}: compute a new one with kqueue defrag plan --save")
    if not present or present != plan_hash(plan.get("spec") or {}, status):
        raise ConfigError(f"DefragmentationPlan {name} was changed after it was computed: compute a new one")
    if shown not in ("", present):
        raise ConfigError(f"DefragmentationPlan {name} has the hash {present} now: look at it again")
    version = {"resourceVersion": plan["metadata"].get("resourceVersion")}
    with needs(DEFRAG_PLANS):
        approved = await client.patch(DEFRAGMENTATION_PLANS, name, {"metadata": version, "spec": {"approved": present}})
        try:
            return await _enter(client, approved, "Approved", "ByUser", "kqueue defrag approve wrote the hash", now)
        except ConflictError:  # the controller has seen the approval, and goes on from there
            return await plan_named(client, name)


async def abort(client: Client, name: str, now: datetime) -> JSON:
    """End a plan that is not over.  Raises ConfigError: it is over."""
    for left in reversed(range(_ATTEMPTS)):
        plan = await plan_named(client, name)
        phase = phase_of(plan, now)
        if phase not in (*_OPEN, "Running"):
            raise ConfigError(f"DefragmentationPlan {name} is {phase} already")
        try:
            with needs(DEFRAG_PLANS):
                return await _enter(client, plan, "Aborted", "ByUser", "kqueue defrag abort ended it", now)
        except ConflictError:
            if not left:
                raise
    raise AssertionError("the last attempt raises")


async def _enter(client: Client, plan: JSON, phase: str, reason: str, message: str, now: datetime) -> JSON:
    """Write the phase, and the condition that dates it.  Raises ConflictError: the plan has changed since."""
    before = [c for c in (plan.get("status") or {}).get("conditions") or () if c.get("type") != phase]
    status = {"phase": phase, "conditions": [*before, change(phase, reason, message, utc_text(now))]}
    name = plan["metadata"]["name"]
    version = {"resourceVersion": plan["metadata"].get("resourceVersion")}
    patch = {"metadata": version, "status": status}
    return await client.patch(DEFRAGMENTATION_PLANS, name, patch, subresource="status")
