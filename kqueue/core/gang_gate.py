"""Checks of a cycle for gangs, beyond quota and places: flavors that are kept, and least resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kqueue.core.decision import Outcome
from kqueue.core.explain import Blocker, WaitReason
from kqueue.core.leaders import KeptFlavors
from kqueue.core.least import LeastRoom
from kqueue.core.nomination import NominatedHead
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Leader, PodSetAssignment, Promise, Snapshot


class GateStop(NamedTuple):
    """Why a nominated head must wait."""

    outcome: Outcome
    reason: WaitReason
    blocker: Blocker


class GangGate:
    """The gate of one cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._kept, self._room = KeptFlavors(snapshot.leaders), LeastRoom(snapshot)

    def stops(self, entry: NominatedHead) -> GateStop | None:
        """Return why a head that fits, or would preempt others, must wait; None: it goes on."""
        head = entry.head
        if self._kept and (kept := self._kept.before(head, entry.usage)) is not None:
            return GateStop(Outcome.LEADER, WaitReason.WAITING_FOR_PODS_READY, kept)
        if not head.least:
            return None
        leaving: dict[FlavorResource, int] = {}
        for target in entry.targets:
            for column, amount in target.admitted.usage.items():
                leaving[column] = leaving.get(column, 0) + amount
        short = self._room.lacking(head, entry.assignment.pod_sets, leaving)
        return None if short is None else GateStop(Outcome.LEAST, WaitReason.WAITING_FOR_QUOTA, short)

    def admitted(
        self, entry: NominatedHead, pod_sets: Sequence[PodSetAssignment]
    ) -> tuple[tuple[Leader, ...], Promise | None]:
        """Return the gangs that make way for a head that is admitted, and what is promised to it."""
        made_way = self._kept.make_way(entry.head, entry.usage) if self._kept else ()
        return made_way, self._room.promise(entry.head, pod_sets)
