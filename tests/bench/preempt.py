"""`preempt/*`: one cycle of a full cluster, in which one workload finds whom to preempt, and these are told.

    preempt/full_1000               1,000 nodes of 30 resources in 8 groups, a workload on each; the preemptor has 200
                                    pods of half a node and selects a group
    preempt/block_of_64_shuffled    700 gangs on 2,000 hosts, reserved in random order; the preemptor has 64 pods, which
                                    take a whole block
    preempt/block_of_256_shuffled   the same with blocks four times as large
    preempt/block_of_64_in_order    the same with gangs reserved host after host
    preempt/fair_tree               fair sharing: 125 ClusterQueues without quota of their own, each in another cohort of
                                    a tree of 156, run eight workloads each on quota of the root; beside each of them
                                    another queue has a workload that preempts for its share

The victims are compared with those of a plain search on counts of free hosts; those of shares with what any order of
fair preemptions leaves: a victim for each preemptor, and no queue below the share of a preemptor.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any

from kqueue.core.preemption import SharingStrategy
from kqueue.core.topology import Domain, TopologyAssignment
from kqueue.scheduling.settings import LoopSettings
from tests.bench._crowd import PREEMPTING, Stage, cohorts, running
from tests.bench._scheduler import BLOCK, EPOCH, HOST, World
from tests.bench.table import Figure, Goal, Row, at_most, check, timed

QUEUE, HIGH = "cq", "cq/high"
OWN = {"withinClusterQueue": "LowerPriority"}


@dataclass(frozen=True, slots=True)
class Low:
    """A workload that runs: its name, the hosts it takes whole, and how many seconds after the first it began."""

    name: str
    hosts: tuple[int, ...]
    began: int


def on(hosts: tuple[str, ...]) -> TopologyAssignment:
    """A pod on each of the hosts."""
    return TopologyAssignment((HOST,), tuple(Domain((host,), 1) for host in hosts))


@dataclass(frozen=True)
class Case(ABC):
    """A cluster of equal hosts, each taken whole by a pod of somebody; `high` needs some of them in one domain.

    `domain_of` tells of a host where it stands, `needs` how many hosts of one domain the preemptor takes.
    """

    lows: tuple[Low, ...]
    domain_of: tuple[int, ...]
    needs: int
    goal: Goal | None = None
    domains: tuple[int, ...] = field(default=())
    """Those that count; all when empty."""

    @abstractmethod
    def fill(self, world: World) -> None:
        """Before the cycle."""

    def victims(self) -> set[str]:
        """Whom the rules name: the latest first until a domain has room, then back in, latest removed first."""
        free: Counter[int] = Counter()
        removed: list[Low] = []

        def fits() -> bool:
            return any(hosts >= self.needs for domain, hosts in free.items() if domain in (self.domains or (domain,)))

        for low in sorted(self.lows, key=lambda low: -low.began):
            free.update(self.domain_of[host] for host in low.hosts)
            removed.append(low)
            if fits():
                break
        for low in removed[-2::-1]:
            free.subtract(self.domain_of[host] for host in low.hosts)
            if fits():
                removed.remove(low)
            else:
                free.update(self.domain_of[host] for host in low.hosts)
        return {f"{QUEUE}/{low.name}" for low in removed}


class Blocks(Case):
    """Gangs on hosts of 8 GPUs, by 16 in a rack."""

    def fill(self, world: World) -> None:
        world.flavor(topology=True)
        hosts = [f"host-{i:04}" for i in range(len(self.domain_of))]
        for i, host in enumerate(hosts):
            resources: Mapping[str, str | int] = {"nvidia.com/gpu": 8, "cpu": 96, "memory": "1Ti", "pods": 110}
            world.node(host, block=f"block-{self.domain_of[i]:02}", rack=f"rack-{i // 16:03}", allocatable=resources)
        quota = {"cpu": str(96 * len(hosts)), "nvidia.com/gpu": str(8 * len(hosts))}
        world.queue(QUEUE, quota=quota, preemption=OWN)
        pod = {"cpu": "32", "nvidia.com/gpu": "8"}
        for low in self.lows:
            pods = len(low.hosts)
            usage = {"cpu": str(32 * pods), "nvidia.com/gpu": str(8 * pods)}
            where = on(tuple(hosts[i] for i in low.hosts))
            status = running(QUEUE, usage, pods=pods, since=EPOCH + timedelta(seconds=low.began), where=where)
            wish = {"unconstrained": True}
            world.workload(low.name, queue=QUEUE, pods=pods, requests=pod, topology=wish, status=status)
        later = EPOCH + timedelta(hours=1)
        wish_high: Mapping[str, Any] = {"required": BLOCK}
        world.workload(
            "high", queue=QUEUE, pods=self.needs, requests=pod, priority=100, topology=wish_high, created=later
        )


def blocks(racks: int, *, shuffled: bool, goal: Goal | None = None) -> Case:
    """2,000 hosts filled one after the other by gangs of 3, 3, 3, 3, 3, 3 and 2 pods; `racks` in a block."""
    sizes, gangs, host = (3, 3, 3, 3, 3, 3, 2), 700, 0
    names = [f"low-{i:03}" for i in range(gangs)]
    order = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest()) if shuffled else names
    began = {name: second for second, name in enumerate(order)}
    lows = []
    for i, name in enumerate(names):
        size = sizes[i % len(sizes)]
        lows.append(Low(name, tuple(range(host, host + size)), began[name]))
        host += size
    return Blocks(tuple(lows), tuple(i // (16 * racks) for i in range(host)), needs=64, goal=goal)


class Groups(Case):
    """Nodes of very many resources, a workload on each."""

    def fill(self, world: World) -> None:
        world.flavor(topology=True)
        others = [f"example.com/resource-{i:02}" for i in range(28)]
        node: dict[str, str | int] = {"cpu": 96, "memory": "384Gi", "pods": 110, **dict.fromkeys(others, 8)}
        half = {"cpu": "48", "memory": "192Gi", **dict.fromkeys(others, "4")}
        whole = {resource: str(amount) for resource, amount in node.items() if resource != "pods"}
        total = {"cpu": str(96 * len(self.lows)), "memory": f"{384 * len(self.lows)}Gi"}
        total |= dict.fromkeys(others, str(8 * len(self.lows)))
        world.queue(QUEUE, quota=total, preemption=OWN)
        for i, group in enumerate(self.domain_of):
            world.node(
                f"host-{i:04}",
                block=f"block-{i // 256}",
                rack=f"rack-{i // 16:02}",
                allocatable=node,
                labels={"group": f"group-{group}"},
            )
        for low in self.lows:
            since = EPOCH + timedelta(seconds=low.began)
            status = running(QUEUE, whole, since=since, where=on(tuple(f"host-{i:04}" for i in low.hosts)))
            wish = {"unconstrained": True}
            world.workload(low.name, queue=QUEUE, pods=1, requests=whole, topology=wish, status=status)
        world.workload(
            "high",
            queue=QUEUE,
            pods=2 * self.needs,
            requests=half,
            priority=100,
            topology={"unconstrained": True},
            template={"nodeSelector": {"group": f"group-{self.domains[0]}"}},
            created=EPOCH + timedelta(hours=1),
        )


FULL = Groups(
    tuple(Low(f"low-{i:04}", (i,), i) for i in range(1_000)),
    tuple(i % 8 for i in range(1_000)),
    needs=100,
    goal=at_most(100),
    domains=(3,),
)


def measure(case: Case, least: int | None = None) -> Iterator[Figure]:
    """The time of the cycle, and how many have to go; `least` is how many that may be."""
    wanted = case.victims()
    stage = Stage(case.fill)
    stage.advance(3_600)
    times = timed(stage.cycle, ready=stage.undo)
    written = stage.world.writer.patches
    victims = {key for key, patches in written.items() if "schedulingStats" in patches[-1]["status"]}
    check(victims == wanted, f"{sorted(victims)} have to go, by the rules it is {sorted(wanted)}")
    (told,) = written[HIGH]
    check(f"Preempting {len(wanted)} workloads" in told["status"]["conditions"][0]["message"], f"{told} tells it")
    stage.close()
    yield Figure("cycle_ms", times, goal=case.goal)
    yield Figure("victims", [len(victims)], goal=None if least is None else at_most(least))


# --- by share


QUEUES, PER_COHORT, EACH_RUNS = 250, 2, 8


def fill_shares(world: World) -> None:
    """Queues of even numbers run all that the root's queue lends, each of the others has one workload that waits."""
    world.flavor(topology=False)
    lowest = cohorts(world)
    world.queue("bank", quota={"cpu": str(QUEUES // 2 * EACH_RUNS)}, cohort="cohort")
    one = {"cpu": "1"}
    for i in range(QUEUES):
        world.queue(_queue(i), quota={"cpu": "0"}, cohort=lowest[i // PER_COHORT], preemption=PREEMPTING)
    for i in range(0, QUEUES, 2):
        for number in range(EACH_RUNS):
            began = EPOCH + timedelta(seconds=i * EACH_RUNS + number)
            status = running(_queue(i), one, since=began)
            world.workload(f"runs-{number}", queue=_queue(i), pods=1, requests=one, status=status)
    for i in range(1, QUEUES, 2):
        world.workload("waits", queue=_queue(i), pods=1, requests=one, created=EPOCH + timedelta(hours=2))


def _queue(i: int) -> str:
    return f"cq-{i:04}"


def measure_shares() -> Iterator[Figure]:
    """The time of the cycle, and how many have to go for how many."""
    stage = Stage(fill_shares, LoopSettings(fair=(SharingStrategy.LTE, SharingStrategy.LTI)))
    stage.advance(7_200)
    times = timed(stage.cycle, ready=stage.undo)
    written = stage.world.writer.patches
    victims = [key for key, patches in written.items() if "schedulingStats" in patches[-1]["status"]]
    told = [patches[-1]["status"].get("conditions", [{}])[0].get("message", "") for patches in written.values()]
    preemptors = sum("Preempting 1 workload" in message for message in told)
    lost = Counter(key.partition("/")[0] for key in victims)
    check(
        len(victims) == preemptors == QUEUES // 2,
        f"{len(victims)} have to go for {preemptors} preemptors of one cpu each",
    )
    check(
        all(queue.endswith(("0", "2", "4", "6", "8")) for queue in lost), f"{lost}: a queue without workloads loses one"
    )
    check(all(EACH_RUNS - count >= 1 for count in lost.values()), f"{lost}: a queue keeps less than a preemptor gets")
    stage.close()
    yield Figure("cycle_ms", times)
    yield Figure("victims", [len(victims)])


ROWS = (
    Row("preempt/fair_tree", measure_shares),
    Row("preempt/full_1000", partial(measure, FULL)),
    Row("preempt/block_of_64_shuffled", partial(measure, blocks(4, shuffled=True, goal=at_most(300)), least=23)),
    Row("preempt/block_of_256_shuffled", partial(measure, blocks(16, shuffled=True))),
    Row("preempt/block_of_64_in_order", partial(measure, blocks(4, shuffled=False))),
)
