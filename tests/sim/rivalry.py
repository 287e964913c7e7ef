"""Plans of rivals: Jobs of all priorities, and tenants whose rules change while Jobs run."""

from __future__ import annotations

from typing import Any

from kqueue.sandbox.topology_spec import RACK_LABEL
from tests.sim.objects import CLUSTER_QUEUES, COHORTS, FOREIGN, GPU, LOCAL_QUEUES
from tests.sim.plan import COMMON, Actions, Draft, End, Plan
from tests.sim.tenancy import Tenancy, cohort_spec, preemption, queue_spec, quotas

_MOST_PODS = 6


class _Rivalry(Draft):
    """The draft of a plan for rivals."""

    def __init__(self, seed: int | str, tenancy: Tenancy) -> None:
        super().__init__(f"{seed}/rivalry")
        self.tenancy = tenancy
        self.queues = tenancy.specs(CLUSTER_QUEUES)
        tree = tenancy.tree()
        self.reach = {
            queue: max(
                tree.reach(queue, (flavor, resource)) // unit
                for flavor in tenancy.flavors_of(queue)
                for resource, unit in [(GPU, 1) if self.is_placed(queue) else ("cpu", 1000)]
            )
            for queue in self.queues
        }
        """The largest Job that fits each ClusterQueue at the end, in GPUs or cores."""

    def is_placed(self, queue: str) -> bool:
        """Whether its pods are placed by topology."""
        return not self.tenancy.placed.isdisjoint(self.tenancy.flavors_of(queue))

    def door(self, queue: str) -> str:
        """Return one of the ClusterQueue's LocalQueues."""
        return f"{queue}-{self.chance.choice('ab')}"

    # --- Jobs

    def rival(self, kind: str = "good", end: End = End.COMPLETE, **settings: Any) -> None:
        """Submit a Job that fits when no other Job runs."""
        c = self.chance
        queue = c.choice(sorted(queue for queue, reach in self.reach.items() if reach))
        room = self.reach[queue]
        each = c.choice([size for size in ((1, 2, 4, 8) if self.is_placed(queue) else (1, 2, 3)) if size <= room])
        most = min(_MOST_PODS, room // each)
        pods = c.randint(c.choice((1, (most + 1) // 2, most)), most)
        asked: dict[str, Any] = {"gpus": 0, "cpus": str(each), "topology": None}
        if self.is_placed(queue):
            rack = ("required", RACK_LABEL) if pods * each <= 32 else ("preferred", RACK_LABEL)
            asked = {"gpus": each, "topology": c.choice((rack, rack, ("unconstrained", "true")))}
        given = {
            "queue": self.door(queue),
            "pods": pods,
            "priority": c.choice(("", "", "low", "high", "top")),
            "run_seconds": c.choice((1, 10, 30, 60)),
            "at_least": c.randint(1, pods - 1) if pods > 1 and c.random() < 0.2 else 0,
            "retries": 100,
            "slow": c.choice((0, 0, 3, 12)),
        }
        self.submit(kind, end, **{**asked, **given, **settings})

    def crowd(self) -> None:
        """Submit several equal Jobs together."""
        state = self.chance.getstate()
        for _ in range(self.chance.choice((2, 3))):
            self.chance.setstate(state)
            self.rival("equal", run_seconds=10)

    def endless(self) -> None:
        """Submit a Job that runs until it is deleted or preempted."""
        self.rival("endless", End.GONE, run_seconds=1_000_000)

    def too_large(self) -> None:
        """Submit a Job above all quota, unless it would block the Jobs behind it."""
        patient = sorted(q for q, spec in self.queues.items() if spec["queueingStrategy"] != "StrictFIFO")
        if patient:
            queue = self.chance.choice(patient)
            gpus = 8 if self.is_placed(queue) else 0
            priority = self.chance.choice(("", "top"))
            settings = {"queue": self.door(queue), "gpus": gpus, "cpus": "20", "pods": 20, "topology": None}
            self.submit("large", End.WAITING, **settings, priority=priority)

    # --- tenants

    def stop(self) -> None:
        """A queue is stopped, or opened."""
        resource = self.chance.choice((CLUSTER_QUEUES, LOCAL_QUEUES))
        name = self.chance.choice(sorted(self.tenancy.specs(resource)))
        policy = self.chance.choice(("None", "Hold", "HoldAndDrain"))
        self.add("configure", plural=resource.plural, name=name, change={"stopPolicy": policy})

    def change_queue(self) -> None:
        """A ClusterQueue's quota, cohort or rules change."""
        c = self.chance
        name = c.choice(sorted(self.queues))
        placed = self.is_placed(name)
        resources = ("cpu", GPU) if placed else ("cpu",)
        flavors = self.tenancy.flavors_of(name)
        limited = "cohortName" in self.queues[name]
        change = c.choice(
            (
                {"resourceGroups": quotas(c, flavors, resources, limits=limited)},
                {"resourceGroups": quotas(c, flavors, resources, limits=limited)},
                {"cohortName": queue_spec(c, placed=placed).get("cohortName")},
                {"preemption": preemption(c)},
                {"queueingStrategy": c.choice(("StrictFIFO", "BestEffortFIFO"))},
                {"fairSharing": {"weight": c.choice(("0", "1", "3"))}},
            )
        )
        self.add("configure", plural=CLUSTER_QUEUES.plural, name=name, change=change)

    def change_cohort(self) -> None:
        """A Cohort's quota or parent changes."""
        name = self.chance.choice(sorted(self.tenancy.specs(COHORTS)))
        new = {"parentName": None, "resourceGroups": [], **cohort_spec(self.chance, name)}
        self.add("configure", plural=COHORTS.plural, name=name, change=new)

    def delete(self) -> None:
        """A queue or cohort is deleted, while others use it."""
        resource = self.chance.choice((CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS))
        self.add("delete", plural=resource.plural, name=self.chance.choice(sorted(self.tenancy.specs(resource))))

    def delete_flavor(self) -> None:
        """A flavor is deleted, after all queues removed it."""
        flavors = {flavor for queue in self.queues for flavor in self.tenancy.flavors_of(queue)} - self.tenancy.placed
        if flavors:
            self.add("delete_flavor", name=self.chance.choice(sorted(flavors)))

    def stranger(self) -> None:
        """Add a foreign pod on some node."""
        self.add("add_foreign_pod", name=f"{FOREIGN}{len(self.plan.steps)}", node=None, gpus=0)


_RIVALRY: Actions = (
    (_Rivalry.rival, 50),
    (_Rivalry.crowd, 5),
    (_Rivalry.endless, 14),
    (_Rivalry.too_large, 3),
    (_Rivalry.stop, 5),
    (_Rivalry.change_queue, 7),
    (_Rivalry.change_cohort, 3),
    (_Rivalry.delete, 3),
    (_Rivalry.delete_flavor, 1),
    (lambda d: d.add("restore"), 6),
    (_Rivalry.stranger, 1),
    (lambda d: d.add("remove_strangers"), 1),
    (lambda d: d.add("rest"), 4),
    *COMMON,
)


def draw_rivalry(seed: int | str, tenancy: Tenancy, *, steps: int = 60) -> Plan:
    """Return the plan of a seed for these tenants."""
    return _Rivalry(seed, tenancy).draw(steps, _RIVALRY)
