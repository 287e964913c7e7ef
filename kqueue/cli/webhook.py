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
        cert_dir: Annotated[
            Path | None, typer.Option(help="Folder with tls.crt, tls.key and ca.crt; else webhook.certDir of the file.")
        ] = None,
        host: Annotated[str | None, typer.Option(help="Overrides webhook.host.")] = None,
        port: Annotated[int | None, typer.Option(help="Overrides webhook.port; 0 takes a free one.")] = None,
        feature_gates: Annotated[str, typer.Option(help="Gate=true,Other=false; not together with the file's.")] = "",
        log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    ) -> None:
        """Answer admission reviews: no cache, no watch, so a busy controller never delays the creation of pods."""
        from kqueue.cli.process import run_webhooks
        from kqueue.config import load
        from kqueue.observe import configure_logs
        from kqueue.runtime.loop import run

        configure_logs("json", log_level)
        configuration = load(config, feature_gates=feature_gates)
        run(
            run_webhooks(
                configuration,
                certificates=cert_dir or configuration.webhook.cert_dir,
                host=configuration.webhook.host if host is None else host,
                port=configuration.webhook.port if port is None else port,
            )
        )
