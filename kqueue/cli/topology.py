"""`kqueue topology`: free capacity by domain, left-out nodes, and checks of node labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from kqueue.cli.output import Output, OutputOption
from kqueue.cli.reaching import ReachFlags, flags_behind_name, reaches_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kqueue.operations.node_labels.values import LabelFinding

_FOUND = 1
_SHOWN = 8
"""Commands, and nodes, that are printed for one finding."""
_SELECTOR = Annotated[str, typer.Option("--selector", "-l", help="Label selector: only these nodes.")]


class _ShowByDefault(TyperGroup):
    """Makes `kqueue topology NAME` mean `kqueue topology show NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `show` if no command was given."""
        args = flags_behind_name(args)
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(cls=_ShowByDefault, rich_markup_mode=None, help=_ABOUT)
    app.add_typer(group, name="topology")
    group.command("show")(reaches_cluster(show_topology))
    group.command("labels")(reaches_cluster(labels))
    group.command("detect")(reaches_cluster(detect))


def show_topology(
    name: Annotated[str, typer.Argument(metavar="[TOPOLOGY]", help="A Topology; else all.")] = "",
    flavor: Annotated[str, typer.Option(help="Only this ResourceFlavor.")] = "",
    level: Annotated[str, typer.Option(help="The lowest level to show: its label, last word, or number from 1.")] = "",
    domain: Annotated[
        str, typer.Option(help="Only domains below this one: block-1/rack-7, or rack-7 if that is unique.")
    ] = "",
    resource: Annotated[
        list[str] | None, typer.Option(help="Show this resource; may be repeated.  By default devices.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=2000, help="Domains to show at most.")] = 200,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Show the tree of domains: free resources, usage of workloads and of foreign pods, and excluded nodes.

    \b
        kqueue topology
        kqueue topology datacentre --level rack
        kqueue topology datacentre --domain block-1/rack-7

    IDLE counts nodes without usage of workloads.  `kqueue topology show NAME` is the same.
    """
    from kqueue.cli.dashboard.queries import TopologyQuery, topologies
    from kqueue.cli.output import show
    from kqueue.runtime.loop import run

    query = TopologyQuery(name=name, flavor=flavor, level=level, domain=domain, limit=limit)

    async def look() -> Any:
        async with reach.session() as session:
            return await topologies(session.client, query)

    answer = run(look())
    if output is not Output.TEXT:
        show(answer, output)
        return
    from kqueue.cli.dashboard.printing import print_topologies

    print_topologies(answer.get("items", [answer]), resource or ())


_ABOUT = "Show free resources of domains and excluded nodes with the cause; find missing or odd labels."


def labels(
    name: Annotated[str, typer.Argument(metavar="[TOPOLOGY]", help="Only this Topology.")] = "",
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Look for level labels that are missing or odd on nodes, and print commands that correct them.

    Reads Nodes, Topologies and ResourceFlavors; the controller need not run.

    Exit codes: 0 no findings, or notes only; 1 a label is missing or odd; 2 the call is wrong.
    """
    from kqueue.cli.output import show
    from kqueue.operations.node_labels.findings import find
    from kqueue.operations.node_labels.reading import read_nodes, read_topologies
    from kqueue.runtime.loop import run

    async def look() -> list[tuple[str, int, list[LabelFinding]]]:
        async with reach.session() as session:
            topologies = await read_topologies(session.client, name)
            nodes = await read_nodes(session.client) if topologies else []
        return [(t.name, sum(map(t.has, nodes)), find(t, nodes)) for t in topologies]

    found = run(look())
    if output is not Output.TEXT:
        told = [finding.as_json(topology) for topology, _, findings in found for finding in findings]
        show({"findings": told}, output)
    elif found:
        print("\n".join(line for topology, nodes, findings in found for line in _report(topology, nodes, findings)))
    else:
        print("there is no Topology; kqueue topology detect proposes one from the labels of nodes")
    if any(not finding.is_note for _, _, findings in found for finding in findings):
        raise typer.Exit(_FOUND)


def _report(topology: str, nodes: int, findings: Sequence[LabelFinding]) -> list[str]:
    from kqueue.cli.output import printable
    from kqueue.operations.node_labels.values import some

    problems = sum(not finding.is_note for finding in findings)
    verdict = f"{problems} problems" if problems > 1 else "1 problem" if problems else "no problem"
    lines = [f"Topology {topology}: {nodes} nodes, {verdict}"]
    for finding in findings:
        lines += ["", f"  {'note' if finding.is_note else 'problem'}: {finding.text}"]
        if finding.nodes:
            lines.append(f"    nodes: {some(finding.nodes, _SHOWN)}")
        lines += [f"    {command}" for command in finding.mend[:_SHOWN]]
        if len(finding.mend) > _SHOWN:
            lines.append(f"    and {len(finding.mend) - _SHOWN} more commands; -o json has them all")
    return [*map(printable, lines), ""]


def detect(
    name: Annotated[str, typer.Option("--name", help="Name of the proposed Topology.")] = "default",
    selector: _SELECTOR = "",
    output: OutputOption = Output.YAML,
    *,
    reach: ReachFlags,
) -> None:
    """Propose a Topology from the labels of nodes, as YAML to look at and to apply.

    \b
        kqueue topology detect --selector pool=gpu > topology.yaml
        kubectl apply -f topology.yaml

    Comments in the YAML describe the labels behind the proposal.  A ResourceFlavor names the Topology in
    spec.topologyName.  Without --selector, nodes of the control plane are left out.
    """
    from kqueue.cli.output import printable, show
    from kqueue.operations.node_labels.proposal import propose, workers
    from kqueue.operations.node_labels.reading import read_nodes
    from kqueue.runtime.loop import run

    async def look() -> Any:
        async with reach.session() as session:
            nodes = await read_nodes(session.client, selector)
            return propose(nodes if selector else workers(nodes))

    proposal = run(look())
    if output is not Output.JSON:
        print("\n".join(printable(f"# {line}") for line in proposal.comments()))
    show(proposal.topology(name), Output.JSON if output is Output.JSON else Output.YAML)
