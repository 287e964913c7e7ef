"""Ends and approvals of DefragmentationPlans that are only proposed: see `kqueue.state.defrag.stored`.

A change is decided on the watch, and once more on the object as the API server has it.  It is written with its resource
version, so that a person who approves the plan meanwhile wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.clock import Clock, utc_text
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.core.joint.move_steps import PlanPhase
from kqueue.errors import ConflictError, NotFoundError, TerminalError
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store
from kqueue.state.defrag.document import change
from kqueue.state.defrag.stored import (
    AUTO_BUDGET,
    AutoBudget,
    PlanStep,
    goal_key,
    next_step,
)

JSON = dict[str, Any]
BY_GOAL = "goal"
"""Index of plans by their waiting Workload."""
_ATTEMPTS = 5
_SOON = 1.0
_LONGEST = 3600.0
"""Seconds after which a plan is looked at again at the latest."""
_ENDS = {
    PlanStep.EXPIRE: (PlanPhase.EXPIRED, "NotApproved", "it was not approved in time"),
    PlanStep.SUPERSEDE: (PlanPhase.SUPERSEDED, "DoesNotWait", "its workload does not wait any more"),
}

_WITHIN = "its cost is within joint.defrag.budget, and joint.rescheduling.migration is Auto"

_log = structlog.get_logger(__name__)


class PlanEnds:
    """Lets proposals expire, supersedes them, deletes what is over, and approves what the configuration allows."""

    def __init__(
        self,
        *,
        client: Client,
        plans: Store[DefragmentationPlan],
        waits: Callable[[str], bool],
        clock: Clock,
        auto: AutoBudget | None,
    ) -> None:
        """`waits`: whether a Workload (namespace/name) waits; `auto`: the most that is approved without a person, None:
        nothing is.
        """
        self._client, self._plans, self._waits = client, plans, waits
        self._clock, self._auto = clock, auto
        plans.add_index(BY_GOAL, lambda plan: (goal_key(plan),))

    def of_workload(self, key: str) -> Iterable[str]:
        """Return the names of the plans for a waiting Workload (namespace/name)."""
        return self._plans.keys_by_index(BY_GOAL, key)

    def names(self) -> list[str]:
        """Return the names of all plans."""
        return list(self._plans)

    async def reconcile(self, name: str) -> Result:
        """Make the change that is due for a plan.

        Raises:
            ConflictError: another client has changed it meanwhile; the plan is then reconciled again.
            TerminalError: the plan cannot be read any more.
        """
        plan = self._plans.get(name)
        if plan is None:
            return Result()
        step, pause = self._step(plan)
        if step is PlanStep.NONE:
            return Result(requeue_after=pause)
        try:
            stored = await self._client.get_json(DEFRAGMENTATION_PLANS, name)
            fresh, _ = self._step(_read(stored))
            if fresh is not step:
                return Result(requeue_after=_SOON)
            return await self._change(stored, step)
        except NotFoundError:
            return Result()
        except msgspec.ValidationError as e:
            raise TerminalError(f"DefragmentationPlan {name} cannot be read, and stays as it is: {e}") from e

    def _step(self, plan: DefragmentationPlan) -> tuple[PlanStep, float | None]:
        """Return the change that is due, and the seconds until the next one."""
        key, now = goal_key(plan), self._clock.now()
        step, at = next_step(plan, now, waits=not key or self._waits(key), budget=self._auto)
        return step, min(_LONGEST, max(_SOON, (at - now) / timedelta(seconds=1))) if at is not None else None

    async def _change(self, stored: JSON, step: PlanStep) -> Result:
        meta = stored["metadata"]
        name, version = meta["name"], meta.get("resourceVersion")
        if step is PlanStep.DELETE:
            await self._client.delete(DEFRAGMENTATION_PLANS, name, uid=meta.get("uid"), resource_version=version)
            _log.info("defragmentation plan deleted, which has been over for an hour", plan=name)
            return Result()
        if step is not PlanStep.APPROVE:
            phase, reason, message = _ENDS[step]
            await self._enter(stored, phase, reason, message)
            _log.info("defragmentation plan has ended", plan=name, phase=phase, why=message)
            return Result(requeue_after=_SOON)
        await self._approve(stored)
        return Result()

    async def _approve(self, stored: JSON) -> None:
        """Write the approval, and the condition that says by what right."""
        name, digest = stored["metadata"]["name"], stored["status"]["hash"]
        version = {"resourceVersion": stored["metadata"].get("resourceVersion")}
        approved = await self._client.patch(
            DEFRAGMENTATION_PLANS, name, {"metadata": version, "spec": {"approved": digest}}
        )
        _log.info("defragmentation plan approved within joint.defrag.budget", plan=name, hash=digest)
        for left in reversed(range(_ATTEMPTS)):
            try:
                await self._enter(approved, PlanPhase.APPROVED, AUTO_BUDGET, _WITHIN)
                break
            except ConflictError:  # the plan is being carried out already
                if not left:
                    raise
                approved = await self._client.get_json(DEFRAGMENTATION_PLANS, name)

    async def _enter(self, stored: JSON, phase: str, reason: str, message: str) -> None:
        """Write a phase with its condition.  A plan that is being carried out keeps its phase."""
        meta, status = stored["metadata"], stored.get("status") or {}
        present = status.get("phase") or PlanPhase.PROPOSED
        entered = phase if present == PlanPhase.PROPOSED else present
        others = [c for c in status.get("conditions") or () if c.get("type") != phase]
        written = change(phase, reason, message, utc_text(self._clock.now()))
        await self._client.patch(
            DEFRAGMENTATION_PLANS,
            meta["name"],
            {
                "metadata": {"resourceVersion": meta.get("resourceVersion")},
                "status": {"phase": entered, "conditions": [*others, written]},
            },
            subresource="status",
        )


def _read(stored: JSON) -> DefragmentationPlan:
    return msgspec.convert(stored, DefragmentationPlan, strict=False)
