"""`kqueue dashboard --serve` against an API server: people with tokens of their own see what RBAC lets them see."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from kqueue.clock import SystemClock
from kqueue.page.serving import ServeOptions, serving
from kqueue.page.shared_server import COOKIE
from kqueue.runtime.client import Client, connect
from kqueue.runtime.transport import RequestRecord
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import ControlPlane, free_ports
from tests.integration.road import KUEUE
from tests.integration.test_visibility import RBAC, Plane, token_of

pytestmark = pytest.mark.slow
SAME = {"Sec-Fetch-Site": "same-origin"}


async def tenant(cluster: Cluster, name: str) -> tuple[str, str]:
    """A namespace with a Workload, and an account that may list Workloads there: namespace and token."""
    namespace = await cluster.create_namespace(name)
    token = await token_of(cluster, namespace, "reader")
    rule = {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]}
    role = {"metadata": {"name": "reader"}, "rules": [rule]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    binding = {"metadata": {"name": "reader"}, "roleRef": reference, "subjects": [subject]}
    await cluster.request("POST", f"{RBAC}/namespaces/{namespace}/roles", role)
    await cluster.request("POST", f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.com/train:1"}]}}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "waits", "namespace": namespace},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }
    await cluster.request("POST", f"{KUEUE}/namespaces/{namespace}/workloads", workload)
    return namespace, token


async def sign_in(browser: aiohttp.ClientSession, token: str) -> dict[str, str]:
    """Sign in by the form; return the header with the cookie, nothing where the token is refused."""
    async with browser.post("/sign-in", data={"token": token}, headers=SAME, allow_redirects=False) as answer:
        assert answer.status == (303 if COOKIE in answer.cookies else 401)
        return {"Cookie": f"{COOKIE}={answer.cookies[COOKIE].value}"} if COOKIE in answer.cookies else {}


async def workloads(browser: aiohttp.ClientSession, headers: dict[str, str]) -> dict[str, Any]:
    """Return the first answer of the view of Workloads."""
    async with asyncio.timeout(60), browser.get("/api/events?feed=workloads", headers=headers) as answer:
        assert answer.status == 200
        while not (line := (await answer.content.readline()).decode()).startswith("data: "):
            assert line, "the stream has ended"
        return dict(json.loads(line.removeprefix("data: ")))


async def own_client(plane: Plane, sent: list[RequestRecord]) -> Client:
    """The client of the server's own account, whose requests are noted."""
    return await connect(plane.kubeconfig, on_request=sent.append)


async def test_each_sees_its_own_namespace(either_plane: Plane) -> None:
    """By the form and by a proxy's header, over TLS; the kubeconfig's own user, who may do everything, only reviews."""
    cluster = either_plane.cluster
    (red, red_token), (blue, blue_token) = await tenant(cluster, "red"), await tenant(cluster, "blue")
    options = ServeOptions(address="127.0.0.1:0", kubeconfig=either_plane.kubeconfig)
    sent: list[RequestRecord] = []
    async with (
        await own_client(either_plane, sent) as own,
        serving(options, own, lambda _: (), lambda _: (), clock=SystemClock()) as (server, _),
        aiohttp.ClientSession(
            f"https://127.0.0.1:{server.port}",
            connector=aiohttp.TCPConnector(ssl=False),
            cookie_jar=aiohttp.DummyCookieJar(),
        ) as browser,
    ):
        cookies = await sign_in(browser, red_token)
        bearer = {"Authorization": f"Bearer {blue_token}"}
        seen = await asyncio.gather(*(workloads(browser, headers) for headers in (cookies, bearer)))
        async with browser.get(f"/api/explanations/{blue}/waits", headers=cookies) as answer:
            refused = answer.status, (await answer.json())["reason"]
        junk = await sign_in(browser, "junk")
        foreign = {} if not isinstance(either_plane, ControlPlane) else await other_tokens(browser, cluster, red)
        async with browser.post("/sign-out", headers={**cookies, **SAME}) as answer:
            assert answer.status == 200
        async with browser.get("/api/events?feed=workloads", headers=cookies) as answer:
            after = answer.status

    found = [[(item["namespace"], item["name"]) for item in each["items"]] for each in seen]
    assert found == [[(red, "waits")], [(blue, "waits")]]
    assert refused == (403, "Forbidden")
    assert (junk, foreign, after) == ({}, {}, 401)
    assert {(record.verb, record.resource) for record in sent} == {("create", "tokenreviews.authentication.k8s.io")}


async def test_metrics_are_for_users_who_may_get_them(either_plane: Plane) -> None:
    """As those of the controller: by TLS, a token that RBAC allows to get /metrics."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("scraped")
    tokens = {name: await token_of(cluster, namespace, name) for name in ("tenant", "scraper")}
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    meta = {"name": f"{namespace}-metrics"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", **meta}
    subject = {"kind": "ServiceAccount", "name": "scraper", "namespace": namespace}
    await cluster.request("POST", f"{RBAC}/clusterroles", {"metadata": meta, "rules": [rule]})
    await cluster.request(
        "POST",
        f"{RBAC}/clusterrolebindings",
        {"metadata": meta, "roleRef": reference, "subjects": [subject]},
    )
    (port,) = free_ports(1)
    options = ServeOptions(
        address="127.0.0.1:0",
        metrics_address=f"127.0.0.1:{port}",
        metrics_secure=True,
        kubeconfig=either_plane.kubeconfig,
    )
    found: dict[str, tuple[int, bool]] = {}
    async with (
        await own_client(either_plane, []) as own,
        serving(options, own, lambda _: (), lambda _: (), clock=SystemClock()),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as scraper,
    ):
        for name, token in {**tokens, "nobody": ""}.items():
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with scraper.get(f"https://127.0.0.1:{port}/metrics", headers=headers) as answer:
                found[name] = answer.status, "kqueue_dashboard_sessions{" in await answer.text()

    assert found == {"tenant": (403, False), "scraper": (200, True), "nobody": (401, False)}


async def other_tokens(browser: aiohttp.ClientSession, cluster: Cluster, namespace: str) -> dict[str, str]:
    """Sign in with a token for another audience, and with one whose account is gone."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["vault"]}}
    made = await cluster.request("POST", f"{accounts}/reader/token", request)
    accepted = await sign_in(browser, made["status"]["token"])
    gone = await token_of(cluster, namespace, "gone")
    await cluster.request("DELETE", f"{accounts}/gone")
    return {**accepted, **await sign_in(browser, gone)}
