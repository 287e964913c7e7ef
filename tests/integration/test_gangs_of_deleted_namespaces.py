"""A namespace is deleted while gangs of every dialect gather, wait and run in it: nothing holds its pods back."""

from __future__ import annotations

import pytest

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import SandboxPlane
from tests.integration.gang_dialects import DIALECTS, QUORUM, Groups, Plane, goes_on, serve, waits_for_quota
from tests.integration.road import KUEUE, Object, make_road
from tests.integration.test_pods import PARTS, gates

pytestmark = pytest.mark.slow


def configuration() -> str:
    frameworks = ", ".join(dialect.framework for dialect in DIALECTS.values())
    return f"""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {{leaderElect: false}}
integrations: {{frameworks: [{frameworks}]}}
"""


async def submit(groups: Groups, name: str, members: int) -> None:
    """Create a gang with so many of its members, where users create them."""
    if groups.dialect.api_version:
        await groups.create_group_object(name, minimum=QUORUM)
    if not groups.dialect.makes_pods:
        await groups.add(name, *(f"{name}-{number}" for number in range(members)), quorum=QUORUM)


async def test_a_namespace_with_gangs_of_every_dialect_empties(either_plane: Plane) -> None:
    """g7_15: of each dialect one gang runs, one waits, and one gathers.  A control plane serves Kubernetes' own PodGroups
    behind a gate only."""
    dialects = [each for each in DIALECTS.values() if not each.gated or isinstance(either_plane, SandboxPlane)]
    for dialect in dialects:
        if dialect.kind == "PodGroup" and dialect.api_version:
            await serve(either_plane, dialect.api_version)
    pods = QUORUM * len(dialects)
    road = await make_road(either_plane.cluster, gpus=8 * pods, shape=(1, len(dialects), QUORUM))
    flags = Flags(
        kubeconfig=either_plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0",
        webhook_host="127.0.0.1", webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configured = parse(configuration(), source="test", own_namespace="kqueue-system")
    async with running(configured, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await process.operator.ready.wait()
        gangs = [Groups(road.cluster, road.namespace, dialect) for dialect in dialects]
        for number, gang in enumerate(gangs):
            await submit(gang, f"runs-{number}", QUORUM)
        await road.cluster.until(gangs[0].pods, lambda found: len(goes_on(found)) == pods, what="one of each runs")
        for number, gang in enumerate(gangs):
            await submit(gang, f"waits-{number}", QUORUM)
            if not gang.dialect.makes_pods:
                await submit(gang, f"gathers-{number}", 1)
        for number, gang in enumerate(gangs):
            await gang.base(waits_for_quota, name=f"waits-{number}", what=f"{gang.dialect.framework} waits")
        held = [gates(await gangs[1].pod(name)) for name in ("waits-1-0", "gathers-1-0")]

        await road.cluster.request("DELETE", f"/api/v1/namespaces/{road.namespace}")
        await road.cluster.until(
            "/api/v1/namespaces",
            lambda found: road.namespace not in [each["metadata"]["name"] for each in found["items"]],
            what="the namespace is gone",
        )
        queue = await road.cluster.until(f"{KUEUE}/clusterqueues/team", _is_free, what="nothing holds quota or waits")

    assert ["admission" in each for each in held] == [True, True]
    assert queue["status"]["reservingWorkloads"] == 0


def _is_free(queue: Object) -> bool:
    status = queue.get("status", {})
    return (status.get("reservingWorkloads"), status.get("pendingWorkloads")) == (0, 0)
