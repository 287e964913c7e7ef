"""`/metrics` as scrapers meet it where it is secured: over TLS, by the tokens and the roles of the cluster."""

from __future__ import annotations

from dataclasses import replace

import aiohttp
import pytest

from kqueue.manager.process import running
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane, free_ports
from tests.integration.teams import configuration, flags
from tests.integration.test_visibility import RBAC, bearer, token_of

pytestmark = pytest.mark.slow


async def test_only_whom_the_cluster_lets_read_metrics_gets_them(either_plane: ControlPlane | SandboxPlane) -> None:
    """A token with the role of the chart is answered, one without is refused, and junk is nobody."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace("scrapes")
    tokens = {name: await token_of(cluster, namespace, name) for name in ("scraper", "nobody")}
    role = {
        "metadata": {"name": f"{namespace}-reader"},
        "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    }
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{namespace}-reader"}
    binding = {
        "metadata": {"name": f"{namespace}-reader"},
        "roleRef": reference,
        "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": namespace}],
    }
    await cluster.request("POST", f"{RBAC}/clusterroles", role)
    await cluster.request("POST", f"{RBAC}/clusterrolebindings", binding)
    (port,) = free_ports(1)
    chosen = replace(flags(either_plane), metrics_secure=True, metrics_address=f"127.0.0.1:{port}")
    answers = {}
    async with running(configuration(), chosen), aiohttp.ClientSession() as session:
        for who, headers in {
            "scraper": bearer(tokens["scraper"]),
            "nobody": bearer(tokens["nobody"]),
            "junk": bearer("junk"),
            "no one": {},
        }.items():
            async with session.get(f"https://localhost:{port}/metrics", headers=headers, ssl=False) as answer:
                answers[who] = answer.status, "kueue_build_info" in await answer.text()

    assert answers == {"scraper": (200, True), "nobody": (403, False), "junk": (401, False), "no one": (401, False)}
