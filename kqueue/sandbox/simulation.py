"""The simulated cluster behind an API server: nodes, kubelets, scheduler, and controllers of workload kinds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from kqueue.clock import Clock
from kqueue.errors import AlreadyExistsError, ConfigError
from kqueue.kube.definitions import read_definitions
from kqueue.sandbox.api import (
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Api,
    Object,
)
from kqueue.sandbox.claims import SimulatedClaims
from kqueue.sandbox.controller_loop import ControllerLoop
from kqueue.sandbox.daemon_set import DaemonSetController
from kqueue.sandbox.deployment import DeploymentController
from kqueue.sandbox.job_controller import JobController
from kqueue.sandbox.jobset_controller import JobSetController
from kqueue.sandbox.kubelet import Kubelet, KubeletOptions
from kqueue.sandbox.mirror import Mirror
from kqueue.sandbox.nodes import NodeLifecycle, NodeOptions, create_nodes
from kqueue.sandbox.replica_set import ReplicaSetController
from kqueue.sandbox.scheduler import Scheduler
from kqueue.sandbox.simulated_kinds import SIMULATED
from kqueue.sandbox.stateful_set import StatefulSetController
from kqueue.sandbox.topology_spec import ClusterSpec

PARTS: Final = frozenset(
    {"nodes", "kubelet", "scheduler", "jobs", "jobsets", "daemonsets", "deployments", "statefulsets"}
)
"""Parts that can be switched off one by one, for a replacement by other programs."""
_QUIET_TURNS = 25  # turns of the event loop without any change, after which the simulation has settled
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """Options of the simulation.  `topology` None: no nodes are created."""

    topology: ClusterSpec | None = None
    parts: frozenset[str] = PARTS
    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    nodes: NodeOptions = field(default_factory=NodeOptions)

    def __post_init__(self) -> None:
        unknown = sorted(self.parts - PARTS)
        if unknown:
            raise ConfigError(f"parts: {', '.join(unknown)} is unknown; choose from {', '.join(sorted(PARTS))}")


class ClusterSimulation:
    """The cluster's own controllers, on any implementation of `Api`, with the time of `clock`."""

    def __init__(self, api: Api, *, clock: Clock, options: SimulationOptions) -> None:
        self._api, self._clock, self._options = api, clock, options
        self._pods, self._nodes = Mirror(api, PODS, clock), Mirror(api, NODES, clock)
        self._jobs, self._daemon_sets = Mirror(api, JOBS, clock), Mirror(api, DAEMONSETS, clock)
        self._job_sets = Mirror(api, JOB_SETS, clock)
        self._deployments, self._replica_sets = Mirror(api, DEPLOYMENTS, clock), Mirror(api, REPLICA_SETS, clock)
        self._stateful_sets = Mirror(api, STATEFUL_SETS, clock)
        self._mirrors: tuple[Mirror, ...] = (
            *(self._pods, self._nodes, self._jobs, self._job_sets),
            *(self._daemon_sets, self._deployments, self._replica_sets, self._stateful_sets),
        )
        self._pods.add_index("node", _node_of)
        self._loops: list[ControllerLoop] = []
        self._scheduler: Scheduler | None = None
        self._runs: list[Coroutine[Any, Any, None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether no controller has anything to do until time passes or an object changes."""
        return all(loop.idle for loop in self._loops) and (self._scheduler is None or self._scheduler.idle)

    async def start(self) -> None:
        """Create the nodes, start the controllers and wait until their mirrors are complete."""
        if self._options.topology is not None:
            made = await create_nodes(self._api, self._options.topology, self._clock)
            log.info("simulated nodes are there", nodes=made)
        if "jobsets" in self._options.parts:
            await self._define_job_sets()
        mirrors = self._assemble()
        runs, self._runs = self._runs, []
        self._task = asyncio.create_task(_all([mirror.run() for mirror in mirrors] + runs), name="simulated cluster")
        synced = asyncio.create_task(_synced(mirrors))
        await asyncio.wait({self._task, synced}, return_when=asyncio.FIRST_COMPLETED)
        if not synced.done():
            synced.cancel()
            await self.wait()

    async def stop(self) -> None:
        """Stop all controllers; objects do not change."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def wait(self) -> None:
        """Wait until `stop`; raise the exception of a controller that ends because of a bug."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def settle(self) -> None:
        """Let the loop run until nothing more happens without time passing; for simulations on a fake clock."""
        quiet, seen = 0, -1
        while quiet < _QUIET_TURNS:
            await asyncio.sleep(0)
            changes = sum(mirror.changes for mirror in self._mirrors)
            quiet = quiet + 1 if self.idle and changes == seen else 0
            seen = changes

    async def _define_job_sets(self) -> None:
        """Install the definitions of other projects' kinds; an existing definition is kept."""
        for definition in read_definitions(SIMULATED):
            with contextlib.suppress(AlreadyExistsError):
                await self._api.create(CRDS, definition)

    def _assemble(self) -> list[Mirror]:
        """Create the controllers that are switched on; return the mirrors that they need."""
        api, clock, pods, nodes, parts = self._api, self._clock, self._pods, self._nodes, self._options.parts
        mirrors = [pods, nodes]
        if "nodes" in parts:
            lifecycle = NodeLifecycle(api, pods=pods, nodes=nodes, clock=clock, options=self._options.nodes)
            self._add(lifecycle.run(), lifecycle.nodes_loop, lifecycle.pods_loop)
        if "scheduler" in parts:
            claims = SimulatedClaims(api, pods=pods, clock=clock)
            self._scheduler = Scheduler(api, pods=pods, nodes=nodes, claims=claims, clock=clock)
            self._add(self._scheduler.run())
            self._add(claims.run(), claims.loop)
            self._mirrors += tuple(claims.mirrors)
            mirrors += claims.mirrors
        if "kubelet" in parts:
            kubelet = Kubelet(api, pods=pods, nodes=nodes, clock=clock, options=self._options.kubelet)
            self._add(kubelet.run(), kubelet.loop)
        if "jobs" in parts:
            jobs = JobController(api, jobs=self._jobs, pods=pods, clock=clock)
            self._add(jobs.run(), jobs.loop, jobs.strays)
        if "jobsets" in parts:
            job_sets = JobSetController(api, job_sets=self._job_sets, jobs=self._jobs, clock=clock)
            self._add(job_sets.run(), job_sets.loop)
            mirrors.append(self._job_sets)
        if {"jobs", "jobsets"} & parts:
            mirrors.append(self._jobs)
        if "daemonsets" in parts:
            daemons = DaemonSetController(api, daemon_sets=self._daemon_sets, pods=pods, nodes=nodes, clock=clock)
            self._add(daemons.run(), daemons.loop)
            mirrors.append(self._daemon_sets)
        return [*mirrors, *self._assemble_replicas()]

    def _assemble_replicas(self) -> list[Mirror]:
        """Do the same for controllers of replicas: DaemonSets, Deployments, ReplicaSets, StatefulSets."""
        api, clock, pods, parts = self._api, self._clock, self._pods, self._options.parts
        mirrors: list[Mirror] = []
        if "deployments" in parts:
            sets = ReplicaSetController(api, replica_sets=self._replica_sets, pods=pods, clock=clock)
            deployments = DeploymentController(
                api, deployments=self._deployments, replica_sets=self._replica_sets, clock=clock
            )
            self._add(sets.run(), sets.loop)
            self._add(deployments.run(), deployments.loop)
            mirrors += [self._deployments, self._replica_sets]
        if "statefulsets" in parts:
            stateful = StatefulSetController(api, stateful_sets=self._stateful_sets, pods=pods, clock=clock)
            self._add(stateful.run(), stateful.loop)
            mirrors.append(self._stateful_sets)
        return mirrors

    def _add(self, run: Coroutine[Any, Any, None], *loops: ControllerLoop) -> None:
        self._runs.append(run)
        self._loops += loops


async def _synced(mirrors: list[Mirror]) -> None:
    for mirror in mirrors:
        await mirror.synced.wait()


async def _all(runs: list[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for run in runs:
            group.create_task(run)


def _node_of(pod: Object) -> str | None:
    return pod["spec"].get("nodeName") or None
