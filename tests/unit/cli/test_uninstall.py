"""What is left behind when kqueue goes: told apart, and released whatever others do meanwhile."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kqueue.cli.app import run
from kqueue.clock import FakeClock
from kqueue.config.declared import DeclaredKind
from kqueue.controllers.leftovers import (
    Left,
    Leftover,
    Seen,
    of_batch_process,
    of_job,
    of_kind,
    of_object,
    of_pod,
    waiting_owners,
)
from kqueue.controllers.resources import CLUSTER_QUEUES, PODS, WORKLOADS
from kqueue.errors import ForbiddenError, GoneError, NotFoundError, UnreachableError
from kqueue.jobs import catalog
from kqueue.jobs.declared import Declared
from kqueue.manager.conversion import CONVERTED, DEFINITIONS, definition_of
from kqueue.operations.removal import release as releasing
from kqueue.operations.removal.conversion import conversions, store_anew
from kqueue.operations.removal.lease import holder_in
from kqueue.operations.removal.release import release
from kqueue.operations.removal.report import as_json, is_clean, lines
from kqueue.operations.removal.survey import API_SERVICES, Scope, still_registered, survey
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.sandbox import Sandbox

JSON = dict[str, Any]
P = "kueue.x-k8s.io/"
JOBS = ResourceType("batch", "v1", "jobs", "Job")
JOBSETS = ResourceType("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
MUTATING = ResourceType(
    "admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)


def seen(obj: JSON) -> Seen:
    metadata = {"name": "x", "namespace": "ns", "uid": "1", "resourceVersion": "7", **obj.get("metadata", {})}
    return msgspec.convert({**obj, "metadata": metadata}, Seen)


def owned(kind: str, api_version: str) -> list[JSON]:
    return [{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": True}]


def pod(*gates: str, finalizers: tuple[str, ...] = (), phase: str = "Pending", **metadata: Any) -> JSON:
    return {
        "metadata": {"finalizers": list(finalizers), **metadata},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]},
        "status": {"phase": phase},
    }


def of_parent(framework: str) -> JSON:
    """A pod of a StatefulSet; a kind that is queued through its pods has asked for its gate."""
    asked = {f"{P}pod-suspending-parent": framework}
    return pod(f"{P}admission", annotations=asked, ownerReferences=owned("StatefulSet", "apps/v1"))


@pytest.mark.parametrize(
    ("given", "gates", "finalizers", "integration"),
    [
        pytest.param(pod(f"{P}admission"), [], None, "pod", id="our admission gate is taken away"),
        pytest.param(pod("a", f"{P}topology", "b"), ["a", "b"], None, "pod", id="gates of others stay in their order"),
        pytest.param(pod(f"{P}elastic-job"), [], None, "pod", id="the gate of elastic jobs is ours"),
        pytest.param(pod(finalizers=("x/y", f"{P}managed")), None, ["x/y"], "pod", id="finalizers of others stay"),
        pytest.param(
            pod(f"{P}admission", finalizers=(f"{P}managed",), ownerReferences=owned("StatefulSet", "apps/v1")),
            [], [], "statefulset", id="both in one patch; a StatefulSet's pod is told from others",
        ),
        pytest.param(
            pod(f"{P}topology", ownerReferences=owned("Job", "batch/v1")), [], None, "batch/job", id="a Job's pod"
        ),
        pytest.param(
            pod(f"{P}topology", ownerReferences=owned("Job", "batch/v1"), labels={"jobset.sigs.k8s.io/jobset-name": "s"}),
            [], None, "jobset.x-k8s.io/jobset", id="a pod of a JobSet's Job is the JobSet's",
        ),
        pytest.param(
            pod(f"{P}admission", ownerReferences=owned("ReplicaSet", "apps/v1")), [], None, "deployment", id="Deployment"
        ),
        pytest.param(
            pod(f"{P}topology", ownerReferences=owned("Train", "a.b/v1")), [], None, "a.b/train", id="an owner of a declared kind"
        ),
        pytest.param(
            of_parent("leaderworkerset.x-k8s.io/leaderworkerset"), [], None, "leaderworkerset.x-k8s.io/leaderworkerset",
            id="StatefulSets make the pods of a LeaderWorkerSet",
        ),
        pytest.param(of_parent("a.b/unknown"), [], None, "statefulset", id="a parent of a kind that is not known"),
        pytest.param(of_parent("batch/job"), [], None, "statefulset", id="a parent of a kind that holds no pods"),
        pytest.param(
            pod(f"{P}admission", finalizers=(f"{P}managed",), deletionTimestamp="2026-01-01T00:00:00Z"),
            None, [], "pod", id="a gate on a pod that is going holds nobody",
        ),
    ],
)  # fmt: skip
def test_pods_are_released_of_what_is_ours(given: JSON, gates: Any, finalizers: Any, integration: str) -> None:
    found = of_pod(PODS, seen(given))
    assert found is not None

    patch = found.patch()
    assert patch["metadata"].pop("uid") == "1"
    assert patch["metadata"].pop("resourceVersion") == "7"
    assert patch["metadata"].get("finalizers") == finalizers
    assert patch.get("spec") == (None if gates is None else {"schedulingGates": [{"name": g} for g in gates]})
    assert (found.integration, found.left) == (integration, Left.HELD_POD)


@pytest.mark.parametrize(
    ("given", "leave_gated"),
    [
        pytest.param(pod("other/gate"), False, id="a stranger's gate"),
        pytest.param(pod(finalizers=("x/y",)), False, id="a stranger's finalizer"),
        pytest.param(pod(f"{P}admission", phase="Failed"), False, id="a gate on a pod that has ended"),
        pytest.param(pod(f"{P}admission"), True, id="a gate that is to stay"),
    ],
)
def test_other_pods_are_left_alone(given: JSON, leave_gated: bool) -> None:
    assert of_pod(PODS, seen(given), leave_gated=leave_gated) is None


def job(suspend: bool = False, gates: tuple[str, ...] = (), kind: str = "", over: str = "", **metadata: Any) -> JSON:
    template = {"spec": {"schedulingGates": [{"name": gate} for gate in gates]}}
    spec = {"replicatedJobs": [{"template": {"spec": {"template": template}}}]} if kind else {"template": template}
    conditions = [{"type": over, "status": "True"}] if over else []
    return {"metadata": metadata, "spec": {**spec, "suspend": suspend}, "status": {"conditions": conditions}}


QUEUED = {f"{P}queue-name": "main"}


@pytest.mark.parametrize(
    ("resource", "given", "waits", "left"),
    [
        pytest.param(JOBS, job(suspend=True, labels=QUEUED), False, Left.SUSPENDED, id="suspended in a queue"),
        pytest.param(
            JOBS, job(suspend=True, gates=(f"{P}elastic-job",)), False, Left.HELD_TEMPLATE, id="suspended, elastic"
        ),
        pytest.param(
            JOBSETS,
            job(suspend=True, gates=(f"{P}topology",), kind="s"),
            False,
            Left.GATED_TEMPLATE,
            id="a list of templates",
        ),
        pytest.param(JOBS, job(suspend=True), True, Left.SUSPENDED, id="suspended, with a Workload that waits"),
        pytest.param(JOBS, job(suspend=True), False, None, id="suspended by its user"),
        pytest.param(JOBS, job(labels=QUEUED), True, None, id="running without a gate"),
        pytest.param(JOBS, job(gates=(f"{P}topology",)), False, Left.GATED_TEMPLATE, id="its pods are born gated"),
        pytest.param(JOBSETS, job(gates=(f"{P}topology",), kind="s"), False, Left.GATED_TEMPLATE, id="so for JobSets"),
        pytest.param(JOBS, job(gates=("a/b",)), False, None, id="a stranger's gate in the template"),
        pytest.param(JOBS, job(gates=(f"{P}topology",), over="Complete"), False, None, id="a Job that is over"),
        pytest.param(
            JOBSETS, job(True, kind="s", over="Completed", labels=QUEUED), False, None, id="a JobSet that is over"
        ),
    ],
)
def test_jobs_are_told_and_never_started(resource: ResourceType, given: JSON, waits: bool, left: Left | None) -> None:
    found = of_job(resource, seen(given), waits_for_us=waits)

    assert [each.left for each in found] == ([] if left is None else [left])
    assert not any("suspend" in each.patch().get("spec", {}) for each in found)


async def test_a_suspended_job_loses_its_gate_and_stays_suspended(client: Client) -> None:
    """It is told as one that waits, before and after; gates of others stay."""
    container = {"name": "c", "image": "i"}
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "schedulingGates": [{"name": "x/y"}, {"name": f"{P}elastic-job"}],
    }
    metadata = {"name": "j", "namespace": "default", "labels": QUEUED}
    made = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "template": {"spec": spec}},
    }
    await client.create(JOBS, made)
    found = await survey(client, Scope())
    await client.patch(JOBS, "j", {"metadata": {"labels": {"a": "b"}}}, "default")
    outcome = await release(client, found)
    now = await client.get_json(JOBS, "j", "default")

    assert [each.left for each in found] == [Left.SUSPENDED, Left.HELD_TEMPLATE]
    assert (len(outcome.released), outcome.failed) == (1, [])
    assert now["spec"]["suspend"] is True
    assert now["spec"]["template"]["spec"]["schedulingGates"] == [{"name": "x/y"}]
    assert [each.left for each in await survey(client, Scope())] == [Left.SUSPENDED]


DECLARED = DeclaredKind.model_validate(
    {
        "apiVersion": "example.com/v1", "kind": "Train", "suspend": "spec.hold", "podSets": [{"template": "spec.engine"}],
        "succeeded": {"condition": "Arrived"}, "ready": {"count": "status.ready"},
    }
)  # fmt: skip
TRAINS = ResourceType("example.com", "v1", "trains", "Train")


def train(hold: bool, *gates: str, over: bool = False, **metadata: Any) -> JSON:
    engine = {"spec": {"schedulingGates": [{"name": gate} for gate in gates]}}
    conditions = [{"type": "Arrived", "status": "True"}] if over else []
    head = {"name": "ice", "namespace": "ns", "uid": "1", "resourceVersion": "7", **metadata}
    return {"metadata": head, "spec": {"hold": hold, "engine": engine}, "status": {"conditions": conditions}}


@pytest.mark.parametrize(
    ("given", "waits", "left"),
    [
        pytest.param(train(True, labels=QUEUED), False, [Left.SUSPENDED], id="held in a queue"),
        pytest.param(train(True), True, [Left.SUSPENDED], id="held, with a Workload that waits"),
        pytest.param(train(True), False, [], id="held by its user"),
        pytest.param(train(False, "x/y", f"{P}topology"), False, [Left.GATED_TEMPLATE], id="its pods are born gated"),
        pytest.param(train(False, "x/y"), False, [], id="a stranger's gate"),
        pytest.param(train(True, labels=QUEUED, over=True), False, [], id="one that is over"),
        pytest.param(
            train(True, labels=QUEUED, deletionTimestamp="2026-01-01T00:00:00Z"), False, [], id="one that goes"
        ),
    ],
)
@pytest.mark.proves("declared kind", "uninstall")
def test_declared_kinds_are_told_as_jobs_are(given: JSON, waits: bool, left: list[Left]) -> None:
    found = of_kind(TRAINS, given, Declared(DECLARED), waits_for_us=waits)

    assert [each.left for each in found] == left
    assert all((each.name, each.resource) == ("ice", TRAINS) for each in found)


async def test_declared_kinds_are_looked_for(client: Client) -> None:
    """Also where the cluster does not have the kind (yet, or any more)."""
    assert await survey(client, Scope(declared=(DECLARED,))) == []

    class Trains(Pages):
        async def list_json(self, resource: ResourceType, *_: Any, **__: Any) -> list[JSON]:
            return [train(True, labels=QUEUED)] if resource == TRAINS else []

    found = await survey(Trains([]), Scope(declared=(DECLARED,)))  # type: ignore[arg-type]
    assert [(each.name, each.left) for each in found] == [("ice", Left.SUSPENDED)]


async def test_kinds_of_the_catalogue_are_looked_for_as_their_adapters_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever their objects are shaped like."""
    adapter = Declared(DECLARED)
    monkeypatch.setitem(catalog._jobs, adapter.framework, adapter)

    class Trains(Pages):
        async def list_json(self, resource: ResourceType, *_: Any, **__: Any) -> list[JSON]:
            return [train(True, labels=QUEUED)] if resource == TRAINS else []

    found = await survey(Trains([]), Scope())  # type: ignore[arg-type]
    assert [(each.name, each.left, each.integration) for each in found] == [("ice", Left.SUSPENDED, adapter.framework)]


def test_only_live_workloads_make_a_job_wait() -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "j"}
    given: list[dict[str, Any]] = [
        {"metadata": {"ownerReferences": [{**reference, "uid": "waits"}]}},
        {"metadata": {"ownerReferences": [{**reference, "uid": "off"}]}, "spec": {"active": False}},
        {
            "metadata": {"ownerReferences": [{**reference, "uid": "over"}]},
            "status": {"conditions": [{"type": "Finished", "status": "True"}]},
        },
    ]
    assert waiting_owners(map(seen, given)) == {"waits"}


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([], True, id="nothing"),
        pytest.param([Left.SUSPENDED], True, id="suspended jobs stand in nobody's way"),
        pytest.param([Left.GATED_TEMPLATE], False, id="jobs that make gated pods do"),
        pytest.param([Left.OTHERS_WEBHOOKS], False, id="so do webhooks that others applied"),
    ],
)
def test_what_counts_as_left(counts: list[Left], expected: bool) -> None:
    found = [made(left) for left in counts]

    assert is_clean(found) is expected
    assert as_json(found, None)["clean"] is expected
    assert lines(found, None)[-1].startswith("nothing" if expected else "something")


def made(left: Left, number: int = 0) -> Leftover:
    return Leftover(left=left, resource=PODS, namespace="ns", name=f"p{number}", uid="1", version="1", ours=("g",))


def test_people_see_twenty_of_many() -> None:
    shown = lines([made(Left.HELD_POD, number) for number in range(25)], None)

    assert sum(line.startswith("  Pod ns/p") for line in shown) == 20
    assert "  and 5 more; -o json names all" in shown


# --- the lease


class Leases:
    """Answers with records one after the other; the last one for ever."""

    def __init__(self, *records: JSON | None) -> None:
        self._records = list(records)

    async def get_json(self, *_: Any, **__: Any) -> JSON:
        record = self._records.pop(0) if len(self._records) > 1 else self._records[0]
        if record is None:
            raise NotFoundError("none", status=404)
        return {"spec": record}


def held(renewed: str, by: str = "me", **more: Any) -> JSON:
    return {"holderIdentity": by, "renewTime": renewed, "leaseDurationSeconds": 15, **more}


@pytest.mark.parametrize(
    ("records", "holder", "seconds"),
    [
        pytest.param([None], "", 0, id="no Lease"),
        pytest.param([held("1", by="")], "", 0, id="given back"),
        pytest.param([held("1"), held("2")], "me", 1, id="renewed while we look"),
        pytest.param([held("1"), held("1"), held("9", by="you")], "you", 2, id="taken over while we look"),
        pytest.param([held("1"), held("", by="")], "", 1, id="given back while we look"),
        pytest.param([held("1")], "", 15, id="left by one who was killed, whatever clock it had"),
        pytest.param([held("1", leaseDurationSeconds=10**9)], "", 60, id="a Lease that claims centuries"),
    ],
)
async def test_somebody_leads_who_renews(records: list[JSON | None], holder: str, seconds: int) -> None:
    clock = FakeClock()
    began = clock.monotonic()
    asking = asyncio.create_task(holder_in(Leases(*records), "ns", "l", clock))  # type: ignore[arg-type]
    while not asking.done():
        await clock.advance(1.0)

    assert await asking == holder
    assert seconds <= clock.monotonic() - began <= seconds + 1


# --- on an API server


def on_server(name: str, *, gate: str = f"{P}admission", **more: Any) -> JSON:
    metadata = {"name": name, "namespace": "default", "finalizers": [f"{P}managed"], **more}
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": gate}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ClusterQueue",
    "metadata": {"name": "team", "finalizers": [f"{P}resource-in-use"]},
    "spec": {"namespaceSelector": {}},
}


def webhooks(name: str, label: bool, path: str = "/mutate--v1-pod") -> JSON:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "kqueue"} if label else {}},
        "webhooks": [
            {
                "name": "mpod.kb.io",
                "clientConfig": {"url": f"https://127.0.0.1:1{path}"},
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Ignore",
                "rules": [{"apiGroups": ["x"], "apiVersions": ["v1"], "resources": ["y"], "operations": ["CREATE"]}],
            }
        ],
    }


async def test_all_is_released_but_what_belongs_to_others(client: Client) -> None:
    """Webhooks first; a second call finds nothing more to do; what somebody else applied is told again."""
    await client.create(MUTATING, webhooks("ours", True))
    await client.create(MUTATING, webhooks("kueue-mutating-webhook-configuration", False))
    await client.create(MUTATING, webhooks("stranger", False))
    for number in range(40):
        await client.create(PODS, on_server(f"p{number}"))
    await client.create(CLUSTER_QUEUES, QUEUE)
    found = await survey(client, Scope())
    outcome = await release(client, found)
    again = await survey(client, Scope())
    pods = await client.list_json(PODS, "default")

    assert {leftover.left for leftover in found[:2]} == {Left.WEBHOOKS, Left.OTHERS_WEBHOOKS}
    assert outcome.released[0].resource.kind == "MutatingWebhookConfiguration"
    assert (len(outcome.released), outcome.failed) == (42, [])
    assert [(leftover.left, leftover.name) for leftover in again] == [
        (Left.OTHERS_WEBHOOKS, "kueue-mutating-webhook-configuration")
    ]
    assert not any(p["metadata"].get("finalizers") or p["spec"].get("schedulingGates") for p in pods)
    assert {w["metadata"]["name"] for w in await client.list_json(MUTATING)} == {
        "kueue-mutating-webhook-configuration", "stranger",
    }  # fmt: skip


async def test_apiservices_of_a_killed_controller_are_deleted_and_those_of_others_stay(client: Client) -> None:
    """One that nobody answers would keep the API server from ending any namespace."""
    for name, owner in (("v1.ours", "kqueue"), ("v1.theirs", "Helm")):
        metadata = {"name": name, "labels": {"app.kubernetes.io/managed-by": owner}}
        await client.create(API_SERVICES, {"metadata": metadata, "spec": {"service": {"name": "s", "namespace": "n"}}})
    found = await survey(client, Scope())
    outcome = await release(client, found)

    assert [(leftover.left, leftover.name) for leftover in outcome.released] == [(Left.API_SERVICES, "v1.ours")]
    assert [obj["metadata"]["name"] for obj in await client.list_json(API_SERVICES)] == ["v1.theirs"]
    assert await survey(client, Scope(namespace="default")) == []


async def test_it_is_told_where_webhooks_lead(client: Client) -> None:
    """To an address, which we do not try, or to a Service, which may be gone."""
    hooks = webhooks("ours", True)
    service = {"service": {"name": "s", "namespace": "default", "path": "/mutate--v1-pod", "port": 443}}
    hooks["webhooks"].append({**hooks["webhooks"][0], "name": "other.kb.io", "clientConfig": service})
    await client.create(MUTATING, hooks)
    found = await survey(client, Scope())

    assert found[0].ours == ("2 webhooks", "Service default/s, which does not exist", "https://127.0.0.1:1")


async def test_a_scope_is_kept_to(client: Client) -> None:
    await client.create(MUTATING, webhooks("ours", True))
    await client.create(PODS, on_server("plain"))
    await client.create(PODS, on_server("web", ownerReferences=owned("ReplicaSet", "apps/v1")))
    await client.create(CLUSTER_QUEUES, QUEUE)
    here = await survey(client, Scope(namespace="default"))
    elsewhere = await survey(client, Scope(namespace="kube-system"))
    of_kind = await survey(client, Scope(integrations=frozenset({"deployment"})))
    await release(client, await survey(client, Scope(leave_gated=True)), leave_gated=True)
    still = await client.get_json(PODS, "plain", "default")

    assert [leftover.name for leftover in here] == ["plain", "web"]
    assert elsewhere == []
    assert [leftover.name for leftover in of_kind] == ["web"]
    assert still["spec"]["schedulingGates"] == [{"name": f"{P}admission"}]
    assert not still["metadata"].get("finalizers")


async def test_what_changes_meanwhile_is_read_again(client: Client) -> None:
    """A label written between look and release is kept; what is gone or another of that name is left alone."""
    for name in ("changed", "gone", "anew"):
        await client.create(PODS, on_server(name))
    found = await survey(client, Scope())
    await client.patch(PODS, "changed", {"metadata": {"labels": {"a": "b"}}}, "default")
    for name in ("gone", "anew"):
        await client.patch(PODS, name, {"metadata": {"finalizers": []}}, "default")
        await client.delete(PODS, name, "default", grace_seconds=0)
    await client.create(PODS, on_server("anew"))
    outcome = await release(client, found)
    changed = await client.get_json(PODS, "changed", "default")

    assert outcome.failed == []
    assert changed["metadata"]["labels"] == {"a": "b"}
    assert not changed["metadata"].get("finalizers")
    assert [leftover.name for leftover in await survey(client, Scope())] == ["anew"]


async def test_one_that_was_killed_half_way_goes_on(client: Client) -> None:
    """Each object is released whole or not at all, so a second call does just the rest."""
    for number in range(60):
        await client.create(PODS, on_server(f"p{number:02}"))
    found = await survey(client, Scope())

    def progress(done: int, _of: int) -> None:
        if done == 20:
            killed.cancel()

    killed = asyncio.create_task(release(client, found, progress=progress))
    await asyncio.gather(killed, return_exceptions=True)
    left = await survey(client, Scope())
    outcome = await release(client, left)

    assert killed.cancelled()
    assert 0 < len(left) <= 40
    assert all(set(each.ours) == {f"{P}admission", f"{P}managed"} for each in left)
    assert (len(outcome.released), await survey(client, Scope())) == (len(left), [])


class Pages:
    """Lists of pods in pages; all other kinds do not exist.  A token may expire."""

    def __init__(self, *pages: list[JSON], expires: int = 0) -> None:
        self.pages, self.expires = pages, expires
        self.limits: set[str] = set()

    async def get_json(self, *_: Any, **__: Any) -> JSON:
        raise NotFoundError("no such object", status=404)

    async def list_json(self, *_: Any, **__: Any) -> list[JSON]:
        return []

    async def list_page(self, resource: ResourceType, _namespace: str | None, *, params: dict[str, str]) -> bytes:
        if resource != PODS:
            raise NotFoundError("no such kind", status=404)
        self.limits.add(params["limit"])
        number = int(params.get("continue", "0"))
        if number and self.expires:
            self.expires -= 1
            raise GoneError("expired", status=410)
        more = {"continue": str(number + 1)} if number + 1 < len(self.pages) else {}
        return json.dumps({"items": self.pages[number], "metadata": more}).encode()


@pytest.mark.parametrize("expires", [0, 2])
async def test_lists_come_in_pages_and_begin_again_when_they_expire(expires: int) -> None:
    """Nothing is told twice; kinds that the cluster does not have hold nothing."""
    pages = [[on_server("a"), on_server("b")], [on_server("c")], [on_server("d")]]
    server = Pages(*pages, expires=expires)
    found = await survey(server, Scope())  # type: ignore[arg-type]

    assert [each.name for each in found] == ["a", "b", "c", "d"]
    assert server.limits == {"500"}


async def test_a_list_that_expires_for_ever_is_an_error() -> None:
    with pytest.raises(GoneError):
        await survey(Pages([on_server("a")], [on_server("b")], expires=99), Scope())  # type: ignore[arg-type]


class Refusing:
    """A server that refuses one object and, if told so, dies."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.patched: list[str] = []
        self.busy = self.most = 0

    async def patch(self, _resource: object, name: str, *_: Any, **__: Any) -> JSON:
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(0)
        self.busy -= 1
        if name == "p3":
            raise self._error
        self.patched.append(name)
        return {}


async def test_one_refusal_stops_nobody_else() -> None:
    server = Refusing(ForbiddenError("no", status=403))
    told: list[tuple[int, int]] = []
    found = [made(Left.HELD_POD, number) for number in range(100)]
    outcome = await release(server, found, progress=lambda done, of: told.append((done, of)))  # type: ignore[arg-type]

    assert (len(outcome.released), len(server.patched)) == (99, 99)
    assert [(leftover.name, why) for leftover, why in outcome.failed] == [("p3", "no")]
    assert told[-1] == (100, 100)
    assert server.most == releasing.AT_ONCE
    assert as_json(found, outcome)["failed"][0]["error"] == "no"


async def test_a_server_that_is_gone_ends_it() -> None:
    with pytest.raises(UnreachableError):
        await release(Refusing(UnreachableError("gone")), [made(Left.HELD_POD, n) for n in range(9)])  # type: ignore[arg-type]


async def test_an_integration_that_is_still_on_is_seen(client: Client) -> None:
    await client.create(MUTATING, webhooks("ours", True))

    assert await still_registered(client, frozenset({"pod", "batch/job"})) == ["pod"]
    assert await still_registered(client, frozenset({"deployment"})) == []


async def test_a_declared_kind_that_is_still_on_is_seen(client: Client) -> None:
    await client.create(MUTATING, webhooks("ours", True, "/mutate-example-com-v1-train"))

    assert await still_registered(client, frozenset({DECLARED.framework}), (DECLARED,)) == [DECLARED.framework]
    assert await still_registered(client, frozenset({"pod"}), (DECLARED,)) == []


async def test_a_dialect_that_is_still_on_is_seen(client: Client) -> None:
    """All dialects share the path of pods; the entry's name tells them apart."""
    made = webhooks("ours", True)
    made["webhooks"][0]["name"] = "mpod-coscheduling.kb.io"
    await client.create(MUTATING, made)
    asked = frozenset({"kqueue.dev/coscheduling-labels", "scheduling.x-k8s.io/podgroup"})

    assert await still_registered(client, asked) == ["kqueue.dev/coscheduling-labels"]


IN_GANG = {f"{P}managed": "true"}


@pytest.mark.parametrize(
    ("given", "integration"),
    [
        pytest.param(
            pod(f"{P}admission", labels=IN_GANG | {"pod-group.scheduling.x-k8s.io/name": "g"}),
            "kqueue.dev/coscheduling-labels",
            id="labels",
        ),
        pytest.param(
            pod(f"{P}admission", labels=IN_GANG | {"scheduling.x-k8s.io/pod-group": "g"}),
            "scheduling.x-k8s.io/podgroup",
            id="a PodGroup",
        ),
        pytest.param(
            pod(
                f"{P}admission",
                labels=IN_GANG,
                annotations={"scheduling.k8s.io/group-name": "g"},
                ownerReferences=owned("Train", "a.b/v1"),
            ),
            "scheduling.volcano.sh/podgroup",
            id="Volcano, whoever owns the pod",
        ),
        pytest.param(
            pod(
                f"{P}topology",
                labels={"scheduling.x-k8s.io/pod-group": "g"},
                ownerReferences=owned("Job", "batch/v1"),
            ),
            "batch/job",
            id="a pod of a queued Job is the Job's",
        ),
        pytest.param(pod(f"{P}admission", labels=IN_GANG | {f"{P}pod-group-name": "g"}), "pod", id="a group of Kueue"),
    ],
)
def test_pods_of_gangs_are_told_by_their_dialect(given: JSON, integration: str) -> None:
    """G2.18: each dialect can be switched off for itself."""
    of_field = pod(f"{P}admission", labels=IN_GANG)
    of_field["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    found, kubernetes = of_pod(PODS, seen(given)), of_pod(PODS, seen(of_field))

    assert found is not None
    assert found.integration == integration
    assert kubernetes is not None
    assert kubernetes.integration == "scheduling.k8s.io/podgroup"


def test_a_workload_of_a_gang_is_its_dialects() -> None:
    """A group by labels has no object that owns it."""
    gang = {"kqueue.dev/gang": "kqueue.dev/coscheduling-labels:g"}
    found = of_object(WORKLOADS, seen({"metadata": {"finalizers": [f"{P}resource-in-use"], "annotations": gang}}))

    assert found is not None
    assert found.integration == "kqueue.dev/coscheduling-labels"


def test_a_batch_process_that_has_not_ended_is_listed() -> None:
    """It holds nobody up, and nothing of it is changed."""
    kind = ResourceType("kqueue.dev", "v1alpha1", "batchprocesses", "BatchProcess")
    running = of_batch_process(kind, seen({}))
    ended = of_batch_process(kind, seen({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}))

    assert running is not None
    assert (running.left, running.integration) == (Left.UNATTENDED, "kqueue.dev/batchprocess")
    assert (running.left.releasable, is_clean([running]), ended) == (False, True, None)
    assert "BatchProcesses have no controller without kqueue: 1" in "\n".join(lines([running], None))


def test_workloads_follow_their_owners() -> None:
    given = {
        "metadata": {"finalizers": [f"{P}resource-in-use"], "ownerReferences": owned("JobSet", "jobset.x-k8s.io/v1")}
    }
    found = of_object(WORKLOADS, seen(given))
    nobody = of_object(WORKLOADS, seen({"metadata": {"finalizers": ["x/y"]}}))

    assert found is not None
    assert (found.integration, found.finalizers, nobody) == ("jobset.x-k8s.io/jobset", (), None)


# --- the command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param([], "give --check to list, or --release to release", id="neither"),
        pytest.param(["--check", "--release"], "give --check to list, or --release", id="both"),
        pytest.param(
            ["--check", "--stop", "a/b"], "give it with --release", id="what is only looked at is not stopped"
        ),
        pytest.param(["--release", "--stop", "b"], "must be NAMESPACE/NAME", id="a Deployment without a namespace"),
        pytest.param(["--check", "--integration", "pods"], "--integration pods: unknown", id="an unknown integration"),
    ],
)
def test_a_wrong_call_is_refused(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["uninstall", *arguments]) == 2
    assert words in capsys.readouterr().err


async def test_check_changes_nothing_and_says_so_by_its_code(
    client: Client, sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    await client.create(PODS, on_server("one"))

    async def called(*arguments: str) -> tuple[int, str]:
        code = await asyncio.to_thread(run, ["uninstall", *arguments, "--kubeconfig", str(tmp_path / "kubeconfig")])
        return code, capsys.readouterr().out

    first, second = [await called("--check", "-o", "json") for _ in range(2)]
    released = await called("--release")
    last = await called("--check")

    assert first == second
    assert (first[0], released[0], last[0]) == (1, 0, 0)
    assert json.loads(first[1])["counts"]["heldPod"] == 1
    assert released[1].splitlines() == ["released: 1", "", "nothing is left behind"]


def test_names_and_messages_of_others_cannot_drive_the_terminal() -> None:
    """Each stays on its line, escaped; programs get them as they are."""
    hostile = "\x1b[2Jx\nnothing is left behind\u202e"
    left = Leftover(
        left=Left.HELD_POD, resource=PODS, namespace=hostile, name=hostile, uid="1", version="1", ours=(hostile,)
    )
    shown = lines([left], releasing.RemovalOutcome(released=[], failed=[(left, hostile)]))

    assert all(line.isprintable() for line in shown)
    assert shown.count("nothing is left behind") == 0
    assert as_json([left], None)["left"][0]["name"] == hostile


QUEUES = "clusterqueues.kueue.x-k8s.io"


async def definition(client: Client, name: str = QUEUES) -> JSON:
    return await client.get_json(DEFINITIONS, name)


async def test_no_definition_keeps_a_dead_conversion_webhook(client: Client) -> None:
    """v1beta1 is refused from then on, because without the webhook it would lose fields; v1beta2 goes on."""
    await client.create(CLUSTER_QUEUES, {"metadata": {"name": "team"}, "spec": {"cohortName": "all"}})
    await labelled(client, *map(definition_of, CONVERTED))
    found = await conversions(client)
    outcome = await release(client, found)
    after = await definition(client)

    assert len(found) == len(outcome.released) == 5
    assert found[0].ours == ("Service kueue-system/kueue-webhook-service",)
    assert after["spec"]["conversion"] == {"strategy": "None"}
    assert [(v["name"], v["served"]) for v in after["spec"]["versions"]] == [("v1beta2", True), ("v1beta1", False)]
    assert (await client.get_json(CLUSTER_QUEUES, "team"))["spec"]["cohortName"] == "all"
    assert await conversions(client) == []


async def labelled(client: Client, *names: str) -> None:
    """Mark definitions, as the chart and the webhooks do."""
    for name in names:
        await client.patch(DEFINITIONS, name, {"metadata": {"labels": {"kqueue.dev/kept-by": "kqueue"}}})


async def test_a_definition_that_another_system_applied_is_left_alone(client: Client) -> None:
    """Kueue's have the same names and may be there again; ours carry our label."""
    none = await conversions(client)
    await labelled(client, QUEUES)

    assert none == []
    assert [each.name for each in await conversions(client)] == [QUEUES]


async def test_objects_in_v1beta1_are_not_cut_off(client: Client) -> None:
    """Their definition keeps its webhook, and the remedy is said; the others are released."""
    await client.patch(
        DEFINITIONS, QUEUES, {"status": {"storedVersions": ["v1beta1", "v1beta2"]}}, subresource="status"
    )
    await labelled(client, *map(definition_of, CONVERTED))

    outcome = await release(client, await conversions(client))

    ((failed, why),) = outcome.failed
    assert (failed.name, len(outcome.released)) == (QUEUES, 4)
    assert "start the webhooks" in why
    assert (await definition(client))["spec"]["conversion"]["strategy"] == "Webhook"


async def test_objects_are_stored_anew_while_the_webhooks_answer(client: Client) -> None:
    """Each is written once, and the definition says so then; a second run finds nothing."""
    await client.create(CLUSTER_QUEUES, {"metadata": {"name": "team"}})
    await client.patch(
        DEFINITIONS, QUEUES, {"status": {"storedVersions": ["v1beta1", "v1beta2"]}}, subresource="status"
    )

    counts = [await store_anew(client), await store_anew(client)]

    assert counts == [1, 0]
    assert (await definition(client))["status"]["storedVersions"] == ["v1beta2"]
