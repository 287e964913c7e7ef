"""`kqueue defrag`: plans of moves that free a domain for a gang.  The commands move nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.core.devices.counting import DeviceRules
    from kqueue.state.defrag.planning import AskedGoal
    from kqueue.state.defrag.view import DefragState

JSON = dict[str, Any]
_NONE_FOUND = 1
_ABOUT = "Find the cheapest moves of running workloads that free a domain for a gang; propose, approve and end plans."
_PictureOption = Annotated[bool, typer.Option("--picture", help="Draw the racks before and after the moves.")]
_ConfigOption = Annotated[
    Path | None, typer.Option(help="The controller's Configuration file: by its deviceClassMappings devices count.")
]
_NAME = Annotated[str, typer.Argument(metavar="NAME", help="A DefragmentationPlan.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help=_ABOUT)
    app.add_typer(group, name="defrag")
    group.command("plan")(reaches_cluster(make_plan))
    group.command("list")(reaches_cluster(list_plans))
    group.command("show")(reaches_cluster(show_plan))
    group.command("approve")(reaches_cluster(approve_plan))
    group.command("abort")(reaches_cluster(abort_plan))


def make_plan(
    workload: Annotated[str, typer.Option("--for", metavar="NS/NAME", help="A waiting Workload.")] = "",
    flavor: Annotated[str, typer.Option(help="A ResourceFlavor, instead of a Workload.")] = "",
    level: Annotated[str, typer.Option(help="A level of its topology: its label or last word.")] = "",
    nodes: Annotated[int, typer.Option(min=0, help="Empty nodes in one domain of the level.")] = 0,
    moves: Annotated[int, typer.Option("--max-moves", min=0, max=64, help="Workloads to move at most.")] = 4,
    minutes: Annotated[int, typer.Option("--max-pod-minutes", min=0, help="Work to lose at most.")] = 120,
    gain: Annotated[
        float, typer.Option("--min-gain", min=0, max=1000, help="Least gain for the cost; 0: whatever it costs.")
    ] = 0.0,
    save: Annotated[bool, typer.Option("--save", help="Store the plan in the cluster.")] = False,
    picture: _PictureOption = False,
    config: _ConfigOption = None,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Find the cheapest moves after which a gang has room in one domain.

    \b
        kqueue defrag plan --for team-a/job-big
        kqueue defrag plan --flavor gpu --level rack --nodes 16

    The gain is the time that the gang has waited, times its pods.  Only workloads with the annotation
    kqueue.dev/reschedule are moved.  The command reads the objects of the cluster with your rights, and writes nothing
    without --save.

    Exit codes: 0 there is a plan; 1 there is none, or the request failed; 2 the call is wrong.
    """
    from kqueue.cli.defrag_page import print_none, print_plan
    from kqueue.cli.output import show
    from kqueue.core.joint.defrag import DefragPlan, DefragSettings
    from kqueue.operations.defrag.storing import save as store
    from kqueue.runtime.loop import run
    from kqueue.state.defrag.document import plan_object, why_none

    asked, rules = _asked(workload, flavor, level, nodes), _device_rules(config)
    settings = DefragSettings(moves=moves, pod_seconds=60 * minutes, least_gain=round(gain * 1000))

    async def look() -> tuple[JSON, bool, DefragState]:
        async with reach.session() as session:
            answer, state = await _answer(session.client, asked, settings, rules)
            if not isinstance(answer.found, DefragPlan):
                return why_none(answer), False, state
            made = plan_object(answer)
            return (await store(session.client, made) if save else made), True, state

    told, found, state = run(look())
    _print_remarks(state.remarks)
    if output is not Output.TEXT:
        show(told, output)
    elif found:
        print_plan(told, told["status"]["phase"])
        _draw(told, state if picture else None)
    else:
        print_none(told)
    if not found:
        raise typer.Exit(_NONE_FOUND)


def _device_rules(file: Path | None) -> DeviceRules | None:
    """Return how the controller with this Configuration counts claimed devices; None: it does not."""
    from kqueue.config import load
    from kqueue.manager.rules import device_rules

    return device_rules(load(file)) if file is not None else None


async def _answer(client: Any, asked: AskedGoal, settings: Any, rules: DeviceRules | None) -> tuple[Any, DefragState]:
    from kqueue.core.joint.movable import MoveLimits
    from kqueue.state.defrag.planning import plan

    state = await _state(client, rules)
    return plan(state, asked, settings, limits=MoveLimits()), state


async def _state(client: Any, rules: DeviceRules | None = None) -> DefragState:
    from kqueue.clock import SystemClock
    from kqueue.operations.defrag.reading import read_objects, state_of

    return state_of(await read_objects(client, devices=rules is not None), SystemClock().now(), rules)


def _draw(plan: JSON, state: DefragState | None) -> None:
    """Draw the domains of a plan, if a state is given."""
    if state is not None:
        from kqueue.cli.defrag_page import print_racks
        from kqueue.operations.defrag.storing import phase_of
        from kqueue.state.defrag.hosts import plan_picture

        print_racks(plan_picture(state, plan), phase_of(plan, state.now))


def _asked(workload: str, flavor: str, level: str, nodes: int) -> AskedGoal:
    """Return the goal of the flags.  Raises ConfigError: they name none, or two."""
    from kqueue.errors import ConfigError
    from kqueue.state.defrag.planning import AskedGoal

    if workload:
        if flavor or level or nodes:
            raise ConfigError("--for excludes --flavor, --level and --nodes")
        namespace, slash, name = workload.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ConfigError(f"--for {workload!r} is not of the form NAMESPACE/NAME")
        return AskedGoal(workload=workload)
    if not (flavor and level and nodes):
        raise ConfigError("name a waiting Workload by --for NS/NAME, or room by --flavor, --level and --nodes")
    return AskedGoal(flavor=flavor, level=level, nodes=nodes)


def _print_remarks(remarks: list[str]) -> None:
    import sys

    from kqueue.cli.output import printable

    for remark in dict.fromkeys(remarks):
        print(printable(remark), file=sys.stderr)


def list_plans(output: OutputOption = Output.TEXT, *, reach: ReachFlags) -> None:
    """List the stored plans, the newest first."""
    from kqueue.cli.defrag_page import print_plans
    from kqueue.cli.output import show
    from kqueue.clock import SystemClock
    from kqueue.operations.defrag.storing import plans
    from kqueue.runtime.loop import run

    async def look() -> list[JSON]:
        async with reach.session() as session:
            return await plans(session.client)

    found = run(look())
    if output is Output.TEXT:
        print_plans(found, SystemClock().now())
    else:
        show({"items": found}, output)


def show_plan(
    name: _NAME, picture: _PictureOption = False, output: OutputOption = Output.TEXT, *, reach: ReachFlags
) -> None:
    """Show the moves of a stored plan, their cost, and the gain.

    With --picture the command reads the objects of the cluster, as for a new plan, and draws the racks of the plan as
    they are now and as they would be.
    """
    from kqueue.operations.defrag.storing import plan_named
    from kqueue.runtime.loop import run

    async def look() -> tuple[JSON, DefragState | None]:
        async with reach.session() as session:
            plan = await plan_named(session.client, name)
            drawn = picture and output is Output.TEXT
            return plan, await _state(session.client) if drawn else None

    plan, state = run(look())
    _print(plan, output)
    _draw(plan, state)


def approve_plan(
    name: _NAME,
    shown: Annotated[str, typer.Option("--hash", help="The hash that you have seen; a changed plan is refused.")] = "",
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Approve the moves that a plan shows.

    The controller carries them out, if its feature gate JointPlacement is on: kqueue defrag show tells how far it is.
    """
    from kqueue.clock import SystemClock
    from kqueue.operations.defrag.storing import approve
    from kqueue.runtime.loop import run

    async def change() -> JSON:
        async with reach.session() as session:
            return await approve(session.client, name, shown, SystemClock().now())

    _print(run(change()), output)


def abort_plan(name: _NAME, output: OutputOption = Output.TEXT, *, reach: ReachFlags) -> None:
    """End a plan that is not over.

    Before an eviction nothing has changed.  After it no further move begins, and the one under way goes forward.
    """
    from kqueue.clock import SystemClock
    from kqueue.operations.defrag.storing import abort
    from kqueue.runtime.loop import run

    async def change() -> JSON:
        async with reach.session() as session:
            return await abort(session.client, name, SystemClock().now())

    _print(run(change()), output)


def _print(plan: JSON, output: Output) -> None:
    from kqueue.cli.defrag_page import print_plan
    from kqueue.cli.output import show
    from kqueue.clock import SystemClock
    from kqueue.operations.defrag.storing import phase_of

    if output is Output.TEXT:
        print_plan(plan, phase_of(plan, SystemClock().now()))
    else:
        show(plan, output)
