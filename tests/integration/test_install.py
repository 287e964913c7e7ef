"""The chart on a real control plane: installed, used, upgraded and removed, under the rights that it gives.

Pods of the release run as processes with the arguments, the configuration and the ServiceAccounts of their manifests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.installed import rights
from tests.integration.installed.kubelet import Kubelet
from tests.integration.installed.release import NAMESPACE, HelmError, Release
from tests.integration.installed.rights import Right
from tests.integration.installed.services import ServiceNetwork, egress_file
from tests.integration.road import KUEUE, Road, job, make_road
from tests.integration.test_pods import Pods
from webhooks.configuration import KEPT_BY

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]

Object = dict[str, Any]
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/kueue-mutating-webhook-configuration"
VALIDATING = MUTATING.replace("mutating", "validating")
OUR_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
CLUSTER_ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
STAY = {
    "v1beta2.kueue.x-k8s.io",
    "v1beta1.kueue.x-k8s.io",
    "v1alpha1.kqueue.dev",
    "kueue-batch-admin-role",
    "kueue-batch-user-role",
}
"""APIs of definitions that stay, and roles that would come back by themselves."""
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"


@dataclass(slots=True)
class Site:
    """A cluster, the chart's release on it, and what runs of it."""

    plane: ControlPlane
    release: Release
    kubelet: Kubelet
    network: ServiceNetwork
    folder: Path

    @property
    def cluster(self) -> Cluster:
        """The administrator's way in."""
        return self.plane.cluster

    def asked(self) -> list[rights.Asked]:
        """What our processes asked for so far."""
        return rights.asked(self.folder, NAMESPACE)


@asynccontextmanager
async def site(*, jobsets: bool = True) -> AsyncIterator[Site]:
    """A control plane of its own: its API server writes down who asks for what, and reaches Services by a proxy.

    `jobsets`: whether the definition of JobSets is installed.
    """
    with tempfile.TemporaryDirectory(prefix="kq-") as short:  # a socket's path may have 107 characters
        folder = Path(short)
        socket = folder / "cluster.sock"
        flags = [
            *rights.flags(folder, NAMESPACE),
            f"--egress-selector-config-file={egress_file(folder, socket)}",
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",  # as some distributions have it
        ]
        (folder / "plane").mkdir()
        (folder / "pods").mkdir()
        started = ControlPlane.start(
            folder / "plane",
            parts=ALL_PARTS,
            crds=[SIMULATED] if jobsets else [],
            flags={"kube-apiserver": flags},
        )
        async with started as plane:
            kubelet = Kubelet(plane, NAMESPACE, folder / "pods")
            network = ServiceNetwork(plane.cluster, kubelet.backends)
            there = Site(plane, Release(plane.kubeconfig, folder), kubelet, network, folder)
            try:
                async with network.serving(socket), kubelet.running():
                    yield there
            except Exception as e:  # whatever it was: what was forbidden says why
                e.add_note("\n".join(["forbidden:", *rights.refused(there.asked()), kubelet.logs()]))
                raise


async def submit(road: Road, name: str, **settings: Any) -> Object:
    """A Job as a user writes it: not suspended."""
    made = job(name, road.namespace, **settings)
    made["spec"]["suspend"] = False
    return await road.cluster.request("POST", road.jobs, made)


async def submitted_at_last(road: Road, name: str, **settings: Any) -> Object:
    """Without webhooks, as soon as the API server has heard that there are none."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(RequestError):
                return await submit(road, name, **settings)
            await asyncio.sleep(0.2)


async def upgraded_to(there: Site, configuration: Object) -> None:
    """Another configuration, and nobody left who has the old one."""
    old = set(there.kubelet.pods)
    await there.release.upgrade({"configuration": configuration})
    await there.cluster.until(OUR_PODS, lambda found: not old & names(found), what="all pods are new ones", seconds=180)
    await there.kubelet.until_ready(controller=2, webhook=2)


OWNERS = {
    *("appwrappers", "deployments", "jobs", "jobsets", "leaderworkersets", "replicasets", "statefulsets"),
    *("jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "trainjobs", "xgboostjobs", "pods"),
    *("rayclusters", "rayjobs", "rayservices", "sparkapplications"),
}
KEPT_UNUSED: list[tuple[str, Callable[[Right], bool]]] = [
    ("owners of jobs are looked up, of whatever kind", lambda r: r.verb == "get" and r.resource in OWNERS),
    ("an API server that does not begin a watch with what there is, is asked for a list first",
     lambda r: r.verb == "list" and r.account != "kqueue-uninstall"),
    ("read again when somebody else wrote at the same time", lambda r: r.verb == "get" and "kueue.x-k8s.io" in r.group),
    ("the like, and configurations of somebody else", lambda r: r.account == "kqueue-uninstall" and r.verb == "get"),
    ("asked for by the API server itself, when a Workload of the job is made",
     lambda r: r.resource in ("jobs/finalizers", "pods/finalizers", "podgroups/finalizers") and r.verb == "update"),
    ("read again before a gang ends for the lack of its group object",
     lambda r: (r.resource, r.verb) == ("podgroups", "get")),
    ("written when a workload has finished, and seconds have passed",
     lambda r: r.resource == "configmaps" and r.account != "kqueue-uninstall" and r.verb in ("create", "patch")),
    ("certificates are renewed after months", lambda r: (r.resource, r.verb) == ("secrets", "patch")),
    ("the same event again, ten seconds later", lambda r: (r.resource, r.verb) == ("events", "patch")),
    ("finalizers are taken off AdmissionChecks, and gates off templates of suspended Jobs, where there are any",
     lambda r: r.account == "kqueue-uninstall" and r.resource in ("admissionchecks", "cohorts", "localqueues", "jobs", "jobsets")
     and r.verb == "patch"),
    ("a finalizer is put on AdmissionChecks, where there are any",
     lambda r: (r.resource, r.verb) == ("admissionchecks", "patch")),
    ("an AdmissionCheck without its controller gets a condition",
     lambda r: (r.resource, r.verb) == ("admissionchecks/status", "patch")),
    ("nodes are requested where a ClusterQueue has a provisioning check",
     lambda r: r.resource in ("provisioningrequests", "podtemplates") and r.verb in ("get", "create", "patch", "delete")),
    ("pods that run without quota are ended", lambda r: (r.resource, r.verb) == ("pods", "delete")),
    ("shown with fair sharing, and taken off without", lambda r: (r.resource, r.verb) == ("cohorts/status", "patch")),
    ("where managedJobsNamespaceSelector asks for labels", lambda r: (r.resource, r.verb) == ("namespaces", "get")),
    ("left behind by a controller outside of the cluster that was killed",
     lambda r: r.account == "kqueue-uninstall" and (r.resource, r.verb) == ("apiservices", "delete")),
    ("objects that may be stored in v1beta1 are stored anew, where there are any",
     lambda r: r.account == "kqueue-uninstall" and r.resource in ("multikueueclusters", "customresourcedefinitions/status")),
    ("Reservations get a status, and are deleted after their time, where there are any",
     lambda r: r.resource.partition("/")[0] == "reservations" and r.verb in ("get", "patch", "delete")),
    ("pods that fail because of us are told why", lambda r: (r.resource, r.verb) == ("pods/status", "patch")),
]  # fmt: skip
"""Rights that the story below does not need, and why the chart gives them all the same."""


async def test_the_chart_gives_every_right_that_is_needed_and_none_without_a_reason() -> None:
    """From the installation to the removal nothing is forbidden; what was never used is told.

    The defaults queue JobSets, too: that their definition is not installed keeps nobody from starting.
    """
    async with site(jobsets=False) as there:
        await there.cluster.add_nodes((1, 1, 1), prefix="system")
        refused = await refused_beside_kueue(there)
        frameworks = ["batch/job", "pod", "scheduling.x-k8s.io/podgroup"]
        chosen = {"configuration": {"integrations": {"frameworks": frameworks}}, "crds": {"podGroup": True}}
        await there.release.install(chosen)
        await there.kubelet.until_ready(controller=2, webhook=2)
        tested = await there.release.helm("test", "kqueue", "--timeout", "90s")
        manifests = await there.release.manifests()
        road = await make_road(there.cluster, shape=(1, 2, 4))
        created = await submit(road, "gang", pods=4, run_seconds=2)
        await road.until_complete("gang")
        racks = await road.racks_of("gang")
        healthy = await doctor(there, "--namespace", road.namespace, "--queue", "main", "--request", "nvidia.com/gpu=1")
        await ask_for_everything(there, Pods(road.cluster, road.namespace))
        before = len(there.asked())
        await upgraded_to(there, {})
        upgraded = len(there.asked())
        taken = rights.granted(manifests) - rights.granted(await there.release.manifests())
        held = await held_by_default(there.cluster)
        removed = len(there.asked())
        await there.release.uninstall()
        requests = there.asked()
    # helm takes rights and webhooks away before the pods that used them end: their last requests may be forbidden
    judged = [
        each
        for at, each in enumerate(requests)
        if not (before <= at < upgraded and each.right in taken)
        and not (at >= removed and each.right.account != "kqueue-uninstall")
    ]
    unused = rights.unused(rights.granted(manifests), requests)
    unexplained = sorted(str(right) for right in unused if not any(fits(right) for _why, fits in KEPT_UNUSED))

    assert "Kueue runs: Deployment kueue-system/kueue-controller-manager" in refused
    assert held == {"Pod", "Deployment", "StatefulSet"}
    assert "Phase:          Succeeded" in tested
    assert created["spec"]["suspend"] is True
    assert len(racks) == 1
    assert healthy[0] == 0, healthy[1]
    assert {right.resource.partition("/")[0] for right in taken} == {"podgroups"}
    assert rights.refused(judged) == []
    assert unexplained == []
    assert there.kubelet.crashed == []
    assert len([port for service, port in there.network.asked if service == "kueue-webhook-service"]) >= 2


async def held_by_default(cluster: Cluster) -> set[str]:
    """Kinds of labelled objects that are held in a namespace of users; those of kube-system are left alone."""
    labels, app = {"kueue.x-k8s.io/queue-name": "main"}, {"app": "served"}
    pod_spec = {"containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": app}, "spec": pod_spec}
    spec = {"selector": {"matchLabels": app}, "template": template}
    made: dict[str, tuple[str, Object]] = {
        "Pod": ("/api/v1/namespaces/{}/pods", pod_spec),
        "Deployment": ("/apis/apps/v1/namespaces/{}/deployments", spec),
        "StatefulSet": ("/apis/apps/v1/namespaces/{}/statefulsets", {**spec, "serviceName": "served"}),
    }

    async def is_held(kind: str, namespace: str) -> bool:
        path, wanted = made[kind]
        body = {"metadata": {"name": "served", "labels": labels}, "spec": wanted}
        answered = await cluster.request("POST", f"{path.format(namespace)}?dryRun=All", body)
        gates = answered["spec"].get("schedulingGates")
        notes = answered["spec"].get("template", {}).get("metadata", {}).get("annotations") or {}
        return bool(gates) or "kueue.x-k8s.io/pod-suspending-parent" in notes

    await cluster.until(
        MUTATING, lambda found: "mstatefulset.kb.io" in names_of_hooks(found), what="webhooks are there"
    )
    namespace = await cluster.create_namespace()
    async with asyncio.timeout(30):
        while not all([await is_held(kind, namespace) for kind in made]):  # the API server hears of webhooks by a watch
            await asyncio.sleep(0.2)
    assert not any([await is_held(kind, "kube-system") for kind in made])
    return set(made)


def names_of_hooks(configuration: Object) -> set[str]:
    """Of a webhook configuration."""
    return {hook["name"] for hook in configuration.get("webhooks") or ()}


async def refused_beside_kueue(there: Site) -> str:
    """What the preflight says while Kueue runs; nothing has been installed, and Kueue is stopped afterwards."""
    labels = {"app": "kueue"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "i"}]}}
    kueue = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kueue-controller-manager", "namespace": NAMESPACE},
        "spec": {"replicas": 1, "paused": True, "selector": {"matchLabels": labels}, "template": template},
    }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    await there.cluster.request("POST", "/api/v1/namespaces", namespace)
    deployments = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    await there.cluster.request("POST", deployments, kueue)
    with pytest.raises(HelmError, match=r"pre-install|preflight"):
        await there.release.install({})
    said = there.kubelet.logs()
    assert [o["metadata"]["name"] for o in (await there.cluster.get(deployments))["items"]] == [
        "kueue-controller-manager"
    ]
    await there.cluster.request("DELETE", f"{deployments}/kueue-controller-manager")
    await there.release.uninstall("--no-hooks")
    return said


async def doctor(there: Site, *arguments: str) -> tuple[int | None, str]:
    """`kqueue doctor` as an administrator runs it: exit code, and what it prints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "kqueue", "doctor", *arguments, "--kubeconfig", str(there.plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        out, _ = await process.communicate()
    return process.returncode, out.decode()


async def ask_for_everything(there: Site, pods: Pods) -> None:
    """What a cluster sees in its life: queues come and go, jobs are changed, pods are too many, people ask."""
    cluster, namespace = there.cluster, pods.namespace
    await submit(pods, "changed", pods=2, run_seconds=600)
    await pods.until_workload("changed", "Admitted")
    fewer = {"spec": {"parallelism": 1}}
    await cluster.request("PATCH", f"{pods.jobs}/changed", fewer, content_type=MERGE_PATCH)  # stopped, and queued anew
    for name in ("one", "another"):
        await pods.create(name, group="single", total=1)
    await cluster.until(pods.pods, lambda found: _of_group(found, "single") == 1, what="the excess pod is gone")
    await gang_of_a_group_object(cluster, pods)
    await default_queue(cluster, namespace)
    for kind, path in (("ClusterQueue", "clusterqueues"), ("ResourceFlavor", "resourceflavors")):
        await come_and_go(cluster, kind, f"{KUEUE}/{path}")
    asked = await cluster.get(f"{VISIBILITY}/clusterqueues/team/pendingworkloads")
    assert asked["kind"] == "PendingWorkloadsSummary"
    await ask_with_a_token(there)


async def gang_of_a_group_object(cluster: Cluster, pods: Pods) -> None:
    """The queue is looked up on the PodGroup, which owns the Workload and gets a status; its queue stays as it is."""
    group = "scheduling.x-k8s.io"
    made: Object = {"apiVersion": f"{group}/v1alpha1", "kind": "PodGroup", "spec": {"minMember": 2}}
    made["metadata"] = {"name": "pair", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    groups = f"/apis/{group}/v1alpha1/namespaces/{pods.namespace}/podgroups"
    await cluster.request("POST", groups, made)
    for name in ("pair-0", "pair-1"):
        await pods.create(name, queue=None, gpus=1, labels={f"{group}/pod-group": "pair"})
    await pods.until_running("pair-0", "pair-1")
    await cluster.until(f"{groups}/pair", lambda o: o.get("status", {}).get("phase") == "Running", what="it runs")
    moved = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}
    with pytest.raises(RequestError, match="while quota is reserved"):
        await cluster.request("PATCH", f"{groups}/pair", moved, content_type=MERGE_PATCH)


async def come_and_go(cluster: Cluster, kind: str, collection: str) -> None:
    """An object that nobody uses: it gets our finalizer, is deleted, and may go."""
    made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": "spare"}, "spec": {}}
    await cluster.request("POST", collection, made)
    spare = f"{collection}/spare"
    await cluster.until(spare, lambda o: bool(o["metadata"].get("finalizers")), what=f"the {kind} is kept")
    await cluster.request("DELETE", spare)
    await cluster.until(collection, lambda found: "spare" not in names(found), what=f"the {kind} may go")


def _of_group(found: Object, group: str) -> int:
    key = "kueue.x-k8s.io/pod-group-name"
    return sum(pod["metadata"].get("annotations", {}).get(key) == group for pod in found["items"])


async def default_queue(cluster: Cluster, namespace: str) -> None:
    """Its namespace opts in: a Job that names no queue gets this one, and one that another Job owns does not."""
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "team"}}
    queue["metadata"] = {"name": "default", "namespace": namespace}
    await cluster.request("POST", f"{KUEUE}/namespaces/{namespace}/localqueues", queue)
    await cluster.until(MUTATING, lambda found: namespace in json.dumps(found), what="the namespace is sent")
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made = job("plain", namespace, pods=1, run_seconds=1)
    made["metadata"]["labels"] = {}
    async with asyncio.timeout(30):
        while True:  # the API server hears of it by a watch
            plain = await cluster.request("POST", jobs, made)
            if plain["metadata"].get("labels"):
                break
            made["metadata"]["name"] += "-x"
            await asyncio.sleep(0.1)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": plain["metadata"]["name"], "controller": True}
    owner["uid"] = plain["metadata"]["uid"]
    child = job("child", namespace, pods=1, run_seconds=1)
    child["metadata"]["ownerReferences"] = [owner]
    await cluster.request("POST", jobs, child)


async def ask_with_a_token(there: Site) -> None:
    """As Prometheus reads metrics; its token opens nothing else."""
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kqueue-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "namespace": NAMESPACE, "name": "default"}],
    }
    await there.cluster.request("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    headers = {"Authorization": f"Bearer {await there.kubelet.token('default')}"}
    pending = f"{VISIBILITY}/clusterqueues/team/pendingworkloads"
    controller, webhook = there.kubelet.ready("controller")[0].ports, there.kubelet.ready("webhook")[0].ports
    async with aiohttp.ClientSession(headers=headers) as session:
        for port, path, status in (
            (controller["metrics"], "/metrics", 200),
            (webhook["metrics"], "/metrics", 200),
            (controller["visibility"], pending, 403),
        ):
            async with session.get(f"https://127.0.0.1:{port}{path}", ssl=False) as answer:
                assert (path, answer.status) == (path, status)


async def test_a_running_gang_outlives_upgrade_removal_and_return_and_nothing_stays_gated() -> None:
    """Its pods are the same throughout; what waited is let go; who comes back counts what runs."""
    pods_too = {"integrations": {"frameworks": ["batch/job", "pod"]}}
    async with site() as there:
        cluster = there.cluster
        await cluster.add_nodes((1, 1, 1), prefix="system")
        await made_by_an_earlier_release(cluster)
        await there.release.install({"configuration": pods_too})
        await there.kubelet.until_ready(controller=2, webhook=2)
        road = await make_road(cluster, shape=(1, 2, 4))
        pods = Pods(cluster, road.namespace)
        await submit(road, "long", pods=4, run_seconds=900)
        await pods.create("held", gpus=8 * 64)
        before = await pods_of(road, "long", running=4)

        await upgraded_to(there, {**pods_too, "metrics": {"enableClusterQueueResources": True}})
        await submit(road, "after", pods=4, run_seconds=1)
        await road.until_complete("after")
        upgraded = await pods_of(road, "long", running=4)
        gated = (await pods.pod("held"))["spec"].get("schedulingGates")

        await there.release.uninstall()
        removed = await pods_of(road, "long", running=4)
        left = await leftovers(there, road)
        stranger = await submitted_at_last(road, "stranger", pods=1, run_seconds=1)

        await there.release.install({"configuration": pods_too})
        await there.kubelet.until_ready(controller=2, webhook=2)
        await cluster.until(
            f"{KUEUE}/clusterqueues/team",
            lambda q: q["status"].get("admittedWorkloads") == 1 and bool(q["metadata"].get("finalizers")),
            what="what runs is counted again",
        )
        returned = await pods_of(road, "long", running=4)
        registered = await cluster.get(MUTATING)

        there.kubelet.without_image.add("uninstall")
        with pytest.raises(HelmError, match=r"timed out|deadline"):
            await there.release.uninstall("--timeout", "5s")
        still = await there.release.helm("status", "kqueue")
        await there.kubelet.until_ready(controller=2, webhook=2)
        await there.release.uninstall("--no-hooks")
        at_last = await pods_of(road, "long", running=4)

    assert before == upgraded == removed == returned == at_last
    assert {gate["name"] for gate in gated or ()} == {"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"}
    assert left == []
    assert (registered["metadata"]["labels"][KEPT_BY], bool(registered["webhooks"])) == ("kqueue", True)
    assert stranger["spec"]["suspend"] is False
    assert "STATUS: uninstalling" in still
    assert there.kubelet.crashed == []


async def made_by_an_earlier_release(cluster: Cluster) -> None:
    """Its webhooks created the configurations themselves, so Helm does not know them and must leave them alone."""
    for kind, path in (("MutatingWebhookConfiguration", MUTATING), ("ValidatingWebhookConfiguration", VALIDATING)):
        collection, _, name = path.rpartition("/")
        metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": "kqueue"}}
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata}
        await cluster.request("POST", collection, body)


async def pods_of(road: Road, name: str, *, running: int) -> dict[str, str]:
    """Names and UIDs of a Job's pods, when so many of them run."""

    def all_run(found: Object) -> bool:
        return [p["status"].get("phase") for p in found["items"]].count("Running") == running

    selected = f"{road.pods}?labelSelector=batch.kubernetes.io/job-name%3D{name}"
    found = await road.cluster.until(selected, all_run, what=f"{running} pods of {name} run")
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in found["items"]}


def names(found: Object) -> set[str]:
    """Of all objects of a list."""
    return {obj["metadata"]["name"] for obj in found["items"]}


async def leftovers(there: Site, road: Road) -> list[str]:
    """What is still there, and should not be: gates, finalizers, and what leads to nobody."""
    cluster, found = there.cluster, []
    for pod in (await cluster.get(road.pods))["items"]:
        if pod["spec"].get("schedulingGates"):
            found.append(f"gated: {pod['metadata']['name']}")
    for path in (road.pods, road.workloads, *(f"{KUEUE}/{kind}" for kind in ("clusterqueues", "resourceflavors"))):
        for obj in (await cluster.get(path))["items"]:
            if any("kueue" in finalizer for finalizer in obj["metadata"].get("finalizers", ())):
                found.append(f"held: {path} {obj['metadata']['name']}")
    if names(await cluster.get(f"{KUEUE}/clusterqueues")) != {"team"}:
        found.append("lost: ClusterQueue team")
    for path in (MUTATING, f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", API_SERVICES, CLUSTER_ROLES):
        if await cluster.exists(path):
            listed = await cluster.get(path)
            present = names({"items": listed.get("items", [listed])}) - STAY
            found += [f"left: {path} {name}" for name in present if re.search("kueue|kqueue", name)]
    return found
