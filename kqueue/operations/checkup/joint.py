"""The check of joint placement: whether it is on, has its solver, and works, and which plans of moves wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from kqueue.clock import Clock
from kqueue.errors import ForbiddenError, NotFoundError, NotServedError
from kqueue.operations.checkup.values import CheckVerdict, StepStatus, ok, skipped, warning
from kqueue.operations.defrag.storing import phase_of, plans
from kqueue.operations.questions import ask, path
from kqueue.runtime.client import Client

JSON = dict[str, Any]
_MOST_LINES = 10
"""Plans that are named."""
_ROUNDS = path("visibility.kqueue.dev", "v1alpha1", "jointrounds")


class JointPlacementCheck:
    """Asks the controller for its rounds, and the API server for plans of moves."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock

    async def joint(self) -> CheckVerdict:
        """Whether joint placement works where it is on."""
        try:
            rounds = await ask(self._client, _ROUNDS)
        except (ForbiddenError, NotFoundError, NotServedError) as e:
            return skipped(f"rounds of joint placement cannot be read: {e}")
        verdict = verdict_of(rounds)
        if not rounds.get("enabled"):
            return verdict
        try:
            found = await plans(self._client)
        except (ForbiddenError, NotFoundError, NotServedError) as e:
            return replace(verdict, details=(*verdict.details, f"plans of moves cannot be read: {e}"))
        return with_plans(verdict, found, self._clock.now())


def with_plans(verdict: CheckVerdict, found: Sequence[Mapping[str, Any]], now: datetime) -> CheckVerdict:
    """Return the verdict with a line for each plan of moves that a person may approve, or that has failed.

    `found`: the newest first.
    """
    lines, failed = list[str](), False
    for plan in found:
        name, phase = plan["metadata"]["name"], phase_of(plan, now)
        if phase == "Proposed":
            lines.append(f"plan {name} waits for approval{_for(plan)}: kqueue defrag show {name}")
        elif phase == "Failed":
            failed = True
            lines.append(f"plan {name} has failed{_for(plan)}: kqueue defrag show {name}")
    details = (*verdict.details, *lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        details = (*details, f"and {len(lines) - _MOST_LINES} more: kqueue defrag list")
    if failed and verdict.status is StepStatus.OK:
        message = f"{verdict.message}; a plan of moves has failed"
        return warning(message, "look at the moves of the plan, then delete it", *details)
    return replace(verdict, details=details)


def _for(plan: Mapping[str, Any]) -> str:
    """Return the waiting workload of a plan as words; empty: the plan is for empty nodes."""
    workload = ((plan.get("spec") or {}).get("goal") or {}).get("workload") or {}
    return f", for {workload.get('namespace')}/{workload.get('name')}" if workload.get("name") else ""


def verdict_of(rounds: JSON) -> CheckVerdict:
    """Return the verdict for a list of rounds, the newest first."""
    if not rounds.get("enabled"):
        return ok("joint placement is off (feature gate JointPlacement)")
    last: JSON = next(iter(rounds.get("items") or ()), {})
    problem = (f"round {last['number']}: {last['problem']}",) if last.get("problem") else ()
    if rounds.get("paused"):
        log = "look for 'a joint round has no plan' in the log of the controller; rounds begin again by themselves"
        return warning("joint placement rests, because rounds failed: workloads are tried one by one", log, *problem)
    if "solver" not in rounds:
        remedy = "install the extra kqueue[flow] where the controller runs"
        return warning("joint placement plans without bounds, because OR-tools is missing", remedy, *problem)
    unread = tuple((rounds.get("statistics") or {}).get("problems") or ())
    if unread:
        told = "policies look at measured use, which cannot be read: reservations count instead"
        return warning(told, *unread, *problem)
    if problem:
        return warning("the last round of joint placement has failed", "look into the log of the controller", *problem)
    return ok(f"joint placement is on, with {rounds['solver']}")
