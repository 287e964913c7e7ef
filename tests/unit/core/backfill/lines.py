"""Small worlds with a workload that waits for room in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from kqueue.core.backfill.search import ExpectedEnd, earliest
from kqueue.core.planned_state import PlannedState
from kqueue.core.workload import Claim, Head, Snapshot
from tests.builders import START, make_head, make_snapshot, make_view
from tests.unit.core.why_cases import make_world


def at(seconds: int) -> Any:
    """The time so many seconds after the start."""
    return START + timedelta(seconds=seconds)


def racks(*, quota: int = 64, **more: Any) -> Snapshot:
    """A ClusterQueue over two racks of four hosts with eight devices each."""
    return make_snapshot({"team": {"gpu": quota}}, topologies={"gpu": make_view((1, 2, 4))}, **more)


def endings(state: PlannedState, ends: Mapping[str, int]) -> list[ExpectedEnd]:
    """The ends of running workloads in seconds; others run for ever."""
    return [ExpectedEnd(at=at(ends[w.uid]), workload=w) for w in state.holders if w.uid in ends]


def planned(
    head: Head,
    running: Sequence[Head],
    ends: Mapping[str, int],
    snapshot: Snapshot | None = None,
    *claims: Claim,
) -> Claim | None:
    """The planned start of a head beside these claims; None: it has none."""
    state = make_world(snapshot or racks(), *running)
    state = replace(state, snapshot=replace(state.snapshot, claims=claims))
    steps = earliest(state, head, endings(state, ends), now=START)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Claim | None = end.value
            return found


def limited(head: Head, promised: int | None = None, guessed: int | None = None) -> Head:
    """The workload with a limit of its run, and a guess."""
    return replace(head, promised=promised, guessed=guessed)


def gang(name: str, pods: int = 4, **more: Any) -> Head:
    """A gang of whole hosts in one rack."""
    return make_head(name, pods=pods, **more)
