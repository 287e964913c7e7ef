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
    """What a plan decides, in short."""
    snapshot, heads, rules = question
    return [in_short(decision) for decision in plan(snapshot, heads, rules=rules)]


def _call_pickled(function: Callable[[Q], A], question: bytes) -> A:
    return function(pickle.loads(question))


class Worker:
    """A process of its own, started anew, so with hashes of its own."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def decide(self, question: Question) -> list[tuple[object, ...]]:
        """What the other process decides."""
        return self.call(decide, question)

    def call(self, function: Callable[[Q], A], question: Q) -> A:
        """What a function answers there."""
        return self._pool.submit(_call_pickled, function, pickle.dumps(question)).result(timeout=120)


@contextmanager
def planning_worker() -> Iterator[Worker]:
    """The process lives as long as the block."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield Worker(pool)
