"""Simulated use as metrics.k8s.io: what pods and nodes use, who is listed, and how clients find it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from kqueue.sandbox.api import NODES, PODS
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.server import ApiServer
from tests.unit.sandbox.objects import new_api
from tests.unit.sandbox.test_server import Client

METRICS = "/apis/metrics.k8s.io/v1beta1"
USE = "sandbox.kqueue.dev/use"


@pytest.fixture
async def serving() -> AsyncIterator[list[Client]]:
    """Servers with and without measured use."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        found = []
        for measures_use in (True, False):
            api = new_api()
            server = ApiServer(api, measures_use=measures_use)
            await server.start()
            stack.push_async_callback(server.stop)
            found.append(Client(api, server, session))
        yield found


async def add_node(api: ClusterApi, name: str, use: str = "") -> None:
    meta = {"name": name, "labels": {"host": name}, **({"annotations": {USE: use}} if use else {})}
    await api.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": meta})


async def add_pod(
    api: ClusterApi, name: str, node: str, *, phase: str = "Running", use: str = "", **labels: str
) -> None:
    requests = {"cpu": "1", "memory": "1Gi"}
    containers = [{"name": f"c{n}", "image": "i", "resources": {"requests": requests}} for n in range(2)]
    meta: dict[str, Any] = {"name": name, "labels": labels, "annotations": {USE: use} if use else {}}
    spec = {"containers": containers, "nodeName": node}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    await api.create(PODS, pod, namespace="default")
    patch = {"status": {"phase": phase}}
    await api.patch(PODS, name, patch, namespace="default", subresource="status")


async def test_nodes_use_what_their_pods_use(serving: list[Client]) -> None:
    client, _ = serving
    for name in ("a", "b"):
        await add_node(client.api, name)
    await add_node(client.api, "c", use="cpu=1500m, memory=3Mi")
    await add_node(client.api, "d", use="cpu=-3,memory=much,disk=1")
    await add_pod(client.api, "p", "a")
    await add_pod(client.api, "q", "a", use="cpu=250m,memory=1Mi")
    await add_pod(client.api, "ended", "a", phase="Succeeded")
    listed = await client.ask("GET", f"{METRICS}/nodes")
    assert (listed["kind"], listed["apiVersion"]) == ("NodeMetricsList", "metrics.k8s.io/v1beta1")
    assert {item["metadata"]["name"]: item["usage"] for item in listed["items"]} == {
        "a": {"cpu": "1250000000n", "memory": f"{(1 << 20) + 1024}Ki"},
        "b": {"cpu": "0n", "memory": "0Ki"},
        "c": {"cpu": "1500000000n", "memory": "3072Ki"},
        "d": {"cpu": "0n", "memory": "0Ki"},
    }
    assert {(item["window"], bool(item["timestamp"])) for item in listed["items"]} == {("15s", True)}
    one = await client.ask("GET", f"{METRICS}/nodes/c")
    assert (one["kind"], one["usage"]["memory"], one["metadata"]["labels"]) == ("NodeMetrics", "3072Ki", {"host": "c"})
    chosen = await client.ask("GET", f"{METRICS}/nodes?labelSelector=host=b")
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["b"]


async def test_running_pods_are_listed_by_namespace_and_label(serving: list[Client]) -> None:
    client, _ = serving
    await add_node(client.api, "a")
    await add_pod(client.api, "p", "a", team="x")
    await add_pod(client.api, "q", "a", use="cpu=250m")
    await add_pod(client.api, "waits", "a", phase="Pending", team="x")
    for path, names in (("pods", ["p", "q"]), ("pods?labelSelector=team", ["p"]), ("namespaces/kube-system/pods", [])):
        listed = await client.ask("GET", f"{METRICS}/{path}")
        assert [item["metadata"]["name"] for item in listed["items"]] == names
    one = await client.ask("GET", f"{METRICS}/namespaces/default/pods/q")
    assert one["containers"] == [
        {"name": "c0", "usage": {"cpu": "250000000n", "memory": f"{1 << 20}Ki"}},
        {"name": "c1", "usage": {"cpu": "0n", "memory": "0Ki"}},
    ]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "nodes/other", 404),
        ("GET", "namespaces/default/pods/other", 404),
        ("GET", "namespaces/default/nodes", 404),
        ("GET", "services", 404),
        ("GET", "nodes/a/status", 404),
        ("GET", "nodes?labelSelector=!!", 400),
        ("POST", "nodes", 405),
    ],
)
async def test_other_requests_are_refused(serving: list[Client], method: str, path: str, status: int) -> None:
    client, _ = serving
    await add_node(client.api, "a")
    async with client.session.request(method, f"{client.server.url}{METRICS}/{path}") as answer:
        assert answer.status == status


async def test_discovery_has_the_group_where_it_is_served(serving: list[Client]) -> None:
    with_use, without = serving
    groups = [{one["name"] for one in (await client.ask("GET", "/apis"))["groups"]} for client in serving]
    assert groups[0] - groups[1] == {"metrics.k8s.io"}
    found = await with_use.ask("GET", METRICS)
    assert [(one["name"], one["verbs"]) for one in found["resources"]] == [
        ("nodes", ["get", "list"]),
        ("pods", ["get", "list"]),
    ]
    assert (await with_use.ask("GET", "/apis/metrics.k8s.io"))["preferredVersion"]["version"] == "v1beta1"
    wanted = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    whole = await with_use.ask("GET", "/apis", Accept=wanted)
    assert "metrics.k8s.io" in {item["metadata"]["name"] for item in whole["items"]}
    for path in ("/apis/metrics.k8s.io", METRICS, f"{METRICS}/nodes"):
        async with without.session.get(without.server.url + path) as answer:
            assert answer.status == 404
