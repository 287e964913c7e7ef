"""The answer to another cluster's question: what a cycle would decide about a workload that does not exist here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import placement as api
from kqueue.controllers.blockers import Blockers
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES
from kqueue.errors import ConfigError
from kqueue.jobs.multikueue.answers import Start, read_answer
from kqueue.visibility.placements import PlacementView
from kqueue.visibility.prospects import Prospects
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.sources import Freshness
from kqueue.visibility.workload_state import Hindrance
from tests.unit.controllers.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    reserved,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.visibility.worlds import known_of, planning_of

HOST = "kubernetes.io/hostname"
WITHIN = {"withinClusterQueue": "LowerPriority"}


def with_queue(**spec: Any) -> list[Any]:
    return [(CLUSTER_QUEUES, make_cluster_queue(**spec)), (LOCAL_QUEUES, make_local_queue())]


class Asked:
    """A cluster with ten cpus of quota, and a manager that asks about workloads."""

    def __init__(self, *objects: Any) -> None:
        self.world = world = Scheduled(*objects)
        world.sync()
        self.readable = {"ns"}
        blockers = Blockers(local_queues=world.local_queues, cache=world.cache, namespace_labels=world.namespaces.get)

        def held_back(obj: wire.Workload) -> Iterator[Hindrance]:
            return (Hindrance(blocked.reason, blocked.message, blocked.command) for blocked in blockers.all(obj))

        self.placements = PlacementView(
            Prospects(
                known=known_of(world),
                planning=planning_of(world),
                held_back=held_back,
                pending=world.cache.requests.pending,
                clock=world.clock,
                freshness=Freshness(leads=lambda: True),
            )
        )

    async def ask(self, body: Any = None, **spec: Any) -> JSON:
        """The answer about a workload of this spec, or to this body."""

        async def reads(namespace: str) -> bool:
            return namespace in self.readable

        sent = {"spec": make_workload(**spec)["spec"]} if body is None else body
        raw = sent if isinstance(sent, bytes) else msgspec.json.encode(sent)
        asked = AuthorizedQuestion(namespace="ns", name="", params={}, body=raw, reads=reads)
        plain: JSON = msgspec.json.decode(msgspec.json.encode(await self.placements.view(asked)))
        return plain


@pytest.fixture
async def asked(request: pytest.FixtureRequest) -> AsyncIterator[Asked]:
    """A world of the objects that a test names as its parameter."""
    found = Asked(*getattr(request, "param", ()))
    yield found
    await found.world.close()


def only(answer: JSON, *names: str) -> list[Any]:
    return [answer.get(name) for name in names]


async def test_one_that_fits_starts_now_and_its_room_is_counted(asked: Asked) -> None:
    """Three of three cpus fit besides each other in ten; nothing is reserved by the question."""
    for _ in range(2):
        answer = await asked.ask(cpus=3)
        assert only(answer, "kind", "start", "room", "borrows", "waitingAhead") == ["Placement", "Now", 3, False, 0]
        assert "podsLeft" not in answer
    assert (await asked.ask(cpus=10))["room"] == 1
    assert (await asked.ask(cpus="1m"))["room"] == 16  # it is counted no further
    assert await asked.world.cycle() is False
    assert asked.world.cache.audits.audit() == []


async def test_one_that_does_not_fit_waits_for_an_unknown_time(asked: Asked) -> None:
    asked.world.add(make_workload("b", status=reserved(cpus=6)))
    answer = await asked.ask(cpus=5)
    assert only(answer, "start", "at", "room") == ["Later", None, None]
    assert "5 cpu of flavor default asked" in answer["message"]


async def test_one_that_is_too_large_never_starts(asked: Asked) -> None:
    answer = await asked.ask(cpus=11)
    assert only(answer, "start", "waitingAhead") == ["Never", 0]
    assert answer["message"]


@pytest.mark.parametrize("asked", [with_queue(preemption=WITHIN)], indirect=True)
async def test_it_says_with_whose_preemption(asked: Asked) -> None:
    """Workloads of namespaces that the manager may not read have no name."""
    asked.world.add(make_workload("b", priority=-1, status=reserved(cpus=6)))
    answer = await asked.ask(cpus=5, priority=3)
    hidden = (await asked.ask(cpus=5, priority=-1))["start"]
    asked.readable = set()
    assert only(answer, "start", "preempts") == ["AfterPreemption", 1]
    assert [one["name"] for one in answer["preempted"]] == ["b"]
    assert hidden == "Later"


async def test_workloads_before_it_are_counted(asked: Asked) -> None:
    """Those of higher priority, and older ones of the same, are tried first."""
    asked.world.add(make_workload("high", priority=9, cpus=20), make_workload("low", priority=-9, cpus=20))
    assert only(await asked.ask(cpus=1), "start", "waitingAhead") == ["Now", 1]


@pytest.mark.parametrize("asked", [with_queue(queueingStrategy="StrictFIFO")], indirect=True)
async def test_a_strict_queue_starts_nothing_behind_its_first(asked: Asked) -> None:
    asked.world.add(make_workload("first", priority=9, cpus=20))
    answer = await asked.ask(cpus=1)
    assert answer["start"] == "Later"
    assert "StrictFIFO" in answer["message"]


@pytest.mark.parametrize(
    ("asked", "queue", "words"),
    [
        (with_queue(), "other", "other"),
        (with_queue(stopPolicy="Hold"), "main", "stopped"),
        ([(LOCAL_QUEUES, make_local_queue(stopPolicy="Hold"))], "main", "stopped"),
    ],
    indirect=["asked"],
)
async def test_a_queue_that_takes_nothing_says_so(asked: Asked, queue: str, words: str) -> None:
    answer = await asked.ask(queue=queue)
    assert answer["start"] == "Later"
    assert words in answer["message"]


def racks() -> list[Any]:
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": HOST}]
    return [
        (TOPOLOGIES, {"metadata": {"name": "dc"}, "spec": {"levels": levels}}),
        (RESOURCE_FLAVORS, make_flavor(topologyName="dc")),
        *with_queue(cpus=100),
    ]


def put_node(world: Scheduled, name: str, rack: str, **spec: Any) -> None:
    body = {
        "metadata": {"name": name, "labels": {"rack": rack, HOST: name}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    world.intake.on_node(None, model.node_facts(msgspec.convert(body, wire_core.Node)))


@pytest.mark.parametrize("asked", [racks()], indirect=True)
async def test_domains_are_counted_at_the_level_of_the_gang(asked: Asked) -> None:
    """Four pods of a node each need two racks of two nodes; a required rack has no room for them."""
    for name, rack in (("h1", "r1"), ("h2", "r1"), ("h3", "r2"), ("h4", "r2")):
        put_node(asked.world, name, rack)

    def gang(pods: int, **wish: Any) -> JSON:
        spec = make_workload(cpus=4, pods=pods)["spec"]
        spec["podSets"][0]["topologyRequest"] = wish
        return {"spec": spec}

    one = await asked.ask(gang(2, required="rack"))
    two = await asked.ask(gang(4, preferred="rack"))
    none = await asked.ask(gang(4, required="rack"))
    fields = ("start", "level", "domains", "fewestDomains", "podsLeft", "room")
    assert only(one, *fields) == ["Now", "rack", 1, 1, 0, 2]
    assert only(two, *fields) == ["Now", "rack", 2, 2, 0, 1]
    assert none["start"] == "Never"
    assert read_answer(one, asked.world.clock.now()).start is Start.NOW


@pytest.mark.parametrize("asked", [racks()], indirect=True)
async def test_pods_that_still_fit_the_domains_of_a_gang_are_counted(asked: Asked) -> None:
    """Of the racks in use, after all pods of the gang; a leader takes room, too, and nothing stays reserved."""
    for name, rack in (("h1", "r1"), ("h2", "r1"), ("h3", "r2")):
        put_node(asked.world, name, rack)
    spec = make_workload(cpus=1, pods=5)["spec"]
    spec["podSets"][0]["topologyRequest"] = {"required": "rack"}
    leader = make_workload(cpus=2)["spec"]["podSets"][0] | {"name": "leader", "topologyRequest": {"required": "rack"}}

    alone = [(await asked.ask({"spec": spec}))["podsLeft"] for _ in range(2)]
    spec["podSets"].append(leader)
    for each in spec["podSets"]:
        each["topologyRequest"]["podSetGroupName"] = "all"
    led = await asked.ask({"spec": spec})

    assert (alone, led["podsLeft"]) == ([3, 3], 1)
    assert read_answer(led, asked.world.clock.now()).left == 1


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff{", id="no text"),
        pytest.param(b"[" * 10_000, id="deep"),
        pytest.param({}, id="no spec"),
        pytest.param({"spec": {"podSets": []}}, id="no pods"),
        pytest.param({"spec": {"podSets": [make_workload()["spec"]["podSets"][0]] * 2}}, id="two of a name"),
        pytest.param({"spec": make_workload(pods=-1)["spec"]}, id="fewer than no pods"),
        pytest.param({"spec": make_workload(pods=2**40)["spec"]}, id="more than there can be"),
        pytest.param({"metadata": {"namespace": "b"}, "spec": make_workload()["spec"]}, id="another namespace"),
    ],
)
async def test_a_question_that_cannot_be_read_is_refused(asked: Asked, body: Any) -> None:
    with pytest.raises(ConfigError):
        await asked.ask(body)


async def test_the_question_that_a_manager_sends_is_read_as_the_workload(asked: Asked) -> None:
    """What the manager's Workload has after its way through both ends is what planning reads."""
    obj = msgspec.convert(make_workload(cpus=3, pods=2, priority=4), wire.Workload)
    sent = msgspec.json.encode(api.PlacementQuestion(spec=obj.spec))
    assert msgspec.json.decode(sent, type=api.PlacementQuestion).spec == obj.spec
    assert (await asked.ask(sent))["room"] == 1
