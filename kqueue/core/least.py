"""The resources that must be free before a gang starts (`minResources`).

Only the requests of a gang are charged.  The rest of its least resources is promised to an admitted gang: other gangs
of the tree with such a rule do not count that amount as free, so two of them do not both start on room for one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kqueue.core import quota
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Head, PodSetAssignment, Promise, QueueSpec, Snapshot


def columns_of(
    least: Mapping[str, int], pod_sets: Iterable[PodSetAssignment], spec: QueueSpec
) -> dict[str, tuple[FlavorResource, ...]]:
    """Return the columns in which each resource must be free, by the flavors that were chosen.

    A resource that no pod requests has the flavor of the other resources of its group, and without one every flavor of
    the group.  Resources that no group lists are left out.
    """
    chosen: dict[str, set[str]] = {}
    for pod_set in pod_sets:
        for resource, flavor in pod_set.flavors.items():
            chosen.setdefault(resource, set()).add(flavor)
    found: dict[str, tuple[FlavorResource, ...]] = {}
    for resource in least:
        group = next((group for group in spec.groups if resource in group.resources), None)
        if group is None:
            continue
        beside = {flavor for other in group.resources for flavor in chosen.get(other, ())}
        flavors: Collection[str] = chosen.get(resource) or beside or group.flavors
        found[resource] = tuple(FlavorResource(flavor, resource) for flavor in sorted(flavors))
    return found


def has_room(snapshot: Snapshot, queue: str, least: Mapping[str, int]) -> bool:
    """Whether so much is free to a ClusterQueue for a gang without pods: in each group of resources in one flavor.

    False for a ClusterQueue that admits nothing, and for a resource that it does not count though it must.
    """
    spec, room = snapshot.queues.get(queue), LeastRoom(snapshot)
    if spec is None:
        return False
    counted = {resource: amount for resource, amount in least.items() if resource in spec.covered}
    if len(counted) < len(least) and not spec.ignores_undeclared:
        return False
    for group in spec.groups:
        wanted = {resource: amount for resource, amount in counted.items() if resource in group.resources}
        if not any(room.has(queue, flavor, wanted) for flavor in group.flavors) and wanted:
            return False
    return True


def uncounted(head: Head, spec: QueueSpec) -> str:
    """Return a sentence for a resource that the ClusterQueue does not count; empty: it counts all, or need not."""
    if spec.ignores_undeclared:
        return ""
    wrong = next((resource for resource in sorted(head.least) if resource not in spec.covered), "")
    if not wrong:
        return ""
    queue = f"ClusterQueue {head.queue}"
    return f"minResources names {wrong}, which {queue} does not count; take it out or add it to the queue"


class LeastRoom:
    """Compares free amounts with the least resources of gangs, in one cycle."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._promises: list[Promise] = list(snapshot.promises)

    def lacking(
        self, head: Head, pod_sets: Sequence[PodSetAssignment], leaving: Mapping[FlavorResource, int]
    ) -> Blocker | None:
        """Return the first resource of which too little is free; None: enough of all is.

        `leaving`: amounts that workloads to preempt for the requests give back.
        """
        spec = self._snapshot.queues[head.queue]
        asked = _requests(pod_sets)
        for resource, columns in sorted(columns_of(head.least, pod_sets, spec).items()):
            wanted = max(head.least[resource], sum(asked.get(column, 0) for column in columns))
            free = sum(self._free(head.queue, head.key, column) + leaving.get(column, 0) for column in columns)
            if free < wanted:
                return Blocker(
                    kind=BlockerKind.LEAST,
                    queue=head.queue,
                    flavor=columns[0].flavor,
                    resource=resource,
                    asked=wanted,
                    free=max(0, free),
                )
        return None

    def has(self, queue: str, flavor: str, wanted: Mapping[str, int]) -> bool:
        """Whether these amounts are free to the ClusterQueue in one flavor."""
        columns = {FlavorResource(flavor, resource): amount for resource, amount in wanted.items()}
        return all(self._free(queue, "", column) >= amount for column, amount in columns.items())

    def _free(self, queue: str, key: str, column: FlavorResource) -> int:
        """Return the amount that is free to the ClusterQueue in quota and on nodes, without amounts that are promised
        to other Workloads than `key`.
        """
        node = self._snapshot.nodes[queue]
        free = quota.available(node, column)
        view = self._snapshot.topologies.get(column.flavor)
        if view is not None:
            row = view.capacity.row(column.resource)
            free = min(free, int(row.sum()) if row is not None else 0)
        root = node.root
        for promise in self._promises:
            of_tree = self._snapshot.nodes.get(promise.queue)
            if promise.workload != key and of_tree is not None and of_tree.root is root:
                free -= promise.amounts.get(column, 0)
        return free

    def promise(self, head: Head, pod_sets: Sequence[PodSetAssignment]) -> Promise | None:
        """Return, for a gang that is admitted, the amounts that it may still use beyond its requests; None: it has no
        least resources.
        """
        if not head.least:
            return None
        promise = promise_of(head.key, head.queue, head.least, pod_sets, self._snapshot.queues[head.queue])
        self._promises.append(promise)
        return promise


def promise_of(
    workload: str, queue: str, least: Mapping[str, int], pod_sets: Sequence[PodSetAssignment], spec: QueueSpec
) -> Promise:
    """Return the amounts that an admitted gang may use beyond its requests, by column."""
    asked, amounts = _requests(pod_sets), dict[FlavorResource, int]()
    for resource, columns in columns_of(least, pod_sets, spec).items():
        more = least[resource] - sum(asked.get(column, 0) for column in columns)
        if more > 0:
            amounts[columns[0]] = more
    return Promise(workload=workload, queue=queue, amounts=amounts)


def _requests(pod_sets: Iterable[PodSetAssignment]) -> dict[FlavorResource, int]:
    total: dict[FlavorResource, int] = {}
    for pod_set in pod_sets:
        for resource, amount in pod_set.usage.items():
            column = FlavorResource(pod_set.flavors[resource], resource)
            total[column] = total.get(column, 0) + amount
    return total
