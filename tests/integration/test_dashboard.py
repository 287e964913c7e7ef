"""`kqueue top` and `kqueue topology` against a controller that runs: through the API server, on both planes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import shlex
import sys
from typing import Any

import pytest

from tests.integration.controlplane.cluster import Cluster
from tests.integration.road import KUEUE, Object, job, make_road, queue_objects
from tests.integration.test_doctor import answers
from tests.integration.test_visibility import Plane, visible

pytestmark = [pytest.mark.slow, pytest.mark.seldom_on_sandbox]


async def kqueue(plane: Plane, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", *arguments, "--kubeconfig", str(plane.kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def seconds_to_reason(plane: Plane, ready: Any) -> Object:
    """The queues, as soon as they are so."""
    async with asyncio.timeout(60):
        while True:
            code, out, err = await kqueue(plane, "top", "queues", "-o", "json")
            assert code == 0, err
            answer: Object = json.loads(out)["queues"]
            if ready(answer["items"][0]):
                return answer
            await asyncio.sleep(0.2)


async def test_queues_and_domains_at_a_glance(either_plane: Plane) -> None:
    """A gang in one rack, one that waits, and a cordoned node: all of it is told, as a table and as JSON."""
    cluster: Cluster = either_plane.cluster
    road = await make_road(cluster, shape=(1, 2, 4))
    async with visible(either_plane):
        await answers(cluster)
        await road.submit("runs", pods=4, run_seconds=600)
        await road.until_workload("runs", "Admitted")
        await road.submit("waits", pods=5)
        await cluster.request(
            "PATCH",
            "/api/v1/nodes/node-0-1-3",
            {"spec": {"unschedulable": True}},
            content_type="application/merge-patch+json",
        )
        answer = await seconds_to_reason(either_plane, lambda team: team["pending"]["inadmissible"] == 1)
        code, top, _ = await kqueue(either_plane, "top", "--once")
        _, told, _ = await kqueue(either_plane, "topology", "-o", "json")
        _, tree, _ = await kqueue(either_plane, "topology", "dc", "--domain", "block-0", "--level", "rack")
        missing = await kqueue(either_plane, "topology", "other")
        wrong = await kqueue(either_plane, "topology", "--level", "room")
        await let_see_queues(cluster, "ann")
        partly = await kqueue(either_plane, "top", "--once", "--as", "ann")
        refused = await kqueue(either_plane, "top", "domains", "--once", "--as", "ann")
        listed = await either_plane.kubectl("get", "topologysummaries,queuesummaries", "-o", "name")

    (team,) = answer["items"]
    assert (team["metadata"]["name"], team["admitted"], team["longestWaiting"].split("/")[0]) == (
        "team",
        1,
        road.namespace,
    )
    assert code == 0
    assert re.search(r"\nteam +- +Active +1 +1 +1 +\S+ +0 +0 +gpu +nvidia.com/gpu +32 +512 *\n", f"\n{top}")
    (flavor,) = json.loads(told)["items"][0]["flavors"]
    racks = {"/".join(d["path"]): d["resources"]["nvidia.com/gpu"] for d in flavor["tree"] if len(d["path"]) == 2}
    assert racks["block-0/rack-0-0"] == {"total": "32", "foreign": "0", "held": "32", "free": "0"}
    assert racks["block-0/rack-0-1"] == {"total": "24", "foreign": "0", "held": "0", "free": "24"}
    assert flavor["leftOutNodes"] == [
        {
            "node": "node-0-1-3",
            "reason": "unschedulable",
            "message": "it is cordoned",
            "domain": ["block-0", "rack-0-1"],
        }
    ]
    assert "node-0-1-3   block-0/rack-0-1   it is cordoned" in tree
    assert (missing[0], "Topology other not found" in missing[2]) == (1, True)
    assert (wrong[0], "is not one of" in wrong[2]) == (1, True)
    assert partly[0] == 0
    assert "team   -" in partly[1]
    assert "LOCALQUEUE" not in partly[1]
    assert "topologysummaries" in partly[2], partly
    assert (refused[0], refused[1]) == (1, "")
    assert listed.split() == [
        "topologysummary.visibility.kqueue.dev/dc",
        "queuesummary.visibility.kqueue.dev/team",
    ]


async def test_a_user_of_one_namespace_sees_its_quota(either_plane: Plane) -> None:
    """Refusals name the commands that grant the right: an administrator runs them, and the user is answered.

    The other namespace shares the ClusterQueue: its workload is in the sums, and nothing names it.
    """
    cluster: Cluster = either_plane.cluster
    road = await make_road(cluster, shape=(1, 1, 2))
    other = await cluster.create_namespace("secret")
    queue, payroll = queue_objects(other)[-1][1], job("payroll", other, pods=1, run_seconds=600)
    queue["metadata"]["name"] = payroll["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "hidden"
    async with visible(either_plane):
        await answers(cluster)
        await cluster.request("POST", f"{KUEUE}/namespaces/{other}/localqueues", queue)
        await cluster.request("POST", f"/apis/batch/v1/namespaces/{other}/jobs", payroll)
        await road.submit("runs", pods=1, run_seconds=600)
        await road.until_workload("runs", "Admitted")
        await road.submit("waits", pods=3)
        quota = ("quota", "-n", road.namespace, "--as", "ann")
        await granted_as_told(either_plane, *quota)
        anonymous = await kqueue(either_plane, *quota)
        await run_commands(either_plane, anonymous[2])
        main, column = await until_settled(either_plane, *quota, "-o", "json")
        table = await kqueue(either_plane, *quota)
        await granted_as_told(either_plane, "topology", "--as", "ann")
        await granted_as_told(either_plane, "topology", "detect", "--as", "ann")
        top = await kqueue(either_plane, "top", "--once", "--as", "ann")
        waits = (await road.workload_of("waits"))["metadata"]["name"]

    assert (top[0], top[2]) == (0, "")
    assert (anonymous[0], waits in anonymous[1]) == (0, False)
    assert (main["metadata"]["name"], main["admitted"], main["pending"]) == ("main", 1, 1)
    assert (column["reserved"], column["clusterQueueReserved"], column["borrowed"]) == ("8", "16", "0")
    assert [(w["name"], w["position"], w["positionInClusterQueue"]) for w in main["waiting"]] == [(waits, 1, 1)]
    assert not [word for word in (other, "hidden", "payroll") if word in json.dumps(main)]
    assert re.search(rf"\n{waits} +1 of 1 +1 of 1 +0\n", table[1])


async def granted_as_told(plane: Plane, *command: str) -> None:
    """The command is refused; what the refusal says is run, and the command is answered."""
    code, _, err = await kqueue(plane, *command)
    assert code == 1
    assert "Ask an administrator for the ClusterRole" in err
    await run_commands(plane, err)
    async with asyncio.timeout(30):
        while (await kqueue(plane, *command))[0]:
            await asyncio.sleep(0.5)


async def run_commands(plane: Plane, text: str) -> None:
    """Run the kubectl commands of a message; roles before their bindings."""
    commands = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("  kubectl ")]
    assert len(commands) == 2
    for command in sorted(commands, key=lambda words: words[1] != "clusterrole"):
        await plane.kubectl(*command)


async def until_settled(plane: Plane, *command: str) -> tuple[Object, Object]:
    """LocalQueue and GPU column, as soon as names are shown, both jobs hold quota and one waits."""
    async with asyncio.timeout(60):
        while True:
            (main,) = json.loads((await kqueue(plane, *command))[1])["items"]
            column = next(each for each in main["resources"] if each["resource"] == "nvidia.com/gpu")
            if main.get("waiting") and column["clusterQueueReserved"] == "16":
                return main, column
            await asyncio.sleep(0.5)


async def let_see_queues(cluster: Cluster, user: str) -> None:
    """The summaries of queues, and nothing else."""
    await grant(
        cluster, user, {"apiGroups": ["visibility.kqueue.dev"], "resources": ["queuesummaries"], "verbs": ["list"]}
    )


async def grant(cluster: Cluster, user: str, rule: Object) -> None:
    """Give the user one right in all namespaces."""
    group, name = "rbac.authorization.k8s.io", f"granted-{user}"
    kind = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    collection = f"/apis/{group}/v1"
    await cluster.request("POST", f"{collection}/clusterroles", {**kind, "kind": "ClusterRole", "rules": [rule]})
    binding = {
        **kind,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await cluster.request("POST", f"{collection}/clusterrolebindings", binding)


class Terminal:
    """The end of a terminal that a person looks at."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._shown = descriptor, b""
        self._more = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            self._shown += os.read(self._descriptor, 65536)
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._more.set()

    async def until(self, words: bytes) -> None:
        """Wait until they are shown."""
        async with asyncio.timeout(60):
            while words not in self._shown:
                self._more.clear()
                await self._more.wait()

    def close(self) -> bytes:
        """All that was shown."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.set_blocking(self._descriptor, False)
        with contextlib.suppress(OSError):
            while piece := os.read(self._descriptor, 65536):
                self._shown += piece
        os.close(self._descriptor)
        return self._shown


async def test_the_screen_of_top_is_ended_by_a_key(either_plane: Plane) -> None:
    """As its user runs it, in a terminal."""
    await make_road(either_plane.cluster, shape=(1, 1, 2))
    async with visible(either_plane):
        await answers(either_plane.cluster)
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kqueue", "top", "--every", "0.5", "--kubeconfig", str(either_plane.kubeconfig)),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"},
        )
        os.close(slave)
        terminal = Terminal(master)
        try:
            await terminal.until(b"team")
            os.write(master, b"q")
            code = await asyncio.wait_for(process.wait(), 30)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            shown = terminal.close()
    assert code == 0
    assert b"Topology dc, flavor gpu: 2 nodes" in shown
    assert shown.rstrip().endswith(b"\x1b[?1049l")
