from __future__ import annotations

import json
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import aiohttp
import pytest
import yaml

from kqueue.api.crd_files import crd_folder, load_crds
from kqueue.cli.app import run
from kqueue.clock import FakeClock
from kqueue.errors import ConfigError
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.api import CRDS, JOBS, NODES, PODS
from kqueue.sandbox.cluster import PARTS
from kqueue.sandbox.nodes import NodeOptions
from kqueue.sandbox.topology_spec import parse_topology
from tests.unit.sandbox.simulated_world import NAMESPACE, make_job


async def test_a_sandbox_serves_its_nodes_and_kinds_until_it_is_stopped(tmp_path: Path) -> None:
    """The kubeconfig leads to a server that knows the nodes and kqueue's own kinds; after `stop` nobody answers."""
    sandbox = Sandbox(SandboxOptions(topology=parse_topology("1x2x3"), crds=(crd_folder(),)))
    await sandbox.start()
    try:
        path = tmp_path / "deep" / "config"
        sandbox.write_kubeconfig(path)
        url = yaml.safe_load(path.read_text())["clusters"][0]["cluster"]["server"]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{url}/api/v1/nodes") as answer:
                nodes = (await answer.json())["items"]
            async with session.get(f"{url}/apis/kueue.x-k8s.io/v1beta2/workloads") as answer:
                assert answer.status == 200
    finally:
        await sandbox.stop()

    assert (url, len(nodes)) == (sandbox.url, 6)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", sandbox.port)) != 0
    await sandbox.stop()


async def test_without_a_server_a_sandbox_is_a_simulation() -> None:
    """On a fake clock Jobs run, and what a deleted Job owned is collected, in no time at all."""
    clock = FakeClock()
    options = SandboxOptions(
        topology=parse_topology("1x1x2"),
        parts=PARTS - {"server"},
        nodes=NodeOptions(heartbeat_seconds=0),
    )
    sandbox = Sandbox(options, clock=clock)
    await sandbox.start()
    try:
        await sandbox.api.create(JOBS, make_job("short", run="3600"), namespace=NAMESPACE)
        await sandbox.api.create(JOBS, make_job("kept", run="3600"), namespace=NAMESPACE)
        await sandbox.settle()
        await sandbox.api.delete(JOBS, "short", namespace=NAMESPACE)
        await sandbox.api.delete(JOBS, "kept", namespace=NAMESPACE, propagation="Orphan")
        await sandbox.settle()

        (pod,) = sandbox.api.list(PODS)
        assert pod["metadata"]["name"].startswith("kept-")
        assert not pod["metadata"].get("finalizers")
        assert not pod["metadata"].get("ownerReferences")
        await clock.advance(3600)
        await sandbox.settle()
        assert sandbox.api.list(PODS)[0]["status"]["phase"] == "Succeeded"
    finally:
        await sandbox.stop()


async def test_parts_that_are_switched_off_do_nothing() -> None:
    """Without its scheduler the cluster leaves pods to another one."""
    sandbox = Sandbox(SandboxOptions(topology=parse_topology("2"), parts=PARTS - {"scheduler", "server"}))
    await sandbox.start()
    try:
        await sandbox.api.create(JOBS, make_job(), namespace=NAMESPACE)
        await sandbox.settle()
        (pod,) = sandbox.api.list(PODS)
        assert "nodeName" not in pod["spec"]
    finally:
        await sandbox.stop()

    with pytest.raises(ConfigError, match="parts: turbo is unknown"):
        SandboxOptions(parts=frozenset({"turbo"}))


async def test_nodes_write_heartbeats_in_turn() -> None:
    """Each node's turn comes once per interval; its Ready condition keeps its transition time."""
    clock = FakeClock()
    options = SandboxOptions(topology=parse_topology("3"), parts=PARTS - {"server"})
    sandbox = Sandbox(options, clock=clock)
    await sandbox.start()
    try:
        await sandbox.settle()
        for _ in range(3):
            await clock.advance(100)
            await sandbox.settle()

        ready = [node["status"]["conditions"][0] for node in sandbox.api.list(NODES)]
        beats = sorted(entry["lastHeartbeatTime"] for entry in ready)
        assert beats == ["2026-01-01T00:01:40Z", "2026-01-01T00:03:20Z", "2026-01-01T00:05:00Z"]
        assert {entry["lastTransitionTime"] for entry in ready} == {"2026-01-01T00:00:00Z"}
    finally:
        await sandbox.stop()


async def test_a_taken_port_is_said_and_nothing_is_left_running() -> None:
    """The error names the port and the ways out."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} on 127.0.0.1 is taken"):
            await Sandbox(SandboxOptions(port=port)).start()


def test_the_users_own_kubeconfig_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even when it is asked for, and not through a link either."""
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / ".kube" / "config"
    own.parent.mkdir()
    own.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(own)
    sandbox = Sandbox(SandboxOptions())
    for path in (own, link, Path("~/.kube/config")):
        with pytest.raises(ConfigError, match="stays as it is"):
            sandbox.write_kubeconfig(path)
    assert own.read_text() == "mine"


async def test_kqueues_kinds_are_all_found() -> None:
    """Every CustomResourceDefinition of this checkout is installed and served."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset(), crds=(crd_folder(),)))
    await sandbox.start()
    await sandbox.stop()

    names = {definition["metadata"]["name"] for definition in sandbox.api.list(CRDS)}
    assert names == {definition["metadata"]["name"] for definition in load_crds()}
    assert "workloads.kueue.x-k8s.io" in names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--topology", "4x"], "topology '4x' is neither a size nor a file", id="topology"),
        pytest.param(["--topology", "0x4"], "0 must be a whole number from 1", id="topology-zero"),
        pytest.param(["--allocatable", "cpu"], "'cpu' must be RESOURCE=QUANTITY", id="allocatable-form"),
        pytest.param(["--allocatable", "cpu=lots"], "allocatable[cpu]: 'lots' is no amount", id="allocatable-amount"),
        pytest.param(["--without", "kubelet,wheels"], "--without: wheels is no part", id="part"),
        pytest.param(["--speed", "0"], "--speed: 0.0 must be above 0", id="speed"),
        pytest.param(["--log-level", "loud"], "loud", id="log-level"),
    ],
)
def test_wrong_flags_end_with_one_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and the flag and the remedy on stderr."""
    assert run(["sandbox", "--port", "0", *arguments]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_the_command_runs_until_interrupted(tmp_path: Path) -> None:
    """It says where it is in one line of JSON, answers there, and an interrupt ends it with code 0."""
    path = tmp_path / "kubeconfig"
    command = [sys.executable, "-m", "kqueue", "sandbox", "--topology", "2x2", "--port", "0", "-o", "json"]
    with subprocess.Popen([*command, "--kubeconfig", str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            facts = json.loads(process.stdout.readline())
            with urlopen(f"{facts['url']}/readyz", timeout=10) as answer:
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 0
    assert (facts["nodes"], facts["kubeconfig"], facts["pid"]) == (4, str(path), process.pid)
    assert facts["url"] in path.read_text()
