"""Requests without a cause: crowds of gangs in which nothing changes, and clusters without gangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import pytest

from kqueue.api import gang_names, names
from kqueue.jobs.gang import batch_process
from kqueue.jobs.gang.registry import dialect_of, frameworks
from kqueue.jobs.gang.value import GangPhase
from kqueue.sandbox import names as sandbox_names
from kqueue.sandbox import route
from kqueue.sandbox.api import EVENTS, PODS, GroupVersionResource, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.chosen import sizes
from tests.sim.gangs import LABELS_AND_OBJECTS, LONG, labelled
from tests.sim.kinds import POD_GROUPS, Group, pod
from tests.sim.objects import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACE, WORKLOADS, cluster_queue, job, ours
from tests.sim.tenancy import Tenancy, pool
from tests.sim.test_batch_process import BATCHES, batch
from tests.sim.test_gang_deadlines import set_gangs
from tests.sim.world import World, simulated

SERVICES = GroupVersionResource("", "v1", "services")
NAMESPACES = GroupVersionResource("", "v1", "namespaces")
HOUR = 3_600
FOREVER = 1_000 * LONG
TOLD = 600
"""Seconds after which all warnings about gangs that wait for members were given."""
FAIL_NOW = {
    "metadata": {"annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: "0", sandbox_names.FAIL_ANNOTATION: "true"}}
}


def crowd(gangs: int) -> Tenancy:
    """Return queues with room for all, for one gang, and on nodes without room."""
    flavors = [ours("ResourceFlavor", name, spec={"nodeLabels": {POOL_LABEL: name}}) for name in ("roomy", "filled")]
    queues = [
        cluster_queue("roomy", flavors={"roomy": {"cpu": 4 * gangs}}),
        cluster_queue("full", flavors={"roomy": {"cpu": 2}}),
        cluster_queue("held", flavors={"roomy": {"cpu": 4 * gangs}}),
        cluster_queue("extras", flavors={"roomy": {"cpu": 2 * gangs}}),
        cluster_queue("starting", flavors={"filled": {"cpu": 4 * gangs}}),
    ]
    queues[2]["spec"]["stopPolicy"] = "Hold"
    local = [
        ours("LocalQueue", name, namespace=NAMESPACE, spec={"clusterQueue": name})
        for name in (queue["metadata"]["name"] for queue in queues)
    ]
    return Tenancy(
        objects=(
            *((FLAVORS, flavor) for flavor in flavors),
            *((CLUSTER_QUEUES, queue) for queue in queues),
            *((LOCAL_QUEUES, queue) for queue in local),
        ),
        pools=(pool("roomy", (1, 1, 1), cpus=4 * gangs, pods=4 * gangs), pool("filled", (1, 1, 1), cpus=0)),
        placed=frozenset(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """How gangs are made, and what becomes of them.

    Args:
        members: pods of each gang; the quorum is two.
        later: changes one gang that runs.
    """

    queue: str = "roomy"
    members: int = 2
    run_seconds: int = FOREVER
    later: Callable[[World, str], Awaitable[object]] | None = None


async def _lose(world: World, gang: str) -> None:
    await world.api.delete(PODS, f"{gang}-1", namespace=NAMESPACE)


async def _fail(world: World, gang: str) -> None:
    await world.api.patch(PODS, f"{gang}-1", FAIL_NOW, namespace=NAMESPACE)


async def _deactivate(world: World, gang: str) -> None:
    name = next(
        workload["metadata"]["name"]
        for workload in world.objects(WORKLOADS)
        if workload["metadata"]["annotations"].get(gang_names.GANG_ANNOTATION, "").endswith(f":{gang}")
    )
    await world.api.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace=NAMESPACE)


FATES = {
    "gathers": Fate(members=1),
    "waits": Fate(queue="full"),
    "held": Fate(queue="held"),
    "starts": Fate(queue="starting"),
    "runs": Fate(),
    "grows": Fate(queue="extras", members=4),
    "degraded": Fate(later=_lose),
    "failed": Fate(later=_fail),
    "finished": Fate(run_seconds=3),
    "stopped": Fate(later=_deactivate),
    "nowhere": Fate(queue="nowhere"),
}
OF_BATCHES = ("waits", "held", "starts", "runs", "finished")


def each_gang(gangs: int, fates: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield fate and number of so many gangs, the fates in turn."""
    for number in range(gangs):
        yield fates[number % len(fates)], number


async def create_members(world: World, gang: str, fate: Fate, *, by_object: bool) -> None:
    """Create the pods of one gang, and its PodGroup."""
    if by_object:
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": gang, "namespace": NAMESPACE},
            "spec": {"minMember": 2},
        }
        await world.api.create(POD_GROUPS, group, namespace=NAMESPACE)
    for number in range(fate.members):
        made = labelled(f"{gang}-{number}", gang, quorum=2, queue=fate.queue, run_seconds=fate.run_seconds)
        if by_object:
            made["metadata"]["labels"].pop(gang_names.COSCHEDULING_NAME_LABEL)
            made["metadata"]["labels"].pop(gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL)
            made["metadata"]["labels"][gang_names.POD_GROUP_X_K8S_LABEL] = gang
        await world.api.create(PODS, made, namespace=NAMESPACE)


async def create_batch(world: World, name: str, fate: Fate) -> None:
    """Create a BatchProcess of two types."""
    made: Object = batch()
    made["metadata"] |= {"name": name, "labels": {names.QUEUE_NAME_LABEL: fate.queue}}
    for process in made["spec"]["simpleProcesses"]:
        process["replicas"] = 1
        process["template"] = {
            "metadata": {"annotations": {sandbox_names.RUN_SECONDS_ANNOTATION: str(fate.run_seconds)}}
        }
    await world.api.create(BATCHES, made, namespace=NAMESPACE)


@asynccontextmanager
async def crowded(gangs: int) -> AsyncIterator[World]:
    """A world of so many gangs, each of which has met its fate and changes no more."""
    dialects = (*LABELS_AND_OBJECTS, batch_process.FRAMEWORK)
    async with simulated(tenancy=crowd(gangs), gangs=dialects) as world:
        ours_too = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world.configured.namespace}}
        await world.api.create(NAMESPACES, ours_too)
        await set_gangs(
            world,
            reject_percentage=100,
            schedule_timeout=world.configured.gangs.schedule_timeout.model_copy(
                update={"base": timedelta(days=1), "maximum": timedelta(days=1)}
            ),
        )
        part = gangs // 5
        for fate, number in each_gang(2 * part, tuple(FATES)):
            await create_members(world, f"{fate}-l{number}", FATES[fate], by_object=False)
        for fate, number in each_gang(2 * part, tuple(FATES)):
            await create_members(world, f"{fate}-o{number}", FATES[fate], by_object=True)
        for fate, number in each_gang(part, OF_BATCHES):
            await create_batch(world, f"{fate}-b{number}", FATES[fate])
        await world.pass_time(30)
        for each in world.objects(PODS):
            gang, _, index = each["metadata"]["name"].rpartition("-")
            later = FATES[gang.partition("-")[0]].later
            if index == "0" and later is not None:
                await later(world, gang)
        await world.pass_time(TOLD)
        yield world


def everything(world: World) -> dict[str, str]:
    """Return the resource versions of all objects that users and controllers write, events included."""
    kinds = (*(PODS, WORKLOADS, POD_GROUPS, BATCHES, EVENTS, SERVICES), *(CLUSTER_QUEUES, LOCAL_QUEUES))
    found = ((kind, obj["metadata"]) for kind in kinds for obj in world.objects(kind))
    return {f"{kind.plural} {meta['name']}": meta["resourceVersion"] for kind, meta in found}


@pytest.mark.parametrize("gangs", sizes(60, 1_000))
async def test_gangs_in_all_phases_are_quiet_and_quiet_after_a_restart(gangs: int) -> None:
    """G7.22: no write in ten minutes, and none by a new controller, which knows nothing of the former one.

    A new controller offers events of lasting states once more, and the server has them already.
    """
    async with crowded(gangs) as world:
        phases = {group["status"].get("phase", "") for group in world.objects(POD_GROUPS)}
        controller, stored = world.controller, everything(world)
        assert controller is not None
        before = len(controller.client.writes)
        await world.pass_time(TOLD)
        quiet = controller.client.writes[before:]
        world.kill_controller()
        fresh = world.start_controller()
        await world.pass_time(TOLD)
        after = everything(world)
        assert invariants.breaches(world, invariants.ALWAYS) == []

    assert quiet == []
    assert [write for write in fresh.client.writes if not write.endswith("/events")] == []
    assert after == stored
    # A gang is in the phase Scheduling only until the kubelet has started its pods.
    assert phases == {phase.value for phase in GangPhase} - {GangPhase.SCHEDULING.value}


# --- without gangs


async def requests_of(gangs: tuple[str, ...]) -> tuple[Counter[str], int]:
    """Live through some work without gangs and a quiet hour; returns the requests by method and kind, and apart from
    them those for kinds of group objects.
    """
    async with simulated(pods=True, gangs=gangs) as world:
        for number in range(5):
            await world.submit(job(f"job-{number}"))
            single = pod(f"single-{number}", queue="plain", gpus=0)
            await world.api.create(PODS, single, namespace=NAMESPACE)
        group = Group(roles=(0, 0), body={"queue": "plain"})
        for number in range(2):
            await world.api.create(PODS, group.member("group", number), namespace=NAMESPACE)
        await world.pass_time(HOUR)
        assert world.controller is not None
        found, of_groups = Counter[str](), 0
        for where, count in world.controller.client.sent.items():
            method, _, path = where.partition(" ")
            parsed = route.parse(path)
            assert parsed is not None, path
            if parsed.resource.plural in ("podgroups", "batchprocesses"):
                of_groups += count
            else:
                found[f"{method} {parsed.resource} {parsed.subresource}"] += count
        return found, of_groups


async def test_a_cluster_without_gangs_has_no_further_requests() -> None:
    """All dialects are on; each version of their kinds costs a watch, or a question every other minute if it is missing."""
    off, none = await requests_of(())
    on, of_groups = await requests_of(frameworks())
    versions = sum(len(dialect_of(framework).kinds) for framework in frameworks())

    assert none == 0
    assert on == off
    assert versions <= of_groups <= versions * HOUR / 60
