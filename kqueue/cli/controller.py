"""`kqueue controller`: watch, decide, write."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kqueue.cli.process_options import (
    ConfigOption,
    ContextOption,
    FeatureGatesOption,
    HealthAddressOption,
    KubeconfigOption,
    LogLevelOption,
    MetricsAddressOption,
    MetricsSecureOption,
    RegisterWebhooksOption,
)

if TYPE_CHECKING:
    from kqueue.config import Configuration


class LogFormat(StrEnum):
    """How log lines look."""

    JSON = "json"
    CONSOLE = "console"


_PartsOption = Annotated[str, typer.Option(help="Parts of this process, of core,scheduler,jobs,topology,webhooks.")]
_WithWebhooksOption = Annotated[
    bool, typer.Option("--with-webhooks", help="Serve the admission webhooks in this process too.")
]
_LeaderElectOption = Annotated[
    bool | None,
    typer.Option("--leader-elect/--no-leader-elect", help="Overrides the file.  Off outside a cluster without a file."),
]
_WebhookHostOption = Annotated[
    str | None, typer.Option(help="Overrides webhook.host, the address that the webhooks listen on.")
]
_WebhookPortOption = Annotated[int | None, typer.Option(help="Overrides webhook.port; 0 takes a free one.")]
_WebhookUrlOption = Annotated[
    str,
    typer.Option(help="Where the API server reaches the webhooks, https://HOST:{port}; else a Service, or loopback."),
]
_VisibilityPortOption = Annotated[
    int | None, typer.Option(help="Overrides visibilityServer.bindPort; 0 takes a free one.")
]
_VisibilityUrlOption = Annotated[
    str,
    typer.Option(
        help="Where the API server reaches the visibility API of a process outside of the cluster, as in "
        "https://localhost:{port}; makes Service and APIServices."
    ),
]
_VisibilityCertificatesOption = Annotated[
    Path | None,
    typer.Option(help="Folder with tls.crt, tls.key, ca.crt for the visibility API; else it makes its own."),
]
_LogFormatOption = Annotated[LogFormat, typer.Option(help="json for machines, console for people.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    app.command("controller")(controller)


def controller(
    config: ConfigOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    parts: _PartsOption = "core,scheduler,jobs,topology",
    with_webhooks: _WithWebhooksOption = False,
    leader_elect: _LeaderElectOption = None,
    health_address: HealthAddressOption = None,
    metrics_address: MetricsAddressOption = None,
    metrics_secure: MetricsSecureOption = False,
    webhook_host: _WebhookHostOption = None,
    webhook_port: _WebhookPortOption = None,
    webhook_url: _WebhookUrlOption = "",
    register_webhooks: RegisterWebhooksOption = None,
    visibility_port: _VisibilityPortOption = None,
    visibility_url: _VisibilityUrlOption = "",
    visibility_certificates: _VisibilityCertificatesOption = None,
    feature_gates: FeatureGatesOption = "",
    log_format: _LogFormatOption = LogFormat.JSON,
    log_level: LogLevelOption = "info",
) -> None:
    """Run the controller: queue jobs, admit them, place their pods, and release them."""
    from kqueue.runtime.process_mark import remember_processes

    remember_processes()  # before the imports that take long: a predecessor's end counts from here
    from kqueue.cli.light_imports import import_structlog

    import_structlog()  # before the first import of a module that logs
    from kqueue.config import load
    from kqueue.manager.process import Flags, run_controller
    from kqueue.observe import configure_logs
    from kqueue.runtime.loop import run

    chosen = _parts(parts)
    configure_logs(log_format.value, log_level)
    outside = "KUBERNETES_SERVICE_HOST" not in os.environ  # a process on a developer's machine: no Service, no peers
    alone = outside and config is None  # then no other machine connects either
    if leader_elect is None and alone:
        leader_elect = False
    configuration = _overridden(load(config, feature_gates=feature_gates), leader_elect)
    flags = Flags(
        kubeconfig=kubeconfig,
        context=context,
        parts=chosen | ({"webhooks"} if with_webhooks else set()),
        health_address=health_address
        or (f"127.0.0.1{configuration.health.health_probe_bind_address}" if alone else None),
        metrics_address=metrics_address or (f"127.0.0.1{configuration.metrics.bind_address}" if alone else None),
        metrics_secure=metrics_secure,
        webhook_host="127.0.0.1" if webhook_host is None and outside and not webhook_url else webhook_host,
        webhook_port=webhook_port,
        webhook_url=webhook_url or ("https://127.0.0.1:{port}" if outside else ""),
        webhook_register=register_webhooks,
        visibility=not outside or bool(visibility_url),  # outside, the API server needs a URL
        visibility_host="127.0.0.1" if outside and _leads_here(visibility_url) else None,
        visibility_port=visibility_port,
        visibility_url=visibility_url,
        visibility_certificates=visibility_certificates,
    )
    run(run_controller(configuration, flags))


def _parts(written: str) -> frozenset[str]:
    """Return the parts that `--parts` names.

    Raises:
        ConfigError: no part is named, or one that does not exist.
    """
    from kqueue.errors import ConfigError
    from kqueue.manager.operator import PARTS

    chosen = [part.strip() for part in written.split(",") if part.strip()]
    unknown = sorted(set(chosen) - set(PARTS))
    if unknown or not chosen:
        raise ConfigError(f"--parts: {', '.join(unknown) or 'nothing'} is no part; use some of {', '.join(PARTS)}")
    return frozenset(chosen)


def _leads_here(url: str) -> bool:
    """Whether only clients on this machine connect."""
    return url.startswith(("https://localhost:", "https://127.0.0.1:"))


def _overridden(configuration: Configuration, leader_elect: bool | None) -> Configuration:
    if leader_elect is None:
        return configuration
    election = configuration.leader_election.model_copy(update={"leader_elect": leader_elect})
    return configuration.model_copy(update={"leader_election": election})
