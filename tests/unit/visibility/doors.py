"""A visibility server on loopback, its authorities, and clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import trustme

from kqueue.clock import SystemClock
from kqueue.errors import ApiError
from kqueue.visibility.catalog import Catalog, CatalogResource
from kqueue.visibility.connections import ServerLimits, Trust
from kqueue.visibility.front_proxy import FrontProxy, User
from kqueue.visibility.question import JSON, AuthorizedQuestion, View
from kqueue.visibility.rights import Action, Decision, Rights
from kqueue.visibility.server import VisibilityServer

QUESTION = "/apis/g.example/v1/namespaces/a/things/b/told"
LIST = "/apis/g.example/v1/things"
POSTED = "/apis/g.example/v1/namespaces/a/wishes"
MOST_BYTES = 100


@dataclass(slots=True)
class Judge:
    """Says who is who and who may what, in place of the API server."""

    tokens: dict[str, User] = field(default_factory=dict)
    allowed: bool = True
    failure: ApiError | None = None
    asked: list[tuple[User, Action]] = field(default_factory=list)

    async def user_of(self, token: str) -> User | None:
        if self.failure is not None:
            raise self.failure
        return self.tokens.get(token)

    async def may(self, user: User, action: Action) -> Decision:
        if self.failure is not None:
            raise self.failure
        self.asked.append((user, action))
        return Decision(self.allowed, "" if self.allowed else "no role says so")

    async def may_read_workloads(self, user: User, namespace: str) -> bool:
        return namespace == "a"


@dataclass(slots=True)
class Door:
    """A server that runs, and how to connect to it."""

    server: VisibilityServer
    judge: Judge
    authority: trustme.CA
    proxies: trustme.CA
    trust: Callable[[FrontProxy | None], Trust]
    answers: list[int]
    """Statuses as they were counted."""

    def client_tls(self, *, name: str = "", signer: trustme.CA | None = None) -> ssl.SSLContext:
        """What a client trusts, and, with a name, the certificate that it shows."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        if name:
            made = (signer or self.proxies).issue_cert("client.invalid", common_name=name)
            made.configure_cert(context)
        return context

    @asynccontextmanager
    async def connected(
        self, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=tls or self.client_tls(), server_hostname="localhost"
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def ask(
        self, path: str = QUESTION, *, tls: ssl.SSLContext | None = None, method: str = "GET", **headers: Any
    ) -> tuple[int, JSON]:
        """Status and body; headers with underscores for hyphens."""
        async with self.connected(tls) as (reader, writer):
            named = {key.replace("_", "-"): value for key, value in headers.items()}
            return await exchange(reader, writer, path, method=method, headers=named)


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    path: str = QUESTION,
    *,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> tuple[int, JSON]:
    """One request as it stands, and its answer.  The connection stays open."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    async with asyncio.timeout(10):
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split(" ")[1])
        fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        if "content-length" in fields:
            raw = await reader.readexactly(int(fields["content-length"]))
        else:
            raw = b""
            while size := int(await reader.readline(), 16):
                raw += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
    return status, json.loads(raw) if raw.startswith(b"{") else {"text": raw.decode()}


BEARER: Any = {"Authorization": "Bearer secret"}


async def told(asked: AuthorizedQuestion) -> JSON:
    """A view that tells what it was asked."""
    body = {"body": asked.body.decode()} if asked.body else {}
    return {"metadata": {}, "of": f"{asked.namespace}/{asked.name}", "params": dict(asked.params), **body}


@asynccontextmanager
async def door(
    view: View = told,
    *,
    limits: ServerLimits | None = None,
    warm: Callable[[], bool] = lambda: True,
    proxied: bool = True,
) -> AsyncIterator[Door]:
    """A server with one question, one list, and one question that is posted; token `secret` is alice's."""
    authority, proxies = trustme.CA(), trustme.CA()
    judge = Judge(tokens={"secret": User(name="alice"), "other": User(name="bob")})
    place: dict[str, Any] = {"group": "g.example", "version": "v1", "name": "things"}
    catalog = Catalog(
        [
            CatalogResource(**place, subresource="told", namespaced=True, kind="Told", view=view),
            CatalogResource(**place, is_list=True, kind="ThingList", view=view),
            CatalogResource(
                **{**place, "name": "wishes"}, namespaced=True, kind="Wish", view=view, most_bytes=MOST_BYTES
            ),
        ]
    )
    answers: list[int] = []
    server = VisibilityServer(
        catalog,
        rights=cast("Rights", judge),
        warm=warm,
        clock=SystemClock(),
        limits=limits,
        on_answer=lambda status, _seconds: answers.append(status),
    )

    def trust(proxy: FrontProxy | None) -> Trust:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(context)
        if proxy is not None:
            context.load_verify_locations(cadata=proxy.authorities)
            context.verify_mode = ssl.CERT_OPTIONAL
        return Trust(context, proxy)

    server.listen("127.0.0.1", 0)
    server.start(trust(front_proxy(proxies) if proxied else None))
    try:
        yield Door(server, judge, authority, proxies, trust, answers)
    finally:
        await server.stop()


def front_proxy(authority: trustme.CA) -> FrontProxy:
    return FrontProxy(
        authorities=authority.cert_pem.bytes().decode(),
        names=frozenset({"proxy"}),
        user_headers=("X-Remote-User",),
        uid_headers=("X-Remote-Uid",),
        group_headers=("X-Remote-Group",),
        extra_prefixes=("X-Remote-Extra-",),
    )
