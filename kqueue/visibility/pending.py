"""Waiting workloads of a queue in their order: the `pendingworkloads` of ClusterQueues and LocalQueues.

The order is that of the heap, over all waiting workloads: active, parked, and the one that is being tried.  A long list
is sorted in steps, with turns of the event loop between them, and all questions share the result for a moment, so that
frequent questions do not cost more.

Source: the compatible system's visibility API, as documented and as it answers.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.errors import FieldError, InvalidObjectError, NotFoundError
from kqueue.model.pending import Pending
from kqueue.runtime.store import Store, object_key, split_key
from kqueue.state.queues import Queues
from kqueue.visibility.question import JSON, AuthorizedQuestion

KIND = "PendingWorkloadsSummary"
DEFAULT_LIMIT, MOST = 1000, 100_000
"""Items of one answer: without a limit in the query, and at most."""
_INT64 = 2**63
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_STEP = 500
"""Workloads that are sorted between two yields to the event loop: 1 ms."""
_KEPT, _KEPT_FOR_EACH = 1.0, 4.0
"""Seconds for which a sorted list of more than one step is kept, plus so many for each second that sorting took.  So
sorting takes at most a fifth of the time, however frequent questions are."""


@dataclass(frozen=True, slots=True)
class Place:
    """A waiting Workload, and the number of Workloads before it; both numbers count from 0."""

    item: Pending
    in_cluster_queue: int
    in_local_queue: int


@dataclass(frozen=True, slots=True)
class _Line:
    places: list[Place]
    until: float
    """Time until which the list is used."""


class PendingWorkloads:
    """The two views.  `items` of their answers are iterators."""

    def __init__(
        self,
        *,
        queues: Queues,
        workloads: Store[wire.Workload],
        local_queues: Store[wire.LocalQueue],
        clock: Clock,
    ) -> None:
        self._queues, self._workloads, self._local_queues, self._clock = queues, workloads, local_queues, clock
        self._lines: dict[str, _Line] = {}
        self._looks: dict[str, asyncio.Task[_Line]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def of_cluster_queue(self, asked: AuthorizedQuestion) -> JSON:
        """Return the waiting workloads of the ClusterQueue `asked.name`; offset and limit select a part."""
        window = _window(asked.params)
        if not self._queues.knows(asked.name):
            raise NotFoundError(f'clusterqueues "{asked.name}" not found', status=404)
        line = await self._line(asked.name)
        return self._summary(line.places[window])

    async def of_local_queue(self, asked: AuthorizedQuestion) -> JSON:
        """Return the waiting workloads of a LocalQueue; offset and limit count within the LocalQueue.

        Positions in the ClusterQueue count all namespaces.  Without its ClusterQueue no workload waits.
        """
        window = _window(asked.params)
        key = object_key(asked.namespace, asked.name)
        if key not in self._local_queues:
            raise NotFoundError(f'localqueues "{asked.name}" not found', status=404)
        own = (place for place in await self.places_beside(key) if place.item.local_queue == key)
        return self._summary(islice(own, window.start, window.stop))

    async def places_beside(self, local_queue: str) -> Sequence[Place]:
        """Return all waiting Workloads of the ClusterQueue of a LocalQueue (namespace/name); empty if it has none."""
        home = self._queues.cluster_queue_of(local_queue)
        return await self.places(home) if home is not None else ()

    async def places(self, cluster_queue: str) -> Sequence[Place]:
        """Return all waiting Workloads of a ClusterQueue, in its order; empty if it does not exist."""
        return (await self._line(cluster_queue)).places if self._queues.knows(cluster_queue) else ()

    def _summary(self, places: Iterable[Place]) -> JSON:
        return {"kind": KIND, "metadata": {}, "items": self._items(places)}

    def _items(self, places: Iterable[Place]) -> Iterator[JSON]:
        for place in places:
            workload = self._workloads.get(place.item.key)
            if workload is not None:  # None: deleted meanwhile
                yield _item(workload, place)

    # --- order

    async def _line(self, name: str) -> _Line:
        known = self._lines.get(name)
        if known is not None and self._clock.monotonic() <= known.until:
            return known
        look = self._looks.get(name)
        if look is None:
            look = self._looks[name] = asyncio.create_task(self._look(name), name=f"pending workloads of {name}")
        return await asyncio.shield(look)  # other requests may wait for the same answer

    async def _look(self, name: str) -> _Line:
        try:
            async with self._one_at_a_time:
                begun = self._clock.monotonic()
                places = await self._places(name)
            now = self._clock.monotonic()
            line = _Line(places, now + _KEPT + _KEPT_FOR_EACH * (now - begun))
            self._lines = {other: known for other, known in self._lines.items() if now <= known.until}
            if len(places) > _STEP:
                self._lines[name] = line
            return line
        finally:
            del self._looks[name]

    async def _places(self, name: str) -> list[Place]:
        """Return all places.  A change between two steps may or may not show; a deleted queue ends the list."""
        waiting, runs = self._queues.waiting(name), list[list[tuple[object, str, Pending]]]()
        for start in range(0, len(waiting), _STEP):
            if start:
                await self._clock.sleep(0)
                if not self._queues.knows(name):
                    return []
            step = waiting[start : start + _STEP]
            runs.append(sorted((self._queues.rank(name, item), item.key, item) for item in step))
        places, before = list[Place](), Counter[str]()
        for number, (_, _, item) in enumerate(merge(*runs)):
            if number and number % _STEP == 0:
                await self._clock.sleep(0)
            places.append(Place(item, number, before[item.local_queue]))
            before[item.local_queue] += 1
        while runs:  # freeing all of them together would take 50 ms
            runs.pop()
            await self._clock.sleep(0)
        return places


def _item(workload: wire.Workload, place: Place) -> JSON:
    metadata = workload.metadata
    shown: JSON = {"name": metadata.name, "namespace": metadata.namespace}
    if metadata.creation_timestamp is not None:
        shown["creationTimestamp"] = utc_text(metadata.creation_timestamp)
    if metadata.owner_references:
        shown["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            for owner in metadata.owner_references
        ]
    return {
        "metadata": shown,
        "priority": workload.spec.priority or 0,
        "localQueueName": split_key(place.item.local_queue)[1],
        "positionInClusterQueue": place.in_cluster_queue,
        "positionInLocalQueue": place.in_local_queue,
    }


def _window(params: Mapping[str, str]) -> slice:
    """Return the part of an order that `offset` and `limit` select.

    Raises:
        InvalidObjectError: `offset` or `limit` is no number.
    """
    limit, offset = _number(params, "limit") or DEFAULT_LIMIT, max(0, _number(params, "offset"))
    return slice(offset, offset + max(0, min(limit, MOST)))


def _number(params: Mapping[str, str], name: str) -> int:
    text = params.get(name, "0")
    if _NUMBER.fullmatch(text) and -_INT64 <= int(text) < _INT64:
        return int(text)
    raise InvalidObjectError("the query", [FieldError(name, "must be a whole number of 64 bits", text)])
