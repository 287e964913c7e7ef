"""Messages to the process that plans: what has changed since the last round, and everything anew after a loss."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import pytest

from kqueue.core.joint.answer import answer_of
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.topology import Tree
from kqueue.scheduling.joint import frames
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import (
    AdmittedPart,
    FlavorCapacity,
    ForgetFlavor,
    FreeLeaves,
    HeadsPart,
    Leaves,
    Resync,
    Sent,
    TreeBegins,
    TreeEdit,
    pieces,
)
from kqueue.scheduling.joint.process import PlanningProcess, RoundFailedError
from tests.unit.core.joint.changing import Cluster


def cluster_of(seed: int = 1, events: int = 80) -> Cluster:
    """A cluster in which much has happened."""
    cluster = Cluster(seed)
    for _ in range(events):
        cluster.event()
    cluster.node_added()
    cluster.pushed()
    return cluster


def messages(given: RoundInput, sent: Sent) -> list[object]:
    """The messages of a round, all but the last one."""
    return [pickle.loads(data) for data in pieces(1, given, sent)][:-1]


def test_a_round_in_which_nothing_has_changed_has_one_message() -> None:
    cluster, sent = cluster_of(), Sent()
    assert messages(cluster.followed(), sent)
    assert messages(cluster.followed(), sent) == []


@pytest.mark.mechanism("2.20")
def test_many_changes_of_one_workload_are_sent_once() -> None:
    cluster, sent = cluster_of(), Sent()
    messages(cluster.followed(), sent)
    name = min(cluster.waiting)
    for priority in range(5):
        cluster.waiting[name] = replace(cluster.waiting[name], priority=priority)
    (part,) = messages(cluster.followed(), sent)
    assert part == HeadsPart(heads=(cluster.waiting[name],), gone=())


def test_a_workload_that_is_gone_is_named() -> None:
    cluster, sent = cluster_of(), Sent()
    messages(cluster.followed(), sent)
    name = min(cluster.waiting)
    del cluster.waiting[name]
    assert messages(cluster.followed(), sent) == [HeadsPart(heads=(), gone=(name,))]


def test_an_admission_is_sent_as_its_host_and_its_workload() -> None:
    cluster, sent = cluster_of(), Sent()
    messages(cluster.followed(), sent)
    before = set(cluster.running)
    while set(cluster.running) == before:
        cluster.admitted()
    free, admitted, heads = messages(cluster.followed(), sent)
    (name,) = set(cluster.running) - before
    _, one = cluster.running[name]
    assert isinstance(admitted, AdmittedPart)
    assert list(admitted.workloads) == [one.key]
    assert heads == HeadsPart(heads=(), gone=(name,))
    assert isinstance(free, FreeLeaves | FlavorCapacity)
    if isinstance(free, FreeLeaves):
        assert len(free.leaves) == 1


def test_of_a_changed_topology_only_the_changed_leaves_are_sent() -> None:
    """A node of a flavor that has eight or more; what the process has then is what it would get anew."""
    cluster, sent, assembly = cluster_of(), Sent(), Assembly()
    after(assembly, list(pieces(1, cluster.followed(), sent)))
    cluster.relabelled()
    changes = list(pieces(2, cluster.followed(), sent))
    (edit,) = [one for one in map(pickle.loads, changes) if isinstance(one, TreeEdit)]
    assert (len(edit.removed), len(edit.added)) == (1, 1)
    assert not any(isinstance(pickle.loads(data), Leaves) for data in changes)
    asked, anew = after(assembly, changes), after(Assembly(), list(pieces(2, cluster.followed(), Sent())))
    assert not isinstance(asked, Resync)
    assert not isinstance(anew, Resync)
    for flavor, view in anew[1].state.snapshot.topologies.items():
        there = asked[1].state.snapshot.topologies[flavor]
        assert there.tree.leaves == view.tree.leaves
        assert there.tree.paths == view.tree.paths
        assert there.tree.flaw(range(len(there.tree))) is None
        assert there.capacity.tables()[0] == view.capacity.tables()[0]
        assert (there.capacity.tables()[1] == view.capacity.tables()[1]).all()


def test_a_topology_of_which_too_much_has_changed_is_sent_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, sent = cluster_of(), Sent()
    messages(cluster.followed(), sent)
    cluster.relabelled()
    monkeypatch.setattr(frames, "_LEAVES", 0)
    kinds = {type(message) for message in messages(cluster.followed(), sent)}
    assert TreeEdit not in kinds
    assert {TreeBegins, FlavorCapacity} <= kinds


def test_another_topology_is_sent_whole() -> None:
    cluster, sent = cluster_of(), Sent()
    messages(cluster.followed(), sent)
    place = cluster.places["gpu"]
    place.tree = Tree(topology="another", levels=place.tree.levels, leaves=list(place.tree.leaves))
    place.capacity = place.made(place.tree, [])
    kinds = {type(message) for message in messages(cluster.followed(), sent)}
    assert TreeEdit not in kinds
    assert {TreeBegins, Leaves, FlavorCapacity} <= kinds


def test_a_flavor_without_domains_is_forgotten() -> None:
    cluster, sent = cluster_of(), Sent()
    messages(cluster.followed(), sent)
    del cluster.places["other"]
    assert ForgetFlavor(flavor="other") in messages(cluster.followed(), sent)


@pytest.mark.mechanism("2.29")
@pytest.mark.parametrize("seed", range(3))
def test_a_message_that_is_lost_is_noticed(seed: int) -> None:
    """J4.12: whichever it is, of a first round or of a later one."""
    cluster, seen = cluster_of(seed), 0
    for _ in range(4):
        first, wanted = cluster.followed(), answers(cluster.followed())
        whole = list(pieces(1, first, Sent()))
        for lost in range(len(whole) - 1):
            asked = after(Assembly(), [data for number, data in enumerate(whole) if number != lost])
            assert isinstance(asked, Resync)
        assembly, sent = Assembly(), Sent()
        after(assembly, list(pieces(1, cluster.followed(), sent)))
        for _ in range(6):
            cluster.event()
        changes = list(pieces(2, cluster.followed(), sent))
        if len(changes) > 1:
            seen += 1
            assert isinstance(after(assembly, changes[1:]), Resync)
        asked = after(Assembly(), list(pieces(3, first, Sent())))
        assert not isinstance(asked, Resync)
        assert answers(asked[1]) == wanted
    assert seen


def after(assembly: Assembly, some: list[bytes]) -> tuple[int, RoundInput] | Resync:
    """What the last message asks for."""
    (asked,) = [found for data in some if (found := assembly.take(data)) is not None]
    if isinstance(asked, Resync):
        return asked
    assert isinstance(asked[1], RoundInput), "a round was sent"
    return asked[0], asked[1]


def answers(given: RoundInput) -> str:
    """The plan as the manager gets it."""
    return repr(answer_of(2, plan_round(replace(given, solver=None)), {}))


class Forgetful(PlanningProcess):
    """Loses so many messages with workloads of the batch."""

    def __init__(self, loses: int) -> None:
        super().__init__()
        self.loses = loses

    async def _send(self, process: asyncio.subprocess.Process, data: bytes) -> None:
        if self.loses and isinstance(pickle.loads(data), HeadsPart):
            self.loses -= 1
            return
        await super()._send(process, data)


@pytest.mark.mechanism("2.29")
async def test_a_process_that_has_lost_a_message_gets_everything_anew() -> None:
    """J4.12: in the same round, by the same process."""
    given, planner = cluster_of().followed(), Forgetful(loses=1)
    async with asyncio.timeout(120):
        await planner.get_ready()
        answer = await planner.plan(2, given)
        again = await planner.plan(2, given)
        await planner.stop()
    assert (planner.starts, planner.resyncs) == (1, 1)
    assert repr(replace(answer, seconds={})) == repr(replace(again, seconds={}))
    assert answer.units == plan_round(given).units


async def test_a_process_that_loses_messages_again_has_failed() -> None:
    given, planner = cluster_of().followed(), Forgetful(loses=2)
    async with asyncio.timeout(120):
        await planner.get_ready()
        with pytest.raises(RoundFailedError):
            await planner.plan(2, given)
        assert planner._process is None
