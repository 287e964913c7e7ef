"""The part `jobs`, plain pods and groups of pods: their reconcilers, and which events bring what to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.config import Configuration
from kqueue.controllers.admission_gates import AdmissionGates
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key, owner_keys
from kqueue.controllers.owner_context import OwnerReports
from kqueue.controllers.pod import PodReconciler
from kqueue.controllers.pod_group import PodGroupReconciler
from kqueue.controllers.pod_writes import GROUP_INDEX, PREBUILT_INDEX, PodWrites
from kqueue.controllers.ranks import owner_rank
from kqueue.controllers.switched_off import SwitchedOff
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.jobs.pod import FRAMEWORK
from kqueue.jobs.pod_view import ManagedPod, managed_pod
from kqueue.jobs.switches import switches_from
from kqueue.kinds import implies_pods
from kqueue.manager.telemetry import job_controller
from kqueue.manager.wiring.handlers import if_changed
from kqueue.manager.wiring.shared import Wiring
from kqueue.runtime.store import Store, split_key
from kqueue.runtime.workqueue import Rank

_FIRST, _WINDOW = 0.05, 0.2
"""Seconds in which events of one group gather: after quiet, and while they go on."""
_LABEL_LOST_AFTER = 1.0
"""Seconds after which a pod that its watch lost, and that still exists, is taken to have lost its label."""


def pods_as(config: Configuration) -> Callable[[dict[str, Any]], ManagedPod] | None:
    """The view of pods that are queued themselves; None where no kind is on that is queued through pods."""
    frameworks = config.integrations.frameworks
    if FRAMEWORK not in frameworks and not implies_pods(frameworks):
        return None
    switches = switches_from(config.enabled)
    return lambda pod: managed_pod(pod, switches)


def make_pods(wiring: Wiring, steps: WorkloadSteps) -> PodWrites | None:
    """The reconcilers of single pods and of groups, and the sweeper that finds whom neither will start.

    Returns what writes pods, for those whose pods they are; None where no pods are queued.
    """
    watch = wiring.watches.managed_pods
    if watch is None:
        _tell_of_former(wiring)
        return None
    config, watches = wiring.config, wiring.watches
    writes = PodWrites(
        client=wiring.client,
        pods=watch.store,
        recorder=wiring.events.by(job_controller(FRAMEWORK)),
        switches=wiring.switches,
        clock=wiring.clock,
        strict=config.enabled("RemoveFinalizersWithStrictPatch"),
        short_stop=wiring.short_stop,
        echo_timeout=wiring.timings.expectation_timeout,
    )
    context = wiring.owner_context(FRAMEWORK, steps)
    reports = OwnerReports(
        created=lambda seconds: wiring.metrics.workload_created(job_kind="Pod", seconds=seconds),
        started=wiring.counter.on_started,
    )
    single = PodReconciler(context, writes=writes, exists=lambda key: key in watches.pods.store, reports=reports)
    group = PodGroupReconciler(context, writes=writes, reports=reports)
    sweeper = AdmissionGates(
        pods=watch.store,
        writes=writes,
        workloads=watches.workloads.store,
        manages=wiring.manages,
        switches=wiring.switches,
        sweep=wiring.sweep(),
        without_queue=context.policy.without_queue,
    )
    wiring.background.append(sweeper.run)
    _route(wiring, single, group)
    return writes


def _tell_of_former(wiring: Wiring) -> None:
    """Pods that were queued themselves before, and that nobody looks after now."""
    former = SwitchedOff(
        wiring.client.list_page,
        recorder=wiring.events.by(job_controller(FRAMEWORK)),
        clock=wiring.clock,
        interval=10 * wiring.timings.leaked_gate_sweep,
        report=wiring.metrics.leaked_gates,
    )
    wiring.background.append(former.run)


def _pod_rank(wiring: Wiring, pods: Store[ManagedPod], key: str) -> Rank:
    """How soon the reconciler looks at a pod that is queued alone."""
    pod = pods.get(key)
    return owner_rank(
        wiring.watches.workloads.store.by_index(OWNER_INDEX, owner_key("", "Pod", *split_key(key))),
        ended=pod is None or pod.terminated or pod.deleting,
        held_back=pod is not None and pod.gated,
    )


def _group_rank(wiring: Wiring, pods: Store[ManagedPod], key: str) -> Rank:
    """How soon the reconciler looks at a group of pods, whose Workload bears its name."""
    members = pods.by_index(GROUP_INDEX, key)
    workload = wiring.watches.workloads.store.get(key)
    return owner_rank(
        [workload] if workload is not None else [],
        ended=all(pod.terminated for pod in members),
        held_back=any(pod.gated and not pod.deleting for pod in members),
    )


def _route(wiring: Wiring, single: PodReconciler, group: PodGroupReconciler) -> None:
    """Which events bring which pods and groups.  Those of a group are gathered: it is looked at as a whole."""
    watches, watch = wiring.watches, wiring.watches.managed_pods
    assert watch is not None
    pods = wiring.controller(
        "pod", single.reconcile, workers=16, group_kind="Pod", rank_of=partial(_pod_rank, wiring, watch.store)
    )
    groups = wiring.controller(
        "pod_group", group.reconcile, workers=8, group_kind="Pod", rank_of=partial(_group_rank, wiring, watch.store)
    )
    stirred: dict[str, float] = {}

    def stir(key: str) -> None:
        now = wiring.clock.monotonic()
        quiet = now - stirred.get(key, float("-inf")) > _WINDOW
        stirred[key] = now
        groups.enqueue(key, after=_FIRST if quiet else _WINDOW)

    def on_pod(old: ManagedPod | None, new: ManagedPod | None) -> None:
        for pod in (old, new):
            if pod is not None and pod.group:
                stir(pod.group)
        if new is not None and (not new.group or (old is not None and not old.group)):
            pods.enqueue(new.key)
        if new is None and old is not None:
            pods.enqueue(old.key, after=_LABEL_LOST_AFTER if old.group else 0.0)
            if old.group and not watch.store.keys_by_index(GROUP_INDEX, old.group):
                stirred.pop(old.group, None)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is None:
            return
        key = model.workload_key(seen)
        if watch.store.keys_by_index(GROUP_INDEX, key) or (
            seen.metadata.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true"
        ):
            group.forget(key)
            groups.enqueue(key)
        for pod in watch.store.keys_by_index(PREBUILT_INDEX, key):
            pods.enqueue(pod)
        for workload in (old, new):
            for owner in owner_keys(workload) if workload is not None else ():
                api_group, kind, namespace, name = owner.split("/")
                if (api_group, kind) == ("", "Pod"):
                    pods.enqueue(f"{namespace}/{name}")

    def on_class(_old: object, _new: object) -> None:
        for pod in watch.store.values():
            if pod.group:
                groups.enqueue(pod.group)
            else:
                pods.enqueue(pod.key)

    watch.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    watches.workload_priorities.subscribe(on_class)
    watches.priority_classes.subscribe(on_class)
    watches.flavors.subscribe(if_changed(on_class))
