"""The quota trees that ClusterQueues and Cohorts configure."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.quota import QuotaNode
from kqueue.core.steps import result_of
from kqueue.core.workload import QueueSpec
from kqueue.state.audit import STEP
from kqueue.state.held import HoldingShare


@dataclass(slots=True)
class ConfiguredQueue:
    """A ClusterQueue as configured."""

    wire: wire.ClusterQueue
    spec: QueueSpec
    quotas: Mapping[quota.FlavorResource, quota.Quota]
    node: QuotaNode
    problem: str = ""
    """The problem with a field of its spec that cannot be parsed; empty: there is no problem."""

    def gives_out_the_same_as(self, other: ConfiguredQueue) -> bool:
        """Whether quotas, limits, cohort and order of flavors are equal."""
        return (self.quotas, self.spec.groups, self.wire.spec.cohort_name) == (
            other.quotas,
            other.spec.groups,
            other.wire.spec.cohort_name,
        )


@dataclass(slots=True)
class Trees:
    """The quota nodes, rebuilt when the quota or the parent of a ClusterQueue or Cohort changes."""

    queues: dict[str, QuotaNode] = field(default_factory=dict)
    cohorts: dict[str, QuotaNode] = field(default_factory=dict)
    in_cycle: set[str] = field(default_factory=set)
    """ClusterQueues whose cohort tree has a cycle."""


def build(
    queues: Mapping[str, ConfiguredQueue], cohorts: Mapping[str, wire.Cohort], shares: Iterable[HoldingShare]
) -> Trees:
    """Return the trees of these ClusterQueues and Cohorts, charged with these shares of usage; each of `queues` gets
    its node.
    """
    return result_of(build_steps(queues, cohorts, shares))


def build_steps(
    queues: Mapping[str, ConfiguredQueue], cohorts: Mapping[str, wire.Cohort], shares: Iterable[HoldingShare]
) -> Generator[None, None, Trees]:
    """Do as `build`, with yields between pieces of the work."""
    trees = Trees()
    for number, (name, queue) in enumerate(queues.items()):
        if number and number % STEP == 0:
            yield
        weight, _ = model.weight(queue.wire.spec.fair_sharing)
        queue.node = trees.queues[name] = QuotaNode(name, quotas=queue.quotas, weight=weight)
        cohort = queue.wire.spec.cohort_name
        if cohort:
            _link(trees.queues[name], _cohort_node(cohort, trees, cohorts))
    for number, name in enumerate(cohorts):
        if number and number % STEP == 0:
            yield
        _cohort_node(name, trees, cohorts)
    cyclic = _cut_cycles(trees)
    yield
    for number, share in enumerate(shares):
        if number and number % STEP == 0:
            yield
        node = trees.queues.get(share.queue)
        if node is not None:
            node.usage = quota.total([node.usage, share.usage])
    yield
    for number, node in enumerate((*trees.cohorts.values(), *trees.queues.values())):
        if number and number % STEP == 0:
            yield
        if node.parent is None:
            yield from quota.rebuild_steps(node)
    trees.in_cycle = {q.name for c in cyclic for q in trees.cohorts[c].walk() if not q.is_cohort}
    return trees


def _cohort_node(name: str, trees: Trees, cohorts: Mapping[str, wire.Cohort]) -> QuotaNode:
    known = trees.cohorts.get(name)
    if known is not None:
        return known
    obj = cohorts.get(name)
    quotas = model.quotas(obj.spec.resource_groups)[0] if obj is not None else {}
    weight, _ = model.weight(obj.spec.fair_sharing if obj is not None else None)
    node = trees.cohorts[name] = QuotaNode(name, is_cohort=True, quotas=quotas, weight=weight)
    if obj is not None and obj.spec.parent_name:
        _link(node, _cohort_node(obj.spec.parent_name, trees, cohorts))
    return node


def _cut_cycles(trees: Trees) -> set[str]:
    """Unlink cohorts that are their own ancestor, so that walks to the root end; return their names."""
    cyclic: set[str] = set()
    for name, node in trees.cohorts.items():
        seen, above = {id(node)}, node.parent
        while above is not None and id(above) not in seen:
            seen.add(id(above))
            above = above.parent
        if above is node:
            cyclic.add(name)
    for name in cyclic:
        node = trees.cohorts[name]
        if node.parent is not None:
            node.parent.children.remove(node)
            node.parent = None
    return cyclic


def _link(child: QuotaNode, parent: QuotaNode) -> None:
    child.parent = parent
    parent.children.append(child)
