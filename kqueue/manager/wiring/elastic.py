"""The part `jobs`, elastic ones: who releases their pods."""

from __future__ import annotations

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.controllers.elastic_gates import ElasticGates
from kqueue.controllers.elastic_ungater import ElasticUngater
from kqueue.manager.telemetry import GATES
from kqueue.manager.wiring.shared import Wiring
from kqueue.model import PodView

_FIRST_PODS = 0.05
"""Seconds in which pods of one job gather."""


def make_elastic_ungater(wiring: Wiring) -> ElasticUngater:
    """It runs whatever the feature gate says: what was gated before the gate was switched off has to be released."""
    watches = wiring.watches
    ungater = ElasticUngater(
        client=wiring.client,
        workloads=watches.workloads.store,
        newest=wiring.workload_writer.newest,
        pods=watches.pods.store,
        clock=wiring.clock,
        expectation_timeout=wiring.timings.expectation_timeout,
        on_released=wiring.counter.on_elastic_released,
        recorder=wiring.events.by(GATES),
        short_stop=wiring.short_stop,
    )
    gates = ElasticGates(
        pods=watches.pods.store,
        slices=ungater.slices,
        standing=ungater.standing,
        recorder=wiring.events.by(GATES),
        sweep=wiring.sweep(),
    )
    wiring.on_lead.append(ungater.begin)
    wiring.background.append(gates.run)
    controller = wiring.controller("elastic_ungater", ungater.reconcile, workers=8)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        siblings = ungater.observe_pod(old, new)
        if siblings is not None:
            controller.enqueue(siblings, after=_FIRST_PODS)

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is not None and ungater.is_elastic(new):
            controller.enqueue(model.siblings_key(new))

    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
    return ungater
