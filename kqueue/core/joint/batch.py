"""The batch of a round: the waiting workloads that are planned together, and their ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from kqueue.core.joint.settings import JointOrder
from kqueue.core.value import value
from kqueue.core.workload import Head


@value(kw_only=True)
class Batch:
    """Workloads by ClusterQueue, each queue in its order.

    Args:
        strict: ClusterQueues whose workloads never pass each other.
    """

    queues: Mapping[str, tuple[Head, ...]]
    strict: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return sum(map(len, self.queues.values()))

    def heads(self) -> Iterable[Head]:
        """Return all workloads, queue by queue."""
        return (head for heads in self.queues.values() for head in heads)

    def lines(self) -> dict[str, deque[Head]]:
        """Return new queues of the workloads, which the caller may change."""
        return {name: deque(heads) for name, heads in self.queues.items() if heads}


@value(kw_only=True)
class RankedWorkload:
    """A workload of the batch with its place in the order of admission; rank 1 is the first.

    `waited`: whole seconds that it has waited.
    """

    head: Head
    rank: int
    waited: int = 0


def ranked(order: Sequence[Head], how: JointOrder, waited: Mapping[str, int]) -> tuple[RankedWorkload, ...]:
    """Return the workloads with their ranks, in their order.

    With `Strict` each has a rank of its own; with `Priority` all of one priority share a rank, the highest first.

    Args:
        order: the order of admission.
        waited: seconds by UID.
    """
    if how is JointOrder.STRICT:
        places = {head.uid: place for place, head in enumerate(order, 1)}
    else:
        by_priority = {priority: n for n, priority in enumerate(sorted({-head.priority for head in order}), 1)}
        places = {head.uid: by_priority[-head.priority] for head in order}
    found = [RankedWorkload(head=head, rank=places[head.uid], waited=max(0, waited.get(head.uid, 0))) for head in order]
    return tuple(sorted(found, key=lambda one: one.rank))
