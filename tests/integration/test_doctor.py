"""`kqueue doctor` on an installation as a process of its own: what is well, what is broken, and a canary that flies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.sandbox import Sandbox, SandboxOptions
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Road, has, make_road
from tests.integration.test_uninstall import Plane, installed

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

CANARY = (
    *("canary-old", "canary-room", "canary-suspend", "canary-workload", "canary-quota", "canary-admit"),
    *("canary-start", "canary-gate", "canary-ungate", "canary-bind", "canary-cleanup"),
)
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
SERVED = ("--visibility-url", "https://localhost:{port}", "--visibility-port", "0")


@asynccontextmanager
async def doctor(
    plane: Plane, folder: Path, *arguments: str, kubeconfig: Path | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A doctor under way; killed with the block."""
    config = folder / "config.yaml"
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "kqueue",
            "doctor",
            "-o",
            "json",
            *(("--config", str(config)) if config.exists() else ()),
        ),
        *("--kubeconfig", str(kubeconfig or plane.kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def examined(plane: Plane, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and the steps by name."""
    async with doctor(plane, folder, *arguments) as process, asyncio.timeout(120):
        out, err = await process.communicate()
    assert out, err.decode()
    answer = json.loads(out)
    assert answer["healthy"] == (process.returncode == 0)
    return process.returncode or 0, {step["name"]: step for step in answer["steps"]}


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.controlplane)])
def wanted_real_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """A real control plane with both versions of the API, or None where the test is to run on the sandbox."""
    return request.getfixturevalue("converting_plane") if request.param == "real" else None


def ended(steps: dict[str, Any], status: str) -> set[str]:
    return {name for name, step in steps.items() if step["status"] == status}


async def answers(cluster: Cluster) -> None:
    """The API server has reached the visibility API."""
    await cluster.until(
        "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.kqueue.dev",
        lambda found: has(found, "Available"),
        what="the visibility API is available",
    )


async def no_canary(cluster: Cluster, road: Road) -> None:
    """Nothing is left of it."""
    for collection in (road.jobs, road.workloads, road.pods):
        assert (await cluster.get(collection))["items"] == []


@pytest.mark.proves("Deployment", "switched off")
async def test_a_sound_installation_and_one_whose_parts_fail_one_by_one(either_plane: Plane, tmp_path: Path) -> None:
    """Each step says what it found, the canary goes the whole way and leaves nothing; what fails is the exit code."""
    cluster = either_plane.cluster
    road = await make_road(cluster, shape=(1, 2, 2))
    through = ("-n", road.namespace, "-q", "main")
    async with installed(either_plane, tmp_path, more=SERVED) as controller:
        await cluster.until(
            f"{KUEUE}/clusterqueues/team", lambda q: bool(q.get("status", {}).get("conditions")), what="team is judged"
        )
        await answers(cluster)
        code, sound = await examined(either_plane, tmp_path, *through)
        await no_canary(cluster, road)
        serve = await labelled_deployment(cluster, road.namespace)
        loose = await examined(either_plane, tmp_path, "--only", "labelled")
        explained = await explain(either_plane, "deployment/serve", "-n", road.namespace)
        await cluster.request("DELETE", serve)
        await cluster.request(
            "PATCH",
            f"{KUEUE}/clusterqueues/team",
            {"spec": {"stopPolicy": "Hold"}},
            content_type="application/merge-patch+json",
        )
        await cluster.until(
            f"{KUEUE}/clusterqueues/team",
            lambda q: any(c["reason"] == "Stopped" for c in q["status"]["conditions"]),
            what="team is stopped",
        )
        stopped = await examined(either_plane, tmp_path, *through)
        await no_canary(cluster, road)
        await controller.kill()
    dead = await examined(either_plane, tmp_path)
    for kind in ("mutating", "validating"):
        await cluster.request(
            "DELETE", f"{CONFIGURATIONS}/{kind}webhookconfigurations/kueue-{kind}-webhook-configuration"
        )
    bare = await examined(either_plane, tmp_path)

    assert code == 0, sound
    assert ended(sound, "ok") == set(sound) >= set(CANARY)
    assert sound["canary-gate"]["message"].startswith("2 pods, ")
    assert "in " in sound["canary-bind"]["message"]
    assert "leads (Lease default/" in sound["controller"]["message"]
    assert all(step["seconds"] >= 0 for step in sound.values())
    assert (loose[0], loose[1]["labelled"]["details"]) == (1, [f"Deployment: 1, as {road.namespace}/serve"])
    assert "add deployment to configuration.integrations.frameworks" in loose[1]["labelled"]["remedy"]
    assert explained[0] == 1
    assert "kind Deployment is switched off, so it started without quota; add deployment to" in explained[1]
    assert stopped[0] == 1
    assert ended(stopped[1], "failed") == {"queues", "canary-room"}
    assert "stopPolicy is Hold" in stopped[1]["canary-room"]["message"]
    assert "ClusterQueue team" in stopped[1]["queues"]["details"][0]
    assert dead[0] == 1
    assert {"reviews", "controller"} <= ended(dead[1], "failed")
    assert "is not renewed: no controller leads" in dead[1]["controller"]["message"]
    assert bare[0] == 1
    assert "MutatingWebhookConfiguration" in bare[1]["webhooks"]["message"]
    assert ended(bare[1], "skipped") >= {"certificates", "reviews"}


async def labelled_deployment(cluster: Cluster, namespace: str) -> str:
    """Create a Deployment that names a queue; returns its path."""
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "example.com/i:1"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    meta = {"name": "serve", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}
    await cluster.request("POST", path, body)
    return f"{path}/serve"


async def explain(plane: Plane, *arguments: str) -> tuple[int, str]:
    """The exit code and the error of `kqueue explain`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "explain", "--kubeconfig", str(plane.kubeconfig), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    return process.returncode or 0, err.decode()


async def until_canary(cluster: Cluster, road: Road) -> str:
    """The name of the canary, once its Workload waits."""
    found = await cluster.until(road.workloads, lambda listed: bool(listed["items"]), what="the canary's Workload")
    del found
    (job,) = (await cluster.get(road.jobs))["items"]
    return str(job["metadata"]["name"])


async def test_a_canary_that_cannot_land_says_why_and_is_gone_however_its_doctor_ends(
    either_plane: Plane, tmp_path: Path
) -> None:
    """After its time, after ctrl-C, after SIGTERM; and one whose doctor was killed is removed by the next one."""
    cluster = either_plane.cluster
    road = await make_road(cluster, shape=(1, 1, 2))
    through = ("-n", road.namespace, "-q", "main", "--request", "cpu=5k")
    async with installed(either_plane, tmp_path):
        await cluster.until(
            f"{KUEUE}/clusterqueues/team", lambda q: bool(q.get("status", {}).get("conditions")), what="team is judged"
        )
        code, late = await examined(either_plane, tmp_path, *through, "--limit", "3")
        await no_canary(cluster, road)
        for number in (signal.SIGINT, signal.SIGTERM):
            async with doctor(either_plane, tmp_path, *through) as process:
                await until_canary(cluster, road)
                process.send_signal(number)
                async with asyncio.timeout(40):
                    _, err = await process.communicate()
            assert process.returncode not in (0, None)
            assert b"Traceback" not in err
            await no_canary(cluster, road)
        async with doctor(either_plane, tmp_path, *through) as process:
            name = await until_canary(cluster, road)
        left = [job["metadata"]["name"] for job in (await cluster.get(road.jobs))["items"]]
        _, after = await examined(either_plane, tmp_path, "-n", road.namespace, "-q", "main")
        await no_canary(cluster, road)

    assert code == 1
    assert ended(late, "failed") == {"canary-quota"}
    assert late["canary-cleanup"]["status"] == "ok"
    assert "it waits: " in late["canary-quota"]["message"]
    assert "cpu" in late["canary-quota"]["message"]
    assert left == [name]
    assert after["canary-old"]["message"] == "removed what killed doctors left behind: 1 Job"


async def test_kinds_that_are_not_installed_are_named(tmp_path: Path) -> None:
    """On the sandbox alone: the real one is shared by tests that need them."""
    sandbox = Sandbox(SandboxOptions())
    await sandbox.start()
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "doctor", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", "json"),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ},
    )
    try:
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
    finally:
        await sandbox.stop()
    steps = {step["name"]: step for step in json.loads(out)["steps"]}
    assert process.returncode == 1
    assert steps["kinds"]["status"] == "failed"
    assert "workloads.kueue.x-k8s.io" in steps["kinds"]["details"]
