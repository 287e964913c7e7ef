"""Gangs as a user sees them: in lists, in explanations, and on the group object."""

from __future__ import annotations

import json

import pytest

from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.gang_dialects import X_K8S
from tests.integration.test_ctl import Shell
from tests.integration.test_dashboard import grant
from tests.integration.test_doctor import answers
from tests.integration.test_pod_groups import controller, prepared

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane


@pytest.fixture
def shell(either_plane: Plane, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands on the cluster of the test."""
    return Shell(either_plane, capsys, monkeypatch)


@pytest.mark.mechanism("4.22")
async def test_a_podgroup_is_seen_from_its_first_pod_to_the_pod_that_waits(either_plane: Plane, shell: Shell) -> None:
    """Row 4.22: gathering without a Workload, then running with a pod beyond the quorum; the object says the same."""
    groups = await prepared(either_plane, X_K8S, gpus=16)
    async with controller(either_plane, X_K8S):
        where = ("-n", groups.namespace)
        await groups.create_group_object("g", minimum=2)
        await groups.add("g", "g-0")
        gathering = await shell.done("explain", "podgroup/g", *where)
        unknown = await shell.run("explain", "podgroup.scheduling.x-k8s.io/absent", *where)
        await groups.add("g", "g-1", "g-2")
        status = await groups.until_phase("g", "Running", running=2)
        await groups.until_event("g-2", "QueuedBeyondQuorum")
        page = await shell.done("explain", "podgroup/g", *where)
        shown = json.loads(await shell.done("explain", "podgroup/g", *where, "-o", "json"))
        row = (await shell.rows("list", "gangs", *where))["g"]

    assert "PodGroup" in gathering.splitlines()[0]
    assert "the group has 1 of 2 pods; it waits for 1 more" in gathering
    assert unknown[0] == 1
    assert "kqueue list gangs" in unknown[2]
    assert f"PodGroup {groups.namespace}/g: Running, 2 of 2 pods run; quorum 2, 3 pods are there" in page
    assert "extra        g-2 waits" in page
    assert (shown["phase"], shown["members"]["running"]) == (status["phase"], status["running"])
    assert (row["DIALECT"], row["PHASE"], row["QUORUM"], row["PRESENT"], row["RUNNING"]) == (
        "scheduling.x-k8s.io/podgroup", "Running", "2", "3", "2"
    )  # fmt: skip


SERVED = {
    "visibility": True,
    "visibility_host": "127.0.0.1",
    "visibility_port": 0,
    "visibility_url": "https://localhost:{port}",
}


async def test_the_controller_shows_gangs_from_what_it_watches(either_plane: Plane, shell: Shell) -> None:
    """With the deadline of its configuration and the rack of the quorum; `kqueue top` counts; a user without the right to
    the view reads the objects, with the defaults.
    """
    groups = await prepared(either_plane, X_K8S, gpus=16)
    async with controller(either_plane, X_K8S, gangs="{scheduleTimeout: {base: 400s}}", **SERVED):
        await answers(either_plane.cluster)
        where = ("-n", groups.namespace)
        await groups.create_group_object("gathers", minimum=2)
        await groups.add("gathers", "x-0")
        await groups.create_group_object("runs", minimum=2)
        await groups.add("runs", "g-0", "g-1")
        await groups.until_phase("runs", "Running", running=2)
        listed = await shell.rows("list", "gangs", "-A")
        gathers = await shell.done("explain", "podgroup/gathers", *where)
        runs = json.loads(await shell.done("explain", "podgroup/runs", *where, "-o", "json"))
        summary = json.loads(await shell.done("top", "queues", "-o", "json"))
        named = await either_plane.kubectl("get", "gangs.visibility.kqueue.dev", "-A", "-o", "name")
        objects = ["", "kueue.x-k8s.io", X_K8S.api_version.partition("/")[0]]
        await grant(either_plane.cluster, "ann", {"apiGroups": objects, "resources": ["*"], "verbs": ["get", "list"]})
        by_objects = await shell.done("explain", "podgroup/gathers", *where, "--as", "ann")

    assert {name: row["PHASE"] for name, row in listed.items()} == {"gathers": "Pending", "runs": "Running"}
    assert "402 s after the admission, by gangs.scheduleTimeout" in gathers
    assert "missing      1 of any role" in gathers
    assert runs["deadline"]["seconds"] == 402
    assert sum(one["pods"] for one in runs["workload"]["domains"]) == 2
    assert all(one["domain"].startswith("block-0/rack-") for one in runs["workload"]["domains"])
    (team,) = summary["queues"]["items"]
    assert (team["gangs"]["gathering"], team["gangs"]["running"]) == (1, 1)
    assert sorted(named.split()) == ["gang.visibility.kqueue.dev/gathers", "gang.visibility.kqueue.dev/runs"]
    assert "62 s after the admission, by the default of gangs.scheduleTimeout" in by_objects
