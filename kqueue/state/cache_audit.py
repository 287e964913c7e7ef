"""The audit of the cache: compares the cache with the objects of the watches, and every sum with its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.core import quota
from kqueue.core.topology import NodeFacts, PodFacts
from kqueue.errors import KqueueError
from kqueue.state import quota_audit
from kqueue.state.audit import Drift, Source, chunks
from kqueue.state.held import HeldSums
from kqueue.state.holdings import Holdings, pod_of
from kqueue.state.ledger import NodeLedger
from kqueue.state.quota_cache import QuotaCache
from kqueue.state.unpaid import UnpaidPod

_WORKLOAD_COST = 10  # an admission with its assignment takes about 0.1 ms to decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """The objects of the watches, with which an audit compares the cache."""

    nodes: Source[NodeFacts]
    pods: Source[model.PodView]
    workloads: Source[wire.Workload]


class CacheAudit:
    """Finds and corrects differences between the cache and the objects of the watches."""

    def __init__(
        self,
        quotas: QuotaCache,
        held: Holdings,
        ledger: NodeLedger,
        on_node: Callable[[str, NodeFacts | None], bool],
        with_devices: Callable[[str, PodFacts | None], PodFacts | None],
    ) -> None:
        """Take the parts of the cache; `on_node` is the function that follows the event of a node, `with_devices`
        returns a pod with the devices that it has claimed.
        """
        self._quota, self._held, self._ledger, self._on_node = quotas, held, ledger, on_node
        self._with_devices = with_devices

    def audit(self) -> list[Drift]:
        """Run all of `audit_steps` at once, for callers without an event loop."""
        return [drift for drifts in self.audit_steps() for drift in drifts]

    def audit_steps(self, told: Told | None = None) -> Iterator[list[Drift]]:
        """Compare the cache with the watches, and every sum with its parts; correct differences.

        Each step is short and yields its differences, usually none. Events may come between steps: a step compares
        present values with present objects. If `told` is None, only sums are compared.
        """
        if told is not None:
            for keys in chunks(_all_keys(told.nodes, self._ledger.nodes)):
                yield self._found(self._audit_node(key, told.nodes.get(key)) for key in keys)
            for keys in chunks(_all_keys(told.pods, self._ledger.pods)):
                yield self._found(self._audit_pod(key, told.pods.get(key)) for key in keys)
            for keys in chunks(_all_keys(told.workloads, self._held.keys()), _WORKLOAD_COST):
                yield self._found(self._audit_workload(key, told.workloads.get(key)) for key in keys)
        for drifts in self._ledger.audit_steps():
            yield self._found(drifts)
        yield from self._audit_quota()

    def audit_charges(self, workloads: Source[wire.Workload]) -> list[Drift]:
        """Compare unconfirmed holdings with their owners; release holdings without an owner.

        A holding is unconfirmed until a watch event confirms it. Its owner is a write under way, or an answer of the
        API server that the watch has not reported yet. The cost is some microseconds for each unconfirmed holding.
        """
        return self._found(self._audit_charge(key, workloads.get(key)) for key in self._held.unowned())

    def audit_workload(self, key: str, told: wire.Workload | None) -> list[Drift]:
        """Compare the usage of one workload with its object in the watch; None: the watch does not have it."""
        return self._found([self._audit_workload(key, told)])

    def _audit_charge(self, key: str, told: wire.Workload | None) -> Drift | None:
        held = self._held.holding(key)
        if held is None or not self._held.give_up(key, told):
            return None
        after = self._held.holding(key)
        return Drift("charge", key, held.admission, after and after.admission)

    def _found(self, drifts: Iterable[Drift | None]) -> list[Drift]:
        found = [drift for drift in drifts if drift is not None]
        self._quota.generation += bool(found)
        return found

    def _audit_node(self, name: str, told: NodeFacts | None) -> Drift | None:
        believed = self._ledger.nodes.get(name)
        return Drift("node", name, believed, told) if self._on_node(name, told) else None

    def _audit_pod(self, key: str, told: model.PodView | None) -> Drift | None:
        believed = self._ledger.pods.get(key)
        actual = self._with_devices(key, told.bound if told is not None else None)
        if believed == actual:
            return None
        self._held.on_pod(key, actual)
        return Drift("foreign-pod", key, believed, actual)

    def _audit_workload(self, key: str, told: wire.Workload | None) -> Drift | None:
        """Compare the usage of a workload with its status. An assumed holding is newer than the status and is kept."""
        believed = self._held.known(key)
        try:
            if told is not None and self._held.agrees_with_watch(told, believed):
                return None
            self._held.on_workload(key, told)
        except KqueueError as error:
            return Drift("workload", key, believed and believed.admission, str(error))
        actual = self._held.known(key)
        return Drift("workload", key, believed and believed.admission, actual and actual.admission)

    def _audit_quota(self) -> Iterator[list[Drift]]:
        yield self._found(self._audit_unpaid(key, unpaid) for key, unpaid in list(self._held.unpaid.items()))
        with self._held.recounts.open() as recount:
            for _ in recount.steps(*self._held.facts()):
                yield []
            for queues in chunks(list(self._quota.queues)):
                yield self._found(
                    quota_audit.audit_queue(self._quota.trees, name, recount.sums.get((name,), {})) for name in queues
                )
            yield self._found([self._audit_sums(recount.sums)])
        for queue in {id(node.root): name for name, node in self._quota.trees.queues.items() if node.parent}.values():
            yield self._found(quota_audit.audit_tree(self._quota.trees, queue))

    def _audit_unpaid(self, key: str, unpaid: UnpaidPod) -> Drift | None:
        """Compare a charged pod with the bound pods."""
        pod = pod_of(key)
        actual = self._ledger.pods.get(pod)
        if actual == unpaid.facts:
            return None
        self._held.release_pod(pod)
        return Drift("quota", f"of pod {pod}", unpaid.facts, actual)

    def _audit_sums(self, counted: Mapping[quota_audit.Place, Mapping[quota.FlavorResource, int]]) -> Drift | None:
        """Compare the sums that statuses and gauges show with the recount."""
        actual = HeldSums(quota_audit.share_of(place, amounts) for place, amounts in counted.items() if len(place) > 1)
        if self._held.sums.is_same_as(actual):
            return None
        self._held.sums = actual
        return Drift("quota", "as shown", "other sums than those of the holdings", "")


def _all_keys(told: Source[object], believed: Iterable[str]) -> Iterator[str]:
    """Yield the keys of the watches, then the keys that only the cache has."""
    yield from list(told)
    yield from (key for key in list(believed) if told.get(key) is None)
