"""`kqueue list`: queues, workloads, flavors, gangs, and the pods of a job."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import typer

from kqueue.cli.ctl.completing import names_of
from kqueue.cli.ctl.kinds import CLUSTER_QUEUE, GANGS, LOCAL_QUEUE, PODS, RESOURCE_FLAVOR, WORKLOAD, CommandKind
from kqueue.cli.ctl.objects import (
    AllNamespacesOption,
    FieldSelectorOption,
    ListOutput,
    ListOutputOption,
    Object,
    SelectorOption,
    listed,
    print_objects,
)
from kqueue.cli.ctl.table import Table
from kqueue.cli.output import printable
from kqueue.cli.reaching import ReachFlags, Session, reaches_cluster

_CLUSTER_QUEUE = ("--clusterqueue", "-c")
_CLUSTER_QUEUES = names_of(CLUSTER_QUEUE)


class ActiveValue(StrEnum):
    """Values of --active."""

    TRUE = "true"
    FALSE = "false"


class Wanted(StrEnum):
    """Values of --status."""

    ALL = "all"
    PENDING = "pending"
    QUOTA_RESERVED = "quotareserved"
    ADMITTED = "admitted"
    FINISHED = "finished"


def add_commands(group: typer.Typer, verb: str) -> None:
    """Add a command for each kind."""
    group.command(CLUSTER_QUEUE.name)(reaches_cluster(list_cluster_queues))
    group.command(LOCAL_QUEUE.name)(reaches_cluster(list_local_queues))
    group.command(WORKLOAD.name)(reaches_cluster(list_workloads))
    group.command(RESOURCE_FLAVOR.name)(reaches_cluster(list_resource_flavors))
    group.command(PODS.name)(reaches_cluster(list_pods))
    group.command(GANGS.name)(reaches_cluster(list_gangs))


def list_cluster_queues(
    *,
    active: Annotated[
        list[ActiveValue] | None, typer.Option(help="Only queues that admit, or do not.", case_sensitive=False)
    ] = None,
    selector: SelectorOption = "",
    field_selector: FieldSelectorOption = "",
    output: ListOutputOption = ListOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """List ClusterQueues."""
    from kqueue.cli.ctl import queue_view
    from kqueue.errors import ConfigError

    if active and len(active) > 1:
        raise ConfigError("--active may be given only once")

    async def find(session: Session) -> list[dict[str, Any]]:
        found = await listed(session.client, CLUSTER_QUEUE.resource, labels=selector, fields=field_selector)
        return [each for each in found if not active or queue_view.is_active(each) == active[0].value]

    found = _found(reach, find)
    _print(CLUSTER_QUEUE, found, queue_view.CLUSTER_QUEUES, output)


def list_local_queues(
    *,
    clusterqueue: Annotated[
        str,
        typer.Option(
            *_CLUSTER_QUEUE, help="Only those that forward to this ClusterQueue.", autocompletion=_CLUSTER_QUEUES
        ),
    ] = "",
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    field_selector: FieldSelectorOption = "",
    output: ListOutputOption = ListOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """List LocalQueues."""
    from kqueue.cli.ctl import queue_view

    where = _Where(all_namespaces)

    async def find(session: Session) -> list[dict[str, Any]]:
        namespace = where.resolve(session)
        found = await listed(session.client, LOCAL_QUEUE.resource, namespace, labels=selector, fields=field_selector)
        return [each for each in found if clusterqueue in ("", queue_view.leads_to(each))]

    found = _found(reach, find)
    _print(LOCAL_QUEUE, found, queue_view.LOCAL_QUEUES, output, where)


def list_resource_flavors(
    *,
    selector: SelectorOption = "",
    field_selector: FieldSelectorOption = "",
    output: ListOutputOption = ListOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """List ResourceFlavors."""
    from kqueue.cli.ctl import queue_view

    async def find(session: Session) -> list[dict[str, Any]]:
        return await listed(session.client, RESOURCE_FLAVOR.resource, labels=selector, fields=field_selector)

    _print(RESOURCE_FLAVOR, _found(reach, find), queue_view.FLAVORS, output)


def list_workloads(
    *,
    status: Annotated[
        list[Wanted] | None, typer.Option(help="Only workloads in this state; may be repeated.", case_sensitive=False)
    ] = None,
    clusterqueue: Annotated[
        str,
        typer.Option(
            *_CLUSTER_QUEUE, help="Only those with quota of this ClusterQueue.", autocompletion=_CLUSTER_QUEUES
        ),
    ] = "",
    localqueue: Annotated[
        str,
        typer.Option("--localqueue", "-q", help="Only those of this LocalQueue.", autocompletion=names_of(LOCAL_QUEUE)),
    ] = "",
    of: Annotated[
        str, typer.Option("--for", metavar="TYPE[.GROUP]/NAME", help="Only those of this job, such as job/train.")
    ] = "",
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    field_selector: FieldSelectorOption = "",
    output: ListOutputOption = ListOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """List Workloads, the queue's view of jobs."""
    from kqueue.cli.ctl.workloads import Surroundings, WorkloadFilter, find_workloads, read_surroundings

    search = WorkloadFilter(
        statuses=frozenset(each.value for each in status or ()) - {Wanted.ALL.value}
        if Wanted.ALL not in (status or ())
        else frozenset(),
        cluster_queue=clusterqueue,
        local_queue=localqueue,
        owner=of,
        labels=selector,
        fields=field_selector,
    )
    where = _Where(all_namespaces)
    around = Surroundings()

    async def find(session: Session) -> list[dict[str, Any]]:
        nonlocal around
        found = await find_workloads(session, where.resolve(session), search)
        if output.is_table:
            starts_at = datetime.now(UTC) if output is ListOutput.WIDE else None
            around = await read_surroundings(session.client, found, where.namespace, starts_at=starts_at)
        return found

    found = _found(reach, find)
    _print(WORKLOAD, found, around.table, output, where)


def list_pods(
    *,
    of: Annotated[
        str,
        typer.Option("--for", metavar="TYPE[.GROUP]/NAME", help="The job, such as job/train.", show_default=False),
    ],
    all_namespaces: AllNamespacesOption = False,
    selector: SelectorOption = "",
    field_selector: FieldSelectorOption = "",
    output: ListOutputOption = ListOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """List the pods of a job."""
    from kqueue.cli.ctl import pod_view
    from kqueue.cli.ctl.workloads import find_pods

    where = _Where(all_namespaces)

    async def find(session: Session) -> list[dict[str, Any]]:
        return await find_pods(session, where.resolve(session), of, labels=selector, fields=field_selector)

    _print(PODS, _found(reach, find), pod_view.PODS, output, where)


def list_gangs(
    *,
    all_namespaces: AllNamespacesOption = False,
    output: ListOutputOption = ListOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """List gangs: groups of pods that start together, with their phase, quorum and counts."""
    from kqueue.cli.ctl import gang_view
    from kqueue.operations.gangs import find_gangs

    where = _Where(all_namespaces)

    async def find(session: Session) -> list[dict[str, Any]]:
        found = await find_gangs(session.client, where.resolve(session))
        for note in found.notes:
            print(f"note: {printable(note)}", file=sys.stderr)
        return [*found.gangs]

    found = _found(reach, find)
    _print(GANGS, found, gang_view.GANGS, output, where)


class _Where:
    """The namespace of the search, which is known after the kubeconfig was read."""

    def __init__(self, everywhere: bool) -> None:
        self.everywhere = everywhere
        self.namespace: str | None = None

    def resolve(self, session: Session) -> str | None:
        """Return the namespace to list, None for all."""
        self.namespace = None if self.everywhere else session.namespace
        return self.namespace


def _found(reach: ReachFlags, find: Callable[[Session], Awaitable[list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    from kqueue.runtime.loop import run

    async def work() -> list[dict[str, Any]]:
        async with reach.session() as session:
            return await find(session)

    return run(work())


def _print(
    kind: CommandKind,
    objects: Sequence[Object],
    table: Table,
    output: ListOutput,
    where: _Where | None = None,
) -> None:
    """Print a table, or the form that `-o` names."""
    from kqueue.cli.tables import print_nothing_found, print_table

    if not output.is_table:
        print_objects(kind.resource, kind.singular or kind.name, objects, output)
        return
    if not objects:
        print_nothing_found(where.namespace if where else None)
        return
    now = datetime.now(UTC)
    columns = table.columns
    rows = [[*table.row(each, now)] for each in objects]
    if output is ListOutput.WIDE:
        columns = (*columns, *table.wide_columns)
        rows = [[*row, *table.wide_row(each)] for row, each in zip(rows, objects, strict=True)]
    if where is not None and where.everywhere and "Namespace" not in columns:
        columns = ("Namespace", *columns)
        rows = [[each["metadata"].get("namespace", ""), *row] for row, each in zip(rows, objects, strict=True)]
    print_table(columns, rows)
