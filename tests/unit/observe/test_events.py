"""Events never make their caller wait, are written once, counted when equal, and lost only with a count."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.controllers.record import ObjectReference
from kqueue.errors import AlreadyExistsError, ForbiddenError, NotFoundError, ServerError, TooManyRequestsError
from kqueue.observe import EventLimits, EventRecorder
from kqueue.observe.events import EventHooks

JOB = ObjectReference(api_version="batch/v1", kind="Job", namespace="team", name="train", uid="u1")


class ApiServer:
    """Keeps what is written; fails as told."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes = 0
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def _served(self) -> None:
        self.writes += 1
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)

    async def post(self, body: dict[str, Any]) -> None:
        """Create."""
        await self._served()
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        assert key not in self.events
        self.events[key] = dict(body)

    async def patch(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        """Merge-patch."""
        await self._served()
        self.events[namespace, name] |= patch


class World:
    """A recorder that runs, with its clock and its server."""

    def __init__(self, limits: EventLimits | None = None) -> None:
        self.clock, self.server, self.lost = FakeClock(), ApiServer(), Counter[str]()
        self.joined = 0
        self.pause = 0.0
        """Seconds between two writes."""
        self.recorder = EventRecorder(
            post=self.server.post,
            patch=self.server.patch,
            clock=self.clock,
            instance="pod-1",
            hooks=EventHooks(lost=self._count, joined=self._count_joined, pace=lambda: self.pause),
            limits=limits,
            actions={"WorkloadSliceReplaced": "Replaced"},
        )

    def _count_joined(self) -> None:
        self.joined += 1

    def _count(self, cause: str) -> None:
        self.lost[cause] += 1

    def record(self, note: str = "why", reason: str = "Pending", regarding: ObjectReference = JOB) -> None:
        """One warning."""
        self.recorder.record(regarding, [(reason, note)], controller="kueue-admission", type="Warning")

    async def settle(self) -> None:
        """Let the recorder write what it can now."""
        await self.clock.advance(0)


@pytest.fixture
async def running() -> AsyncIterator[Callable[..., World]]:
    """Makes worlds whose recorder runs until the end of the test."""
    tasks = []

    def make(limits: EventLimits | None = None) -> World:
        world = World(limits)
        tasks.append(asyncio.create_task(world.recorder.run()))
        return world

    yield make
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_event_is_written_as_the_api_wants_it(running: Callable[..., World]) -> None:
    """All fields by which kubectl sorts, counts and names are there; the action defaults to the reason."""
    world = running()
    world.record()
    await world.settle()
    ((key, body),) = world.server.events.items()
    assert key[0] == "team"
    assert key[1].startswith("train.")
    assert body | {"metadata": None} == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": None,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "source": {"component": "kueue-admission"},
        "reportingComponent": "kueue-admission",
        "reportingInstance": "pod-1",
        "action": "Pending",
        "reason": "Pending",
        "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "train", "uid": "u1"},
        "message": "why",
        "type": "Warning",
    }


async def test_some_actions_are_called_otherwise(running: Callable[..., World]) -> None:
    """Than the reason, which is the action of all others."""
    world = running()
    for reason in ("WorkloadSliceReplaced", "Started"):
        world.record(reason=reason)
    await world.settle()
    actions = {body["reason"]: body["action"] for body in world.server.events.values()}
    assert actions == {"WorkloadSliceReplaced": "Replaced", "Started": "Started"}


async def test_events_of_cluster_objects_live_in_default(running: Callable[..., World]) -> None:
    """An object without a namespace has its events where kubectl looks for them."""
    world = running()
    queue = ObjectReference(api_version="kueue.x-k8s.io/v1beta2", kind="ClusterQueue", name="q", namespace="", uid="")
    world.record(regarding=queue)
    await world.settle()
    ((key, body),) = world.server.events.items()
    assert key[0] == "default"
    assert body["involvedObject"] == {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "name": "q"}


async def test_texts_are_cut_to_what_the_api_takes(running: Callable[..., World]) -> None:
    """Notes of 1024 bytes, words of 128, names of 253: nothing is refused for its length."""
    world = running()
    world.record(note="ä" * 2000, reason="R" * 300, regarding=JOB._replace(name="n" * 253))
    await world.settle()
    ((key, body),) = world.server.events.items()
    assert len(key[1]) <= 253
    assert len(body["message"].encode()) <= 1024
    assert body["message"].endswith("…")
    assert (len(body["reason"]), len(body["action"])) == (128, 128)


async def test_events_of_one_moment_are_told_apart_and_counted_as_if_recorded_one_by_one(
    running: Callable[..., World],
) -> None:
    """Those that are recorded together are as many objects of different names, or one with a count where equal."""
    together, singly = running(), running()
    told = [("QuotaReserved", "why"), ("Admitted", "why"), ("Admitted", "otherwise"), ("Admitted", "why")]
    together.recorder.record(JOB, told, controller="kueue-admission", type="Warning")
    for reason, note in told:
        singly.record(reason=reason, note=note)
    for world in (together, singly):
        await world.settle()
    bodies = [list(world.server.events.values()) for world in (together, singly)]
    assert [(body["reason"], body["message"], body["count"]) for body in bodies[0]] == [
        ("QuotaReserved", "why", 1),
        ("Admitted", "why", 2),
        ("Admitted", "otherwise", 1),
    ]
    assert [body | {"metadata": None} for body in bodies[0]] == [body | {"metadata": None} for body in bodies[1]]


async def test_what_is_lost_of_several_is_counted_for_each() -> None:
    """A full queue takes as many of them as it has room for."""
    world = World(EventLimits(waiting_max=2))
    world.recorder.record(JOB, [(f"R{number}", "why") for number in range(5)], controller="c")
    assert world.recorder.waiting == 2
    assert world.lost == {"queue-full": 3}


async def test_equal_events_become_one_with_a_count(running: Callable[..., World]) -> None:
    """Repeats are counted in one object, written at most once per interval."""
    world = running(EventLimits(series_interval=10.0))
    for _ in range(50):
        world.record()
        await world.settle()
    assert world.server.writes == 1
    await world.clock.advance(10.0)
    assert world.server.writes == 2
    (body,) = world.server.events.values()
    assert (body["count"], body["lastTimestamp"]) == (50, "2026-01-01T00:00:00Z")
    await world.clock.advance(60.0)
    assert world.server.writes == 2


async def test_the_last_timestamp_grows_with_repeats_and_the_first_one_stays(running: Callable[..., World]) -> None:
    """So kubectl sorts by the newest of equal events, and one patch writes count and time."""
    world = running(EventLimits(series_interval=10.0))
    world.record()
    await world.clock.advance(4.0)
    world.record()
    await world.clock.advance(10.0)
    (body,) = world.server.events.values()
    assert (body["firstTimestamp"], body["lastTimestamp"]) == ("2026-01-01T00:00:00Z", "2026-01-01T00:00:04Z")
    assert (body["count"], world.server.writes) == (2, 2)


async def test_repeats_before_the_first_write_are_in_it(running: Callable[..., World]) -> None:
    """A burst costs one write."""
    world = running()
    for _ in range(5):
        world.record()
    await world.settle()
    await world.clock.advance(10.0)
    (body,) = world.server.events.values()
    assert body["count"] == 5
    assert world.server.writes == 1


async def test_repeats_during_the_first_write_are_not_forgotten(running: Callable[..., World]) -> None:
    """What happens while the object is created is added with the next count."""
    world = running()
    world.server.gate.clear()
    world.record()
    await world.settle()
    world.record()
    world.server.gate.set()
    await world.settle()
    await world.clock.advance(10.0)
    (body,) = world.server.events.values()
    assert body["count"] == 2


async def test_after_the_window_a_new_object_is_made(running: Callable[..., World]) -> None:
    """Equal events far apart are two; each repeat begins the window anew."""
    world = running(EventLimits(window=60.0))
    for _ in range(3):
        world.record()
        await world.clock.advance(50.0)
    assert len(world.server.events) == 1
    await world.clock.advance(61.0)
    world.record()
    await world.settle()
    assert len(world.server.events) == 2


async def test_other_notes_are_other_events(running: Callable[..., World]) -> None:
    """Reason, note and object tell events apart."""
    world = running()
    world.record()
    await world.settle()
    world.record(note="other")
    world.record(reason="Other")
    world.record(regarding=JOB._replace(uid="u2"))
    await world.settle()
    assert len(world.server.events) == 4


async def test_a_note_that_changes_all_the_time_is_bounded(running: Callable[..., World]) -> None:
    """Numbers in a note do not make an object per attempt; what is left out is counted, other reasons pass."""
    world = running(EventLimits(notes_max=10))
    for attempt in range(100):
        world.record(note=f"free {attempt}")
        await world.settle()
    world.record(reason="Admitted")
    await world.settle()
    assert len(world.server.events) == 11
    assert world.lost == {"too-many-notes": 90}


async def test_notes_that_have_ended_make_room(running: Callable[..., World]) -> None:
    """The bound is on notes at a time: those of a window ago do not count."""
    world = running(EventLimits(notes_max=2, window=60.0))
    for note in ("one", "two", "three"):
        world.record(note=note)
        await world.settle()
    await world.clock.advance(40.0)
    world.record(note="two")
    await world.clock.advance(30.0)
    for note in ("four", "five"):
        world.record(note=note)
        await world.settle()
    await world.settle()
    assert [body["message"] for body in world.server.events.values()] == ["one", "two", "four"]
    assert world.lost == {"too-many-notes": 2}


async def test_what_is_remembered_is_bounded(running: Callable[..., World]) -> None:
    """Of more objects than may be remembered the least recent is forgotten: its next event begins anew."""
    world = running(EventLimits(remembered_max=2))
    for reason in ("A", "B", "A", "C", "A", "B"):
        world.record(reason=reason)
    await world.settle()
    assert [body["reason"] for body in world.server.events.values()] == ["A", "B", "C", "B"]
    assert sum(body["count"] > 1 for body in world.server.events.values()) == 1


async def test_a_full_queue_loses_the_oldest_with_a_count() -> None:
    """With nobody writing, memory is bounded and the caller does not notice."""
    world = World(EventLimits(waiting_max=3))
    for number in range(5):
        world.record(reason=f"R{number}")
    assert world.recorder.waiting == 3
    assert world.lost == {"queue-full": 2}
    await world.recorder.drain()
    assert sorted(body["reason"] for body in world.server.events.values()) == ["R2", "R3", "R4"]
    assert world.recorder.waiting == 0


async def test_passing_failures_are_tried_again(running: Callable[..., World]) -> None:
    """Overload and server errors are waited out, as long as the server says."""
    world = running()
    world.server.failures = [
        TooManyRequestsError("slow down", status=429, retry_after=7.0),
        ServerError("x", status=500),
    ]
    world.record()
    await world.clock.advance(6.0)
    assert world.server.writes == 1
    await world.clock.advance(10.0)
    assert len(world.server.events) == 1
    assert not world.lost


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(ForbiddenError("namespace is terminating", status=403), id="forbidden"),
        pytest.param(RuntimeError("a bug in the writer"), id="bug"),
        pytest.param(TimeoutError(), id="time-out"),
    ],
)
async def test_a_refused_event_is_counted_and_the_next_is_written(
    running: Callable[..., World], failure: Exception
) -> None:
    """No failure ends the recorder; an equal event later gets a new chance."""
    world = running()
    world.server.failures = [failure]
    world.record()
    await world.settle()
    assert world.lost == {"refused": 1}
    world.record()
    await world.settle()
    assert len(world.server.events) == 1


async def test_a_series_whose_object_is_gone_begins_anew(running: Callable[..., World]) -> None:
    """The API server forgets events after an hour; the next repeat makes a new object."""
    world = running()
    world.record()
    await world.settle()
    world.server.failures = [NotFoundError("gone", status=404)]
    world.record()
    await world.clock.advance(10.0)
    world.record()
    await world.settle()
    assert len(world.server.events) == 2


async def test_what_waits_at_the_end_is_written_and_a_write_that_was_cut_off_too() -> None:
    """Ending a process in the middle of a write loses no event; one that had arrived is not a failure."""
    world = World()
    world.server.gate.clear()
    task = asyncio.create_task(world.recorder.run())
    world.record(reason="R0")
    world.record(reason="R1")
    await world.settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert world.recorder.waiting == 2
    world.server.gate.set()
    world.server.failures = [AlreadyExistsError("it had arrived", status=409)]
    await world.recorder.finish(10.0)
    assert [body["reason"] for body in world.server.events.values()] == ["R1"]
    assert (world.recorder.waiting, world.lost) == (0, {})


async def test_what_lasts_is_no_news_to_the_next_process() -> None:
    """An equal event of a process before stays the only one; other words, or of another object, are another."""
    server, clock, lost = ApiServer(), FakeClock(), list[str]()

    async def post(body: dict[str, Any]) -> None:
        if (body["metadata"]["namespace"], body["metadata"]["name"]) in server.events:
            raise AlreadyExistsError("it is there", status=409)
        await server.post(body)

    for _process in range(2):
        await clock.advance(1)
        recorder = EventRecorder(
            post=post, patch=server.patch, clock=clock, instance="pod", hooks=EventHooks(lost=lost.append)
        )
        for regarding, note in (
            (JOB, "incomplete"),
            (JOB._replace(uid="u2"), "incomplete"),
            (JOB, "contradicts itself"),
        ):
            recorder.record(regarding, [("Held", note)], controller="c", type="Warning", once=True)
        recorder.record(JOB, [("Started", "it runs")], controller="c")
        await recorder.drain()

    told = sorted((b["reason"], b["involvedObject"]["uid"], b["message"]) for b in server.events.values())
    held = [("Held", "u1", "contradicts itself"), ("Held", "u1", "incomplete"), ("Held", "u2", "incomplete")]
    assert told == [*held, *[("Started", "u1", "it runs")] * 2]
    assert lost == []


async def test_what_cannot_be_written_at_the_end_is_counted() -> None:
    """A process does not wait for an API server that does not answer."""
    world = World()
    world.server.gate.clear()
    for number in range(3):
        world.record(reason=f"R{number}")
    await world.recorder.finish(0.01)
    assert world.lost == {"shutdown": 3}
