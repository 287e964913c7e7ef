"""The part `jobs`: one reconciler per job kind, and which events bring its jobs to it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.elastic_ungater import ElasticUngater
from kqueue.controllers.job import JobReconciler
from kqueue.controllers.job_slices import JobSlices
from kqueue.controllers.job_workload import OWNER_INDEX, JobWorkload, owner_key, owner_keys
from kqueue.controllers.job_writes import JobWrites
from kqueue.controllers.owned_jobs import CHILD_OF
from kqueue.controllers.owner_context import OwnerReports
from kqueue.controllers.owners import Owners
from kqueue.controllers.ranks import owner_rank
from kqueue.controllers.topology_ungater import TopologyUngater
from kqueue.controllers.workload_steps import Referred, WorkloadSteps
from kqueue.jobs import rules
from kqueue.jobs.kind import JobKind
from kqueue.jobs.registry import owner_kinds_for
from kqueue.jobs.switches import Switches
from kqueue.manager.telemetry import WORKLOADS, job_controller
from kqueue.manager.wiring.elastic import make_elastic_ungater
from kqueue.manager.wiring.forged import make_forged_pods
from kqueue.manager.wiring.handlers import if_changed
from kqueue.manager.wiring.shared import Wiring
from kqueue.manager.wiring.watches import BATCH_JOB
from kqueue.model import PodView
from kqueue.runtime.controller import Controller
from kqueue.runtime.store import Store, split_key
from kqueue.runtime.workqueue import Rank

JSON = dict[str, Any]
_PREBUILT = "prebuilt"
"""Index of jobs by the Workload that was made for them beforehand."""


def make_steps(wiring: Wiring, ungater: TopologyUngater | None) -> WorkloadSteps:
    """What all owners of Workloads do with them.  `ungater`: the one of this process, None where that is elsewhere."""
    watches = wiring.watches
    steps = WorkloadSteps(
        client=wiring.client,
        writer=wiring.workload_writer,
        referred=Referred(
            flavors=watches.flavors.store.get,
            workload_priorities=watches.workload_priorities.store,
            pod_priorities=watches.priority_classes.store,
        ),
        recorder=wiring.events.by(WORKLOADS),
        switches=wiring.switches,
        clock=wiring.clock,
        finished=ungater.finished if ungater is not None else lambda _workload, _ended: {},
    )
    steps.on_given_up = wiring.metrics.recreation_stopped
    return steps


def make_jobs(wiring: Wiring, kinds: Sequence[JobKind], steps: WorkloadSteps) -> None:
    """The reconcilers of all kinds that are on."""
    watches = wiring.watches
    stores = {(kind.gvk.group, kind.gvk.kind): watches.jobs[kind.framework].store for kind in kinds}
    owners = Owners(
        client=wiring.client,
        known=owner_kinds_for(wiring.config.integrations),
        stores=stores,
        manages_all=wiring.config.manage_jobs_without_queue_name,
        clock=wiring.clock,
    )
    make_forged_pods(wiring, owners)
    elastic = make_elastic_ungater(wiring)
    for kind in kinds:
        _make_job_kind(wiring, kind, steps, owners, elastic)


def _make_job_kind(
    wiring: Wiring, kind: JobKind, steps: WorkloadSteps, owners: Owners, elastic: ElasticUngater
) -> None:
    watches = wiring.watches
    seen = [watches.jobs[kind.framework]]
    if kind.framework == BATCH_JOB:
        seen += watches.child_jobs.values()
    writes = JobWrites(
        kind=kind,
        client=wiring.client,
        recorder=wiring.events.by(job_controller(kind.framework)),
        clock=wiring.clock,
        short_stop=wiring.short_stop,
        echo_timeout=wiring.timings.expectation_timeout,
    )
    context = wiring.owner_context(kind.framework, steps)
    workload = JobWorkload(
        context,
        kind=kind,
        writes=writes,
        pods_left=wiring.pods_left,
        reports=OwnerReports(
            created=lambda seconds: wiring.metrics.workload_created(job_kind=kind.gvk.kind, seconds=seconds)
        ),
    )
    slices = JobSlices(
        kind=kind,
        workload=workload,
        steps=steps,
        writes=writes,
        standing=elastic.standing,
        switches=wiring.switches,
    )
    reconciler = JobReconciler(
        context,
        kind=kind,
        jobs=[watch.store for watch in seen],
        workload=workload,
        slices=slices,
        writes=writes,
        owners=owners,
    )
    jobs = wiring.controller(
        kind.framework.replace("/", "_"),
        reconciler.reconcile,
        workers=16,
        group_kind=f"{kind.gvk.kind}.{kind.gvk.group}",
        rank_of=partial(_job_rank, wiring, kind, [watch.store for watch in seen]),
    )
    for watch in seen:
        watch.store.add_index(_PREBUILT, lambda job: _prebuilt_keys(job, wiring.switches))
    _subscribe(wiring, kind, [watch.store for watch in seen], jobs, elastic)


def _job_rank(wiring: Wiring, kind: JobKind, stores: Sequence[Store[JSON]], key: str) -> Rank:
    """How soon the reconciler looks at a job."""
    job = next((job for job in (store.get(key) for store in stores) if job is not None), None)
    owner = owner_key(kind.gvk.group, kind.gvk.kind, *split_key(key))
    return owner_rank(
        wiring.watches.workloads.store.by_index(OWNER_INDEX, owner),
        ended=job is None or kind.finished(job) is not None,
        held_back=job is not None and kind.is_suspended(job),
    )


def _subscribe(
    wiring: Wiring, kind: JobKind, stores: Sequence[Store[JSON]], jobs: Controller, elastic: ElasticUngater
) -> None:
    """Which events bring a job to its reconciler: its own, and those of all that its next step hangs on."""
    watches = wiring.watches

    def on_job(old: JSON | None, new: JSON | None) -> None:
        meta = (new if new is not None else old or {})["metadata"]
        jobs.enqueue(f"{meta['namespace']}/{meta['name']}")

    def owners_of(workload: wire.Workload) -> None:
        for owner in owner_keys(workload):
            group, owner_kind, namespace, name = owner.split("/")
            if (group, owner_kind) == (kind.gvk.group, kind.gvk.kind):
                jobs.enqueue(f"{namespace}/{name}")

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in (old, new):
            if workload is not None:
                owners_of(workload)
        seen = new if new is not None else old
        assert seen is not None
        parents = [owner.uid for owner in seen.metadata.owner_references if owner.controller]
        for store in stores:
            for key in store.keys_by_index(_PREBUILT, f"{seen.metadata.namespace}/{seen.metadata.name}"):
                jobs.enqueue(key)
            for uid in parents:
                for key in store.keys_by_index(CHILD_OF, uid):
                    jobs.enqueue(key)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        """The last pod of a Workload is gone: now its quota may go.  Of an elastic job each counts."""
        held = old.workload if old is not None else ""
        if not held or (new is not None and new.workload == held):
            return
        if old is not None and old.elastic is not None:
            for workload in elastic.slices(held):
                owners_of(workload)
            return
        only = watches.workloads.store.get(held)
        if only is not None and not wiring.pods_left(held):
            owners_of(only)

    def on_class(_old: object, _new: object) -> None:
        for store in stores:
            for key in store:
                jobs.enqueue(key)

    def on_namespace(old: wire_core.Namespace | None, new: wire_core.Namespace | None) -> None:
        """Its labels say whether its jobs are managed."""
        seen = new if new is not None else old
        assert seen is not None
        for store in stores:
            for key in store:
                if split_key(key)[0] == seen.metadata.name:
                    jobs.enqueue(key)

    for store in stores:
        store.subscribe(on_job)
    watches.workloads.subscribe(on_workload)
    watches.pods.subscribe(on_pod)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.flavors.subscribe(if_changed(on_class))
    watches.namespaces.subscribe(if_changed(on_namespace))


def _prebuilt_keys(job: JSON, switches: Switches) -> list[str]:
    name = rules.prebuilt_name(job, switches)
    return [f"{job['metadata']['namespace']}/{name}"] if name else []
