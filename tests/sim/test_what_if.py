"""What a what-if says of a change is what the controller does when the change is really made.

Worlds are drawn from a seed as in `test_promises`.  An existing ClusterQueue gets other quotas, or a new one comes with
its LocalQueue, as a manifest that is asked about first and then written to the API server.  Racks are drained, priority
classes get other values, nodes come, one by one and together.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from kqueue.manager.start_times import make_pending, make_start_times
from kqueue.manager.what_ifs import make_what_ifs
from kqueue.sandbox.api import NODES, PODS, Object
from kqueue.sandbox.json_object import stamp
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from kqueue.visibility.question import AuthorizedQuestion
from tests.sim.chosen import few_seeds
from tests.sim.objects import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACE,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    job,
)
from tests.sim.test_promises import drawn
from tests.sim.world import World, is_true, simulated

_CHANGES = 3
"""Changes that are asked about in one world, one after the other."""
_QUEUES = ("solo", "even", "few", "left", "right", "twice")
_VERSION = "kueue.x-k8s.io/v1beta2"
_FOREVER = 1_000_000


async def asked(world: World, **spec: Any) -> Object:
    """The answer about these changes, for a user with all rights."""

    async def reads(_namespace: str) -> bool:
        return True

    assert world.controller is not None
    operator = world.controller.operator
    pending = make_pending(operator)
    view = make_what_ifs(operator, make_start_times(operator), pending)
    body = msgspec.json.encode({"spec": spec})
    found = await view.view(AuthorizedQuestion(namespace="", name="", params={}, body=body, reads=reads))
    return dict(found)


def with_flag(world: World, kind: str) -> set[str]:
    return {w["metadata"]["name"] for w in world.objects(WORKLOADS) if is_true(w, kind)}


def running(world: World) -> set[str]:
    """The workloads that have quota, and do not leave; pods on a broken node never end, so its workloads keep theirs."""
    return with_flag(world, "QuotaReserved") - with_flag(world, "Evicted")


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
            answer = await asked(world, objects=objects)
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


# --- nodes and priorities ---------------------------------------------------------------------------------------------


def _usable(world: World) -> list[str]:
    """The GPU nodes on which pods may start; a question for more nodes names one of them."""
    nodes = {str(n["metadata"]["name"]): bool(n["spec"].get("unschedulable")) for n in world.objects(NODES)}
    return sorted(n for n, cordoned in nodes.items() if n.startswith("gpu") and not cordoned and _is_ready(world, n))


def _is_ready(world: World, node: str) -> bool:
    found = world.find(NODES, node)
    assert found is not None
    return {c["type"]: c["status"] for c in found["status"]["conditions"]}.get("Ready") == "True"


def _domain(world: World, node: str) -> tuple[str, str]:
    """The block and the rack of a node."""
    found = world.find(NODES, node)
    assert found is not None
    labels = found["metadata"]["labels"]
    return labels[BLOCK_LABEL], labels[RACK_LABEL]


class Change:
    """Changes of nodes and priorities, as fields of a question and as an administrator makes them."""

    def __init__(self, world: World, chance: random.Random, kinds: Collection[str]) -> None:
        self.world = world
        self.spec: dict[str, Any] = {}
        labels = [b.labels for b in world.topology.blueprints() if b.name.startswith("gpu")]
        racks = sorted({(one[BLOCK_LABEL], one[RACK_LABEL]) for one in labels})
        self.rack = chance.choice(racks)
        if "drains" in kinds:
            self.spec["drains"] = ["/".join(self.rack)]
        if "addNodes" in kinds:
            self.like = next(name for name in _usable(world) if not name.startswith(f"{self.rack[1]}-"))
            domain = _domain(world, self.like)
            self.count = chance.randint(1, 2)
            self.spec["addNodes"] = [{"like": self.like, "count": self.count, "domain": "/".join(domain)}]
        if "priorities" in kinds:
            name, value = chance.choice([("low", 20), ("high", -20), ("low", 10)])
            self.spec["priorities"] = [{"name": name, "value": value}]

    async def really(self) -> None:
        """Make all of them, and let the controller see them together: queues hold until Workloads have their
        new priorities and drained ones have left, and it does not run while the queues are resumed.
        """
        world = self.world
        open_queues = [
            q["metadata"]["name"] for q in world.objects(CLUSTER_QUEUES) if q["spec"]["stopPolicy"] == "None"
        ]
        for queue in open_queues:
            await world.api.patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "Hold"}})
        await world.pass_time(1)
        for setting in self.spec.get("priorities", ()):
            await world.api.patch(WORKLOAD_PRIORITY_CLASSES, setting["name"], {"value": setting["value"]})
        if "drains" in self.spec:
            await self._drain()
        await world.pass_time(10)
        world.kill_controller()
        for queue in open_queues:
            await world.api.patch(CLUSTER_QUEUES, queue, {"spec": {"stopPolicy": "None"}})
        for number in range(self.count if "addNodes" in self.spec else 0):
            await self._add(f"added-{number}")
        world.start_controller()

    async def _drain(self) -> None:
        hosts = {
            node["metadata"]["name"]
            for node in self.world.objects(NODES)
            if node["metadata"]["name"].startswith("gpu") and _domain(self.world, node["metadata"]["name"]) == self.rack
        }
        owners = {
            pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"]
            for pod in self.world.objects(PODS)
            if pod["spec"].get("nodeName") in hosts and "kueue.x-k8s.io/workload" in pod["metadata"]["annotations"]
        }
        for host in sorted(hosts):
            if _is_ready(self.world, host):
                await self.world.api.patch(NODES, host, {"spec": {"unschedulable": True}})
            else:  # nobody would end the pods there
                await self.world.api.delete(NODES, host)
        for name in sorted(owners):
            found = self.world.find(WORKLOADS, name)
            assert found is not None
            kept = [one for one in found["status"]["conditions"] if one["type"] != "Evicted"]
            evicted = {
                "type": "Evicted",
                "status": "True",
                "reason": "NodeFailures",
                "message": "the rack is drained",
                "lastTransitionTime": stamp(self.world.clock.now()),
            }
            status = {"status": {"conditions": [*kept, evicted]}}
            await self.world.api.patch(WORKLOADS, name, status, namespace=NAMESPACE, subresource="status")

    async def _add(self, name: str) -> None:
        model = self.world.find(NODES, self.like)
        assert model is not None
        metadata = {"name": name, "labels": {**model["metadata"]["labels"], "kubernetes.io/hostname": name}}
        spec = {k: v for k, v in model["spec"].items() if k not in ("unschedulable", "providerID")}
        await self.world.api.create(NODES, {"metadata": metadata, "spec": spec, "status": model["status"]})


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("drains",), id="drained"),
        pytest.param(("priorities",), id="priorities"),
        pytest.param(("addNodes",), id="added"),
        pytest.param(("drains", "priorities", "addNodes"), id="together"),
    ],
)
@pytest.mark.parametrize("seed", few_seeds("0-1", "2,3,4,5,6,7,8,9,10,11"))
async def test_nodes_and_priorities_have_the_effects_that_were_said(seed: int, kinds: tuple[str, ...]) -> None:
    """The workloads that start, leave and wait."""
    chance = random.Random(f"{seed}{kinds}")
    async with simulated(f"what-if-{seed}") as world:
        await drawn(world, random.Random(seed))
        change = Change(world, chance, kinds)
        held = running(world)
        answer = await asked(world, **change.spec)
        await change.really()
        await world.pass_time(30)

        leave = {one["name"] for one in answer["evicted"]}
        again = {one["name"] for one in answer["evicted"] if one.get("again") == "Now"}
        starts = {one["name"] for one in answer["starts"]}
        after = running(world)
        context = f"seed {seed}: {change.spec} {answer['counts']} {answer['evicted']} {answer['starts']}"
        assert after == (held - leave) | again | starts, context
