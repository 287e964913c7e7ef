"""The pages of `kqueue defrag`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kqueue.cli.output import printable
from kqueue.cli.tables import print_table
from kqueue.operations.defrag.storing import phase_of
from kqueue.state.defrag.document import pod_minutes

if TYPE_CHECKING:
    from kqueue.state.defrag.hosts import PlanPicture

_NOT_AS_PLANNED = "The cluster has changed since the plan was made: its moves are not possible now as it has them."
_NOTHING_MOVES = "kqueue moves nothing by itself: the plan is a proposal, until it is approved."


def print_plan(plan: Mapping[str, Any], phase: str) -> None:
    """Print the moves, the cost and the gain of a plan."""
    status = plan.get("status") or {}
    gain, cost = status.get("gain") or {}, int((status.get("cost") or {}).get("podSeconds") or 0)
    domain = "/".join(map(str, status.get("domain") or ()))
    goal = _goal((plan.get("spec") or {}).get("goal") or {})
    lines = [
        f"Plan {plan['metadata']['name']} is {phase}",
        f"  frees  {domain} of flavor {status.get('flavor', '')}, for {goal}",
        f"  cost   {pod_minutes(cost)} of work",
        f"  slots  {gain.get('slotsBefore', 0)} now, {gain.get('slotsAfter', 0)} after the moves",
        f"  free room that such gangs cannot use  {_percent(gain.get('fragmentationBefore'))} now, "
        f"{_percent(gain.get('fragmentationAfter'))} after the moves",
        f"  valid until  {status.get('validUntil', '')}",
        f"  hash   {status.get('hash', '')}",
    ]
    print("\n".join(map(printable, lines)), end="\n\n")
    print_table(("workload", "pods", "from", "to", "cost", "checkpoint", "state"), map(_row, status.get("moves") or ()))
    print()
    if phase == "Proposed":
        print(_NOTHING_MOVES)
    else:
        print("\n".join(map(printable, _history(status))))


def _history(status: Mapping[str, Any]) -> Iterator[str]:
    """Yield the changes of the phase, and what is said of each move."""
    for change in status.get("conditions") or ():
        yield f"{change.get('lastTransitionTime', '')}  {change.get('type', '')}: {change.get('message', '')}"
    for move in status.get("moves") or ():
        if move.get("message"):
            yield f"{move.get('since', '')}  {move.get('workload', '')} {move.get('state', '')}: {move['message']}"


def _row(move: Mapping[str, Any]) -> Sequence[object]:
    age = move.get("checkpointAgeSeconds")
    return (
        move.get("workload", ""),
        move.get("pods", 0),
        "/".join(map(str, move.get("from") or ())) or "several",
        "/".join(map(str, move.get("to") or ())) or "several",
        pod_minutes(int(move.get("cost") or 0)),
        "unknown" if age is None else f"{age}s ago",
        move.get("state", ""),
    )


def _goal(goal: Mapping[str, Any]) -> str:
    workload = goal.get("workload")
    if workload:
        return f"{workload.get('namespace')}/{workload.get('name')}"
    return f"{goal.get('nodes')} empty nodes in one {goal.get('level')}"


def _percent(thousandths: object) -> str:
    return f"{int(thousandths) / 10:g}%" if isinstance(thousandths, int) else "unknown"


def print_racks(picture: PlanPicture, phase: str) -> None:
    """Draw the domains of a plan now, and after its moves if none of them has begun."""
    from kqueue.cli.rack_picture import draw, print_picture, terminal_width

    is_ahead = phase in ("Proposed", "Approved")
    then = [("after the moves", picture.after)] if is_ahead and picture.after is not None else []
    print()
    print_picture(draw([("now", picture.before), *then], picture.names, width=terminal_width()))
    if is_ahead and not then:
        print(f"\n{_NOT_AS_PLANNED}")


def print_none(told: Mapping[str, Any]) -> None:
    """Print why there is no plan, and the workloads that stay."""
    print(printable(told["message"]))
    blockers = told.get("blockedBy") or ()
    if blockers:
        print()
        print_table(
            ("stays", "frees", "why"),
            [(one["workload"], f"{one['pods']} pods", "; ".join(one["reasons"])) for one in blockers],
        )


def print_plans(plans: Sequence[Mapping[str, Any]], now: datetime) -> None:
    """Print one line per plan."""
    if not plans:
        print("there are no DefragmentationPlans; kqueue defrag plan --save stores one")
        return
    rows = []
    for plan in plans:
        status = plan.get("status") or {}
        seconds = int((status.get("cost") or {}).get("podSeconds") or 0)
        goal = _goal((plan.get("spec") or {}).get("goal") or {})
        states = [move.get("state") for move in status.get("moves") or ()]
        moves = f"{states.count('Done')} of {len(states)} done" if phase_of(plan, now) != "Proposed" else len(states)
        rows.append((plan["metadata"]["name"], phase_of(plan, now), goal, moves, pod_minutes(seconds)))
    print_table(("name", "phase", "for", "moves", "cost"), rows)
