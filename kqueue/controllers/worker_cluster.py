"""The connection to one worker cluster: opened, watched over, and opened again with its own client and its own task.

Requests to a worker wait in lanes of that worker alone, and steps on it are taken by a work queue of its own.  So a
worker that is lost, or answers slowly, delays only what is to happen there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

import structlog

from kqueue.api import multikueue_names as words
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.raw import RawObject, as_json, key_of
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACES, WORKLOADS, resource_of
from kqueue.errors import ApiError, ConfigError, ForbiddenError, KqueueError, NotFoundError
from kqueue.isolation import isolated_logged
from kqueue.jobs import rules
from kqueue.jobs.fields import JSON, annotations_of, labels_of, text
from kqueue.jobs.kind import SentKind
from kqueue.jobs.multikueue.copies import Origin
from kqueue.jobs.multikueue.owners import SentOwner, index_of_owner, owner_key
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.backoff import Backoff
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Controller, ControllerSettings, Result
from kqueue.runtime.deadline import cancel_and_wait, within
from kqueue.runtime.kubeconfig_secret import InsecureKubeconfigError
from kqueue.runtime.own_writes import OwnWrites
from kqueue.runtime.reflector import Projection, Reflector, Selection, WatchSettings
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import object_key, split_key

_log = structlog.get_logger(__name__)

_WORKLOAD = "workload"
"""Index of copies of jobs by the Workload that they name, or that the first group of such an owner has."""
_OWNER = "owner of groups"
"""Index of copies of Workloads, and of owners of several groups of pods, by the key of that owner."""
_TAKEN_SECONDS = 300.0
"""Seconds after which a name that was taken is tried again."""
_CHANGED = "Its kubeconfig has changed, or another cluster answers at its address; it is connected anew"
_NOT_UNDERSTOOD = "The cluster gave an answer that kqueue does not understand; the log of the controller says more"
IDENTITY = "kube-system"
"""The namespace that every cluster has, and whose UID no two clusters share."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTimes:
    """Seconds."""

    retry_base: float = 5.0
    """First pause before another attempt to connect; doubles.  Source: Kueue."""
    retry_max: float = 320.0
    """Longest pause: 5 s doubled in 7 steps.  Source: Kueue."""
    probe: float = 10.0
    """Pause between two looks whether the cluster answers and its kubeconfig is still the same."""
    answer: float = 10.0
    """Time within which the cluster answers a probe."""
    sync: float = 60.0
    """Time within which all watches have begun."""
    silence: float = 150.0
    """A watch without data for so long is lost: servers send bookmarks about each minute."""
    step: float = 30.0
    """Time limit of the steps for one workload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerTools:
    """The values that all worker clusters of a manager share.

    Args:
        kinds: the kinds of jobs that workers can run.
        identity: returns the UID by which the manager's own cluster is known; empty: it cannot be read.
        holders: the names of connected clusters by their UIDs.
        on_quota: called when a queue of a worker has another spec; None: queues of workers are not watched.
    """

    origin: Origin
    kinds: Sequence[SentKind]
    switches: JobFeatures
    clock: Clock
    identity: Callable[[], Awaitable[str]]
    times: WorkerTimes = WorkerTimes()
    holders: dict[str, str] = field(default_factory=dict)
    on_quota: Callable[[], object] | None = None


class WorkerSourceError(KqueueError):
    """The kubeconfig of a worker cluster cannot be had.  The text says why and what to do."""

    def __init__(self, message: str, reason: str = words.REASON_BAD_KUBE_CONFIG) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerHandlers:
    """Functions that a worker cluster calls.

    Args:
        source: returns the kubeconfig as it is now.
        connect: opens a client with a kubeconfig.
        step: takes the steps for the workload of a key on the cluster, over its link.
        on_copy: called with the key of each Workload whose copies on the cluster changed.
        on_state: called when the cluster was connected or lost.
    """

    source: Callable[[], Awaitable[bytes]]
    connect: Callable[[bytes], Awaitable[Client]]
    step: Callable[[WorkerLink, str], Awaitable[Result]]
    on_copy: Callable[[str], object]
    on_state: Callable[[], object]


def _itself(kind: SentOwner, obj: JSON) -> list[str]:
    return [owner_key(kind.gvk, *split_key(key_of(obj)))]


class WorkerLink:
    """One living connection: a client, and watches of the manager's copies."""

    def __init__(
        self, cluster: str, client: Client, tools: WorkerTools, on_copy: Callable[[str], object], *, manager: str = ""
    ) -> None:
        """`on_copy` is called with the key of each Workload whose copies changed; `manager` is the identity of the
        manager's cluster.
        """
        self.cluster, self.client, self.changed, self._tools = cluster, client, on_copy, tools
        self.origin = replace(tools.origin, manager=manager)
        """The mark of the manager's copies."""
        self.taken: OwnWrites[str, None] = OwnWrites(tools.clock, _TAKEN_SECONDS)
        """Keys of Workloads that cannot run on the cluster: a foreign object has the name of a copy."""
        self.workloads = self._watch(WORKLOADS, wire.Workload, lambda obj: obj)
        self.jobs: Mapping[str, Reflector[RawObject, JSON]] = {
            kind.framework: self._watch(resource_of(kind), RawObject, as_json, optional=True) for kind in tools.kinds
        }
        """Copies of jobs by framework.  A worker may lack a kind."""
        self._queues: list[Reflector[Any, Any]] = []
        if tools.on_quota is not None:
            self._queues = [
                self._watch(LOCAL_QUEUES, wire.LocalQueue, lambda obj: obj, everything=True),
                self._watch(CLUSTER_QUEUES, wire.ClusterQueue, lambda obj: obj, everything=True),
            ]
        for queues in self._queues:
            queues.store.subscribe(self._queue_changed)
        self.workloads.store.add_index(_OWNER, index_of_owner)
        self.workloads.store.subscribe(self._workload_changed)
        for kind in tools.kinds:
            jobs = self.jobs[kind.framework].store
            jobs.add_index(_WORKLOAD, partial(self._workloads_of, kind))
            jobs.subscribe(partial(self._job_changed, kind))
            if isinstance(kind, SentOwner):
                jobs.add_index(_OWNER, partial(_itself, kind))

    def _watch(
        self,
        resource: Any,
        decode: type[Any],
        view: Callable[[Any], Any],
        *,
        optional: bool = False,
        everything: bool = False,
    ) -> Any:
        return Reflector(
            self.client,
            resource,
            Projection(decode, view),
            clock=self._tools.clock,
            selection=Selection(label_selector="" if everything else self._tools.origin.selector),
            settings=WatchSettings(optional=optional),
        )

    def local_queues(self) -> list[wire.LocalQueue]:
        """Return the LocalQueues of the cluster, if they are watched."""
        return list(self._queues[0].store.values()) if self._queues else []

    def cluster_queues(self) -> list[wire.ClusterQueue]:
        """Return the ClusterQueues of the cluster, if they are watched."""
        return list(self._queues[1].store.values()) if self._queues else []

    def _queue_changed(self, old: Any, new: Any) -> None:
        if self._tools.on_quota is not None and (old is None or new is None or old.spec != new.spec):
            self._tools.on_quota()

    def _workload_changed(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is not None:
            self.changed(object_key(seen.metadata.namespace, seen.metadata.name))
            for owner in index_of_owner(seen):  # the last group that leaves takes the copy of the owner along
                for key in self._first_of(owner):
                    self.changed(key)

    def _job_changed(self, kind: SentKind, old: JSON | None, new: JSON | None) -> None:
        seen = new if new is not None else old
        if seen is None:
            return
        self.changed(self._workload_of(kind, seen))
        if isinstance(kind, SentOwner):
            for key in self.workloads.store.keys_by_index(_OWNER, owner_key(kind.gvk, *split_key(key_of(seen)))):
                self.changed(key)

    def _first_of(self, owner: str) -> list[str]:
        """Return the key of the Workload of the first group of an owner, if its copy is here."""
        return [
            self._workload_of(kind, job)
            for kind in self._tools.kinds
            if isinstance(kind, SentOwner)
            for job in self.jobs[kind.framework].store.by_index(_OWNER, owner)
        ]

    def _workloads_of(self, kind: SentKind, job: JSON) -> list[str]:
        return [self._workload_of(kind, job)]

    def _workload_of(self, kind: SentKind, job: JSON) -> str:
        """Return the key of the Workload that the copy of a job names, or that the first group of such an owner has."""
        if isinstance(kind, SentOwner):
            name = kind.workload_name(job, self._tools.switches)
        else:
            name = rules.prebuilt_name(job, self._tools.switches)
        return object_key(split_key(key_of(job))[0], name)

    def has_others(self, key: str, owner: str) -> bool:
        """Whether the cluster has copies of the Workloads of other groups of an owner than the one of a key.

        `owner` is the key of the owner; empty: it has one group.
        """
        found = self.workloads.store.by_index(_OWNER, owner) if owner else []
        return any(
            object_key(each.metadata.namespace, each.metadata.name) != key
            and each.metadata.deletion_timestamp is None
            and self.origin.made(each.metadata.labels, each.metadata.annotations)
            for each in found
        )

    def owner_of(self, key: str) -> str:
        """Return the key of the owner of several groups of which the Workload of a key is one, by what is here; empty:
        there is none.
        """
        copy = self.workloads.store.get(key)
        found = index_of_owner(copy) if copy is not None else []
        for kind in self._tools.kinds:
            if not found and isinstance(kind, SentOwner):
                jobs = self.jobs[kind.framework].store.by_index(_WORKLOAD, key)
                found = [owner_key(kind.gvk, *split_key(key_of(job))) for job in jobs]
        return next(iter(found), "")

    def jobs_of(self, key: str) -> list[tuple[ResourceType, JSON]]:
        """Return the copies of jobs that name the Workload of a key, with their kinds."""
        return [(jobs.resource, job) for jobs in self.jobs.values() for job in jobs.store.by_index(_WORKLOAD, key)]

    def copies_of(self, framework: str, key: str) -> list[JSON]:
        """Return the copies of one framework that name the Workload of a key."""
        jobs = self.jobs.get(framework)
        found = jobs.store.by_index(_WORKLOAD, key) if jobs is not None else []
        return [job for job in found if self.origin.made(labels_of(job), annotations_of(job))]

    def all(self) -> list[Reflector[Any, Any]]:
        """Return all watches."""
        return [self.workloads, *self.jobs.values(), *self._queues]

    def has(self, key: str) -> bool:
        """Whether there is a copy of the Workload of a key, or of its job."""
        return key in self.workloads.store or bool(self.jobs_of(key))

    def copied(self) -> list[str]:
        """Return the keys of all Workloads of which there is a copy, or the copy of a job, in their order."""
        found = set(self.workloads.store)
        for jobs in self.jobs.values():
            found.update(map(str, jobs.store.values_of_index(_WORKLOAD)))
        return sorted(found)


class WorkerCluster:
    """One worker cluster.  `run` keeps it connected."""

    def __init__(self, name: str, handlers: WorkerHandlers, tools: WorkerTools) -> None:
        self.name, self._handlers, self._tools, self._clock = name, handlers, tools, tools.clock
        self.link: WorkerLink | None = None
        """The connection, with watches that have all copies; None: the cluster is lost."""
        self.lost_since: datetime | None = tools.clock.now()
        self.reason, self.message = words.REASON_CLIENT_CONNECTION_FAILED, "The connection is being opened"
        """Why the cluster cannot be used."""
        times = tools.times
        self._backoff = Backoff(base=times.retry_base, cap=times.retry_max, chance=random.Random())
        self._steps = Controller(
            f"multikueue {name}",
            self._step,
            clock=self._clock,
            settings=ControllerSettings(workers=4, timeout=times.step),
        )
        self._changed = asyncio.Event()

    def enqueue(self, key: str, after: float = 0.0) -> None:
        """Take the steps for a Workload soon; while the cluster is lost, as soon as it is back."""
        self._steps.enqueue(key, after)

    def look(self) -> None:
        """Read the kubeconfig again now: what names it has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Connect, and connect again whenever the cluster is lost, until cancelled."""
        while True:
            with isolated_logged(
                _log, "a worker cluster gave an answer that is not understood", cluster=self.name
            ) as it:
                if await self._ended_by_change():
                    continue
            if it.error is not None:
                self._down(words.REASON_CLIENT_CONNECTION_FAILED, _NOT_UNDERSTOOD)
            await self._pause(self._backoff.next())

    async def _ended_by_change(self) -> bool:
        """Be connected once, and return whether another connection is to be opened at once."""
        try:
            await self._connected()
            self._down(words.REASON_CLIENT_CONNECTION_FAILED, _CHANGED)
            return True
        except InsecureKubeconfigError as e:
            self._down(words.REASON_INSECURE_KUBE_CONFIG, str(e))
        except WorkerSourceError as e:
            self._down(e.reason, str(e))
        except ConfigError as e:
            self._down(words.REASON_BAD_KUBE_CONFIG, str(e))
        except (ApiError, TimeoutError) as e:
            self._down(words.REASON_CLIENT_CONNECTION_FAILED, f"The cluster does not answer: {e}")
        return False

    async def _step(self, key: str) -> Result:
        link = self.link
        return await self._handlers.step(link, key) if link is not None else Result()

    # --- one connection ------------------------------------------------------------------------------------------

    async def _connected(self) -> None:
        """Be connected until the kubeconfig changes, or another cluster answers at its address.

        Raises:
            ConfigError, WorkerSourceError: the kubeconfig cannot be used.
            ApiError, TimeoutError: the cluster is lost.
        """
        times = self._tools.times
        content = await within(self._clock, times.answer, _of(self._handlers.source))
        ours = await self._tools.identity()
        async with self._opened(content, ours) as link:
            theirs = await within(self._clock, times.answer, self._check(link.client, ours))
            with self._held(theirs):
                async with _running(watch.run for watch in link.all()):
                    await self._sync(link)
                    self._up(link)
                    async with _running([self._steps.run]):
                        await self._watch_over(link, content, theirs)

    @asynccontextmanager
    async def _opened(self, content: bytes, ours: str) -> AsyncIterator[WorkerLink]:
        client = await self._handlers.connect(content)
        try:
            yield WorkerLink(self.name, client, self._tools, self._copy_changed, manager=ours)
        finally:
            self.link = None
            if self.reason == words.REASON_ACTIVE:
                self.reason, self.message = words.REASON_CLIENT_CONNECTION_FAILED, "The connection has ended"
            await client.close()

    async def _sync(self, link: WorkerLink) -> None:
        """Return when all watches have begun.  Raises TimeoutError, which names the others, after a while."""
        try:
            await within(self._clock, self._tools.times.sync, _settled(link))
        except TimeoutError as e:
            late = ", ".join(str(watch.resource) for watch in link.all() if not watch.settled.is_set())
            raise TimeoutError(f"{late} cannot be watched; may the user of the kubeconfig list and watch them?") from e

    async def _check(self, client: Client, ours: str) -> str:
        """Return the UID by which the cluster is known; empty: it cannot be read.

        The manager's own cluster is refused: its queue would take the copies for workloads of its own.
        """
        await client.version()
        theirs = await identity_of(client)
        if ours and ours == theirs:
            raise WorkerSourceError("The kubeconfig leads to the manager's own cluster; give one of another cluster")
        if not await serves_kueue(client):
            raise WorkerSourceError(
                f"The cluster serves no {names.API_VERSION}; install kqueue there, or Kueue 0.15 or newer",
                words.REASON_CLIENT_CONNECTION_FAILED,
            )
        return theirs

    @contextmanager
    def _held(self, theirs: str) -> Iterator[None]:
        """Refuse a cluster that another MultiKueueCluster names: one would delete what the other has created."""
        holder = self._tools.holders.setdefault(theirs, self.name) if theirs else self.name
        if holder != self.name:
            raise WorkerSourceError(f"MultiKueueCluster {holder} leads to the same cluster; delete one of both")
        try:
            yield
        finally:
            self._tools.holders.pop(theirs, None)

    async def _watch_over(self, link: WorkerLink, content: bytes, theirs: str) -> None:
        """Return when the kubeconfig has changed, or another cluster than `theirs` answers.

        Raises:
            ApiError, TimeoutError: the cluster is lost.
        """
        times = self._tools.times
        while True:
            await self._pause(times.probe)
            if await self._newest_source(content) != content:
                return
            await within(self._clock, times.answer, _of(link.client.version))
            if await within(self._clock, times.answer, identity_of(link.client)) != theirs:
                return
            silent = [str(watch.resource) for watch in link.all() if not watch.missing and watch.age() > times.silence]
            if silent:
                raise TimeoutError(f"no news of {', '.join(silent)} for {times.silence:g} s")

    async def _newest_source(self, known: bytes) -> bytes:
        """Return the kubeconfig as it is now; the known one while the manager's own cluster does not answer."""
        try:
            return bytes(await within(self._clock, self._tools.times.answer, _of(self._handlers.source)))
        except (ApiError, TimeoutError):
            return known

    async def _pause(self, seconds: float) -> None:
        """Wait, but no longer than until `look` is called."""
        self._changed.clear()
        try:
            await within(self._clock, seconds, _of(self._changed.wait))
        except TimeoutError:
            return

    # --- state ---------------------------------------------------------------------------------------------------

    def _copy_changed(self, key: str) -> None:
        if self.link is not None:  # before, all keys are enqueued at once when the watches are complete
            self._handlers.on_copy(key)

    def _up(self, link: WorkerLink) -> None:
        self.link, self.lost_since = link, None
        self.reason, self.message = words.REASON_ACTIVE, "Connected"
        self._backoff.reset()
        _log.info("worker cluster connected", cluster=self.name)
        self._handlers.on_state()
        for key in link.copied():
            self._handlers.on_copy(key)

    def _down(self, reason: str, message: str) -> None:
        self.link = None
        if self.lost_since is None:
            self.lost_since = self._clock.now()
        if (self.reason, self.message) == (reason, message):
            return
        self.reason, self.message = reason, message
        _log.warning("worker cluster lost", cluster=self.name, reason=reason, error=message)
        self._handlers.on_state()


async def identity_of(client: Client) -> str:
    """Return the UID by which a cluster is known; empty: we may not read it.

    Raises:
        ApiError: the cluster does not answer.
    """
    try:
        return text(await client.get_json(NAMESPACES, IDENTITY), "metadata", "uid")
    except (ForbiddenError, NotFoundError):
        return ""


async def serves_kueue(client: Client) -> bool:
    """Whether a cluster serves the version of Kueue's API in which copies are written, as far as we may ask.

    Raises:
        ApiError: the cluster does not answer.
    """
    try:
        await client.get_path(f"/apis/{names.API_VERSION}", resource=WORKLOADS)
    except NotFoundError:
        return False
    except ForbiddenError:
        return True
    return True


async def _settled(link: WorkerLink) -> None:
    for watch in link.all():
        await watch.settled.wait()


async def _of(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@asynccontextmanager
async def _running(parts: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> AsyncIterator[None]:
    """Run parts beside the block until it ends."""
    tasks = [asyncio.ensure_future(part()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            await cancel_and_wait(task)
