"""Removes gates from pods, and waits until the watch has reported each removal.

Each pod is patched once under the resource version that the decision was made on.  Until the watch has reported the
change, or the wait for it has timed out, the caller does not release other pods of the same job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.controllers.released_pods import FirstLook, WatchedPod
from kqueue.controllers.resources import PODS
from kqueue.core.plugins import PodRef
from kqueue.errors import (
    ApiError,
    ConflictError,
    KqueueError,
    NotFoundError,
    PluginError,
    ServerError,
    UnreachableError,
)
from kqueue.model import PodView
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.own_writes import PendingReleases
from kqueue.runtime.store import Store, split_key

PATCHES_AT_ONCE = 8
"""The number of concurrent patches per job, so that one huge job does not use the whole lane.  Source: Kueue's
ungater.
"""

Patch = dict[str, object]


class GatedPod(WatchedPod, Protocol):
    """A pod that may have a gate, with its version and the key of its job."""

    @property
    def siblings(self) -> str:
        """The key that all pods of one job share; see `model.siblings_key`."""
        ...

    @property
    def resource_version(self) -> str:
        """The pod's resource version."""
        ...


Pod = TypeVar("Pod", bound=GatedPod)


AnyPod = TypeVar("AnyPod", bound=GatedPod, covariant=True)


@dataclass(frozen=True, slots=True)
class PodRelease(Generic[AnyPod]):
    """A pod to release, and the merge patch that releases it."""

    pod: AnyPod
    patch: Patch


ChoiceT = TypeVar("ChoiceT", bound=PodRelease[GatedPod])


class PodReleases(Generic[Pod]):
    """Releases of the pods with one kind of gate."""

    def __init__(
        self,
        *,
        client: Client,
        pods: Store[PodView],
        of: Callable[[PodView], Pod | None],
        clock: Clock,
        timeout: float = 60.0,
        hooks: ReleaseHooks = NO_RELEASE_HOOKS,
    ) -> None:
        """Create the sender of one ungater.

        Args:
            client: patches pods.
            pods: the watch of pods.
            of: returns a pod in the form of the ungater; None: the gate does not concern the pod.
            clock: measures the timeout.
            timeout: seconds after which the event of a release is assumed to be lost.
            hooks: plugins that take part in releases.
        """
        self._hooks = hooks
        self._client, self._pods, self._of = client, pods, of
        self._pending = PendingReleases(clock, timeout)
        self._first_look = FirstLook(
            client, pods, of=of, on_behind=lambda pod: self._pending.expect(pod.siblings, pod.uid)
        )

    def begin(self) -> None:
        """Forget all releases when this process becomes the leader: an earlier leader may have sent others."""
        self._pending.clear()
        self._first_look.begin()

    def observe(self, old: PodView | None, new: PodView | None) -> Pod | None:
        """Follow a pod event; return the newest facts of the pod, None: the gate does not concern it."""
        before = self._of(old) if old is not None else None
        after = self._of(new) if new is not None else None
        if before is not None and (after is None or after.uid != before.uid):
            self._pending.observed(before.siblings, before.uid)
        if after is not None:
            self._pending.observe(after.siblings, after)
        return after or before

    def is_settled(self, siblings: str) -> bool:
        """Whether the watch has reported every release of a job that was sent; overdue releases are given up."""
        return self._pending.satisfied(siblings)

    def is_unread(self, namespace: str) -> bool:
        """Whether the namespace must be read with `read` before a pod in it is released."""
        return self._first_look.due(namespace)

    async def read(self, namespace: str) -> None:
        """Read the pods of a namespace, to find the ones that an earlier leader has released.

        Raises:
            ApiError: the list failed; the namespace is still unread.
        """
        await self._first_look.take(namespace)

    def has_changed(self, pod: GatedPod) -> bool:
        """Whether the watch has reported another version of the pod, or its end."""
        view = self._pods.get(pod.key)
        seen = self._of(view) if view is not None else None
        return seen is None or seen.resource_version != pod.resource_version

    async def pause_before(self, workload: wire.Workload) -> float | None:
        """Return the seconds until the Workload is read again, whose pods must not be released now; None: they may
        be.
        """
        return await self._hooks.pause_before(workload)

    async def send_all(
        self,
        workload: wire.Workload,
        choices: Iterable[ChoiceT],
        *,
        goes_on: Callable[[], bool],
        on_released: Callable[[ChoiceT], None],
    ) -> list[KqueueError]:
        """Release pods of a Workload, some at a time; return the errors of those that were not released.

        Sending ends when `goes_on` returns False.  A pod that has changed meanwhile is skipped: its event causes the
        next reconcile.  `on_released` is called for each released pod.  A missing pod is not an error.
        """
        todo, failed = iter(choices), list[KqueueError]()
        released = 0

        async def work() -> None:
            nonlocal released
            for choice in todo:
                if not goes_on():
                    return
                if self.has_changed(choice.pod):
                    continue
                error = await self._send(workload, choice)
                if error is None:
                    released += 1
                    on_released(choice)
                elif not isinstance(error, NotFoundError):
                    failed.append(error)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(PATCHES_AT_ONCE):
                tasks.create_task(work())
        self._hooks.tell_released(workload, released)
        return failed

    async def _send(self, workload: wire.Workload, choice: PodRelease[GatedPod]) -> KqueueError | None:
        """Let a plugin release one pod, or send its patch; return the error for which the pod was not released, None:
        it was released.
        """
        pod = choice.pod
        namespace, name = split_key(pod.key)
        self._pending.expect(pod.siblings, pod.uid)
        try:
            if await self._hooks.is_released(workload, PodRef(namespace, name, pod.uid), choice.patch):
                return None
            await self._client.patch(PODS, name, choice.patch, namespace, lane=Lane.UNGATE)
        except KqueueError as e:
            if await self._may_be_released(pod, e) and not self.has_changed(pod):
                self._pending.doubt(pod.siblings, pod.uid, pod.resource_version)
            else:
                self._pending.observed(pod.siblings, pod.uid)
            return e
        return None

    async def _may_be_released(self, pod: GatedPod, error: KqueueError) -> bool:
        """Whether the API server may have another version of the pod than the one patched, so that an event will come.

        A conflict may be the answer to a second attempt after the first was accepted, and a server may fail after it
        has stored the change.  A plugin may fail after it has released the pod.
        """
        if isinstance(error, ConflictError):
            return True
        if not isinstance(error, ServerError | UnreachableError | PluginError):
            return False
        namespace, name = split_key(pod.key)
        try:
            found = await self._client.get(PODS, name, namespace, decode=wire_core.Pod, lane=Lane.UNGATE)
        except NotFoundError:
            return False
        except ApiError:
            return True
        return found.metadata.resource_version != pod.resource_version
