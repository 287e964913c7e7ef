"""The part `core`: which reconciler keeps which of our own kinds, and which events bring what to it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers import resources as kinds
from kqueue.controllers.admission_check import AdmissionCheckReconciler
from kqueue.controllers.explaining import FirstWords
from kqueue.controllers.finalizers import FinalizerReconciler
from kqueue.controllers.queue_status import ClusterQueueReconciler, CohortReconciler, LocalQueueReconciler
from kqueue.controllers.ranks import workload_rank
from kqueue.controllers.record import workload_reference
from kqueue.controllers.unmanaged import UnmanagedCensus
from kqueue.controllers.workload import WorkloadContext, WorkloadReconciler, WorkloadSettings
from kqueue.jobs.unmanaged import kinds_not_queued
from kqueue.manager.telemetry import WORKLOADS
from kqueue.manager.wiring import rules
from kqueue.manager.wiring.handlers import enqueues, if_changed
from kqueue.manager.wiring.shared import AT_ONCE, Wiring
from kqueue.model import PodView
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.store import split_key


def make_core(wiring: Wiring) -> None:
    """Reconcilers of our own kinds: Workloads, queues, cohorts, flavors, topologies."""
    watches = wiring.watches
    workload = WorkloadReconciler(
        WorkloadContext(
            workloads=watches.workloads.store,
            local_queues=watches.local_queues.store,
            client=wiring.client,
            writer=wiring.workload_writer,
            cache=wiring.cache,
            queues=wiring.queues,
            namespace_labels=wiring.namespace_labels,
            recorder=wiring.events.by(WORKLOADS),
            clock=wiring.clock,
        ),
        settings=WorkloadSettings(
            rules=rules.life_rules(wiring.config, wiring.timings),
            first_words=FirstWords(
                after=wiring.timings.untried_told_after,
                at_once=wiring.config.enabled("UnadmittedWorkloadsExplicitStatus"),
            ),
        ),
        pods_left=wiring.pods_left,
        turns=wiring.turns,
    )
    workloads = wiring.controller(
        "workload",
        workload.reconcile,
        workers=8,
        group_kind="Workload.kueue.x-k8s.io",
        rank_of=lambda key: workload_rank(watches.workloads.store.get(key)),
    )

    def on_parked(keys: Collection[str]) -> None:
        for key in workload.explainer.pending_notifications.among(keys):
            if not workload.explainer.until_turn(key):  # else it is looked at when its turn comes
                workloads.enqueue(key)

    wiring.queues.on_parked = on_parked
    census = UnmanagedCensus(
        wiring.client,
        kinds_not_queued(wiring.config.integrations),
        clock=wiring.clock,
        interval=wiring.timings.unmanaged_interval,
        report=lambda kind, objects: wiring.metrics.unmanaged_labelled(kind, objects),
    )
    wiring.background.append(census.run)
    cluster_queue = ClusterQueueReconciler(
        cluster_queues=watches.cluster_queues.store,
        writer=wiring.writer(kinds.CLUSTER_QUEUES, watches.cluster_queues, wire.ClusterQueue),
        cache=wiring.cache,
        queues=wiring.queues,
        clock=wiring.clock,
        fair_sharing=wiring.config.fair_sharing is not None,
    )
    cluster_queues = wiring.controller(
        "cluster_queue", cluster_queue.reconcile, group_kind="ClusterQueue.kueue.x-k8s.io"
    )
    cohort = CohortReconciler(
        cohorts=watches.cohorts.store,
        writer=wiring.writer(kinds.COHORTS, watches.cohorts, wire.Cohort),
        cache=wiring.cache,
        fair_sharing=wiring.config.fair_sharing is not None,
    )
    cohorts = wiring.controller("cohort", cohort.reconcile, group_kind="Cohort.kueue.x-k8s.io")
    local_queue = LocalQueueReconciler(
        local_queues=watches.local_queues.store,
        writer=wiring.writer(kinds.LOCAL_QUEUES, watches.local_queues, wire.LocalQueue),
        cache=wiring.cache,
        queues=wiring.queues,
        clock=wiring.clock,
        fair_usage=wiring.fair_usage,
    )
    wiring.on_lead.append(lambda: _remember_usage(wiring))
    wiring.on_lead.append(lambda: _expect_admissions(wiring))
    local_queues = wiring.controller("local_queue", local_queue.reconcile, group_kind="LocalQueue.kueue.x-k8s.io")
    flavor_writer = wiring.writer(kinds.RESOURCE_FLAVORS, watches.flavors, wire.ResourceFlavor)
    flavor = FinalizerReconciler(flavor_writer, wiring.cache.is_flavor_used)
    flavors = wiring.controller("resource_flavor", flavor.reconcile, group_kind="ResourceFlavor.kueue.x-k8s.io")
    topology_writer = wiring.writer(kinds.TOPOLOGIES, watches.topologies, wire.Topology)
    topology = FinalizerReconciler(topology_writer, lambda name: bool(wiring.cache.quota.flavors_of_topology(name)))
    topologies = wiring.controller("topology", topology.reconcile, group_kind="Topology.kueue.x-k8s.io")
    check_writer = wiring.writer(kinds.ADMISSION_CHECKS, watches.checks, wire.AdmissionCheck)
    kept_checks = FinalizerReconciler(check_writer, wiring.cache.quota.is_check_used)
    after = wiring.timings.check_controller_missing_after
    check = AdmissionCheckReconciler(kept_checks, check_writer, wiring.clock, after=after)
    checks = wiring.controller("admission_check", check.reconcile, group_kind="AdmissionCheck.kueue.x-k8s.io")
    used = _Used(flavors, topologies, checks)
    _route(wiring, workloads, cluster_queues, cohorts, local_queues, used)


class _Used(NamedTuple):
    """Work queues of the kinds that others use, and that stay while they are used."""

    flavors: Controller
    topologies: Controller
    checks: Controller


def _window(wiring: Wiring) -> float:
    """Seconds from a change of a queue's counts until they are written."""
    timings = wiring.timings
    return timings.status_refresh_loaded if wiring.is_loaded() else timings.status_refresh_window


def _route(
    wiring: Wiring,
    workloads: Controller,
    cluster_queues: Controller,
    cohorts: Controller,
    local_queues: Controller,
    used: _Used,
) -> None:
    """Which events make which keys be looked at.  Counts are refreshed in a window, not at every event."""
    watches = wiring.watches

    def refresh_counts() -> None:
        after = _window(wiring)
        for name in wiring.cache.quota.queue_names():
            cluster_queues.enqueue(name, after=after)
        for name in watches.cohorts.store:
            cohorts.enqueue(name, after=after)
        for key in watches.local_queues.store:
            local_queues.enqueue(key, after=after)

    def refresh_counts_in(local_queue: str, *of: str | None) -> None:
        after = _window(wiring)
        local_queues.enqueue(local_queue, after=after)
        for name in {name for name in of if name is not None}:
            cluster_queues.enqueue(name, after=after)
            for cohort in wiring.cohorts_above(name):
                cohorts.enqueue(cohort, after=after)

    def refresh_counts_of(workload: wire.Workload) -> None:
        local, admission = model.local_queue_key(workload), workload.status.admission
        held_in = admission.cluster_queue if admission is not None else None
        refresh_counts_in(local, wiring.queues.cluster_queue_of(local), held_in)

    wiring.cache.held.on_unpaid = refresh_counts_in

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in (old, new):
            if workload is not None:
                refresh_counts_of(workload)
        seen = new if new is not None else old
        if seen is not None:
            workloads.enqueue(model.workload_key(seen))

    def tell_of_stray(view: PodView) -> None:
        workload = watches.workloads.store.get(view.stray_of)
        if workload is not None and wiring.leads():
            message = (
                f"Pod {split_key(view.key)[1]} names this Workload by annotation {names.WORKLOAD_ANNOTATION}, but no "
                "job controls the pod: it keeps no quota; delete the pod or take the annotation off"
            )
            wiring.events.by(WORKLOADS).record(
                workload_reference(workload), reason=names.EVENT_STRAY_POD, message=message, warning=True, once=True
            )

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        """The last pod of a Workload that nobody owns is gone: now its quota may go."""
        if new is not None and new.stray_of and (old is None or not old.stray_of):
            tell_of_stray(new)
        held = old.workload if old is not None else ""
        if held and (new is None or new.workload != held) and not wiring.pods_left(held):
            workloads.enqueue(held)

    async def look_at_all(_key: str) -> Result:
        """A queue, flavor, topology or namespace changed: every waiting workload may be blocked or freed by it."""
        refresh_counts()
        for name in watches.flavors.store:
            used.flavors.enqueue(name)
        for name in watches.topologies.store:
            used.topologies.enqueue(name)
        for name in watches.checks.store:
            used.checks.enqueue(name)
        for number, key in enumerate(list(watches.workloads.store), start=1):
            workloads.enqueue(key)
            if number % AT_ONCE == 0:
                await wiring.clock.sleep(0)
        return Result()

    everything = wiring.controller("configuration", look_at_all)  # many changes at once, as at the start, are one

    def on_configuration(_old: object, _new: object) -> None:
        everything.enqueue("all")

    watches.workloads.subscribe(on_workload)
    watches.pods.subscribe(on_pod)
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
        watch.subscribe(if_changed(on_configuration))
    watches.flavors.subscribe(enqueues(used.flavors))
    watches.topologies.subscribe(enqueues(used.topologies))
    watches.checks.subscribe(enqueues(used.checks))


def _remember_usage(wiring: Wiring) -> None:
    """What LocalQueues used is what the leader before has written."""
    if wiring.fair_usage is not None:
        wiring.fair_usage.begin(wiring.watches.local_queues.store.values(), wiring.clock.now())


def _expect_admissions(wiring: Wiring) -> None:
    """Workloads may have been seen before their LocalQueues."""
    for workload in wiring.watches.workloads.store.values():
        wiring.counter.expect(workload)
