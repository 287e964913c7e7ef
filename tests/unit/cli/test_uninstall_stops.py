"""What runs in the cluster is stopped before it is released, and a pod that does not end is told of."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kqueue.cli.app import run
from kqueue.clock import SystemClock
from kqueue.controllers.resources import PODS
from kqueue.errors import KqueueError
from kqueue.operations.removal.stop import DEPLOYMENTS, stop
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.sandbox import Sandbox

JSON = dict[str, Any]
JOBS = ResourceType("batch", "v1", "jobs", "Job")
LABELS = {"app": "kqueue"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def make_deployment(client: Client) -> None:
    """One with a pod, and a stranger's pod beside it."""
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    metadata = {"name": "controller", "namespace": "default"}
    await client.create(
        DEPLOYMENTS, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    )
    for name, labels in (("ours", LABELS), ("stranger", {"app": "other"})):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": labels}}
        await client.create(PODS, {**pod, "spec": TEMPLATE["spec"]})


class PodEnds(SystemClock):
    """A clock on which a pod is gone at the third pause."""

    def __init__(self, client: Client) -> None:
        self.client, self.pauses = client, 0

    async def sleep(self, seconds: float) -> None:
        """No time passes, but something happens."""
        self.pauses += 1
        if self.pauses == 3:
            await self.client.delete(PODS, "ours", "default")


async def test_it_waits_for_the_last_pod_and_for_no_strangers(client: Client) -> None:
    """One that does not exist is stopped already."""
    await make_deployment(client)
    clock = PodEnds(client)
    await stop(client, [("default", "controller"), ("default", "never-was")], clock, seconds=30)

    assert (await client.get_json(DEPLOYMENTS, "controller", "default"))["spec"]["replicas"] == 0
    assert clock.pauses == 3
    assert (await client.get_json(PODS, "stranger", "default"))["metadata"]["name"] == "stranger"


async def test_a_pod_that_does_not_end_is_named(client: Client) -> None:
    """Nothing is released beside something that may still run."""
    await make_deployment(client)

    with pytest.raises(KqueueError, match="pod default/ours has not ended within 0 s; see what holds it"):
        await stop(client, [("default", "controller")], SystemClock(), seconds=0)


async def test_a_running_job_with_our_gate_fails_the_call_unless_it_is_accepted(
    client: Client, sandbox: Sandbox, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is listed either way."""
    sandbox.write_kubeconfig(tmp_path / "kubeconfig")
    gated: dict[str, Any] = {"metadata": {}, "spec": {**dict[str, Any](TEMPLATE)["spec"], "restartPolicy": "Never"}}
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/topology"}]
    metadata = {"name": "train", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "main"}}
    train = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": gated}}
    await client.create(JOBS, train)

    async def called(*arguments: str) -> tuple[int, int]:
        given = ["uninstall", "--release", "-o", "json", *arguments, "--kubeconfig", str(tmp_path / "kubeconfig")]
        code = await asyncio.to_thread(run, given)
        return code, json.loads(capsys.readouterr().out)["counts"]["gatedTemplate"]

    assert await called() == (1, 1)
    assert await called("--despite-running") == (0, 1)
