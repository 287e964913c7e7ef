"""The sandbox runs with no other module of kqueue than its own, those of `kqueue.kube`, and basic ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio
import sys
from importlib.abc import MetaPathFinder

ALLOWED = ("kqueue.sandbox", "kqueue.kube", "kqueue.clock", "kqueue.documents", "kqueue.errors", "kqueue.isolation")


class Refusing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        ours = name.startswith(("kqueue.", "webhooks"))
        if ours and not any(name == room or name.startswith(room + ".") for room in ALLOWED):
            raise ModuleNotFoundError(f"{name} is not part of the sandbox")
        return None


sys.meta_path.insert(0, Refusing())

import aiohttp

from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.topology_spec import parse_topology


async def main():
    sandbox = Sandbox(SandboxOptions(topology=parse_topology("1x1x2")))
    await sandbox.start()
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "extra"}}
    try:
        async with aiohttp.ClientSession() as session:
            async with session.post(f"{sandbox.url}/api/v1/nodes", json=node) as answer:
                assert answer.status == 201, await answer.text()
            async with session.get(f"{sandbox.url}/api/v1/nodes") as answer:
                print(len((await answer.json())["items"]), "nodes")
            async with session.get(f"{sandbox.url}/api/v1/nodes/extra") as answer:
                print((await answer.json())["metadata"]["name"])
    finally:
        await sandbox.stop()


PROBE
asyncio.run(main())
"""


def _run(probe: str = "") -> subprocess.CompletedProcess[str]:
    program = _PROGRAM.replace("PROBE", probe)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


def test_the_sandbox_runs_without_the_other_rooms() -> None:
    """It starts, creates a node over HTTP, and gives it back."""
    ended = _run()

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["3 nodes", "extra"]


@pytest.mark.parametrize("module", ["kqueue.api.names", "kqueue.core.quantity", "webhooks.review"])
def test_the_other_rooms_are_out_of_reach_there(module: str) -> None:
    """Otherwise the first test would show nothing."""
    ended = _run(f"import {module}")

    assert ended.returncode != 0
    assert "is not part of the sandbox" in ended.stderr
