"""`kqueue dashboard`: the page of queues, domains and workloads, in the browser of its user."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.page.server import PageServer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dashboard")(reaches_cluster(dashboard))


def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    *,
    reach: ReachFlags,
) -> None:
    """Serve a page of queues, domains and workloads on this machine until ctrl-C.

    The page asks the cluster as the user of the kubeconfig, so it shows what this user may see.  The printed address
    has a key: anyone on this machine who knows it has the rights of that user on the page.
    """
    from kqueue.runtime.loop import run

    run(_serve(port, browser, reach))


async def _serve(port: int, browser: bool, reach: ReachFlags) -> None:
    import asyncio

    from kqueue.clock import SystemClock
    from kqueue.page.server import PageServer
    from kqueue.page.views import ClusterViews

    async with reach.session() as session:
        clock = SystemClock()
        views = ClusterViews(session.client, _lines, what_if_lines=_what_if_lines, clock=clock)
        server = PageServer(views, clock=clock)
        async with server.listening(port):
            await _show(server, browser)
            await asyncio.Event().wait()


def _lines(explanation: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of `kqueue explain`: text, depth and style."""
    from kqueue.cli.explain_page import page

    for line in page(explanation):
        yield line.text, line.depth, line.style


def _what_if_lines(answer: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """Yield the lines of `kqueue what-if`, as above."""
    from kqueue.cli.what_if_page import what_if_page

    for line in what_if_page(answer):
        yield line.text, line.depth, line.style


async def _show(server: PageServer, browser: bool) -> None:
    """Print the address, and open it where there is a browser and a person."""
    import asyncio
    import webbrowser

    print(f"The page is at {server.address}\nctrl-C ends it.", flush=True)
    if browser and sys.stdout.isatty():
        await asyncio.to_thread(webbrowser.open, server.address)
