"""Plans for a manager with two workers: what users, operators, networks and failing processes do."""

from __future__ import annotations

from typing import Any

from kqueue.sandbox.topology_spec import RACK_LABEL
from tests.sim.clusters import WORKERS
from tests.sim.kinds_plan import KindsDraft
from tests.sim.plan import Actions, End, Plan


class ClustersDraft(KindsDraft):
    """A plan for several clusters."""

    def good_job(self) -> None:
        """A Job that any worker can run."""
        c = self.chance
        settings: dict[str, Any] = {
            "pods": c.choice((1, 2, 4)),
            "gpus": c.choice((2, 4, 8)),
            "topology": c.choice((("required", RACK_LABEL), None)),
            "run_seconds": c.choice((1, 5, 30, 100)),
            "retries": 100,
        }
        self.submit("good", End.COMPLETE, **settings)

    def endless_job(self) -> None:
        """A Job that holds its worker until the end of the plan, or (7 hosts) that no worker has the quota for."""
        self.submit("endless", End.GONE, pods=self.chance.choice((1, 2, 7)), run_seconds=1_000_000, retries=100)

    def failing_job(self) -> None:
        """A Job that fails on its worker."""
        self.submit("failing", End.FAILED, pods=1, run_seconds=2, fail=True, retries=0)

    def too_large_job(self) -> None:
        """A Job that gets no quota on the manager."""
        self.submit("large", End.WAITING, pods=11, topology=None)

    def job_set(self) -> None:
        """A JobSet that any worker can run."""
        c = self.chance
        settings: dict[str, Any] = {
            "queue": "solo",
            "parts": c.choice((((1, 1), (2, 1)), ((1, 2),))),
            "gpus": c.choice((2, 8)),
            "run_seconds": c.choice((1, 5, 30)),
        }
        self._made("submit_job_set", "set", End.COMPLETE, **settings)

    def single_pod(self) -> None:
        """A pod that any worker can run."""
        self._made("submit_pod", "pod", End.COMPLETE, gpus=self.chance.choice((1, 8)), **self._body())

    def pods_of_a_group(self) -> None:
        """A group of pods, in one role or two, that any worker can run."""
        c = self.chance
        roles = c.choice(((8, 8), (4, 4, 4), (2, 4)))
        ranked = c.random() < 0.5
        self._made("submit_group", "group", End.COMPLETE, roles=roles, ranked=ranked, fast=False, body=self._body())

    def _body(self) -> dict[str, Any]:
        c = self.chance
        topology = c.choice((("required", RACK_LABEL), None))
        return {"queue": "solo", "topology": topology, "run_seconds": c.choice((1, 5, 30, 100))}

    def training_job(self) -> None:
        """A training job that any worker can run."""
        c = self.chance
        sizes = {"pods": c.choice((1, 2, 4)), "gpus": c.choice((2, 8)), "run_seconds": c.choice((1, 5, 30, 100))}
        self._made("submit_custom", "train", End.COMPLETE, queue="solo", topology=RACK_LABEL, **sizes)

    def nominate(self) -> None:
        """Append a nomination by another client than the dispatcher."""
        clusters = self.chance.choice(((), WORKERS[:1], WORKERS[1:], ("nowhere",)))
        self.on_a_job("nominate", clusters=clusters)

    def on_a_worker(self, action: str, **arguments: Any) -> None:
        """Append an action on one of the workers."""
        self.add(action, cluster=self.chance.choice(WORKERS), **arguments)

    def kill(self, who: str) -> None:
        """Append the death of a controller, now or at one of its next writes."""
        c = self.chance
        self.add(
            "kill_in",
            cluster=who,
            at_write=c.choice((0, 1, 1, 2, 3, 5)),
            after=c.random() < 0.5,
            down=c.choice((0, 0, 3, 30)),
        )

    def hold_worker(self) -> None:
        """Append a stop of a worker's queue."""
        self.on_a_worker("hold_on", policy=self.chance.choice(("Hold", "HoldAndDrain")))


_JOBS: Actions = (
    (ClustersDraft.good_job, 30),
    (ClustersDraft.endless_job, 4),
    (ClustersDraft.failing_job, 4),
    (ClustersDraft.too_large_job, 2),
    (lambda d: d.delete_job(), 5),
    (lambda d: d.on_a_job("delete_workload"), 3),
    (lambda d: d.on_a_job("delete_copy_of_job"), 4),
    (lambda d: d.on_a_job("delete_copy_of_workload"), 4),
    (lambda d: d.add("hold", queue="solo", policy=d.chance.choice(("Hold", "HoldAndDrain"))), 3),
    (ClustersDraft.hold_worker, 4),
    (lambda d: d.add("resume"), 5),
    (lambda d: d.on_a_worker("cut"), 6),
    (lambda d: d.add("mend"), 6),
    (lambda d: d.kill("manager"), 8),
    (lambda d: d.kill(d.chance.choice(WORKERS)), 4),
    (lambda d: d.add("wait"), 4),
    (lambda d: d.on_a_worker("lose"), 5),
    (lambda d: d.add("rest"), 2),
)
_WITH_JOB_SETS: Actions = (*_JOBS, (ClustersDraft.job_set, 20))
_OF_ALL_KINDS: Actions = (
    *_JOBS,
    (ClustersDraft.job_set, 10),
    (ClustersDraft.single_pod, 12),
    (ClustersDraft.pods_of_a_group, 20),
    (ClustersDraft.training_job, 12),
    (ClustersDraft.nominate, 5),
    (lambda d: d.add("give_back_pods"), 5),
)


def draw_clusters(seed: int | str, *, steps: int = 40, job_sets: bool = False) -> Plan:
    """Return the plan of a seed."""
    return ClustersDraft(seed).draw(steps, _WITH_JOB_SETS if job_sets else _JOBS)


def draw_all_kinds(seed: int | str, *, steps: int = 40) -> Plan:
    """Return the plan of a seed with Jobs, JobSets, pods, groups of pods and training jobs."""
    return ClustersDraft(f"{seed}/kinds").draw(steps, _OF_ALL_KINDS)
