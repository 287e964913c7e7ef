"""Wiring of the admission webhooks: certificates, server, and their registration at the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from tempfile import TemporaryDirectory

import structlog

from kqueue.clock import Clock
from kqueue.config import Configuration
from kqueue.errors import AlreadyExistsError
from kqueue.jobs.switches import switches_from
from kqueue.runtime.certificates import CertificateFolder, make_bundle, write_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from webhooks.configuration import Target, webhook_configurations
from webhooks.routes import routes
from webhooks.server import ReviewRecord, WebhookServer

_log = structlog.get_logger(__name__)

_GROUP = "admissionregistration.k8s.io"
_RESOURCES = {
    "MutatingWebhookConfiguration": ResourceType(
        _GROUP, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
    ),
    "ValidatingWebhookConfiguration": ResourceType(
        _GROUP, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False
    ),
}


@asynccontextmanager
async def serving(
    configuration: Configuration,
    *,
    clock: Clock,
    host: str,
    port: int,
    certificates: Path | None,
    on_review: Callable[[ReviewRecord], None],
) -> AsyncIterator[tuple[WebhookServer, CertificateFolder]]:
    """The webhooks, answering while the block runs.

    `certificates` is a folder with tls.crt, tls.key and ca.crt; None makes a CA and a certificate for this process.

    Raises:
        ConfigError: the folder or the address cannot be used.
    """
    with TemporaryDirectory(prefix="kqueue-certificates-") as made:
        folder = certificates or Path(made)
        if certificates is None:
            write_bundle(make_bundle(_names(configuration, host), now=clock.now()), folder)
        tls = CertificateFolder(folder, clock=clock)
        context: SSLContext = tls.context
        assert context.protocol == PROTOCOL_TLS_SERVER
        if configuration.tls is not None:
            configuration.tls.apply(context)
        handlers = routes(configuration.integrations.frameworks, switches_from(configuration.enabled))
        server = WebhookServer(handlers, ssl_context=context, host=host, port=port, on_review=on_review)
        await server.start()
        _log.info("webhooks answer", host=host, port=server.port)
        try:
            yield server, tls
        finally:
            await server.stop()


def _names(configuration: Configuration, host: str) -> list[str]:
    service = f"{configuration.internal_cert_management.webhook_service_name}.{configuration.namespace}.svc"
    return list(dict.fromkeys([service, "localhost", "127.0.0.1", *([host] if host else [])]))


async def register(client: Client, configuration: Configuration, *, ca_bundle: bytes, url: str) -> None:
    """Write the webhook configurations, so that the API server asks us.  `url` empty: through our service."""
    target = Target(
        ca_bundle=ca_bundle,
        url=url,
        service=configuration.internal_cert_management.webhook_service_name,
        namespace=configuration.namespace,
    )
    for obj in webhook_configurations(
        target, frameworks=configuration.integrations.frameworks, own_namespace=configuration.namespace
    ):
        resource = _RESOURCES[obj["kind"]]
        try:
            await client.create(resource, obj)
        except AlreadyExistsError:
            await client.patch(resource, obj["metadata"]["name"], {"webhooks": obj["webhooks"]})
    _log.info("webhooks are registered", url=url or target.service)
