"""Releases the pods of admitted gangs: removes the topology gate and pins each pod to its domain, one patch per pod.

Pod events are collected for a moment, the first after quiet is handled at once.  A pod is patched once: until its
change is seen by the watch (or the wait for it runs out), its workload is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.resources import PODS
from kqueue.core.ranks import Member, RankRules, Release, releases
from kqueue.errors import KqueueError, NotFoundError
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.store import Store, split_key
from kqueue.state import from_api
from kqueue.state.from_api import GangPod, PodView

_log = structlog.get_logger(__name__)

WORKLOAD_INDEX = "workload"


def gang_of(view: PodView) -> list[str]:
    """Index of pods by their Workload's key."""
    return [view.gang.workload] if view.gang is not None else []


class Expectations:
    """Pods whose release was sent and not yet seen, per workload."""

    def __init__(self, clock: Clock, timeout: float) -> None:
        self._clock, self._timeout = clock, timeout
        self._open: dict[str, dict[str, float]] = {}

    def expect(self, workload: str, uid: str) -> None:
        """The pod's release is on its way."""
        self._open.setdefault(workload, {})[uid] = self._clock.monotonic() + self._timeout

    def observed(self, workload: str, uid: str) -> None:
        """The pod's release was seen, or will never be."""
        waiting = self._open.get(workload)
        if waiting is not None:
            waiting.pop(uid, None)
            if not waiting:
                del self._open[workload]

    def satisfied(self, workload: str) -> bool:
        """Nothing is on its way any more; what is overdue is given up, because its event was lost."""
        now = self._clock.monotonic()
        for uid, deadline in list(self._open.get(workload, {}).items()):
            if deadline <= now:
                _log.warning("the release of a pod was never seen, it is looked at again", workload=workload, uid=uid)
                self.observed(workload, uid)
        return workload not in self._open


class TopologyUngater:
    """Reconciles workloads admitted with a topology assignment."""

    def __init__(
        self,
        *,
        client: Client,
        workloads: Store[wire.Workload],
        pods: Store[PodView],
        clock: Clock,
        expectation_timeout: float = 60.0,
        on_released: Callable[[wire.Workload, int], None] = lambda _workload, _pods: None,
    ) -> None:
        """`on_released(workload, pods)` is told how many pods a reconcile has released."""
        self._client, self._workloads, self._pods = client, workloads, pods
        self._expectations = Expectations(clock, expectation_timeout)
        self._on_released = on_released
        pods.add_index(WORKLOAD_INDEX, gang_of)

    def observe_pod(self, old: PodView | None, new: PodView | None) -> str | None:
        """Take in a pod event; the key of the workload to look at, None when no gang is concerned."""
        for view in (old, new):
            if view is not None and view.gang is not None and (new is None or not view.gang.gated):
                self._expectations.observed(view.gang.workload, view.gang.uid)
        seen = new if new is not None else old
        return seen.gang.workload if seen is not None and seen.gang is not None else None

    async def reconcile(self, key: str) -> Result:
        """Release what may be released."""
        workload = self._workloads.get(key)
        if workload is None or not self._placed(workload):
            return Result()
        if not self._expectations.satisfied(key):
            return Result(requeue_after=1.0)
        chosen = list(self._choose(workload))
        if not chosen:
            return Result()
        for pod, _ in chosen:
            self._expectations.expect(key, pod.uid)
        outcomes = await asyncio.gather(*(self._release(key, pod, patch) for pod, patch in chosen))
        released = sum(error is None for error in outcomes)
        failed = [error for error in outcomes if error is not None and not isinstance(error, NotFoundError)]
        if released:
            self._on_released(workload, released)
            _log.info("pods released", workload=key, pods=released)
        if failed:
            raise failed[0]
        return Result()

    @staticmethod
    def _placed(workload: wire.Workload) -> bool:
        """Admitted by topology, and not on its way out."""
        return (
            from_api.condition_true(workload, names.CONDITION_ADMITTED)
            and not from_api.condition_true(workload, names.CONDITION_EVICTED)
            and not from_api.is_over(workload)
            and workload.status.admission is not None
            and any(a.topology_assignment is not None for a in workload.status.admission.pod_set_assignments)
        )

    def _choose(self, workload: wire.Workload) -> Iterator[tuple[GangPod, dict[str, object]]]:
        key = from_api.workload_key(workload)
        views = self._pods.by_index(WORKLOAD_INDEX, key)
        gang = sorted((v.gang for v in views if v.gang is not None and not v.gang.terminal), key=lambda pod: pod.key)
        unhealthy = {node.name for node in workload.status.unhealthy_nodes}
        specs = {p.name: p for p in workload.spec.pod_sets}
        assert workload.status.admission is not None
        for assigned in workload.status.admission.pod_set_assignments:
            spec = specs.get(assigned.name)
            if spec is None or assigned.topology_assignment is None:
                continue
            pods = {pod.key: pod for pod in gang if pod.pod_set == assigned.name}
            assignment = from_api.assignment(assigned.topology_assignment)
            found = releases(
                assignment,
                [
                    Member(key=p.key, gated=p.gated, labels=p.labels, selector=p.node_selector, leaving=p.deleting)
                    for p in pods.values()
                ],
                self._rank_rules(spec, assigned, workload, list(pods.values())),
                count=assigned.count if assigned.count is not None else spec.count,
            )
            if found.order_lost:
                _log.info("ranks are not usable", workload=key, pod_set=assigned.name, why=found.order_lost.message)
            for release in found.pods:
                if release.values[-1] not in unhealthy:
                    yield pods[release.key], _patch(pods[release.key], release, assignment.levels)

    @staticmethod
    def _rank_rules(
        spec: wire.PodSet, assigned: wire.PodSetAssignment, workload: wire.Workload, pods: Sequence[GangPod]
    ) -> RankRules:
        request = spec.topology_request
        count = assigned.count if assigned.count is not None else spec.count
        if request is None:
            return RankRules(index_label=None, limit=count)
        before = _partner_count(spec, workload)
        written = next((p.index_offset for p in pods if p.index_offset is not None), None)
        offset = before + (int(written) if written is not None and written.isdigit() else 0)
        return RankRules(
            index_label=request.pod_index_label,
            group_label=request.sub_group_index_label,
            groups=request.sub_group_count or 0,
            offset=offset,
            limit=offset + count,
        )

    async def _release(self, workload: str, pod: GangPod, patch: dict[str, object]) -> KqueueError | None:
        """Send one patch; why the pod was not released, None when it was."""
        namespace, name = split_key(pod.key)
        try:
            await self._client.patch(PODS, name, patch, namespace, lane=Lane.UNGATE)
        except KqueueError as e:
            self._expectations.observed(workload, pod.uid)  # no event will tell of it
            return e
        return None


def _partner_count(spec: wire.PodSet, workload: wire.Workload) -> int:
    """Ranks of the larger pod set of a group start after those of the smaller one (of equal ones: the second)."""
    group = spec.topology_request.pod_set_group_name if spec.topology_request is not None else None
    if group is None:
        return 0
    members = [
        p for p in workload.spec.pod_sets if p.topology_request and p.topology_request.pod_set_group_name == group
    ]
    if len(members) != 2:
        return 0
    smaller = members[0] if members[0].count <= members[1].count else members[1]
    return 0 if spec is smaller else smaller.count


def _patch(pod: GangPod, release: Release, levels: Sequence[str]) -> dict[str, object]:
    """One merge patch under the pod's resource version: gate gone, node selector set."""
    kept = [{"name": gate} for gate in pod.gates if gate != names.TOPOLOGY_GATE]
    return {
        "metadata": {"resourceVersion": pod.resource_version},
        "spec": {
            "schedulingGates": kept or None,
            "nodeSelector": dict(zip(levels, release.values, strict=True)),
        },
    }
