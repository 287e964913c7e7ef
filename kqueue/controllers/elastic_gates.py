"""Finds pods with the gate of elastic jobs that no controller will release.  It does not release them.

A job that has grown and is no longer queued leaves such pods.  So does a job that was started without ever having
been queued, because the gate is in its template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.elastic_ungater import make_elastic_ungater
from kqueue.controllers.held_pods import HeldPods, Sweep, Why
from kqueue.controllers.manager import Manager
from kqueue.controllers.record import ObjectReference, Recorder, Reporter
from kqueue.model import ElasticPod, PodView
from kqueue.runtime.store import Store, split_key

HELD_INDEX = "elastic and gated"
EVENT_HELD = "ElasticGateHeld"


class ElasticGateReason(StrEnum):
    """Why no controller will remove the gate of an elastic job's pod.  The value is the reason's name in metrics."""

    NOT_QUEUED = "elastic_job_not_queued"
    BEYOND_WORKLOAD = "elastic_job_beyond_workload"


_WORDS = {
    ElasticGateReason.NOT_QUEUED: "its job has no Workload that could release it",
    ElasticGateReason.BEYOND_WORKLOAD: "as many pods of its job run as any of its Workloads asks for",
}


class ElasticGates:
    """Checks all gated pods of elastic jobs from time to time."""

    def __init__(
        self,
        *,
        pods: Store[PodView],
        slices: Callable[[str], Sequence[wire.Workload]],
        standing: Callable[[str], Mapping[str, int]],
        recorder: Recorder,
        sweep: Sweep,
    ) -> None:
        """Take the parts; `slices` returns all Workloads of a job by its key; `standing` its released pods that have
        not ended, by pod set.
        """
        self._slices, self._standing, self._recorder = slices, standing, recorder
        held = HeldPods[ElasticPod](
            pods=lambda: (v.elastic for v in pods.by_index(HELD_INDEX, True) if v.elastic is not None),
            judge=lambda: self._why,
            tell=self._report_held,
            headline="pods have the gate of elastic jobs and no controller will remove it",
            reasons=ElasticGateReason,
            sweep=sweep,
        )
        self.run, self.sweep = held.run, held.look
        pods.add_index(HELD_INDEX, _held)

    def _why(self, pod: ElasticPod) -> Why | None:
        """Return why the gate stays; None: a controller may still remove it."""
        alive = [w for w in self._slices(pod.siblings) if not model.is_over(w)] if pod.siblings else []
        alive = [w for w in alive if w.metadata.deletion_timestamp is None]
        if not alive:
            return ElasticGateReason.NOT_QUEUED, _WORDS[ElasticGateReason.NOT_QUEUED]
        wanted = max((p.count for w in alive for p in w.spec.pod_sets if p.name == pod.pod_set), default=0)
        if self._standing(pod.siblings).get(pod.pod_set, 0) < wanted:
            return None
        return ElasticGateReason.BEYOND_WORKLOAD, _WORDS[ElasticGateReason.BEYOND_WORKLOAD]

    def _report_held(self, pod: ElasticPod, words: str, age: float) -> None:
        namespace, name = split_key(pod.key)
        self._recorder.record(
            ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid),
            reason=EVENT_HELD,
            message=(
                f"Held by scheduling gate {names.ELASTIC_JOB_GATE} for {int(age)} s, and {words}: give the job "
                f"its label {names.QUEUE_NAME_LABEL} (back), or make it smaller, or delete it"
            ),
            warning=True,
        )


def _held(view: PodView) -> list[bool]:
    pod = view.elastic
    return [True] if pod is not None and pod.gated and not pod.deleting else []


def setup(manager: Manager) -> None:
    """Add the sweep over gated pods of elastic jobs, which runs beside the controllers."""
    ungater = manager.shared(make_elastic_ungater)
    gates = ElasticGates(
        pods=manager.watches.pods.store,
        slices=ungater.slices,
        standing=ungater.standing,
        recorder=manager.recorder(Reporter.GATES),
        sweep=manager.sweep(),
    )
    manager.background.append(gates.run)
