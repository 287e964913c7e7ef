"""Finds pods that still have the admission gate although no step under way will start them, and reports a remedy.

The Workload of a pod that waits in a queue has the reason.  This module reports pods whose group never completes or
whose Workload has finished: by a Warning on the pod, a log line and a gauge.  No gate is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from kqueue import model
from kqueue.api import names
from kqueue.controllers.gang_records import GangRecords, make_gang_records
from kqueue.controllers.held_pods import HeldPods, Sweep, Why
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key
from kqueue.controllers.manager import Manager
from kqueue.controllers.pod_writes import EVENT_HELD, GATED_INDEX, PodWrites, make_pod_writes, watch_pods
from kqueue.jobs import rules
from kqueue.jobs.gang.compose import compose
from kqueue.jobs.gang.dialect import GroupProblem
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.store import Store, split_key


class AdmissionGateReason(StrEnum):
    """Why no controller will remove the admission gate of a pod.  The value is the reason's name in metrics."""

    NAMESPACE_LEFT_OUT = "namespace_left_out"
    NO_QUEUE = "no_queue"
    GROUP_INCOMPLETE = "group_incomplete"
    GROUP_CONTRADICTS_ITSELF = "group_contradicts_itself"
    NO_WORKLOAD = "no_workload"
    WORKLOAD_OVER = "workload_over"
    NOT_IN_WORKLOAD = "not_in_workload"


class AdmissionGates:
    """Checks all pods with the gate, at regular intervals."""

    def __init__(
        self,
        *,
        pods: Store[ManagedPod],
        writes: PodWrites,
        records: GangRecords,
        manages: Callable[[str], bool],
        switches: JobFeatures,
        sweep: Sweep,
        without_queue: bool = False,
    ) -> None:
        gangs = records.gangs
        self._writes, self._workloads, self._gangs, self._manages = writes, gangs.workloads, gangs, manages
        self._look = records.look
        self._switches, self._without_queue = switches, without_queue
        held = HeldPods[ManagedPod](
            pods=lambda: pods.by_index(GATED_INDEX, True),
            judge=self._judge,
            tell=self._report_held,
            headline="pods have the admission gate and no controller will remove it",
            reasons=AdmissionGateReason,
            sweep=sweep,
        )
        self.run, self.sweep = held.run, held.look

    def _judge(self) -> Callable[[ManagedPod], Why | None]:
        groups: dict[str, Why | None] = {}  # each group is checked once for all its pods
        return lambda pod: self._why(pod, groups)

    def _why(self, pod: ManagedPod, groups: dict[str, Why | None]) -> Why | None:
        """Return why the gate stays and what to do; None: a step that removes the gate is under way."""
        namespace = split_key(pod.key)[0]
        if not self._manages(namespace):
            return (
                AdmissionGateReason.NAMESPACE_LEFT_OUT,
                "its namespace is not one that kqueue manages; make the pod elsewhere",
            )
        if not rules.queue_name(pod.obj) and not self._without_queue:
            return AdmissionGateReason.NO_QUEUE, f"it names no queue; set label {names.QUEUE_NAME_LABEL}"
        if pod.alone:
            return self._why_alone(pod)
        if pod.group not in groups:
            groups[pod.group] = self._why_group(pod.group)
        return groups[pod.group] or self._why_member(pod)

    def _why_alone(self, pod: ManagedPod) -> Why | None:
        keys = self._workloads.keys_by_index(OWNER_INDEX, owner_key("", "Pod", *split_key(pod.key)))
        owned = [workload for key in keys if (workload := self._workloads.get(key)) is not None]
        if not owned:
            return AdmissionGateReason.NO_WORKLOAD, "it has no Workload; events on the pod say why"
        if all(model.condition_true(workload, names.CONDITION_FINISHED) for workload in owned):
            return AdmissionGateReason.WORKLOAD_OVER, "its Workload has finished; delete the pod"
        return None

    def _why_group(self, group: str) -> Why | None:
        key = self._gangs.key_of(group)
        workload = self._workloads.get(key)
        if workload is None:
            members = [member for member in self._look(group).members if not member.extra]
            made = compose(in_order(members), self._switches, group_object=self._gangs.object_of(group))
            if not isinstance(made, GroupProblem):
                return None
            if made.incomplete:
                return AdmissionGateReason.GROUP_INCOMPLETE, f"{made.message}; create them, or delete the group's pods"
            where = f"pod {made.pod.name}: " if made.pod is not None else ""
            return AdmissionGateReason.GROUP_CONTRADICTS_ITSELF, f"its group makes no Workload: {where}{made.message}"
        if model.condition_true(workload, names.CONDITION_FINISHED):
            return AdmissionGateReason.WORKLOAD_OVER, f"Workload {key} has finished; delete the pod"
        return None

    def _why_member(self, pod: ManagedPod) -> Why | None:
        key = self._gangs.key_of(pod.group)
        workload = self._workloads.get(key)
        if workload is None:
            return None
        roles = [pod_set.name for pod_set in workload.spec.pod_sets]
        if pod.role in roles or not is_of_kueue(pod.group):
            return None
        return AdmissionGateReason.NOT_IN_WORKLOAD, (
            f"its role {pod.role} is not a role of Workload {key} ({', '.join(roles)}); create the pod "
            "again, like the pod that it replaces"
        )

    def _report_held(self, pod: ManagedPod, why: str, _age: float) -> None:
        message = f"Held by scheduling gate {names.ADMISSION_GATE} since {pod.created:%Y-%m-%dT%H:%M:%SZ}: {why}"
        self._writes.event(pod, reason=EVENT_HELD, message=message, warning=True)


def setup(manager: Manager) -> None:
    """Add the sweep over pods with the admission gate, if pods are queued; it runs beside the controllers."""
    watch, writes = manager.shared(watch_pods), manager.shared(make_pod_writes)
    records = manager.shared(make_gang_records)
    if watch is None or writes is None or records is None:
        return
    sweeper = AdmissionGates(
        pods=watch.store,
        writes=writes,
        records=records,
        manages=manager.manages,
        switches=manager.switches,
        sweep=manager.sweep(),
        without_queue=manager.config.manage_jobs_without_queue_name,
    )
    manager.background.append(sweeper.run)
