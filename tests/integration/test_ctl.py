"""The verbs of `kubectl kueue` against a cluster: what they print, and what they leave there."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from kqueue.cli import app
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane import binaries
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, condition, make_road

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]

Plane = ControlPlane | SandboxPlane


class Shell:
    """Someone at a command line; the commands run in this process, in a thread of their own."""

    def __init__(self, plane: Plane, captured: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._captured, self._monkeypatch = captured, monkeypatch
        self.cluster = plane.cluster
        monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))

    async def run(self, *arguments: str, answer: str = "") -> tuple[int, str, str]:
        """Exit code, standard output and standard error; `answer` is what is typed."""
        self._captured.readouterr()
        self._monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        async with asyncio.timeout(60):
            code = await asyncio.to_thread(app.run, arguments)
        out, err = self._captured.readouterr()
        return code, out, err

    async def done(self, *arguments: str) -> str:
        """What a command prints that must succeed."""
        code, out, err = await self.run(*arguments)
        assert code == 0, err
        return out

    async def completed(self, line: str) -> list[str]:
        """What the last word of a command line may become."""
        self._captured.readouterr()
        words = ["kqueue", *line.split()]
        for variable, value in (
            ("_KQUEUE_COMPLETE", "complete_bash"),
            ("COMP_WORDS", " ".join(words)),
            ("COMP_CWORD", str(len(words) - 1)),
        ):
            self._monkeypatch.setenv(variable, value)
        try:
            await asyncio.to_thread(app.run, [])
        finally:
            self._monkeypatch.delenv("_KQUEUE_COMPLETE")
        return self._captured.readouterr().out.split()

    async def rows(self, *arguments: str) -> dict[str, dict[str, str]]:
        """A printed table: cells by column, by the name in the row."""
        lines = (await self.done(*arguments)).splitlines()
        starts = [title.start() for title in re.finditer(r"\S+( \S+)*", lines[0])]
        cells = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines]
        table = [dict(zip(cells[0], row, strict=True)) for row in cells[1:]]
        return {row["NAME"]: row for row in table}


@pytest.fixture
def shell(either_plane: Plane, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands on the cluster of the test."""
    return Shell(either_plane, capsys, monkeypatch)


@asynccontextmanager
async def controlled(plane: Plane, folder: Path) -> AsyncIterator[None]:
    """A controller that can be asked, in a process of its own."""
    with (folder / "controller.log").open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "kqueue", "controller", "--no-leader-elect", "--kubeconfig", str(plane.kubeconfig)),
            *("--health-address", "127.0.0.1:0", "--metrics-address", "0"),
            *("--visibility-port", "0", "--visibility-url", "https://localhost:{port}"),
            stdout=out,
            stderr=out,
            env={**os.environ, "KQUEUE_TIMING_QUEUE_FLUSH_WINDOW": "0.1"},
        )
    try:
        yield
    finally:
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 20)
        if process.returncode is None:
            process.kill()
            await process.wait()


async def stored(shell: Shell, path: str) -> Object | None:
    """An object, None where it is not there."""
    return await shell.cluster.get(f"{KUEUE}/{path}") if await shell.cluster.exists(f"{KUEUE}/{path}") else None


async def test_queues_and_flavors_are_created_from_flags(shell: Shell) -> None:
    """As the flags say; a dry run stores nothing, and a LocalQueue needs its ClusterQueue."""
    namespace = await shell.cluster.create_namespace()
    taints = ("--node-taints", "gpu=yes:NoSchedule", "--tolerations", "gpu:NoSchedule")
    await shell.done("create", "rf", "gpu", "--node-labels", "pool=gpu,zone=a", *taints)
    quota = ("--nominal-quota", "gpu:cpu=8;memory=32Gi", "--cohort", "all", "--borrowing-limit", "gpu:cpu=1;memory=1Gi")
    tried = await shell.done("create", "cq", "team", *quota, "--dry-run", "server", "-o", "yaml")
    nothing = await stored(shell, "clusterqueues/team")
    refused = await shell.run("create", "lq", "main", "-c", "team", "-n", namespace)
    made = await shell.done("create", "cq", "team", *quota)
    await shell.done("create", "lq", "main", "-c", "team", "-n", namespace)
    await shell.done("create", "lq", "early", "-c", "later", "-i", "-n", namespace)
    again = await shell.run("create", "lq", "main", "-c", "team", "-n", namespace)
    wrong = await shell.run("create", "cq", "Odd_Name")

    flavor, team = await stored(shell, "resourceflavors/gpu"), await stored(shell, "clusterqueues/team")
    assert flavor is not None
    assert team is not None
    assert flavor["spec"] == {
        "nodeLabels": {"pool": "gpu", "zone": "a"},
        "nodeTaints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    assert made == "clusterqueue.kueue.x-k8s.io/team created\n"
    assert team["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0] == {
        "name": "cpu", "nominalQuota": "8", "borrowingLimit": "1"
    }  # fmt: skip
    assert yaml.safe_load(tried)["spec"] == team["spec"]
    assert nothing is None
    assert refused[0] == 2
    assert "--ignore-unknown-cq" in refused[2]
    assert again[0] == 1
    assert "already exists" in again[2]
    assert wrong[0] == 1
    assert "Odd_Name" in wrong[2]
    assert set(await shell.rows("list", "lq", "-n", namespace)) == {"main", "early"}
    assert set(await shell.rows("list", "lq", "-n", namespace, "-c", "team")) == {"main"}


async def test_queues_are_stopped_and_resumed(shell: Shell) -> None:
    """With and without what runs; a dry run changes nothing."""
    namespace = await shell.cluster.create_namespace()
    await shell.done("create", "cq", "team")
    await shell.done("create", "lq", "main", "-c", "team", "-n", namespace)

    async def policy(path: str) -> Any:
        found = await stored(shell, path)
        assert found is not None
        return found["spec"].get("stopPolicy")

    local = f"namespaces/{namespace}/localqueues/main"
    for kind, path in (("cq", "clusterqueues/team"), ("lq", local)):
        name = path.rpartition("/")[2]
        shown = await shell.done("stop", kind, name, "-n", namespace, "--dry-run", "client", "-o", "json")
        assert json.loads(shown)["spec"]["stopPolicy"] == "HoldAndDrain"
        await shell.done("stop", kind, name, "-n", namespace, "--dry-run", "server")
        assert await policy(path) in (None, "None")
        assert (await shell.done("stop", kind, name, "-n", namespace)).endswith(f"/{name} stopped\n")
        assert await policy(path) == "HoldAndDrain"
        await shell.done("stop", kind, name, "-n", namespace, "--keep-already-running")
        assert await policy(path) == "Hold"
        assert (await shell.done("resume", kind, name, "-n", namespace)).endswith(f"/{name} resumed\n")
        assert await policy(path) == "None"
    for words, names in (("stop cq t", ["team"]), (f"-n {namespace} stop lq m", ["main"]), ("stop lq m", [])):
        assert await shell.completed(words) == names
    missing = await shell.run("stop", "cq", "nobody")
    assert missing[0] == 1
    assert '"nobody" not found' in missing[2]


async def test_lists_come_in_pages_and_formats(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the pages; empty ones say so where it does not disturb a pipe."""
    monkeypatch.setenv("KUEUECTL_LIST_REQUEST_LIMIT", "2")
    namespace = await shell.cluster.create_namespace()
    empty = await shell.run("list", "workloads", "-n", namespace)
    nothing = json.loads(await shell.done("list", "workloads", "-n", namespace, "-o", "json"))
    for number in range(5):
        await shell.done("create", "rf", f"f{number}", "--node-labels", f"n={number}")
    odd = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "odd", "labels": {"a": "b"}},
    }
    await shell.cluster.request("POST", f"{KUEUE}/resourceflavors", odd)

    assert empty == (0, "", f"No resources found in {namespace} namespace.\n")
    assert (nothing["kind"], nothing["items"]) == ("WorkloadList", [])
    assert set(await shell.rows("list", "rf")) == {"f0", "f1", "f2", "f3", "f4", "odd"}
    assert (await shell.rows("list", "rf"))["f3"]["NODE LABELS"] == "n=3"
    assert set(await shell.rows("list", "rf", "-l", "a=b")) == {"odd"}
    assert set(await shell.rows("list", "rf", "--field-selector", "metadata.name=f2")) == {"f2"}
    assert (await shell.done("list", "rf", "-l", "a", "-o", "name")) == "resourceflavor.kueue.x-k8s.io/odd\n"
    listed = yaml.safe_load(await shell.done("list", "rf", "-o", "yaml"))
    assert listed["kind"] == "ResourceFlavorList"
    assert len(listed["items"]) == 6
    assert (await shell.run("list", "rf", "-l", "a=="))[0] == 0
    assert (await shell.run("list", "rf", "-l", "a in b"))[0] == 1


async def one_of_each(shell: Shell, either_plane: Plane) -> Road:
    """Jobs that have finished, run and wait."""
    road = await make_road(either_plane.cluster, shape=(1, 1, 4), gpus=32)
    await road.submit("done", pods=1)
    await road.until_complete("done")
    await road.submit("runs", pods=4, run_seconds=600)
    await road.until_workload("runs", "Admitted")
    await road.submit("waits", pods=4, run_seconds=600)
    await road.until_workload("waits", "QuotaReserved", status="False")
    await road.submit("waits-longer", pods=4, run_seconds=600)
    await road.until_workload("waits-longer", "QuotaReserved", status="False")
    return road


async def test_workloads_are_listed_stopped_and_resumed(shell: Shell, either_plane: Plane, tmp_path: Path) -> None:
    """In each status, with their place in the queue; by status, queue and job; and the pods of a job."""
    async with controlled(either_plane, tmp_path):
        road = await one_of_each(shell, either_plane)
        ns = ("-n", road.namespace)

        async def by_job(*flags: str) -> dict[str, dict[str, str]]:
            rows = await shell.rows("list", "workloads", *ns, *flags)
            return {row["JOB NAME"]: row for row in rows.values()}

        async def jobs(*flags: str) -> set[str]:
            return set(await by_job(*flags))

        await served(road)
        every = await by_job()
        assert {name: row["STATUS"] for name, row in every.items()} == {
            "done": "FINISHED", "runs": "ADMITTED", "waits": "PENDING", "waits-longer": "PENDING",
        }  # fmt: skip
        assert {row["POSITION IN QUEUE"] for row in (every["waits"], every["waits-longer"])} == {"1", "2"}
        assert every["runs"]["POSITION IN QUEUE"] == every["done"]["POSITION IN QUEUE"] == ""
        assert every["runs"]["EXEC TIME"] != ""
        assert every["waits"]["EXEC TIME"] == ""
        assert {(row["JOB TYPE"], row["LOCALQUEUE"], row["CLUSTERQUEUE"]) for row in every.values()} == {
            ("job.batch", "main", "team")
        }
        assert await jobs("--status", "pending") == {"waits", "waits-longer"}
        assert await jobs("--status", "Admitted", "--status", "FINISHED") == {"runs", "done"}
        assert await jobs("--status", "all") == set(every)
        assert await jobs("-c", "team") == {"runs", "done"}
        assert await jobs("-q", "main") == set(every)
        assert await jobs("--for", "job/waits") == {"waits"}
        assert await jobs("--for", "jobs.batch/runs") == {"runs"}
        wide = await by_job("-o", "wide")
        assert "cpu" in wide["waits"]["WHY"] or "nvidia.com/gpu" in wide["waits"]["WHY"]
        assert wide["runs"]["PRIORITY"] == "0"
        everywhere = await shell.rows("list", "kwl", "-A")
        assert {row["NAMESPACE"] for row in everywhere.values()} == {road.namespace}
        pods = await shell.rows("list", "pods", *ns, "--for", "job/runs")
        assert len(pods) == 4
        nobody = await shell.run("list", "wl", *ns, "--for", "job/nobody")
        assert nobody[0] == 2
        assert "there is no Job nobody" in nobody[2]
        pod = await shell.run("list", "pods", *ns, "--for", f"pod/{next(iter(pods))}")
        assert pod[0] == 2
        assert "cannot be found by labels" in pod[2]

        runs = (await road.workload_of("runs"))["metadata"]["name"]
        assert await shell.done("stop", "workload", runs, *ns) == f"workload.kueue.x-k8s.io/{runs} stopped\n"
        await road.until_workload("runs", "Evicted", reason="Deactivated")
        await road.cluster.until(
            f"{road.jobs}/runs", lambda job: job["spec"]["suspend"], what="the stopped job is suspended"
        )
        await shell.done("resume", "kwl", runs, *ns)
        assert (await road.workload_of("runs"))["spec"]["active"] is True


async def served(road: Road) -> None:
    """Wait until the API server leads to the controller."""
    await road.cluster.until(
        "/apis/apiregistration.k8s.io/v1/apiservices/v1beta2.visibility.kueue.x-k8s.io",
        lambda service: condition(service, "Available")["status"] == "True",
        what="the controller is reached",
    )
    await road.cluster.until(
        f"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{road.namespace}/localqueues/main/pendingworkloads",
        lambda found: len(found["items"]) == 2,
        what="two wait",
    )


async def test_deleting_a_workload_deletes_its_job(shell: Shell, either_plane: Plane) -> None:
    """After a question; one without owner goes itself; whoever took the owner's name stays."""
    cluster = either_plane.cluster
    namespace = await cluster.create_namespace()
    ns = ("-n", namespace)
    jobs, workloads = f"/apis/batch/v1/namespaces/{namespace}/jobs", f"{KUEUE}/namespaces/{namespace}/workloads"

    async def make(name: str, owned: bool = True, uid: str = "") -> None:
        template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
        spec = {"suspend": True, "template": template}
        meta: Object = {"name": name, "finalizers": ["kueue.x-k8s.io/resource-in-use"] if uid else []}
        if owned:
            made = await cluster.request(
                "POST", jobs, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
            )
            ref = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid or made["metadata"]["uid"]}
            meta["ownerReferences"] = [ref]
        pod_set = {"name": "main", "count": 1, "template": template}
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": meta,
            "spec": {"podSets": [pod_set]},
        }
        await cluster.request("POST", workloads, body)

    async def there() -> set[str]:
        found = {f"job/{o['metadata']['name']}" for o in (await cluster.get(jobs))["items"]}
        gone = {o["metadata"]["name"] for o in (await cluster.get(workloads))["items"]}
        return found | {f"workload/{name}" for name in gone}

    for name in ("a", "b"):
        await make(name)
    await make("free", owned=False)
    everything = {"job/a", "workload/a", "job/b", "workload/b", "workload/free"}
    refused = await shell.run("delete", "workload", "a", "free", *ns, answer="n\n")
    silent = await shell.run("delete", "workload", "a", *ns)
    for mode in ("client", "server"):
        assert await shell.done("delete", "kwl", "a", "free", *ns, "--dry-run", mode) == (
            f"job.batch/a deleted ({mode} dry run)\nworkload.kueue.x-k8s.io/free deleted ({mode} dry run)\n"
        )
    assert await there() == everything
    assert refused[0] == silent[0] == 1
    assert "job.batch/a, which owns a" in refused[2]

    agreed = await shell.run("delete", "workload", "a", *ns, answer="y\n")
    await cluster.until(jobs, lambda found: len(found["items"]) == 1, what="the job is gone")
    partly = await shell.run("delete", "workload", "nobody", "free", *ns)
    await make("taken", uid="00000000-0000-4000-8000-000000000000")
    taken = await shell.run("delete", "workload", "taken", *ns, "-y")
    assert taken[:2] == (1, "")
    assert "job.batch/taken was replaced by an object" in taken[2]
    assert "job/taken" in await there()
    assert agreed[:2] == (0, "job.batch/a deleted\n")
    assert partly[:2] == (1, "workload.kueue.x-k8s.io/free deleted\n")
    assert '"nobody" not found' in partly[2]
    assert "job/b" in await there()
    await shell.run("delete", "workload", "--all", *ns, "-y")
    await cluster.until(jobs, lambda found: len(found["items"]) == 1, what="all jobs are gone but the one left alone")


def installed(folder: Path) -> Path:
    """A folder with our programs as an installation has them, and kubectl beside them."""
    program = binaries.kubectl()
    assert program is not None
    folder = folder / "bin"
    folder.mkdir()
    (folder / "kubectl").symlink_to(program)
    for name, function in (("kqueue", "main"), ("kubectl-kqueue", "main"), ("kubectl_complete-kqueue", "complete")):
        (folder / name).write_text(f"#!{sys.executable}\nfrom kqueue.__main__ import {function}\n{function}()\n")
        (folder / name).chmod(0o755)
    return folder


async def test_kubectl_and_kqueue_work_together(either_plane: Plane, tmp_path: Path) -> None:
    """What kubectl can do is handed to it with its own flags; and it runs and completes us as its plugin."""
    folder = installed(tmp_path)
    cluster = either_plane.cluster
    team = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "team"}, "spec": {}}
    await cluster.request("POST", f"{KUEUE}/clusterqueues", team)

    async def call(program: str, *arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            folder / program,
            *arguments,
            env={
                **os.environ,
                "KUBECONFIG": str(either_plane.kubeconfig),
                "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
                "KUBECACHEDIR": str(tmp_path / "cache"),
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        return process.returncode, out.decode()

    assert await call("kqueue", "get", "cq", "-o", "name") == (0, "clusterqueue.kueue.x-k8s.io/team\n")
    assert (await call("kqueue", "describe", "cq/team"))[1].startswith("Name:         team\n")
    patch = ("--type", "merge", "-p", '{"spec":{"stopPolicy":"Hold"}}')
    assert (await call("kqueue", "patch", "clusterqueue", "team", *patch))[0] == 0
    assert (await cluster.get(f"{KUEUE}/clusterqueues/team"))["spec"]["stopPolicy"] == "Hold"
    assert await call("kubectl", "kqueue", "list", "clusterqueues", "-o", "name") == (
        0,
        "clusterqueue.kueue.x-k8s.io/team\n",
    )
    assert "Usage: kubectl kqueue list " in (await call("kubectl", "kqueue", "list", "nonsense"))[1]
    assert "\nteam\n:4\n" in (await call("kubectl", "__complete", "kqueue", "resume", "cq", "t"))[1]
    assert (await call("kqueue", "delete", "cq", "team", "--wait=false"))[0] == 0
    assert (await call("kqueue", "get", "cq", "team"))[0] == 1


async def test_the_version_of_the_controllers_is_told(shell: Shell) -> None:
    """The image in the cluster beside the program's own version; --client does not ask."""
    namespace = await shell.cluster.create_namespace()
    labels = {"app.kubernetes.io/name": "kqueue", "app.kubernetes.io/component": "controller"}
    container = {"name": "controller", "image": "example.com/kqueue:7"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kqueue-controller", "labels": labels},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    alone = json.loads(await shell.done("version", "-o", "json"))
    await shell.cluster.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment)
    both = json.loads(await shell.done("version", "-o", "json"))
    client = json.loads(await shell.done("version", "--client", "-o", "json"))
    assert both == {**alone, "controller": ["example.com/kqueue:7"]}
    assert alone == client


async def test_workloads_are_named_by_what_they_were_made_for(shell: Shell) -> None:
    """By their job, by a pod, by a Deployment that selects the pod: `stop`, `resume`, `explain` and `delete`."""
    cluster = shell.cluster
    namespace = await cluster.create_namespace()
    ns = ("-n", namespace)
    workloads = f"{KUEUE}/namespaces/{namespace}/workloads"
    pod_spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    gated = {**pod_spec, "restartPolicy": "Always", "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    labels = {"app": "serve"}

    async def make(path: str, api_version: str, kind: str, name: str, spec: Object, **meta: Any) -> str:
        body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}
        made = await cluster.request("POST", path, body)
        return str(made["metadata"]["uid"])

    async def queue(name: str, kind: str, api_version: str, owner: str, uid: str) -> None:
        reference = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": uid, "controller": True}
        spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": pod_spec}}]}
        await make(workloads, "kueue.x-k8s.io/v1beta2", "Workload", name, spec, ownerReferences=[reference])

    async def active(name: str) -> bool:
        return bool((await cluster.get(f"{workloads}/{name}"))["spec"].get("active", True))

    apps, batch = f"/apis/apps/v1/namespaces/{namespace}", f"/apis/batch/v1/namespaces/{namespace}"
    job = {"suspend": True, "template": {"spec": pod_spec}}
    uid = await make(f"{batch}/jobs", "batch/v1", "Job", "train", job)
    await queue("of-job", "Job", "batch/v1", "train", uid)
    uid = await make(f"/api/v1/namespaces/{namespace}/pods", "v1", "Pod", "serve-1", gated, labels=labels)
    await queue("of-pod", "Pod", "v1", "serve-1", uid)
    template = {"metadata": {"labels": labels}, "spec": {**gated}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    await make(f"{apps}/deployments", "apps/v1", "Deployment", "serve", spec)

    for target, name in ((("job/train",), "of-job"), (("job", "train"), "of-job"), (("pod/serve-1",), "of-pod")):
        assert await shell.done("stop", *target, *ns) == f"workload.kueue.x-k8s.io/{name} stopped\n"
        assert not await active(name)
        await shell.done("resume", *target, *ns)
        assert await active(name)
    await shell.done("stop", "deployment/serve", *ns)
    assert not await active("of-pod")
    assert "of-pod" in await shell.done("explain", "deploy/serve", *ns)
    assert "of-job" in await shell.done("explain", "job", "train", *ns)
    assert "job.batch/train deleted\n" in await shell.done("delete", "job/train", "-y", *ns)
    assert not await cluster.exists(f"{batch}/jobs/train")


WRONG = {
    "clusterqueue/x": "kqueue list workloads --clusterqueue x",
    "localqueue x": "kqueue list workloads --localqueue x",
    "cohort/x": "try kqueue describe cohort x",
    "node/x": "belongs to no namespace",
    "nothing/x": "the API server knows no kind nothing",
    "job/..": "no name of an object",
    "a/b/c": "write workload NAME",
}


async def test_what_no_workload_was_made_for_is_one_sentence(shell: Shell) -> None:
    """Exit code 2 for a kind that cannot have one, 1 for an object that is not there; never a traceback."""
    for words, told in WRONG.items():
        code, out, err = await shell.run("explain", *words.split())
        assert (code, out, len(err.splitlines())) == (2, "", 1), words
        assert told in err, words
    for verb in ("explain", "stop", "resume", "delete"):
        for target in ("job/absent", "pod/absent", "deployment/absent", "workload/absent", "group/absent"):
            code, out, err = await shell.run(verb, target)
            assert (code, out) == (1, ""), (verb, target, err)
            assert "not found" in err or "there is no Workload" in err
            assert len(err.splitlines()) == 1
