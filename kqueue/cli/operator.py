"""Wiring of the controller process: watches, cache, queues, scheduling loop, reconcilers, probes.

Watches and their handlers run in every replica, so that a follower is warm; what writes runs only in the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.cli.telemetry import CycleObserver, Events, QueueGauges, WorkloadCounter
from kqueue.cli.upkeep import Auditor, ForeignGauges, NodeGauges
from kqueue.clock import Clock
from kqueue.config import Configuration, Timings
from kqueue.controllers import resources as kinds
from kqueue.controllers.finalizers import FinalizerReconciler
from kqueue.controllers.gate_sweeper import GateSweeper
from kqueue.controllers.intake import Intake
from kqueue.controllers.job import OWNER_INDEX, JobReconciler, owner_keys
from kqueue.controllers.node_health import FailureSwitches, NodeHealth
from kqueue.controllers.queue_status import ClusterQueueReconciler, CohortReconciler, LocalQueueReconciler
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.topology_ungater import TopologyUngater
from kqueue.controllers.workload import WorkloadReconciler
from kqueue.core.cycle import SecondLooks
from kqueue.core.ordering import OrderRules
from kqueue.core.preemption import Strategy
from kqueue.core.quantity import parse_exactly
from kqueue.core.quota_requests import Counting, Transformation
from kqueue.core.scan import ScanRules
from kqueue.core.topology import HOSTNAME, Algorithm, NodeFacts, Profile
from kqueue.jobs.kind import JobKind
from kqueue.jobs.registry import BY_FRAMEWORK
from kqueue.jobs.switches import switches_from
from kqueue.observe import Checks, EventLimits, EventRecorder, LoopProbe, Metrics
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Controller, ControllerSettings, Reconcile, Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.leader import ElectionSettings, LeaderElection, unique_identity
from kqueue.runtime.loop import freeze_after_sync
from kqueue.runtime.reflector import Reflector, Selection, WatchSettings
from kqueue.runtime.resources import EVENTS, ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.scheduling.loop import LoopSettings, SchedulingLoop
from kqueue.state import from_api
from kqueue.state.cache import Cache, Told
from kqueue.state.fair_usage import FairRules, FairUsage
from kqueue.state.from_api import PodView, QueueOrder, pod_view
from kqueue.state.preemptions import Preemptions
from kqueue.state.queues import Queues, SecondPass
from kqueue.state.requests import Requests

_log = structlog.get_logger(__name__)

PARTS = ("core", "scheduler", "jobs", "topology", "webhooks")
"""What `--parts` may name: our own kinds, the scheduling loop, job kinds, the ungater, admission webhooks."""

_FIRST_PODS = 0.05
"""Seconds in which the first pods of a gang gather; those after them are collected for the ungater's window."""
_BY_NAMESPACE, _BY_RUNTIME_CLASS = "namespace", "runtime-class"
"""Indexes of Workloads."""
_AT_ONCE = 1000
"""Keys that are queued before the event loop gets a turn."""


@dataclass(slots=True)
class _Watches:
    """All reflectors of the process."""

    nodes: Reflector[wire_core.Node, NodeFacts]
    pods: Reflector[wire_core.Pod, PodView]
    namespaces: Reflector[wire_core.Namespace, wire_core.Namespace]
    limit_ranges: Reflector[wire_core.LimitRange, wire_core.LimitRange]
    runtime_classes: Reflector[wire_core.RuntimeClass, wire_core.RuntimeClass]
    priority_classes: Reflector[wire_core.PriorityClass, wire_core.PriorityClass]
    workloads: Reflector[wire.Workload, wire.Workload]
    local_queues: Reflector[wire.LocalQueue, wire.LocalQueue]
    cluster_queues: Reflector[wire.ClusterQueue, wire.ClusterQueue]
    cohorts: Reflector[wire.Cohort, wire.Cohort]
    flavors: Reflector[wire.ResourceFlavor, wire.ResourceFlavor]
    topologies: Reflector[wire.Topology, wire.Topology]
    checks: Reflector[wire.AdmissionCheck, wire.AdmissionCheck]
    workload_priorities: Reflector[wire.WorkloadPriorityClass, wire.WorkloadPriorityClass]
    jobs: dict[str, Reflector[RawObject, dict[str, Any]]] = field(default_factory=dict)

    def all(self) -> list[Reflector[Any, Any]]:
        """In the order in which they are started."""
        return [
            self.nodes,
            self.namespaces,
            self.limit_ranges,
            self.runtime_classes,
            self.topologies,
            self.flavors,
            self.cohorts,
            self.checks,
            self.cluster_queues,
            self.local_queues,
            self.priority_classes,
            self.workload_priorities,
            self.pods,
            self.workloads,
            *self.jobs.values(),
        ]


def _same(value: Any) -> Any:
    return value


class Operator:
    """One controller process.  `run` ends when it is cancelled, or raises what made it fail."""

    def __init__(
        self,
        *,
        client: Client,
        config: Configuration,
        timings: Timings,
        clock: Clock,
        metrics: Metrics,
        checks: Checks,
        parts: Iterable[str] = PARTS,
    ) -> None:
        self.client, self.config, self.timings, self.clock = client, config, timings, clock
        self.metrics, self.checks = metrics, checks
        self.parts = frozenset(parts)
        self.synced = asyncio.Event()
        """Set when every watch has brought its initial state."""
        self.ready = asyncio.Event()
        """Set when this process leads and works."""
        self._switches = switches_from(config.enabled)
        self._kinds = [BY_FRAMEWORK[name] for name in config.integrations.frameworks if name in BY_FRAMEWORK]
        self.watches = self._make_watches()
        order = _queue_order(config)
        self.cache = Cache(
            _profile(config.enabled),
            merge_duplicate_hostnames=config.tas.merge_duplicate_hostnames,
            order=order,
            requests=Requests(_counting(config), partial_admission=config.enabled("PartialAdmission")),
            ignores_undeclared=_ignores_undeclared(config),
            fungible=config.enabled("FlavorFungibility"),
        )
        self.queues = Queues(clock.now, self._wake, by_shape=config.enabled("SchedulingEquivalenceHashing"))
        self.second_pass = SecondPass()
        self.preemptions = Preemptions()
        self.fair_usage = _fair_usage(config)
        self._recorder = self._make_recorder()
        self._events = Events(self._recorder)
        self._workload_writer = self._writer(kinds.WORKLOADS, self.watches.workloads, wire.Workload)
        self.loop = SchedulingLoop(
            cache=self.cache,
            queues=self.queues,
            writer=self._workload_writer,
            namespace_labels=self._namespace_labels,
            observer=CycleObserver(metrics, self._events, clock, order),
            clock=clock,
            settings=loop_settings(config, timings),
            second_pass=self.second_pass,
            preemptions=self.preemptions,
            fair_usage=self.fair_usage,
            host_of=self._host_of,
        )
        self._intake = Intake(
            cache=self.cache,
            queues=self.queues,
            namespace_labels=self._namespace_labels,
            wake=self._wake,
            clock=clock,
            flush_window=timings.queue_flush_window,
            node_window=timings.node_event_window,
            foreign_drain=timings.foreign_pod_drain,
            order=order,
            waits_for_ready=_blocks_admission(config),
            fair_usage=self.fair_usage,
            tries=lambda: self.loop.busy,
        )
        self.preemptions.on_ended = self._intake.on_claim_ended
        self._counter = WorkloadCounter(metrics, clock, self.ready.is_set)
        self._controllers: list[Controller] = []
        self._on_lead: list[Callable[[], None]] = []
        self._surrounded: Controller | None = None
        self._background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._subscribe_intake()
        self._make_controllers()
        self._add_checks()

    # --- parts -------------------------------------------------------------------------------------------------

    def _make_watches(self) -> _Watches:
        def reflector(
            resource: ResourceType, decode: type[Any], view: Callable[[Any], Any] = _same, selector: str = ""
        ) -> Reflector[Any, Any]:
            return Reflector(
                self.client,
                resource,
                decode=decode,
                view=view,
                clock=self.clock,
                selection=Selection(label_selector=selector),
                settings=WatchSettings(
                    retry_base=self.timings.watch_retry_base, retry_max=self.timings.watch_retry_max
                ),
            )

        return _Watches(
            nodes=reflector(kinds.NODES, wire_core.Node, from_api.node_facts),
            pods=reflector(kinds.PODS, wire_core.Pod, pod_view),
            namespaces=reflector(kinds.NAMESPACES, wire_core.Namespace),
            limit_ranges=reflector(kinds.LIMIT_RANGES, wire_core.LimitRange),
            runtime_classes=reflector(kinds.RUNTIME_CLASSES, wire_core.RuntimeClass),
            priority_classes=reflector(kinds.PRIORITY_CLASSES, wire_core.PriorityClass),
            workloads=reflector(kinds.WORKLOADS, wire.Workload),
            local_queues=reflector(kinds.LOCAL_QUEUES, wire.LocalQueue),
            cluster_queues=reflector(kinds.CLUSTER_QUEUES, wire.ClusterQueue),
            cohorts=reflector(kinds.COHORTS, wire.Cohort),
            flavors=reflector(kinds.RESOURCE_FLAVORS, wire.ResourceFlavor),
            topologies=reflector(kinds.TOPOLOGIES, wire.Topology),
            checks=reflector(kinds.ADMISSION_CHECKS, wire.AdmissionCheck),
            workload_priorities=reflector(kinds.WORKLOAD_PRIORITY_CLASSES, wire.WorkloadPriorityClass),
            jobs={
                kind.framework: reflector(_resource_of(kind), RawObject, as_json, selector=names.QUEUE_NAME_LABEL)
                for kind in self._kinds
            },
        )

    def _writer(self, resource: ResourceType, watch: Reflector[Any, Any], decode: type[Any]) -> StatusWriter[Any]:
        def key_of(obj: Any) -> str:
            meta = obj.metadata
            return f"{meta.namespace}/{meta.name}" if resource.namespaced else str(meta.name)

        return StatusWriter(
            self.client,
            resource,
            store=watch.store,
            decode=decode,
            key_of=key_of,
            version_of=lambda obj: obj.metadata.resource_version,
        )

    def _make_recorder(self) -> EventRecorder:
        async def post(event: dict[str, Any]) -> None:
            await self.client.create(EVENTS, event, lane=Lane.EVENTS)

        async def patch(namespace: str, name: str, change: dict[str, Any]) -> None:
            await self.client.patch(EVENTS, name, change, namespace, lane=Lane.EVENTS)

        return EventRecorder(
            post=post,
            patch=patch,
            clock=self.clock,
            instance=unique_identity(),
            lost=self.metrics.event_lost,
            limits=EventLimits(window=self.timings.event_window, series_interval=self.timings.event_series_interval),
        )

    def _subscribe_intake(self) -> None:
        watches, intake = self.watches, self._intake
        watches.nodes.subscribe(intake.on_node)
        watches.namespaces.subscribe(intake.on_namespace)
        self._subscribe_requests()
        watches.topologies.subscribe(intake.on_topology)
        watches.flavors.subscribe(intake.on_flavor)
        watches.cohorts.subscribe(intake.on_cohort)
        watches.checks.subscribe(intake.on_check)
        watches.cluster_queues.subscribe(intake.on_cluster_queue)
        watches.local_queues.subscribe(intake.on_local_queue)
        watches.pods.subscribe(intake.on_pod)
        watches.workloads.subscribe(intake.on_workload)
        watches.workloads.subscribe(self._counter.on_workload)
        watches.workloads.store.add_index(OWNER_INDEX, owner_keys)

    def _subscribe_requests(self) -> None:
        """What surrounds a Workload is part of what it asks for: those that it changes are taken in again."""
        watches, requests = self.watches, self.cache.requests
        workloads = watches.workloads.store
        workloads.add_index(_BY_NAMESPACE, lambda workload: (workload.metadata.namespace,))
        workloads.add_index(_BY_RUNTIME_CLASS, from_api.runtime_classes)

        if "scheduler" in self.parts:
            self._surrounded = self._controller("requests", self._take_in)

        def again(index: str, value: str | None) -> None:
            if value is not None and self._surrounded is not None:
                for key in workloads.keys_by_index(index, value):
                    self._surrounded.enqueue(key)

        def on_limit_range(old: wire_core.LimitRange | None, new: wire_core.LimitRange | None) -> None:
            again(_BY_NAMESPACE, requests.on_limit_range(old, new))

        def on_runtime_class(old: wire_core.RuntimeClass | None, new: wire_core.RuntimeClass | None) -> None:
            again(_BY_RUNTIME_CLASS, requests.on_runtime_class(old, new))

        watches.limit_ranges.subscribe(on_limit_range)
        watches.runtime_classes.subscribe(on_runtime_class)

    async def _take_in(self, key: str) -> Result:
        workload = self.watches.workloads.store.get(key)
        if workload is not None:
            self._intake.on_workload(workload, workload)
        return Result()

    async def _take_in_surrounded(self) -> None:
        """All of them, before the first cycle: a Workload may be told before what its pods take on hosts."""
        if self._surrounded is None:
            return
        queue = self._surrounded.queue
        for number in range(len(queue)):
            key = await queue.get()
            if key is None:
                return
            await self._take_in(key)
            queue.done(key)
            if number % _AT_ONCE == 0:
                await self.clock.sleep(0)

    def _controller(self, name: str, reconcile: Reconcile, *, workers: int = 1) -> Controller:
        controller = Controller(
            name,
            reconcile,
            clock=self.clock,
            settings=ControllerSettings(
                workers=workers,
                retry_base=self.timings.reconcile_retry_base,
                retry_max=self.timings.reconcile_retry_max,
            ),
            on_reconcile=lambda r: self.metrics.reconcile(
                controller=r.controller, result=r.outcome.value, seconds=r.seconds
            ),
        )
        self._controllers.append(controller)
        self.metrics.work_queue(name, lambda: len(controller.queue))
        return controller

    def _make_controllers(self) -> None:
        if "core" in self.parts:
            self._make_core()
        ungater = self._make_ungater() if "topology" in self.parts else None
        if "jobs" in self.parts:
            for kind in self._kinds:
                self._make_job_kind(kind, ungater)
        if "topology" in self.parts and self.config.enabled("TASFailedNodeReplacement"):
            self._make_node_health()
        if "scheduler" in self.parts:
            self._make_second_pass()

    def _make_core(self) -> None:
        watches = self.watches
        workload = WorkloadReconciler(
            workloads=watches.workloads.store,
            local_queues=watches.local_queues.store,
            writer=self._workload_writer,
            cache=self.cache,
            queues=self.queues,
            namespace_labels=self._namespace_labels,
            recorder=self._events,
            clock=self.clock,
            tell_after=self.timings.untried_told_after,
            keeps_gates=self.config.enabled("MultiKueueOrchestratedPreemption"),
            at_once=self.config.enabled("UnadmittedWorkloadsExplicitStatus"),
        )
        workloads = self._controller("workload", workload.reconcile, workers=8)

        def on_parked(keys: Iterable[str]) -> None:
            for key in keys:
                if workload.is_untold(key):  # as a rule they have been told, and all that wait are parked at each flush
                    workloads.enqueue(key)
                else:
                    on_tried(key)

        def on_tried(key: str) -> None:
            if workload.is_due(key):
                workloads.enqueue(key)

        self.queues.on_parked, self.queues.on_tried = on_parked, on_tried
        cluster_queue = ClusterQueueReconciler(
            cluster_queues=watches.cluster_queues.store,
            writer=self._writer(kinds.CLUSTER_QUEUES, watches.cluster_queues, wire.ClusterQueue),
            cache=self.cache,
            queues=self.queues,
            clock=self.clock,
            fair_sharing=self.config.fair_sharing is not None,
        )
        cluster_queues = self._controller("cluster_queue", cluster_queue.reconcile)
        cohort = CohortReconciler(
            cohorts=watches.cohorts.store,
            writer=self._writer(kinds.COHORTS, watches.cohorts, wire.Cohort),
            cache=self.cache,
            fair_sharing=self.config.fair_sharing is not None,
        )
        cohorts = self._controller("cohort", cohort.reconcile)
        local_queue = LocalQueueReconciler(
            local_queues=watches.local_queues.store,
            writer=self._writer(kinds.LOCAL_QUEUES, watches.local_queues, wire.LocalQueue),
            cache=self.cache,
            queues=self.queues,
            clock=self.clock,
            fair_usage=self.fair_usage,
        )
        self._on_lead.append(self._remember_usage)
        local_queues = self._controller("local_queue", local_queue.reconcile)
        flavor_writer = self._writer(kinds.RESOURCE_FLAVORS, watches.flavors, wire.ResourceFlavor)
        flavor = FinalizerReconciler(flavor_writer, self.cache.is_flavor_used)
        flavors = self._controller("resource_flavor", flavor.reconcile)
        topology_writer = self._writer(kinds.TOPOLOGIES, watches.topologies, wire.Topology)
        topology = FinalizerReconciler(topology_writer, lambda name: bool(self.cache.flavors_of_topology(name)))
        topologies = self._controller("topology", topology.reconcile)
        self._route_core(workloads, cluster_queues, cohorts, local_queues, flavors, topologies)

    def _route_core(
        self,
        workloads: Controller,
        cluster_queues: Controller,
        cohorts: Controller,
        local_queues: Controller,
        flavors: Controller,
        topologies: Controller,
    ) -> None:
        """Which events make which keys be looked at.  Counts are refreshed in a window, not at every event."""
        watches, window = self.watches, self.timings.status_refresh_window

        def refresh_counts() -> None:
            for name in self.cache.queue_names():
                cluster_queues.enqueue(name, after=window)
            for name in watches.cohorts.store:
                cohorts.enqueue(name, after=window)
            for key in watches.local_queues.store:
                local_queues.enqueue(key, after=window)

        def refresh_counts_of(workload: wire.Workload) -> None:
            local = from_api.local_queue_key(workload)
            local_queues.enqueue(local, after=window)
            admission = workload.status.admission
            for name in {self.queues.cluster_queue_of(local), admission.cluster_queue if admission else None}:
                if name is not None:
                    cluster_queues.enqueue(name, after=window)
                    for cohort in self._cohorts_above(name):
                        cohorts.enqueue(cohort, after=window)

        def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
            for workload in (old, new):
                if workload is not None:
                    refresh_counts_of(workload)
            seen = new if new is not None else old
            if seen is not None:
                workloads.enqueue(from_api.workload_key(seen))

        async def look_at_all(_key: str) -> Result:
            """A queue, flavor, topology or namespace changed: every waiting workload may be blocked or freed by it."""
            refresh_counts()
            for name in watches.flavors.store:
                flavors.enqueue(name)
            for name in watches.topologies.store:
                topologies.enqueue(name)
            for number, key in enumerate(list(watches.workloads.store), start=1):
                workloads.enqueue(key)
                if number % _AT_ONCE == 0:
                    await self.clock.sleep(0)
            return Result()

        everything = self._controller("configuration", look_at_all)  # many changes at once, as at the start, are one

        def on_configuration(_old: object, _new: object) -> None:
            everything.enqueue("all")

        watches.workloads.subscribe(on_workload)
        configuration: list[Reflector[Any, Any]] = [
            watches.local_queues,
            watches.cluster_queues,
            watches.cohorts,
            watches.flavors,
            watches.topologies,
            watches.checks,
            watches.namespaces,
        ]
        for watch in configuration:
            watch.subscribe(_if_changed(on_configuration))
        watches.flavors.subscribe(_enqueues(flavors))
        watches.topologies.subscribe(_enqueues(topologies))

    def _make_job_kind(self, kind: JobKind, ungater: TopologyUngater | None) -> None:
        """`ungater`: the one of this process, None where that is in another one."""
        watches = self.watches
        reconciler = JobReconciler(
            kind=kind,
            client=self.client,
            jobs=watches.jobs[kind.framework].store,
            workloads=watches.workloads.store,
            writer=self._workload_writer,
            flavors=watches.flavors.store.get,
            workload_priorities=watches.workload_priorities.store,
            pod_priorities=watches.priority_classes.store,
            manages=self._manages,
            recorder=self._events,
            switches=self._switches,
            clock=self.clock,
            label_keys_to_copy=self.config.integrations.label_keys_to_copy,
            echo_timeout=self.timings.expectation_timeout,
            on_created=lambda seconds: self.metrics.workload_created(job_kind=kind.gvk.kind, seconds=seconds),
            finished=ungater.finished if ungater is not None else lambda _workload, _ended: {},
        )
        jobs = self._controller(kind.framework.replace("/", "_"), reconciler.reconcile, workers=16)

        def on_job(old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
            meta = (new if new is not None else old or {})["metadata"]
            jobs.enqueue(f"{meta['namespace']}/{meta['name']}")

        def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
            for workload in (old, new):
                for owner in owner_keys(workload) if workload is not None else ():
                    group, owner_kind, namespace, name = owner.split("/")
                    if (group, owner_kind) == (kind.gvk.group, kind.gvk.kind):
                        jobs.enqueue(f"{namespace}/{name}")

        def on_class(_old: object, _new: object) -> None:
            for key in watches.jobs[kind.framework].store:
                jobs.enqueue(key)

        watches.jobs[kind.framework].subscribe(on_job)
        watches.workloads.subscribe(on_workload)
        watches.workload_priorities.subscribe(on_class)
        watches.priority_classes.subscribe(on_class)
        watches.flavors.subscribe(_if_changed(on_class))

    def _make_ungater(self) -> TopologyUngater:
        watches = self.watches

        ungater = TopologyUngater(
            client=self.client,
            newest=self._workload_writer.newest,
            write=self._workload_writer.write,
            pods=watches.pods.store,
            host_of=self._host_of,
            recorder=self._events,
            clock=self.clock,
            expectation_timeout=self.timings.expectation_timeout,
            on_released=self._counter.on_released,
            on_fallback=self.metrics.rank_fallback,
        )
        sweeper = GateSweeper(
            pods=watches.pods.store,
            workloads=watches.workloads.store,
            recorder=self._events,
            clock=self.clock,
            after=self.timings.leaked_gate_after,
            interval=self.timings.leaked_gate_sweep,
            report=self.metrics.leaked_gates,
        )
        self._on_lead.append(ungater.begin)
        self._background.append(sweeper.run)
        controller = self._controller("topology_ungater", ungater.reconcile, workers=8)
        quiet_since: dict[str, float] = {}

        def on_pod(old: PodView | None, new: PodView | None) -> None:
            key = ungater.observe_pod(old, new)
            if key is None or key not in watches.workloads.store:
                return  # a Workload that comes later brings itself
            now = self.clock.monotonic()
            window = self.timings.ungater_window
            quiet = now - quiet_since.get(key, float("-inf")) > window
            quiet_since[key] = now
            controller.enqueue(key, after=min(_FIRST_PODS, window) if quiet else window)

        def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
            if new is not None:
                controller.enqueue(from_api.workload_key(new))
            elif old is not None:
                quiet_since.pop(from_api.workload_key(old), None)
                ungater.forget(from_api.workload_key(old))

        watches.pods.subscribe(on_pod)
        watches.workloads.subscribe(on_workload)
        return ungater

    def _make_node_health(self) -> None:
        watches, config = self.watches, self.config
        health = NodeHealth(
            client=self.client,
            nodes=watches.nodes.store,
            pods=watches.pods.store,
            writer=self._workload_writer,
            cache=self.cache,
            flavors=watches.flavors.store.get,
            recorder=self._events,
            clock=self.clock,
            switches=FailureSwitches(
                on_pod_termination=config.enabled("TASReplaceNodeOnPodTermination"),
                after_fixed_time=config.enabled("TASReplaceNodeDueToNotReadyOverFixedTime"),
                on_taints=config.enabled("TASReplaceNodeOnNodeTaints"),
            ),
        )
        controller = self._controller("node_health", health.reconcile, workers=4)

        def on_node(old: NodeFacts | None, new: NodeFacts | None) -> None:
            for host in health.hosts_of_node_event(old, new):
                controller.enqueue(host)

        def on_pod(old: PodView | None, new: PodView | None) -> None:
            for host in health.hosts_of_pod_event(old, new):
                controller.enqueue(host, after=self.timings.node_failure_pod_window)

        def look_at_trouble() -> None:
            for host in health.troubled_hosts():
                controller.enqueue(host)

        watches.nodes.subscribe(on_node)
        watches.pods.subscribe(on_pod)
        watches.workloads.subscribe(health.observe_workload)
        self._on_lead.append(look_at_trouble)

    def _make_second_pass(self) -> None:
        """Admitted Workloads with failed hosts come back to the scheduling loop, each after its pause."""

        async def ready(key: str) -> Result:
            if self.second_pass.ready(key):
                self._wake()
            return Result()

        controller = self._controller("second_pass", ready)
        self.second_pass.later = controller.enqueue

        def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
            if new is not None and new.status.unhealthy_nodes and from_api.is_placed(new):
                self.second_pass.ask(from_api.workload_key(new))

        self.watches.workloads.subscribe(on_workload)

    def _add_checks(self) -> None:
        for watch in self.watches.all():
            name = f"watch-{watch.resource}"
            self.checks.add(name, self._watch_check(watch))
            self.metrics.watch_age(str(watch.resource), watch.age)

    def _watch_check(self, watch: Reflector[Any, Any]) -> Callable[[], str | None]:
        def check() -> str | None:
            if not watch.synced.is_set():
                return "has not brought its initial state yet"
            if watch.age() > self.timings.watch_stale_after:
                return f"silent for {watch.age():.0f} s; is the API server reachable?"
            return None

        return check

    # --- looks -------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self.loop.wake()

    def _namespace_labels(self, name: str) -> Mapping[str, str] | None:
        namespace = self.watches.namespaces.store.get(name)
        return namespace.metadata.labels if namespace is not None else None

    def _cohorts_above(self, cluster_queue: str) -> list[str]:
        """The Cohort objects whose share follows from what this ClusterQueue holds; none while shares do not count."""
        node = self.cache.node_of(cluster_queue) if self.config.fair_sharing is not None else None
        above = [n.name for n in node.path_to_root() if n.is_cohort] if node is not None else []
        return [name for name in above if name in self.watches.cohorts.store]

    def _remember_usage(self) -> None:
        """What LocalQueues used is what the leader before has written."""
        if self.fair_usage is not None:
            self.fair_usage.begin(self.watches.local_queues.store.values(), self.clock.now())

    def _host_of(self, node: str) -> str | None:
        found = self.watches.nodes.store.get(node)
        return found.labels.get(HOSTNAME) if found is not None else None

    def _manages(self, namespace: str) -> bool:
        labels = self._namespace_labels(namespace)
        return labels is not None and self.config.manages_namespace(namespace, dict(labels))

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, and while leading decide and write, until cancelled."""
        probe = LoopProbe(
            clock=self.clock,
            metrics=self.metrics,
            interval=self.timings.loop_probe_interval,
            limit=self.timings.loop_lag_limit,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                for watch in self.watches.all():
                    tasks.create_task(watch.run())
                tasks.create_task(probe.run())
                tasks.create_task(self._recorder.run())
                tasks.create_task(self._compete())
        finally:
            await self._intake.close()

    async def finish(self) -> None:
        """Write the last events, when `run` has ended."""
        await self._recorder.finish(self.timings.event_farewell)

    async def _compete(self) -> None:
        for watch in self.watches.all():
            await watch.synced.wait()
        freeze_after_sync()
        self.synced.set()
        _log.info("every watch has synced", watches=len(self.watches.all()))
        election = self.config.leader_election
        if not election.leader_elect:
            await self._lead()
            return
        lease = LeaderElection(
            self.client,
            ElectionSettings(
                name=election.resource_name,
                namespace=election.resource_namespace,
                identity=unique_identity(),
                lease_duration=election.lease_duration.total_seconds(),
                renew_deadline=election.renew_deadline.total_seconds(),
                retry_period=election.retry_period.total_seconds(),
            ),
            clock=self.clock,
            on_change=lambda leads: self.metrics.leading(election.resource_name, leads=leads),
        )
        await lease.run(self._lead)

    async def _lead(self) -> None:
        """All that writes.  Keys that were queued while following are worked off now."""
        for _ in self.cache.ledger.build_steps():
            await self.clock.sleep(0)
        await self._take_in_surrounded()
        for begin in self._on_lead:
            begin()
        work: list[Coroutine[Any, Any, None]] = [controller.run() for controller in self._controllers]
        work += [run() for run in self._background]
        if "scheduler" in self.parts:
            work.append(self.loop.run())
            self.loop.wake()
        work.append(self._keep_gauges())
        self.ready.set()
        async with asyncio.TaskGroup() as tasks:
            for coroutine in work:
                tasks.create_task(coroutine)

    async def _keep_gauges(self) -> None:
        """Gauges of queues, and the audit, in the background."""
        gauges = QueueGauges(
            self.metrics,
            self.cache,
            self.queues,
            fair_sharing=self.config.fair_sharing is not None,
            fair_usage=self.fair_usage,
        )
        nodes = NodeGauges(self.metrics, self.cache.ledger, self._events)
        foreign = ForeignGauges(self.metrics, self.cache.ledger, self.clock)
        auditor = self._make_auditor()
        last_audit = self.clock.monotonic()
        while True:
            await self.clock.sleep(self.timings.metrics_cache)
            gauges.refresh(self.watches.local_queues.store.values(), self.watches.workloads.store.values())
            nodes.refresh()
            await foreign.refresh()
            if self.clock.monotonic() - last_audit >= self.timings.audit_interval:
                last_audit = self.clock.monotonic()
                await auditor.audit()

    def _make_auditor(self) -> Auditor:
        watches = self.watches
        told = Told(nodes=watches.nodes.store, pods=watches.pods.store, workloads=watches.workloads.store)
        return Auditor(cache=self.cache, told=told, intake=self._intake, metrics=self.metrics, clock=self.clock)


def _profile(enabled: Callable[[str], bool]) -> Profile:
    """How domains are chosen, as the gates say; ClusterQueues may choose otherwise."""
    return Profile(
        constrained=Algorithm.BALANCED if enabled("TASBalancedPlacement") else Algorithm.BEST_FIT,
        unconstrained=Algorithm.LEAST_FREE_CAPACITY if enabled("TASProfileMixed") else Algorithm.BEST_FIT,
        preferred_affinity=enabled("TASRespectNodeAffinityPreferred"),
    )


def loop_settings(config: Configuration, timings: Timings) -> LoopSettings:
    """How cycles go, as the file and the gates say."""
    fair = config.fair_sharing
    return LoopSettings(
        retry_base=timings.cycle_retry_base,
        retry_max=timings.cycle_retry_max,
        yield_after=timings.cycle_yield_after,
        elastic=config.enabled("ElasticJobsViaWorkloadSlicesWithTAS"),
        fail_fast=config.enabled("TASFailedNodeReplacementFailFast"),
        fair=None if fair is None else tuple(Strategy(name) for name in fair.preemption_strategies),
        within_nominal=config.enabled("FairSharingPreemptWithinNominal"),
        order=OrderRules(
            preemptors_first=config.enabled("PrioritizePreemptorWorkloads"),
            non_borrowing_first=config.enabled("FairSharingPrioritizeNonBorrowing"),
            priority=config.enabled("PrioritySortingWithinCohort"),
        ),
        queue_order=_queue_order(config),
        block_admission=_blocks_admission(config),
        scan=ScanRules(
            keeps_progress=config.enabled("FlavorFungibilityPreserveScanProgress"),
            by_shape=config.enabled("SchedulingEquivalenceHashing"),
        ),
        preemption_gates=config.enabled("ConcurrentAdmission") or config.enabled("MultiKueueOrchestratedPreemption"),
        looks=SecondLooks(
            for_targets=config.enabled("RecomputeAssignmentUponPreemptionTargetsOverlap"),
            for_domains=config.enabled("TASRecomputeAssignmentWithinSchedulingCycle"),
        ),
    )


def _counting(config: Configuration) -> Counting:
    """What requests cost in quota."""
    return Counting(
        excluded_prefixes=config.resources.exclude_resource_prefixes,
        transformations={
            rule.input: Transformation(
                input=rule.input,
                outputs={resource: parse_exactly(amount) for resource, amount in rule.outputs.items()},
                keeps_input=rule.strategy == "Retain",
                multiply_by=rule.multiply_by,
            )
            for rule in config.resources.transformations
        },
    )


def _ignores_undeclared(config: Configuration) -> bool:
    """Whether a resource that a ClusterQueue does not list is no reason to keep a workload out."""
    return config.resources.quota_check_strategy == "IgnoreUndeclared" and config.enabled("QuotaCheckStrategy")


def _fair_usage(config: Configuration) -> FairUsage | None:
    """What LocalQueues used lately, where the file has such an order; None: it counts nowhere."""
    rules = config.admission_fair_sharing
    if rules is None or not config.enabled("AdmissionFairSharing"):
        return None
    return FairUsage(
        FairRules(
            half_life=rules.usage_half_life_time.total_seconds(),
            interval=rules.usage_sampling_interval.total_seconds(),
            weights=rules.resource_weights,
        )
    )


def _blocks_admission(config: Configuration) -> bool:
    return config.wait_for_pods_ready is not None and config.wait_for_pods_ready.block_admission


def _queue_order(config: Configuration) -> QueueOrder:
    """What besides creation tells a workload's place in its queue."""
    ready = config.wait_for_pods_ready
    return QueueOrder(
        by_timeout=ready is None or ready.requeuing_strategy.timestamp == "Eviction",
        by_reclaim=not config.enabled("PrioritySortingWithinCohort"),
        boosts=config.enabled("PriorityBoost"),
    )


def _enqueues(controller: Controller) -> Callable[[Any, Any], None]:
    """Every event of an object without namespace brings it to its own controller."""

    def on_event(old: Any, new: Any) -> None:
        controller.enqueue((new if new is not None else old).metadata.name)

    return on_event


def _if_changed(handler: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Calls the handler unless only the status of an object changed."""

    def changed(old: Any, new: Any) -> None:
        if old is not None and new is not None:
            same_spec = getattr(old, "spec", None) == getattr(new, "spec", None)
            was, now = ((m.labels, m.annotations, m.deletion_timestamp) for m in (old.metadata, new.metadata))
            same_meta = was == now
            same_conditions = _conditions(old) == _conditions(new)
            if same_spec and same_meta and same_conditions:
                return
        handler(old, new)

    return changed


def _conditions(obj: Any) -> Any:
    return getattr(getattr(obj, "status", None), "conditions", None)


def _resource_of(kind: JobKind) -> ResourceType:
    return ResourceType(kind.gvk.group, kind.gvk.version, kind.resource, kind.gvk.kind)
