"""A simulated cluster without nodes for gangs: an autoscaler makes them on request, each gang's in a rack of its own.

The autoscaler also fails, answers late or not at all, promises nodes that never come, lets bookings expire, and takes
nodes away from gangs that run.  Nodes go when their request has gone and no pod is on them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from kqueue.api import names
from kqueue.api.wire import provisioning as api
from kqueue.errors import ApiError
from kqueue.sandbox.api import CRDS, NODES, PODS, GroupVersionResource, Object
from kqueue.sandbox.json_object import stamp
from kqueue.sandbox.nodes import new_node
from kqueue.sandbox.topology_spec import BLOCK_LABEL, POOL_LABEL, RACK_LABEL, NodeBlueprint
from tests.integration.autoscaler_double import CLASS, NODE_GROUP, definition
from tests.sim.invariants import is_over
from tests.sim.objects import (
    CLUSTER_QUEUES,
    FLAVORS,
    GPU,
    LEVELS,
    LOCAL_QUEUES,
    NAMESPACE,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    cluster_queue,
    ours,
    ours_of,
)
from tests.sim.tenancy import Tenancy, pool
from tests.sim.world import World, is_true, owner_of

REQUESTS = GroupVersionResource(api.GROUP, api.VERSION, api.PLURAL)
TEMPLATES = GroupVersionResource("", "v1", "podtemplates")
CONFIGS, CHECKS = ours_of("provisioningrequestconfigs"), ours_of("admissionchecks")
QUEUES = ("own", "any")
"""Queues whose gangs must run on the nodes of their own request, and on whatever nodes exist."""
_LOOK_SECONDS = 1.0
_BOOKED_SECONDS = 40.0
"""Seconds after which an autoscaler without faults gives up nodes that nobody uses."""


def provisioned_tenancy() -> Tenancy:
    """Return two queues that lend to each other, each with a check; their requests differ in the nodes that pods select."""
    selector = [{"key": NODE_GROUP, "valueFromProvisioningClassDetail": "NodeGroup"}]
    retry = {"backoffLimitCount": 2, "backoffBaseSeconds": 4, "backoffMaxSeconds": 10}
    config: Object = {"provisioningClassName": CLASS, "retryStrategy": retry}
    configs = {
        "own": {**config, "podSetUpdates": {"nodeSelector": selector}},
        "any": {**config, "managedResources": [GPU], "parameters": {"size": "any"}},
    }
    queues = [cluster_queue(name, flavors={"gpu": {"cpu": 100, GPU: 48}}, cohort="both") for name in QUEUES]
    for queue in queues:
        check = {"name": queue["metadata"]["name"]}
        queue["spec"] |= {"admissionChecksStrategy": {"admissionChecks": [check]}}
        queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    return Tenancy(
        objects=(
            (TOPOLOGIES, ours("Topology", "dc", spec={"levels": [{"nodeLabel": level} for level in LEVELS]})),
            (
                FLAVORS,
                ours("ResourceFlavor", "gpu", spec={"nodeLabels": {POOL_LABEL: "gpu"}, "topologyName": "dc"}),
            ),
            *(
                (WORKLOAD_PRIORITY_CLASSES, ours("WorkloadPriorityClass", name, value=value))
                for name, value in (("high", 10), ("low", -10))
            ),
            *((CONFIGS, ours("ProvisioningRequestConfig", name, spec=spec)) for name, spec in configs.items()),
            *((CHECKS, ours("AdmissionCheck", name, spec=_check(name))) for name in QUEUES),
            *((CLUSTER_QUEUES, queue) for queue in queues),
            *(
                (LOCAL_QUEUES, ours("LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": name}))
                for name in QUEUES
            ),
        ),
        pools=(pool("cheap", (1, 1, 1)),),
        placed=frozenset({"gpu"}),
    )


def _check(config: str) -> Object:
    parameters = {"apiGroup": names.GROUP, "kind": names.PROVISIONING_REQUEST_CONFIG_KIND, "name": config}
    return {"controllerName": names.PROVISIONING_REQUEST_CONTROLLER, "parameters": parameters}


class Verdict(StrEnum):
    """What an autoscaler does with a request."""

    GRANT = "grant"
    FAIL = "fail"
    SILENT = "silent"
    """It never answers."""
    PROMISE = "promise"
    """It tells of nodes that do not come; the booking expires."""
    LATE = "late"
    """It tells of nodes that come later."""
    REVOKE = "revoke"
    """It takes the nodes away some time after it has made them."""


_DRAWN = (*[Verdict.GRANT] * 8, Verdict.FAIL, Verdict.FAIL, Verdict.FAIL, Verdict.SILENT, Verdict.PROMISE,
          Verdict.LATE, Verdict.LATE, Verdict.REVOKE)  # fmt: skip


@dataclass(slots=True)
class _Intent:
    """What is to happen to one request, and when."""

    verdict: Verdict
    seconds: float
    """From its creation to the answer."""
    later: float
    """From the answer to the second step of the verdict."""


def conditions_of(request: Object) -> set[str]:
    """Return the conditions of a request that are true."""
    return {c["type"] for c in (request.get("status") or {}).get("conditions") or () if c["status"] == "True"}


class Autoscaler:
    """Answers the requests of a world, on its clock."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calm = False
        """Whether it grants every request from now on."""
        self._chance = random.Random(f"{world.seed}/autoscaler")
        self._intents: dict[str, _Intent] = {}
        """By UID of the request."""
        self._answered: dict[str, float] = {}

    async def run(self) -> None:
        """Look at all requests and nodes again and again."""
        while True:
            for request in self.requests():
                with contextlib.suppress(ApiError):
                    await self._look(request)
            await self._remove_nodes()
            await self.world.clock.sleep(_LOOK_SECONDS)

    def requests(self) -> list[Object]:
        """Return all requests, in the order of their names."""
        return self.world.api.every(REQUESTS)

    async def tell(self, request: Object, kind: str, **status: Any) -> None:
        """Set a condition of a request, and other fields of its status."""
        meta = request["metadata"]
        now = stamp(self.world.clock.now())
        told = {"type": kind, "status": "True", "reason": kind, "message": f"{kind} at last", "lastTransitionTime": now}
        conditions = [*(request.get("status") or {}).get("conditions", []), told]
        body = {"status": {"conditions": conditions, **status}}
        await self.world.api.patch(REQUESTS, meta["name"], body, namespace=meta["namespace"], subresource="status")

    async def _look(self, request: Object) -> None:
        uid, told = request["metadata"]["uid"], conditions_of(request)
        intent = self._intents.get(uid)
        if intent is None:
            intent = self._intents[uid] = self._draw()
        if told.intersection((api.FAILED, api.CAPACITY_REVOKED, api.BOOKING_EXPIRED)):
            return
        if api.PROVISIONED not in told:
            if self.calm:
                intent.verdict = Verdict.GRANT
            if _age(self.world, request) >= intent.seconds:
                await self._answer(request, intent.verdict)
            return
        since = self.world.clock.monotonic() - self._answered.setdefault(uid, self.world.clock.monotonic())
        await self._follow(request, intent, since)

    def _draw(self) -> _Intent:
        c = self._chance
        seconds = c.choice((0.0, 1.0, 3.0, 10.0))
        return _Intent(c.choice(_DRAWN), seconds, c.choice((1.0, 5.0, 15.0)))

    async def _answer(self, request: Object, verdict: Verdict) -> None:
        if verdict is Verdict.SILENT:
            return
        if verdict is Verdict.FAIL:
            await self.tell(request, api.FAILED)
            return
        if verdict in (Verdict.GRANT, Verdict.REVOKE):
            await self.make_nodes(request)
        name = request["metadata"]["name"]
        await self.tell(request, api.PROVISIONED, provisioningClassDetails={"NodeGroup": name})

    async def _follow(self, request: Object, intent: _Intent, since: float) -> None:
        """Do what follows the answer."""
        workload = self.world.api.find(WORKLOADS, owner_of(request), NAMESPACE)
        unused = not is_true(workload, names.CONDITION_ADMITTED)
        if (self.calm and unused and since >= _BOOKED_SECONDS) or (intent.verdict is Verdict.PROMISE and since >= 20.0):
            await self.tell(request, api.BOOKING_EXPIRED)
        elif intent.verdict is Verdict.LATE and since >= intent.later:
            intent.verdict = Verdict.GRANT
            await self.make_nodes(request)
        elif intent.verdict is Verdict.REVOKE and since >= intent.later and not self.calm:
            await self.tell(request, api.CAPACITY_REVOKED)

    async def make_nodes(self, request: Object) -> None:
        """Make a rack with a node of eight GPUs for each pod."""
        rack = request["metadata"]["name"]
        taken = {node["metadata"]["name"] for node in self.world.objects(NODES)}
        for number in range(sum(pods["count"] for pods in request["spec"]["podSets"])):
            labels = {POOL_LABEL: "gpu", BLOCK_LABEL: "grown", RACK_LABEL: rack, NODE_GROUP: rack}
            room = pool("gpu", (1, 1, 1), gpus=8).allocatable
            blueprint = NodeBlueprint(name=f"{rack}-h{number}", labels=labels, taints=(), allocatable=room)
            if blueprint.name not in taken:
                now = stamp(self.world.clock.now())
                await self.world.api.create(NODES, new_node(blueprint, number=number, now=now))

    async def _remove_nodes(self) -> None:
        """Delete the racks whose request is gone or whose nodes are given up, where no pod is any more; those that are
        taken away at once.
        """
        told = {request["metadata"]["name"]: conditions_of(request) for request in self.requests()}
        used = {pod["spec"].get("nodeName") for pod in self.world.objects(PODS) if not is_over(pod)}
        for node in self.world.objects(NODES):
            rack, name = node["metadata"]["labels"].get(NODE_GROUP), node["metadata"]["name"]
            if rack is None:
                continue
            known = told.get(rack, {api.BOOKING_EXPIRED})
            if api.CAPACITY_REVOKED in known or (api.BOOKING_EXPIRED in known and name not in used):
                with contextlib.suppress(ApiError):
                    await self.world.api.delete(NODES, name)


def _age(world: World, obj: Object) -> float:
    return (world.clock.now() - datetime.fromisoformat(obj["metadata"]["creationTimestamp"])).total_seconds()


@asynccontextmanager
async def autoscaled(world: World) -> AsyncIterator[Autoscaler]:
    """The kind of the requests is defined, and an autoscaler answers them, while the block runs."""
    await world.api.create(CRDS, definition())
    autoscaler = Autoscaler(world)
    task = asyncio.create_task(autoscaler.run())
    try:
        yield autoscaler
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
