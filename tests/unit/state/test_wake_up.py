"""Wake-ups: the scope of a change becomes names of ClusterQueues in one method."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from kqueue.state.wake_up import Haste, WakeUp, WakeUpSource


class Neighbours:
    """Cohort `all` has `a` and `b`; flavor `f` is listed by `a`, and `twin` with the same nodes by `c`."""

    def in_trees(self, queues: Collection[str], cohorts: Collection[str]) -> set[str]:
        """See `QueueLookup`."""
        trees = {"a": ["a", "b"], "b": ["a", "b"], "c": ["c"]}
        return {one for name in queues for one in trees.get(name, [])} | ({"a", "b"} if "all" in cohorts else set())

    def queues_of_flavor(self, flavor: str) -> list[str]:
        """See `QueueLookup`."""
        return {"f": ["a"], "twin": ["c"]}.get(flavor, [])

    def queues_beside(self, flavor: str) -> set[str]:
        """See `QueueLookup`."""
        return {"a", "c"} if flavor in ("f", "twin") else set()


@pytest.mark.parametrize(
    ("wake_up", "helped"),
    [
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD), set(), id="a change without a scope helps no parked workload"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, cluster_queues=frozenset({"a"})), {"a"}, id="a ClusterQueue alone"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, trees_of=frozenset({"a"})), {"a", "b"}, id="the tree of a ClusterQueue"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, cohorts=frozenset({"all"})), {"a", "b"}, id="the tree of a cohort"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, flavors=frozenset({"twin"})), {"c"}, id="ClusterQueues with a flavor"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, nodes_of=frozenset({"f"})), {"a", "c"}, id="ClusterQueues with a flavor on the same nodes"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, everywhere=True), {"a", "b", "c", "d"}, id="every ClusterQueue"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, trees_of=frozenset({"a"}), flavors=frozenset({"twin"})), {"a", "b", "c"}, id="the union of all fields"),
        pytest.param(WakeUp(source=WakeUpSource.WORKLOAD, trees_of=frozenset({"x"}), cohorts=frozenset({"x"}), flavors=frozenset({"x"}), nodes_of=frozenset({"x"})), set(), id="unknown names"),
    ],
)  # fmt: skip
def test_a_scope_becomes_names_of_cluster_queues(wake_up: WakeUp, helped: set[str]) -> None:
    queues = Queues(lambda: datetime(2026, 1, 1, tzinfo=UTC))
    for name in "abcd":
        queues.set_cluster_queue(name, BEST_EFFORT_FIFO)

    assert queues.helped_by(wake_up, Neighbours()) == helped


def test_every_source_says_when_workloads_are_tried_again() -> None:
    assert all(isinstance(source.haste, Haste) for source in WakeUpSource)
