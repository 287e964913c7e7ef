"""`kqueue uninstall`: list and release what kqueue, or an integration that is switched off, leaves behind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kqueue.cli.process_options import ContextOption, KubeconfigOption

if TYPE_CHECKING:
    from kqueue.config import Configuration
    from kqueue.operations.removal.release import RemovalOutcome
    from kqueue.operations.removal.survey import Scope
    from kqueue.runtime.client import Client

_LEFT = 1
_EACH = 500
"""Objects between two lines of progress."""


class Format(StrEnum):
    """Formats of `-o`."""

    TEXT = "text"
    JSON = "json"


_CheckOption = Annotated[bool, typer.Option("--check", help="List only; change nothing.")]
_ReleaseOption = Annotated[bool, typer.Option("--release", help="Release what is listed, and list what stays.")]
_NamespaceOption = Annotated[
    str, typer.Option("--namespace", "-n", help="Only objects of this namespace, nothing cluster-wide.")
]
_IntegrationOption = Annotated[
    list[str] | None,
    typer.Option(help="Only objects of this framework, as in integrations.frameworks; may be repeated."),
]
_LeaveGatedOption = Annotated[
    bool, typer.Option("--leave-gated", help="Leave gates on pods, so that none of them starts.")
]
_DespiteLeaderOption = Annotated[
    str, typer.Option(metavar="IDENTITY", help="Release although this holder of the Lease leads.")
]
_StopOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAMESPACE/NAME",
        help="First scale this Deployment to 0 and wait for the end of its pods; may be repeated.",
    ),
]
_DespiteRunningOption = Annotated[
    bool,
    typer.Option("--despite-running", help="Exit 0 although templates of running jobs have kqueue's gate."),
]
_ConfigOption = Annotated[
    Path | None,
    typer.Option(help="The controller's Configuration file, which names the Lease and external frameworks."),
]
_OutputOption = Annotated[Format, typer.Option("-o", "--output", help="How to print.", case_sensitive=False)]


def register(app: typer.Typer) -> None:
    """Add the command."""

    app.command("uninstall")(uninstall)


def uninstall(
    check: _CheckOption = False,
    release: _ReleaseOption = False,
    namespace: _NamespaceOption = "",
    integration: _IntegrationOption = None,
    leave_gated: _LeaveGatedOption = False,
    despite_leader: _DespiteLeaderOption = "",
    stop: _StopOption = None,
    despite_running: _DespiteRunningOption = False,
    config: _ConfigOption = None,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: _OutputOption = (Format.TEXT),
) -> None:
    """List, or release, what kqueue would leave behind: gated pods, finalizers, webhooks of admission and conversion.

    \b
    To remove kqueue: stop its controllers and webhooks (--stop), kqueue uninstall --release, then delete its
    manifests.  `helm uninstall` does all of that.
    To switch an integration off: take it out of the configuration, restart, and
    kqueue uninstall --release --integration NAME.

    \b
    A pod whose gate is removed starts, and no queue counts it; --leave-gated keeps it waiting.  Suspended jobs are
    listed and never started.  The command may be stopped at any time and run again.

    Exit codes: 0 nothing is left; 1 something is left; 2 the call is wrong.
    """
    from kqueue.config import load
    from kqueue.controllers.leftovers import Left
    from kqueue.errors import ConfigError
    from kqueue.operations.removal.report import is_clean
    from kqueue.operations.removal.stop import parsed
    from kqueue.operations.removal.survey import Scope
    from kqueue.runtime.loop import run

    if check == release:
        raise ConfigError("give --check to list, or --release to release")
    if check and stop:
        raise ConfigError("--stop changes the cluster: give it with --release")
    deployments = [parsed(written) for written in stop or ()]
    configuration = load(config)
    scope = Scope(
        namespace=namespace,
        integrations=_integrations(integration or [], configuration),
        leave_gated=leave_gated,
        declared=configuration.integrations.declared_kinds,
    )
    work = _Work(configuration, scope, release=release, despite=despite_leader, deployments=deployments)
    run(work.run(kubeconfig, context))
    _report(work, output)
    counted = [left for left in work.found if not (despite_running and left.left is Left.GATED_TEMPLATE)]
    if not is_clean(counted) or (work.outcome is not None and work.outcome.failed):
        raise typer.Exit(_LEFT)


def _integrations(names: list[str], configuration: Configuration) -> frozenset[str]:
    """Return the names of integrations as a set, after a check that each is known.

    Raises:
        ConfigError: an integration is unknown.
    """
    from kqueue.errors import ConfigError
    from kqueue.kinds import FRAMEWORKS, GANG_DIALECTS

    known = (*FRAMEWORKS, *GANG_DIALECTS, *(kind.framework for kind in configuration.integrations.declared_kinds))
    for name in names:
        if name not in known:
            raise ConfigError(f"--integration {name}: unknown; known are {', '.join(known)}")
    return frozenset(names)


def _report(work: _Work, output: Format) -> None:
    """Print the remaining objects and the released ones."""
    from kqueue.operations.removal.report import as_json, lines

    if output is Format.JSON:
        import json

        print(json.dumps(as_json(work.found, work.outcome), indent=2))
    else:
        print("\n".join(lines(work.found, work.outcome)))


class _Work:
    """The state of one call; `found` are the remaining objects at the end, `outcome` the released ones, None with
    --check.
    """

    def __init__(
        self,
        configuration: Configuration,
        scope: Scope,
        *,
        release: bool,
        despite: str,
        deployments: Sequence[tuple[str, str]] = (),
    ) -> None:
        from kqueue.controllers.leftovers import Leftover

        self._configuration, self._scope = configuration, scope
        self._release, self._despite, self._deployments = release, despite, deployments
        self.found: list[Leftover] = []
        self.outcome: RemovalOutcome | None = None

    async def run(self, kubeconfig: Path | None, context: str | None) -> None:
        from kqueue.clock import SystemClock
        from kqueue.operations.removal.release import release
        from kqueue.operations.removal.stop import stop
        from kqueue.operations.removal.survey import survey
        from kqueue.runtime.client import connect
        from kqueue.runtime.transport import ClientSettings

        connection = self._configuration.client_connection
        settings = ClientSettings(
            per_second=float(connection.qps) if connection.qps > 0 else None, burst=connection.burst
        )
        async with await connect(kubeconfig, context, settings) as client:
            if self._release and self._scope.whole:
                await self._store_anew(client)
            if self._deployments:
                print("stopping what runs in the cluster", file=sys.stderr)
                await stop(client, self._deployments, SystemClock())
            if self._release:
                await self._refuse_while_others_work(client)
            self.found = await survey(client, self._scope)
            if self._release:
                leave = self._scope.leave_gated
                self.outcome = await release(client, self.found, leave_gated=leave, progress=_print_progress)
                self.found = await survey(client, self._scope)

    async def _store_anew(self, client: Client) -> None:
        """Store objects in the present version while the webhooks still run, so that no conversion is needed later."""
        from kqueue.operations.removal.conversion import store_anew

        if count := await store_anew(client):
            print(f"{count} objects are stored in v1beta2", file=sys.stderr)

    async def _refuse_while_others_work(self, client: Client) -> None:
        """Refuse while a controller runs, which would add gates and finalizers again.

        Raises:
            ConfigError: an integration is still on, or the Lease has a holder that --despite-leader does not name.
        """
        from kqueue.clock import SystemClock
        from kqueue.errors import ConfigError
        from kqueue.operations.removal.lease import leader_of
        from kqueue.operations.removal.survey import still_registered

        if self._scope.integrations:
            active = await still_registered(client, self._scope.integrations, self._scope.declared)
            if active:
                raise ConfigError(
                    f"webhooks of {', '.join(active)} are still registered: take it out of integrations.frameworks and "
                    "restart kqueue, or release everything without --integration"
                )
            return
        election = self._configuration.leader_election
        print(f"checking whether a controller renews Lease {election.resource_name}", file=sys.stderr)
        holder = await leader_of(client, election, SystemClock())
        if holder and holder != self._despite:
            raise ConfigError(
                f"{holder} leads (Lease {election.resource_namespace}/{election.resource_name}) and would gate and "
                f"finalise again: stop the controller first, or give --despite-leader {holder}"
            )


def _print_progress(done: int, of: int) -> None:
    if done % _EACH == 0 and of > _EACH:
        print(f"{done} of {of} released", file=sys.stderr, flush=True)
