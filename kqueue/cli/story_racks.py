"""The demo's scenes about racks: gangs that are planned together, and moves that free a rack; both as pictures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from kqueue.api import move_names, names
from kqueue.cli.output import printable
from kqueue.cli.rack_picture import NARROW, as_text, draw
from kqueue.cli.story_encore import show_command
from kqueue.cli.story_view import JOBS, Object, documents, is_true, message, owner, pod_state, type_of
from kqueue.clock import SystemClock, api_time, utc_text
from kqueue.controllers.resources import CLUSTER_QUEUES, DEFRAGMENTATION_PLANS, NODES, PODS, WORKLOADS
from kqueue.errors import KqueueError
from kqueue.operations.defrag.reading import read_objects, state_of
from kqueue.runtime.client import Client, Propagation
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from kqueue.state.defrag.hosts import Cells, Hosts

Found = TypeVar("Found")
QUEUE, FLAVOR = "planned", "two-racks"
EARLY, MOVES, WHOLE = "early", "train", "whole-rack"
RUN, GANGS = ("service", EARLY, MOVES), ("alpha", "beta", "gamma")
_POOL = {"example.com/pool": FLAVOR}
"""The label of the nodes of the flavor."""
_HOSTS = 16
"""Hosts of each of the two racks."""
_HAS_RUN = timedelta(minutes=20)
"""The time that the job which moves claims to have run: kqueue moves nothing that has run for less than ten minutes."""
_RACK_DEPTH = 2
_LIMIT_SECONDS = 60.0
"""Limit of each wait."""
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class RackScenes:
    """Both scenes, on two racks of the demo's cluster that nothing uses."""

    client: Client
    kubeconfig: Path
    console: Console
    examples: Path

    async def show(self) -> list[str]:
        """Tell both scenes, and remove their objects; return what went wrong."""
        if not await self.prepare():
            self.console.print("This cluster has no two empty racks of 16 hosts in a block: two scenes are left out.")
            return []
        problems = [*await self._planned_together(), *await self._a_plan_frees_a_rack()]
        await self._clear()
        return problems

    async def prepare(self) -> bool:
        """Label two racks, create the queue, and fill the racks so that 10 and 9 hosts are free.

        False: there are no two racks of 16 hosts without pods.
        """
        chosen = await self._empty_racks()
        if not chosen:
            return False
        labels = {"metadata": {"labels": _POOL}}
        await asyncio.gather(*[self.client.patch(NODES, node, labels) for node in chosen])
        await self._create("queues.yaml")
        for job, obj in zip(RUN, documents(self.examples / "joint" / "running.yaml"), strict=True):
            await self.client.create(JOBS, obj)
            await self._until_run(job)  # each one finds the racks as the one before has left them
        await self._delete(EARLY)
        return True

    async def _planned_together(self) -> list[str]:
        """Show where three gangs would be one by one, and where the plan of all three puts them."""
        self._say(
            "\nPlanned together: gangs of 5, 5 and 9 hosts wait, each for one rack; two racks have 10 and 9 free ..."
        )
        await self._stop_queue("Hold")
        await self._create("gangs.yaml")
        waiting = await self._until("they are in the queue", lambda: self._workloads(*GANGS))
        keys = [f"default/{waiting[name]['metadata']['name']}" for name in GANGS]
        hosts = await self._hosts()
        left = [name for name, key in zip(GANGS, keys, strict=True) if not hosts.start(key)]
        one_by_one = hosts.cells(_RACK_DEPTH)
        await self._stop_queue("None")
        await self._until_run(*GANGS)
        await self._draw(("one by one", one_by_one), ("planned together", (await self._hosts()).cells(_RACK_DEPTH)))
        self._say(f"One by one, {' and '.join(left) or 'no gang'} would wait.  The plan has room for all of them.")
        problems = [] if left == [GANGS[-1]] else [f"one by one, {left} would wait; it should be {GANGS[-1]}"]
        last = waiting[GANGS[-1]]["metadata"]["name"]
        problems += await self._run("explain", "workload", last, "--no-what-if")
        await asyncio.gather(*map(self._delete, GANGS))
        return problems

    async def _a_plan_frees_a_rack(self) -> list[str]:
        """Show a gang that waits for an empty rack, a plan that frees one, its approval, and the start of the gang."""
        self._say(
            f"\nA plan frees a rack: the three have ended, 19 hosts are free, and {WHOLE} needs 16 of one rack ..."
        )
        found = await self.wait_for_a_rack()
        self._say(f"{WHOLE}: waiting - {message(found, names.CONDITION_QUOTA_RESERVED)}")
        self._say(
            f"The user of {MOVES} agrees to a move after a checkpoint, and it has just written one.  (kqueue moves "
            "nothing that has run for less than ten minutes: the demo has set its start back.)"
        )
        key = f"default/{found['metadata']['name']}"
        problems = await self._run("defrag", "plan", "--for", key, "--save", "--picture")
        if problems:
            return problems
        name, shown = await self._stored_plan()
        problems = await self._run("defrag", "approve", name, "--hash", shown, short=True)
        await self._until_run(WHOLE, MOVES)
        await self._until("the plan is done", lambda: self._is_done(name))
        self._say(f"\nThe plan is done: {MOVES} runs again in the other rack, and {WHOLE} has started.")
        cells = (await self._hosts()).cells(_RACK_DEPTH)
        await self._draw(("", cells))
        mixed = [row for row in cells.values() if _mixed(row)]
        return problems + [f"the pods of {WHOLE} and of another gang share a rack" for _ in mixed]

    async def wait_for_a_rack(self) -> Object:
        """Let the gang that needs a whole rack wait, and a job agree to a move; return the Workload that waits."""
        await self._agree()
        await self._create("whole-rack.yaml")
        return await self._until("it waits for room", self._without_room)

    # --- what it does

    async def _empty_racks(self) -> list[str]:
        """Return the nodes of the last two racks of a block that no pod uses; empty: there are none."""
        nodes, pods = await asyncio.gather(self.client.list_json(NODES), self.client.list_json(PODS))
        used = {pod["spec"].get("nodeName") for pod in pods if pod_state(pod) != "ended"}
        racks: dict[str, dict[str, list[str]]] = {}
        for node in nodes:
            labels, name = node["metadata"]["labels"], node["metadata"]["name"]
            rack = racks.setdefault(labels.get(BLOCK_LABEL, ""), {}).setdefault(labels.get(RACK_LABEL, ""), [])
            rack.append(name)
        for _, block in sorted(racks.items(), reverse=True):
            idle = [sorted(hosts) for _, hosts in sorted(block.items()) if not used.intersection(hosts)]
            large = [hosts[:_HOSTS] for hosts in idle if len(hosts) >= _HOSTS][-2:]
            if len(large) == 2:
                return [name for hosts in large for name in hosts]
        return []

    async def _agree(self) -> None:
        """Write the checkpoint onto the job that may move, and set its admission back."""
        now = SystemClock().now()
        notes = {move_names.LAST_CHECKPOINT_ANNOTATION: utc_text(now)}
        await self.client.patch(JOBS, MOVES, {"metadata": {"annotations": notes}}, "default")

        async def handed_on() -> Object | None:
            found = (await self._workloads(MOVES) or {}).get(MOVES, {})
            told = found.get("metadata", {}).get("annotations") or {}
            return found if told.get(move_names.LAST_CHECKPOINT_ANNOTATION) == utc_text(now) else None

        workload = await self._until("its Workload has the checkpoint", handed_on)
        conditions = workload["status"]["conditions"]
        for condition in conditions:
            if condition["type"] == names.CONDITION_ADMITTED:
                since = api_time(condition["lastTransitionTime"]) or now
                condition["lastTransitionTime"] = utc_text(since - _HAS_RUN)
        patch = {"status": {"conditions": conditions}}
        await self.client.patch(WORKLOADS, workload["metadata"]["name"], patch, "default", subresource="status")

    async def _without_room(self) -> Object | None:
        found = (await self._workloads(WHOLE) or {}).get(WHOLE, {})
        return found if "no room" in message(found, names.CONDITION_QUOTA_RESERVED) else None

    async def _stop_queue(self, policy: str) -> None:
        await self.client.patch(CLUSTER_QUEUES, QUEUE, {"spec": {"stopPolicy": policy}})

    async def _create(self, manifest: str) -> None:
        for obj in documents(self.examples / "joint" / manifest):
            await self.client.create(type_of(obj), obj)

    async def _delete(self, job: str) -> None:
        """Delete a job, and wait until its hosts are free."""
        await self.client.delete(JOBS, job, "default", propagation=Propagation.BACKGROUND)
        await self._until("its Workload is gone", lambda: self._gone(job))

    async def _gone(self, job: str) -> bool:
        return all(owner(w) != job for w in await self.client.list_json(WORKLOADS, "default"))

    async def _clear(self) -> None:
        """Remove the jobs, the queues and the plans of the scenes."""
        for plan in await self.client.list_json(DEFRAGMENTATION_PLANS):
            await self.client.delete(DEFRAGMENTATION_PLANS, plan["metadata"]["name"])
        left = {job["metadata"]["name"] for job in await self.client.list_json(JOBS, "default")}
        await asyncio.gather(*[self._delete(job) for job in (*RUN, *GANGS, WHOLE) if job in left])
        for obj in reversed(list(documents(self.examples / "joint" / "queues.yaml"))):
            namespace = obj["metadata"].get("namespace")
            await self.client.delete(type_of(obj), obj["metadata"]["name"], namespace)

    # --- what it sees

    async def _hosts(self) -> Hosts:
        return Hosts(state_of(await read_objects(self.client), SystemClock().now()), FLAVOR)

    async def _workloads(self, *jobs: str) -> dict[str, Object] | None:
        """Return the Workloads of these jobs, by job; None: some have none yet."""
        found = {owner(w): w for w in await self.client.list_json(WORKLOADS, "default") if owner(w) in jobs}
        return found if len(found) == len(jobs) else None

    async def _stored_plan(self) -> tuple[str, str]:
        """Return name and hash of the plan that the command has stored; the controller may have proposed others."""
        plans = await self.client.list_json(DEFRAGMENTATION_PLANS)
        mine = next(p for p in plans if any(c["reason"] == "Computed" for c in p["status"]["conditions"]))
        return mine["metadata"]["name"], mine["status"]["hash"]

    async def _is_done(self, plan: str) -> bool:
        return bool((await self.client.get_json(DEFRAGMENTATION_PLANS, plan))["status"]["phase"] == "Done")

    async def _until_run(self, *jobs: str) -> None:
        """Wait until all pods of these jobs run, and their Workloads are admitted."""

        async def run() -> bool:
            workloads = await self._workloads(*jobs)
            if workloads is None or not all(is_true(w, names.CONDITION_ADMITTED) for w in workloads.values()):
                return False
            running = [
                owner(pod) for pod in await self.client.list_json(PODS, "default") if pod_state(pod) == "running"
            ]
            asked = {job: sum(p["count"] for p in w["spec"]["podSets"]) for job, w in workloads.items()}
            return all(running.count(job) == pods for job, pods in asked.items())

        await self._until(f"{', '.join(jobs)} run", run)

    async def _until(self, what: str, look: Callable[[], Awaitable[Found | None]]) -> Found:
        """Wait until a look finds something.  Raises KqueueError: it finds nothing in time."""
        deadline = time.monotonic() + _LIMIT_SECONDS
        while True:
            found = await look()
            if found:
                return found
            if time.monotonic() > deadline:
                raise KqueueError(f"not within {_LIMIT_SECONDS:g} s: {what}")
            await asyncio.sleep(_LOOK_SECONDS)

    # --- what it prints

    def _say(self, text: str) -> None:
        self.console.print(Text("\n".join(map(printable, text.split("\n")))))

    async def _draw(self, *tables: tuple[str, Cells]) -> None:
        """Print racks, and the jobs on their hosts."""
        keys = {f"default/{w['metadata']['name']}": owner(w) for w in await self.client.list_json(WORKLOADS, "default")}
        self.console.print()
        for line in draw(tables, keys, width=min(NARROW, self.console.width)):
            self.console.print(as_text(line))

    async def _run(self, *arguments: str, short: bool = False) -> list[str]:
        return await show_command(self.kubeconfig, self.console, *arguments, short=short)


def _mixed(row: Sequence[str]) -> bool:
    """Whether a rack has the gang that needs a whole one, and another workload."""
    return any(f"-{WHOLE}-" in cell for cell in row) and len(set(row)) > 1
