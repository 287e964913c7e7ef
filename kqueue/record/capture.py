"""Values that the scheduling loop hands to the thread that writes the record: they do not change any more.

The loop copies only what a plan changes in place: usage in quota trees that have changed since the last capture.  Free
amounts are forked, which copies nothing until they change.  Everything else is shared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Protocol, runtime_checkable

from kqueue.core.decision import Decision
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.quota import FlavorResource, Quota, QuotaNode, Usage
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.tree import Tree
from kqueue.core.workload import Admitted, Head, Snapshot
from kqueue.record.plugin_answers import StoredAnswers
from kqueue.record.told import ToldInterval


@dataclass(frozen=True, slots=True, eq=False)
class QuotaTreeShape:
    """The nodes of a quota tree, parents first; `parents` are their numbers, -1 for the root.

    The same object as long as the nodes are the same.
    """

    nodes: Sequence[QuotaNode]
    parents: Sequence[int]


@dataclass(frozen=True, slots=True, eq=False)
class QuotaTreeState:
    """A quota tree at one moment: quotas and usage of each node.  The same object as long as nothing changes."""

    key: str
    shape: QuotaTreeShape
    quotas: Sequence[Mapping[FlavorResource, Quota]]
    usage: Sequence[Usage]


@dataclass(frozen=True, slots=True)
class TopologyState:
    """The domains of a flavor at one moment; `capacity` is a fork that nothing charges."""

    topology: str
    tree: Tree
    capacity: Capacity
    unusable: tuple[str, ...]


Lines = Mapping[str, Mapping[str, Head]]
"""By StrictFIFO ClusterQueue: the workloads that wait behind its head and are not tried, by UID; no value changes."""


@dataclass(slots=True, kw_only=True)
class CapturedCycle:
    """A question, and what was asked and decided while it was answered.

    The snapshot of `question` has neither quota trees nor domains nor workloads with usage: `trees`, `topologies` and
    `admitted` have them, and `cluster_queues` are those of all its trees.
    `asked`: each call of `next_head`, as the ClusterQueue, the workloads to leave out, and the answer.
    `lines`: by StrictFIFO ClusterQueue of the heads, the workloads that wait behind its head, by UID.
    `plugin_answers`: what plugins answered; None: there are none.
    """

    number: int
    question: PlanQuestion
    cluster_queues: Sequence[str]
    trees: Sequence[QuotaTreeState]
    topologies: Mapping[str, TopologyState]
    admitted: Mapping[str, Mapping[str, Admitted]]
    lines: Lines = field(default_factory=dict)
    plugins: Collection[str] = ()
    plugin_answers: StoredAnswers | None = None
    asked: list[tuple[str, tuple[str, ...], Head | None]] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    answers: Sequence[bytes] | None = None
    """The decisions as texts, where they were read from a record; None: `decisions` has them."""
    error: str = ""
    """Why the plan ended early; empty: it did not."""
    told: Sequence[ToldInterval] = ()
    """Start times that were told since the cycle before."""


class Captures:
    """Captures questions one after the other."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[int], int, QuotaTreeState]] = {}
        """The last state of a quota tree, by the identity of its counter of changes."""

    def take(self, number: int, question: PlanQuestion, lines: Lines | None = None) -> CapturedCycle:
        """Return the question as it is now; `lines` are those of the StrictFIFO ClusterQueues of its heads."""
        snapshot = question.snapshot
        values = replace(snapshot, nodes={}, topologies={}, admitted={})  # so that the next cycle may reuse these
        return CapturedCycle(
            number=number,
            question=replace(question, snapshot=values),
            cluster_queues=tuple(snapshot.nodes),
            trees=self._trees(snapshot),
            topologies={
                name: TopologyState(view.name, view.tree, view.capacity.fork(), view.unusable)
                for name, view in snapshot.topologies.items()
            },
            admitted=_admitted(snapshot),
            lines=lines or {},
            plugins=sorted({profile for profile in question.hooks if profile}),
        )

    def _trees(self, snapshot: Snapshot) -> list[QuotaTreeState]:
        before, self._known = self._known, {}
        for node in snapshot.nodes.values():
            counter = node.changes
            if id(counter) in self._known:
                continue
            known = before.get(id(counter))
            if known is None or known[0] is not counter:
                known = counter, counter[0], tree_state(node.root)
            elif known[1] != counter[0]:
                known = counter, counter[0], tree_state(node.root, known[2].shape)
            self._known[id(counter)] = known
        return [state for _, _, state in self._known.values()]


@runtime_checkable
class DeferredAdmitted(Protocol):
    """Workloads with usage by ClusterQueue that need not be made on the event loop."""

    def deferred(self, queue: str) -> Mapping[str, Admitted]:
        """Return the workloads of a ClusterQueue, which are made at the first use, also on another thread."""
        ...


def _admitted(snapshot: Snapshot) -> dict[str, Mapping[str, Admitted]]:
    """Return the workloads with usage; to make those of a large cluster would hold the loop for a tenth of a second."""
    admitted = snapshot.admitted
    of = admitted.deferred if isinstance(admitted, DeferredAdmitted) else admitted.get
    return {queue: found for queue in snapshot.nodes if (found := of(queue))}


def tree_state(root: QuotaNode, known: QuotaTreeShape | None = None) -> QuotaTreeState:
    """Return the present state of a quota tree; `known` is its former shape."""
    nodes, parents = [root], [-1]
    for number, node in enumerate(nodes):  # grows while it is walked
        if node.children:
            nodes += node.children
            parents += [number] * len(node.children)
    is_known = known is not None and len(known.nodes) == len(nodes) and all(map(is_, known.nodes, nodes))
    shape = known if known is not None and is_known else QuotaTreeShape(nodes, parents)
    key = f"{'cohort' if root.is_cohort else 'queue'}/{root.name}"
    return QuotaTreeState(key, shape, [node.quotas for node in nodes], [node.usage.copy() for node in nodes])
