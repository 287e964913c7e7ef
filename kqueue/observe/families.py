"""Every metric family: name, help, labels, buckets.

Names that begin with `kueue_` are Kueue's, so that its dashboards work; Kueue has no families named `kqueue_`.
Label `replica_role` is added to all of them when a page is rendered (see `exposition.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from kqueue.observe.family import LONG_BUCKETS, Counter, Gauge, Histogram, Registry

WAIT_BUCKETS = (1.0, *(2.5 * 2**k for k in range(13)))
"""1 s, 2.5 s, 5 s ... 2.8 h: 14 values."""
_CREATION_BUCKETS = tuple(0.01 * 2**k for k in range(11))
_SHORT_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
_LAG_BUCKETS = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class _Group:
    """Families of one kind of object.  With registry None no page shows the families."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, registry=self._registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self._registry)

    def _histogram(self, name: str, documentation: str, *labels: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(name, documentation, labels, registry=self._registry, buckets=buckets)


class CycleFamilies(_Group):
    """Admission as a whole."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        self.attempts = self._counter("kueue_admission_attempts_total", "Admission cycles by outcome", "result")
        self.attempt_seconds = self._histogram(
            "kueue_admission_attempt_duration_seconds", "Time of an admission cycle", "result",
            buckets=Histogram.DEFAULT_BUCKETS,
        )  # fmt: skip
        self.build_info = self._gauge(
            "kueue_build_info", "Always 1; the labels say what is running",
            "git_version", "git_commit", "build_date", "go_version", "compiler", "platform",
        )  # fmt: skip
        self.creation_latency = self._histogram(
            "kueue_workload_creation_latency_seconds", "From a job's creation to its Workload's", "job_kind",
            buckets=_CREATION_BUCKETS,
        )  # fmt: skip
        self.phase_seconds = self._histogram(
            "kqueue_cycle_phase_seconds", "Time of an admission cycle by phase", "phase", buckets=_SHORT_BUCKETS
        )


class PreemptorFamilies(_Group):
    """Per ClusterQueue whose workloads preempt; `preempting_cluster_queue` is the first label of each."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        self.preempted = self._counter(
            "kueue_preempted_workloads_total", "Preemptions", "preempting_cluster_queue", "reason"
        )


class ClusterQueueFamilies(_Group):
    """Per ClusterQueue; `cluster_queue` is the first label of each."""

    def __init__(
        self,
        registry: Registry | None,
        *,
        places: bool = True,
        unadmitted: bool = True,
        hashes: bool = True,
        of_workloads: Sequence[str] = (),
    ) -> None:
        """Register the families.

        Args:
            registry: None: no page shows the families.
            places: show the place of each ClusterQueue in the cohort tree.
            unadmitted: show why Workloads are not admitted.
            hashes: show in how many shapes Workloads wait.
            of_workloads: custom labels with values from Workloads.
        """
        super().__init__(registry)
        self._add_waiting_and_holding(of_workloads)
        self._add_reasons_and_place(registry, places=places, unadmitted=unadmitted, hashes=hashes)
        self._add_decisions()
        self._add_waits()
        self._add_releases(registry)
        self._add_placements()

    def _add_waiting_and_holding(self, of_workloads: Sequence[str]) -> None:
        queue = ("cluster_queue",)
        self.pending = self._gauge("kueue_pending_workloads", "Workloads that wait", *queue, "status", *of_workloads)
        self.reserving = self._gauge("kueue_reserving_active_workloads", "Workloads that hold quota", *queue)
        self.admitted_active = self._gauge(
            "kueue_admitted_active_workloads", "Workloads that are admitted", *queue, *of_workloads
        )
        self.finished_now = self._gauge("kueue_finished_workloads", "Finished Workloads that are kept", *queue)
        self.status = self._gauge("kueue_cluster_queue_status", "1 for the status it is in", *queue, "status")

    def _add_reasons_and_place(
        self, registry: Registry | None, *, places: bool, unadmitted: bool, hashes: bool
    ) -> None:
        queue = ("cluster_queue",)
        self.unadmitted = Gauge(
            "kueue_unadmitted_workloads", "Workloads not admitted, by why", (*queue, "reason", "underlying_cause"),
            registry=registry if unadmitted else None,
        )  # fmt: skip
        self.pending_hashes = Gauge(
            "kueue_pending_scheduling_hashes", "Forms of Workloads that wait", (*queue, "status"),
            registry=registry if hashes else None,
        )  # fmt: skip
        self.info = Gauge(
            "kueue_cluster_queue_info", "Its place", (*queue, "parent_cohort", "root_cohort"),
            registry=registry if places else None,
        )  # fmt: skip

    def _add_decisions(self) -> None:
        queue, by_class = ("cluster_queue",), ("cluster_queue", "priority_class")
        why = ("cluster_queue", "reason", "underlying_cause", "priority_class")
        self.reserved = self._counter("kueue_quota_reserved_workloads_total", "Reservations made", *by_class)
        self.admitted = self._counter("kueue_admitted_workloads_total", "Admissions", *by_class)
        self.finished = self._counter("kueue_finished_workloads_total", "Workloads finished", *by_class)
        self.evicted = self._counter("kueue_evicted_workloads_total", "Evictions", *why)
        self.evicted_once = self._counter("kueue_evicted_workloads_once_total", "First evictions", *why)
        self.preemption_loops = self._counter(
            "kqueue_preemption_loops_total", "Preemptions that went round in circles", *queue
        )
        self.quarantined = self._gauge(
            "kqueue_quarantined_workloads", "Workloads left alone because planning them fails on a bug", *queue
        )
        self.quarantines = self._counter(
            "kqueue_quarantines_total", "Workloads that were left alone because planning them failed twice", *queue
        )
        self.planned_starts = self._counter(
            "kqueue_planned_starts_total", "Workloads with a planned start that have started", *queue, "result"
        )
        self.planned_moves = self._counter(
            "kqueue_planned_start_moves_total", "Planned starts that became later", *queue, "cause"
        )
        self.backfilled = self._counter(
            "kqueue_backfilled_workloads_total", "Workloads that started in room that is kept for others", *queue
        )
        self.told_starts = self._counter(
            "kqueue_told_starts_total", "Starts by where they lie beside the told interval", *queue, "told", "outcome"
        )
        self.dispatched = self._counter(
            "multikueue_workloads_dispatched_total", "Copies of Workloads made on worker clusters", *queue, "cluster"
        )
        self.admitted_elsewhere = self._counter(
            "multikueue_workloads_admitted_total", "Workloads that worker clusters run", *queue, "cluster"
        )
        self.preemption_skips = self._gauge(
            "kueue_admission_cycle_preemption_skips", "Preemptors that got nothing in the last cycle", *queue
        )
        self.retargeted = self._counter(
            "kueue_preemption_target_recomputations_total", "Targets sought again within a cycle", *queue, "result"
        )

    def _add_waits(self) -> None:
        queue, by_class = ("cluster_queue",), ("cluster_queue", "priority_class")
        self.reserved_wait = self._wait("kueue_quota_reserved_wait_time_seconds", "Queued until reserved", *by_class)
        self.admission_wait = self._histogram(
            "kueue_admission_wait_time_seconds", "Queued until admitted", *by_class, buckets=LONG_BUCKETS
        )
        self.checks_wait = self._wait(
            "kueue_admission_checks_wait_time_seconds", "Reserved until all checks were ready", *by_class
        )
        self.ready_wait = self._wait("kueue_ready_wait_time_seconds", "Queued until pods ready", *by_class)
        self.admitted_until_ready = self._wait(
            "kueue_admitted_until_ready_wait_time_seconds", "Admitted until pods ready", *by_class
        )
        self.execution = self._histogram(
            "kueue_execution_time_seconds", "Admitted until finished", *by_class, buckets=LONG_BUCKETS
        )
        self.ready_to_evicted = self._wait(
            "kueue_pods_ready_to_evicted_time_seconds", "Pods ready until evicted", *queue, "reason", "underlying_cause"
        )
        self.eviction_latency = self._wait(
            "kueue_workload_eviction_latency_seconds", "Evicted until quota released", *queue, "reason"
        )

    def _add_releases(self, registry: Registry | None) -> None:
        queue = ("cluster_queue",)
        self.gate_removal = Histogram(
            "kueue_pod_scheduling_gate_removal_seconds", "Admitted until a pod's gate was removed",
            ("cluster_queue", "name", "is_group"), registry=registry,
        )  # fmt: skip
        self.ungated = self._counter("kqueue_ungated_pods_total", "Pods released into their domain", *queue)
        self.ranked = self._counter(
            "kqueue_ranked_pods_total", "Pods with a rank, released in the order of ranks or not", *queue, "order"
        )

    def _add_placements(self) -> None:
        placed = ("cluster_queue", "algorithm")
        self.placements = self._counter(
            "kqueue_placements_total",
            "Groups of pods placed; proven: as well as can be",
            *placed,
            "proven",
        )
        self.domains = self._counter("kqueue_placement_domains_total", "Domains that placements use", *placed, "level")
        self.fewest_domains = self._counter(
            "kqueue_placement_fewest_domains_total", "Domains that they need by the room in them", *placed, "level"
        )

    def _wait(self, name: str, documentation: str, *labels: str) -> Histogram:
        return self._histogram(name, documentation, *labels, buckets=WAIT_BUCKETS)


class ClusterQueueResourceFamilies(_Group):
    """Quota per ClusterQueue, flavor and resource; only with `metrics.enableClusterQueueResources`."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        labels = ("cluster_queue", "cohort", "flavor", "resource")
        prefix = "kueue_cluster_queue_"
        self.reservation = self._gauge(f"{prefix}resource_reservation", "Reserved", *labels)
        self.usage = self._gauge(f"{prefix}resource_usage", "Used by admitted Workloads", *labels)
        self.nominal = self._gauge(f"{prefix}nominal_quota", "Nominal quota", *labels)
        self.borrowing_limit = self._gauge(f"{prefix}borrowing_limit", "Borrowing limit, +Inf without", *labels)
        self.lending_limit = self._gauge(f"{prefix}lending_limit", "Lending limit, +Inf without", *labels)
        self.weighted_share = self._gauge(
            f"{prefix}weighted_share", "Its fair share, NaN where it is endless", "cluster_queue", "cohort"
        )
        self.pending = self._gauge(
            f"{prefix}resource_pending", "Requested by Workloads that wait", "cluster_queue", "resource"
        )


class CohortFamilies(_Group):
    """Per cohort."""

    def __init__(self, registry: Registry | None, *, places: bool = True) -> None:
        """Register the families; `places`: show the place of each cohort in the tree."""
        super().__init__(registry)
        p = "kueue_cohort_"
        by_resource = ("cohort", "flavor", "resource")
        self.weighted_share = self._gauge(f"{p}weighted_share", "Its fair share, +Inf where it is endless", "cohort")
        self.info = Gauge(
            f"{p}info", "Its place", ("cohort", "parent_cohort", "root_cohort"), registry=registry if places else None
        )
        self.subtree_quota = self._gauge(f"{p}subtree_quota", "Quota of all below it", *by_resource)
        self.subtree_reservations = self._gauge(
            f"{p}subtree_resource_reservations", "Reserved by all below it", *by_resource
        )
        self.subtree_admitted = self._counter(
            f"{p}subtree_admitted_workloads_total", "Admissions below it", "cohort", "priority_class"
        )


class CohortActiveFamilies(_Group):
    """Per cohort, with a series for each combination of custom labels of ClusterQueues."""

    def __init__(self, registry: Registry | None, labels: Sequence[str] = ()) -> None:
        """Register the family; `labels` are the custom labels of ClusterQueues."""
        super().__init__(registry)
        self.active = self._gauge(
            "kueue_cohort_subtree_admitted_active_workloads", "Workloads that are admitted below it", "cohort", *labels
        )


class LocalQueueFamilies(_Group):
    """Per LocalQueue; `name` and `namespace` are the first labels of each."""

    def __init__(self, registry: Registry | None, *, unadmitted: bool = True, of_workloads: Sequence[str] = ()) -> None:
        """Register the families.

        `unadmitted`: show why Workloads are not admitted.  `of_workloads` are custom labels with values from Workloads.
        """
        super().__init__(registry)
        queue = ("name", "namespace")
        by_class = (*queue, "priority_class")
        by_resource = (*queue, "flavor", "resource")
        why = (*queue, "reason", "underlying_cause", "priority_class")
        p = "kueue_local_queue_"
        self.pending = self._gauge(f"{p}pending_workloads", "Workloads that wait", *queue, "status")
        self.reserving = self._gauge(f"{p}reserving_active_workloads", "Workloads that hold quota", *queue)
        self.admitted_active = self._gauge(
            f"{p}admitted_active_workloads", "Workloads that are admitted", *queue, *of_workloads
        )
        self.finished_now = self._gauge(f"{p}finished_workloads", "Finished Workloads that are kept", *queue)
        self.status = self._gauge(f"{p}status", "1 for the status of condition Active", *queue, "active")
        self.unadmitted = Gauge(
            f"{p}unadmitted_workloads", "Workloads not admitted, by why",
            (*queue, "cluster_queue", "reason", "underlying_cause"), registry=registry if unadmitted else None,
        )  # fmt: skip
        self.reservation = self._gauge(f"{p}resource_reservation", "Reserved", *by_resource)
        self.usage = self._gauge(f"{p}resource_usage", "Used by admitted Workloads", *by_resource)
        self.fair_usage = self._gauge(
            f"{p}admission_fair_sharing_usage", "What it used lately, weighted", *queue, "cluster_queue"
        )
        self.reserved = self._counter(f"{p}quota_reserved_workloads_total", "Reservations made", *by_class)
        self.admitted = self._counter(f"{p}admitted_workloads_total", "Admissions", *by_class, *of_workloads)
        self.finished = self._counter(f"{p}finished_workloads_total", "Workloads finished", *by_class)
        self.evicted = self._counter(f"{p}evicted_workloads_total", "Evictions", *why)
        self.reserved_wait = self._wait(f"{p}quota_reserved_wait_time_seconds", "Queued until reserved", *by_class)
        self.admission_wait = self._wait(
            f"{p}admission_wait_time_seconds", "Queued until admitted", *by_class, *of_workloads
        )
        self.checks_wait = self._wait(
            f"{p}admission_checks_wait_time_seconds", "Reserved until all checks were ready", *by_class
        )
        self.ready_wait = self._wait(f"{p}ready_wait_time_seconds", "Queued until pods ready", *by_class)
        self.admitted_until_ready = self._wait(
            f"{p}admitted_until_ready_wait_time_seconds", "Admitted until pods ready", *by_class
        )
        self.execution = self._histogram(
            f"{p}execution_time_seconds", "Admitted until finished", *by_class, buckets=LONG_BUCKETS
        )

    def _wait(self, name: str, documentation: str, *labels: str) -> Histogram:
        return self._histogram(name, documentation, *labels, buckets=WAIT_BUCKETS)


class GangFamilies(_Group):
    """Gangs by their form."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        self.gangs = self._gauge("kqueue_gangs", "Gangs by form and phase", "framework", "phase")
        self.extras = self._gauge("kqueue_gang_extras", "Pods beyond the quorum of their gang", "framework", "state")
        self.rejections = self._counter(
            "kqueue_gang_rejections_total",
            "Admitted gangs that gave their quota back, by reason",
            "framework",
            "reason",
        )
        self.until_quorum = self._histogram(
            "kqueue_gang_time_to_quorum_seconds", "Admitted until the quorum had nodes", "framework",
            buckets=WAIT_BUCKETS,
        )  # fmt: skip


class JointFamilies(_Group):
    """Joint placement."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        self.rounds = self._counter("kqueue_joint_rounds_total", "Rounds of joint placement by result", "result")
        self.seconds = self._histogram(
            "kqueue_joint_round_seconds", "Time of a round by phase", "phase", buckets=_SHORT_BUCKETS
        )
        self.gap = self._gauge(
            "kqueue_joint_gap_ratio", "Part of the bound that the last plan does not schedule", "flavor"
        )
        self.units = self._gauge("kqueue_joint_units", "Units of the last round", "flavor", "kind")
        self.stale = self._counter("kqueue_joint_stale_entries_total", "Planned domains that did not hold any more")
        self.restarts = self._counter("kqueue_joint_worker_restarts_total", "Planning processes started again")
        self.policy_failures = self._counter(
            "kqueue_joint_policy_failures_total", "Policies switched off for a round", "policy"
        )
        self.migration_gain = self._gauge(
            "kqueue_joint_migration_gain_points",
            "Most points that moves of running workloads would gain in the last round, without those that they lose",
            "flavor",
        )
        self.moves = self._counter("kqueue_moves_total", "Moves of defragmentation plans that are over", "result")
        self.moved = self._counter("kqueue_moved_pod_seconds_total", "Work that moved workloads lost, in pod-seconds")
        self.paused = self._gauge("kqueue_joint_paused", "Whether joint placement rests after failures")
        self.unknown_use = self._counter(
            "kqueue_joint_statistics_unknown_total", "Samples of use of unknown nodes or pods", "kind"
        )
        self.bad_use = self._counter("kqueue_joint_statistics_bad_total", "Samples of use that cannot be", "kind")
        self.failed_use = self._counter(
            "kqueue_joint_statistics_failures_total", "Lists of samples of use that could not be read", "kind"
        )


class ProcessFamilies(_Group):
    """The process itself: event loop, API calls, nodes, servers, events, faults, reconcilers."""

    def __init__(self, registry: Registry | None) -> None:
        super().__init__(registry)
        self._add_loop()
        self._add_api_calls()
        self._add_nodes()
        self._add_servers()
        self._add_events()
        self._add_troubles()
        self._add_controllers()

    def _add_loop(self) -> None:
        self.loop_lag = self._histogram(
            "kqueue_loop_lag_seconds", "How late the event loop woke a timer", buckets=_LAG_BUCKETS
        )
        self.collector_pause = self._histogram(
            "kqueue_gc_pause_seconds", "Pauses of the garbage collector", "generation", buckets=_SHORT_BUCKETS
        )
        self.watch_age = self._gauge("kqueue_watch_age_seconds", "Since the last sign of life of a watch", "kind")

    def _add_api_calls(self) -> None:
        self.api_requests = self._counter(
            "kqueue_api_requests_total", "Requests to the API server; code 0: no answer",
            "verb", "resource", "subresource", "lane", "code",
        )  # fmt: skip
        self.api_seconds = self._histogram(
            "kqueue_api_request_seconds", "Time of requests to the API server", "verb", "lane",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0),
        )  # fmt: skip
        self.lane_in_flight = self._gauge(
            "kqueue_api_requests_in_flight", "Requests that hold a place of their lane", "lane"
        )
        self.lane_waiting = self._gauge(
            "kqueue_api_requests_waiting", "Requests that wait for a place of their lane or for the rate", "lane"
        )
        self.lane_age = self._gauge(
            "kqueue_api_requests_oldest_seconds", "For how long the oldest waiting request of a lane has waited", "lane"
        )

    def _add_nodes(self) -> None:
        self.drift = self._counter("kqueue_cache_drift_total", "Cache entries that an audit corrected", "cause")
        self.ignored_nodes = self._gauge(
            "kqueue_ignored_nodes", "Nodes with a flavor's labels that are no part of its topology", "flavor", "reason"
        )
        self.foreign_pods = self._gauge(
            "kqueue_foreign_pods", "Pods on a flavor's nodes that are not placed by topology", "flavor"
        )
        self.foreign_requests = self._gauge("kqueue_foreign_requests", "What they request", "flavor", "resource")
        level = ("flavor", "level")
        self.gang_slots = self._gauge(
            "kqueue_gang_slots", "Gangs of so many empty nodes that a level's domains hold", *level, "nodes"
        )
        self.fragmentation = self._gauge(
            "kqueue_fragmentation_ratio", "Free amount in domains that are partly used / all that is free",
            *level, "resource",
        )  # fmt: skip
        self.gang_fragmentation = self._gauge(
            "kqueue_gang_fragmentation_ratio", "Empty nodes that gangs of so many nodes cannot use / all empty nodes",
            *level, "nodes",
        )  # fmt: skip

    def _add_servers(self) -> None:
        self.webhooks = self._counter(
            "kqueue_webhook_requests_total", "Admission reviews", "path", "operation", "result"
        )
        self.webhook_seconds = self._histogram(
            "kqueue_webhook_request_seconds", "Time of admission reviews", "path", buckets=_SHORT_BUCKETS
        )
        self.questions = self._counter("kqueue_visibility_requests_total", "Requests to the visibility API", "code")
        self.question_seconds = self._histogram(
            "kqueue_visibility_request_seconds", "Time of requests to the visibility API", buckets=_SHORT_BUCKETS
        )
        self.certificates = self._gauge(
            "kqueue_certificate_not_after_seconds", "When a certificate that is served expires, in Unix time", "server"
        )

    def _add_events(self) -> None:
        self.events_joined = self._counter(
            "kqueue_events_joined_total", "Events that another event of the same moment says, too"
        )
        self.events_lost = self._counter("kqueue_events_lost_total", "Events that were not written, by cause", "cause")
        self.events_waiting = self._gauge("kqueue_events_waiting", "Events that wait to be written, by rank", "rank")
        self.events_oldest = self._gauge(
            "kqueue_events_oldest_seconds", "Age of the oldest event that waits to be written, by rank", "rank"
        )

    def _add_troubles(self) -> None:
        self.rank_fallbacks = self._counter(
            "kqueue_rank_fallbacks_total", "Workloads whose pods were not placed in the order of their ranks", "reason"
        )
        self.leaked_gates = self._gauge("kqueue_leaked_gates", "Gated pods that no controller will release", "reason")
        self.unmanaged_labelled = self._gauge(
            "kqueue_unmanaged_labelled_objects",
            "Objects that name a queue and start without quota, because their kind is switched off",
            "kind",
        )
        self.not_running = self._gauge(
            "kqueue_released_pods_not_running",
            "Pods of admitted Workloads that were released more than 60 s ago and that no node runs",
            "cluster_queue",
        )
        self.without_local_queue = self._gauge(
            "kqueue_workloads_without_local_queue",
            "Workloads that wait and name a LocalQueue that does not exist",
            "namespace",
        )
        self.recreations_stopped = self._counter(
            "kqueue_recreations_stopped_total",
            "Workloads switched off because they were deleted and made anew too often",
        )
        self.stray_pods = self._gauge(
            "kqueue_stray_pods", "Pods that name a Workload and keep no quota of it, by reason", "reason"
        )

    def _add_controllers(self) -> None:
        self.leading = self._gauge("leader_election_master_status", "1 while this replica leads", "name")
        self.learned_groups = self._gauge(
            "kqueue_learned_run_time_groups", "Groups of like workloads whose run times are known"
        )
        self.queue_depth = self._gauge("workqueue_depth", "Keys that wait for a worker", "name")
        self.rank_depth = self._gauge(
            "kqueue_work_queue_depth", "Keys that wait for a worker, by rank", "controller", "rank"
        )
        self.rank_age = self._gauge(
            "kqueue_work_queue_oldest_seconds", "For how long the oldest waiting key of a rank has waited",
            "controller", "rank",
        )  # fmt: skip
        self.reconciles = self._counter("controller_runtime_reconcile_total", "Reconciles", "controller", "result")
        self.reconcile_seconds = self._histogram(
            "controller_runtime_reconcile_time_seconds", "Time of reconciles", "controller",
            buckets=(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
        )  # fmt: skip
        self.plugin_seconds = self._histogram(
            "kqueue_plugin_seconds", "Time of calls of plugins", "plugin", "point",
            buckets=(0.0001, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0),
        )  # fmt: skip
