"""The members of a gang are handled one after the other, in a ClusterQueue with profile back-to-back."""

from __future__ import annotations

from itertools import groupby

import pytest

from kqueue.api import names
from kqueue.sandbox.api import PODS, Object
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange
from tests.sim import gang_invariants, invariants
from tests.sim.gangs import LABELS, create, is_gated, running
from tests.sim.kinds import base_of, gang_of, gang_of_workload
from tests.sim.objects import CLUSTER_QUEUES
from tests.sim.reading import holders
from tests.sim.test_gangs import AT_REST, cordon, watched
from tests.sim.world import World, simulated

GANGS, SIZE = ("a", "b", "c"), 5


class Releases:
    """The gangs of the pods whose admission gate was removed, in order."""

    def __init__(self, world: World) -> None:
        self.gangs: list[str] = []
        world.api.listen(self._take)

    def _take(self, kind: ServedKind, change: StoreChange) -> None:
        if kind.resource.plural != "pods" or change.old is None or change.record is None:
            return
        if is_gated(change.old.obj) and not is_gated(change.record.obj):
            self.gangs.append(gang_of(change.record.obj))


async def choose_profile(world: World, name: str, queue: str = "plain") -> None:
    await world.api.patch(CLUSTER_QUEUES, queue, {"metadata": {"annotations": {names.PROFILE_ANNOTATION: name}}})


async def stop_queue(world: World, *, until: bool = False) -> None:
    await world.api.patch(CLUSTER_QUEUES, "plain", {"spec": {"stopPolicy": "None" if until else "Hold"}})


async def gather(world: World, quorum: int) -> None:
    """Members of three gangs are created in turn, one in each second, while their ClusterQueue is stopped."""
    await stop_queue(world)
    for number in range(SIZE):
        for gang in GANGS:
            await create(world, f"{gang}-{number}", gang, quorum=quorum)
            await world.pass_time(1)


def reservations(world: World) -> list[str]:
    """The gangs of the Workloads that were admitted, in order; of bases and of extras alike."""
    bases = {each.workload["metadata"]["name"]: gang_of_workload(each.workload) for each in world.history.admissions}
    return [_gang(each.workload, bases) for each in world.history.admissions]


def _gang(workload: Object, bases: dict[str, str]) -> str:
    return gang_of_workload(workload) or bases[base_of(workload)]


def runs(gangs: list[str]) -> list[tuple[str, int]]:
    """The gangs of the runs, each with its length."""
    return [(gang, len(list(run))) for gang, run in groupby(gangs)]


@pytest.mark.mechanism("0.9")
@pytest.mark.parametrize(("quorum", "own"), [(5, 1), (3, 3)])
async def test_the_reservations_of_a_gang_are_one_run(quorum: int, own: int) -> None:
    """Row 0.9: of three gangs of five; members beyond the quorum reserve right behind it, each for itself."""
    async with watched() as world:
        await choose_profile(world, "back-to-back")
        await gather(world, quorum)
        releases = Releases(world)
        await stop_queue(world, until=True)
        await world.pass_time(30)
        found, released = runs(reservations(world)), runs(releases.gangs)
        assert [len(running(world, gang)) for gang in GANGS] == [SIZE] * 3

    assert found == [(gang, own) for gang in GANGS]
    if quorum == SIZE:
        assert released == [(gang, SIZE) for gang in GANGS]


async def test_in_the_default_profile_extras_come_after_the_start() -> None:
    """G3.22: other gangs are admitted before the quorum has started."""
    async with watched() as world:
        await gather(world, quorum=3)
        await stop_queue(world, until=True)
        await world.pass_time(30)
        found = reservations(world)

    assert found[:3] == list(GANGS)


async def test_members_without_workloads_hold_others_for_five_seconds() -> None:
    """G3.69: the marks of the first gang's extras take longer; the next gangs are one run each all the same."""
    async with simulated(gangs=LABELS) as world:  # others wait although there is room, which `watched` forbids
        await choose_profile(world, "back-to-back")
        await gather(world, quorum=3)
        world.slow.update({"a-3": 20.0, "a-4": 20.0})
        await stop_queue(world, until=True)
        await world.pass_time(60)
        found, times = reservations(world), [each.at for each in world.history.admissions]

    assert found == ["a", *"bbb", *"ccc", *"aa"]
    assert times[1] - times[0] == pytest.approx(5, abs=0.5)
    assert times[6] - times[1] < 5


async def test_early_members_start_after_their_quorum_whoever_leads() -> None:
    """G3.22: while no node takes the quorum, extras with quota keep their gates; a new controller does the same."""
    async with watched() as world:
        await choose_profile(world, "back-to-back")
        await gather(world, quorum=3)
        await cordon(world)
        await stop_queue(world, until=True)
        for _ in range(2):
            await world.pass_time(3)
            gated = [pod["metadata"]["name"] for pod in world.objects(PODS) if is_gated(pod)]
            assert gated == [f"{gang}-{number}" for gang in GANGS for number in (3, 4)]
            assert len(holders(world)) == 9
            world.kill_controller()
            world.start_controller()
        await cordon(world, off=True)
        await world.pass_time(10)
        assert [len(running(world, gang)) for gang in GANGS] == [SIZE] * 3
        assert invariants.breaches(world, (*AT_REST, *gang_invariants.OF_GANGS)) == []
