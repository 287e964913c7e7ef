"""`kqueue config` and `kqueue timings`: what a controller would run with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kqueue.cli.output import Output, OutputOption, show


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @app.command("config")
    def config(
        file: Annotated[Path | None, typer.Argument(help="A Configuration file; all defaults without one.")] = None,
        feature_gates: Annotated[str, typer.Option(help="Gate=true,Other=false; as the controller's flag.")] = "",
        output: OutputOption = Output.YAML,
    ) -> None:
        """Check a Configuration file and print it with every default filled in.

        Mistakes are listed all at once, and the exit code is 2.  Fields without effect are named on stderr.
        """
        from kqueue.config import load

        configuration = load(file, feature_gates=feature_gates)
        for warning in configuration.warnings:
            print(f"kqueue: warning: {warning}", file=sys.stderr)
        fields = configuration.model_dump(mode="json", by_alias=True, exclude_none=True)
        if configuration.wait_for_pods_ready is None:  # only v1beta1 can say so by leaving the section out
            fields["featureGates"]["DisableWaitForPodsReady"] = True
        head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        show(head | fields, Output.YAML if output is Output.TEXT else output)

    @app.command("timings")
    def timings(output: OutputOption = Output.TEXT) -> None:
        """Print the fixed times in seconds, with what KQUEUE_TIMING_ variables override."""
        from dataclasses import asdict

        from kqueue.config.timings import PREFIX, Timings

        show({PREFIX + name.upper(): seconds for name, seconds in asdict(Timings.from_env()).items()}, output)
