"""`kqueue migrate check`: reports what a migration from Kueue changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kqueue.cli.output import Output, OutputOption, printable, show
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.config import Configuration
    from kqueue.operations.migration.findings import MigrationFinding, Report
    from kqueue.operations.migration.settings import MigratedSettings

_WORK = 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(no_args_is_help=True)
    app.add_typer(group, name="migrate")

    @group.callback()
    def migrate() -> None:
        """Prepare a migration from Kueue."""

    group.command("check")(reaches_cluster(check))


def check(
    values: Annotated[Path | None, typer.Option(help="A values file of Kueue's chart.")] = None,
    config: Annotated[Path | None, typer.Option(help="A Configuration file of Kueue.")] = None,
    live: Annotated[
        bool | None,
        typer.Option("--live/--no-live", help="Look at the cluster; by default only without a file."),
    ] = None,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """List what converts, what is left behind and what needs work before kqueue replaces Kueue.  Changes nothing.

    \b
        kqueue migrate check --values kueue-values.yaml
        kqueue migrate check --config controller_manager_config.yaml --live
        kqueue migrate check                 # the cluster, with the frameworks that kqueue manages by default

    Findings of the cluster concern the frameworks that the file manages.  With -o json, `values` is a values file for
    kqueue's chart.

    Exit codes: 0 nothing needs work; 1 a finding needs work, or the cluster cannot be reached; 2 the call or a file is
    wrong.
    """
    from kqueue.errors import ConfigError
    from kqueue.operations.migration.findings import Report
    from kqueue.runtime.loop import run

    if values is not None and config is not None:
        raise ConfigError("give either --values or --config; a values file has the Configuration in it")
    if live is False and values is None and config is None:
        raise ConfigError("--no-live leaves nothing to look at; give --values or --config")
    settings = _settings(values, config)
    found = list(settings.findings) if settings else []
    if live or settings is None:
        found += run(_live(reach, settings.configuration if settings else None))
    report = Report(findings=tuple(found), values=settings.values if settings else {})
    _print_report(report, output)
    if not report.is_ready:
        raise typer.Exit(_WORK)


def _settings(values: Path | None, config: Path | None) -> MigratedSettings | None:
    from kqueue.config.load import read_text
    from kqueue.operations.migration.chart import GET_VALUES, chart_in
    from kqueue.operations.migration.settings import settings_in

    if values is not None:
        return chart_in(read_text(values, remedy=GET_VALUES), source=str(values))
    if config is not None:
        text = read_text(config, remedy="give --config the path of a Configuration file")
        return settings_in(text, source=str(config))
    return None


async def _live(reach: ReachFlags, configuration: Configuration | None) -> list[MigrationFinding]:
    from kqueue.config import load
    from kqueue.operations.migration.cluster import look

    async with reach.session() as session:
        return await look(session.client, configuration or load(None))


def _print_report(report: Report, output: Output) -> None:
    if output is not Output.TEXT:
        show(report.as_json(), output)
        return
    for finding in report.findings:
        print("\n".join(map(printable, finding.lines())))
    print(report.summary())
