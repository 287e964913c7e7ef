"""A rack that is to be freed: two racks of four hosts, each half full, and a gang that needs a whole one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec import convert

from kqueue import model
from kqueue.api import move_names
from kqueue.api.wire import kueue as wire
from kqueue.clock import SystemClock, utc_text
from kqueue.config import Configuration
from kqueue.config.joint import ReschedulingSettings
from kqueue.controllers.defragmentation import Defragmentation
from kqueue.core.joint.defrag import DefragSettings
from kqueue.core.joint.movable import MoveLimits
from kqueue.core.joint.move_steps import Step
from kqueue.operations.defrag import storing
from kqueue.operations.defrag.reading import read_objects, state_of
from kqueue.runtime.client import Client
from kqueue.state.defrag.document import plan_object
from kqueue.state.defrag.planning import AskedGoal, plan
from tests.integration.controlplane.access import MERGE_PATCH
from tests.integration.controlplane.cluster import RACK_LABEL, WAIT_SECONDS, Cluster
from tests.integration.joint.joint_road import LONG, JointRoad, configuration
from tests.integration.road import Object, condition, has, job

PLANS = "/apis/kqueue.dev/v1alpha1/defragmentationplans"


def moving(**rescheduling: Any) -> Configuration:
    """A configuration whose plans need no least gain; the controller proposes none."""
    found = ReschedulingSettings(min_gain=0, **rescheduling)
    return configuration(rescheduling=found)


class MovesRoad(JointRoad):
    """Two racks of four hosts.  `stays` and `moves` have two hosts each, in two racks; `big` needs four in one."""

    @classmethod
    async def half_full(cls, cluster: Cluster, *, consent: str = "Always") -> MovesRoad:
        """Nodes and queues, before any controller runs."""
        road = await cls.make(cluster, (4, 4))
        assert isinstance(road, MovesRoad)
        road.consent = consent
        await road.open()
        return road

    consent: str

    async def fill(self) -> None:
        """Let `gone` and one other have the first rack, and one the second; then `gone` ends."""
        for name in ("moves", "gone", "stays"):
            made = job(name, self.namespace, pods=2, run_seconds=LONG)
            made["spec"]["template"]["metadata"]["labels"] = {"app": name}
            annotations = made["metadata"].setdefault("annotations", {})
            if name == "moves":
                annotations[move_names.RESCHEDULE_ANNOTATION] = self.consent
            await self.cluster.request("POST", self.jobs, made)
            await self.until_running_pods(name, 2)
        await self.cluster.request("DELETE", f"{self.jobs}/gone?propagationPolicy=Background")
        await self.cluster.until(
            self.workloads, lambda listed: len(listed["items"]) == 2, what="the Workload of gone is deleted"
        )
        await self.age("moves", 3600)

    async def wait_big(self) -> str:
        """Submit the gang that waits, and return the name of its Workload."""
        await self.cluster.request("POST", self.jobs, job("big", self.namespace, pods=4, run_seconds=LONG))
        await self.until_workload("big", "QuotaReserved", status="False")
        return str((await self.workload_of("big"))["metadata"]["name"])

    async def until_running_pods(self, name: str, count: int) -> None:
        """Wait until so many pods of a Job run."""

        def run(listed: Object) -> bool:
            pods = [p for p in listed["items"] if p["metadata"]["labels"]["batch.kubernetes.io/job-name"] == name]
            return bool(sum(p["status"].get("phase") == "Running" for p in pods) == count)

        await self.cluster.until(self.pods, run, what=f"{count} pods of {name} run")

    async def age(self, name: str, seconds: int) -> None:
        """Write that the Workload of a Job, whose pods are ready, has been admitted for so long."""
        await self.until_workload(name, "PodsReady")
        workload = await self.workload_of(name)
        at = utc_text(SystemClock().now() - timedelta(seconds=seconds))
        conditions = [
            {**c, "lastTransitionTime": at} if c["type"] in ("Admitted", "QuotaReserved") else c
            for c in workload["status"]["conditions"]
        ]
        path = f"{self.workloads}/{workload['metadata']['name']}/status"
        await self.cluster.request("PATCH", path, {"status": {"conditions": conditions}}, content_type=MERGE_PATCH)

    # --- plans

    async def propose(self, client: Client, workload: str, *, name: str = "") -> str:
        """Store the plan for a waiting Workload; return its name."""
        state = state_of(await read_objects(client), SystemClock().now())
        asked = AskedGoal(workload=f"{self.namespace}/{workload}")
        answer = plan(state, asked, DefragSettings(least_gain=0, pod_seconds=36_000), limits=MoveLimits())
        made = plan_object(answer)
        made["metadata"]["name"] = name or made["metadata"]["name"]
        stored = await storing.save(client, made)
        return str(stored["metadata"]["name"])

    async def plan(self, name: str) -> Object:
        """Return a plan."""
        return await self.cluster.get(f"{PLANS}/{name}")

    async def change_plan(self, name: str, **status: Any) -> None:
        """Write fields of the status of a plan, as another client."""
        path = f"{PLANS}/{name}/status"
        await self.cluster.request("PATCH", path, {"status": status}, content_type=MERGE_PATCH)

    async def until_phase(self, name: str, *phases: str) -> Object:
        """Wait until a plan has one of these phases; return the plan."""
        return await self.cluster.until(
            f"{PLANS}/{name}",
            lambda found: found["status"]["phase"] in phases,
            what=f"plan {name} is {' or '.join(phases)}",
        )

    async def until_state(self, name: str, *states: str) -> Object:
        """Wait until the first move of a plan has one of these states; return the plan."""
        return await self.cluster.until(
            f"{PLANS}/{name}",
            lambda found: found["status"]["moves"][0]["state"] in states,
            what=f"the move of plan {name} is {' or '.join(states)}",
        )

    async def add_rack(self, name: str, hosts: int) -> None:
        """Add a rack with nodes that are free."""
        labels = {"pool": "gpu", RACK_LABEL: name}
        levels = ("cloud.provider.com/topology-block",)
        await self.cluster.add_nodes((1, hosts), levels=levels, labels=labels, prefix=name)

    async def nodes_of(self, name: str) -> set[str]:
        """The nodes of a Job's pods."""
        listed = (await self.cluster.get(self.pods))["items"]
        return {
            p["spec"]["nodeName"] for p in listed if p["metadata"]["labels"]["batch.kubernetes.io/job-name"] == name
        }

    async def until_told_of(self, plan_: str) -> None:
        """Wait until Events on a plan, on `moves` and on `big` tell of it."""
        moved, big = [(await self.workload_of(name))["metadata"]["name"] for name in ("moves", "big")]
        for namespace, wanted in (
            ("default", {(plan_, "PlanRunning"), (plan_, "MoveEvicting"), (plan_, "MoveDone"), (plan_, "PlanDone")}),
            (self.namespace, {(moved, "EvictedDueToRescheduled"), (moved, "MoveDone"), (big, "PlanDone")}),
        ):
            path = f"/api/v1/namespaces/{namespace}/events"
            await self.cluster.until(path, partial(_tells, wanted), what=f"Events {wanted}", seconds=15)

    async def evictions(self, name: str) -> int:
        """Return how often the Workload of a Job was evicted."""
        stats = (await self.workload_of(name))["status"].get("schedulingStats") or {}
        return sum(found["count"] for found in stats.get("evictions") or ())


def is_evicted(workload: Mapping[str, Any]) -> bool:
    """Whether a Workload is marked as evicted."""
    return has(dict(workload), "Evicted")


def target_of(move: Mapping[str, Any]) -> list[str]:
    """The hosts that a move has in its plan, none of which has two pods."""
    assignment = convert(move["assignments"][0]["topologyAssignment"], wire.TopologyAssignment)
    return [domain.values[-1] for domain in model.assignment(assignment).domains]


def told(plan_: Object) -> list[str]:
    """The conditions of a plan, for messages of tests."""
    return [f"{c['type']} {c['reason']}: {c['message']}" for c in plan_["status"]["conditions"]]


def reason_of(workload: Object, kind: str) -> str:
    """The reason of a condition."""
    return str(condition(workload, kind)["reason"])


class Halt:
    """Stops the reconciler of plans for good, or until `go`, once a step is written or an eviction is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
        """`at`: a state of moves, or `Evicted`."""
        self.reached, self._go, self._at = asyncio.Event(), asyncio.Event(), at
        self._patch = monkeypatch
        write, evict = Defragmentation._write, Defragmentation._evict
        self._before = write, evict

        async def written(reconciler: Defragmentation, plan_: Any, step: Step) -> None:
            await write(reconciler, plan_, step)
            if any(change.state == at for change in step.moves.values()):
                await self._stop()

        async def evicted(reconciler: Defragmentation, plan_: Any, move: Any) -> None:
            await evict(reconciler, plan_, move)
            if at == "Evicted":
                await self._stop()

        monkeypatch.setattr(Defragmentation, "_write", written)
        monkeypatch.setattr(Defragmentation, "_evict", evicted)

    async def _stop(self) -> None:
        self.reached.set()
        await self._go.wait()

    async def until_reached(self) -> None:
        """Wait until the reconciler stands still."""
        await asyncio.wait_for(self.reached.wait(), WAIT_SECONDS)

    def go(self) -> None:
        """Let the reconciler go on, and stop it no more."""
        self.remove()
        self._go.set()

    def remove(self) -> None:
        """Let reconcilers of other processes run as they are; the one that stands still does not go on."""
        self._patch.setattr(Defragmentation, "_write", self._before[0])
        self._patch.setattr(Defragmentation, "_evict", self._before[1])


def _tells(wanted: set[tuple[str, str]], listed: Object) -> bool:
    """Whether all these Events, by object and reason, are in a list."""
    return wanted <= {(event["involvedObject"]["name"], event["reason"]) for event in listed["items"]}
