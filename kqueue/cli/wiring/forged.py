"""The part `jobs`, pods that name a queued object as their controller: who stops the forged ones."""

from __future__ import annotations

from kqueue.cli.telemetry import GATES
from kqueue.cli.wiring.shared import Wiring
from kqueue.controllers.forged_pods import ForgedPods
from kqueue.controllers.owners import Owners
from kqueue.state.from_api import PodView


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
    )
    controller = wiring.controller("forged_pods", forged.reconcile, workers=4)

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        if new is not None and new.custom_owner is not None and (old is None or old.custom_owner != new.custom_owner):
            controller.enqueue(new.key)

    watches.pods.subscribe(on_pod)
