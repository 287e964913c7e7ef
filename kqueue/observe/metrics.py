"""All metrics of a process: one registry, children bound once, pages cached.  Nothing here blocks the event loop."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Literal

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.registry import Collector

from kqueue.build import build
from kqueue.clock import Clock, SystemClock
from kqueue.observe.custom_labels import CustomLabel, CustomLabels
from kqueue.observe.dashboard_metrics import DashboardMetrics
from kqueue.observe.exposition import Group, Subject, chunks
from kqueue.observe.families import (
    ClusterQueueFamilies,
    ClusterQueueResourceFamilies,
    CohortActiveFamilies,
    CohortFamilies,
    CycleFamilies,
    GangFamilies,
    JointFamilies,
    LocalQueueFamilies,
    PreemptorFamilies,
    ProcessFamilies,
)
from kqueue.observe.family import Family, Gauge
from kqueue.observe.joint_metrics import JointMetrics
from kqueue.observe.metric_groups import DEFAULT_GROUPS, MetricGroups
from kqueue.observe.queue_metrics import ClusterQueueMetrics, CohortMetrics, LocalQueueMetrics
from kqueue.observe.record_metrics import RecordMetrics

_SWITCH_SECONDS = 0.0005
"""Switch interval of the interpreter while a thread renders; the default is 5 ms.
With 1,000 queues this lowers the 99th percentile of late timers during rendering by a third."""

Role = Literal["leader", "follower", "standalone"]

Kind = Literal["ClusterQueue", "LocalQueue", "Cohort", "Workload"]
"""Kinds of objects whose metrics may have custom labels."""


class Metrics:
    """All metrics of this process.

    Queues report through `cluster_queue(name)` and `local_queue(...)`; when a queue is deleted, `forget_...` removes
    all its series, so the number of series follows the number of objects.
    """

    def __init__(
        self,
        *,
        groups: MetricGroups = DEFAULT_GROUPS,
        clock: Clock | None = None,
        role: Role = "standalone",
        custom_labels: Mapping[Kind, Sequence[CustomLabel]] | None = None,
        cache_seconds: float = 5.0,
    ) -> None:
        """`cache_seconds`: a page is served so long before it is rendered anew."""
        self._clock = clock or SystemClock()
        self._cache_seconds = cache_seconds
        self._role: Role = role
        found = custom_labels or {}
        self._custom: dict[Kind, CustomLabels] = {
            kind: CustomLabels(found.get(kind, ())) for kind in ("ClusterQueue", "LocalQueue", "Cohort")
        }
        self._of_workloads = tuple(found.get("Workload", ()))
        self._groups: list[tuple[_Registry, Subject | None]] = []
        self._sources: dict[tuple[Gauge, tuple[str, ...]], Callable[[], float | None]] = {}
        self._make_families(groups)
        self._begin_memories()
        self._rendered: tuple[float, bytes] | None = None
        self._rendering = asyncio.Lock()
        self._cycle.build_info.labels(*build().labels()).set(1)

    def _make_families(self, groups: MetricGroups) -> None:
        """Register all families; their order here is their order on pages."""
        of_workloads = [label.shown_name for label in self._of_workloads]
        of_queue = self._group(Subject(("cluster_queue",), self._custom["ClusterQueue"]))
        of_preemptor = self._group(Subject(("preempting_cluster_queue",), self._custom["ClusterQueue"]))
        of_local = self._group(Subject(("namespace", "name"), self._custom["LocalQueue"]))
        of_cohort = self._group(Subject(("cohort",), self._custom["Cohort"]))
        others = self._group(None)
        self._cycle = CycleFamilies(others)
        self._process = ProcessFamilies(others)
        self._gangs = GangFamilies(others)
        self._joint = JointFamilies(others)
        self.joint = JointMetrics(self._joint)
        """Counts rounds of joint placement."""
        self.record = RecordMetrics(others)
        self.dashboard = DashboardMetrics(others if groups.dashboard else None, self._sources)
        self._queue_families = ClusterQueueFamilies(
            of_queue,
            places=groups.cohorts,
            unadmitted=groups.unadmitted,
            hashes=groups.hashes,
            of_workloads=of_workloads,
        )
        self._preemptor_families = PreemptorFamilies(of_preemptor)
        self._resource_families = ClusterQueueResourceFamilies(of_queue if groups.cluster_queue_resources else None)
        self.has_resources = groups.cluster_queue_resources
        """Whether quota per ClusterQueue is shown."""
        self._cohort_families = CohortFamilies(of_cohort, places=groups.cohorts)
        self._active_families = CohortActiveFamilies(
            others, [label.shown_name for label in self._custom["ClusterQueue"].labels]
        )
        self._creation_latency = groups.creation_latency
        self._local_families = LocalQueueFamilies(
            of_local if groups.local_queues else None, unadmitted=groups.unadmitted, of_workloads=of_workloads
        )
        ProcessCollector(registry=others)

    def _begin_memories(self) -> None:
        """Begin without any object; families must be there."""
        self._cluster_queues: dict[str, ClusterQueueMetrics] = {}
        self._local_queues: dict[tuple[str, str], LocalQueueMetrics] = {}
        self._left_out: set[tuple[str, str]] = set()
        """LocalQueues without series."""
        self._nobody = LocalQueueMetrics("", "", self._local_families)
        self._nobody.close()
        self._cohorts: dict[str, CohortMetrics] = {}
        self.cohorts_above: Callable[[str], Sequence[str]] = lambda _queue: ()
        """Returns the cohorts above a ClusterQueue at its first report; later reports set them (`place`)."""
        self._skips: dict[str, int] = {}
        """Last reported skips of preemptors by ClusterQueue."""
        self._foreign: dict[str, set[str]] = {}
        """Resources with a series of foreign requests, by flavor."""
        self._quarantined: set[str] = set()
        """ClusterQueues with Workloads in quarantine at the last report."""
        self._without_queue: set[str] = set()
        """Namespaces with a series of Workloads without a LocalQueue."""
        self._not_running: set[str] = set()
        """ClusterQueues with a series of released pods that do not run."""
        self._rooms: dict[tuple[str, Gauge], set[tuple[str, str]]] = {}
        """Series of the free room by flavor and family."""

    def _group(self, subject: Subject | None) -> _Registry:
        registry = _Registry()
        self._groups.append((registry, subject))
        return registry

    def described(self) -> list[tuple[str, str, tuple[str, ...]]]:
        """Return (name, type, labels) of each family as on pages, without `replica_role` and custom labels."""
        return [found for registry, _ in self._groups for found in registry.described()]

    # --- objects

    def describe(self, kind: Kind, key: tuple[str, ...], labels: Mapping[str, str], notes: Mapping[str, str]) -> None:
        """Take the custom labels of an object from its labels and annotations, when it was created or has changed.

        `key` is the object's name; of a LocalQueue (namespace, name).
        """
        self._custom[kind].describe(key, labels, notes)

    def undescribe(self, kind: Kind, key: tuple[str, ...]) -> None:
        """Forget the custom labels of a deleted object."""
        self._custom[kind].forget(key)

    def custom_values(self, cluster_queue: str) -> tuple[str, ...]:
        """Return the values of the custom labels of a ClusterQueue."""
        return self._custom["ClusterQueue"].values((cluster_queue,))

    @property
    def has_workload_labels(self) -> bool:
        """Whether custom labels with values from Workloads are configured."""
        return bool(self._of_workloads)

    def values_of(self, labels: Mapping[str, str], notes: Mapping[str, str]) -> tuple[str, ...]:
        """Return the values of the custom labels of a Workload with these labels and annotations."""
        return tuple([label.value(labels, notes) for label in self._of_workloads])

    def show_local_queue(self, *, namespace: str, name: str, shown: bool) -> None:
        """Show or hide the series of a LocalQueue; LocalQueues are shown by default."""
        if shown:
            self._left_out.discard((namespace, name))
        else:
            self._left_out.add((namespace, name))
            self._forget_series(namespace, name)

    # --- queues

    def cluster_queue(self, name: str) -> ClusterQueueMetrics:
        """Return the metrics of ClusterQueue `name`."""
        found = self._cluster_queues.get(name)
        if found is None:
            found = ClusterQueueMetrics(
                name,
                self._queue_families,
                self._resource_families,
                self._preemptor_families,
                self._cohort_families.subtree_admitted,
                above=self.cohorts_above(name),
            )
            self._cluster_queues[name] = found
        return found

    def forget_cluster_queue(self, name: str) -> None:
        """Remove every series of a deleted ClusterQueue."""
        if (queue := self._cluster_queues.pop(name, None)) is not None:
            queue.close()
            self._skips.pop(name, None)
            for group in (self._queue_families, self._resource_families):
                _remove(group, {"cluster_queue": name})
            _remove(self._preemptor_families, {"preempting_cluster_queue": name})

    def local_queue(self, *, namespace: str, name: str) -> LocalQueueMetrics:
        """Return the metrics of a LocalQueue."""
        found = self._local_queues.get((namespace, name))
        if found is None:
            if (namespace, name) in self._left_out:
                return self._nobody
            found = self._local_queues[namespace, name] = LocalQueueMetrics(name, namespace, self._local_families)
        return found

    def forget_local_queue(self, *, namespace: str, name: str) -> None:
        """Remove every series of a deleted LocalQueue."""
        self._left_out.discard((namespace, name))
        self._forget_series(namespace, name)

    def _forget_series(self, namespace: str, name: str) -> None:
        if (queue := self._local_queues.pop((namespace, name), None)) is not None:
            queue.close()
            _remove(self._local_families, {"name": name, "namespace": namespace})

    def cohort(self, name: str) -> CohortMetrics:
        """Return the metrics of a cohort."""
        found = self._cohorts.get(name)
        if found is None:
            found = self._cohorts[name] = CohortMetrics(name, self._cohort_families, self._active_families)
        return found

    def forget_cohort(self, name: str) -> None:
        """Remove every series of a deleted cohort."""
        if (cohort := self._cohorts.pop(name, None)) is not None:
            cohort.close()
        for group in (self._cohort_families, self._active_families):
            _remove(group, {"cohort": name})

    # --- admission

    def attempt(self, *, success: bool, seconds: float) -> None:
        """Count a cycle; `success`: the cycle admitted at least one Workload."""
        result = "success" if success else "inadmissible"
        self._cycle.attempts.labels(result).inc()
        self._cycle.attempt_seconds.labels(result).observe(max(0.0, seconds))

    def phases(self, seconds: Mapping[str, float]) -> None:
        """Observe the seconds that a cycle spent in each phase."""
        for phase, took in seconds.items():
            self._cycle.phase_seconds.labels(phase).observe(max(0.0, took))

    def preemption_skips(self, preemptors: Mapping[str, int]) -> None:
        """Set, by ClusterQueue, how many preemptors of the last cycle lost their targets to other preemptors."""
        for name, number in preemptors.items():  # reported after every cycle for all its queues; rarely changes
            if self._skips.get(name) != number:
                self._skips[name] = number
                self.cluster_queue(name).preemption_skips(number)

    def quarantined(self, by_queue: Mapping[str, int]) -> None:
        """Set the Workloads in quarantine by ClusterQueue; the key is empty for Workloads without a ClusterQueue."""
        for name in self._quarantined - by_queue.keys():
            if name in self._cluster_queues:
                self.cluster_queue(name).quarantined(0)
        for name, number in by_queue.items():
            self.cluster_queue(name).quarantined(number)
        self._quarantined = set(by_queue)

    def without_local_queue(self, by_namespace: Mapping[str, int]) -> None:
        """Set the Workloads that wait and name a LocalQueue that does not exist; other namespaces have no series."""
        _show_only(self._process.without_local_queue, by_namespace, shown=self._without_queue)

    def not_running(self, by_queue: Mapping[str, int]) -> None:
        """Set the released pods that do not run, by ClusterQueue; other ClusterQueues have no series."""
        _show_only(self._process.not_running, by_queue, shown=self._not_running)

    def gangs(self, phases: Mapping[tuple[str, str], int], *, extras: Mapping[tuple[str, str], int]) -> None:
        """Set the gangs by (framework, phase), and pods beyond the quorum by (framework, state); others keep theirs."""
        for labels, number in phases.items():
            self._gangs.gangs.labels(*labels).set(number)
        for labels, number in extras.items():
            self._gangs.extras.labels(*labels).set(number)

    def gang_rejected(self, framework: str, reason: str) -> None:
        """Count a gang that was rejected; `reason` is one of a fixed set."""
        self._gangs.rejections.labels(framework, reason).inc()

    def quorum_scheduled(self, framework: str, seconds: float) -> None:
        """Count a gang whose quorum has nodes, so many seconds after its admission."""
        self._gangs.until_quorum.labels(framework).observe(seconds)

    def workload_created(self, *, job_kind: str, seconds: float) -> None:
        """Observe that a Workload was created `seconds` after its job."""
        if not self._creation_latency:
            return
        self._cycle.creation_latency.labels(job_kind).observe(max(0.0, seconds))

    def drift(self, cause: str, entries: int = 1) -> None:
        """Count `entries` of the cache that an audit has corrected."""
        self._process.drift.labels(cause).inc(entries)

    def ignored_nodes(self, flavor: str, counts: Mapping[str, int]) -> None:
        """Set the nodes with a flavor's labels that are not part of its topology, by reason."""
        for reason, nodes in counts.items():
            self._process.ignored_nodes.labels(flavor, reason).set(nodes)

    def foreign(self, flavor: str, *, pods: int, requests: Mapping[str, float]) -> None:
        """Set the requests of pods on a flavor's nodes that kqueue does not place; other resources have no series."""
        self._process.foreign_pods.labels(flavor).set(pods)
        for resource in self._foreign.get(flavor, set()) - requests.keys():
            self._process.foreign_requests.remove(flavor, resource)
        self._foreign[flavor] = set(requests)
        for resource, amount in requests.items():
            self._process.foreign_requests.labels(flavor, resource).set(amount)

    def room(
        self,
        flavor: str,
        *,
        slots: Mapping[tuple[str, int], int],
        broken: Mapping[tuple[str, str], float],
        lost: Mapping[tuple[str, int], float],
    ) -> None:
        """Set the gangs of empty nodes that fit, by (level, nodes), and the free share in partly used domains.

        The shares are by (level, resource); `lost` are the shares of the empty nodes that such gangs cannot use.  Other
        keys have no series.
        """
        process = self._process
        sizes = {(level, str(nodes)): float(number) for (level, nodes), number in slots.items()}
        shares = {(level, str(nodes)): share for (level, nodes), share in lost.items()}
        pages: tuple[tuple[Gauge, Mapping[tuple[str, str], float]], ...] = (
            (process.gang_slots, sizes),
            (process.fragmentation, broken),
            (process.gang_fragmentation, shares),
        )
        for family, values in pages:
            known = self._rooms.setdefault((flavor, family), set())
            for gone in known - values.keys():
                family.remove(flavor, *gone)
            self._rooms[flavor, family] = set(values)
            for key, value in values.items():
                family.labels(flavor, *key).set(value)

    def forget_flavor(self, name: str) -> None:
        """Remove the series of nodes of a deleted flavor."""
        process = self._process
        self._foreign.pop(name, None)
        for family in (process.gang_slots, process.fragmentation, process.gang_fragmentation):
            self._rooms.pop((name, family), None)
            family.remove_by_labels({"flavor": name})
        for family in (process.ignored_nodes, process.foreign_pods, process.foreign_requests):
            family.remove_by_labels({"flavor": name})

    # --- the process

    def api_request(self, *, verb: str, resource: str, subresource: str, lane: str, code: int, seconds: float) -> None:
        """Count a request to the API server; code 0: no answer came."""
        self._process.api_requests.labels(verb, resource, subresource, lane, str(code)).inc()
        if verb != "watch":  # the length of a watch says nothing
            self._process.api_seconds.labels(verb, lane).observe(max(0.0, seconds))

    def reconcile(self, *, controller: str, result: str, seconds: float) -> None:
        """Count a reconcile."""
        self._process.reconciles.labels(controller, result).inc()
        self._process.reconcile_seconds.labels(controller).observe(max(0.0, seconds))

    def plugin(self, plugin: str, point: str, seconds: float) -> None:
        """Count a call of a plugin.  `plugin` must be a name in the configuration."""
        self._process.plugin_seconds.labels(plugin, point).observe(max(0.0, seconds))

    def webhook(self, *, path: str, operation: str, result: str, seconds: float) -> None:
        """Count an admission review.  `path` must be a known route, not a value from the client."""
        self._process.webhooks.labels(path, operation, result).inc()
        self._process.webhook_seconds.labels(path).observe(max(0.0, seconds))

    def webhook_certificate(self, not_after: datetime) -> None:
        """Set when the certificate of the webhooks expires."""
        self._process.certificates.labels("webhook").set(not_after.timestamp())

    def certificate(self, server: str, not_after: Callable[[], float | None]) -> None:
        """Call `not_after` at each page for the Unix time at which a server's certificate expires; None: not known."""
        self._sources[self._process.certificates, (server,)] = not_after

    def visibility(self, status: int, seconds: float) -> None:
        """Count a request to the visibility API."""
        self._process.questions.labels(str(status)).inc()
        self._process.question_seconds.observe(max(0.0, seconds))

    def learned_groups(self, groups: Callable[[], int]) -> None:
        """Call `groups` at each page for the number of groups of like workloads whose run times are known."""
        self._sources[self._process.learned_groups, ()] = groups

    def loop_lag(self, seconds: float) -> None:
        """Observe a timer that the event loop ran `seconds` late."""
        self._process.loop_lag.observe(max(0.0, seconds))

    def recreation_stopped(self) -> None:
        """Count a Workload that was switched off because it was deleted and created anew too often."""
        self._process.recreations_stopped.inc()

    def event_lost(self, cause: str) -> None:
        """Count an event that was not written: `queue-full`, `too-many-notes`, `refused` or `shutdown`."""
        self._process.events_lost.labels(cause).inc()

    def event_joined(self) -> None:
        """Count an event that was joined: another event of the same moment reports its content."""
        self._process.events_joined.inc()

    def events_waiting(self, rank: str, *, depth: Callable[[], int], oldest_age: Callable[[], float]) -> None:
        """Call for the number of waiting events of a rank, and for the age of the oldest, at each page.

        The age is the seconds since the event was recorded; 0: no event waits.
        """
        self._sources[self._process.events_waiting, (rank,)] = depth
        self._sources[self._process.events_oldest, (rank,)] = oldest_age

    def rank_fallback(self, reason: str) -> None:
        """Count a workload whose pods were released without the order of their ranks, for `reason`."""
        self._process.rank_fallbacks.labels(reason).inc()

    def leaked_gates(self, pods: Mapping[str, int]) -> None:
        """Set the pods that our gate holds for ever, by reason; other reasons keep their number."""
        for reason, number in pods.items():
            self._process.leaked_gates.labels(reason).set(number)

    def unmanaged_labelled(self, kind: str, objects: int) -> None:
        """Set the objects that name a queue although their kind is switched off."""
        self._process.unmanaged_labelled.labels(kind).set(objects)

    def leading(self, lease: str, *, leads: bool) -> None:
        """Set whether this replica holds `lease`, and with it the role of all series."""
        self._process.leading.labels(lease).set(float(leads))
        self.set_role("leader" if leads else "follower")

    def set_role(self, role: Role) -> None:
        """Report all series under `role` from the next page on, with their values; series of the old role end."""
        self._role = role
        self._rendered = None

    def watch_age(self, kind: str, age: Callable[[], float | None]) -> None:
        """Call `age` at each page for the seconds since a watch's last sign of life.

        None: no sign of life is expected, and the watch has no series.
        """
        self._sources[self._process.watch_age, (kind,)] = age

    def work_queue(self, name: str, depth: Callable[[], int]) -> None:
        """Call `depth` at each page for the number of waiting keys."""
        self._sources[self._process.queue_depth, (name,)] = depth

    def work_rank(
        self, controller: str, rank: str, *, depth: Callable[[], int], oldest_age: Callable[[], float]
    ) -> None:
        """Call at each page for the number of waiting keys of a rank, and for the age of the oldest in seconds."""
        self._sources[self._process.rank_depth, (controller, rank)] = depth
        self._sources[self._process.rank_age, (controller, rank)] = oldest_age

    def request_lane(
        self, lane: str, *, in_flight: Callable[[], int], waiting: Callable[[], int], oldest_age: Callable[[], float]
    ) -> None:
        """Call at each page for the requests of a lane, and for the seconds that the oldest has waited."""
        self._sources[self._process.lane_in_flight, (lane,)] = in_flight
        self._sources[self._process.lane_waiting, (lane,)] = waiting
        self._sources[self._process.lane_age, (lane,)] = oldest_age

    def joint_paused(self, is_paused: Callable[[], bool]) -> None:
        """Call `is_paused` at each page: whether joint placement rests."""
        self._sources[self._joint.paused, ()] = is_paused

    def stray_pods(self, number: Callable[[], int]) -> None:
        """Call `number` at each page for the pods that name a Workload and do not belong to its job."""
        self._sources[self._process.stray_pods, ("uncontrolled",)] = number

    @contextmanager
    def collector_pauses(self) -> Iterator[None]:
        """Measure the garbage collector inside the block."""
        children = [self._process.collector_pause.labels(str(generation)) for generation in range(3)]
        began = 0.0

        def measure(phase: str, info: dict[str, int]) -> None:
            nonlocal began
            if phase == "start":
                began = time.perf_counter()  # too short and too frequent for the injected clock
            else:
                children[info["generation"]].observe(time.perf_counter() - began)

        gc.callbacks.append(measure)
        try:
            yield
        finally:
            gc.callbacks.remove(measure)

    # --- pages

    async def render(self) -> bytes:
        """Return the page in Prometheus' text format (`CONTENT_TYPE`), up to `cache_seconds` old, made in a thread."""
        async with self._rendering:  # one rendering at a time: other requests take the cached page
            now = self._clock.monotonic()
            if self._rendered is None or now - self._rendered[0] > self._cache_seconds:
                self._sample()
                page = await asyncio.to_thread(_politely, self._pages(), self._role)
                self._rendered = (now, page)
            return self._rendered[1]

    def _pages(self) -> list[Group]:
        return [(registry.collectors, subject) for registry, subject in self._groups]

    def _sample(self) -> None:
        for (gauge, labels), source in self._sources.items():
            value = source()
            if value is None:
                gauge.remove(*labels)
            else:
                (gauge.labels(*labels) if labels else gauge).set(value)


class _Registry(CollectorRegistry):
    """Accepts a gauge and a counter whose names differ in `_total` only, such as Kueue's `kueue_finished_workloads`.

    The library's own registry refuses the two names, although their samples differ.
    """

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Show `collector` on the page."""
        self.collectors.append(collector)

    def collect(self) -> Iterable[Metric]:
        """Yield every family, in the order of registration."""
        for collector in self.collectors:
            yield from collector.collect()

    def described(self) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Return (name, type, labels) of each family, without the families that the library makes of the process."""
        for collector in self.collectors:
            if isinstance(collector, Family):
                yield collector.name, collector.kind, collector.label_names


def _politely(groups: Iterable[Group], role: Role) -> bytes:
    """Render the page in a thread; the event loop gets the interpreter within a millisecond, not within five."""
    pieces: list[bytes] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        for piece in chunks(groups, role):
            pieces.append(piece)
            time.sleep(0)
    finally:
        sys.setswitchinterval(before)
    return b"".join(pieces)


def _remove(group: object, labels: dict[str, str]) -> None:
    for family in vars(group).values():
        if isinstance(family, Family):
            family.remove_by_labels(labels)


def _show_only(family: Gauge, values: Mapping[str, int], *, shown: set[str]) -> None:
    """Set the series of these values and remove all others; `shown` has the label values with a series."""
    for gone in shown - values.keys():
        family.remove(gone)
    for value, number in values.items():
        family.labels(value).set(number)
    shown.clear()
    shown.update(values)
