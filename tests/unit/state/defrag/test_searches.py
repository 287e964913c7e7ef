"""The workloads for which plans are searched, and the memory of searches."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.core.steps import result_of
from kqueue.model.pending import Pending
from kqueue.runtime.store import Store
from kqueue.state.defrag.searches import SearchMemory, SearchResult, first_waiting
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from tests.unit.cli.defrag_cluster import NOW
from tests.unit.controllers.defrag_world import gang


@pytest.mark.parametrize(
    ("waiting", "first"),
    [
        ([("a1", "a", 0, 9), ("a2", "a", 0, 8), ("a3", "a", 0, 7), ("a4", "a", 0, 6)], ["a1", "a2", "a3"]),
        ([("a1", "a", 0, 5), ("b1", "b", 0, 9), ("a2", "a", 0, 4)], ["b1", "a1", "a2"]),
        ([("a1", "a", 1, 1), ("b1", "b", 0, 9), ("b2", "b", 5, 1)], ["b2", "a1", "b1"]),
        ([("b1", "b", 0, 9), ("a1", "a", 0, 9)], ["a1", "b1"]),
        ([], []),
    ],
)
def test_priority_and_age_decide_among_queues(waiting: list[tuple[str, str, int, int]], first: list[str]) -> None:
    """The name, the queue, the priority, and the hours for which each of them waits."""
    queues, workloads = Queues(FakeClock(NOW).now), Store[wire.Workload]()
    for queue in ("a", "b"):
        queues.set_cluster_queue(queue, BEST_EFFORT_FIFO)
        queues.set_local_queue(f"team-a/{queue}", queue)
    for name, queue, priority, hours in waiting:
        key = f"team-a/{name}"
        workloads.put(key, msgspec.convert(gang(name), wire.Workload))
        at = NOW - timedelta(hours=hours)
        queues.push(Pending(key=key, uid=name, local_queue=f"team-a/{queue}", priority=priority, timestamp=at,
                            shape=name, version="1"))  # fmt: skip
    assert result_of(first_waiting(queues, workloads, 3)) == [f"team-a/{name}" for name in first]


def test_the_oldest_searches_are_forgotten() -> None:
    memory = SearchMemory()
    for number in range(257):
        memory.note(str(number), SearchResult(at=NOW, message=str(number)))
    memory.note("1", SearchResult(at=NOW, message="again"))
    memory.note("new", SearchResult(at=NOW))
    assert memory.of("0") is None
    assert memory.of("2") is None
    again = memory.of("1")
    assert again is not None
    assert again.message == "again"
