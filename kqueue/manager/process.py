"""Runs a controller process or a webhook process: client, probes, operator and signals."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from kqueue import __version__
from kqueue.clock import Clock, SystemClock, utc_text
from kqueue.config import Configuration, Timings
from kqueue.errors import KqueueError
from kqueue.manager.debugging import Signals, dump
from kqueue.manager.extensions import allow_profiles, load_profiles
from kqueue.observe import (
    Checks,
    CustomLabel,
    HealthServer,
    HttpEndpoint,
    Kind,
    MetricGroups,
    Metrics,
    ProbePaths,
    traces_from,
)
from kqueue.runtime.client import Client, connect
from kqueue.runtime.lane import Lane, Lanes
from kqueue.runtime.loop import stop_signal, tune_collector
from kqueue.runtime.transport import ClientSettings, RequestRecord
from kqueue.scheduling.joint.extensions import load_policies

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator
    from webhooks.server import ReviewRecord

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Settings of the command line.  None leaves a setting as the configuration file says."""

    kubeconfig: Path | None = None
    context: str | None = None
    parts: frozenset[str] = frozenset()
    health_address: str | None = None
    metrics_address: str | None = None
    metrics_secure: bool = False
    """Serve metrics over TLS, to users that the API server allows to read them."""
    webhook_host: str | None = None
    webhook_port: int | None = None
    webhook_url: str = ""
    """Address at which the API server reaches the webhooks of this process; empty: the service of the configuration."""
    webhook_certificates: Path | None = None
    """Folder of certificates that kqueue does not renew; None: kqueue makes its own."""
    webhook_register: bool | None = None
    """Whether this process writes the webhook configurations to the API server."""
    visibility: bool = False
    """Serve the visibility API, unless its feature gate is off."""
    visibility_host: str | None = None
    visibility_port: int | None = None
    visibility_url: str = ""
    """Address at which the API server reaches it from outside of the cluster; empty: through its Service."""
    visibility_certificates: Path | None = None
    """Folder of certificates that kqueue does not renew; None: kqueue makes its own."""


@dataclass(frozen=True, slots=True)
class RunningOperator:
    """A started operator; `task` ends only when it fails."""

    operator: Operator
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class _Frame:
    """The client, the metrics and the checks of a process."""

    client: Client
    metrics: Metrics
    checks: Checks


_STARTING = "start"
"""Name of the readiness check that fails until the process is complete."""
_STOPPING = "stop"
"""Name of the readiness check that fails after a signal to end."""


@asynccontextmanager
async def running(
    configuration: Configuration,
    flags: Flags,
    *,
    clock: Clock | None = None,
    timings: Timings | None = None,
    on_request: Callable[[RequestRecord], None] | None = None,
    farewell: float = 0.0,
) -> AsyncIterator[RunningOperator]:
    """Run an operator for the duration of the block, and serve its probes and metrics.

    An error that ended the operator is raised when the block ends.  The webhooks of the process answer for `farewell`
    seconds longer than the rest runs.

    Raises:
        ConfigError: the kubeconfig or an address cannot be used.
    """
    from kqueue.manager.operator import Operator  # imports numpy and the core, which webhooks do not need
    from kqueue.manager.start_notes import add_start_notes

    clock = clock or SystemClock()
    timings = timings or Timings.from_env()
    async with contextlib.AsyncExitStack() as stack:
        frame = await stack.enter_async_context(_frame(configuration, flags, timings, clock, on_request))
        wired = Operator(
            client=frame.client,
            config=configuration,
            timings=timings,
            clock=clock,
            metrics=frame.metrics,
            checks=frame.checks,
            parts=flags.parts,
        )
        if "scheduler" in flags.parts:
            add_start_notes(wired)
        if (traces := traces_from()) is not None:
            wired.trace(traces)
            stack.push_async_callback(traces.finish, timings.event_farewell)
        frame.checks.remove(_STARTING)
        if "webhooks" in flags.parts:
            await stack.enter_async_context(_webhooks(frame, configuration, flags, clock, timings))
            if farewell > 0:
                stack.push_async_callback(clock.sleep, farewell)
        if flags.visibility and configuration.enabled("VisibilityOnDemand"):
            await stack.enter_async_context(_visibility(frame, wired, flags))
        work = asyncio.create_task(wired.run(), name="operator")
        stack.push_async_callback(wired.finish)
        stack.push_async_callback(_ended, work)
        yield RunningOperator(wired, work)


@asynccontextmanager
async def _frame(
    configuration: Configuration,
    flags: Flags,
    timings: Timings,
    clock: Clock,
    on_request: Callable[[RequestRecord], None] | None = None,
) -> AsyncIterator[_Frame]:
    """Connect a client, and serve probes and metrics.  The process is not ready until the check `start` is removed."""
    options = configuration.metrics
    metrics = Metrics(
        clock=clock,
        groups=MetricGroups(
            local_queues=options.local_queue_metrics.enable and configuration.enabled("LocalQueueMetrics"),
            cohorts=configuration.enabled("MetricsForCohorts"),
            creation_latency=configuration.enabled("MetricForWorkloadCreationLatency"),
            cluster_queue_resources=options.enable_cluster_queue_resources,
            unadmitted=configuration.enabled("UnadmittedWorkloadsObservability"),
            hashes=configuration.enabled("SchedulingEquivalenceHashing"),
        ),
        custom_labels=_custom_labels(configuration),
        cache_seconds=timings.metrics_cache,
    )
    checks = Checks()
    checks.add(_STARTING, lambda: "is not over yet")
    client = await _connect(configuration, flags, timings, clock, _counted(metrics, on_request))
    _show_lanes(metrics, client.lanes)
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(client)
        guard, tls = None, None
        if flags.metrics_secure:
            from kqueue.manager import metrics_access  # imports cryptography
            from kqueue.visibility.rights import Rights

            guard = metrics_access.guard(Rights(client, clock=clock))
            tls = await stack.enter_async_context(metrics_access.certificate(configuration, clock))
        health = HealthServer(
            checks=checks,
            metrics=metrics,
            paths=ProbePaths(
                readiness=configuration.health.readiness_endpoint_name,
                liveness=configuration.health.liveness_endpoint_name,
            ),
            guard=guard,
        )
        probes = flags.health_address or configuration.health.health_probe_bind_address
        address = flags.metrics_address or options.bind_address
        await health.start(
            probes=HttpEndpoint(setting="health.healthProbeBindAddress", bind_address=probes),
            metrics=HttpEndpoint(setting="metrics.bindAddress", bind_address=address, tls=tls),
        )
        stack.push_async_callback(health.stop)
        with metrics.collector_pauses():
            yield _Frame(client, metrics, checks)


def _custom_labels(configuration: Configuration) -> dict[Kind, list[CustomLabel]]:
    if not configuration.metrics.custom_labels:
        return {}
    from kqueue.manager.rules import custom_labels

    return custom_labels(configuration)


async def _ended(work: asyncio.Task[None]) -> None:
    work.cancel()
    try:
        await work
    except asyncio.CancelledError:
        pass
    except BaseExceptionGroup as group:
        reason = _reason(group)
        if reason is None:
            raise
        raise reason from group


def _reason(group: BaseExceptionGroup[BaseException]) -> KqueueError | None:
    """Return the first error of a group; None when any error of the group is not a `KqueueError`, which means a bug."""
    if group.split(KqueueError)[1] is not None:
        return None
    first: BaseException = group
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first if isinstance(first, KqueueError) else None


@asynccontextmanager
async def _webhooks(
    frame: _Frame, configuration: Configuration, flags: Flags, clock: Clock, timings: Timings
) -> AsyncIterator[None]:
    """Serve the webhooks in this process and register them.  The process is not ready before."""
    from kqueue.manager.admission import AdmissionEndpoint, admission  # imports cryptography, which only webhooks need

    settings, management = configuration.webhook, configuration.internal_cert_management
    endpoint = AdmissionEndpoint(
        host=settings.host if flags.webhook_host is None else flags.webhook_host,
        port=settings.port if flags.webhook_port is None else flags.webhook_port,
        url=flags.webhook_url,
        certificates=flags.webhook_certificates or (None if management.enable else settings.cert_dir),
        register=settings.register_webhooks if flags.webhook_register is None else flags.webhook_register,
    )
    frame.checks.add("webhooks", lambda: "are not registered yet")
    served = _Served(clock, frame.metrics, timings.certificate_remaining)
    frame.checks.add("certificate", served.check)
    async with admission(
        frame.client,
        configuration,
        endpoint,
        clock=clock,
        on_review=_reviewed(frame.metrics),
        on_certificate=lambda bundle: served.is_now(bundle.not_after),
    ):
        frame.checks.remove("webhooks")
        yield


@asynccontextmanager
async def _visibility(frame: _Frame, wired: Operator, flags: Flags) -> AsyncIterator[None]:
    """Serve the visibility API of this process, whether the process leads or not."""
    from kqueue.manager.visibility import VisibilityEndpoint, catalog_of, visibility  # imports cryptography

    settings = wired.config.visibility_server
    endpoint = VisibilityEndpoint(
        host=settings.bind_address if flags.visibility_host is None else flags.visibility_host,
        port=settings.bind_port if flags.visibility_port is None else flags.visibility_port,
        url=flags.visibility_url,
        certificates=flags.visibility_certificates,
    )
    async with visibility(
        frame.client,
        wired.config,
        endpoint,
        catalog_of(wired),
        warm=wired.synced.is_set,
        checks=frame.checks,
        clock=wired.clock,
        metrics=frame.metrics,
    ):
        yield


class _Served:
    """The certificate that the webhooks serve."""

    def __init__(self, clock: Clock, metrics: Metrics, least: float) -> None:
        """`least`: seconds for which the certificate must still be valid; the process is not ready with less."""
        self._clock, self._metrics, self._least = clock, metrics, timedelta(seconds=least)
        self._not_after: datetime | None = None

    def is_now(self, not_after: datetime) -> None:
        """Note that the webhooks serve a certificate that expires at this time."""
        self._not_after = not_after
        self._metrics.webhook_certificate(not_after)

    def check(self) -> str | None:
        """Return why the certificate makes the process unready; None when it does not."""
        if self._not_after is None:
            return "there is none yet"
        left = self._not_after - self._clock.now()
        if left > self._least:
            return None
        when = utc_text(self._not_after)
        if left <= timedelta(0):
            return f"it expired at {when}; the log says why it was not renewed"
        return f"it expires at {when} and was not renewed; the log says why"


def _reviewed(metrics: Metrics) -> Callable[[ReviewRecord], None]:
    def on_review(record: ReviewRecord) -> None:
        metrics.webhook(path=record.path, operation=record.operation, result=record.result, seconds=record.seconds)

    return on_review


async def _connect(
    configuration: Configuration,
    flags: Flags,
    timings: Timings,
    clock: Clock,
    on_request: Callable[[RequestRecord], None],
) -> Client:
    connection = configuration.client_connection
    settings = ClientSettings(
        call_timeout=timings.api_call_timeout,
        connect_timeout=timings.watch_connect_timeout,
        watch_read_timeout=timings.watch_read_timeout,
        per_second=float(connection.qps) if connection.qps > 0 else None,
        burst=connection.burst,
    )
    return await connect(flags.kubeconfig, flags.context, settings, clock=clock, on_request=on_request)


def _show_lanes(metrics: Metrics, lanes: Lanes) -> None:
    for lane in Lane:
        metrics.request_lane(
            lane.value,
            in_flight=partial(lanes.in_flight.__getitem__, lane),
            waiting=partial(lanes.waiting, lane),
            oldest_age=partial(lanes.oldest_age, lane),
        )


def _counted(metrics: Metrics, also: Callable[[RequestRecord], None] | None) -> Callable[[RequestRecord], None]:
    def on_request(record: RequestRecord) -> None:
        metrics.api_request(
            verb=record.verb,
            resource=record.resource,
            subresource=record.subresource,
            lane=record.lane.value,
            code=record.status,
            seconds=record.seconds,
        )
        if also is not None:
            also(record)

    return on_request


async def run_controller(configuration: Configuration, flags: Flags) -> None:
    """Run until SIGTERM or SIGINT, then stop in order: end decisions, finish writes, release the lease."""
    tune_collector()
    stop, signals = stop_signal(), Signals()
    for warning in configuration.warnings:
        _log.warning("setting without effect", setting=warning)
    for name in load_profiles():
        _log.info("a package brings a placement profile", profile=name)
    for name in load_policies():
        _log.info("a package brings a policy of joint placement", policy=name)
    timings = Timings.from_env()
    async with running(configuration, flags, timings=timings, farewell=timings.webhook_farewell) as process:
        operator = process.operator
        signals.dump = lambda: dump(operator.cache, operator.queues, operator.clock)
        server = operator.client.server
        _log.info("controller started", version=__version__, server=server, parts=sorted(flags.parts))
        asked = asyncio.create_task(stop.wait())
        await asyncio.wait({asked, process.task}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        process.operator.checks.add(_STOPPING, _stopping)
        _log.info("controller stops", asked=stop.is_set())


async def run_webhooks(configuration: Configuration, flags: Flags) -> None:
    """Answer admission reviews until SIGTERM or SIGINT, and some seconds longer, until the API server sends none.

    Raises:
        ConfigError: kubeconfig, certificates or an address cannot be used.
        ApiError: the webhooks could not be registered.
    """
    stop, _ = stop_signal(), Signals()
    for warning in configuration.warnings:
        _log.warning("setting without effect", setting=warning)
    allow_profiles()
    clock, timings = SystemClock(), Timings.from_env()
    tune_collector()
    async with (
        _frame(configuration, flags, timings, clock) as frame,
        _webhooks(frame, configuration, flags, clock, timings),
    ):
        frame.checks.remove(_STARTING)
        await stop.wait()
        frame.checks.add(_STOPPING, _stopping)
        _log.info("webhooks stop", seconds=timings.webhook_farewell)
        await clock.sleep(timings.webhook_farewell)


def _stopping() -> str:
    return "the process ends"
