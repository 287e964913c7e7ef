"""The part `jobs`: one reconciler per job kind, and which events bring its jobs to it."""

from __future__ import annotations

from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.cli.wiring.handlers import if_changed
from kqueue.cli.wiring.shared import Wiring
from kqueue.controllers.job import JobReconciler, owner_keys
from kqueue.controllers.topology_ungater import TopologyUngater
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.jobs.kind import JobKind


def make_steps(wiring: Wiring, ungater: TopologyUngater | None) -> WorkloadSteps:
    """What all owners of Workloads do with them.  `ungater`: the one of this process, None where that is elsewhere."""
    watches = wiring.watches
    return WorkloadSteps(
        client=wiring.client,
        writer=wiring.workload_writer,
        flavors=watches.flavors.store.get,
        workload_priorities=watches.workload_priorities.store,
        pod_priorities=watches.priority_classes.store,
        recorder=wiring.events,
        switches=wiring.switches,
        clock=wiring.clock,
        finished=ungater.finished if ungater is not None else lambda _workload, _ended: {},
    )


def make_job_kind(wiring: Wiring, kind: JobKind, steps: WorkloadSteps) -> None:
    """The reconciler of one kind."""
    watches = wiring.watches
    reconciler = JobReconciler(
        kind=kind,
        client=wiring.client,
        jobs=watches.jobs[kind.framework].store,
        workloads=watches.workloads.store,
        newest=wiring.workload_writer.newest,
        steps=steps,
        manages=wiring.manages,
        recorder=wiring.events,
        switches=wiring.switches,
        clock=wiring.clock,
        label_keys_to_copy=wiring.config.integrations.label_keys_to_copy,
        echo_timeout=wiring.timings.expectation_timeout,
        on_created=lambda seconds: wiring.metrics.workload_created(job_kind=kind.gvk.kind, seconds=seconds),
    )
    jobs = wiring.controller(kind.framework.replace("/", "_"), reconciler.reconcile, workers=16)

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
    watches.flavors.subscribe(if_changed(on_class))
