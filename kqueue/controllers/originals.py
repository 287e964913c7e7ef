"""Reads originals on the manager's own cluster, once for all worker clusters that need them at the same time."""

from __future__ import annotations

import asyncio

from kqueue.errors import NotFoundError
from kqueue.jobs.fields import JSON
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType

_Place = tuple[ResourceType, str, str]


class Originals:
    """Objects as the API server has them; nothing is kept once they are read."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._reading: dict[_Place, asyncio.Task[JSON | None]] = {}

    async def read(self, resource: ResourceType, name: str, namespace: str) -> JSON | None:
        """Return an object, which callers must not change; None: it is gone by now, which its watch will tell.

        A caller that is cancelled ends nothing for the others.

        Raises:
            ApiError: the API server did not answer; all callers of that moment get the error.
        """
        place = (resource, namespace, name)
        task = self._reading.get(place)
        if task is None:
            task = self._reading[place] = asyncio.create_task(self._read(place), name=f"read {resource}")
            task.add_done_callback(lambda done: self._ended(place, done))
        return await asyncio.shield(task)

    async def _read(self, place: _Place) -> JSON | None:
        resource, namespace, name = place
        try:
            return await self._client.get_json(resource, name, namespace)
        except NotFoundError:
            return None

    def _ended(self, place: _Place, task: asyncio.Task[JSON | None]) -> None:
        del self._reading[place]
        if not task.cancelled():
            task.exception()  # else one whose callers were all cancelled would be reported
