"""The process that serves the page to many people: its connections, certificate, probes and end."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from kqueue.clock import Clock, SystemClock
from kqueue.config.address import parse_address
from kqueue.errors import ConfigError
from kqueue.manager.metrics_access import certificate, guard
from kqueue.observe import Checks, HealthServer, HttpEndpoint, MetricGroups, Metrics
from kqueue.page.asker_views import AskerViews, namespace_of
from kqueue.page.askers import OpenedViews, OpenViews
from kqueue.page.shared_server import PER_SECOND, SharedLimits, SharedPageServer
from kqueue.runtime.client import Client, client_of
from kqueue.runtime.kubeconfig import Overrides, find_cluster
from kqueue.runtime.loop import stop_signal, tune_collector
from kqueue.runtime.served_certificate import served_certificate
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Rights

Lines = Callable[[dict[str, Any]], Iterable[tuple[str, int, str]]]
DASHBOARD_GROUPS = MetricGroups(
    local_queues=False, cohorts=False, creation_latency=False, unadmitted=False, hashes=False, dashboard=True
)
"""This process has no queues, so most families of a controller stay without series."""
FAREWELL_SECONDS = 3.0
"""From the signal to end until no connection is accepted: proxies go on sending requests for a moment."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Where and how to serve."""

    address: str
    """`:8443`, `127.0.0.1:8443`."""
    certificates: Path | None = None
    """Folder of tls.crt and tls.key, read again when they change; None: a certificate of the process itself."""
    plain_http: bool = False
    """No TLS: another server in front speaks TLS with browsers."""
    health_address: str = "0"
    metrics_address: str = "0"
    metrics_secure: bool = False
    """Metrics are served by TLS to users that may `get` the path /metrics."""
    per_second: int = PER_SECOND
    """Questions to the cluster, of all people together."""
    kubeconfig: Path | None = None
    context: str | None = None
    cluster: str = ""
    server: str = ""


def views_of_tokens(options: ServeOptions, lines: Lines, what_if_lines: Lines, *, clock: Clock) -> OpenViews:
    """Return a function that opens views with a client that has one token, and no other credentials of the process."""

    async def opened(token: str, user: User) -> OpenedViews:
        if not token:
            raise ValueError("without a token the client would ask with the account of the process")
        # The token replaces whatever the kubeconfig or the pod has, client certificates too.
        overrides = Overrides(cluster=options.cluster, server=options.server, token=token)
        found = await find_cluster(options.kubeconfig, options.context, overrides, clock=clock)
        client = client_of(found, clock=clock)
        namespace = namespace_of(user.name)
        views = AskerViews(client, lines, namespace=namespace, what_if_lines=what_if_lines, clock=clock)
        return OpenedViews(views, client.close)

    return opened


@contextlib.asynccontextmanager
async def serving(
    options: ServeOptions, own: Client, lines: Lines, what_if_lines: Lines, *, clock: Clock
) -> AsyncIterator[tuple[SharedPageServer, Checks]]:
    """Serve during the block; `own` reviews tokens and the access to metrics, and is used for nothing else.

    Raises:
        ConfigError: an address or the certificate cannot be used.
    """
    try:
        address = parse_address(options.address)
    except ValueError as e:
        raise ConfigError(f"--serve: {e} (found {options.address!r})") from None
    if address is None:
        raise ConfigError('--serve: must be an address such as ":8443"')
    checks = Checks()
    metrics = Metrics(groups=DASHBOARD_GROUPS, clock=clock)
    async with contextlib.AsyncExitStack() as stack:
        tls: ssl.SSLContext | None = None
        if not options.plain_http:
            names = ["kqueue-dashboard", "localhost"]
            tls = await stack.enter_async_context(served_certificate(options.certificates, names, clock=clock))
        rights = Rights(own, clock=clock, on_review=metrics.dashboard.reviewed)
        server = SharedPageServer(
            rights,
            views_of_tokens(options, lines, what_if_lines, clock=clock),
            clock=clock,
            tls=tls,
            limits=SharedLimits(per_second=options.per_second),
            metrics=metrics.dashboard,
        )
        metrics.dashboard.follow(
            readers=lambda: server.streams, sessions=lambda: server.sessions, picture_age=lambda: server.picture_age
        )
        await stack.enter_async_context(server.listening(address))
        secured: ssl.SSLContext | None = None
        if options.metrics_secure and options.metrics_address != "0":
            secured = await stack.enter_async_context(certificate(None, clock))
        # The metrics have Rights of their own: scrapes with unknown tokens must not use up the reviews of sign-ins.
        allowed = guard(Rights(own, clock=clock))
        health = HealthServer(
            checks=checks, metrics=metrics, guard=allowed if options.metrics_secure else None, clock=clock
        )
        await health.start(
            probes=HttpEndpoint(setting="--health-address", bind_address=options.health_address),
            metrics=HttpEndpoint(setting="--metrics-address", bind_address=options.metrics_address, tls=secured),
        )
        stack.push_async_callback(health.stop)
        yield server, checks


async def serve(options: ServeOptions, own: Client, lines: Lines, what_if_lines: Lines) -> None:
    """Serve until SIGTERM or SIGINT, and for some seconds longer.

    Raises:
        ConfigError: an address or the certificate cannot be used.
    """
    stop, clock = stop_signal(), SystemClock()
    tune_collector()
    async with serving(options, own, lines, what_if_lines, clock=clock) as (server, checks):
        _log.info("dashboard started", address=options.address, port=server.port, tls=not options.plain_http)
        await stop.wait()
        checks.add("stop", lambda: "the process ends")
        _log.info("dashboard stops", sessions=server.sessions)
        await clock.sleep(FAREWELL_SECONDS)
