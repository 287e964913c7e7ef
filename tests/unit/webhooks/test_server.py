"""The admission server over TLS: answers, refusals, and what stops nothing."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from kqueue.clock import SystemClock
from kqueue.errors import ConfigError
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.certificates import CertificateFolder, make_bundle, write_bundle
from tests.unit.webhooks.test_review import review
from webhooks.review import ALLOWED, Request, ReviewResult
from webhooks.routes import routes
from webhooks.server import ReviewLimits, ReviewRecord, WebhookServer


async def allow(_request: Request) -> ReviewResult:
    return ALLOWED


async def fail(_request: Request) -> ReviewResult:
    raise ZeroDivisionError("planted")


async def unwritable(_request: Request) -> ReviewResult:
    return ReviewResult(patch={"spec": {"a": object()}})


@dataclass(frozen=True)
class Served:
    """A running server, what it recorded, and how to reach it."""

    server: WebhookServer
    records: list[ReviewRecord]
    tls: ssl.SSLContext

    async def ask(
        self, path: str, body: object = None, *, method: str = "POST", headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        url = f"https://127.0.0.1:{self.server.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, data=body, ssl=self.tls, headers=headers) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    write_bundle(make_bundle(["127.0.0.1"], now=SystemClock().now()), tmp_path)
    certificates = CertificateFolder(tmp_path, clock=SystemClock())
    handlers = {"/mutate-ok": allow, "/mutate-bug": fail, "/mutate-unwritable": unwritable}
    records: list[ReviewRecord] = []
    server = WebhookServer(
        handlers,
        ssl_context=certificates.context,
        limits=ReviewLimits(max_body=10_000, read_seconds=0.2),
        on_review=records.append,
    )
    await server.start()
    yield Served(server, records, ssl.create_default_context(cafile=str(tmp_path / "ca.crt")))
    await server.stop()


async def in_pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 1000):
        yield b"x" * 1000


async def never_ending() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.Event().wait()


BUG = '"code":500,"reason":"InternalError","message":"the check failed on a bug in kqueue '


@pytest.mark.parametrize(
    ("path", "body", "status", "fact", "result"),
    [
        pytest.param("/mutate-ok", review(), 200, '"allowed":true', "allowed", id="allowed"),
        pytest.param("/mutate-bug", review(), 200, f"{BUG}(ZeroDivisionError", "error", id="a-bug-refuses-one"),
        pytest.param("/mutate-unwritable", review(), 200, f"{BUG}(TypeError", "error", id="an-answer-nobody-can-write"),
        pytest.param("/mutate-ok", b"<html>", 400, "not JSON", "bad-request", id="garbage"),
        pytest.param("/mutate-ok", b"", 400, "not JSON", "bad-request", id="nothing"),
        pytest.param("/mutate-ok", b'{"kind":"\xff"}', 400, "not UTF-8", "bad-request", id="invalid-utf-8"),
        pytest.param("/mutate-ok", b"\xff\xfe{", 400, "not JSON", "bad-request", id="another-encoding"),
        pytest.param("/mutate-ok", b'{"a":' * 300, 400, "nested more than 200", "bad-request", id="too-deep"),
        pytest.param("/mutate-ok", b"x" * 20_000, 413, "larger than 10000 bytes", "bad-request", id="oversized"),
        pytest.param("/mutate-nothing", review(), 404, "no webhook at /mutate-nothing", None, id="unknown-path"),
    ],
)
async def test_every_request_gets_an_answer(
    served: Served, path: str, body: bytes, status: int, fact: str, result: str | None
) -> None:
    """Over real TLS, each with its status, a clear word and a record; the server goes on."""
    answered = await served.ask(path, body)
    recorded = [record.result for record in served.records]
    again, text = await served.ask("/mutate-ok", review())

    assert (answered[0], fact in answered[1]) == (status, True), answered
    assert recorded == ([] if result is None else [result])
    assert again == 200
    assert json.loads(text)["response"]["allowed"] is True


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"\x1f\x8bno gzip", id="broken"),
        pytest.param(gzip.compress(review()), id="whole"),
        pytest.param(gzip.compress(b" " * 50_000_000), id="a-few-kilobytes-that-mean-megabytes"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_a_compressed_body_is_refused_in_words(served: Served, body: bytes) -> None:
    """No API server sends one; it is never inflated, and no bug."""
    status, text = await served.ask("/mutate-ok", body[:9000], headers={"Content-Encoding": "gzip"})
    again, _ = await served.ask("/mutate-ok", review())

    assert (status, "compressed (Content-Encoding: gzip); send it as it is" in text) == (400, True), text
    assert [record.result for record in served.records] == ["bad-request", "allowed"]
    assert again == 200


async def test_what_is_recorded_has_few_values(served: Served) -> None:
    """Whoever reaches the port cannot fill the metrics with words of their own."""
    for operation in ("CREATE", "x" * 1000, "create", ""):
        await served.ask("/mutate-ok", review(operation=operation))

    assert [record.operation for record in served.records] == ["CREATE", "", "", ""]


async def test_a_body_without_announced_length_is_bounded_too(served: Served) -> None:
    """Counted as it comes."""
    assert (await served.ask("/mutate-ok", in_pieces(50_000)))[0] == 413


async def test_a_body_that_never_ends_is_not_waited_for(served: Served) -> None:
    """The connection is given up, and others were served meanwhile."""
    slow = asyncio.create_task(served.ask("/mutate-ok", never_ending()))
    other = await served.ask("/mutate-ok", review())
    status, text = await slow

    assert other[0] == 200
    assert (status, "did not arrive" in text) == (408, True)


async def test_only_post_carries_a_review(served: Served) -> None:
    """A browser is told so, and probes are answered."""
    assert await served.ask("/mutate-ok", method="GET") == (405, "send the review by POST")
    assert await served.ask("/healthz", method="GET") == (200, "ok")
    assert await served.ask("/readyz", method="GET") == (200, "ok")


async def test_a_client_that_speaks_no_tls_stops_nothing(served: Served) -> None:
    """Port scanners and wrong schemes are dropped."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.server.port)
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    await writer.drain()
    await reader.read()
    writer.close()

    assert (await served.ask("/mutate-ok", review()))[0] == 200


async def test_a_taken_port_is_a_clear_error(served: Served) -> None:
    """The port and the remedy are named."""
    with pytest.raises(ConfigError, match=f"127.0.0.1:{served.server.port}: address already in use; stop"):
        await WebhookServer({}, ssl_context=None, port=served.server.port).start()


async def test_stopping_twice_is_fine(served: Served) -> None:
    """And nobody is answered afterwards."""
    await served.server.stop()
    await served.server.stop()

    with pytest.raises(aiohttp.ClientConnectorError):
        await served.ask("/mutate-ok", review())


def nested(depth: int, inside: str) -> bytes:
    """A review whose object is so many lists or objects deep."""
    opening, closing = ("[", "]") if inside == "lists" else ('{"a":', "}")
    deep = f"{opening * depth}1{closing * depth}"
    job = f'{{"kind":"Job","metadata":{{"name":"j","labels":{{"kueue.x-k8s.io/queue-name":"m"}}}},"spec":{deep}}}'
    request = f'{{"uid":"u1","operation":"CREATE","object":{job}}}'
    return f'{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{request}}}'.encode()


@pytest.mark.parametrize("depth", [100, 900, 5_000, 100_000])
@pytest.mark.parametrize("inside", ["lists", "objects"])
async def test_an_object_however_deep_gets_an_answer(tmp_path: Path, depth: int, inside: str) -> None:
    """In words where it is refused, never as a bug; and the server goes on."""
    write_bundle(make_bundle(["127.0.0.1"], now=SystemClock().now()), tmp_path)
    certificates = CertificateFolder(tmp_path, clock=SystemClock())
    server = WebhookServer(routes(["batch/job"], JobFeatures()), ssl_context=certificates.context)
    await server.start()
    served = Served(server, [], ssl.create_default_context(cafile=str(tmp_path / "ca.crt")))
    try:
        for path in ("/mutate-batch-v1-job", "/validate-batch-v1-job"):
            status, text = await served.ask(path, nested(depth, inside))
            again, _ = await served.ask(path, nested(1, "objects"))

            assert status in (200, 400)
            assert "bug" not in text
            assert again == 200
    finally:
        await server.stop()


async def test_conversions_are_answered_beside_the_routes(served: Served) -> None:
    """Also where no kind is switched on; they are counted by path and result."""
    good = conversion_review({"apiVersion": OLD, "kind": "Cohort", "metadata": {"name": "c"}})
    bad = conversion_review({"apiVersion": OLD, "kind": "Job", "metadata": {"name": "c"}})

    answers = [json.loads((await served.ask("/convert", body))[1])["response"] for body in (good, bad)]

    assert [each["result"]["status"] for each in answers] == ["Success", "Failure"]
    assert [(r.path, r.operation, r.result) for r in served.records] == [
        ("/convert", "", "converted"),
        ("/convert", "", "error"),
    ]


async def test_a_conversion_has_a_larger_limit_than_an_admission(served: Served) -> None:
    """One review may have many objects; beyond 16 MiB it is refused, before it is read."""
    many = [{"apiVersion": OLD, "kind": "Cohort", "metadata": {"name": f"c{i}"}} for i in range(3000)]
    status, text = await served.ask("/convert", conversion_review(*many))
    too_long = {"Content-Length": str(17 * 1024 * 1024)}
    refused, said = await served.ask("/convert", b"{}", headers=too_long)

    assert (status, len(json.loads(text)["response"]["convertedObjects"])) == (200, 3000)
    assert (refused, said) == (413, "the body is larger than 16777216 bytes; no review may be")


async def test_a_body_that_is_no_conversion_gets_an_http_error(served: Served) -> None:
    """The API server shows it to the user."""
    assert await served.ask("/convert", b"{}") == (400, "kind must be 'ConversionReview', found 'None'")
    assert (await served.ask("/convert", method="GET"))[0] == 405


OLD = "kueue.x-k8s.io/v1beta1"


def conversion_review(*objects: object) -> bytes:
    request = {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": objects}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return json.dumps(whole).encode()
