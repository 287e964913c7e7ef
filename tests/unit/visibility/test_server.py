"""The server as friends and enemies meet it: who is answered, who is refused, and who is cut."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
import trustme

from kqueue.errors import (
    ApiError,
    ConfigError,
    FieldError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
    TooManyRequestsError,
    UnreachableError,
)
from kqueue.visibility.connections import ServerLimits
from kqueue.visibility.front_proxy import User
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.rights import Action
from tests.unit.visibility.doors import BEARER, LIST, MOST_BYTES, POSTED, QUESTION, door, exchange, front_proxy

LIAR = {"X_Remote_User": "root", "X_Remote_Group": "system:masters"}


# --- who asks


async def test_the_front_proxy_is_believed_about_its_user() -> None:
    """Name, groups, uid and extras of the user come from its headers, and go to the authorizer with the action."""
    async with door() as found:
        headers = {
            "X_Remote_User": "carol",
            "X_Remote_Group": "devs",
            "X_Remote_Uid": "u1",
            "X_Remote_Extra_Team%2Fx": "1",
        }
        status, answer = await found.ask(tls=found.client_tls(name="proxy"), **headers)

    assert (status, answer["kind"], answer["apiVersion"], answer["of"]) == (200, "Told", "g.example/v1", "a/b")
    user = User(name="carol", uid="u1", groups=("devs", "system:authenticated"), extra=(("team/x", ("1",)),))
    action = Action(
        verb="get", group="g.example", version="v1", resource="things", subresource="told", namespace="a", name="b"
    )  # fmt: skip
    assert found.judge.asked == [(user, action)]


@pytest.mark.parametrize("token", [None, "junk", "secret"])
@pytest.mark.parametrize("name", ["", "stranger"])
async def test_headers_without_the_front_proxys_certificate_count_for_nothing(name: str, token: str | None) -> None:
    """Without a certificate, or with one of another name, only the token says who asks."""
    async with door() as found:
        sent = {**LIAR, **({} if token is None else {"Authorization": f"Bearer {token}"})}
        status, _ = await found.ask(tls=found.client_tls(name=name), **sent)

    assert status == (200 if token == "secret" else 401)
    assert [user.name for user, _ in found.judge.asked] == (["alice"] if token == "secret" else [])


async def test_a_certificate_of_a_foreign_authority_gets_no_connection() -> None:
    """The handshake fails; nothing is read."""
    async with door() as found:
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await found.ask(tls=found.client_tls(name="proxy", signer=trustme.CA()), **LIAR)

    assert found.judge.asked == []


async def test_without_an_aggregation_layer_nobody_is_believed() -> None:
    """Where the API server tells of no front proxy, tokens are the only way in."""
    async with door(proxied=False) as found:
        assert (await found.ask(tls=found.client_tls(name="proxy"), **LIAR))[0] == 401
        assert (await found.ask(**BEARER))[0] == 200


async def test_who_is_believed_changes_at_once_and_for_open_connections_too() -> None:
    """A new authority takes over: the old certificate, and the connection that it has opened, count no more."""
    async with door() as found:
        old, fresh = found.client_tls(name="proxy"), trustme.CA()
        async with found.connected(old) as (reader, writer):
            before, _ = await exchange(reader, writer, headers={"X-Remote-User": "carol"})
            found.server.believe(found.trust(front_proxy(fresh)))
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await exchange(reader, writer, headers={"X-Remote-User": "carol"})
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await found.ask(tls=old, X_Remote_User="carol")
        after, _ = await found.ask(tls=found.client_tls(name="proxy", signer=fresh), X_Remote_User="carol")

    assert (before, after) == (200, 200)


# --- may they


async def test_who_may_not_is_told_what_they_cannot() -> None:
    """403 in the API server's own words, with the authorizer's reason; the view is not asked."""

    async def never(asked: AuthorizedQuestion) -> JSON:
        raise AssertionError("asked")

    async with door(never) as found:
        found.judge.allowed = False
        status, answer = await found.ask(**BEARER)

    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'things.g.example "b" is forbidden: User "alice" cannot get resource "things/told" in API group "g.example" '
        'in the namespace "a": no role says so'
    )


@pytest.mark.parametrize("path", [QUESTION, LIST, "/apis", "/apis/g.example/v1", "/openapi/v2", "/nothing"])
async def test_nobody_gets_in_while_the_api_server_does_not_say(path: str) -> None:
    """It fails closed, for discovery as for everything else, and says why."""
    async with door() as found:
        found.judge.failure = UnreachableError("no answer from the API server")
        status, answer = await found.ask(path, **BEARER)

    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    assert "no answer from the API server" in answer["message"]


@pytest.mark.parametrize("path", ["/apis", "/apis/g.example", "/apis/g.example/v1", "/openapi/v2", "/openapi/v3"])
async def test_discovery_is_a_right_too(path: str) -> None:
    """Who may not read a path is refused; who may gets its document."""
    async with door() as found:
        status, _ = await found.ask(path, **BEARER)
        found.judge.allowed = False
        refused, _ = await found.ask(path, **BEARER)

    assert (status, refused) == (200, 403)
    assert found.judge.asked[0][1] == Action(verb="get", path=path)


async def test_a_view_learns_what_else_its_user_may_read() -> None:
    """`reads` asks about the very user of the question."""

    async def told(asked: AuthorizedQuestion) -> JSON:
        return {"reads": [await asked.reads(namespace) for namespace in ("a", "b")]}

    async with door(told) as found:
        assert (await found.ask(**BEARER))[1]["reads"] == [True, False]


# --- what is asked


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/apis/g.example/v1/namespaces/a/../a/things/b/told", 404, id="dots"),
        pytest.param("/apis/g.example/v1/namespaces/a/things/%2e%2e/told", 404, id="quoted-dots"),
        pytest.param("/apis/g.example/v1/namespaces/a%2Fb/things/b/told", 404, id="quoted-slash"),
        pytest.param("/apis/g.example/v1/namespaces/a/things/b%00/told", 404, id="null-byte"),
        pytest.param("//apis/g.example/v1/namespaces/a/things/b/told", 404, id="double-slash"),
        pytest.param("/apis/g.example/v1/namespaces//things/b/told", 404, id="empty-namespace"),
        pytest.param("/apis/g.example/v1/namespaces/a/things/<b>/told", 404, id="html"),
        pytest.param("/apis/g.example/v1/namespaces/a/things/b/told/more", 404, id="deeper"),
        pytest.param("/apis/g.example/v1/things/b/told", 404, id="without-its-namespace"),
        pytest.param("/apis/g.example/v2/namespaces/a/things/b/told", 404, id="another-version"),
        pytest.param(f"https://localhost{QUESTION}", 404, id="as-to-a-proxy"),
        pytest.param("*", 400, id="asterisk"),
        pytest.param(f"/{'a' * 2000}", 414, id="long-path"),
        pytest.param(f"{QUESTION}?x={'1' * 4000}", 414, id="long-query"),
        pytest.param(f"{QUESTION}?{'&'.join(f'x{n}=1' for n in range(40))}", 400, id="many-parameters"),
        pytest.param(f"{QUESTION}?x=%ff", 400, id="no-text"),
        pytest.param(f"{QUESTION}?watch=true", 405, id="watch"),
        pytest.param(f"{QUESTION}?x=1&x=2&y=", 200, id="twice"),
    ],
)
async def test_odd_questions_are_answered_with_a_failure(path: str, want: int) -> None:
    """Nothing of them reaches a view but what it was made for; every failure is a Status."""
    async with door() as found:
        status, answer = await found.ask(path, **BEARER)

    assert status == want, answer
    if want == 200:
        assert answer["params"] == {"x": "1", "y": ""}
    else:
        assert (answer["kind"], answer["code"]) == ("Status", want)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "BREW"])
async def test_nothing_can_be_written(method: str) -> None:
    """Whatever is no GET is refused, before anybody is asked who it is."""
    async with door() as found, found.connected() as (reader, writer):
        writer.write(f"{method} {QUESTION} HTTP/1.1\r\nHost: x\r\n{'Authorization: Bearer secret'}\r\n\r\n".encode())
        async with asyncio.timeout(10):
            line = await reader.readline()

    assert line.split(b" ")[1] == (b"400" if method == "BREW" else b"405")
    assert found.judge.asked == []


async def test_a_body_is_not_read() -> None:
    """A GET that brings one is refused, and its connection closed."""
    async with door() as found, found.connected() as (reader, writer):
        status, _ = await exchange(reader, writer, headers={**BEARER, "Content-Length": "1000000"}, body=b"x" * 1000)
        async with asyncio.timeout(10):
            assert await reader.read() == b""

    assert status == 405


@pytest.mark.parametrize(("length", "want"), [(1, 200), (MOST_BYTES, 200), (MOST_BYTES + 1, 413), (10_000_000, 413)])
async def test_a_question_may_be_posted_up_to_its_length(length: int, want: int) -> None:
    """The user needs the right to create it; what is too long is not read to its end."""
    async with door() as found, found.connected() as (reader, writer):
        headers = {**BEARER, "Content-Length": str(length)}
        status, answer = await exchange(
            reader, writer, POSTED, method="POST", headers=headers, body=b"x" * min(length, 1000)
        )

    assert status == want
    assert answer.get("body") == ("x" * length if want == 200 else None)
    assert [action.verb for _, action in found.judge.asked] == ["create"]


async def test_a_body_is_not_read_before_the_right_is_known() -> None:
    """403 at once, although the body never comes; and 405 for what would only read."""
    async with door() as found:
        found.judge.allowed = False
        refused, _ = await found.ask(POSTED, method="POST", Content_Length="100", **BEARER)
        unread, _ = await found.ask(POSTED, **BEARER)
        named, _ = await found.ask(f"{POSTED}/b", method="POST", **BEARER)

    assert (refused, unread, named) == (403, 405, 405)


async def test_a_view_asks_what_its_user_may_create() -> None:
    """In the namespace of the question; the view knows the user."""
    asked: list[tuple[str, bool]] = []

    async def view(question: AuthorizedQuestion) -> JSON:
        asked.append((question.user, await question.creates("batch", "v1", "jobs")))
        return {"metadata": {}}

    async with door(view) as found:
        status, _ = await found.ask(POSTED, method="POST", Content_Length="0", **BEARER)

    jobs = Action(verb="create", group="batch", version="v1", resource="jobs", namespace="a")
    assert (status, asked) == (200, [("alice", True)])
    assert jobs in [action for _, action in found.judge.asked]


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (ForbiddenError("cannot create jobs", status=403), 403),
        (TooManyRequestsError("ask one at a time", status=429), 429),
    ],
)
async def test_a_view_refuses_with_the_status_of_its_error(error: ApiError, want: int) -> None:
    async def view(_question: AuthorizedQuestion) -> JSON:
        raise error

    async with door(view) as found:
        status, answer = await found.ask(POSTED, method="POST", Content_Length="0", **BEARER)

    assert (status, answer["message"]) == (want, str(error))


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async with door(limits=ServerLimits(answer=0.2)) as found:
        status, _ = await found.ask(POSTED, method="POST", Content_Length="100", **BEARER)

    assert status == 504


@pytest.mark.parametrize(
    ("raised", "want", "words"),
    [
        pytest.param(NotFoundError('things "b" not found'), 404, 'things "b" not found', id="not-there"),
        pytest.param(InvalidObjectError("the query", [FieldError("limit", "is odd")]), 400, "limit", id="odd-field"),
        pytest.param(ConfigError("levels=9 is too many"), 400, "levels=9", id="odd-setting"),
        pytest.param(UnreachableError("etcd is away"), 503, "etcd is away", id="the-cluster-does-not-answer"),
        pytest.param(RuntimeError("/secret/place"), 500, "RuntimeError", id="a-bug"),
    ],
)
async def test_what_a_view_raises_is_told_in_words(raised: Exception, want: int, words: str) -> None:
    """One question that fails stops nobody; a bug tells its name and nothing else."""

    async def fails(asked: AuthorizedQuestion) -> JSON:
        raise raised

    async with door(fails) as found:
        status, answer = await found.ask(**BEARER)
        again, _ = await found.ask(**BEARER)

    assert (status, again) == (want, want)
    assert words in answer["message"]
    assert "/secret/place" not in answer["message"]


async def test_nothing_is_told_of_a_cluster_that_is_not_known_yet() -> None:
    """Half an answer would be a wrong one."""
    async with door(warm=lambda: False) as found:
        status, answer = await found.ask(**BEARER)
        discovery, _ = await found.ask("/apis/g.example/v1", **BEARER)

    assert (status, discovery) == (503, 200)
    assert answer["details"]["retryAfterSeconds"] == 1


# --- how much, how many, how long


def many(count: int, text: str = "x" * 500) -> Iterator[JSON]:
    return ({"n": n, "text": text} for n in range(count))


async def big(asked: AuthorizedQuestion) -> JSON:
    return {"metadata": {}, "items": many(20_000)}


async def test_a_long_list_is_written_whole() -> None:
    """20,000 items in pieces make one JSON."""
    async with door(big) as found:
        status, answer = await found.ask(LIST, **BEARER)

    assert status == 200
    assert [item["n"] for item in answer["items"]] == list(range(20_000))
    assert (answer["kind"], answer["metadata"]) == ("ThingList", {})


async def test_readers_that_do_not_read_are_cut_and_keep_nobody_waiting() -> None:
    """They take places of their own user only; others are answered meanwhile, and the places are free afterwards."""

    async def endless(asked: AuthorizedQuestion) -> JSON:
        return {"items": ({"text": "x" * 10_000} for _ in itertools.count())}

    request = f"GET {LIST} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n".encode()
    async with (
        door(endless, limits=ServerLimits(write=0.5, requests=2, requests_of_one=2)) as found,
        found.connected() as (reader, writer),
        found.connected() as (_, other),
    ):
        for each in (writer, other):
            each.write(request)
        async with asyncio.timeout(10):
            await reader.read(1000)
            while (refused := await found.ask("/apis", **BEARER))[0] != 429:
                await asyncio.sleep(0.01)
        meanwhile, _ = await found.ask("/apis", Authorization="Bearer other")
        async with asyncio.timeout(10):
            while (await found.ask("/apis", **BEARER))[0] != 200:
                await asyncio.sleep(0.05)

    assert "alice" in refused[1]["message"]
    assert meanwhile == 200


class Held:
    """A view that answers when it is let go."""

    def __init__(self) -> None:
        self.free, self.asked = asyncio.Event(), asyncio.Semaphore(0)

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        self.asked.release()
        await self.free.wait()
        return {}


async def test_too_much_at_once_is_put_off() -> None:
    """One user has so many places, all together a few more; who is put off is told when to come again."""
    held = Held()
    async with door(held.view, limits=ServerLimits(requests=3, requests_of_one=2)) as found:
        under_way = [asyncio.create_task(found.ask(**BEARER)) for _ in range(2)]
        for _ in under_way:
            await held.asked.acquire()
        third, words = await found.ask(**BEARER)
        under_way.append(asyncio.create_task(found.ask(Authorization="Bearer other")))
        await held.asked.acquire()
        fourth, _ = await found.ask(Authorization="Bearer other")
        held.free.set()
        answered = await asyncio.gather(*under_way)
        again, _ = await found.ask(**BEARER)

    assert (third, fourth, again) == (429, 429, 200)
    assert "alice" in words["message"]
    assert [status for status, _ in answered] == [200, 200, 200]


async def test_an_answer_that_is_not_found_in_time_is_given_up() -> None:
    """504, and the place is free again."""
    held = Held()
    async with door(held.view, limits=ServerLimits(answer=0.2, requests=1)) as found:
        first, _ = await found.ask(**BEARER)
        second, _ = await found.ask(**BEARER)

    assert (first, second) == (504, 504)


async def test_who_goes_away_frees_their_place() -> None:
    """A client that closes its connection while its answer is being found is waited for no longer."""
    held = Held()
    async with door(held.view, limits=ServerLimits(requests=1)) as found:
        async with found.connected() as (_, writer):
            writer.write(f"GET {QUESTION} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n".encode())
            await held.asked.acquire()
        held.free.set()
        async with asyncio.timeout(10):
            while (await found.ask(**BEARER))[0] != 200:
                await asyncio.sleep(0.01)


async def test_connections_that_ask_nothing_keep_nobody_out() -> None:
    """All places are taken by those who ask nothing: the one who was there first makes room; the front proxy's stay."""
    async with (
        door(limits=ServerLimits(connections=4)) as found,
        found.connected(found.client_tls(name="proxy")) as proxy,
    ):
        assert (await exchange(*proxy, headers={"X-Remote-User": "carol"}))[0] == 200
        idle: list[Any] = []
        for _ in range(20):
            idle.append(
                await asyncio.open_connection(
                    "127.0.0.1", found.server.port, ssl=found.client_tls(), server_hostname="localhost"
                )
            )
        status, _ = await found.ask(**BEARER)
        still, _ = await exchange(*proxy, headers={"X-Remote-User": "carol"})
        async with asyncio.timeout(5):  # before they would be cut for asking nothing
            assert await idle[0][0].read() == b""
        for _, writer in idle:
            writer.transport.abort()

    assert (status, still) == (200, 200)


async def test_handshakes_that_never_begin_give_their_places_back() -> None:
    """Plain connections without a word are closed when their time is over; who is to be let in until then, is."""
    async with door(limits=ServerLimits(connections=3, handshake=0.5)) as found:
        silent = [await asyncio.open_connection("127.0.0.1", found.server.port) for _ in range(3)]
        assert (await found.ask(**BEARER))[0] == 200
        async with asyncio.timeout(10):
            for reader, _ in silent:
                assert await reader.read() == b""
        status, _ = await found.ask(**BEARER)
        for _, writer in silent:
            writer.close()

    assert status == 200


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET /apis HTTP/1.1\r\nHost: x\r\nX-Slow: a"])
async def test_a_request_that_is_never_complete_is_cut(begun: bytes) -> None:
    """Whoever sends nothing, or headers drop by drop, has so many seconds."""
    async with door(limits=ServerLimits(first_request=0.2)) as found, found.connected() as (reader, writer):
        writer.write(begun)
        async with asyncio.timeout(10):
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await reader.readexactly(1)


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 900) for n in range(200)), id="headers"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000, id="one-header"),
        pytest.param(b"GET /" + b"y" * 200_000, id="line"),
        pytest.param(b"\x16\x03" * 50_000, id="no-http"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" + b"y" * 500_000, id="body"),
    ],
)  # fmt: skip
async def test_a_flood_is_cut(flood: bytes) -> None:
    """What no request is as long as ends the connection, with a 4xx or without a word."""
    async with door() as found:
        async with found.connected() as (reader, writer):
            writer.write(flood)
            got = b""
            async with asyncio.timeout(10):
                with contextlib.suppress(ConnectionError):
                    got = await reader.read()
        status, _ = await found.ask(**BEARER)

    assert got == b"" or got.split(b" ")[1][:1] == b"4"
    assert status == 200


async def test_one_connection_serves_many_questions() -> None:
    """As the aggregation layer uses it."""
    async with door() as found, found.connected() as (reader, writer):
        answers = [await exchange(reader, writer, headers=BEARER) for _ in range(5)]

    assert [status for status, _ in answers] == [200] * 5


async def test_probes_need_no_name() -> None:
    """Whether it is alive may be asked by everybody."""
    async with door() as found:
        assert [(await found.ask(path))[0] for path in ("/healthz", "/livez", "/readyz")] == [200, 200, 200]


async def test_what_was_answered_is_counted_by_status() -> None:
    """Refusals, too; probes are no questions."""
    async with door() as d:
        for path, token in ((QUESTION, "secret"), (QUESTION, "junk"), ("/healthz", ""), ("/nowhere", "secret")):
            await d.ask(path, Authorization=f"Bearer {token}")

    assert d.answers == [200, 401, 404]
