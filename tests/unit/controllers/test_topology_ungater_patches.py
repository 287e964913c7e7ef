"""The ungater's patches: each is made once, those on their way count, and those that fail are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.controllers.resources import PODS, WORKLOADS
from kqueue.errors import ApiError, ConflictError, NotFoundError, ServerError, TooManyRequestsError, UnreachableError
from kqueue.runtime.controller import Result
from tests.unit.controllers.builders import condition
from tests.unit.controllers.gang_world import IN, Gate, make_gang, make_pod


async def test_a_pod_is_patched_once() -> None:
    """Until the watch has told of every release its workload is left alone; then there is nothing to do."""
    gate = Gate(make_gang({"h1": 2}), make_pod("p0"), make_pod("p1"))
    await gate.step()

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    gate.pods.put("ns/p0", model.pod_view(msgspec.convert(gate.pod("p0"), wire_core.Pod)))
    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert await gate.step() == IN

    assert len(gate.patches) == 2


async def test_an_old_event_is_not_the_release() -> None:
    """An event from before our patch, with the gate still there, does not have the pod patched again."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    before = gate.pods.get("ns/p0")
    assert before is not None
    await gate.step()

    gate.pods.put("ns/p0", before)

    assert await gate.step(late=True) == Result(requeue_after=1.0)


@asynccontextmanager
async def patches_under_way(gate: Gate) -> AsyncIterator[None]:
    """In the block the first patches are on the wire; after it all have been answered."""
    await gate.look_first()
    gate.client.open.clear()
    gate.client.sync()
    work = asyncio.create_task(gate.ungater.reconcile("ns/a"))
    for _ in range(5):
        await asyncio.sleep(0)
    yield
    gate.client.open.set()
    await work


async def test_eight_patches_of_a_gang_are_under_way_at_once() -> None:
    """One huge gang does not take the whole lane; the next goes when one is answered."""
    gate = Gate(make_gang({"h1": 20}), *(make_pod(f"p{n}") for n in range(20)))

    async with patches_under_way(gate):
        assert len(gate.patches) == 8

    assert len(gate.patches) == 20
    assert gate.released == 20


def _evicted(gate: Gate) -> None:
    gate.client.put(WORKLOADS, make_gang({"h1": 9}, condition("Admitted"), condition("Evicted")))


def _replaced(gate: Gate) -> None:
    gate.client.put(WORKLOADS, make_gang({"h2": 9}))


def _failed(gate: Gate) -> None:
    gate.client.put(WORKLOADS, make_gang({"h1": 9}, unhealthyNodes=[{"name": "h1"}]))


def _gone(gate: Gate) -> None:
    gate.client.drop(WORKLOADS, "ns/a")


def _another(gate: Gate) -> None:
    gang = make_gang({"h1": 9})
    gate.client.put(WORKLOADS, {**gang, "metadata": {**gang["metadata"], "uid": "other"}})


def _touched(gate: Gate) -> None:
    gang = make_gang({"h1": 9})
    gate.client.put(WORKLOADS, {**gang, "metadata": {**gang["metadata"], "labels": {"x": "y"}}})


def _pod_gone(gate: Gate) -> None:
    gate.client.drop(PODS, "ns/p8")


def _pod_changed(gate: Gate) -> None:
    gate.client.change(PODS, "ns/p8", {"metadata": {"labels": {"x": "y"}}})


@pytest.mark.parametrize(
    ("change", "patched"),
    [
        pytest.param(_evicted, 8, id="it is evicted"),
        pytest.param(_replaced, 8, id="it is placed anew"),
        pytest.param(_failed, 8, id="its node fails"),
        pytest.param(_gone, 8, id="it is gone"),
        pytest.param(_another, 8, id="it is another one of that name"),
        pytest.param(_touched, 9, id="it changes in nothing that matters"),
        pytest.param(_pod_gone, 8, id="the pod is gone"),
        pytest.param(_pod_changed, 8, id="the pod changes"),
    ],
)
async def test_a_pod_whose_turn_comes_late_is_released_by_what_holds_then(
    change: Callable[[Gate], None], patched: int
) -> None:
    """The Workload is read again just before each patch: nobody is released to a domain that it has lost meanwhile."""
    gate = Gate(make_gang({"h1": 9}), *(make_pod(f"p{n}") for n in range(9)))

    async with patches_under_way(gate):
        change(gate)
        gate.client.sync()

    assert len(gate.patches) == patched


async def test_what_was_not_sent_is_not_waited_for() -> None:
    """After an early end the rest is released by the new assignment, as soon as the sent ones were seen."""
    gate = Gate(make_gang({"h1": 9}), *(make_pod(f"p{n}") for n in range(9)))
    async with patches_under_way(gate):
        gate.client.put(WORKLOADS, make_gang({"h1": 8, "h2": 1}))
        gate.client.sync()

    assert await gate.step() == IN
    assert gate.places() == {f"p{n}": "h1" for n in range(8)} | {"p8": "h2"}


@pytest.mark.parametrize(
    ("error", "raises"),
    [
        pytest.param(ServerError("down", status=500), True, id="the server fails"),
        pytest.param(UnreachableError("cut"), True, id="nobody answers"),
        pytest.param(TooManyRequestsError("slowly", status=429), True, id="the server is busy"),
        pytest.param(NotFoundError("gone", status=404), False, id="the pod is gone"),
    ],
)
async def test_one_patch_that_fails_does_not_stop_the_others(error: ApiError, raises: bool) -> None:
    """The others are released; the one is looked at again at once, and alone."""
    gate = Gate(make_gang({"h1": 3}), *(make_pod(f"p{n}") for n in range(3)))
    gate.client.fail(error, key="ns/p1")

    if raises:
        with pytest.raises(type(error)):
            await gate.step()
    else:
        assert await gate.step() == IN

    assert (gate.places(), gate.released) == ({"p0": "h1", "p2": "h1"}, 2)
    assert await gate.step() == IN
    assert [call.key for call in gate.patches] == ["ns/p0", "ns/p1", "ns/p2", "ns/p1"]


async def test_a_pod_that_has_changed_is_looked_at_once_its_change_is_seen() -> None:
    """Somebody else wrote first: our patch is refused, and the next is made from what he wrote."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.sync()
    gate.client.change(PODS, "ns/p0", {"metadata": {"labels": {"x": "y"}}})
    with pytest.raises(ConflictError):
        await gate.step(late=True)

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ConflictError("our own first attempt", status=409), id="a conflict with our own first attempt"),
        pytest.param(ServerError("down", status=500), id="the server fails after the deed"),
        pytest.param(UnreachableError("cut"), id="the answer is lost"),
    ],
)
async def test_a_release_without_an_answer_is_not_taken_for_none(error: ApiError) -> None:
    """The pod was released although the patch failed: nobody else is put into its place."""
    gate = Gate(make_gang({"h1": 1, "h2": 1}), make_pod("p1"))
    gate.client.fail(error, key="ns/p1", done=True)
    with pytest.raises(type(error)):
        await gate.step()
    gate.pods.put("ns/p0", model.pod_view(msgspec.convert(make_pod("p0"), wire_core.Pod)))

    assert await gate.step(late=True) == Result(requeue_after=1.0)
    gate.client.put(PODS, make_pod("p0"))
    assert await gate.step() == IN
    assert gate.places() == {"p1": "h1", "p0": "h2"}


@pytest.mark.mechanism("3.12")
async def test_when_nothing_is_known_of_a_release_its_event_is_awaited() -> None:
    """The server does not answer at all; it is taken for released until the wait runs out."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    for verb in ("patch", "get"):
        gate.client.fail(UnreachableError("cut"), verb=verb)
    with pytest.raises(UnreachableError):
        await gate.step()

    assert await gate.step() == Result(requeue_after=1.0)
    await gate.clock.advance(60)
    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


async def test_when_every_patch_fails_nothing_was_released() -> None:
    """Nobody counts what did not happen."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    gate.client.fail(ServerError("down", status=500))

    with pytest.raises(ServerError):
        await gate.step()

    assert gate.released == 0


async def test_a_pod_that_goes_before_its_release_was_seen_is_not_waited_for() -> None:
    """Its deletion is the last that is heard of it."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    await gate.step()
    gate.client.drop(PODS, "ns/p0")
    gate.client.put(PODS, make_pod("p1"))

    await gate.step()

    assert gate.places() == {"p1": "h1"}


async def test_a_pod_that_is_replaced_by_one_of_its_name_is_not_waited_for() -> None:
    """As in a StatefulSet: the watch may tell of both in one."""
    gate = Gate(make_gang({"h1": 1}), make_pod("p0"))
    await gate.step()
    successor = make_pod("p0")
    successor["metadata"]["uid"] = "another"
    gate.client.put(PODS, successor)

    assert await gate.step() == IN
    assert gate.places() == {"p0": "h1"}


async def test_a_release_that_is_never_seen_is_given_up() -> None:
    """Its event was lost: after the timeout the pod is looked at as it is known."""
    gate = Gate(make_gang({"h1": 2}), make_pod("p0"))
    await gate.step()
    await gate.clock.advance(59)
    assert await gate.step(late=True) == Result(requeue_after=1.0)

    await gate.clock.advance(1)
    with pytest.raises(ConflictError):
        await gate.step(late=True)

    assert await gate.step() == IN


async def test_which_workload_a_pod_event_concerns() -> None:
    """Every event of a gang's pod names its workload; of others nothing is to be looked at."""
    gate = Gate(make_pod("p0"), make_pod("other", workload=None))
    gate.client.sync()
    gate.client.drop(PODS, "ns/p0")
    gate.client.sync()

    assert gate.keys == ["ns/a", None, "ns/a"]
