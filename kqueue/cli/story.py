"""The demo's story: submits jobs, shows changes while they run, and checks the result."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kqueue.api import names
from kqueue.api.crd_files import crd_folder
from kqueue.cli.output import printable
from kqueue.cli.story_checks import Witness, evictions
from kqueue.cli.story_encore import show, stage
from kqueue.cli.story_ending import show_start
from kqueue.cli.story_gangs import FORMS, KINDS, show_gangs
from kqueue.cli.story_racks import RackScenes
from kqueue.cli.story_view import (
    JOB_SETS,
    JOBS,
    Object,
    View,
    annotation,
    conditions,
    documents,
    is_true,
    job_specs,
    kubectl,
    message,
    owner,
    pod_state,
    pods_asked,
    type_of,
    without_template,
)
from kqueue.config import Configuration, Timings, load
from kqueue.controllers.resources import CLUSTER_QUEUES, NODES, PODS, WORKLOADS
from kqueue.errors import ConfigError, KqueueError
from kqueue.manager.process import Flags, RunningOperator, running
from kqueue.runtime.client import Client, connect
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL, parse_topology

LEAVES = "leader-and-workers"
"""A JobSet that is preempted by the last job, and is admitted again later."""
CHAPTERS = (
    *("block-gang-a", "block-gang-b", "rack-gang", "spread-gang", "plain-job", LEAVES),
    *("patient-gang", "impossible-gang", "urgent-gang"),
)
"""Jobs in the order of submission; the last job is submitted when all others run or wait."""
FIRST, LAST = CHAPTERS[:-1], CHAPTERS[-1]
NEVER = frozenset({"impossible-gang"})
WAITS = "patient-gang"
CHECKED = (
    "Checked: every gang ran inside its domain, no quota was exceeded, and the evicted job got its own template back."
)
LIMIT_SECONDS = 150.0
"""Limit of the story, which takes about half a minute."""
_LEVELS = {names.REQUIRED_TOPOLOGY_ANNOTATION: "required", names.PREFERRED_TOPOLOGY_ANNOTATION: "preferred"}


def examples_folder() -> Path:
    """Return the folder of the example manifests: in a checkout, or beside the installed package.

    Raises:
        ConfigError: neither folder exists.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "examples", package / "_examples"):
        if (folder / "queues.yaml").exists():
            return folder
    raise ConfigError(f"the demo's manifests are not in {package.parent / 'examples'}; reinstall kqueue")


async def run_story(topology: str, *, keep: bool) -> int:
    """Run the demo; returns the exit code."""
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    spec = parse_topology(topology)
    started = time.monotonic()
    async with cluster(topology, console) as (sandbox, process, client, kubeconfig):
        console.print(f"{spec.size} nodes and kqueue are up after {time.monotonic() - started:.1f} s.\n")
        story = Story(client, console, list(spec.levels))
        await story.submit_all()
        await story.watch()
        problems = [*await story.problems(), *process_problems(process)]
        for problem in problems:
            console.print(Text(f"PROBLEM: {printable(problem)}", style="bold red"))
        if not problems:
            console.print(
                CHECKED,
                style="bold green",
            )
            console.print("\nGangs as other schedulers write them, one of each form ...")
            problems = await show_gangs(client, console, examples_folder())
            problems += await RackScenes(client, kubeconfig, console, examples_folder()).show()
            console.print("\nThe first gangs once more, to look at them with the command line ...")
            problems += await show(kubeconfig, console, await stage(client, examples_folder()))
            console.print("\nWhen does a gang start that waits?  Two gangs with limits fill the blocks ...")
            problems += await show_start(client, kubeconfig, console, examples_folder())
            for problem in problems:
                console.print(Text(f"PROBLEM: {printable(problem)}", style="bold red"))
        if keep:
            await _stay(sandbox, console)
    return 1 if problems else 0


async def create_queues(client: Client) -> None:
    """Create the queues of the story's tenants, from the example manifests."""
    for obj in documents(examples_folder() / "queues.yaml"):
        await client.create(type_of(obj), obj)


def process_problems(process: RunningOperator) -> list[str]:
    """Return failures of the controller itself."""
    if process.task.done():
        return [f"the controller ended: {process.task.exception()}"]
    return [f"the cache drifted: {drift}" for drift in process.operator.cache.audits.audit()]


@asynccontextmanager
async def cluster(topology: str, console: Console) -> AsyncIterator[tuple[Sandbox, RunningOperator, Client, Path]]:
    """Run a simulated cluster with kqueue on it; yield both, a client, and the path of a kubeconfig."""
    console.print(f"Starting a simulated cluster ({topology}: blocks x racks x hosts) with kqueue on it ...")
    with tempfile.TemporaryDirectory(prefix="kqueue-demo-") as folder:
        crds = (crd_folder(), crd_folder() / "optional", examples_folder() / "gangs" / KINDS)
        sandbox = Sandbox(SandboxOptions(topology=parse_topology(topology), port=0, crds=crds))
        await sandbox.start()
        try:
            kubeconfig = Path(folder) / "kubeconfig"
            sandbox.write_kubeconfig(kubeconfig)
            flags = Flags(
                kubeconfig=kubeconfig,
                parts=frozenset({"core", "scheduler", "jobs", "topology", "webhooks"}),
                health_address="0",
                metrics_address="0",
                webhook_host="127.0.0.1",
                webhook_port=0,
                webhook_url="https://127.0.0.1:{port}",
                visibility=True,
                visibility_host="127.0.0.1",
                visibility_port=0,
                visibility_url="https://localhost:{port}",
            )
            async with (
                await connect(kubeconfig) as client,
                running(_configuration(), flags, timings=Timings(queue_flush_window=0.2)) as process,
            ):
                await asyncio.wait_for(process.operator.ready.wait(), 30)
                yield sandbox, process, client, kubeconfig
        finally:
            await sandbox.stop()


def _configuration() -> Configuration:
    found = load(None, feature_gates="JointPlacement=true")
    election = found.leader_election.model_copy(update={"leader_elect": False})
    kinds = found.integrations.model_copy(
        update={"frameworks": ("batch/job", "jobset.x-k8s.io/jobset", *dict.fromkeys(form.framework for form in FORMS))}
    )
    eager = found.joint.rescheduling.model_copy(update={"min_gain": 0})  # gangs of the demo have waited for seconds
    joint = found.joint.model_copy(update={"rescheduling": eager, "time_limit": timedelta(seconds=60)})
    return found.model_copy(update={"leader_election": election, "integrations": kinds, "joint": joint})


async def _stay(sandbox: Sandbox, console: Console) -> None:
    kubeconfig = Path(tempfile.gettempdir()) / f"kqueue-demo-{os.getpid()}.kubeconfig"
    sandbox.write_kubeconfig(kubeconfig)
    console.print("\nThe cluster stays up until you press ctrl-C.  In another terminal:\n")
    console.print(f"    export KUBECONFIG={kubeconfig}")
    console.print("    kubectl get workloads,jobs,jobsets,pods\n    kubectl describe workload\n")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        console.print("Goodbye.")
    finally:
        kubeconfig.unlink(missing_ok=True)


class Story:
    """Submits the jobs, shows their progress, and checks the result."""

    def __init__(self, client: Client, console: Console, levels: list[str]) -> None:
        self._client, self._console, self._levels = client, console, levels
        self._witness = Witness(levels)
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._submitted: dict[str, Object] = {}
        """Jobs as the API server accepted them."""
        self._said: dict[str, tuple[str, str]] = {}
        self._described = False
        self._left: Counter[str] = Counter()
        """Number of evictions that were printed, by job."""

    async def submit_all(self) -> None:
        """Create the queues and then all jobs except the last, from the example manifests."""
        await create_queues(self._client)
        for name in FIRST:
            await self._submit(name)
            await asyncio.sleep(0.3)  # so that a person can read along

    async def _submit(self, name: str) -> None:
        obj = next(documents(examples_folder() / f"{name}.yaml"))
        created = self._submitted[name] = await self._client.create(type_of(obj), obj)
        self._print_line(f"submitted {name}: {_request_of(created)}")
        if not created["spec"].get("suspend"):
            raise KqueueError(f"job {name} was not suspended by the webhook")

    async def watch(self) -> None:
        """Show progress until every job that can finish has finished."""
        deadline = time.monotonic() + LIMIT_SECONDS
        live = Live(console=self._console, refresh_per_second=4, transient=True) if self._console.is_terminal else None
        if live is not None:
            live.start()
        try:
            while True:
                view = await self._look()
                await self._print_changes(view)
                if self._described and LAST not in self._submitted:
                    await self._submit(LAST)
                if live is not None:
                    live.update(self._screen(view))
                if all(view.phase(name)[0] == "finished" for name in CHAPTERS if name not in NEVER):
                    return
                if time.monotonic() > deadline:
                    raise KqueueError(f"the story did not end within {LIMIT_SECONDS:.0f} s")
                await asyncio.sleep(0.4)
        finally:
            if live is not None:
                live.stop()

    async def _look(self) -> View:
        if not self._nodes:
            nodes = await self._client.list_json(NODES)
            self._nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
        jobs, job_sets, workloads, pods = await asyncio.gather(
            self._client.list_json(JOBS, "default"),
            self._client.list_json(JOB_SETS, "default"),
            self._client.list_json(WORKLOADS, "default"),
            self._client.list_json(PODS, "default"),
        )
        view = View(jobs={job["metadata"]["name"]: job for job in (*jobs, *job_sets) if not _is_child(job)})
        view.workloads = {owner(w): w for w in workloads}
        for pod in pods:
            view.pods.setdefault(owner(pod), []).append(pod)
        for workload in workloads:
            admission = workload.get("status", {}).get("admission")
            if admission and not is_true(workload, names.CONDITION_FINISHED):
                view.workloads[owner(workload)] = workload
        self._witness.note(view, workloads, self._submitted)
        return view

    async def _print_changes(self, view: View) -> None:
        """Print one line per change, and the map and the explanation when most gangs run."""
        for name in self._submitted:
            self._print_eviction(name, view.workloads.get(name, {}))
            phase, why = view.phase(name)
            before = self._said.get(name)
            if before is None or before[0] != phase or (phase == "waiting" and before[1] != why):
                self._said[name] = (phase, why)
                self._print_line(f"{name}: {phase}{self._where(name, view) if phase == 'running' else ''}" + _dash(why))
        fullest = all(view.phase(n)[0] in ("running", "waiting", "finished") for n in FIRST)
        stands = (view.phase(WAITS)[0], view.phase(LEAVES)[0]) == ("waiting", "running")
        if fullest and stands and not self._described:
            self._described = True
            self._console.print(self.picture(view))
            await self._describe(view.workloads[WAITS])

    def _print_eviction(self, name: str, workload: Object) -> None:
        """Report an eviction from the Workload's status, which keeps it after its short time."""
        times = evictions(workload)
        if times > self._left[name]:
            self._left[name] = times
            self._print_line(f"{name}: evicted - {message(workload, names.CONDITION_EVICTED)}")

    def _where(self, name: str, view: View) -> str:
        nodes = [p["spec"]["nodeName"] for p in view.pods.get(name, []) if p["spec"].get("nodeName")]
        places = Counter(self._domain(node) for node in nodes)
        shown = ", ".join(f"{'/'.join(place)} ({count})" for place, count in sorted(places.items())[:4])
        more = f" and {len(places) - 4} more racks" if len(places) > 4 else ""
        return f" in {shown}{more}"

    def _domain(self, node: str) -> tuple[str, str]:
        labels = self._nodes[node]
        return labels.get(BLOCK_LABEL, "?"), labels.get(RACK_LABEL, "?")

    def _print_line(self, line: str) -> None:
        self._console.print(Text(f"{time.strftime('%H:%M:%S')}  {printable(line)}"))

    def _screen(self, view: View) -> Table:
        table = Table(box=None, expand=True)
        table.add_column("job", no_wrap=True)
        table.add_column("queue", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("why or how far", overflow="ellipsis", no_wrap=True)
        for name in self._submitted:
            phase, why = view.phase(name)
            job = view.jobs.get(name)
            queue = job["metadata"]["labels"][names.QUEUE_NAME_LABEL] if job is not None else ""
            table.add_row(*(Text(printable(cell)) for cell in (name, queue, phase, why)))
        return table

    def picture(self, view: View) -> Table:
        """Draw the topology with one letter per node for the gang on it."""
        letters = {name: chr(ord("A") + i) for i, name in enumerate(CHAPTERS)}
        holder: dict[str, str] = {}
        for name, pods in view.pods.items():
            for pod in pods:
                if pod["spec"].get("nodeName") and pod_state(pod) != "ended":
                    holder[pod["spec"]["nodeName"]] = letters.get(name, "?")
        racks: dict[tuple[str, str], list[str]] = {}
        for node in sorted(self._nodes):
            racks.setdefault(self._domain(node), []).append(holder.get(node, "."))
        blocks = sorted({block for block, _ in racks})
        table = Table(title="The job on each node (a dot is free)", box=None, title_justify="left", padding=(0, 2))
        for block in blocks:
            table.add_column(block, no_wrap=True)
        lines = {place: f"{place[1]} {''.join(hosts)}" for place, hosts in sorted(racks.items())}
        rows = [[line for place, line in lines.items() if place[0] == block] for block in blocks]
        for i in range(max(len(row) for row in rows)):
            table.add_row(*(row[i] if i < len(row) else "" for row in rows))
        table.caption = "  ".join(f"{letter}={name}" for name, letter in letters.items() if letter in holder.values())
        table.caption_justify = "left"
        return table

    async def _describe(self, workload: Object) -> None:
        """Return the output of `kubectl describe workload`, from kubectl itself if it is installed."""
        name = workload["metadata"]["name"]
        self._console.print(f"\n$ kubectl describe workload {name}")
        text = await kubectl(self._client.server, "describe", "workload", name, "-n", "default")
        told = without_template(text) if text else conditions(workload)
        self._console.print(Text("\n".join(map(printable, told.split("\n")))))

    async def problems(self) -> list[str]:
        """Return violations: a gang outside its domain, a pod that never ran, an exceeded quota, a wait without a
        reason, a template that was not restored.
        """
        view = await self._look()
        found = [
            *self._witness.stray_pods(view, self._nodes, never=NEVER),
            *self._witness.exceeded(await self._client.list_json(CLUSTER_QUEUES)),
            *self._witness.not_restored(),
        ]
        for name in NEVER:
            if view.phase(name)[0] != "waiting" or "room for" not in view.phase(name)[1]:
                found.append(f"{name} should wait and say why, it is {view.phase(name)}")
        if not self._described:
            found.append(f"{WAITS} never waited")
        if not evictions(view.workloads.get(LEAVES, {})):
            found.append(f"{LEAVES} never had to leave")
        return found


def _is_child(job: Object) -> bool:
    """Whether a Job belongs to an owner that is queued."""
    return bool(owner(job))


def _request_of(job: Object) -> str:
    """Return the number of pods and the topology request, for people."""
    parts = [
        f"{name} {times * spec['parallelism']}" if times == 1 else f"{name} {times} x {spec['parallelism']}"
        for name, (times, spec) in job_specs(job).items()
        if name
    ]
    pods = f"{pods_asked(job)} pods" + (f" ({', '.join(parts)})" if parts else "")
    for key, word in _LEVELS.items():
        level = annotation(job, key)
        if level:
            together = ", all together" if annotation(job, names.PODSET_GROUP_NAME_ANNOTATION) else ""
            return f"{pods}, {word}: one {level.rpartition('-')[2]}{together}"
    return f"{pods}, no topology asked"


def _dash(text: str) -> str:
    return f" - {text}" if text else ""
