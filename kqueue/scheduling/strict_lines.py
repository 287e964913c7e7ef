"""The lines behind the heads of StrictFIFO ClusterQueues, for the record of decisions.

A plan tries only the head of such a ClusterQueue, so a record of plans alone does not know which workloads waited.  The
line of a ClusterQueue is compared with its queue once a second at most, and a cycle makes a few heads: the event loop
is not held by a line of ten thousand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.core.workload import Head
from kqueue.isolation import isolated
from kqueue.model.pending import Pending
from kqueue.state.heads import Heads
from kqueue.state.queues import Queues

_INTERVAL = 1.0
"""Seconds between two comparisons of a line with its queue."""
_MOST_COMPARED = 2_000
"""Workloads after which no further line is compared in a cycle."""
_MOST_MADE = 16
"""Heads that are made in one cycle."""
_MOST = 20_000
"""Workloads in all lines; further ones are not recorded before others have left."""


@dataclass(slots=True)
class _Line:
    heads: Mapping[str, Head] = field(default_factory=dict)
    """By UID.  A change makes another mapping: the thread of the record reads it."""
    new: deque[Pending] = field(default_factory=deque)
    """Workloads whose head is not made yet."""
    compared: float | None = None


class StrictLines:
    """The workloads that wait behind the heads of StrictFIFO ClusterQueues."""

    def __init__(
        self, queues: Queues, heads: Heads, newest: Callable[[str], wire.Workload | None], clock: Clock
    ) -> None:
        """`newest` returns the latest version of a Workload."""
        self._queues, self._heads, self._newest, self._clock = queues, heads, newest, clock
        self._lines: dict[str, _Line] = {}
        self._known = 0
        """The number of heads in all lines."""

    def take(self, tried: Collection[Head]) -> Mapping[str, Mapping[str, Head]]:
        """Return by StrictFIFO ClusterQueue of these heads the workloads behind them that are known by now, by UID."""
        by_queue: dict[str, set[str]] = {}
        for head in tried:
            by_queue.setdefault(head.queue, set()).add(head.uid)
        strict = [queue for queue in by_queue if self._queues.is_strict(queue)]
        for queue in by_queue.keys() - set(strict):
            self._known -= len(self._lines.pop(queue, _Line()).heads)
        heads, compared, made = {head.uid for head in tried}, 0, 0
        for queue in strict:
            line = self._lines.setdefault(queue, _Line())
            before = len(line.heads)
            if compared < _MOST_COMPARED:
                compared += self._compare(queue, line, heads)
            _drop(line, by_queue[queue] & line.heads.keys())
            made += self._make(queue, line, heads, most=min(_MOST_MADE - made, _MOST - self._known))
            self._known += len(line.heads) - before
        return {queue: self._lines[queue].heads for queue in strict}

    def _compare(self, queue: str, line: _Line, heads: Collection[str]) -> int:
        """Drop workloads that wait no more and note new ones, if the last time is long ago; return their number."""
        now = self._clock.monotonic()
        if line.compared is not None and now - line.compared < _INTERVAL:
            return 0
        line.compared = now
        waiting = {item.uid: item for item in self._queues.waiting(queue)}
        line.new = deque(item for uid, item in waiting.items() if uid not in line.heads and uid not in heads)
        _drop(line, line.heads.keys() - waiting.keys())
        return len(waiting)

    def _make(self, queue: str, line: _Line, heads: Collection[str], *, most: int) -> int:
        """Make the heads of new workloads, at most so many; return the number of tries."""
        made: dict[str, Head] = {}
        tries = 0
        while line.new and tries < most:
            tries += 1
            item = line.new.popleft()
            obj = self._newest(item.key)
            if obj is None or obj.metadata.uid != item.uid or item.uid in heads:
                continue
            with isolated():  # requests that cannot be read: its own try says so
                made[item.uid] = self._heads.make(obj, None, queue=queue, now=self._clock.now())
        if made:
            line.heads = {**line.heads, **made}
        return tries


def _drop(line: _Line, gone: Collection[str]) -> None:
    if gone:
        line.heads = {uid: head for uid, head in line.heads.items() if uid not in gone}
