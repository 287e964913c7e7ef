"""Runs the admission webhooks: certificates, server, lookups, and registration at the API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import structlog

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.controllers.resources import LOCAL_QUEUES
from kqueue.errors import KqueueError
from kqueue.isolation import isolated
from kqueue.jobs.registry import declared_for, features_for, owner_kinds_for
from kqueue.manager.conversion import ConversionRegistrar
from kqueue.manager.lookups import ApiLookups
from kqueue.manager.registration import Registrar
from kqueue.runtime.certificate_keeper import Announce, CertificateKeeper
from kqueue.runtime.certificate_secret import MemoryShelf, SecretShelf
from kqueue.runtime.certificates import Bundle, CertificateFolder, write_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.reflector import Projection, Reflector, Selection
from kqueue.runtime.rotation import Rhythm
from webhooks.accounts import Accounts
from webhooks.routes import reviewed_kinds, routes
from webhooks.server import ReviewRecord, WebhookServer
from webhooks.surroundings import Policy

_log = structlog.get_logger(__name__)

LOOK_SECONDS = 15.0
"""Seconds between two checks of certificates and registration; each costs at most eight reads."""
_AFTER_FAILURE_SECONDS = 2.0
_SYNC_SECONDS = 60.0
"""Seconds for which the first registration waits for the list of default queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionEndpoint:
    """The address on which the webhooks listen, and the address at which the API server reaches them.

    Args:
        port: 0 takes a free port.
        url: `{port}` in it is replaced by the real port; empty: the API server uses the Service of the installation.
        certificates: a folder with tls.crt, tls.key and ca.crt that kqueue does not renew; None: kqueue's own.
        register: False: the webhooks only answer, and their configurations are neither read nor written.
    """

    host: str
    port: int
    url: str = ""
    certificates: Path | None = None
    register: bool = True


class _Caretaker(Protocol):
    """Keeps certificates valid."""

    @property
    def authorities(self) -> bytes:
        """The authorities that clients must trust, PEM."""
        ...

    async def look(self, announce: Announce) -> None:
        """Serve the current certificate, and announce its authorities."""
        ...


class _FolderCaretaker:
    """Serves the certificates of a folder that kqueue does not write."""

    def __init__(self, tls: CertificateFolder) -> None:
        self._tls = tls

    @property
    def authorities(self) -> bytes:
        """The authority in the folder."""
        return self._tls.bundle.ca

    async def look(self, announce: Announce) -> None:
        """Load the files if they have changed."""
        self._tls.check()
        await announce(self._tls.bundle.ca)


@asynccontextmanager
async def admission(
    client: Client,
    configuration: Configuration,
    endpoint: AdmissionEndpoint,
    *,
    clock: Clock,
    on_review: Callable[[ReviewRecord], None],
    on_certificate: Callable[[Bundle], None] = lambda _bundle: None,
    rhythm: Rhythm | None = None,
) -> AsyncIterator[WebhookServer]:
    """Serve and register the webhooks for the duration of the block, and keep their certificates valid.

    `on_certificate` is called with each certificate that is served from then on.

    Raises:
        ConfigError: the folder or the address cannot be used.
        ApiError: certificates cannot be shared, or webhooks not registered.
    """
    async with contextlib.AsyncExitStack() as stack:
        made = stack.enter_context(TemporaryDirectory(prefix="kqueue-certificates-"))
        tls, caretaker = await _certificates(client, configuration, endpoint, Path(made), clock, rhythm, on_certificate)
        on_certificate(tls.bundle)
        if configuration.tls is not None:
            configuration.tls.apply(tls.context)
        handlers = routes(
            configuration.integrations.frameworks,
            features_for(configuration),
            policy=policy_of(configuration),
            lookups=lookups_of(client, configuration, clock),
            declared=declared_for(configuration),
        )
        server = WebhookServer(
            handlers, ssl_context=tls.context, host=endpoint.host, port=endpoint.port, on_review=on_review
        )
        await server.start()
        stack.push_async_callback(server.stop)
        _log.info("webhooks answer", host=endpoint.host, port=server.port)
        url = endpoint.url.replace("{port}", str(server.port))
        registrar = Registrar(client, configuration, url=url, inject=endpoint.certificates is None)
        if endpoint.register:
            conversion = ConversionRegistrar(client, configuration, url=url)
            # Before any list: the API server converts what is stored in v1beta1, and this process answers for it.
            await conversion.bring(caretaker.authorities)
            kept = _registered(client, configuration, (registrar, conversion), caretaker, clock)
        else:
            kept = _tended(partial(caretaker.look, _not_announced), asyncio.Event(), clock)
        await stack.enter_async_context(kept)
        yield server


async def _not_announced(_authorities: bytes) -> None:
    """Announce nothing: the keeper of the webhook configurations reads the authorities from the certificate folder."""


def policy_of(configuration: Configuration) -> Policy:
    """Return the part of the configuration that webhooks use."""
    integrations = configuration.integrations
    reviewed = reviewed_kinds(integrations.frameworks, declared_for(configuration))
    kinds = {(kind.gvk.group, kind.gvk.kind) for kind in reviewed.values()}
    for external in integrations.external_frameworks:
        kind, _version, group = external.split(".", 2)
        kinds.add((group, kind))
    return Policy(
        switches=features_for(configuration),
        manage_without_queue=configuration.manage_jobs_without_queue_name,
        namespaces=configuration.namespace_selector,
        kinds=frozenset(kinds),
        dispatches=names.MULTIKUEUE_CONTROLLER in configuration.check_controllers(),
        accounts=Accounts(
            controllers=frozenset(integrations.controller_accounts), own_namespace=configuration.namespace
        ),
    )


def lookups_of(client: Client, configuration: Configuration, clock: Clock) -> ApiLookups:
    """Return the lookups of the webhooks at the API server."""
    return ApiLookups(
        client,
        clock=clock,
        owners=owner_kinds_for(configuration.integrations),
        manages_all=configuration.manage_jobs_without_queue_name,
    )


async def _certificates(
    client: Client,
    configuration: Configuration,
    endpoint: AdmissionEndpoint,
    made: Path,
    clock: Clock,
    rhythm: Rhythm | None,
    on_certificate: Callable[[Bundle], None],
) -> tuple[CertificateFolder, _Caretaker]:
    """Load the certificates of a given folder, or make our own, which replicas share through a Secret."""
    if endpoint.certificates is not None:
        tls = CertificateFolder(endpoint.certificates, clock=clock, on_reload=on_certificate)
        return tls, _FolderCaretaker(tls)
    management = configuration.internal_cert_management
    shared = SecretShelf(client, configuration.namespace, management.webhook_secret_name)
    keeper = CertificateKeeper(
        MemoryShelf() if endpoint.url else shared,
        names=_names(configuration, endpoint.host),
        serve=lambda bundle: write_bundle(bundle, made),
        clock=clock,
        rhythm=rhythm,
    )
    await keeper.load()
    tls = CertificateFolder(made, clock=clock, on_reload=on_certificate)
    return tls, _Reloading(keeper, tls)


class _Reloading:
    """Serves kqueue's own certificates: a certificate that the keeper writes is loaded at once."""

    def __init__(self, keeper: CertificateKeeper, tls: CertificateFolder) -> None:
        self._keeper, self._tls = keeper, tls

    @property
    def authorities(self) -> bytes:
        """The authorities of all replicas' certificates."""
        return self._keeper.held.authorities

    async def look(self, announce: Announce) -> None:
        """Renew the certificates where needed, and load new files."""
        try:
            await self._keeper.look(announce)
        finally:
            self._tls.check()


def _names(configuration: Configuration, host: str) -> list[str]:
    service = f"{configuration.internal_cert_management.webhook_service_name}.{configuration.namespace}.svc"
    wildcard = host in ("", "0.0.0.0", "::")  # noqa: S104  (compared, not listened on)
    return list(dict.fromkeys([service, "localhost", "127.0.0.1", *([] if wildcard else [host])]))


@asynccontextmanager
async def _registered(
    client: Client,
    configuration: Configuration,
    registrars: tuple[Registrar, ConversionRegistrar],
    caretaker: _Caretaker,
    clock: Clock,
) -> AsyncIterator[None]:
    """Register the webhooks, and repair the registration for the duration of the block."""
    wake, (registrar, conversion) = asyncio.Event(), registrars
    async with _default_queues(client, configuration, wake, clock) as default_queues:

        async def announce(authorities: bytes) -> None:
            await registrar.bring(authorities, default_queues())
            await conversion.bring(authorities)

        async with _tended(partial(caretaker.look, announce), wake, clock):
            yield


@asynccontextmanager
async def _tended(look: Callable[[], Awaitable[None]], wake: asyncio.Event, clock: Clock) -> AsyncIterator[None]:
    """Call `look` once, and then periodically for the duration of the block."""
    await look()
    tending = asyncio.create_task(_tend(look, wake, clock), name="webhook registration")
    try:
        yield
    finally:
        await _ended(tending)


@asynccontextmanager
async def _default_queues(
    client: Client, configuration: Configuration, wake: asyncio.Event, clock: Clock
) -> AsyncIterator[Callable[[], list[str]]]:
    """Yield a function that returns the namespaces with a LocalQueue named `default`; set `wake` when they change.

    Where all unlabelled jobs are managed, the list is not needed and stays empty.
    """
    if configuration.manage_jobs_without_queue_name:
        yield list
        return
    watch = Reflector(
        client,
        LOCAL_QUEUES,
        Projection(wire.LocalQueue, lambda queue: queue.metadata.namespace),
        clock=clock,
        selection=Selection(field_selector=f"metadata.name={names.DEFAULT_LOCAL_QUEUE}"),
    )
    watch.store.subscribe(lambda _old, _new: wake.set())
    following = asyncio.create_task(watch.run(), name="default queues")
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SYNC_SECONDS):
                await watch.synced.wait()
        yield lambda: sorted(watch.store.values())
    finally:
        await _ended(following)


async def _tend(look: Callable[[], Awaitable[None]], wake: asyncio.Event, clock: Clock) -> None:
    """Call `look` after each change and periodically, until cancelled."""
    pause = LOOK_SECONDS
    while True:
        waits = [asyncio.create_task(clock.sleep(pause)), asyncio.create_task(wake.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        wake.clear()
        with isolated() as looked:  # whatever fails, certificates must still be renewed
            await look()
            pause = LOOK_SECONDS
        if (error := looked.error) is not None:
            pause = min(LOOK_SECONDS, _AFTER_FAILURE_SECONDS if pause == LOOK_SECONDS else pause * 2)
            bug = None if isinstance(error, KqueueError | OSError) else error
            _log.warning("webhooks not looked after, tried again soon", error=str(error), seconds=pause, exc_info=bug)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
