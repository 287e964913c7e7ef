"""Keeps watches of its own and collects every event, so that nothing between two looks is missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.client import TOO_MANY_REQUESTS

import aiohttp

from tests.chaos.world import KINDS, Change, Object
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.road import KUEUE, has

PATHS = {
    "Node": "/api/v1/nodes",
    "ClusterQueue": f"{KUEUE}/clusterqueues",
    "LocalQueue": f"{KUEUE}/localqueues",
    "Job": "/apis/batch/v1/jobs",
    "Workload": f"{KUEUE}/workloads",
    "Pod": "/api/v1/pods",
}
assert set(PATHS) == set(KINDS)
_LINE_BYTES = 1 << 22
_QUIET_SECONDS = 0.5
_LONGEST_WAIT = 20.0
_ATTEMPTS = 20


class HistoryLostError(Exception):
    """A watch could not go on where it ended: the history has a gap, and nothing can be judged."""


@dataclass(slots=True)
class Audit:
    """The events that came, in the order of their revisions once `settled` has returned."""

    cluster: Cluster
    clock: Callable[[], float]
    _taken: list[Change] = field(default_factory=list)
    _last_came: float = 0.0
    complete: dict[str, float] = field(default_factory=dict)
    """UID of each Job that was seen Complete to the time when it was first seen so."""

    async def drain(self) -> list[Change]:
        """All events up to now, sorted by revision; each is returned once.

        Waits until no event has come for a moment, for `_LONGEST_WAIT` seconds at most: kinds are watched on separate
        connections, and one of them may be late.
        """
        until = self.clock() + _LONGEST_WAIT
        while self.clock() < until and self.clock() - self._last_came < _QUIET_SECONDS:
            await asyncio.sleep(_QUIET_SECONDS / 5)
        taken, self._taken = self._taken, []
        return sorted(taken, key=lambda change: change.revision)

    async def follow(self, kind: str) -> None:
        """List one kind and watch it until cancelled.

        Raises:
            HistoryLostError: the server does not go on where the last watch ended.
        """
        async with self.cluster.access.session() as session:
            listed = await self._list(session, kind)
            for obj in listed["items"]:
                self._take(kind, obj)
            version = listed["metadata"]["resourceVersion"]
            while True:
                version = await self._watch(session, kind, version)

    async def _list(self, session: aiohttp.ClientSession, kind: str) -> Object:
        """All objects of a kind; an API server that has just started may ask for patience a few times."""
        for _ in range(_ATTEMPTS):
            try:
                return await self.cluster.access.request("GET", PATHS[kind], session=session)
            except RequestError as error:
                if error.status != TOO_MANY_REQUESTS:
                    raise
            await asyncio.sleep(_QUIET_SECONDS)
        raise HistoryLostError(f"{kind} could not be listed: the API server asked for patience {_ATTEMPTS} times")

    async def _watch(self, session: aiohttp.ClientSession, kind: str, version: str) -> str:
        """One watch until it ends; returns the version to go on at."""
        params = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=30)
        async with session.get(PATHS[kind], params=params, timeout=timeout, read_bufsize=_LINE_BYTES) as answer:
            if answer.status != 200:
                raise HistoryLostError(f"watch of {kind} at {version}: status {answer.status}")
            async for line in answer.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise HistoryLostError(f"watch of {kind} at {version}: {event['object'].get('message')}")
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(kind, event["object"], deleted=event["type"] == "DELETED")
        return version

    def _take(self, kind: str, obj: Object, *, deleted: bool = False) -> None:
        obj["metadata"].pop("managedFields", None)
        self._last_came = self.clock()
        revision = int(obj["metadata"]["resourceVersion"])
        self._taken.append(Change(revision=revision, at=self._last_came, kind=kind, obj=obj, deleted=deleted))
        if kind == "Job" and not deleted and has(obj, "Complete"):
            self.complete.setdefault(obj["metadata"]["uid"], self._last_came)


@asynccontextmanager
async def auditing(cluster: Cluster, clock: Callable[[], float], kinds: Iterable[str] = KINDS) -> AsyncIterator[Audit]:
    """An audit of these kinds while the block runs; a gap in the history ends the block with its error."""
    audit = Audit(cluster, clock)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(audit.follow(kind)) for kind in kinds]
        try:
            yield audit
        finally:
            for task in tasks:
                task.cancel()
