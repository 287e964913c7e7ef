"""APIServices of the sandbox whose servers are not there, or answer oddly."""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import trustme
from aiohttp import web
from yarl import URL

from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.api import GroupVersionResource

SERVICES, API_SERVICES = (
    GroupVersionResource("", "v1", "services"),
    GroupVersionResource("apiregistration.k8s.io", "v1", "apiservices"),
)
THINGS = "/apis/g.example/v1/things"
LIST = {"kind": "APIResourceList", "groupVersion": "g.example/v1", "resources": [
    {"name": "things", "singularName": "thing", "namespaced": False, "kind": "Thing", "verbs": ["list"]},
]}  # fmt: skip
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    made = Sandbox(SandboxOptions(parts=frozenset({"server"})))
    await made.start()
    yield made
    await made.stop()


@asynccontextmanager
async def serving(handler: Handler, authority: trustme.CA) -> AsyncIterator[int]:
    """Somebody who serves things; returns the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("things.default.svc").configure_cert(context)
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def register(sandbox: Sandbox, port: int, authority: trustme.CA) -> None:
    spec = {"type": "ExternalName", "externalName": "127.0.0.1"}
    await sandbox.api.create(SERVICES, {"metadata": {"name": "things"}, "spec": spec}, namespace="default")
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    service = {"name": "things", "namespace": "default", "port": port}
    whole = {"group": "g.example", "version": "v1", "service": service, "caBundle": bundle}
    await sandbox.api.create(API_SERVICES, {"metadata": {"name": "v1.g.example"}, "spec": whole})


async def condition(sandbox: Sandbox, status: str) -> dict[str, Any]:
    """The condition Available, as soon as it is so."""
    async with asyncio.timeout(10):
        while True:
            obj = sandbox.api.find(API_SERVICES, "v1.g.example") or {}
            for found in (obj.get("status") or {}).get("conditions") or ():
                if found["status"] == status:
                    return dict(found)
            await asyncio.sleep(0.02)


async def ask(sandbox: Sandbox, path: str = THINGS) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(URL(f"{sandbox.url}{path}", encoded=True)) as answer:
        return answer.status, await answer.json()


async def groups(sandbox: Sandbox) -> set[str]:
    return {group["name"] for group in (await ask(sandbox, "/apis"))[1]["groups"]}


async def test_who_serves_is_asked_with_the_users_name_and_listed_while_available(sandbox: Sandbox) -> None:
    """Requests and answers go through as they are; discovery tells of the group until nobody answers any more."""
    seen: list[dict[str, str]] = []

    async def things(request: web.BaseRequest) -> web.Response:
        seen.append(dict(request.headers))
        if request.path != THINGS:
            return web.json_response(LIST)
        return web.json_response({"asked": request.raw_path}, status=418, headers={"Retry-After": "7"})

    authority = trustme.CA()
    async with serving(things, authority) as port:
        await register(sandbox, port, authority)
        await condition(sandbox, "True")
        answer = await ask(sandbox, f"{THINGS}?a=%2Fb")
        there = await groups(sandbox)
    await condition(sandbox, "False")

    assert answer == (418, {"asked": f"{THINGS}?a=%2Fb"})
    assert (seen[-1]["X-Remote-User"], "g.example" in there) == ("system:admin", True)
    assert "g.example" not in await groups(sandbox)


async def test_nobody_there_is_told_as_such(sandbox: Sandbox) -> None:
    """503 to who asks, and the reason in the condition."""
    await register(sandbox, 1, trustme.CA())
    found = await condition(sandbox, "False")
    status, answer = await ask(sandbox)

    assert (status, answer["reason"]) == (503, "ServiceUnavailable")
    assert found["reason"] == "FailedDiscoveryCheck"
    assert "error trying to reach service" in found["message"]


async def test_a_server_that_cannot_prove_who_it_is_is_not_asked(sandbox: Sandbox) -> None:
    """Its certificate must be signed by the authority in the APIService."""
    asked: list[str] = []

    async def things(request: web.BaseRequest) -> web.Response:
        asked.append(request.path)
        return web.json_response(LIST)

    async with serving(things, trustme.CA()) as port:
        await register(sandbox, port, trustme.CA())
        found = await condition(sandbox, "False")

    assert "CERTIFICATE_VERIFY_FAILED" in found["message"]
    assert asked == []


async def test_an_answer_that_breaks_off_is_not_made_whole(sandbox: Sandbox) -> None:
    """Whoever reads it sees that something is missing."""

    async def things(request: web.BaseRequest) -> web.StreamResponse:
        if request.path != THINGS:
            return web.json_response(LIST)
        response = web.StreamResponse(headers={"Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.abort()
        return response

    authority = trustme.CA()
    async with serving(things, authority) as port:
        await register(sandbox, port, authority)
        await condition(sandbox, "True")
        with pytest.raises(aiohttp.ClientError):
            await ask(sandbox)
