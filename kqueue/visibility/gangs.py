"""Gangs of all forms, also those that have no Workload yet.

    GET namespaces/NS/gangs[?name=NAME][&framework=F][&limit=N]
    GET gangs[?...]
    GET namespaces/NS/gangs/NAME[?framework=F]

Gangs of namespaces whose Workloads the user may not read are counted in `hidden`, not named.  A list without `name` has
the gangs that kqueue queues; with a name, and a single gang, also a group object that no queue has.  With `name`, and
for a single gang, the domains of an admitted gang are those above the hosts.

Every replica answers from its own watches.  The members of gangs are pods with kqueue's label `managed`, which every
replica watches where a kind of pods is on; where none is on, there are no gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.errors import ConfigError, NotFoundError
from kqueue.jobs.gang.value import GangRef
from kqueue.runtime.store import Store, object_key
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only, whole
from kqueue.visibility.pending import PendingWorkloads, Place
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.running import RunningPlaces

KIND = "GangList"
FEW_GANGS, MOST_GANGS = 500, 5000
"""Limit of gangs in one answer: without `limit`, and the largest `limit`."""
_MOST_DOMAINS = 16
_STEP = 500
"""Places that are read between two yields to the event loop."""


class GangSource(Protocol):
    """The gangs that a process knows."""

    async def refresh(self) -> None:
        """Read the gangs that have changed."""
        ...

    def keys(self, namespace: str, *, strangers: bool) -> Sequence[str]:
        """Return the keys of the gangs of a namespace (empty: of all), sorted.

        `strangers`: also group objects without members, Workload and queue, which other schedulers may own.
        """
        ...

    def overview(self, key: str) -> JSON | None:
        """Return the overview of a gang; None: it does not exist any more."""
        ...


class GangViews:
    """Answers about gangs."""

    def __init__(
        self,
        source: GangSource | None,
        *,
        workloads: Store[wire.Workload],
        pending: PendingWorkloads,
        places: RunningPlaces,
        clock: Clock,
    ) -> None:
        """Take the gangs (None: no kind of pods is on), the watched Workloads, their positions and placements."""
        self._source, self._workloads, self._pending = source, workloads, pending
        self._places, self._clock = places, clock

    async def every(self, asked: AuthorizedQuestion) -> JSON:
        """Return the gangs of a namespace, or of all, sorted by namespace and name.

        Raises:
            ConfigError: a parameter cannot be read.
        """
        only(asked.params, "name", "framework", "limit")
        limit = whole(asked.params, "limit", default=FEW_GANGS, most=MOST_GANGS)
        pace, name = RequestPace(self._clock), asked.params.get("name", "")
        found, hidden = await self._readable(asked, await self._keys(asked, name), pace)
        items, positions = [], _Positions(self._pending, pace)
        for key in found[:limit]:
            await pace.step()
            item = self._source.overview(key) if self._source is not None else None
            if item is not None:
                item = await positions.added_to(item)
                items.append(await self._placed(item, pace) if name else item)
        return {
            "kind": KIND,
            "metadata": {},
            "generatedAt": utc_text(self._clock.now()),
            "items": items,
            "left": max(0, len(found) - limit),
            "hidden": hidden,
        }

    async def one(self, asked: AuthorizedQuestion) -> JSON:
        """Return one gang.

        Raises:
            ConfigError: gangs of several forms have the name, or a parameter cannot be read.
            NotFoundError: no such gang exists, or the user may not read the Workloads of the namespace.
        """
        only(asked.params, "framework")
        pace = RequestPace(self._clock)
        found, _ = await self._readable(asked, await self._keys(asked, asked.name), pace)
        if len(found) > 1:
            forms = ", ".join(GangRef.of_key(key).framework for key in found)
            raise ConfigError(f"{len(found)} gangs are called {asked.name!r}; add the parameter framework: {forms}")
        item = self._source.overview(found[0]) if found and self._source is not None else None
        if item is None:
            raise NotFoundError(f'gangs "{asked.name}" not found', status=404)
        return await self._placed(await _Positions(self._pending, pace).added_to(item), pace)

    async def _keys(self, asked: AuthorizedQuestion, name: str) -> Sequence[str]:
        """Return the keys of gangs with the name (empty: any) and the framework of the question."""
        if self._source is None:
            return ()
        await self._source.refresh()
        keys = self._source.keys(asked.namespace, strangers=bool(name))
        framework = asked.params.get("framework", "")
        if not name and not framework:
            return keys
        refs = (GangRef.of_key(key) for key in keys)
        return [ref.key for ref in refs if name in ("", ref.name) and framework in ("", ref.framework)]

    async def _readable(
        self, asked: AuthorizedQuestion, keys: Sequence[str], pace: RequestPace
    ) -> tuple[Sequence[str], int]:
        """Return the keys of gangs that the user may see, and the number of all others."""
        found, may = [], dict[str, bool]()
        for key in keys:
            await pace.step()
            namespace = key.partition("/")[0]
            if namespace not in may:
                may[namespace] = await asked.reads(namespace)
            if may[namespace]:
                found.append(key)
        return found, len(keys) - len(found)

    async def _placed(self, gang: JSON, pace: RequestPace) -> JSON:
        """Return the gang with the domains above the hosts, where the cache knows them."""
        shown = gang.get("workload") or {}
        workload = self._workloads.get(object_key(gang["metadata"]["namespace"], shown.get("name", "")))
        if workload is None or not shown.get("domains"):
            return gang
        pods = Counter[str]()
        for pod_set in (await self._places.placement(workload, pace))["podSets"]:
            for domain in pod_set.get("placement", {}).get("domains", ()):
                pods["/".join(domain["domain"])] += domain["pods"]
        if not pods:
            return gang
        domains = [{"domain": path, "pods": number} for path, number in sorted(pods.items())]
        return {**gang, "workload": {**shown, "domains": domains[:_MOST_DOMAINS]}}


class _Positions:
    """The positions of waiting Workloads, for one question: the queue of each LocalQueue is read once."""

    def __init__(self, pending: PendingWorkloads, pace: RequestPace) -> None:
        self._pending, self._pace = pending, pace
        self._found: dict[str, Mapping[str, Place]] = {}

    async def added_to(self, gang: JSON) -> JSON:
        """Return the gang with the positions of its Workload, from 1; unchanged if its Workload does not wait."""
        workload, namespace = gang.get("workload") or {}, gang["metadata"]["namespace"]
        if not workload or not gang.get("queue") or "clusterQueue" in workload:
            return gang
        place = (await self._of(object_key(namespace, gang["queue"]))).get(object_key(namespace, workload["name"]))
        if place is None:
            return gang
        return gang | {
            "position": {"inLocalQueue": place.in_local_queue + 1, "inClusterQueue": place.in_cluster_queue + 1}
        }

    async def _of(self, local_queue: str) -> Mapping[str, Place]:
        """Return the places of the waiting Workloads of a LocalQueue, by key."""
        if local_queue not in self._found:
            found: dict[str, Place] = {}
            for number, place in enumerate(await self._pending.places_beside(local_queue)):
                if number % _STEP == 0:
                    await self._pace.step()
                if place.item.local_queue == local_queue:
                    found[place.item.key] = place
            self._found[local_queue] = found
        return self._found[local_queue]
