"""Small worlds with scarce cards and private machines: their nodes are empty for all that do not name them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kqueue.api import names
from kqueue.config.gangs import NodeClassSettings
from kqueue.sandbox.api import PODS, Object
from kqueue.sandbox.topology_spec import POOL_LABEL
from tests.sim import invariants
from tests.sim.chosen import seeds
from tests.sim.objects import CLUSTER_QUEUES, FLAVORS, LOCAL_QUEUES, NAMESPACE, cluster_queue, job, ours, template
from tests.sim.tenancy import Tenancy, pool
from tests.sim.world import World, owner_of, simulated

CARD, GROUP = "h100", "lab"
KINDS = ("nameless", "card", "preferred", "private", "plain")
ALLOWED = {
    "nameless": {"common"}, "card": {"rare"}, "preferred": {"rare", "common"}, "private": {"lab"}, "plain": {"common"},
}  # fmt: skip
"""The pools whose nodes pods of each kind may use."""
ALWAYS = tuple(each for each in invariants.ALWAYS if each is not invariants.equals_are_admitted_in_order)
"""Workloads of different classes are no equals."""


def _flavor(name: str, **annotations: str) -> Object:
    made = ours("ResourceFlavor", name, spec={"nodeLabels": {POOL_LABEL: name}})
    made["metadata"]["annotations"] = annotations
    return made


def classes() -> Tenancy:
    """The scarce and the private flavor come first in the queue, and have more room than the common one."""
    flavors = [
        _flavor("rare", **{names.CARD_TYPE_ANNOTATION: CARD, names.SCARCE_ANNOTATION: "true"}),
        _flavor("lab", **{names.PRIVATE_GROUP_LABEL: GROUP}),
        _flavor("common"),
    ]
    queue = cluster_queue("mixed", flavors={"rare": {"cpu": 8}, "lab": {"cpu": 8}, "common": {"cpu": 2}})
    local = ours("LocalQueue", "mixed", namespace=NAMESPACE, spec={"clusterQueue": "mixed"})
    return Tenancy(
        objects=(*((FLAVORS, flavor) for flavor in flavors), (CLUSTER_QUEUES, queue), (LOCAL_QUEUES, local)),
        pools=(pool("rare", (1, 1, 2), cpus=4), pool("lab", (1, 1, 2), cpus=4), pool("common", (1, 1, 1), cpus=4)),
        placed=frozenset(),
    )


async def submit(world: World, kind: str, number: int, chance: random.Random) -> None:
    """Create a Job, or a pod that no queue holds."""
    name, seconds = f"{kind}-{number}", chance.choice((3, 20))
    if kind == "plain":
        made = template(gpus=0, run_seconds=seconds)
        made |= {"apiVersion": "v1", "kind": "Pod", "metadata": {**made["metadata"], "name": name}}
        await world.api.create(PODS, made, namespace=NAMESPACE)
        return
    made = job(name, queue="mixed", pods=chance.choice((1, 2)), gpus=0, topology=None, run_seconds=seconds)
    metadata: dict[str, Any] = made["spec"]["template"]["metadata"]
    keys = {"card": names.CARD_TYPE_ANNOTATION, "preferred": names.CARD_TYPE_PREFERRED_ANNOTATION}
    if kind in keys:
        metadata["annotations"][keys[kind]] = CARD
    if kind == "private":
        metadata["labels"] = {names.PRIVATE_GROUP_LABEL: GROUP}
    await world.submit(made)


def places(world: World) -> dict[str, set[str]]:
    """The pools whose nodes have pods, by kind of the pods."""
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for each in world.objects(PODS):
        if node := each["spec"].get("nodeName"):
            kind = (owner_of(each) or each["metadata"]["name"]).partition("-")[0]
            found[kind].add(node.partition("-")[0])
    return found


@pytest.mark.mechanism("3.36")
@pytest.mark.parametrize("seed", seeds("0-15"))
async def test_nodes_of_a_class_have_pods_of_this_class_only(seed: int) -> None:
    """Row 3.36: whatever is created, in any order, and though the scarce and the private nodes are the only free ones."""
    chance = random.Random(seed)
    async with simulated(seed, tenancy=classes()) as world:
        world.kill_controller()
        settings = {"node_classes": NodeClassSettings(manage_taints=True)}
        world.configured = world.configured.model_copy(update=settings)
        world.start_controller()
        await world.pass_time(2)
        seen: dict[str, set[str]] = {kind: set() for kind in KINDS}

        def look() -> None:
            for kind, pools in places(world).items():
                seen[kind] |= pools

        world.on_settled.append(look)
        for number, kind in enumerate(chance.sample(KINDS * 4, 4 * len(KINDS))):
            await submit(world, kind, number, chance)
            await world.pass_time(chance.choice((0, 0.05, 0.3, 2, 5)))
        await world.pass_time(30)
        assert invariants.breaches(world, ALWAYS) == []

    assert all(seen[kind] <= ALLOWED[kind] for kind in KINDS), seen
    assert all(seen[kind] for kind in KINDS), seen
