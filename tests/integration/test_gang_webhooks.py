"""Webhooks of gangs, end to end: manifests without any mark of kqueue, strangers, and other writers of the pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from kqueue.observe import Metrics
from kqueue.runtime.transport import RequestRecord
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane.access import APPLY_PATCH, MERGE_PATCH, RequestError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, job, make_road
from tests.integration.test_attacks import attacked
from tests.integration.test_pods import PARTS, Pods, gates
from tests.unit.sandbox.test_admission import Webhook, patching, served

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
GANG = {NAME: "nginx", QUORUM: "2"}
PODGROUP = "scheduling.x-k8s.io/pod-group"
LONGEST = "kqueue.dev/max-schedule-time-seconds"
QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
integrations:
  frameworks:
  - batch/job
  - kqueue.dev/coscheduling-labels
  - scheduling.x-k8s.io/podgroup
  - scheduling.volcano.sh/podgroup
  - scheduling.k8s.io/podgroup
gangs: {takeOverSchedulers: [coscheduling]}
managedJobsNamespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kqueue-system]}
  - {key: strangers, operator: DoesNotExist}
"""


@asynccontextmanager
async def world(plane: Plane, *, asked: list[RequestRecord] | None = None) -> AsyncIterator[Pods]:
    """A tenant with quota for four pods, and a controller with its webhooks; `asked`: kqueue's requests."""
    await plane.cluster.apply_crds(CRDS / "optional")
    road = await make_road(plane.cluster, gpus=32)
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(CONFIGURATION, source="test", own_namespace="kqueue-system")
    on_request = None if asked is None else asked.append
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1), on_request=on_request) as process:
        await process.operator.ready.wait()
        yield Pods(plane.cluster, road.namespace)


@pytest.fixture
def reviews(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of all reviews."""
    seen: list[str] = []
    counted = Metrics.webhook

    def webhook(self: Metrics, *, path: str, **more: Any) -> None:
        seen.append(path)
        counted(self, path=path, **more)

    monkeypatch.setattr(Metrics, "webhook", webhook)
    return seen


async def label_namespace(pods: Pods, value: str | None) -> None:
    """Name the queue of the namespace's gangs."""
    change = {"metadata": {"labels": {"kqueue.dev/gang-queue": value}}}
    await pods.cluster.request("PATCH", f"/api/v1/namespaces/{pods.namespace}", change, content_type=MERGE_PATCH)


def member(pods: Pods, name: str, **labels: str) -> Object:
    """A pod of a coscheduling manifest: no mark of kqueue, and the plugin's scheduler."""
    made = pods.made(name, queue=None, labels=labels or GANG)
    made["spec"]["schedulerName"] = "coscheduling"
    return made


async def refused(pods: Pods, method: str, path: str, body: Object, **more: Any) -> str:
    """The words of the refusal."""
    with pytest.raises(RequestError) as caught:
        await pods.cluster.request(method, path, body, **more)
    return caught.value.message


@pytest.mark.proves("gang by labels", "webhook defaults")
async def test_a_coscheduling_manifest_is_queued_by_a_label_of_its_namespace(
    either_plane: Plane, reviews: list[str]
) -> None:
    """G2.4, G2.11, G2.15: unchanged pods are gated, start together, and are bound by the default scheduler; before the
    namespace had the label they were strangers and stay so."""
    async with world(either_plane) as pods:
        stranger = await pods.cluster.request("POST", pods.pods, member(pods, "early"))
        await label_namespace(pods, "main")
        await _until_queued(pods)
        first = await pods.cluster.request("POST", pods.pods, member(pods, "p-0"))
        again = await pods.pod("p-0")
        await pods.cluster.request("POST", pods.pods, member(pods, "p-1"))
        await pods.until_running("p-0", "p-1")
        late = await pods.pod("early")

    assert (gates(stranger), stranger["spec"]["schedulerName"]) == ([], "coscheduling")
    assert (first["metadata"]["labels"][QUEUE], first["spec"]["schedulerName"]) == ("main", "default-scheduler")
    assert gates(first) == gates(again) == ["admission", "topology"]
    assert first["metadata"]["labels"].items() >= GANG.items()
    assert MANAGED not in late["metadata"]["labels"]
    assert late["metadata"].get("finalizers") is None


async def tried(pods: Pods, obj: Object) -> Object:
    """The object as it would be created."""
    path = pods.pods if obj["kind"] == "Pod" else pods.jobs
    return await pods.cluster.request("POST", f"{path}?dryRun=All", obj)


async def _until_queued(pods: Pods) -> None:
    """Wait until new gangs are queued: the answer about a namespace is kept for seconds."""
    async with asyncio.timeout(30):
        while not gates(await tried(pods, member(pods, "probe", **{NAME: "probe", QUORUM: "9"}))):
            await asyncio.sleep(0.05)


@pytest.mark.proves("PodGroup", "webhook defaults")
@pytest.mark.proves("Volcano PodGroup", "webhook defaults")
async def test_the_default_queue_serves_gangs_of_all_forms(either_plane: Plane) -> None:
    """G2.4, G2.13, G2.17: each pod by the entry of its dialect, and a Job by the common one; a pod in no gang is left
    alone."""
    async with world(either_plane) as pods:
        queue = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "default", "namespace": pods.namespace},
            "spec": {"clusterQueue": "team"},
        }
        await pods.cluster.request("POST", f"{KUEUE}/namespaces/{pods.namespace}/localqueues", queue)
        await _until_queued(pods)
        volcano = member(pods, "volcano", app="x")
        volcano["metadata"]["annotations"]["scheduling.k8s.io/group-name"] = "g"
        unlabelled = job("j", pods.namespace, pods=1, required=None)
        del unlabelled["metadata"]["labels"]
        members = [await tried(pods, obj) for obj in (volcano, member(pods, "p", **{PODGROUP: "g"}))]
        plain = await tried(pods, member(pods, "plain", app="x"))
        queued = await tried(pods, unlabelled)

    assert [gates(pod) for pod in (*members, plain)] == [["admission", "topology"]] * 2 + [[]]
    for obj in (*members, queued):
        assert obj["metadata"]["labels"][QUEUE] == "default"
    assert queued["spec"]["suspend"] is True


@pytest.mark.proves("PodGroup", "webhook defaults")
@pytest.mark.proves("PodGroup", "webhook validation")
async def test_a_queue_on_the_group_object_is_enough(either_plane: Plane) -> None:
    """G2.4, G2.10, G2.14: the pods of one group cost one look-up of it."""
    asked: list[RequestRecord] = []
    async with world(either_plane, asked=asked) as pods:
        group: Object = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "nginx", "namespace": pods.namespace, "labels": {QUEUE: "main"}},
            "spec": {"minMember": 3},
        }
        groups = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{pods.namespace}/podgroups"
        wrong = {**group, "metadata": {**group["metadata"], "annotations": {LONGEST: "soon"}}}
        said = await refused(pods, "POST", groups, wrong)
        await pods.cluster.request("POST", groups, group)
        made = [
            await pods.cluster.request("POST", pods.pods, member(pods, f"p-{i}", **{PODGROUP: "nginx"}))
            for i in range(3)
        ]
        await pods.until_running("p-0", "p-1", "p-2")
        moved = {"metadata": {"labels": {QUEUE: "other"}}}
        with pytest.raises(RequestError, match="cannot change from 'main' while quota is reserved"):
            await pods.cluster.request("PATCH", f"{groups}/nginx", moved, content_type=MERGE_PATCH)

    looked_up = [each for each in asked if (each.verb, each.resource) == ("get", "podgroups.scheduling.x-k8s.io")]
    assert "must be a whole number of seconds, 1 or more (found 'soon')" in said
    assert [pod["metadata"]["labels"][QUEUE] for pod in made] == ["main"] * 3
    assert len(looked_up) == 1


async def test_a_namespace_of_strangers_is_not_touched(either_plane: Plane, reviews: list[str]) -> None:
    """G2.8, G2.14: where nobody manages jobs no pod is shown to kqueue, and elsewhere no pod without a mark."""
    async with world(either_plane) as pods:
        namespace = await pods.cluster.create_namespace()
        left_out = {"metadata": {"labels": {"strangers": "yes"}}}
        await pods.cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", left_out, content_type=MERGE_PATCH)
        made = []
        for number, labels in enumerate((GANG, {PODGROUP: "g"})):
            obj = member(pods, f"p-{number}", **labels)
            obj["metadata"]["namespace"] = namespace
            made.append(await pods.cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", obj))
        reviews.clear()
        made.append(await pods.cluster.request("POST", pods.pods, member(pods, "plain", app="x")))
        seen = [path for path in reviews if "pod" in path]

    assert seen == []
    assert [gates(pod) for pod in made] == [[], [], []]
    assert [pod["spec"]["schedulerName"] for pod in made] == ["coscheduling"] * 3


def other_webhook(webhook: Webhook, **more: Any) -> Object:
    """Another project's mutating webhook for new pods, called after those of kqueue."""
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    made = webhook.configuration(rules=[rule], failurePolicy="Fail", **more)
    return made | {"metadata": {"name": "zz-other"}}


async def test_gates_of_another_webhook_stay_and_their_order_does_not_matter(either_plane: Plane) -> None:
    """kqueue removes its own gates alone, by name; the pod runs when the other gate is removed, too."""
    other = {"name": "other.example.com/gate"}
    admission, topology = ({"name": f"kueue.x-k8s.io/{name}"} for name in ("admission", "topology"))
    async with world(either_plane) as pods, served(Webhook()) as webhook:
        await label_namespace(pods, "main")
        webhook.answer = patching(
            {"op": "replace", "path": "/spec/schedulingGates", "value": [topology, other, admission]}
        )
        await pods.cluster.request("POST", MUTATING, other_webhook(webhook))
        made = [await pods.cluster.request("POST", pods.pods, member(pods, f"p-{i}")) for i in range(2)]
        for i in range(2):
            path = f"{pods.pods}/p-{i}"
            await pods.until_pod(f"p-{i}", lambda p: p["spec"].get("schedulingGates") == [other], what="is released")
            await pods.cluster.request("PATCH", path, {"spec": {"schedulingGates": None}}, content_type=MERGE_PATCH)
        await pods.until_running("p-0", "p-1")

    assert [gate["name"] for gate in made[0]["spec"]["schedulingGates"]] == [
        each["name"] for each in (topology, other, admission)
    ]


async def test_a_webhook_that_takes_the_labels_off_is_noticed(either_plane: Plane) -> None:
    """Such a pod would be gated for ever, because kqueue finds its pods by label: the webhook refuses the pod at once."""
    async with world(either_plane) as pods, served(Webhook()) as webhook:
        await label_namespace(pods, "main")
        webhook.answer = patching({"op": "replace", "path": "/metadata/labels", "value": GANG})
        await pods.cluster.request("POST", MUTATING, other_webhook(webhook))
        with pytest.raises(RequestError, match=r"is never removed without label kueue\.x-k8s\.io/managed"):
            await pods.cluster.request("POST", pods.pods, member(pods, "p-0"))


async def test_a_pod_that_its_user_applies_again_stays_queued(either_plane: Plane) -> None:
    """The user's manifest names neither labels, gates nor finalizers of kqueue; it owns none of them."""
    async with world(either_plane) as pods:
        await label_namespace(pods, "main")
        path = f"{pods.pods}/p-0?fieldManager=mine&force=true"
        manifest = member(pods, "p-0")
        del manifest["spec"]["schedulerName"]
        before = await pods.cluster.request("PATCH", path, manifest, content_type=APPLY_PATCH)
        manifest["metadata"]["annotations"]["note"] = "mine"
        after = await pods.cluster.request("PATCH", path, manifest, content_type=APPLY_PATCH)
        await pods.cluster.request("POST", pods.pods, member(pods, "p-1"))
        await pods.until_running("p-0", "p-1")
        running_on = await pods.cluster.request("PATCH", path, manifest, content_type=APPLY_PATCH)

    for pod in (before, after):
        assert gates(pod) == ["admission", "topology"]
    for pod in (before, after, running_on):
        assert pod["metadata"]["labels"].items() >= {QUEUE: "main", MANAGED: "true"}.items()
        assert pod["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
    assert after["metadata"]["annotations"]["note"] == "mine"


async def test_forged_marks_give_nothing(either_plane: Plane) -> None:
    """The label `managed` alone does not let a pod past its queue; the mark of extras, two groups, a group that changes
    and a group that is left are refused."""
    async with world(either_plane) as pods:
        await label_namespace(pods, "main")
        forged = member(pods, "forged", **GANG, **{MANAGED: "true"})
        extra, double = member(pods, "extra"), member(pods, "double", **GANG, **{PODGROUP: "other"})
        extra["metadata"]["annotations"]["kqueue.dev/extra"] = "true"
        made = await pods.cluster.request("POST", pods.pods, forged)
        said = [await refused(pods, "POST", pods.pods, obj) for obj in (extra, double)]
        for labels in ({NAME: "other"}, {NAME: None, QUORUM: None}, {MANAGED: None}):
            change = {"metadata": {"labels": labels}}
            said.append(await refused(pods, "PATCH", f"{pods.pods}/forged", change, content_type=MERGE_PATCH))

    assert gates(made) == ["admission", "topology"]
    assert made["metadata"]["labels"][QUEUE] == "main"
    for sentence, words in zip(
        said,
        (
            "is written by kqueue alone; take it out",
            "names two groups",
            "cannot change from 'nginx'; delete the pod and make another",
            "cannot change from 'nginx'; delete the pod and make another",
            "cannot be removed: the pod would run on without being counted",
        ),
        strict=True,
    ):
        assert words in sentence


async def test_a_mark_that_kqueue_did_not_write_starts_no_member_alone(either_plane: Plane) -> None:
    """A tenant's is refused; kqueue takes off that of an administrator, whom no webhook rule restricts."""
    text = "integrations: {frameworks: [batch/job, kqueue.dev/coscheduling-labels]}\n"
    labels = {QUEUE: "a", NAME: "g", QUORUM: "2"}
    async with attacked(either_plane, text) as tenant:
        cluster, path = tenant.road.cluster, f"{tenant.road.pods}/lonely"
        await tenant.request("POST", tenant.road.pods, tenant.pod("lonely", labels=labels))
        mark: Object = {"metadata": {"annotations": {"kqueue.dev/extra": "true"}}}
        said = await tenant.refused("PATCH", path, mark, content_type=MERGE_PATCH)
        await cluster.request("PATCH", path, mark, content_type=MERGE_PATCH)
        pod = await cluster.until(
            path, lambda p: "kqueue.dev/extra" not in p["metadata"]["annotations"], what="no mark"
        )
        made = await cluster.get(tenant.road.workloads)

    assert "metadata.annotations[kqueue.dev/extra]: is written by kqueue alone; take it out" in said
    assert gates(pod) == ["admission", "topology"]
    assert made["items"] == []


async def test_a_member_beyond_the_quorum_is_not_released_by_hand(either_plane: Plane) -> None:
    """Its tenant removes the gates while the Workload of the quorum is admitted: the pod ends, and the quorum runs."""
    text = "integrations: {frameworks: [batch/job, kqueue.dev/coscheduling-labels]}\n"
    labels = {QUEUE: "a", NAME: "g", QUORUM: "1"}
    async with attacked(either_plane, text) as tenant:
        pods = tenant.road.pods
        for name in ("quorum", "surplus"):
            await tenant.request("POST", pods, tenant.pod(name, labels=labels))
        cluster = tenant.road.cluster
        await cluster.until(f"{pods}/quorum", lambda p: p["status"].get("phase") == "Running", what="runs")
        free: Object = {"spec": {"schedulingGates": []}}
        await tenant.request("PATCH", f"{pods}/surplus", free, content_type=MERGE_PATCH)
        left = await cluster.until(pods, lambda listed: len(listed["items"]) == 1, what="one pod is left")

    assert [pod["metadata"]["name"] for pod in left["items"]] == ["quorum"]
    assert left["items"][0]["status"]["phase"] == "Running"
