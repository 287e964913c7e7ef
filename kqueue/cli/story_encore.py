"""The end of the demo: some gangs run and one waits, and real commands of kqueue show them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

from kqueue.api import names
from kqueue.cli.dashboard.queries import queues
from kqueue.cli.output import printable
from kqueue.cli.story_view import JOBS, Object, is_true, message, owner
from kqueue.controllers.resources import NODES, WORKLOADS
from kqueue.errors import KqueueError, NotServedError
from kqueue.runtime.client import Client

RUN = ("block-gang-a", "block-gang-b", "rack-gang", "plain-job")
"""Examples that are submitted again and keep running, so that the commands have something to show."""
WAITS = "patient-gang"
"""The gang that waits, because no block has room for it beside the others."""
_RUN_SECONDS = "sandbox.kqueue.dev/run-seconds"
_FOR_LONG = "3600"
_LIMIT_SECONDS = 60.0
"""Limit of each wait."""
_LOOK_SECONDS = 0.2


async def stage(client: Client, examples: Path) -> str:
    """Submit the gangs, cordon a node, and wait until one gang waits; return the name of its Workload.

    Raises:
        KqueueError: no gang waits in time.
    """
    for name in RUN:
        await _submit(client, examples, name)
        await _until(client, name, lambda w: is_true(w, names.CONDITION_ADMITTED))
    nodes = await client.list_json(NODES)
    await client.patch(NODES, max(node["metadata"]["name"] for node in nodes), {"spec": {"unschedulable": True}})
    await _submit(client, examples, WAITS)
    waiting = await _until(client, WAITS, lambda w: "no room" in message(w, names.CONDITION_QUOTA_RESERVED))
    await _until_answered(client)
    return str(waiting["metadata"]["name"])


def commands(waiting: str) -> Iterator[tuple[str, ...]]:
    """Return the commands to show, as typed after `kqueue`."""
    yield "list", "gangs"
    yield "explain", "podgroup.scheduling.x-k8s.io/coscheduling"
    yield "explain", "workload", waiting
    yield "top", "queues", "--once"
    yield "topology", "datacentre"


async def show(kubeconfig: Path, console: Console, waiting: str) -> list[str]:
    """Run the commands as a user would, on the same terminal; return the failures."""
    problems = []
    for arguments in commands(waiting):
        problems += await show_command(kubeconfig, console, *arguments)
    return problems


async def show_command(kubeconfig: Path, console: Console, *arguments: str, short: bool = False) -> list[str]:
    """Run a command of kqueue as a user would, on the same terminal; return its failure.

    `short`: print only the first line of its output.
    """
    console.print(Text(f"\n$ kqueue {' '.join(arguments)}", style="bold"))
    sys.stdout.flush()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", *arguments),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE if short else None,
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), _LIMIT_SECONDS)
        code = process.returncode
    except TimeoutError:
        out, code = b"", None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if out:
        console.print(Text(printable(out.decode(errors="replace").partition("\n")[0])))
    return [] if code == 0 else [f"kqueue {' '.join(arguments)} ended with exit code {code}"]


async def _submit(client: Client, examples: Path, name: str) -> None:
    job = yaml.safe_load((examples / f"{name}.yaml").read_text())
    job["metadata"]["name"] = _again(name)
    job["spec"]["template"]["metadata"]["annotations"][_RUN_SECONDS] = _FOR_LONG
    await client.create(JOBS, job)


def _again(name: str) -> str:
    return f"{name}-2"


async def _until(client: Client, name: str, ready: Callable[[Object], bool]) -> Object:
    """Wait until the Workload of a gang is `ready`, and return the Workload."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:
        for workload in await client.list_json(WORKLOADS, "default"):
            if owner(workload) == _again(name) and ready(workload):
                return workload
        if time.monotonic() > deadline:
            raise KqueueError(f"{_again(name)} did not reach the expected state within {_LIMIT_SECONDS:g} s")
        await asyncio.sleep(_LOOK_SECONDS)


async def _until_answered(client: Client) -> None:
    """Wait for the visibility API: the API server finds it a moment after the controller's start."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while True:
        try:
            await queues(client)
        except NotServedError:
            if time.monotonic() > deadline:
                raise
        else:
            return
        await asyncio.sleep(_LOOK_SECONDS)
