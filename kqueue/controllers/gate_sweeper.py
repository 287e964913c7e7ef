"""Finds pods with the topology gate that no controller will release.  It does not release them.

A released pod would run at a place that is not counted.  Each such pod is reported by a Warning on the pod, a log line
and a gauge.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.held_pods import HeldPods, Sweep, Why
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import ObjectReference, Recorder, Reporter
from kqueue.model import GangPod, PodView
from kqueue.runtime.store import Store, split_key

GATED_INDEX = "gated"
SIBLINGS_INDEX = "siblings"
"""Index of Workloads by `model.siblings_key`."""
EVENT_GATE_LEAKED = "TopologyGateLeaked"


class Leak(StrEnum):
    """The reasons why no controller will remove a gate.  The value is the reason's name in metrics."""

    WORKLOAD_GONE = "workload_gone"
    WORKLOAD_FINISHED = "workload_finished"
    NOT_OWNED = "not_owned"
    """The Workload belongs to another job, has no such pod set, or is admitted without a place for it."""


_WORDS = {
    Leak.WORKLOAD_GONE: "does not exist",
    Leak.WORKLOAD_FINISHED: "has finished",
    Leak.NOT_OWNED: "does not place it",
}


class GateSweeper:
    """Checks all gated pods at regular intervals: it reads only the gated pods, not all pods."""

    def __init__(
        self,
        *,
        pods: Store[PodView],
        workloads: Store[wire.Workload],
        recorder: Recorder,
        sweep: Sweep,
    ) -> None:
        """Take the parts; `workloads` must have SIBLINGS_INDEX."""
        self._workloads, self._recorder = workloads, recorder
        held = HeldPods[GangPod](
            pods=lambda: (v.gang for v in pods.by_index(GATED_INDEX, True) if v.gang is not None),
            judge=lambda: self._why,
            tell=self._report_held,
            headline="pods have kqueue's gate and no controller will remove it",
            reasons=Leak,
            sweep=sweep,
        )
        self.run, self.sweep = held.run, held.look
        pods.add_index(GATED_INDEX, _gated)

    def _why(self, pod: GangPod) -> Why | None:
        leak = self._leak(pod)
        return None if leak is None else (leak, _WORDS[leak])

    def _leak(self, pod: GangPod) -> Leak | None:
        """Return why the gate of the pod stays forever; None: a controller may still remove it."""
        workloads = self._workloads.by_index(SIBLINGS_INDEX, pod.siblings)
        if not workloads:
            return Leak.WORKLOAD_GONE
        alive = [w for w in workloads if not model.condition_true(w, names.CONDITION_FINISHED)]
        if not alive:
            return Leak.WORKLOAD_FINISHED
        return None if any(_owns(workload, pod) for workload in alive) else Leak.NOT_OWNED

    def _report_held(self, pod: GangPod, words: str, age: float) -> None:
        namespace, name = split_key(pod.key)
        self._recorder.record(
            ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid),
            reason=EVENT_GATE_LEAKED,
            message=(
                f"Held by scheduling gate {names.TOPOLOGY_GATE}, but Workload {split_key(pod.workload)[1]} "
                f"{words}, for {int(age)} s: the pod will not run; delete it if its job does not"
            ),
            warning=True,
        )


def _gated(view: PodView) -> Iterable[bool]:
    """Return the index value of pods that have the gate and have neither ended nor are being deleted."""
    pod = view.gang
    return [True] if pod is not None and pod.gated and not pod.terminal and not pod.deleting else []


def _owns(workload: wire.Workload, pod: GangPod) -> bool:
    """Whether the Workload may still place the pod.

    Controllers are compared only if they are of one kind: Jobs control the pods of a JobSet.
    """
    owner = model.controller_of(workload.metadata)
    if owner is not None and pod.controller is not None and owner[0] == pod.controller[0] and owner != pod.controller:
        return False
    if all(spec.name != pod.pod_set for spec in workload.spec.pod_sets):
        return False
    admission = workload.status.admission
    if admission is None or not model.condition_true(workload, names.CONDITION_ADMITTED):
        return True
    assigned = next((a for a in admission.pod_set_assignments if a.name == pod.pod_set), None)
    return assigned is not None and assigned.topology_assignment is not None


def setup(manager: Manager) -> None:
    """Add the sweeper, which runs beside the controllers."""
    sweeper = GateSweeper(
        pods=manager.watches.pods.store,
        workloads=manager.watches.workloads.store,
        recorder=manager.recorder(Reporter.GATES),
        sweep=manager.sweep(),
    )
    manager.background.append(sweeper.run)
