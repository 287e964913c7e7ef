"""docs/how-to/free-a-rack.md, carried out on the sandbox: the page's commands, in their order, with other names."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kqueue.api import names
from kqueue.cli.story import cluster
from kqueue.cli.story_view import JOBS, is_true, owner, pod_state
from kqueue.controllers.resources import (
    CLUSTER_QUEUES,
    DEFRAGMENTATION_PLANS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.runtime.client import Client
from tests.integration.conftest import CRDS
from tests.integration.controlplane.cluster import POLL_SECONDS, WAIT_SECONDS
from tests.integration.test_tutorial import Reader

PAGE = CRDS.parents[1] / "docs" / "how-to" / "free-a-rack.md"
RACK, GPU, OURS = "example.com/rack", "nvidia.com/gpu", "kueue.x-k8s.io/v1beta2"
RACKS = f"""
levels: [{RACK}]
pools:
- name: gpu
  counts: [3, 16]
  allocatable: {{cpu: 64, {GPU}: 8, pods: 110}}
"""
_COMMAND = re.compile(r"^    ((?:kubectl|kqueue) (?:.*\\\n)*.*)$", re.MULTILINE)
_SECTION = re.compile(r"^## (.*)$", re.MULTILINE)
_NO_PLAN = r"no plan: \S+ comes closest and lacks room for \d+ pods; blocked by \S+ \(kqueue\.dev/reschedule: Never"
"""The form of the sentence that the page shows where no workload may move."""


def ours(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """An object of the queues."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": OURS, "kind": kind, "metadata": metadata, "spec": spec}


class Teams:
    """Racks of 16 hosts of which 6, 10 and 5 are free, and a gang of 16 hosts that waits."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def build(self) -> None:
        """Gang `train` is alone in the first rack; gangs in the other racks have to stay."""
        levels = [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME_LABEL}]
        pool = {"cloud.provider.com/node-group": "gpu"}
        quota = {"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "1000"}]}
        groups = [{"coveredResources": [GPU], "flavors": [quota]}]
        await self.client.create(TOPOLOGIES, ours("Topology", "racks", {"levels": levels}))
        flavor = {"nodeLabels": pool, "topologyName": "racks"}
        await self.client.create(RESOURCE_FLAVORS, ours("ResourceFlavor", "gpu", flavor))
        queue = {"namespaceSelector": {}, "resourceGroups": groups}
        await self.client.create(CLUSTER_QUEUES, ours("ClusterQueue", "teams", queue))
        for namespace in ("team-a", "team-b"):
            await self.client.create(NAMESPACES, {"metadata": {"name": namespace}})
            await self.client.create(LOCAL_QUEUES, ours("LocalQueue", "main", {"clusterQueue": "teams"}, namespace))
        await self.submit("train", "team-b", 10)
        await self.until_runs("train", "team-b", 10)
        racks = sorted({node["metadata"]["labels"][RACK] for node in await self.client.list_json(NODES)})
        (first,) = await self.racks_of("train", "team-b")
        others = [rack for rack in racks if rack != first]
        for name, namespace, pods, rack in (("v1", "team-a", 3, 0), ("v2", "team-a", 3, 0), ("c", "team-b", 11, 1)):
            await self.submit(name, namespace, pods, rack=others[rack])
            await self.until_runs(name, namespace, pods)
        await self.submit("big", "team-a", 16)
        await self.until(lambda: self.is_without_room("big", "team-a"), "big waits for room")

    async def submit(self, name: str, namespace: str, pods: int, *, rack: str = "") -> None:
        """A Job of whole hosts in one rack."""
        container = {"name": "c", "image": "i", "resources": {"requests": {GPU: "8"}, "limits": {GPU: "8"}}}
        spec: dict[str, Any] = {"restartPolicy": "Never", "containers": [container]}
        if rack:
            spec["nodeSelector"] = {RACK: rack}
        notes = {names.REQUIRED_TOPOLOGY_ANNOTATION: RACK, "sandbox.kqueue.dev/run-seconds": "3600"}
        body = {
            "parallelism": pods,
            "completions": pods,
            "template": {"metadata": {"annotations": notes}, "spec": spec},
        }
        labels = {names.QUEUE_NAME_LABEL: "main"}
        metadata = {"name": name, "namespace": namespace, "labels": labels}
        await self.client.create(JOBS, {"metadata": metadata, "spec": body}, namespace)

    async def workload(self, job: str, namespace: str) -> dict[str, Any] | None:
        """The Workload of a job; None: there is none yet."""
        found = await self.client.list_json(WORKLOADS, namespace)
        return next((w for w in found if owner(w) == job), None)

    async def is_without_room(self, job: str, namespace: str) -> bool:
        found = await self.workload(job, namespace)
        return found is not None and "no room" in str(found.get("status", {}).get("conditions"))

    async def running(self, job: str, namespace: str) -> list[str]:
        """The nodes of its pods that run."""
        pods = await self.client.list_json(PODS, namespace)
        return [p["spec"]["nodeName"] for p in pods if owner(p) == job and pod_state(p) == "running"]

    async def racks_of(self, job: str, namespace: str) -> set[str]:
        """The racks of its pods that run."""
        nodes = {n["metadata"]["name"]: n["metadata"]["labels"][RACK] for n in await self.client.list_json(NODES)}
        return {nodes[node] for node in await self.running(job, namespace)}

    async def until_runs(self, job: str, namespace: str, pods: int) -> None:
        async def runs() -> bool:
            found = await self.workload(job, namespace)
            admitted = found is not None and is_true(found, names.CONDITION_ADMITTED)
            return admitted and len(await self.running(job, namespace)) == pods

        await self.until(runs, f"{job} runs")

    async def until(self, look: Callable[[], Awaitable[bool]], what: str) -> None:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not await look():
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not within {WAIT_SECONDS} s: {what}") from None

    async def set_back(self, job: str, namespace: str) -> None:
        """Let the workload have run for long: younger ones are not moved."""
        found = await self.workload(job, namespace)
        assert found is not None
        conditions = found["status"]["conditions"]
        for condition in conditions:
            condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        patch = {"status": {"conditions": conditions}}
        await self.client.patch(WORKLOADS, found["metadata"]["name"], patch, namespace, subresource="status")


@asynccontextmanager
async def teams(folder: Path) -> AsyncIterator[tuple[Teams, Reader]]:
    """The cluster with a controller that plans jointly, and a reader with a shell."""
    (folder / "nodes.yaml").write_text(RACKS)
    async with cluster(str(folder / "nodes.yaml"), Console(stderr=True)) as (_, _, client, kubeconfig):
        (folder / "kubeconfig").write_text(kubeconfig.read_text())
        made = Teams(client)
        await made.build()
        yield made, Reader(folder)


def commands(section: str) -> list[str]:
    """The commands of a section of the page, with their continued lines."""
    parts = _SECTION.split(PAGE.read_text())
    text = dict(zip(parts[1::2], parts[2::2], strict=True))[section]
    return [found[1] for found in _COMMAND.finditer(text)]


@pytest.mark.slow
async def test_the_page_frees_a_rack(tmp_path: Path) -> None:
    """The gang that waits gets the rack which the workload leaves whose user has agreed, and nobody else is touched."""
    async with teams(tmp_path) as (stage, reader):
        big = await stage.workload("big", "team-a")
        assert big is not None
        said = {"team-a/job-big": f"team-a/{big['metadata']['name']}"}
        before = await stage.racks_of("train", "team-b")
        stay = [("v1", "team-a"), ("v2", "team-a"), ("c", "team-b")]
        unmoved = [await stage.running(*one) for one in stay]
        await stage.set_back("train", "team-b")

        async def carry_out(command: str) -> str:
            for name, real in said.items():
                command = command.replace(name, real)
            return await reader.run(f"{command} 2>&1 || true")

        plan, nodes = commands("Make a plan")
        assert re.search(_NO_PLAN, await carry_out(plan))
        (agree,) = commands("Workloads that may be moved")
        assert "annotated" in await carry_out(agree)
        await stage.until(lambda: _plans(carry_out, plan), "there is a plan with the consent of the user")
        assert "for 16 empty nodes in one rack" in await carry_out(nodes)
        save, *rest = commands("Propose and approve")
        name = re.findall(r"^Plan (\S+) is Proposed", await carry_out(save), re.MULTILINE)
        assert len(name) == 1
        stored = await stage.client.get_json(DEFRAGMENTATION_PLANS, name[0])
        said |= {"gpu-5f0c1b7a": name[0], "sha256:...": stored["status"]["hash"]}
        for command in rest:
            assert name[0] in await carry_out(command)
        await stage.until_runs("big", "team-a", 16)
        await stage.until_runs("train", "team-b", 10)
        assert await stage.racks_of("big", "team-a") == before != await stage.racks_of("train", "team-b")
        assert [await stage.running(*one) for one in stay] == unmoved

        async def is_done() -> bool:
            return f"Plan {name[0]} is Done" in await carry_out(f"kqueue defrag show {name[0]}")

        await stage.until(is_done, "the plan is done")


async def _plans(carry_out: Callable[[str], Awaitable[str]], command: str) -> bool:
    return "is Proposed" in await carry_out(command)


def test_the_page_shows_what_the_test_looks_for() -> None:
    """Or the test above would read another page."""
    assert re.search(_NO_PLAN, PAGE.read_text())
    assert [len(commands(section)) for section in ("Make a plan", "Propose and approve")] == [2, 4]
