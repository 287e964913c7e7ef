"""Remember the last scheduling attempt of each workload: its time, the state it was decided on and its result.

The number of remembered attempts is bounded; the oldest are dropped.  The scheduler tries workloads of equal shape once
for all of them, so the last attempt of each shape is remembered, too.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime
from typing import TypeVar

from kqueue.core.value import value

K = TypeVar("K")

_MOST = 20_000
_MOST_SHAPES = 4_096


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

    def note(self, tried: Try, queue: str, shape: str) -> None:
        """Remember an attempt of a workload of this shape in a ClusterQueue."""
        _keep(self._of, tried.key, tried, _MOST)
        _keep(self._of_shape, (queue, shape), tried, _MOST_SHAPES)

    def of(self, key: str, queue: str, shape: str) -> Try | None:
        """Return the later of the last attempts of the workload and of its shape; None: no attempt is remembered."""
        own, equal = self._of.get(key), self._of_shape.get((queue, shape))
        return max((t for t in (own, equal) if t is not None), key=lambda t: (t.at, t.key == key), default=None)


def _keep(known: OrderedDict[K, Try], key: K, tried: Try, most: int) -> None:
    known.pop(key, None)
    known[key] = tried
    if len(known) > most:
        known.popitem(last=False)
