"""The demo's story: what is submitted, what is shown while it runs, and the checks at the end."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from kqueue.api import names
from kqueue.cli.process import Flags, Running, running
from kqueue.config import Configuration, Timings, load
from kqueue.controllers.resources import CLUSTER_QUEUES, NODES, PODS, WORKLOADS
from kqueue.core.quantity import format_quantity, parse_quantity
from kqueue.errors import ConfigError, KqueueError
from kqueue.runtime.client import Client, connect
from kqueue.runtime.resources import ResourceType
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL, parse_topology

Object = dict[str, Any]

JOBS = ResourceType("batch", "v1", "jobs", "Job")
CHAPTERS = ("block-gang-a", "block-gang-b", "rack-gang", "spread-gang", "plain-job", "patient-gang", "impossible-gang")
"""Jobs in the order in which they are submitted."""
NEVER = frozenset({"impossible-gang"})
WAITS = "patient-gang"
LIMIT_SECONDS = 150.0
"""When to give up; the story takes about half a minute."""
_LEVELS = {names.REQUIRED_TOPOLOGY_ANNOTATION: "required", names.PREFERRED_TOPOLOGY_ANNOTATION: "preferred"}


@dataclass(slots=True)
class View:
    """What the cluster looks like at one moment."""

    jobs: dict[str, Object] = field(default_factory=dict)
    workloads: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, list[Object]] = field(default_factory=dict)

    def phase(self, name: str) -> tuple[str, str]:
        """(one word, why) for a job."""
        workload, job = self.workloads.get(name), self.jobs.get(name)
        if job is not None and _is_true(job, "Complete"):
            return "finished", ""
        if workload is None:
            return "submitted", ""
        if not _is_true(workload, names.CONDITION_ADMITTED):
            return "waiting", _message(workload, names.CONDITION_QUOTA_RESERVED)
        phases = Counter(_pod_state(pod) for pod in self.pods.get(name, []))
        total = sum(p["count"] for p in workload["spec"]["podSets"])
        if phases["running"] + phases["ended"] >= total:
            return "running", f"{phases['running']} pods"
        waiting = total - phases["running"] - phases["ended"]
        return "starting", f"{phases['gated']} gated, {waiting - phases['gated']} released, {phases['running']} running"


def _pod_state(pod: Object) -> str:
    phase = pod.get("status", {}).get("phase", "")
    if phase in ("Succeeded", "Failed"):
        return "ended"
    if phase == "Running":
        return "running"
    return "gated" if pod["spec"].get("schedulingGates") else "released"


def _is_true(obj: Object, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in obj.get("status", {}).get("conditions", []))


def _message(obj: Object, kind: str) -> str:
    found = (c["message"] for c in obj.get("status", {}).get("conditions", []) if c["type"] == kind)
    return next(found, "in the queue")


def examples_folder() -> Path:
    """Where the example manifests are: in a checkout, or beside the installed package.

    Raises:
        ConfigError: neither is there.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "examples", package / "_examples"):
        if (folder / "queues.yaml").exists():
            return folder
    raise ConfigError(f"the demo's manifests are not in {package.parent / 'examples'}; reinstall kqueue")


async def tell(topology: str, *, keep: bool) -> int:
    """Run the demo; returns the exit code."""
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    spec = parse_topology(topology)
    started = time.monotonic()
    async with _cluster(topology, console) as (sandbox, process, client):
        console.print(f"{spec.size} nodes and kqueue are up after {time.monotonic() - started:.1f} s.\n")
        story = Story(client, console, list(spec.levels))
        await story.submit_all()
        await story.watch()
        problems = [*await story.problems(), *process_problems(process)]
        for problem in problems:
            console.print(f"PROBLEM: {problem}", style="bold red")
        if not problems:
            console.print("Checked: every gang ran inside its domain, and no quota was exceeded.", style="bold green")
        if keep:
            await _stay(sandbox, console)
    return 1 if problems else 0


def process_problems(process: Running) -> list[str]:
    """What went wrong in the controller itself."""
    if process.task.done():
        return [f"the controller ended: {process.task.exception()}"]
    return [f"the cache drifted: {drift}" for drift in process.operator.cache.audit()]


@asynccontextmanager
async def _cluster(topology: str, console: Console) -> AsyncIterator[tuple[Sandbox, Running, Client]]:
    console.print(f"Starting a simulated cluster ({topology}: blocks x racks x hosts) with kqueue on it ...")
    with tempfile.TemporaryDirectory(prefix="kqueue-demo-") as folder:
        sandbox = Sandbox(SandboxOptions(topology=parse_topology(topology), port=0))
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
            )
            async with (
                await connect(kubeconfig) as client,
                running(_configuration(), flags, timings=Timings(queue_flush_window=0.2)) as process,
            ):
                await asyncio.wait_for(process.operator.ready.wait(), 30)
                yield sandbox, process, client
        finally:
            await sandbox.stop()


def _configuration() -> Configuration:
    found = load(None)
    election = found.leader_election.model_copy(update={"leader_elect": False})
    return found.model_copy(update={"leader_election": election})


async def _stay(sandbox: Sandbox, console: Console) -> None:
    kubeconfig = Path(tempfile.gettempdir()) / f"kqueue-demo-{os.getpid()}.kubeconfig"
    sandbox.write_kubeconfig(kubeconfig)
    console.print("\nThe cluster stays up until you press ctrl-C.  In another terminal:\n")
    console.print(f"    export KUBECONFIG={kubeconfig}")
    console.print("    kubectl get workloads,jobs,pods\n    kubectl describe workload\n")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        console.print("Goodbye.")
    finally:
        kubeconfig.unlink(missing_ok=True)


class Story:
    """Submits, watches, checks."""

    def __init__(self, client: Client, console: Console, levels: list[str]) -> None:
        self._client, self._console, self._levels = client, console, levels
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._said: dict[str, tuple[str, str]] = {}
        self._described = False
        self._usages: list[Counter[tuple[str, str]]] = []
        """Usage per (ClusterQueue, resource), at every moment at which it was seen to differ from the one before."""
        self._seen_pods: dict[str, dict[str, str]] = {}
        """Job to pod to node, of every pod ever seen on a node."""

    async def submit_all(self) -> None:
        """Create the queues and then the jobs, from the example manifests."""
        folder = examples_folder()
        for obj in _documents(folder / "queues.yaml"):
            await self._client.create(_type_of(obj), obj)
        for name in CHAPTERS:
            obj = next(_documents(folder / f"{name}.yaml"))
            created = await self._client.create(JOBS, obj)
            asks = _request_of(created)
            self._say(f"submitted {name}: {created['spec']['parallelism']} pods, {asks}")
            if not created["spec"].get("suspend"):
                raise KqueueError(f"job {name} was not suspended by the webhook")
            await asyncio.sleep(0.3)  # a person reads along

    async def watch(self) -> None:
        """Show progress until every job that can finish has."""
        deadline = time.monotonic() + LIMIT_SECONDS
        live = Live(console=self._console, refresh_per_second=4, transient=True) if self._console.is_terminal else None
        if live is not None:
            live.start()
        try:
            while True:
                view = await self._look()
                await self._tell(view)
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
        jobs, workloads, pods = await asyncio.gather(
            self._client.list_json(JOBS, "default"),
            self._client.list_json(WORKLOADS, "default"),
            self._client.list_json(PODS, "default"),
        )
        view = View(jobs={job["metadata"]["name"]: job for job in jobs})
        view.workloads = {_owner(w): w for w in workloads}
        for pod in pods:
            view.pods.setdefault(_owner(pod), []).append(pod)
            node = pod["spec"].get("nodeName")
            if node:
                self._seen_pods.setdefault(_owner(pod), {})[pod["metadata"]["name"]] = node
        for workload in workloads:
            admission = workload.get("status", {}).get("admission")
            if admission and not _is_true(workload, names.CONDITION_FINISHED):
                view.workloads[_owner(workload)] = workload
        self._note_usage(workloads)
        return view

    def _note_usage(self, workloads: Iterable[Object]) -> None:
        now: Counter[tuple[str, str]] = Counter()
        for workload in workloads:
            admission = workload.get("status", {}).get("admission")
            if not admission or _is_true(workload, names.CONDITION_FINISHED):
                continue
            for pod_set in admission["podSetAssignments"]:
                for resource, amount in pod_set.get("resourceUsage", {}).items():
                    now[admission["clusterQueue"], resource] += parse_quantity(amount, resource)
        if not self._usages or self._usages[-1] != now:
            self._usages.append(now)

    async def _tell(self, view: View) -> None:
        """One plain line per change, and the map and the explanation when the story is at its fullest."""
        for name in CHAPTERS:
            phase, why = view.phase(name)
            before = self._said.get(name)
            if before is None or before[0] != phase or (phase == "waiting" and before[1] != why):
                self._said[name] = (phase, why)
                self._say(f"{name}: {phase}{self._where(name, view) if phase == 'running' else ''}" + _dash(why))
        fullest = all(view.phase(n)[0] in ("running", "waiting", "finished") for n in CHAPTERS)
        if fullest and view.phase(WAITS)[0] == "waiting" and not self._described:
            self._described = True
            self._console.print(self.picture(view))
            await self._describe(view.workloads[WAITS])

    def _where(self, name: str, view: View) -> str:
        nodes = [p["spec"]["nodeName"] for p in view.pods.get(name, []) if p["spec"].get("nodeName")]
        places = Counter(self._domain(node) for node in nodes)
        shown = ", ".join(f"{'/'.join(place)} ({count})" for place, count in sorted(places.items())[:4])
        more = f" and {len(places) - 4} more racks" if len(places) > 4 else ""
        return f" in {shown}{more}"

    def _domain(self, node: str) -> tuple[str, str]:
        labels = self._nodes[node]
        return labels.get(BLOCK_LABEL, "?"), labels.get(RACK_LABEL, "?")

    def _say(self, line: str) -> None:
        self._console.print(Text(f"{time.strftime('%H:%M:%S')}  {line}"))

    def _screen(self, view: View) -> Table:
        table = Table(box=None, expand=True)
        table.add_column("job", no_wrap=True)
        table.add_column("queue", no_wrap=True)
        table.add_column("state", no_wrap=True)
        table.add_column("why or how far", overflow="ellipsis", no_wrap=True)
        for name in CHAPTERS:
            phase, why = view.phase(name)
            job = view.jobs.get(name)
            queue = job["metadata"]["labels"][names.QUEUE_NAME_LABEL] if job is not None else ""
            table.add_row(name, queue, phase, why)
        return table

    def picture(self, view: View) -> Table:
        """The topology with who holds what: one letter per node."""
        letters = {name: chr(ord("A") + i) for i, name in enumerate(CHAPTERS)}
        holder: dict[str, str] = {}
        for name, pods in view.pods.items():
            for pod in pods:
                if pod["spec"].get("nodeName") and _pod_state(pod) != "ended":
                    holder[pod["spec"]["nodeName"]] = letters.get(name, "?")
        racks: dict[tuple[str, str], list[str]] = {}
        for node in sorted(self._nodes):
            racks.setdefault(self._domain(node), []).append(holder.get(node, "."))
        blocks = sorted({block for block, _ in racks})
        table = Table(title="Who holds which node (a dot is free)", box=None, title_justify="left", padding=(0, 2))
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
        """What `kubectl describe workload` says, from kubectl itself where there is one."""
        name = workload["metadata"]["name"]
        self._console.print(f"\n$ kubectl describe workload {name}")
        text = await _kubectl(self._client.server, "describe", "workload", name, "-n", "default")
        self._console.print(Text(_without_template(text) if text else _conditions(workload)))

    # --- checks ------------------------------------------------------------------------------------------------

    async def problems(self) -> list[str]:
        """What broke a promise: a gang outside its domain, a pod that never ran, a quota exceeded, a silent wait."""
        view = await self._look()
        found = [*self._stray_pods(view), *await self._exceeded()]
        for name in NEVER:
            if view.phase(name)[0] != "waiting" or "room for" not in view.phase(name)[1]:
                found.append(f"{name} should wait and say why, it is {view.phase(name)}")
        if not self._described:
            found.append(f"{WAITS} never waited")
        return found

    def _stray_pods(self, view: View) -> Iterable[str]:
        for name, job in view.jobs.items():
            level = _annotation(job, names.REQUIRED_TOPOLOGY_ANNOTATION)
            nodes = self._seen_pods.get(name, {})
            if level and name not in NEVER:
                upto = self._levels[: self._levels.index(level) + 1]
                domains = {tuple(self._nodes[node][label] for label in upto) for node in nodes.values()}
                if len(domains) != 1:
                    yield f"{name} must run in one domain of {level} and ran in {sorted(domains)}"
            if name not in NEVER and len(nodes) != job["spec"]["parallelism"]:
                yield f"{name} has {job['spec']['parallelism']} pods, {len(nodes)} were seen on nodes"

    async def _exceeded(self) -> list[str]:
        """Cohort by cohort: the most that its queues used at one moment against what they have together."""
        have: Counter[tuple[str, str]] = Counter()
        cohorts: dict[str, str] = {}
        for queue in await self._client.list_json(CLUSTER_QUEUES):
            name = queue["metadata"]["name"]
            cohort = cohorts[name] = queue["spec"].get("cohortName") or name
            for group in queue["spec"]["resourceGroups"]:
                for flavor in group["flavors"]:
                    for r in flavor["resources"]:
                        have[cohort, r["name"]] += parse_quantity(r["nominalQuota"], r["name"])
        peak: Counter[tuple[str, str]] = Counter()
        for usage in self._usages:
            used: Counter[tuple[str, str]] = Counter()
            for (queue_name, resource), amount in usage.items():
                used[cohorts.get(queue_name, queue_name), resource] += amount
            peak |= used  # the larger of the two, entry by entry
        return [
            f"cohort {cohort} used {format_quantity(amount, r)} {r} of {format_quantity(have[cohort, r], r)}"
            for (cohort, r), amount in peak.items()
            if amount > have[cohort, r]
        ]


def _documents(path: Path) -> Any:
    return (doc for doc in yaml.safe_load_all(path.read_text()) if doc)


def _type_of(obj: Object) -> ResourceType:
    plurals = {
        names.TOPOLOGY_KIND: "topologies",
        names.RESOURCE_FLAVOR_KIND: "resourceflavors",
        names.CLUSTER_QUEUE_KIND: "clusterqueues",
        names.LOCAL_QUEUE_KIND: "localqueues",
    }
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = obj["kind"]
    return ResourceType(group, version, plurals[kind], kind, namespaced="namespace" in obj["metadata"])


def _owner(obj: Object) -> str:
    return next((o["name"] for o in obj["metadata"].get("ownerReferences", []) if o.get("controller")), "")


def _annotation(job: Object, key: str) -> str:
    return str(job["spec"]["template"].get("metadata", {}).get("annotations", {}).get(key, ""))


def _request_of(job: Object) -> str:
    for key, word in _LEVELS.items():
        level = _annotation(job, key)
        if level:
            return f"{word}: one {level.rpartition('-')[2]}"
    return "no topology asked"


def _dash(text: str) -> str:
    return f" - {text}" if text else ""


async def _kubectl(server: str, *args: str) -> str:
    """kubectl's words; empty where there is no kubectl, or it fails."""
    program = shutil.which("kubectl")
    if program is None:
        return ""
    process = await asyncio.create_subprocess_exec(
        program, "--server", server, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    except TimeoutError:
        process.kill()
        await process.wait()
        return ""
    return out.decode(errors="replace") if process.returncode == 0 else ""


def _without_template(text: str) -> str:
    """The description without the pod template, which the user wrote and knows."""
    kept: list[str] = []
    skip_deeper_than: int | None = None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if skip_deeper_than is not None and (indent > skip_deeper_than or not line.strip()):
            continue
        skip_deeper_than = None
        if line.strip() in ("Template:", "Managed Fields:"):
            skip_deeper_than = indent
            continue
        kept.append(line)
    return "\n".join(kept)


def _conditions(workload: Object) -> str:
    lines = [
        f"  {c['type']}={c['status']} ({c['reason']}) since {c['lastTransitionTime']}: {c['message']}"
        for c in workload["status"]["conditions"]
    ]
    return "\n".join(["Conditions:", *lines])
