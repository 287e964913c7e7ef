"""The quota trees that ClusterQueues and Cohorts configure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.quota import QuotaNode
from kqueue.core.steps import result_of
from kqueue.core.workload import QueueSpec
from kqueue.state.audit import STEP

UsageOf = Callable[[str], Mapping[quota.FlavorResource, int]]
"""Returns what workloads, and pods without a reservation, use of a ClusterQueue."""


@dataclass(slots=True)
class ConfiguredQueue:
    """A ClusterQueue as configured."""

    wire: wire.ClusterQueue
    spec: QueueSpec
    quotas: Mapping[quota.FlavorResource, quota.Quota]
    problem: str = ""
    """The problem with a field of its spec that cannot be parsed; empty: there is no problem."""

    def gives_out_the_same_as(self, other: ConfiguredQueue) -> bool:
        """Whether quotas, limits, cohort and order of flavors are equal."""
        return (self.quotas, self.spec.groups, self.cohort) == (other.quotas, other.spec.groups, other.cohort)

    @property
    def cohort(self) -> str:
        """The name of its cohort; empty: it has none."""
        return self.wire.spec.cohort_name or ""

    @property
    def weight(self) -> int:
        """The weight of its fair share, in billionths."""
        return model.weight(self.wire.spec.fair_sharing)[0]


@dataclass(slots=True)
class Trees:
    """The quota nodes of all ClusterQueues and cohorts, by name."""

    queues: dict[str, QuotaNode] = field(default_factory=dict)
    cohorts: dict[str, QuotaNode] = field(default_factory=dict)
    cyclic: set[str] = field(default_factory=set)
    """Cohorts that are their own ancestors.  Each is the root of a tree, because its link to its parent is cut."""

    def is_in_cycle(self, queue: str) -> bool:
        """Whether the cohort tree of a ClusterQueue has a cycle."""
        node = self.queues.get(queue) if self.cyclic else None
        return node is not None and node.root.is_cohort and node.root.name in self.cyclic


def build(queues: Mapping[str, ConfiguredQueue], cohorts: Mapping[str, wire.Cohort], usage: UsageOf) -> Trees:
    """Return the trees of these ClusterQueues and Cohorts, charged with their usage."""
    return result_of(build_steps(queues, cohorts, usage))


def build_steps(
    queues: Mapping[str, ConfiguredQueue], cohorts: Mapping[str, wire.Cohort], usage: UsageOf
) -> Generator[None, None, Trees]:
    """Do as `build`, with yields between pieces of the work."""
    trees = Trees()
    for number, (name, queue) in enumerate(queues.items()):
        if number and number % STEP == 0:
            yield
        used = quota.total([usage(name)])
        node = trees.queues[name] = QuotaNode(name, quotas=queue.quotas, weight=queue.weight, usage=used)
        if queue.cohort:
            _link(node, _cohort_node(queue.cohort, trees, cohorts))
    for number, name in enumerate(cohorts):
        if number and number % STEP == 0:
            yield
        _cohort_node(name, trees, cohorts)
    trees.cyclic = _cut_cycles(trees)
    yield
    for number, node in enumerate((*trees.cohorts.values(), *trees.queues.values())):
        if number and number % STEP == 0:
            yield
        if node.parent is None:
            yield from quota.rebuild_steps(node)
    return trees


def cohort_values(obj: wire.Cohort | None) -> tuple[Mapping[quota.FlavorResource, quota.Quota], int]:
    """Return the quotas and the weight of a cohort; None: it has no object."""
    if obj is None:
        return {}, model.weight(None)[0]
    return model.quotas(obj.spec.resource_groups)[0], model.weight(obj.spec.fair_sharing)[0]


def _cohort_node(name: str, trees: Trees, cohorts: Mapping[str, wire.Cohort]) -> QuotaNode:
    known = trees.cohorts.get(name)
    if known is not None:
        return known
    obj = cohorts.get(name)
    quotas, weight = cohort_values(obj)
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


class QuotaEdit:
    """An edit of trees: links and values change, and in the end all values that follow from them.

    Lists of children are replaced, never changed, so that a copy that is being made in steps comes to its end.
    """

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._changed: dict[int, QuotaNode] = {}
        """Nodes with another value or link, by identity."""
        self._same: set[int] = set()
        """The changed nodes that give out the same as before, by identity."""
        self._gone: dict[int, QuotaNode] = {}
        self._came: dict[int, list[QuotaNode]] = {}
        """The nodes that a parent gets, by the identity of the parent."""
        self._left: dict[int, set[int]] = {}
        """The identities of the nodes that a parent loses, by its own."""

    def put_queue(self, name: str, queue: ConfiguredQueue, usage: UsageOf, *, same: bool) -> None:
        """Give a ClusterQueue its quotas, weight and cohort; a new one also its usage.  `same`: it gives out the same
        as before.
        """
        node = self._trees.queues.get(name)
        if node is None:
            node = self._trees.queues[name] = QuotaNode(name, usage=quota.total([usage(name)]))
        elif same:
            self._same.add(id(node))
        node.quotas, node.weight = queue.quotas, queue.weight
        self._move(node, self._cohort(queue.cohort))

    def drop_queue(self, name: str) -> None:
        """Remove a ClusterQueue."""
        node = self._trees.queues.pop(name, None)
        if node is not None:
            self._move(node, None)
            self._gone[id(node)] = self._changed.pop(id(node))

    def put_cohort(self, name: str, obj: wire.Cohort | None) -> None:
        """Give a cohort its quotas, weight and parent; None: it has no object."""
        node = self._cohort(name)
        if node is None:
            return
        node.quotas, node.weight = cohort_values(obj)
        self._move(node, self._cohort(obj.spec.parent_name or "" if obj is not None else ""))

    def _cohort(self, name: str) -> QuotaNode | None:
        """Return the node of a cohort, a new one if there is none; None: there is no name."""
        if not name:
            return None
        node = self._trees.cohorts.get(name)
        if node is None:
            node = self._trees.cohorts[name] = QuotaNode(name, is_cohort=True, weight=cohort_values(None)[1])
            self._changed[id(node)] = node
        return node

    def _move(self, node: QuotaNode, parent: QuotaNode | None) -> None:
        self._changed[id(node)] = node
        former = node.parent
        if former is parent:
            return
        node.parent = parent
        if former is not None:
            self._left.setdefault(id(former), set()).add(id(node))
            self._changed[id(former)] = former
        if parent is not None:
            self._came.setdefault(id(parent), []).append(node)
            self._changed[id(parent)] = parent

    def finish(self, objects: Mapping[str, wire.Cohort]) -> list[QuotaNode]:
        """Compute all values that follow from the changes, and return the new roots of the changed trees.

        A cohort that has no member, and no object among `objects`, is gone.
        """
        for key, parent in self._changed.items():
            left, came = self._left.get(key, ()), self._came.get(key, ())
            if left or came:
                parent.children = [*(child for child in parent.children if id(child) not in left), *came]
        for key, node in [*self._changed.items()]:
            if node.is_cohort and not node.children and node.name not in objects:
                del self._trees.cohorts[node.name]
                self._gone[key] = self._changed.pop(key)
        roots = quota.rebuild_above(self._changed.values())
        for root in roots:
            (self._trees.cohorts if root.is_cohort else self._trees.queues)[root.name] = root
        return roots

    def gives_out_other(self) -> Iterator[QuotaNode]:
        """Yield the changed nodes that give out other quota than before."""
        return (node for key, node in self._changed.items() if key not in self._same)

    def no_roots(self) -> Iterator[QuotaNode]:
        """Yield the nodes that are gone, or are no roots any more."""
        yield from self._gone.values()
        yield from (node for node in self._changed.values() if node.parent is not None)


def has_new_cycle(changed: Iterable[str], cohorts: Mapping[str, wire.Cohort]) -> bool:
    """Whether one of the changed cohorts is its own ancestor, or is below one that is."""
    ended: set[str] = set()
    for name in changed:
        path: dict[str, None] = {}
        while name and name not in ended:
            if name in path:
                return True
            path[name] = None
            obj = cohorts.get(name)
            name = (obj.spec.parent_name or "") if obj is not None else ""
        ended.update(path)
    return False
