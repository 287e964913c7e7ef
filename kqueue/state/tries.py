"""When workloads were tried last, on which state, and what came of it: for people who ask.

What is remembered is bounded; the oldest tries are forgotten.  Workloads that cannot differ in the outcome of a try are
tried once for all of them, so the last try of their shape is remembered, too.
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
    """One try.

    Args:
        key: who was tried.
        cycle: the number of the cycle since this process began to lead.
        generation, nodes: of the cache and of its node ledger, when the try was decided.
        reason: what it came to.
    """

    key: str
    at: datetime
    cycle: int
    generation: int
    nodes: int
    reason: str


class Tries:
    """The last tries."""

    def __init__(self) -> None:
        self._of: OrderedDict[str, Try] = OrderedDict()
        self._of_shape: OrderedDict[tuple[str, str], Try] = OrderedDict()

    def note(self, tried: Try, queue: str, shape: str) -> None:
        """A workload of this shape was tried in a ClusterQueue."""
        _keep(self._of, tried.key, tried, _MOST)
        _keep(self._of_shape, (queue, shape), tried, _MOST_SHAPES)

    def of(self, key: str, queue: str, shape: str) -> Try | None:
        """The last try of a workload, or of one that cannot differ from it, whichever is later; None: none is known."""
        own, equal = self._of.get(key), self._of_shape.get((queue, shape))
        return max((t for t in (own, equal) if t is not None), key=lambda t: (t.at, t.key == key), default=None)


def _keep(known: OrderedDict[K, Try], key: K, tried: Try, most: int) -> None:
    known.pop(key, None)
    known[key] = tried
    if len(known) > most:
        known.popitem(last=False)
