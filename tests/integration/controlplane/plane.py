"""Start and stop a real control plane on loopback: etcd, the API server and, on demand, controllers and nodes."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.controlplane import binaries, certificates, command_lines
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.command_lines import ALL_PARTS, CONTROLLER_MANAGER, Layout
from tests.integration.controlplane.processes import Process

START_SECONDS = 60
"""When to give up.  A start takes a few seconds; on a machine that runs other tests too it may take longer."""
ATTEMPTS = 3
"""A free port may be taken between our look and the server's; then all starts afresh on other ports."""
DEFAULT_SERVICE_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class StartError(Exception):
    """A part ended or never became ready; carries the last words of all logs."""


@dataclass(slots=True)
class ControlPlane:
    """A running control plane.  `async with ControlPlane.start(...)` is the only way to get one."""

    layout: Layout
    cluster: Cluster
    """What tests talk to."""
    flags: Mapping[str, Sequence[str]]
    processes: list[Process] = field(default_factory=list)
    started_in: float = 0.0
    """Seconds from the first process to an API server that answers ready."""

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        folder: Path,
        *,
        parts: Iterable[str] = (),
        crds: Sequence[Path] = (),
        flags: Mapping[str, Sequence[str]] | None = None,
    ) -> AsyncIterator[ControlPlane]:
        """A control plane that is ready, and gone when the block ends, however it ends.

        Args:
            folder: an empty folder of the caller; certificates, data and logs stay there.
            parts: what runs besides etcd and the API server, out of `ALL_PARTS`.
            crds: folders of CustomResourceDefinitions that are there before any part starts.  The garbage collector
                learns of later ones only after half a minute.
            flags: more flags by program name; one given here wins over ours.

        Raises:
            StartError: a part ended or was not ready within `START_SECONDS`.
            FileNotFoundError: the binaries are not built; the text is `binaries.why_missing()`.
        """
        wanted = frozenset(parts)
        if unknown := wanted - ALL_PARTS:
            raise ValueError(f"parts {sorted(unknown)} do not exist; choose from {sorted(ALL_PARTS)}")
        if reason := binaries.why_missing():
            raise FileNotFoundError(reason)
        plane = await cls._serving(folder, wanted, flags or {})
        with ExitStack() as stack:
            stack.callback(plane.stop)
            for definitions in crds:
                await plane.cluster.apply_crds(definitions)
            await plane._start_parts()
            yield plane

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in."""
        return self.layout.kubeconfig

    @property
    def url(self) -> str:
        """The API server's address."""
        return self.layout.url

    async def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """`Cluster.kubectl`, for tests that hold a plane of their own."""
        return await self.cluster.kubectl(*args, stdin=stdin)

    def stop(self) -> None:
        """End all parts, the last started first; all are gone when this returns."""
        for process in reversed(self.processes):
            process.stop()

    async def restart_api_server(self, *, away: float = 0.0) -> None:
        """Kill the API server and start it again on its port, `away` seconds later; returns when it answers ready."""
        number, server = next((i, p) for i, p in enumerate(self.processes) if p.name == "kube-apiserver")
        server.stop()
        await asyncio.sleep(away)
        program = binaries.folder() / server.name
        argv = [*command_lines.api_server(self.layout), *self.flags.get(server.name, ())]
        self.processes[number] = Process.start([program, *argv], logs=self.layout.logs)
        await self._watched(self.cluster.ready)

    def tails(self) -> str:
        """The last words of every log, for a failing test."""
        return "\n".join(process.tail() for process in self.processes)

    @classmethod
    async def _serving(cls, folder: Path, parts: frozenset[str], flags: Mapping[str, Sequence[str]]) -> ControlPlane:
        """An API server that answers ready."""
        for attempt in range(1, ATTEMPTS + 1):
            layout = prepare(folder / f"attempt-{attempt}", parts)
            accounts = CONTROLLER_MANAGER in parts
            plane = cls(layout, Cluster(layout.kubeconfig, service_accounts=accounts), flags)
            try:
                await plane._start_servers()
            except StartError as error:
                plane.stop()
                if "address already in use" not in str(error) or attempt == ATTEMPTS:
                    raise
            except BaseException:
                plane.stop()
                raise
            else:
                return plane
        raise AssertionError("the loop returns or raises")

    async def _start_servers(self) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._run("etcd", command_lines.etcd(self.layout))
        self._run("kube-apiserver", command_lines.api_server(self.layout))
        await self._watched(self.cluster.ready)
        self.started_in = loop.time() - began

    async def _start_parts(self) -> None:
        for name, build in command_lines.PARTS.items():
            if name in self.layout.parts:
                self._run(name, build(self.layout))
        if CONTROLLER_MANAGER in self.layout.parts:  # before that, no pod can be made in the default namespace
            await self._watched(lambda: self.cluster.exists(DEFAULT_SERVICE_ACCOUNT))

    def _run(self, name: str, argv: Sequence[str]) -> None:
        program = binaries.folder() / name
        self.processes.append(Process.start([program, *argv, *self.flags.get(name, ())], logs=self.layout.logs))

    async def _watched(self, ready: Callable[[], Awaitable[bool]]) -> None:
        """Ask until `ready` says yes; a part that ends meanwhile ends the waiting."""
        try:
            async with asyncio.timeout(START_SECONDS):
                while not await ready():
                    for process in self.processes:
                        if (status := process.ended()) is not None:
                            raise StartError(f"{process.name} ended with status {status}\n{self.tails()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise StartError(f"not ready within {START_SECONDS} s\n{self.tails()}") from None


def prepare(folder: Path, parts: frozenset[str]) -> Layout:
    """Fresh keys, free ports, a kubeconfig and a place for logs."""
    certs = certificates.issue(folder / "certificates")
    (folder / "logs").mkdir()
    etcd_port, api_port = free_ports(2)
    layout = Layout(folder, certs, etcd_port, api_port, parts)
    write_kubeconfig(layout)
    return layout


def free_ports(count: int) -> list[int]:
    """Loopback ports that nobody held a moment ago, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def write_kubeconfig(layout: Layout) -> None:
    """An administrator's kubeconfig that refers to no other file (JSON is YAML)."""

    def inline(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    certs = layout.certificates
    name = "kqueue-test"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": layout.url, "certificate-authority-data": inline(certs.authority)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": inline(certs.admin.certificate),
                    "client-key-data": inline(certs.admin.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    layout.kubeconfig.touch(mode=0o600)
    layout.kubeconfig.write_text(json.dumps(document, indent=1))
