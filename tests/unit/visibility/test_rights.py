"""What the API server says about users is remembered for seconds, and never made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from kqueue.clock import FakeClock, SystemClock
from kqueue.errors import ApiError, TooManyRequestsError
from kqueue.runtime.client import Client
from kqueue.runtime.transport import ClientSettings
from kqueue.visibility.front_proxy import User
from kqueue.visibility.remembered import Remembered
from kqueue.visibility.rights import Action, Reading, Rights

ALICE = User(name="alice", uid="u", groups=("devs",), extra=(("team", ("x",)),))
SEE = Action(verb="get", group="g", version="v1", resource="things", subresource="told", namespace="a", name="b")


class Server:
    """An API server that only reviews."""

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"allowed": True}
        self.code = 201
        self.allows: Callable[[dict[str, Any]], bool] | None = None
        self.asked: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def answer(self, request: web.BaseRequest) -> web.Response:
        body = await request.json()
        self.asked.append({"path": request.path, **body["spec"]})
        await self.gate.wait()
        if self.allows is not None:
            self.status = {"allowed": self.allows(body["spec"])}
        return web.json_response({**body, "status": self.status, "code": self.code}, status=self.code)


@asynccontextmanager
async def rights(clock: Any = None) -> AsyncIterator[tuple[Rights, Server]]:
    fake = Server()
    async with (
        RawTestServer(fake.answer) as server,
        Client(f"http://{server.host}:{server.port}", settings=ClientSettings(attempts=1)) as client,
    ):
        yield Rights(client, clock=clock or FakeClock()), fake


async def test_the_review_says_all_of_user_and_action() -> None:
    """What is left out would be decided for somebody else."""
    async with rights() as (found, server):
        await found.may(ALICE, SEE)
        await found.may(User(name="bob"), Action(verb="get", path="/apis"))

    attributes = {
        "verb": "get", "group": "g", "version": "v1", "resource": "things", "subresource": "told", "namespace": "a",
        "name": "b",
    }  # fmt: skip
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    assert server.asked == [
        {"path": path, "user": "alice", "uid": "u", "groups": ["devs"], "extra": {"team": ["x"]},
         "resourceAttributes": attributes},
        {"path": path, "user": "bob", "groups": [], "nonResourceAttributes": {"verb": "get", "path": "/apis"}},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "allowed", "kept"),
    [
        pytest.param({"allowed": True}, True, 10, id="granted"),
        pytest.param({"allowed": False, "reason": "no role"}, False, 5, id="denied"),
        pytest.param({}, False, 5, id="silent"),
        pytest.param({"allowed": "true"}, False, 5, id="in-another-type"),
        pytest.param({"allowed": True, "denied": True}, False, 5, id="both"),
    ],
)
async def test_decisions_count_for_seconds(status: dict[str, Any], allowed: bool, kept: float) -> None:
    """Ten for a yes, five for a no; whatever is no clear yes is a no."""
    clock = FakeClock()
    async with rights(clock) as (found, server):
        server.status = status
        decisions = [await found.may(ALICE, SEE) for _ in range(3)]
        await clock.advance(kept - 0.1)
        await found.may(ALICE, SEE)
        before = len(server.asked)
        await clock.advance(0.2)
        await found.may(ALICE, SEE)

    assert [decision.allowed for decision in decisions] == [allowed] * 3
    assert (before, len(server.asked)) == (1, 2)


async def test_a_decision_is_for_one_user_and_one_action() -> None:
    """Another group, another name, another namespace: another question."""
    others = [
        (User(name="alice", uid="u", groups=("ops",), extra=ALICE.extra), SEE),
        (User(name="alice", uid="u", groups=("devs",)), SEE),
        (ALICE, Action(verb="get", group="g", version="v1", resource="things", subresource="told", namespace="b", name="b")),
        (ALICE, Action(verb="get", group="g", version="v1", resource="things", subresource="told", namespace="a", name="c")),
    ]  # fmt: skip
    async with rights() as (found, server):
        await found.may(ALICE, SEE)
        for user, action in others:
            await found.may(user, action)

    assert len(server.asked) == 5


async def test_without_an_answer_nothing_is_allowed_and_nothing_is_remembered() -> None:
    """The failure is raised; what others may read counts as hidden; the next question is asked again."""
    async with rights() as (found, server):
        server.code = 500
        with pytest.raises(ApiError):
            await found.may(ALICE, SEE)
        hidden = await found.may_read_workloads(ALICE, "a")
        server.code = 201
        shown = await found.may_read_workloads(ALICE, "a")

    assert (hidden, shown) == (False, True)
    assert server.asked[-1]["resourceAttributes"]["resource"] == "workloads"
    assert server.asked[-1]["resourceAttributes"]["group"] == "kueue.x-k8s.io"


@pytest.mark.parametrize(
    ("allowed", "seen", "asked"),
    [
        pytest.param({""}, [True] * 5, 1, id="who-may-read-all-is-asked-about-once"),
        pytest.param({"n1", "n4"}, [False, True, False, False, False], 4, id="beyond-the-limit-all-is-hidden"),
        pytest.param(set(), [False] * 5, 4, id="nobody"),
    ],
)
async def test_one_question_asks_about_few_namespaces(allowed: set[str], seen: list[bool], asked: int) -> None:
    """Three here, and once about all; the same one again costs nothing."""
    async with rights() as (found, server):
        server.allows = lambda spec: spec["resourceAttributes"].get("namespace", "") in allowed
        reading = Reading(found, ALICE, most=3)
        told = [await reading(f"n{number}") for number in range(5)]
        again = [await reading(f"n{number}") for number in range(5)]

    assert told == again == seen
    assert len(server.asked) == asked


async def test_tokens_are_reviewed_and_remembered() -> None:
    """Whose a token is, is asked once; one that is nobody's, too."""
    async with rights() as (found, server):
        server.status = {"authenticated": True, "user": {"username": "sa", "uid": "1", "groups": ["g"]}}
        known = [await found.user_of("secret") for _ in range(2)]
        server.status = {"authenticated": False, "error": "expired"}
        unknown = [await found.user_of("junk") for _ in range(2)]
        odd = [await found.user_of(token) for token in ("", "ü", "x" * 9000)]

    assert known == [User(name="sa", uid="1", groups=("g", "system:authenticated"))] * 2
    assert unknown + odd == [None] * 5
    assert [each["token"] for each in server.asked] == ["secret", "junk"]


async def test_a_flood_of_junk_tokens_asks_little() -> None:
    """Eight are looked at at once, the others are put off."""
    async with rights(SystemClock()) as (found, server):
        server.gate.clear()
        server.status = {"authenticated": False}
        flood = [asyncio.create_task(found.user_of(f"junk-{number}")) for number in range(50)]
        async with asyncio.timeout(10):
            while sum(task.done() for task in flood) < 42:
                await asyncio.sleep(0.01)
        server.gate.set()
        outcomes = await asyncio.gather(*flood, return_exceptions=True)

    assert sum(isinstance(outcome, TooManyRequestsError) for outcome in outcomes) == 42
    assert len(server.asked) == 8


# --- remembered


async def test_the_same_question_at_once_is_asked_once() -> None:
    """All who ask meanwhile get the one answer, also when the first of them goes away."""
    asked = 0
    free = asyncio.Event()

    async def ask() -> str:
        nonlocal asked
        asked += 1
        await free.wait()
        return "yes"

    kept = Remembered[str, str](FakeClock(), seconds=lambda _: 1.0, most=10)
    first, *others = [asyncio.create_task(kept.get("k", ask)) for _ in range(5)]
    await asyncio.sleep(0)
    first.cancel()
    free.set()

    assert await asyncio.gather(*others) == ["yes"] * 4
    assert asked == 1


async def test_no_more_is_kept_than_agreed() -> None:
    """The oldest is forgotten for the newest."""

    async def ask() -> str:
        return "yes"

    kept = Remembered[int, str](FakeClock(), seconds=lambda _: 1000.0, most=3)
    for number in range(100):
        await kept.get(number, ask)

    assert len(kept) == 3


async def test_a_failure_reaches_all_who_wait_and_the_next_one_asks_again() -> None:
    """Nothing of it is kept."""
    outcomes: list[Exception | str] = [RuntimeError("away"), "yes"]

    async def ask() -> str:
        await asyncio.sleep(0)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    kept = Remembered[str, str](FakeClock(), seconds=lambda _: 1.0, most=3)
    both = await asyncio.gather(kept.get("k", ask), kept.get("k", ask), return_exceptions=True)

    assert [str(each) for each in both] == ["away", "away"]
    assert await kept.get("k", ask) == "yes"
