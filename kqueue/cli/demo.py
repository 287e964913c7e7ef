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
        """Watch jobs being queued, placed into racks, gated, released and run.

        One waits, one can never fit, one makes room for another and comes back.  Three are planned together, and a
        plan of moves frees a rack.

        Ends with exit code 1 when a pod ran outside its gang's domain, a quota was exceeded, or a job that had to leave
        was not given back as it was.
        """
        from kqueue.cli.sandbox import need_sandbox

        need_sandbox()
        from kqueue.cli.story import run_story
        from kqueue.observe import configure_logs
        from kqueue.runtime.loop import run

        configure_logs("console", "info" if verbose else "error")
        code = run(run_story(topology, keep=keep))
        if code:
            raise typer.Exit(code)
