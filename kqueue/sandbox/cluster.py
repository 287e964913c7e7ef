"""The whole sandbox in one object: API server, garbage collection, simulated nodes and controllers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from kqueue.clock import Clock, SystemClock
from kqueue.errors import AlreadyExistsError, ConfigError
from kqueue.kube.definitions import read_definitions
from kqueue.sandbox import simulation
from kqueue.sandbox.api import CRDS
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.collector import Collector
from kqueue.sandbox.kubelet import KubeletOptions
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.server import ApiServer
from kqueue.sandbox.simulation import ClusterSimulation, SimulationOptions
from kqueue.sandbox.topology_spec import ClusterSpec

PARTS: Final = simulation.PARTS | {"collector", "server", "metrics"}
"""Parts that can be switched off: the simulated controllers, garbage collection, the HTTP front, and measured use."""
_NAME = "kqueue-sandbox"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """Options of the sandbox.

    `topology` None: no nodes are created.  `port` 0: any free one.  `host` should be a loopback address: at another,
    every client that reaches it has full rights without authentication.  `crds`: folders of definitions to install
    at the start.
    """

    topology: ClusterSpec | None = None
    host: str = "127.0.0.1"
    port: int = 0
    crds: tuple[Path, ...] = ()
    parts: frozenset[str] = PARTS
    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    nodes: NodeOptions = field(default_factory=NodeOptions)

    def __post_init__(self) -> None:
        unknown = sorted(self.parts - PARTS)
        if unknown:
            raise ConfigError(f"parts: {', '.join(unknown)} is unknown; choose from {', '.join(sorted(PARTS))}")


class Sandbox:
    """A simulated cluster.  `api` can be used at once; the rest runs from `start` to `stop`.

    On a `FakeClock`, without the `server` part, it is a simulation: write through `api`, `settle`, advance the clock.
    """

    def __init__(
        self, options: SandboxOptions, *, clock: Clock | None = None, chance: random.Random | None = None
    ) -> None:
        """`chance` is the source of uids; seed it for runs that repeat."""
        self.options = options
        self.api = ClusterApi(clock or SystemClock(), chance=chance)
        self._server = ApiServer(self.api, options.host, options.port, measures_use="metrics" in options.parts)
        self._collector = Collector(self.api)
        self._simulation = ClusterSimulation(
            self.api,
            clock=self.api.clock,
            options=SimulationOptions(
                topology=options.topology,
                parts=options.parts & simulation.PARTS,
                kubelet=options.kubelet,
                nodes=options.nodes,
            ),
        )
        self._collecting: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """URL of the API server, after `start`."""
        return self._server.url

    @property
    def port(self) -> int:
        """The port of `url`."""
        return self._server.port

    async def start(self) -> None:
        """Listen, install the kinds, create the nodes, start the controllers.

        Raises:
            ConfigError: the port is taken.
            OSError, yaml.YAMLError, TooMuchError: a file with definitions cannot be read.
        """
        try:
            if "server" in self.options.parts:
                await self._server.start()
            if "collector" in self.options.parts:
                self._collecting = asyncio.create_task(self._collector.run(), name="garbage collector")
            await self._install_definitions()
            await self._simulation.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything; objects stay readable through `api`.  May be called twice."""
        await self._simulation.stop()
        if self._collecting is not None:
            self._collecting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._collecting
            self._collecting = None
        self.api.stop()
        await self._server.stop()
        await self.api.admission.close()

    async def wait(self) -> None:
        """Wait for ever; raise the exception of a part that ends because of a bug."""
        waits: list[Coroutine[Any, Any, None]] = [self._simulation.wait()]
        if self._collecting is not None:
            waits.append(_shielded(self._collecting))
        await asyncio.gather(*waits)

    async def settle(self) -> None:
        """Run until nothing more happens without the clock moving."""
        while True:
            await self._simulation.settle()
            if self._collecting is None or self._collector.idle:
                return

    def kubeconfig(self) -> str:
        """Return the text of a kubeconfig for this cluster."""
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": _NAME, "cluster": {"server": self.url}}],
            "users": [{"name": _NAME, "user": {}}],
            "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME, "namespace": "default"}}],
            "current-context": _NAME,
        }
        text: str = yaml.safe_dump(document, sort_keys=False)
        return text

    def write_kubeconfig(self, path: Path) -> None:
        """Write `kubeconfig` to `path`, readable by its owner only; missing folders are made.

        Raises:
            ConfigError: the file cannot be written, or is the user's own `~/.kube/config`, which is never touched.
        """
        path = path.expanduser()
        own = Path("~/.kube/config").expanduser()
        if path.resolve() == own.resolve():
            raise ConfigError(f"kubeconfig: {own} is yours and stays as it is; choose another path")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.{os.getpid()}")
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600, exist_ok=False)
            fresh.write_text(self.kubeconfig(), encoding="utf-8")
            fresh.replace(path)
        except OSError as error:
            raise ConfigError(f"kubeconfig: {path} cannot be written: {error.strerror}; choose another path") from error

    async def _install_definitions(self) -> None:
        for definition in (found for folder in self.options.crds for found in read_definitions(folder)):
            with contextlib.suppress(AlreadyExistsError):
                await self.api.create(CRDS, definition)


async def _shielded(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
