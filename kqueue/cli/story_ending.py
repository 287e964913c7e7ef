"""The last scene of the demo: a waiting gang is told its start time, and starts by then."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

from kqueue.api import names
from kqueue.cli.story_encore import RUN, WAITS, show_command
from kqueue.cli.story_view import JOBS, Object, is_true, owner
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import KqueueError
from kqueue.runtime.client import Client, Propagation

_BLOCKS = tuple(name for name in RUN if name.startswith("block-gang"))
"""Gangs that fill the blocks."""
_RUN_SECONDS = "sandbox.kqueue.dev/run-seconds"
_SECONDS = (10, 15)
"""Seconds for which the gangs of the blocks run, in their order."""
_MORE = 5
"""Seconds by which the limit of a run is longer than the run."""
_LATE = 3.0
"""Seconds after its start time within which the gang has quota: its room must be seen to be free."""
_LIMIT_SECONDS = 60.0
_LOOK_SECONDS = 0.2
PAGE = "kqueue dashboard shows queues, domains and start times as a page, on any cluster with kqueue."


async def show_start(client: Client, kubeconfig: Path, console: Console, examples: Path) -> list[str]:
    """Let gangs with limits fill both blocks, show when the gang behind them starts, and wait for it; return the
    failures.

    Raises:
        KqueueError: the gangs do not run or wait in time.
    """
    before = {job["metadata"]["name"] for job in await client.list_json(JOBS, "default")}
    for job in before:
        await client.delete(JOBS, job, "default", propagation=Propagation.BACKGROUND)
    await _until(client, lambda held: before.isdisjoint(held), "the gangs before it have not ended")
    for name, seconds in zip(_BLOCKS, _SECONDS, strict=True):
        await _submit(client, examples, name, seconds)
    await _until(client, lambda held: held.keys() >= set(map(_again, _BLOCKS)), "the blocks were not filled")
    await _submit(client, examples, WAITS, _SECONDS[0])
    waiting = await _workload(client, _again(WAITS))
    problems = await show_command(kubeconfig, console, "explain", "workload", waiting["metadata"]["name"])
    told = await _told(kubeconfig, waiting["metadata"]["name"])
    if told is None:
        return [*problems, f"{_again(WAITS)} was not told when it starts"]
    console.print(Text(f"\n{_again(WAITS)} is to start at {told:%H:%M:%S} UTC at the latest ..."))
    held = await _until(client, lambda held: _again(WAITS) in held, f"{_again(WAITS)} did not start")
    start = held[_again(WAITS)]
    console.print(Text(f"... and has started at {start:%H:%M:%S} UTC.", style="bold green"))
    if (start - told).total_seconds() > _LATE:
        problems.append(f"{_again(WAITS)} was to start at {told} and started at {start}")
    console.print(Text(f"\n{PAGE}"))
    return problems


def _again(name: str) -> str:
    return f"{name}-3"


async def _submit(client: Client, examples: Path, name: str, seconds: int) -> None:
    job = yaml.safe_load((examples / f"{name}.yaml").read_text())
    job["metadata"]["name"] = _again(name)
    job["metadata"]["labels"][names.MAX_EXEC_TIME_SECONDS_LABEL] = str(seconds + _MORE)
    job["spec"]["template"]["metadata"]["annotations"][_RUN_SECONDS] = str(seconds)
    await client.create(JOBS, job)


async def _workload(client: Client, job: str) -> Object:
    """Return the Workload of a job once it waits.  Raises KqueueError when it does not wait in time."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        for workload in await client.list_json(WORKLOADS, "default"):
            if owner(workload) == job and workload.get("status", {}).get("conditions"):
                return workload
        await asyncio.sleep(_LOOK_SECONDS)
    raise KqueueError(f"{job} does not wait after {_LIMIT_SECONDS:g} s")


async def _until(client: Client, ready: Callable[[dict[str, datetime]], bool], problem: str) -> dict[str, datetime]:
    """Wait for workloads with quota, by job, each with the time since which it has it, and return them."""
    deadline = time.monotonic() + _LIMIT_SECONDS
    while time.monotonic() < deadline:
        held = {
            owner(w): _since(w)
            for w in await client.list_json(WORKLOADS, "default")
            if is_true(w, names.CONDITION_QUOTA_RESERVED) and not is_true(w, names.CONDITION_FINISHED)
        }
        if ready(held):
            return held
        await asyncio.sleep(_LOOK_SECONDS)
    raise KqueueError(f"{problem} after {_LIMIT_SECONDS:g} s")


def _since(workload: Object) -> datetime:
    conditions = workload["status"]["conditions"]
    reserved = next(one for one in conditions if one["type"] == names.CONDITION_QUOTA_RESERVED)
    return datetime.fromisoformat(reserved["lastTransitionTime"]).astimezone(UTC)


async def _told(kubeconfig: Path, workload: str) -> datetime | None:
    """Return the time by which the workload starts with nine of ten chances; None: it is not told."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kqueue", "explain", "workload", workload, "-o", "json"),
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(process.communicate(), _LIMIT_SECONDS)
    start = (json.loads(out).get("pending") or {}).get("startTime") or {} if out else {}
    return datetime.fromisoformat(start["p90"]).astimezone(UTC) if "p90" in start else None
