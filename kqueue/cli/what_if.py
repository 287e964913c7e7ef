"""`kqueue what-if`: what other policy, priorities or nodes would change."""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer

from kqueue.cli.manifests import manifests_in
from kqueue.cli.output import Output, OutputOption
from kqueue.cli.reaching import ReachFlags, reaches_cluster

JSON = dict[str, Any]
_SET = re.compile(
    r"clusterqueue/(?P<queue>[^=]+?)\.(?P<field>quota|borrowingLimit|lendingLimit)\.(?P<column>[^=]+)=(?P<value>.+)"
)
_NODES = re.compile(r"(?P<like>[^=@]+)=(?P<count>\d{1,18})@(?P<domain>[^=@]+)")
_WORKLOAD = re.compile(r"[^/\s]+/[^/\s]+")
_PRIORITY = re.compile(r"(?P<name>[^=]+)=(?P<value>-?\d{1,10})")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("what-if")(reaches_cluster(what_if))


def what_if(
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="clusterqueue/NAME.quota.FLAVOR.RESOURCE=N; also borrowingLimit, lendingLimit."),
    ] = None,
    drains: Annotated[
        list[str] | None, typer.Option("--drain", help="Domain whose nodes go, as kqueue topology prints it.")
    ] = None,
    ends: Annotated[
        list[str] | None, typer.Option("--end", help="NAMESPACE/NAME of a Workload with quota that ends now.")
    ] = None,
    add_nodes: Annotated[
        list[str] | None, typer.Option("--add-nodes", help="NODE=N@DOMAIN: N more nodes like NODE in a domain.")
    ] = None,
    priorities: Annotated[
        list[str] | None, typer.Option("--priority", help="CLASS=N: another value of a WorkloadPriorityClass.")
    ] = None,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            help="Manifests of ClusterQueues, Cohorts, ResourceFlavors and LocalQueues, new or changed; - reads from "
            "standard input.",
        ),
    ] = None,
    when: Annotated[bool, typer.Option("--when", help="Also say start times, with and without the changes.")] = False,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Say what other policy, priorities or nodes would change: which workloads would start, be evicted, or never start.

    All changes are made together, on a copy of the present state; the planner decides about every waiting workload
    with and without them, and the differences are shown.  Nothing is written.

    Examples:

        kqueue what-if --drain b0/r1 --end team-a/job-train-3c5f2

        kqueue what-if --set clusterqueue/research.quota.h100.nvidia.com/gpu=64

        kqueue what-if --add-nodes b0-r1-h2=8@b0/r1 --priority urgent=1000

        kqueue what-if --file new-clusterqueue.yaml --when
    """
    from kqueue.cli.question_page import show_answer
    from kqueue.cli.what_if_page import what_if_page
    from kqueue.runtime.loop import run

    spec = {
        "quotas": [_quota(text) for text in settings or ()],
        "drains": list(drains or ()),
        "ends": [_ended(text) for text in ends or ()],
        "addNodes": [_added(text) for text in add_nodes or ()],
        "priorities": [_priority(text) for text in priorities or ()],
        "objects": [obj for file in files or () for obj in manifests_in(file)],
        "when": when,
    }
    show_answer(run(_asked(_given(spec), reach)), output, what_if_page)


def _given(spec: JSON) -> JSON:
    """Return the parts of a question that are given.  Raises ConfigError: there is no change among them."""
    from kqueue.errors import ConfigError

    found = {key: some for key, some in spec.items() if some}
    if not found.keys() - {"when"}:
        raise ConfigError(
            "no change is given; give at least one of --set, --drain, --end, --add-nodes, --priority, --file"
        )
    return found


async def _asked(spec: JSON, reach: ReachFlags) -> JSON:
    from kqueue.api.wire import what_if as api
    from kqueue.operations.questions import post

    async with reach.session() as session:
        return await post(session.client, api.PLURAL, api.KIND, {"spec": spec})


def _quota(text: str) -> JSON:
    found = _parts(_SET, text, "--set", "clusterqueue/NAME.quota.FLAVOR.RESOURCE=AMOUNT")
    field = "nominalQuota" if found["field"] == "quota" else found["field"]
    return {
        "clusterQueue": found["queue"],
        "column": found["column"],
        "field": field,
        "value": found["value"],
    }


def _ended(text: str) -> str:
    _parts(_WORKLOAD, text, "--end", "NAMESPACE/NAME of a Workload with quota, as `kqueue list workloads` prints it")
    return text


def _added(text: str) -> JSON:
    found = _parts(_NODES, text, "--add-nodes", "NODE=NUMBER@DOMAIN")
    return {**found, "count": int(found["count"])}


def _priority(text: str) -> JSON:
    found = _parts(_PRIORITY, text, "--priority", "CLASS=NUMBER")
    return {**found, "value": int(found["value"])}


def _parts(pattern: re.Pattern[str], text: str, flag: str, form: str) -> JSON:
    from kqueue.errors import ConfigError

    found = pattern.fullmatch(text)
    if found is None:
        raise ConfigError(f"{flag} {text}: must have the form {form}")
    return found.groupdict()
