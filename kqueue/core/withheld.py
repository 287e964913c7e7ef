"""Capacity that entries of one cycle withhold from later ones, because they wait for it."""

from __future__ import annotations

from collections.abc import Iterable

from kqueue.core import quota
from kqueue.core.charging import charge_domains, release_domains
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Snapshot


class WithheldCapacity:
    """Charges a snapshot, and can take the charges back."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._quota: list[tuple[QuotaNode, FlavorResource, int]] = []
        self._domains: list[tuple[str, tuple[DomainUsage, ...]]] = []

    def add_quota(self, node: QuotaNode, column: FlavorResource, amount: int) -> None:
        """Withhold quota."""
        quota.add_usage(node, column, amount)
        self._quota.append((node, column, amount))

    def add_domains(self, flavor: str, usage: Iterable[DomainUsage]) -> None:
        """Withhold hosts of this flavor, and of all with the same hosts."""
        usage = tuple(usage)
        charge_domains(flavor, usage, self._snapshot.topologies)
        self._domains.append((flavor, usage))

    def give_back(self) -> None:
        """Take all charges back."""
        for node, column, amount in reversed(self._quota):
            quota.remove_usage(node, column, amount)
        for flavor, usage in self._domains:
            release_domains(flavor, usage, self._snapshot.topologies)
        self._quota.clear()
        self._domains.clear()
