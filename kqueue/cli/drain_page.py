"""The pages of `kqueue drain`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kqueue.cli.output import printable
from kqueue.cli.tables import UNKNOWN, print_table
from kqueue.clock import utc_text

if TYPE_CHECKING:
    from kqueue.operations.drain.run import DrainState

_FATES = {"EndsInTime": "ends in time", "MayMove": "may move", "Stays": "stays"}


def print_drain(state: DrainState, now: datetime, *, cordons: bool) -> None:
    """Print how far a drain is, and what its caller can do."""
    spec, told = state.reservation["spec"], state.survey
    use = f" for ClusterQueue {spec['clusterQueue']}" if spec.get("clusterQueue") else ""
    print(
        printable(
            f"{state.target} of Topology {state.target.topology} is reserved{use} from {spec['from']} to {spec['to']}: "
            f"{_count(len(told.nodes), 'node')}, {_count(len(told.workloads), 'workload')} there"
        )
    )
    if told.workloads:
        print()
        rows = []
        for one in told.workloads:
            ends = utc_text(one.occupant.ends) if one.occupant.ends is not None else UNKNOWN
            fate = _FATES[one.fate] + (f": {one.detail}" if one.fate == "Stays" and one.detail else "")
            rows.append(
                (
                    one.occupant.key,
                    one.occupant.pods,
                    ends,
                    str(one.occupant.source),
                    fate + (f" {one.detail}" if one.fate == "MayMove" else ""),
                )
            )
        print_table(("workload", "pods", "ends", "known from", "what becomes of it"), rows)
        print()
    print("\n".join(map(printable, _advice(state, now, cordons=cordons and not use))))
    for remark in state.remarks:
        print(printable(remark), file=sys.stderr)


def _advice(state: DrainState, now: datetime, *, cordons: bool) -> Iterator[str]:
    told = state.survey
    if state.plan:
        then = f"kqueue defrag approve {state.plan} begins them" if state.proposed else "they are approved"
        yield f"Moves: kqueue defrag show {state.plan}; {then}"
    if told.staying:
        yield (
            f"{_count(len(told.staying), 'workload')} may run on: wait, have a user allow moves "
            "(kubectl annotate job NAME kqueue.dev/reschedule=Always), or stop it "
            "(kqueue stop workload NAME -n NAMESPACE)"
        )
    if not cordons:
        if not told.workloads:
            yield "No workload of others is there"
        return
    left = len(told.nodes) - len(state.cordoned)
    if not state.has_begun(now):
        begins = state.reservation["spec"]["from"]
        yield f"No node is cordoned before {begins}: run the command again then, or add --wait"
    elif left:
        yield (
            f"{len(state.cordoned)} of {len(told.nodes)} nodes are cordoned, and the others are when they are empty: "
            "run the command again, or add --wait"
        )
    else:
        yield f"Empty: {_count(len(told.nodes), 'node')} cordoned.  kqueue drain {state.target} --undo ends the drain"


def print_undone(domain: str, reservation: str, nodes: Sequence[str], was_there: bool) -> None:
    """Print what the end of a drain has changed."""
    ended = f"Reservation {reservation} is deleted" if was_there else f"There was no Reservation {reservation}"
    print(printable(f"{domain} is open again: {ended}; {_count(len(nodes), 'node')} uncordoned"))


def _count(number: int, what: str) -> str:
    return f"1 {what}" if number == 1 else f"{number} {what}s"
