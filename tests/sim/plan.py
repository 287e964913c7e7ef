"""The plan of actions on a world: drawn from a seed beforehand, so that it does not depend on the world's reactions.

Jobs of a plan have ends that do not depend on timing or on other actions, once all damage is repaired: good ones
complete, failing ones fail, impossible ones wait, malformed ones are refused or wait, deleted ones do not exist.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from tests.sim.objects import FOREIGN


class End(StrEnum):
    """The expected end of a Job."""

    COMPLETE = "complete"
    FAILED = "failed"
    WAITING = "waiting"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Step:
    """One action of `tests.sim.actor.Actor` with its arguments, and the pause afterwards in seconds."""

    action: str
    arguments: dict[str, Any]
    seconds: float

    def __str__(self) -> str:
        told = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.action}({told}), then {self.seconds:g} s"


@dataclass(slots=True)
class Plan:
    """Steps, and the expected end of each submitted Job."""

    steps: list[Step] = field(default_factory=list)
    ends: dict[str, End] = field(default_factory=dict)

    def without(self, *actions: str) -> Plan:
        """Return the same plan with these actions replaced by waits."""
        kept = [Step("wait", {}, s.seconds) if s.action in actions else s for s in self.steps]
        return Plan(kept, dict(self.ends))


GPU_QUEUES = ("left", "right", "solo", "solo", "even", "few", "twice")
_GPU_NODES = tuple(f"gpu-b{b}-r{r}-h{h}" for b in range(2) for r in range(2) for h in range(4))


class Draft:
    """A plan in the making."""

    def __init__(self, seed: int | str) -> None:
        self.chance = random.Random(f"{seed}/plan")
        self.plan = Plan()
        self.closed: set[str] = set()

    def draw(self, steps: int, actions: Actions) -> Plan:
        """Draw `steps` steps of these actions."""
        makers, weights = zip(*actions, strict=True)
        while len(self.plan.steps) < steps:
            (maker,) = self.chance.choices(makers, weights)
            maker(self)
        return self.plan

    def add(self, action: str, **arguments: Any) -> None:
        """Append a step."""
        seconds = self.chance.choice((0, 0, 0.3, 1, 2, 5, 5, 10, 20))
        self.plan.steps.append(Step(action, arguments, seconds))

    def name(self, kind: str) -> str:
        """Return a name that no other Job of the plan has."""
        return f"{kind}-{len(self.plan.steps)}"

    def some_job(self) -> str | None:
        """Return one of the last Jobs, or None."""
        names = [name for name, end in self.plan.ends.items() if end is not End.GONE]
        return self.chance.choice(names[-6:]) if names else None

    # --- Jobs

    def good_job(self) -> None:
        c = self.chance
        gpus = c.choice((1, 2, 4, 8))
        rack, hosts = ("required", RACK_LABEL), 32 // gpus
        topology, most = c.choice(
            (
                (rack, hosts),
                (rack, hosts),
                (("required", BLOCK_LABEL), 40 // gpus),
                (("preferred", RACK_LABEL), 40 // gpus),
                (("unconstrained", "true"), 40 // gpus),
                (None, 40 // gpus),
            )
        )
        settings = {
            "queue": c.choice(GPU_QUEUES),
            "pods": c.randint(1, min(most, 8)),
            "gpus": gpus,
            "topology": topology,
            "priority": c.choice(("", "", "", "high", "low")),
            "run_seconds": c.choice((1, 3, 10, 30)),
            "retries": 100,
        }
        self.submit("good", End.COMPLETE, **settings)

    def sliced_job(self) -> None:
        c = self.chance
        layers, pods, topology = c.choice(
            (
                (((RACK_LABEL, 2),), c.choice((2, 4, 6, 8)), None),
                (((RACK_LABEL, 3),), c.choice((3, 6)), ("required", BLOCK_LABEL)),
                (((RACK_LABEL, 4),), c.choice((4, 8)), ("preferred", BLOCK_LABEL)),
                (((BLOCK_LABEL, 4), (RACK_LABEL, 2)), c.choice((4, 8)), None),
            )
        )
        settings = {"queue": c.choice(GPU_QUEUES), "pods": pods, "gpus": c.choice((1, 2, 4)), "layers": layers}
        self.submit("sliced", End.COMPLETE, **settings, topology=topology, run_seconds=c.choice((1, 10)), retries=100)

    def equal_jobs(self) -> None:
        for _ in range(self.chance.randint(2, 4)):
            self.submit("equal", End.COMPLETE, queue="solo", pods=4, gpus=8, run_seconds=10, retries=100)

    def plain_job(self) -> None:
        pods = self.chance.randint(1, 10)
        self.submit("plain", End.COMPLETE, queue="plain", pods=pods, gpus=0, topology=None, run_seconds=5, retries=100)

    def endless_job(self) -> None:
        settings = {"queue": self.chance.choice(GPU_QUEUES), "pods": self.chance.randint(1, 3), "gpus": 1}
        self.submit("endless", End.GONE, **settings, run_seconds=1_000_000, retries=100)

    def failing_job(self) -> None:
        self.submit("failing", End.FAILED, queue="solo", pods=2, run_seconds=2, fail=True, retries=0)

    def too_large_job(self) -> None:
        rack = ("required", RACK_LABEL)
        large: dict[str, Any] = self.chance.choice(({"topology": rack, "cpus": "33"}, {"pods": 17, "topology": None}))
        self.submit("large", End.WAITING, **{"queue": "solo", "pods": 3, "gpus": 8, **large})

    def malformed_job(self) -> None:
        malformed: dict[str, Any] = self.chance.choice(
            (
                {"queue": "nowhere"},
                {"topology": ("required", "no.such/level")},
                {"queue": "plain", "gpus": 0},
                {"priority": "no-such-class"},
                {"topology": ("unconstrained", "perhaps")},
            )
        )
        self.submit("malformed", End.WAITING, **{"queue": "solo", "pods": 2, **malformed})

    def submit(self, kind: str, end: End, **settings: Any) -> None:
        """Append the submission of a Job with its expected end."""
        name = self.name(kind)
        self.plan.ends[name] = end
        self.add("submit", name=name, **settings)

    def delete_job(self) -> None:
        """Append the deletion of a Job."""
        name = self.some_job()
        if name is not None:
            self.plan.ends[name] = End.GONE
            self.add("delete_job", name=name)

    def on_a_job(self, action: str, **arguments: Any) -> None:
        """Append an action on a Job."""
        name = self.some_job()
        if name is not None:
            self.add(action, name=name, **arguments)

    # --- tenants, nodes, strangers

    def hold(self) -> None:
        self.add("hold", queue=self.chance.choice(GPU_QUEUES), policy=self.chance.choice(("Hold", "HoldAndDrain")))

    def quota(self) -> None:
        self.add("set_quota", queue=self.chance.choice(GPU_QUEUES), gpus=self.chance.choice((0, 16, 32, 48, 64)))

    def node(self, action: str) -> None:
        """Append an action on a node."""
        self.add(action, name=self.chance.choice(_GPU_NODES))

    def move_node(self) -> None:
        self.add("move_node", name=self.chance.choice(_GPU_NODES), like=self.chance.choice((*_GPU_NODES, None)))

    def profile(self) -> None:
        profile = self.chance.choice(("BestFit", "LeastFreeCapacity", "balanced", "optimal"))
        self.add("choose_profile", queue=self.chance.choice(GPU_QUEUES), profile=profile)

    def stranger(self) -> None:
        node = self.chance.choice((*_GPU_NODES, None))
        self.add("add_foreign_pod", name=f"{FOREIGN}{len(self.plan.steps)}", node=node, gpus=self.chance.randint(0, 4))


Actions = tuple[tuple[Callable[[Any], None], int], ...]
"""Possible actions with their weights."""

COMMON: Actions = (
    (lambda d: d.delete_job(), 5),
    (lambda d: d.on_a_job("suspend_job"), 3),
    (lambda d: d.on_a_job("start_job_by_hand"), 3),
    (lambda d: d.on_a_job("delete_workload"), 3),
    (lambda d: d.node("cordon"), 2),
    (lambda d: d.node("taint"), 2),
    (lambda d: d.node("remove_node"), 1),
    (lambda d: d.add("repair_nodes"), 3),
    (lambda d: d.add("wait"), 6),
    (
        lambda d: d.add(
            "kill",
            at_write=d.chance.choice((0, 1, 1, 2, 3, 5)),
            after=d.chance.random() < 0.5,
            down=d.chance.choice((0, 0, 3, 30)),
        ),
        6,
    ),
)
"""Actions of every world."""

_PEACEFUL: Actions = (
    (Draft.good_job, 30),
    (Draft.sliced_job, 5),
    (Draft.equal_jobs, 3),
    (Draft.plain_job, 4),
    (Draft.endless_job, 4),
    (Draft.failing_job, 4),
    (Draft.too_large_job, 4),
    (Draft.malformed_job, 4),
    (Draft.hold, 3),
    (lambda d: d.add("resume"), 4),
    (Draft.quota, 3),
    (Draft.move_node, 2),
    (Draft.profile, 1),
    (Draft.stranger, 3),
    (lambda d: d.add("add_foreign_job", name=f"{FOREIGN}{len(d.plan.steps)}"), 2),
    (lambda d: d.add("add_daemon_set", name=f"{FOREIGN}{len(d.plan.steps)}"), 1),
    (lambda d: d.add("remove_strangers"), 2),
    (lambda d: d.add("rest"), 3),
    *COMMON,
)


def draw(seed: int | str, *, steps: int = 60) -> Plan:
    """Return the plan of a seed."""
    return Draft(seed).draw(steps, _PEACEFUL)
