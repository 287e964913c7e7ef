"""How commands ask the controller, and what they say when it does not answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from kqueue.errors import ForbiddenError, KqueueError, NotFoundError, NotServedError, UnreachableError
from kqueue.operations.questions import ask, path
from kqueue.runtime.client import Client
from kqueue.runtime.transport import ClientSettings

QUESTION = "/apis/visibility.kqueue.dev/v1alpha1/namespaces/a/workloads/b/explanation"
DISCOVERY = "/apis/visibility.kqueue.dev/v1alpha1"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.kqueue.dev"
Answers = Mapping[str, tuple[int, dict[str, Any]]]


def refusal(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


@asynccontextmanager
async def client_of(answers: Answers, *, silent: str = "", timeout: float = 30.0) -> AsyncIterator[Client]:
    """A client of a server with these answers; paths that begin with `silent` get none."""
    ends = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.Response:
        if silent and request.path.startswith(silent):
            await ends.wait()
        code, body = answers.get(request.path, refusal(404, "the server could not find the requested resource"))
        return web.json_response({**body, "asked": request.query_string}, status=code)

    async with RawTestServer(answer) as server:
        settings = ClientSettings(attempts=1, call_timeout=timeout)
        async with Client(f"http://{server.host}:{server.port}", settings=settings) as client:
            yield client
        ends.set()


UNREACHED = {
    "status": {
        "conditions": [
            {"type": "Available", "status": "False", "reason": "FailedDiscoveryCheck", "message": "connection refused"}
        ]
    }
}


async def test_a_controller_that_hangs_is_told_from_an_api_server_that_hangs() -> None:
    """The API server's own answer decides."""
    answers = {"/version": (200, {"gitVersion": "v1"})}
    async with client_of(answers, silent=QUESTION, timeout=0.2) as client:
        with pytest.raises(NotServedError, match=r"the API server answers, and the kqueue controller .* does not"):
            await ask(client, QUESTION)
    async with client_of({}, silent="/", timeout=0.2) as client:
        with pytest.raises(UnreachableError, match="timed out"):
            await ask(client, QUESTION)


@pytest.mark.parametrize(
    ("answers", "error", "words"),
    [
        pytest.param({}, NotServedError, "--visibility-url", id="nobody-has-registered-the-api"),
        pytest.param(
            {DISCOVERY: (200, {}), QUESTION: refusal(404, 'workloads "b" not found')},
            NotFoundError,
            'workloads "b" not found',
            id="the-api-is-there-and-the-object-is-not",
        ),
        pytest.param(
            {SERVICE: (200, UNREACHED), QUESTION: refusal(503, "unable to handle the request")},
            NotServedError,
            "FailedDiscoveryCheck: connection refused",
            id="the-controller-is-not-reached",
        ),
        pytest.param(
            {SERVICE: refusal(403, "no"), QUESTION: refusal(503, "unable to handle the request")},
            NotServedError,
            "unable to handle",
            id="why-may-not-be-read",
        ),
        pytest.param({QUESTION: refusal(403, "bob cannot get")}, ForbiddenError, "bob cannot get", id="no-rights"),
    ],
)
async def test_who_gets_no_answer_is_told_why(answers: Answers, error: type[KqueueError], words: str) -> None:
    """A missing API, one that is not reached, a missing object and missing rights are told apart."""
    async with client_of(answers) as client:
        with pytest.raises(error, match=words):
            await ask(client, QUESTION)


async def test_answers_come_as_they_are() -> None:
    """Parameters go into the query, and the answer comes back as JSON."""
    async with client_of({QUESTION: (200, {"kind": "Explanation"})}) as client:
        found = await ask(client, QUESTION, {"limit": "5", "x": "a&b"})

    assert found == {"kind": "Explanation", "asked": "limit=5&x=a%26b"}


def test_names_cannot_lead_elsewhere() -> None:
    """What a user types as a name stays one part of the path."""
    assert path("g", "v1", "queues", "../../x", "why?") == "/apis/g/v1/queues/..%2F..%2Fx/why%3F"
