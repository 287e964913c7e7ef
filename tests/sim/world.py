"""A whole world from a seed: cluster, webhooks and controller in one process, in a time that moves when told to."""

from __future__ import annotations

import asyncio
import functools
import gc
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from kqueue.cli.operator import Operator
from kqueue.clock import FakeClock
from kqueue.config import Configuration, Timings, load
from kqueue.jobs.switches import switches_from
from kqueue.observe import Checks, Metrics
from kqueue.runtime.certificates import make_bundle
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.admission import MUTATING, VALIDATING, Admission, Hook
from kqueue.sandbox.api import JOBS, PODS, Object, Resource
from kqueue.sandbox.cluster import PARTS
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.topology_spec import DEFAULT_LEVELS, ClusterSpec, Pool
from tests.sim.api_client import NONE, Faults, SimulatedClient
from tests.sim.objects import NAMESPACE, WORKLOADS, queue_objects
from webhooks import review
from webhooks.configuration import Target, webhook_configurations
from webhooks.routes import routes

TURNS_MAX = 200_000
"""Turns of the event loop within one moment: a world that needs more is spinning."""
_URL = "https://webhooks.invalid"


class RestlessError(AssertionError):
    """The world does not come to rest although no time passes."""


class InProcessAdmission(Admission):
    """Asks the product's webhooks without a socket: the same bytes, handed over."""

    def __init__(self, sandbox: Sandbox, configuration: Configuration) -> None:
        super().__init__(sandbox.api)
        self._routes = routes(configuration.integrations.frameworks, switches_from(configuration.enabled))

    async def post(self, hook: Hook, review_object: Object) -> Object:
        """One question and its answer."""
        request = review.read(msgspec.json.encode(review_object))
        answer = self._routes[hook.url.removeprefix(_URL)](request)
        response: Object = msgspec.json.decode(review.write(request, answer))["response"]
        return response


@functools.cache
def _ca() -> bytes:
    return make_bundle(["webhooks.invalid"], now=FakeClock().now()).ca


@functools.cache
def configuration() -> Configuration:
    """Kueue's defaults, without leader election."""
    found = load(None)
    election = found.leader_election.model_copy(update={"leader_elect": False})
    return found.model_copy(update={"leader_election": election})


TIMINGS = Timings(loop_probe_interval=60.0, metrics_cache=10.0)
"""The product's own; only what costs wake-ups and decides nothing is rarer."""


@dataclass(slots=True)
class Controller:
    """One controller process."""

    operator: Operator
    client: SimulatedClient
    checks: Checks
    task: asyncio.Task[None]


class World:
    """The cluster, the clock, at most one living controller, and the log of what was done.

    Everything that is drawn comes from `seed`: the same seed, the same world.
    """

    def __init__(self, seed: int | str, *, nodes: tuple[int, int, int] = (2, 2, 4), faults: Faults = NONE) -> None:
        self.seed, self.faults = seed, faults
        self.clock = FakeClock()
        pools = (_pool("gpu", nodes), _pool("cheap", (1, 1, 2)))
        self.sandbox = Sandbox(
            SandboxOptions(
                topology=ClusterSpec(levels=DEFAULT_LEVELS, pools=pools),
                parts=PARTS - {"server"},
                nodes=NodeOptions(heartbeat_seconds=0),
            ),
            clock=self.clock,
        )
        self.api = self.sandbox.api
        self.api.chance = random.Random(f"{seed}/server")
        self.log: list[str] = []
        """What was done to the world, one line each."""
        self.controller: Controller | None = None
        self._buried: list[Controller] = []
        self._started = 0

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The cluster with its webhooks and queues; no controller yet."""
        await self.sandbox.start()
        self.api.admission = InProcessAdmission(self.sandbox, configuration())
        target = Target(ca_bundle=_ca(), url=_URL)
        for obj in webhook_configurations(
            target, frameworks=configuration().integrations.frameworks, own_namespace="kueue-system"
        ):
            await self.api.create(MUTATING if obj["kind"].startswith("Mutating") else VALIDATING, obj)
        for resource, obj in queue_objects():
            await self.api.create(resource, obj, namespace=obj["metadata"].get("namespace"))
        await self.settle()

    async def stop(self) -> None:
        """End everything."""
        self.kill_controller()
        while any(not dead.task.done() for dead in self._buried):
            await self.clock.advance(self.clock.next_wake() or 1.0)
            await asyncio.sleep(0)
        for dead in self._buried:
            await dead.client.close()
        await self.sandbox.stop()
        gc.unfreeze()  # each controller has frozen what it found, which is right for a process that has only one

    def start_controller(self) -> Controller:
        """A new controller process.  It knows nothing of those before it."""
        assert self.controller is None, "one controller at a time"
        self._started += 1
        seed = f"{self.seed}/controller-{self._started}"
        client = SimulatedClient(self.api, self.clock, seed=seed, faults=self.faults)
        checks = Checks()
        operator = Operator(
            client=client,
            config=configuration(),
            timings=TIMINGS,
            clock=self.clock,
            metrics=Metrics(clock=self.clock),
            checks=checks,
        )
        _seed_chances(operator, seed)
        task = asyncio.create_task(operator.run(), name=seed)
        self.controller = Controller(operator, client, checks, task)
        return self.controller

    def kill_controller(self) -> None:
        """SIGKILL.  What it had sent is done; nothing else is."""
        if self.controller is None:
            return
        self.controller.client.kill()
        self.controller.task.cancel()
        self._buried.append(self.controller)
        self.controller = None

    # --- time ------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        loop: Any = asyncio.get_running_loop()
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not loop._ready:
                self._raise_if_dead()
                return
        raise RestlessError(f"seed {self.seed}: the world does not come to rest")

    async def pass_time(self, seconds: float) -> None:
        """Everything that happens within `seconds` has happened."""
        end = self.clock.monotonic() + seconds
        await self.settle()
        while (left := end - self.clock.monotonic()) > 0:
            wait = self.clock.next_wake()
            await self.clock.advance(left if wait is None else min(left, max(wait, 0.0)), turns=1)
            await self.settle()

    def _raise_if_dead(self) -> None:
        if self.controller is not None and self.controller.task.done() and not self.controller.client.killed:
            self.controller.task.result()
            raise AssertionError("the controller has ended by itself")

    # --- looks -----------------------------------------------------------------------------------------------------

    def objects(self, resource: Resource) -> list[Object]:
        """All objects of a kind."""
        return self.api.list(resource)

    def find(self, resource: Resource, name: str) -> Object | None:
        """An object of the one namespace, or of none; None when it is not there."""
        return self.api.find(resource, name, NAMESPACE) or self.api.find(resource, name)

    def workload_of(self, job: str) -> Object | None:
        """The Workload of a Job; None when there is none."""
        found = [w for w in self.objects(WORKLOADS) if owner_of(w) == job]
        assert len(found) <= 1, f"job {job} has {len(found)} Workloads"
        return found[0] if found else None

    def pods_of(self, job: str) -> list[Object]:
        """The pods of a Job."""
        return [pod for pod in self.objects(PODS) if owner_of(pod) == job]

    # --- acts ------------------------------------------------------------------------------------------------------

    async def submit(self, obj: Object) -> Object:
        """Create a Job as its user does."""
        return await self.api.create(JOBS, obj, namespace=NAMESPACE)


def owner_of(obj: Object) -> str:
    """Name of the controlling owner; empty when there is none."""
    return next((o["name"] for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), "")


def condition(obj: Object, kind: str) -> Object | None:
    """A condition; None when it is not there."""
    return next((c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == kind), None)


def is_true(obj: Object, kind: str) -> bool:
    """Whether a condition is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


@asynccontextmanager
async def simulated(seed: int | str = 0, **settings: Any) -> AsyncIterator[World]:
    """A world with a controller; ended with the block."""
    world = World(seed, **settings)
    await world.start()
    try:
        world.start_controller()
        await world.settle()
        yield world
    finally:
        await world.stop()


def _pool(name: str, counts: tuple[int, int, int]) -> Pool:
    gpus = "8" if name == "gpu" else "0"
    allocatable = {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": gpus, "pods": "20"}
    return Pool(name=name, counts=counts, labels={}, taints=(), allocatable=allocatable)


def _seed_chances(operator: Operator, seed: str) -> None:
    """Jitter of watches and retries from the seed."""
    for watch in operator.watches.all():
        watch._chance = watch._backoff._chance = random.Random(f"{seed}/{watch.resource}")
    for controller in operator._controllers:
        controller.queue._chance = random.Random(f"{seed}/{controller.name}")
