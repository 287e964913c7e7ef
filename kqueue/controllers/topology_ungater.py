"""Releases the pods of admitted gangs: removes the topology gate and pins each pod to its domain, one patch per pod.

The first pod event after a quiet time is handled at once; later events are collected for a moment.  A pod is patched
once: until the watch has reported the change, or the wait for it has timed out, the ungater does not handle the
workload again.

When pods have ended for good and the remaining pods are placed, the ungater gives back the places that no pod will use.
From the moment of that decision no pod is released to these places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from kqueue import model
from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.gate_sweeper import SIBLINGS_INDEX
from kqueue.controllers.manager import Manager
from kqueue.controllers.plugin_releases import make_release_hooks
from kqueue.controllers.pod_releases import PodRelease, PodReleases
from kqueue.controllers.record import Recorder, Reporter, workload_reference
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.core.ranks import Member, OrderLost, RankRules, Release, left_over, releases
from kqueue.core.topology import HOSTNAME, TopologyAssignment
from kqueue.errors import (
    FieldError,
    InvalidObjectError,
    KqueueError,
)
from kqueue.jobs.topology_request import index_offset
from kqueue.model import GangPod, PodView
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.store import Store
from kqueue.state import status

_log = structlog.get_logger(__name__)

GANG_INDEX = "gang"
EVENT_RANK_FALLBACK = "RankFallback"
EVENT_BAD_OFFSET = "InvalidPodIndexOffset"


def gang_of(view: PodView) -> list[str]:
    """Return the index values of a gang pod: the key of its job."""
    return [view.gang.siblings] if view.gang is not None else []


@dataclass(frozen=True, slots=True)
class _Choice(PodRelease[GangPod]):
    """A pod to release, its patch, and whether its place follows its rank."""

    in_order: bool | None
    """Whether the pod's place follows its rank; None: its pod set has no ranks."""


@dataclass(slots=True)
class _Plan:
    """The releases of one reconcile, and the version of the Workload on which they are based.

    `lost` are the pod sets that are not placed by rank.
    """

    workload: wire.Workload
    choices: list[_Choice] = field(default_factory=list)
    lost: list[tuple[str, OrderLost]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _GivenBack:
    """The places of one admission that were given back, by pod set.  They may not be written yet."""

    uid: str
    admission: wire.Admission | None
    places: Mapping[str, TopologyAssignment]

    def is_of(self, workload: wire.Workload) -> bool:
        return (self.uid, self.admission) == (workload.metadata.uid, workload.status.admission)


class TopologyUngater:
    """The reconciler of workloads that are admitted with a topology assignment."""

    def __init__(
        self,
        *,
        workloads: WorkloadBook,
        pods: Store[PodView],
        releases: PodReleases[GangPod],
        host_of: Callable[[str], str | None],
        recorder: Recorder,
        on_released: Callable[[wire.Workload, bool | None], None] = lambda _workload, _in_order: None,
        on_fallback: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        """Index the pods.

        Args:
            workloads: finds and writes Workloads.
            pods: the watch of pods; gets GANG_INDEX.
            releases: sends the patches of gang pods.
            host_of: returns the hostname label of a node; None: the node is unknown or has none.
            recorder: records events on Workloads.
            on_released: called for each released pod; the second argument is whether the pod got the place of its rank,
                None: it has no rank.
            on_fallback: called with the reason once per Workload and reason whose pods were not placed by rank.
        """
        self._book, self._pods, self._releases, self._host_of = workloads, pods, releases, host_of
        self._recorder = recorder
        self._on_released, self._on_fallback = on_released, on_fallback
        self._told: dict[str, tuple[str, set[str]]] = {}
        self._given_back: dict[str, _GivenBack] = {}
        self._is_kept = True
        """Whether the API server keeps the returned places; a server with another system's schema drops them."""
        pods.add_index(GANG_INDEX, gang_of)

    def begin(self) -> None:
        """Forget releases and returned places when this process becomes the leader: the API server is read before the
        next release.
        """
        self._releases.begin()
        self._given_back.clear()

    def observe_pod(self, old: PodView | None, new: PodView | None) -> str | None:
        """Follow a pod event; return the key of the workload to reconcile, None: the pod belongs to no gang."""
        seen = self._releases.observe(old, new)
        return seen.workload if seen is not None else None

    def forget(self, key: str) -> None:
        """Forget a workload that is gone."""
        self._told.pop(key, None)
        self._given_back.pop(key, None)

    async def reconcile(self, key: str) -> Result:
        """Release the pods that have a place, or give back places that no pod will use."""
        workload = self._book.newest(key)
        if workload is None or not _placed(workload):
            return Result()
        if not self._releases.is_settled(model.siblings_key(workload)):
            return Result(requeue_after=1.0)
        plan = self._plan(workload)
        if not plan.choices and not workload.status.reclaimable_pods and not _shrunk(workload):
            return Result()
        if self._releases.is_unread(workload.metadata.namespace):
            await self._releases.read(workload.metadata.namespace)
            return await self.reconcile(key)
        if not plan.choices:
            await self._give_back(key)
            return Result()
        pause = await self._releases.pause_before(workload)
        if pause is not None:
            return Result(requeue_after=pause)
        for pod_set, lost in plan.lost:
            self._report_order_lost(workload, pod_set, lost)
        failed = await self._carry_out(key, plan)
        if failed:
            raise failed[0]
        return Result()

    # --- the plan

    def _plan(self, workload: wire.Workload) -> _Plan:
        plan = _Plan(workload)
        gang = self._gang(workload)
        specs = {p.name: p for p in workload.spec.pod_sets}
        unhealthy = self._unhealthy_hosts(workload)
        before = _ranks_before(workload)
        given_back = self._places_given_back(workload)
        for assigned in _assignments(workload):
            spec, pods = specs.get(assigned.name), gang.get(assigned.name, {})
            if spec is None or assigned.topology_assignment is None or not any(p.gated for p in pods.values()):
                continue
            assignment = model.assignment(assigned.topology_assignment)
            count = _count(assigned, spec)
            ranks = self._rank_rules(workload, spec, pods.values(), count=count, before=before.get(assigned.name, 0))
            found = releases(
                assignment,
                [_member(pod) for pod in pods.values()],
                ranks,
                count=count,
                given_back=given_back.get(assigned.name),
            )
            in_order = found.order_lost is None if ranks.index_label is not None else None
            for release in found.pods:
                if assignment.levels[-1] != HOSTNAME or release.values[-1] not in unhealthy:
                    pod = pods[release.key]
                    plan.choices.append(_Choice(pod, _patch(pod, release, assignment.levels), in_order))
            if found.order_lost is not None and found.pods:
                plan.lost.append((assigned.name, found.order_lost))
        return plan

    def _gang(self, workload: wire.Workload) -> dict[str, dict[str, GangPod]]:
        """Return the workload's pods that have not ended, by pod set and key, in the order of their keys."""
        views = self._pods.by_index(GANG_INDEX, model.siblings_key(workload))
        alive = [view.gang for view in views if view.gang is not None and not view.gang.terminal]
        gang: dict[str, dict[str, GangPod]] = {}
        for pod in sorted(alive, key=lambda pod: pod.key):
            gang.setdefault(pod.pod_set, {})[pod.key] = pod
        return gang

    def _unhealthy_hosts(self, workload: wire.Workload) -> set[str]:
        """Return the hosts of failed nodes.  A node whose label is no longer known counts under its own name."""
        failed = {node.name for node in workload.status.unhealthy_nodes}
        return failed | {host for name in failed if (host := self._host_of(name)) is not None}

    def _rank_rules(
        self, workload: wire.Workload, spec: wire.PodSet, pods: Iterable[GangPod], *, count: int, before: int
    ) -> RankRules:
        request = spec.topology_request
        if request is None or not request.pod_index_label or _are_unnumbered(request.pod_index_label, pods):
            return RankRules(index_label=None, limit=count)
        try:
            offset = before + _written_offset(pods)
        except InvalidObjectError as e:
            self._report_once(workload, EVENT_BAD_OFFSET, reason=EVENT_BAD_OFFSET, message=str(e))
            raise
        return RankRules(
            index_label=request.pod_index_label,
            group_label=request.sub_group_index_label,
            groups=request.sub_group_count or 0,
            offset=offset,
            limit=offset + count,
            gaps=gang_names.GANG_ANNOTATION in workload.metadata.annotations,
        )

    # --- places that are given back

    def finished(self, workload: wire.Workload, ended: Mapping[str, int]) -> status.Patch:
        """Return the status fields that give back the places that no pod will use; empty: nothing is new.

        `ended` is the number of pods by pod set that have ended for good.  The caller must write the fields together
        with `ended` before any other change of the Workload.  From now on no pod is released to these places.
        """
        known = model.finished_places(workload)
        if not self._is_kept or not _placed(workload) or self._is_unsure(workload):
            return {}
        found, gang = dict(known), self._gang(workload)
        specs = {p.name: p for p in workload.spec.pod_sets}
        for assigned in _assignments(workload):
            spec, gone = specs.get(assigned.name), ended.get(assigned.name, 0)
            if spec is None or assigned.topology_assignment is None:
                continue
            if not gone and spec.count >= _count(assigned, spec):
                continue
            members = [_member(pod) for pod in gang.get(assigned.name, {}).values()]
            assignment = model.assignment(assigned.topology_assignment)
            places = left_over(assignment, members, needed=max(0, spec.count - gone))
            if places is not None and (places.domains or assigned.name in known):
                found[assigned.name] = places
        if found == known:
            return {}
        key = model.workload_key(workload)
        self._given_back[key] = _GivenBack(workload.metadata.uid, workload.status.admission, found)
        return status.finished_pods(found)

    def _is_unsure(self, workload: wire.Workload) -> bool:
        """Whether releases may exist that the watch has not reported yet."""
        return self._releases.is_unread(workload.metadata.namespace) or not self._releases.is_settled(
            model.siblings_key(workload)
        )

    def _places_given_back(self, workload: wire.Workload) -> Mapping[str, TopologyAssignment]:
        """Return the places of the last decision, written or not: at that time pods ran at other places."""
        decided = self._given_back.get(model.workload_key(workload))
        return decided.places if decided is not None and decided.is_of(workload) else model.finished_places(workload)

    async def _give_back(self, key: str) -> None:
        """Write the places to give back if the writer of `reclaimablePods` did not know the places of the other
        pods.
        """

        def change(obj: wire.Workload) -> status.Patch | None:
            fields = self.finished(obj, dict(model.ended_pods(obj)))
            return {"status": fields} if fields else None

        written = await self._book.write(key, change)
        if written is None:
            return
        decided = self._given_back.get(key)
        if decided is not None and any(p.domains for p in decided.places.values()) and not written.status.finished_pods:
            self._is_kept = False
            _log.warning("the Workload's schema has no finishedPods: places are held until all pods have ended")
        else:
            _log.info("places given back", workload=key)

    # --- releases

    async def _carry_out(self, key: str, plan: _Plan) -> list[KqueueError]:
        """Send the patches; return the errors of failed patches.  Ends early when the Workload has changed."""
        released = 0

        def count(choice: _Choice) -> None:
            nonlocal released
            released += 1
            self._on_released(plan.workload, choice.in_order)

        failed = await self._releases.send_all(
            plan.workload, plan.choices, goes_on=lambda: self._holds(key, plan), on_released=count
        )
        if released:
            _log.info("pods released", workload=key, pods=released)
        return failed

    def _holds(self, key: str, plan: _Plan) -> bool:
        """Whether the plan is still valid for the newest version of the Workload."""
        now, then = self._book.newest(key), plan.workload
        if now is then:
            return True
        if now is None or now.metadata.uid != then.metadata.uid or not _placed(now):
            return False
        if _where_pods_may_go(now.status) != _where_pods_may_go(then.status):
            return False
        plan.workload = now  # equal for the plan: the next comparison is by identity
        return True

    # --- events

    def _report_order_lost(self, workload: wire.Workload, pod_set: str, lost: OrderLost) -> None:
        message = f"Pods of pod set {pod_set} are placed in listing order, not by rank: {lost.message}"
        if self._report_once(workload, lost.trouble.value, reason=EVENT_RANK_FALLBACK, message=message):
            self._on_fallback(lost.trouble.value)
            key = model.workload_key(workload)
            _log.warning("ranks are not usable", workload=key, pod_set=pod_set, reason=lost.trouble.value,
                         why=lost.message)  # fmt: skip

    def _report_once(self, workload: wire.Workload, what: str, *, reason: str, message: str) -> bool:
        """Record a warning on the workload; return False if the same warning (`what`) was recorded before."""
        key, uid = model.workload_key(workload), workload.metadata.uid
        known, told = self._told.get(key, ("", set()))
        if known != uid:
            told = set()
        if what in told:
            return False
        self._told[key] = (uid, told | {what})
        self._recorder.record(workload_reference(workload), reason=reason, message=message, warning=True)
        return True


def _where_pods_may_go(of: wire.WorkloadStatus) -> tuple[object, ...]:
    return of.admission, of.unhealthy_nodes, of.finished_pods


def _placed(workload: wire.Workload) -> bool:
    """Whether the workload is admitted by topology, active, and neither evicted nor over."""
    return (
        model.condition_true(workload, names.CONDITION_ADMITTED)
        and not model.condition_true(workload, names.CONDITION_EVICTED)
        and not model.is_over(workload)
        and workload.spec.active
        and any(assigned.topology_assignment is not None for assigned in _assignments(workload))
    )


def _shrunk(workload: wire.Workload) -> bool:
    """Whether the workload requests fewer pods than were admitted, for example a scaled-down elastic job."""
    counts = {p.name: p.count for p in workload.spec.pod_sets}
    return any(a.count is not None and counts.get(a.name, a.count) < a.count for a in _assignments(workload))


def _assignments(workload: wire.Workload) -> Sequence[wire.PodSetAssignment]:
    admission = workload.status.admission
    return admission.pod_set_assignments if admission is not None else ()


def _count(assigned: wire.PodSetAssignment, spec: wire.PodSet) -> int:
    return assigned.count if assigned.count is not None else spec.count


def _ranks_before(workload: wire.Workload) -> Mapping[str, int]:
    """Return the number of ranks of a group that come before the ranks of a pod set.

    In a pair of pod sets the smaller one comes first; of equal ones the first in the list.
    """
    specs = {p.name: p for p in workload.spec.pod_sets}
    groups: dict[str, list[tuple[int, str]]] = {}
    for assigned in _assignments(workload):
        spec = specs.get(assigned.name)
        request = spec.topology_request if spec is not None else None
        if spec is not None and request is not None and request.pod_set_group_name:
            members = groups.setdefault(request.pod_set_group_name, [])
            members.append((_count(assigned, spec), assigned.name))
    return dict(_behind(*pair) for pair in groups.values() if len(pair) == 2)


def _behind(first: tuple[int, str], second: tuple[int, str]) -> tuple[str, int]:
    """Return the pod set of a pair that comes second, and the number of ranks before it."""
    return (first[1], second[0]) if first[0] > second[0] else (second[1], first[0])


def _are_unnumbered(label: str, pods: Iterable[GangPod]) -> bool:
    """Whether the pods have no numbers on purpose: plain pods may have numbers, and most do not."""
    return label == names.POD_GROUP_POD_INDEX_LABEL and not any(label in pod.labels for pod in pods)


def _written_offset(pods: Iterable[GangPod]) -> int:
    """Return the index at which the pods' numbers begin, by their annotation; 0 if no pod has it.

    Raises:
        InvalidObjectError: the annotation is no integer.
    """
    pod = next((p for p in pods if p.index_offset is not None), None)
    if pod is None or pod.index_offset is None:
        return 0
    offset = index_offset(pod.index_offset)
    if offset is None:
        path = f"metadata.annotations[{names.POD_INDEX_OFFSET_ANNOTATION}]"
        raise InvalidObjectError(f"pod {pod.key}", [FieldError(path, "must be an integer", pod.index_offset)])
    return offset


def _member(pod: GangPod) -> Member:
    return Member(key=pod.key, gated=pod.gated, labels=pod.labels, selector=pod.node_selector, leaving=pod.deleting)


def _patch(pod: GangPod, release: Release, levels: Sequence[str]) -> dict[str, object]:
    """Return the merge patch, under the pod's resource version, that removes the gate and sets the node selector."""
    kept = [{"name": gate} for gate in pod.gates if gate != names.TOPOLOGY_GATE]
    return {
        "metadata": {"resourceVersion": pod.resource_version},
        "spec": {
            "schedulingGates": kept or None,
            "nodeSelector": dict(zip(levels, release.values, strict=True)),
        },
    }


_FIRST_PODS = 0.05
"""Seconds in which the first pods of a gang are collected; later pods are collected for the ungater's window."""


def gang_releases(
    client: Client,
    pods: Store[PodView],
    clock: Clock,
    *,
    timeout: float = 60.0,
    hooks: ReleaseHooks = NO_RELEASE_HOOKS,
) -> PodReleases[GangPod]:
    """Return the sender of patches for pods with the topology gate; the options are as in `PodReleases`."""
    return PodReleases(client=client, pods=pods, of=lambda view: view.gang, clock=clock, timeout=timeout, hooks=hooks)


def make_ungater(manager: Manager) -> TopologyUngater:
    """Return the ungater of a process."""
    pods, timeout = manager.watches.pods.store, manager.timings.expectation_timeout
    hooks = manager.shared(make_release_hooks)
    return TopologyUngater(
        workloads=manager.workload_writer,
        pods=pods,
        releases=gang_releases(manager.client, pods, manager.clock, timeout=timeout, hooks=hooks),
        host_of=manager.host_of,
        recorder=manager.recorder(Reporter.GATES),
        on_released=manager.counter.on_released,
        on_fallback=manager.metrics.rank_fallback,
    )


def setup(manager: Manager) -> None:
    """Add the ungater.  Events of pods and Workloads enqueue the Workload."""
    watches, ungater = manager.watches, make_ungater(manager)
    manager.steps.finished = ungater.finished
    manager.on_lead.append(ungater.begin)
    controller = manager.controller("topology_ungater", ungater.reconcile, workers=8)
    quiet_since: dict[str, float] = {}

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        key = ungater.observe_pod(old, new)
        for workload in workloads_of(old, new) if key is not None else ():
            enqueue(workload)

    def workloads_of(old: PodView | None, new: PodView | None) -> list[str]:
        """Return the Workload of a pod, or all slices of an elastic job, because its pods do not name the
        newest slice.
        """
        seen = (new.gang if new is not None else None) or (old.gang if old is not None else None)
        if seen is None:
            return []
        if seen.slice_name:
            return list(watches.workloads.store.keys_by_index(SIBLINGS_INDEX, seen.siblings))
        # A Workload that the watch reports later is read at its own event.
        return [seen.workload] if seen.workload in watches.workloads.store else []

    def enqueue(key: str) -> None:
        now = manager.clock.monotonic()
        window = manager.timings.ungater_window
        quiet = now - quiet_since.get(key, float("-inf")) > window
        quiet_since[key] = now
        controller.enqueue(key, after=min(_FIRST_PODS, window) if quiet else window)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is not None:
            controller.enqueue(model.workload_key(new))
        elif old is not None:
            quiet_since.pop(model.workload_key(old), None)
            ungater.forget(model.workload_key(old))

    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
