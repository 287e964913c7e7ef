"""Runs the visibility server: its resources, certificates, trusted front proxy, and registration."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import structlog

from kqueue.api import names
from kqueue.api.wire import placement, simulation, what_if
from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.errors import ApiError, ConfigError, KqueueError, NotFoundError
from kqueue.jobs.gang.overview import KIND as GANG
from kqueue.manager.explaining import make_cluster_explainer, make_placements
from kqueue.manager.gang_census import make_gang_census
from kqueue.manager.gang_views import make_gang_overviews
from kqueue.manager.joint import joint_source
from kqueue.manager.proposals import proposal_source
from kqueue.manager.record_files import record_files
from kqueue.manager.simulating import make_simulations
from kqueue.manager.start_times import make_pending, make_start_times
from kqueue.manager.what_ifs import make_what_ifs
from kqueue.observe import Checks, Metrics
from kqueue.runtime.certificate_keeper import CertificateKeeper
from kqueue.runtime.certificate_secret import MemoryShelf, SecretShelf
from kqueue.runtime.certificates import CERTIFICATE, KEY, CertificateFolder, write_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.rotation import Rhythm
from kqueue.visibility import (
    defragmentation,
    front_proxy,
    gangs,
    joint_rounds,
    queue_quotas,
    queue_summaries,
    start_times,
    topology_maps,
    topology_summaries,
)
from kqueue.visibility import record_files as shown_files
from kqueue.visibility.catalog import KUEUE_VERSIONS, OUR_VERSION, Catalog, CatalogResource
from kqueue.visibility.connections import Trust
from kqueue.visibility.defragmentation import DefragmentationView
from kqueue.visibility.explanation import KIND as EXPLANATION
from kqueue.visibility.front_proxy import FrontProxy
from kqueue.visibility.gangs import GangViews
from kqueue.visibility.joint_rounds import JointRoundViews
from kqueue.visibility.pending import KIND, PendingWorkloads
from kqueue.visibility.queue_quotas import QueueQuotas
from kqueue.visibility.queue_summaries import GangStages, QueueSummaries
from kqueue.visibility.record_files import RecordFileViews
from kqueue.visibility.registration import SERVICE, Registration, reached_at
from kqueue.visibility.rights import Rights
from kqueue.visibility.running import RunningPlaces
from kqueue.visibility.server import VisibilityServer
from kqueue.visibility.start_times import StartTimeViews
from kqueue.visibility.topology_maps import TopologyMaps
from kqueue.visibility.topology_summaries import TopologySummaries

if TYPE_CHECKING:
    from kqueue.manager.operator import Operator

SECRET = "kueue-visibility-server-cert"  # noqa: S105  (the name of an object)
"""The Secret through which replicas share their certificate."""
LOOK_SECONDS = 10.0
"""Seconds between two checks of certificates, trusted front proxy and registration: at most six reads."""
_AFTER_FAILURE_SECONDS = 2.0
_FAREWELL_SECONDS = 3.0
_CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
_CHECK = "visibility"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityEndpoint:
    """The address on which the server listens, and the address at which the API server reaches it.

    Args:
        port: 0 takes a free port.
        url: a host name with `{port}` or a port; empty: the API server uses the Service of the installation.
        certificates: a folder with tls.crt, tls.key and ca.crt that kqueue does not renew; None: kqueue's own.
    """

    host: str
    port: int
    url: str = ""
    certificates: Path | None = None


_ours = partial(CatalogResource, group=names.KQUEUE_VISIBILITY_GROUP, version=OUR_VERSION)
"""A resource of kqueue's own group."""


def catalog_of(operator: Operator) -> Catalog:
    """Return all resources of the visibility API."""
    pending = make_pending(operator)
    catalog = Catalog()
    for version in KUEUE_VERSIONS:
        for name, view in (("clusterqueues", pending.of_cluster_queue), ("localqueues", pending.of_local_queue)):
            catalog.add(
                CatalogResource(
                    group=names.VISIBILITY_GROUP,
                    version=version,
                    name=name,
                    subresource="pendingworkloads",
                    namespaced=name == "localqueues",
                    kind=KIND,
                    view=view,
                )
            )
    starts = _add_start_times(catalog, operator)
    catalog.add(
        _ours(
            name="workloads",
            subresource="explanation",
            namespaced=True,
            kind=EXPLANATION,
            view=starts.explained(make_cluster_explainer(operator).view),
        )
    )
    for posted, view in (
        (placement, make_placements(operator).view),
        (simulation, make_simulations(operator, starts).view),
        (what_if, make_what_ifs(operator, starts, pending).view),
    ):
        catalog.add(
            _ours(
                name=posted.PLURAL,
                namespaced=posted is not what_if,
                kind=posted.KIND,
                view=view,
                most_bytes=posted.MOST_BYTES,
            )
        )
    _add_quotas(catalog, operator, pending)
    _add_summaries(catalog, operator)
    _add_gangs(catalog, operator, pending)
    _add_joint(catalog, operator)
    _add_record(catalog, operator)
    return catalog


def _add_record(catalog: Catalog, operator: Operator) -> None:
    views = RecordFileViews(record_files(operator.config.decision_record.path))
    for kind, view, is_list in (
        (shown_files.LIST_KIND, views.every, True),
        (shown_files.KIND, views.one, False),
    ):
        catalog.add(_ours(name=shown_files.PLURAL, kind=kind, view=view, is_list=is_list))


def _add_start_times(catalog: Catalog, operator: Operator) -> StartTimeViews:
    views = make_start_times(operator)
    catalog.on_stop.append(views.stop)
    for namespaced in (True, False):
        catalog.add(
            _ours(
                name="starttimes",
                kind=start_times.LIST_KIND,
                view=views.every,
                namespaced=namespaced,
                is_list=True,
            )
        )
    return views


def _add_quotas(catalog: Catalog, operator: Operator, pending: PendingWorkloads) -> None:
    quotas = QueueQuotas(
        cache=operator.cache,
        queues=operator.queues,
        pending=pending,
        local_queues=operator.watches.local_queues.store.values,
        clock=operator.clock,
        fair_sharing=operator.config.fair_sharing is not None,
    )
    catalog.add(
        _ours(
            name="queuequotas",
            kind=queue_quotas.KIND,
            view=quotas.view,
            namespaced=True,
            is_list=True,
        )
    )


def _add_gangs(catalog: Catalog, operator: Operator, pending: PendingWorkloads) -> None:
    views = GangViews(
        operator.manager.shared(make_gang_overviews),
        workloads=operator.watches.workloads.store,
        pending=pending,
        places=RunningPlaces(operator.cache),
        clock=operator.clock,
    )
    for namespaced, is_list in ((True, True), (True, False), (False, True)):
        catalog.add(
            _ours(
                name="gangs",
                kind=gangs.KIND if is_list else GANG,
                view=views.every if is_list else views.one,
                namespaced=namespaced,
                is_list=is_list,
            )
        )


def _gang_stages(operator: Operator) -> Callable[[], Awaitable[GangStages]] | None:
    """Return a function that counts the gangs of the process; None: no pods are queued."""
    census = operator.manager.shared(make_gang_census)
    if census is None:
        return None

    async def stages() -> GangStages:
        await census.refresh()
        return census.stages()

    return stages


def _add_summaries(catalog: Catalog, operator: Operator) -> None:
    watches, clock = operator.watches, operator.clock
    queues = QueueSummaries(
        cache=operator.cache,
        queues=operator.queues,
        local_queues=watches.local_queues.store.values,
        clock=clock,
        fair_sharing=operator.config.fair_sharing is not None,
        gangs=_gang_stages(operator),
    )
    topologies = TopologySummaries(cache=operator.cache, clock=clock)
    for name, kind, view, is_list in (
        ("queuesummaries", queue_summaries.KIND, queues.view, True),
        ("topologysummaries", topology_summaries.LIST_KIND, topologies.view, True),
        ("topologysummaries", topology_summaries.KIND, topologies.view, False),
        ("topologymaps", topology_maps.KIND, TopologyMaps(cache=operator.cache, clock=clock).view, False),
    ):
        catalog.add(
            _ours(
                name=name,
                kind=kind,
                view=view,
                is_list=is_list,
            )
        )


def _add_joint(catalog: Catalog, operator: Operator) -> None:
    views = JointRoundViews(joint_source(operator.rounds, operator.ready.is_set), operator.watches.workloads.store)
    for is_list, kind in ((True, joint_rounds.LIST_KIND), (False, joint_rounds.KIND)):
        catalog.add(
            _ours(
                name="jointrounds",
                kind=kind,
                view=views.rounds,
                is_list=is_list,
            )
        )
    catalog.add(
        _ours(
            name="workloads",
            subresource="joint",
            namespaced=True,
            kind=joint_rounds.WORKLOAD_KIND,
            view=views.workload,
        )
    )
    plans = DefragmentationView(
        proposal_source(operator),
        workloads=operator.watches.workloads.store,
        queues=operator.queues,
        clock=operator.clock,
    )
    catalog.add(
        _ours(
            name="defragmentation",
            kind=defragmentation.KIND,
            view=plans.view,
            is_list=True,
        )
    )


@asynccontextmanager
async def visibility(
    client: Client,
    configuration: Configuration,
    endpoint: VisibilityEndpoint,
    catalog: Catalog,
    *,
    warm: Callable[[], bool],
    checks: Checks,
    clock: Clock,
    metrics: Metrics,
    rhythm: Rhythm | None = None,
) -> AsyncIterator[VisibilityServer]:
    """Serve the visibility API for the duration of the block.  The process is not ready before it answers.

    Requests to the API server that fail are retried, and stop no other part.

    Raises:
        ConfigError: the address, or the URL, cannot be used.
    """
    server = VisibilityServer(
        catalog, rights=Rights(client, clock=clock), warm=warm, clock=clock, on_answer=metrics.visibility
    )
    server.listen(endpoint.host, endpoint.port)
    async with contextlib.AsyncExitStack() as stack:
        for stop in catalog.on_stop:
            stack.push_async_callback(stop)
        stack.push_async_callback(server.stop)
        made = Path(stack.enter_context(TemporaryDirectory(prefix="kqueue-visibility-")))
        service = _Service(endpoint=endpoint, server=server, catalog=catalog, made=made)
        keeper = _Keeper(client, configuration, service, clock=clock, rhythm=rhythm)
        checks.add(_CHECK, keeper.problem)
        metrics.certificate("visibility", keeper.not_after)
        stack.callback(checks.remove, _CHECK)
        work = asyncio.create_task(keeper.run(), name="visibility")
        stack.push_async_callback(keeper.end, work)
        yield server


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    """The server, where it listens, what it serves, and the folder for certificates that this process makes."""

    endpoint: VisibilityEndpoint
    server: VisibilityServer
    catalog: Catalog
    made: Path


class _Keeper:
    """Keeps certificates, trust and registration correct, by periodic checks."""

    def __init__(
        self,
        client: Client,
        configuration: Configuration,
        service: _Service,
        *,
        clock: Clock,
        rhythm: Rhythm | None,
    ) -> None:
        self._client, self._configuration, self._clock = client, configuration, clock
        endpoint, server, made = service.endpoint, service.server, service.made
        self._endpoint, self._server, self._made = endpoint, server, made
        reached = reached_at(endpoint.url, server.port) if endpoint.url else None
        self._registration = Registration(
            client, service.catalog.group_versions(), namespace=configuration.namespace, reached=reached
        )
        hosts = [endpoint.host] if endpoint.host not in ("", "0.0.0.0", "::") else []  # noqa: S104  (compared)
        if reached is not None:
            hosts.append(reached.host)
        self._certificates = CertificateKeeper(
            MemoryShelf() if endpoint.url else SecretShelf(client, configuration.namespace, SECRET),
            names=list(dict.fromkeys([f"{SERVICE}.{configuration.namespace}.svc", "localhost", "127.0.0.1", *hosts])),
            serve=lambda bundle: write_bundle(bundle, made),
            clock=clock,
            rhythm=rhythm,
        )
        self._tls: CertificateFolder | None = None
        self._proxy: FrontProxy | None = None
        self._trusts: tuple[object, FrontProxy | None] | None = None
        self._complaint = "has not begun to answer yet"
        self._begun = False
        self._said = ""

    def not_after(self) -> float | None:
        """Return the time at which the certificate expires, in Unix seconds; None while there is no certificate."""
        return self._tls.bundle.not_after.timestamp() if self._tls is not None else None

    def problem(self) -> str | None:
        """Return why the server cannot answer; None when it can."""
        if not self._begun:
            return self._complaint
        assert self._tls is not None, "it has begun"
        left = self._tls.expires_in().total_seconds()
        return None if left > 0 else f"the certificate has expired {-left:.0f} s ago and no new one could be made"

    async def run(self) -> None:
        """Check periodically until cancelled."""
        while True:
            pause = LOOK_SECONDS
            try:
                await self._look()
                self._said = ""
            except (ApiError, ConfigError) as e:
                pause = _AFTER_FAILURE_SECONDS
                self._complaint = str(e)
                self._log_error(e)
            await self._clock.sleep(pause)

    async def end(self, work: asyncio.Task[None]) -> None:
        """End the checks, and delete the registration of this process where it is its own."""
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        try:
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._registration.withdraw()
        except (ApiError, TimeoutError) as e:
            _log.warning("APIServices are left behind", error=str(e))

    def _log_error(self, error: KqueueError) -> None:
        if str(error) != self._said:  # once for each problem, not at every check
            _log.warning("visibility API not looked after, tried again soon", error=str(error))
        self._said = str(error)

    async def _look(self) -> None:
        tls = self._tls or await self._first_certificates()
        self._tls = tls
        unread: KqueueError | None = None
        try:
            self._proxy = await self._front_proxy()
        except (ApiError, ConfigError) as e:
            unread = e
        self._serve(tls)
        try:
            if self._endpoint.certificates is None:
                await self._certificates.look(self._registration.bring)
            elif self._endpoint.url:  # else the owner of the certificates registers their authority, too
                await self._registration.bring(tls.bundle.ca)
        finally:
            tls.check()
            self._serve(tls)
        if unread is not None:
            raise unread

    async def _first_certificates(self) -> CertificateFolder:
        if self._endpoint.certificates is not None:
            return CertificateFolder(self._endpoint.certificates, clock=self._clock)
        await self._certificates.load()
        return CertificateFolder(self._made, clock=self._clock)

    async def _front_proxy(self) -> FrontProxy | None:
        """Return the front proxy whose user headers are trusted; None: the cluster has none.

        Raises:
            ApiError: the API server did not answer; the last answer stays valid.
            ConfigError: the answer cannot be read; no front proxy is trusted.
        """
        try:
            found = await self._client.get_json(
                _CONFIG_MAPS, front_proxy.CONFIG_MAP, front_proxy.NAMESPACE, lane=Lane.REVIEWS
            )
            return front_proxy.front_proxy_of(found.get("data") or {})
        except NotFoundError:
            return None
        except ConfigError:
            self._proxy = None
            raise

    def _serve(self, tls: CertificateFolder) -> None:
        """Use the present certificate and front proxy."""
        now = (tls.bundle, self._proxy)
        if now == self._trusts:
            return
        trust = Trust(self._context(tls.folder, self._proxy), self._proxy)
        if self._begun:
            self._server.believe(trust)
        else:
            self._server.start(trust)
            self._begun = True
            _log.info("visibility API answers", port=self._server.port, front_proxy=self._proxy is not None)
        self._trusts = now

    def _context(self, folder: Path, proxy: FrontProxy | None) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._configuration.tls is not None:
            self._configuration.tls.apply(context)
        try:
            context.load_cert_chain(folder / CERTIFICATE, folder / KEY)
        except OSError as e:  # SSLError is one too
            raise ConfigError(f"{folder}: {CERTIFICATE} and {KEY} cannot be loaded: {e}") from e
        context.num_tickets = 0  # a resumed session would skip the check of the client, so none is resumed
        context.options |= ssl.OP_NO_TICKET
        if proxy is not None:
            context.load_verify_locations(cadata=proxy.authorities)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
