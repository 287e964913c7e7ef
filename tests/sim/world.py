"""A whole world from a seed: cluster, webhooks and controller in one process, in a time that moves when told to."""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from kqueue.api.crd_files import crd_folder
from kqueue.clock import FakeClock
from kqueue.config import Configuration, Timings, load
from kqueue.jobs.registry import features_for, owner_kinds_for
from kqueue.manager.admission import policy_of
from kqueue.manager.lookups import ApiLookups
from kqueue.manager.operator import Operator
from kqueue.observe import Checks, Metrics
from kqueue.runtime.certificates import make_bundle
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.admission import MUTATING, VALIDATING, AdmissionWebhooks, Hook
from kqueue.sandbox.api import JOBS, PODS, GroupVersionResource, Object
from kqueue.sandbox.cluster import PARTS
from kqueue.sandbox.kubelet import KubeletOptions
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.topology_spec import DEFAULT_LEVELS, ClusterSpec
from tests.sim.api_client import NONE, Faults, SimulatedClient
from tests.sim.history import History
from tests.sim.objects import NAMESPACE, WORKLOADS
from tests.sim.tenancy import PEACEFUL, Tenancy
from webhooks import review
from webhooks.configuration import WebhookEndpoint, WebhookScope, webhook_configurations
from webhooks.routes import routes

TURNS_MAX = 50_000
"""Turns of the event loop within one moment: a world that needs more is spinning."""
_URL = "https://webhooks.invalid"


_TOLD_TURNS = 5_000
"""The last of these, in which it is taken down who spins."""


class RestlessError(AssertionError):
    """The world does not come to rest although no time passes."""


class _Owners(ApiLookups):
    """What the webhooks ask the API server: owners are followed, and hands on jobs are not held back.

    Users of these worlds start by hand what waits, as they may while the webhooks are away.
    """

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        """True: whoever starts a job or a pod may."""
        return True


class InProcessAdmission(AdmissionWebhooks):
    """Asks the product's webhooks without a socket: the same bytes, handed over."""

    def __init__(self, sandbox: Sandbox, configuration: Configuration, client: SimulatedClient) -> None:
        super().__init__(sandbox.api)
        self._routes = routes(
            configuration.integrations.frameworks,
            features_for(configuration),
            policy=policy_of(configuration),
            lookups=_Owners(client, clock=sandbox.api.clock, owners=owner_kinds_for(configuration.integrations)),
        )

    async def post(self, hook: Hook, review_object: Object) -> Object:
        """One question and its answer."""
        request = review.read(msgspec.json.encode(review_object))
        answer = await self._routes[hook.url.removeprefix(_URL)](request)
        response: Object = msgspec.json.decode(review.write(request, answer))["response"]
        return response


@functools.cache
def _ca() -> bytes:
    return make_bundle(["webhooks.invalid"], now=FakeClock().now()).ca


@functools.cache
def configuration(*, job_sets: bool = False, pods: bool = False, serving: bool = False) -> Configuration:
    """Kueue's defaults, without leader election; with `job_sets`, `pods` and `serving` these are managed, too."""
    found = load(None)
    election = found.leader_election.model_copy(update={"leader_elect": False})
    asked = (("jobset.x-k8s.io/jobset", job_sets), ("pod", pods), ("deployment", serving), ("statefulset", serving))
    frameworks = (*found.integrations.frameworks, *(name for name, wanted in asked if wanted))
    integrations = found.integrations.model_copy(update={"frameworks": frameworks})
    return found.model_copy(update={"leader_election": election, "integrations": integrations})


TIMINGS = Timings(loop_probe_interval=60.0, metrics_cache=10.0, audit_interval=30.0)
"""The product's own; only what costs wake-ups and decides nothing is rarer, and audits come while things happen."""


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

    def __init__(
        self,
        seed: int | str,
        *,
        tenancy: Tenancy = PEACEFUL,
        faults: Faults = NONE,
        job_sets: bool = False,
        pods: bool = False,
        serving: bool = False,
        operator: type[Operator] = Operator,
    ) -> None:
        """`job_sets`: the cluster has JobSets, and a controller that runs them.  `pods` may be queued themselves, and
        `serving` Deployments and StatefulSets.  `operator`: what a controller process is made of.
        """
        self._operator = operator
        self.seed, self.tenancy, self.faults = seed, tenancy, faults
        self.configured = configuration(job_sets=job_sets, pods=pods, serving=serving)
        self.clock = FakeClock()
        self.topology = ClusterSpec(levels=DEFAULT_LEVELS, pools=tenancy.pools)
        self.sandbox = Sandbox(
            SandboxOptions(
                topology=self.topology,
                parts=PARTS - {"server"} - (frozenset() if job_sets else {"jobsets"}),
                kubelet=KubeletOptions(start_seconds=tenancy.start_seconds, stop_seconds=tenancy.stop_seconds),
                nodes=NodeOptions(heartbeat_seconds=0),
                crds=(crd_folder(),),
            ),
            clock=self.clock,
        )
        self.api = self.sandbox.api
        self.api.chance = random.Random(f"{seed}/server")
        self.history = History(self.api, self.clock)
        self.log: list[str] = []
        """What was done to the world, one line each."""
        self.bugs: list[str] = []
        """What the product itself has logged as a bug."""
        self.refused: dict[str, str] = {}
        """Jobs that were refused at their creation, and why."""
        self.disturbed: set[str] = set()
        """Jobs that somebody laid hands on, so that their place in line is no longer that of their age."""
        self.let_out: set[str] = set()
        """What somebody has started by hand."""
        self.moved: set[str] = set()
        """Nodes whose labels have been others at some time: gangs stay on them, wherever they are said to stand."""
        self.slow: dict[str, float] = {}
        """Seconds that the controller's writes to a Job take on their way, as behind somebody's slow webhook."""
        self.horizon = 1.0 if faults == NONE else 90.0
        """Seconds within which the controller knows what has changed: events are immediate unless faults are put."""
        self.clients: list[SimulatedClient] = []
        self.controller: Controller | None = None
        self.margin = self.horizon
        """Seconds before and after a decision within which another one may have been the first of the two."""
        self.starts: list[float] = []
        """When each controller was started: it knows nothing of what the one before remembered."""
        self.on_settled: list[Callable[[], None]] = []
        """Told whenever nothing is left to do before time passes."""
        self.on_turn: Callable[[], None] = lambda: None
        """Told after every turn of the event loop in which something happens."""
        self.judged: dict[str, int] = {}
        """How many admissions an invariant has judged that judges each of them once."""
        self._buried: list[Controller] = []
        self._started = 0

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """The cluster with its webhooks and queues; no controller yet."""
        await self.sandbox.start()
        self._asking = SimulatedClient(self.api, self.clock, seed=f"{self.seed}/webhooks")
        self.api.admission = InProcessAdmission(self.sandbox, self.configured, self._asking)
        target = WebhookEndpoint(ca_bundle=_ca(), url=_URL)
        scope = WebhookScope(frameworks=self.configured.integrations.frameworks, own_namespace="kueue-system")
        for obj in webhook_configurations(target, scope):
            await self.api.create(MUTATING if obj["kind"].startswith("Mutating") else VALIDATING, obj)
        for resource, obj in self.tenancy.objects:
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
        await self._asking.close()
        await self.sandbox.stop()
        gc.unfreeze()  # each controller has frozen what it found, which is right for a process that has only one

    def start_controller(self) -> Controller:
        """A new controller process.  It knows nothing of those before it."""
        assert self.controller is None, "one controller at a time"
        self._started += 1
        self.starts.append(self.clock.monotonic())
        self.history.disturb(self.clock.monotonic())
        seed = f"{self.seed}/controller-{self._started}"
        client = SimulatedClient(self.api, self.clock, seed=seed, faults=self.faults, slow=self._slowness)
        self.clients.append(client)
        checks = Checks()
        operator = self._operator(
            client=client,
            config=self._configuration(),
            timings=TIMINGS,
            clock=self.clock,
            metrics=Metrics(clock=self.clock),
            checks=checks,
        )
        _seed_chances(operator, seed)
        task = asyncio.create_task(operator.run(), name=seed)
        self.controller = Controller(operator, client, checks, task)
        return self.controller

    def _slowness(self, path: str) -> float:
        kind, _, name = path.removesuffix("/status").rpartition("/")
        return self.slow.get(name, 0.0) if kind.endswith("/jobs") else 0.0

    def _configuration(self) -> Configuration:
        update = {"fair_sharing": self.tenancy.fair_sharing, "wait_for_pods_ready": self.tenancy.pods_ready}
        return self.configured.model_copy(update=update)

    def kill_controller(self) -> None:
        """SIGKILL.  What it had sent is done; nothing else is."""
        if self.controller is None:
            return
        self.controller.client.kill()
        self.controller.task.cancel()
        self._buried.append(self.controller)
        self.controller = None

    def arm_kill(self, number: int, *, after: bool) -> None:
        """The controller will die just before or `after` its `number`-th write from now on."""
        assert self.controller is not None
        client, left = self.controller.client, [number]

        def strike(_write: str) -> None:
            left[0] -= 1
            if left[0] == 0:
                self.kill_controller()

        if after:
            client.after_write = strike
        else:
            client.before_write = strike

    def disturb_all(self) -> None:
        """Nobody's place in line is that of its age any more."""
        self.disturbed.update(subject_of(w) for w in self.objects(WORKLOADS))

    # --- time ------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Let everything happen that needs no time to pass."""
        loop: Any = asyncio.get_running_loop()
        for turn in range(TURNS_MAX):
            await asyncio.sleep(0)
            self.on_turn()
            if TURNS_MAX - turn == _TOLD_TURNS:
                spinning = self._begin_to_tell()
            if not loop._ready:
                self._raise_if_dead()
                for look in self.on_settled:
                    look()
                return
        told = "; ".join(f"{count} x {who}" for who, count in spinning().most_common(8))
        raise RestlessError(f"seed {self.seed}: the world does not come to rest: {told}")

    def _begin_to_tell(self) -> Callable[[], Counter[str]]:
        """Counts who is busy from now on: reconciled keys, writes, cycles."""
        controller = self.controller
        if controller is None:
            return Counter
        seen: Counter[str] = Counter()
        for each in controller.operator.manager.controllers:
            each.on_reconcile = lambda record: seen.update([f"{record.controller} {record.key} {record.outcome.value}"])
        writes, cycles = len(controller.client.writes), controller.operator.loop.cycles

        def told() -> Counter[str]:
            seen.update(controller.client.writes[writes:])
            seen["cycles"] = controller.operator.loop.cycles - cycles
            return seen

        return told

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

    def objects(self, resource: GroupVersionResource) -> list[Object]:
        """All objects of a kind."""
        return self.api.list(resource)

    def every(self, group: str, version: str, plural: str) -> list[Object]:
        """All objects of a kind, empty when it is not served."""
        return self.api.every(GroupVersionResource(group, version, plural))

    @property
    def stale(self) -> float:
        """The moment from which on the controller may not know what changed."""
        return self.clock.monotonic() - self.horizon

    def find(self, resource: GroupVersionResource, name: str) -> Object | None:
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


def subject_of(workload: Object) -> str:
    """Whose Workload it is: the name of what controls it, or of the group of pods, which is its own."""
    return owner_of(workload) or str(workload["metadata"]["name"])


def condition(obj: Object | None, kind: str) -> Object | None:
    """A condition; None when it, or the object, is not there."""
    return next((c for c in ((obj or {}).get("status") or {}).get("conditions") or () if c["type"] == kind), None)


def is_true(obj: Object | None, kind: str) -> bool:
    """Whether a condition is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


@asynccontextmanager
async def simulated(seed: int | str = 0, **settings: Any) -> AsyncIterator[World]:
    """A world with a controller; ended with the block."""
    world = World(seed, **settings)
    configured = structlog.get_config()
    structlog.configure(processors=[functools.partial(_note_bugs, world)], cache_logger_on_first_use=False)
    try:
        await world.start()
        world.start_controller()
        await world.settle()
        yield world
    finally:
        await world.stop()
        structlog.configure(**configured)


def _note_bugs(world: World, _logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    """Logs of a simulation go nowhere, but a traceback in them is a bug that somebody has caught, and so is a drift."""
    if event["event"] == "the cache drifted":
        told = f"{event['cause']} {event['key']}: believed {event['believed']}, is {event['actual']}"
        world.bugs.append(f"t={world.clock.monotonic():.1f}: the cache drifted: {told}")
    error = event.get("exc_info")
    if error:
        told = repr(error) if isinstance(error, BaseException) else traceback.format_exc(limit=-3)
        world.bugs.append(f"t={world.clock.monotonic():.1f}: {event['event']}: {told}")
    raise structlog.DropEvent


def _seed_chances(operator: Operator, seed: str) -> None:
    """Jitter of watches and retries from the seed."""
    for watch in operator.watches.all():
        watch._chance = watch._backoff._chance = watch._absence._chance = random.Random(f"{seed}/{watch.resource}")
    for controller in operator.manager.controllers:
        controller.queue._chance = random.Random(f"{seed}/{controller.name}")
