"""`kqueue explain`: why a workload waits, changes that would let it start, its placement, evictions and end."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption, printable, show
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.cli.reaching import Session

JSON = dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(reaches_cluster(explain))


def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            help="workload NAME, or its object: job/NAME, pod/NAME, deployment/NAME, group/NAME, gang/NAME."
        ),
    ],
    what_if: Annotated[
        bool, typer.Option("--what-if/--no-what-if", help="Look for changes with which it would start.")
    ] = True,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Explain why a workload waits, what holds the resources it needs, and which changes would let it start.

    The cheapest change comes first; the planner has tried each change on the present state.  For a running workload:
    its placement, how good the placement is, and what it borrows.  For an evicted workload: what evicted it, by which
    rule, and when it comes back.

    For a gang: its phase, how many pods are there and run, which are missing, its deadline, and the pods that wait
    beyond its quorum; also while the gang has no Workload yet.
    """
    from kqueue.runtime.loop import run

    kind, name = _target(what)
    run(_run(kind, name, what_if=what_if, output=output, reach=reach))


def _target(words: Sequence[str]) -> tuple[str, str]:
    """Return kind and name of `workload NAME`, `workload/NAME`, `job/NAME`, or a Workload's NAME alone.

    Raises:
        ConfigError: the words have another form.
    """
    from kqueue.cli.ctl.workloads_of import USAGE
    from kqueue.errors import ConfigError

    parts = [part for word in words for part in word.split("/")] if len(words) < 3 else []
    if len(parts) == 1:
        parts.insert(0, "workload")
    if len(parts) != 2 or not all(parts):
        raise ConfigError(f"{' '.join(words)!r}: {USAGE}")
    return parts[0].lower(), parts[1]


async def _run(kind: str, name: str, *, what_if: bool, output: Output, reach: ReachFlags) -> None:
    from kqueue.cli.explain_page import page, print_lines

    async with reach.session() as session:
        gang, notes = await _gang_of(session, kind, name)
        workload = (gang.get("workload") or {}).get("name", "") if gang else await _workload_of(session, kind, name)
        answer: JSON = {}
        if workload and not (gang and "admittedAt" in gang["workload"]):
            answer = await _answer(session, workload, what_if=what_if)
            if unjudged := [*(answer.get("unjudged") or ()), *await _unjudged(session, workload)]:
                answer = {**answer, "unjudged": unjudged}
    for note in (*notes, *(answer.get("asOf", {}).get("notes") or ())):
        print(f"note: {printable(note)}", file=sys.stderr)
    if gang:
        gang = {**gang, "explanation": answer} if answer else gang
    if output is Output.TEXT:
        from kqueue.cli.gang_page import gang_page

        print_lines(gang_page(gang) if gang else page(answer))
    else:
        show(gang or answer, output)


async def _gang_of(session: Session, kind: str, name: str) -> tuple[JSON | None, Sequence[str]]:
    """Return the gang of that kind and name, with notes about it; None: the words name no gang.

    Raises:
        ConfigError, NotFoundError: as `find_gang`.
    """
    if not _may_name_a_gang(kind):
        return None, ()
    from kqueue.cli.gang_targets import find_gang, frameworks_called

    return await find_gang(session, kind, name) if frameworks_called(kind) else (None, ())


def _may_name_a_gang(kind: str) -> bool:
    """Whether the word may be the kind of a gang; a cheap check, because reading gangs needs much of kqueue."""
    from kqueue.kinds import GANG_DIALECTS

    called = kind.lower().partition(".")[0]
    return called.startswith(("gang", *(name.rpartition("/")[2] for name in GANG_DIALECTS)))


async def _answer(session: Session, name: str, *, what_if: bool) -> JSON:
    """Return the controller's answer; if it does not answer, the state in the Workload's own status, with a note."""
    from kqueue.api import names
    from kqueue.controllers.resources import WORKLOADS
    from kqueue.errors import ApiError, KqueueError, NotFoundError
    from kqueue.operations.questions import ask, path

    where = path(
        names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", "namespaces", session.namespace, "workloads", name, "explanation"
    )
    try:
        return await ask(session.client, where, None if what_if else {"whatIf": "false"})
    except KqueueError as e:
        failure = e
    try:
        found = await session.client.get_json(WORKLOADS, name, session.namespace)
    except NotFoundError as e:
        raise NotFoundError(f"there is no Workload {session.namespace}/{name}", status=404) from e
    except ApiError:
        raise failure from None
    from kqueue.cli.status_alone import from_status

    return from_status(found, why=str(failure))


async def _unjudged(session: Session, name: str) -> list[str]:
    """Return sentences about fields of the pods that kqueue does not judge.

    Empty without such fields, and without the right to read the Workload.

    The controller does not keep these fields in memory, so the Workload itself is read; it tells itself about selectors
    of devices.
    """
    from kqueue.controllers.resources import WORKLOADS
    from kqueue.errors import ApiError
    from kqueue.jobs.unjudged import of_workload

    try:
        return of_workload(await session.client.get_json(WORKLOADS, name, session.namespace))
    except ApiError:
        return []


async def _workload_of(session: Session, kind: str, name: str) -> str:
    """Return the Workload to explain for an object: the newest unfinished one, else the newest.

    A note on stderr counts the others.

    Raises:
        ConfigError, NotFoundError: as `workloads_of`.
    """
    from kqueue.cli.ctl.workloads_of import is_workload, workloads_of

    if is_workload(kind):
        return name
    found = await workloads_of(session, kind, name)
    chosen = str(found[0]["metadata"]["name"])
    if len(found) > 1:
        print(f"note: {kind}/{name} has {len(found)} Workloads; this is {printable(chosen)}", file=sys.stderr)
    return chosen
