"""Parts of audits: differences, and sums that are recomputed while events change the facts.

An audit runs in short steps, and events may come between two steps, so each step compares the present values with the
present facts. A sum over all facts takes longer than one step: a `Recount` follows changes until it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

F = TypeVar("F")
P = TypeVar("P", bound=Hashable)
C = TypeVar("C", bound=Hashable)
K = TypeVar("K")
V_co = TypeVar("V_co", covariant=True)

STEP = 500
"""Entries per step: nodes, pods, workloads or leaves cost 1 to 20 us each, so a step stays near 5 ms."""


@dataclass(frozen=True, slots=True)
class Drift:
    """A difference between the cache and the facts.

    `cause`, as in metrics: `charge` (usage of a decision without a write), `queue` (a waiting workload that was in no
    queue), `node`, `foreign-pod` and `workload` (an object that the cache missed, or kept after it was gone; for
    `foreign-pod` also the sum on a node), `tas-usage` (of a domain), `tree` (members and leaves of a flavor),
    `capacity` (free on a leaf), `quota` (used of a ClusterQueue or Cohort). `key` names the object; in `believed` and
    `actual`, None means that the object does not exist.
    """

    cause: str
    key: str
    believed: object
    actual: object

    def __str__(self) -> str:
        return f"{self.cause} {self.key}: believed {short(self.believed)}, is {short(self.actual)}"


def short(value: object) -> str:
    """Return one side of a drift as text for a line of the log, at most 200 characters."""
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 200 else f"{text[:197]}..."


class Source(Protocol[V_co]):
    """The present objects by key, with which an audit compares: the store of a watch, or a dictionary."""

    def get(self, key: str, /) -> V_co | None:
        """Return the object; None: it does not exist."""
        ...

    def __iter__(self) -> Iterator[str]: ...


def chunks(keys: Iterable[K], cost: int = 1) -> Iterator[list[K]]:
    """Yield the keys in lists, each with the keys of one step; `cost`: how many usual entries the time for one key
    would cover.
    """
    source = iter(keys)
    while chunk := list(islice(source, max(1, STEP // cost))):
        yield chunk


class Recount(Generic[F, P, C]):
    """Sums over facts by place and column, computed again a few facts at a time.

    The result is correct if every change is passed to `follow`: a change of a counted fact is applied to the sum; a
    fact that is not counted yet is counted in its later version.
    """

    def __init__(self, parts: Callable[[F], Iterable[tuple[P, Iterable[tuple[C, int]]]]]) -> None:
        """Take `parts`, which returns the amounts that a fact adds to each place."""
        self._parts = parts
        self._counted: set[str] = set()
        self.sums: dict[P, dict[C, int]] = {}

    def steps(self, *layers: Mapping[str, F]) -> Iterator[None]:
        """Count the facts of these mappings, one chunk in each step; no key may be in two mappings."""
        for facts in layers:
            for chunk in chunks(list(facts)):
                for key in chunk:
                    fact = facts.get(key)
                    if fact is not None and key not in self._counted:
                        self.follow(key, None, fact)
                yield

    def follow(self, key: str, before: F | None, after: F | None) -> None:
        """Apply the change of a fact from `before` (None: it is new) to `after` (None: it is gone)."""
        if before is not None and key in self._counted:
            self._add(before, -1)
        if after is None:
            self._counted.discard(key)
        else:
            self._counted.add(key)
            self._add(after, 1)

    def _add(self, fact: F, sign: int) -> None:
        for place, amounts in self._parts(fact):
            total = self.sums.setdefault(place, {})
            accumulate(total, amounts, sign)
            if not total:
                del self.sums[place]


class Recounts(Generic[F, P, C]):
    """The running recounts of one kind of facts; every change of a fact is passed to them."""

    def __init__(self, parts: Callable[[F], Iterable[tuple[P, Iterable[tuple[C, int]]]]]) -> None:
        self._parts = parts
        self._open: list[Recount[F, P, C]] = []

    @contextmanager
    def open(self) -> Iterator[Recount[F, P, C]]:
        """Return a recount that follows every change inside the block."""
        recount = Recount(self._parts)
        self._open.append(recount)
        try:
            yield recount
        finally:
            self._open.remove(recount)

    def follow(self, key: str, before: F | None, after: F | None) -> None:
        """Pass the change of a fact to all open recounts; None as in `Recount.follow`."""
        for recount in self._open:
            recount.follow(key, before, after)


def accumulate(total: dict[C, int], amounts: Iterable[tuple[C, int]], factor: int) -> None:
    """Add factor x amounts to `total`; zero amounts are removed, so that equal sums are equal values."""
    for column, amount in amounts:
        value = total.get(column, 0) + amount * factor
        if value:
            total[column] = value
        else:
            total.pop(column, None)
