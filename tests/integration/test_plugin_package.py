"""The package of examples/plugins, built and installed into an environment of its own, and used by a controller there."""

from __future__ import annotations

import asyncio
import os
import site
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.road import KUEUE, Object, controller
from tests.integration.teams import Plane, make_teams, patch

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "plugins"
UV = Path(sys.executable).parent / "uv"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment with kqueue, which has no package of plugins but the example."""
    folder = tmp_path_factory.mktemp("plugins") / "venv"
    _run(UV, "venv", "--offline", "--no-config", "--python", sys.executable, folder)
    found = folder / "bin" / "python"
    (shared,) = {Path(p) for p in site.getsitepackages()}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    also = folder / "lib" / version / "site-packages" / "kqueue-of-the-tests.pth"
    also.write_text(f"import site; site.addsitedir({str(shared)!r})\n")
    _run(UV, "pip", "install", "--offline", "--no-config", "--no-deps", "--python", found, PACKAGE)
    return found


def _run(*command: object) -> str:
    """Run a command outside of the project; the test fails with its words when it fails."""
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd="/", env=env, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_package_passes_its_own_tests(python: Path) -> None:
    """The contract of plugins is among them."""
    said = _run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", PACKAGE, PACKAGE / "tests")
    assert "4 passed" in said


async def test_a_controller_uses_the_installed_plugins(either_plane: Plane, python: Path, tmp_path: Path) -> None:
    """The configuration and the objects of the example: the plugin refuses large pods, and holds others back while the
    file exists.
    """
    freeze, config = tmp_path / "freeze", tmp_path / "config.yaml"
    freeze.touch()
    given = yaml.safe_load((PACKAGE / "config.yaml").read_text())
    given["plugins"]["enabled"][1]["args"] |= {"file": str(freeze), "maxCpu": {"plain": 0}}
    config.write_text(yaml.safe_dump(given))
    check, queue = yaml.safe_load_all((PACKAGE / "objects.yaml").read_text())
    teams = await make_teams(either_plane, {"team": 16})
    await teams.cluster.request("POST", f"{KUEUE}/admissionchecks", check)
    change = {"metadata": {"annotations": queue["metadata"]["annotations"]}}
    change["spec"] = {"admissionChecksStrategy": queue["spec"]["admissionChecksStrategy"]}
    await patch(either_plane, f"{KUEUE}/clusterqueues/team", change)
    async with controller(either_plane.kubeconfig, tmp_path / "log", config=config, python=python):
        await teams.submit("train", queue="team", pods=2)
        reason = await teams.until_workload("train", "QuotaReserved", status="False")
        given["plugins"]["enabled"][1]["args"]["maxCpu"] = {"plain": 8}
        config.write_text(yaml.safe_dump(given))
    async with controller(either_plane.kubeconfig, tmp_path / "log", config=config, python=python):

        def is_held(listed: Object) -> bool:
            states = [c for w in listed["items"] for c in w.get("status", {}).get("admissionChecks", ())]
            return any(f"file {freeze} exists" in state["message"] for state in states)

        await teams.cluster.until(teams.workloads, is_held, what="the plugin waits")
        await asyncio.to_thread(freeze.unlink)
        await teams.until_running(train=2)

    assert "Plugin freeze: pods may ask for 0 cpu, and these ask for 1" in reason["message"]
