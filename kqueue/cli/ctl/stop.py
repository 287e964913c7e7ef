"""`kqueue stop` and `kqueue resume`: pause workloads and queues, and let them run again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.ctl.completing import names_of
from kqueue.cli.ctl.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, CommandKind
from kqueue.cli.ctl.objects import (
    DryRun,
    DryRunOption,
    ObjectOutput,
    OutputOption,
    checked_target,
    existing,
    print_done,
)
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.cli.reaching import Session

_Workload = Annotated[
    str,
    typer.Argument(
        metavar="NAME | KIND/NAME", show_default=False, callback=checked_target, autocompletion=names_of(WORKLOAD)
    ),
]
_ClusterQueue = Annotated[str, existing(CLUSTER_QUEUE)]
_LocalQueue = Annotated[str, existing(LOCAL_QUEUE)]
_Keep = Annotated[
    bool, typer.Option("--keep-already-running", help="Admit nothing new; admitted workloads keep running.")
]


def add_commands(group: typer.Typer, verb: str) -> None:
    """Add a command for each kind, of `stop` or of `resume`."""
    stop = verb == "stop"
    group.command(WORKLOAD.name)(reaches_cluster(stop_workload if stop else resume_workload))
    group.command(CLUSTER_QUEUE.name)(reaches_cluster(stop_cluster_queue if stop else resume_cluster_queue))
    group.command(LOCAL_QUEUE.name)(reaches_cluster(stop_local_queue if stop else resume_local_queue))


def stop_workload(
    name: _Workload, *, dry_run: DryRunOption = DryRun.NONE, output: OutputOption = ObjectOutput.TEXT, reach: ReachFlags
) -> None:
    """Evict a workload if it runs, and keep it out of the queue until it is resumed.

    KIND/NAME is the object it was made for, such as job/train; for a Deployment all unfinished workloads stop.
    """
    _change(WORKLOAD, name, {"active": False}, "stopped", dry_run=dry_run, output=output, reach=reach)


def resume_workload(
    name: _Workload, *, dry_run: DryRunOption = DryRun.NONE, output: OutputOption = ObjectOutput.TEXT, reach: ReachFlags
) -> None:
    """Let a workload queue again."""
    _change(WORKLOAD, name, {"active": True}, "resumed", dry_run=dry_run, output=output, reach=reach)


def stop_cluster_queue(
    name: _ClusterQueue,
    *,
    keep_already_running: _Keep = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Stop admission by a ClusterQueue, and evict its admitted workloads."""
    _change(CLUSTER_QUEUE, name, _held(keep_already_running), "stopped", dry_run=dry_run, output=output, reach=reach)


def resume_cluster_queue(
    name: _ClusterQueue,
    *,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Let a ClusterQueue admit again."""
    _change(CLUSTER_QUEUE, name, _OPEN, "resumed", dry_run=dry_run, output=output, reach=reach)


def stop_local_queue(
    name: _LocalQueue,
    *,
    keep_already_running: _Keep = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Stop admission through a LocalQueue, and evict its admitted workloads."""
    _change(LOCAL_QUEUE, name, _held(keep_already_running), "stopped", dry_run=dry_run, output=output, reach=reach)


def resume_local_queue(
    name: _LocalQueue,
    *,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Let a LocalQueue admit again."""
    _change(LOCAL_QUEUE, name, _OPEN, "resumed", dry_run=dry_run, output=output, reach=reach)


_OPEN = {"stopPolicy": "None"}


def _held(keep_running: bool) -> dict[str, str]:
    return {"stopPolicy": "Hold" if keep_running else "HoldAndDrain"}


def _change(
    kind: CommandKind,
    name: str,
    spec: dict[str, Any],
    done: str,
    *,
    dry_run: DryRun,
    output: ObjectOutput,
    reach: ReachFlags,
) -> None:
    """Merge `spec` into the spec of one object, or of all Workloads that the name means."""
    from kqueue.runtime.loop import run

    async def work() -> list[dict[str, Any]]:
        async with reach.session() as session:
            targets = await _open_workloads(session, name) if kind is WORKLOAD else [name]
            return [await _changed(session, kind, target, spec, dry_run) for target in targets]

    for obj in run(work()):
        print_done(kind, obj, done, output, dry_run)


async def _open_workloads(session: Session, text: str) -> list[str]:
    """Return the names of the Workloads that NAME means: unfinished ones if there are any, else all."""
    from kqueue.api import names
    from kqueue.cli.ctl.workloads_of import is_workload, workloads_of
    from kqueue.kube.conditions import is_true

    kind, slash, name = text.partition("/")
    if not slash or is_workload(kind):
        return [name if slash else text]
    found = await workloads_of(session, kind, name)
    chosen = [w for w in found if not is_true(w, names.CONDITION_FINISHED)] or found[:1]
    return [str(w["metadata"]["name"]) for w in chosen]


async def _changed(
    session: Session, kind: CommandKind, name: str, spec: dict[str, Any], dry_run: DryRun
) -> dict[str, Any]:
    client, resource = session.client, kind.resource
    namespace = session.namespace if resource.namespaced else None
    if dry_run is DryRun.CLIENT:
        obj = await client.get_json(resource, name, namespace)
        return {**obj, "spec": {**obj.get("spec", {}), **spec}}
    return await client.patch(resource, name, {"spec": spec}, namespace, dry_run=dry_run is DryRun.SERVER)
