"""`kqueue delete`: deletes Workloads together with their jobs; calls kubectl for other kinds."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from kqueue.cli.ctl.completing import names_of
from kqueue.cli.ctl.kinds import OURS, WORKLOAD
from kqueue.cli.ctl.objects import AllNamespacesOption, DryRun, DryRunOption, checked_target, ran
from kqueue.cli.output import printable
from kqueue.cli.reaching import ReachFlags, reaches_cluster

_FAILED = 1


def add_commands(group: typer.Typer, verb: str) -> None:
    """Add a command for each kind."""
    group.command(WORKLOAD.name)(reaches_cluster(delete_workloads))
    for kind in OURS:
        if kind is not WORKLOAD:
            _add_passed_on(group, kind.name)


def _add_passed_on(group: typer.Typer, name: str) -> None:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}

    @group.command(name, help="As kubectl does; all flags are its own.", context_settings=settings)
    def delete(
        arguments: Annotated[list[str] | None, typer.Argument(metavar="NAME... [kubectl's flags]")] = None,
    ) -> None:
        from kqueue.cli.ctl.kubectl_commands import hand_over

        hand_over("delete", [name, *(arguments or [])])


def delete_workloads(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME | KIND/NAME...", show_default=False, autocompletion=names_of(WORKLOAD)),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="All of the namespace; with -A all of the cluster.")] = False,
    all_namespaces: AllNamespacesOption = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: DryRunOption = DryRun.NONE,
    reach: ReachFlags,
) -> None:
    """Delete the jobs that own a Workload, and the Workload itself where it has no owner.

    Its owners are all objects in its owner references: a Workload of a group of pods has many. KIND/NAME names the
    object of a Workload, such as job/train.
    """
    from kqueue.cli.ctl.deletion import Deletion
    from kqueue.cli.ctl.workloads_of import workload_names
    from kqueue.errors import ConfigError
    from kqueue.runtime.loop import run

    texts = [checked_target(text) for text in workloads or ()]
    if texts and (every or all_namespaces):
        raise ConfigError("give either names of workloads, or --all with or without -A")
    if not texts and not every:
        raise ConfigError("which workloads?  Give their names, or --all" + (" with -A" if all_namespaces else ""))

    async def work() -> bool:
        async with reach.session() as session:
            namespace = None if all_namespaces else session.namespace
            deletion = Deletion(session.client, dry_run, _failed)
            targets = await deletion.targets(namespace, await workload_names(session, texts))
            owned = [target for target in targets if target.owner_of]
            if owned and not yes and dry_run is DryRun.NONE and not _agreed(owned):
                print("nothing was deleted", file=sys.stderr)
                return False
            for target in targets:
                if await deletion.delete(target):
                    print(f"{target} deleted{ran(dry_run)}")
            if not targets and not deletion.failures:
                print("No resources found", file=sys.stderr)
            return deletion.failures == 0

    if not run(work()):
        raise typer.Exit(_FAILED)


def _failed(text: str) -> None:
    print(f"kqueue: {printable(text)}", file=sys.stderr)


def _agreed(owned: list[Any]) -> bool:
    """Ask for confirmation; without a terminal the answer is no."""
    print("This would delete:", file=sys.stderr)
    for target in owned:
        print(f"  {target}, which owns {printable(', '.join(target.owner_of))}", file=sys.stderr)
    print("Delete? [y/N] (-y does not ask) ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
    return answer.strip().lower() in ("y", "yes")
