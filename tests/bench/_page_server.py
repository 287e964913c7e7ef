"""A page's server on a cluster that changes: `python -m tests.bench._page_server HOSTS` prints its address.

With a second argument, `shared`, it is the server for many people, who send bearer tokens.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from kqueue.clock import Clock, SystemClock
from kqueue.config.address import Address
from kqueue.page.askers import OpenedViews
from kqueue.page.server import PageServer
from kqueue.page.shared_server import SharedPageServer
from kqueue.page.views import ClusterViews
from kqueue.runtime.client import Client
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Rights
from tests.browser.answers import queues, topology_list, topology_map

JSON = dict[str, Any]
HOSTS_OF_A_RACK, RACKS_OF_A_BLOCK, QUEUES, WORKLOADS = 20, 25, 100, 20_000


class ChangingCluster:
    """Answers as an API server gives them: bytes that are decoded for each question.

    Each time one host in a hundred and one workload in a hundred have changed.
    """

    def __init__(self, hosts: int) -> None:
        blocks = hosts // HOSTS_OF_A_RACK // RACKS_OF_A_BLOCK
        self._map = topology_map(blocks, RACKS_OF_A_BLOCK, HOSTS_OF_A_RACK)
        found = queues()
        items = [{**found["items"][0], "metadata": {"name": f"queue-{n}"}} for n in range(QUEUES)]
        self._queues: JSON = {**found, "items": items}
        self._workloads = [_workload(n) for n in range(WORKLOADS)]
        self._asked = 0

    async def get_path(self, path: str, params: Mapping[str, str] | None = None, **_: Any) -> JSON:
        """Return the answer of a view."""
        self._asked += 1
        match path.split("/v1alpha1/")[1]:
            case "topologysummaries":
                return topology_list("dc")
            case "queuesummaries":
                for number, queue in enumerate(self._queues["items"]):
                    queue["admitted"] = (self._asked + number) % 50
                return cast("JSON", _sent(self._queues))
        leaves = self._map["flavors"][0]["leaves"]
        for leaf in range(self._asked % 100, len(leaves["name"]), 100):
            leaves["held"][leaf], leaves["free"][leaf] = leaves["free"][leaf], leaves["held"][leaf]
        return cast("JSON", _sent(self._map))

    async def list_json(self, *_: Any, **__: Any) -> list[JSON]:
        """Return all workloads."""
        self._asked += 1
        for number in range(self._asked % 100, WORKLOADS, 100):
            self._workloads[number]["spec"]["priority"] += 1
        return cast("list[JSON]", _sent(self._workloads))


def _workload(number: int) -> JSON:
    message = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor gpu"
    time = f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
    waits = {"type": "QuotaReserved", "status": "False", "message": message, "lastTransitionTime": time}
    return {
        "metadata": {"namespace": f"team-{number % 50}", "name": f"job-{number}", "creationTimestamp": time},
        "spec": {"queueName": "main", "priority": 0, "podSets": [{"count": 8}]},
        "status": {"conditions": [waits]},
    }


def _sent(answer: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(answer))


def _views(hosts: int, clock: Clock) -> ClusterViews:
    client = cast("Client", ChangingCluster(hosts))
    return ClusterViews(client, lambda _: (), what_if_lines=lambda _: (), clock=clock)


class SharedMap:
    """The same map for everybody: each question decodes it, as an answer of the cluster to this one person."""

    def __init__(self, views: ClusterViews) -> None:
        self._views = views
        self._encoded, self._until = b"", 0.0

    async def one(self, feed: str) -> dict[str, Any]:
        """Return the answer of a feed, which changes every 1.5 seconds."""
        now = time.monotonic()
        if now >= self._until:
            self._encoded, self._until = msgspec.json.encode(await self._views.one(feed)), now + 1.5
        return cast("dict[str, Any]", msgspec.json.decode(self._encoded))


class KnownTokens:
    """An API server that knows each token."""

    async def create(self, _: Any, review: dict[str, Any], **__: Any) -> dict[str, Any]:
        """Review a token, whose user has its name."""
        return {"status": {"authenticated": True, "user": {"username": review["spec"]["token"]}}}


async def _close() -> None:
    """Close nothing."""


async def share(hosts: int) -> None:
    """Serve many people until the process ends."""
    clock = SystemClock()
    shown = SharedMap(_views(hosts, clock))

    async def opened(_: str, __: User) -> OpenedViews:
        return OpenedViews(cast("ClusterViews", shown), _close)

    rights = Rights(cast("Client", KnownTokens()), clock=clock)
    server = SharedPageServer(rights, opened, clock=clock, tls=None)
    async with server.listening(Address("127.0.0.1", 0)):
        print(f"http://127.0.0.1:{server.port}/", flush=True)
        await asyncio.Event().wait()


async def serve(hosts: int) -> None:
    """Serve one user until the process ends."""
    clock = SystemClock()
    server = PageServer(_views(hosts, clock), clock=clock)
    async with server.listening():
        print(server.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run((share if "shared" in sys.argv else serve)(int(sys.argv[1])))
