"""Pods of one namespace as processes: with their arguments, their ConfigMaps, and tokens of their ServiceAccounts.

Differences to a node: all pods share one host, so addresses in the configuration file become free ports on loopback,
and pods reach the API server by a kubeconfig with the token instead of the files that a kubelet mounts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.plane import ControlPlane, free_ports

Object = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]
_POLL_SECONDS = 0.1
_END_SECONDS = 25
_READY_SECONDS = 180


@dataclass(slots=True)
class Running:
    """One pod and its process."""

    pod: Object
    process: asyncio.subprocess.Process
    ports: dict[str, int]
    """Container port, by name and by number, to the local one."""
    log: Path
    ready: bool = False

    @property
    def component(self) -> str:
        """controller, webhook or uninstall."""
        return str(self.pod["metadata"]["labels"]["app.kubernetes.io/component"])


@dataclass(slots=True)
class Kubelet:
    """Runs the pods of `namespace` while `running` is entered."""

    plane: ControlPlane
    namespace: str
    folder: Path
    without_image: set[str] = field(default_factory=set)
    """Components whose image cannot be pulled: their pods never do anything."""
    pods: dict[str, Running] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)
    """Last words of processes that ended by themselves."""
    peak_mib: dict[str, float] = field(default_factory=dict)
    """Most memory of any process, by component."""
    _ending: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Kubelet]:
        """Follow the pods; all processes are gone when the block ends."""
        over = asyncio.Event()
        following = asyncio.create_task(self._follow(over))
        try:
            yield self
        finally:
            over.set()  # not cancelled: a process that is just being started would be lost
            await following
            for running in self.pods.values():
                await _killed(running.process)
            for end in list(self._ending):
                end.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await end

    def backends(self, selector: Object, port: Object) -> list[int]:
        """See `services.Backends`."""
        target = str(port.get("targetPort", port["port"]))
        return [
            running.ports[target]
            for _name, running in sorted(self.pods.items())
            if running.ready
            and target in running.ports
            and selector.items() <= running.pod["metadata"]["labels"].items()
        ]

    def ready(self, component: str) -> list[Running]:
        """Those that say that they are ready."""
        return [running for running in self.pods.values() if running.ready and running.component == component]

    async def until_ready(self, **wanted: int) -> None:
        """Exactly so many processes of each component run, and all of them are ready.

        Raises:
            TimeoutError: not within minutes; with the last words of all that ran.
        """
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while any(
                    (len(self.ready(component)), sum(r.component == component for r in self.pods.values()))
                    != (count, count)
                    for component, count in wanted.items()
                ):
                    if self.crashed:
                        raise AssertionError(f"ended by itself: {self.crashed[0]}")
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not ready: {wanted}\n{self.logs()}") from None

    async def token(self, account: str) -> str:
        """A bearer token of a ServiceAccount, as a kubelet asks for one."""
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        made = await self.plane.cluster.request("POST", path, asked)
        return str(made["status"]["token"])

    def logs(self) -> str:
        """Last lines of every log."""
        return "\n".join(f"--- {file.name}\n{_tail(file)}" for file in sorted(self.folder.glob("*.log")))

    async def _follow(self, over: asyncio.Event) -> None:
        collection = f"/api/v1/namespaces/{self.namespace}/pods"
        async with self.plane.cluster.access.session() as session, aiohttp.ClientSession() as asking:
            while not over.is_set():
                listed = await self.plane.cluster.access.request("GET", collection, session=session)
                present = {
                    pod["metadata"]["name"]: pod
                    for pod in listed["items"]
                    if pod["metadata"].get("deletionTimestamp") is None
                    and pod.get("status", {}).get("phase") == "Running"
                    and pod["metadata"]["labels"].get("app.kubernetes.io/component") not in self.without_image
                }
                for name in [name for name in self.pods if name not in present]:
                    self._end(self.pods.pop(name))
                for name, pod in present.items():
                    if name not in self.pods:
                        self.pods[name] = await self._start(pod)
                for name, running in list(self.pods.items()):
                    await self._look(name, running, asking)
                await asyncio.sleep(_POLL_SECONDS)

    async def _look(self, name: str, running: Running, asking: aiohttp.ClientSession) -> None:
        if (code := running.process.returncode) is not None:
            await self._ended(name, running, code)
            return
        self._measure(running)
        if "health" in running.ports:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                probe = _container(running.pod)["readinessProbe"]["httpGet"]["path"]
                url = f"http://127.0.0.1:{running.ports['health']}{probe}"
                async with asking.get(url, timeout=aiohttp.ClientTimeout(total=2)) as answer:
                    running.ready = answer.status == 200
                return
            running.ready = False

    def _measure(self, running: Running) -> None:
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{running.process.pid}/status").read_text()
            peak = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0) / 1024
            self.peak_mib[running.component] = max(self.peak_mib.get(running.component, 0), peak)

    async def _ended(self, name: str, running: Running, code: int) -> None:
        running.ready = False
        if running.pod["metadata"]["ownerReferences"][0]["kind"] != "Job":
            self.crashed.append(f"{name}, status {code}:\n{_tail(running.log)}")
            return
        status = {"status": {"phase": "Failed" if code else "Succeeded"}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
        with contextlib.suppress(RequestError):
            await self.plane.cluster.request("PATCH", path, status, content_type=MERGE_PATCH)

    def _end(self, running: Running) -> None:
        async def end() -> None:
            process = running.process
            try:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(_END_SECONDS):
                    await process.wait()
            except TimeoutError:
                self.crashed.append(f"{running.log.name} did not end:\n{_tail(running.log)}")
            finally:
                await _killed(process)

        task = asyncio.create_task(end())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _start(self, pod: Object) -> Running:
        name = pod["metadata"]["name"]
        container = _container(pod)
        folder = self.folder / name
        ports = _ports(container)
        arguments = await self._mounted(pod, container, folder, ports)
        kubeconfig = await self._kubeconfig(pod["spec"]["serviceAccountName"], folder)
        environment = {each["name"]: each.get("value", "") for each in container.get("env", ())}
        log = self.folder / f"{name}.log"
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "kqueue", *arguments, "--kubeconfig", str(kubeconfig)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=folder,
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT),
                    "HOME": "/nonexistent",
                    "TMPDIR": str(folder),
                    "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                    **environment,
                },
            )
        return Running(pod, process, ports, log)

    async def _mounted(self, pod: Object, container: Object, folder: Path, ports: dict[str, int]) -> list[str]:
        """Lay out the volumes; returns the arguments, with the folders that these have here."""
        arguments = list(container["args"])
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", ())}
        for mount in container.get("volumeMounts", ()):
            here = folder / mount["mountPath"].strip("/")
            here.mkdir(parents=True, exist_ok=True)
            source = volumes[mount["name"]].get("configMap")
            if source is None:
                continue
            path = f"/api/v1/namespaces/{self.namespace}/configmaps/{source['name']}"
            for file, text in (await self.plane.cluster.get(path))["data"].items():
                (here / file).write_text(_on_this_host(text, ports) if file == "config.yaml" else text)
            arguments = [argument.replace(mount["mountPath"], str(here)) for argument in arguments]
        return arguments

    async def _kubeconfig(self, account: str, folder: Path) -> Path:
        """A way in as the ServiceAccount, and as nobody else."""
        token = await self.token(account)
        config = yaml.safe_load(self.plane.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        file = folder / "kubeconfig"
        file.write_text(json.dumps(config))
        return file


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _container(pod: Object) -> Object:
    return pod["spec"]["containers"][0]  # type: ignore[no-any-return]


def _ports(container: Object) -> dict[str, int]:
    declared = container.get("ports", ())
    local = dict(zip([port["name"] for port in declared], free_ports(len(declared)), strict=True))
    return local | {str(port["containerPort"]): local[port["name"]] for port in declared}


def _on_this_host(text: str, ports: dict[str, int]) -> str:
    """The configuration file with addresses on loopback, for container ports that are declared."""
    config = yaml.safe_load(text)
    for name, section, values in (
        ("health", "health", lambda port: {"healthProbeBindAddress": f"127.0.0.1:{port}"}),
        ("metrics", "metrics", lambda port: {"bindAddress": f"127.0.0.1:{port}"}),
        ("webhook", "webhook", lambda port: {"host": "127.0.0.1", "port": port}),
        ("visibility", "visibilityServer", lambda port: {"bindAddress": "127.0.0.1", "bindPort": port}),
    ):
        if name in ports:
            config[section] = {**(config.get(section) or {}), **values(ports[name])}
    return json.dumps(config)


def _tail(file: Path, lines: int = 15) -> str:
    return "\n".join(line[:400] for line in file.read_text(errors="replace").splitlines()[-lines:])
