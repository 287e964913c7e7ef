"""Removing kqueue from a cluster whose objects are stored in v1beta1, on both control planes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.integration.conftest import CRDS
from tests.integration.controlplane.access import MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import CRDS as DEFINITIONS
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.test_older_version import NEW, OLD, QUEUES, answered, created, refused, stored_as
from tests.integration.test_uninstall import CONFIGURATION, Plane, installed, left, uninstall

pytestmark = [pytest.mark.slow, pytest.mark.seldom]

CONVERTED = {"clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads"}
TEAM = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ClusterQueue",
    "metadata": {"name": "team", "finalizers": ["kueue.x-k8s.io/resource-in-use"]},
    "spec": {"cohort": "all", "flavorFungibility": {"whenCanBorrow": "Borrow"}},
}


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.controlplane)])
def wanted_real_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """A real control plane of this file alone, as the definitions are not as they were; or None for the sandbox."""
    return request.getfixturevalue("converting_plane") if request.param == "real" else None


async def test_objects_stored_in_v1beta1_outlive_the_conversion_webhook(either_plane: Plane, tmp_path: Path) -> None:
    """Without webhooks nothing is taken away; with them the objects are stored anew, and can be read, changed and
    deleted when kqueue is gone.
    """
    plane, cluster = either_plane, either_plane.cluster
    definition = yaml.safe_load((CRDS / "clusterqueues.yaml").read_text())
    (tmp_path / "config.yaml").write_text(CONFIGURATION)
    await stored_as(plane, definition, "v1beta1")
    await created(plane, f"{OLD}/clusterqueues", TEAM)
    await stored_as(plane, definition, "v1beta2")
    await refused(plane, f"{NEW}/clusterqueues")
    too_early = await uninstall(plane, tmp_path, "--release")
    untouched = (await cluster.get(f"{DEFINITIONS}/{QUEUES}"))["spec"]["conversion"]["strategy"]
    async with installed(plane, tmp_path) as controller:
        await answered(plane, f"{NEW}/clusterqueues")
        checked = await uninstall(plane, tmp_path, "--check")
        leading = await uninstall(plane, tmp_path, "--release")
        await controller.kill()
    released = await uninstall(plane, tmp_path, "--release")
    after = await cluster.get(f"{DEFINITIONS}/{QUEUES}")
    found = await cluster.get(f"{NEW}/clusterqueues/team")
    with pytest.raises(RequestError):
        await cluster.get(f"{OLD}/clusterqueues/team")
    change = {"spec": {"cohortName": "other"}}
    changed = await cluster.request("PATCH", f"{NEW}/clusterqueues/team", change, content_type=MERGE_PATCH)
    await cluster.request("DELETE", f"{NEW}/clusterqueues/team")
    await cluster.until(f"{NEW}/clusterqueues", lambda listed: not listed["items"], what="it is gone")
    last = await uninstall(plane, tmp_path, "--check")

    assert too_early[0] != 0
    assert "cannot be converted" in too_early[1]
    assert "start the webhooks" in too_early[1]
    assert untouched == "Webhook"
    assert {name.partition(" ")[2].partition(".")[0] for name in left(checked[1], "conversion")} == CONVERTED
    assert leading[0] == 2
    assert (released[0], released[1]["failed"]) == (0, [])
    assert (after["spec"]["conversion"]["strategy"], after["status"]["storedVersions"]) == ("None", ["v1beta2"])
    assert (found["spec"]["cohortName"], changed["spec"]["cohortName"]) == ("all", "other")
    assert last[0] == 0
