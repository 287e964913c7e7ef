"""A page's server on a map that changes: `python -m tests.bench._page_server HOSTS` prints its address.

With a second argument, `shared`, it is the server for many people, who send bearer tokens.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any, cast

import msgspec

from kqueue.clock import SystemClock
from kqueue.config.address import Address
from kqueue.page.askers import OpenedViews
from kqueue.page.server import PageServer
from kqueue.page.shared_server import SharedPageServer
from kqueue.page.views import ClusterViews
from kqueue.runtime.client import Client
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Rights
from tests.browser.answers import topology_list, topology_map

HOSTS_OF_A_RACK, RACKS_OF_A_BLOCK = 20, 25


class ChangingMap:
    """Answers as a cluster gives them: bytes that are decoded for each question, with one leaf in a hundred changed."""

    def __init__(self, hosts: int) -> None:
        blocks = hosts // HOSTS_OF_A_RACK // RACKS_OF_A_BLOCK
        self._map = topology_map(blocks, RACKS_OF_A_BLOCK, HOSTS_OF_A_RACK)
        self._asked = 0

    async def one(self, feed: str) -> dict[str, Any]:
        """Return the answer of a feed."""
        if feed == "topologies":
            return topology_list("dc")
        self._asked += 1
        leaves = self._map["flavors"][0]["leaves"]
        for leaf in range(self._asked % 100, len(leaves["name"]), 100):
            leaves["held"][leaf], leaves["free"][leaf] = leaves["free"][leaf], leaves["held"][leaf]
        return cast("dict[str, Any]", msgspec.json.decode(msgspec.json.encode(self._map)))


class SharedMap:
    """The same map for everybody: each question decodes it, as an answer of the cluster to this one person."""

    def __init__(self, hosts: int) -> None:
        self._map = ChangingMap(hosts)
        self._encoded, self._until = b"", 0.0

    async def one(self, feed: str) -> dict[str, Any]:
        """Return the answer of a feed; a changed one to whoever asks two seconds later."""
        now = time.monotonic()
        if now >= self._until:
            self._encoded, self._until = msgspec.json.encode(await self._map.one(feed)), now + 1.5
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
    clock, shown = SystemClock(), SharedMap(hosts)

    async def opened(_: str, __: User) -> OpenedViews:
        return OpenedViews(cast("ClusterViews", shown), _close)

    rights = Rights(cast("Client", KnownTokens()), clock=clock)
    server = SharedPageServer(rights, opened, clock=clock, tls=None)
    async with server.listening(Address("127.0.0.1", 0)):
        print(f"http://127.0.0.1:{server.port}/", flush=True)
        await asyncio.Event().wait()


async def serve(hosts: int) -> None:
    """Serve one user until the process ends."""
    server = PageServer(cast("ClusterViews", ChangingMap(hosts)), clock=SystemClock())
    async with server.listening():
        print(server.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run((share if "shared" in sys.argv else serve)(int(sys.argv[1])))
