"""The placement of an admitted Workload, its quality, and the quota that its ClusterQueue borrows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.core import quota
from kqueue.core.charging import counted_in
from kqueue.core.quantity import format_quantity
from kqueue.core.topology import DEFAULT_PROFILE, PodSetRequest, TopologyAssignment
from kqueue.core.topology.summary import domains_above_hosts
from kqueue.core.why.quality import quality_now
from kqueue.core.workload import Admission, PodSetAssignment, TopologyView
from kqueue.errors import InvalidObjectError
from kqueue.state.cache import Cache
from kqueue.state.not_running import NotRunning, sentences
from kqueue.visibility.explained import levels
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.question import JSON

_DOMAINS_SHOWN = 64
_PODS_NAMED, _SENTENCES = 10, 5
"""Limits of named pods that do not run, and of shown sentences of schedulers."""


class RunningPlaces:
    """Describes the placements of Workloads."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def placement(self, obj: wire.Workload, pace: RequestPace) -> JSON:
        """Return the placement in the status, which the pods follow."""
        try:
            admission = self._admission(obj)
        except InvalidObjectError as e:
            return {"clusterQueue": "", "podSets": [], "problem": str(e)}
        if admission is None:
            return {"clusterQueue": "", "podSets": []}
        for _ in self._cache.ledger.build_steps():
            await pace.step()
        shown: JSON = {"clusterQueue": admission.queue}
        since = model.since(obj, names.CONDITION_ADMITTED)
        if since is not None:
            shown["admittedAt"] = utc_text(since)
        requests = self._requests(obj, admission)
        shown["podSets"] = []
        for pod_set in admission.pod_sets:
            shown["podSets"].append(self._pod_set(pod_set, admission, requests))
            await pace.step()
        borrowed = list(self._borrowed(admission))
        if borrowed:
            shown["borrows"] = borrowed
        if obj.status.unhealthy_nodes:
            shown["failedNodes"] = [node.name for node in obj.status.unhealthy_nodes]
        ready = model.condition(obj.status.conditions, names.CONDITION_PODS_READY)
        if ready is not None:
            shown["podsReady"] = ready.status == "True"
        return shown

    def _admission(self, obj: wire.Workload) -> Admission | None:
        """Return the admission of the status. The cache has parsed it if the workload holds quota, which saves parsing
        thousands of hosts again.
        """
        holding = self._cache.held.holding(model.workload_key(obj))
        if holding is not None and holding.uid == obj.metadata.uid and not holding.assumed and holding.replaces is None:
            return holding.admission
        return self._cache.requests.admission(obj)

    def _requests(self, obj: wire.Workload, admission: Admission) -> dict[str, PodSetRequest]:
        """Return the requests of the pod sets with their admitted counts; empty if the Workload is not valid."""
        try:
            head = self._cache.requests.head(obj, queue=admission.queue, topology_only=True, last_tried={})
        except InvalidObjectError:
            return {}
        counts = {pod_set.name: pod_set.count for pod_set in admission.pod_sets}
        return {p.name: replace(p.request, count=counts[p.name]) for p in head.pod_sets if counts.get(p.name, 0) > 0}

    def _pod_set(self, held: PodSetAssignment, admission: Admission, requests: Mapping[str, PodSetRequest]) -> JSON:
        shown: JSON = {
            "name": held.name,
            "count": held.count,
            "flavors": dict(held.flavors),
            "usage": {resource: format_quantity(amount, resource) for resource, amount in held.usage.items()},
        }
        if held.topology is not None:
            shown["placement"] = self._placement(held, held.topology, admission, requests)
        return shown

    def _placement(
        self,
        held: PodSetAssignment,
        where: TopologyAssignment,
        admission: Admission,
        requests: Mapping[str, PodSetRequest],
    ) -> JSON:
        flavor = counted_in(held, self._cache.ledger.flavors())
        capacity = self._cache.ledger.capacity(flavor) if flavor is not None else None
        shown: JSON = {"levels": []}
        if flavor is None or capacity is None:
            shown["lost"] = where.count
            shown["lostHosts"] = sorted({domain.values[-1] for domain in where.domains})[:_DOMAINS_SHOWN]
            return shown
        view = TopologyView(capacity.tree.topology, capacity.tree, capacity.fork())
        shown["topology"] = view.name
        shown["levels"] = self._quality(held, admission, requests, view)
        domains, lost = domains_above_hosts(view.tree, where)
        shown["domains"] = [{"domain": list(path), "pods": pods} for path, pods in domains[:_DOMAINS_SHOWN]]
        if len(domains) > _DOMAINS_SHOWN:
            shown["moreDomains"] = len(domains) - _DOMAINS_SHOWN
        if lost:  # the host is not in the topology any more
            shown["lost"] = sum(lost.values())
            shown["lostHosts"] = sorted(lost)[:_DOMAINS_SHOWN]
        return shown

    def _quality(
        self,
        held: PodSetAssignment,
        admission: Admission,
        requests: Mapping[str, PodSetRequest],
        view: TopologyView,
    ) -> list[JSON]:
        request = requests.get(held.name)
        if request is None:
            return []
        group = [r for r in requests.values() if r is request or (request.group and r.group == request.group)]
        places = {p.name: p.topology for p in admission.pod_sets if p.topology is not None}
        spec = self._cache.quota.queue_spec(admission.queue)
        return levels(quality_now(view, group, places, spec.profile if spec is not None else DEFAULT_PROFILE))

    def _borrowed(self, admission: Admission) -> Iterator[JSON]:
        """Yield the amounts that the ClusterQueue borrows of the resources that the workload uses."""
        node = self._cache.quota.node_of(admission.queue)
        if node is None or node.parent is None:
            return
        for column, amount in sorted(admission.usage().items()):
            borrowed = quota.borrowed(node, column)
            if borrowed and amount:
                resource = column.resource
                yield {
                    "flavor": column.flavor,
                    "resource": resource,
                    "usedByIt": format_quantity(amount, resource),
                    "usedByQueue": format_quantity(node.usage.get(column, 0), resource),
                    "nominal": format_quantity(node.quota(column).nominal, resource),
                    "borrowedByQueue": format_quantity(borrowed, resource),
                    "from": f"cohort {node.parent.name}",
                }


def pods_not_running(pods: Sequence[NotRunning], now: datetime) -> JSON:
    """Return released pods that do not run, the longest first, as `podsNotRunning`; empty if all run."""
    if not pods:
        return {}
    since = pods[0].since
    shown: JSON = {"count": len(pods), "time": utc_text(since), "secondsAgo": int((now - since).total_seconds())}
    shown["pods"] = [pod.key.partition("/")[2] for pod in pods[:_PODS_NAMED]]
    shown["sentences"] = [{"message": m, "pods": count} for m, count in sentences(pods)[:_SENTENCES]]
    return {"podsNotRunning": shown}
