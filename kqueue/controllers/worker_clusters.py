"""All worker clusters of a manager: one connection for each MultiKueueCluster, and its condition Active."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kqueue.api import names
from kqueue.api.wire import multikueue as api
from kqueue.clock import Clock
from kqueue.controllers.worker_cluster import WorkerCluster
from kqueue.runtime.controller import Result
from kqueue.runtime.deadline import cancel_and_wait
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.runtime.supervision import Supervisor
from kqueue.state.conditions import Conditions, Stamp, status_patch


class WorkerClusters:
    """Connects the clusters while this process leads."""

    def __init__(
        self,
        objects: Store[api.MultiKueueCluster],
        make: Callable[[api.MultiKueueCluster], WorkerCluster],
        writer: StatusWriter[api.MultiKueueCluster],
        clock: Clock,
    ) -> None:
        """`make` returns the connection for an object, which is not run yet."""
        self._objects, self._make, self._writer, self._clock = objects, make, writer, clock
        self._supervisor = Supervisor(clock)
        self.connected: dict[str, WorkerCluster] = {}
        """The connections by name, whether they are up or not."""
        self._tasks: dict[str, asyncio.Future[None]] = {}
        self._specs: dict[str, tuple[str, api.MultiKueueClusterSpec]] = {}
        self._changed = asyncio.Event()

    def on_cluster(self, old: api.MultiKueueCluster | None, new: api.MultiKueueCluster | None) -> None:
        """Take in an event of a MultiKueueCluster."""
        if old is None or new is None or old.spec != new.spec or old.metadata.uid != new.metadata.uid:
            self._changed.set()

    async def run(self) -> None:
        """Open and close connections as objects come and go, until cancelled; then close all."""
        try:
            while True:
                self._changed.clear()
                await self._follow()
                await self._changed.wait()
        finally:
            for name in list(self._tasks):
                await self._close(name)

    async def _follow(self) -> None:
        wanted = {cluster.metadata.name: cluster for cluster in self._objects.list()}
        for name, known in list(self._specs.items()):
            if name not in wanted or known != (wanted[name].metadata.uid, wanted[name].spec):
                await self._close(name)
        for name, cluster in wanted.items():
            if name not in self._tasks:
                made = self.connected[name] = self._make(cluster)
                self._specs[name] = (cluster.metadata.uid, cluster.spec)
                self._tasks[name] = asyncio.ensure_future(self._supervisor.run(f"worker cluster {name}", made.run))

    async def _close(self, name: str) -> None:
        self.connected.pop(name, None)
        self._specs.pop(name, None)
        await cancel_and_wait(self._tasks.pop(name))

    # --- condition -----------------------------------------------------------------------------------------------

    async def reconcile(self, name: str) -> Result:
        """Write condition Active of a MultiKueueCluster."""
        await self._writer.write(name, self._patch)
        return Result()

    def _patch(self, cluster: api.MultiKueueCluster) -> dict[str, Any] | None:
        found = self.connected.get(cluster.metadata.name)
        if found is None or cluster.metadata.deletion_timestamp is not None:
            return None
        stamp = Stamp(self._clock.now())
        conditions = Conditions(cluster.status.conditions, generation=cluster.metadata.generation, stamp=stamp)
        is_up = found.link is not None
        conditions.set(names.CONDITION_ACTIVE, status=is_up, reason=found.reason, message=found.message)
        return status_patch(conditions)
