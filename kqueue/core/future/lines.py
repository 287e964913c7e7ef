"""The waiting workloads of a simulated future, in the order of their ClusterQueues.

As in the present, the first workload of each ClusterQueue is tried.  If the ClusterQueue is not strict, a refused one
is parked until resources are released that it may use, and all of its shape with it if the refusal concerns the shape.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kqueue.core.decision import Outcome, Wait
from kqueue.core.future.question import Line, WaitingWorkload
from kqueue.core.scan import Attempt, ScanMemory, is_round, remembered
from kqueue.core.workload import Head

AT_ONCE = frozenset({Outcome.SKIPPED, Outcome.DEFERRED, Outcome.AFTER_LOWER_SHARE, Outcome.HELD})
"""Outcomes after which a workload is not parked."""
OF_SHAPE = frozenset({Outcome.NO_FIT, Outcome.NO_CANDIDATES, Outcome.LEAST})
"""Outcomes that all workloads of a shape share."""

Place = tuple[int, int, int, int]
"""The place of a workload in its line; a smaller one goes first."""
MayStart = Callable[[Head, Wait | None], bool]
"""Whether a try of a workload may have success, after this last try of its shape; None: it is the first one."""


class _Entry(NamedTuple):
    place: Place
    uid: str


class _Front(NamedTuple):
    place: Place
    shape: str


@dataclass(slots=True)
class _Shape:
    """Workloads of one shape in their order; `entries` may have workloads that have left."""

    entries: list[_Entry] = field(default_factory=list)
    is_parked: bool = False
    refusal: Wait | None = None
    """The last try, if it concerned all of them."""


class _First(NamedTuple):
    """The first workload of a ClusterQueue."""

    uid: str
    shape: _Shape
    is_strict: bool


@dataclass(slots=True)
class _Queue:
    """One ClusterQueue; `fronts` has a place for each active shape that is not behind the shape's first workload."""

    is_strict: bool
    shapes: dict[str, _Shape] = field(default_factory=dict)
    fronts: list[_Front] = field(default_factory=list)
    preemptor: str = ""
    """The workload that preempted others, and is tried before all others."""


@dataclass(slots=True)
class _Member:
    """A workload that waits: `shape` is its own while it is parked alone."""

    workload: WaitingWorkload
    place: Place
    shape: str
    memory: ScanMemory | None = None


class Lines:
    """All waiting workloads.  Each is tried only after `activate`."""

    def __init__(
        self, lines: Iterable[Line], most: int, freed: Callable[[str], int], several: Callable[[str], bool]
    ) -> None:
        """Take the first `most` workloads, in turns from all lines.

        `freed` returns a number that rises with each release of quota in the tree of a ClusterQueue; `several` says
        whether a ClusterQueue scans several flavors.
        """
        self._freed, self._several = freed, several
        self._cycle = 0
        """The number of cycles, also of those that were left out."""
        lines = list(lines)
        self._queues = {line.queue: _Queue(line.is_strict) for line in lines}
        self._members: dict[str, _Member] = {}
        self._returned = 0
        self.left_out: list[str] = []
        """UIDs of workloads beyond the limit."""
        for number in range(max((len(line.workloads) for line in lines), default=0)):
            for workload in [line.workloads[number] for line in lines if number < len(line.workloads)]:
                if len(self._members) < most:
                    member = _Member(workload, (number, 0, 0, 0), workload.shape)
                    self._members[workload.head.uid] = member
                else:
                    self.left_out.append(workload.head.uid)

    def __contains__(self, uid: str) -> bool:
        return uid in self._members

    def __iter__(self) -> Iterator[WaitingWorkload]:
        return (member.workload for member in self._members.values())

    def activate(self, uid: str) -> None:
        """Let the next cycles try a workload; no effect if it does not wait."""
        member = self._members.get(uid)
        if member is not None:
            self._join(member)

    def _join(self, member: _Member) -> None:
        queue = self._queues[member.workload.head.queue]
        shape = queue.shapes.setdefault(member.shape, _Shape())
        heapq.heappush(shape.entries, _Entry(member.place, member.workload.head.uid))
        if not shape.is_parked:
            heapq.heappush(queue.fronts, _Front(member.place, member.shape))

    def come_back(self, workload: WaitingWorkload) -> None:
        """Put a preempted workload into its line, behind all of the same or a higher priority."""
        if workload.head.queue not in self._queues:
            return
        priority, queue = workload.head.priority, workload.head.queue
        ahead = [
            member.place[0]
            for member in self._members.values()
            if member.workload.head.queue == queue and member.workload.head.priority >= priority
        ]
        self._returned += 1
        member = _Member(workload, (max(ahead, default=-1), 1, -priority, self._returned), workload.shape)
        self._members[workload.head.uid] = member
        self._join(member)

    # --- cycles

    def heads(self, may_start: MayStart) -> list[Head]:
        """Return the first workload of each ClusterQueue, as the next cycle has them; none: no workload can start.

        A cycle in which no head can start is left out: its heads are parked, and the next ones have their turn.  Heads
        that cannot start are tried beside one that can, because they keep others from what they wait for; those that
        scan several flavors are always tried, because the next scan goes on where this one ends.
        """
        while True:
            self._cycle += 1
            firsts = [first for queue in self._queues.values() if (first := self._first(queue)) is not None]
            if not any(self._may_start(first, may_start) for first in firsts):
                tried, goes_on = list[_First](), False
                for first in firsts:
                    if self._several(self._members[first.uid].workload.head.queue):
                        tried.append(first)
                    elif not first.is_strict:
                        first.shape.is_parked = goes_on = True
                if goes_on and not tried:
                    continue
                firsts = tried
            for first in firsts:
                first.shape.refusal = None
            return [self._as_tried(self._members[first.uid]) for first in firsts]

    def _may_start(self, first: _First, may_start: MayStart) -> bool:
        return may_start(self._members[first.uid].workload.head, first.shape.refusal)

    def _first(self, queue: _Queue) -> _First | None:
        """Return the first workload of a ClusterQueue that is not parked; None: there is none."""
        preemptor = self._members.get(queue.preemptor)
        if preemptor is not None and not (shape := queue.shapes[preemptor.shape]).is_parked:
            return _First(queue.preemptor, shape, queue.is_strict)
        while queue.fronts:
            place, name = queue.fronts[0]
            shape = queue.shapes[name]
            first = self._first_of(name, shape) if not shape.is_parked else None
            if first is None:
                heapq.heappop(queue.fronts)
            elif first.place == place:
                return _First(first.uid, shape, queue.is_strict)
            else:
                heapq.heapreplace(queue.fronts, _Front(first.place, name))
        return None

    def _first_of(self, name: str, shape: _Shape) -> _Entry | None:
        """Return the first workload of a shape, and forget those before it that have left."""
        while shape.entries and not self._is_here(name, shape.entries[0]):
            heapq.heappop(shape.entries)
        return shape.entries[0] if shape.entries else None

    def _is_here(self, name: str, entry: _Entry) -> bool:
        member = self._members.get(entry.uid)
        return member is not None and member.place == entry.place and member.shape == name

    def _as_tried(self, member: _Member) -> Head:
        """Return a workload with the place at which its scan of flavors goes on."""
        head, memory = member.workload.head, member.memory
        if memory is not None and memory.is_outdated(self._attempt(member)):
            memory = member.memory = None
        return head if memory is None else replace(head, last_tried=memory.last_tried)

    def _attempt(self, member: _Member) -> Attempt:
        head = member.workload.head
        generation, shape = self._freed(head.queue), member.workload.shape
        return Attempt(
            uid=head.uid, queue=head.queue, shape=shape, version="", generation=generation, cycle=self._cycle
        )

    def next_head(self, name: str, without: Collection[str]) -> Head | None:
        """Return the first workload of a ClusterQueue besides those with these keys; None: there is none."""
        queue, first = self._queues.get(name), list[_Entry]()
        for shape_name, shape in queue.shapes.items() if queue is not None else ():
            if not shape.is_parked:
                here = (entry for entry in shape.entries if self._is_here(shape_name, entry))
                rest = (entry for entry in here if self._members[entry.uid].workload.head.key not in without)
                first += heapq.nsmallest(1, rest)
        return self._as_tried(self._members[min(first).uid]) if first else None

    def take(self, uid: str) -> WaitingWorkload | None:
        """Take a workload that starts out of its line; None: it does not wait."""
        member = self._members.pop(uid, None)
        return member.workload if member is not None else None

    def prefer(self, head: Head) -> None:
        """Let a preemptor be tried before all others of its ClusterQueue, unless that is strict."""
        queue = self._queues[head.queue]
        if not queue.is_strict:
            queue.preemptor = head.uid

    def refuse(self, wait: Wait) -> bool:
        """Follow a try without success; return whether the next cycle may try something else."""
        member, queue = self._members[wait.head.uid], self._queues[wait.head.queue]
        before, uid = member.memory, wait.head.uid
        member.memory = remembered(wait, self._attempt(member), before)
        if wait.outcome is Outcome.DEFERRED:
            self.prefer(wait.head)
        if wait.has_more_flavors and not is_round(wait, before):
            return True
        if queue.is_strict or wait.outcome in AT_ONCE:
            return False
        if wait.outcome not in OF_SHAPE:
            member.shape = f"{member.shape}/{uid}"
            queue.shapes[member.shape] = _Shape([_Entry(member.place, uid)])
        shape = queue.shapes[member.shape]
        shape.is_parked, shape.refusal = True, wait if wait.outcome in OF_SHAPE else None
        return True

    def wake(self, names: Iterable[str]) -> None:
        """Let the parked workloads of these ClusterQueues be tried again."""
        for queue in [self._queues[name] for name in names if name in self._queues]:
            for name, shape in queue.shapes.items():
                if shape.is_parked:
                    shape.is_parked = False
                    first = self._first_of(name, shape)
                    if first is not None:
                        heapq.heappush(queue.fronts, _Front(first.place, name))
