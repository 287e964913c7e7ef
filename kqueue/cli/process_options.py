"""Options shared by the commands that run in the cluster: where the settings are, and how to reach the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path | None, typer.Option(help="Kueue's Configuration file; defaults without one.")]
KubeconfigOption = Annotated[
    Path | None, typer.Option(help="File to reach the cluster; else KUBECONFIG, the pod's account, ~/.kube.")
]
ContextOption = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]
HealthAddressOption = Annotated[str | None, typer.Option(help="Overrides health.healthProbeBindAddress.")]
MetricsAddressOption = Annotated[str | None, typer.Option(help="Overrides metrics.bindAddress; 0 is off.")]
MetricsSecureOption = Annotated[
    bool,
    typer.Option(
        "--metrics-secure/--no-metrics-secure",
        help="Serve metrics over TLS, and only to users that RBAC allows to get /metrics.",
    ),
]
RegisterWebhooksOption = Annotated[
    bool | None,
    typer.Option(
        "--register-webhooks/--no-register-webhooks",
        help="Write the webhook configurations, or leave them alone; overrides webhook.registerWebhooks.",
    ),
]
FeatureGatesOption = Annotated[str, typer.Option(help="Gate=true,Other=false; not if the file has gates, too.")]
LogLevelOption = Annotated[str, typer.Option(help="debug, info, warning or error.")]
