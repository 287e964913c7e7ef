"""The manager of a controller process: the values that its controllers share, and the tasks that they add."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast

from kqueue import model
from kqueue.api import check_names, names
from kqueue.api.wire import kueue as wire
from kqueue.config import Configuration, Timings
from kqueue.controllers import resources
from kqueue.controllers.disruption_budgets import make_budgets
from kqueue.controllers.elsewhere import make_elsewhere
from kqueue.controllers.gate_sweeper import SIBLINGS_INDEX
from kqueue.controllers.held_pods import Sweep
from kqueue.controllers.manager import Manager, Setup
from kqueue.controllers.owned_jobs import OwnedJobs
from kqueue.controllers.owner_context import OwnerContext
from kqueue.controllers.plugin_releases import make_release_hooks
from kqueue.controllers.record import Reporter, job_controller
from kqueue.controllers.run_times import make_run_times
from kqueue.controllers.short_stop import ShortStop
from kqueue.controllers.watches import Watches
from kqueue.controllers.workload_steps import Referred, WorkloadSteps
from kqueue.core.backfill.plans import StartPlans
from kqueue.core.hooks import HooksByProfile, PermitHooks
from kqueue.core.topology import HOSTNAME
from kqueue.jobs.kind import ExceptionalKind
from kqueue.jobs.registry import kinds_for
from kqueue.manager import rules
from kqueue.manager.leadership import Leadership
from kqueue.manager.plugin_guard import PluginGuard
from kqueue.manager.plugins import ActivePlugins, active_plugins, load_plugins
from kqueue.manager.telemetry import Events, WorkloadCounter
from kqueue.observe import EventHooks, EventLimits, EventRank, EventRecorder, Metrics
from kqueue.runtime.controller import Controller, ControllerSettings, Reconcile
from kqueue.runtime.lane import DEFAULT_LIMITS, Lane
from kqueue.runtime.leader import unique_identity
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.resources import EVENTS, ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.turns import Turns
from kqueue.runtime.workqueue import KeyRank
from kqueue.state.moves import Moves
from kqueue.state.not_running import NotRunning, not_running
from kqueue.state.preemptions import Preemptions
from kqueue.state.profile_orders import ProfileOrders
from kqueue.state.quarantine import Quarantine
from kqueue.state.queues import Queues
from kqueue.state.reservations import Reservations
from kqueue.state.second_pass import SecondPass
from kqueue.state.tries import Tries

_PODS_LEFT = "pods left"
"""Index of pods that may need quota, by the Workload that was started with them."""
_UNBOUND = "unbound"
"""Index of released pods that no node runs, by the siblings key of their Workload."""
_ALL_UNBOUND = "all unbound"
"""Index of the same pods, all under True."""
_STRAYS = "strays"
"""Index of pods that name a Workload although no job controls them."""

T = TypeVar("T")

_ACTIONS = {
    names.EVENT_WORKLOAD_SLICE_REPLACED: "Replaced",
    names.EVENT_WORKLOAD_NAME_CONFLICT: "Admission",
    names.EVENT_POD_TERMINATED_BY_KUEUE: "PodTerminated",
    check_names.EVENT_PROVISIONING_REQUEST_CREATED: "Created",
}
"""Actions of events that differ from their reasons.  Source: the compatible system."""


class ControllerManager:
    """Shared state, watches and writers of one process; see `kqueue.controllers.manager.Manager` for its use."""

    def __init__(
        self,
        leadership: Leadership,
        *,
        config: Configuration,
        timings: Timings,
        metrics: Metrics,
        parts: frozenset[str],
        wake: Callable[[], None],
    ) -> None:
        """`wake` makes the scheduling loop begin a cycle."""
        self.client, self.leads, self.wake = leadership.writer, leadership.ready.is_set, wake
        self.config, self.timings, self.clock, self.parts = config, timings, leadership.clock, parts
        self.metrics = metrics
        self.kinds = kinds_for(config)
        self.watches = Watches(leadership.client, clock=self.clock, timings=timings)
        self.watches.watch_jobs(self.kinds, manages_all=config.manage_jobs_without_queue_name)
        self.owner_policy = rules.owner_policy(config, timings)
        self.switches = self.owner_policy.switches
        self._make_state()
        self._make_writers()
        self.controllers: list[Controller] = []
        """Work queues with their reconcilers; they run while this process leads."""
        self.on_lead: list[Callable[[], None]] = [self._expect_admissions]
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.everywhere: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.on_configuration: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._shared: dict[Callable[[Manager], Any], Any] = {}
        self._add_indexes()

    def _make_state(self) -> None:
        """Make the state of the process besides the stores of its watches."""
        config = self.config
        self.order = rules.queue_order(config)
        self.tries = Tries()
        self.plugins = self._make_plugins()
        self.profile_orders = ProfileOrders(self.plugins.orders, first_try=self.tries.first)
        self.cache = rules.make_cache(config, self.order, self.profile_orders.names)
        self.queues = Queues(self.clock.now, self.wake, by_shape=config.enabled("SchedulingEquivalenceHashing"))
        self.second_pass = SecondPass()
        self.preemptions = Preemptions()
        self.start_plans = StartPlans()
        self.quarantine = Quarantine()
        self.fair_usage = rules.fair_usage(config)

    def _make_plugins(self) -> ActivePlugins:
        """Load the plugins of the configuration.  Raises ConfigError with all mistakes."""
        section = self.config.plugins
        guard = PluginGuard(
            {plugin.name: plugin.on_error == "Ignore" for plugin in section.enabled},
            clock=self.clock,
            leads=lambda: self.leads(),
            count=self.metrics.plugin,
        )
        return active_plugins(
            section, guard, load_plugins(section), budgeted=lambda: self.shared(make_budgets).protected()
        )

    def _make_writers(self) -> None:
        """Make the writers of objects and events."""
        watches, clock = self.watches, self.clock
        self.quiet_for: Callable[[], float] = lambda: float("inf")
        """Seconds since the last write of a decision.  Set by the owner of the scheduling loop."""
        self.is_loaded: Callable[[], bool] = lambda: False
        """Whether many decisions a second are being written.  Set by the owner of the scheduling loop."""
        self.charge_pod: Callable[[str, str, Mapping[str, int] | None], None] = lambda _pod, _queue, _amounts: None
        """See `Intake.charge_pod`.  Set by the owner of the intake."""
        self.release_pod: Callable[[str], None] = lambda _pod: None
        """See `Intake.release_pod`.  Set by the owner of the intake."""
        self.turns = Turns(clock, lambda: self.quiet_for())
        self.event_recorder = self._make_recorder()
        self.events = Events(self.event_recorder)
        self.counter = WorkloadCounter(self.metrics, clock, self.leads, cluster_queue_of=self.queues.cluster_queue_of)
        self.short_stop = ShortStop(self.client, lambda pod, local_queue: self.charge_pod(pod, local_queue, None))
        self.workload_writer: StatusWriter[wire.Workload] = self.writer(
            resources.WORKLOADS, watches.workloads, wire.Workload
        )
        self.steps = WorkloadSteps(
            client=self.client,
            writer=self.workload_writer,
            referred=Referred(
                flavors=watches.flavors.store.get,
                workload_priorities=watches.workload_priorities.store,
                pod_priorities=watches.priority_classes.store,
            ),
            recorder=self.recorder(Reporter.WORKLOADS),
            switches=self.switches,
            clock=clock,
        )
        self.steps.on_given_up = self.metrics.recreation_stopped
        self.moves = Moves(self.cache, self.queues, self.workload_writer.newest, clock.now)
        self.reservations = Reservations(
            self.cache, self.workload_writer.newest, clock.now, lambda obj: self.shared(make_run_times).of(obj)
        )

    def _add_indexes(self) -> None:
        pods = self.watches.pods.store
        pods.add_index(_PODS_LEFT, lambda view: (view.workload,) if view.workload else ())
        pods.add_index(_UNBOUND, lambda view: (view.unbound.siblings,) if view.unbound else ())
        pods.add_index(_ALL_UNBOUND, lambda view: (True,) if view.unbound else ())
        pods.add_index(_STRAYS, lambda view: (True,) if view.stray_of else ())
        self.watches.workloads.store.add_index(SIBLINGS_INDEX, lambda workload: [model.siblings_key(workload)])
        self.owned_jobs = OwnedJobs(self.watches.jobs_by_kind())
        self._exceptional = {(k.gvk.group, k.gvk.kind): k for k in self.kinds if isinstance(k, ExceptionalKind)}
        self.metrics.stray_pods(lambda: pods.count_by_index(_STRAYS, True))

    def _expect_admissions(self) -> None:
        """Count Workloads that the watch brought before their LocalQueues."""
        for workload in self.watches.workloads.store.values():
            self.counter.expect(workload)

    # --- what controllers add ----------------------------------------------------------------------------------

    def setup(self, *setups: Setup) -> None:
        """Add controllers."""
        for add in setups:
            add(self)

    def shared(self, make: Callable[[Manager], T]) -> T:
        """Return the one value of this process that `make` makes; `make` is called at the first use."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast("T", self._shared[make])

    def recorder(self, controller: str) -> Events:
        """Return a recorder of events whose reporting controller has this name."""
        return self.events.by(controller)

    def controller(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 1,
        group_kind: str = "",
        rank_of: Callable[[str], KeyRank] | None = None,
    ) -> Controller:
        """Add a work queue whose keys `reconcile` handles while this process leads.

        `workers` at a time, unless the file says another number for `group_kind` (`Kind.group`, or `Kind`).  `rank_of`
        is as in `Controller`.
        """
        workers = self.config.controller.group_kind_concurrency.get(group_kind, workers)
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
            rank_of=rank_of,
        )
        self.controllers.append(controller)
        queue = controller.queue
        self.metrics.work_queue(name, lambda: len(queue))
        for rank in controller.ranks:
            self.metrics.work_rank(
                name, rank.label, depth=partial(queue.depth, rank), oldest_age=partial(queue.oldest_age, rank)
            )
        return controller

    def writer(self, resource: ResourceType, watch: Reflector[Any, Any], decode: type[Any]) -> StatusWriter[Any]:
        """Return a writer of objects of one kind, which reads the store of their watch."""

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

    def sweep(self) -> Sweep:
        """Return when to check pods that stay gated."""
        return Sweep(
            clock=self.clock,
            after=self.timings.leaked_gate_after,
            interval=self.timings.leaked_gate_sweep,
            report=self.metrics.leaked_gates,
        )

    def owner_context(self, framework: str) -> OwnerContext:
        """Return the context of the reconcilers of one kind of owners; events name the framework's controller."""
        return OwnerContext(
            client=self.client,
            book=self.workload_writer,
            workloads=self.watches.workloads.store,
            steps=self.steps,
            recorder=self.recorder(job_controller(framework)),
            clock=self.clock,
            manages=self.manages,
            policy=self.owner_policy,
            releases=self.shared(make_release_hooks),
            runs_elsewhere=self.shared(make_elsewhere).ask,
            is_sent=self.shared(make_elsewhere).is_sent,
        )

    def _make_recorder(self) -> EventRecorder:
        async def post(event: dict[str, Any]) -> None:
            await self.client.create(EVENTS, event, lane=Lane.EVENTS)

        async def patch(namespace: str, name: str, change: dict[str, Any]) -> None:
            await self.client.patch(EVENTS, name, change, namespace, lane=Lane.EVENTS)

        recorder = EventRecorder(
            post=post,
            patch=patch,
            clock=self.clock,
            instance=unique_identity(),
            hooks=EventHooks(
                lost=self.metrics.event_lost,
                joined=self.metrics.event_joined,
                pace=Turns(self.clock, lambda: self.quiet_for()).take,
            ),
            actions=_ACTIONS,
            limits=EventLimits(
                window=self.timings.event_window,
                series_interval=self.timings.event_series_interval,
                writers=DEFAULT_LIMITS[Lane.EVENTS].in_flight,
            ),
        )
        for rank in EventRank:
            self.metrics.events_waiting(
                rank.value, depth=partial(recorder.depth, rank), oldest_age=partial(recorder.oldest_age, rank)
            )
        return recorder

    @property
    def hooks(self) -> HooksByProfile:
        """The plugins of all points but `order` and `permit`, by profile."""
        return self.plugins.hooks

    @property
    def permits(self) -> PermitHooks:
        """The plugins that AdmissionChecks can name."""
        return self.plugins.permits

    # --- lookups -------------------------------------------------------------------------------------------------

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Return the labels of a namespace; None when the watch has no namespace of that name."""
        namespace = self.watches.namespaces.store.get(name)
        return namespace.metadata.labels if namespace is not None else None

    def preemption_policy(self, name: str) -> str | None:
        """Return the preemptionPolicy of a PriorityClass; None: the class does not exist, or has none."""
        found = self.watches.priority_classes.store.get(name)
        return found.preemption_policy if found is not None else None

    def manages(self, namespace: str) -> bool:
        """Whether jobs of the namespace are managed at all (`managedJobsNamespaceSelector`)."""
        labels = self.namespace_labels(namespace)
        return labels is not None and self.config.manages_namespace(namespace, dict(labels))

    def pods_left(self, siblings: str) -> bool:
        """Whether pods that need the quota of a Workload, or of its siblings, have not ended, or are still to come to
        clean up; see `PodView` and `ExceptionalKind`.
        """
        views = self.watches.pods.store.by_index(_PODS_LEFT, siblings)
        if not views and not self._exceptional:
            return False
        workloads = self.watches.workloads.store.by_index(SIBLINGS_INDEX, siblings)
        controllers = self.owned_jobs.controllers_of(workloads) if views else ()
        return any(view.needs_quota(controllers) for view in views) or self._cleans_up(workloads)

    def _cleans_up(self, workloads: Iterable[wire.Workload]) -> bool:
        """Whether a job below the owners of these Workloads cleans up.  An evicted Workload does not wait for that: any
        user can delay the end of an object.
        """
        if not self._exceptional:
            return False
        kept = [w for w in workloads if not model.condition_true(w, names.CONDITION_EVICTED)]
        found = ((self._exceptional.get(group_kind), job) for group_kind, job in self.owned_jobs.jobs_of(kept))
        return any(kind is not None and kind.cleans_up(job, self.switches) for kind, job in found)

    def not_running(self, workload: wire.Workload) -> list[NotRunning]:
        """Return released pods of a Workload that do not run, the longest first; see `pods_not_running_after`."""
        views = self.watches.pods.store.by_index(_UNBOUND, model.siblings_key(workload))
        if not views:
            return []
        return not_running(
            workload,
            views,
            controllers=self.owned_jobs.controllers_of([workload]),
            now=self.clock.now(),
            after=timedelta(seconds=self.timings.pods_not_running_after),
        )

    def with_unbound_pods(self) -> list[wire.Workload]:
        """Return the Workloads that released pods without a node name."""
        views = self.watches.pods.store.by_index(_ALL_UNBOUND, True)
        keys = dict.fromkeys(view.unbound.siblings for view in views if view.unbound is not None)
        store = self.watches.workloads.store
        return [workload for key in keys for workload in store.by_index(SIBLINGS_INDEX, key)]

    def host_of(self, node: str) -> str | None:
        """Return the hostname label of a node; None for an unknown node and a node without the label."""
        found = self.watches.nodes.store.get(node)
        return found.labels.get(HOSTNAME) if found is not None else None
