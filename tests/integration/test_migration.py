"""From Kueue to kqueue as docs/how-to/migrate-from-kueue.md says: definitions of two versions, and a job that runs all along."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.api.names import GROUP
from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.integration.conftest import CRDS
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import CRDS as DEFINITIONS
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.installed.release import CHART, NAMESPACE, HelmError, Release
from tests.integration.road import KUEUE, Object, Road, controller, make_road
from tests.integration.test_tutorial import Reader

pytestmark = [pytest.mark.slow, pytest.mark.controlplane]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "migrate-from-kueue.md"
LEFT = "not done, stored as v1beta"
WEBHOOK = {
    "strategy": "Webhook",
    "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"namespace": NAMESPACE, "name": "gone", "path": "/convert"}},
    },
}
"""What Kueue's definitions name, and what nobody answers any more once Kueue is stopped."""


def two_versions(folder: Path, *, stored: str) -> Path:
    """A folder with our definitions as an older system has them: v1beta1 is served, too, and one of both is stored.

    The forms of both are the same, so that the API server converts by itself and no webhook is needed.
    """
    folder.mkdir()
    for path in CRDS.glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())
        if definition["spec"]["group"] != GROUP:
            continue  # kinds that only kqueue has
        (new,) = definition["spec"]["versions"]
        old = {**copy.deepcopy(new), "name": "v1beta1", "deprecated": True}
        for version in (old, new):
            version["storage"] = version["name"] == stored
        definition["spec"]["versions"] = [old, new]
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


def script() -> str:
    """The page's commands that write all objects anew."""
    (found,) = re.finditer(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return str(found[1])


def used(queue: Object) -> Any:
    """GPUs that a ClusterQueue has given away."""
    flavors = queue.get("status", {}).get("flavorsUsage", [])
    return {r["name"]: r["total"] for f in flavors for r in f["resources"]}.get("nvidia.com/gpu")


async def test_what_runs_runs_on_under_our_definitions(tmp_path: Path) -> None:
    """No step stops a job that runs; its quota counts, and who waited is admitted when it ends."""
    folder = tmp_path / "plane"
    folder.mkdir()
    old = two_versions(tmp_path / "old", stored="v1beta1")
    async with ControlPlane.start(folder, parts=ALL_PARTS, crds=(old, SIMULATED)) as plane:
        road = await make_road(plane.cluster, shape=(1, 1, 4), gpus=16)
        admin = Reader(tmp_path)
        admin.environment["KUBECONFIG"] = str(plane.kubeconfig)
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

        too_early = await admin.run(script())  # while v1beta1 is what is stored
        assert too_early.count(f"{LEFT}1") == 11
        assert await stored_versions(plane) == {("v1beta1",)}
        await plane.cluster.apply_crds(two_versions(tmp_path / "newer", stored="v1beta2"))
        with pytest.raises(HelmError, match=r"storedVersions"):
            await install(release)
        assert await stored_versions(plane) == {("v1beta1", "v1beta2")}
        done = await admin.run(script())
        assert LEFT not in done
        assert await stored_versions(plane) == {("v1beta2",)}

        for crd in await definitions(plane):  # what they name is stopped
            path = f"{DEFINITIONS}/{crd['metadata']['name']}"
            await plane.cluster.request("PATCH", path, {"spec": {"conversion": WEBHOOK}}, content_type=MERGE_PATCH)
        await install(release)

        for crd in await definitions(plane):
            assert [v["name"] for v in crd["spec"]["versions"]] == ["v1beta2"]
            assert crd["spec"]["conversion"]["strategy"] == "Webhook"  # stays, and with one version is never asked
        async with controller(plane.kubeconfig, tmp_path / "after.log"):
            queue = f"{KUEUE}/clusterqueues/team"
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
