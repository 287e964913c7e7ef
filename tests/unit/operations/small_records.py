"""Small records written by hand: two ClusterQueues of ten GPUs in one cohort, and what their cycles saw and decided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from kqueue.core import quota
from kqueue.core.decision import Admit, Decision, Outcome, PlacementQuality, Preempt, Wait
from kqueue.core.explain import WaitReason
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.preemption import PreemptionReason, Rules, Target
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology.result import LevelQuality
from kqueue.core.workload import Admission, Admitted, Claim, Flavor, Head, PodSetAssignment, QueueSpec, Snapshot
from kqueue.record.capture import CapturedCycle, Captures
from kqueue.record.ring import Ring, RingSettings
from kqueue.record.told import ToldInterval
from tests.builders import START

GPUS = FlavorResource("gpu", "nvidia.com/gpu")


def at(seconds: float) -> datetime:
    """A time so long after the begin."""
    return START + timedelta(seconds=seconds)


def head(name: str, queue: str = "a", *, came: float = 0) -> Head:
    """A workload that is in line since `came`."""
    return Head(key=f"ns/{name}", uid=name, queue=queue, priority=0, timestamp=at(came), pod_sets=())


def held(name: str, queue: str = "a", *, gpus: int = 4, evicted: bool = False) -> Admitted:
    """A workload with quota."""
    return Admitted(
        key=f"ns/{name}",
        uid=name,
        queue=queue,
        local_queue="ns/lq",
        priority=0,
        timestamp=START,
        reserved_at=START,
        evicted=evicted,
        usage={GPUS: gpus},
    )


def admits(one: Head, *, gpus: int = 4, levels: Sequence[tuple[str, int, int]] = ()) -> Admit:
    """An admission; `levels`: name, domains used, fewest possible."""
    pod_set = PodSetAssignment(name="main", flavors={GPUS.resource: GPUS.flavor}, usage={GPUS.resource: gpus}, count=1)
    quality = PlacementQuality(algorithm="BestFit", proven=None, levels=tuple(LevelQuality(*one) for one in levels))
    return Admit(
        head=one, admission=Admission(queue=one.queue, pod_sets=(pod_set,)), quality=(quality,) if levels else ()
    )


def waits(one: Head) -> Wait:
    """A refusal."""
    return Wait(head=one, outcome=Outcome.NO_FIT, reason=WaitReason.WAITING_FOR_QUOTA, blockers=())


def preempts(one: Head, *victims: Admitted) -> Preempt:
    """A preemption by reclaim."""
    return Preempt(
        head=one,
        targets=tuple(Target(victim, PreemptionReason.IN_COHORT_RECLAMATION) for victim in victims),
        claim=Claim(key=one.key, uid=one.uid, queue=one.queue, usage={}, victims={}),
    )


@dataclass
class SmallRecord:
    """Writes cycles into a folder."""

    folder: Path
    nominal: int = 10
    names: tuple[str, ...] = ("a", "b")
    number: int = 0
    ring: Ring = field(init=False)

    def __post_init__(self) -> None:
        self.next_writer()

    def next_writer(self) -> None:
        """Begin another file, as another process would."""
        self.number = 0
        self.ring = Ring(RingSettings(path=self.folder, max_bytes=1 << 26, max_age=timedelta(days=9), version="v9.9.9"))

    def cycle(
        self,
        seconds: float,
        *decisions: Decision,
        holds: Sequence[Admitted] = (),
        told: Sequence[ToldInterval] = (),
        error: str = "",
    ) -> None:
        """One cycle: its heads are those of its decisions."""
        captured = self.captured(seconds, [decision.head for decision in decisions], holds)
        captured.decisions.extend(decisions)
        captured.told, captured.error = told, error
        self.ring.write(captured, at(seconds))

    def captured(self, seconds: float, heads: Sequence[Head] = (), holds: Sequence[Admitted] = ()) -> CapturedCycle:
        """A cycle without its decisions."""
        root = QuotaNode("all", is_cohort=True)
        root.children = [QuotaNode(name, parent=root, quotas={GPUS: Quota(self.nominal)}) for name in self.names]
        quota.rebuild(root)
        nodes = {node.name: node for node in root.children}
        admitted: dict[str, dict[str, Admitted]] = {name: {} for name in self.names}
        for one in holds:
            admitted[one.queue][one.key] = one
            quota.add_usage(nodes[one.queue], GPUS, one.usage[GPUS])
        snapshot = Snapshot(
            queues={name: QueueSpec(name=name, groups=()) for name in nodes},
            nodes=nodes,
            flavors={"gpu": Flavor(name="gpu")},
            topologies={},
            admitted=admitted,
        )
        question = PlanQuestion(snapshot=snapshot, heads=list(heads), rules=Rules(now=at(seconds)))
        self.number += 1
        return Captures().take(self.number, question)

    def closed(self) -> Path:
        """End the file."""
        self.ring.close()
        return self.folder
