"""The admission server over TLS: answers, refusals, and a bug that stops nothing."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from kqueue.clock import SystemClock
from kqueue.errors import ConfigError
from kqueue.runtime.certificates import CertificateFolder, make_bundle, write_bundle
from tests.unit.webhooks.test_review import review
from webhooks.review import ALLOWED, Answer, Request
from webhooks.server import ReviewRecord, WebhookServer


def fail(_request: Request) -> Answer:
    raise ZeroDivisionError("planted")


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[WebhookServer]:
    write_bundle(make_bundle(["127.0.0.1"], now=SystemClock().now()), tmp_path)
    tls = CertificateFolder(tmp_path, clock=SystemClock())
    handlers = {"/mutate-ok": lambda _: ALLOWED, "/mutate-bug": fail}
    served = WebhookServer(handlers, ssl_context=tls.context, max_body=10_000, on_review=RECORDS.append)
    await served.start()
    yield served
    await served.stop()


RECORDS: list[ReviewRecord] = []


async def post(server: WebhookServer, path: str, body: bytes, folder: Path) -> tuple[int, str]:
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{server.port}{path}"
        async with session.post(url, data=body, ssl=context) as answer:
            return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("path", "body", "status", "fact"),
    [
        pytest.param("/mutate-ok", review(), 200, '"allowed":true', id="allowed"),
        pytest.param(
            "/mutate-bug", review(), 200, "failed on a bug in kqueue (ZeroDivisionError", id="a-bug-refuses-one"
        ),
        pytest.param("/mutate-ok", b"<html>", 400, "not JSON", id="garbage"),
        pytest.param("/mutate-ok", b"x" * 20_000, 413, "larger than 10000 bytes", id="oversized"),
        pytest.param("/mutate-nothing", review(), 404, "no webhook at /mutate-nothing", id="unknown-path"),
    ],
)
async def test_every_request_gets_an_answer(
    server: WebhookServer, tmp_path: Path, path: str, body: bytes, status: int, fact: str
) -> None:
    """Over real TLS, each with its status and a clear word; the server goes on."""
    answered = await post(server, path, body, tmp_path)
    again, text = await post(server, "/mutate-ok", review(), tmp_path)

    assert (answered[0], fact in answered[1]) == (status, True), answered
    assert again == 200
    assert json.loads(text)["response"]["allowed"] is True


async def test_a_taken_port_is_a_clear_error(server: WebhookServer) -> None:
    """The port and the remedy are named."""
    with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port} is taken: choose another webhook.port"):
        await WebhookServer({}, ssl_context=None, port=server.port).start()
