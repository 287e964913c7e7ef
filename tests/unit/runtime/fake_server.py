"""A small API server with faults on request.

It serves one namespaced kind ("things") and leases: list with pages, watch with resume, bookmarks and streamed initial
state, optimistic locking.  Faults wait in a queue; each request of their sort takes one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from multidict import CIMultiDictProxy

from kqueue.runtime.resources import ResourceType

THINGS = ResourceType("example.dev", "v1", "things", "Thing")

Json = dict[str, Any]
Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]

HTML = "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"


def status(code: int, reason: str, message: str = "told so", **more: Any) -> Json:
    """A Kubernetes Status."""
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": message, **more}  # fmt: skip


def answers(code: int, reason: str = "", headers: dict[str, str] | None = None, message: str = "told so") -> Fault:
    """Answer with a Status."""

    async def fault(_: web.Request) -> web.StreamResponse:
        return web.json_response(status(code, reason, message), status=code, headers=headers)

    return fault


def html(code: int) -> Fault:
    """Answer with a proxy's page."""

    async def fault(_: web.Request) -> web.StreamResponse:
        return web.Response(text=HTML, status=code, content_type="text/html")

    return fault


async def drops(request: web.Request) -> web.StreamResponse:
    """Cut the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def sends(body: bytes) -> Fault:
    """Answer with these bytes."""

    async def fault(_: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return fault


def endless(code: int = 200) -> Fault:
    """Answer with a body that does not end before the client closes the connection."""

    async def fault(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=code, headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            while True:
                await response.write(b"[" * (1 << 16))
        return response

    return fault


async def hangs(_: web.Request) -> web.StreamResponse:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def stream_of(*pieces: bytes, then: str = "close") -> Fault:
    """A watch that sends `pieces` and then closes, drops or hangs."""

    async def fault(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if then == "hang":
            await asyncio.Event().wait()
        if then == "drop":
            assert request.transport is not None
            request.transport.abort()
        return response

    return fault


@dataclass
class FakeServer:
    """State, history and faults.  `url` is set while it serves."""

    url: str = ""
    version: int = 100
    objects: dict[str, Json] = field(default_factory=dict)
    leases: dict[str, Json] = field(default_factory=dict)
    history: list[tuple[int, str, Json]] = field(default_factory=list)
    forgotten: int = 0
    """Versions up to this one are too old for a watch."""
    streaming: bool = True
    token: str | None = None
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    """By verb: list, watch, get, create, update, patch, delete."""
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """(verb, path, query) of everything asked."""
    headers: list[CIMultiDictProxy[str]] = field(default_factory=list)
    """Headers of everything asked."""
    delete_options: list[Json] = field(default_factory=list)
    """Bodies of deletions."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    cut: asyncio.Event = field(default_factory=asyncio.Event)
    generation: int = 0
    """Watches of former ones are mute."""
    mangle: Callable[[list[bytes]], list[bytes]] = lambda lines: lines
    """Applied to each batch of watch lines: duplicates, reorders."""

    # --- the world changes

    def put(self, name: str, **spec: Any) -> Json:
        """Create or change a thing."""
        self.version += 1
        kind = "MODIFIED" if name in self.objects else "ADDED"
        meta = {"name": name, "namespace": "ns", "resourceVersion": str(self.version)}
        obj = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": meta, "spec": spec}
        self.objects[name] = obj
        self._happened(kind, obj)
        return obj

    def remove(self, name: str) -> None:
        """Delete a thing; its last event carries the version of the deletion."""
        self.version += 1
        obj = self.objects.pop(name)
        self._happened("DELETED", {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}})

    def forget(self) -> None:
        """Compact: watches from before now get a 410."""
        self.forgotten = self.version

    def cut_watches(self) -> None:
        """Close every open watch."""
        self.cut.set()
        self.cut = asyncio.Event()

    def mute(self) -> None:
        """Every open watch stays open and brings nothing any more: its connection is dead, and nobody has noticed."""
        self.generation += 1

    def fail(self, verb: str, *faults: Fault) -> None:
        """Let the next requests of `verb` meet `faults`, one each."""
        self.faults.setdefault(verb, deque()).extend(faults)

    def _happened(self, kind: str, obj: Json) -> None:
        self.history.append((self.version, kind, obj))
        self.changed.set()
        self.changed = asyncio.Event()

    # --- serving

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        named = len(parts) > (6 if "namespaces" in parts else 4)
        verb = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(request.method, "")
        verb = verb or ("get" if named or parts == ["version"] else "watch" if "watch" in request.query else "list")
        self.requests.append((verb, request.path, dict(request.query)))
        self.headers.append(request.headers)
        waiting = self.faults.get(verb)
        if waiting:
            return await waiting.popleft()(request)
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response(status(401, "Unauthorized"), status=401)
        if parts == ["version"]:
            return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.3"})
        if verb == "list":
            return self._list(request)
        if verb == "watch":
            return await self._watch(request)
        shelf = self.leases if "leases" in parts else self.objects
        return await self._single(request, verb, shelf, parts[-1])

    def _list(self, request: web.Request) -> web.Response:
        limit = int(request.query.get("limit", 0))
        moment, _, token = request.query.get("continue", "").partition(":")
        if token and int(moment) < self.forgotten:
            return web.json_response(status(410, "Expired", "the continue token is too old"), status=410)
        items = sorted(self.objects.values(), key=lambda o: o["metadata"]["name"])
        start = int(token) if token else 0
        page = items[start : start + limit] if limit else items[start:]
        more = f"{moment or self.version}:{start + limit}" if limit and start + limit < len(items) else ""
        meta = {"resourceVersion": str(self.version), **({"continue": more} if more else {})}
        return web.json_response({"kind": "ThingList", "metadata": meta, "items": page})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        streamed = request.query.get("sendInitialEvents") == "true"
        if streamed and not self.streaming:
            return web.json_response(status(422, "Invalid", "sendInitialEvents is forbidden"), status=422)
        since = self.version if streamed else int(request.query["resourceVersion"])
        cut, generation = self.cut, self.generation
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.forgotten:
            await response.write(_line("ERROR", status(410, "Expired", "too old resource version")))
            return response
        if streamed:
            lines = [_line("ADDED", o) for o in self.objects.values()]
            lines.append(bookmark(since, end=True))
            await response.write(b"".join(self.mangle(lines)))
        while not cut.is_set():
            changed = self.changed
            lines = [_line(kind, obj) for version, kind, obj in self.history if version > since]
            since = self.version
            if lines and generation == self.generation:
                await response.write(b"".join(self.mangle(lines)))
            await _first(changed.wait(), cut.wait())
        return response

    async def _single(self, request: web.Request, verb: str, shelf: dict[str, Json], name: str) -> web.Response:
        if verb == "create":
            obj = await request.json()
            name = obj["metadata"]["name"]
            if name in shelf:
                return web.json_response(status(409, "AlreadyExists"), status=409)
            return self._store(shelf, name, obj, 201)
        if name == "status":
            name = request.path.split("/")[-2]
        if name not in shelf:
            return web.json_response(status(404, "NotFound", f'things "{name}" not found'), status=404)
        if verb == "get":
            return web.json_response(shelf[name])
        if verb == "delete":
            self.delete_options.append(await request.json())
            return web.json_response(shelf.pop(name))
        body = await request.json()
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != shelf[name]["metadata"]["resourceVersion"]:
            return web.json_response(status(409, "Conflict", "the object has been modified"), status=409)
        return self._store(shelf, name, {**shelf[name], **body}, 200)

    def _store(self, shelf: dict[str, Json], name: str, obj: Json, code: int) -> web.Response:
        self.version += 1
        meta = {**shelf.get(name, obj)["metadata"], "resourceVersion": str(self.version)}
        shelf[name] = {**obj, "metadata": meta}
        return web.json_response(shelf[name], status=code)


def bookmark(version: int, *, end: bool = False) -> bytes:
    """A BOOKMARK line; `end` marks the end of the initial events."""
    notes = {"annotations": {"k8s.io/initial-events-end": "true"}} if end else {}
    return _line("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": str(version), **notes}})


def event_line(kind: str, name: str, version: int, **spec: Any) -> bytes:
    """A watch line about a thing."""
    meta = {"name": name, "namespace": "ns", "resourceVersion": str(version)}
    return _line(kind, {"kind": "Thing", "metadata": meta, "spec": spec})


def _line(kind: str, obj: Json) -> bytes:
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


async def _first(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(w) for w in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
