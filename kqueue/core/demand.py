"""Demands of pod sets on a ClusterQueue, flavor by flavor, shared by equal workloads.

Workloads of one form share their pod sets, and many queues list the same flavors.  So totals, columns, eligible flavors
and grants are computed once and cached.  They do not depend on usage, or on the name of a queue.

Values that depend on a ResourceFlavor or its Topology are compared at every use, and computed again after a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kqueue.core.class_choice import ClassFault, class_blocker, class_fault, order_of
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.topology import missing_level
from kqueue.core.topology.matching import matches_labels
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.workload import Flavor, Head, LastTried, PodSet, PodSetAssignment, QueueSpec, ResourceGroup, Snapshot
from kqueue.kube.taints import untolerated_taint

PODS = "pods"

_MOST_GRANTS = 64
"""The largest number of grants of one demand: more than heads of one form get at a time, even with many flavors."""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One flavor for the pod sets of a group, valid for one version of its ResourceFlavor and its Topology.

    Args:
        name: of the flavor.
        flavor: the ResourceFlavor; None: it does not exist.
        topology: name and levels of the flavor's Topology; None: it has no domains.
        problem: why the pods cannot run on its nodes, apart from quota and capacity; None: they can.
        columns: the request for each of its columns.
    """

    name: str
    flavor: Flavor | None
    topology: tuple[str, tuple[str, ...]] | None
    problem: Blocker | None
    columns: tuple[tuple[FlavorResource, int], ...]


Pick = tuple[Option, int]
"""An option, and the index after which the next scan starts (-1: from the first flavor)."""


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """The flavors of the pod sets of a group, with one option for each choice.  Grants are shared: callers must not
    change them.

    `places` are the requests for domains, by topology flavor, without delayed ones; `last_tried` is the scan memory.
    """

    pod_sets: tuple[PodSetAssignment, ...]
    usage: Usage
    places: Mapping[str, Sequence[PodSetRequest]]
    last_tried: LastTried


@dataclass(frozen=True, slots=True, eq=False)
class RequestedGroup:
    """A resource group of the queue that the pod sets request: one of its flavors is chosen."""

    group: ResourceGroup
    asked: Mapping[str, int]
    """The total quota request per resource, of all pod sets."""
    options: dict[int, Option] = field(default_factory=dict)
    """Options that were considered, by the index of their flavor in the group."""
    order: list[int] = field(default_factory=list)
    """Indexes of the flavors in the order of tries, where pod sets name a node class."""


class GroupDemand:
    """The demand of pod sets that get the same flavors, on a queue with these resource groups."""

    def __init__(self, pod_sets: Sequence[PodSet], spec: QueueSpec) -> None:
        self.pod_sets = tuple(pod_sets)
        self._covered, self._delayed = spec.covered, spec.delayed
        self._wanted = [_wanted(pod_set, spec) for pod_set in pod_sets]
        totals = _summed(self._wanted)
        self.uncovered = {resource: totals[resource] for resource in sorted(totals.keys() - spec.covered)}
        """The quota requests of resources that no resource group lists; if there are any, nothing else matters."""
        asked = [(group, {r: totals[r] for r in group.resources if r in totals}) for group in spec.groups]
        self.choices = tuple([RequestedGroup(group, amounts) for group, amounts in asked if amounts])
        self._grants: dict[tuple[Pick, ...], Grant] = {}
        self._names_class = any(pod_set.node_class.names_any for pod_set in pod_sets)
        self._classes: list[Flavor | None] = []
        """The queue's flavors for which options and orders were made, where pod sets name a node class."""
        self._is_met = False
        """Whether these flavors can meet the request for a class."""

    @property
    def name(self) -> str:
        """The name of the first pod set, which represents the group in messages."""
        return self.pod_sets[0].name

    def class_fault(self, head: Head, spec: QueueSpec, snapshot: Snapshot) -> ClassFault | None:
        """Return why the queue can never meet a request for a node class; None: it can, or there is none.

        Orders and options follow the flavors of the snapshot from now on.
        """
        if not self._names_class:
            return None
        flavors = snapshot.flavors
        classes = [flavors.get(name) for group in spec.groups for name in group.flavors]
        if classes != self._classes:
            self._forget(classes, snapshot)
        elif self._is_met:
            return None
        for pod_set, wanted in zip(self.pod_sets, self._wanted, strict=True):
            asked = [resource for resource, amount in wanted.items() if amount]
            fault = class_fault(pod_set, asked, head.pod_sets, spec, flavors)
            if fault is not None:
                return fault
        self._is_met = True
        return None

    def _forget(self, classes: list[Flavor | None], snapshot: Snapshot) -> None:
        """Forget options and orders after a change of any flavor: classes of flavors depend on each other."""
        self._classes, self._is_met = classes, False
        self._grants.clear()
        for choice in self.choices:
            choice.options.clear()
            choice.order[:] = order_of(self.pod_sets, choice.group, snapshot)

    def option(self, choice: RequestedGroup, index: int, snapshot: Snapshot) -> Option:
        """Return a flavor of one of the choices, as it is in the snapshot."""
        known = choice.options.get(index)
        name = choice.group.flavors[index]
        flavor, view = snapshot.flavors.get(name), snapshot.topologies.get(name)
        topology = (view.name, view.tree.levels) if view is not None else None
        if known is not None and known.flavor is flavor and known.topology == topology:
            return known
        if known is not None:
            self._grants.clear()  # grants of the former option are not needed again
        columns = tuple([(FlavorResource(name, resource), amount) for resource, amount in choice.asked.items()])
        problem = self._problem(choice.group, name, snapshot)
        option = choice.options[index] = Option(name, flavor, topology, problem, columns)
        return option

    def _problem(self, group: ResourceGroup, name: str, snapshot: Snapshot) -> Blocker | None:
        for pod_set in self.pod_sets:
            counts_only = pod_set.asks_topology and _counts_only(pod_set, group, self._covered)
            problem = _eligibility(pod_set, name, group, snapshot, counts_only=counts_only)
            if problem is not None:
                return problem
        return None

    def grant(self, picks: tuple[Pick, ...]) -> Grant:
        """Return the grant of one option for each choice."""
        known = self._grants.get(picks)
        if known is None:
            if len(self._grants) >= _MOST_GRANTS:
                self._grants.clear()
            known = self._grants[picks] = self._granted(picks)
        return known

    def _granted(self, picks: tuple[Pick, ...]) -> Grant:
        by_resource = {
            resource: pick for choice, pick in zip(self.choices, picks, strict=True) for resource in choice.asked
        }
        pod_sets: list[PodSetAssignment] = []
        total: Usage = {}
        places: dict[str, list[PodSetRequest]] = {}
        last_tried: dict[tuple[str, str], int] = {}
        for pod_set, wanted in zip(self.pod_sets, self._wanted, strict=True):
            # a pod set without requests gets the flavor that places its group, so that it is placed there, too
            mine = {r: by_resource[r] for r in wanted if r in by_resource} or _placing(by_resource)
            flavors = {r: option.name for r, (option, _) in mine.items()}
            usage = {r: wanted.get(r, 0) for r in mine}
            count = pod_set.request.count
            with_domains = sorted({option.name for option, _ in mine.values() if option.topology is not None})
            placed = bool(with_domains and count and _wants_place(pod_set))
            delayed = placed and with_domains[0] in self._delayed
            pod_sets.append(
                PodSetAssignment(name=pod_set.name, flavors=flavors, usage=usage, count=count, delayed=delayed)
            )
            for resource, (option, index) in mine.items():
                column = FlavorResource(option.name, resource)
                total[column] = total.get(column, 0) + usage[resource]
                last_tried[pod_set.name, resource] = index
            if placed and not delayed:
                places.setdefault(with_domains[0], []).append(pod_set.request)
        return Grant(tuple(pod_sets), total, places, last_tried)


def _wanted(pod_set: PodSet, spec: QueueSpec) -> dict[str, int]:
    """Return the pod set's total quota request per resource; `pods` only if the queue covers it.

    Resources that the queue does not cover are left out if none of them is requested, or if the queue ignores them.
    """
    count, covered = pod_set.request.count, spec.covered
    totals = {
        r: per_pod * count
        for r, per_pod in pod_set.quota_requests.items()
        if r != PODS and (r in covered or (per_pod * count > 0 and not spec.ignores_undeclared))
    }
    if PODS in covered:
        totals[PODS] = count
    return totals


def _summed(amounts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for of_one in amounts:
        for resource, amount in of_one.items():
            totals[resource] = totals.get(resource, 0) + amount
    return totals


def _placing(picks: Mapping[str, Pick]) -> dict[str, Pick]:
    return {r: pick for r, pick in picks.items() if pick[0].flavor is not None and pick[0].flavor.topology is not None}


# --- kept ------------------------------------------------------------------------------------------------------------


_Kept = tuple[tuple[PodSet, ...], tuple[GroupDemand, ...]]


class Demands:
    """A cache of demands by pod sets and by the flavors of a queue."""

    def __init__(self, most: int = 4096) -> None:
        """Take the largest number of cached entries, a few KiB each; beyond it the cache starts empty."""
        self._most = most
        self._known: dict[tuple[object, ...], _Kept] = {}
        """The key has the identities of pod sets; the value keeps references to them, so that identities stay
        unique.
        """

    def __len__(self) -> int:
        return len(self._known)

    def of(self, pod_sets: tuple[PodSet, ...], spec: QueueSpec) -> tuple[GroupDemand, ...]:
        """Return the demands of a workload's pod sets on a queue, one for each group of pod sets."""
        key = (id(pod_sets), spec.groups, spec.ignores_undeclared, spec.delayed)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= self._most:
                self._known.clear()
            demands = tuple([GroupDemand(group, spec) for group in _groups(pod_sets)])
            known = self._known[key] = pod_sets, demands
        return known[1]


def _groups(pod_sets: Sequence[PodSet]) -> list[list[PodSet]]:
    groups: dict[str, list[PodSet]] = {}
    for index, pod_set in enumerate(pod_sets):
        # a group name is never a number (validation), so the index cannot equal one
        groups.setdefault(pod_set.request.group or str(index), []).append(pod_set)
    return list(groups.values())


# --- eligibility -----------------------------------------------------------------------------------------------------


def _counts_only(pod_set: PodSet, resource_group: ResourceGroup, covered: frozenset[str]) -> bool:
    """Whether the group has only resources that transformations made, and another group has resources that pods
    request. Then the flavor of the other group decides the nodes.
    """
    own = pod_set.request.requests.keys()
    return own.isdisjoint(resource_group.resources) and not own.isdisjoint(covered)


def _eligibility(
    pod_set: PodSet, name: str, group: ResourceGroup, snapshot: Snapshot, *, counts_only: bool
) -> Blocker | None:
    """Return why the pod set's pods cannot run on the flavor's nodes, quota and capacity aside; None: they can.

    `counts_only`: a flavor without nodes is accepted, too.
    """
    flavor = snapshot.flavors.get(name)
    if flavor is None:
        return Blocker(kind=BlockerKind.FLAVOR_MISSING, pod_set=pod_set.name, flavor=name)
    kept_out = class_blocker(pod_set, flavor, group, snapshot.flavors)
    if kept_out is not None:
        return kept_out
    if counts_only and flavor.topology is None:
        return _node_problem(pod_set, flavor)
    return _topology_problem(pod_set, flavor, snapshot) or _node_problem(pod_set, flavor)


def _wants_place(pod_set: PodSet) -> bool:
    return pod_set.asks_topology or pod_set.request.topology.implied


def _topology_problem(pod_set: PodSet, flavor: Flavor, snapshot: Snapshot) -> Blocker | None:
    def blocker(detail: str) -> Blocker:
        return Blocker(kind=BlockerKind.FLAVOR_TOPOLOGY, pod_set=pod_set.name, flavor=flavor.name, detail=detail)

    if not _wants_place(pod_set):
        return blocker("it places pods by topology and this pod set asks for none") if flavor.topology else None
    if flavor.topology is None:
        return blocker("it names no topology; set spec.topologyName or use another flavor")
    view = snapshot.topologies.get(flavor.name)
    if view is None:
        return blocker(f"Topology {flavor.topology} is not known")
    level = missing_level(view.tree, pod_set.request)
    if level is not None:
        return blocker(f"Topology {view.name} has no level {level}; it has {', '.join(view.tree.levels)}")
    return None


def _node_problem(pod_set: PodSet, flavor: Flavor) -> Blocker | None:
    rules = pod_set.request.rules
    taint = untolerated_taint(flavor.taints, (*rules.tolerations, *flavor.tolerations)) if flavor.taints else None
    if taint is not None:
        return Blocker(kind=BlockerKind.FLAVOR_TAINT, pod_set=pod_set.name, flavor=flavor.name, detail=str(taint))
    if not matches_labels(rules, flavor.node_labels, only_keys=frozenset(flavor.node_labels)):
        return Blocker(kind=BlockerKind.FLAVOR_LABELS, pod_set=pod_set.name, flavor=flavor.name)
    return None
