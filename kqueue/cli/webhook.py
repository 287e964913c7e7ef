"""`kqueue webhook`: the admission webhooks as a process of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("webhook")
    def webhook(
        config: Annotated[Path | None, typer.Option(help="Kueue's Configuration file; defaults without one.")] = None,
        kubeconfig: Annotated[
            Path | None, typer.Option(help="How to reach the cluster; else KUBECONFIG, the pod's account, ~/.kube.")
        ] = None,
        context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
        cert_dir: Annotated[
            Path | None,
            typer.Option(
                help="Folder with tls.crt, tls.key and ca.crt that somebody else renews; else internalCertManagement."
            ),
        ] = None,
        host: Annotated[str | None, typer.Option(help="Overrides webhook.host.")] = None,
        port: Annotated[int | None, typer.Option(help="Overrides webhook.port; 0 takes a free one.")] = None,
        url: Annotated[
            str, typer.Option(help="Where the API server reaches us, https://HOST:{port}; else through the Service.")
        ] = "",
        register_webhooks: Annotated[
            bool | None,
            typer.Option(
                "--register-webhooks/--no-register-webhooks",
                help="Keep the webhook configurations, or leave them to others; overrides webhook.registerWebhooks.",
            ),
        ] = None,
        health_address: Annotated[str | None, typer.Option(help="Overrides health.healthProbeBindAddress.")] = None,
        metrics_address: Annotated[str | None, typer.Option(help="Overrides metrics.bindAddress; 0 is off.")] = None,
        metrics_secure: Annotated[
            bool,
            typer.Option(
                "--metrics-secure/--no-metrics-secure",
                help="Serve metrics over TLS, and only to whom the API server lets get /metrics.",
            ),
        ] = False,
        feature_gates: Annotated[str, typer.Option(help="Gate=true,Other=false; not together with the file's.")] = "",
        log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    ) -> None:
        """Answer admission reviews in a process of its own, so a busy controller never delays the creation of pods."""
        from kqueue.cli.lean import import_structlog

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
