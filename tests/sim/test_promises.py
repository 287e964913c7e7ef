"""What explain promises comes true: each change that it names is made, by its commands, and the workload starts.

Worlds are drawn from a seed: gangs of several queues run and wait, nodes are cordoned or broken, queues are stopped.
"""

from __future__ import annotations

import json
import random
import re
import shlex
from typing import Any

import pytest

from kqueue.manager.explaining import make_explainer
from kqueue.sandbox.api import JOBS, NODES, GroupVersionResource, Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from kqueue.visibility.question import AuthorizedQuestion
from tests.sim.chosen import seeds
from tests.sim.objects import CLUSTER_QUEUES, LOCAL_QUEUES, NAMESPACE, WORKLOADS, job
from tests.sim.reading import holders
from tests.sim.world import World, is_true, owner_of, simulated

_FOREVER = 1_000_000
_QUEUES = ("solo", "even", "few", "left", "right", "twice")
_BY_HAND = ("FewerPods", "NodesReturn")
"""Changes that users and administrators make with tools of their own, wholly or in part."""
_NODE = re.compile(r"gpu-b\d-r\d-h\d")
_KINDS: dict[str, GroupVersionResource] = {
    "clusterqueue": CLUSTER_QUEUES,
    "localqueue": LOCAL_QUEUES,
    "workload": WORKLOADS,
    "job.v1.batch": JOBS,
}


async def drawn(world: World, chance: random.Random) -> None:
    """Fill the cluster, take nodes out, stop a queue, and let gangs wait."""
    for number in range(chance.randint(4, 8)):
        await _submit(world, chance, f"early-{number}")
    await world.pass_time(5)
    for node in chance.sample(_gpu_nodes(world), chance.randint(0, 4)):
        out = {"spec": {"unschedulable": True}} if chance.random() < 0.6 else None
        await (world.api.patch(NODES, node, out) if out is not None else _set_ready(world, node, "False"))
    if chance.random() < 0.3:
        await world.api.patch(CLUSTER_QUEUES, chance.choice(_QUEUES), {"spec": {"stopPolicy": "Hold"}})
    for number in range(chance.randint(2, 8)):
        await _submit(world, chance, f"late-{number}")
    await world.pass_time(20)


async def _set_ready(world: World, node: str, status: str) -> None:
    ready = {"type": "Ready", "status": status, "reason": "Kubelet", "message": ""}
    await world.api.patch(NODES, node, {"status": {"conditions": [ready]}}, subresource="status")


async def _submit(world: World, chance: random.Random, name: str) -> None:
    topology = chance.choice([None, ("required", RACK_LABEL), ("required", BLOCK_LABEL), ("preferred", RACK_LABEL)])
    settings: dict[str, Any] = {
        "queue": chance.choice(_QUEUES),
        "pods": chance.randint(1, 6),
        "gpus": chance.choice([1, 2, 4, 8]),
        "priority": chance.choice(["", "", "high", "low"]),
    }
    await world.submit(job(name, topology=topology, run_seconds=_FOREVER, **settings))


def _gpu_nodes(world: World) -> list[str]:
    return [b.name for b in world.topology.blueprints() if b.name.startswith("gpu")]


def waiting(world: World) -> list[Object]:
    """Workloads that hold nothing, by name."""
    held = {w["metadata"]["uid"] for w in holders(world)}
    found = [w for w in world.objects(WORKLOADS) if w["metadata"]["uid"] not in held and not is_true(w, "Finished")]
    return sorted(found, key=lambda w: str(w["metadata"]["name"]))


async def explained(world: World, name: str) -> Object:
    async def reads(_namespace: str) -> bool:
        return True

    assert world.controller is not None
    explainer = make_explainer(world.controller.operator)
    return dict(await explainer.view(AuthorizedQuestion(namespace=NAMESPACE, name=name, params={}, reads=reads)))


async def carry_out(world: World, command: str) -> None:
    """What a user's shell does with one line."""
    match shlex.split(command):
        case ["kubectl", "uncordon", node]:
            await world.api.patch(NODES, node, {"spec": {"unschedulable": False}})
        case ["kqueue", "resume", "workload", name, "-n", namespace]:
            await world.api.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=namespace)
        case ["kqueue", "resume", kind, name, *rest]:
            stop = {"spec": {"stopPolicy": "None"}}
            await world.api.patch(_KINDS[kind], name, stop, namespace=rest[1] if rest else "")
        case ["kqueue", "stop", "workload", name, "-n", namespace]:
            await world.api.patch(WORKLOADS, name, {"spec": {"active": False}}, namespace=namespace)
        case ["kubectl", "label", what, "-n", namespace, label, "--overwrite"]:
            (kind, name), (key, value) = what.split("/"), label.split("=")
            await world.api.patch(_KINDS[kind], name, {"metadata": {"labels": {key: value}}}, namespace=namespace)
        case ["kubectl", "patch", what, "-n", namespace, "--type=merge", "-p", patch]:
            kind, name = what.split("/")
            await world.api.patch(_KINDS[kind], name, json.loads(patch), namespace=namespace)
        case ["kubectl", "patch", "clusterqueue", name, "--type=json", "-p", patch]:
            steps = json.loads(patch)
            await world.api.patch(CLUSTER_QUEUES, name, steps, content_type="application/json-patch+json")
        case words:
            raise AssertionError(f"no such command: {words}")


async def make_change(world: World, name: str, promise: Object) -> None:
    """Do what no command does: repair nodes, or ask for fewer pods."""
    change = promise["change"]
    for node in change.get("nodes", ()):
        if node["now"] != "unschedulable":
            await _set_ready(world, node["name"], "True")
    if change["kind"] == "FewerPods":
        found = world.find(WORKLOADS, name)
        assert found is not None
        fewer = {"spec": {"parallelism": change["count"], "completions": change["count"]}}
        await world.api.patch(JOBS, owner_of(found), fewer, namespace=NAMESPACE)


async def remove_others(world: World, name: str) -> None:
    """Delete the jobs of all other workloads that wait."""
    for workload in waiting(world):
        if workload["metadata"]["name"] != name:
            await world.api.delete(JOBS, owner_of(workload), namespace=NAMESPACE)
    await world.pass_time(3)


@pytest.mark.parametrize("seed", seeds("0-2"))
async def test_what_explain_promises_comes_true(seed: int) -> None:
    """One change of each workload that waits, each in a world of its own drawn from the same seed."""
    async with simulated(f"promises-{seed}") as world:
        await drawn(world, random.Random(seed))
        names = [w["metadata"]["name"] for w in waiting(world)]
        promises = {name: (await explained(world, name))["pending"].get("wouldStartIf", []) for name in names}
    for name, found in promises.items():
        for number, promise in enumerate(found):
            await _comes_true(seed, name, number, promise)


async def _comes_true(seed: int, name: str, number: int, promise: Object) -> None:
    commands = promise.get("commands", [])
    if not commands and promise.get("change", {}).get("kind") not in _BY_HAND:
        return
    async with simulated(f"promises-{seed}") as world:
        await drawn(world, random.Random(seed))
        if promise.get("alsoNeeded"):
            await remove_others(world, name)
        for command in commands:
            await carry_out(world, command)
        await make_change(world, name, promise)
        for node in _NODE.findall(" ".join(said for said in promise.get("alsoNeeded", ()) if "not ready" in said)):
            await _set_ready(world, node, "True")
        await world.pass_time(60)
        found = world.find(WORKLOADS, name)
        job_name = owner_of(found) if found is not None else name
        started = found is not None and is_true(found, "QuotaReserved")
        said = found and [c for c in found["status"]["conditions"] if c["type"] == "QuotaReserved"]
    assert started, f"seed {seed}: {job_name} ({name}), promise {number}: {promise}; says {said}"
