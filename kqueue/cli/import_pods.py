"""`kqueue import`: bring jobs, groups of pods and pods that run already under management."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kqueue.cli.output import Output, OutputOption, printable, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kqueue.config import Configuration
    from kqueue.operations.importing.mapping import MappingRule
    from kqueue.operations.importing.plan import ImportSettings, ImportStep
    from kqueue.operations.importing.survey import Survey
    from kqueue.operations.importing.units import ImportUnit
    from kqueue.runtime.client import Client

_FAILED = 1
_SHOWN = 5
"""Objects that are named for each reason, unless the user wants all."""


class DryRunValue(StrEnum):
    """Values of --dry-run."""

    TRUE = "true"
    FALSE = "false"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("import")(import_pods)


_NamespaceOption = Annotated[
    list[str], typer.Option("--namespace", "-n", help="Namespace of the objects; may be repeated.", show_default=False)
]
_QueuelabelOption = Annotated[str, typer.Option(help="Label of pods whose value --queuemapping maps to a queue.")]
_QueuemappingOption = Annotated[
    list[str] | None, typer.Option(metavar="VALUE=LOCALQUEUE,...", help="LocalQueue for each value of the label.")
]
_QueuemappingFileOption = Annotated[
    Path | None, typer.Option(help="YAML list of rules with match and toLocalQueue or skip, instead of the label.")
]
_AddLabelsOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE,...", help="More labels for imported objects.")
]
_ExcludeResourcePrefixesOption = Annotated[
    list[str] | None,
    typer.Option(metavar="PREFIX,...", help="Resources that need no quota; by default as in --config."),
]
_DryRunOption = Annotated[DryRunValue, typer.Option(help="Only check.", case_sensitive=False)]
_QpsOption = Annotated[float, typer.Option(min=0.1, help="Requests per second.")]
_BurstOption = Annotated[int, typer.Option(min=1, help="Requests at once after a quiet time.")]
_ConcurrentWorkersOption = Annotated[int, typer.Option("--concurrent-workers", "-c", min=1, max=100)]
_VerboseOption = Annotated[int, typer.Option("--verbose", "-v", count=True, help="Name every object.")]
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
    output: OutputOption = (Output.TEXT),
) -> None:
    """Bring running jobs, groups of pods and pods under management: each gets an admitted Workload, and its queue.

    \b
    kqueue import -n team-a --queuelabel app --queuemapping train=main,notebook=small
    kqueue import -n team-a --queuemapping-file rules.yaml --dry-run=false

    Without --dry-run=false the command only checks.  A job is imported with its pods, a group of pods as a whole.
    Rules match pods; the labels of a job count before those of its pods.  Flavors and domains are those of the nodes on
    which the pods run.  The integrations of the imported kinds must be off meanwhile.  Nothing is imported while
    anything that runs in the namespaces has no rule or cannot be imported.  The command may be stopped and run again.

    Exit codes: 0 all can be, or were, imported; 1 some cannot; 2 the call is wrong.
    """
    from kqueue.config import load
    from kqueue.errors import ConfigError
    from kqueue.runtime.loop import run

    if bool(queuemapping_file) == bool(queuelabel or queuemapping) or bool(queuelabel) != bool(queuemapping):
        raise ConfigError("give either --queuelabel with --queuemapping, or --queuemapping-file")
    configuration = load(config)
    rules = _rules(queuelabel, queuemapping or [], queuemapping_file)
    settings = _settings(configuration, rules, labels=add_labels or [], excluded=exclude_resource_prefixes or [])
    work = _Work(configuration, settings, tuple(dict.fromkeys(namespace)), verbose=verbose > 0, output=output)

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
    from dataclasses import replace

    from kqueue.cli.ctl.nodes import parse_labels
    from kqueue.core.quota_requests import Counting
    from kqueue.jobs.gang.registry import switched_on
    from kqueue.jobs.registry import features_for
    from kqueue.manager.rules import copied_keys, counting, device_rules
    from kqueue.operations.importing.plan import ImportSettings

    prefixes = tuple(p for value in excluded for p in value.split(",") if p)
    costs = counting(configuration)
    gangs = switched_on(("pod", *configuration.integrations.frameworks))  # groups of pods count while they are off, too
    return ImportSettings(
        rules=rules,
        labels=parse_labels(labels, "--add-labels"),
        switches=replace(features_for(configuration), gangs=gangs),
        counting=Counting(excluded_prefixes=prefixes, transformations=costs.transformations) if prefixes else costs,
        devices=device_rules(configuration),
        copied=copied_keys(configuration),
    )


class _Work:
    """The state of one call."""

    def __init__(
        self,
        configuration: Configuration,
        settings: ImportSettings,
        namespaces: tuple[str, ...],
        *,
        verbose: bool,
        output: Output,
    ) -> None:
        self._configuration, self._settings = configuration, settings
        self._namespaces, self._verbose, self._output = namespaces, verbose, output

    async def run(self, client: Client, *, write: bool, at_once: int) -> bool:
        """Check, and import with `write`; return True if all can be imported and no write failed."""
        from kqueue.clock import SystemClock
        from kqueue.operations.importing.run import Importer
        from kqueue.operations.importing.survey import survey

        found = await survey(client, self._namespaces, self._settings, self._configuration)
        sound = not found.problems
        if write and sound:
            await self._refuse_while_others_work(client, found)
            await self._refuse_while_labels_are(client, found)
        if self._output is Output.TEXT:
            self._print(found)
        importer = Importer(client, SystemClock(), self._report_step)
        if write and sound:
            await importer.run(found.steps, at_once=at_once)
            if self._output is Output.TEXT:
                print(f"{importer.imported} imported" + (f", {importer.failed} failed" if importer.failed else ""))
        elif write:
            print("nothing was imported", file=sys.stderr)
        if self._output is not Output.TEXT:
            show({**_as_json(found), "imported": importer.imported, "failed": importer.failed}, self._output)
        return sound and importer.failed == 0

    def _print(self, found: Survey) -> None:
        from kqueue.cli.tables import print_table

        rows = [(noun, *numbers) for noun, numbers in found.table().items()]
        if rows:
            print_table(("kind", "can be imported", "skipped", "cannot be imported"), rows)
        print(
            f"{len(found.steps)} can be imported, {len(found.skipped)} are skipped or managed already, "
            f"{found.refused} cannot be imported"
        )
        for text, units in sorted(found.problems.items()):
            named = list(map(_name, units if self._verbose else units[:_SHOWN]))
            more = f" and {len(units) - len(named)} more" if len(units) > len(named) else ""
            print(f"  {printable(text)}: {', '.join(named)}{more}")
        for step in found.steps if self._verbose else ():
            queues = f"LocalQueue {printable(step.queue)}, ClusterQueue {printable(step.admission.queue)}"
            print(f"  {_name(step.unit)} to {queues}")

    async def _refuse_while_others_work(self, client: Client, found: Survey) -> None:
        """Refuse to import pods while a controller manages pods: it would stop a pod between its label and its
        admission.

        Raises:
            ConfigError: a controller leads, and the webhooks of pods are registered.
        """
        from kqueue.clock import SystemClock
        from kqueue.errors import ConfigError
        from kqueue.operations.removal.lease import leader_of
        from kqueue.operations.removal.survey import still_registered

        if all(step.unit.is_job for step in found.steps) or not await still_registered(client, frozenset({"pod"})):
            return
        election = self._configuration.leader_election
        print(f"checking whether a controller renews Lease {election.resource_name}", file=sys.stderr)
        holder = await leader_of(client, election, SystemClock())
        if holder:
            raise ConfigError(
                f"{holder} leads and looks after pods: stop the controllers first, or switch the pod integration off"
            )

    async def _refuse_while_labels_are(self, client: Client, found: Survey) -> None:
        """Refuse while webhooks review a kind of job to import: they keep a job that runs from getting a queue.

        Raises:
            ConfigError: the webhooks of such a kind are registered.
        """
        from kqueue.errors import ConfigError
        from kqueue.operations.removal.survey import still_registered

        kinds = frozenset(step.unit.kind.framework for step in found.steps if step.unit.is_job)
        declared = self._configuration.integrations.declared_kinds
        registered = await still_registered(client, kinds, declared) if kinds else []
        if registered:
            raise ConfigError(
                f"webhooks of {', '.join(registered)} are registered, and refuse a queue for jobs that run: take these "
                "kinds out of integrations.frameworks, restart kqueue, import, and put them back"
            )

    def _report_step(self, step: ImportStep, problem: str) -> None:
        if problem:
            print(f"kqueue: {_name(step.unit)}: {printable(problem)}", file=sys.stderr)
        elif self._verbose:
            print(f"{_name(step.unit)} imported", file=sys.stderr)


def _name(unit: ImportUnit) -> str:
    """Return kind, namespace and name; a pod without its kind."""
    key = printable(f"{unit.namespace}/{unit.name}")
    return f"{unit.noun} {key}" if unit.is_job or unit.group else key


def _as_json(found: Survey) -> dict[str, Any]:
    """Return the survey for programs."""
    from kqueue.state.status import admission_json

    columns = ("importable", "skipped", "refused")
    return {
        "kinds": {noun: dict(zip(columns, numbers, strict=True)) for noun, numbers in found.table().items()},
        "importable": [
            {
                **_reference(step.unit),
                "localQueue": step.queue,
                "workload": step.workload["metadata"]["name"],
                "admission": admission_json(step.admission),
            }
            for step in found.steps
        ],
        "skipped": [_reference(unit) for unit in found.skipped],
        "refused": [
            {**_reference(unit), "reason": reason} for reason, units in sorted(found.problems.items()) for unit in units
        ],
    }


def _reference(unit: ImportUnit) -> dict[str, Any]:
    return {"kind": unit.noun, "namespace": unit.namespace, "name": unit.name, "pods": len(unit.pods)}
