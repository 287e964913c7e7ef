"""What a simulation says is what becomes of the workloads when they are created and nothing else changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.api.wire import simulation as api
from kqueue.controllers.blockers import Blockers
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS
from kqueue.errors import ConfigError, ForbiddenError
from kqueue.jobs.drafts import DraftWorkload
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.simulation import Creatable, Drafts, SimulationView
from kqueue.visibility.sources import Freshness
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
from tests.unit.visibility.worlds import known_of, planning_of

SEEDS = range(60)
ANY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


class AsWorkloads:
    """The drafter of manifests that are Workloads."""

    def kinds_of(self, manifests: Sequence[Mapping[str, Any]]) -> Sequence[Creatable]:
        return [Creatable("kueue.x-k8s.io", "v1beta2", "workloads")]

    async def drafts(self, asked: AuthorizedQuestion, spec: api.SimulationSpec) -> Drafts:
        return Drafts(workloads=[DraftWorkload(source=m["metadata"]["name"], workload=m) for m in spec.manifests])


def prospects_of(world: Scheduled) -> Prospects:
    blockers = Blockers(local_queues=world.local_queues, cache=world.cache, namespace_labels=world.namespaces.get)

    def held_back(obj: wire.Workload) -> Iterator[Hindrance]:
        return (Hindrance(blocked.reason, blocked.message, blocked.command) for blocked in blockers.all(obj))

    return Prospects(
        known=known_of(world),
        planning=planning_of(world),
        held_back=held_back,
        pending=world.cache.requests.pending,
        clock=world.clock,
        freshness=Freshness(leads=lambda: True),
    )


def view_of(world: Scheduled, **more: Any) -> SimulationView:
    return SimulationView(prospects_of(world), AsWorkloads(), **more)


async def simulated(view: SimulationView, *workloads: JSON, **spec: Any) -> JSON:
    async def allowed(*_: str) -> bool:
        return True

    body = msgspec.json.encode({"spec": {"manifests": workloads, **spec}})
    asked = AuthorizedQuestion(namespace="ns", name="", params={}, body=body, reads=allowed, creates=allowed)
    plain: JSON = msgspec.json.decode(msgspec.json.encode(await view.view(asked)))
    return plain


def drawn_world(random: Random) -> Scheduled:
    """Two ClusterQueues of one cohort on six nodes of three racks, with workloads that hold a part of their quota."""
    objects = [*racks()[:2], (RESOURCE_FLAVORS, make_flavor(topologyName="dc"))] if random.random() < 0.5 else []
    for name, local in (("team", "main"), ("rest", "rest")):
        preemption = ANY if random.random() < 0.5 else {}
        queue = make_cluster_queue(name, cpus=random.randint(6, 14), cohortName="all", preemption=preemption)
        objects += [(CLUSTER_QUEUES, queue), (LOCAL_QUEUES, make_local_queue(local, cluster_queue=name))]
    world = Scheduled(*objects)
    world.sync()
    if len(objects) > 4:
        for host in range(6):
            put_node(world, f"h{host}", f"r{host % 3}")
    for number in range(random.randint(0, 9)):
        holder, cpus = random.choice(["team", "rest"]), random.randint(1, 4)
        local = "main" if holder == "team" else "rest"
        status = reserved(cpus=cpus, queue=holder)
        world.add(
            make_workload(f"runs-{number}", queue=local, cpus=cpus, priority=random.randint(-3, 0), status=status)
        )
    return world


def drawn_workload(random: Random, name: str, local: str, minute: int) -> JSON:
    pods = random.randint(1, 4)
    made = make_workload(
        name, queue=local, pods=pods, cpus=random.randint(1, 4), priority=random.randint(-1, 2), minute=minute
    )
    if random.random() < 0.5:
        wish = random.choice([{"required": "rack"}, {"preferred": "rack"}, {"unconstrained": True}])
        made["spec"]["podSets"][0]["topologyRequest"] = wish
    return made


async def created(world: Scheduled, *workloads: JSON) -> tuple[dict[str, str], set[str]]:
    """The start of each workload after it was created, as a simulation names it, and the workloads that were evicted."""
    before = {w.metadata.name for w in world.workloads.values()}
    world.add(*workloads)
    for _ in range(3 + len(workloads)):
        await world.cycle()
        world.sync()
    found: dict[str, str] = {}
    for each in workloads:
        name = each["metadata"]["name"]
        is_reserved = status_of(world.workload(name), "QuotaReserved")[0] == "True"
        found[name] = "Now" if is_reserved else "Later"
    evicted = {name for name in before if status_of(world.workload(name), "Evicted")[0] == "True"}
    return found, evicted


@pytest.mark.parametrize("seed", SEEDS)
async def test_one_workload_becomes_what_was_said(seed: int) -> None:
    """Of two queues, with and without topology, borrowing and preemption."""
    random = Random(seed)
    world = drawn_world(random)
    try:
        workload = drawn_workload(random, "new", random.choice(["main", "rest"]), 30)
        answer = await simulated(view_of(world), workload)
        (run,) = answer["workloads"][0]["results"]
        found, evicted = await created(world, workload)
        assert (run["start"] == "Now") == (found["new"] == "Now"), run
        assert {one["name"] for one in run.get("preempted", [])} == evicted
    finally:
        await world.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_several_workloads_of_a_queue_become_what_was_said(seed: int) -> None:
    """Without preemption, so that no quota is given back while the others are decided."""
    random = Random(1_000 + seed)
    world = drawn_world(random)
    try:
        local = random.choice(["main", "rest"])
        many = [drawn_workload(random, f"new-{n}", local, 30 + n) for n in range(random.randint(2, 5))]
        answer = await simulated(view_of(world), *many)
        said = {one["object"]: one["results"][0]["start"] for one in answer["workloads"]}
        if "AfterPreemption" in said.values():
            return
        found, evicted = await created(world, *many)
        assert {name: start if start == "Now" else "Later" for name, start in said.items()} == found
        assert not evicted
    finally:
        await world.close()


@pytest.mark.parametrize("seed", range(20))
async def test_a_suggested_change_is_enough(seed: int) -> None:
    """Fewer pods: the workload with as many starts."""
    random = Random(2_000 + seed)
    world = drawn_world(random)
    try:
        workload = drawn_workload(random, "new", "main", 30)
        workload["spec"]["podSets"][0]["count"] = random.randint(4, 9)
        answer = await simulated(view_of(world), workload)
        (run,) = answer["workloads"][0]["results"]
        fewer = [c["change"] for c in run.get("wouldStartIf", []) if c["change"]["kind"] == "FewerPods"]
        if fewer:
            workload["spec"]["podSets"][0]["count"] = fewer[0]["count"]
            assert (await created(world, workload))[0] == {"new": "Now"}
    finally:
        await world.close()


async def test_a_question_that_takes_too_long_says_how_far_it_came() -> None:
    """The planner's time is a limit of each question; the rest is not planned."""
    world = Scheduled()
    world.sync()
    try:
        answer = await simulated(view_of(world, plan_seconds=0), make_workload(), copies=3)
        assert answer["workloads"][0]["results"] == [
            {"start": "NotPlanned", "copies": 3, "message": "the planner's time was used up before"}
        ]
        assert (answer["finished"], answer["startsNow"]) == (False, False)
        assert answer["message"] == "not finished: 0 of 3 workloads were planned in time"
    finally:
        await world.close()


async def test_start_times_are_those_of_the_manager() -> None:
    """The manager is asked about all copies where one waits, and the answer has the first one that does."""
    world = Scheduled()
    world.sync()
    asked: list[str] = []

    async def times(_: AuthorizedQuestion, copies: Sequence[tuple[Any, Any]]) -> Mapping[str, JSON]:
        asked.extend(head.key for _, head in copies)
        return {head.uid: {"p50": head.key} for _, head in copies}

    try:
        view = view_of(world, start_times=times)
        world.add(make_workload("b", status=reserved(cpus=6)))
        answer = await simulated(view, make_workload(cpus=3), make_workload("other", cpus=3))
        assert answer["workloads"][1]["results"][0]["startTime"] == {"p50": "ns/#0001"}
        assert asked == ["ns/#0000", "ns/#0001"]
        asked.clear()
        answer = await simulated(view, make_workload(cpus=1), copies=9)
        now, later = answer["workloads"][0]["results"]
        assert (now["start"], later["start"], "startTime" in now) == ("Now", "Later", False)
        assert later["startTime"] == {"p50": f"ns/#0000/{now['copies']}"}
        assert len(asked) == 9
        asked.clear()
        await simulated(view, make_workload(cpus=1))
        assert asked == []
    finally:
        await world.close()


async def test_questions_are_answered_one_after_the_other() -> None:
    """Of different users; each answer is complete."""
    world = Scheduled()
    world.sync()
    try:
        view = view_of(world)

        async def ask(user: str) -> JSON:
            async def allowed(*_: str) -> bool:
                return True

            body = msgspec.json.encode({"spec": {"manifests": [make_workload()]}})
            asked = AuthorizedQuestion(
                namespace="ns", name="", params={}, body=body, reads=allowed, creates=allowed, user=user
            )
            return await view.view(asked)

        answers = await asyncio.gather(*(ask(user) for user in ("ann", "bob", "cid")))
        assert [answer["startsNow"] for answer in answers] == [True] * 3
    finally:
        await world.close()


def with_pods(count: int, *, pod_sets: int = 1) -> JSON:
    """A Workload with these pods in each of its pod sets."""
    made = make_workload("many", pods=count)
    (one,) = made["spec"]["podSets"]
    made["spec"]["podSets"] = [{**one, "name": f"set-{n}"} for n in range(pod_sets)]
    return made


@pytest.mark.parametrize(
    ("manifests", "spec", "words"),
    [
        pytest.param([with_pods(api.MOST_PODS + 1)], {}, f"a question may have {api.MOST_PODS}", id="pods"),
        pytest.param([with_pods(2_000)], {"copies": 600}, f"a question may have {api.MOST_PODS}", id="pods-of-copies"),
        pytest.param([with_pods(1)] * 2, {"copies": 501}, f"a question may have {api.MOST_WORKLOADS}", id="workloads"),
        pytest.param([with_pods(1, pod_sets=1_000)], {}, "has 1000 pod sets; a workload has 1 to 18", id="pod-sets"),
        pytest.param([with_pods(1)] * 65, {}, "65 objects; 1 to 64", id="manifests"),
        pytest.param([with_pods(1)], {"copies": 10**9}, "spec.copies is 1000000000", id="copies"),
    ],
)
async def test_what_costs_much_is_refused_by_a_public_bound(
    monkeypatch: pytest.MonkeyPatch, manifests: list[JSON], spec: JSON, words: str
) -> None:
    """Before anything of the cluster is read: neither the refusal nor its time says anything about other tenants."""
    world = Scheduled()
    world.sync()
    try:
        for place in (world.cache, world.queues):
            for read in ("snapshot", "waiting"):
                monkeypatch.setattr(place, read, _not_read, raising=False)
        with pytest.raises(ConfigError, match=words):
            await simulated(view_of(world), *manifests, **spec)
    finally:
        monkeypatch.undo()
        await world.close()


def _not_read(*_: Any) -> None:
    raise AssertionError("the cluster was read for a question that is refused")


async def test_a_missing_right_is_told_before_the_cluster_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no(*_: str) -> bool:
        return False

    world = Scheduled()
    world.sync()
    try:
        monkeypatch.setattr(world.cache, "snapshot", _not_read)
        body = msgspec.json.encode({"spec": {"manifests": [with_pods(1)]}})
        asked = AuthorizedQuestion(namespace="ns", name="", params={}, body=body, reads=no, creates=no)
        with pytest.raises(ForbiddenError, match="cannot create workloads"):
            await view_of(world).view(asked)
    finally:
        monkeypatch.undo()
        await world.close()


async def test_a_million_pods_are_one_answer() -> None:
    """The largest question that is read: its cost is that of its hosts, not of its pods."""
    world = Scheduled(*racks())
    world.sync()
    try:
        for host in range(6):
            put_node(world, f"h{host}", f"r{host % 3}")
        gang = with_pods(api.MOST_PODS)
        gang["spec"]["podSets"][0]["topologyRequest"] = {"required": "rack"}
        answer = await simulated(view_of(world), gang)
        assert answer["counts"] == {"Never": 1}
    finally:
        await world.close()
