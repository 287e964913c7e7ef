"""Liveness, readiness and metrics over HTTP, with room for other read-only routes."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import structlog
from aiohttp import web

from kqueue.clock import Clock, SystemClock
from kqueue.config.address import Address, parse_address
from kqueue.connections import Bounds, Connection, Connections, not_listening
from kqueue.errors import ConfigError
from kqueue.isolation import isolated, isolated_logged
from kqueue.observe.exposition import CONTENT_TYPE
from kqueue.observe.metrics import Metrics

Check = Callable[[], str | None]
"""Returns None when the condition holds, else one sentence with the reason."""

Guard = Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]]
"""Returns the response that refuses a request; None: the request is allowed."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

BOUNDS = Bounds(connections=128, headers=64, request_bytes=16 * 1024, write=15.0)
"""Limits: no request needs a body; a page of metrics may have some MiB."""
_STOP_SECONDS = 1.0
_REMEDY = 'choose another address, or "0" to switch it off'

_log = structlog.get_logger(__name__)


class Checks:
    """Named conditions of readiness.  Without any, the process is ready."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}

    def add(self, name: str, check: Check) -> None:
        """Add a check that readiness requires; replaces a check of the same name."""
        self._checks[name] = check

    def remove(self, name: str) -> None:
        """Remove a check."""
        self._checks.pop(name, None)

    def results(self) -> dict[str, str | None]:
        """Return the answer of every check, in the order of their addition."""
        return {name: _asked(check) for name, check in self._checks.items()}


def _asked(check: Check) -> str | None:
    with isolated() as asked:  # a broken check means "not ready", never a broken server
        return check()
    return f"the check itself failed: {type(asked.error).__name__}: {asked.error}"


@dataclass(frozen=True, slots=True)
class Route:
    """A read-only page beside metrics, such as a dump of queues."""

    path: str
    handler: Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEndpoint:
    """One address, and its TLS and access check."""

    setting: str
    """The setting or flag to name in errors, such as `metrics.bindAddress`."""
    bind_address: str
    tls: ssl.SSLContext | None = None


class ProbePaths(NamedTuple):
    """The address of the probes."""

    readiness: str = "/readyz"
    liveness: str = "/healthz"


DEFAULT_PATHS = ProbePaths()


class HealthServer:
    """Serves probes on one address and metrics on another; both may be the same, each may be off (`0`).

    Probes: liveness is 200 whenever the event loop answers; readiness is 200 when every check passes, else 503 with one
    line per failing check.  `?verbose` lists the passing ones too.
    """

    def __init__(
        self,
        *,
        checks: Checks,
        metrics: Metrics,
        routes: Iterable[Route] = (),
        paths: ProbePaths = DEFAULT_PATHS,
        guard: Guard | None = None,
        clock: Clock | None = None,
        bounds: Bounds = BOUNDS,
    ) -> None:
        """`routes` are served beside `/metrics`; `guard` checks access to both."""
        self._checks, self._metrics, self._guard = checks, metrics, guard
        self._probes = [Route(paths.liveness, self._live), Route(paths.readiness, self._ready)]
        self._pages = [Route("/metrics", self._render), *routes]
        self._clock, self._bounds = clock or SystemClock(), bounds
        self._open: list[Connections] = []
        self._addresses: dict[str, Address] = {}

    @property
    def addresses(self) -> dict[str, Address]:
        """Return the address of each endpoint by its setting's name, with the real port where 0 was configured."""
        return dict(self._addresses)

    async def start(self, *, probes: HttpEndpoint, metrics: HttpEndpoint) -> None:
        """Listen.

        Raises:
            ConfigError: an address cannot be used; sockets that were opened before are closed.
        """
        try:
            where, also = _parsed(probes), _parsed(metrics)
            if where is not None and where == also and where.port != 0:
                if metrics.tls is not None:
                    raise ConfigError(
                        f"{metrics.setting}: {also} is where probes are answered, without TLS; choose another port"
                    )
                await self._serve(metrics, where, [*self._probes, *self._pages])
                self._addresses[probes.setting] = self._addresses[metrics.setting]
                return
            if where is not None:
                await self._serve(probes, where, self._probes)
            if also is not None:
                await self._serve(metrics, also, self._pages)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening and close open connections."""
        all_open, self._open, self._addresses = self._open, [], {}
        for connections in all_open:
            await connections.stop(_STOP_SECONDS)

    async def _serve(self, endpoint: HttpEndpoint, address: Address, routes: list[Route]) -> None:
        handlers = {
            route.path: route.handler if route in self._probes else self._guarded(route.handler) for route in routes
        }

        async def serve(request: web.BaseRequest) -> web.StreamResponse:
            return await self._answer(request, handlers)

        connections = Connections(serve, clock=self._clock, bounds=self._bounds, context=lambda: endpoint.tls)
        try:
            connections.listen(address.host, address.port)
        except OSError as e:
            raise ConfigError(not_listening(endpoint.setting, str(address), e, remedy=_REMEDY)) from e
        connections.start()
        self._open.append(connections)
        self._addresses[endpoint.setting] = Address(address.host, connections.port)

    async def _answer(self, request: web.BaseRequest, handlers: Mapping[str, Handler]) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, Connection), "no other is made"
        connection.begin()
        text = "this page failed on a bug in kqueue; its log says more\n"
        response: web.StreamResponse = web.Response(status=500, text=text)
        try:
            with isolated_logged(_log, "a page failed on a bug", path=request.path):
                response = await self._page(request, handlers)
        finally:
            connection.end(self._clock.monotonic())
        if request.can_read_body:
            response.force_close()
        return response

    async def _page(self, request: web.BaseRequest, handlers: Mapping[str, Handler]) -> web.StreamResponse:
        handler = handlers.get(request.path)
        if handler is None:
            return web.Response(status=404, text="there is no such page\n")
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="this is only read: GET\n", headers={"Allow": "GET,HEAD"})
        return await handler(request)

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.BaseRequest) -> web.StreamResponse:
            refusal = await self._guard(request) if self._guard is not None else None
            return await handler(request) if refusal is None else refusal

        return guarded

    async def _live(self, request: web.BaseRequest) -> web.Response:
        return web.Response(text="ok\n")

    async def _ready(self, request: web.BaseRequest) -> web.Response:
        results = self._checks.results()
        ready = all(reason is None for reason in results.values())
        verbose = "verbose" in request.query
        lines = [f"[-] {name}: {reason}" for name, reason in results.items() if reason is not None]
        if verbose:
            lines += [f"[+] {name}: ok" for name, reason in results.items() if reason is None]
        lines.append("ok" if ready else "not ready")
        return web.Response(status=200 if ready else 503, text="\n".join(lines) + "\n")

    async def _render(self, request: web.BaseRequest) -> web.Response:
        page = await self._metrics.render()
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE})


def _parsed(endpoint: HttpEndpoint) -> Address | None:
    try:
        return parse_address(endpoint.bind_address)
    except ValueError as e:
        raise ConfigError(f"{endpoint.setting}: {e} (found {endpoint.bind_address!r})") from None
