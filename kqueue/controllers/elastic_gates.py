"""Finds pods that the gate of elastic jobs holds although nothing that is under way will release them; releases none.

A job that has grown and is not queued any more leaves such pods, and so does one that was started without ever having
been queued: the gate is in its template.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.record import ObjectReference, Recorder
from kqueue.runtime.store import Store, split_key
from kqueue.state import from_api
from kqueue.state.from_api import ElasticPod, PodView

_log = structlog.get_logger(__name__)

HELD_INDEX = "elastic and gated"
EVENT_HELD = "ElasticGateHeld"
_AT_ONCE = 500
"""Pods looked at before the event loop gets a turn."""
_NAMED = 5
"""Pods that a log line names."""


class Held(StrEnum):
    """Why nobody will remove the gate of an elastic job's pod.  The value is its name in metrics."""

    NOT_QUEUED = "elastic_job_not_queued"
    BEYOND_WORKLOAD = "elastic_job_beyond_workload"


_WORDS = {
    Held.NOT_QUEUED: "its job has no Workload that could release it",
    Held.BEYOND_WORKLOAD: "as many pods of its job run as any of its Workloads asks for",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """A pod that was held at every look since `since` (monotonic)."""

    since: float
    told: bool = False


class ElasticGates:
    """Looks at all gated pods of elastic jobs from time to time."""

    def __init__(
        self,
        *,
        pods: Store[PodView],
        slices: Callable[[str], Sequence[wire.Workload]],
        standing: Callable[[str], Mapping[str, int]],
        recorder: Recorder,
        clock: Clock,
        after: float,
        interval: float,
        report: Callable[[Mapping[str, int]], None],
    ) -> None:
        """`slices(siblings)` are all Workloads of a job, `standing(siblings)` its released pods that have not ended, by
        pod set.  A pod counts once it is held for `after` seconds; `report` is told the number by reason at each look.
        """
        self._pods, self._slices, self._standing = pods, slices, standing
        self._recorder, self._clock, self._report = recorder, clock, report
        self._after, self._interval = after, interval
        self._found: dict[str, _Found] = {}
        pods.add_index(HELD_INDEX, _held)

    async def run(self) -> None:
        """Look until cancelled; then this process counts no more."""
        try:
            while True:
                await self._clock.sleep(self._interval)
                await self.sweep()
        finally:
            self._found.clear()
            self._report({held.value: 0 for held in Held})

    async def sweep(self) -> None:
        """One look."""
        found: dict[str, _Found] = {}
        counts = {held.value: 0 for held in Held}
        new: list[str] = []
        for number, view in enumerate(self._pods.by_index(HELD_INDEX, True), start=1):
            if number % _AT_ONCE == 0:
                await self._clock.sleep(0)
            pod = view.elastic
            why = self._why(pod) if pod is not None else None
            if pod is None or why is None:
                continue
            seen = self._found.get(pod.uid) or _Found(self._clock.monotonic())
            age = self._clock.monotonic() - seen.since
            if age >= self._after:
                counts[why.value] += 1
                if not seen.told:
                    self._tell(pod, why, age)
                    new.append(pod.key)
                    seen = _Found(seen.since, told=True)
            found[pod.uid] = seen
        self._found = found
        self._report(counts)
        if new:
            _log.warning("pods are held by the gate of elastic jobs and nobody will release them", new=len(new),
                         pods=new[:_NAMED], in_all=sum(counts.values()))  # fmt: skip

    def _why(self, pod: ElasticPod) -> Held | None:
        """Why the gate stays as things are; None while somebody may remove it."""
        alive = [w for w in self._slices(pod.siblings) if not from_api.is_over(w)] if pod.siblings else []
        alive = [w for w in alive if w.metadata.deletion_timestamp is None]
        if not alive:
            return Held.NOT_QUEUED
        wanted = max((p.count for w in alive for p in w.spec.pod_sets if p.name == pod.pod_set), default=0)
        return Held.BEYOND_WORKLOAD if self._standing(pod.siblings).get(pod.pod_set, 0) >= wanted else None

    def _tell(self, pod: ElasticPod, why: Held, age: float) -> None:
        namespace, name = split_key(pod.key)
        self._recorder.record(
            ObjectReference(api_version="v1", kind="Pod", namespace=namespace, name=name, uid=pod.uid),
            reason=EVENT_HELD,
            message=(
                f"Held by scheduling gate {names.ELASTIC_JOB_GATE} for {int(age)} s, and {_WORDS[why]}: give the job "
                f"its label {names.QUEUE_NAME_LABEL} (back), or make it smaller, or delete it"
            ),
            warning=True,
        )


def _held(view: PodView) -> list[bool]:
    pod = view.elastic
    return [True] if pod is not None and pod.gated and not pod.deleting else []
