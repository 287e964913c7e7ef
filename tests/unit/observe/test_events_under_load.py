"""Under load: decisions go first, several writes at once, newest notes, bounded memory, losses that are reported."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from kqueue.clock import FakeClock
from kqueue.errors import TooManyRequestsError
from kqueue.observe import EventLimits, EventRank, EventRecorder, Metrics
from kqueue.observe.events import EventHooks
from tests.readings import page_of
from tests.unit.observe.test_events import JOB, World

_GAUGES = ("kqueue_events_waiting", "kqueue_events_oldest")


async def stop(task: asyncio.Task[None]) -> None:
    """Cancel it and wait for its end."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def normal(world: World, reason: str, note: str = "why", name: str = "train") -> None:
    """Record an event of type Normal."""
    world.recorder.record(JOB._replace(name=name), [(reason, note)], controller="c")


def written(world: World) -> list[tuple[str, str, int]]:
    """Reason, note and count of each event object, in the order in which they were written."""
    return [(b["reason"], b["message"], b["count"]) for b in world.server.events.values()]


@pytest.mark.parametrize(
    ("reason", "type_", "rank"),
    [
        pytest.param("QuotaReserved", "Normal", EventRank.DECISIONS, id="a reservation is a decision"),
        pytest.param("Admitted", "Normal", EventRank.DECISIONS, id="an admission is a decision"),
        pytest.param("EvictedDueToPreempted", "Normal", EventRank.DECISIONS, id="each eviction is a decision"),
        pytest.param("FinishedWorkload", "Normal", EventRank.DECISIONS, id="the end of a workload is a decision"),
        pytest.param("Stopped", "Normal", EventRank.DECISIONS, id="a stop is a decision"),
        pytest.param("StrayPod", "Warning", EventRank.DECISIONS, id="warnings go with decisions"),
        pytest.param("WaitingForQuota", "Warning", EventRank.OTHERS, id="a reason for waiting is no decision"),
        pytest.param("Pending", "Warning", EventRank.OTHERS, id="nor is the reason Pending"),
        pytest.param("CreatedWorkload", "Normal", EventRank.OTHERS, id="nor is the creation of a Workload"),
    ],
)
def test_each_event_has_a_rank(reason: str, type_: Any, rank: EventRank) -> None:
    """Events of decisions have a higher rank than reasons for waiting."""
    world = World()
    world.recorder.record(JOB, [(reason, "why")], controller="c", type=type_)
    assert {one: world.recorder.depth(one) for one in EventRank if world.recorder.depth(one)} == {rank: 1}


async def test_decisions_are_written_before_what_waited_longer() -> None:
    """An eviction does not wait for the reasons for waiting that were recorded before it."""
    world = World(EventLimits(writers=1))
    for number in range(3):
        world.record(regarding=JOB._replace(name=f"w{number}"))
    normal(world, "EvictedDueToPreempted")
    normal(world, "Admitted")
    await world.recorder.drain()
    assert [reason for reason, _, _ in written(world)] == ["EvictedDueToPreempted", "Admitted", *["Pending"] * 3]


@pytest.mark.parametrize(
    ("full_of", "then", "kept"),
    [
        pytest.param(
            ["Pending/a", "Admitted/a", "Pending/b"],
            "Admitted/b",
            ["Admitted/a", "Admitted/b", "Pending/b"],
            id="the oldest of the lowest rank is lost for a decision",
        ),
        pytest.param(
            ["Pending/a", "Admitted/a", "Pending/b"],
            "Pending/c",
            ["Admitted/a", "Pending/b", "Pending/c"],
            id="and for another one of the lowest rank",
        ),
        pytest.param(
            ["Admitted/a", "Admitted/b", "Admitted/c"],
            "Pending/a",
            ["Admitted/a", "Admitted/b", "Admitted/c"],
            id="no decision is lost for a reason for waiting",
        ),
        pytest.param(
            ["Admitted/a", "Admitted/b", "Admitted/c"],
            "Admitted/d",
            ["Admitted/b", "Admitted/c", "Admitted/d"],
            id="of decisions only, the oldest is lost",
        ),
    ],
)
async def test_a_full_queue_loses_the_lowest_rank_first(full_of: list[str], then: str, kept: list[str]) -> None:
    """Exactly one event is lost, and counted."""
    world = World(EventLimits(waiting_max=3, writers=1))
    for event in [*full_of, then]:
        reason, name = event.split("/")
        world.recorder.record(JOB._replace(name=name), [(reason, "why")], controller="c")
    assert world.lost == {"queue-full": 1}
    await world.recorder.drain()
    kept_now = [f"{body['reason']}/{body['involvedObject']['name']}" for body in world.server.events.values()]
    assert kept_now == kept


async def test_an_event_that_was_lost_may_come_again() -> None:
    """An equal event is not counted with one that will never be written."""
    world = World(EventLimits(waiting_max=1))
    for name in ("a", "b", "a"):
        world.record(regarding=JOB._replace(name=name))
    await world.recorder.drain()
    assert [body["involvedObject"]["name"] for body in world.server.events.values()] == ["a"]
    assert world.lost == {"queue-full": 2}


async def test_a_waiting_note_is_replaced_by_a_newer_one() -> None:
    """Numbers that change while the event waits make one object with the newest note, a count and the last time."""
    world = World()
    for free in range(30):
        world.record(note=f"{free} are free")
        await world.clock.advance(1.0)
    assert world.recorder.waiting == 1
    await world.recorder.drain()
    ((_, body),) = world.server.events.items()
    assert (body["message"], body["eventTime"]) == ("29 are free", "2026-01-01T00:00:00.000000Z")
    assert (body["count"], body["lastTimestamp"]) == (30, "2026-01-01T00:00:29Z")
    assert (world.server.writes, world.lost) == (1, {})


async def test_an_event_that_equals_the_replaced_note_counts_on() -> None:
    """The series is found under its newest note only."""
    world = World()
    for note in ("one", "two", "two", "one"):
        world.record(note=note)
    await world.recorder.drain()
    assert written(world) == [("Pending", "one", 4)]


async def test_notes_of_decisions_are_all_kept() -> None:
    """Each victim of a preemptor is named; only beyond the bound on notes do the newest share an object."""
    world = World(EventLimits(notes_max=3, writers=1))
    for victim in ("a", "b", "c"):
        normal(world, "PreemptedWorkload", f"{victim} makes room")
    assert world.recorder.waiting == 3
    normal(world, "PreemptedWorkload", "d makes room")
    await world.recorder.drain()
    assert [(note, count) for _, note, count in written(world)] == [
        ("d makes room", 2),
        ("b makes room", 1),
        ("c makes room", 1),
    ]
    assert world.lost == {}


async def test_lasting_events_keep_their_notes() -> None:
    """Their names follow from their notes: a newer note is another event."""
    world = World()
    for note in ("one", "two"):
        world.recorder.record(JOB, [("Pending", note)], controller="c", type="Warning", once=True)
    await world.recorder.drain()
    assert sorted(note for _, note, _ in written(world)) == ["one", "two"]


async def test_several_are_written_at_once_and_no_more() -> None:
    """A slow answer holds up one writer; their number is a limit."""
    world = World(EventLimits(writers=4))
    world.server.gate.clear()
    task = asyncio.create_task(world.recorder.run())
    for number in range(10):
        normal(world, "Admitted", name=f"w{number}")
    await world.settle()
    assert world.server.writes == 4
    world.server.gate.set()
    await world.settle()
    assert len(world.server.events) == 10
    await stop(task)


async def test_the_count_of_a_series_never_overtakes_its_event_nor_another_count() -> None:
    """A count is written when the event is there, and the next count when that write has ended."""
    world = World(EventLimits(series_interval=10.0))
    patched = list[int]()
    patch = world.server.patch

    async def watched(namespace: str, name: str, change: dict[str, Any]) -> None:
        assert (namespace, name) in world.server.events
        await patch(namespace, name, change)
        patched.append(change["count"])

    world.recorder = EventRecorder(
        post=world.server.post,
        patch=watched,
        clock=world.clock,
        instance="p",
        hooks=EventHooks(lost=lambda _cause: None),
    )
    task = asyncio.create_task(world.recorder.run())
    world.server.gate.clear()
    world.record()
    await world.settle()
    world.record()
    await world.clock.advance(10.0)  # the first write is still under way
    world.server.gate.set()
    await world.clock.advance(9.0)
    world.server.failures = [TooManyRequestsError("slow down", status=429, retry_after=15.0)]
    await world.clock.advance(1.0)  # the count of 2 is refused, and waits 15 s
    world.record()
    await world.clock.advance(10.0)  # the count of 3 is due, but has to wait
    assert patched == []
    await world.clock.advance(20.0)
    assert patched == [2, 3]
    await stop(task)


async def test_writes_that_were_cut_off_are_written_again_in_their_order() -> None:
    """The end of a process in the middle of several writes changes nothing of what is written, nor its order."""
    world = World(EventLimits(writers=4))
    world.server.gate.clear()
    task = asyncio.create_task(world.recorder.run())
    for number in range(6):
        normal(world, "Admitted", name=f"w{number}")
    await world.settle()
    await stop(task)
    assert world.recorder.waiting == 6
    world.server.gate.set()
    await world.recorder.drain()
    assert [body["involvedObject"]["name"] for body in world.server.events.values()] == [f"w{n}" for n in range(6)]


async def test_losses_are_logged_once_a_minute() -> None:
    """A log of a bad hour stays short, and says how many events of which rank were lost."""
    world = World(EventLimits(waiting_max=1, losses_interval=60.0, series_interval=10.0))
    world.server.gate.clear()
    with capture_logs() as logs:
        task = asyncio.create_task(world.recorder.run())
        for moment in range(60):
            normal(world, "Admitted", name=f"w{moment}")
            world.record(regarding=JOB._replace(name=f"w{moment}"))
            await world.clock.advance(1.0)
        assert len([one for one in logs if one["event"] == "events lost"]) == 1
        await world.clock.advance(20.0)
    lines = [one for one in logs if one["event"] == "events lost"]
    assert len(lines) == 2
    assert {line["log_level"] for line in lines} == {"warning"}
    assert sum(line["decisions"] + line["others"] for line in lines) == world.lost["queue-full"] > 100
    assert [line["causes"] for line in lines] == [["queue-full"]] * 2
    await stop(task)


async def test_an_idle_process_keeps_no_memory_of_events() -> None:
    """What was recorded in a busy hour is given back when its windows have passed; a waiting event takes 0.94 kB."""
    clock = FakeClock()
    number = 5_000

    async def write(*_: Any) -> None:
        pass

    recorder = EventRecorder(
        post=write, patch=write, clock=clock, instance="p", hooks=EventHooks(lost=lambda _cause: None)
    )
    note = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 10 more"
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for one in range(number):
            recorder.record(JOB._replace(name=f"w{one}"), [("Pending", note + str(one))], controller="c")
        each = (tracemalloc.get_traced_memory()[0] - before) / number
        task = asyncio.create_task(recorder.run())
        for _ in range(number // 4):
            await asyncio.sleep(0)
        await clock.advance(400.0)
        gc.collect()
        kept = (tracemalloc.get_traced_memory()[0] - before) / number
    finally:
        tracemalloc.stop()
    await stop(task)
    assert recorder.waiting == 0
    assert each < 1_100
    assert kept < 10


async def test_depth_and_age_are_shown_by_rank() -> None:
    """The page says how many events wait, and since when the oldest does."""
    world, metrics = World(), Metrics()
    recorder = world.recorder
    for rank in EventRank:
        depth, age = partial(recorder.depth, rank), partial(recorder.oldest_age, rank)
        metrics.events_waiting(rank.value, depth=depth, oldest_age=age)
    world.record()
    await world.clock.advance(5.0)
    world.record(regarding=JOB._replace(name="other"))
    page = page_of(metrics).decode()
    lines = {line.rsplit(" ", 1)[0].split(",")[0]: line.rsplit(" ", 1)[1] for line in page.splitlines()}
    shown = {name: float(value) for name, value in lines.items() if name.startswith(_GAUGES)}
    assert shown == {
        'kqueue_events_waiting{rank="decisions"': 0,
        'kqueue_events_waiting{rank="others"': 2,
        'kqueue_events_oldest_seconds{rank="decisions"': 0,
        'kqueue_events_oldest_seconds{rank="others"': 5,
    }


# --- admissions under load --------------------------------------------------------------------------------------------


def admitted(world: World, name: str) -> None:
    """Record what a scheduling cycle records of an admission."""
    steps = [("QuotaReserved", "Quota reserved after 3 s"), ("Admitted", "Admitted by q")]
    world.recorder.record(JOB._replace(name=name), steps, controller="c")


BOTH = ("Admitted", "Quota reserved after 3 s; Admitted by q", 1)
PAIR = [("QuotaReserved", "Quota reserved after 3 s", 1), ("Admitted", "Admitted by q", 1)]
PAIR_STEPS = [(reason, note) for reason, note, _ in PAIR]


async def test_one_event_says_what_happened_at_once_while_many_wait() -> None:
    """Two admissions wait behind the first: the last pair is written as two events, because nothing waits any more."""
    world = World(EventLimits(writers=1, join_above=2))
    for name in ("a", "b", "c"):
        admitted(world, name)
    await world.recorder.drain()

    assert written(world) == [BOTH, BOTH, *PAIR]
    assert (world.joined, world.lost) == (2, {})


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([("QuotaReserved", "r")], id="its checks are not ready yet"),
        pytest.param([("Admitted", "a")], id="its checks became ready"),
        pytest.param([("Admitted", "a"), ("QuotaReserved", "r")], id="the other way round"),
        pytest.param([("QuotaReserved", "r"), ("EvictedDueToPreempted", "e")], id="another pair"),
    ],
)
async def test_other_events_stay_as_they_are(steps: list[tuple[str, str]]) -> None:
    world = World(EventLimits(writers=1, join_above=0))
    world.recorder.record(JOB, steps, controller="c")
    await world.recorder.drain()

    assert written(world) == [(reason, note, 1) for reason, note in steps]
    assert world.joined == 0


async def test_events_of_different_moments_or_workloads_are_not_joined() -> None:
    world = World(EventLimits(writers=1, join_above=0))
    world.recorder.record(JOB, PAIR_STEPS[:1], controller="c")
    await world.clock.advance(1)
    world.recorder.record(JOB, PAIR_STEPS[1:], controller="c")
    world.recorder.record(JOB._replace(name="b"), PAIR_STEPS[:1], controller="c")
    world.recorder.record(JOB._replace(name="c"), PAIR_STEPS[1:], controller="c")
    await world.recorder.drain()

    assert written(world) == [*PAIR, *PAIR]


async def test_a_joined_event_is_counted_when_it_comes_again() -> None:
    """The second admission within the window raises the count of the one, and has a new event of the other."""
    world = World(EventLimits(writers=1, join_above=1))
    admitted(world, "train")
    normal(world, "Stopped")
    await world.recorder.drain()
    admitted(world, "train")
    await world.recorder.drain()

    assert written(world) == [(*BOTH[:2], 2), ("Stopped", "why", 1), PAIR[0]]


async def test_a_full_note_of_two_is_cut() -> None:
    world = World(EventLimits(writers=1, join_above=0))
    world.recorder.record(JOB, [("QuotaReserved", "r" * 1000), ("Admitted", "a" * 1000)], controller="c")
    await world.recorder.drain()

    [(_, note, _)] = written(world)
    assert len(note.encode()) <= 1024
    assert note.endswith("…")


async def test_writes_keep_the_pace_while_few_wait() -> None:
    """One each 50 ms; when many wait they are written as fast as the server takes them, and at the end of the process."""
    world = World(EventLimits(writers=1, paced_below=5))
    writing = asyncio.create_task(world.recorder.run())
    world.pause = 0.05
    for name in "abcdefg":
        normal(world, "Admitted", name=name)
    await world.settle()
    assert len(world.server.events) == 3

    await world.clock.advance(0.1)
    assert len(world.server.events) == 5

    await stop(writing)
    await world.recorder.finish(2)
    assert len(world.server.events) == 7
