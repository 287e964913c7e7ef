"""A whole world from a seed: cluster, webhooks and controller in one process, on a fake clock."""

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
from pathlib import Path
from typing import Any

import msgspec
import structlog

from kqueue.api.crd_files import crd_folder
from kqueue.clock import FakeClock
from kqueue.config import Configuration, Timings, load
from kqueue.jobs.registry import features_for, owner_kinds_for
from kqueue.kinds import FRAMEWORKS
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
"""Limit of turns of the event loop within one moment; a world that needs more loops endlessly."""
_URL = "https://webhooks.invalid"


_TOLD_TURNS = 5_000
"""The last of these turns, in which activity is counted for the error message."""


class RestlessError(AssertionError):
    """The world does not settle although no time passes."""


class _Owners(ApiLookups):
    """Look-ups of the webhooks: owners are followed, and users may start jobs themselves.

    Users of these worlds start waiting jobs, as is possible while the webhooks are down.
    """

    async def is_admitted(self, uid: str, group: str, namespace: str) -> bool:
        """Return True, so that any user may start a job or a pod."""
        return True


class InProcessAdmission(AdmissionWebhooks):
    """Calls the product's webhooks without a socket, with the same bytes."""

    def __init__(self, sandbox: Sandbox, configuration: Configuration, client: SimulatedClient) -> None:
        super().__init__(sandbox.api)
        self._routes = routes(
            configuration.integrations.frameworks,
            features_for(configuration),
            policy=policy_of(configuration),
            lookups=_Owners(client, clock=sandbox.api.clock, owners=owner_kinds_for(configuration.integrations)),
        )

    async def post(self, hook: Hook, review_object: Object) -> Object:
        """Send one review and return the answer."""
        request = review.read(msgspec.json.encode(review_object))
        answer = await self._routes[hook.url.removeprefix(_URL)](request)
        response: Object = msgspec.json.decode(review.write(request, answer))["response"]
        return response


@functools.cache
def _ca() -> bytes:
    return make_bundle(["webhooks.invalid"], now=FakeClock().now()).ca


@functools.cache
def configuration(
    *,
    job_sets: bool = False,
    pods: bool = False,
    serving: bool = False,
    gangs: tuple[str, ...] = (),
    kinds: tuple[str, ...] = (),
    joint: bool = False,
) -> Configuration:
    """Return Kueue's defaults without leader election; `job_sets`, `pods` and `serving` enable more kinds, `gangs` and
    `kinds` name dialects and kinds to enable, and `joint` enables joint placement.
    """
    gates = ["JointPlacement"] * joint + [FRAMEWORKS[name].gate for name in kinds if FRAMEWORKS[name].gate]
    found = load(None, feature_gates=",".join(f"{gate}=true" for gate in gates))
    election = found.leader_election.model_copy(update={"leader_elect": False})
    asked = (("jobset.x-k8s.io/jobset", job_sets), ("pod", pods), ("deployment", serving), ("statefulset", serving))
    frameworks = (*found.integrations.frameworks, *(name for name, wanted in asked if wanted), *gangs, *kinds)
    integrations = found.integrations.model_copy(update={"frameworks": frameworks})
    return found.model_copy(update={"leader_election": election, "integrations": integrations})


def _kinds_of_others(gangs: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the folder with definitions of other projects, if a dialect needs them."""
    folder = Path(__file__).resolve().parents[2] / "examples" / "gangs" / "kinds"
    return (folder,) if {"scheduling.volcano.sh/podgroup", "scheduling.k8s.io/podgroup"}.intersection(gangs) else ()


TIMINGS = Timings(loop_probe_interval=60.0, metrics_cache=10.0, audit_interval=30.0, worker_retry_base=1.0)
"""The product's timings, with rarer wake-ups that decide nothing, and with frequent audits."""


@dataclass(slots=True)
class Controller:
    """One controller process."""

    operator: Operator
    client: SimulatedClient
    checks: Checks
    task: asyncio.Task[None]


class World:
    """The cluster, the clock, at most one living controller, and the log of what was done.

    All random choices come from `seed`: the same seed gives the same world.
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
        gangs: tuple[str, ...] = (),
        kinds: tuple[str, ...] = (),
        operator: Callable[..., Operator] = Operator,
        clock: FakeClock | None = None,
    ) -> None:
        """`job_sets`: the cluster has JobSets and their controller.  `pods`: pods may be queued themselves.  `serving`:
        Deployments and StatefulSets may be queued.  `gangs`: dialects of gangs that are on.  `kinds`: further kinds that are queued.
        `operator`: the class of a
        controller process.  `clock`: shared with other worlds.
        """
        self._operator = operator
        self.seed, self.tenancy, self.faults = seed, tenancy, faults
        self.configured = configuration(
            job_sets=job_sets, pods=pods, serving=serving, gangs=gangs, kinds=kinds, joint=tenancy.joint is not None
        )
        self.clock = clock or FakeClock()
        self.topology = ClusterSpec(levels=DEFAULT_LEVELS, pools=tenancy.pools)
        self.sandbox = Sandbox(
            SandboxOptions(
                topology=self.topology,
                parts=PARTS - {"server"} - (frozenset() if job_sets else {"jobsets"}),
                kubelet=KubeletOptions(start_seconds=tenancy.start_seconds, stop_seconds=tenancy.stop_seconds),
                nodes=NodeOptions(heartbeat_seconds=0),
                crds=(crd_folder(), *((crd_folder() / "optional",) if gangs else ()), *_kinds_of_others(gangs)),
            ),
            clock=self.clock,
            chance=random.Random(f"{seed}/namespaces"),
        )
        self.api = self.sandbox.api
        self.api.chance = random.Random(f"{seed}/server")
        self.history = History(self.api, self.clock)
        self.log: list[str] = []
        """Actions on the world, one line each."""
        self.bugs: list[str] = []
        """Bugs that the product itself logged."""
        self.refused: dict[str, str] = {}
        """Jobs that were refused at their creation, with the reason."""
        self.disturbed: set[str] = set()
        """Jobs that users changed, so that their position no longer follows from their age."""
        self.let_out: set[str] = set()
        """Objects that users started without admission."""
        self.moved: set[str] = set()
        """Nodes whose labels were changed at some time: gangs stay on them in any domain."""
        self.slow: dict[str, float] = {}
        """Seconds of the controller's writes to a Job, pod or Workload of this name, as behind a slow webhook."""
        self.horizon = 1.0 if faults == NONE else 90.0
        """Seconds within which the controller knows of a change: events are immediate without faults."""
        self.clients: list[SimulatedClient] = []
        self.controller: Controller | None = None
        self.margin = self.horizon
        """Seconds around a decision within which the order of another decision is uncertain."""
        self.starts: list[float] = []
        """Start of each controller, which has no memory of its predecessors."""
        self.on_settled: list[Callable[[], None]] = []
        """Called whenever nothing is left to do before time passes."""
        self.on_turn: Callable[[], None] = lambda: None
        """Called after every turn of the event loop with activity."""
        self.judged: dict[str, int] = {}
        """Number of judged admissions, by invariant that judges each admission once."""
        self._buried: list[Controller] = []
        self._started = 0

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the cluster with its webhooks and queues, without a controller."""
        await self.sandbox.start()
        self.asking = SimulatedClient(self.api, self.clock, seed=f"{self.seed}/webhooks")
        self.api.admission = InProcessAdmission(self.sandbox, self.configured, self.asking)
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
        await self.asking.close()
        await self.sandbox.stop()
        gc.unfreeze()  # each controller has frozen what it found, which is right for a process that has only one

    def start_controller(self) -> Controller:
        """Start a new controller process without memory of former ones."""
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
        return self.slow.get(name, 0.0) if kind.endswith(("/jobs", "/pods", "/workloads")) else 0.0

    def _configuration(self) -> Configuration:
        update: dict[str, Any] = {
            "fair_sharing": self.tenancy.fair_sharing,
            "wait_for_pods_ready": self.tenancy.pods_ready,
        }
        if self.tenancy.joint is not None:
            update["joint"] = self.tenancy.joint
        return self.configured.model_copy(update=update)

    def kill_controller(self) -> None:
        """Simulate SIGKILL: sent writes take effect, others do not."""
        if self.controller is None:
            return
        self.controller.client.kill()
        self.controller.task.cancel()
        self._buried.append(self.controller)
        self.controller = None

    def arm_kill(self, number: int, *, after: bool) -> None:
        """Kill the controller just before or `after` its `number`-th write from now on."""
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
        """Mark all Jobs as changed by users: no position follows from age any more."""
        self.disturbed.update(subject_of(w) for w in self.objects(WORKLOADS))

    # --- time ------------------------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Run until nothing more happens without time passing."""
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
        """Count activity from now on: reconciled keys, writes, cycles."""
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
        """Let `seconds` pass, with all that happens in them."""
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
        """Return all objects of a kind; empty if it is not served."""
        return self.api.every(GroupVersionResource(group, version, plural))

    @property
    def stale(self) -> float:
        """Return the time from which on the controller may not know of changes."""
        return self.clock.monotonic() - self.horizon

    def find(self, resource: GroupVersionResource, name: str) -> Object | None:
        """Return an object of the namespace, or a cluster-wide one; None if it does not exist."""
        return self.api.find(resource, name, NAMESPACE) or self.api.find(resource, name)

    def workload_of(self, job: str) -> Object | None:
        """Return the Workload of a Job, or None."""
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
    """Return the name of the controlling owner; empty if there is none."""
    return next((o["name"] for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), "")


def subject_of(workload: Object) -> str:
    """Return the name of the Workload's controller, or of its group of pods, which is the Workload's own."""
    return owner_of(workload) or str(workload["metadata"]["name"])


def condition(obj: Object | None, kind: str) -> Object | None:
    """Return a condition; None if the condition or the object does not exist."""
    return next((c for c in ((obj or {}).get("status") or {}).get("conditions") or () if c["type"] == kind), None)


def is_true(obj: Object | None, kind: str) -> bool:
    """Whether a condition is True."""
    found = condition(obj, kind)
    return found is not None and found["status"] == "True"


@asynccontextmanager
async def simulated(seed: int | str = 0, **settings: Any) -> AsyncIterator[World]:
    """Run a world with a controller for the time of the block."""
    world = World(seed, **settings)
    configured = structlog.get_config()
    structlog.configure(processors=[functools.partial(note_bugs, world)], cache_logger_on_first_use=False)
    try:
        await world.start()
        world.start_controller()
        await world.settle()
        yield world
    finally:
        await world.stop()
        structlog.configure(**configured)


def note_bugs(world: World, _logger: object, _method: str, event: structlog.typing.EventDict) -> str:
    """Drop log lines of a simulation, but record tracebacks and drift as bugs."""
    if event["event"] == "the cache drifted":
        told = f"{event['cause']} {event['key']}: believed {event['believed']}, is {event['actual']}"
        world.bugs.append(f"t={world.clock.monotonic():.1f}: the cache drifted: {told}")
    error = event.get("exc_info")
    if error:
        told = repr(error) if isinstance(error, BaseException) else traceback.format_exc(limit=-3)
        world.bugs.append(f"t={world.clock.monotonic():.1f}: {event['event']}: {told}")
    raise structlog.DropEvent


def _seed_chances(operator: Operator, seed: str) -> None:
    """Seed the jitter of watches and retries."""
    for watch in operator.watches.all():
        watch._chance = watch._backoff._chance = watch._absence._chance = random.Random(f"{seed}/{watch.resource}")
    for controller in operator.manager.controllers:
        controller.queue._chance = random.Random(f"{seed}/{controller.name}")
