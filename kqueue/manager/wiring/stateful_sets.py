"""The part `jobs`, StatefulSets: their reconciler, and which events bring them to it."""

from __future__ import annotations

from typing import Any

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_context import OwnerReports
from kqueue.controllers.pod_writes import PodWrites
from kqueue.controllers.stateful_set import StatefulSetReconciler, owner_keys, owner_names
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.stateful_set import FRAMEWORK, GVK
from kqueue.manager.wiring.handlers import if_changed
from kqueue.manager.wiring.shared import Wiring
from kqueue.runtime.store import split_key

JSON = dict[str, Any]
_WINDOW = 0.05
"""Seconds in which events of one StatefulSet's pods gather."""


def make_stateful_sets(wiring: Wiring, steps: WorkloadSteps, pod_writes: PodWrites | None) -> None:
    """The reconciler, where StatefulSets are on; `pod_writes` is shared with those of pods."""
    watches = wiring.watches
    watch, pods = watches.stateful_sets, watches.managed_pods
    if watch is None or pods is None or pod_writes is None:
        return
    reconciler = StatefulSetReconciler(
        wiring.owner_context(FRAMEWORK, steps),
        stateful_sets=watch.store,
        pods=pods.store,
        pod_writes=pod_writes,
        reports=OwnerReports(
            created=lambda seconds: wiring.metrics.workload_created(job_kind=GVK.kind, seconds=seconds)
        ),
    )
    controller = wiring.controller("statefulset", reconciler.reconcile, workers=8)

    def on_stateful_set(old: JSON | None, new: JSON | None) -> None:
        meta = (new if new is not None else old or {})["metadata"]
        controller.enqueue(f"{meta['namespace']}/{meta['name']}")

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in filter(None, (old, new)):
            for name in owner_names(pod):
                controller.enqueue(f"{split_key(pod.key)[0]}/{name}", after=_WINDOW)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for workload in filter(None, (old, new)):
            for key in owner_keys(workload):
                controller.enqueue(key)

    def on_class(_old: object, _new: object) -> None:
        for key in watch.store:
            controller.enqueue(key)

    def on_namespace(old: wire_core.Namespace | None, new: wire_core.Namespace | None) -> None:
        """Its labels say whether it is managed."""
        seen = new if new is not None else old
        for key in watch.store:
            if seen is not None and split_key(key)[0] == seen.metadata.name:
                controller.enqueue(key)

    watch.subscribe(on_stateful_set)
    pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.namespaces.subscribe(if_changed(on_namespace))
