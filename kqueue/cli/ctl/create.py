"""`kqueue create`: ClusterQueues, LocalQueues and ResourceFlavors from flags."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.api import names
from kqueue.cli.ctl.completing import names_of
from kqueue.cli.ctl.kinds import CLUSTER_QUEUE, LOCAL_QUEUE, RESOURCE_FLAVOR, CommandKind
from kqueue.cli.ctl.objects import DryRun, DryRunOption, NewName, ObjectOutput, OutputOption, print_done
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.runtime.client import Client


class StrategyFlag(StrEnum):
    """Whether a workload that does not fit blocks the workloads behind it."""

    BEST_EFFORT = "BestEffortFIFO"
    STRICT = "StrictFIFO"


class Reclaim(StrEnum):
    """Values of --reclaim-within-cohort: workloads of other queues that may be preempted."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    ANY = "Any"


class Within(StrEnum):
    """Values of --preemption-within-cluster-queue: workloads of the same queue that may be preempted."""

    NEVER = "Never"
    LOWER = "LowerPriority"
    LOWER_OR_NEWER = "LowerOrNewerEqualPriority"


_QUOTA = "FLAVOR:RESOURCE=AMOUNT;..,FLAVOR:.."


def _choices(values: type[StrEnum]) -> str:
    return "|".join(values)


def add_commands(group: typer.Typer, verb: str) -> None:
    """Add a command for each kind."""
    group.command(CLUSTER_QUEUE.name)(reaches_cluster(create_cluster_queue))
    group.command(LOCAL_QUEUE.name)(reaches_cluster(create_local_queue))
    group.command(RESOURCE_FLAVOR.name)(reaches_cluster(create_resource_flavor))


_CohortOption = Annotated[str, typer.Option(help="Cohort to lend to and borrow from.")]
_QueuingStrategyOption = Annotated[
    StrategyFlag,
    typer.Option(
        *("--queuing-strategy", "--queueing-strategy"),
        metavar=_choices(StrategyFlag),
        help="Whether later workloads may pass a head that does not fit.",
        case_sensitive=False,
    ),
]
_NamespaceSelectorOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE,...", help="Labels of namespaces that may use it; by default all may."),
]
_ReclaimWithinCohortOption = Annotated[
    Reclaim,
    typer.Option(metavar=_choices(Reclaim), help="Workloads of the cohort that it may preempt.", case_sensitive=False),
]
_PreemptionWithinClusterQueueOption = Annotated[
    Within,
    typer.Option(metavar=_choices(Within), help="Workloads of the queue that it may preempt.", case_sensitive=False),
]
_NominalQuotaOption = Annotated[
    list[str] | None, typer.Option(metavar=_QUOTA, help="The queue's own quota; may be repeated.")
]
_BorrowingLimitOption = Annotated[
    list[str] | None, typer.Option(metavar=_QUOTA, help="Limit of quota that it borrows from the cohort.")
]
_LendingLimitOption = Annotated[
    list[str] | None, typer.Option(metavar=_QUOTA, help="Limit of its quota that other queues borrow.")
]


def create_cluster_queue(
    name: NewName,
    *,
    cohort: _CohortOption = "",
    queuing_strategy: _QueuingStrategyOption = StrategyFlag.BEST_EFFORT,
    namespace_selector: _NamespaceSelectorOption = None,
    reclaim_within_cohort: _ReclaimWithinCohortOption = Reclaim.NEVER,
    preemption_within_cluster_queue: _PreemptionWithinClusterQueueOption = Within.NEVER,
    nominal_quota: _NominalQuotaOption = None,
    borrowing_limit: _BorrowingLimitOption = None,
    lending_limit: _LendingLimitOption = None,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Create a ClusterQueue.  Flavors with the same resources form one resource group.

    \b
    kqueue create clusterqueue team --cohort all --nominal-quota 'a100:cpu=64;nvidia.com/gpu=8,cpu:cpu=500'
    """
    from kqueue.cli.ctl import quotas
    from kqueue.cli.ctl.nodes import parse_labels
    from kqueue.errors import ConfigError

    written = {
        quotas.NOMINAL: nominal_quota,
        quotas.BORROWING: borrowing_limit,
        quotas.LENDING: lending_limit,
    }
    for flag in (quotas.BORROWING, quotas.LENDING):
        if written[flag] and not cohort:
            raise ConfigError(f"{flag} needs --cohort: without a cohort there is no queue to borrow from or lend to")
    groups = quotas.resource_groups({flag: quotas.parse_quotas(v or (), flag) for flag, v in written.items()})
    labels = parse_labels(namespace_selector or (), "--namespace-selector")
    spec = {
        **({"cohortName": cohort} if cohort else {}),
        "queueingStrategy": queuing_strategy.value,
        "namespaceSelector": {"matchLabels": labels} if labels else {},
        "preemption": {
            "reclaimWithinCohort": reclaim_within_cohort.value,
            "withinClusterQueue": preemption_within_cluster_queue.value,
        },
        **({"resourceGroups": groups} if groups else {}),
    }
    _create(CLUSTER_QUEUE, names.CLUSTER_QUEUE_KIND, name, spec, dry_run=dry_run, output=output, reach=reach)


def create_local_queue(
    name: NewName,
    *,
    clusterqueue: Annotated[
        str,
        typer.Option(
            *("--clusterqueue", "-c"),
            help="ClusterQueue that it forwards to.",
            show_default=False,
            autocompletion=names_of(CLUSTER_QUEUE),
        ),
    ],
    ignore_unknown_cq: Annotated[
        bool, typer.Option("--ignore-unknown-cq", "-i", help="Create it even if that ClusterQueue does not exist.")
    ] = False,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Create a LocalQueue, which forwards workloads of one namespace to a ClusterQueue."""
    spec = {"clusterQueue": clusterqueue}
    needs = "" if ignore_unknown_cq else clusterqueue
    _create(LOCAL_QUEUE, names.LOCAL_QUEUE_KIND, name, spec, dry_run=dry_run, output=output, reach=reach, needs=needs)


def create_resource_flavor(
    name: NewName,
    *,
    node_labels: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE,...", help="Labels of the nodes that belong to it.")
    ] = None,
    node_taints: Annotated[
        list[str] | None, typer.Option(metavar="KEY[=VALUE]:EFFECT,...", help="Taints that these nodes have.")
    ] = None,
    tolerations: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY[=VALUE][:EFFECT],...", help="Tolerations that its pods get; :EFFECT is for any key."),
    ] = None,
    dry_run: DryRunOption = DryRun.NONE,
    output: OutputOption = ObjectOutput.TEXT,
    reach: ReachFlags,
) -> None:
    """Create a ResourceFlavor, a class of nodes."""
    from kqueue.cli.ctl.nodes import parse_labels, parse_taints, parse_tolerations

    given = {
        "nodeLabels": parse_labels(node_labels or (), "--node-labels"),
        "nodeTaints": parse_taints(node_taints or (), "--node-taints"),
        "tolerations": parse_tolerations(tolerations or (), "--tolerations"),
    }
    spec = {field: value for field, value in given.items() if value}
    _create(RESOURCE_FLAVOR, names.RESOURCE_FLAVOR_KIND, name, spec, dry_run=dry_run, output=output, reach=reach)


def _create(
    kind: CommandKind,
    title: str,
    name: str,
    spec: dict[str, Any],
    *,
    dry_run: DryRun,
    output: ObjectOutput,
    reach: ReachFlags,
    needs: str = "",
) -> None:
    """Create one object; `needs` names a ClusterQueue that must exist."""
    from kqueue.runtime.loop import run

    async def work() -> dict[str, Any]:
        async with reach.session() as session:
            place = {"namespace": session.namespace} if kind.resource.namespaced else {}
            obj = {
                "apiVersion": names.API_VERSION,
                "kind": title,
                "metadata": {"name": name, **place},
                "spec": spec,
            }
            if needs:
                await _refuse_unless_there(session.client, needs)
            if dry_run is DryRun.CLIENT:
                return obj
            return await session.client.create(kind.resource, obj, dry_run=dry_run is DryRun.SERVER)

    print_done(kind, run(work()), "created", output, dry_run)


async def _refuse_unless_there(client: Client, cluster_queue: str) -> None:
    from kqueue.errors import ConfigError, NotFoundError

    try:
        await client.get_json(CLUSTER_QUEUE.resource, cluster_queue)
    except NotFoundError as e:
        raise ConfigError(
            f"--clusterqueue {cluster_queue}: there is no such ClusterQueue; create it first, "
            "or give --ignore-unknown-cq"
        ) from e
