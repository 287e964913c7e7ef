"""Deployments and StatefulSets when kqueue is removed, and when their integration is switched off: nothing stays held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.road import make_road
from tests.integration.serving import PREFIX, Plane, Serving, gates
from tests.integration.test_uninstall import CONFIGURATION, installed, uninstall

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


def configured(*frameworks: str) -> str:
    return CONFIGURATION.replace("[batch/job, pod]", f"[{', '.join(frameworks)}]")


async def tenants(plane: Plane) -> tuple[Serving, Serving]:
    """One namespace with quota for nobody."""
    road = await make_road(plane.cluster, shape=(1, 1, 5), gpus=0)
    return tuple(Serving(plane.cluster, road.namespace, kind=kind) for kind in ("Deployment", "StatefulSet"))  # type: ignore[return-value]


@pytest.mark.proves("Deployment", "uninstall")
@pytest.mark.proves("StatefulSet", "uninstall")
async def test_what_kqueue_held_runs_when_kqueue_is_removed(either_plane: Plane, tmp_path: Path) -> None:
    """Their pods are let go, new ones are not gated, and they are deleted without a trace."""
    web, db = await tenants(either_plane)
    async with installed(either_plane, tmp_path, configured("deployment", "statefulset")) as controller:
        await web.create("web")
        await db.create("db")
        await web.until_pods("web", running=0, held=2)
        await db.until_pods("db", running=0, held=2)
        await db.until_workloads(3)
        await controller.kill()
    checked = await uninstall(either_plane, tmp_path, "--check")
    released = await uninstall(either_plane, tmp_path, "--release")
    await web.until_pods("web", running=2)
    await db.until_pods("db", running=2)
    await web.scale("web", 3)
    pods = await web.until_pods("web", running=3)
    for tenant, name in ((web, "web"), (db, "db")):
        await tenant.delete(name)
        await tenant.until_pods(name, running=0)
    await db.until_workloads(0)

    assert checked[0] == 1
    assert released[0] == 0
    assert not any(gates(pod) for pod in pods)


@pytest.mark.proves("StatefulSet", "switched off")
async def test_pods_of_a_stateful_set_start_when_its_integration_is_off(either_plane: Plane, tmp_path: Path) -> None:
    """Its template still asks for the gate, and nobody would take it off: new pods get none."""
    _, db = await tenants(either_plane)
    async with installed(either_plane, tmp_path, configured("statefulset")):
        await db.create("db")
        await db.until_pods("db", running=0, held=2)
    async with installed(either_plane, tmp_path, configured("pod")):
        for name in ("db-0", "db-1"):
            await db.cluster.request("DELETE", f"{db.pods}/{name}")
        pods = await db.until_pods("db", running=2)
        await db.delete("db")
        await db.until_pods("db", running=0)
        await db.until_workloads(0)

    assert all(pod["metadata"]["annotations"][f"{PREFIX}pod-suspending-parent"] == "statefulset" for pod in pods)
