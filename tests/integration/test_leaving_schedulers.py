"""The how-to pages on leaving other gang schedulers, command by command, with the configuration that each page shows."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from kqueue.config import Timings, parse
from kqueue.manager.process import Flags, running
from tests.integration.conftest import CRDS, SandboxPlane
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import make_road
from tests.integration.test_pods import PARTS
from tests.integration.test_tutorial import Reader, steps

Plane = ControlPlane | SandboxPlane
HOW_TO = CRDS.parents[1] / "docs" / "how-to"
VOLCANO = CRDS.parents[1] / "examples" / "gangs" / "kinds" / "podgroups.scheduling.volcano.sh.yaml"
PAGES = ["leave-the-coscheduling-plugin.md", "leave-volcano.md"]
_SETTINGS = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
_HEAD = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "leaderElection": {"leaderElect": False},
}


@asynccontextmanager
async def as_configured(plane: Plane, page: str, kinds: Path) -> AsyncIterator[str]:
    """A namespace with queue `main`, nodes, and a controller with the settings of the page; `kinds` is a new folder."""
    found = _SETTINGS.search(page)
    assert found is not None
    kinds.mkdir()
    shutil.copy(VOLCANO, kinds)
    for folder in (CRDS / "optional", kinds):
        await plane.cluster.apply_crds(folder)
    road = await make_road(plane.cluster, shape=(1, 2, 4))
    flags = Flags(
        kubeconfig=plane.kubeconfig, parts=PARTS, health_address="0", metrics_address="0", webhook_host="127.0.0.1",
        webhook_port=0, webhook_url="https://127.0.0.1:{port}",
    )  # fmt: skip
    configuration = parse(
        yaml.safe_dump(_HEAD | yaml.safe_load(found[1])), source="page", own_namespace="kqueue-system"
    )
    async with running(configuration, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await process.operator.ready.wait()
        yield road.namespace


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
async def test_the_page_works_as_it_is_written(either_plane: Plane, tmp_path: Path, name: str) -> None:
    """Each command prints what the page shows under it; manifests of the other scheduler run unchanged."""
    page = (HOW_TO / name).read_text()
    folder = tmp_path / "reader"
    folder.mkdir()
    async with as_configured(either_plane, page, tmp_path / "kinds") as namespace:
        reader = Reader(folder)
        access = yaml.safe_load(either_plane.kubeconfig.read_text())
        for context in access["contexts"]:
            context["context"]["namespace"] = namespace
        (folder / "kubeconfig").write_text(yaml.safe_dump(access))
        for step in steps(re.sub(r"(?<=namespace[ /])default", namespace, page)):
            if step.note != "not run":
                await reader.see(step)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_steps(name: str) -> None:
    """Or the test above would be empty."""
    assert sum(bool(step.shown) for step in steps((HOW_TO / name).read_text())) > 2
