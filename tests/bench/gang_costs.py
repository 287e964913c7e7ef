"""What gangs cost others: cycles, requests, and clusters without gangs.

gangs/heads/...    one cycle over 1,000 heads, as `heads/classical`, in turn with and without a rule of gangs; `ratio` is
                   the CPU time with the rule by that without it; goal: 1.05
    leader_elsewhere   another flavor is kept for the gang that is closest to its quorum
    leader             their flavor is kept for such a gang, so all heads wait for it
    card_type          the pods prefer the card type of the first of two flavors, which they would get without that, too
gangs/requests     the controller's requests that change something, for 20 gangs of 20 pods with PodGroups, by the record of
                   requests, from the first pod until all pods run and nothing is written any more
    member             patches of a pod; goal: 1
    placed_member      patches of a pod of a gang in one block; goal: 2
    extra              patches of a pod beyond the quorum; goal: 2
    workloads          Workloads made for a gang; goal: 1
    status_writes      writes of the status of a PodGroup; goal: 10
    idle_event         writes for each change of a pod that concerns kqueue in nothing; goal: 0
gangs/absent       all dialects are on and there are no gangs of them; each ratio is the CPU time with them by that with
                   Kueue's groups alone; goal: 1.05
    single_ratio       the view of a pod of 10 KB that is queued alone, from its bytes
    member_ratio       the view of a pod of Kueue's own group, from its bytes
    group_ratio        the reconcile of a group of 100 of Kueue's own dialect in which nothing changes
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.config import Timings, parse
from kqueue.controllers.raw import RawObject, as_json
from kqueue.jobs.gang.key import KUEUE_GROUPS
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.registry import frameworks
from kqueue.jobs.switches import JobFeatures
from kqueue.manager.process import Flags, running
from kqueue.observe import configure_logs
from kqueue.runtime.loop import freeze_after_sync, run
from kqueue.runtime.transport import RequestRecord
from kqueue.state.gangs import StartingGang
from tests.bench import heads, webhook
from tests.bench._crowd import Stage
from tests.bench._crowd import running as running_status
from tests.bench._gang_forms import by_pod_group
from tests.bench._scheduler import EPOCH, World
from tests.bench.gangs import UNCAPPED, plain_queues
from tests.bench.pod_group import CONFIGURATION, POD_PATH, PREFIX, Form, Listed, define, pod
from tests.bench.road import Cluster, Object, queues, sandbox
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.jobs.pods import make_pod

GOAL_RATIO = 1.05
ROUNDS = 4
"""Turns of each side in a repetition."""


def in_turn(without: Callable[[], float], with_rule: Callable[[], float]) -> list[float]:
    """Return ratios of times that were taken in turn, one for each repetition; the first turn does not count."""
    without()
    with_rule()
    gc.collect()
    freeze_after_sync()
    found = []
    for _ in range(REPETITIONS):
        pairs = [(without(), with_rule()) for _ in range(ROUNDS)]
        found.append(statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs))
    gc.unfreeze()
    return found


# --- cycles


LEADER = "gang/leader"
CARD = "h100"


def plain(world: World) -> None:
    """Heads without any rule of gangs."""
    heads.fill(world)


def led(world: World, flavor: str) -> None:
    """The same heads, and a flavor that is kept for a gang with quota."""
    heads.fill(world)
    namespace, name = LEADER.split("/")
    used = {"cpu": "1"}
    world.queue(namespace, quota={"cpu": "1"})
    world.workload(name, queue=namespace, pods=1, requests=used, status=running_status(namespace, used))
    gang = StartingGang(
        key=f"{namespace}/f:{name}",
        uid="leader",
        workload=LEADER,
        since=EPOCH,
        scheduled=1,
        quorum=2,
        flavors=frozenset({flavor}),
        keeps=flavor,
        until=EPOCH.replace(year=EPOCH.year + 1),
    )
    world.cache.gangs.note(gang)


def carded(world: World, *, wish: bool) -> None:
    """Two flavors with card types, and heads that perhaps prefer the first one."""
    wished = {names.CARD_TYPE_PREFERRED_ANNOTATION: CARD} if wish else None
    heads.fill(world, flavors=("flavor", "other"), annotations=wished)
    for flavor, card in (("flavor", CARD), ("other", "a100")):
        body = {"metadata": {"name": flavor, "annotations": {names.CARD_TYPE_ANNOTATION: card}}, "spec": {}}
        world.intake.on_flavor(None, msgspec.convert(body, wire.ResourceFlavor))


def cycle_ratio(
    without: Callable[[World], None], with_rule: Callable[[World], None], *, admits: bool = True
) -> Iterator[Figure]:
    """Compare cycles of two worlds; `admits`: whether heads are admitted in spite of the rule."""
    stages = Stage(without), Stage(with_rule)

    def cycle(stage: Stage) -> float:
        stage.undo()
        begun = time.thread_time()
        stage.cycle()
        return time.thread_time() - begun

    ratios = in_turn(partial(cycle, stages[0]), partial(cycle, stages[1]))
    admitted = [len(stage.admitted()) for stage in stages]
    check(admitted[1] == (admitted[0] if admits else 0), f"{admitted} are admitted without and with the rule")
    for stage in stages:
        stage.close()
    yield Figure("ratio", ratios, goal=at_most(GOAL_RATIO))
    yield Figure("admitted", [admitted[1]])


# --- requests


GANGS, MEMBERS, BEYOND = 20, 20, 2
QUIET_SECONDS, PATIENCE = 5.0, 240.0


class Writes:
    """Counts the controller's requests that change something."""

    def __init__(self) -> None:
        self.found: Counter[tuple[str, str, str]] = Counter()
        self._last = time.monotonic()

    def count(self, record: RequestRecord) -> None:
        """Take one request that has ended."""
        if record.verb not in ("get", "list", "watch"):
            self.found[record.verb, record.resource.partition(".")[0], record.subresource] += 1
            self._last = time.monotonic()

    async def rest(self) -> None:
        """Wait until nothing was written for some seconds."""
        self._last = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            while (left := self._last + QUIET_SECONDS - time.monotonic()) > 0:
                await asyncio.sleep(left)


@dataclass(frozen=True, slots=True)
class Counted:
    """The requests of one run."""

    writes: Counter[tuple[str, str, str]]
    idle: int
    """Writes after each pod had got an annotation that says nothing to kqueue."""

    def patches(self) -> int:
        """Return the patches of pods."""
        return self.writes["patch", "pods", ""]


def gang_pods(gang: int, *, topology: bool, form: Form) -> Iterator[Object]:
    """Yield the members of one gang as the webhook leaves them."""
    gates = ("admission", "topology") if topology else ("admission",)
    for index in range(MEMBERS):
        made = pod(index, topology=topology, form=form)
        made["metadata"]["name"] = f"gang-{gang}-{index}"
        made["spec"]["schedulingGates"] = [{"name": f"{PREFIX}{gate}"} for gate in gates]
        yield made


async def counted(kubeconfig: Path, *, topology: bool, quorum: int) -> Counted:
    """Run all gangs, and then change each pod in a way that concerns kqueue in nothing."""
    writes = Writes()
    forms = [by_pod_group(f"gang-{gang}", quorum) for gang in range(GANGS)]
    await define(kubeconfig, forms[0])
    parts = frozenset({"core", "scheduler", "jobs", "topology"})
    flags = Flags(kubeconfig=kubeconfig, parts=parts, health_address="0", metrics_address="0")
    configuration = parse(CONFIGURATION % forms[0].framework + UNCAPPED, source="bench", own_namespace="kqueue-system")
    async with (
        aiohttp.ClientSession() as session,
        running(configuration, flags, timings=Timings(), on_request=writes.count) as process,
    ):
        cluster = Cluster(session, process.operator.client.server)
        for collection, obj in queues() if topology else plain_queues():
            await cluster.ask("POST", collection, obj)
        await process.operator.ready.wait()
        await writes.rest()
        writes.found.clear()
        for gang, form in enumerate(forms):
            assert form.group is not None
            await cluster.ask("POST", *form.group)
            for made in gang_pods(gang, topology=topology, form=form):
                await cluster.ask("POST", POD_PATH, made)
        await cluster.until(POD_PATH, _all_run)
        await writes.rest()
        run_writes = Counter(writes.found)
        writes.found.clear()
        await annotate(session, process.operator.client.server)
        await writes.rest()
        return Counted(run_writes, writes.found.total())


def _all_run(found: Object) -> bool:
    pods = msgspec.convert(found, Listed).items
    return len(pods) == GANGS * MEMBERS and all(each.status.phase == "Running" for each in pods)


async def annotate(session: aiohttp.ClientSession, url: str) -> None:
    """Give each pod an annotation."""
    body = msgspec.json.encode({"metadata": {"annotations": {"example.dev/seen": "true"}}})
    headers = {"Content-Type": "application/merge-patch+json"}
    for found in (await Cluster(session, url).ask("GET", POD_PATH))["items"]:
        async with session.patch(f"{url}{POD_PATH}/{found['metadata']['name']}", data=body, headers=headers) as answer:
            answer.raise_for_status()


def requests() -> Iterator[Figure]:
    """The requests of gangs without a topology, in one block each, and with members beyond their quorum."""
    configure_logs("console", "error")
    pods = GANGS * MEMBERS
    found = []
    for topology, quorum in ((False, MEMBERS), (True, MEMBERS), (False, MEMBERS - BEYOND)):
        with sandbox("4x8x16") as kubeconfig:
            found.append(run(counted(kubeconfig, topology=topology, quorum=quorum)))
    whole, placed, beyond = found
    extras = GANGS * BEYOND
    yield Figure("member", [whole.patches() / pods], goal=at_most(1))
    yield Figure("placed_member", [placed.patches() / pods], goal=at_most(2))
    yield Figure("extra", [(beyond.patches() - (pods - extras)) / extras], goal=at_most(2))
    for each in found[:2]:
        yield Figure("workloads", [each.writes["create", "workloads", ""] / GANGS], goal=at_most(1))
        yield Figure("status_writes", [each.writes["patch", "podgroups", "status"] / GANGS], goal=at_most(10))
    yield Figure("idle_event", [sum(each.idle for each in found) / (len(found) * pods)], goal=at_most(0))


# --- clusters without gangs


OFF = JobFeatures(gangs=(KUEUE_GROUPS,))
ON = replace(OFF, gangs=frameworks())
VIEWS, MEMBERS_OF_GROUP = 2_000, 100


def view_seconds(body: bytes, switches: JobFeatures) -> float:
    """Return the CPU time of so many views of one pod, from its bytes as a watch reads it."""
    decoder = msgspec.json.Decoder(RawObject)
    begun = time.thread_time()
    for _ in range(VIEWS):
        managed_pod(as_json(decoder.decode(body)), switches)
    return time.thread_time() - begun


def pod_bytes(group: str) -> bytes:
    """Return a pod of 10 KB as the API server sends it, perhaps in a group of Kueue's own dialect."""
    made = webhook.pod()
    marks = make_pod("p", group=group, total=2)["metadata"]
    made["metadata"] |= {part: marks[part] for part in ("labels", "annotations", "finalizers")}
    return msgspec.json.encode(made)


async def running_group(switches: JobFeatures) -> Pods:
    """A world with a group of Kueue's own dialect that runs."""
    made = [grouped(f"p-{index}", total=MEMBERS_OF_GROUP) for index in range(MEMBERS_OF_GROUP)]
    world = Pods(*made, switches=switches)
    await world.rest(GROUP)
    world.admit("g")
    await world.rest(GROUP)
    world.runs(*(f"p-{index}" for index in range(MEMBERS_OF_GROUP)))
    await world.rest(GROUP)
    return world


def absent() -> Iterator[Figure]:
    """Views and reconciles with all dialects and with Kueue's alone."""
    configure_logs("console", "error")
    goal = at_most(GOAL_RATIO)
    for metric, group in (("single_ratio", ""), ("member_ratio", "g")):
        body = pod_bytes(group)
        yield Figure(metric, in_turn(*(partial(view_seconds, body, each) for each in (OFF, ON))), goal=goal)
    with asyncio.Runner() as runner:
        worlds = [runner.run(running_group(switches)) for switches in (OFF, ON)]

        def reconciled(world: Any) -> float:
            begun = time.thread_time()
            for _ in range(10):
                runner.run(world.reconcile(GROUP))
            return time.thread_time() - begun

        before = [len(world.client.writes()) for world in worlds]
        ratios = in_turn(*(partial(reconciled, world) for world in worlds))
        check([len(world.client.writes()) for world in worlds] == before, "a reconcile without a change has written")
        for world in worlds:
            runner.run(world.close())
    yield Figure("group_ratio", ratios, goal=goal)


ROWS = (
    Row("gangs/heads/leader_elsewhere", partial(cycle_ratio, plain, partial(led, flavor="kept")), alone=True),
    Row("gangs/heads/leader", partial(cycle_ratio, plain, partial(led, flavor="flavor"), admits=False), alone=True),
    Row(
        "gangs/heads/card_type",
        partial(cycle_ratio, partial(carded, wish=False), partial(carded, wish=True)),
        alone=True,
    ),
    Row("gangs/requests", requests, alone=True),
    Row("gangs/absent", absent, alone=True),
)
