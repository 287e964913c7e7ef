"""BatchProcesses with their pods and Workload, in the states that tests need."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import Any

from kqueue.clock import api_time, utc_text
from kqueue.jobs.gang.batch_end import end_of
from kqueue.jobs.gang.batch_life import BatchFacts, BatchSteps, next_steps
from kqueue.jobs.gang.batch_pods import PodPlan, pod_of
from kqueue.jobs.gang.batch_process import FRAMEWORK, plan_of
from kqueue.jobs.gang.batch_slots import BatchPlaces, places_of
from kqueue.jobs.gang.batch_workload import queued, workload_of
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority
from tests.unit.jobs.gang.test_batch_process import make, process

JSON = dict[str, Any]
SWITCHES = JobFeatures(gangs=("pod", FRAMEWORK))
BEGIN = "2026-01-01T00:00:00Z"
NOW = datetime.fromisoformat(BEGIN) + timedelta(minutes=1)
ADMITTED = ("QuotaReserved", "Admitted")


def batch(*processes: JSON, group: JSON | None = None, status: JSON | None = None, **spec: Any) -> JSON:
    """A teacher with one pod of two in the base, and a student likewise, unless processes are given."""
    found = processes or (process("teacher", 2, 1), process("student", 2, 1))
    obj = make(*found, group={"minAvailable": 2} if group is None else group, **spec)
    obj["metadata"] |= {"creationTimestamp": BEGIN, "generation": 1}
    obj["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "main"}
    return {**obj, "status": status} if status is not None else obj


def workload(obj: JSON, *conditions: str, active: bool = True, reason: str = "", message: str = "") -> JSON:
    """The object's Workload, with these conditions True."""
    made = workload_of(obj, queue="main", priority=Priority(), switches=SWITCHES)
    found = [
        {"type": kind, "status": "True", "reason": reason or kind, "message": message, "lastTransitionTime": BEGIN}
        for kind in conditions
    ]
    return {**made, "spec": {**made["spec"], "active": active}, "status": {"conditions": found}}


def pod(obj: JSON, name: str, state: str, *, attempt: int = 0, failures: int = 0, age: float = 30.0) -> ManagedPod:
    """A pod of a place, as `teacher-0`.

    States: gated, pending (released), running, succeeded, failed, stopping and stopped (by kqueue), deleted (by
    another client, and ended), leaving (by another client, still running), lost (released, deleted without a node).
    """
    process_name, _, index = name.rpartition("-")
    plan = plan_of(obj)
    role = plan.role(process_name)
    assert role is not None
    wanted = PodPlan(role=role, index=int(index), attempt=attempt, failures=failures)
    plain = pod_of(obj, plan, wanted, queue="main")
    made = copy.deepcopy(queued(plain, SWITCHES))
    made["metadata"] |= {"uid": f"{name}-{attempt}", "creationTimestamp": utc_text(NOW - timedelta(seconds=age))}
    made["status"] = {"phase": "Pending"}
    if state != "gated":
        made["spec"]["schedulingGates"] = []
    phases = {"running": "Running", "stopping": "Running", "leaving": "Running", "succeeded": "Succeeded"}
    made["status"]["phase"] = phases.get(state, "Failed" if state in ("failed", "stopped", "deleted") else "Pending")
    if state not in ("gated", "pending", "lost"):
        made["spec"]["nodeName"] = "n1"
    if state in ("stopping", "stopped", "deleted", "leaving", "lost"):
        made["metadata"] |= {
            "deletionTimestamp": utc_text(NOW + timedelta(seconds=30)),
            "deletionGracePeriodSeconds": 30,
        }
    if state in ("stopping", "stopped"):
        made["status"]["conditions"] = [{"type": "TerminationTarget", "status": "True"}]
    return managed_pod(made, SWITCHES)


def pods(obj: JSON, **states: str) -> list[ManagedPod]:
    """Pods by place, as `teacher_0="running"`."""
    return [pod(obj, name.replace("_", "-"), state) for name, state in states.items()]


def places(obj: JSON, members: list[ManagedPod]) -> BatchPlaces:
    return places_of(members, plan_of(obj))


def facts(obj: JSON, load: JSON | None, members: list[ManagedPod], *, now: datetime = NOW, **more: Any) -> BatchFacts:
    plan, found = plan_of(obj), places(obj, members)
    more.setdefault("end", end_of(obj, plan, load, found, now))
    return BatchFacts(obj=obj, plan=plan, workload=load, places=found, now=now, **more)


def steps(obj: JSON, load: JSON | None, members: list[ManagedPod], **more: Any) -> BatchSteps:
    return next_steps(facts(obj, load, members, **more))


def made(found: BatchSteps) -> list[str]:
    """The pods to make, as `teacher-0`, and `teacher-0/2` for the attempt 2."""
    return [f"{m.role.name}-{m.index}" + (f"/{m.attempt}" if m.attempt else "") for m in found.make]


def after(seconds: float) -> datetime:
    """A time so long after the object's creation."""
    begin = api_time(BEGIN)
    assert begin is not None
    return begin + timedelta(seconds=seconds)


def ended(obj: JSON, kind: str, *, seconds_ago: float = 10.0, reason: str = "Why") -> JSON:
    """The object with its end in the status."""
    when = utc_text(NOW - timedelta(seconds=seconds_ago))
    condition = {"type": kind, "status": "True", "reason": reason, "message": "ended", "lastTransitionTime": when}
    return {**obj, "status": {"conditions": [condition], "completionTime": when}}
