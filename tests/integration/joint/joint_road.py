"""One tenant whose gangs are planned jointly, and controllers with the feature gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kqueue.api import names
from kqueue.config import Configuration, Timings, parse
from kqueue.manager.operator import Operator
from kqueue.manager.process import Flags, running
from kqueue.scheduling.joint.rounds import JointRounds, RoundResult
from kqueue.state.joint_history import RoundRecord
from tests.integration.conftest import SandboxPlane
from tests.integration.controlplane.cluster import POLL_SECONDS, RACK_LABEL, WAIT_SECONDS, Cluster
from tests.integration.controlplane.plane import ControlPlane
from tests.integration.road import KUEUE, Object, Road, has, hosts_of, job, queue_objects

Plane = ControlPlane | SandboxPlane
LONG = 600
"""Seconds for which pods run that must not end."""
GPUS = 8
"""A host has so many GPUs, and each pod asks for so many."""
WORKER = "kqueue.scheduling.joint.worker"
CONFIGURATION = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
leaderElection: {leaderElect: false}
"""
JOINT = CONFIGURATION + "featureGates: {JointPlacement: true}\njoint: {timeLimit: 60s}\n"


@dataclass(frozen=True, slots=True)
class Gang:
    """A gang of whole hosts that needs one rack."""

    name: str
    pods: int


class JointRoad(Road):
    """One tenant with racks of these numbers of hosts."""

    @classmethod
    async def make(cls, cluster: Cluster, racks: Sequence[int]) -> JointRoad:
        """Nodes, a namespace, and a ClusterQueue with the profile `joint`, which is stopped."""
        for rack, hosts in enumerate(racks):
            labels = {"pool": "gpu", RACK_LABEL: f"rack-{rack}"}
            await cluster.add_nodes((1, hosts), levels=("cloud.provider.com/topology-block",), labels=labels,
                                    prefix=f"r{rack}")  # fmt: skip
        road = cls(cluster, await cluster.create_namespace("joint"))
        for collection, obj in queue_objects(road.namespace, gpus=2 * GPUS * sum(racks)):
            if obj["kind"] == "ClusterQueue":
                obj["metadata"]["annotations"] = {names.PLACEMENT_PROFILE_ANNOTATION: "joint"}
                obj["spec"]["stopPolicy"] = "Hold"
            await cluster.request("POST", collection, obj)
        return road

    async def submit_gangs(self, gangs: Iterable[Gang]) -> None:
        """Create a Job for each gang, the first with the highest priority."""
        for place, gang in enumerate(gangs):
            name = f"{self.namespace}-{100 - place}"
            obj: Object = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass"}
            obj |= {"metadata": {"name": name}, "value": 100 - place}
            classes = f"{KUEUE}/workloadpriorityclasses"
            if not await self.cluster.exists(f"{classes}/{name}"):
                await self.cluster.request("POST", classes, obj)
            made = job(gang.name, self.namespace, pods=gang.pods, run_seconds=LONG)
            made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = name
            await self.cluster.request("POST", self.jobs, made)

    async def add_workloads(self, gangs: Iterable[Gang]) -> None:
        """Create a Workload without a job for each gang, the first with the highest priority."""
        for place, gang in enumerate(gangs):
            pod = job("", "", pods=1)["spec"]["template"]["spec"]
            wish = {"required": RACK_LABEL}
            pod_set = {"name": "main", "count": gang.pods, "template": {"spec": pod}, "topologyRequest": wish}
            spec = {"queueName": "main", "active": True, "priority": 100 - place, "podSets": [pod_set]}
            made: Object = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
            made |= {"metadata": {"name": gang.name, "namespace": self.namespace}, "spec": spec}
            await self.cluster.request("POST", self.workloads, made)

    async def until_queued(self, count: int) -> None:
        """Wait until there are so many Workloads."""
        await self.cluster.until(
            self.workloads, lambda listed: len(listed["items"]) == count, what=f"{count} Workloads"
        )

    async def open(self) -> None:
        """Let the ClusterQueue admit, so that all that wait come to the same round."""
        await self.change_queue(stopPolicy="None")

    async def hold(self) -> None:
        """Let the ClusterQueue admit no more."""
        await self.change_queue(stopPolicy="Hold")

    async def delete_workloads(self) -> None:
        """Delete all Workloads."""
        await self.cluster.request("DELETE", self.workloads)
        await self.cluster.until(self.workloads, lambda listed: not listed["items"], what="all Workloads are gone")

    async def until_settled(self, count: int) -> list[Object]:
        """Wait until each of so many Workloads was tried; return those that are admitted."""

        def tried(workload: Object) -> bool:
            told = {c["type"]: c for c in workload.get("status", {}).get("conditions", [])}.get("QuotaReserved")
            return told is not None and told["reason"] not in ("Suspended", "PendingEvaluation")

        listed = await self.cluster.until(
            self.workloads,
            lambda found: len(found["items"]) == count and all(map(tried, found["items"])),
            what=f"{count} Workloads were tried",
        )
        return [w for w in listed["items"] if has(w, "QuotaReserved")]

    async def until_told(self, reason: str, count: int) -> None:
        """Wait until so many Workloads have this reason to wait."""

        def told(listed: Object) -> int:
            conditions = [c for w in listed["items"] for c in w.get("status", {}).get("conditions", [])]
            return sum(c["type"] == "QuotaReserved" and c["reason"] == reason for c in conditions)

        await self.cluster.until(self.workloads, lambda listed: told(listed) == count, what=f"{count} times {reason}")

    async def until_admitted(self, count: int) -> list[Object]:
        """Wait until so many Workloads are admitted; return them."""

        def admitted(listed: Object) -> list[Object]:
            return [w for w in listed["items"] if has(w, "QuotaReserved")]

        listed = await self.cluster.until(
            self.workloads, lambda found: len(admitted(found)) == count, what=f"{count} Workloads are admitted"
        )
        return admitted(listed)

    async def until_running(self, **pods: int) -> None:
        """Wait until so many pods of each of these Jobs run."""

        def run(listed: Object) -> Mapping[str, int]:
            found = dict.fromkeys(pods, 0)
            for pod in listed["items"]:
                name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
                if pod["status"].get("phase") == "Running" and name in found:
                    found[name] += 1
            return found

        await self.cluster.until(self.pods, lambda listed: run(listed) == pods, what=f"running pods {pods}")


def hosts_held(workloads: Iterable[Object]) -> int:
    """The number of hosts of these Workloads, none of which has two pods."""
    counts = [hosts_of(workload) for workload in workloads]
    total = sum(counts[1:], counts[0])
    assert set(total.values()) == {1}
    return len(total)


def configuration(text: str = JOINT, **joint: Any) -> Configuration:
    """A configuration, and other settings of its section `joint`."""
    found = parse(text, source="test")
    return found.model_copy(update={"joint": found.joint.model_copy(update=joint)})


@asynccontextmanager
async def controlled(plane: Plane, config: Configuration) -> AsyncIterator[Operator]:
    """A controller in this process."""
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    flags = Flags(kubeconfig=plane.kubeconfig, parts=parts, health_address="0", metrics_address="0")
    async with running(config, flags, timings=Timings(queue_flush_window=0.1)) as process:
        await process.operator.ready.wait()
        yield process.operator


def watched(operator: Operator) -> tuple[JointRounds, list[RoundResult]]:
    """The rounds of a controller, and how each of them ends."""
    assert operator.rounds is not None
    results: list[RoundResult] = []
    noted = operator.rounds.on_end

    def note(record: RoundRecord) -> None:
        results.append(RoundResult(record.result))
        noted(record)

    operator.rounds.on_end = note
    return operator.rounds, results


async def until(reached: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise TimeoutError(f"not within {WAIT_SECONDS} s: {what}") from None


def planners_of(parent: int) -> list[int]:
    """The planning processes of a controller process."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _is_planner(folder, parent):
            found.append(int(folder.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether there is such a process, which has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _is_planner(folder: Path, parent: int) -> bool:
    try:
        command = (folder / "cmdline").read_bytes().split(b"\0")
        after_name = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return False
    return WORKER.encode() in command and int(after_name[1]) == parent and after_name[0] != "Z"
