"""Writes of a status: made from the newest object, refused when somebody else was faster, then made again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from kqueue.api.wire.meta import ObjectMeta, Struct
from kqueue.errors import ConflictError, NotFoundError, ServerError
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from tests.unit.controllers.fakes import FakeClient

THINGS = ResourceType("example.com", "v1", "things", "Thing")
Patch = Mapping[str, Any]


class Thing(Struct, frozen=True, kw_only=True):
    """An object whose status counts."""

    metadata: ObjectMeta
    status: dict[str, int] = msgspec.field(default_factory=dict)


class Desk:
    """A server with things, what the watch has of them, and a writer."""

    def __init__(self, *names: str, attempts: int = 5) -> None:
        self.client = FakeClient()
        self.store: Store[Thing] = Store("things")
        self.client.watch(THINGS, self.store, lambda obj: msgspec.convert(obj, Thing))
        for name in names or ("a",):
            self.client.put(THINGS, {"metadata": {"namespace": "ns", "name": name}, "status": {"n": 0}})
        self.client.sync()
        self.writer = StatusWriter(
            self.client,
            THINGS,
            store=self.store,
            decode=Thing,
            key_of=lambda thing: f"{thing.metadata.namespace}/{thing.metadata.name}",
            version_of=lambda thing: thing.metadata.resource_version,
            attempts=attempts,
        )

    def status(self, key: str = "ns/a") -> Any:
        found = self.client.object(THINGS, key)
        return None if found is None else found["status"]

    def sent(self) -> list[Any]:
        """What was sent, in order."""
        return [call.body for call in self.client.writes()]


def one_more(thing: Thing) -> Patch:
    return {"status": {"n": thing.status["n"] + 1}}


async def test_the_patch_carries_the_version_that_the_decision_was_made_on() -> None:
    """The status alone is patched, under the resource version of the object that `change` saw."""
    desk = Desk()

    written = await desk.writer.write("ns/a", one_more)

    assert written is not None
    assert (written.status, written.metadata.resource_version) == ({"n": 1}, "2")
    [call] = desk.client.calls
    assert (str(call), call.lane) == ("patch things ns/a/status", Lane.STATUS)
    assert call.body == {"status": {"n": 1}, "metadata": {"resourceVersion": "1"}}


async def test_the_object_itself_can_be_patched_too() -> None:
    """The patch's own metadata stands beside the version."""
    desk = Desk()

    await desk.writer.write("ns/a", lambda _: {"metadata": {"finalizers": ["f"]}}, subresource=None, lane=Lane.JOBS)

    [call] = desk.client.calls
    assert (call.subresource, call.lane) == ("", Lane.JOBS)
    assert call.body == {"metadata": {"finalizers": ["f"], "resourceVersion": "1"}}


async def test_a_decision_does_not_wait_for_words_about_its_object() -> None:
    """Words that wait for a place in their lane hold no lock; at their turn they are asked again."""
    desk = Desk()
    desk.client.words_open.clear()
    seen: list[Any] = []

    def word(thing: Thing) -> Patch | None:
        seen.append(thing.status["n"])
        return None

    words = asyncio.ensure_future(desk.writer.write("ns/a", word, lane=Lane.WORDS))
    await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await desk.writer.write("ns/a", one_more)
    asked_before = list(seen)
    desk.client.words_open.set()
    await words

    assert (asked_before, seen, [call.lane for call in desk.client.writes()]) == ([], [1], [Lane.STATUS])


async def test_our_own_write_is_the_newest_until_the_watch_has_caught_up() -> None:
    """A second write builds on the answer to the first, without a conflict; then the watch's object counts again."""
    desk = Desk()
    await desk.writer.write("ns/a", one_more)
    await desk.writer.write("ns/a", one_more)
    newest = desk.writer.newest("ns/a")
    assert newest is not None
    assert newest.status == {"n": 2}
    assert [body["metadata"]["resourceVersion"] for body in desk.sent()] == ["1", "2"]

    desk.client.change(THINGS, "ns/a", {"status": {"n": 9}})
    desk.client.sync()

    newest = desk.writer.newest("ns/a")
    assert newest is not None
    assert newest.status == {"n": 9}


async def test_an_old_event_does_not_put_an_old_object_over_our_write() -> None:
    """The watch may bring a version from before our write; ours stays the newest."""
    desk = Desk()
    before = desk.store.get("ns/a")
    assert before is not None
    await desk.writer.write("ns/a", one_more)

    desk.store.put("ns/a", before)

    newest = desk.writer.newest("ns/a")
    assert newest is not None
    assert newest.status == {"n": 1}


async def test_versions_are_compared_as_numbers() -> None:
    """Version 10 is newer than version 9."""
    desk = Desk()
    for n in range(8):
        desk.client.change(THINGS, "ns/a", {"status": {"n": 100 + n}})
    desk.client.sync()

    written = await desk.writer.write("ns/a", one_more)

    assert written is not None
    assert written.metadata.resource_version == "10"
    assert desk.writer.newest("ns/a") == written


async def test_what_the_watch_no_longer_has_is_gone() -> None:
    """A deletion counts more than our own write: nothing is the newest, and nothing is written."""
    desk = Desk()
    await desk.writer.write("ns/a", one_more)
    desk.client.drop(THINGS, "ns/a")
    desk.client.sync()

    assert desk.writer.newest("ns/a") is None
    assert await desk.writer.write("ns/a", one_more) is None
    assert len(desk.client.calls) == 1


async def test_a_conflict_is_answered_by_reading_and_deciding_again() -> None:
    """Somebody else wrote in between: what they wrote stays, and the decision is made on it."""
    desk = Desk()
    desk.client.change(THINGS, "ns/a", {"status": {"n": 10, "theirs": 1}})

    written = await desk.writer.write("ns/a", one_more)

    assert written is not None
    assert desk.status() == written.status == {"n": 11, "theirs": 1}
    assert [call.verb for call in desk.client.calls] == ["patch", "get", "patch"]


async def test_a_change_that_is_no_longer_wanted_is_not_written() -> None:
    """`change` is asked again after a conflict, and may say no."""
    desk = Desk()
    desk.client.change(THINGS, "ns/a", {"status": {"n": 10}})

    written = await desk.writer.write("ns/a", lambda thing: one_more(thing) if thing.status["n"] < 5 else None)

    assert written is None
    assert desk.status() == {"n": 10}


async def test_nothing_to_change_costs_no_request() -> None:
    """None from `change` ends the write before it begins."""
    desk = Desk()

    assert await desk.writer.write("ns/a", lambda _: None) is None
    assert desk.client.calls == []


@pytest.mark.parametrize("attempts", [1, 3])
async def test_conflicts_without_end_are_given_up(attempts: int) -> None:
    """After so many tries the conflict is the caller's; it names the object."""
    desk = Desk(attempts=attempts)
    desk.client.fail(ConflictError("newer", status=409), times=100)

    with pytest.raises(ConflictError, match="ns/a changed faster"):
        await desk.writer.write("ns/a", one_more)

    assert len(desk.sent()) == attempts
    assert desk.status() == {"n": 0}


async def test_the_last_of_the_allowed_tries_counts() -> None:
    """As many conflicts as there are tries but one are survived."""
    desk = Desk(attempts=3)
    desk.client.fail(ConflictError("newer", status=409), times=2)

    assert await desk.writer.write("ns/a", one_more) is not None


@pytest.mark.parametrize("conflict_first", [False, True], ids=["seen by the write", "seen by the reading again"])
async def test_an_object_that_is_gone_needs_no_status(conflict_first: bool) -> None:
    """Deleted before the watch has told: the write ends quietly, and is not tried again."""
    desk = Desk()
    if conflict_first:
        desk.client.fail(ConflictError("newer", status=409))
        desk.client.fail(NotFoundError("gone", status=404), verb="get")
    else:
        desk.client.drop(THINGS, "ns/a")

    assert await desk.writer.write("ns/a", one_more) is None
    assert len(desk.sent()) == 1


async def test_a_failure_is_the_callers_and_leaves_nothing_behind() -> None:
    """It is raised as it is; the next write goes through, and is made from what is stored."""
    desk = Desk()
    desk.client.fail(ServerError("down", status=500))
    with pytest.raises(ServerError, match="down"):
        await desk.writer.write("ns/a", one_more)

    assert desk.writer.newest("ns/a") == desk.store.get("ns/a")
    assert await desk.writer.write("ns/a", one_more) is not None
    assert desk.status() == {"n": 1}


async def test_a_lost_answer_does_not_count_twice() -> None:
    """The write came through, its answer did not: the next one sees what it did, by a conflict."""
    desk = Desk()
    desk.client.fail(ServerError("lost", status=502), done=True)
    with pytest.raises(ServerError):
        await desk.writer.write("ns/a", one_more)

    await desk.writer.write("ns/a", one_more)

    assert desk.status() == {"n": 2}


async def test_writes_of_one_object_go_one_after_the_other() -> None:
    """Each is decided on what the one before it left; other objects need not wait."""
    desk = Desk("a", "b")
    desk.client.open.clear()
    writes = [asyncio.create_task(desk.writer.write(key, one_more)) for key in ("ns/a", "ns/a", "ns/a", "ns/b")]
    for _ in range(5):
        await asyncio.sleep(0)
    assert [call.key for call in desk.client.calls] == ["ns/a", "ns/b"]

    desk.client.open.set()
    await asyncio.gather(*writes)

    assert (desk.status("ns/a"), desk.status("ns/b")) == ({"n": 3}, {"n": 1})
    assert [call.verb for call in desk.client.calls] == ["patch"] * 4


async def test_a_cancelled_write_lets_the_next_one_go() -> None:
    """Whoever waits behind a write that is cancelled gets the object."""
    desk = Desk()
    desk.client.open.clear()
    first, second = (asyncio.create_task(desk.writer.write("ns/a", one_more)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    desk.client.open.set()

    assert await second is not None
    assert desk.status() == {"n": 1}


@pytest.mark.parametrize("end", ["seen", "gone", "seen in a newer version"])
async def test_nothing_is_remembered_longer_than_needed(end: str) -> None:
    """A process that runs for months writes millions of objects: what the watch has told of takes no room."""
    desk = Desk()
    before = desk.store.get("ns/a")
    assert before is not None
    await desk.writer.write("ns/a", one_more)
    desk.store.put("ns/a", before)
    assert (list(desk.writer._ours), desk.writer._locks) == (["ns/a"], {})

    if end == "gone":
        desk.client.drop(THINGS, "ns/a")
    elif end != "seen":
        desk.client.change(THINGS, "ns/a", {"status": {"n": 5}})
    desk.client.sync()

    assert desk.writer._ours == {}


async def test_a_write_that_ends_after_its_object_is_not_remembered() -> None:
    """The watch told of the deletion first: nothing will ever come to forget it by."""
    desk = Desk()
    desk.client.open.clear()
    write = asyncio.create_task(desk.writer.write("ns/a", one_more))
    await asyncio.sleep(0)
    desk.store.remove("ns/a")
    desk.client.open.set()
    await write

    assert desk.writer._ours == {}
