"""`kqueue stop` and `kqueue resume`: workloads and queues that shall not run for a while."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kqueue.cli.ctl.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, Kind
from kqueue.cli.ctl.objects import DryRun, DryRunOption, Output, OutputOption, existing, print_done
from kqueue.cli.reaching import Reach, reaches_cluster

_Workload = Annotated[str, existing(WORKLOAD)]
_ClusterQueue = Annotated[str, existing(CLUSTER_QUEUE)]
_LocalQueue = Annotated[str, existing(LOCAL_QUEUE)]
_Keep = Annotated[
    bool, typer.Option("--keep-already-running", help="Admit nothing new, but let run what was admitted.")
]


def add_commands(group: typer.Typer, verb: str) -> None:
    """Add a command for each kind, of `stop` or of `resume`."""
    stop = verb == "stop"
    group.command(WORKLOAD.name)(reaches_cluster(stop_workload if stop else resume_workload))
    group.command(CLUSTER_QUEUE.name)(reaches_cluster(stop_cluster_queue if stop else resume_cluster_queue))
    group.command(LOCAL_QUEUE.name)(reaches_cluster(stop_local_queue if stop else resume_local_queue))


def stop_workload(
    name: _Workload, *, dry_run: DryRunOption = DryRun.NONE, output: OutputOption = Output.TEXT, reach: Reach
) -> None:
    """Evict a workload, if it runs, and keep it out of the queue until it is resumed."""
    _change(WORKLOAD, name, {"active": False}, "stopped", dry_run=dry_run, output=output, reach=reach)


def resume_workload(
    name: _Workload, *, dry_run: DryRunOption = DryRun.NONE, output: OutputOption = Output.TEXT, reach: Reach
) -> None:
    """Let a workload queue again."""
    _change(WORKLOAD, name, {"active": True}, "resumed", dry_run=dry_run, output=output, reach=reach)


def stop_cluster_queue(
    name: _ClusterQueue,
    *,
    keep_already_running: _Keep = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = Output.TEXT,
    reach: Reach,
) -> None:
    """Admit nothing through a ClusterQueue, and evict what it has admitted."""
    _change(CLUSTER_QUEUE, name, _held(keep_already_running), "stopped", dry_run=dry_run, output=output, reach=reach)


def resume_cluster_queue(
    name: _ClusterQueue, *, dry_run: DryRunOption = DryRun.NONE, output: OutputOption = Output.TEXT, reach: Reach
) -> None:
    """Let a ClusterQueue admit again."""
    _change(CLUSTER_QUEUE, name, _OPEN, "resumed", dry_run=dry_run, output=output, reach=reach)


def stop_local_queue(
    name: _LocalQueue,
    *,
    keep_already_running: _Keep = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = Output.TEXT,
    reach: Reach,
) -> None:
    """Admit nothing through a LocalQueue, and evict what came through it."""
    _change(LOCAL_QUEUE, name, _held(keep_already_running), "stopped", dry_run=dry_run, output=output, reach=reach)


def resume_local_queue(
    name: _LocalQueue, *, dry_run: DryRunOption = DryRun.NONE, output: OutputOption = Output.TEXT, reach: Reach
) -> None:
    """Let a LocalQueue admit again."""
    _change(LOCAL_QUEUE, name, _OPEN, "resumed", dry_run=dry_run, output=output, reach=reach)


_OPEN = {"stopPolicy": "None"}


def _held(keep_running: bool) -> dict[str, str]:
    return {"stopPolicy": "Hold" if keep_running else "HoldAndDrain"}


def _change(
    kind: Kind, name: str, spec: dict[str, Any], done: str, *, dry_run: DryRun, output: Output, reach: Reach
) -> None:
    """Merge `spec` into one object's."""
    from kqueue.runtime.loop import run

    async def work() -> dict[str, Any]:
        async with reach.session() as session:
            client, resource = session.client, kind.resource
            namespace = session.namespace if resource.namespaced else None
            if dry_run is DryRun.CLIENT:
                obj = await client.get_json(resource, name, namespace)
                return {**obj, "spec": {**obj.get("spec", {}), **spec}}
            return await client.patch(resource, name, {"spec": spec}, namespace, dry_run=dry_run is DryRun.SERVER)

    print_done(kind, run(work()), done, output, dry_run)
