"""Writes to pods that are queued themselves, with the answers that their watch has not reported yet.

A pod is patched under the resource version that the decision was made on.  Decisions follow from the newest known
version: the watch's version, or the answer to the last write of this process if that is newer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import structlog
from cachetools import TTLCache

from kqueue.api import names
from kqueue.clock import Clock, utc_text
from kqueue.controllers.gang_crowd import Crowds, MembersSeen, Need
from kqueue.controllers.manager import Manager
from kqueue.controllers.owner_context import OwnerReports
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.record import ObjectReference, Recorder, job_controller
from kqueue.controllers.resources import PODS
from kqueue.controllers.short_stop import STOP_SECONDS, ShortStop
from kqueue.errors import NotFoundError
from kqueue.jobs import pod as pods_kind
from kqueue.jobs import rules
from kqueue.jobs.fields import text, whole
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import implies_pods
from kqueue.runtime.client import Client, PatchType
from kqueue.runtime.lane import Lane
from kqueue.runtime.many import each
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.store import Store, split_key

_log = structlog.get_logger(__name__)

T = TypeVar("T")

GROUP_INDEX = "group"
PREBUILT_INDEX = "prebuilt"
GATED_INDEX = "admission-gate"
AT_ONCE = 32
"""The number of concurrent writes per group, so that one huge group does not use the whole lane."""
_REMEMBERED = 100_000
EVENT_HELD = "AdmissionGateHeld"
_LASTING = (names.EVENT_ERR_WORKLOAD_COMPOSE, EVENT_HELD)
"""Reasons of events that describe a lasting state of a pod, not something that has just happened."""
_QUIET = 600.0
"""Seconds in which an event is not repeated for the same pod."""


class PodWrites:
    """Reads and writes of managed pods, shared by the reconcilers of single pods and of groups."""

    def __init__(
        self,
        *,
        client: Client,
        pods: Store[ManagedPod],
        recorder: Recorder,
        switches: JobFeatures,
        clock: Clock,
        short_stop: ShortStop | None = None,
        echo_timeout: float = 60.0,
    ) -> None:
        """Index the pods, and follow their events.

        Args:
            client: writes pods.
            pods: the watch of managed pods; gets the indexes of this module.
            recorder: records events on pods.
            switches: the rules for reading pods, and whether the finalizer is removed under the pod's resource version.
            clock: measures timeouts.
            short_stop: ends pods that run without quota; None: pods are charged to no queue.
            echo_timeout: seconds after which the writer no longer waits for the watch event of a write.
        """
        self._client, self._pods, self._recorder = client, pods, recorder
        self._short_stop = short_stop or ShortStop(client)
        self._switches, self._clock = switches, clock
        self._ours: OwnWrites[str, ManagedPod] = OwnWrites(clock, echo_timeout, version_of=_version)
        """By UID: the newest answers to writes of this process, until the watch has reported the same version."""
        self._deleted: OwnWrites[str, bool] = OwnWrites(clock, echo_timeout)
        """UIDs of pods whose deletion this process has requested, or that are gone according to an answer of the API
        server.
        """
        self._told: TTLCache[tuple[str, str], str] = TTLCache(_REMEMBERED, _QUIET, clock.monotonic)
        pods.add_index(GROUP_INDEX, lambda pod: [pod.group] if pod.group else [])
        pods.add_index(PREBUILT_INDEX, self._prebuilt)
        pods.add_index(GATED_INDEX, lambda pod: [True] if pod.gated and not pod.deleting else [])
        self._crowds = Crowds(pods, GROUP_INDEX)
        pods.subscribe(self._observe)

    def _prebuilt(self, pod: ManagedPod) -> list[str]:
        name = rules.prebuilt_name(pod.obj, self._switches)
        return [f"{split_key(pod.key)[0]}/{name}"] if name and not pod.group else []

    def _observe(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        seen = new if new is not None else old
        if seen is None:
            return
        self._ours.echoed(seen.uid, None if new is None else _version(new))
        if new is None or new.deleting:
            self._deleted.forget(seen.uid)

    # --- reading

    def newest(self, key: str) -> ManagedPod | None:
        """Return the newest known version of a pod; None: the watch does not have the pod."""
        seen = self._pods.get(key)
        return None if seen is None else self._newer(seen)

    def members(self, group: str) -> list[ManagedPod]:
        """Return all pods of a group in their newest known versions."""
        return [self._newer(pod) for pod in self._pods.by_index(GROUP_INDEX, group)]

    def look(self, group: str, need: Callable[[Sequence[ManagedPod]], Need]) -> MembersSeen:
        """Return the pods of a group that decide, in their newest known versions: all of them, or of a crowd as many as
        may start together, and some more.

        `need` returns the number that start together, from the first pods of a crowd; it is not called for others.
        """
        crowd = self._crowds.get(group)
        if crowd is None:
            return MembersSeen(self.members(group))
        first = self._views(crowd.first())
        views = self._views(crowd.chosen(need(in_order(map(self._newer, first)))))
        return MembersSeen([self._newer(pod) for pod in views], crowd.unseen(views))

    def _views(self, keys: Iterable[str]) -> list[ManagedPod]:
        return [pod for key in keys if (pod := self._pods.get(key)) is not None]

    def waiting(self, group: str) -> int:
        """Return the number of gated pods of a group that may run and are no extras."""
        crowd = self._crowds.get(group)
        if crowd is not None:
            return crowd.waiting
        return sum(pod.gated and pod.runnable and not pod.extra for pod in self.members(group))

    def _newer(self, seen: ManagedPod) -> ManagedPod:
        newest = self._ours.newer(seen.uid, seen)
        return newest if newest.deleting or newest.uid not in self._deleted else replace(newest, deleting=True)

    # --- writing

    async def patch(self, pod: ManagedPod, change: Mapping[str, Any], *, locked: bool = True) -> bool:
        """Send one merge patch; return False if there is nothing to change, or the pod is gone."""
        if not change:
            return False
        namespace, name = split_key(pod.key)
        try:
            answer = await self._client.patch(
                PODS, name, addressed(pod, change, locked=locked), namespace, lane=Lane.UNGATE
            )
        except NotFoundError:
            self._is_gone(pod)
            return False
        self._ours.remember(pod.uid, managed_pod(answer, self._switches))
        return True

    async def let_go(self, pod: ManagedPod) -> bool:
        """Remove kqueue's finalizer; return False if the pod does not have it, or is gone."""
        return await self.patch(pod, pods_kind.let_go(pod.obj), locked=self._switches.strict_finalizers)

    async def let_go_all(self, pods: Iterable[ManagedPod]) -> None:
        """Remove kqueue's finalizer from many pods, some at a time."""
        await self.each([pod for pod in pods if pod.finalizer], self.let_go)

    async def delete(self, pod: ManagedPod, *, grace_seconds: int | None = None) -> None:
        """Delete the pod once; `grace_seconds` None: within the pod's own grace period."""
        if pod.deleting:
            return
        namespace, name = split_key(pod.key)
        try:
            await self._client.delete(PODS, name, namespace, uid=pod.uid, grace_seconds=grace_seconds)
        except NotFoundError:
            self._is_gone(pod)
            return
        self._deleted.remember(pod.uid, True)

    async def shorten(self, pod: ManagedPod) -> None:
        """End a pod that is being deleted and runs without quota within seconds, whatever its grace period."""
        if (whole(pod.obj, "metadata", "deletionGracePeriodSeconds") or 0) > STOP_SECONDS:
            await self._short_stop.end_pod(pod.key, pod.uid, queue=_queue_of(pod))
        else:
            self._short_stop.charge(pod.key, queue=_queue_of(pod))

    async def stop(self, pod: ManagedPod, *, reason: str, message: str, soon: bool = False) -> None:
        """Write the reason of the stop to the pod's status, and delete the pod.

        `soon`: the pod runs without quota and ends within seconds.
        """
        namespace, name = split_key(pod.key)
        now = utc_text(self._clock.now())
        body = pods_kind.termination_target(pod.obj, reason=reason, message=message, now=now)
        try:
            await self._client.patch(
                PODS,
                name,
                body,
                namespace,
                subresource="status",
                content_type=PatchType.APPLY,
                field_manager=names.KUEUE_FIELD_MANAGER,
                force=True,
            )
        except NotFoundError:
            self._is_gone(pod)
            return
        if soon:
            self._short_stop.charge(pod.key, queue=_queue_of(pod))
        await self.delete(pod, grace_seconds=STOP_SECONDS if soon else None)
        self.event(pod, reason=names.EVENT_STOPPED, message=message)
        _log.info("pod stopped", pod=pod.key, reason=reason)

    def _is_gone(self, pod: ManagedPod) -> None:
        """Record that the API server no longer has the pod; no Workload is created for it until the watch has reported
        its end.
        """
        self._deleted.remember(pod.uid, True)

    async def each(self, pods: Iterable[T], act: Callable[[T], Awaitable[object]]) -> None:
        """Call `act` with each of many pods, some at a time; the first error is raised after all pods were tried.

        Most calls have no pods, and start no task.
        """
        await each(pods, act, at_once=AT_ONCE)

    # --- events

    def event(self, pod: ManagedPod, *, reason: str, message: str, warning: bool = False) -> None:
        """Record an event on the pod, unless an equal one was recorded within some minutes.

        An event of a lasting state is not recorded again by another process, either.
        """
        if self._told.get((pod.uid, reason)) == message:
            return
        self._told[pod.uid, reason] = message
        namespace, name = split_key(pod.key)
        reference = ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid)
        self._recorder.record(reference, reason=reason, message=message, warning=warning, once=reason in _LASTING)


def addressed(pod: ManagedPod, change: Mapping[str, Any], *, locked: bool = True) -> dict[str, Any]:
    """Return a patch that applies to this pod alone, and, if `locked`, to its present version alone."""
    lock = {"resourceVersion": text(pod.obj, "metadata", "resourceVersion")} if locked else {}
    return {**change, "metadata": {**change.get("metadata", {}), **lock, "uid": pod.uid}}


def _version(pod: ManagedPod) -> int:
    written = text(pod.obj, "metadata", "resourceVersion")
    return int(written) if written.isdigit() else 0


def _queue_of(pod: ManagedPod) -> str:
    """Return the LocalQueue that the pod names, as namespace/name; empty: it names none."""
    name = rules.queue_name(pod.obj)
    return f"{split_key(pod.key)[0]}/{name}" if name else ""


def watch_pods(manager: Manager) -> Reflector[RawObject, ManagedPod] | None:
    """Return the watch of whole pods that are queued themselves; None: no enabled kind is queued through pods."""
    frameworks, switches = manager.config.integrations.frameworks, manager.switches
    if pods_kind.FRAMEWORK not in frameworks and not implies_pods(frameworks):
        return None
    return manager.watches.watch(
        PODS,
        RawObject,
        lambda pod: managed_pod(as_json(pod), switches),
        selector=f"{names.MANAGED_LABEL}=true",
        suffix="-managed",
    )


def make_pod_writes(manager: Manager) -> PodWrites | None:
    """Return the writer of a process; None: no pods are queued."""
    watch = manager.shared(watch_pods)
    if watch is None:
        return None
    return PodWrites(
        client=manager.client,
        pods=watch.store,
        recorder=manager.recorder(job_controller(pods_kind.FRAMEWORK)),
        switches=manager.switches,
        clock=manager.clock,
        short_stop=manager.short_stop,
        echo_timeout=manager.timings.expectation_timeout,
    )


def pod_reports(manager: Manager) -> OwnerReports:
    """Return the reports of the reconcilers of pods."""
    return OwnerReports(
        created=lambda seconds: manager.metrics.workload_created(job_kind="Pod", seconds=seconds),
        started=manager.counter.on_started,
    )
