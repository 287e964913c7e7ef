"""`kqueue drain`: take a domain out for maintenance, or for one ClusterQueue."""

from __future__ import annotations

from typing import Annotated

import typer

from kqueue.cli.output import Output, OutputOption
from kqueue.cli.reaching import ReachFlags, reaches_cluster

_NOT_EMPTY = 1
_DOMAIN = Annotated[str, typer.Argument(metavar="DOMAIN", help="A domain, as kqueue topology prints it: b0/r1.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("drain")(reaches_cluster(drain))


def drain(
    domain: _DOMAIN,
    topology: Annotated[str, typer.Option(help="Its Topology, where several have the domain.")] = "",
    by: Annotated[str, typer.Option(metavar="TIME", help="When it is to be free: a time, or 2h or 3d from now.")] = "",
    until: Annotated[str, typer.Option(metavar="TIME", help="When others may use it again; 7 days without it.")] = "",
    queue: Annotated[
        str,
        typer.Option("--for", metavar="CLUSTERQUEUE", help="The ClusterQueue that may use it; no node is cordoned."),
    ] = "",
    cordons: Annotated[
        bool, typer.Option("--cordon/--no-cordon", help="Cordon its nodes from TIME on, when they are empty.")
    ] = True,
    moves: Annotated[bool, typer.Option("--move", help="Approve the moves of workloads that agree to moves.")] = False,
    waits: Annotated[bool, typer.Option("--wait", help="Wait until it is empty and cordoned.")] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long --wait waits.")] = "1h",
    undo: Annotated[
        bool, typer.Option("--undo", help="End the drain, and uncordon the nodes that it has cordoned.")
    ] = False,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Take a domain out whole: reserve it, say what becomes of its workloads, and cordon its nodes when they are empty.

    \b
        kqueue drain b0/r1
        kqueue drain b0/r1 --by 2026-01-02T06:00:00Z --until 2026-01-02T18:00:00Z
        kqueue drain b0/r1 --by 2h --for research
        kqueue drain b0/r1 --undo

    A Reservation keeps the domain: from now on no workload starts there that is not promised to end before TIME, and
    from TIME on none does.  Nothing is evicted: the command says which workloads end in time, which may move
    (kqueue.dev/reschedule), and which stay.  Run it again, with the same or with other times, to go on.

    Exit codes: 0 done as asked; 1 the request failed, or --wait ended before the domain was empty; 2 the call is wrong.
    """
    from kqueue.errors import ConfigError

    if undo:
        if by or until or queue or waits or moves:
            raise ConfigError("--undo excludes --by, --until, --for, --move and --wait")
        _undo(domain, topology, output, reach)
    else:
        _drain(domain, topology, by, until, queue, cordons, moves, timeout if waits else "", output, reach)


def _undo(domain: str, topology: str, output: Output, reach: ReachFlags) -> None:
    from kqueue.cli.drain_page import print_undone
    from kqueue.cli.output import show
    from kqueue.clock import SystemClock
    from kqueue.operations.drain.run import undo
    from kqueue.operations.drain.target import DrainTarget
    from kqueue.runtime.loop import run

    async def change() -> tuple[DrainTarget, list[str], bool]:
        async with reach.session() as session:
            return await undo(session.client, domain, topology, SystemClock())

    target, nodes, was_there = run(change())
    if output is Output.TEXT:
        print_undone(str(target), target.name, nodes, was_there)
    else:
        show({"reservation": target.name, "deleted": was_there, "uncordoned": nodes}, output)


def _drain(
    domain: str,
    topology: str,
    by: str,
    until: str,
    queue: str,
    cordons: bool,
    moves: bool,
    timeout: str,
    output: Output,
    reach: ReachFlags,
) -> None:
    from kqueue.cli.drain_page import print_drain
    from kqueue.cli.output import show
    from kqueue.clock import SystemClock
    from kqueue.config.duration import whole_seconds
    from kqueue.errors import ConfigError
    from kqueue.operations.drain import run as steps
    from kqueue.operations.drain.target import time_of
    from kqueue.runtime.loop import run

    clock = SystemClock()
    now = clock.now()
    wish = steps.DrainWish(
        domain=domain,
        topology=topology,
        by=time_of(by, "--by", now) if by else None,
        until=time_of(until, "--until", now) if until else None,
        queue=queue,
        cordons=cordons,
        moves=moves,
    )
    limit = 0
    if timeout:
        try:
            limit = whole_seconds(timeout)
        except ValueError as e:
            raise ConfigError(f"--timeout: {e}") from e

    def tell(state: steps.DrainState) -> None:
        if output is Output.TEXT:
            print_drain(state, clock.now(), cordons=cordons)

    async def work() -> steps.DrainState:
        async with reach.session() as session:
            if timeout:
                return await steps.wait(session.client, wish, clock, limit=limit, on_change=tell)
            found = await steps.drain(session.client, wish, clock)
            tell(found)
            return found

    state = run(work())
    if output is not Output.TEXT:
        show(state.as_json(), output)
    if timeout and not state.is_done(
        clock.now(), cordons=cordons and not state.reservation["spec"].get("clusterQueue")
    ):
        raise typer.Exit(_NOT_EMPTY)
