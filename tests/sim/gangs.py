"""Gangs by labels: pods as their users create them, and readers of what became of them."""

from __future__ import annotations

from typing import Any

from kqueue.api import gang_names, names
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK
from kqueue.sandbox.api import PODS, Object
from tests.sim.kinds import gang_of, gang_of_workload, pod, workload_of_group
from tests.sim.objects import NAMESPACE
from tests.sim.world import World

LABELS = (FRAMEWORK,)
"""Dialects that are on in worlds of gangs by labels."""
LABELS_AND_OBJECTS = (*LABELS, "scheduling.x-k8s.io/podgroup")
"""Dialects that are on in worlds of gangs by labels and by PodGroup objects."""
LONG = 1000
"""Run time in seconds, longer than any test."""


def labelled(
    name: str,
    gang: str,
    *,
    quorum: int | str,
    queue: str = "plain",
    gpus: int = 0,
    cpus: int = 1,
    topology: tuple[str, str] | None = None,
    priority: str = "",
    run_seconds: int = LONG,
) -> Object:
    """Return a pod that names its gang and quorum by labels."""
    made = pod(name, queue=queue, gpus=gpus, topology=topology, priority=priority, run_seconds=run_seconds)
    made["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpus)
    made["metadata"]["labels"] |= {
        gang_names.COSCHEDULING_NAME_LABEL: gang,
        gang_names.COSCHEDULING_MIN_AVAILABLE_LABEL: str(quorum),
    }
    return made


async def create(world: World, name: str, gang: str, **settings: Any) -> None:
    """Create a pod of a gang."""
    await world.api.create(PODS, labelled(name, gang, **settings), namespace=NAMESPACE)


async def create_all(world: World, gang: str, members: int, **settings: Any) -> None:
    """Create so many pods of a gang at once."""
    for number in range(members):
        await create(world, f"{gang}-{number}", gang, **settings)


def members(world: World, gang: str) -> list[Object]:
    """Return all pods of a gang, in the order of their names."""
    return [each for each in world.objects(PODS) if gang_of(each) == gang]


def running(world: World, gang: str) -> list[str]:
    """Return the names of the members that run and are not being deleted."""
    return [
        each["metadata"]["name"]
        for each in members(world, gang)
        if (each.get("status") or {}).get("phase") == "Running" and not each["metadata"].get("deletionTimestamp")
    ]


def base_workload(world: World, gang: str) -> Object | None:
    """Return the Workload of a gang's quorum; None: there is none."""
    found = workload_of_group(world, gang)
    return found if found is not None and gang_of_workload(found) == gang else None


def is_gated(pod: Object) -> bool:
    """Whether the pod has kqueue's admission gate."""
    return any(gate["name"] == names.ADMISSION_GATE for gate in pod["spec"].get("schedulingGates") or ())
