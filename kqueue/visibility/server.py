"""The server behind the API server's aggregation layer: it identifies the user, checks the right, and answers.

It never writes, so every replica serves it; a question may be posted with a body, where its resource says how long it
may be.  Each request costs a bounded number of connections, bytes and seconds;
long answers are computed and written in steps, with turns of the event loop between them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager

import structlog
from aiohttp import web

from kqueue.clock import Clock
from kqueue.errors import (
    ApiError,
    ConfigError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
    TooManyRequestsError,
)
from kqueue.visibility.answers import JSON_TYPE, Refusal, pieces
from kqueue.visibility.catalog import Catalog, ResolvedPath, params_of
from kqueue.visibility.connections import ServerLimits, Trust, UserConnection, UserConnections
from kqueue.visibility.front_proxy import User, proves, spoken_for
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.rights import Action, Reading, Rights

_PROBES = frozenset({"/healthz", "/livez", "/readyz"})
_LONGEST_PATH, _LONGEST_QUERY = 1024, 2048
_GONE = 499
"""Status in metrics for a client that closed the connection before the answer."""
_SOON = 1
"""Seconds after which a client may ask again."""

_log = structlog.get_logger(__name__)


class VisibilityServer:
    """Serves a catalog.  `warm` returns whether the caches are complete; until then questions are refused."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        rights: Rights,
        warm: Callable[[], bool],
        clock: Clock,
        limits: ServerLimits | None = None,
        on_answer: Callable[[int, float], None] = lambda _status, _seconds: None,
    ) -> None:
        """`on_answer` gets status and seconds of each request except probes; status 499 where the client had closed the
        connection.  It must return at once.
        """
        self._on_answer = on_answer
        self._catalog, self._rights, self._warm, self._clock = catalog, rights, warm, clock
        self._limits = limits or ServerLimits()
        self._connections = UserConnections(self._serve, clock=clock, limits=self._limits)
        self._busy = 0
        self._busy_for = Counter[str]()

    @property
    def port(self) -> int:
        """The port of the server; the real one if 0 was requested."""
        return self._connections.port

    def listen(self, host: str, port: int) -> None:
        """Bind the address; requests wait until `start`.

        Raises:
            ConfigError: the address cannot be used.
        """
        self._connections.listen(host, port)

    def start(self, trust: Trust) -> None:
        """Begin to answer."""
        self._connections.start(trust)

    def believe(self, trust: Trust) -> None:
        """Use new certificates: the server's own, or the authority of the front proxy."""
        self._connections.believe(trust)

    async def stop(self) -> None:
        """Answer the requests under way, then close."""
        await self._connections.stop()

    # --- one request

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, UserConnection), "no other is made"
        connection.begin()
        try:
            return await self._answered(request, connection)
        finally:
            connection.end(self._clock.monotonic())

    async def _answered(self, request: web.BaseRequest, connection: UserConnection) -> web.StreamResponse:
        began, status = self._clock.monotonic(), 500
        try:
            response = await self._answer(request, connection)
            status = response.status
            return response
        except (ConnectionError, asyncio.CancelledError):
            status = _GONE
            raise
        finally:
            if request.path not in _PROBES:
                self._on_answer(status, self._clock.monotonic() - began)

    async def _answer(self, request: web.BaseRequest, connection: UserConnection) -> web.StreamResponse:
        try:
            async with asyncio.timeout(self._limits.write):
                await connection.writable.wait()  # earlier answers come first
        except TimeoutError:
            connection.cut()
            raise ConnectionResetError("earlier answers were not read") from None
        with ExitStack() as places:  # held until the answer is written
            try:
                found = await self._bounded(request, connection, places)
            except Refusal as refusal:
                response = refusal.response()
                if request.can_read_body:
                    response.force_close()
                return response
            if isinstance(found, web.Response):
                return found
            return await self._written(request, connection, found)

    async def _bounded(
        self, request: web.BaseRequest, connection: UserConnection, places: ExitStack
    ) -> JSON | web.Response:
        """Answer a request within the limits of requests and time."""
        path, _, query = request.raw_path.partition("?")
        method = self._method_of(path)
        if request.method != method or (method == "GET" and request.can_read_body):
            how = "only GET without a body is" if method == "GET" else "only questions that are posted are"
            raise Refusal(405, f"{how} answered here: nothing can be written", allow=method)
        if path in _PROBES:
            return web.Response(text="ok")
        if len(path) > _LONGEST_PATH or len(query) > _LONGEST_QUERY:
            raise Refusal(414, f"at most {_LONGEST_PATH} characters of path and {_LONGEST_QUERY} of query are read")
        if self._busy >= self._limits.requests:
            raise Refusal(429, "too much is being asked at once; try again", retry_after=_SOON)
        self._busy += 1
        try:
            async with asyncio.timeout(self._limits.answer):
                user = await self._user(request, connection)
                places.enter_context(self._place_of(user))
                return await self._found(user, path, query, request)
        except TimeoutError:
            raise Refusal(504, f"no answer was found within {self._limits.answer:g} s", retry_after=_SOON) from None
        finally:
            self._busy -= 1

    def _method_of(self, path: str) -> str:
        """Return the only HTTP method of a path: POST for a question with a body, which writes nothing, too."""
        found = self._catalog.find(path) if len(path) <= _LONGEST_PATH else None
        return found.resource.method if found is not None else "GET"

    @contextmanager
    def _place_of(self, user: User) -> Iterator[None]:
        if self._busy_for[user.name] >= self._limits.requests_of_one:
            raise Refusal(429, f'user "{user.name}" asks too much at once; try again', retry_after=_SOON)
        self._busy_for[user.name] += 1
        try:
            yield
        finally:
            self._busy_for[user.name] -= 1
            if not self._busy_for[user.name]:
                del self._busy_for[user.name]

    # --- the user and the rights

    async def _user(self, request: web.BaseRequest, connection: UserConnection) -> User:
        """Return the user that the front proxy names; without a front proxy, the user of the token.

        Headers that name a user are ignored unless the connection has the front proxy's certificate.
        """
        certificate, trust = connection.certificate, self._connections.trust
        if certificate and (trust is None or connection.trust.proxy != trust.proxy):
            raise Refusal(503, "the trusted front proxy has changed; ask again on a new connection", retry_after=_SOON)
        proxy = connection.trust.proxy
        if proxy is not None and proves(certificate, proxy, self._clock.now()):
            user = spoken_for(request.headers, proxy)
            if user is not None:
                return user
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        user = None
        if scheme.lower() == "bearer":
            try:
                user = await self._rights.user_of(token.strip())
            except TooManyRequestsError as e:
                raise Refusal(429, str(e), retry_after=_SOON) from e
            except ApiError as e:
                raise Refusal(503, f"cannot find out whose token this is: {e}", retry_after=_SOON) from e
        if user is None:
            raise Refusal(401, "ask through the API server, or send a bearer token that it knows")
        return user

    async def _let_in(self, user: User, action: Action) -> None:
        words = f'User "{user.name}" cannot {action.words()}'
        try:
            decision = await self._rights.may(user, action)
        except ApiError as e:
            raise Refusal(503, f"cannot find out whether they may: {words}? {e}", retry_after=_SOON) from e
        if not decision.allowed:
            what = f"{action.resource}.{action.group}" if action.resource else "this path"
            named = f' "{action.name}"' if action.name else ""
            reason = f": {decision.reason}" if decision.reason else ""
            details = {"name": action.name, "group": action.group, "kind": action.resource}
            raise Refusal(
                403,
                f"{what}{named} is forbidden: {words}{reason}",
                details={key: value for key, value in details.items() if value},
            )

    def _creates(self, user: User, namespace: str) -> Callable[[str, str, str], Awaitable[bool]]:
        async def creates(group: str, version: str, resource: str) -> bool:
            action = Action(verb="create", group=group, version=version, resource=resource, namespace=namespace)
            return (await self._rights.may(user, action)).allowed

        return creates

    # --- the answer

    async def _found(self, user: User, path: str, query: str, request: web.BaseRequest) -> JSON:
        found = self._catalog.find(path)
        if found is None:
            await self._let_in(user, Action(verb="get", path=path))
            document = self._catalog.document(path)
            if document is None:
                raise Refusal(404, "the server could not find the requested resource")
            return document
        await self._let_in(user, found.action)
        try:
            params = params_of(query)
        except ConfigError as e:
            raise Refusal(400, str(e)) from e
        if params.get("watch", "") not in ("", "0", "false"):
            raise Refusal(405, "answers are of one moment: this cannot be watched; ask again instead")
        if not self._warm():
            raise Refusal(503, "the controller has not read the whole cluster yet", retry_after=_SOON)
        reads = Reading(self._rights, user)
        body = await _body(request, found.resource.most_bytes) if found.resource.most_bytes else b""
        asked = AuthorizedQuestion(
            namespace=found.namespace,
            name=found.name,
            params=params,
            body=body,
            reads=reads,
            user=user.name,
            groups=user.groups,
            creates=self._creates(user, found.namespace),
        )
        return await self._viewed(found, asked)

    async def _viewed(self, found: ResolvedPath, asked: AuthorizedQuestion) -> JSON:
        resource = found.resource
        try:
            answer = await resource.view(asked)
        except NotFoundError as e:
            details = {"name": asked.name, "group": resource.group, "kind": resource.name}
            raise Refusal(404, str(e), details=details) from e
        except (InvalidObjectError, ConfigError) as e:
            raise Refusal(400, str(e)) from e
        except ForbiddenError as e:
            raise Refusal(403, str(e)) from e
        except TooManyRequestsError as e:
            raise Refusal(429, str(e), retry_after=_SOON) from e
        except ApiError as e:
            raise Refusal(503, str(e), retry_after=_SOON) from e
        except Exception as e:
            _log.exception("a question failed on a bug", resource=resource.name, name=asked.name)
            raise Refusal(500, f"the answer failed on a bug in kqueue ({type(e).__name__}); please report it") from e
        return {"kind": resource.kind, "apiVersion": resource.api_version, **answer}

    async def _written(self, request: web.BaseRequest, connection: UserConnection, found: JSON) -> web.StreamResponse:
        """Write an answer piece by piece; the connection of a client that does not read is closed."""
        response = web.StreamResponse(headers={"Content-Type": JSON_TYPE, "Cache-Control": "no-cache, private"})
        try:
            async with asyncio.timeout(self._limits.write_all):
                await response.prepare(request)
                async for piece in pieces(found, self._clock):
                    async with asyncio.timeout(self._limits.write):
                        await response.write(piece)
                await response.write_eof()
        except TimeoutError:
            connection.cut()
            raise ConnectionResetError("the answer was not read") from None
        except Exception as e:
            if not isinstance(e, ConnectionError):
                _log.exception("an answer failed on a bug while it was written", path=request.raw_path)
            connection.cut()
            raise ConnectionResetError("the answer could not be written") from e
        return response


async def _body(request: web.BaseRequest, most: int) -> bytes:
    """Return the body of a question; a longer one is not read to its end."""
    read = bytearray()
    async for piece in request.content.iter_any():
        read += piece
        if len(read) > most:
            raise Refusal(413, f"at most {most} bytes of a question are read")
    return bytes(read)
