"""Clusters for the integration tests: the real control plane, one per test process that needs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from tests.integration.controlplane import binaries
from tests.integration.controlplane.command_lines import ALL_PARTS
from tests.integration.controlplane.plane import ControlPlane

CRDS = Path(__file__).resolve().parents[2] / "config" / "crd"
LEFT_OUT = "THE REAL CONTROL PLANE IS LEFT OUT"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on the real control plane run one after the other; without binaries they are left out, loudly."""
    missing = binaries.why_missing()
    for item in items:
        if item.get_closest_marker("controlplane") is None:
            continue
        item.add_marker(pytest.mark.xdist_group("controlplane"))
        if missing is not None and not binaries.required():
            item.add_marker(pytest.mark.skip(reason=f"{LEFT_OUT}: {missing}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out and why, in one loud line."""
    missing = binaries.why_missing()
    if missing is not None and not binaries.required():
        terminalreporter.write_line(f"!!!! {LEFT_OUT}: {missing}", red=True, bold=True)


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
    """etcd, kube-apiserver, controller manager, scheduler and kwok, with our CRDs; one for the whole session."""
    missing = binaries.why_missing()
    assert missing is None, f"{missing} ({binaries.REQUIRE} is set)"
    started = ControlPlane.start(tmp_path_factory.mktemp("controlplane"), parts=ALL_PARTS, crds=CRDS)
    with asyncio.Runner() as runner:
        plane = runner.run(started.__aenter__())
        try:
            yield plane
        finally:
            runner.run(started.__aexit__(None, None, None))


@pytest.fixture
async def plane(real_plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The real control plane, emptied of what the test leaves behind."""
    yield real_plane
    await real_plane.cluster.reset()
