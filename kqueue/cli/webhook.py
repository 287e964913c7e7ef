"""`kqueue webhook`: the admission webhooks as a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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

_CertDirOption = Annotated[
    Path | None,
    typer.Option(help="Folder of tls.crt, tls.key, ca.crt renewed by another program; else internalCertManagement."),
]
_HostOption = Annotated[str | None, typer.Option(help="Overrides webhook.host.")]
_PortOption = Annotated[int | None, typer.Option(help="Overrides webhook.port; 0 takes a free one.")]
_UrlOption = Annotated[
    str, typer.Option(help="Where the API server reaches us, https://HOST:{port}; else through the Service.")
]


def register(app: typer.Typer) -> None:
    """Add the command."""

    app.command("webhook")(webhook)


def webhook(
    config: ConfigOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    cert_dir: _CertDirOption = None,
    host: _HostOption = None,
    port: _PortOption = None,
    url: _UrlOption = "",
    register_webhooks: RegisterWebhooksOption = None,
    health_address: HealthAddressOption = None,
    metrics_address: MetricsAddressOption = None,
    metrics_secure: MetricsSecureOption = False,
    feature_gates: FeatureGatesOption = "",
    log_level: LogLevelOption = "info",
) -> None:
    """Answer admission reviews in a process of its own, so a busy controller never delays the creation of pods."""
    from kqueue.cli.light_imports import import_structlog

    import_structlog()  # before the first import of a module that logs
    from kqueue.config import load
    from kqueue.manager.process import Flags, run_webhooks
    from kqueue.observe import configure_logs
    from kqueue.runtime.loop import run

    configure_logs("json", log_level)
    flags = Flags(
        kubeconfig=kubeconfig,
        context=context,
        health_address=health_address,
        metrics_address=metrics_address,
        metrics_secure=metrics_secure,
        webhook_host=host,
        webhook_port=port,
        webhook_url=url,
        webhook_certificates=cert_dir,
        webhook_register=register_webhooks,
    )
    run(run_webhooks(load(config, feature_gates=feature_gates), flags))
