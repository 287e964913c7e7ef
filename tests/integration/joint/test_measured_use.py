"""Measured use in a running cluster chooses hosts; the doctor names its absence; a slow metrics API delays no cycle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import structlog
from aiohttp import web

from kqueue.api.crd_files import crd_folder
from kqueue.config import Configuration, parse
from kqueue.manager.operator import Operator
from kqueue.operations.checkup.joint import verdict_of
from kqueue.operations.checkup.values import StepStatus
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.cluster import PARTS
from kqueue.scheduling.joint.rounds import JointRounds
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.failover import redirected
from tests.integration.joint.joint_road import JOINT, LONG, JointRoad, Plane, controlled, until
from tests.integration.network import Fault, Gateway, answers, hangs, shows_page
from tests.integration.road import job
from tests.integration.test_explain import VISIBILITY, explaining

pytestmark = pytest.mark.slow

MEASURED = JOINT.replace(
    "joint: {timeLimit: 60s}", "joint: {timeLimit: 60s, policies: [{name: utilisation}], statistics: {interval: 5s}}"
)
USE = "sandbox.kqueue.dev/use"
MERGE = "application/merge-patch+json"


def configuration(text: str = MEASURED) -> Configuration:
    return parse(text, source="test")


@asynccontextmanager
async def sandbox(folder: Path, *, metrics: bool = True) -> AsyncIterator[SandboxPlane]:
    """A sandbox with or without the API of measured use."""
    parts = PARTS if metrics else PARTS - {"metrics"}
    made = Sandbox(SandboxOptions(crds=(crd_folder(),), parts=parts))
    await made.start()
    made.write_kubeconfig(folder / "kubeconfig")
    try:
        yield SandboxPlane(folder / "kubeconfig")
    finally:
        await made.stop()


async def use(road: JointRoad, node: str, cpu: str) -> None:
    """The simulated use of a node from now on."""
    patch = {"metadata": {"annotations": {USE: f"cpu={cpu},memory=0"}}}
    await road.cluster.request("PATCH", f"/api/v1/nodes/{node}", patch, content_type=MERGE)


async def place(road: JointRoad, name: str) -> str:
    """Run a Job of one small pod that may be anywhere; return its node."""
    made = job(name, road.namespace, pods=1, required=None, run_seconds=LONG, gpus=1)
    await road.cluster.request("POST", road.jobs, made)
    await road.until_running(**{name: 1})
    listed = await road.cluster.request("GET", road.pods)
    labelled = {pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]: pod for pod in listed["items"]}
    node: str = labelled[name]["spec"]["nodeName"]
    return node


def rounds_of(operator: Operator) -> JointRounds:
    assert isinstance(operator.rounds, JointRounds)
    return operator.rounds


async def until_measured(operator: Operator, nodes: int) -> None:
    def measured() -> bool:
        summary = rounds_of(operator).use_summary()
        return summary is not None and summary.nodes == nodes

    await until(measured, f"{nodes} nodes have samples")


@pytest.mark.mechanism("2.16")
async def test_the_host_that_is_used_least_gets_the_pod(tmp_path: Path) -> None:
    """E15 on served metrics; pods that run have their use measured, too."""
    async with sandbox(tmp_path) as plane:
        road = await JointRoad.make(plane.cluster, (3,))
        nodes = sorted(
            node["metadata"]["name"] for node in (await road.cluster.request("GET", "/api/v1/nodes"))["items"]
        )
        for node, cpu in zip(nodes, ("9", "2", "9"), strict=True):
            await use(road, node, cpu)
        async with controlled(plane, configuration()) as operator:
            await until_measured(operator, 3)
            await road.open()
            first = await place(road, "first")
            last = rounds_of(operator).last
            await until(lambda: _kinds(operator) == 1, "the pod that runs is measured")
        without = configuration(MEASURED.replace("interval: 5s", "source: none"))
        async with controlled(plane, without) as operator:
            await place(road, "second")
            static = rounds_of(operator).last
    assert first == nodes[1]
    assert last is not None
    assert last.static_nodes == 0
    assert static is not None
    assert static.static_nodes == 3


def _kinds(operator: Operator) -> int:
    summary = rounds_of(operator).use_summary()
    return summary.kinds if summary is not None else 0


async def test_without_a_metrics_api_reservations_count_and_the_doctor_says_so(tmp_path: Path) -> None:
    async with sandbox(tmp_path, metrics=False) as plane:
        await _without_metrics(plane)


@pytest.mark.controlplane
async def test_a_control_plane_without_a_metrics_server_has_no_measured_use(plane: ControlPlane) -> None:
    await _without_metrics(plane)


async def _without_metrics(plane: Plane) -> None:
    road = await JointRoad.make(plane.cluster, (2,))
    with structlog.testing.capture_logs() as logs:
        async with explaining(plane, config=configuration()) as running:
            operator = running.operator
            await operator.ready.wait()
            await until(lambda: "not served" in "".join(problems(operator)), "the absence is noticed")
            await road.open()
            await place(road, "first")
            listed = await plane.cluster.get(f"{VISIBILITY}/jointrounds")
            last = rounds_of(operator).last
    doctor = verdict_of(listed)
    assert doctor.status is StepStatus.WARNING
    assert "the API metrics.k8s.io is not served" in doctor.remedy
    assert last is not None
    assert last.static_nodes == 2
    assert [log["event"] for log in logs].count("measured use cannot be read, reservations count instead") == 1


class MetricsGateway(Gateway):
    """Passes all but metrics.k8s.io on; `use` answers that, in place of the server if it is set."""

    use: Fault | None = None
    asked_for_use = 0

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if not request.path.startswith("/apis/metrics.k8s.io"):
            return await super()._handle(request)
        self.asked_for_use += 1
        return await (super()._handle(request) if self.use is None else self.use(self, request))


async def many_pods(_gateway: Gateway, request: web.BaseRequest) -> web.StreamResponse:
    """A list of 100,000 pods, 35 MB, that nobody knows; or of no node."""
    head, tail = b'{"kind":"List","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[', b"]}"
    if request.path.endswith("metrics.k8s.io"):
        return web.json_response({"versions": [{"version": "v1beta1"}]})
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    await response.write(head)
    for first in range(0, 100_000 if request.path.endswith("/pods") else 0, 1_000):
        items = b",".join(_POD % number for number in range(first, first + 1_000))
        await response.write((b"," if first else b"") + items)
    await response.write(tail)
    return response


_POD = (
    b'{"metadata":{"name":"pod-%d","namespace":"elsewhere","labels":{"text":"' + b"x" * 160 + b'"}},'
    b'"timestamp":"2026-01-01T00:00:00Z","window":"15s","containers":[{"name":"c","usage":{"cpu":"1n","memory":"1Ki"}}]}'
)


@pytest.mark.mechanism("2.26")
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(hangs, id="hangs"),
        pytest.param(answers(503, "ServiceUnavailable"), id="fails"),
        pytest.param(shows_page(200), id="nonsense"),
        pytest.param(many_pods, id="35 MB"),
    ],
)
async def test_admission_goes_on_whatever_the_metrics_api_does(fault: Fault, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(sandbox(tmp_path))
        gateway = MetricsGateway(plane.cluster.access)
        gateway.use = fault
        await stack.enter_async_context(gateway.serving())
        through = SandboxPlane(redirected(plane.kubeconfig, tmp_path / "through", gateway.url, token="any"))
        road = await JointRoad.make(plane.cluster, (3,))
        async with controlled(through, configuration()) as operator:
            await until(lambda: gateway.asked_for_use >= 2, "both lists are asked for")
            await road.open()
            for name in ("first", "second", "third"):
                await place(road, name)
            last = rounds_of(operator).last
            assert last is not None
            assert last.static_nodes == 3
            gateway.use = None
            await until_measured(operator, 3)
            await until(lambda: problems(operator) == (), "nothing is wrong any more")


def problems(operator: Operator) -> tuple[str, ...]:
    summary = rounds_of(operator).use_summary()
    return summary.problems if summary is not None else ()
