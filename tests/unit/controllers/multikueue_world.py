"""A manager with worker clusters `a` and `b`, each a fake server; a Job waits with quota for one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import multikueue as api
from kqueue.controllers.multikueue import ClusterSteps, MultiKueueChecks
from kqueue.controllers.multikueue_reports import MultiKueueReports
from kqueue.controllers.multikueue_setup import HEIR_INDEX, groups_beside, heir_of, jobs_by_owner
from kqueue.controllers.multikueue_steps import RemoteSteps
from kqueue.controllers.multikueue_view import MultiKueueSources, MultiKueueView
from kqueue.controllers.pod_writes import GROUP_INDEX
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.resources import PODS, WORKLOADS, resource_of
from kqueue.controllers.worker_cluster import WorkerCluster, WorkerHandlers, WorkerLink, WorkerTools
from kqueue.controllers.workload_steps import Referred, WorkloadSteps
from kqueue.errors import KqueueError, UnreachableError
from kqueue.jobs.catalog import BY_FRAMEWORK, COMPOSED
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.multikueue.copies import Origin
from kqueue.jobs.multikueue.facts import DispatchPolicy
from kqueue.jobs.multikueue.owners import SentOwner
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.kinds import GroupKind
from kqueue.observe import Metrics
from kqueue.runtime.store import Store
from tests.unit.controllers.builders import JSON, World, condition, make_workload, read, reserved
from tests.unit.controllers.fakes import FakeClient

CONTROLLER = "kueue.x-k8s.io/multikueue"
JOB = BY_FRAMEWORK["batch/job"]
JOBS = resource_of(JOB)
SERVICE = BY_FRAMEWORK["ray.io/rayservice"]
SERVICES = resource_of(SERVICE)
APPLICATION = BY_FRAMEWORK["sparkoperator.k8s.io/sparkapplication"]
APPLICATIONS = resource_of(APPLICATION)
POD = PlainPod()
PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
OWNER: JSON = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-of-j", "controller": True}


def make_job(**more: Any) -> JSON:
    """The manager's Job, which is suspended."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {"suspend": True, "parallelism": 1, "completions": 1, "managedBy": CONTROLLER, "template": template}
    return {"metadata": {"name": "j", "namespace": "ns", "uid": "uid-of-j"}, "spec": {**spec, **more}}


class QueuedCluster(WorkerCluster):
    """A connection whose queue is an ordered set, which the test takes keys from."""

    def __init__(self, name: str, handlers: WorkerHandlers, tools: WorkerTools) -> None:
        super().__init__(name, handlers, tools)
        self.queue: dict[str, None] = {}

    def enqueue(self, key: str, after: float = 0.0) -> None:
        """Keep the key for the next step."""
        self.queue[key] = None


class Worker:
    """A worker cluster as its manager reaches it; its queue is played by the test."""

    def __init__(self, name: str, tools: WorkerTools) -> None:
        self.client, self.tools = FakeClient(), tools
        unused: Any = None
        handlers = WorkerHandlers(
            source=unused, connect=unused, step=unused, on_copy=lambda _key: None, on_state=lambda: None
        )
        self.cluster = QueuedCluster(name, handlers, tools)
        self.connect()

    def connect(self) -> None:
        """The connection is opened, with watches that have everything."""
        link = self.cluster.link = WorkerLink(
            self.cluster.name, self.client, self.tools, lambda _key: None, manager="uid-of-manager"
        )
        self.cluster.lost_since = None
        self.client.watch(WORKLOADS, link.workloads.store, lambda obj: read(wire.Workload, obj))
        for kind in self.tools.kinds:
            jobs = link.jobs[kind.framework].store
            self.client.watch(resource_of(kind), jobs, lambda obj: as_json(read(RawObject, obj)))
        self.client.sync()

    def lose(self) -> None:
        """The cluster does not answer any more."""
        self.cluster.link, self.cluster.lost_since = None, self.tools.clock.now()

    @property
    def link(self) -> WorkerLink:
        assert self.cluster.link is not None
        return self.cluster.link

    @property
    def workload(self) -> JSON | None:
        """The copy of the Workload."""
        return self.client.object(WORKLOADS, "ns/w")

    @property
    def job(self) -> JSON | None:
        """The copy of the Job."""
        return self.client.object(JOBS, "ns/j")

    @property
    def names(self) -> list[str]:
        """What is on the cluster."""
        return [key for kind in (WORKLOADS, *map(resource_of, self.tools.kinds)) for key in self.client.keys(kind)]

    def tell(self, *conditions: JSON) -> None:
        """The worker's queue writes the conditions of the copy."""
        self.say("ns/w", *conditions)

    def say(self, key: str, *conditions: JSON) -> None:
        """The worker's queue writes the conditions of the copy of any Workload."""
        self.client.change(WORKLOADS, key, {"status": {"conditions": list(conditions)}})


_MOST_STEPS = 30


@dataclass
class Crash:
    """The step in which the controller is killed; `done`: the write has taken effect; `steps` were taken so far."""

    at: int
    done: bool
    steps: int = 0


class MultiKueueWorld(World):
    """See above.  The watches are brought, and the reconcilers run, until nothing is written any more."""

    def __init__(
        self,
        *,
        clusters: str = "ab",
        job: JSON | None = None,
        elastic: bool = False,
        pods: bool = False,
        forwards: bool = False,
        **policy: Any,
    ) -> None:
        """`pods`: the Workload belongs to pods, or another owner, which the test puts."""
        super().__init__()
        self.elastic, self.forwards = elastic, forwards
        self.checks: dict[str, wire.AdmissionCheck] = {
            name: read(
                wire.AdmissionCheck,
                {"metadata": {"name": name}, "spec": {"controllerName": controller, "parameters": PARAMETERS}},
            )
            for name, controller in (("multi", CONTROLLER), ("other", "example.com/other"))
        }
        self.config: api.MultiKueueConfig | None = api.MultiKueueConfig(
            metadata=read(wire.AdmissionCheck, {"metadata": {"name": "all"}}).metadata,
            spec=api.MultiKueueConfigSpec(clusters=tuple(clusters)),
        )
        self.metrics = Metrics()
        if not pods:
            self.client.put(JOBS, job or make_job())
            self.client.put(WORKLOADS, make_workload("w", metadata={"ownerReferences": [OWNER]}))
        self.jobs: Store[JSON] = Store("jobs")
        self.client.watch(JOBS, self.jobs, lambda obj: as_json(read(RawObject, obj)))
        self.workloads.add_index(HEIR_INDEX, heir_of)
        self.pods: Store[ManagedPod] = Store("pods")
        self.pods.add_index(GROUP_INDEX, lambda pod: [pod.group] if pod.group else [])
        self.client.watch(PODS, self.pods, lambda obj: managed_pod(as_json(read(RawObject, obj)), JobFeatures()))
        self.services: Store[JSON] = Store("services")
        self.client.watch(SERVICES, self.services, lambda obj: as_json(read(RawObject, obj)))
        self.applications: Store[JSON] = Store("applications")
        self.client.watch(APPLICATIONS, self.applications, lambda obj: as_json(read(RawObject, obj)))
        self.owners: dict[GroupKind, tuple[SentOwner, Store[JSON]]] = {}
        for owner in map(SentOwner, COMPOSED):
            found: Store[JSON] = Store(owner.resource)
            self.client.watch(resource_of(owner), found, lambda obj: as_json(read(RawObject, obj)))
            self.owners[owner.gvk.group, owner.gvk.kind] = owner, found
        self.beside = groups_beside(self.workloads)
        self.keys = ["ns/w"]
        """The Workloads that are decided about."""
        self.origin = Origin("west")
        self.tools = WorkerTools(
            origin=self.origin,
            kinds=[JOB, SERVICE, APPLICATION, POD, *(owner for owner, _ in self.owners.values())],
            switches=JobFeatures(),
            clock=self.clock,
            identity=self._identity,
        )
        self.workers = {name: Worker(name, self.tools) for name in clusters}
        self.policy = DispatchPolicy(**policy)
        if not pods:
            self.reserve()
        self.lead()

    async def _identity(self) -> str:
        return "manager"

    def lead(self) -> None:
        """A controller begins, or begins anew without a memory."""
        known: dict[str, WorkerCluster] = {name: worker.cluster for name, worker in self.workers.items()}
        self.clusters = known
        self.view = MultiKueueView(
            MultiKueueSources(
                check=self.checks.get,
                config=lambda name: self.config if name == "all" else None,
                clusters=known,
                workload=self.workloads.get,
                heirs=lambda key: self.workloads.by_index(HEIR_INDEX, key),
                job=jobs_by_owner(
                    {
                        ("batch", "Job"): (JOB, self.jobs),
                        ("ray.io", "RayService"): (SERVICE, self.services),
                        ("sparkoperator.k8s.io", "SparkApplication"): (APPLICATION, self.applications),
                    },
                    self.pods,
                    self.owners,
                    self.pods,
                ),
                groups=self.beside,
                **self.asking(),
            ),
            policy=self.policy,
            elastic=self.elastic,
            forwards=self.forwards,
            clock=self.clock,
        )
        nothing: Store[Any] = Store("nothing")
        steps = WorkloadSteps(
            client=self.client,
            writer=self.writer,
            referred=Referred(flavors=self.flavors.get, workload_priorities=nothing, pod_priorities=nothing),
            recorder=self.recorder,
            switches=JobFeatures(),
            clock=self.clock,
        )
        reports = MultiKueueReports(self.recorder, self.metrics.cluster_queue)
        self.reconciler = MultiKueueChecks(
            self.writer,
            self.view,
            known,
            client=self.client,
            steps=steps,
            reports=reports,
            clock=self.clock,
        )
        gates = self.policy.orchestrates_preemption
        remote = RemoteSteps(self.client, reports, self.clock, gates_preemption=gates)
        self.steps = ClusterSteps(self.writer, self.view, remote, reports)

    def asking(self) -> dict[str, Any]:
        """How clusters are asked about workloads: not at all."""
        return {}

    def reserve(self, *more: JSON, **entry: Any) -> None:
        """The Workloads have quota, these conditions, and their check this state."""
        for key in self.keys:
            self._reserve(key, *more, **entry)

    def _reserve(self, key: str, *more: JSON, **entry: Any) -> None:
        state = {"name": "multi", "state": "Pending", "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
        admitted = () if any(c["type"] == "Admitted" for c in more) else (condition("Admitted", "False"),)
        status = reserved(*admitted, *more, admissionChecks=[{**state, **entry}])
        self.client.change(WORKLOADS, key, {"status": status})

    def _bring(self) -> None:
        self.client.sync()
        for worker in self.workers.values():
            worker.client.sync()

    async def step(self) -> float | None:
        """The manager decides once, and each connected worker takes its step."""
        self._bring()
        times = []
        for name in self.keys:
            times.append((await self.reconciler.reconcile(name)).requeue_after)
            self._bring()
        again = min((time for time in times if time is not None), default=None)
        for worker in self.workers.values():
            while worker.cluster.link is not None and worker.cluster.queue:
                key = next(iter(worker.cluster.queue))
                await self.steps.reconcile(worker.link, key)
                del worker.cluster.queue[key]
        self._bring()
        return again

    async def settled(self) -> float | None:
        """Steps are taken until none writes any more; returns when to look again."""
        for _ in range(12):
            before = self.writes()
            again = await self.step()
            if self.writes() == before:
                return again
        raise AssertionError(f"it never ends: {self.client.writes()[-4:]}")

    def writes(self) -> int:
        """How many writes there were, on all clusters."""
        return len(self.client.writes()) + sum(len(w.client.writes()) for w in self.workers.values())

    async def live(self, crash: Crash, check: Callable[[], None]) -> None:
        """Take steps until none writes; in the step of the crash each client's next write ends the controller, and
        another one without a memory goes on.  `check` is called after each step.
        """
        for _ in range(_MOST_STEPS):
            crash.steps += 1
            if crash.steps == crash.at:
                for client in (self.client, *(worker.client for worker in self.workers.values())):
                    for verb in ("create", "patch", "delete"):
                        client.fail(UnreachableError("killed"), verb=verb, done=crash.done)
            before = self.writes()
            try:
                await self.step()
            except KqueueError:
                self.lead()
                continue
            check()
            if self.writes() == before:
                return
        raise AssertionError("it never ends")

    @property
    def entry(self) -> JSON:
        found: JSON = (self.workload("w") or {})["status"]["admissionChecks"][0]
        return found

    @property
    def status(self) -> JSON:
        found: JSON = (self.workload("w") or {})["status"]
        return found
