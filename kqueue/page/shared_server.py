"""The server of the page for many people, in a cluster.

People sign in with a bearer token of their own, by a form or by a proxy in front that sends the token with each
request.  Each question to the cluster is sent with the asker's token, so that the rights and the audit log are the
asker's.  The server's own account reviews tokens and does nothing else.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, cast
from urllib.parse import parse_qs

import structlog
from aiohttp import web

from kqueue.clock import Clock
from kqueue.config.address import Address
from kqueue.connections import Bounds, Connection, Connections, not_listening
from kqueue.errors import ApiError, ConfigError, TooManyRequestsError
from kqueue.isolation import isolated_logged
from kqueue.observe.dashboard_metrics import DashboardMetrics
from kqueue.page.asker_page import AskerLimits
from kqueue.page.askers import Asker, Askers, OpenViews, ReviewTimes
from kqueue.page.bearer import LONGEST, bearer_of, token_in
from kqueue.page.failed_sign_ins import FailedSignIns
from kqueue.page.replies import HEADERS, STATIC, file_reply, json_reply, refusal, static_files
from kqueue.page.same_site import is_from_page
from kqueue.page.sessions import PageSession, SessionLimits, Sessions
from kqueue.page.sign_in_page import sign_in_page
from kqueue.runtime.lane import Lane, Lanes
from kqueue.visibility.rights import Rights

COOKIE: Final = "__Host-kqueue-session"
"""The prefix makes browsers insist on TLS, on this host alone, and on all of its paths."""
BOUNDS = Bounds(connections=1024, headers=64, request_bytes=32 * 1024, write=20.0)
"""Limits: an open page has one stream, and some short requests."""
PER_SECOND: Final = 3
"""Measured: fifty people with a map of 5,000 hosts each cost 0.9 % of a core."""
_SWEEP_SECONDS = 5.0
_FORM_SECONDS = 10.0
_LONGEST_FORM = LONGEST + 4096
_STOP_SECONDS = 2.0
_NOT_KNOWN = "The cluster does not know this token: it may have expired, or be for another audience."

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedLimits:
    """Limits of one server."""

    connections: Bounds = BOUNDS
    sessions: SessionLimits = field(default_factory=SessionLimits)
    asker: AskerLimits = field(default_factory=lambda: AskerLimits(feeds=12, streams=128, questions=4))
    reviews: ReviewTimes = field(default_factory=ReviewTimes)
    per_second: float = PER_SECOND
    """Questions to the cluster, of all askers together; with more, pages are renewed less often."""
    burst: int = 20


DEFAULT_LIMITS = SharedLimits()


class SharedPageServer:
    """Serves the page to everybody whose token the API server knows."""

    def __init__(
        self,
        rights: Rights,
        open_views: OpenViews,
        *,
        clock: Clock,
        tls: ssl.SSLContext | None,
        limits: SharedLimits = DEFAULT_LIMITS,
        metrics: DashboardMetrics | None = None,
    ) -> None:
        """`tls` None: plain HTTP, for a server behind another one that speaks TLS with browsers; `metrics` None:
        nothing is counted.
        """
        self._clock = clock
        self._lanes = Lanes({}, clock=clock, per_second=limits.per_second, burst=limits.burst)
        self._askers = Askers(
            rights,
            open_views,
            clock=clock,
            pace=self._pace,
            limits=limits.asker,
            times=limits.reviews,
            metrics=metrics,
        )
        self._sessions = Sessions[Asker](clock=clock, limits=limits.sessions, on_end=self._askers.release)
        self._failures = FailedSignIns(clock=clock)
        self._files = static_files()
        self._connections = Connections(self._answer, clock=clock, bounds=limits.connections, context=lambda: tls)

    @property
    def port(self) -> int:
        """The port; 0 before the server listens."""
        return self._connections.port

    @property
    def sessions(self) -> int:
        """The number of sessions."""
        return len(self._sessions)

    @property
    def streams(self) -> int:
        """The number of open streams of events."""
        return sum(asker.page.streams for asker in self._askers.all())

    @property
    def picture_age(self) -> float:
        """The seconds since the oldest answer that an open page shows was made; 0: no page has an answer."""
        return max((asker.page.oldest_picture() for asker in self._askers.all()), default=0.0)

    @asynccontextmanager
    async def listening(self, address: Address, *, setting: str = "--serve") -> AsyncGenerator[SharedPageServer, None]:
        """Listen on an address during the block; then end all sessions, and forget their tokens.

        Raises:
            ConfigError: the address cannot be used.
        """
        try:
            self._connections.listen(address.host, address.port)
        except OSError as e:
            raise ConfigError(not_listening(setting, str(address), e, remedy="choose another address")) from e
        self._connections.start()
        sweeping = asyncio.create_task(self._sweep(), name="sessions")
        try:
            yield self
        finally:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
            for asker in self._askers.all():
                self._sessions.end_of(asker)
            await self._connections.stop(_STOP_SECONDS)
            self._lanes.close()
            await self._askers.close()

    async def _pace(self, awaited: bool) -> None:
        await self._lanes.pace(Lane.JOBS if awaited else Lane.WORDS)

    async def _sweep(self) -> None:
        """End sessions whose time is over, and those whose token is not good any more while they read events."""
        while True:
            await self._clock.sleep(_SWEEP_SECONDS)
            with isolated_logged(_log, "sessions were not swept"):
                self._sessions.sweep()
                reading = {session.asker for session in self._sessions.all() if session.answering}
                await asyncio.gather(*(self._confirmed(asker) for asker in reading))

    async def _confirmed(self, asker: Asker) -> bool:
        """Whether the asker's token is good; if not, its sessions end."""
        if await self._askers.is_good(asker):
            return True
        _log.info("sessions ended: the API server does not know the token any more", user=asker.user.name)
        self._sessions.end_of(asker)
        return False

    # --- requests

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin()
        response: web.StreamResponse = refusal(500, "this page failed on a bug in kqueue; its log says more")
        try:
            with isolated_logged(_log, "a page failed on a bug", path=request.path):
                response = await self._answered(request)
            if request.can_read_body:  # nothing reads the rest
                response.force_close()
            return response
        finally:
            connection.end(self._clock.monotonic())

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET" and (refused := await self._posted(request)) is not None:
            return refused
        if request.path in self._files:
            return file_reply(self._files[request.path])
        bearer = bearer_of(request)
        if request.path == "/sign-in" and bearer is None:
            return sign_in_page()
        try:
            session = await self._session(request, bearer)
        except ApiError as e:
            return _no_review(e)
        if isinstance(session, web.Response):
            return session
        if request.path == "/":
            return _with_sign_out(file_reply(STATIC / "index.html"))
        if request.path == "/api/session":
            return json_reply({"user": session.asker.user.name, "signsOut": bearer is None})
        session.answering += 1
        try:
            return await session.asker.page.answer(request, ended=session.ended)
        finally:
            session.answering -= 1

    async def _posted(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """Answer a request that is no GET: only pages of this server send such requests.  None: it is a question."""
        if request.method != "POST":
            return refusal(405, "GET and POST are served", Allow="GET, POST")
        if not is_from_page(request.headers, request.host):
            return refusal(403, "the request is from another site, or from a browser that does not say from which one")
        match request.path:
            case "/sign-in":
                return await self._sign_in(request)
            case "/sign-out":
                return self._sign_out(request)
            case "/api/whatifs" if request.content_type == "application/json":
                return None
        return refusal(405, "the page only reads", Allow="GET")

    # --- sessions

    async def _session(self, request: web.BaseRequest, bearer: str | None) -> PageSession[Asker] | web.Response:
        """Return the session of a request, or the answer to one without.

        Raises:
            ApiError: the API server did not answer.
        """
        if bearer is not None:
            return await self._session_of_bearer(request, bearer)
        # The look of a page for its own session is no use of it.
        found = self._sessions.find(request.cookies.get(COOKIE, ""), touch=request.path != "/api/session")
        if found is not None and await self._confirmed(found.asker):
            return found
        if request.path == "/":
            return web.Response(status=303, headers={"Location": "/sign-in", **HEADERS})
        return refusal(401, "sign in at /sign-in")

    async def _session_of_bearer(self, request: web.BaseRequest, bearer: str) -> PageSession[Asker] | web.Response:
        token, address = token_in(bearer), request.remote or ""
        if token is None:
            return _unknown("the header Authorization must be one bearer token")
        key = f"bearer {token}"
        found = self._sessions.find(key)
        if found is not None:
            return found if await self._confirmed(found.asker) else _unknown("the API server does not know the token")
        if wait := self._failures.wait(address):
            return _too_many(wait)
        asker = await self._askers.asker_of(token)
        if asker is None:
            self._failures.failed(address)
            return _unknown("the API server does not know the token")
        if self._begun(asker, key) is None:
            return refusal(503, "too many people are signed in; try again later", Retry_After="60")
        session = self._sessions.find(key)
        assert session is not None, "it has just begun"
        _log.info("signed in by a proxy or a program", user=asker.user.name, address=address)
        return session

    def _begun(self, asker: Asker, key: str = "") -> str | None:
        """Begin a session and return its identifier; None: there are too many."""
        self._askers.hold(asker)
        try:
            return self._sessions.begin(asker, asker.user.name, key=key)
        except OverflowError:
            self._askers.release(asker)
            return None

    async def _sign_in(self, request: web.BaseRequest) -> web.StreamResponse:
        address = request.remote or ""
        if wait := self._failures.wait(address):
            return sign_in_page("Too many attempts have failed. Try again later.", status=429, wait=math.ceil(wait))
        text = await self._form(request)
        if text is None:
            return sign_in_page("The form could not be read: paste one token.", status=400)
        token = token_in(text)
        if token is None:
            return sign_in_page("This is no token: it has blanks, line breaks or other signs inside.", status=400)
        try:
            asker = await self._askers.asker_of(token)
        except TooManyRequestsError:
            return sign_in_page("Many people are signing in. Try again in a moment.", status=503, wait=1)
        except ApiError as e:
            _log.warning("a token was not reviewed", error=str(e))
            return sign_in_page("The API server does not answer. Try again later.", status=503, wait=10)
        if asker is None:
            self._failures.failed(address)
            _log.info("sign-in refused", address=address)
            return sign_in_page(_NOT_KNOWN, status=401)
        self._sessions.end(request.cookies.get(COOKIE, ""))  # this browser's former session
        identifier = self._begun(asker)
        if identifier is None:
            return sign_in_page("Too many people are signed in. Try again later.", status=503, wait=60)
        _log.info("signed in", user=asker.user.name, address=address)
        answer = web.Response(status=303, headers={"Location": "/", **HEADERS})
        answer.set_cookie(COOKIE, identifier, httponly=True, secure=True, samesite="Strict", path="/")
        return answer

    async def _form(self, request: web.BaseRequest) -> str | None:
        """Return the field `token` of the form of a request; None: its body is another one, too long or too late."""
        if request.content_type != "application/x-www-form-urlencoded":
            return None
        read = bytearray()
        try:
            async with asyncio.timeout(_FORM_SECONDS):
                async for piece in request.content.iter_any():
                    read += piece
                    if len(read) > _LONGEST_FORM:
                        return None
            fields = parse_qs(read.decode("ascii"), max_num_fields=4)
        except (TimeoutError, ValueError):  # UnicodeDecodeError is a ValueError
            return None
        return fields.get("token", [""])[0]

    def _sign_out(self, request: web.BaseRequest) -> web.StreamResponse:
        self._sessions.end(request.cookies.get(COOKIE, ""))
        answer = json_reply({})
        answer.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Strict")
        return answer


def _with_sign_out(page: web.Response) -> web.Response:
    """Return the page with the module that shows its user, and signs out."""
    module = b'<script type="module" src="/static/modules/signed_in.js"></script>\n</head>'
    assert isinstance(page.body, bytes), "a file is served as bytes"
    page.body = page.body.replace(b"</head>", module, 1)
    return page


def _unknown(why: str) -> web.Response:
    return refusal(401, why, WWW_Authenticate="Bearer")


def _too_many(wait: float) -> web.Response:
    return refusal(429, "too many attempts with unknown tokens", Retry_After=str(math.ceil(wait)))


def _no_review(error: ApiError) -> web.Response:
    if isinstance(error, TooManyRequestsError):
        return refusal(503, "many people are signing in; try again", Retry_After="1")
    _log.warning("a token was not reviewed", error=str(error))
    return refusal(503, "the API server does not answer, so it is not known who asks; try again", Retry_After="10")
