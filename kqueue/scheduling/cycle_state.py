"""The state of one scheduling cycle; each cycle begins with a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kqueue.api.wire import kueue as wire
from kqueue.core.decision import Phase
from kqueue.core.scan import Attempt
from kqueue.model.pending import Pending
from kqueue.scheduling.stopwatch import Stopwatch


class Read(NamedTuple):
    """The input of a try: the Workload, its entry in the queues, and the generation of its ClusterQueue's capacity."""

    obj: wire.Workload
    item: Pending
    room: int

    def attempt(self, queue: str, cycle: int) -> Attempt:
        """Return a value by which this try can be compared with others."""
        return Attempt(
            uid=self.obj.metadata.uid,
            queue=queue,
            shape=self.item.shape,
            version=self.item.version,
            generation=self.room,
            cycle=cycle,
        )


@dataclass(slots=True)
class CycleState:
    """The state of one cycle.

    Args:
        number: the cycle's number since this process began to lead.
        watch: measures the time of each phase.
    """

    number: int
    watch: Stopwatch[Phase]
    reads: dict[str, Read] = field(default_factory=dict)
    """By head (namespace/name): the input of its try in this cycle."""
    came_back: set[str] = field(default_factory=set)
    """Workloads that are heads of their queues again."""
    robbed: Counter[str] = field(default_factory=Counter)
    """By ClusterQueue: the number of preemptors that had found targets and lost them to earlier entries."""
    gave_way: bool = False
    """Whether the event loop had a turn since the snapshot was taken, so that objects may have changed."""

    def as_decided(self, key: str, uid: str, newest: Callable[[str], wire.Workload | None]) -> wire.Workload | None:
        """Return the Workload if its UID and generation are those of the decision; None leaves it to the next cycle."""
        read = self.reads[key].obj
        if not self.gave_way:
            return read
        obj = newest(key)
        if obj is None or (obj.metadata.uid, obj.metadata.generation) != (uid, read.metadata.generation):
            return None
        return obj
