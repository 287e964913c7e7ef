"""The server for many people: each sees what its own token may see, and nothing of others by any route."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import aiohttp
import pytest

from kqueue.clock import SystemClock
from kqueue.page.asker_page import AskerLimits
from kqueue.page.sessions import SessionLimits
from kqueue.page.shared_server import COOKIE, SharedLimits
from tests.unit.page.shared import LIMIT, QUIET, SAME, Browser, Shared, next_event, numbers, sharing, slow

PRIVATE = ["/", "/api/events?feed=queues", "/api/explanations/ann/job", "/api/session", "/other"]


async def test_everybody_sees_with_the_own_token() -> None:
    """Two people at once, on the same routes; the server's own account reviews tokens and does nothing else."""
    async with sharing() as shared:
        ann, bob = await shared.signed_in("token-of-ann"), await shared.signed_in("token-of-bob")

        assert "<title>kqueue</title>" in (await ann.get("/"))[1]
        assert json.loads((await bob.get("/api/session"))[1]) == {"user": "bob", "signsOut": True}
        assert (await ann.get("/api/explanations/ann/job"))[0] == 200
        assert (await bob.get("/api/explanations/ann/job"))[0] == 403
        async with ann.events("queues", "map/dc") as hers, bob.events("queues", "map/dc") as his:
            seen = [dict([await next_event(each), await next_event(each)]) for each in (hers, his)]
        assert [json.loads(each["queues"]) for each in seen] == [{"seen by": "ann"}, {"seen by": "bob"}]
        assert json.loads(seen[0]["map/dc"]) == {"seen by": "ann"}
        assert json.loads(seen[1]["map/dc"]) == {"error": 'User "bob" cannot get', "reason": "Forbidden"}
        assert set(shared.api.own) == {("create", "TokenReview")}


async def test_an_answer_to_one_user_is_never_kept_for_another() -> None:
    """A feed that one user reads already is asked for anew with the token of the next one, who waits as long."""
    async with sharing() as shared:
        ann, bob = await shared.signed_in("token-of-ann"), await shared.signed_in("token-of-bob")
        async with ann.events("queues") as hers:
            await next_event(hers)
            assert ("token-of-bob", "queues") not in shared.api.asked
            async with bob.events("queues") as his:
                assert json.loads((await next_event(his))[1]) == {"seen by": "bob"}
        assert shared.api.asked.count(("token-of-bob", "queues")) == 1


async def test_browsers_with_one_token_share_its_questions() -> None:
    """A wall of screens costs as much as one; a second token of the same user is another asker."""
    async with sharing() as shared:
        walls = [await shared.signed_in("token-of-ann") for _ in range(3)]
        async with (
            walls[0].events("queues") as one,
            walls[1].events("queues") as two,
            walls[2].events("queues") as three,
        ):
            for each in (one, two, three):
                await next_event(each)
            assert shared.api.asked == [("token-of-ann", "queues")]
            other = await shared.signed_in("second-token-of-ann")
            async with other.events("queues") as answer:
                await next_event(answer)
            assert shared.api.asked[1:] == [("second-token-of-ann", "queues")]


@pytest.mark.parametrize("path", PRIVATE)
async def test_nothing_is_served_without_a_session(path: str) -> None:
    """The way to the form, or a refusal; nothing is asked."""
    async with sharing() as shared:
        for cookie in ("", "forged", "x" * 4000, "token-of-ann"):
            browser = shared.browser()
            browser.cookie = cookie
            assert await browser.get(path) in [(303, "/sign-in"), (401, "kqueue dashboard: sign in at /sign-in\n")]
        assert shared.api.asked == []
        assert shared.api.own == []


async def test_the_form_and_its_looks_are_for_all() -> None:
    """They have nothing of the cluster.  The form may be sent to this server alone."""
    async with sharing() as shared:
        browser = shared.browser()
        async with browser.http.get("/sign-in") as answer:
            assert answer.status == 200
            assert 'action="/sign-in"' in await answer.text()
            assert "form-action 'self'" in answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert (await browser.get("/static/style.css"))[0] == 200


async def test_the_cookie_is_for_this_server_and_for_no_script() -> None:
    """It names nothing, and is another one after each sign-in; the former session is over."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        first = ann.cookie
        form = {"token": "token-of-ann"}
        async with ann.http.post("/sign-in", data=form, headers=ann.headers(SAME), allow_redirects=False) as answer:
            said = answer.headers["Set-Cookie"]
        assert all(part in said for part in ("__Host-", "HttpOnly", "Secure", "SameSite=Strict", "Path=/"))
        assert "Domain" not in said
        assert "token-of-ann" not in said
        assert first not in said
        assert (await ann.get("/api/session"))[0] == 401


SENDERS = [
    ({"Sec-Fetch-Site": "cross-site"}, "another site"),
    ({"Sec-Fetch-Site": "same-site"}, "a neighbour"),
    ({"Sec-Fetch-Site": "", "Origin": "https://evil.example"}, "an origin"),
]


@pytest.mark.parametrize("headers", [case[0] for case in SENDERS], ids=[case[1] for case in SENDERS])
async def test_other_sites_change_nothing(headers: dict[str, str]) -> None:
    """They can neither sign a user in with a token of theirs nor sign a user out."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        for path in ("/sign-in", "/sign-out", "/api/explanations/ann/job"):
            async with ann.http.post(path, data={"token": "token-of-bob"}, headers=ann.headers(headers)) as answer:
                assert answer.status == 403
        assert (await ann.get("/api/session"))[0] == 200


async def test_a_question_with_a_body_is_asked_for_its_own_user() -> None:
    """Only from the page itself, with a session, and as JSON, which no form of another site can send."""
    async with sharing() as shared:
        ann, stranger = await shared.signed_in("token-of-ann"), shared.browser()
        found = []
        for browser, headers, kind in (
            (ann, SAME, "application/json"),
            (ann, {"Sec-Fetch-Site": "cross-site"}, "application/json"),
            (ann, SAME, "text/plain"),
            (stranger, SAME, "application/json"),
            (stranger, {**SAME, "Authorization": "Bearer token-of-bob"}, "application/json"),
        ):
            given = browser.headers({**headers, "Content-Type": kind})
            async with browser.http.post("/api/whatifs", data=b'{"drain": "a"}', headers=given) as answer:
                found.append((answer.status, await answer.json() if answer.status == 200 else None))

        assert found == [
            (200, {"asked by": "ann", "drain": "a"}),
            (403, None),
            (405, None),
            (401, None),
            (200, {"asked by": "bob", "drain": "a"}),
        ]
        assert [token for token, _ in shared.api.asked] == ["token-of-ann", "token-of-bob"]


async def test_other_methods_are_refused() -> None:
    """Also from the page itself."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        for method in ("PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"):
            async with ann.http.request(method, "/api/session", headers=ann.headers(SAME)) as answer:
                assert answer.status == 405
        async with ann.http.post("/api/session", headers=ann.headers(SAME)) as answer:
            assert answer.status == 405


async def test_a_stolen_cookie_is_worth_nothing_after_sign_out() -> None:
    """The stream that was open with it ends, the token is forgotten, the client closed."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        thief = shared.browser()
        thief.cookie = ann.cookie
        async with thief.events("queues") as answer:
            await next_event(answer)
            assert await ann.sign_out() == 200
            assert await next_event(answer) == ("", "")
        assert (await thief.get("/api/session"))[0] == 401
        assert shared.api.closed == ["token-of-ann"]
        assert shared.server.sessions == 0
        assert await thief.sign_out() == 200


REFUSED = [
    ("nobodys-token", 401, "unknown, expired, or of another audience"),
    ("", 400, "empty"),
    ("token-of-ann\nX-Remote-User: admin", 400, "with a line break"),
    ("x" * 9000, 400, "too long"),
    ("x" * 20_000, 400, "longer than the form may be"),
]


@pytest.mark.parametrize(("token", "status"), [case[:2] for case in REFUSED], ids=[case[2] for case in REFUSED])
async def test_a_token_that_is_not_good_begins_no_session(token: str, status: int) -> None:
    """By the form and by the header; the answer does not repeat it."""
    async with sharing() as shared:
        browser = shared.browser()
        assert await browser.sign_in(token) == status
        async with browser.http.post("/sign-in", data={"token": token}, headers=SAME) as answer:
            assert not token or token not in await answer.text()
        if len(token) < 9000 and "\n" not in token:
            assert (await browser.get("/api/session", Authorization=f"Bearer {token}"))[0] == 401
        assert (browser.cookie, shared.server.sessions) == ("", 0)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"token=token-of-ann", "text/plain"),
        (b'{"token": "token-of-ann"}', "application/json"),
        (b"token=%ff%fe", "application/x-www-form-urlencoded"),
        (b"\xff\xfe", "application/x-www-form-urlencoded"),
        (b"&".join(b"a=b" for _ in range(1000)), "application/x-www-form-urlencoded"),
    ],
    ids=["text", "JSON", "no UTF-8", "no ASCII", "many fields"],
)
async def test_other_bodies_are_no_form(body: bytes, kind: str) -> None:
    """Nothing of them reaches the API server."""
    async with sharing() as shared:
        async with shared.browser().http.post("/sign-in", data=body, headers={**SAME, "Content-Type": kind}) as answer:
            assert answer.status == 400
        assert shared.api.own == []


async def test_requests_with_too_much_are_cut() -> None:
    """Headers and bodies beyond the limits; the server goes on."""
    async with sharing() as shared:
        browser = shared.browser()
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await browser.sign_in("x" * 1_000_000)
        headers = {f"X-{number}": "y" * 7000 for number in range(40)}
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await browser.get("/sign-in", **headers)
        assert (await browser.get("/sign-in"))[0] == 200


async def test_failed_attempts_are_slowed_down() -> None:
    """By the form and by the header; who is signed in notices nothing."""
    async with sharing() as shared:
        ann, stranger = await shared.signed_in("token-of-ann"), shared.browser()
        reviews = len(shared.api.own)
        found = [await stranger.sign_in(f"guess-{number}") for number in range(6)]
        found += [(await stranger.get("/", Authorization=f"Bearer g-{number}"))[0] for number in range(6)]

        assert found == [401] * 10 + [429] * 2
        assert len(shared.api.own) == reviews + 10
        assert await stranger.sign_in("guess") == 429
        assert (await ann.get("/api/session"))[0] == 200
        await shared.clock.advance(5)
        assert await stranger.sign_in("guess") == 401


async def test_a_proxy_in_front_brings_the_token() -> None:
    """No form and no cookie; another token on the same connection is another user."""
    async with sharing() as shared:
        browser = shared.browser()
        for name in ("ann", "bob", "ann"):
            bearer = {"Authorization": f"Bearer token-of-{name}"}
            assert json.loads((await browser.get("/api/session", **bearer))[1]) == {"user": name, "signsOut": False}
            assert (await browser.get("/api/explanations/ann/job", **bearer))[0] == (200 if name == "ann" else 403)
        assert shared.server.sessions == 2
        ann = await shared.signed_in("token-of-ann")
        assert (await ann.get("/api/session", Authorization="Basic YTpi"))[0] == 401
        bob = {"Authorization": "Bearer token-of-bob"}
        assert json.loads((await ann.get("/api/session", **bob))[1])["user"] == "bob"


async def test_a_token_that_is_revoked_ends_its_sessions() -> None:
    """Reviews come at a bounded rate, also while a browser only reads events."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        async with ann.events("queues") as answer:
            await next_event(answer)
            for _ in range(20):
                await shared.clock.advance(30)
            assert len(shared.api.own) <= 11  # ten minutes
            del shared.api.users["token-of-ann"]
            while name := (await _advanced_event(shared, answer))[0]:
                assert name == "queues"
        assert (await ann.get("/api/session"))[0] == 401
        assert shared.server.sessions == 0


async def _advanced_event(shared: Shared, answer: aiohttp.ClientResponse) -> tuple[str, str]:
    reading = asyncio.create_task(next_event(answer))
    while not reading.done():
        await shared.clock.advance(5)
        await asyncio.sleep(0.01)
    return await reading


async def test_sessions_survive_an_api_server_that_is_away_for_a_while() -> None:
    """No person can sign in meanwhile; after ten minutes without a review the sessions end."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        shared.api.down = True
        await shared.clock.advance(120)
        assert (await ann.get("/api/session"))[0] == 200
        assert await shared.browser().sign_in("token-of-bob") == 503
        assert (await shared.browser().get("/", Authorization="Bearer token-of-bob"))[0] == 503
        await shared.clock.advance(600)
        assert (await ann.get("/api/session"))[0] == 401


async def test_idle_sessions_end() -> None:
    """A page that only looks whether it is signed in is idle."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        for _ in range(31):
            await shared.clock.advance(60)
            status, _ = await ann.get("/api/session")
        assert status == 401
        assert shared.api.closed == ["token-of-ann"]


async def test_one_user_opens_a_bounded_number_of_everything() -> None:
    """Streams, feeds, sessions; others are served as before."""
    limits = replace(
        QUIET, asker=AskerLimits(streams=2, feeds=3, questions=1), sessions=SessionLimits(most=3, most_of_user=2)
    )  # fmt: skip
    async with sharing(limits) as shared:
        ann, bob = await shared.signed_in("token-of-ann"), await shared.signed_in("token-of-bob")
        async with ann.events("map/a", "map/b") as one:
            async with ann.events("map/c", "map/d") as two:
                assert (one.status, two.status) == (200, 429)
            async with ann.events("map/a", "map/c") as two, ann.events("map/a") as three:
                assert (two.status, three.status) == (200, 429)
            async with bob.events("queues", "workloads") as other:
                assert other.status == 200
        await shared.signed_in("token-of-ann")
        await shared.signed_in("token-of-ann")
        assert (await ann.get("/api/session"))[0] == 401
        assert (await bob.get("/api/session"))[0] == 200
        shared.api.users["token-of-cid"] = "cid"
        assert await shared.browser().sign_in("token-of-cid") == 503
        assert shared.api.closed == ["token-of-cid"]


async def test_questions_of_all_together_are_paced() -> None:
    """Twice as many askers do not ask twice as often: each asks less often."""
    limits = replace(QUIET, per_second=1.0, burst=4)
    async with sharing(limits) as shared:
        tokens = [f"token-{number}" for number in range(10)]
        shared.api.users |= {token: token for token in tokens}
        streams = [asyncio.create_task(_read(await shared.signed_in(token))) for token in tokens]
        async with asyncio.timeout(LIMIT):
            while shared.server.streams < len(tokens):
                await asyncio.sleep(0.01)
        for _ in range(60):
            await shared.clock.advance(1)
        asked = [token for token, _ in shared.api.asked]
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    assert len(asked) <= 4 + 60
    assert min(asked.count(token) for token in tokens) >= 5


async def test_what_a_person_waits_for_goes_before_what_is_renewed() -> None:
    """A click does not wait behind the pages of a hundred people."""
    limits = replace(QUIET, per_second=1.0, burst=20)
    async with sharing(limits) as shared:
        tokens = [f"token-{number}" for number in range(20)]
        shared.api.users |= {token: token for token in tokens}
        streams = [asyncio.create_task(_read(await shared.signed_in(token))) for token in tokens]
        ann = await shared.signed_in("token-of-ann")
        async with asyncio.timeout(LIMIT):
            while len(shared.api.asked) < len(tokens):
                await asyncio.sleep(0.01)
            await shared.clock.advance(3)
            clicked = asyncio.create_task(ann.get("/api/explanations/ann/job"))
            before = len(shared.api.asked)
            while not clicked.done():
                await shared.clock.advance(0.1)
                await asyncio.sleep(0.01)
        later = [question for _, question in shared.api.asked[before:]]
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    assert later.index("ann/job") <= 3


async def _read(browser: Browser) -> None:
    async with browser.events("queues") as answer:
        await answer.content.readline()
        await asyncio.Event().wait()


async def test_no_token_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever happens to it, nor the identifier of a session."""
    async with sharing() as shared:
        ann = await shared.signed_in("token-of-ann")
        await shared.browser().sign_in("secret-that-is-unknown")
        await ann.get("/api/explanations/ann/job")
        await ann.get("/", Authorization="Bearer token-of-bob")
        shared.api.down = True
        await shared.browser().sign_in("secret-that-is-late")
        await ann.sign_out()
    said = "".join(capfd.readouterr())

    assert "signed in" in said
    assert not [secret for secret in ("token-of", "secret-that", ann.cookie) if secret in said]


async def test_a_reader_that_takes_nothing_is_dropped() -> None:
    """Readers with the same token, and all others, notice nothing."""
    async with sharing(slow(0.2), clock=SystemClock()) as shared:
        ann = await shared.signed_in("token-of-ann")
        shared.api.more = {"much": "x" * 40_000_000}  # more than the buffers of both sides take
        _, writer = await asyncio.open_connection("127.0.0.1", shared.server.port, limit=1024)
        lines = ("GET /api/events?feed=queues HTTP/1.1", "Host: x", f"Cookie: {COOKIE}={ann.cookie}")
        writer.write("\r\n".join((*lines, "", "")).encode())
        async with asyncio.timeout(LIMIT):
            while not shared.api.asked:
                await asyncio.sleep(0.01)
            while shared.server.streams:
                await asyncio.sleep(0.01)
        writer.close()
        assert (await numbers(shared.metrics))["dropped_readers_total"] == 1
        shared.api.more = {}
        async with ann.events("queues") as answer:
            assert json.loads((await next_event(answer))[1]) == {"seen by": "ann"}


async def test_the_server_ends_while_pages_are_open() -> None:
    """Streams are closed, so that browsers connect to another server, and no client stays open."""
    limits = SharedLimits()
    async with asyncio.timeout(LIMIT):
        async with sharing(limits, clock=SystemClock()) as shared:
            ann = await shared.signed_in("token-of-ann")
            reading = asyncio.create_task(_events_to_the_end(ann))
            while not shared.server.streams:
                await asyncio.sleep(0.01)
            await shared.stop()
            assert (await reading)[-1] == ""
        assert shared.api.closed == ["token-of-ann"]
        assert (shared.server.streams, shared.server.sessions) == (0, 0)


async def _events_to_the_end(browser: Browser) -> list[str]:
    names = list[str]()
    async with browser.events("queues") as answer:
        while not names or names[-1]:
            names.append((await next_event(answer))[0])
    return names


async def test_metrics_count_questions_and_reviews_without_names() -> None:
    """The names and tokens of people, hostile ones too, are in no label; a reader that goes is no dropped one."""
    async with sharing() as shared:
        shared.api.users["evil-token"] = 'a"} 1\nkqueue_dashboard_readers{x="'
        for token in ("token-of-ann", "token-of-bob", "evil-token"):
            browser = await shared.signed_in(token)
            async with browser.events("map/dc") as answer:
                await next_event(answer)
                open_now = await numbers(shared.metrics)
                await shared.clock.advance(1)
                aged = await numbers(shared.metrics)
            assert (open_now["readers"], open_now["picture_age_seconds"]) == (1, 0)
            assert aged["picture_age_seconds"] == (0 if token == "token-of-bob" else 1), "a refusal shows no picture"
            async with asyncio.timeout(LIMIT):
                while shared.server.streams:
                    await shared.clock.advance(15)  # a silent stream notices at its next comment
                    await asyncio.sleep(0.01)
        assert await shared.browser().sign_in("junk") == 401
        shared.api.down = True
        assert await shared.browser().sign_in("other") == 503
        found = await numbers(shared.metrics)

    assert found == {
        "readers": 0,
        "sessions": 3,
        "picture_age_seconds": 0,
        "dropped_readers_total": 0,
        'questions_total{result="answered"}': sum(token != "token-of-bob" for token, _ in shared.api.asked),
        'questions_total{result="forbidden"}': sum(token == "token-of-bob" for token, _ in shared.api.asked),
        'token_reviews_total{result="known"}': 3,
        'token_reviews_total{result="unknown"}': 1,
        'token_reviews_total{result="failed"}': 1,
    }
