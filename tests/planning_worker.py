"""A worker process that plans on pickled snapshots, as planners outside the scheduling loop would."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from kqueue.core.cycle import plan
from kqueue.core.preemption import Rules
from kqueue.core.workload import Head, Snapshot
from tests.unit.core.cycle_worlds import in_short

Q = TypeVar("Q")
A = TypeVar("A")

Question = tuple[Snapshot, Sequence[Head], Rules]


def decide(question: Question) -> list[tuple[object, ...]]:
    """Return the decisions of a plan in short form."""
    snapshot, heads, rules = question
    return [in_short(decision) for decision in plan(snapshot, heads, rules=rules)]


def _call_pickled(function: Callable[[Q], A], question: bytes) -> A:
    return function(pickle.loads(question))


class Worker:
    """A newly started process, which has another hash seed."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def decide(self, question: Question) -> list[tuple[object, ...]]:
        """Return the decisions of the other process."""
        return self.call(decide, question)

    def call(self, function: Callable[[Q], A], question: Q) -> A:
        """Return the result of a function in the other process."""
        return self._pool.submit(_call_pickled, function, pickle.dumps(question)).result(timeout=120)


@contextmanager
def planning_worker() -> Iterator[Worker]:
    """Run the process for the time of the block."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield Worker(pool)
