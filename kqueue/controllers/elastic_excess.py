"""Stops pods of elastic jobs that run beyond the admission: a client of the API server has removed their gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from cachetools import TTLCache

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.elastic_counts import admitted, most_wanted, newest_running, room
from kqueue.controllers.owner_workloads import read_workloads
from kqueue.controllers.short_stop import PodStop
from kqueue.model import ElasticPod
from kqueue.runtime.client import Client

_log = structlog.get_logger(__name__)

_REMEMBERED = 10_000
_SECOND_LOOK = 1.0
"""Seconds between the first check that finds excess pods and the stop of these pods."""


class ElasticExcess:
    """Stops excess pods that two checks have found, because watches may be behind.

    The Workloads are read before a pod is stopped, and events of pods that have ended have a second to arrive.
    """

    def __init__(self, *, client: Client, stop: PodStop, clock: Clock) -> None:
        self._client, self._stop, self._clock = client, stop, clock
        self._since: TTLCache[str, float] = TTLCache(_REMEMBERED, 60.0, clock.monotonic)
        """By job: the time at which excess pods were first seen, in seconds of the clock."""

    async def stop(
        self, workload: wire.Workload, slices: Iterable[wire.Workload], pods: Callable[[], Sequence[ElasticPod]]
    ) -> bool:
        """Stop released pods beyond the admission of `workload`; returns whether there are such pods.

        Args:
            workload: the slice whose pods may run.
            slices: all Workloads of the job, from the watch.
            pods: returns the job's pods that have not ended, in the order of their names.

        Raises:
            ApiError: the Workloads could not be read, or a pod could not be deleted.
        """
        siblings, now = model.siblings_key(workload), self._clock.monotonic()
        if not _beyond(workload, most_wanted(slices), pods()):
            self._since.pop(siblings, None)
            return False
        if now - self._since.setdefault(siblings, now) < _SECOND_LOOK:
            return True
        read = await self._read(workload)
        runs = newest_running(read)
        beyond = _beyond(runs, most_wanted(read), pods()) if runs is not None else []
        for pod in beyond:
            assert runs is not None
            await self._end(runs, pod)
        return bool(beyond)

    async def _read(self, workload: wire.Workload) -> list[wire.Workload]:
        owner = model.controller_of(workload.metadata)
        if owner is None:
            return []
        return await read_workloads(self._client, workload.metadata.namespace, owner_uid=owner[1])

    async def _end(self, workload: wire.Workload, pod: ElasticPod) -> None:
        key = model.workload_key(workload)
        message = f"It ran beyond what Workload {key} was admitted with: leave gate {names.ELASTIC_JOB_GATE} on pods"
        if await self._stop.end(pod.key, pod.uid, queue=model.local_queue_key(workload), message=message):
            _log.warning("pod of an elastic job stopped: it ran without quota", pod=pod.key, workload=key)


def _beyond(workload: wire.Workload, wanted: Mapping[str, int], pods: Iterable[ElasticPod]) -> list[ElasticPod]:
    """Return the pods without a gate beyond the allowed number: the last ones by name, as these are released last.

    A pod set that requests no more pods than were admitted has no excess pods: the job is being scaled down, and its
    own controller chooses the pods that end.
    """
    most = admitted(workload)
    left = Counter(room(workload))
    found: list[ElasticPod] = []
    for pod in pods:
        if pod.gates or pod.deleting or wanted.get(pod.pod_set, 0) <= most.get(pod.pod_set, 0):
            continue
        left[pod.pod_set] -= 1
        if left[pod.pod_set] < 0:
            found.append(pod)
    return found
