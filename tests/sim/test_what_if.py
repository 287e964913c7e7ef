"""What a what-if says of a change is what the controller does when the change is really made.

Worlds are drawn from a seed as in `test_promises`.  An existing ClusterQueue gets other quotas, or a new one comes with
its LocalQueue, as a manifest that is asked about first and then written to the API server.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from kqueue.manager.start_times import make_pending, make_start_times
from kqueue.manager.what_ifs import make_what_ifs
from kqueue.sandbox.api import Object
from kqueue.visibility.question import AuthorizedQuestion
from tests.sim.chosen import few_seeds
from tests.sim.objects import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACE, WORKLOADS, job
from tests.sim.test_promises import drawn
from tests.sim.world import World, is_true, simulated

_CHANGES = 3
"""Changes that are asked about in one world, one after the other."""
_QUEUES = ("solo", "even", "few", "left", "right", "twice")
_VERSION = "kueue.x-k8s.io/v1beta2"
_FOREVER = 1_000_000


async def asked(world: World, objects: list[Object]) -> Object:
    """The answer about these manifests, for a user with all rights."""

    async def reads(_namespace: str) -> bool:
        return True

    assert world.controller is not None
    operator = world.controller.operator
    pending = make_pending(operator)
    view = make_what_ifs(operator, make_start_times(operator), pending)
    body = msgspec.json.encode({"spec": {"objects": objects}})
    found = await view.view(AuthorizedQuestion(namespace="", name="", params={}, body=body, reads=reads))
    return dict(found)


def with_flag(world: World, kind: str) -> set[str]:
    return {w["metadata"]["name"] for w in world.objects(WORKLOADS) if is_true(w, kind)}


def changed_queue(world: World, chance: random.Random) -> Object:
    """A ClusterQueue with more or less quota of everything."""
    found = world.find(CLUSTER_QUEUES, chance.choice(_QUEUES))
    assert found is not None
    factor = chance.choice([0, 1, 3])
    spec: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found["spec"]))
    for group in spec["resourceGroups"]:
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                number = "".join(filter(str.isdigit, str(resource["nominalQuota"])))
                resource["nominalQuota"] = str(int(number) * factor)
                resource.pop("lendingLimit", None)
    return {
        "apiVersion": _VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": found["metadata"]["name"]},
        "spec": spec,
    }


def new_queue(world: World, number: int) -> list[Object]:
    """A ClusterQueue like `even`, and a LocalQueue for it."""
    found = world.find(CLUSTER_QUEUES, "even")
    assert found is not None
    name = f"new-{number}"
    return [
        {"apiVersion": _VERSION, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": dict(found["spec"])},
        {
            "apiVersion": _VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"clusterQueue": name},
        },
    ]


async def really(world: World, objects: list[Object]) -> None:
    """Write the manifests to the API server."""
    for obj in objects:
        resource = CLUSTER_QUEUES if obj["kind"] == "ClusterQueue" else LOCAL_QUEUES
        if obj["kind"] == "ClusterQueue" and world.find(CLUSTER_QUEUES, obj["metadata"]["name"]) is not None:
            await world.api.patch(resource, obj["metadata"]["name"], {"spec": obj["spec"]})
        else:
            await world.api.create(resource, obj)


@pytest.mark.parametrize("seed", few_seeds("0", "1,2,3,4"))
async def test_a_change_has_the_effects_that_were_said(seed: int) -> None:
    """The workloads that start, and that nothing else happens, where nothing is preempted."""
    chance = random.Random(seed)
    async with simulated(f"what-if-{seed}") as world:
        await drawn(world, chance)
        for number in range(_CHANGES):
            objects = [changed_queue(world, chance)]
            if chance.random() < 0.5:
                objects = new_queue(world, number)
                await world.submit(job(f"waits-{number}", queue=f"new-{number}", pods=1, gpus=1, run_seconds=_FOREVER))
                await world.pass_time(5)
            held, evicted = with_flag(world, "QuotaReserved"), with_flag(world, "Evicted")
            answer = await asked(world, objects)
            await really(world, objects)
            await world.pass_time(5)
            context = f"seed {seed}, {number}: {objects} {answer['counts']} {answer['starts']}"
            now = {one["name"] for one in answer["starts"] if one["start"] == "Now"}
            after = with_flag(world, "QuotaReserved")
            if not answer["evicted"]:
                assert with_flag(world, "Evicted") == evicted, context
                assert after - held == now, context
            else:
                assert {one["name"] for one in answer["evicted"]} <= with_flag(world, "Evicted"), context
            await world.pass_time(20)
