"""A page's server on a map that changes: `python -m tests.bench._page_server HOSTS` prints its address."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import msgspec

from kqueue.clock import SystemClock
from kqueue.page.server import PageServer
from kqueue.page.views import ClusterViews
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


async def serve(hosts: int) -> None:
    """Serve until the process ends."""
    server = PageServer(cast("ClusterViews", ChangingMap(hosts)), clock=SystemClock())
    async with server.listening():
        print(server.address, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
