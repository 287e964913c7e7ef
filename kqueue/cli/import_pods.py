"""`kqueue import`: bring pods that run already under management."""

from __future__ import annotations

import sys
from collections import defaultdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kqueue.cli.output import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kqueue.config import Configuration
    from kqueue.operations.importing.mapping import MappingRule
    from kqueue.operations.importing.plan import ImportSettings, ImportStep
    from kqueue.runtime.client import Client

_FAILED = 1
_SHOWN = 5
"""Pods that are named for each reason, unless the user wants all."""


class DryRunValue(StrEnum):
    """Values of --dry-run."""

    TRUE = "true"
    FALSE = "false"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_pods)


_NamespaceOption = Annotated[
    list[str], typer.Option("--namespace", "-n", help="Namespace of the pods; may be repeated.", show_default=False)
]
_QueuelabelOption = Annotated[str, typer.Option(help="Label of pods whose value --queuemapping maps to a queue.")]
_QueuemappingOption = Annotated[
    list[str] | None, typer.Option(metavar="VALUE=LOCALQUEUE,...", help="LocalQueue for each value of the label.")
]
_QueuemappingFileOption = Annotated[
    Path | None, typer.Option(help="YAML list of rules with match and toLocalQueue or skip, instead of the label.")
]
_AddLabelsOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE,...", help="More labels for imported pods.")
]
_ExcludeResourcePrefixesOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PREFIX,...", help="Resources that need no quota; by default as in --config."),
]
_DryRunOption = Annotated[DryRunValue, typer.Option(help="Only check.", case_sensitive=False)]
_QpsOption = Annotated[float, typer.Option(min=0.1, help="Requests per second.")]
_BurstOption = Annotated[int, typer.Option(min=1, help="Requests at once after a quiet time.")]
_ConcurrentWorkersOption = Annotated[int, typer.Option("--concurrent-workers", "-c", min=1, max=100)]
_VerboseOption = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Name every pod.")]
_ConfigOption = Annotated[
    Path | None, typer.Option(help="The controller's Configuration file: Lease, gates, what counts as quota.")
]
_KubeconfigOption = Annotated[Path | None, typer.Option(help="Else KUBECONFIG, the pod's account, ~/.kube/config.")]
_ContextOption = Annotated[str | None, typer.Option(help="Context of the kubeconfig.")]


def import_pods(
    namespace: _NamespaceOption,
    queuelabel: _QueuelabelOption = "",
    queuemapping: _QueuemappingOption = None,
    queuemapping_file: _QueuemappingFileOption = None,
    add_labels: _AddLabelsOption = None,
    exclude_resource_prefixes: _ExcludeResourcePrefixesOption = None,
    dry_run: _DryRunOption = DryRunValue.TRUE,
    qps: _QpsOption = 50,
    burst: _BurstOption = 50,
    concurrent_workers: _ConcurrentWorkersOption = 8,
    verbose: _VerboseOption = 0,
    config: _ConfigOption = None,
    kubeconfig: _KubeconfigOption = None,
    context: _ContextOption = None,
) -> None:
    """Bring running pods under management: each gets an admitted Workload, and the labels of its queue.

    \b
    kqueue import -n team-a --queuelabel app --queuemapping train=main,notebook=small
    kqueue import -n team-a --queuemapping-file rules.yaml --dry-run=false

    Without --dry-run=false the command only checks.  The controller, or its pod integration, must be off meanwhile.
    Nothing is imported while a pod of the namespaces has no rule or cannot be imported.  The command may be stopped and
    run again.

    Exit codes: 0 all pods can be, or were, imported; 1 some cannot; 2 the call is wrong.
    """
    from kqueue.config import load
    from kqueue.errors import ConfigError
    from kqueue.runtime.loop import run

    if bool(queuemapping_file) == bool(queuelabel or queuemapping) or bool(queuelabel) != bool(queuemapping):
        raise ConfigError("give either --queuelabel with --queuemapping, or --queuemapping-file")
    configuration = load(config)
    rules = _rules(queuelabel, queuemapping or [], queuemapping_file)
    settings = _settings(configuration, rules, labels=add_labels or [], excluded=exclude_resource_prefixes or [])
    work = _Work(configuration, settings, tuple(dict.fromkeys(namespace)), verbose=verbose > 0)

    async def connected() -> bool:
        from kqueue.runtime.client import connect
        from kqueue.runtime.transport import ClientSettings

        async with await connect(kubeconfig, context, ClientSettings(per_second=qps, burst=burst)) as client:
            return await work.run(client, write=dry_run is DryRunValue.FALSE, at_once=concurrent_workers)

    if not run(connected()):
        raise typer.Exit(_FAILED)


def _rules(label: str, mapping: list[str], file: Path | None) -> Sequence[MappingRule]:
    """Return the rules of a file, or without a file the rules for the values of a label."""
    from kqueue.cli.ctl.nodes import parse_labels
    from kqueue.operations.importing.mapping import rules_in, rules_of_label

    return rules_in(file) if file is not None else rules_of_label(label, parse_labels(mapping, "--queuemapping"))


def _settings(
    configuration: Configuration, rules: Sequence[MappingRule], *, labels: list[str], excluded: list[str]
) -> ImportSettings:
    """Return the settings of the import; `excluded` lists comma-separated prefixes of resources that need no quota."""
    from kqueue.cli.ctl.nodes import parse_labels
    from kqueue.core.quota_requests import Counting
    from kqueue.jobs.registry import features_for
    from kqueue.manager.rules import copied_keys, counting
    from kqueue.operations.importing.plan import ImportSettings

    prefixes = tuple(p for value in excluded for p in value.split(",") if p)
    costs = counting(configuration)
    return ImportSettings(
        rules=rules,
        labels=parse_labels(labels, "--add-labels"),
        switches=features_for(configuration),
        counting=Counting(excluded_prefixes=prefixes, transformations=costs.transformations) if prefixes else costs,
        copied=copied_keys(configuration),
    )


class _Work:
    """The state of one call."""

    def __init__(
        self, configuration: Configuration, settings: ImportSettings, namespaces: tuple[str, ...], *, verbose: bool
    ) -> None:
        self._configuration, self._settings = configuration, settings
        self._namespaces, self._verbose = namespaces, verbose

    async def run(self, client: Client, *, write: bool, at_once: int) -> bool:
        """Check, and import with `write`; return True if all pods can be imported and no write failed."""
        from kqueue.clock import SystemClock
        from kqueue.operations.importing.run import Importer

        if write:
            await self._refuse_while_others_work(client)
        steps, sound = await self._checked(client)
        if not sound or not write:
            if write:
                print("nothing was imported", file=sys.stderr)
            return sound
        importer = Importer(client, SystemClock(), self._report_step)
        await importer.run(steps, at_once=at_once)
        print(f"{importer.imported} imported" + (f", {importer.failed} failed" if importer.failed else ""))
        return importer.failed == 0

    async def _checked(self, client: Client) -> tuple[list[ImportStep], bool]:
        from kqueue.operations.importing.plan import ImportProblem, ImportStep, plan
        from kqueue.operations.importing.world import pods_in, read_world

        world = await read_world(client, self._namespaces)
        steps: list[ImportStep] = []
        problems: dict[str, list[str]] = defaultdict(list)
        skipped = 0
        for pod in await pods_in(client, self._namespaces):
            found = plan(pod, world, self._settings)
            match found:
                case ImportStep():
                    steps.append(found)
                case ImportProblem():
                    problems[found.text].append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
                case _:
                    skipped += 1
        bad = sum(map(len, problems.values()))
        print(f"{len(steps)} pods can be imported, {skipped} are skipped or imported already, {bad} cannot be imported")
        for text, pods in sorted(problems.items()):
            named = pods if self._verbose else pods[:_SHOWN]
            more = f" and {len(pods) - len(named)} more" if len(pods) > len(named) else ""
            print(f"  {printable(text)}: {printable(', '.join(named))}{more}")
        if self._verbose:
            for step in steps:
                queue = step.labels["kueue.x-k8s.io/queue-name"]
                print(
                    f"  {_name(step)} to LocalQueue {printable(queue)}, ClusterQueue {printable(step.admission.queue)}"
                )
        return steps, not problems

    async def _refuse_while_others_work(self, client: Client) -> None:
        """Refuse while a controller manages pods: it would stop a pod between its label and its admission.

        Raises:
            ConfigError: a controller leads, and the webhooks of pods are registered.
        """
        from kqueue.clock import SystemClock
        from kqueue.errors import ConfigError
        from kqueue.operations.removal.lease import leader_of
        from kqueue.operations.removal.survey import still_registered

        if not await still_registered(client, frozenset({"pod"})):
            return
        election = self._configuration.leader_election
        print(f"checking whether a controller renews Lease {election.resource_name}", file=sys.stderr)
        holder = await leader_of(client, election, SystemClock())
        if holder:
            raise ConfigError(
                f"{holder} leads and looks after pods: stop the controllers first, or switch the pod integration off"
            )

    def _report_step(self, step: ImportStep, problem: str) -> None:
        if problem:
            print(f"kqueue: {_name(step)}: {printable(problem)}", file=sys.stderr)
        elif self._verbose:
            print(f"{_name(step)} imported")


def _name(step: ImportStep) -> str:
    meta = step.pod["metadata"]
    return printable(f"{meta['namespace']}/{meta['name']}")
