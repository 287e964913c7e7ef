"""From Kueue to kqueue as docs/how-to/migrate-from-kueue.md says: definitions of two versions, and a job that runs all along."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.api.names import GROUP
from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.integration.conftest import CRDS
from tests.integration.controlplane.cluster import CRDS as DEFINITIONS
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.installed.release import CHART, Release
from tests.integration.road import KUEUE, Object, Road, controller, make_road
from tests.integration.test_older_version import answered

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "migrate-from-kueue.md"


def of_an_older_system(folder: Path) -> Path:
    """A folder with definitions that store v1beta1, and serve both versions.

    The forms of both are the same, so that the API server converts by itself and no webhook is needed.
    """
    folder.mkdir()
    for path in CRDS.glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())
        if definition["spec"]["group"] != GROUP:
            continue  # kinds that only kqueue has
        new = definition["spec"]["versions"][0]
        old = {**copy.deepcopy(new), "name": "v1beta1", "deprecated": True}
        for version in (old, new):
            version["storage"] = version["name"] == "v1beta1"
        definition["spec"] |= {"versions": [old, new], "conversion": {"strategy": "None"}}
        (folder / path.name).write_text(yaml.safe_dump(definition))
    return folder


async def definitions(plane: ControlPlane) -> list[Object]:
    """All of ours."""
    found = (await plane.cluster.get(DEFINITIONS))["items"]
    return [crd for crd in found if crd["spec"]["group"] == GROUP]


async def stored_versions(plane: ControlPlane) -> set[tuple[str, ...]]:
    """What the definitions say in which versions objects may be stored."""
    return {tuple(crd["status"]["storedVersions"]) for crd in await definitions(plane)}


async def running(road: Road) -> dict[str, str]:
    """Node by uid, of all pods that run."""
    pods = (await road.cluster.get(road.pods))["items"]
    return {p["metadata"]["uid"]: p["spec"]["nodeName"] for p in pods if p["status"].get("phase") == "Running"}


def used(queue: Object) -> Any:
    """GPUs that a ClusterQueue has given away."""
    flavors = queue.get("status", {}).get("flavorsUsage", [])
    return {r["name"]: r["total"] for f in flavors for r in f["resources"]}.get("nvidia.com/gpu")


WEBHOOKS = ("--with-webhooks", "--webhook-host", "127.0.0.1", "--webhook-port", "0",
            "--webhook-url", "https://127.0.0.1:{port}")  # fmt: skip
"""They convert what is stored in v1beta1."""


async def test_what_runs_runs_on_under_our_definitions(tmp_path: Path) -> None:
    """No step stops a job that runs, although all is stored in v1beta1; its quota counts, and who waited is admitted when
    it ends."""
    folder = tmp_path / "plane"
    folder.mkdir()
    old = of_an_older_system(tmp_path / "old")
    async with ControlPlane.start(folder, parts=ALL_PARTS, crds=(old, SIMULATED)) as plane:
        road = await make_road(plane.cluster, shape=(1, 1, 4), gpus=16)
        release = Release(plane.kubeconfig, tmp_path)
        async with controller(plane.kubeconfig, tmp_path / "before.log"):
            await road.submit("train", pods=2, run_seconds=3600)
            await road.until_workload("train", "Admitted")
            await plane.cluster.until(
                road.pods,
                lambda listed: sum(p["status"].get("phase") == "Running" for p in listed["items"]) == 2,
                what="train runs",
            )
            await road.submit("next", pods=2)
            await road.until_workload("next", "QuotaReserved", status="False")
        pods, before = await running(road), await road.workload_of("train")
        assert await stored_versions(plane) == {("v1beta1",)}

        await install(release)

        assert await stored_versions(plane) == {("v1beta1", "v1beta2")}
        async with controller(plane.kubeconfig, tmp_path / "after.log", more=WEBHOOKS):
            queue = f"{KUEUE}/clusterqueues/team"
            for path in (queue, road.workloads):
                await answered(plane, path)
            await plane.cluster.until(queue, lambda q: used(q) == "16", what="the quota of train counts")
            await road.until_workload("next", "QuotaReserved", status="False")
            after = await road.workload_of("train")
            assert (after["metadata"]["uid"], after["status"]["admission"]) == (
                before["metadata"]["uid"],
                before["status"]["admission"],
            )
            assert await running(road) == pods
            await plane.cluster.request("DELETE", f"{road.jobs}/train?propagationPolicy=Background")
            await road.until_complete("next")


async def install(release: Release) -> None:
    """As the page says; a controller of the test's own takes the place of the pods, which only look as if they ran."""
    assert "helm upgrade --install kqueue charts/kqueue -n kueue-system --take-ownership" in PAGE.read_text()
    flags = ("--create-namespace", "--take-ownership", "--set", "preflight.enable=false")  # no pod does anything here
    await release.helm("upgrade", "--install", "kqueue", str(CHART), *flags)
