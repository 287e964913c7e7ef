"""`kqueue version`."""

from __future__ import annotations

import typer

from kqueue.cli.output import Output, OutputOption, show


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def version(output: OutputOption = Output.TEXT) -> None:
        """Print what is running."""
        from dataclasses import asdict

        from kqueue.build import build

        show({key: value for key, value in asdict(build()).items() if value}, output)
