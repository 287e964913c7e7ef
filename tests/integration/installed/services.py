"""Services of pods that are processes on this host: the API server reaches them through a proxy of its own.

The API server sends traffic for the cluster's network, such as admission reviews, to an HTTP CONNECT proxy on a unix
socket.  The proxy looks the Service up by its address, and chooses one of the ready pods that it selects.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.controlplane.cluster import Cluster

Object = dict[str, Any]

EGRESS = """\
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
  - name: cluster
    connection:
      proxyProtocol: HTTPConnect
      transport: {uds: {udsName: %s}}
"""
_LONGEST_HEAD = 8_192

Backends = Callable[[Object, Object], list[int]]
"""Local ports of ready pods, by a Service's selector and one entry of its ports."""


def egress_file(folder: Path, socket: Path) -> Path:
    """What the API server is told about the proxy."""
    file = folder / "egress.yaml"
    file.write_text(EGRESS % socket)
    return file


class ServiceNetwork:
    """The proxy.  `asked` counts connections by Service and local port."""

    def __init__(self, cluster: Cluster, backends: Backends) -> None:
        self._cluster, self._backends = cluster, backends
        self._turn = itertools.count()
        self.asked: dict[tuple[str, int], int] = {}

    @asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        """Answer on `socket` while the block runs."""
        server = await asyncio.start_unix_server(self._answer, socket)
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            address = head[:_LONGEST_HEAD].split(b" ")[1].decode()
            port = await self._port_of(address)
            if port is None:
                writer.write(b"HTTP/1.1 503 no ready pod\r\n\r\n")
                await writer.drain()
            else:
                await self._connect(port, reader, writer)
        writer.close()

    async def _connect(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inward, outward = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.write(b"HTTP/1.1 502 connection refused\r\n\r\n")
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 connected\r\n\r\n")
        await asyncio.gather(_pipe(reader, outward), _pipe(inward, writer))

    async def _port_of(self, address: str) -> int | None:
        host, _, number = address.rpartition(":")
        for service in (await self._cluster.get("/api/v1/services"))["items"]:
            spec, metadata = service["spec"], service["metadata"]
            if host not in (spec.get("clusterIP"), f"{metadata['name']}.{metadata['namespace']}.svc"):
                continue
            for port in spec["ports"]:
                if str(port["port"]) == number and (ready := self._backends(spec.get("selector") or {}, port)):
                    chosen = ready[next(self._turn) % len(ready)]
                    key = (metadata["name"], chosen)
                    self.asked[key] = self.asked.get(key, 0) + 1
                    return chosen
        return None


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(ConnectionError, OSError):
        writer.close()
