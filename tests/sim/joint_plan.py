"""Plans of worlds with joint placement: gangs of several queues, and planners that fail."""

from __future__ import annotations

from typing import Any

from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from tests.sim.joint_planner import PlannerFault
from tests.sim.joint_tenancy import JOINT_QUEUES, OTHER
from tests.sim.objects import CLUSTER_QUEUES, FOREIGN, GPU
from tests.sim.plan import COMMON, Actions, Draft, End, Plan
from tests.sim.tenancy import Tenancy

_HOSTS = tuple(f"gpu-b{b}-r{r}-h{h}" for b in range(2) for r in range(2) for h in range(3))
_RACKS = tuple(f"gpu-b{b}-r{r}" for b in range(2) for r in range(2))


class _JointDraft(Draft):
    """The draft of a plan with joint placement."""

    def __init__(self, seed: int | str, tenancy: Tenancy) -> None:
        super().__init__(f"{seed}/joint")
        tree = tenancy.tree()
        self._reach = {
            queue: max(tree.reach(queue, (flavor, GPU)) for flavor in tenancy.flavors_of(queue))
            for queue in (*JOINT_QUEUES, OTHER)
        }

    def gang(self, kind: str = "good", end: End = End.COMPLETE, **settings: Any) -> None:
        """Submit a gang that fits when no other runs."""
        c = self.chance
        queue = settings.get("queue") or c.choice((*JOINT_QUEUES, *JOINT_QUEUES, OTHER))
        gpus = c.choice((1, 2, 4, 8, 8))
        level, most = c.choice(
            (
                (("required", RACK_LABEL), 24),
                (("required", RACK_LABEL), 24),
                (("required", BLOCK_LABEL), 48),
                (("preferred", RACK_LABEL), 48),
                (("unconstrained", "true"), 48),
            )
        )
        given: dict[str, Any] = {
            "queue": queue,
            "pods": c.randint(1, max(1, min(most, 24, self._reach[queue]) // gpus)),
            "gpus": gpus,
            "topology": level,
            "priority": c.choice(("", "", "", "high", "low")),
            "run_seconds": c.choice((1, 10, 30)),
            "retries": 100,
        }
        self.submit(kind, end, **{**given, **settings})

    def crowd(self) -> None:
        """Submit several gangs at once, so that a round has them all."""
        for _ in range(self.chance.randint(3, 7)):
            self.gang(run_seconds=self.chance.choice((10, 30)))
            last = self.plan.steps.pop()
            self.plan.steps.append(type(last)(last.action, last.arguments, 0))

    def equals(self) -> None:
        """Submit equal gangs to one queue."""
        queue = self.chance.choice(JOINT_QUEUES)
        for _ in range(3):
            self.submit("equal", End.COMPLETE, queue=queue, pods=2, gpus=8, run_seconds=10, retries=100)

    def choosy(self) -> None:
        """Submit a gang that waits for the rack that it prefers, if its queue has the policy."""
        rack = self.chance.choice(_RACKS)
        cpus = str(2 + _RACKS.index(rack))  # gangs with other wishes are no equals
        topology = ("required", RACK_LABEL)
        size: dict[str, Any] = {"pods": self.chance.randint(1, 3), "gpus": 8, "topology": topology}
        self.gang("choosy", queue="joint-c", cpus=cpus, prefers=f"{RACK_LABEL}={rack}", **size)

    def large(self) -> None:
        """Submit a gang that never fits; it would block a strict queue, so it goes to the queue that is not."""
        self.submit("large", End.WAITING, queue=OTHER, pods=30, gpus=8, topology=None)

    def endless(self) -> None:
        """Submit a gang that runs until it is deleted."""
        self.gang("endless", End.GONE, run_seconds=1_000_000)

    def planner(self) -> None:
        """The planner fails in the next rounds."""
        fault = self.chance.choice(list(PlannerFault)[1:])
        self.add("fail_rounds", fault=fault.value, times=self.chance.choice((1, 1, 1, 1, 3)))

    def quota_in_a_round(self) -> None:
        """The quota of a queue changes while a round is planned."""
        self._in_a_round("set_quota", queue=self.chance.choice(JOINT_QUEUES), gpus=self.chance.choice((0, 16, 48)))

    def node_in_a_round(self) -> None:
        """A node fails while a round is planned."""
        action = self.chance.choice(("taint", "cordon", "remove_node"))
        self._in_a_round(action, name=self.chance.choice(_HOSTS))

    def stranger_in_a_round(self) -> None:
        """A stranger takes room while a round is planned."""
        name = f"{FOREIGN}{len(self.plan.steps)}"
        self._in_a_round("add_foreign_pod", name=name, node=self.chance.choice(_HOSTS), gpus=self.chance.randint(1, 8))

    def other_in_a_round(self) -> None:
        """A gang of a queue without joint placement comes while a round is planned."""
        self.add("slow_round", seconds=self.chance.choice((0.5, 2.0)))
        self.crowd()
        self.gang("good", queue=OTHER)

    def _in_a_round(self, action: str, **arguments: Any) -> None:
        self.add("slow_round", seconds=self.chance.choice((0.5, 2.0)))
        self.crowd()
        self.add(action, **arguments)

    def node(self, action: str) -> None:
        """Append an action on a node."""
        self.add(action, name=self.chance.choice(_HOSTS))

    def hold(self) -> None:
        """A queue is stopped."""
        self.add("hold", queue=self.chance.choice(JOINT_QUEUES), policy=self.chance.choice(("Hold", "HoldAndDrain")))

    def turn(self) -> None:
        """A queue gets or loses the profile, or becomes strict or not."""
        queue = self.chance.choice(JOINT_QUEUES)
        if self.chance.random() < 0.5:
            self.add(
                "choose_profile", queue=queue, profile=self.chance.choice(("joint", "joint", "BestFit", "balanced"))
            )
        else:
            strategy = {"queueingStrategy": self.chance.choice(("StrictFIFO", "BestEffortFIFO"))}
            self.add("configure", plural=CLUSTER_QUEUES.plural, name=queue, change=strategy)


_JOINT: Actions = (
    (_JointDraft.gang, 16),
    (_JointDraft.crowd, 12),
    (_JointDraft.equals, 3),
    (_JointDraft.choosy, 5),
    (_JointDraft.large, 2),
    (_JointDraft.endless, 4),
    (_JointDraft.planner, 4),
    (_JointDraft.quota_in_a_round, 3),
    (_JointDraft.node_in_a_round, 3),
    (_JointDraft.stranger_in_a_round, 3),
    (_JointDraft.other_in_a_round, 3),
    (_JointDraft.hold, 2),
    (lambda d: d.add("resume"), 3),
    (_JointDraft.turn, 2),
    (lambda d: d.add("remove_strangers"), 2),
    (lambda d: d.add("restore"), 2),
    (lambda d: d.add("rest"), 2),
    *COMMON,
)


def draw_joint(seed: int | str, tenancy: Tenancy, *, steps: int = 30) -> Plan:
    """Return the plan of a seed for these tenants."""
    return _JointDraft(seed, tenancy).draw(steps, _JOINT)
