"""A small world for the reconcilers of pods: a server, pods and Workloads on it, and the watches of both."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.admission_gates import AdmissionGates
from kqueue.controllers.gang import GangReconciler
from kqueue.controllers.gang_clock import GangClock, GangClockRules
from kqueue.controllers.gang_occupants import Occupants
from kqueue.controllers.gang_records import GangRecords
from kqueue.controllers.gang_room import GangRoom
from kqueue.controllers.gang_status import GangStatusReconciler
from kqueue.controllers.gang_workloads import GangWorkloads
from kqueue.controllers.group_events import GroupEvents
from kqueue.controllers.group_objects import GroupObjects, GroupVersion, view_of
from kqueue.controllers.held_pods import Sweep
from kqueue.controllers.job_workload import OWNER_INDEX, owner_keys
from kqueue.controllers.owner_context import OwnerContext, OwnerPolicy, OwnerReports
from kqueue.controllers.plugin_releases import PluginReleases
from kqueue.controllers.pod import PodReconciler
from kqueue.controllers.pod_writes import PodWrites
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.release_hooks import NO_RELEASE_HOOKS, ReleaseHooks
from kqueue.controllers.resources import PODS, RESOURCE_FLAVORS, WORKLOADS, group_object_resources
from kqueue.controllers.workload_steps import Referred, WorkloadSteps
from kqueue.core.hooks import ProfileHooks
from kqueue.jobs.ancestry import owner_kinds
from kqueue.jobs.gang.dialect import GangRules
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.registry import dialects
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.client import Json
from kqueue.runtime.controller import Result
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from kqueue.state.gangs import Gangs
from tests.unit.controllers.builders import World, condition, make_flavor
from tests.unit.jobs.builders import JSON
from tests.unit.jobs.pods import make_pod

GROUP = "team/g"


def releases_of(world: Any, hooks: ProfileHooks | None) -> ReleaseHooks:
    """What the plugins of a world's only profile have to do with releases; None: there are no plugins."""
    if hooks is None:
        return NO_RELEASE_HOOKS
    found = {"default": hooks}
    return PluginReleases(found, profile_of=lambda _q: "default", recorder=world.recorder, clock=world.clock)


class Pods(World):
    """A world with a flavor that selects nodes, the reconcilers of single pods and of groups, and the sweeper."""

    def __init__(
        self,
        *pods: JSON,
        group: JSON | None = None,
        single: JSON | None = None,
        switches: JobFeatures | None = None,
        hooks: ProfileHooks | None = None,
        times: GangClockRules | None = None,
        **writes: Any,
    ) -> None:
        super().__init__((RESOURCE_FLAVORS, make_flavor(nodeLabels={"pool": "gpu"})))
        switches = switches or JobFeatures()
        self.releases = releases_of(self, hooks)
        self.pods: Store[ManagedPod] = Store("pods")
        self.client.watch(PODS, self.pods, lambda obj: managed_pod(as_json(msgspec.convert(obj, RawObject)), switches))
        self.workloads.add_index(OWNER_INDEX, owner_keys)
        self.workload_priorities: Store[wire.WorkloadPriorityClass] = Store("workload priorities")
        self.pod_priorities: Store[wire_core.PriorityClass] = Store("pod priorities")
        self.managed = {"team"}
        self.sent = self.elsewhere = False
        """Whether other clusters alone run the Workloads, and whether pods run there."""
        self.held: dict[str, int] = {}
        self.started: list[int] = []
        self.steps = WorkloadSteps(
            client=self.client,
            writer=self.writer,
            referred=Referred(
                flavors=self.flavors.get,
                workload_priorities=self.workload_priorities,
                pod_priorities=self.pod_priorities,
            ),
            recorder=self.recorder,
            switches=switches,
            clock=self.clock,
        )
        self.writes = PodWrites(
            client=self.client,
            pods=self.pods,
            recorder=self.recorder,
            switches=switches,
            clock=self.clock,
            **writes,
        )
        self.switches = switches
        self.levels: frozenset[str] | None = None
        self.objects = self._watch_objects(switches)
        self.queue_keys: set[str] = set()
        """LocalQueues that exist."""
        self.ending: set[str] = set()
        """Namespaces that are being deleted."""
        self.gangs = GangWorkloads(
            self.workloads, self.objects, switches, lambda key: key in self.queue_keys, self.ending.__contains__
        )
        self.records = GangRecords(
            pods=self.pods,
            writes=self.writes,
            gangs=self.gangs,
            book=self.writer,
            rules=lambda: GangRules(switches=switches, levels=self.levels),
            clock=self.clock,
            occupants=Occupants(self.client, owner_kinds(["deployment"])),
        )
        self.events = GroupEvents(self.recorder, self.clock)
        reports = OwnerReports(started=lambda _workload, pods: self.started.append(pods))
        self.single = PodReconciler(
            self.context(**(single or {})),
            writes=self.writes,
            gangs=self.gangs,
            exists=lambda key: self.client.object(PODS, key) is not None,
            reports=reports,
        )
        self.back_to_back: set[str] = set()
        """ClusterQueues that try extras right after their base."""
        self.starting = Gangs()
        self.times = times
        context = self.context(**(group or {}))
        self.group = GangReconciler(
            context,
            writes=self.writes,
            records=self.records,
            events=self.events,
            reports=reports,
            gang_clock=GangClock(context, gangs=self.starting, rules=times),
            keeps_runs=lambda queue: queue in self.back_to_back,
        )
        self.status = self.status_writer()
        self.pods.subscribe(self.status.observe)
        self.gates = AdmissionGates(
            pods=self.pods,
            writes=self.writes,
            records=self.records,
            manages=self.managed.__contains__,
            switches=switches,
            sweep=Sweep(clock=self.clock, after=300.0, interval=60.0, report=self.held.update),
        )
        for pod in pods:
            self.client.put(PODS, pod)
        self.sync()

    def status_writer(self, room: GangRoom | None = None) -> GangStatusReconciler:
        """A new writer of the status of group objects, which remembers no write of an earlier one."""
        return GangStatusReconciler(
            self.records,
            client=self.client,
            events=self.events,
            clock=self.clock,
            window=lambda: 1.0,
            is_ours=lambda _framework, _obj: True,
            room=room,
        )

    def _watch_objects(self, switches: JobFeatures) -> GroupObjects:
        """The watches of group objects of all dialects that are on."""
        versions: dict[str, list[GroupVersion]] = {}
        for dialect in dialects(switches):
            for resource in group_object_resources(dialect):
                store: Store[JSON] = Store(str(resource))
                versions.setdefault(dialect.framework, []).append(GroupVersion(resource, store))
                self.client.watch(resource, store, partial(_view_of, resource))
        return GroupObjects(self.client, versions)

    def context(self, **policy: Any) -> OwnerContext:
        """What reconcilers of pods work with; `policy` as in `OwnerPolicy`."""
        return OwnerContext(
            client=self.client,
            book=self.writer,
            workloads=self.workloads,
            steps=self.steps,
            recorder=self.recorder,
            clock=self.clock,
            manages=self.managed.__contains__,
            policy=OwnerPolicy(switches=self.switches, **policy),
            releases=self.releases,
            is_sent=lambda _workload: self.sent,
            runs_elsewhere=lambda _workload: self.elsewhere,
        )

    def pod_classes(self, **values: int) -> None:
        """PriorityClasses are there."""
        for name, value in values.items():
            made = {"metadata": {"name": name}, "value": value}
            self.pod_priorities.put(name, msgspec.convert(made, wire_core.PriorityClass))

    def workload_classes(self, **values: int) -> None:
        """WorkloadPriorityClasses are there."""
        for name, value in values.items():
            made = {"metadata": {"name": name}, "value": value}
            self.workload_priorities.put(name, msgspec.convert(made, wire.WorkloadPriorityClass))

    def lose_label(self, key: str) -> None:
        """Somebody takes our label away, and the watch of managed pods has the pod no more."""
        self.client.change(PODS, key, {"metadata": {"labels": {"kueue.x-k8s.io/managed": None}}})
        self.pods.remove(key)

    async def look(self, key: str, *, late: bool = False) -> list[str]:
        """One reconcile of a pod, or of a group; the writes that it made."""
        before = len(self.client.writes())
        if not late:
            self.sync()
        await self.reconcile(key)
        return [str(call) for call in self.client.writes()[before:]]

    async def reconcile(self, key: str) -> Result:
        """One reconcile; the gang's where the key is that of one."""
        return await (self.group if key == GROUP or ":" in key else self.single).reconcile(key)

    async def rest(self, key: str) -> None:
        """Reconcile until nothing is left to do; fails if that does not end."""
        for _ in range(12):
            if not await self.look(key):
                return
        raise AssertionError(f"{key} goes on and on: {[str(c) for c in self.client.writes()[-4:]]}")

    def admit(self, name: str, *conditions: JSON, **counts: int) -> None:
        """As the scheduling loop does; `counts` of pods by role, those of the Workload if none is given."""
        workload = self.workload_named(name)
        sets = {p["name"]: p["count"] for p in workload["spec"]["podSets"]}
        assigned = [
            {"name": role, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": str(n)}, "count": n}
            for role, n in (counts or sets).items()
        ]
        kept = [c for c in workload.get("status", {}).get("conditions", []) if c["type"] not in ("QuotaReserved", "Admitted", "Evicted")]  # fmt: skip
        held = [
            {**condition(kind, reason=kind), "lastTransitionTime": utc_text(self.clock.now())}
            for kind in ("QuotaReserved", "Admitted")
        ]
        status = {
            "conditions": [*kept, *held, *conditions],
            "admission": {"clusterQueue": "team", "podSetAssignments": assigned},
        }
        self.client.change(WORKLOADS, f"team/{name}", {"status": status})

    def refuse(self, name: str) -> None:
        """As the scheduling loop does with one that does not fit."""
        waits = condition("QuotaReserved", "False", reason="WaitingForQuota")
        self.client.change(WORKLOADS, f"team/{name}", {"status": {"conditions": [waits]}})

    def evict(self, name: str, reason: str = "Preempted", message: str = "somebody needs it") -> None:
        """As the one who needs the room does."""
        conditions = [
            *self.workload_named(name)["status"]["conditions"],
            condition("Evicted", reason=reason, message=message),
        ]
        self.client.change(WORKLOADS, f"team/{name}", {"status": {"conditions": conditions}})

    def runs(self, *names: str, phase: str = "Running") -> None:
        """As a kubelet does."""
        for name in names:
            ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
            change: JSON = {"spec": {"nodeName": "n"}, "status": {"phase": phase, "conditions": ready}}
            self.client.change(PODS, f"team/{name}", change)
        self.sync()

    def add(self, *pods: JSON) -> None:
        """Pods appear."""
        for pod in pods:
            self.client.put(PODS, pod)
        self.sync()

    def pod(self, name: str) -> Json:
        """The pod as the server has it."""
        found = self.client.object(PODS, f"team/{name}")
        assert found is not None, f"pod {name} is gone"
        return found

    def names(self) -> list[str]:
        """Pods that are there."""
        return sorted(key.partition("/")[2] for key in self.client.keys(PODS))

    def gated(self, name: str) -> bool:
        """Whether the admission gate holds the pod."""
        gates = self.pod(name)["spec"].get("schedulingGates") or []
        return any(gate["name"] == "kueue.x-k8s.io/admission" for gate in gates)

    def finalizer(self, name: str) -> bool:
        """Whether our finalizer holds the pod."""
        return "kueue.x-k8s.io/managed" in self.pod(name)["metadata"].get("finalizers", [])

    def workload_named(self, name: str) -> Json:
        """The Workload as the server has it."""
        found = self.client.object(WORKLOADS, f"team/{name}")
        assert found is not None, f"Workload {name} is gone"
        return found

    def told(self, name: str) -> list[str]:
        """Reasons of the events on a pod, in order."""
        return [reason for what, reason in self.recorder.events if what == f"Pod {name}"]


def _view_of(resource: ResourceType, obj: Json) -> JSON:
    return view_of(resource, msgspec.convert(obj, RawObject))


def grouped(name: str, *, total: int = 2, **settings: Any) -> JSON:
    """A gated pod of group `g`, role `r`."""
    return make_pod(name, group="g", total=total, role=settings.pop("role", "r"), **settings)
