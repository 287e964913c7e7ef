"""The admission server: HTTPS in front of the routes.  Stateless; runs as a process of its own or inside another."""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from aiohttp import web

from kqueue.errors import ConfigError, FieldError
from webhooks.review import Answer, NotAReviewError, Request, read, write
from webhooks.routes import Handler

_log = structlog.get_logger(__name__)

MAX_BODY = 8 * 1024 * 1024
"""An object of etcd's 1.5 MiB, twice (old and new), as JSON with room to spare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRecord:
    """One review that was answered; `result` is allowed, denied, error or bad-request."""

    path: str
    operation: str
    result: str
    seconds: float


class WebhookServer:
    """Serves the routes over TLS."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        ssl_context: ssl.SSLContext | None,
        host: str = "127.0.0.1",
        port: int = 0,
        max_body: int = MAX_BODY,
        on_review: Callable[[ReviewRecord], None] = lambda _record: None,
    ) -> None:
        """`ssl_context` None serves plain HTTP, for tests on loopback; `port` 0 takes a free one."""
        self._routes, self._ssl, self._host, self._port = dict(routes), ssl_context, host, port
        self._on_review = on_review
        self._app = web.Application(client_max_size=max_body)
        self._app.router.add_get("/healthz", _fine)
        self._app.router.add_get("/readyz", _fine)
        self._app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """Where it listens; the real port where 0 was asked."""
        return self._port

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the address cannot be used.
        """
        runner = web.AppRunner(self._app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, self._host or None, self._port, ssl_context=self._ssl)
        try:
            await site.start()
        except OSError as e:
            await runner.cleanup()
            taken = e.errno == errno.EADDRINUSE
            why = "is taken: choose another webhook.port" if taken else f"cannot be used ({e.strerror or e})"
            raise ConfigError(f"webhook address {self._host or '*'}:{self._port} {why}") from e
        self._runner = runner
        self._port = int(runner.addresses[0][1])

    async def stop(self) -> None:
        """Answer what is being asked, then close."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, http: web.Request) -> web.Response:
        started = time.perf_counter()
        handler = self._routes.get(http.path)
        if handler is None:
            text = f"no webhook at {http.path}; paths are /mutate-<group>-<version>-<kind> and /validate-..."
            return web.Response(status=404, text=text)
        if http.method != "POST":
            return web.Response(status=405, text="send the AdmissionReview by POST", headers={"Allow": "POST"})
        try:
            request = read(await http.read())
        except web.HTTPRequestEntityTooLarge:
            text = f"the body is larger than {self._app._client_max_size} bytes"  # noqa: SLF001 - no public reader
            return self._refuse(http, 413, text, started)
        except NotAReviewError as e:
            return self._refuse(http, 400, str(e), started)
        answer, result = await self._answer(handler, request, http.path)
        record = ReviewRecord(
            path=http.path, operation=request.operation, result=result, seconds=time.perf_counter() - started
        )
        self._on_review(record)
        return web.Response(body=write(request, answer), content_type="application/json")

    async def _answer(self, handler: Handler, request: Request, path: str) -> tuple[Answer, str]:
        """The handler's answer; a bug in it refuses this one request, in words, and stops nothing else."""
        try:
            answer = handler(request)
        except Exception as e:  # noqa: BLE001 - the boundary that keeps one request from stopping the others
            _log.exception("webhook failed on a bug", path=path)
            problem = f"the check failed on a bug in kqueue ({type(e).__name__}: {e}); please report it"
            return Answer(problems=[FieldError("(object)", problem)]), "error"
        await asyncio.sleep(0)
        return answer, "denied" if answer.problems else "allowed"

    def _refuse(self, http: web.Request, status: int, text: str, started: float) -> web.Response:
        record = ReviewRecord(path=http.path, operation="", result="bad-request", seconds=time.perf_counter() - started)
        self._on_review(record)
        return web.Response(status=status, text=text)


async def _fine(_request: web.Request) -> web.Response:
    return web.Response(text="ok")
