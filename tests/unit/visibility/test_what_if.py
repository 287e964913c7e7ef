"""What other quotas and nodes would change is what happens in a world that is made with them."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import what_if as api
from kqueue.controllers.blockers import Blockers, LocalQueueSource
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES
from kqueue.errors import ConfigError
from kqueue.jobs.switches import JobFeatures
from kqueue.manager.proposing import PolicyManifestReader
from kqueue.state.quota_cache import QuotaCache
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.what_if import WhatIfView
from kqueue.visibility.what_if_lines import HeldBack
from kqueue.visibility.workload_state import Hindrance
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
from tests.unit.visibility.test_simulation import prospects_of
from tests.unit.visibility.worlds import known_of
from webhooks.routes import routes

HOST = "kubernetes.io/hostname"


def reader_of(world: Scheduled) -> PolicyManifestReader:
    """The reader of manifests, with the webhooks' own handlers."""
    blockers = Blockers(local_queues=world.local_queues, cache=world.cache, namespace_labels=world.namespaces.get)

    def under(local_queues: LocalQueueSource, quota: QuotaCache) -> HeldBack:
        own = blockers.under(local_queues, quota)
        return lambda obj: (Hindrance(one.reason, one.message, one.command) for one in own.all(obj))

    return PolicyManifestReader(routes((), JobFeatures()), known_of(world), under)


async def asked(world: Scheduled, *, readable: bool = True, plan_seconds: float = 60.0, **spec: Any) -> JSON:
    async def reads(_namespace: str) -> bool:
        return readable

    view = WhatIfView(
        prospects_of(world), reader_of(world), has_class=lambda name: name != "nope", plan_seconds=plan_seconds
    )
    body = msgspec.json.encode({"spec": spec})
    found = await view.view(AuthorizedQuestion(namespace="", name="", params={}, body=body, reads=reads))
    plain: JSON = msgspec.json.decode(msgspec.json.encode(found))
    return plain


def named(some: list[JSON]) -> set[str]:
    return {one["name"] for one in some}


def quota(value: int | str, queue: str = "team", **more: str) -> JSON:
    return {"clusterQueue": queue, "column": "default.cpu", "value": str(value), **more}


async def cycles(world: Scheduled, number: int = 8) -> None:
    for _ in range(number):
        await world.cycle()
        world.sync()


def put_on(world: Scheduled, name: str, host: str, *, queue: str = "team", flavor: str = "default") -> None:
    """A workload of four cpus on a host."""
    status = reserved(cpus=4, queue=queue)
    (assigned,) = status["admission"]["podSetAssignments"]
    assigned["topologyAssignment"] = {"levels": [HOST], "slices": [slice_of(host)]}
    assigned["flavors"] = {"cpu": flavor}
    world.add(make_workload(name, queue="main" if queue == "team" else queue, cpus=4, status=status))


def slice_of(host: str) -> JSON:
    return {
        "domainCount": 1,
        "podCounts": {"universal": 1},
        "valuesPerLevel": [{"individual": {"roots": [host]}}],
    }


async def test_more_quota_lets_workloads_start() -> None:
    """And the answer says what each queue would use; the world stays as it is."""
    world = Scheduled()
    world.sync()
    try:
        world.add(
            make_workload("a", cpus=8), make_workload("b", cpus=8, minute=1), make_workload("c", cpus=8, minute=2)
        )
        await cycles(world)
        answer = await asked(world, quotas=[quota(16)])
        assert named(answer["starts"]) == {"b"}
        (used,) = answer["queues"][0]["resources"]
        assert (used["nominal"], used["nominalAfter"]) == ("10", "16")
        assert (used["used"], used["usedWithout"], used["usedWith"]) == ("8", "8", "16")
        assert answer["finished"] is True
        assert status_of(world.workload("b"), "QuotaReserved")[0] == "False"
    finally:
        await world.close()


async def test_a_smaller_quota_keeps_workloads_for_ever() -> None:
    world = Scheduled()
    world.sync()
    try:
        world.add(make_workload("a", cpus=8))
        await cycles(world)
        world.add(make_workload("b", cpus=8, minute=1))
        answer = await asked(world, quotas=[quota(6)])
        assert named(answer["neverStarts"]) == {"b"}
        assert not answer["evicted"]  # less quota alone evicts nothing: others of the cohort reclaim
    finally:
        await world.close()


async def test_a_cohort_reclaims_what_a_queue_loses() -> None:
    """The victim is named with its preemptor, and hidden from readers without the right."""
    reclaims = {"reclaimWithinCohort": "Any"}
    queues = [
        (CLUSTER_QUEUES, make_cluster_queue("team", cpus=10, cohortName="all")),
        (LOCAL_QUEUES, make_local_queue()),
        (CLUSTER_QUEUES, make_cluster_queue("rest", cpus=2, cohortName="all", preemption=reclaims)),
        (LOCAL_QUEUES, make_local_queue("rest", cluster_queue="rest")),
    ]
    world = Scheduled(*queues)
    world.sync()
    try:
        world.add(make_workload("a", cpus=10, status=reserved(cpus=10)), make_workload("b", queue="rest", cpus=6))
        changes = [quota(2), quota(10, "rest")]
        answer = await asked(world, quotas=changes)
        hidden = await asked(world, readable=False, quotas=changes)
        (evicted,) = answer["evicted"]
        assert (evicted["name"], evicted["reason"], evicted["by"]["name"]) == ("a", "Preempted", "b")
        assert "name" not in hidden["evicted"][0]
        assert "name" not in hidden["evicted"][0]["by"]
    finally:
        await world.close()


async def test_a_drained_rack_evicts_its_workloads() -> None:
    """Workloads that fit elsewhere start again at once; the others wait."""
    world = Scheduled(*racks())
    world.sync()
    try:
        for name, rack in (("h1", "r1"), ("h2", "r1"), ("h3", "r2")):
            put_node(world, name, rack)
        put_on(world, "a", "h1")
        put_on(world, "b", "h2")
        answer = await asked(world, drains=["r1"])
        assert named(answer["evicted"]) == {"a", "b"}
        assert sorted(one["again"] for one in answer["evicted"]) == ["Later", "Now"]
        assert {one["reason"] for one in answer["evicted"]} == {"Drained"}
    finally:
        await world.close()


async def test_workloads_on_a_cordoned_host_of_a_drained_rack_leave() -> None:
    """Such a host is in no topology, and its pods run."""
    world = Scheduled(*racks())
    world.sync()
    try:
        put_node(world, "h1", "r1")
        put_node(world, "h2", "r2")
        put_on(world, "a", "h1")
        put_node(world, "h1", "r1", unschedulable=True)
        answer = await asked(world, drains=["r1"])
        assert [(one["name"], one["again"]) for one in answer["evicted"]] == [("a", "Now")]
    finally:
        await world.close()


async def test_a_drained_rack_is_gone_for_flavors_of_other_topologies() -> None:
    """Its hosts are in a topology of racks, and in one of hosts alone, in which no domain has the name of the rack."""
    bare = {"metadata": {"name": "bare"}, "spec": {"levels": [{"nodeLabel": HOST}]}}
    queues = [
        (TOPOLOGIES, bare),
        (RESOURCE_FLAVORS, make_flavor("other", topologyName="bare")),
        (CLUSTER_QUEUES, make_cluster_queue("rest", cpus={"other": 10})),
        (LOCAL_QUEUES, make_local_queue("rest", cluster_queue="rest")),
    ]
    world = Scheduled(*racks(), *queues)
    world.sync()
    try:
        put_node(world, "h1", "r1")
        put_on(world, "a", "h1", queue="rest", flavor="other")
        answer = await asked(world, drains=["r1"])
        assert [(one["name"], one["again"]) for one in answer["evicted"]] == [("a", "Never")]
    finally:
        await world.close()


async def test_a_workload_that_ends_makes_room_and_does_not_wait_again() -> None:
    """Another one starts in its place; who may not read it learns nothing of it."""
    world = Scheduled()
    world.sync()
    try:
        world.add(make_workload("a", cpus=8, status=reserved(cpus=8)), make_workload("b", cpus=8, minute=1))
        answer = await asked(world, ends=["ns/a"])
        assert named(answer["starts"]) == {"b"}
        assert not answer["evicted"]
        (used,) = answer["queues"][0]["resources"]
        assert (used["used"], used["usedWith"]) == ("8", "8")
        for readable, key in ((True, "ns/b"), (True, "ns/none"), (False, "ns/a")):
            with pytest.raises(ConfigError, match=f"no workload '{key}' that you may read has quota"):
                await asked(world, readable=readable, ends=[key])
    finally:
        await world.close()


async def test_a_drained_cluster_never_starts_a_gang() -> None:
    """All nodes go; no copy of the state is left damaged."""
    world = Scheduled(*racks())
    world.sync()
    try:
        put_node(world, "h1", "r1")
        put_on(world, "a", "h1")
        gang = make_workload("gang", cpus=4)
        gang["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
        world.add(gang)
        answer = await asked(world, drains=["r1"])
        assert {"a", "gang"} <= named(answer["neverStarts"])
        assert world.cache.audits.audit() == []
    finally:
        await world.close()


async def test_added_nodes_let_a_gang_start() -> None:
    world = Scheduled(*racks())
    world.sync()
    try:
        put_node(world, "h1", "r1")
        gang = make_workload("gang", cpus=4, pods=3)
        gang["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
        world.add(gang)
        one = await asked(world, addNodes=[{"like": "h1", "count": 1, "domain": "r1"}])
        two = await asked(world, addNodes=[{"like": "h1", "count": 2, "domain": "r1"}])
        assert (named(one["starts"]), named(two["starts"])) == (set(), {"gang"})
    finally:
        await world.close()


async def test_another_priority_changes_the_order() -> None:
    world = Scheduled()
    world.sync()
    try:
        named_class = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "urgent"}
        world.add(
            make_workload("a", cpus=8, minute=0), make_workload("b", cpus=8, minute=1, priorityClassRef=named_class)
        )
        answer = await asked(world, priorities=[{"name": "urgent", "value": 5}])
        assert (named(answer["starts"]), named(answer["startsNoLonger"])) == ({"b"}, {"a"})
    finally:
        await world.close()


@pytest.mark.parametrize("seed", range(40))
async def test_workloads_start_as_in_a_world_with_the_quota(seed: int) -> None:
    """A world from scratch with the other quota admits exactly the workloads that the answer has."""
    random = Random(seed)
    before, after = random.randint(4, 10), random.randint(4, 20)
    waiting = [
        make_workload(f"w{n}", cpus=random.randint(1, 6), priority=random.randint(0, 2), minute=n) for n in range(6)
    ]

    async def run(cpus: int) -> tuple[Scheduled, set[str]]:
        world = Scheduled((CLUSTER_QUEUES, make_cluster_queue(cpus=cpus)), (LOCAL_QUEUES, make_local_queue()))
        world.sync()
        world.add(*waiting)
        answered = await asked(world, quotas=[quota(after)]) if cpus == before else {}
        answers.append(answered)
        await cycles(world)
        return world, {
            w["metadata"]["name"]
            for w in waiting
            if status_of(world.workload(w["metadata"]["name"]), "QuotaReserved")[0] == "True"
        }

    answers: list[JSON] = []
    one, without = await run(before)
    two, with_it = await run(after) if after != before else (one, without)
    try:
        assert named(answers[0]["starts"]) == with_it - without
        assert named(answers[0]["startsNoLonger"]) == without - with_it
    finally:
        for world in {id(one): one, id(two): two}.values():
            await world.close()


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({}, "0 changes", id="nothing"),
        pytest.param({"drains": ["r9"]}, "no topology has the domain 'r9'", id="no-domain"),
        pytest.param({"priorities": [{"name": "nope", "value": 1}]}, "no WorkloadPriorityClass 'nope'", id="no-class"),
        pytest.param({"drains": [""]}, "no topology has the domain ''", id="empty-domain"),
        pytest.param({"drains": ["r1"] * 65}, "65 changes", id="many"),
        pytest.param({"quotas": [quota(1, "none")]}, "no ClusterQueue of this name", id="no-queue"),
        pytest.param({"quotas": [{**quota(1), "column": "a.b"}]}, "it has default.cpu", id="no-column"),
        pytest.param({"quotas": [quota(1, field="x")]}, "must be one of nominalQuota", id="no-field"),
        pytest.param({"quotas": [quota("much")]}, "team.default.cpu", id="no-amount"),
        pytest.param({"quotas": [quota(-1)]}, "is negative", id="negative"),
        pytest.param({"addNodes": [{"like": "h1", "count": 0, "domain": "r1"}]}, "at least 1", id="no-nodes"),
        pytest.param({"addNodes": [{"like": "h1", "count": 10**6, "domain": "r1"}]}, "at most", id="many-nodes"),
        pytest.param({"addNodes": [{"like": "h9", "count": 1, "domain": "r1"}]}, "no topology has node", id="no-node"),
        pytest.param({"addNodes": [{"like": "h1", "count": 1, "domain": "r1/h1"}]}, "as 'r1/h1'", id="a-host"),
        pytest.param({"priorities": 3}, "cannot be read", id="nonsense"),
    ],
)
async def test_a_wrong_question_is_refused_with_the_remedy(spec: JSON, words: str) -> None:
    world = Scheduled(*racks())
    world.sync()
    try:
        put_node(world, "h1", "r1")
        with pytest.raises(ConfigError, match=words):
            await asked(world, **spec)
    finally:
        await world.close()


async def test_a_long_question_says_how_far_it_came() -> None:
    world = Scheduled()
    world.sync()
    try:
        world.add(make_workload("a"), make_workload("b", cpus=2))
        answer = await asked(world, plan_seconds=0, quotas=[quota(1)])
        assert answer["finished"] is False
        assert "0 of 2 waiting workloads without the change" in answer["message"]
    finally:
        await world.close()


async def test_a_cluster_that_is_too_wide_is_refused_with_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MOST_QUEUES", 1)
    objects = [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": {}}]
    world = Scheduled()
    world.sync()
    try:
        with pytest.raises(ConfigError, match="there are 2 ClusterQueues; a what-if is answered for up to 1"):
            await asked(world, objects=objects)
    finally:
        await world.close()
