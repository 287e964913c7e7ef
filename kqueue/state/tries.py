"""Remember the last scheduling attempt of each workload: its time, the state it was decided on and its result; and
the time of its first attempt.

The number of remembered attempts is bounded; the oldest are dropped.  The scheduler tries workloads of equal shape once
for all of them, so the last attempt of each shape is remembered, too.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import TypeVar

from kqueue.core.value import value

K = TypeVar("K")
V = TypeVar("V")

_MOST = 20_000
_MOST_SHAPES = 4_096
_MOST_FIRST = 100_000


@value(kw_only=True)
class Try:
    """One scheduling attempt of a workload.

    Args:
        key: namespace/name of the workload.
        cycle: the number of the cycle since this process began to lead.
        generation, nodes: generations of the cache and of its node ledger when the attempt was decided.
        reason: the result of the attempt.
    """

    key: str
    at: datetime
    cycle: int
    generation: int
    nodes: int
    reason: str


class Tries:
    """The last scheduling attempts, by workload and by shape."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Try] = OrderedDict()
        self._of_shape: OrderedDict[tuple[str, str], Try] = OrderedDict()
        self._first: OrderedDict[str, datetime] = OrderedDict()

    def note(self, tried: Try, queue: str, shape: str) -> None:
        """Remember an attempt of a workload of this shape in a ClusterQueue."""
        _keep(self._of, tried.key, tried, _MOST)
        _keep(self._of_shape, (queue, shape), tried, _MOST_SHAPES)
        if tried.key not in self._first:
            _keep(self._first, tried.key, tried.at, _MOST_FIRST)

    def first(self, key: str, created: datetime) -> datetime | None:
        """Return the time of the first attempt of a workload that was created then; None: it has not been tried."""
        at = self._first.get(key)
        if at is not None and at < created:  # an attempt of an earlier workload of the same name
            del self._first[key]
            return None
        return at

    def of(self, key: str, queue: str, shape: str) -> Try | None:
        """Return the later of the last attempts of the workload and of its shape; None: no attempt is remembered."""
        own, equal = self._of.get(key), self._of_shape.get((queue, shape))
        return max((t for t in (own, equal) if t is not None), key=lambda t: (t.at, t.key == key), default=None)


def _keep(known: OrderedDict[K, V], key: K, remembered: V, most: int) -> None:
    known.pop(key, None)
    known[key] = remembered
    if len(known) > most:
        known.popitem(last=False)
