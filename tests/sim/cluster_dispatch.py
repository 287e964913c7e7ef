"""How simulated managers choose clusters: what workers answer when they are asked, and a dispatcher of others."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING

import msgspec

from kqueue.api import names
from kqueue.api.wire import placement
from kqueue.clock import Clock
from kqueue.config.dispatchers import DISPATCHER_ALL_AT_ONCE, DISPATCHER_BEST_DOMAIN, DISPATCHER_INCREMENTAL
from kqueue.errors import ApiError, ConflictError, NotFoundError, ServerError
from kqueue.manager.explaining import make_placements
from kqueue.runtime.transport import Call
from kqueue.sandbox.api import Object
from kqueue.visibility.question import AuthorizedQuestion
from tests.sim.api_client import Answer, Faults, Server, SimulatedClient, failed
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.world import World, is_true

if TYPE_CHECKING:
    from collections.abc import Sequence

EXTERNAL = "example.com/dispatcher"
"""The name of the dispatcher of others."""
DISPATCHERS = (DISPATCHER_INCREMENTAL, DISPATCHER_BEST_DOMAIN, EXTERNAL, DISPATCHER_ALL_AT_ONCE)
_PLACEMENTS = f"/apis/{names.KQUEUE_VISIBILITY_GROUP}/v1alpha1/namespaces/{NAMESPACE}/{placement.PLURAL}"
_LOOK_SECONDS = 3.0
_CHANGES_SECONDS = 40.0
"""Seconds after which the dispatcher of others nominates all clusters."""


class WorkerServer(Server):
    """Answers as a worker's API server, with the visibility API of the controller that runs there."""

    def __init__(self, worker: World) -> None:
        super().__init__(worker.api)
        self._worker = worker

    async def answer(self, call: Call) -> Answer:
        """Answer any request but a watch."""
        if (call.method, call.path) != ("POST", _PLACEMENTS):
            return await super().answer(call)
        try:
            return Answer(201, msgspec.json.encode(await self._placement(call.body or b"")))
        except ApiError as error:
            return failed(error)

    async def _placement(self, body: bytes) -> Object:
        controller = self._worker.controller
        if controller is None or not controller.operator.ready.is_set():
            raise ServerError("no controller answers", status=503)
        asked = AuthorizedQuestion(namespace=NAMESPACE, name="", params={}, body=body, reads=_reads)
        return await make_placements(controller.operator).view(asked)


async def _reads(_namespace: str) -> bool:
    return True


class LinkClient(SimulatedClient):
    """A client of a manager for a worker cluster."""

    def __init__(self, worker: World, clock: Clock, *, seed: str, faults: Faults) -> None:
        super().__init__(worker.api, clock, seed=seed, faults=faults)
        self._server = WorkerServer(worker)


class ExternalDispatcher:
    """Another controller that nominates clusters: some of them, or one that does not exist, and later all."""

    def __init__(self, manager: World, clusters: Sequence[str]) -> None:
        self._manager, self._all = manager, list(clusters)
        self._chance = random.Random(f"{manager.seed}/dispatcher")
        self._since: dict[str, float] = {}

    async def run(self) -> None:
        """Nominate until cancelled."""
        while True:
            for workload in self._manager.objects(WORKLOADS):
                await self._look(workload)
            await self._manager.clock.sleep(_LOOK_SECONDS)

    async def _look(self, workload: Object) -> None:
        status, uid = workload.get("status") or {}, workload["metadata"]["uid"]
        waits = is_true(workload, "QuotaReserved") and not is_true(workload, "Finished")
        if not waits or status.get("clusterName"):
            self._since.pop(uid, None)
            return
        now = self._manager.clock.monotonic()
        since, nominated = self._since.setdefault(uid, now), status.get("nominatedClusterNames") or []
        if now - since >= _CHANGES_SECONDS:
            wanted = nominated if set(self._all) <= set(nominated) else self._all
        else:
            wanted = nominated or self._chance.choice(
                (self._all[:1], self._all[1:], self._all, ["nowhere", *self._all[1:]], ["nowhere"])
            )
        if wanted != nominated:
            await nominate(self._manager, workload, wanted)


async def nominate(manager: World, workload: Object, clusters: Sequence[str]) -> None:
    """Write the nominated clusters of a Workload in the version that was seen; a newer version is left alone."""
    meta = workload["metadata"]
    lock = {"resourceVersion": meta["resourceVersion"]}
    patch = {"metadata": lock, "status": {"nominatedClusterNames": list(clusters)}}
    with contextlib.suppress(NotFoundError, ConflictError):
        await manager.api.patch(WORKLOADS, meta["name"], patch, namespace=NAMESPACE, subresource="status")
