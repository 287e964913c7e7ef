"""What proposed objects would change is what happens when they are then really created."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    RESOURCE_FLAVORS,
)
from kqueue.errors import ConfigError
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store
from kqueue.visibility.question import JSON
from tests.unit.controllers.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.visibility.test_placements import put_node, racks
from tests.unit.visibility.test_what_if import asked, cycles, named, put_on, quota

KINDS: dict[str, ResourceType] = {
    "ClusterQueue": CLUSTER_QUEUES,
    "Cohort": COHORTS,
    "LocalQueue": LOCAL_QUEUES,
    "ResourceFlavor": RESOURCE_FLAVORS,
}


def manifest(kind: str, obj: JSON) -> JSON:
    """An object as a user writes it."""
    plain = {key: value for key, value in obj.items() if key != "status"}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **plain}


def queue(name: str, **spec: Any) -> JSON:
    return manifest("ClusterQueue", make_cluster_queue(name, **spec))


def local(name: str, of: str, **spec: Any) -> JSON:
    return manifest("LocalQueue", make_local_queue(name, cluster_queue=of, **spec))


def cohort(name: str, cpus: int = 0, **spec: Any) -> JSON:
    groups = queue("x", cpus=cpus)["spec"]["resourceGroups"] if cpus else []
    return manifest("Cohort", {"metadata": {"name": name}, "spec": {"resourceGroups": groups, **spec}})


def made(*objects: Any) -> Scheduled:
    """A world that follows Cohorts, too."""
    world = Scheduled(*objects)
    cohorts: Store[wire.Cohort] = Store()
    cohorts.subscribe(world.intake.on_cohort)
    world.client.watch(COHORTS, cohorts, lambda obj: msgspec.convert(obj, wire.Cohort))
    world.sync()
    return world


def apply(world: Scheduled, *manifests: JSON) -> None:
    """Really create or change the objects; all workloads are tried again."""
    for obj in manifests:
        world.client.put(KINDS[obj["kind"]], {k: v for k, v in obj.items() if k not in ("kind", "apiVersion")})
    world.client.sync()
    world.queues.flush(world.queues.names())


def with_quota(world: Scheduled) -> set[str]:
    return {
        obj.metadata.name
        for obj in world.workloads.values()
        if status_of(world.workload(obj.metadata.name), "QuotaReserved")[0] == "True"
    }


def drawn(random: Random) -> tuple[list[Any], list[JSON], list[JSON]]:
    """The objects of a world, its workloads, and what is proposed."""

    def somewhere() -> JSON:
        return random.choice([{}, {"cohortName": "all"}, {"cohortName": "inner"}])

    def queues(name: str) -> JSON:
        spec = somewhere()
        if spec and random.random() < 0.3:
            spec["fairSharing"] = {"weight": "2"}
        if random.random() < 0.3:
            spec["queueingStrategy"] = "StrictFIFO"
        return make_cluster_queue(name, cpus=random.randint(2, 12), **spec)

    objects = [
        (CLUSTER_QUEUES, queues("team")),
        (LOCAL_QUEUES, make_local_queue()),
        (CLUSTER_QUEUES, queues("rest")),
        (LOCAL_QUEUES, make_local_queue("rest", cluster_queue="rest")),
    ]
    waiting = [
        make_workload(
            f"w{n}",
            queue=random.choice(["main", "rest", "new"]),
            cpus=random.randint(1, 5),
            priority=random.randint(0, 2),
            minute=n,
        )
        for n in range(9)
    ]
    proposals = [
        [manifest("ClusterQueue", queues("new")), local("new", "new")],
        [local("new", "rest")],
        [manifest("ClusterQueue", queues("team"))],
        [manifest("ClusterQueue", queues("team")), manifest("ClusterQueue", queues("rest"))],
        [cohort("inner", random.randint(0, 6), parentName="all")],
        [cohort("all", random.randint(1, 8)), manifest("ClusterQueue", queues("new")), local("new", "new")],
        [queue("team", cpus=12, stopPolicy=random.choice(["Hold", "None"]))],
        [manifest("ResourceFlavor", make_flavor(nodeTaints=[{"key": "a", "value": "b", "effect": "NoSchedule"}]))],
    ]
    return objects, waiting, random.choice(proposals)


@pytest.mark.parametrize("seed", range(40))
async def test_workloads_start_as_when_the_objects_are_created(seed: int) -> None:
    """In a world at rest; the answer changes nothing in it."""
    random = Random(seed)
    objects, waiting, proposed = drawn(random)
    world = made(*objects)
    try:
        world.add(*waiting)
        await cycles(world, 12)
        before = with_quota(world)
        answer = await asked(world, objects=proposed)
        assert world.cache.audits.audit() == []
        apply(world, *proposed)
        await cycles(world, 12)
        assert named(answer["starts"]) == with_quota(world) - before, proposed
    finally:
        await world.close()


@pytest.mark.parametrize("seed", range(12))
async def test_gangs_start_as_when_the_nodes_come(seed: int) -> None:
    """Added nodes, alone and with more quota in a manifest; they take no start from anybody."""
    random = Random(500 + seed)
    world = Scheduled(*racks())
    world.sync()
    try:
        put_node(world, "h0", "r0")
        for n in range(5):
            gang = make_workload(f"w{n}", cpus=4, pods=random.randint(1, 3), minute=n)
            gang["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
            world.add(gang)
        await cycles(world, 8)
        before, count, rack = with_quota(world), random.randint(1, 3), random.choice(["r0", "r1"])
        more = [queue("team", cpus=random.randint(8, 200))] if random.random() < 0.7 else []
        answer = await asked(world, addNodes=[{"like": "h0", "count": count, "domain": rack}], objects=more)
        assert not answer["startsNoLonger"]
        for n in range(count):
            put_node(world, f"new{n}", rack)
        apply(world, *more)
        await cycles(world, 8)
        assert named(answer["starts"]) == with_quota(world) - before
    finally:
        await world.close()


async def test_a_drained_empty_domain_changes_nothing() -> None:
    world = Scheduled(*racks())
    world.sync()
    try:
        for name, rack in (("h1", "r1"), ("h2", "r2"), ("h3", "r3")):
            put_node(world, name, rack)
        put_on(world, "a", "h1")
        world.add(make_workload("b", cpus=200, minute=1))
        await cycles(world, 3)
        answer = await asked(world, drains=["r3"])
        assert answer["counts"] == {"starts": 0, "startsNoLonger": 0, "neverStarts": 0, "evicted": 0}
        (one,) = answer["queues"]
        (column,) = one["resources"]
        assert column["usedWith"] == column["usedWithout"]
    finally:
        await world.close()


async def test_a_new_queue_shares_its_cohort() -> None:
    """The answer has quota, use and share of the queue that does not exist; other settings may name it."""
    world = Scheduled(
        (CLUSTER_QUEUES, make_cluster_queue("team", cpus=4, cohortName="all")), (LOCAL_QUEUES, make_local_queue())
    )
    world.sync()
    try:
        world.add(make_workload("a", cpus=10), make_workload("b", queue="new", cpus=6, minute=1))
        await cycles(world)
        proposed = [queue("new", cpus=4, cohortName="all"), local("new", "new")]
        answer = await asked(world, objects=proposed, quotas=[quota(12, "new")])
        assert named(answer["starts"]) == {"a", "b"}
        of = {one["clusterQueue"]: one for one in answer["queues"]}
        (column,) = of["new"]["resources"]
        assert (column["nominal"], column["nominalAfter"], column["usedWith"]) == ("0", "12", "6")
        assert of["team"]["shareWith"] > of["team"]["shareWithout"] == 0
    finally:
        await world.close()


async def test_a_flavor_gets_the_domains_of_its_levels() -> None:
    """A ClusterQueue that names a flavor which does not exist admits nothing; with the flavor, a gang starts in a
    rack, as far as the hosts are free.
    """
    objects = racks()
    world = Scheduled(*objects)
    world.sync()
    try:
        for name, rack in (("h1", "r1"), ("h2", "r1"), ("h3", "r2")):
            put_node(world, name, rack)
        put_on(world, "a", "h1")
        apply(world, queue("late", cpus={"other": 50}), local("late", "late"))
        for name, pods in (("gang", 2), ("pair", 1)):
            gang = make_workload(name, queue="late", cpus=4, pods=pods)
            gang["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
            world.add(gang)
        flavor = manifest("ResourceFlavor", make_flavor("other", topologyName="dc", nodeLabels={"rack": "r1"}))
        answer = await asked(world, objects=[flavor])
        apply(world, flavor)
        await cycles(world)
        assert named(answer["starts"]) == with_quota(world) - {"a"} == {"pair"}
    finally:
        await world.close()


async def test_a_queue_that_drains_evicts_its_workloads() -> None:
    world = Scheduled()
    world.sync()
    try:
        world.add(make_workload("a", cpus=4, status=reserved(cpus=4)), make_workload("b", cpus=2, minute=1))
        answer = await asked(world, objects=[queue("team", stopPolicy="HoldAndDrain")])
        assert [(one["name"], one["reason"]) for one in answer["evicted"]] == [("a", "Stopped")]
        assert named(answer["startsNoLonger"]) == {"b"}
    finally:
        await world.close()


async def test_a_queue_that_is_stopped_has_its_quota() -> None:
    """Other changes may name it, and nothing starts in it."""
    world = Scheduled()
    world.sync()
    try:
        stopped = [queue("new", cpus=4, stopPolicy="Hold"), local("new", "new")]
        world.add(make_workload("a", queue="new"))
        answer = await asked(world, objects=stopped, quotas=[quota(12, "new")])
        assert answer["counts"] == {"starts": 0, "startsNoLonger": 0, "neverStarts": 0, "evicted": 0}
    finally:
        await world.close()


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        pytest.param(
            [{"kind": "Job", "apiVersion": "batch/v1"}], "kinds of .* that can: ClusterQueue, Cohort", id="kind"
        ),
        pytest.param([{**queue("q"), "apiVersion": "kueue.x-k8s.io/v1alpha1"}], "v1alpha1 cannot be", id="version"),
        pytest.param([{}], "an object without kind", id="empty"),
        pytest.param([queue("q"), queue("q")], "ClusterQueue q is there twice", id="twice"),
        pytest.param([queue("Q_")], "metadata.name", id="name"),
        pytest.param([queue("q", queueingStrategy="Lifo")], "queueingStrategy", id="schema"),
        pytest.param([queue("q", cpus=-1)], "nominalQuota", id="rule"),
        pytest.param(
            [{**queue("q"), "metadata": {"name": "q", "namespace": "ns"}}], "must be left out", id="namespace"
        ),
        pytest.param([local("main", "other")], "spec.clusterQueue: cannot be changed from team", id="moved"),
        pytest.param([{**local("l", "team"), "metadata": {"name": "l"}}], "metadata.namespace: must be", id="nowhere"),
        pytest.param([queue(f"q{n}") for n in range(65)], "65 changes", id="many"),
        pytest.param([{**queue("q"), "spec": 3}], "spec", id="nonsense"),
    ],
)
async def test_a_wrong_object_is_refused_as_at_its_creation(objects: list[JSON], words: str) -> None:
    world = Scheduled()
    world.sync()
    try:
        with pytest.raises(ConfigError, match=words):
            await asked(world, objects=objects)
    finally:
        await world.close()
