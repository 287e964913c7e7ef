"""Competing controller processes, their load, and the invariants of every failover."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import yaml

from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.processes import leashed
from tests.integration.network import Gateway, Relay
from tests.integration.road import HOST, Object, Road, has, hosts_of, make_road

LEASE, RENEW, RETRY = 5, 3, 1
"""Seconds of leader election, in the proportions of the defaults."""
TAKEN_WITHIN = LEASE + 1.2 * RETRY
"""Seconds from the last renewal of a leader that says nothing to its successor: a whole lease, and one look."""
SLACK = 8.0
"""Seconds for a machine on which other tests run."""
REMEMBERED = 10
"""Seconds for which the API server goes on letting in who has a token that has ended."""
GPUS = 96
PODS, GPUS_OF_POD = 4, 8
NAME = "failover"


@dataclass(slots=True)
class Contender:
    """One controller process, and what its log says."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    health: str
    read_from: int = 0
    """Where in the log file its lines begin, and up to where they have been read."""
    _lines: list[Object] = field(default_factory=list)

    def lines(self) -> list[Object]:
        """What it has logged; not what comes from before there were logs.  Only new lines are read from the file."""
        with self.log.open("rb") as file:
            file.seek(self.read_from)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self.read_from += len(line)
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict) and "event" in found:
                        self._lines.append(found)
        return self._lines

    def times(self, event: str) -> list[float]:
        """When something was logged, in Unix time."""
        return [datetime.fromisoformat(line["time"]).timestamp() for line in self.lines() if line["event"] == event]

    @property
    def leads(self) -> bool:
        """Whether it was the last to say that it won, of all that it said about leading."""
        told = [line["event"] for line in self.lines() if line["event"] in _ABOUT_LEADING]
        return bool(told) and told[-1] == _WON

    async def readiness(self) -> tuple[int, str]:
        """Status and text of its readiness; 0 when it does not answer."""
        try:
            timeout = aiohttp.ClientTimeout(total=3)
            async with aiohttp.ClientSession(timeout=timeout) as session, session.get(self.health) as answer:
                return answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return 0, ""

    async def until_ready(self, seconds: float = 40) -> None:
        """Wait until it says so."""
        last = (0, "")
        try:
            async with asyncio.timeout(seconds):
                while (last := await self.readiness())[0] != 200:
                    assert self.process.returncode is None, f"{self.name} ended\n{self.tail()}"
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"{self.name} is not ready: {last}\n{self.tail()}") from None

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def ended(self, seconds: float = 30) -> int:
        """Its exit status, when it has ended."""
        return await asyncio.wait_for(self.process.wait(), seconds)

    def tail(self) -> str:
        """Its last words."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])


_WON, _LOST, _RELEASED = "leadership won", "leadership lost", "lease released"
_ABOUT_LEADING = (_WON, _LOST, _RELEASED)


@dataclass(frozen=True, slots=True)
class Election:
    """Times of leader election, in seconds."""

    lease: float = LEASE
    renew: float = RENEW
    retry: float = RETRY


def write_configuration(folder: Path, namespace: str, times: Election = Election()) -> Path:
    """A configuration with a lease of its own."""
    path = folder / "config.yaml"
    election = {
        "leaderElect": True,
        "leaseDuration": f"{times.lease}s",
        "renewDeadline": f"{times.renew}s",
        "retryPeriod": f"{times.retry}s",
        "resourceNamespace": namespace,
        "resourceName": NAME,
    }
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    path.write_text(yaml.safe_dump({**head, "leaderElection": election}))
    return path


@asynccontextmanager
async def contender(
    name: str,
    kubeconfig: Path,
    folder: Path,
    namespace: str,
    env: Mapping[str, str] | None = None,
    *,
    times: Election = Election(),
) -> AsyncIterator[Contender]:
    """A controller process that competes; ended with the block, or by the kernel with this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / f"{name}.log"
    options = [
        *("--leader-elect", "--kubeconfig", str(kubeconfig)),
        *("--config", str(write_configuration(folder, namespace, times))),
        *("--health-address", f"127.0.0.1:{port}", "--metrics-address", "0", "--log-format", "json"),
    ]
    with log.open("ab") as out:
        begins = out.tell()
        process = await asyncio.create_subprocess_exec(
            *leashed([sys.executable, "-m", "kqueue", "controller", *options]),
            stdout=out,
            stderr=out,
            env={**os.environ, "KQUEUE_TIMING_QUEUE_FLUSH_WINDOW": "0.1", **(env or {})},
        )
    try:
        yield Contender(name, process, log, f"http://127.0.0.1:{port}/readyz?verbose", begins)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGKILL)
            await process.wait()


async def leader_of(*contenders: Contender, seconds: float = 60) -> Contender:
    """The one that leads, as soon as one does."""
    async with asyncio.timeout(seconds):
        while True:
            for each in contenders:
                if each.leads:
                    return each
            await asyncio.sleep(0.05)


# --- ways to the API server


def redirected(kubeconfig: Path, to: Path, server: str, **user: Any) -> Path:
    """The kubeconfig with another address, and another user where one is given."""
    config = yaml.safe_load(kubeconfig.read_text())
    for each in config["clusters"]:
        each["cluster"]["server"] = server
    if user:
        config["users"][0]["user"] = user
    to.write_text(yaml.safe_dump(config))
    return to


@asynccontextmanager
async def by_relay(kubeconfig: Path, cluster: Cluster, folder: Path, name: str) -> AsyncIterator[tuple[Relay, Path]]:
    """A network that can be cut, and the kubeconfig that leads through it."""
    url = urlsplit(cluster.url)
    assert url.hostname
    assert url.port
    async with Relay(url.hostname, url.port).serving() as relay:
        yield relay, redirected(kubeconfig, folder / f"{name}.kubeconfig", f"{url.scheme}://127.0.0.1:{relay.port}")


@asynccontextmanager
async def by_gateway(
    kubeconfig: Path, cluster: Cluster, folder: Path, name: str
) -> AsyncIterator[tuple[Gateway, Path]]:
    """A proxy that sees what is written, and the kubeconfig that leads through it."""
    async with Gateway(cluster.access).serving() as gateway:
        yield gateway, redirected(kubeconfig, folder / f"{name}.kubeconfig", gateway.url, token="any")


class Account:
    """A ServiceAccount with all rights, whose tokens lie in a file and can be made invalid.

    A token is bound to a Secret, and with that it ends: the API server gives none that lives shorter than ten minutes.
    """

    def __init__(self, cluster: Cluster, namespace: str, name: str, folder: Path) -> None:
        self._cluster, self._namespace, self._name = cluster, namespace, name
        self.file = folder / f"{name}.token"
        self._tls = ssl.create_default_context()  # it shows no certificate: that would count more than a token
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._bound: str | None = None

    async def create(self) -> None:
        """Make the account, and its first token."""
        core = f"/api/v1/namespaces/{self._namespace}"
        await self._cluster.request("POST", f"{core}/serviceaccounts", {"metadata": {"name": self._name}})
        subject = {"kind": "ServiceAccount", "name": self._name, "namespace": self._namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        metadata = {"name": f"{self._namespace}-{self._name}"}
        await self._cluster.request("POST", bindings, {"metadata": metadata, "roleRef": role, "subjects": [subject]})
        await self.renew()

    async def renew(self) -> str | None:
        """Put a new token into the file; returns what the former one is bound to."""
        core = f"/api/v1/namespaces/{self._namespace}"
        secret = await self._cluster.request("POST", f"{core}/secrets", {"metadata": {"generateName": "bound-"}})
        name = secret["metadata"]["name"]
        bound = {"kind": "Secret", "apiVersion": "v1", "name": name, "uid": secret["metadata"]["uid"]}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"expirationSeconds": 600, "boundObjectRef": bound}
        made = await self._cluster.request(
            "POST", f"{core}/serviceaccounts/{self._name}/token", {**asked, "spec": spec}
        )
        written = self.file.with_suffix(".new")
        written.write_text(made["status"]["token"])
        written.rename(self.file)
        former, self._bound = self._bound, name
        return former

    async def expire(self, bound: str | None = None) -> float:
        """End the token that is bound to this (None: the present one), and wait until it is refused; when that was."""
        core = f"/api/v1/namespaces/{self._namespace}"
        token = self.file.read_text() if bound is None else None
        await self._cluster.request("DELETE", f"{core}/secrets/{bound or self._bound}")
        if token is None:
            return time.time()
        url = f"{self._cluster.url}/version"
        async with asyncio.timeout(30), aiohttp.ClientSession() as session:
            while True:  # the API server remembers for ten seconds whom it let in
                headers = {"Authorization": f"Bearer {token}"}
                async with session.get(url, headers=headers, ssl=self._tls) as answer:
                    if answer.status == 401:
                        return time.time()
                await asyncio.sleep(0.2)


# --- the load


@dataclass(slots=True)
class Load:
    """Gangs of four pods that need a rack, four times as many as quota has room for at once."""

    road: Road
    names: list[str]
    breaches: list[str] = field(default_factory=list)
    looks: int = 0

    async def more(self, count: int) -> None:
        """Submit further ones."""
        new = [f"gang-{len(self.names) + i}" for i in range(count)]
        self.names += new
        await asyncio.gather(*(self.road.submit(name, pods=PODS, run_seconds=1) for name in new))

    async def until_complete(self, count: int, *, seconds: float = 60) -> None:
        """Wait until so many Jobs are Complete."""

        def enough(listed: Object) -> bool:
            return sum(has(job, "Complete") for job in listed["items"]) >= count

        await self.road.cluster.until(self.road.jobs, enough, what=f"{count} complete jobs", seconds=seconds)

    async def watch_over(self) -> None:
        """Look at the world all the time: quota is never exceeded, and no node holds more than it has."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, RequestError, OSError):
                workloads = (await self.road.cluster.get(self.road.workloads))["items"]
                pods = (await self.road.cluster.get(self.road.pods))["items"]
                self._look(workloads, pods)
            await asyncio.sleep(0.15)

    def _look(self, workloads: list[Object], pods: list[Object]) -> None:
        self.looks += 1
        reserved = sum(_gpus(w) for w in workloads if "admission" in w.get("status", {}) and not has(w, "Finished"))
        if reserved > GPUS:
            self.breaches.append(f"{reserved} GPUs are reserved of {GPUS}")
        bound = Counter[str]()
        for pod in pods:
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed"):
                bound[pod["spec"]["nodeName"]] += GPUS_OF_POD
        self.breaches += [f"{node} holds {gpus} GPUs" for node, gpus in bound.items() if gpus > GPUS_OF_POD]

    async def check(self) -> None:
        """Nothing was lost and nothing doubled: each gang ran once, whole, where its Workload says."""
        cluster, road = self.road.cluster, self.road
        jobs = {j["metadata"]["name"]: j for j in (await cluster.get(road.jobs))["items"]}
        workloads = (await cluster.get(road.workloads))["items"]
        pods = (await cluster.get(road.pods))["items"]
        nodes = {n["metadata"]["name"]: n for n in (await cluster.get("/api/v1/nodes"))["items"]}
        assert set(jobs) == set(self.names)
        owned = Counter(w["metadata"]["ownerReferences"][0]["name"] for w in workloads)
        assert owned == dict.fromkeys(self.names, 1), "each Job has one Workload"
        for workload in workloads:
            name = workload["metadata"]["ownerReferences"][0]["name"]
            own = [p for p in pods if p["metadata"]["labels"]["batch.kubernetes.io/job-name"] == name]
            assert len(own) == PODS, f"{name} had {len(own)} pods: it ran more than once, or not as a whole"
            assert not has(workload, "Evicted")
            assert "schedulingStats" not in workload["status"], name
            wanted = hosts_of(workload)
            there = Counter(nodes[p["spec"]["nodeName"]]["metadata"]["labels"][HOST] for p in own)
            lost = {node["name"] for node in workload["status"].get("nodeFailures", ())}
            strays = set(there - wanted) - lost  # where a machine is so busy that a node seems dead, hosts are replaced
            assert not strays, f"{name} stands on {dict(there)}, its Workload says {dict(wanted)}"
            assert len(await road.racks_of(name)) == 1
        assert self.breaches == []
        assert self.looks > 5


def _gpus(workload: Object) -> int:
    """What it holds: pods that have ended for good hold nothing."""
    held = workload["status"]["admission"]["podSetAssignments"]
    ended = sum(each["count"] for each in workload["status"].get("reclaimablePods", ()))
    return sum(int(each["resourceUsage"]["nvidia.com/gpu"]) for each in held) - GPUS_OF_POD * int(ended)


@asynccontextmanager
async def load(cluster: Cluster, *, jobs: int = 12) -> AsyncIterator[Load]:
    """The load is on the cluster, and is watched over while the block runs; at its end all must have come to its end."""
    road = await make_road(cluster, gpus=GPUS, shape=(2, 2, 8))
    under = Load(road, [])
    watching = asyncio.create_task(under.watch_over())
    try:
        await under.more(jobs)
        yield under
        assert not watching.done(), "nobody has watched"
        await under.until_complete(len(under.names))
        await under.check()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
