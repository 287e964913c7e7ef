"""The visibility API as its users meet it: through the API server, with what each of them may see."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
import trustme

from kqueue.config import Configuration, parse
from kqueue.manager.process import RunningOperator, running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.access import RequestError
from tests.integration.controlplane.cluster import Cluster, KubectlError
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, job, queue_objects
from tests.integration.teams import configuration, flags

Plane = ControlPlane | SandboxPlane
Object = dict[str, Any]
VISIBILITY = "/apis/visibility.kueue.x-k8s.io/v1beta2"
TEAM = f"{VISIBILITY}/clusterqueues/team/pendingworkloads"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
RBAC = "/apis/rbac.authorization.k8s.io/v1"

pytestmark = pytest.mark.slow


@asynccontextmanager
async def visible(plane: Plane, settings: Configuration | None = None) -> AsyncIterator[RunningOperator]:
    """A controller whose visibility API is reached through the API server."""
    chosen = replace(
        flags(plane),
        visibility=True,
        visibility_host="127.0.0.1",
        visibility_port=0,
        visibility_url="https://localhost:{port}",
    )
    async with running(settings or configuration(), chosen) as process:
        await available(plane.cluster)
        yield process


async def available(cluster: Cluster) -> None:
    """The API server has reached it."""
    for version in ("v1beta1", "v1beta2"):
        await cluster.until(
            f"{API_SERVICES}/{version}.visibility.kueue.x-k8s.io",
            lambda found: any(
                (each["type"], each["status"]) == ("Available", "True")
                for each in found.get("status", {}).get("conditions", [])
            ),
            what=f"{version} is available",
        )


async def waiting(cluster: Cluster, namespace: str, name: str, *, priority: int = 0) -> None:
    """A Job that can never start: its ClusterQueue `team` has no quota."""
    version, level = "kueue.x-k8s.io/v1beta2", f"p{priority}"
    class_ = {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": {"name": level}, "value": priority}
    for path, obj in [*queue_objects(namespace, gpus=0), (f"{KUEUE}/workloadpriorityclasses", class_)]:
        if not await cluster.exists(f"{path}/{obj['metadata']['name']}"):
            await cluster.request("POST", path, obj)
    made = job(name, namespace, required=None)
    made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = level
    await cluster.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", made)


async def items(cluster: Cluster, path: str, *, count: int) -> list[Object]:
    """The items of an answer, as soon as there are so many."""
    found = await cluster.until(path, lambda answer: len(answer["items"]) == count, what=f"{count} wait")
    return list(found["items"])


async def test_who_waits_is_told_in_order_through_the_api_server(either_plane: Plane) -> None:
    """Positions, parts of the order, unknown queues and wrong parameters, as kubectl and a client see them."""
    cluster = either_plane.cluster
    here, there = [await cluster.create_namespace("seen") for _ in range(2)]
    async with visible(either_plane):
        await waiting(cluster, here, "three", priority=1)
        await waiting(cluster, there, "two", priority=2)
        await waiting(cluster, here, "one", priority=3)
        everyone = await items(cluster, TEAM, count=3)
        own = await cluster.get(f"{VISIBILITY}/namespaces/{here}/localqueues/main/pendingworkloads")
        second = await cluster.get(f"{TEAM}?offset=1&limit=1")
        older = await cluster.get(TEAM.replace("v1beta2", "v1beta1"))
        by_kubectl = json.loads(await either_plane.kubectl("get", "--raw", TEAM))
        listed = await either_plane.kubectl("api-resources", "--api-group=visibility.kueue.x-k8s.io", "-o", "name")
        refusals = {}
        for path in (
            f"{VISIBILITY}/clusterqueues/nobody/pendingworkloads",
            f"{VISIBILITY}/namespaces/{here}/localqueues/nobody/pendingworkloads",
            f"{TEAM}?limit=many",
            f"{VISIBILITY}/clusterqueues",
            f"{VISIBILITY}/clusterqueues/team",
        ):
            with pytest.raises(RequestError) as refused:
                await cluster.get(path)
            refusals[path] = refused.value.status

    seen = [
        (each["metadata"]["namespace"], each["priority"], each["positionInClusterQueue"], each["positionInLocalQueue"])
        for each in everyone
    ]
    assert seen == [(here, 3, 0, 0), (there, 2, 1, 0), (here, 1, 2, 1)]
    assert everyone[0]["metadata"]["ownerReferences"][0]["name"] == "one"
    assert own["items"] == [everyone[0], everyone[2]]
    assert second["items"] == [everyone[1]]
    assert older == {**by_kubectl, "apiVersion": "visibility.kueue.x-k8s.io/v1beta1"}
    assert by_kubectl["items"] == everyone
    assert by_kubectl["apiVersion"] == "visibility.kueue.x-k8s.io/v1beta2"
    assert set(listed.split()) <= {"clusterqueues.visibility.kueue.x-k8s.io", "localqueues.visibility.kueue.x-k8s.io"}
    assert list(refusals.values()) == [404, 404, 400, 404, 404]


async def test_users_see_what_they_may(either_plane: Plane) -> None:
    """One with rights on a LocalQueue sees that and nothing else; one without sees nothing, and is told why."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("seen")
    local = f"{VISIBILITY}/namespaces/{namespace}/localqueues/main/pendingworkloads"
    await grant(cluster, namespace, "alice", "localqueues/pendingworkloads")
    async with visible(either_plane):
        await waiting(cluster, namespace, "one")
        await items(cluster, TEAM, count=1)
        as_alice = json.loads(await either_plane.kubectl("get", "--raw", local, "--as=alice"))
        with pytest.raises(KubectlError, match='User "alice" cannot get resource "clusterqueues/pendingworkloads"'):
            await either_plane.kubectl("get", "--raw", TEAM, "--as=alice")
        with pytest.raises(KubectlError, match='"bob" cannot get resource "localqueues/pendingworkloads"'):
            await either_plane.kubectl("get", "--raw", local, "--as=bob")

    assert [item["metadata"]["namespace"] for item in as_alice["items"]] == [namespace]


async def grant(cluster: Cluster, namespace: str, user: str, resource: str, *, name: str = "") -> None:
    """Let a user see a resource in a namespace."""
    name = name or user
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": f"see-{name}", "namespace": namespace},
        "rules": [{"apiGroups": ["visibility.kueue.x-k8s.io"], "resources": [resource], "verbs": ["get"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"see-{name}", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": f"see-{name}"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    await cluster.request("POST", f"{RBAC}/namespaces/{namespace}/roles", role)
    await cluster.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)


async def test_tokens_are_asked_about_and_headers_alone_are_not_believed(either_plane: Plane) -> None:
    """Beside the API server: a token with rights is answered, one without is refused, junk and mere headers are nobody.

    A client certificate that the front proxies' authority has not signed is no way in either.
    """
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("seen")
    local = f"{VISIBILITY}/namespaces/{namespace}/localqueues/main/pendingworkloads"
    tokens = {name: await token_of(cluster, namespace, name) for name in ("reader", "nobody")}
    await grant(
        cluster, namespace, f"system:serviceaccount:{namespace}:reader", "localqueues/pendingworkloads", name="reader"
    )
    answers = {}
    async with visible(either_plane):
        await waiting(cluster, namespace, "one")
        await items(cluster, TEAM, count=1)
        spec = (await cluster.get(f"{API_SERVICES}/v1beta2.visibility.kueue.x-k8s.io"))["spec"]
        base = f"https://localhost:{spec['service']['port']}"
        trusted = ssl.create_default_context(cadata=base64.b64decode(spec["caBundle"]).decode())
        async with aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(ssl=trusted)) as session:
            for who, headers in {
                "reader": bearer(tokens["reader"]),
                "nobody": bearer(tokens["nobody"]),
                "junk": bearer("junk"),
                "no one": {},
                "a liar": {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"},
                "a liar with a token": {**bearer(tokens["nobody"]), "X-Remote-User": "system:admin"},
            }.items():
                async with session.get(local, headers=headers) as answer:
                    answers[who] = answer.status, (await answer.json()).get("message", "")
        with pytest.raises(aiohttp.ClientError):
            await ask_with_foreign_certificate(base, trusted, local)

    assert {who: status for who, (status, _) in answers.items()} == {
        "reader": 200,
        "nobody": 403,
        "junk": 401,
        "no one": 401,
        "a liar": 401,
        "a liar with a token": 403,
    }
    account = f"system:serviceaccount:{namespace}:nobody"
    wanted = f'User "{account}" cannot get resource "localqueues/pendingworkloads" in API group'
    assert wanted in answers["nobody"][1]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def token_of(cluster: Cluster, namespace: str, name: str) -> str:
    """A token of a new ServiceAccount."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    made = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await cluster.request("POST", accounts, made)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str((await cluster.request("POST", f"{accounts}/{name}/token", request))["status"]["token"])


async def ask_with_foreign_certificate(base: str, trusted: ssl.SSLContext, path: str) -> None:
    """As somebody who has made an authority of their own, and a front proxy's certificate under it."""
    made = trustme.CA().issue_cert("front-proxy.invalid", common_name="front-proxy-client")
    made.configure_cert(trusted)
    headers = {"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
    async with (
        aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(ssl=trusted)) as session,
        session.get(path, headers=headers) as answer,
    ):
        raise AssertionError(f"answered {answer.status}")


async def test_a_follower_answers_too(either_plane: Plane) -> None:
    """A replica that waits for the lease serves what it watches: an outage of the leader hides nothing."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("seen")
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    held = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": now, "acquireTime": now}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kq"}, "spec": held}
    await cluster.request("POST", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)
    elect = f"leaderElection: {{leaderElect: true, resourceName: kq, resourceNamespace: {namespace}}}\n"
    head = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
    async with visible(either_plane, parse(head + elect, source="test")) as process:
        for path, obj in queue_objects(namespace):
            if not await cluster.exists(f"{path}/{obj['metadata']['name']}"):
                await cluster.request("POST", path, obj)
        made = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "w"}}
        pods = {"metadata": {}, "spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}}
        made["spec"] = {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": pods}]}
        await cluster.request("POST", f"{KUEUE}/namespaces/{namespace}/workloads", made)
        found = await items(cluster, TEAM, count=1)
        leads = process.operator.ready.is_set()

    assert (found[0]["metadata"]["name"], leads) == ("w", False)
