"""A snapshot from which workloads can be removed and put back, and which is unchanged at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from kqueue.core import quota
from kqueue.core.charging import charge_domains, own_domains, release_domains, same_hosts
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.result import DomainUsage
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Admitted, Snapshot


class Simulation:
    """Changes to a snapshot that are rolled back at the end of the block of `simulate`, which creates the object."""

    def __init__(
        self,
        snapshot: Snapshot,
        undo: ExitStack,
        matters: Callable[[Admitted], bool],
        *,
        with_domains: bool,
        columns: tuple[FlavorResource, ...] | None,
    ) -> None:
        self.snapshot = snapshot
        self.moves = 0
        """Grows with every change of the free capacity of hosts.  While it is equal, results about hosts stay
        the same.
        """
        self.returns = 0
        """Grows when a workload is put back.  While it is equal, a workload that fitted still fits."""
        self.released = 0
        """The number of domains released so far."""
        self.back: set[Admitted] = set()
        """Workloads that returned to their hosts since this set was last emptied."""
        self._matters = matters
        self._with_domains = with_domains
        self._undo = undo
        self._columns = columns
        self._kept: set[QuotaNode] = set()
        self._in_trial: set[str] = set()

    def remove(self, admitted: Admitted) -> None:
        """Release the quota and the hosts of the workload; hosts in its own flavors only."""
        self.uncharge(admitted.queue, admitted.usage)
        if self._with_domains and self._matters(admitted):
            self.back.discard(admitted)
            for capacity, domains in self._own(admitted):
                capacity.release(domains)
                self.moves += 1
                self.released += len(domains)

    def put_back(self, admitted: Admitted) -> None:
        """Undo `remove`."""
        self.returns += 1
        self.charge(admitted.queue, admitted.usage)
        if self._matters(admitted):
            self.back.add(admitted)
            if self._with_domains:
                for capacity, domains in self._own(admitted):
                    capacity.charge(domains)
                    self.moves += 1

    def dismiss(self, admitted: Admitted) -> None:
        """Remove an evicted workload, and free its hosts in all flavors with the same hosts.

        If the snapshot does not have the quota tree of the workload, only the hosts are freed.
        """
        if admitted.queue in self.snapshot.nodes:
            self.uncharge(admitted.queue, admitted.usage)
        if self._with_domains:
            for flavor, domains in admitted.domains.items():
                self._try_on_all(flavor)
                release_domains(flavor, domains, self.snapshot.topologies)
                self.moves += 1
                self.released += len(domains)

    def charge(
        self,
        queue: str,
        usage: Mapping[FlavorResource, int],
        domains: Mapping[str, tuple[DomainUsage, ...]] | None = None,
    ) -> None:
        """Charge quota, and hosts in every flavor that has the same hosts, for a workload of this queue."""
        node = self.snapshot.nodes[queue]
        if node not in self._kept:
            self._keep(node)
        for column, amount in self._of_interest(usage):
            quota.add_usage(node, column, amount)
        if self._with_domains and domains:
            for flavor, taken in domains.items():
                self._try_on_all(flavor)
                charge_domains(flavor, taken, self.snapshot.topologies)
                self.moves += 1

    def uncharge(self, queue: str, usage: Mapping[FlavorResource, int]) -> None:
        """Release the quota that `charge` charged."""
        node = self.snapshot.nodes[queue]
        if node not in self._kept:
            self._keep(node)
        for column, amount in self._of_interest(usage):
            quota.remove_usage(node, column, amount)

    def free_more(self, flavor: str, leaves: Ints, amounts: Mapping[str, Ints]) -> None:
        """Add free capacity to leaves of one flavor, in the form of `Capacity.add_many`."""
        if self._with_domains:
            self._try_on(flavor).add_many(leaves, amounts)
            self.moves += 1

    def _of_interest(self, usage: Mapping[FlavorResource, int]) -> Iterable[tuple[FlavorResource, int]]:
        columns = self._columns
        if columns is None or len(columns) >= len(usage):
            return usage.items()
        return [(column, usage[column]) for column in columns if column in usage]

    def shift(self, node: QuotaNode, column: FlavorResource, amount: int) -> None:
        """Charge only one node of the tree; a negative amount releases."""
        self._keep(node)
        quota.shift_usage(node, column, amount)

    def _keep(self, node: QuotaNode) -> None:
        """Save the usage of the nodes up to the root, before the first change."""
        for ancestor in node.path_to_root():
            if ancestor in self._kept:
                return
            self._kept.add(ancestor)
            self._undo.callback(quota.set_usage, ancestor, ancestor.usage.copy())

    def _own(self, admitted: Admitted) -> Iterator[tuple[Capacity, tuple[DomainUsage, ...]]]:
        """Yield, for each topology flavor of the workload, the capacity to change and the workload's usage."""
        for flavor, domains in own_domains(admitted, self.snapshot.topologies):
            if flavor in self.snapshot.topologies:
                yield self._try_on(flavor), domains

    def _try_on(self, flavor: str) -> Capacity:
        """Return the capacity of a flavor, whose changes are rolled back at the end."""
        capacity = self.snapshot.topologies[flavor].capacity
        if flavor not in self._in_trial:
            self._in_trial.add(flavor)
            self._undo.enter_context(capacity.trial())
        return capacity

    def _try_on_all(self, flavor: str) -> None:
        for name in same_hosts(flavor, self.snapshot.topologies):
            self._try_on(name)


def everybody(_: Admitted) -> bool:
    """Return True: the hosts of every workload matter."""
    return True


@contextmanager
def simulate(
    snapshot: Snapshot,
    *,
    with_domains: bool = True,
    matters: Callable[[Admitted], bool] = everybody,
    columns: Iterable[FlavorResource] | None = None,
) -> Iterator[Simulation]:
    """Change the snapshot inside the block through the Simulation; roll all changes back at the end of the block.

    `with_domains=False` changes quota only. `matters` returns whether the hosts of a removed workload are released.
    `columns` are the columns of quota that matter (None: all). Blocks may be nested.
    """
    asked = None if columns is None else tuple(columns)
    with ExitStack() as undo:
        yield Simulation(snapshot, undo, matters, with_domains=with_domains, columns=asked)
