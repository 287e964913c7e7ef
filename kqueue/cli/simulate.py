"""`kqueue simulate`: simulates the creation of manifests."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kqueue.cli.manifests import manifests_in
from kqueue.cli.output import Output, OutputOption, printable
from kqueue.cli.reaching import ReachFlags, reaches_cluster

JSON = dict[str, Any]
_WAITS = 1
"""Exit code where not all workloads would start now; failures have 2."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(reaches_cluster(simulate))


def simulate(
    file: Annotated[
        str, typer.Option("--filename", "-f", help="File with manifests, YAML or JSON; - reads from standard input.")
    ],
    copies: Annotated[int, typer.Option("--copies", min=1, help="How many of each.")] = 1,
    at: Annotated[str, typer.Option("--at", help="LocalQueue for all of them, in place of their own.")] = "",
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Say what would become of manifests, if they were created now: nothing is created.

    For each workload: whether it starts now, where, and with which preemptions; else everything in its way, and the
    cheapest changes with which it would start.  Any kind that kqueue queues can be asked about, several in one file.
    A user who may create the objects may ask.

    Exit codes: 0 all of them would start now, 1 not all would, 2 the question failed.

    Examples:

        kqueue simulate -f train.yaml

        kqueue simulate -f train.yaml --copies 20 --at spare

        kustomize build jobs | kqueue simulate -f - -o json
    """
    from kqueue.cli.question_page import show_answer
    from kqueue.cli.simulate_page import simulate_page
    from kqueue.errors import ConfigError, KqueueError
    from kqueue.runtime.loop import run

    manifests = manifests_in(file)
    _namespace(manifests, reach.namespace, "")  # refuses them before anything is reached
    try:
        answer = run(_asked(manifests, copies=copies, queue=at, reach=reach))
    except ConfigError:
        raise
    except KqueueError as e:  # 1 would say that a workload waits
        raise ConfigError(str(e)) from e
    for warning in answer.get("warnings") or ():
        print(f"warning: {printable(warning)}", file=sys.stderr)
    show_answer(answer, output, simulate_page)
    if not answer["startsNow"]:
        raise typer.Exit(_WAITS)


def _namespace(manifests: list[JSON], given: str, default: str) -> str:
    """Return the namespace of the manifests.

    Raises:
        ConfigError: they are of several.
    """
    from kqueue.errors import ConfigError
    from kqueue.jobs.fields import text

    named = sorted({text(obj, "metadata", "namespace") for obj in manifests} - {""})
    if given and named not in ([], [given]):
        raise ConfigError(f"the manifests are of namespace {', '.join(named)}, and --namespace is {given}")
    if len(named) > 1:
        raise ConfigError(f"the manifests are of namespaces {', '.join(named)}: ask about one namespace at a time")
    return given or (named[0] if named else default)


async def _asked(manifests: list[JSON], *, copies: int, queue: str, reach: ReachFlags) -> JSON:
    from kqueue.api.wire import simulation
    from kqueue.operations.questions import post

    async with reach.session() as session:
        namespace = _namespace(manifests, reach.namespace, session.namespace)
        spec = {"manifests": manifests, "copies": copies, **({"queue": queue} if queue else {})}
        return await post(session.client, simulation.PLURAL, simulation.KIND, {"spec": spec}, namespace=namespace)
