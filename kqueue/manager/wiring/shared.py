"""Values that the parts of a controller process share, and the list of tasks that they run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config import Configuration, Timings
from kqueue.controllers import resources as kinds
from kqueue.controllers.gate_sweeper import SIBLINGS_INDEX
from kqueue.controllers.held_pods import Sweep
from kqueue.controllers.owned_jobs import OwnedJobs
from kqueue.controllers.owner_context import OwnerContext, OwnerPolicy
from kqueue.controllers.short_stop import ShortStop
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.core.topology import HOSTNAME
from kqueue.jobs.switches import switches_from
from kqueue.manager.telemetry import Events, WorkloadCounter, job_controller
from kqueue.manager.wiring import rules
from kqueue.manager.wiring.watches import Watches
from kqueue.observe import EventHooks, EventLimits, EventRank, EventRecorder, Metrics
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Controller, ControllerSettings, Reconcile
from kqueue.runtime.lane import DEFAULT_LIMITS, Lane
from kqueue.runtime.leader import unique_identity
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.resources import EVENTS, ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.turns import Turns
from kqueue.runtime.workqueue import Rank
from kqueue.state.cache import Cache
from kqueue.state.not_running import NotRunning, not_running
from kqueue.state.preemptions import Preemptions
from kqueue.state.quarantine import Quarantine
from kqueue.state.queues import Queues
from kqueue.state.requests import Requests
from kqueue.state.second_pass import SecondPass
from kqueue.state.tries import Tries

AT_ONCE = 1000
"""Keys that are queued before the event loop gets a turn."""
_PODS_LEFT = "pods left"
"""Index of pods that may need quota, by the Workload that was started with them."""
_UNBOUND = "unbound"
"""Index of released pods that no node runs, by what the pods of their job are found by."""
_ALL_UNBOUND = "all unbound"
"""Index of the same pods, all under True."""
_STRAYS = "strays"
"""Index of pods that name a Workload and are not its job's."""

_ACTIONS = {
    names.EVENT_WORKLOAD_SLICE_REPLACED: "Replaced",
    names.EVENT_WORKLOAD_NAME_CONFLICT: "Admission",
    names.EVENT_POD_TERMINATED_BY_KUEUE: "PodTerminated",
}
"""Actions of events that are called otherwise than their reasons.  Source: the compatible system."""


class Wiring:
    """Shared state, watches and writers.  A part adds its controllers, and what runs or begins with the lead."""

    def __init__(
        self,
        *,
        client: Client,
        config: Configuration,
        timings: Timings,
        clock: Clock,
        metrics: Metrics,
        watches: Watches,
        leads: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        """`leads` says whether this process leads; `wake` makes the scheduling loop look again."""
        self.client, self.config, self.timings, self.clock = client, config, timings, clock
        self.metrics, self.watches, self.wake, self.leads = metrics, watches, wake, leads
        self.switches = switches_from(config.enabled)
        self.copied = rules.copied_keys(config)
        self.order = rules.queue_order(config)
        self.cache = Cache(
            rules.profile(config.enabled),
            merge_duplicate_hostnames=config.tas.merge_duplicate_hostnames,
            order=self.order,
            requests=Requests(
                rules.counting(config),
                partial_admission=config.enabled("PartialAdmission"),
                reclaims=config.enabled("ReclaimablePods"),
                refuses_claims=rules.refuses_claims(config),
            ),
            ignores_undeclared=rules.ignores_undeclared(config),
            fungible=config.enabled("FlavorFungibility"),
        )
        self.queues = Queues(clock.now, wake, by_shape=config.enabled("SchedulingEquivalenceHashing"))
        self.second_pass = SecondPass()
        self.preemptions = Preemptions()
        self.quarantine = Quarantine()
        self.tries = Tries()
        self.fair_usage = rules.fair_usage(config)
        self.quiet_for: Callable[[], float] = lambda: float("inf")
        """Seconds since the last write of a decision.  Set by what owns the scheduling loop."""
        self.is_loaded: Callable[[], bool] = lambda: False
        """Whether many decisions a second are being written.  Set likewise."""
        self.turns = Turns(clock, lambda: self.quiet_for())
        """For writes that only tell why a workload waits."""
        self.recorder = self._make_recorder()
        self.events = Events(self.recorder)
        self.charge_pod: Callable[[str, str, Mapping[str, int] | None], None] = lambda _pod, _queue, _amounts: None
        """Set by what owns the intake: see `Intake.charge_pod`."""
        self.release_pod: Callable[[str], None] = lambda _pod: None
        self.short_stop = ShortStop(client, lambda pod, local_queue: self.charge_pod(pod, local_queue, None))
        self.workload_writer: StatusWriter[wire.Workload] = self.writer(
            kinds.WORKLOADS, watches.workloads, wire.Workload
        )
        self.counter = WorkloadCounter(metrics, clock, leads, cluster_queue_of=self.queues.cluster_queue_of)
        self.controllers: list[Controller] = []
        """Work queues with their reconcilers; they run while this process leads."""
        self.on_lead: list[Callable[[], None]] = []
        """Called when this process begins to lead, before anything writes."""
        self.background: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """What runs beside the controllers while this process leads."""
        watches.pods.store.add_index(_PODS_LEFT, lambda view: (view.workload,) if view.workload else ())
        watches.pods.store.add_index(_UNBOUND, lambda view: (view.unbound.siblings,) if view.unbound else ())
        watches.pods.store.add_index(_ALL_UNBOUND, lambda view: (True,) if view.unbound else ())
        watches.pods.store.add_index(_STRAYS, lambda view: (True,) if view.stray_of else ())
        watches.workloads.store.add_index(SIBLINGS_INDEX, lambda workload: [model.siblings_key(workload)])
        self.owned_jobs = OwnedJobs(watches.jobs_by_kind())
        metrics.stray_pods(lambda: watches.pods.store.count_by_index(_STRAYS, True))

    def controller(
        self,
        name: str,
        reconcile: Reconcile,
        *,
        workers: int = 1,
        group_kind: str = "",
        rank_of: Callable[[str], Rank] | None = None,
    ) -> Controller:
        """A work queue whose keys `reconcile` works off while this process leads.

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
        """Writes objects of one kind, on top of what their watch has brought."""

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
        """How often pods that are held are looked at."""
        return Sweep(
            clock=self.clock,
            after=self.timings.leaked_gate_after,
            interval=self.timings.leaked_gate_sweep,
            report=self.metrics.leaked_gates,
        )

    def owner_context(self, framework: str, steps: WorkloadSteps) -> OwnerContext:
        """What the reconcilers of one kind of owners work with; events are from the framework's reconciler."""
        config = self.config
        kept = config.object_retention_policies.workloads
        return OwnerContext(
            client=self.client,
            book=self.workload_writer,
            workloads=self.watches.workloads.store,
            steps=steps,
            recorder=self.events.by(job_controller(framework)),
            clock=self.clock,
            manages=self.manages,
            policy=OwnerPolicy(
                switches=self.switches,
                copied=self.copied,
                explicit="pod" in config.integrations.frameworks,
                without_queue=config.manage_jobs_without_queue_name,
                requeues=not config.enabled("SkipReassignmentForPodOwnedWorkloads"),
                fast_release=config.enabled("FastQuotaReleaseInPodIntegration"),
                finishes_orphans=config.enabled("FinishOrphanedWorkloads"),
                checks_owner=config.enabled("PodIntegrationValidateGroupOwner"),
                keep_deactivated=kept.after_deactivated_by_kueue if kept is not None else None,
                echo_timeout=self.timings.expectation_timeout,
            ),
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

    # --- looks -------------------------------------------------------------------------------------------------

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a namespace; None when there is none of that name."""
        namespace = self.watches.namespaces.store.get(name)
        return namespace.metadata.labels if namespace is not None else None

    def manages(self, namespace: str) -> bool:
        """Whether jobs of the namespace are managed at all (`managedJobsNamespaceSelector`)."""
        labels = self.namespace_labels(namespace)
        return labels is not None and self.config.manages_namespace(namespace, dict(labels))

    def pods_left(self, siblings: str) -> bool:
        """Whether pods that need the quota of a Workload, or of its siblings, have not ended; see `PodView`."""
        views = self.watches.pods.store.by_index(_PODS_LEFT, siblings)
        if not views:
            return False
        workloads = self.watches.workloads.store.by_index(SIBLINGS_INDEX, siblings)
        controllers = self.owned_jobs.controllers_of(workloads)
        return any(view.needs_quota(controllers) for view in views)

    def not_running(self, workload: wire.Workload) -> list[NotRunning]:
        """Released pods of a Workload that do not run, the longest first; see `pods_not_running_after`."""
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
        """Workloads whose name stands on released pods that no node runs."""
        views = self.watches.pods.store.by_index(_ALL_UNBOUND, True)
        keys = dict.fromkeys(view.unbound.siblings for view in views if view.unbound is not None)
        store = self.watches.workloads.store
        return [workload for key in keys for workload in store.by_index(SIBLINGS_INDEX, key)]

    def cohorts_above(self, cluster_queue: str) -> list[str]:
        """The Cohort objects whose share follows from what this ClusterQueue holds; none while shares do not count."""
        node = self.cache.quota.node_of(cluster_queue) if self.config.fair_sharing is not None else None
        above = [n.name for n in node.path_to_root() if n.is_cohort] if node is not None else []
        return [name for name in above if name in self.watches.cohorts.store]

    def host_of(self, node: str) -> str | None:
        """The hostname label of a node; None for a node that is unknown or has none."""
        found = self.watches.nodes.store.get(node)
        return found.labels.get(HOSTNAME) if found is not None else None
