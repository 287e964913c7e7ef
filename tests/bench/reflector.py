"""Reflector: how long until 100,000 pods are in the store, what they cost, and how long the event loop is held.

`python -m tests.bench.reflector [pods]`.  Pods of 6.8 KB of JSON (a GPU job's, with managedFields and status), eight on
each node, served over plain HTTP by a process of its own that makes them up as it sends.  Each measurement runs in a
fresh process, as the controller runs: uvloop if it is there, the collector tuned, caches frozen after the sync.  The
store keeps the controller's own pod views, indexed by node.

    streamed   one watch with sendInitialEvents
    paged      list requests of 500, then a watch
    floor      the bytes of the stream read and decoded, and dropped: no view, no store, no index
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from aiohttp import web

from kqueue.api.wire.core import Pod
from kqueue.clock import SystemClock
from kqueue.model import PodView, pod_view
from kqueue.runtime.client import Client
from kqueue.runtime.frame import Bookmark, FrameDecoder
from kqueue.runtime.loop import freeze_after_sync, run, tune_collector
from kqueue.runtime.reflector import Projection, Reflector, WatchSettings
from kqueue.runtime.resources import ResourceType
from tests.bench._loop import LoopLag, loop_name

PODS = ResourceType("", "v1", "pods", "Pod")
RUNS = 3
GOALS = {"seconds": 5.0, "peak_mib": 250.0, "stall_ms": 50.0}


@dataclass(frozen=True, slots=True)
class Measured:
    """One run.  `peak_mib` is the resident memory at its highest, interpreter and libraries included."""

    seconds: float
    peak_mib: float
    base_mib: float
    stall_ms: float
    objects: int


# --- the server's process


def _pod_template() -> tuple[bytes, ...]:
    """A pod as JSON, cut where its number, its node and its version stand."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-N", "uid": "5f1c0c7e-N", "controller": True}
    labels = {f"app.example.dev/label-{i}": f"value-{i}" for i in range(10)}
    keys: dict[str, object] = {"f:name": {}, "f:value": {}, ".": {}}
    fields = {f"f:field-{i}": keys for i in range(48)}
    manager = {"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}
    env = [{"name": f"VARIABLE_{i}", "value": f"value of variable {i}"} for i in range(12)]
    resources = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    container = {
        "name": "train", "image": "registry.example.dev/train:v1", "env": env,
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [{"name": f"v{i}", "mountPath": f"/mnt/{i}"} for i in range(4)],
    }  # fmt: skip
    conditions = [
        {"type": t, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for t in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    pod = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "pod-@1", "namespace": "team-a", "uid": "uid-@1", "resourceVersion": "@3",
                     "labels": labels, "ownerReferences": [owner], "creationTimestamp": "2026-01-01T00:00:00Z",
                     "managedFields": [manager, manager]},
        "spec": {"containers": [container], "nodeName": "node-@2", "restartPolicy": "Never",
                 "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]},
        "status": {"phase": "Running", "conditions": conditions, "podIP": "10.0.0.1",
                   "containerStatuses": [{"name": "train", "ready": True, "restartCount": 0, "started": True}]},
    }  # fmt: skip
    text = json.dumps(pod, separators=(",", ":"))
    parts = text.replace("@2", "@1").replace("@3", "@1").split("@1")
    return tuple(part.encode() for part in parts)


def _make_pods(first: int, count: int, before: bytes, after: bytes) -> bytes:
    name, uid, version, node, rest = _TEMPLATE
    out: list[bytes] = []
    for i in range(first, first + count):
        number = b"%06d" % i
        place = b"%05d" % (i // 8)
        out += (before, name, number, uid, number, version, b"%d" % (i + 1), node, place, rest, after)
    return b"".join(out)


_TEMPLATE = _pod_template()


def serve(pods: int) -> None:
    """Serve `pods` pods until killed; prints the port first."""

    async def pods_of(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return _page(pods, int(request.query["limit"]), int(request.query.get("continue", 0)))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with contextlib.suppress(ConnectionError):  # the measured process has seen enough
            await send(request, response)
        return response

    async def send(request: web.Request, response: web.StreamResponse) -> None:
        await response.prepare(request)
        if request.query.get("sendInitialEvents"):
            for first in range(0, pods, 500):
                count = min(500, pods - first)
                await response.write(_make_pods(first, count, b'{"type":"ADDED","object":', b"}\n"))
            meta = {"resourceVersion": str(pods), "annotations": {"k8s.io/initial-events-end": "true"}}
            await response.write(json.dumps({"type": "BOOKMARK", "object": {"metadata": meta}}).encode() + b"\n")
        await asyncio.Event().wait()

    async def main() -> None:
        app = web.Application()
        app.router.add_get("/api/v1/pods", pods_of)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    run(main())


def _page(pods: int, limit: int, first: int) -> web.Response:
    count = min(limit, pods - first)
    more = f',"continue":"{first + count}"' if first + count < pods else ""
    head = f'{{"kind":"PodList","metadata":{{"resourceVersion":"{pods}"{more}}},"items":['.encode()
    items = _make_pods(first, count, b"", b",")
    return web.Response(body=head + items[:-1] + b"]}", content_type="application/json")


# --- the measured process


def measure(how: str, url: str) -> None:
    """One measurement; prints it as JSON."""
    tune_collector()
    print(json.dumps(asdict(run(_measure(how, url)))))


async def _measure(how: str, url: str) -> Measured:
    clock = SystemClock()
    lag = LoopLag(clock=clock, interval=0.001)
    heart = asyncio.ensure_future(lag.run())
    async with Client(url) as client:
        base = _memory("VmRSS")
        await asyncio.sleep(0)
        lag.reset()
        work = _floor if how == "floor" else _reflect
        started = clock.monotonic()
        objects = await work(client, how)
        seconds = clock.monotonic() - started
        await asyncio.sleep(0.005)
    heart.cancel()
    return Measured(seconds, _memory("VmHWM"), base, lag.longest * 1000, objects)


async def _reflect(client: Client, how: str) -> int:
    settings = WatchSettings(streaming=how == "streamed")
    reflector: Reflector[Pod, PodView] = Reflector(
        client, PODS, Projection(Pod, pod_view), clock=SystemClock(), settings=settings
    )
    reflector.store.add_index("node", lambda pod: (pod.bound.node,) if pod.bound else ())
    running = asyncio.ensure_future(reflector.run())
    await reflector.synced.wait()
    freeze_after_sync()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    found = len(reflector.store.by_index("node", "node-00007"))
    if found != 8 or reflector.unreadable:
        raise RuntimeError(f"node-00007 has {found} pods instead of 8, unreadable: {len(reflector.unreadable)}")
    return len(reflector.store)


async def _floor(client: Client, how: str) -> int:
    decoder = FrameDecoder(Pod)
    stream = await client.open_watch(PODS, params={"sendInitialEvents": "true"})
    objects = 0
    while True:
        for line in await stream.lines():
            if isinstance(decoder.event(line, how), Bookmark):
                stream.close()
                return objects
            objects += 1


def _memory(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


# --- the whole


async def compare(pods: int, runs: int = RUNS) -> dict[str, list[Measured]]:
    """Measure each way `runs` times, in turn."""
    server = await _child("serve", str(pods))
    assert server.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(await server.stdout.readline())}"
        results: dict[str, list[Measured]] = {"streamed": [], "paged": [], "floor": []}
        for _ in range(runs):
            for how, measured in results.items():
                child = await _child("measure", how, url)
                printed, _ = await child.communicate()
                result = Measured(**json.loads(printed.splitlines()[-1]))
                if result.objects != pods:
                    raise RuntimeError(f"{how}: {result.objects} pods instead of {pods}")
                measured.append(result)
        return results
    finally:
        server.kill()
        await server.wait()


async def _child(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.reflector", *args, stdout=subprocess.PIPE
    )


def report(pods: int, results: dict[str, list[Measured]]) -> None:
    """Print conditions, medians, and which goals are met."""
    size = len(_make_pods(0, 1, b"", b""))
    print(f"reflector: {pods:,} pods of {size:,} bytes, {RUNS} runs each in a fresh process, medians (worst)")
    print(f"  Python {platform.python_version()}, {loop_name()}, {platform.machine()}, plain HTTP on loopback")
    print(f"  {'':10} {'seconds':>14} {'peak MiB':>16} {'base MiB':>9} {'longest stall ms':>18} {'to floor':>9}")
    floor = statistics.median(m.seconds for m in results["floor"])
    verdicts = []
    for how, measured in results.items():
        shown = {key: _median_and_worst(measured, lambda m, k=key: getattr(m, k)) for key in GOALS}  # type: ignore[misc]
        base = statistics.median(m.base_mib for m in measured)
        ratio = statistics.median(m.seconds for m in measured) / floor
        print(f"  {how:10} {shown['seconds'][1]:>14} {shown['peak_mib'][1]:>16} {base:>9.0f} "
              f"{shown['stall_ms'][1]:>18} {ratio:>9.2f}")  # fmt: skip
        if how != "floor" and pods <= 100_000:
            met = all(shown[key][0] <= goal for key, goal in GOALS.items())
            verdicts.append(f"{how} {'pass' if met else 'falls short'}")
    goals = ", ".join(f"{key} <= {goal:g}" for key, goal in GOALS.items())
    print(f"  goals at 100,000 pods, by the medians: {goals}: {', '.join(verdicts) or 'not asked'}")


def _median_and_worst(measured: list[Measured], of: Callable[[Measured], float]) -> tuple[float, str]:
    values = [of(m) for m in measured]
    return statistics.median(values), f"{statistics.median(values):.2f} ({max(values):.2f})"


def main(argv: list[str] | None = None) -> int:
    """Run the benchmark, or the part of it that a child process plays."""
    args = sys.argv[1:] if argv is None else argv
    match args:
        case ["serve", pods]:
            serve(int(pods))
        case ["measure", how, url]:
            measure(how, url)
        case _:
            pods_wanted = int(args[0]) if args else 100_000
            report(pods_wanted, asyncio.run(compare(pods_wanted)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
