"""`kqueue doctor`: checks of the installation, step by step, and a canary gang through a LocalQueue."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kqueue.cli.output import Output, OutputOption
from kqueue.cli.reaching import ReachFlags, reaches_cluster

if TYPE_CHECKING:
    from kqueue.clock import Clock
    from kqueue.config import Configuration
    from kqueue.operations.checkup.canary import Plan
    from kqueue.operations.checkup.values import Check, CheckStep
    from kqueue.runtime.client import Client

_FAILED = 1
_STEPS = (
    *(
        "api-server",
        "kinds",
        "webhooks",
        "certificates",
        "reviews",
        "conversion",
        "labelled",
        "visibility",
        "controller",
        "joint",
        "workers",
    ),
    *("queues", "flavors", "labels", "leftovers", "pods"),
)
"""Names of all steps, in their order."""
_ENDED = 143
"""The exit code of a process that SIGTERM ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """The selection of steps to run."""

    before_install: bool = False
    only: tuple[str, ...] = ()
    """Names of steps; empty for all.  The check of the API server always runs first."""

    def checks(
        self, client: Client, namespace: str, plan: Plan, *, configuration: Configuration, clock: Clock
    ) -> list[tuple[str, Check]]:
        """Return the selected steps with their names, in order."""
        from kqueue.operations.checkup.before import BeforeInstall
        from kqueue.operations.checkup.installation import Installation
        from kqueue.operations.checkup.joint import JointPlacementCheck
        from kqueue.operations.checkup.queues import Tenants
        from kqueue.operations.checkup.workers import WorkersCheck

        before = BeforeInstall(client, configuration)
        if self.before_install:
            return [
                ("api-server", before.api_server),
                ("definitions", before.definitions),
                ("other-manager", before.other_manager),
            ]
        installation = Installation(client, namespace, plan.queue, configuration, clock)
        tenants = Tenants(client, clock)
        steps: list[Check] = [
            installation.api_server,
            installation.kinds,
            installation.webhooks,
            installation.certificates,
            installation.reviews,
            installation.conversion,
            installation.labelled,
            installation.visibility,
            installation.controller,
            JointPlacementCheck(client, clock).joint,
            WorkersCheck(client, configuration, clock).workers,
            tenants.queues,
            tenants.flavors,
            tenants.labels,
            tenants.leftovers,
            tenants.pods,
        ]
        chosen = (_STEPS[0], *(self.only or _STEPS))
        return [(name, check) for name, check in zip(_STEPS, steps, strict=True) if name in chosen]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("doctor")(reaches_cluster(doctor))


_QueueOption = Annotated[
    str, typer.Option("--queue", "-q", help="Send a canary gang through this LocalQueue of the namespace.")
]
_CanaryOption = Annotated[
    bool | None, typer.Option("--canary/--no-canary", help="Send the canary gang; by default only with --queue.")
]
_PodsOption = Annotated[int, typer.Option(min=1, max=100, help="Pods of the canary.")]
_RequestOption = Annotated[
    list[str] | None, typer.Option(help="RESOURCE=QUANTITY of each pod, repeatable; by default very little.")
]
_ImageOption = Annotated[str, typer.Option(help="Image of the canary's pods; it need not do anything.")]
_LimitOption = Annotated[float, typer.Option(min=1, max=3600, help="Seconds that the canary may take.")]
_ConfigOption = Annotated[Path | None, typer.Option(help="The controller's Configuration file, which names its Lease.")]
_OnlyOption = Annotated[
    list[str] | None, typer.Option(metavar="STEP", help="Only this step of an installation; may be repeated.")
]
_WaitOption = Annotated[float, typer.Option(min=0, max=3600, help="Seconds to repeat failed steps, after an install.")]
_BeforeInstallOption = Annotated[
    bool, typer.Option("--before-install", help="Check instead whether kqueue can be installed or upgraded.")
]


def doctor(
    queue: _QueueOption = "",
    canary: _CanaryOption = None,
    pods: _PodsOption = 2,
    request: _RequestOption = None,
    image: _ImageOption = ("registry.k8s.io/pause:3.10"),
    limit: _LimitOption = 60.0,
    config: _ConfigOption = None,
    only: _OnlyOption = None,
    wait: _WaitOption = 0.0,
    before_install: _BeforeInstallOption = False,
    output: OutputOption = Output.TEXT,
    *,
    reach: ReachFlags,
) -> None:
    """Check the installation step by step, and print a remedy for each failure.

    \b
        kqueue doctor
        kqueue doctor -n team-a -q main      # also send a canary gang through LocalQueue main
        kqueue doctor --wait 60              # an installation that is just starting
        kqueue doctor --before-install       # can kqueue be installed or upgraded?

    The canary is one small Job.  It goes through suspension, admission, gate, placement and release like any gang, and
    each step reports its time.  The doctor deletes the Job in the end, after ctrl-C too.  If a doctor was killed, the
    next one deletes its Job.

    Exit codes: 0 no step failed; 1 a step failed; 2 the call is wrong.
    """
    import asyncio

    from kqueue.config import load
    from kqueue.errors import ConfigError
    from kqueue.operations.checkup.canary import Plan
    from kqueue.runtime.loop import run

    if canary and not queue:
        raise ConfigError("--canary needs a LocalQueue to go through: give --queue NAME, and --namespace if need be")
    scope = _scope(queue, only or [], before_install=before_install)
    plan = Plan(namespace="", queue=queue, pods=pods, image=image, seconds=limit, requests=_requests(request or []))
    flies = bool(queue) and canary is not False
    examine = _examine(reach, load(config), plan, scope=scope, flies=flies, patience=wait, output=output)
    try:
        steps = run(examine)
    except asyncio.CancelledError:
        raise typer.Exit(_ENDED) from None
    if _report(steps, output):
        raise typer.Exit(_FAILED)


def _scope(queue: str, only: list[str], *, before_install: bool) -> _Scope:
    """Return the steps that the flags choose.

    Raises:
        ConfigError: flags contradict each other, or name a step that does not exist.
    """
    from kqueue.config.names import nearest
    from kqueue.errors import ConfigError

    if before_install and (queue or only):
        raise ConfigError("--before-install looks at a cluster without kqueue; leave --queue and --only out")
    for name in only:
        if name not in _STEPS:
            raise ConfigError(f"--only {name}: no such step{nearest(name, _STEPS)}; steps are {', '.join(_STEPS)}")
    return _Scope(before_install=before_install, only=tuple(only))


def _report(steps: list[CheckStep], output: Output) -> int:
    """Print the result of all steps and return the number of failed ones."""
    from kqueue.cli.output import show
    from kqueue.operations.checkup.values import StepStatus

    bad = sum(step.verdict.status is StepStatus.FAILED for step in steps)
    if output is not Output.TEXT:
        show({"healthy": not bad, "steps": [step.as_json() for step in steps]}, output)
    else:
        print(_summary(steps))
    return bad


def _requests(written: list[str]) -> dict[str, str]:
    from kqueue.core.quantity import parse_quantity
    from kqueue.errors import ConfigError

    found = {}
    for entry in written:
        name, equals, quantity = entry.partition("=")
        try:
            if not equals or not name or parse_quantity(quantity, name) <= 0:
                raise ValueError("must be RESOURCE=QUANTITY, as in cpu=100m")
        except ValueError as e:
            raise ConfigError(f"--request {entry}: {e}") from e
        found[name] = quantity
    return found


async def _examine(
    reach: ReachFlags,
    configuration: Configuration,
    plan: Plan,
    *,
    scope: _Scope,
    flies: bool,
    patience: float,
    output: Output,
) -> list[CheckStep]:
    import asyncio
    import contextlib
    import signal
    from dataclasses import replace

    from kqueue.clock import SystemClock
    from kqueue.operations.checkup.canary import Canary
    from kqueue.operations.checkup.values import StepStatus, examine

    me = asyncio.current_task()
    if me is not None:
        with contextlib.suppress(NotImplementedError, ValueError):  # raised outside the main thread
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, me.cancel)
    clock = SystemClock()

    def tell(step: CheckStep) -> None:
        if output is Output.TEXT:
            print("\n".join(_lines(step)), flush=True)

    async with reach.session() as session:
        client = session.client
        checks = scope.checks(client, session.namespace, plan, configuration=configuration, clock=clock)
        steps = await examine(checks, clock, tell, patience=patience)
        if flies and steps[0].verdict.status is StepStatus.OK:
            steps += await Canary(client, replace(plan, namespace=session.namespace), clock, tell).fly()
    return steps


def _lines(step: CheckStep) -> list[str]:
    from kqueue.cli.output import printable

    verdict = step.verdict
    word = f"{verdict.status.value:<8}"
    if sys.stdout.isatty():
        colour = {"ok": 32, "warning": 33, "failed": 31, "skipped": 90}[verdict.status.value]
        word = f"\x1b[{colour}m{word}\x1b[0m"
    lines = [f"{word} {step.name:<15} {step.seconds:6.2f} s  {printable(verdict.message)}"]
    lines += [f"{'':35}{printable(detail)}" for detail in verdict.details]
    if verdict.remedy:
        lines.append(f"{'':35}remedy: {printable(verdict.remedy)}")
    return lines


def _summary(steps: list[CheckStep]) -> str:
    from collections import Counter

    counts = Counter(step.verdict.status.value for step in steps)
    told = ", ".join(f"{counts[word]} {word}" for word in ("ok", "warning", "failed", "skipped") if counts[word])
    return f"\n{told}, in {sum(step.seconds for step in steps):.1f} s"
