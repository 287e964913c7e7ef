"""PodGroups of other projects, end to end: a quorum that starts together, the status of the object, and its life."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.api.crd_files import crd_folder
from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from kqueue.sandbox import Sandbox, SandboxOptions
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import RACK_LABEL
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import Object, make_road
from tests.integration.test_pods import PARTS, Pods, gates, held

pytestmark = pytest.mark.slow

Plane = ControlPlane | SandboxPlane
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True)
class Form:
    """One project's form of PodGroup."""

    framework: str
    api_version: str
    phases: tuple[str, str, str]
    """Its words for a gang that waits, that was released, and that runs."""
    done: str = "Finished"

    def marks(self, group: str) -> dict[str, dict[str, str]]:
        """Labels and annotations of a member."""
        if self.framework == "scheduling.k8s.io/podgroup":
            return {}
        if "volcano" in self.framework:
            return {"annotations": {"scheduling.k8s.io/group-name": group}}
        return {"labels": {"scheduling.x-k8s.io/pod-group": group}}


X_K8S = Form(
    "scheduling.x-k8s.io/podgroup", "scheduling.x-k8s.io/v1alpha1", ("Pending", "Scheduling", "Running"), "Finished"
)
VOLCANO = Form(
    "scheduling.volcano.sh/podgroup",
    "scheduling.volcano.sh/v1beta1",
    ("Pending", "Inqueue", "Running"),
    "Completed",
)
either_form = pytest.mark.parametrize("form", [X_K8S, VOLCANO], ids=["coscheduling", "volcano"])


def definition(form: Form) -> Object:
    """A reduced definition of Volcano's kind, for tests."""
    group, version = form.api_version.split("/")
    names = {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup", "listKind": "PodGroupList"}
    schema = {"type": "object", "properties": {"spec": _LOOSE, "status": _LOOSE}}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
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


class Groups(Pods):
    """One tenant whose pods are in PodGroups."""

    form: Form = X_K8S

    @property
    def groups(self) -> str:
        return f"/apis/{self.form.api_version}/namespaces/{self.namespace}/podgroups"

    async def create_group_object(self, name: str, *, minimum: int, **spec: object) -> Object:
        """Make a PodGroup."""
        made = {
            "apiVersion": self.form.api_version,
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {"minMember": minimum, **spec},
        }
        return await self.cluster.request("POST", self.groups, made)

    async def add(
        self, group: str, *names: str, owner: Object | None = None, priority: str = "", **settings: Any
    ) -> None:
        """Make members of a PodGroup, with a controller and a PriorityClass."""
        for name in names:
            pod = self.made(name, **settings)
            if self.form is K8S:
                pod["spec"]["schedulingGroup"] = {"podGroupName": group}
            if owner is not None:
                pod["metadata"]["ownerReferences"] = [owner]
            if priority:
                pod["spec"]["priorityClassName"] = priority
            for part, marks in self.form.marks(group).items():
                pod["metadata"][part] |= marks
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

        def of(listed: Object) -> list[Object]:
            key = f"{self.form.framework}:{name}"
            return [w for w in listed["items"] if w["metadata"].get("annotations", {}).get("kqueue.dev/gang") == key]

        listed = await self.cluster.until(self.workloads, lambda found: bool(of(found)), what=f"Workload of {name}")
        return of(listed)[0]

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

    async def set_gpus(self, gpus: int) -> None:
        """Change the tenant's quota of GPUs."""
        await self.set_quota("nvidia.com/gpu", gpus)

    async def set_quota(self, name: str, amount: int) -> None:
        """Change the tenant's quota of a resource."""
        path = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
        for queue in (await self.cluster.get(path))["items"]:
            resources = queue["spec"]["resourceGroups"]
            for part in resources:
                for flavor in part["flavors"]:
                    for resource in flavor["resources"]:
                        if resource["name"] == name:
                            resource["nominalQuota"] = amount
            change = {"spec": {"resourceGroups": resources}}
            of_queue = f"{path}/{queue['metadata']['name']}"
            await self.cluster.request("PATCH", of_queue, change, content_type=MERGE_PATCH)


@asynccontextmanager
async def controller(plane: Plane, form: Form) -> AsyncIterator[None]:
    """A controller with its webhooks that takes PodGroups of one form."""
    text = f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [{form.framework}]}}
"""
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    timings = Timings(queue_flush_window=0.1, status_refresh_window=0.2)
    async with running(parse(text, source="test", own_namespace="kqueue-system"), flags, timings=timings) as process:
        await process.operator.ready.wait()
        yield


async def prepared(plane: Plane, form: Form, folder: Path, *, gpus: int) -> Groups:
    """A tenant with quota for so many GPUs, on a cluster that serves the kind."""
    if form is X_K8S:
        await plane.cluster.apply_crds(CRDS / "optional")
    else:
        (folder / "crds").mkdir()
        (folder / "crds" / "podgroups.yaml").write_text(yaml.safe_dump(definition(form)))
        await plane.cluster.apply_crds(folder / "crds")
    road = await make_road(plane.cluster, gpus=gpus)
    groups = Groups(plane.cluster, road.namespace)
    groups.form = form
    return groups


@pytest.mark.mechanism("4.1", "3.31")
@either_form
async def test_all_of_a_quorum_run_or_none(either_plane: Plane, form: Form, tmp_path: Path) -> None:
    """Row 4.1: with room for three of four no pod runs; with room for four all run, and a further pod is an extra."""
    groups = await prepared(either_plane, form, tmp_path, gpus=24)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=4)
        await groups.add("g", "g-0", "g-1", "g-2", "g-3")
        waits = await groups.until_phase("g", form.phases[0])
        workload = await groups.workload_of_group("g")
        held_back = [gates(await groups.pod(f"g-{i}")) for i in range(4)]
        await groups.set_gpus(40)
        await groups.until_running("g-0", "g-1", "g-2", "g-3")
        runs = await groups.until_phase("g", form.phases[2], running=4)
        await groups.add("g", "g-4")
        await groups.until_running("g-4")
        more = await groups.until_phase("g", form.phases[2], running=5)

    [owner] = workload["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["apiVersion"], owner["controller"]) == ("PodGroup", form.api_version, True)
    assert [pod_set["count"] for pod_set in workload["spec"]["podSets"]] == [4]
    assert held_back == [["admission", "topology"]] * 4
    assert waits.get("running", 0) == 0
    scheduled = [next(c for c in s["conditions"] if c["type"] == "Scheduled")["status"] for s in (waits, runs, more)]
    assert scheduled == ["False", "True", "True"]


@pytest.mark.mechanism("4.18")
@either_form
async def test_an_incomplete_group_holds_nothing_and_says_what_is_missing(
    either_plane: Plane, form: Form, tmp_path: Path
) -> None:
    """Rows 0.10, 0.11, 4.18: four of five wait without a Workload; the fifth starts all."""
    groups = await prepared(either_plane, form, tmp_path, gpus=40)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=5)
        await groups.add("g", *(f"g-{i}" for i in range(4)))
        message = await groups.until_event("g-0", "ErrWorkloadCompose")
        on_group = await groups.until_event("g", "ErrWorkloadCompose")
        listed = await groups.cluster.get(groups.workloads)
        await groups.add("g", "g-4")
        await groups.until_running(*(f"g-{i}" for i in range(5)))

    assert "the group has 4 of 5 pods; it waits for 1 more" in message
    assert on_group == message
    assert listed["items"] == []


async def test_a_waiting_group_follows_its_topology(either_plane: Plane, tmp_path: Path) -> None:
    """The level is added to Volcano's PodGroup when its Workload waits; the pods then run in one rack."""
    groups = await prepared(either_plane, VOLCANO, tmp_path, gpus=8)
    async with controller(either_plane, VOLCANO):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0", "g-1")
        before = await groups.workload_of_group("g")
        level = {"spec": {"networkTopology": {"mode": "hard", "highestTierName": RACK_LABEL}}}
        await groups.cluster.request("PATCH", f"{groups.groups}/g", level, content_type=MERGE_PATCH)

        def asks(workload: Object) -> bool:
            return bool(workload["spec"]["podSets"][0].get("topologyRequest", {}).get("required") == RACK_LABEL)

        path = f"{groups.workloads}/{before['metadata']['name']}"
        after = await groups.cluster.until(path, asks, what="the Workload asks for a rack")
        await groups.set_gpus(16)
        await groups.until_running("g-0", "g-1")
        racks = await groups.racks("g-0", "g-1")

    assert not asks(before)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["metadata"]["annotations"]["kqueue.dev/gang-topology"] == "together"
    assert len(racks) == 1


async def test_a_group_whose_controller_waits_for_room_gets_pods(either_plane: Plane, tmp_path: Path) -> None:
    """Volcano's Inqueue comes with the room, before any pod; the pods that are created then start together."""
    groups = await prepared(either_plane, VOLCANO, tmp_path, gpus=8)
    async with controller(either_plane, VOLCANO):
        least = {"nvidia.com/gpu": "16"}
        await groups.create_group_object("g", minimum=2, queue="main", minResources=least)
        await groups.until_phase("g", "Pending")
        await groups.set_gpus(16)
        await groups.until_phase("g", "Inqueue")
        listed = await groups.cluster.get(groups.workloads)
        await groups.add("g", "g-0", queue=None)
        await groups.until_event("g-0", "ErrWorkloadCompose")
        still = (await groups.cluster.get(f"{groups.groups}/g"))["status"]["phase"]
        await groups.add("g", "g-1", queue=None)
        await groups.until_running("g-0", "g-1")
        await groups.until_phase("g", "Running", running=2)

    assert listed["items"] == []
    assert still == "Inqueue"


@pytest.mark.mechanism("4.4")
@either_form
async def test_a_killed_member_is_replaced_alone_and_an_end_is_shown(
    either_plane: Plane, form: Form, tmp_path: Path
) -> None:
    """Rows 3.33, 4.4, 4.7: the others go on while one is killed and made anew; then all succeed."""
    groups = await prepared(either_plane, form, tmp_path, gpus=40)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0", "g-1")
        await groups.until_phase("g", form.phases[2], running=2)
        before = await groups.pod("g-0")
        await groups.delete("g-1")
        await groups.until_gone("g-1")
        await groups.add("g", "g-2")
        await groups.until_running("g-2")
        after = await groups.pod("g-0")
        await groups.until_phase("g", form.phases[2], running=2)

        await groups.create_group_object("short", minimum=2)
        await groups.add("short", "s-0", "s-1", seconds=1)
        ended = await groups.until_phase("short", form.done, succeeded=2)
        await groups.until_pod("s-0", lambda p: not held(p), what="is let go")

    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]
    assert ended.get("running", 0) == 0


@pytest.mark.mechanism("4.7")
@either_form
async def test_a_failed_member_makes_the_gang_fail_until_it_is_replaced(
    either_plane: Plane, form: Form, tmp_path: Path
) -> None:
    """Row 4.7: the phase follows a failed member of the quorum and its replacement, and no pod beyond the quorum."""
    groups = await prepared(either_plane, form, tmp_path, gpus=40)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0")
        await groups.add("g", "g-1", seconds=2, fails=True)
        failed = await groups.until_phase("g", "Failed" if form is X_K8S else "Unknown", running=1, failed=1)
        await groups.add("g", "g-2")
        again = await groups.until_phase("g", form.phases[2], running=2)
        await groups.add("g", "g-3", seconds=2, fails=True)
        await groups.until_pod("g-3", lambda p: p["status"].get("phase") == "Failed", what="fails beyond the quorum")
        beyond = await groups.until_phase("g", form.phases[2], running=2, failed=again.get("failed", 0) + 1)

    scheduled = [
        next(c for c in s["conditions"] if c["type"] == "Scheduled")["status"] for s in (failed, again, beyond)
    ]
    assert scheduled == ["False", "True", "True"]


@pytest.mark.mechanism("4.4", "4.5", "4.8")
@either_form
async def test_a_gang_outlives_a_restart_and_an_eviction_takes_it_whole(
    either_plane: Plane, form: Form, tmp_path: Path
) -> None:
    """Rows 4.5, 4.8: a new controller goes on where the old one ended, and a stopped queue evicts all members."""
    groups = await prepared(either_plane, form, tmp_path, gpus=40)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0")
        await groups.until_phase("g", form.phases[0])
    async with controller(either_plane, form):
        await groups.add("g", "g-1")
        await groups.until_phase("g", form.phases[2], running=2)
    async with controller(either_plane, form):
        await groups.until_phase("g", form.phases[2], running=2)
        await groups.deactivate("g")
        await groups.until_gone("g-0", "g-1")
        status = await groups.until_phase("g", form.phases[0], running=0)

    assert status["phase"] == "Pending"


@either_form
async def test_pods_outlive_their_group_object(either_plane: Plane, form: Form, tmp_path: Path) -> None:
    """A deleted PodGroup ends no pod: the pods run to their end, and its Workload holds the quota until then."""
    groups = await prepared(either_plane, form, tmp_path, gpus=16)
    async with controller(either_plane, form):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0", "g-1", seconds=4)
        await groups.until_running("g-0", "g-1")
        name = (await groups.workload_of_group("g"))["metadata"]["name"]
        await groups.cluster.request("DELETE", f"{groups.groups}/g")
        await groups.add("g", "g-2")
        told = await groups.until_event("g-2", "GangGone")
        still = await groups.cluster.get(f"{groups.workloads}/{name}")
        for pod in ("g-0", "g-1"):
            await groups.until_pod(pod, lambda p: p["status"].get("phase") == "Succeeded", what="runs to its end")
        await groups.cluster.until(
            groups.workloads,
            lambda listed: name not in {w["metadata"]["name"] for w in listed["items"]},
            what="the Workload is gone with the last pod",
        )

    assert told == "PodGroup g was deleted; make it anew, or delete this pod"
    assert still["status"]["admission"]


@pytest.mark.mechanism("4.2")
async def test_a_group_waits_until_its_least_resources_are_free(either_plane: Plane, tmp_path: Path) -> None:
    """Row 4.2: 10 cpu are asked and 9 are free; one more, and the group is released."""
    groups = await prepared(either_plane, X_K8S, tmp_path, gpus=40)
    await groups.set_quota("cpu", 10)
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("holder", minimum=1)
        await groups.add("holder", "h")
        await groups.until_running("h")
        await groups.create_group_object("driver", minimum=1, minResources={"cpu": "10"})
        await groups.add("driver", "d")
        told = await groups.until_waits("driver", "MinResources")
        held_back = gates(await groups.pod("d"))
        await groups.deactivate("holder")
        await groups.until_running("d")

    assert told.startswith(
        "MinResources asks for 10 cpu, 9 cpu is free of flavor gpu in ClusterQueue team, 1 cpu more needed"
    )
    assert "admission" in held_back


@pytest.mark.mechanism("4.2")
async def test_of_two_drivers_on_room_for_one_one_starts(either_plane: Plane, tmp_path: Path) -> None:
    """Row 4.2: a driver requests 1 of the 10 cpu that it needs free; the second starts when the first has gone."""
    groups = await prepared(either_plane, X_K8S, tmp_path, gpus=40)
    await groups.set_quota("cpu", 12)
    async with controller(either_plane, X_K8S):
        for name in ("a", "b"):
            await groups.create_group_object(name, minimum=1, minResources={"cpu": "10"})
            await groups.add(name, name)

        def runs(listed: Object) -> set[str]:
            return {p["metadata"]["name"] for p in listed["items"] if p["status"].get("phase") == "Running"}

        started = runs(await groups.cluster.until(groups.pods, lambda now: bool(runs(now)), what="one driver runs"))
        [other] = {"a", "b"} - started
        told = await groups.until_waits(other, "MinResources")
        held_back = gates(await groups.pod(other))
        await groups.deactivate(*started)
        await groups.until_running(other)

    assert told.startswith(
        "MinResources asks for 10 cpu, 2 cpu is free of flavor gpu in ClusterQueue team, 8 cpu more needed"
    )
    assert "admission" in held_back


@pytest.mark.mechanism("4.6")
async def test_a_label_joins_a_group_of_its_own_namespace(either_plane: Plane, tmp_path: Path) -> None:
    """A pod of another namespace with the same label is no member; the second pod of the namespace completes the group."""
    groups = await prepared(either_plane, X_K8S, tmp_path, gpus=40)
    foreign = await neighbour(groups)
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0")
        await foreign.add("g", "g-1")
        message = await groups.until_event("g-0", "ErrWorkloadCompose")
        missing = await foreign.until_event("g-1", "ErrWorkloadCompose")
        await groups.add("g", "g-2")
        await groups.until_running("g-0", "g-2")
        left = await foreign.pod("g-1")

    assert "the group has 1 of 2 pods" in message
    assert f"PodGroup g does not exist in namespace {foreign.namespace}" in missing
    assert "admission" in gates(left)


async def neighbour(groups: Groups) -> Groups:
    """Another namespace of the tenant."""
    namespace = await groups.cluster.create_namespace("road")
    api = "/apis/kueue.x-k8s.io/v1beta2"
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": namespace},
        "spec": {"clusterQueue": "team"},
    }
    await groups.cluster.request("POST", f"{api}/namespaces/{namespace}/localqueues", queue)
    return Groups(groups.cluster, namespace)


@pytest.mark.mechanism("4.9")
async def test_a_group_has_one_owner_at_a_time(either_plane: Plane, tmp_path: Path) -> None:
    """Pods of a second owner wait with a reason until the pods of the first one are gone."""
    groups = await prepared(either_plane, X_K8S, tmp_path, gpus=40)
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("g", minimum=1)
        first, second = [await owner(groups, name) for name in ("first", "second")]
        await groups.add("g", "a", owner=first)
        await groups.until_running("a")
        await groups.add("g", "b", owner=second)
        told = await groups.until_event("b", "PodGroupOccupied")
        status = await groups.until_phase("g", "Running", running=1)
        await groups.delete("a")
        await groups.until_running("b")
        after = await groups.until_phase("g", "Running", running=1)

    assert told == (
        f"PodGroup g is occupied by ConfigMap first ({first['uid']}); this pod belongs to ConfigMap second; "
        "use another PodGroup"
    )
    assert (status["occupiedBy"], after["occupiedBy"]) == (first["uid"], second["uid"])


async def owner(groups: Groups, name: str) -> Object:
    """Make an object that may control pods; returns the reference to it."""
    path = f"/api/v1/namespaces/{groups.namespace}/configmaps"
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": groups.namespace}}
    found = await groups.cluster.request("POST", path, made)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "uid": found["metadata"]["uid"],
        "controller": True,
    }


@pytest.mark.mechanism("0.3")
async def test_of_mixed_priorities_the_lowest_counts(either_plane: Plane, tmp_path: Path) -> None:
    """A user gains nothing by mixing: members above the lowest priority get an event, and the group goes on."""
    groups = await prepared(either_plane, X_K8S, tmp_path, gpus=40)
    for name, value in (("mixed-high", 10), ("mixed-low", 5)):
        made = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        await groups.cluster.request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {**made, "value": value})
    async with controller(either_plane, X_K8S):
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "high", priority="mixed-high")
        await groups.add("g", "low", priority="mixed-low")
        await groups.until_running("high", "low")
        told = await groups.until_event("high", "MixedPriorities")
        workload = await groups.workload_of_group("g")

    assert told == "priority 10 differs from 5 of pod low; the group counts with 5, the lowest"
    assert (workload["spec"]["priority"], workload["spec"]["priorityClassRef"]["name"]) == (5, "mixed-low")


# --- Kubernetes' own PodGroups

K8S = Form("scheduling.k8s.io/podgroup", "scheduling.k8s.io/v1alpha2", ("", "", ""))


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.controlplane)])
async def plane_with_groups(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Plane]:
    """A cluster that serves Kubernetes' own PodGroups: the real one with the gates of the feature."""
    if request.param == "real":
        gates_on = "--feature-gates=GenericWorkload=true"
        served = "--runtime-config=scheduling.k8s.io/v1alpha2=true"
        flags = {
            "kube-apiserver": [gates_on, served],
            "kube-scheduler": ["--feature-gates=GenericWorkload=true,GangScheduling=true"],
        }
        (tmp_path / "plane").mkdir()
        async with ControlPlane.start(tmp_path / "plane", parts=ALL_PARTS, crds=(CRDS,), flags=flags) as plane:
            yield plane
        return
    sandbox = Sandbox(SandboxOptions(crds=(crd_folder(),)))
    await sandbox.start()
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    try:
        plane_of_sandbox = SandboxPlane(tmp_path / "kubeconfig")
        (tmp_path / "kinds").mkdir()
        (tmp_path / "kinds" / "podgroups.yaml").write_text(yaml.safe_dump(definition(K8S)))
        await plane_of_sandbox.cluster.apply_crds(tmp_path / "kinds")
        yield plane_of_sandbox
    finally:
        await sandbox.stop()


async def test_pod_groups_of_kubernetes_start_together(plane_with_groups: Plane) -> None:
    """Rows 4.1, 4.18 for Kubernetes' own kind: kube-scheduler owns the status, events on the PodGroup tell its life."""
    road = await make_road(plane_with_groups.cluster, gpus=16)
    groups = Groups(plane_with_groups.cluster, road.namespace)
    groups.form = K8S
    async with controller(plane_with_groups, K8S):
        await groups.cluster.request("POST", groups.groups, kubernetes_group(groups.namespace, count=2))
        await groups.add("g", "g-0")
        told = await groups.until_event("g-0", "ErrWorkloadCompose")
        held_back = gates(await groups.pod("g-0"))
        await groups.add("g", "g-1")
        await groups.until_running("g-0", "g-1")
        await groups.add("g", "g-2")
        runs = await groups.until_event("g", "Running")
        released = await groups.until_event("g", "Scheduled")
        workload = await groups.workload_of_group("g")

    assert "the group has 1 of 2 pods" in told
    assert held_back == ["admission", "topology"]
    assert released == "2 pods were released together by ClusterQueue team"
    assert runs.endswith("; the quorum is 2")
    assert [o["apiVersion"] for o in workload["metadata"]["ownerReferences"]] == [K8S.api_version]


def kubernetes_group(namespace: str, *, count: int) -> Object:
    """A PodGroup of Kubernetes with the gang policy."""
    return {
        "apiVersion": K8S.api_version,
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": namespace},
        "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
    }
