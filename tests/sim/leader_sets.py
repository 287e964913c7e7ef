"""LeaderWorkerSets in a simulated cluster: plans, invariants, and the actor that carries the plans out."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from typing import Any, ClassVar

from kqueue.api import names
from kqueue.errors import ForbiddenError
from kqueue.sandbox.api import PODS, GroupVersionResource, Object
from tests.sim import kinds_invariants
from tests.sim.invariants import is_over
from tests.sim.kinds import LEADER_SETS, labels_of_queue, serving
from tests.sim.kinds_actor import KindsActor
from tests.sim.kinds_plan import KindsDraft
from tests.sim.objects import WORKLOADS
from tests.sim.plan import COMMON, Actions, Draft, End, Plan
from tests.sim.reading import Breaches, Invariant
from tests.sim.world import World, is_true

OWNER, INDEX = names.JOB_OWNER_NAME_ANNOTATION, f"{names.GROUP}/component-workload-index"


def leader_set(
    name: str, *, replicas: int, size: int, gpus: int, topology: tuple[str, str] | None, leads: bool, **labels: str
) -> Object:
    """Return a LeaderWorkerSet; `leads`: the leader has a template of its own, without GPUs."""
    workers = serving("StatefulSet", name, replicas=replicas, gpus=gpus, topology=topology, **labels)
    made: Object = {"size": size, "workerTemplate": workers["spec"]["template"]}
    if leads:
        leaders = serving("StatefulSet", name, replicas=replicas, gpus=0, topology=None, **labels)
        made["leaderTemplate"] = leaders["spec"]["template"]
    return {
        "apiVersion": f"{LEADER_SETS.group}/{LEADER_SETS.version}",
        "kind": "LeaderWorkerSet",
        "metadata": workers["metadata"],
        "spec": {"replicas": replicas, "leaderWorkerTemplate": made},
    }


class SetsDraft(KindsDraft):
    """A plan for a world with LeaderWorkerSets."""

    def leader_set(self) -> None:
        c, gpus = self.chance, self.chance.choice((1, 2, 4, 8))
        topology, most = self._placed(gpus)
        size = c.randint(1, min(most, 4))
        settings = {**self._common(), "gpus": gpus, "topology": topology, "size": size, "leads": c.random() < 0.5}
        self._made("serve_groups", "server", End.GONE, replicas=c.randint(1, 3), **settings)


_ACTIONS: Actions = (
    (Draft.good_job, 8),
    (SetsDraft.leader_set, 16),
    (lambda d: d.on_a_server("scale", replicas=d.chance.randint(0, 3)), 10),
    (lambda d: d.on_a_server("lose_replica", number=d.chance.randrange(6)), 6),
    (lambda d: d.on_a_server("rank", priority=d.chance.choice(("high", "low"))), 3),
    (Draft.hold, 3),
    (lambda d: d.add("resume"), 5),
    (Draft.quota, 3),
    (lambda d: d.add("rest"), 3),
    *COMMON,
)


def draw_sets(seed: int | str, *, steps: int = 40) -> Plan:
    """Return the plan of a seed."""
    return SetsDraft(f"{seed}/sets").draw(steps, _ACTIONS)


def each_replica_has_a_workload(world: World) -> Breaches:
    """At rest a set has one unfinished Workload for each of its replicas, with as many pods as a group has."""
    found: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for workload in world.objects(WORKLOADS):
        notes = workload["metadata"].get("annotations") or {}
        if OWNER in notes and not is_true(workload, names.CONDITION_FINISHED):
            count = sum(pod_set["count"] for pod_set in workload["spec"]["podSets"])
            found[notes[OWNER]].append((notes[INDEX], count))
    for each in world.api.every(LEADER_SETS):
        size = each["spec"]["leaderWorkerTemplate"]["size"]
        wanted = [(str(index), size) for index in range(each["spec"]["replicas"])]
        told = sorted(found.pop(each["metadata"]["name"], []))
        if told != wanted:
            yield f"LeaderWorkerSet {each['metadata']['name']} wants groups {wanted} and has Workloads for {told}"
    yield from (f"LeaderWorkerSet {name} is gone and has Workloads {told}" for name, told in found.items())


class SetsActor(KindsActor):
    """One plan on a world with LeaderWorkerSets."""

    at_rest: ClassVar[tuple[Invariant, ...]] = (*kinds_invariants.AT_REST, each_replica_has_a_workload)
    named = "leader"

    def _resource_of(self, name: str) -> GroupVersionResource:
        """Return the kind of the object; the StatefulSet of the leaders has the name of its set."""
        found = self.world.find(LEADER_SETS, name)
        return LEADER_SETS if found is not None else super()._resource_of(name)

    async def serve_groups(self, name: str, **settings: Any) -> None:
        """A user creates a LeaderWorkerSet."""
        await self._create(LEADER_SETS, name, leader_set(name, **settings))

    async def lose_replica(self, name: str, number: int) -> None:
        """Another client deletes a pod of a set; its StatefulSet makes it again."""
        self.world.disturb_all()
        there = [
            pod["metadata"]["name"]
            for pod in self.world.objects(PODS)
            if (pod["metadata"].get("labels") or {}).get("app") == name and not is_over(pod)
        ]
        if there:
            await self._delete_pod(there[number % len(there)])

    async def rank(self, name: str, priority: str) -> None:
        """A user gives a set another priority class."""
        self.world.disturb_all()
        with contextlib.suppress(ForbiddenError):
            labels = {names.PRIORITY_CLASS_LABEL: labels_of_queue("", priority)[names.PRIORITY_CLASS_LABEL]}
            await self._patch(self._resource_of(name), name, {"metadata": {"labels": labels}})
