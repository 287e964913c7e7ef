"""`kqueue top`: the present state of queues and domains, once or refreshed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.errors import ForbiddenError


class _What(StrEnum):
    """The part of the cluster to show."""

    QUEUES = "queues"
    DOMAINS = "domains"
    ALL = "all"


class _Order(StrEnum):
    """The values of `dashboard.queues.Order`, without its import."""

    PENDING = "pending"
    WAIT = "wait"
    USED = "used"
    NAME = "name"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("top")(reaches_cluster(top))


def top(
    what: Annotated[_What, typer.Argument(help="queues, domains, or both.")] = _What.ALL,
    once: Annotated[bool, typer.Option("--once", help="Print once and end; always so without a terminal.")] = False,
    every: Annotated[float, typer.Option(min=0.5, max=3600, help="Seconds between two looks.")] = 2.0,
    sort: Annotated[_Order, typer.Option(help="Key that sorts the queues.")] = _Order.PENDING,
    level: Annotated[str, typer.Option(help="Domains down to this level: its label, last word, or number.")] = "",
    resource: Annotated[
        list[str] | None, typer.Option(help="Show this resource; may be repeated.  By default devices.")
    ] = None,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Show waiting workloads, the use of quota, and free resources of domains; on a terminal until you press q.

    In the bar of a queue, full blocks are its own quota in use, and shaded blocks are borrowed quota.  In the bar of a
    domain, full blocks are used by workloads, and shaded blocks by foreign pods.
    """
    from kqueue.runtime.loop import run

    live = output is Output.TEXT and sys.stdout.isatty() and not once
    run(
        _run(
            what, live=live, every=every, order=sort, level=level, resources=resource or [], output=output, reach=reach
        )
    )


async def _run(
    what: _What,
    *,
    live: bool,
    every: float,
    order: _Order,
    level: str,
    resources: list[str],
    output: Output,
    reach: ReachFlags,
) -> None:
    from kqueue.cli.dashboard import queries

    async with reach.session(quick=live) as session:

        async def ask() -> dict[str, Any]:
            """Ask for both parts; return the parts that the user may see, or without any raise the refusal."""
            found: dict[str, Any] = {}
            refused: list[ForbiddenError] = []
            if what is not _What.DOMAINS:
                with _collected(refused):
                    found["queues"] = await queries.queues(session.client, session.namespace)
            if what is not _What.QUEUES:
                with _collected(refused):
                    found["topologies"] = await queries.topologies(session.client, queries.TopologyQuery(level=level))
            if not found:
                raise refused[0]
            return found | ({"refused": [str(error) for error in refused]} if refused else {})

        if live:
            await _follow(ask, every, _pages(order, resources))
        else:
            _print(await ask(), order, resources, output)


@contextmanager
def _collected(refused: list[ForbiddenError]) -> Iterator[None]:
    """Append a refusal inside the block to the list."""
    from kqueue.errors import ForbiddenError

    try:
        yield
    except ForbiddenError as error:
        refused.append(error)


def _print(found: dict[str, Any], order: _Order, resources: list[str], output: Output) -> None:
    from kqueue.cli.dashboard.printing import print_queues, print_topologies
    from kqueue.cli.dashboard.queues import Order
    from kqueue.cli.output import printable, show

    if output is not Output.TEXT:
        show(found, output)
        return
    if "queues" in found:
        print_queues(found["queues"], resources, Order(order))
    if "queues" in found and "topologies" in found:
        print()
    if "topologies" in found:
        print_topologies(found["topologies"]["items"], resources)
    for words in found.get("refused", ()):
        print("\n".join(map(printable, words.splitlines())), file=sys.stderr)


async def _follow(ask: Any, every: float, page: Any) -> None:
    from rich.console import Console

    from kqueue.cli.dashboard.live import follow
    from kqueue.clock import SystemClock

    await follow(ask, page, console=Console(highlight=False, emoji=False), clock=SystemClock(), seconds=every)


def _pages(order: _Order, resources: list[str]) -> Any:
    from rich.console import Group, RenderableType
    from rich.text import Text

    from kqueue.cli.dashboard.queues import Order
    from kqueue.cli.dashboard.screen import queue_page, topology_page
    from kqueue.cli.output import printable

    def page(found: dict[str, Any], height: int) -> RenderableType:
        """Lay out a page: queues get the lines that they need up to half of the screen, domains the rest, refusals the
        end.
        """
        parts: list[RenderableType] = []
        refused = [line for words in found.get("refused", ()) for line in words.splitlines()]
        height -= len(refused)
        if "queues" in found:
            needed = 3 + sum(max(1, len(item["resources"])) for item in found["queues"]["items"])
            most = min(needed, height // 2) if "topologies" in found else height
            parts.append(queue_page(found["queues"], resources, Order(order), most=most))
            height -= most
        for summary in found.get("topologies", {"items": []})["items"]:
            flavors = max(1, len(found["topologies"]["items"]) * max(1, len(summary["flavors"])))
            parts.append(topology_page(summary, resources, most=max(4, height // flavors - 1), whole=False))
        parts += [Text(printable(line), style="yellow") for line in refused]
        return Group(*parts)

    return page
