"""Sandbox: how fast its API server takes objects in, changes them, hands them out, and tells watchers.

`python -m tests.bench.sandbox`.  The server runs in a process of its own (uvloop if it is there, its garbage collector
tuned); the clients are bare sockets in this process.  Pods of 2.4 KB, nodes of 2.2 KB.

    creates          POST of pods, over 1 and over 16 connections
    patches          merge patch of a pod's status, 16 connections
    nodes            5,000 nodes, 16 connections: seconds until all are stored
    list             GET of all pods, bytes read and dropped
    watched creates  16 connections, while watchers read every event of the kind
    floor            POST of the same bytes to a bare aiohttp server that sends them back, in the same run
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from aiohttp import web

from kqueue.runtime.loop import run, tune_collector
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.server import ApiServer
from tests.bench._loop import loop_name

RUNS = 3
CREATES = 3_000
NODES = 5_000
CONNECTIONS = 16
WATCHERS = (10, 50)
GOALS = {"creates per second over 16 connections": 2_000, "seconds for 5,000 nodes": 5.0}
EVENT = b'{"type":"ADDED"'
PODS = "/api/v1/namespaces/default/pods"


def pod(name: str) -> bytes:
    """A GPU job's pod as a controller creates it."""
    environment = [{"name": f"SETTING_{i}", "value": f"value-{i}" * 3} for i in range(24)]
    resources = {"requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "main", "image": "registry.example.dev/train:v1", "env": environment, "resources": resources}
    labels = {f"app.example.dev/label-{i}": f"value-{i}" for i in range(12)}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": {"example.dev/note": "x" * 300}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [container],
            "schedulingGates": [{"name": "example.dev/wait"}],
        },
    }
    return json.dumps(body, separators=(",", ":")).encode()


def node(index: int) -> bytes:
    """A node as a kubelet registers it."""
    name = f"node-{index:05d}"
    labels = {f"cloud.example.dev/label-{i}": f"value-{i}" for i in range(16)} | {"kubernetes.io/hostname": name}
    amounts = {"cpu": "96", "memory": "1Ti", "nvidia.com/gpu": "8", "pods": "110"}
    conditions = [
        {"type": kind, "status": "False", "reason": "KubeletIsWell", "message": "nothing to report" * 3}
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    images = [{"names": [f"registry.example.dev/image-{i}:v1"], "sizeBytes": 1_000_000 + i} for i in range(10)]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions, "images": images}
    return json.dumps({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}).encode()


# --- the servers' process


async def serve() -> None:
    """The sandbox's API server and the floor, until standard input ends; prints both ports."""
    server = ApiServer(ClusterApi())
    await server.start()

    async def echo(request: web.BaseRequest) -> web.Response:
        return web.Response(body=await request.read(), status=201, content_type="application/json")

    runner = web.ServerRunner(web.Server(echo, access_log=None))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(json.dumps([server.port, runner.addresses[0][1]]), flush=True)
    tune_collector()
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    await server.stop()


# --- the clients


class Connection:
    """One keep-alive connection that knows just enough HTTP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 26))

    async def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        found = await self._reader.readexactly(length)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {found[:300]!r}")
        return found

    async def start_watch(self, path: str) -> None:
        """Watch what comes from now on."""
        version = json.loads(await self.ask("GET", path + "?limit=1"))["metadata"]["resourceVersion"]
        query = f"watch=1&resourceVersion={version}"
        self._writer.write(f"GET {path}?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await self._reader.readuntil(b"\r\n\r\n")

    async def read_events(self, events: int) -> None:
        """Return when this many have come; one that is cut by the edge of a read is counted with its second half."""
        seen, rest = 0, b""
        while seen < events:
            chunk = rest + await self._reader.read(1 << 20)
            seen += chunk.count(EVENT)
            rest = chunk[-len(EVENT) + 1 :]

    def close(self) -> None:
        self._writer.close()


Request = Callable[[Connection, int], Awaitable[object]]


async def rate(port: int, connections: int, requests: int, request: Request) -> float:
    """Requests per second, `connections` at a time."""
    opened = [await Connection.open(port) for _ in range(connections)]
    numbers = iter(range(requests))

    async def work(connection: Connection) -> None:
        for number in numbers:
            await request(connection, number)

    begun = time.perf_counter()
    await asyncio.gather(*(work(connection) for connection in opened))
    elapsed = time.perf_counter() - begun
    for connection in opened:
        connection.close()
    return requests / elapsed


async def clear(port: int, path: str) -> None:
    """Delete all of a kind."""
    connection = await Connection.open(port)
    await connection.ask("DELETE", path + "?gracePeriodSeconds=0")
    connection.close()


async def creates(port: int, connections: int, *, path: str = PODS) -> float:
    bodies = [pod(f"pod-{index:05d}") for index in range(CREATES)]
    return await rate(port, connections, CREATES, lambda c, i: c.ask("POST", path, bodies[i]))


async def watched(port: int, watchers: int) -> float:
    """Creates per second until every watcher has seen every one."""
    opened = [await Connection.open(port) for _ in range(watchers)]
    for each in opened:
        await each.start_watch(PODS)
    reading = [asyncio.create_task(each.read_events(CREATES)) for each in opened]
    begun = time.perf_counter()
    await creates(port, CONNECTIONS)
    await asyncio.gather(*reading)
    elapsed = time.perf_counter() - begun
    for connection in opened:
        connection.close()
    return CREATES / elapsed


async def measure(port: int, floor: int) -> dict[str, float]:
    """One run of everything."""
    found = {"floor, 16 connections": await creates(floor, CONNECTIONS, path="/")}
    found["creates, 1 connection"] = await creates(port, 1)
    await clear(port, PODS)
    found["creates, 16 connections"] = await creates(port, CONNECTIONS)
    patch = json.dumps({"status": {"phase": "Running", "hostIP": "10.0.0.1", "message": "m"}}).encode()

    async def change(connection: Connection, index: int) -> bytes:
        path = f"{PODS}/pod-{index:05d}/status"
        return await connection.ask("PATCH", path, patch, "application/merge-patch+json")

    found["patches, 16 connections"] = await rate(port, CONNECTIONS, CREATES, change)
    found["lists of 3,000 pods"] = await rate(port, 1, 10, lambda c, _: c.ask("GET", PODS))
    await clear(port, PODS)
    for watchers in WATCHERS:
        found[f"creates, {watchers} watchers"] = await watched(port, watchers)
        await clear(port, PODS)
    nodes = [node(index) for index in range(NODES)]
    found["nodes"] = await rate(port, CONNECTIONS, NODES, lambda c, i: c.ask("POST", "/api/v1/nodes", nodes[i]))
    await clear(port, "/api/v1/nodes")
    return found


def report(runs: list[dict[str, float]]) -> None:
    """Medians, with the ratio to the floor of the same run."""
    floor = [run_["floor, 16 connections"] for run_ in runs]
    print(f"{'per second, median of ' + str(len(runs)):<34}{'rate':>10}{'of the floor':>14}")
    for name in runs[0]:
        values = [run_[name] for run_ in runs]
        ratio = statistics.median(value / base for value, base in zip(values, floor, strict=True))
        print(f"{name:<34}{statistics.median(values):>10,.0f}{ratio:>13.0%}")
    rate_ = statistics.median(run_["creates, 16 connections"] for run_ in runs)
    seconds = statistics.median(NODES / run_["nodes"] for run_ in runs)
    print(f"5,000 nodes are loaded in {seconds:.1f} s (goal: at most {GOALS['seconds for 5,000 nodes']:.0f} s)")
    print(f"creates over 16 connections: {rate_:,.0f}/s (goal: at least 2,000/s)")


async def main(port: int, floor: int) -> None:
    """Run, print."""
    size = len(pod("pod-00000")), len(node(0))
    print(
        f"CPython {platform.python_version()}, {loop_name()}, pods of {size[0]:,} and nodes of {size[1]:,} bytes sent"
    )
    report([await measure(port, floor) for _ in range(RUNS)])


if __name__ == "__main__":
    if "--serve" in sys.argv:
        run(serve())
    else:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.bench.sandbox", "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            ports = json.loads(process.stdout.readline())
            with contextlib.closing(process.stdin):
                run(main(*ports))
