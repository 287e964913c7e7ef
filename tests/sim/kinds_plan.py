"""Plans for worlds of all kinds: Jobs, JobSets, single pods, groups of pods, Deployments and StatefulSets."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kqueue.api import names
from kqueue.sandbox.api import Object
from kqueue.sandbox.topology_spec import BLOCK_LABEL, RACK_LABEL
from tests.sim.objects import CLUSTER_QUEUES
from tests.sim.plan import COMMON, GPU_QUEUES, Actions, Draft, End, Plan
from tests.sim.tenancy import PEACEFUL, Tenancy

_RACK, _BLOCK = ("required", RACK_LABEL), ("required", BLOCK_LABEL)
_PREEMPTING = ("solo", "left", "even")


class KindsDraft(Draft):
    """A plan for a world of all kinds."""

    def _placed(self, gpus: int) -> tuple[tuple[str, str] | None, int]:
        """Return a topology request, and the least number of pods with these GPUs that fit it."""
        rack, more = 32 // gpus, 40 // gpus
        preferred, anywhere = ("preferred", RACK_LABEL), ("unconstrained", "true")
        return self.chance.choice(((_RACK, rack), (_BLOCK, more), (preferred, more), (anywhere, more), (None, more)))

    def _common(self) -> dict[str, Any]:
        c = self.chance
        return {"queue": c.choice(GPU_QUEUES), "priority": c.choice(("", "", "", "high", "low"))}

    def _made(self, action: str, prefix: str, end: End, **settings: Any) -> None:
        name = self.name(prefix)
        self.plan.ends[name] = end
        self.add(action, name=name, **settings)

    def job_set(self) -> None:
        c, gpus = self.chance, self.chance.choice((1, 2, 4, 8))
        topology, most = self._placed(gpus)
        together = topology is not None and topology[0] in ("required", "preferred") and c.random() < 0.4
        parts, number = ([(1, 1)], 2) if together else ([], c.randint(1, 3))
        while len(parts) < number:
            replicas, pods = c.choice(((1, 1), (1, 2), (2, 1), (2, 2), (1, 3)))
            room = min(most, 8) - sum(r * p for r, p in parts) - (number - len(parts) - 1)
            parts.append((replicas, pods) if replicas * pods <= room else (1, 1))
        settings = {
            **self._common(),
            "topology": topology,
            "together": together,
            "run_seconds": c.choice((1, 3, 10, 30)),
        }
        self._made("submit_job_set", "set", End.COMPLETE, parts=tuple(parts), gpus=gpus, **settings)

    def failing_job_set(self) -> None:
        settings = {"parts": ((1, 1), (2, 1)), "gpus": 1, "run_seconds": 2, "fail": True}
        self._made("submit_job_set", "failing-set", End.FAILED, queue="solo", **settings)

    def single_pod(self) -> None:
        c, gpus = self.chance, self.chance.choice((1, 2, 4, 8))
        topology, _ = self._placed(gpus)
        settings = {**self._common(), "gpus": gpus, "topology": topology, "run_seconds": c.choice((1, 3, 10, 30))}
        self._made("submit_pod", "pod", End.COMPLETE, **settings)

    def failing_pod(self) -> None:
        self._made("submit_pod", "failing-pod", End.FAILED, queue="solo", gpus=1, run_seconds=2, fail=True)

    def large_pod(self) -> None:
        self._made("submit_pod", "large-pod", End.WAITING, queue="solo", gpus=9)

    def group(self, end: End = End.COMPLETE, **how: Any) -> None:
        c, gpus = self.chance, self.chance.choice((1, 2, 4))
        topology, most = self._placed(gpus * 2)
        count = c.randint(2, min(most, 6))
        others = c.randint(0, count - 1) if c.random() < 0.4 else 0
        roles = (gpus,) * (count - others) + (gpus * 2,) * others
        fast, ranked = not others and not how and c.random() < 0.2, c.random() < 0.5
        body = {**self._common(), "topology": topology, "run_seconds": c.choice((1, 3, 10, 30))}
        self._made("submit_group", "group", end, roles=roles, ranked=ranked, fast=fast, **how, body=body)

    def half_group(self) -> None:
        self.group(End.WAITING, missing=1)

    def odd_group(self) -> None:
        queue = {"labels": {names.QUEUE_NAME_LABEL: "plain"}}
        count = {"annotations": {names.POD_GROUP_TOTAL_COUNT_ANNOTATION: "9"}}
        self.group(End.WAITING, odd=self.chance.choice((queue, count)))

    def server(self) -> None:
        c, gpus = self.chance, self.chance.choice((1, 2, 4))
        topology, most = self._placed(gpus)
        kind, settings = c.choice(("Deployment", "StatefulSet")), {**self._common(), "gpus": gpus, "topology": topology}
        self._made("serve", "server", End.GONE, kind=kind, replicas=c.randint(1, min(most, 4)), **settings)

    def _one_of(self, *kinds: str, ends: tuple[End, ...] = tuple(End)) -> str | None:
        found = [n for n, end in self.plan.ends.items() if n.startswith(kinds) and end in ends]
        return self.chance.choice(found[-4:]) if found else None

    def on_a_server(self, action: str, **arguments: Any) -> None:
        """Add an action on a Deployment or StatefulSet."""
        name = self._one_of("server")
        if name is not None:
            self.add(action, name=name, **arguments)

    def on_a_whole_one(self, action: str, *kinds: str, **arguments: Any) -> None:
        """Add an action on a complete object, whose user recreates the lost pods."""
        name = self._one_of(*kinds, ends=(End.COMPLETE,))
        if name is not None:
            self.add(action, name=name, **arguments)

    def mend_group(self) -> None:
        """Add a repair of a group: missing pods are created, contradicting ones deleted."""
        name = self._one_of("group", ends=(End.WAITING,))
        if name is not None:
            self.plan.ends[name] = End.COMPLETE
            self.add("mend_group", name=name)


_KINDS: Actions = (
    (Draft.good_job, 8),
    (Draft.endless_job, 2),
    (Draft.failing_job, 1),
    (KindsDraft.job_set, 12),
    (KindsDraft.failing_job_set, 2),
    (KindsDraft.single_pod, 10),
    (KindsDraft.failing_pod, 2),
    (KindsDraft.large_pod, 1),
    (KindsDraft.group, 16),
    (KindsDraft.half_group, 4),
    (KindsDraft.odd_group, 3),
    (KindsDraft.mend_group, 5),
    (KindsDraft.server, 5),
    (lambda d: d.on_a_server("scale", replicas=d.chance.randint(0, 5)), 4),
    (lambda d: d.on_a_whole_one("lose_member", "group", number=d.chance.randrange(6)), 4),
    (lambda d: d.on_a_whole_one("fail_member", "group", number=d.chance.randrange(6)), 4),
    (lambda d: d.on_a_whole_one("add_excess", "group"), 4),
    (lambda d: d.on_a_whole_one("take_gate", "group", "pod"), 2),
    (lambda d: d.on_a_whole_one("lose_pod", "pod"), 4),
    (lambda d: d.add("give_back_pods"), 8),
    (Draft.hold, 3),
    (lambda d: d.add("resume"), 4),
    (Draft.quota, 3),
    (Draft.stranger, 2),
    (lambda d: d.add("remove_strangers"), 2),
    (lambda d: d.add("rest"), 3),
    *COMMON,
)


def draw_kinds(seed: int | str, *, steps: int = 60) -> Plan:
    """Return the plan of a seed."""
    return KindsDraft(f"{seed}/kinds").draw(steps, _KINDS)


def kinds_tenancy(seed: int) -> Tenancy:
    """Return tenants without rivalry; in every second world some preempt within their queue, in every third pods end
    slowly."""
    objects = PEACEFUL.objects
    if seed % 2:
        rules = {"preemption": {"withinClusterQueue": "LowerPriority"}}
        objects = tuple(
            (kind, {**obj, "spec": {**obj["spec"], **rules}} if kind == CLUSTER_QUEUES and _preempts(obj) else obj)
            for kind, obj in objects
        )
    return replace(PEACEFUL, objects=objects, stop_seconds=5.0 if seed % 3 == 1 else 0.0)


def _preempts(queue: Object) -> bool:
    return queue["metadata"]["name"] in _PREEMPTING
