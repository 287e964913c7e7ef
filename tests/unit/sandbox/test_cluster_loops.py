from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kqueue.clock import FakeClock
from kqueue.errors import ConflictError
from kqueue.sandbox.api import PODS, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.controller_loop import ControllerLoop, Reconcile
from kqueue.sandbox.json_object import key_of
from kqueue.sandbox.mirror import Mirror
from tests.unit.sandbox.simulated_world import NAMESPACE, make_pod


async def turns(count: int = 30) -> None:
    """Give the event loop time without time passing."""
    for _ in range(count):
        await asyncio.sleep(0)


@asynccontextmanager
async def running_loop(reconcile: Reconcile, clock: FakeClock) -> AsyncIterator[ControllerLoop]:
    """A loop at work."""
    loop = ControllerLoop("test", reconcile, clock=clock, workers=2)
    task = asyncio.create_task(loop.run())
    yield loop
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_key_never_runs_twice_at_once_and_a_change_meanwhile_is_not_lost() -> None:
    """Adding a key that is being worked on runs it once more afterwards, however often it was added."""
    gate, running, rounds = asyncio.Event(), 0, 0

    async def reconcile(_: str) -> None:
        nonlocal running, rounds
        running, rounds = running + 1, rounds + 1
        assert running == 1
        await gate.wait()
        running -= 1

    async with running_loop(reconcile, FakeClock()) as loop:
        loop.add("k")
        await turns()
        for _ in range(3):
            loop.add("k")
        assert not loop.idle
        gate.set()
        await turns()
        assert (rounds, loop.idle) == (2, True)


async def test_failures_are_tried_again_with_growing_pauses() -> None:
    """A key that fails comes back after 0.1 s, 0.2 s, 0.4 s; others are not held up; a success starts anew."""
    clock, at, failing = FakeClock(), list[float](), True

    async def reconcile(key: str) -> None:
        if key == "bad":
            at.append(round(clock.monotonic(), 3))
            if failing:
                raise RuntimeError("no luck")

    async with running_loop(reconcile, clock) as loop:
        loop.add("bad")
        loop.add("good")
        await turns()
        await clock.advance(1)
        assert at == [0, 0.1, 0.3, 0.7]
        failing = False
        await clock.advance(1)
        failing = True
        loop.add("bad")
        await turns()
        await clock.advance(0.1)
        assert at[4:] == [1.5, 2.0, 2.1]


async def test_a_first_conflict_is_tried_again_at_once() -> None:
    """Somebody else wrote first: read again without a pause."""
    clock, tries = FakeClock(), 0

    async def reconcile(_: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ConflictError("newer")

    async with running_loop(reconcile, clock) as loop:
        loop.add("k")
        await turns()
    assert tries == 2


async def test_a_reconcile_may_ask_to_be_called_later() -> None:
    """The number that it returns is the seconds until then."""
    clock, at = FakeClock(), list[float]()

    async def reconcile(_: str) -> float | None:
        at.append(clock.monotonic())
        return 5.0 if len(at) < 3 else None

    async with running_loop(reconcile, clock) as loop:
        loop.add("k")
        await turns()
        await clock.advance(60)
    assert at == [0, 5, 10]


@asynccontextmanager
async def mirrored(api: ClusterApi, clock: FakeClock) -> AsyncIterator[Mirror]:
    """A mirror of all pods, grouped by node, that has seen everything."""
    mirror = Mirror(api, PODS, clock)
    mirror.add_index("node", lambda pod: pod["spec"].get("nodeName"))
    task = asyncio.create_task(mirror.run())
    await mirror.synced.wait()
    await turns()
    yield mirror
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_mirror_follows_what_happens() -> None:
    """Objects from before and after its start are there, grouped; handlers hear old and new."""
    clock = FakeClock()
    api = ClusterApi(clock)
    await api.create(PODS, make_pod("early"), namespace=NAMESPACE)
    async with mirrored(api, clock) as mirror:
        heard: list[tuple[bool, bool]] = []
        mirror.on_change(lambda old, new: heard.append((old is not None, new is not None)))
        await api.create(PODS, make_pod("late", nodeName="n"), namespace=NAMESPACE)
        await api.delete(PODS, "early", namespace=NAMESPACE, grace_period_seconds=0)
        await turns()

        assert list(mirror.all()) == ["default/late"]
        assert list(mirror.by("node", "n")) == ["default/late"]
        assert heard[0] == (False, True)
        assert heard[-1] == (True, False)


async def test_a_mirror_is_never_behind_its_own_writes_and_never_revives_the_dead() -> None:
    """A write is remembered at once; one that the watch has passed changes nothing."""
    clock = FakeClock()
    api = ClusterApi(clock)
    async with mirrored(api, clock) as mirror:
        created = await api.create(PODS, make_pod(), namespace=NAMESPACE)
        mirror.remember(created)
        assert mirror.get(key_of(created)) == created

        await turns()
        await api.delete(PODS, "p", namespace=NAMESPACE, grace_period_seconds=0)
        await turns()
        mirror.remember(created)
        assert len(mirror) == 0


async def test_one_bad_handler_does_not_stop_the_others() -> None:
    """A handler that stumbles over an object is logged; the object and the other handlers go on."""
    clock = FakeClock()
    api = ClusterApi(clock)
    mirror, heard = Mirror(api, PODS, clock), list[Object | None]()

    def stumble(_: Object | None, __: Object | None) -> None:
        raise KeyError("spec")

    mirror.on_change(stumble)
    mirror.on_change(lambda _, new: heard.append(new))
    task = asyncio.create_task(mirror.run())
    await mirror.synced.wait()
    await api.create(PODS, make_pod(), namespace=NAMESPACE)
    await turns()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(heard) == len(mirror) == 1
