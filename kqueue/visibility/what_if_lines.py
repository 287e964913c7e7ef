"""The workloads that each ClusterQueue would try, with and without a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.model.pending import Pending
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.sources import Known
from kqueue.visibility.workload_state import Hindrance

_STEP, _LOOKS = 250, 25
"""Workloads between two pieces of work: to sort them, and to look at each."""
HeldBack = Callable[[wire.Workload], Iterable[Hindrance]]
Entry = tuple[Pending, wire.Workload]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedLine:
    """The workloads that a ClusterQueue tries, the first one first."""

    queue: str
    items: Sequence[Entry]
    is_strict: bool


async def tried_line(
    known: Known, queue: str, items: Iterable[Pending], held_back: HeldBack, pace: RequestPace, *, is_strict: bool
) -> TriedLine:
    """Return the workloads among `items` that nothing holds back, in the order of the ClusterQueue."""
    free: list[Entry] = []
    for number, item in enumerate(items):
        if number % _LOOKS == 0:
            await pace.step()
        obj = known.workloads.get(item.key)
        if obj is not None and not any(True for _ in held_back(obj)):
            free.append((item, obj))
    return TriedLine(queue=queue, items=await _ranked(known, queue, free, pace), is_strict=is_strict)


async def with_returned(known: Known, line: TriedLine, returned: Sequence[Entry], pace: RequestPace) -> TriedLine:
    """Return a line with workloads that had to leave, at the places that they would get."""
    if not returned:
        return line
    items = await _ranked(known, line.queue, [*line.items, *returned], pace)
    return TriedLine(queue=line.queue, items=items, is_strict=line.is_strict)


async def _ranked(known: Known, queue: str, items: Sequence[Entry], pace: RequestPace) -> list[Entry]:
    """Return the workloads in the order of the ClusterQueue, sorted in short pieces."""
    runs: list[list[tuple[object, str, Entry]]] = []
    for first in range(0, len(items), _STEP):
        some = items[first : first + _STEP]
        runs.append(sorted((known.queues.rank(queue, item), item.key, (item, obj)) for item, obj in some))
        await pace.step()
    found: list[Entry] = []
    for number, (_, _, entry) in enumerate(merge(*runs)):
        found.append(entry)
        if number % _STEP == 0:
            await pace.step()
    return found


def class_of(obj: wire.Workload) -> str:
    """Return the WorkloadPriorityClass of a Workload; empty: it has none."""
    named = obj.spec.priority_class_ref
    return named.name if named is not None and named.kind == names.WORKLOAD_PRIORITY_CLASS_KIND else ""


def prioritised(line: TriedLine, priorities: Mapping[str, int]) -> TriedLine:
    """Return a line in the order that other values of priority classes give; equal ones keep their order."""
    if not priorities:
        return line
    items = sorted(line.items, key=lambda entry: -priorities.get(class_of(entry[1]), entry[0].priority))
    return TriedLine(queue=line.queue, items=items, is_strict=line.is_strict)
