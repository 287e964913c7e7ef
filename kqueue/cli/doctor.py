"""`kqueue doctor`: the installation, looked at step by step; with a queue, a canary gang goes through it."""

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
    *("api-server", "kinds", "webhooks", "certificates", "reviews", "labelled", "visibility", "controller"),
    *("queues", "flavors", "labels", "leftovers", "pods"),
)
"""Names of all steps, in their order."""
_ENDED = 143
"""As of a process that SIGTERM has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Which steps are run."""

    before_install: bool = False
    only: tuple[str, ...] = ()
    """Names of steps; empty: all.  The API server is always asked first."""

    def checks(
        self, client: Client, namespace: str, plan: Plan, *, configuration: Configuration, clock: Clock
    ) -> list[tuple[str, Check]]:
        """The steps with their names."""
        from kqueue.operations.checkup.before import BeforeInstall
        from kqueue.operations.checkup.installation import Installation
        from kqueue.operations.checkup.queues import Tenants

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
            installation.labelled,
            installation.visibility,
            installation.controller,
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
    bool | None, typer.Option("--canary/--no-canary", help="Whether to; else where a queue is given.")
]
_PodsOption = Annotated[int, typer.Option(min=1, max=100, help="Pods of the canary.")]
_RequestOption = Annotated[
    list[str] | None, typer.Option(help="RESOURCE=QUANTITY of each pod, repeatable; else next to nothing.")
]
_ImageOption = Annotated[str, typer.Option(help="What the canary's pods run; it need not do anything.")]
_LimitOption = Annotated[float, typer.Option(min=1, max=3600, help="Seconds that the canary may take.")]
_ConfigOption = Annotated[Path | None, typer.Option(help="The controller's Configuration file: where its Lease is.")]
_OnlyOption = Annotated[
    list[str] | None, typer.Option(metavar="STEP", help="Only this step of an installation; may be repeated.")
]
_WaitOption = Annotated[
    float, typer.Option(min=0, max=3600, help="Seconds in which failed steps are repeated, after an install.")
]
_BeforeInstallOption = Annotated[
    bool, typer.Option("--before-install", help="Whether kqueue can be installed or upgraded, instead.")
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
    """Look at the installation step by step, and say what to do about what is wrong.

    \b
        kqueue doctor
        kqueue doctor -n team-a -q main      # and a canary gang through LocalQueue main
        kqueue doctor --wait 60              # an installation that is just starting
        kqueue doctor --before-install       # whether kqueue can be installed or upgraded

    The canary is one small Job.  It goes through suspension, admission, gate, placement and release like any gang, each
    step with its time, and is deleted in the end, after ctrl-C too; one of a doctor that was killed is removed by the
    next one.

    Exit codes: 0 nothing failed; 1 something did; 2 the call is wrong.
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
    """Return which steps the flags choose.

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
    """Print the result of all steps; return how many failed."""
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
        with contextlib.suppress(NotImplementedError, ValueError):  # not in the main thread
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
