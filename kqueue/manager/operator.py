"""The controller process as a whole: its parts, and the tasks that run while it watches and while it leads.

Watches and their handlers run in every replica, so that a follower has current caches.  Tasks that write run only in
the leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import structlog

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.clock import Clock
from kqueue.config import Configuration, Timings
from kqueue.controllers.devices import DeviceIntake, subscribe_devices, watch_devices
from kqueue.controllers.disruption_budgets import make_budgets
from kqueue.controllers.gang_records import make_gang_records
from kqueue.controllers.intake import Intake, IntakeSettings, IntakeState
from kqueue.controllers.job_workload import OWNER_INDEX, owner_keys
from kqueue.controllers.manager import KEYS_PER_TURN
from kqueue.controllers.record import Reporter
from kqueue.controllers.run_times import make_run_times
from kqueue.controllers.watches import BY_NAMESPACE
from kqueue.isolation import isolated_logged
from kqueue.manager import rules
from kqueue.manager.backfill import make_guess, make_lines
from kqueue.manager.controller_manager import ControllerManager
from kqueue.manager.controllers import SETUPS
from kqueue.manager.gang_gauges import make_gang_gauges
from kqueue.manager.gauges import QueueGauges, cohorts_above
from kqueue.manager.joint import make_rounds
from kqueue.manager.leadership import Leadership
from kqueue.manager.recording import make_recorder
from kqueue.manager.telemetry import CycleObserver, describe_objects
from kqueue.manager.tracing import WorkloadTracer
from kqueue.manager.upkeep import (
    STANDING_INDEX,
    Auditor,
    ForeignGauges,
    Gauges,
    NodeGauges,
    PodGauges,
    QuickAuditor,
    RoomGauges,
)
from kqueue.observe import Checks, LoopProbe, Metrics, Traces
from kqueue.record.recorder import DecisionRecorder
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.deadline import within
from kqueue.runtime.loop import freeze_after_sync
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.supervision import Supervisor, guarded
from kqueue.scheduling.context import Lookups, SchedulingState
from kqueue.scheduling.gang_runs import no_extras
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.state.cache_audit import Told

_log = structlog.get_logger(__name__)

T = TypeVar("T")

PARTS = ("core", "scheduler", "jobs", "topology", "webhooks")
"""Values of `--parts`: our own kinds, the scheduling loop, job kinds, the ungater, admission webhooks."""

_REFILL = "refill"
"""Key of the work that gives tenants' selectors another second."""
_BY_RUNTIME_CLASS = "runtime-class"
"""Indexes of Workloads."""


_LAG_COUNTS_FOR = 60.0
"""Seconds for which a process is not ready after its event loop was blocked."""
_DRAIN_WITHOUT_LEASE = 1.0
"""Seconds that writes under way get after the lease was lost: another process takes it soon."""
_POSITIONS = 1_000
"""Workloads of a ClusterQueue up to which events of gangs have a position, which costs a look at each of them."""


class Operator:
    """One controller process.  `run` ends when it is cancelled, or raises the error that made it fail."""

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
        self.metrics, self.checks, self.parts = metrics, checks, frozenset(parts)
        self._shared: dict[Callable[[Operator], Any], Any] = {}
        self.on_finish: list[Callable[[], Awaitable[None]]] = []
        """Called when `run` has ended."""
        self.leadership = Leadership(client, config, clock=clock, metrics=metrics)
        self.ready, self.may_write = self.leadership.ready, self.leadership.may_write
        self.synced = asyncio.Event()
        """Set when every watch has its initial state, except watches of kinds that the API server does not serve."""
        self.manager = ControllerManager(
            self.leadership, config=config, timings=timings, metrics=metrics, parts=self.parts, wake=self._wake
        )
        self.watches, self.cache, self.queues = self.manager.watches, self.manager.cache, self.manager.queues
        self._observer = CycleObserver(metrics, self.manager.events, clock, self.manager.order)
        self._observer.position = partial(self.queues.position, most=_POSITIONS)
        self.decision_recorder = make_recorder(self.manager)
        self.loop = _make_loop(self.manager, self._observer, self._look_at_parked, self.decision_recorder)
        self.rounds = make_rounds(self.manager, self.loop)
        self._intake = _make_intake(self.manager, busy=lambda: self.loop.busy)
        self._connect()
        self._auditor = self._make_auditor()
        self.supervisor = Supervisor(clock)
        self._probe = LoopProbe(
            clock=clock, metrics=metrics, interval=timings.loop_probe_interval, limit=timings.loop_lag_limit
        )
        self._surrounded: Controller | None = None
        self.metrics.cohorts_above = self._cohorts_above
        shown = config.metrics.local_queue_metrics.local_queue_selector
        describe_objects(metrics, self.watches, shown, has_members=self.cache.quota.has_members)
        self._subscribe_intake()
        for part, setups in SETUPS.items():
            if part in self.parts:
                self.manager.setup(*setups)
        self._add_checks()

    def shared(self, make: Callable[[Operator], T]) -> T:
        """Return the only value of this process that `make` creates; `make` is called at the first use."""
        if make not in self._shared:
            self._shared[make] = make(self)
        return cast("T", self._shared[make])

    def _connect(self) -> None:
        """Give the manager what only the loop and the intake know."""
        manager, loop, intake = self.manager, self.loop, self._intake
        manager.quiet_for = lambda: loop.quiet_for
        manager.is_loaded = lambda: loop.is_loaded
        manager.preemptions.on_ended = intake.on_claim_ended
        manager.start_plans.on_ended = intake.on_claim_ended
        manager.moves.on_ended = intake.on_claim_ended
        manager.reservations.on_freed = intake.on_claim_ended
        manager.cache.budgets.on_renewed = intake.on_budget
        manager.charge_pod, manager.release_pod = intake.charge_pod, intake.release_pod

    def _wake(self) -> None:
        self.loop.wake()

    # --- parts -------------------------------------------------------------------------------------------------

    def _look_at_parked(self, *, fitting: bool) -> int:
        return self._intake.look_at_parked(fitting=fitting)

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
        self._subscribe_devices()
        watches.workloads.subscribe(intake.on_workload)
        watches.workloads.subscribe(self.manager.counter.on_workload)
        watches.workloads.store.add_index(OWNER_INDEX, owner_keys)
        concurrent = self.config.enabled("ConcurrentAdmission")
        watches.workloads.store.add_index(STANDING_INDEX, partial(model.standing, concurrent=concurrent))

    def _subscribe_requests(self) -> None:
        """Read Workloads again after a change of a LimitRange or RuntimeClass: these change the requests of pods."""
        watches, requests = self.watches, self.cache.requests
        workloads = watches.workloads.store
        workloads.add_index(BY_NAMESPACE, lambda workload: (workload.metadata.namespace,))
        workloads.add_index(_BY_RUNTIME_CLASS, model.runtime_classes)

        if "scheduler" in self.parts:
            self._surrounded = self.manager.controller("requests", self._take_in)

        def again(index: str, value: str | None) -> None:
            if value is not None and self._surrounded is not None:
                for key in workloads.keys_by_index(index, value):
                    self._surrounded.enqueue(key)

        def on_limit_range(old: wire_core.LimitRange | None, new: wire_core.LimitRange | None) -> None:
            again(BY_NAMESPACE, requests.on_limit_range(old, new))

        def on_runtime_class(old: wire_core.RuntimeClass | None, new: wire_core.RuntimeClass | None) -> None:
            again(_BY_RUNTIME_CLASS, requests.on_runtime_class(old, new))

        watches.limit_ranges.subscribe(on_limit_range)
        watches.runtime_classes.subscribe(on_runtime_class)

    def _subscribe_devices(self) -> None:
        """Follow devices, if pods' claims for them count as quota; the intake follows pods before."""
        if self.cache.requests.devices.rules is None or self._surrounded is None:
            return
        requests = self._surrounded

        async def count(key: str) -> Result:
            if key == _REFILL:
                devices.refill()
            else:
                devices.count_hosts()
            return Result()

        counts = self.manager.controller("devices", count)
        devices = DeviceIntake(
            self.watches,
            self.cache,
            self._intake,
            again=requests.enqueue,
            recount=lambda: counts.enqueue("hosts", after=self.timings.node_event_window),
            refill=lambda: counts.enqueue(_REFILL, after=1.0),
        )
        subscribe_devices(watch_devices(self.watches), self.watches, devices)
        self.manager.on_lead.append(devices.count_hosts)

    async def _take_in(self, key: str) -> Result:
        workload = self.watches.workloads.store.get(key)
        if workload is not None:
            self._intake.on_workload(workload, workload)
        return Result()

    async def _take_in_surrounded(self) -> None:
        """Read all of them before the first cycle: the watch may bring a Workload before its LimitRanges."""
        if self._surrounded is None:
            return
        queue = self._surrounded.queue
        for number in range(len(queue)):
            key = await queue.get()
            if key is None:
                return
            with isolated_logged(_log, "workload could not be taken in", workload=key):
                await self._take_in(key)
            queue.done(key)
            if number % KEYS_PER_TURN == 0:
                await self.clock.sleep(0)

    def _add_checks(self) -> None:
        for name, watch in self.watches.named().items():
            self.checks.add(f"watch-{name}", self._watch_check(watch))
            self.metrics.watch_age(name, partial(_age, watch))
        self.checks.add("lease", self.leadership.trouble)
        self.checks.add("parts", self._check_parts)
        self.checks.add("loop", self._check_loop)

    def _check_parts(self) -> str | None:
        down = [f"{name} ({why})" for name, why in self.supervisor.down.items()]
        return f"failed, and are started again soon: {', '.join(down)}" if down else None

    def _check_loop(self) -> str | None:
        worst = self._probe.worst_within(_LAG_COUNTS_FOR)
        if worst is None or worst[0] < self.timings.loop_stuck_after:
            return None
        return f"the event loop was blocked for {worst[0]:.0f} s, {worst[1]:.0f} s ago"

    def _watch_check(self, watch: Reflector[Any, Any]) -> Callable[[], str | None]:
        def check() -> str | None:
            if watch.missing:
                return None
            if not watch.synced.is_set():
                return "has not brought its initial state yet"
            if watch.age() > self.timings.watch_stale_after:
                return f"silent for {watch.age():.0f} s; is the API server reachable?"
            return None

        return check

    def trace(self, traces: Traces) -> None:
        """Make spans of cycles and of the life of Workloads.  Call it before `run`."""
        self._observer.traces = traces
        self.watches.workloads.subscribe(WorkloadTracer(traces, self.clock, self.ready.is_set).on_workload)

    # --- running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Watch, and while leading decide and write, until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for watch in self.watches.all():
                    tasks.create_task(watch.run())
                beside = {
                    "probe": self._probe.run,
                    "events": self.manager.event_recorder.run,
                    "gauges": self._keep_gauges,
                }
                beside |= {f"everywhere {number}": part for number, part in enumerate(self.manager.everywhere)}
                for name, part in beside.items():
                    tasks.create_task(self.supervisor.run(name, part))
                tasks.create_task(self.leadership.compete(sync=self._sync, lead=self._lead, succeed=self._succeed))
        finally:
            await self._intake.close()

    async def finish(self) -> None:
        """Write the last events, when `run` has ended, and end what runs beside."""
        for end in self.on_finish:
            await end()
        await self.manager.event_recorder.finish(self.timings.event_farewell)

    async def _sync(self) -> None:
        """Return when every watch has brought its initial state."""
        for watch in self.watches.all():
            await watch.settled.wait()
        freeze_after_sync()
        self.synced.set()
        _log.info("every watch has synced", watches=len(self.watches.all()))

    async def _succeed(self) -> None:
        """Lead after another process may have led: first read everything that was written before."""
        began = self.clock.monotonic()
        work = asyncio.gather(*(watch.catch_up() for watch in self.watches.all()))
        try:
            await within(self.clock, self.timings.catch_up, _done(work))
        except TimeoutError:
            _log.error(
                "watches could not be renewed in time, it goes on with what is known", seconds=self.timings.catch_up
            )
        else:
            _log.info("caches are up to date", seconds=round(self.clock.monotonic() - began, 3))
        await self._lead()

    def _drain_for(self) -> float:
        return self.timings.drain if self.may_write() else _DRAIN_WITHOUT_LEASE

    async def _lead(self) -> None:
        """Run every task that writes.  Keys that were queued while following are reconciled now."""
        await self._build_tables()
        await self._take_in_surrounded()
        for begin in self.manager.on_lead:
            guarded("beginning to lead", begin)
        self.loop.drain_for = self._drain_for
        for controller in self.manager.controllers:
            controller.drain_for = self._drain_for
        work = {controller.name: controller.run for controller in self.manager.controllers}
        work |= {f"background {number}": run for number, run in enumerate(self.manager.background)}
        if "scheduler" in self.parts:
            work["scheduling"] = self.loop.run
            self.loop.wake()
        work["audit"] = self._keep_auditing
        work["quick audit"] = self._keep_auditing_quickly
        self.ready.set()
        self.queues.sort_anew()  # from now on plugins compute keys
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, run in work.items():
                    tasks.create_task(self.supervisor.run(name, run))
        finally:
            self.ready.clear()

    async def _build_tables(self) -> None:
        steps = self.cache.ledger.build_steps()
        # When this fails, the first cycle tries it again, and rests while it fails.
        with isolated_logged(_log, "tables of the nodes could not be made"):
            for _ in steps:
                await self.clock.sleep(0)

    def _cohorts_above(self, cluster_queue: str) -> tuple[str, ...]:
        node = self.cache.quota.node_of(cluster_queue)
        return cohorts_above(node) if node is not None else ()

    async def _keep_gauges(self) -> None:
        """Refresh gauges periodically, in every replica."""
        workloads, ledger = self.watches.workloads.store, self.cache.ledger
        gauges = Gauges(
            queues=QueueGauges(
                self.metrics,
                self.cache,
                self.queues,
                clock=self.clock,
                workload=workloads.get,
                fair_sharing=self.config.fair_sharing is not None,
                fair_usage=self.manager.fair_usage,
            ),
            nodes=NodeGauges(self.metrics, ledger, self.manager.events.by(Reporter.NODES)),
            foreign=ForeignGauges(self.metrics, ledger, self.clock),
            room=RoomGauges(self.metrics, self.cache, self.clock),
            pods=PodGauges(
                self.metrics,
                self.clock,
                workloads=self.manager.with_unbound_pods,
                not_running=self.manager.not_running,
            ),
            gangs=make_gang_gauges(self.manager, self.metrics),
        )
        await self.synced.wait()
        while True:
            await self.clock.sleep(max(1.0, self.timings.metrics_cache))
            self.metrics.quarantined(self.manager.quarantine.by_queue())
            await gauges.refresh(self.watches.local_queues.store.values(), workloads.values(), tell=self.ready.is_set())

    async def _keep_auditing(self) -> None:
        """Audit at once, because another process may have led before, and then periodically."""
        while True:
            await self._auditor.audit()
            await self.clock.sleep(self.timings.audit_interval)

    async def _keep_auditing_quickly(self) -> None:
        quick = QuickAuditor(
            cache=self.cache,
            queues=self.queues,
            quarantine=self.manager.quarantine,
            workloads=self.watches.workloads.store,
            auditor=self._auditor,
        )
        while True:
            quick.look()
            await self.clock.sleep(self.timings.quick_audit_interval)

    def _make_auditor(self) -> Auditor:
        watches = self.watches
        told = Told(nodes=watches.nodes.store, pods=watches.pods.store, workloads=watches.workloads.store)
        return Auditor(cache=self.cache, told=told, intake=self._intake, metrics=self.metrics, clock=self.clock)


def _make_loop(
    manager: ControllerManager,
    observer: CycleObserver,
    look_at_parked: Callable[..., int],
    recorder: DecisionRecorder | None,
) -> SchedulingLoop:
    records = manager.shared(make_gang_records)
    return SchedulingLoop(
        SchedulingState(
            cache=manager.cache,
            queues=manager.queues,
            second_pass=manager.second_pass,
            preemptions=manager.preemptions,
            quarantine=manager.quarantine,
            tries=manager.tries,
            fair_usage=manager.fair_usage,
            moves=manager.moves,
            start_plans=manager.start_plans,
            reservations=manager.reservations,
        ),
        Lookups(
            namespace_labels=manager.namespace_labels,
            host_of=manager.host_of,
            look_at_parked=look_at_parked,
            extras_of=records.extras_of if records is not None else no_extras,
        ),
        writer=manager.workload_writer,
        observer=observer,
        clock=manager.clock,
        settings=replace(
            rules.loop_settings(manager.config, manager.timings),
            hooks=manager.plugins.hooks,
            policy_of=manager.preemption_policy,
            budgeted=manager.shared(make_budgets).protected,
            line_of=manager.shared(make_lines).of,
            run_time_of=manager.shared(make_run_times).of,
            guess_of=manager.shared(make_guess),
            recorder=recorder,
        ),
        turns=manager.turns,
    )


def _make_intake(manager: ControllerManager, *, busy: Callable[[], float]) -> Intake:
    config, timings = manager.config, manager.timings
    return Intake(
        IntakeState(
            cache=manager.cache,
            queues=manager.queues,
            fair_usage=manager.fair_usage,
            quarantine=manager.quarantine,
            orders=manager.profile_orders,
        ),
        namespace_labels=manager.namespace_labels,
        wake=manager.wake,
        clock=manager.clock,
        settings=IntakeSettings(
            flush_window=timings.queue_flush_window,
            node_window=timings.node_event_window,
            foreign_drain=timings.foreign_pod_drain,
            order=manager.order,
            waits_for_ready=rules.blocks_admission(config),
            concurrent=config.enabled("ConcurrentAdmission"),
        ),
        tries=busy,
    )


def _age(watch: Reflector[Any, Any]) -> float | None:
    """Return the seconds since the watch last heard of the API server; None while its kind is not served."""
    return None if watch.missing else watch.age()


async def _done(work: asyncio.Future[list[None]]) -> None:
    await work
