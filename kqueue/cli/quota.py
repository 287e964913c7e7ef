"""`kqueue quota`: quota and usage of the LocalQueues of a namespace, for users without rights in the cluster."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption, printable
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.cli.reaching import Session

JSON = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("quota")(reaches_cluster(quota))


def quota(
    name: Annotated[str, typer.Argument(metavar="[LOCALQUEUE]", help="Only this LocalQueue; else all.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Waiting workloads to show of each LocalQueue.")] = 20,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Show the quota behind the LocalQueues of a namespace, its use, and the positions of waiting workloads.

    \b
        kqueue quota -n team-a
        kqueue quota main -n team-a -o json

    QUOTA, IN USE, BORROWED and BORROWABLE belong to the ClusterQueue, over all its LocalQueues; OWN is the part that
    workloads of this LocalQueue use.  SHARE is the ClusterQueue's, where fair sharing decides.  Rights in the namespace
    suffice: the roles view and edit have them.

    Exit codes: 0 done; 1 the request was refused or got no answer; 2 the call is wrong.
    """
    from kqueue.cli.dashboard.queries import quotas
    from kqueue.cli.output import show
    from kqueue.runtime.loop import run

    async def look() -> tuple[JSON, str, str]:
        async with reach.session() as session:
            answer = await quotas(session.client, session.namespace, name, limit)
            unnamed = any("waiting" not in item for item in answer["items"])
            return answer, session.namespace, await _why_unnamed(session) if unnamed else ""

    answer, namespace, why = run(look())
    if output is Output.TEXT:
        from kqueue.cli.dashboard.quotas import print_quotas

        print_quotas(answer, namespace)
    else:
        show(answer, output)
    for line in why.splitlines():
        print(printable(line), file=sys.stderr)


async def _why_unnamed(session: Session) -> str:
    """Return why the answer has no positions, and the role to request; empty if the user has the right by now.

    The API server's refusal names the user, whose name the commands need.
    """
    from kqueue.controllers.resources import WORKLOADS
    from kqueue.errors import ApiError, ForbiddenError
    from kqueue.operations.grants import needs, workloads_in

    try:
        with needs(workloads_in(session.namespace)):
            await session.client.get_json(WORKLOADS, "any", session.namespace)
    except ForbiddenError as e:
        return f"Positions are not shown: {e}"
    except ApiError:
        pass  # the user has the right by now: the next answer has positions
    return ""
