"""`kqueue dashboard`: the page of queues, domains and workloads, for one user on a desk or for many in a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.page.server import PageServer
    from kqueue.page.serving import ServeOptions


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dashboard")(reaches_cluster(dashboard))


_ServeOption = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Serve many users, who sign in with tokens, at an address such as :8443.")
]
_CertDirOption = Annotated[
    Path | None, typer.Option(help="With --serve: folder of tls.crt and tls.key; else a certificate is made.")
]
_PlainOption = Annotated[
    bool, typer.Option("--plain-http", help="With --serve: no TLS, behind a server that speaks TLS with browsers.")
]
_HealthOption = Annotated[str, typer.Option(help="With --serve: address of /healthz and /readyz; 0 is off.")]
_MetricsOption = Annotated[str, typer.Option(help="With --serve: address of /metrics, such as :8443; 0 is off.")]
_MetricsSecureOption = Annotated[
    bool,
    typer.Option("--metrics-secure", help="With --serve: /metrics by TLS, for users that RBAC allows to get it."),
]
_PaceOption = Annotated[
    int, typer.Option(min=1, max=1000, help="With --serve: limit of questions to the cluster, of all users together.")
]
_LogLevelOption = Annotated[str, typer.Option(help="With --serve: debug, info, warning or error.")]


def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    serve: _ServeOption = "",
    cert_dir: _CertDirOption = None,
    plain_http: _PlainOption = False,
    health_address: _HealthOption = "0",
    metrics_address: _MetricsOption = "0",
    metrics_secure: _MetricsSecureOption = False,
    questions_per_second: _PaceOption = 3,
    log_level: _LogLevelOption = "info",
    *,
    reach: ReachFlags,
) -> None:
    """Serve a page of queues, domains and workloads on this machine until ctrl-C.

    The page asks the cluster as the user of the kubeconfig, so it shows what this user may see.  The printed address
    has a key: anyone on this machine who knows it has the rights of that user on the page.

    With --serve it is for people without a kubeconfig: each signs in with a bearer token and sees what its user may
    see.  The account of this process only reviews tokens.
    """
    from kqueue.runtime.loop import run

    if not serve:
        _refuse_without_serve(
            {
                "--cert-dir": cert_dir is not None,
                "--plain-http": plain_http,
                "--health-address": health_address != "0",
                "--metrics-address": metrics_address != "0",
                "--metrics-secure": metrics_secure,
            }
        )
        run(_serve(port, browser, reach))
        return
    from kqueue.observe import configure_logs
    from kqueue.page.serving import ServeOptions

    configure_logs("json", log_level)
    options = ServeOptions(
        address=serve,
        certificates=cert_dir,
        plain_http=plain_http,
        health_address=health_address,
        metrics_address=metrics_address,
        metrics_secure=metrics_secure,
        per_second=questions_per_second,
        kubeconfig=reach.kubeconfig,
        context=reach.context,
        cluster=reach.cluster,
        server=reach.server,
    )
    run(_serve_many(options, reach))


def _refuse_without_serve(given: dict[str, bool]) -> None:
    from kqueue.errors import ConfigError

    for flag, is_given in given.items():
        if is_given:
            raise ConfigError(f"{flag}: only with --serve")


async def _serve_many(options: ServeOptions, reach: ReachFlags) -> None:
    from kqueue.page.serving import serve

    async with reach.session() as session:
        await serve(options, session.client, _lines, _what_if_lines)


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
