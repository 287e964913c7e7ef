"""Copies gates and priority class of pods to their Workload, and messages of admission checks to pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_lifecycle import pending_checks
from kqueue.controllers.pod_writes import PodWrites
from kqueue.controllers.workload_steps import JSON, MissingPriorityClassError, WorkloadSteps
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority


class PodFollow:
    """Steps that single pods and groups share; the first pod represents its group."""

    def __init__(self, *, writes: PodWrites, steps: WorkloadSteps, switches: JobFeatures) -> None:
        self._writes, self._steps, self._switches = writes, steps, switches

    def priority(self, first: ManagedPod, pod_sets: Sequence[JSON], *, speaker: JSON | None = None) -> Priority:
        """Return the priority that the pods request; `speaker` has the labels instead of the first pod.

        Raises:
            MissingPriorityClassError: their class does not exist; an event on the pod reports it.
        """
        try:
            return self._steps.priority_of(speaker or first.obj, pod_sets)
        except MissingPriorityClassError as e:
            self._writes.event(first, reason=e.reason, message=str(e), warning=True)
            raise

    async def follow(
        self,
        first: ManagedPod,
        pod_sets: Sequence[JSON],
        workload: wire.Workload,
        *,
        run_time: Mapping[str, str],
        speaker: JSON | None = None,
    ) -> bool:
        """Copy other admission gates, the annotations `run_time`, and another priority class, also while pods run;
        return whether anything was written.
        """
        said = speaker or first.obj
        how = await self._steps.follow(
            said,
            workload,
            priority=lambda: self.priority(first, pod_sets, speaker=speaker),
            run_time=run_time,
        )
        if how:
            self._updated(first, workload, how)
        return bool(how)

    def report_checks(self, pods: Iterable[ManagedPod], workload: wire.Workload) -> None:
        """Report the messages of pending admission checks on each pod, when they change."""
        message = pending_checks(workload)
        for pod in pods if message else ():
            self._writes.event(pod, reason=names.EVENT_UPDATED_ADMISSION_CHECK, message=message)

    def _updated(self, first: ManagedPod, workload: wire.Workload, how: str) -> None:
        message = f"Updated Workload {model.workload_key(workload)} {how}"
        self._writes.event(first, reason=names.EVENT_UPDATED_WORKLOAD, message=message)
