"""The reflector against every fault that a watch can meet."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kqueue.clock import FakeClock
from kqueue.runtime.client import Client
from kqueue.runtime.reflector import Listed, Pausing, Projection, Reflector, Selection, Watching, WatchSettings
from kqueue.runtime.transport import ClientSettings
from tests.unit.runtime.conftest import QUICK, RESTLESS, Thing, View, eventually, make_reflector, running, view_of
from tests.unit.runtime.conftest import serving as serving_server
from tests.unit.runtime.fake_server import (
    THINGS,
    FakeServer,
    answers,
    bookmark,
    drops,
    event_line,
    hangs,
    html,
    status,
    stream_of,
)

PAGED = WatchSettings(streaming=False, page_size=2, retry_base=0.001, retry_max=0.01)

OpenClient = Callable[..., Client]


def truth(server: FakeServer) -> dict[str, View]:
    """What the store must hold."""
    return {f"ns/{name}": (name, obj["spec"]["n"]) for name, obj in server.objects.items()}


def held(reflector: Reflector[Thing, View]) -> dict[str, View]:
    """What the store holds."""
    return {key: view for key in reflector.store if (view := reflector.store.get(key))}


async def agree(reflector: Reflector[Thing, View], server: FakeServer) -> None:
    """Return when store and server are equal."""
    await eventually(lambda: reflector.synced.is_set() and held(reflector) == truth(server))


@pytest.mark.parametrize("how", [pytest.param(RESTLESS, id="streamed"), pytest.param(PAGED, id="paged")])
async def test_the_store_follows_the_server(client: Client, server: FakeServer, how: WatchSettings) -> None:
    """Initial state, additions, changes and deletions all arrive, and handlers see old and new."""
    for i in range(5):
        server.put(f"t{i}", n=i)
    reflector = make_reflector(client, how)
    seen: list[tuple[View | None, View | None]] = []

    async with running(reflector.run()):
        await agree(reflector, server)
        reflector.subscribe(lambda old, new: seen.append((old, new)))
        seen.clear()
        server.put("t1", n=11)
        server.put("t9", n=9)
        server.remove("t0")
        await agree(reflector, server)

    assert seen == [(("t1", 1), ("t1", 11)), (None, ("t9", 9)), (("t0", 0), None)]
    assert reflector.counters.syncs == 1


async def test_a_server_that_refuses_streaming_is_paged(client: Client, server: FakeServer) -> None:
    """Servers without streamed lists answer 422, once; after that pages are read."""
    server.streaming = False
    for i in range(5):
        server.put(f"t{i}", n=i)
    reflector = make_reflector(client)

    async with running(reflector.run()):
        await agree(reflector, server)
        await eventually(lambda: isinstance(reflector.state, Watching))

    assert [verb for verb, _, _ in server.requests] == ["watch", "list", "list", "list", "watch"]


async def test_a_server_that_never_ends_the_initial_events_is_paged(client: Client, server: FakeServer) -> None:
    """A server that ignores the request for streaming does not keep us waiting for ever."""
    server.put("a", n=1)
    server.fail("watch", *[stream_of(event_line("ADDED", "a", 101, n=1))] * 2)
    reflector = make_reflector(client)

    async with running(reflector.run()):
        await agree(reflector, server)

    assert "list" in [verb for verb, _, _ in server.requests]


async def test_selectors_are_sent_with_lists_and_watches(client: Client, server: FakeServer) -> None:
    """A selection narrows what the server sends, both when listing and when watching."""
    reflector = make_reflector(client, PAGED, selection=Selection(namespace="ns", label_selector="a=b"))

    async with running(reflector.run()):
        await eventually(lambda: isinstance(reflector.state, Watching))

    assert {path for _, path, _ in server.requests} == {"/apis/example.dev/v1/namespaces/ns/things"}
    assert [query["labelSelector"] for _, _, query in server.requests] == ["a=b", "a=b"]


LIST_FAULTS = [
    pytest.param(answers(500, "InternalError"), id="500"),
    pytest.param(html(502), id="html-502"),
    pytest.param(html(200), id="html-200"),
    pytest.param(answers(429, "TooManyRequests", {"Retry-After": "0"}), id="429"),
    pytest.param(answers(410, "Expired"), id="410"),
    pytest.param(answers(401, "Unauthorized"), id="401"),
    pytest.param(answers(403, "Forbidden"), id="403"),
    pytest.param(drops, id="dropped"),
    pytest.param(hangs, id="hung"),
]


@pytest.mark.parametrize("fault", LIST_FAULTS)
async def test_trouble_while_listing_heals(server: FakeServer, open_client: OpenClient, fault: Any) -> None:
    """Whatever happens to a page, also an expired continue token, the list is complete in the end."""
    for i in range(6):
        server.put(f"t{i}", n=i)
    fine = make_reflector(open_client(ClientSettings(call_timeout=0.1, attempts=1)), PAGED)
    server.fail("list", fault, fault)

    async with running(fine.run()):
        await agree(fine, server)


async def test_an_expired_continue_token_begins_the_list_anew(client: Client, server: FakeServer) -> None:
    """When the list's moment was compacted away between two pages, the token is dropped and all is read again."""
    for i in range(6):
        server.put(f"t{i}", n=i)
    reflector = make_reflector(client, PAGED)
    await reflector.step()
    await reflector.step()

    server.remove("t0")
    server.forget()
    async with running(reflector.run()):
        await agree(reflector, server)

    assert reflector.counters.syncs == 2


WATCH_FAULTS = [
    *LIST_FAULTS[:-1],
    pytest.param(stream_of(), id="closed-at-once"),
    pytest.param(stream_of(then="hang"), id="silent"),
    pytest.param(stream_of(b"<html>502</html>\n"), id="html-in-stream"),
    pytest.param(stream_of(b'{"type":"ADDED","object":{"metadata":'), id="truncated-then-closed"),
    pytest.param(stream_of(event_line("ADDED", "x", 102, n=1)[:-9], then="drop"), id="truncated-then-dropped"),
    pytest.param(stream_of(b'{"type":"WHAT","object":{}}\n'), id="unknown-event-type"),
    pytest.param(stream_of(b"[]\n"), id="not-an-event"),
]


@pytest.mark.parametrize("fault", WATCH_FAULTS)
@pytest.mark.parametrize("how", [pytest.param(RESTLESS, id="streamed"), pytest.param(PAGED, id="paged")])
async def test_trouble_while_watching_heals(
    server: FakeServer, open_client: OpenClient, fault: Any, how: WatchSettings
) -> None:
    """The watch goes on after any trouble, and what happened meanwhile is not lost, deletions included."""
    server.put("a", n=1)
    server.put("b", n=1)
    settings_ = ClientSettings(call_timeout=2, attempts=1, watch_read_timeout=0.1)
    reflector = make_reflector(open_client(settings_), how)

    async with running(reflector.run()):
        await agree(reflector, server)
        server.fail("watch", fault, fault)
        server.cut_watches()
        server.remove("a")
        server.put("b", n=2)
        server.put("c", n=3)
        await agree(reflector, server)


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_trouble_while_streaming_the_initial_state_heals(
    server: FakeServer, open_client: OpenClient, fault: Any
) -> None:
    """An initial stream that breaks off is begun again."""
    server.put("a", n=1)
    server.fail("watch", fault)
    reflector = make_reflector(open_client(ClientSettings(call_timeout=2, attempts=1, watch_read_timeout=0.1)))

    async with running(reflector.run()):
        await agree(reflector, server)


@pytest.mark.parametrize("how", [pytest.param(RESTLESS, id="streamed"), pytest.param(PAGED, id="paged")])
@pytest.mark.parametrize(
    "gone",
    [
        pytest.param(answers(410, "Expired"), id="as-an-answer"),
        pytest.param(None, id="in-the-stream"),
    ],
)
@pytest.mark.mechanism("3.15")
async def test_after_410_missed_deletions_are_delivered(
    client: Client, server: FakeServer, how: WatchSettings, gone: Any
) -> None:
    """When the history is lost the new list is compared with the store, and handlers hear of what went."""
    for name in "abc":
        server.put(name, n=1)
    reflector = make_reflector(client, how)
    seen: list[tuple[View | None, View | None]] = []

    async with running(reflector.run()):
        await agree(reflector, server)
        reflector.subscribe(lambda old, new: seen.append((old, new)))
        seen.clear()
        if gone:
            server.fail("watch", gone)
        server.cut_watches()
        server.remove("b")
        server.put("d", n=4)
        server.forget()
        await agree(reflector, server)
        await eventually(lambda: reflector.counters.syncs == 2)

    assert seen == [(None, ("d", 4)), (("b", 1), None)]


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([answers(504, "Timeout", message="Too large resource version: 102, current: 51")], id="refusing"),
        pytest.param([stream_of(then="hang")], id="silent"),
        pytest.param([drops, hangs], id="away-for-a-while"),
    ],
)
async def test_a_server_restored_from_a_backup_is_believed(
    server: FakeServer, open_client: OpenClient, faults: list[Any]
) -> None:
    """Versions that went back are taken over, even where an object's version happens to be equal."""
    server.put("a", n=1)
    server.put("b", n=1)
    reflector = make_reflector(open_client(ClientSettings(attempts=1, watch_read_timeout=0.1)))

    async with running(reflector.run()):
        await agree(reflector, server)
        server.version = 50
        server.history.clear()
        server.objects.clear()
        server.put("b", n=7)
        server.objects["a"] = {"metadata": {"name": "a", "namespace": "ns", "resourceVersion": "101"}, "spec": {"n": 5}}
        server.fail("watch", *faults)
        server.cut_watches()
        await agree(reflector, server)


@pytest.mark.parametrize(
    ("lines", "want"),
    [
        pytest.param(
            [("MODIFIED", 105, 5), ("MODIFIED", 104, 4), ("MODIFIED", 105, 5)], ("a", 5), id="older-after-newer"
        ),
        pytest.param([("DELETED", 106, 5), ("MODIFIED", 105, 5)], None, id="older-after-its-deletion"),
        pytest.param([("DELETED", 106, 5), ("ADDED", 107, 7), ("DELETED", 106, 5)], ("a", 7), id="old-deletion-again"),
        pytest.param([("DELETED", 101, 1)], None, id="deletion-with-the-last-version"),
        pytest.param([("MODIFIED", 99, 9)], ("a", 1), id="versions-compare-as-numbers"),
    ],
)
@pytest.mark.parametrize("initial", [pytest.param(True, id="initial"), pytest.param(False, id="later")])
async def test_old_events_change_nothing(
    client: Client, server: FakeServer, lines: list[tuple[str, int, int]], want: View | None, initial: bool
) -> None:
    """Duplicated and reordered events cannot take the store back in time, neither the initial ones nor later ones."""
    server.put("a", n=1)
    events = [event_line(kind, "a", version, n=n) for kind, version, n in lines]
    end = bookmark(101, end=True)
    server.fail("watch", stream_of(
        event_line("ADDED", "a", 101, n=1), *([*events, end] if initial else [end, *events]),
        event_line("ADDED", "end", 200, n=0), then="hang"))  # fmt: skip
    reflector = make_reflector(client)

    async with running(reflector.run()):
        await eventually(lambda: "ns/end" in reflector.store)

    assert reflector.store.get("ns/a") == want


async def test_bookmarks_move_the_version_to_resume_at(client: Client, server: FakeServer) -> None:
    """After a quiet time the watch resumes at the bookmark, not at the last event."""
    server.put("a", n=1)
    server.fail("watch", stream_of(bookmark(101, end=True), bookmark(140)))
    server.version = 140
    reflector = make_reflector(client)

    async with running(reflector.run()):
        await eventually(lambda: len(server.requests) == 2)

    assert server.requests[1][2]["resourceVersion"] == "140"
    assert reflector.counters.syncs == 1


async def test_big_events_pass(client: Client, server: FakeServer) -> None:
    """An event far larger than any read buffer arrives whole."""
    reflector = make_reflector(client)

    async with running(reflector.run()):
        await agree(reflector, server)
        obj = server.put("a", n=1)
        obj["metadata"]["annotations"] = {"big": "x" * (6 << 20)}
        server.put("b", n=2)
        await agree(reflector, server)

    assert reflector.counters.failures == 0


@pytest.mark.parametrize("how", [pytest.param(RESTLESS, id="streamed"), pytest.param(PAGED, id="paged")])
async def test_one_unreadable_object_does_not_stop_the_others(
    client: Client, server: FakeServer, how: WatchSettings
) -> None:
    """A broken object keeps its last readable state, is named with the reason, and heals."""
    server.put("a", n=1)
    server.put("broken", n="one")
    reflector = make_reflector(client, how)

    async with running(reflector.run()):
        await eventually(reflector.synced.is_set)
        first = held(reflector)
        server.put("a", n=[])  # of a shape that does not decode
        server.put("b", n=2)
        await eventually(lambda: "ns/b" in reflector.store and "ns/a" in reflector.unreadable)
        kept = reflector.store.get("ns/a")
        server.put("a")  # decodes, but the view raises
        await eventually(lambda: "'n'" in reflector.unreadable["ns/a"])
        server.put("a", n=3)
        server.put("broken", n=4)
        await agree(reflector, server)

    assert first == {"ns/a": ("a", 1)}
    assert kept == ("a", 1)
    assert reflector.unreadable == {}


async def test_a_handler_that_raises_stops_nobody(client: Client, server: FakeServer) -> None:
    """A bug in one handler is logged; the store and the other handlers go on."""
    reflector = make_reflector(client)
    seen: list[View | None] = []
    with structlog.testing.capture_logs() as logs:
        reflector.subscribe(lambda old, new: 1 / 0)  # type: ignore[arg-type]
        reflector.subscribe(lambda old, new: seen.append(new))
        async with running(reflector.run()):
            server.put("a", n=1)
            await agree(reflector, server)

    assert seen == [("a", 1)]
    assert [log["event"] for log in logs if log["log_level"] == "error"] == ["store handler failed"]


async def test_a_forbidden_watch_is_loud(server: FakeServer, open_client: OpenClient) -> None:
    """403 is an error in the log with the remedy; other interruptions are warnings."""
    server.fail("watch", answers(403, "Forbidden"), answers(500, "InternalError"))
    reflector = make_reflector(open_client(ClientSettings(attempts=1)))

    with structlog.testing.capture_logs() as logs:
        async with running(reflector.run()):
            await agree(reflector, server)

    levels = [(log["log_level"], log["event"]) for log in logs[:2]]
    assert levels == [
        ("error", "watch is forbidden, grant list and watch on the resource"),
        ("warning", "watch interrupted"),
    ]


async def test_a_server_that_closes_at_once_is_not_stormed(client: Client, server: FakeServer) -> None:
    """Watches that end without bringing anything are reopened ever more slowly, up to the cap."""
    clock = FakeClock()
    server.fail("watch", stream_of(bookmark(100, end=True)), *[stream_of()] * 60)
    reflector = Reflector(client, THINGS, Projection(Thing, view_of), clock=clock, chance=random.Random(3),
                          settings=WatchSettings(retry_base=0.5, retry_max=30))  # fmt: skip
    pauses: list[float] = []

    for _ in range(40):
        before = reflector.state
        step = asyncio.ensure_future(reflector.step())
        if isinstance(before, Pausing):
            pauses.append(before.seconds)
            await asyncio.sleep(0)
            await clock.advance(31)
        await step

    assert pauses[0] < 0.5
    assert all(15 <= pause <= 30 for pause in pauses[8:])


async def test_a_kind_that_is_not_served_is_looked_for_until_it_is(client: Client, server: FakeServer) -> None:
    """Nobody waits for it: it is settled with the first answer, and looked for after one second, two ... two minutes."""
    clock = FakeClock()
    server.put("a", n=1)
    server.fail("watch", *[answers(404, "NotFound")] * 12)
    reflector = Reflector(client, THINGS, Projection(Thing, view_of), clock=clock, chance=random.Random(3),
                          settings=WatchSettings(optional=True))  # fmt: skip
    pauses: list[float] = []

    while not reflector.synced.is_set():
        before = reflector.state
        step = asyncio.ensure_future(reflector.step())
        if isinstance(before, Pausing):
            assert (reflector.settled.is_set(), reflector.missing) == (True, True)
            pauses.append(before.seconds)
            await asyncio.sleep(0)
            await clock.advance(121)
        await step
    reflector._close_stream()

    assert len(pauses) == 12
    assert 0.5 <= pauses[0] <= 1
    assert all(60 <= pause <= 120 for pause in pauses[8:])
    assert (held(reflector), reflector.missing, reflector.counters.failures) == ({"ns/a": ("a", 1)}, False, 0)


async def test_a_kind_that_must_be_served_is_a_failure_while_it_is_not(client: Client, server: FakeServer) -> None:
    """It is asked for at the usual pace, and nothing is settled."""
    server.fail("watch", answers(404, "NotFound"))
    reflector = make_reflector(client)

    await reflector.step()

    assert (reflector.settled.is_set(), reflector.missing, reflector.counters.failures) == (False, False, 1)


async def test_retry_after_stretches_the_pause(client: Client, server: FakeServer) -> None:
    """The pause after a 429 is never shorter than what the server asked for."""
    server.fail("watch", answers(429, "TooManyRequests", {"Retry-After": "7"}))
    reflector = make_reflector(client)

    await reflector.step()

    assert isinstance(reflector.state, Pausing)
    assert 7 < reflector.state.seconds < 7.1


async def test_a_watch_that_lived_long_resumes_soon(client: Client, server: FakeServer) -> None:
    """The regular end of a healthy watch is no failure, however often the server had failed before."""
    clock = FakeClock()
    reflector = Reflector(client, THINGS, Projection(Thing, view_of), clock=clock,
                          settings=WatchSettings(retry_base=0.5, retry_max=30, streaming=False))  # fmt: skip
    await reflector.step()
    await reflector.step()
    for _ in range(5):
        reflector._backoff.next()
    server.fail("watch", stream_of())
    states: list[object] = [reflector.state]
    await reflector.step()
    states.append(reflector.state)
    await clock.advance(400)

    await reflector.step()

    assert list(map(type, states)) == [Listed, Watching]
    assert isinstance(reflector.state, Pausing)
    assert reflector.state.seconds <= 0.5


async def test_age_tells_how_long_the_server_was_silent(client: Client, server: FakeServer) -> None:
    """Infinite before the first contact; it grows while nothing comes, and every event resets it."""
    clock = FakeClock()
    reflector = Reflector(client, THINGS, Projection(Thing, view_of), clock=clock, settings=PAGED)
    before = reflector.age()

    for _ in range(3):
        await reflector.step()
    await clock.advance(50)
    silent = reflector.age()
    server.put("a", n=1)
    await reflector.step()
    reflector._close_stream()

    assert before == math.inf
    assert silent == 50
    assert reflector.age() == 0


async def test_the_loop_gets_its_turns(client: Client) -> None:
    """Taking in thousands of objects does not hold the event loop for long."""
    reflector = make_reflector(client, WatchSettings())
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    lines = [event_line("ADDED", f"t{i}", 101 + i, n=i) for i in range(5000)]
    async with running(count()):
        await reflector._handle(lines, set())

    assert turns >= 5000 // 200 - 1


async def test_the_watch_survives_its_own_bugs(
    client: Client, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even an unexpected exception leads to a new sync, not to a store that is never updated again."""
    server.put("a", n=1)
    failing = iter([True, False])
    reflector = make_reflector(client)
    finish_sync = reflector._finish_sync

    async def explode(version: str, seen: set[Any]) -> None:
        await finish_sync(version, seen)
        if next(failing):
            raise RuntimeError("bug")

    monkeypatch.setattr(reflector, "_finish_sync", explode)

    async with running(reflector.run()):
        await eventually(lambda: reflector.counters.syncs == 2 and isinstance(reflector.state, Watching))

    assert held(reflector) == truth(server)


# --- the law: whatever happened, the store ends equal to the server

_STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("abcdef"), st.integers(0, 9)),
    st.tuples(st.just("remove"), st.sampled_from("abcdef")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("settle")),
    st.tuples(st.just("watch"), st.sampled_from(["500", "html", "drop", "410", "garbage", "close", "truncate"])),
    st.tuples(st.just("list"), st.sampled_from(["500", "html", "drop", "410"])),
)
_FAULTS = {
    "500": answers(500, "InternalError"),
    "html": html(502),
    "drop": drops,
    "410": answers(410, "Expired"),
    "garbage": stream_of(b"<html>\n"),
    "close": stream_of(),
    "truncate": stream_of(b'{"type":"ADDED","obj', then="drop"),
}


def _play(server: FakeServer, step: tuple[Any, ...]) -> None:
    match step:
        case ("put", name, n):
            server.put(name, n=n)
        case ("remove", name):
            if name in server.objects:
                server.remove(name)
        case ("cut",):
            server.cut_watches()
        case ("forget",):
            server.forget()
            server.cut_watches()
        case (verb, fault):
            server.fail(verb, _FAULTS[fault])
            server.cut_watches()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(_STEPS, max_size=25), streaming=st.booleans(), seed=st.integers(0, 99))
@pytest.mark.mechanism("3.15")
def test_the_store_equals_the_server_after_any_history(
    steps: list[tuple[Any, ...]], streaming: bool, seed: int
) -> None:
    """Any mix of changes, faults, duplicated and reordered events ends with store and handlers true to the server."""

    async def history() -> None:
        chance = random.Random(seed)

        def mangle(lines: list[bytes]) -> list[bytes]:
            """Duplicate some and swap neighbours, but never move an event past the end of the initial ones."""
            ends = [i for i, line in enumerate(lines) if b"initial-events-end" in line]
            body, tail = (lines[: ends[0]], lines[ends[0] :]) if ends else (lines, [])
            doubled = [line for line in body for _ in range(chance.choice((1, 1, 2)))]
            for i in range(len(doubled) - 1):
                if chance.random() < 0.3:
                    doubled[i], doubled[i + 1] = doubled[i + 1], doubled[i]
            return doubled + tail

        async with (
            serving_server(FakeServer(mangle=mangle, streaming=streaming)) as server,
            Client(server.url, settings=QUICK) as client,
        ):
            reflector = make_reflector(client)
            mirror: dict[str, int] = {}
            reflector.subscribe(lambda old, new: _mirror(mirror, old, new))
            async with running(reflector.run()):
                for step in steps:
                    if step == ("settle",):
                        await agree(reflector, server)
                    else:
                        _play(server, step)
                        await asyncio.sleep(0.001 if chance.random() < 0.5 else 0)
                await agree(reflector, server)
            assert {f"ns/{name}": (name, n) for name, n in mirror.items()} == truth(server)

    asyncio.run(history())


def _mirror(mirror: dict[str, int], old: View | None, new: View | None) -> None:
    """What a cache that lives on the handlers does; it insists that `old` is what it was told before."""
    if old is not None:
        assert mirror.pop(old[0]) == old[1]
    if new is not None:
        mirror[new[0]] = new[1]


# --- before acting on it


@pytest.mark.parametrize("how", [pytest.param(RESTLESS, id="streamed"), pytest.param(PAGED, id="paged")])
async def test_a_watch_whose_connection_is_dead_catches_up(
    open_client: OpenClient, server: FakeServer, how: WatchSettings
) -> None:
    """It looks alive and brings nothing; who asks for all that was written gets it, and no list is read for it."""
    server.put("a", n=1)
    reflector = make_reflector(open_client(replace(QUICK, watch_read_timeout=60)), how)
    async with running(reflector.run()):
        await agree(reflector, server)
        await eventually(lambda: isinstance(reflector.state, Watching))
        server.mute()
        server.put("a", n=2)
        server.put("b", n=1)
        server.remove("a")
        await asyncio.sleep(0.05)
        assert held(reflector) == {"ns/a": ("a", 1)}

        await asyncio.wait_for(reflector.catch_up(quiet=0.05), 20)

        assert held(reflector) == truth(server)
    assert reflector.counters.syncs == 1
    assert reflector.counters.failures == 0


async def test_a_pause_after_failures_is_cut_short(server: FakeServer, open_client: OpenClient) -> None:
    """The server is back, and the next attempt would come in an hour."""
    server.put("a", n=1)
    reflector = make_reflector(open_client(QUICK), WatchSettings(retry_base=3600, retry_max=3600))
    async with running(reflector.run()):
        await agree(reflector, server)
        server.cut_watches()
        await eventually(lambda: isinstance(reflector.state, Pausing))
        server.put("a", n=2)

        await asyncio.wait_for(reflector.catch_up(quiet=0.05), 20)

        assert held(reflector) == truth(server)


def test_a_status_of_the_fake_reads_like_a_real_one() -> None:
    """The fake's failures carry what the client reads of a real server's."""
    assert json.dumps(status(410, "Expired"))[:19] == '{"kind": "Status", '
