"""The state of one scheduling cycle; each cycle begins with a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from kqueue.api.wire import kueue as wire
from kqueue.core.scan import Attempt
from kqueue.model.pending import Pending
from kqueue.scheduling.stopwatch import Stopwatch


class Read(NamedTuple):
    """What a try is made on: the workload, what the queues know of it, and the generation of its queue's room."""

    obj: wire.Workload
    item: Pending
    room: int

    def attempt(self, queue: str, cycle: int) -> Attempt:
        """The try, to be compared with other tries."""
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
    """One cycle.

    Args:
        number: of the cycle, since this process began to lead.
        watch: where its time goes.
    """

    number: int
    watch: Stopwatch
    reads: dict[str, Read] = field(default_factory=dict)
    """By head (namespace/name), what this cycle decides on."""
    came_back: set[str] = field(default_factory=set)
    """Workloads that are heads of their queues again."""
    robbed: Counter[str] = field(default_factory=Counter)
    """By ClusterQueue, preemptors that had found targets and got nothing."""
    gave_way: bool = False
    """Since the snapshot was taken there may have been events."""

    def as_decided(self, key: str, uid: str, newest: Callable[[str], wire.Workload | None]) -> wire.Workload | None:
        """The workload, if it still asks for what was decided on; None leaves it to the next cycle."""
        read = self.reads[key].obj
        if not self.gave_way:
            return read
        obj = newest(key)
        if obj is None or (obj.metadata.uid, obj.metadata.generation) != (uid, read.metadata.generation):
            return None
        return obj
