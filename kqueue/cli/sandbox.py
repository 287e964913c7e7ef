"""`kqueue sandbox`: a simulated cluster for experiments with queues."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kqueue.sandbox import Sandbox, SandboxOptions

DEFAULT_PORT = 8901


class _Form(StrEnum):
    """Formats of the announcement at the start."""

    TEXT = "text"
    JSON = "json"


def need_sandbox() -> None:
    """Raise ConfigError if the library that the simulated API server needs is not installed."""
    from importlib.util import find_spec

    from kqueue.errors import ConfigError

    if find_spec("jsonpatch") is None:
        raise ConfigError("the simulated cluster needs the library jsonpatch: pip install 'kqueue[sandbox]'")


_TopologyOption = Annotated[str, typer.Option(help="Blocks x racks x hosts, or a YAML file with levels and pools.")]
_PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 is any free one.")]
_KubeconfigOption = Annotated[
    Path | None, typer.Option(help="File for the kubeconfig; by default in the user's state folder.")
]
_CrdsOption = Annotated[bool, typer.Option(help="Install kqueue's CustomResourceDefinitions.")]
_AllocatableOption = Annotated[
    list[str] | None,
    typer.Option(help="RESOURCE=QUANTITY that every node offers, repeatable; 0 removes a resource."),
]
_RunSecondsOption = Annotated[
    float, typer.Option(min=0, help="Run time of pods without the annotation; 0 is for ever.")
]
_SpeedOption = Annotated[float, typer.Option(help="Divides run times: at 60, an hour takes a minute.")]
_WithoutOption = Annotated[
    str,
    typer.Option(
        help="Parts to leave out, of nodes,kubelet,scheduler,jobs,jobsets,daemonsets,deployments,statefulsets,"
        "collector,metrics."
    ),
]
_OutputOption = Annotated[_Form, typer.Option("-o", "--output", help="json: one line for programs.")]
_LogLevelOption = Annotated[str, typer.Option(help="debug, info, warning or error; logs go to stderr.")]


def register(app: typer.Typer) -> None:
    """Add the command."""

    app.command("sandbox")(sandbox)


def sandbox(
    topology: _TopologyOption = "4x8x16",
    port: _PortOption = DEFAULT_PORT,
    kubeconfig: _KubeconfigOption = None,
    crds: _CrdsOption = True,
    allocatable: _AllocatableOption = None,
    run_seconds: _RunSecondsOption = 10.0,
    speed: _SpeedOption = 1.0,
    without: _WithoutOption = "",
    output: _OutputOption = _Form.TEXT,
    log_level: _LogLevelOption = "warning",
) -> None:
    """Run a simulated Kubernetes cluster until ctrl-C: an API server, nodes, scheduler, kubelets, Jobs, JobSets.

    Pods run for the seconds of their annotation sandbox.kqueue.dev/run-seconds, and fail with sandbox.kqueue.dev/fail:
    "true"; the latter on a node makes the node fail.  When the sandbox stops, all objects are lost.
    """
    need_sandbox()
    from kqueue.api.crd_files import crd_folder
    from kqueue.errors import ConfigError
    from kqueue.observe import configure_logs
    from kqueue.runtime.loop import run, tune_collector
    from kqueue.sandbox.cluster import PARTS, SandboxOptions
    from kqueue.sandbox.kubelet import KubeletOptions
    from kqueue.sandbox.topology_spec import DEFAULT_ALLOCATABLE, parse_topology

    if not 0 < speed < float("inf"):
        raise ConfigError(f"--speed: {speed} must be above 0")
    left_out = frozenset(filter(None, (part.strip() for part in without.split(","))))
    leavable = PARTS - {"server"}
    if unknown := sorted(left_out - leavable):
        raise ConfigError(f"--without: {', '.join(unknown)} is no part; use some of {', '.join(sorted(leavable))}")
    offered = {**DEFAULT_ALLOCATABLE, **_pairs(allocatable or [])}
    options = SandboxOptions(
        topology=parse_topology(topology, allocatable=offered),
        port=port,
        crds=(crd_folder(),) if crds else (),
        parts=PARTS - left_out,
        kubelet=KubeletOptions(run_seconds=run_seconds or None, speed=speed),
    )
    configure_logs("console", log_level)
    tune_collector()
    run(_serve(options, kubeconfig, output))


async def _serve(options: SandboxOptions, kubeconfig: Path | None, form: _Form) -> None:
    """Start and announce the sandbox, and serve until a signal, or a bug in the simulation, ends it."""
    import asyncio
    import signal

    from kqueue.sandbox import Sandbox

    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    sandbox = Sandbox(options)
    await sandbox.start()
    try:
        path = (kubeconfig or _default_kubeconfig(sandbox.port)).expanduser().absolute()
        sandbox.write_kubeconfig(path)
        _announce(sandbox, path, form)
        waits = {asyncio.create_task(stopped.wait()), asyncio.create_task(sandbox.wait())}
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()
    finally:
        await sandbox.stop()


def _announce(sandbox: Sandbox, kubeconfig: Path, form: _Form) -> None:
    import json
    import shlex

    spec = sandbox.options.topology
    size = 0 if spec is None else spec.size
    if form is _Form.JSON:
        facts = {"url": sandbox.url, "kubeconfig": str(kubeconfig), "nodes": size, "pid": os.getpid()}
        print(json.dumps(facts), flush=True)
        return
    node = next((blueprint.name for blueprint in spec.blueprints()), "NODE") if spec else "NODE"
    columns = "".join(f" -L {label}" for label in (spec.levels[:-1] if spec else ()))
    print(
        f"A simulated cluster with {size} nodes is up at {sandbox.url}.\n\n"
        f"    export KUBECONFIG={shlex.quote(str(kubeconfig))}\n\n"
        "Things to try in another terminal:\n\n"
        f"    kubectl get nodes{columns}\n"
        "    kqueue controller --with-webhooks --visibility-url 'https://localhost:{port}' --log-format console\n"
        "    kubectl get jobs,pods -o wide -w\n"
        f"    kubectl annotate node {node} sandbox.kqueue.dev/fail=true    # it fails; with fail- it comes back\n"
        f"    kubectl cordon {node}\n\n"
        "Ctrl-C stops it, and nothing of it is kept.",
        flush=True,
    )


def _pairs(written: list[str]) -> Mapping[str, str]:
    from kqueue.errors import ConfigError

    pairs = {}
    for entry in written:
        name, equals, quantity = entry.partition("=")
        if not equals or not name:
            raise ConfigError(f"--allocatable: {entry!r} must be RESOURCE=QUANTITY, as in nvidia.com/gpu=4")
        pairs[name] = quantity
    return pairs


def _default_kubeconfig(port: int) -> Path:
    """Return one file per port, so that two sandboxes have different files; the default port has the plain name."""
    state = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    return state / "kqueue" / ("sandbox.kubeconfig" if port == DEFAULT_PORT else f"sandbox-{port}.kubeconfig")
