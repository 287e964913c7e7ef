"""The dialects of gangs as users write them: a gang of three pods in each, and the life of such a gang."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from kqueue.clock import SystemClock
from kqueue.config import Configuration, parse
from kqueue.jobs.patch import apply_merge_patch
from kqueue.manager.admission import AdmissionEndpoint, admission
from kqueue.runtime.client import connect
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane import cluster as clusters
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, has, queue_objects
from tests.integration.test_pods import Pods, gates, held

Plane = ControlPlane | SandboxPlane
QUORUM = 3
GPUS_OF_POD = 8
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PROCESS = {
    "name": "worker",
    "command": ["sleep"],
    "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": str(GPUS_OF_POD)}},
    "template": {"metadata": {"annotations": {"sandbox.kqueue.dev/run-seconds": "600"}}},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way to write a gang."""

    framework: str
    marks: Callable[[str, int], Object] = lambda _name, _quorum: {}
    """Returns the merge patch that makes a pod a member of the gang of this name and quorum."""
    api_version: str = ""
    """Of the group object; empty: there is none."""
    kind: str = "PodGroup"
    spec: Callable[[int], Object] = lambda quorum: {"minMember": quorum}
    """Returns the spec of the group object for a quorum."""
    phases: tuple[str, ...] = ()
    """The group object's phase while the gang waits, while it runs, and at its end; none: kqueue writes no status."""
    makes_pods: bool = False
    """Whether kqueue makes the pods."""
    gated: bool = False
    """Whether the API server serves the kind only behind feature gates."""

    def collection(self, namespace: str) -> str:
        """The path of the group objects."""
        plural = {"PodGroup": "podgroups", "BatchProcess": "batchprocesses"}[self.kind]
        return f"/apis/{self.api_version}/namespaces/{namespace}/{plural}"

    def owns(self, workload: Object, name: str = "g") -> bool:
        """Whether this is the Workload of the gang's quorum."""
        if self.framework == "pod":
            return bool(workload["metadata"]["name"] == name)
        return bool(workload["metadata"].get("annotations", {}).get("kqueue.dev/gang") == f"{self.framework}:{name}")


KUEUE_GROUPS = Dialect(
    framework="pod",
    marks=lambda name, quorum: {
        "metadata": {
            "labels": {"kueue.x-k8s.io/pod-group-name": name},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(quorum)},
        }
    },
)
LABELS = Dialect(
    framework="kqueue.dev/coscheduling-labels",
    marks=lambda name, quorum: {
        "metadata": {
            "labels": {
                "pod-group.scheduling.x-k8s.io/name": name,
                "pod-group.scheduling.x-k8s.io/min-available": str(quorum),
            }
        }
    },
)
X_K8S = Dialect(
    framework="scheduling.x-k8s.io/podgroup",
    marks=lambda name, _: {"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": name}}},
    api_version="scheduling.x-k8s.io/v1alpha1",
    phases=("Pending", "Running", "Finished"),
)
VOLCANO = Dialect(
    framework="scheduling.volcano.sh/podgroup",
    marks=lambda name, _: {"metadata": {"annotations": {"scheduling.k8s.io/group-name": name}}},
    api_version="scheduling.volcano.sh/v1beta1",
    phases=("Pending", "Running", "Completed"),
)
KUBERNETES = Dialect(
    framework="scheduling.k8s.io/podgroup",
    marks=lambda name, _: {"spec": {"schedulingGroup": {"podGroupName": name}}},
    api_version="scheduling.k8s.io/v1alpha2",
    spec=lambda quorum: {"schedulingPolicy": {"gang": {"minCount": quorum}}},
    gated=True,
)
BATCH = Dialect(
    framework="kqueue.dev/batchprocess",
    api_version="kqueue.dev/v1alpha1",
    kind="BatchProcess",
    spec=lambda quorum: {"image": "example.com/train:1", "simpleProcesses": [{**_PROCESS, "replicas": quorum}]},
    phases=("Pending", "Running", "Finished"),
    makes_pods=True,
)
DIALECTS = {
    "kueue": KUEUE_GROUPS,
    "labels": LABELS,
    "coscheduling": X_K8S,
    "volcano": VOLCANO,
    "kubernetes": KUBERNETES,
    "batch process": BATCH,
}


def definition(api_version: str) -> Object:
    """A reduced definition of another project's PodGroups, for tests."""
    group, version = api_version.split("/")
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _LOOSE, "status": _LOOSE}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"podgroups.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


async def serve(plane: Plane, api_version: str) -> None:
    """Let the cluster serve PodGroups of this version, unless it does."""
    if await plane.cluster.exists(f"/apis/{api_version}/podgroups"):
        return
    file = CRDS / "optional" / f"podgroups.{api_version.partition('/')[0]}.yaml"
    made = yaml.safe_load(file.read_text()) if file.exists() else definition(api_version)
    await plane.cluster.apply(made, clusters.CRDS)
    path = f"{clusters.CRDS}/{made['metadata']['name']}"
    await plane.cluster.until(path, clusters.is_established, what="the definition is Established")


def configuration(dialect: Dialect, *, gangs: str = "{}") -> Configuration:
    """Only this dialect is on; `gangs` is the section of that name."""
    text = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [{dialect.framework}]}}
gangs: {gangs}
"""
    return parse(text, source="test", own_namespace="kqueue-system")


class Groups(Pods):
    """One tenant with gangs of one dialect."""

    def __init__(self, cluster: clusters.Cluster, namespace: str, dialect: Dialect) -> None:
        super().__init__(cluster, namespace)
        self.dialect = dialect

    @property
    def groups(self) -> str:
        return self.dialect.collection(self.namespace)

    async def create_group_object(self, name: str, *, minimum: int, **spec: object) -> Object:
        """Make a group object with this quorum."""
        dialect = self.dialect
        queued = {"labels": {"kueue.x-k8s.io/queue-name": "main"}} if dialect.makes_pods else {}
        made = {
            "apiVersion": dialect.api_version,
            "kind": dialect.kind,
            "metadata": {"name": name, "namespace": self.namespace, **queued},
            "spec": {**dialect.spec(minimum), **spec},
        }
        return await self.cluster.request("POST", self.groups, made)

    def member(self, group: str, name: str, *, quorum: int = 1, **settings: Any) -> Object:
        """A pod of a gang, as a user writes it."""
        made: Object = apply_merge_patch(self.made(name, **settings), self.dialect.marks(group, quorum))
        return made

    async def add(
        self, group: str, *names: str, owner: Object | None = None, priority: str = "", **settings: Any
    ) -> None:
        """Make members of a PodGroup, with a controller and a PriorityClass."""
        for name in names:
            pod = self.member(group, name, **settings)
            if owner is not None:
                pod["metadata"]["ownerReferences"] = [owner]
            if priority:
                pod["spec"]["priorityClassName"] = priority
            await self.cluster.request("POST", self.pods, pod)

    async def until_phase(self, name: str, phase: str, **more: int) -> Object:
        """Wait for a phase of a PodGroup, and for counts; returns the status."""

        def reached(group: Object) -> bool:
            status = group.get("status", {})
            return status.get("phase") == phase and all(status.get(key) == value for key, value in more.items())

        found = await self.cluster.until(f"{self.groups}/{name}", reached, what=f"PodGroup {name}: {phase} {more}")
        return dict(found["status"])

    async def workload_of_group(self, name: str) -> Object:
        """The Workload of a PodGroup."""

        return await self.base(lambda _: True, name=name, what=f"Workload of {name}")

    async def base(self, wanted: Callable[[Object], bool], *, what: str, name: str = "g") -> Object:
        """Wait until the Workload of a quorum is so; returns it."""

        def of(listed: Object) -> list[Object]:
            return [w for w in listed["items"] if self.dialect.owns(w, name) and wanted(w)]

        return of(await self.cluster.until(self.workloads, lambda listed: bool(of(listed)), what=what))[0]

    async def until_waits(self, name: str, words: str) -> str:
        """Wait until the Workload of a PodGroup waits for quota for a reason with these words; returns the message."""
        path = f"{self.workloads}/{(await self.workload_of_group(name))['metadata']['name']}"

        def told(workload: Object) -> list[str]:
            found = workload.get("status", {}).get("conditions", [])
            return [c["message"] for c in found if (c["type"], c["status"]) == ("QuotaReserved", "False")]

        found = await self.cluster.until(path, lambda w: any(words in m for m in told(w)), what=f"{name}: {words}")
        return told(found)[0]

    async def deactivate(self, name: str) -> None:
        """Evict a PodGroup for good."""
        path = f"{self.workloads}/{(await self.workload_of_group(name))['metadata']['name']}"
        await self.cluster.request("PATCH", path, {"spec": {"active": False}}, content_type=MERGE_PATCH)


class Gang(Groups):
    """The gang `g`, alone in its namespace, and its user."""

    async def create_object(self) -> None:
        """Make the group object, where the dialect has one."""
        if self.dialect.api_version:
            await self.create_group_object("g", minimum=QUORUM)

    async def join(self, *numbers: int) -> None:
        """Make members, where users make them."""
        if not self.dialect.makes_pods:
            await self.add("g", *(f"g-{number}" for number in numbers), quorum=QUORUM)

    async def end(self) -> None:
        """Let all members that run succeed, as the kubelet does."""
        for name in goes_on(await self.cluster.get(self.pods)):
            done = {"status": {"phase": "Succeeded"}}
            await self.cluster.request("PATCH", f"{self.pods}/{name}/status", done, content_type=MERGE_PATCH)

    async def erase(self) -> None:
        """Delete everything, and wait until nothing of the gang is left."""
        collections = [self.pods, self.workloads]
        if self.dialect.api_version:
            collections.insert(0, self.groups)
        for collection in collections:
            for obj in (await self.cluster.get(collection))["items"]:
                with contextlib.suppress(RequestError):  # it may be gone meanwhile
                    now = {"gracePeriodSeconds": 0}
                    await self.cluster.request("DELETE", f"{collection}/{obj['metadata']['name']}", now)
        for collection in collections:
            await self.cluster.until(collection, lambda listed: not listed["items"], what="nothing is left")

    async def until_members(self, count: int = QUORUM, *, but: frozenset[str] = frozenset()) -> dict[str, str]:
        """Wait until so many members run, none of them with one of these UIDs; returns their names and UIDs."""

        def reached(listed: Object) -> bool:
            found = goes_on(listed)
            return len(found) == count and but.isdisjoint(found.values())

        return goes_on(await self.cluster.until(self.pods, reached, what=f"{count} members run"))

    async def until_state(self, state: int) -> None:
        """Wait until the group object says that the gang waits (0), runs (1) or has ended (2)."""
        dialect = self.dialect
        if not dialect.phases:
            return
        wanted = (dialect.phases[state], (0, QUORUM, 0)[state], (0, 0, QUORUM)[state])

        def reached(obj: Object) -> bool:
            status = obj.get("status", {})
            return (status.get("phase"), status.get("running", 0), status.get("succeeded", 0)) == wanted

        await self.cluster.until(f"{self.groups}/g", reached, what=f"phase, running, succeeded are {wanted}")

    async def until_unused(self) -> None:
        """Wait until nothing is reserved in the ClusterQueue."""
        path = f"{KUEUE}/clusterqueues/team"
        await self.cluster.until(
            path, lambda queue: queue.get("status", {}).get("reservingWorkloads") == 0, what="quota is back"
        )


def goes_on(listed: Object) -> dict[str, str]:
    """Names and UIDs of the pods of a list that run and are not being deleted."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in listed["items"]
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def waits_for_quota(workload: Object) -> bool:
    """Whether a Workload was told that it gets no quota now."""
    found = workload.get("status", {}).get("conditions", [])
    return any((c["type"], c["status"]) == ("QuotaReserved", "False") for c in found)


class Home:
    """One tenant of a cluster with webhooks that live on whatever becomes of controllers; gangs come one by one."""

    def __init__(self, plane: Plane, dialect: Dialect) -> None:
        self.plane, self.dialect = plane, dialect
        self.configuration = configuration(dialect)
        self._ready = False

    async def gang(self) -> Gang:
        """A gang that does not exist yet, in a namespace of its own; there is room for two of its three pods."""
        cluster = self.plane.cluster
        namespace = await cluster.create_namespace("gang")
        objects = queue_objects(namespace, gpus=(QUORUM - 1) * GPUS_OF_POD)
        for collection, obj in objects if not self._ready else objects[-1:]:
            await cluster.request("POST", collection, obj)
        gang = Gang(cluster, namespace, self.dialect)
        if self._ready:
            await gang.set_quota("nvidia.com/gpu", (QUORUM - 1) * GPUS_OF_POD)
        elif not self.dialect.makes_pods:
            await self._until_asked(gang)
        self._ready = True
        return gang

    async def _until_asked(self, gang: Gang) -> None:
        """Wait until the API server has heard of the webhooks."""
        pod = gang.member("g", "try", quorum=QUORUM)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(RequestError):
                    if gates(await gang.cluster.request("POST", f"{gang.pods}?dryRun=All", pod)):
                        return
                await asyncio.sleep(0.05)


@asynccontextmanager
async def home(plane: Plane, dialect: Dialect) -> AsyncIterator[Home]:
    """Nodes for the gang and one more pod, the kind of the dialect, and a webhook process."""
    if dialect.api_version and not dialect.makes_pods:
        await serve(plane, dialect.api_version)
    await plane.cluster.add_nodes((1, 1, QUORUM + 1), labels={"pool": "gpu"})
    made = Home(plane, dialect)
    endpoint = AdmissionEndpoint(host="127.0.0.1", port=0, url="https://127.0.0.1:{port}")
    async with await connect(plane.kubeconfig, None) as client:
        clock = SystemClock()
        async with admission(client, made.configuration, endpoint, clock=clock, on_review=lambda _: None):
            yield made


@dataclass(slots=True)
class Life:
    """What was seen of a gang on its way."""

    told: str = ""
    """The event that says what is missing."""
    unqueued: list[Object] = field(default_factory=list)
    """The Workloads that there were then."""
    said: dict[str, str] = field(default_factory=dict)
    """Events on the group object: reason and message."""
    early: list[list[str]] = field(default_factory=list)
    """The gates of all members while there was room for two of three."""
    first: dict[str, str] = field(default_factory=dict)
    """Names and UIDs of the members that were started first."""
    mended: dict[str, str] = field(default_factory=dict)
    """The members after one was killed."""
    again: dict[str, str] = field(default_factory=dict)
    """The members after the eviction."""
    evicted: Object = field(default_factory=dict)
    finished: Object = field(default_factory=dict)
    """The Workload of the quorum, when it was evicted and in the end."""


async def live(gang: Gang, *, patient: bool = False) -> Life:
    """A gang gathers, waits for room, runs, loses a member, is evicted, runs again, and ends.

    `patient`: wait for events, too.
    """
    life = Life()
    await gang.create_object()
    await gang.join(0, 1)
    if patient and not gang.dialect.makes_pods:
        life.told = await gang.until_event("g-0", "ErrWorkloadCompose")
        life.unqueued = (await gang.cluster.get(gang.workloads))["items"]
    await gang.join(2)
    await gang.base(waits_for_quota, what="there is no room")
    await gang.until_state(0)
    life.early = [gates(pod) for pod in (await gang.cluster.get(gang.pods))["items"]]
    await gang.set_quota("nvidia.com/gpu", QUORUM * GPUS_OF_POD)
    life.first = await gang.until_members()
    await gang.until_state(1)
    if patient and gang.dialect.api_version and not gang.dialect.makes_pods:
        life.said = {
            reason: await gang.until_event("g", reason) for reason in ("ErrWorkloadCompose", "Scheduled", "Running")
        }
    life.mended = await kill_one(gang, life.first)
    await gang.change_queue(stopPolicy="HoldAndDrain")
    life.evicted = await gang.base(lambda w: has(w, "Evicted") and waits_for_quota(w), what="is evicted")
    await gang.until_members(0)
    await gang.until_state(0)
    await gang.join(4, 5, 6)
    await gang.change_queue(stopPolicy="None")
    life.again = await gang.until_members(but=frozenset(life.mended.values()))
    await gang.until_state(1)
    await gang.end()
    life.finished = await gang.base(lambda w: has(w, "Finished"), what="has finished")
    await gang.until_state(2)
    await gang.cluster.until(gang.pods, lambda listed: not any(map(held, listed["items"])), what="no pod is held")
    await gang.until_unused()
    return life


async def kill_one(gang: Gang, running: dict[str, str]) -> dict[str, str]:
    """Delete a member that runs; returns the members when three run again."""
    name = min(running)
    await gang.delete(name)

    def is_going(listed: Object) -> bool:
        return running[name] not in goes_on(listed).values()

    await gang.cluster.until(gang.pods, is_going, what=f"{name} is on its way")
    await gang.join(3)
    found = await gang.until_members(but=frozenset({running[name]}))
    await gang.until_state(1)
    return found
