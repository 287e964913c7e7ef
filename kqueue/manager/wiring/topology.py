"""The part `topology`: the ungater, the gate sweeper, node health; and the second pass of the scheduler."""

from __future__ import annotations

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.gate_sweeper import SIBLINGS_INDEX, GateSweeper
from kqueue.controllers.node_health import FailureSwitches, NodeHealth
from kqueue.controllers.topology_ungater import TopologyUngater
from kqueue.core.topology import NodeFacts
from kqueue.manager.telemetry import GATES, NODES
from kqueue.manager.wiring.shared import Wiring
from kqueue.model import PodView
from kqueue.runtime.controller import Result

_FIRST_PODS = 0.05
"""Seconds in which the first pods of a gang gather; those after them are collected for the ungater's window."""


def make_ungater(wiring: Wiring) -> TopologyUngater:
    """The ungater, and the sweeper that finds what it will never release."""
    watches = wiring.watches

    ungater = TopologyUngater(
        client=wiring.client,
        workloads=wiring.workload_writer,
        pods=watches.pods.store,
        host_of=wiring.host_of,
        recorder=wiring.events.by(GATES),
        clock=wiring.clock,
        expectation_timeout=wiring.timings.expectation_timeout,
        on_released=wiring.counter.on_released,
        on_fallback=wiring.metrics.rank_fallback,
    )
    sweeper = GateSweeper(
        pods=watches.pods.store,
        workloads=watches.workloads.store,
        recorder=wiring.events.by(GATES),
        sweep=wiring.sweep(),
    )
    wiring.on_lead.append(ungater.begin)
    wiring.background.append(sweeper.run)
    controller = wiring.controller("topology_ungater", ungater.reconcile, workers=8)
    quiet_since: dict[str, float] = {}

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        key = ungater.observe_pod(old, new)
        for workload in workloads_of(old, new) if key is not None else ():
            look_at(workload)

    def workloads_of(old: PodView | None, new: PodView | None) -> list[str]:
        """Whose pod it is; of an elastic job all slices, because a pod is never told of the newest."""
        seen = (new.gang if new is not None else None) or (old.gang if old is not None else None)
        if seen is None:
            return []
        if seen.slice_name:
            return list(watches.workloads.store.keys_by_index(SIBLINGS_INDEX, seen.siblings))
        return [seen.workload] if seen.workload in watches.workloads.store else []  # a later one brings itself

    def look_at(key: str) -> None:
        now = wiring.clock.monotonic()
        window = wiring.timings.ungater_window
        quiet = now - quiet_since.get(key, float("-inf")) > window
        quiet_since[key] = now
        controller.enqueue(key, after=min(_FIRST_PODS, window) if quiet else window)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is not None:
            controller.enqueue(model.workload_key(new))
        elif old is not None:
            quiet_since.pop(model.workload_key(old), None)
            ungater.forget(model.workload_key(old))

    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    return ungater


def make_node_health(wiring: Wiring) -> None:
    """Puts failed hosts on the status of the Workloads that stand on them."""
    watches, config = wiring.watches, wiring.config
    health = NodeHealth(
        client=wiring.client,
        nodes=watches.nodes.store,
        pods=watches.pods.store,
        writer=wiring.workload_writer,
        cache=wiring.cache,
        flavors=watches.flavors.store.get,
        recorder=wiring.events.by(NODES),
        clock=wiring.clock,
        switches=FailureSwitches(
            on_pod_termination=config.enabled("TASReplaceNodeOnPodTermination"),
            after_fixed_time=config.enabled("TASReplaceNodeDueToNotReadyOverFixedTime"),
            on_taints=config.enabled("TASReplaceNodeOnNodeTaints"),
        ),
    )
    controller = wiring.controller("node_health", health.reconcile, workers=4)

    def on_node(old: NodeFacts | None, new: NodeFacts | None) -> None:
        for host in health.hosts_of_node_event(old, new):
            controller.enqueue(host)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        for host in health.hosts_of_pod_event(old, new):
            controller.enqueue(host, after=wiring.timings.node_failure_pod_window)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        for host in health.observe_workload(old, new):
            controller.enqueue(host, after=wiring.timings.node_failure_pod_window)

    def look_at_trouble() -> None:
        for host in health.troubled_hosts():
            controller.enqueue(host)

    watches.nodes.subscribe(on_node)
    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    wiring.on_lead.append(look_at_trouble)


def make_second_pass(wiring: Wiring) -> None:
    """Admitted Workloads with failed hosts come back to the scheduling loop, each after its pause."""

    async def ready(key: str) -> Result:
        if wiring.second_pass.ready(key):
            wiring.wake()
        return Result()

    controller = wiring.controller("second_pass", ready)
    wiring.second_pass.later = controller.enqueue

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is not None and new.status.unhealthy_nodes and model.is_placed(new):
            wiring.second_pass.ask(model.workload_key(new))

    wiring.watches.workloads.subscribe(on_workload)
