"""Reads the measured use of nodes and pods from metrics.k8s.io, as long as a policy of joint placement looks at it.

    off ──► a policy looks at measured use ──► read ──► pause for an interval ──► read ...
             no policy does any more ──► off: no request is sent, and all samples are forgotten

Nodes and pods have a reader each, with its own lane, time limit and pauses after failures.  Samples go to the store at
once; a round takes what the store has.  So no reader waits for the other one, for a round, or for its process, and a
sample that no round has seen is replaced by newer ones.  Without samples, reservations count: an API that is not served
any more leaves none, and one that fails leaves its last samples until they are old.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ResourceList
from kqueue.api.wire.metrics import MetricValue, NodeMetrics, PodMetrics
from kqueue.clock import Clock
from kqueue.core.joint.registry import PolicySpec, looks_at_use
from kqueue.core.joint.statistics import MEMORY, MOST, NO_SAMPLE, MeasuredKind, measured_kind
from kqueue.core.quantity import CPU, read_quantity
from kqueue.errors import ApiError, ForbiddenError, NotFoundError
from kqueue.isolation import isolated
from kqueue.model import PodView
from kqueue.runtime.backoff import Backoff
from kqueue.runtime.client import Client
from kqueue.runtime.deadline import within
from kqueue.runtime.lane import Lane
from kqueue.runtime.list_items import ListItems
from kqueue.runtime.resources import ResourceType
from kqueue.state.statistics import Sample, StatisticsStore, UseSummary

_log = structlog.get_logger(__name__)

GROUP, CUSTOM_GROUP = "metrics.k8s.io", "custom.metrics.k8s.io"
_VERSIONS, _CUSTOM_VERSIONS = ("v1", "v1beta1"), ("v1beta2", "v1beta1")
_LONGEST_PAUSE = 300.0
"""Seconds of the longest pause after failures; a longer interval counts instead."""
_TIME_LIMIT = 30.0
"""Seconds that reading one sample of all nodes or pods may take; a shorter interval counts instead."""
_ADDED = 2_000
"""Samples that are added before the event loop gets a turn."""
_PLACES = {CPU: 3, MEMORY: 0}
"""Decimal places of amounts: cpu is in milli."""

NODE, POD = "node", "pod"
"""Kinds of samples, as metrics name them."""


class UseCounter(Protocol):
    """Counts samples that are not used; `kind` is `NODE` or `POD`."""

    def unknown_use(self, kind: str) -> None:
        """Count a sample of a node or pod that the watches do not know, or of a pod without quota."""
        ...

    def bad_use(self, kind: str) -> None:
        """Count a sample with amounts that cannot be, or the second one of an object."""
        ...

    def use_failed(self, kind: str) -> None:
        """Count a list of samples that could not be read."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UseSettings:
    """Settings of the readers.

    Args:
        interval: seconds between two samples.
        bandwidth_metric: the metric of nodes that measures bandwidth in use; empty: none does.
        specs: the policies of the configuration.
    """

    interval: float
    bandwidth_metric: str = ""
    specs: tuple[PolicySpec, ...] = ()

    @property
    def time_limit(self) -> float:
        """The seconds that reading one sample may take."""
        return min(self.interval, _TIME_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownObjects:
    """The watches, as the readers need them.

    Args:
        is_node: whether there is a node of this name.
        pod: the view of the pod at a key; None: there is none.
        workload: the Workload with the pods of this name; see `model.siblings_key`.
    """

    is_node: Callable[[str], bool]
    pod: Callable[[str], PodView | None]
    workload: Callable[[str], wire.Workload | None]

    def kind(self, key: str) -> MeasuredKind | None:
        """Return the kind of a pod that runs with quota; None: it is unknown, or it does not."""
        pod = self.pod(key)
        if pod is None or pod.bound is None or not pod.bound.workload:
            return None
        workload = self.workload(pod.bound.workload)
        if workload is None or workload.status.admission is None:
            return None
        return measured_kind(workload.status.admission.cluster_queue, dict(pod.bound.requests))


class UseWanted:
    """Whether any policy looks at measured use: one of the configuration, or one that a ClusterQueue names."""

    def __init__(self, specs: tuple[PolicySpec, ...]) -> None:
        self._always, self._queues = looks_at_use(specs), set[str]()
        self.event = asyncio.Event()
        """Set while a policy does."""
        self._set()

    def on_cluster_queue(self, old: wire.ClusterQueue | None, new: wire.ClusterQueue | None) -> None:
        """Follow a watch event of a ClusterQueue."""
        if old is not None:
            self._queues.discard(old.metadata.name)
        specs = model.joint_policies(new.metadata)[0] if new is not None else None
        if new is not None and specs is not None and looks_at_use(specs):
            self._queues.add(new.metadata.name)
        self._set()

    def _set(self) -> None:
        if self._always or self._queues:
            self.event.set()
        else:
            self.event.clear()


class UsageMetrics:
    """The two readers of measured use."""

    def __init__(
        self,
        client: Client,
        store: StatisticsStore,
        known: KnownObjects,
        *,
        settings: UseSettings,
        clock: Clock,
        count: UseCounter,
        chance: random.Random | None = None,
    ) -> None:
        self._store, self._chance = store, chance or random.Random()
        self.wanted = UseWanted(settings.specs)
        self._told = set[str]()
        """Problems of the moment that the log has."""
        nodes = _NodeReader(client, store, known, settings, clock, count)
        pods = _PodReader(client, store, known, settings, clock, count)
        self._loops = [_Loop(reader, self, settings, clock) for reader in (nodes, pods)]

    @property
    def runs(self) -> list[Callable[[], Coroutine[None, None, None]]]:
        """The tasks of both readers, which run while this process leads."""
        return [loop.run for loop in self._loops]

    def summary(self) -> UseSummary | None:
        """Return what is known of measured use; None: no policy looks at it."""
        if not self.wanted.event.is_set():
            return None
        problems = dict.fromkeys(loop.problem for loop in self._loops if loop.problem)
        return UseSummary(nodes=len(self._store.nodes), kinds=len(self._store.kinds), problems=tuple(problems))

    def pauses(self, interval: float) -> Backoff:
        """Return the pauses of a reader after failures."""
        return Backoff(base=interval, cap=max(interval, _LONGEST_PAUSE), chance=self._chance)

    def forget(self) -> None:
        """Forget all samples, because no policy looks at them."""
        self._store.clear()

    def tell(self) -> None:
        """Say each problem in the log once, and once when all are over."""
        problems = {loop.problem for loop in self._loops if loop.problem}
        for problem in sorted(problems - self._told):
            _log.warning("measured use cannot be read, reservations count instead", problem=problem)
        if self._told and not problems:
            _log.info("measured use is read again")
        self._told = problems


@dataclass(slots=True)
class _Loop:
    """Runs one reader at intervals."""

    reader: _Reader
    metrics: UsageMetrics
    settings: UseSettings
    clock: Clock
    problem: str = ""
    """Why the last samples could not be read; empty: they could."""

    async def run(self) -> None:
        """Read until cancelled; wait without requests while no policy looks at measured use."""
        wanted, backoff = self.metrics.wanted.event, self.metrics.pauses(self.settings.interval)
        while True:
            if not wanted.is_set():
                self.metrics.forget()
                self.problem = ""
                await wanted.wait()
            with isolated() as reading:
                await within(self.clock, self.settings.time_limit, self.reader.read())
            pause = self.settings.interval
            if reading.error is None:
                backoff.reset()
                self.problem = ""
            else:
                pause = max(pause, backoff.next())
                self._note(reading.error)
            self.metrics.tell()
            await self.clock.sleep(pause)

    def _note(self, error: Exception) -> None:
        before, self.problem = self.problem, _problem(error, self.settings.time_limit)
        if isinstance(error, _NotServedError):
            self.reader.forget()
        self.reader.count.use_failed(self.reader.kind)
        if self.problem != before and not isinstance(error, _KNOWN):
            _log.error("reading measured use failed on a bug", samples=self.reader.kind, exc_info=error)


def _problem(error: Exception, limit: float) -> str:
    """Return what keeps samples from being read, in words that stay the same while it lasts."""
    if isinstance(error, _NotServedError):
        return f"the API {error} is not served: install a metrics server, or set joint.statistics.source to none"
    if isinstance(error, TimeoutError):
        return f"no answer of {GROUP} within {limit:g} s"
    if isinstance(error, ForbiddenError):
        return f"kqueue may not read {GROUP}: {error}"
    return str(error) or type(error).__name__


class _NotServedError(Exception):
    """An API group has no version that is known here."""


_KNOWN = (ApiError, TimeoutError, _NotServedError)
"""Errors that say why there are no samples; all others are bugs."""


@dataclass(slots=True)
class _Reader(ABC):
    """Reads the samples of all objects of one kind once, and puts them into the store."""

    client: Client
    store: StatisticsStore
    known: KnownObjects
    settings: UseSettings
    clock: Clock
    count: UseCounter
    kind: str = ""
    lane: Lane = Lane.NODE_USE
    _version: dict[str, str] = field(default_factory=dict)

    @abstractmethod
    async def read(self) -> None:
        """Read one sample of each object.  Raises ApiError, and `_NotServedError`."""

    @abstractmethod
    def forget(self) -> None:
        """Forget the samples, because the API was taken away."""

    async def _list(self, group: str, plural: str, *, metric: str = "", selector: str = "") -> bytes:
        """Return a list of an API group, in the newest version that is served; `metric`: this one of all objects."""
        known = self._version.get(group)
        if known is not None:
            try:
                return await self._ask(group, known, plural, metric, selector)
            except NotFoundError:
                del self._version[group]
        return await self._ask(group, await self._served(group), plural, metric, selector)

    async def _ask(self, group: str, version: str, plural: str, metric: str, selector: str) -> bytes:
        resource = ResourceType(group, version, plural, plural, namespaced=False)
        path = resource.path(None, "*" if metric else None, metric or None)
        params = {"labelSelector": selector} if selector else {}
        return await self.client.get_bytes(path, params, resource=resource, lane=self.lane)

    async def _served(self, group: str) -> str:
        versions = _VERSIONS if group == GROUP else _CUSTOM_VERSIONS
        resource = ResourceType(group, versions[-1], "apigroups", "APIGroup", namespaced=False)
        try:
            found = await self.client.get_path(f"/apis/{group}", resource=resource, lane=self.lane)
        except NotFoundError as e:
            raise _NotServedError(group) from e
        served = {one.get("version") for one in found.get("versions") or () if isinstance(one, dict)}
        version = next((version for version in versions if version in served), None)
        if version is None:
            raise _NotServedError(f"{group} in one of the versions {', '.join(versions)}")
        self._version[group] = version
        return version


@dataclass(slots=True)
class _NodeReader(_Reader):
    """Reads the use of nodes."""

    kind: str = NODE

    async def read(self) -> None:
        """Read one sample of each node."""
        items = ListItems(NodeMetrics, first_field="metadata", clock=self.clock)
        found: dict[str, Sample | None] = {}
        body = await self._list(GROUP, "nodes")
        async for piece in items.of(body, f"list nodes of {GROUP}"):
            for item in piece:
                name = item.metadata.name if item is not None else ""
                if item is None or not name or name in found:
                    self.count.bad_use(NODE)
                elif not self.known.is_node(name):
                    self.count.unknown_use(NODE)
                else:
                    found[name] = use_of(item.usage)
                    if found[name] is None:
                        self.count.bad_use(NODE)
        usable = {name: sample for name, sample in found.items() if sample is not None}
        if self.settings.bandwidth_metric:
            usable = await self._with_bandwidth(usable)
        self.store.keep_nodes(self.known.is_node)
        samples = iter(usable.items())
        while some := dict(islice(samples, _ADDED)):
            self.store.add_nodes(some)
            await self.clock.sleep(0)

    def forget(self) -> None:
        """Forget the samples of nodes."""
        self.store.nodes.clear()

    async def _with_bandwidth(self, samples: dict[str, Sample]) -> dict[str, Sample]:
        """Return the samples with the bandwidth in use of the nodes that have this metric."""
        items = ListItems(MetricValue, first_field="describedObject", clock=self.clock)
        body = await self._list(CUSTOM_GROUP, "nodes", metric=self.settings.bandwidth_metric)
        found = dict(samples)
        async for piece in items.of(body, f"list nodes of {CUSTOM_GROUP}"):
            for item in piece:
                amount = amount_of(item.value, 0) if item is not None else None
                if item is None or amount is None:
                    self.count.bad_use(NODE)
                elif item.described_object.name in found:
                    found[item.described_object.name] = (*found[item.described_object.name][:2], amount)
        return found


@dataclass(slots=True)
class _PodReader(_Reader):
    """Reads the use of pods that kqueue started, and sums it up by kind."""

    kind: str = POD
    lane: Lane = Lane.POD_USE

    async def read(self) -> None:
        """Read one sample of each pod."""
        items = ListItems(PodMetrics, first_field="metadata", clock=self.clock)
        sums: dict[MeasuredKind, tuple[int, int, int]] = {}
        seen = set[str]()
        body = await self._list(GROUP, "pods", selector=names.PODSET_LABEL)
        async for piece in items.of(body, f"list pods of {GROUP}"):
            for item in piece:
                key = f"{item.metadata.namespace}/{item.metadata.name}" if item is not None else ""
                sample = _use_of_containers(item) if item is not None else None
                if sample is None or key in seen:
                    self.count.bad_use(POD)
                    continue
                seen.add(key)
                kind = self.known.kind(key)
                if kind is None:
                    self.count.unknown_use(POD)
                else:
                    pods, cpu, memory = sums.get(kind, (0, 0, 0))
                    sums[kind] = pods + 1, cpu + sample[0], memory + sample[1]
        self.store.add_kinds(
            {kind: (cpu // pods, memory // pods, NO_SAMPLE) for kind, (pods, cpu, memory) in sums.items()}
        )

    def forget(self) -> None:
        """Forget the samples of kinds of pods."""
        self.store.kinds.clear()


def use_of(usage: ResourceList) -> Sample | None:
    """Return the amounts of a sample; None: one of cpu and memory is missing, negative, too large or no amount."""
    found = [amount_of(usage.get(resource), places) for resource, places in _PLACES.items()]
    if any(amount is None for amount in found):
        return None
    return (*(amount for amount in found if amount is not None), NO_SAMPLE)


def amount_of(text: str | int | None, places: int) -> int | None:
    """Return an amount in units of 10^-`places`, rounded up; None: it is missing, negative, too large or no amount."""
    try:
        amount = read_quantity(text).rounded(places) if text is not None else -1
    except ValueError:
        return None
    return amount if 0 <= amount <= MOST else None


def _use_of_containers(pod: PodMetrics) -> Sample | None:
    """Return the use of a pod, which has at least one container."""
    found = [use_of(container.usage) for container in pod.containers]
    if not found or any(sample is None for sample in found):
        return None
    cpu, memory, _ = (sum(column) for column in zip(*(sample for sample in found if sample is not None), strict=True))
    return (cpu, memory, NO_SAMPLE) if max(cpu, memory) <= MOST else None
