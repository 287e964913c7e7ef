"""`kqueue demo`: a simulated cluster, kqueue on it, and a story of jobs that checks itself."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("demo")
    def demo(
        topology: Annotated[str, typer.Option(help="Blocks x racks x hosts of the simulated cluster.")] = "2x8x16",
        keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster up afterwards, to play on.")] = False,
        verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show kqueue's own log lines too.")] = False,
    ) -> None:
        """Watch jobs being queued, placed into racks, gated, released and run; one waits, one can never fit.

        Ends with exit code 1 when a pod ran outside its gang's domain or a quota was exceeded.
        """
        from kqueue.cli.story import tell
        from kqueue.observe import configure_logs
        from kqueue.runtime.loop import run

        configure_logs("console", "info" if verbose else "error")
        code = run(tell(topology, keep=keep))
        if code:
            raise typer.Exit(code)
