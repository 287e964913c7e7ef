"""`kqueue config` and `kqueue timings`: the settings with which a controller would run."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from kqueue.cli.output import Output, OutputOption, printable, show

GatesOption = Annotated[str, typer.Option(help="Gate=true,Other=false; as the controller's flag.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""

    group = typer.Typer(
        help="Check a Configuration file, or print the settings that a controller would use.", no_args_is_help=True
    )
    app.add_typer(group, name="config")

    group.command("check")(check)
    group.command("show")(show_settings)
    app.command("timings")(timings)


def check(
    file: Annotated[Path, typer.Argument(help="A Configuration file.")],
    feature_gates: GatesOption = "",
    output: OutputOption = Output.TEXT,
) -> None:
    """Check a Configuration file and list all mistakes, each with its path and its remedy.

    The exit code is 0 when a controller would start with the file, and 2 when it would not.  Plugins and policies of
    other packages are imported as the controller does, so these packages must be installed here, too.
    """
    from kqueue.config import load
    from kqueue.config.load import ConfigFileError
    from kqueue.manager.start_check import mistakes_at_start

    try:
        configuration = load(file, feature_gates=feature_gates)
        mistakes = mistakes_at_start(configuration)
        if mistakes:
            raise ConfigFileError(str(file), mistakes)
    except ConfigFileError as e:
        if output is Output.TEXT:
            raise
        problems = [{"path": p.path, "problem": p.problem, "value": p.value} for p in e.problems]
        show({"file": str(file), "valid": False, "problems": problems, "warnings": []}, output)
        raise typer.Exit(2) from e
    if output is not Output.TEXT:
        found = list(configuration.warnings)
        show({"file": str(file), "valid": True, "problems": [], "warnings": found}, output)
        return
    _warn(configuration.warnings)
    print(f"{printable(file)}: a controller would start with this file")


def show_settings(
    file: Annotated[Path | None, typer.Argument(help="A Configuration file; all defaults without one.")] = None,
    feature_gates: GatesOption = "",
    output: OutputOption = Output.YAML,
) -> None:
    """Print a Configuration file with every default filled in.

    Fields without effect are named on stderr.
    """
    from kqueue.config import load

    configuration = load(file, feature_gates=feature_gates)
    _warn(configuration.warnings)
    fields = configuration.model_dump(mode="json", by_alias=True, exclude_none=True)
    if configuration.wait_for_pods_ready is None:  # only v1beta1 can express that, by leaving the section out
        fields["featureGates"]["DisableWaitForPodsReady"] = True
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    show(head | fields, Output.YAML if output is Output.TEXT else output)


def timings(output: OutputOption = Output.TEXT) -> None:
    """Print the fixed times in seconds, with the overrides by KQUEUE_TIMING_ variables."""
    from dataclasses import asdict

    from kqueue.config.timings import PREFIX, Timings

    show({PREFIX + name.upper(): seconds for name, seconds in asdict(Timings.from_env()).items()}, output)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        print(f"kqueue: warning: {printable(warning)}", file=sys.stderr)
