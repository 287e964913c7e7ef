"""The part `jobs`, pods that name a queued object as their controller: who stops the forged ones."""

from __future__ import annotations

from kqueue.api.wire import kueue as wire
from kqueue.controllers.excess_pods import ExcessPods
from kqueue.controllers.forged_pods import ForgedPods
from kqueue.controllers.owners import Owners
from kqueue.manager.telemetry import GATES
from kqueue.manager.wiring.shared import Wiring
from kqueue.model import PodView


def make_forged_pods(wiring: Wiring, owners: Owners) -> None:
    """One look at each pod that begins to run under a custom controller."""
    watches = wiring.watches
    forged = ForgedPods(
        client=wiring.client,
        pods=watches.pods.store,
        workloads=watches.workloads.store,
        owners=owners,
        manages=wiring.manages,
        clock=wiring.clock,
        recorder=wiring.events.by(GATES),
        short_stop=wiring.short_stop,
        excess=ExcessPods(
            pods=watches.pods.store,
            charge=lambda pod, queue, amounts: wiring.charge_pod(pod, queue, amounts),
            release=lambda pod: wiring.release_pod(pod),
        ),
        holding=wiring.cache.held.holding,
    )
    controller = wiring.controller("forged_pods", forged.reconcile, workers=4)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        before, after = (view and (view.custom_owner, view.bound) for view in (old, new))
        seen = new if new is not None else old
        if seen is not None and before != after and any(v is not None and v.custom_owner for v in (old, new)):
            controller.enqueue(seen.key)

    def on_workload(_old: wire.Workload | None, new: wire.Workload | None) -> None:
        for pod in forged.pods_of(new) if new is not None else ():
            controller.enqueue(pod)

    watches.pods.subscribe(on_pod)
    watches.workloads.subscribe(on_workload)
