"""Clusters for the integration tests: the real control plane, one per test process that needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.kube.definitions import read_definitions
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.simulated_kinds import SIMULATED
from tests.fast_yaml import written
from tests.integration.controlplane import binaries
from tests.integration.controlplane.cluster import Cluster
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane
from tests.sim.chosen import is_deep

CRDS = Path(__file__).resolve().parents[2] / "config" / "crd"
"""Our own definitions."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the sandbox's half of tests marked `seldom_on_sandbox`, if the real control plane runs the other half."""
    if is_deep() or binaries.why_missing() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("seldom_on_sandbox") and on_sandbox(item)]
    if left_out and len(left_out) < len(items):  # a run of nothing else has asked for these
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)


def on_sandbox(item: pytest.Item) -> bool:
    """Whether this is the run on the sandbox of a test for both planes."""
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("wanted_real_plane") == "sandbox"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without binaries a test that needs them is skipped, or fails where they are required.

    All are skipped from this one place, so pytest's summary folds them into one loud line.
    """
    if item.get_closest_marker("controlplane") is None or (missing := binaries.why_missing()) is None:
        return
    if binaries.required():
        pytest.fail(f"{missing} ({binaries.REQUIRE} is set)", pytrace=False)
    pytest.skip(f"!!!! THE REAL CONTROL PLANE IS LEFT OUT: {missing}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failing test on the real control plane shows the last words of its parts."""
    report = yield
    plane = getattr(item, "funcargs", {}).get("real_plane")
    if report.failed and plane is not None:
        report.sections.append(("control plane", plane.tails()))
    return report


@pytest.fixture(scope="session")
def real_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd, kube-apiserver, controller manager, scheduler and kwok, with our CRDs and JobSet's; one per worker.

    It serves no older version: each time that another address converts objects, the API server begins its caches anew.
    """
    folder = tmp_path_factory.mktemp("controlplane")
    with running(folder, crds=(of_one_version(folder / "crds"), SIMULATED)) as plane:
        yield plane


def of_one_version(folder: Path) -> Path:
    """Return a new folder with our own definitions, each with the version that is stored."""
    folder.mkdir()
    for definition in read_definitions(CRDS):
        spec = definition["spec"]
        spec["versions"] = [version for version in spec["versions"] if version["storage"]]
        spec.pop("conversion", None)
        (folder / f"{definition['metadata']['name']}.yaml").write_text(written(definition))
    return folder


@pytest.fixture(scope="module")
def converting_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with our definitions as they are shipped, for the tests of one file."""
    with running(tmp_path_factory.mktemp("converting"), crds=(CRDS, SIMULATED)) as plane:
        yield plane


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[ControlPlane]:
    """Run all parts of a control plane while the block runs; the settings are those of `ControlPlane.start`."""
    started = ControlPlane.start(folder, parts=ALL_PARTS, **settings)
    with asyncio.Runner() as runner:
        plane = runner.run(started.__aenter__())
        try:
            yield plane
        finally:
            runner.run(started.__aexit__(None, None, None))


class SandboxCluster(Cluster):
    """The sandbox has no kubelet for nodes that others make: their readiness is written by hand."""

    async def add_nodes(self, shape: Sequence[int], **settings: Any) -> list[str]:
        """Make nodes in a tree of domains, ready at once."""
        made = await super().add_nodes(shape, **settings, wait=False)
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}}
        for name in made:
            path = f"/api/v1/nodes/{name}/status"
            await self.request("PATCH", path, ready, content_type="application/merge-patch+json")
        return made


class SandboxPlane:
    """The sandbox, shaped like the real control plane as far as the road needs it."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.cluster = SandboxCluster(kubeconfig)

    async def kubectl(self, *args: str, stdin: str | None = None) -> str:
        """What kubectl prints."""
        return await self.cluster.kubectl(*args, stdin=stdin)


@pytest.fixture
async def plane(real_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The real control plane, emptied of what the test leaves behind."""
    async with real_plane.cluster.kept_open():
        yield real_plane
        await real_plane.cluster.reset()


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.controlplane)])
def wanted_real_plane(request: pytest.FixtureRequest) -> ControlPlane | None:
    """The real control plane, or None where the test is to run on the sandbox.

    Not a coroutine: the real one starts on an event loop of its own, which cannot be inside the test's.
    """
    return request.getfixturevalue("real_plane") if request.param == "real" else None


@pytest.fixture
async def either_plane(
    wanted_real_plane: ControlPlane | None, tmp_path: Path
) -> AsyncIterator[ControlPlane | SandboxPlane]:
    """The same test on the sandbox and on the real control plane."""
    if wanted_real_plane is not None:
        async with wanted_real_plane.cluster.kept_open():
            yield wanted_real_plane
            await wanted_real_plane.cluster.reset()
        return
    async with _sandbox_in(tmp_path) as sandbox:
        yield sandbox


@pytest.fixture
async def sandbox_plane(tmp_path: Path) -> AsyncIterator[SandboxPlane]:
    """A sandbox, for tests that are enough there."""
    async with _sandbox_in(tmp_path) as sandbox:
        yield sandbox


@asynccontextmanager
async def _sandbox_in(folder: Path) -> AsyncIterator[SandboxPlane]:
    sandbox = Sandbox(SandboxOptions(crds=(crd_folder(),)))
    await sandbox.start()
    sandbox.write_kubeconfig(folder / "kubeconfig")
    plane = SandboxPlane(folder / "kubeconfig")
    try:
        async with plane.cluster.kept_open():
            yield plane
    finally:
        await sandbox.stop()
