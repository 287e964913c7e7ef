"""Recorded days: a future of the planner is simulated, and each of its cycles is recorded as in a controller."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path

from kqueue.core import quota
from kqueue.core.decision import Decision
from kqueue.core.future.day import Day, RememberingDrain
from kqueue.core.future.question import DrainBounds, Line, StartQuestion, WaitingWorkload
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology import HOSTNAME, Capacity, Leaf, NodeFacts, PodSetRequest, TopologyRequest, Tree
from kqueue.core.workload import (
    Flavor,
    Head,
    PodSet,
    Preempts,
    QueueSpec,
    ResourceGroup,
    Snapshot,
    TopologyView,
)
from kqueue.record.capture import Captures
from kqueue.record.ring import Ring, RingSettings
from tests.builders import START

GPU, GPUS = "nvidia.com/gpu", 8
LEVELS = ("block", "rack", HOSTNAME)
COLUMN = FlavorResource("gpu", GPU)
DAY = 86_400
_GANGS = ((1, "host"), (2, "rack"), (4, "rack"), (8, "rack"), (16, "block"))
"""Hosts of a gang, and the level of its topology request."""


def _tree(blocks: int, racks: int, hosts: int) -> Tree:
    leaves = []
    for block in range(blocks):
        for rack in range(racks):
            for host in range(hosts):
                path = (f"b{block}", f"b{block}-r{rack}", f"b{block}-r{rack}-h{host:02}")
                labels = dict(zip(LEVELS, path, strict=True))
                node = NodeFacts(name=path[-1], labels=labels, allocatable={GPU: GPUS, "pods": 110})
                leaves.append(Leaf(path, (node,)))
    return Tree(topology="dc", levels=LEVELS, leaves=leaves)


def _arrival(number: int, queue: str, chance: random.Random, seconds: int) -> WaitingWorkload:
    hosts, level = chance.choice(_GANGS)
    topology = TopologyRequest(unconstrained=True) if level == "host" else TopologyRequest(required=level)
    at = START + timedelta(seconds=chance.randrange(seconds))
    request = PodSetRequest(name="main", count=hosts, requests={GPU: GPUS}, topology=topology)
    head = Head(
        key=f"{queue}/w{number:05}",
        uid=f"u{number:05}",
        queue=queue,
        priority=chance.choice((0, 0, 0, 10)),
        timestamp=at,
        pod_sets=(PodSet(request=request, quota_requests={GPU: GPUS}, asks_topology=True),),
    )
    run = int(chance.lognormvariate(7.2, 0.9)) + 30
    return WaitingWorkload(
        head=head,
        run_time=RunTime(p50=run, p90=run, source=RunTimeSource.LEARNED),
        shape=f"{hosts}/{level}/{head.priority}",
        not_before=at if at > START else None,
    )


def make_question(
    seed: int,
    workloads: int,
    *,
    queues: int = 4,
    size: tuple[int, int, int] = (2, 4, 16),
    preempts: bool = True,
    seconds: int = DAY,
) -> StartQuestion:
    """Gangs that arrive over a day at ClusterQueues of one cohort; `size`: blocks, racks, and hosts of a rack."""
    chance, tree = random.Random(seed), _tree(*size)
    names = [f"team-{number}" for number in range(queues)]
    share = len(tree) * GPUS // queues
    root = QuotaNode("all", is_cohort=True)
    root.children = [QuotaNode(name, parent=root, quotas={COLUMN: Quota(share)}) for name in names]
    quota.rebuild(root)
    policy = Preempts.LOWER_PRIORITY if preempts else Preempts.NEVER
    specs = {
        name: QueueSpec(name=name, groups=(ResourceGroup((GPU,), ("gpu",)),), preempts_own=policy) for name in names
    }
    snapshot = Snapshot(
        queues=specs,
        nodes={node.name: node for node in root.children},
        flavors={"gpu": Flavor(name="gpu", topology="dc")},
        topologies={"gpu": TopologyView("dc", tree, Capacity.of(tree))},
        admitted={name: {} for name in names},
    )
    lines: dict[str, list[WaitingWorkload]] = {name: [] for name in names}
    for number in range(workloads):
        name = chance.choice(names)
        lines[name].append(_arrival(number, name, chance, seconds))
    for some in lines.values():
        some.sort(key=lambda one: (-one.head.priority, one.head.timestamp, one.head.uid))
    return StartQuestion(
        state=PlannedState(snapshot=snapshot, rules=Rules(now=START)),
        lines=tuple(Line(queue=name, is_strict=False, workloads=tuple(some)) for name, some in lines.items()),
        bounds=DrainBounds(horizon=seconds, tries=10_000_000, workloads=1_000_000),
    )


class _RecordedDrain(RememberingDrain):
    """Records each cycle."""

    def __init__(self, question: StartQuestion, ring: Ring) -> None:
        super().__init__(question)
        self._ring, self._captures, self._number = ring, Captures(), 0

    def _planned(self, heads: list[Head]) -> Iterable[Decision]:
        now: datetime = self._now
        question = PlanQuestion(
            snapshot=self._world.snapshot({head.queue for head in heads}),
            heads=heads,
            rules=self._world.rules(now, heads),
            order=self._question.order,
            looks=self._question.looks,
        )
        self._number += 1
        captured = self._captures.take(self._number, question)

        def next_head(queue: str, without: Collection[str]) -> Head | None:
            head = self._lines.next_head(queue, without)
            captured.asked.append((queue, tuple(without), head))
            return head

        captured.decisions.extend(question.decisions(next_head=next_head, cache=self._cache))
        self._ring.write(captured, now)
        return captured.decisions


def record_day(question: StartQuestion, folder: Path) -> Day:
    """Record a day into a folder; return what happened in it."""
    ring = Ring(RingSettings(path=folder, max_bytes=1 << 30, max_age=timedelta(days=2), version="v9.9.9"))
    drain = _RecordedDrain(question, ring)
    drain.run()
    ring.close()
    return drain.day()
