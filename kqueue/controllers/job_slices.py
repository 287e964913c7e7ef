"""Manages the Workloads of an elastic job: one while the job keeps its size, a second while the job waits for more.

Pods beyond the admission have a gate, so the job itself is neither stopped nor changed when it grows or shrinks.
`kqueue.jobs.slices` decides the next step; this module takes it, one write at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.controllers.job_workload import JobWorkload, is_owner, was_started
from kqueue.controllers.job_writes import JobWrites, job_key
from kqueue.controllers.workload_steps import WorkloadSteps, as_json
from kqueue.errors import NotFoundError
from kqueue.jobs import rules, slices
from kqueue.jobs.fields import annotations_of, mapping, objects, text
from kqueue.jobs.kind import JobKind, ScaledKind
from kqueue.jobs.slices import SlicePlan, SliceStep
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import workload_name_of

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settled:
    """The outcome of one step for the slices of a job."""

    workload: wire.Workload | None = None
    """The Workload by which the job runs or waits; None: there is none."""
    acted: bool = False
    """Whether something was written or is awaited, so that its event enqueues the job again."""


_ACTED = Settled(acted=True)


class JobSlices:
    """The slices of jobs of one kind."""

    def __init__(
        self,
        *,
        kind: JobKind,
        workload: JobWorkload,
        steps: WorkloadSteps,
        writes: JobWrites,
        standing: Callable[[str], Mapping[str, int]],
        switches: JobFeatures,
    ) -> None:
        """Take the parts; `standing` returns for a `siblings_key` the number of released pods that have not ended, by
        pod set.
        """
        self._kind, self._workload, self._steps, self._writes = kind, workload, steps, writes
        self._standing, self._switches = standing, switches

    def concerns(self, job: JSON) -> bool:
        """Whether a job has slices: it is elastic, and its Workload is not prebuilt.

        A job that runs without the gate was started while elastic jobs were off: it does not grow while it runs.
        """
        if self._kind.framework not in slices.FRAMEWORKS or not rules.is_elastic(job, self._switches):
            return False
        if rules.prebuilt_name(job, self._switches):
            return False
        return self._kind.is_suspended(job) or not self._kind.suspend(job) or self._is_gated(job)

    def _is_gated(self, job: JSON) -> bool:
        held = [objects(p, "template", "spec", "schedulingGates") for p in self._kind.pod_sets(job, self._switches)]
        return all(any(gate.get("name") == names.ELASTIC_JOB_GATE for gate in gates) for gates in held)

    def goes_on(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> bool:
        """Whether the job may run although its Workload is not admitted: pods without an admission have the gate.

        A job that was unsuspended by hand may not run, because no controller would ever release its pods.
        """
        if not self.concerns(job) or not was_started(pod_sets, workload):
            return False
        reserved = model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        return reserved or not any(self._standing(model.siblings_key(workload)).values())

    # --- counts of pods ------------------------------------------------------------------------------------------

    def reclaimable(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> Mapping[str, int]:
        """Return the pods of this Workload that will not run again; pods that are gated for lack of quota do
        not count.
        """
        found = self._kind.reclaimable(job)
        if not found or not self.concerns(job):
            return found
        beyond = self._beyond(pod_sets, workload)
        return {name: count - beyond.get(name, 0) for name, count in found.items() if count > beyond.get(name, 0)}

    def ready(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> bool | None:
        """Whether all pods are ready; None: the job wants more pods than this Workload has, so the answer is
        not known.
        """
        if self.concerns(job) and self._beyond(pod_sets, workload):
            return None
        return self._kind.pods_ready(job)

    def _beyond(self, pod_sets: Sequence[JSON], workload: wire.Workload) -> Mapping[str, int]:
        held = {p.name: p.count for p in workload.spec.pod_sets}
        return {name: more for name, count in slices.counts_of(pod_sets) if (more := count - held.get(name, 0)) > 0}

    # --- one step ---------------------------------------------------------------------------------------------

    async def settle(self, job: JSON, pod_sets: Sequence[JSON]) -> Settled:
        """Take the next step for the job's Workloads."""
        owned = self._workload.owned(job_key(job))
        mine = {model.workload_key(w): w for w in owned if is_owner(job, w)}
        if await self._clear_away(job, [w for w in owned if not is_owner(job, w)], mine.values()):
            return _ACTED
        plan = slices.plan(
            slices.counts_of(pod_sets),
            [slices.slice_of(as_json(w)) for w in mine.values()],
            standing=self._stand(mine.values()),
        )
        if plan.runs is None or plan.wants is None:
            return Settled(_newest_end([*mine.values()]))
        if plan.ends:
            await self._finish(plan, mine)
            return _ACTED
        runs, wants = mine[plan.runs], mine[plan.wants]
        if self._kind.finished(job) is not None:
            return Settled(runs)
        if self._is_another(job, pod_sets, runs, wants, plan.step):
            await self._workload.replace_all(job, pod_sets, [runs, *([wants] if wants is not runs else [])])
            return _ACTED
        return await self._follow(job, pod_sets, plan, runs=runs, wants=wants)

    def _stand(self, workloads: Iterable[wire.Workload]) -> Mapping[str, int]:
        found = Counter[str]()
        alive = (w for w in workloads if not model.condition_true(w, names.CONDITION_FINISHED))
        for siblings in {model.siblings_key(w) for w in alive}:
            found.update(self._standing(siblings))
        return found

    async def _clear_away(self, job: JSON, strangers: Sequence[wire.Workload], mine: Iterable[wire.Workload]) -> bool:
        """Release finished Workloads, and delete Workloads of an older job of the same name; return whether there were
        any.
        """
        for workload in mine:
            if model.condition_true(workload, names.CONDITION_FINISHED):
                await self._steps.release(workload)
        if strangers and not self._workload.busy(None, strangers):
            await self._workload.delete(job, strangers)
        return bool(strangers)

    async def _finish(self, plan: SlicePlan, mine: Mapping[str, wire.Workload]) -> None:
        for key, reason in plan.ends.items():
            if reason == names.REASON_WORKLOAD_SLICE_REPLACED and plan.wants is not None:
                await self._steps.replace(mine[key], by=mine[plan.wants])
            else:
                await self._steps.finish(mine[key], reason, f"The job goes on with {plan.runs}")

    def _is_another(
        self, job: JSON, pod_sets: Sequence[JSON], runs: wire.Workload, wants: wire.Workload, step: SliceStep
    ) -> bool:
        """Whether the job has changed so that these Workloads do not describe it.

        The templates of a running job cannot change.  The templates of a waiting job can: then another job was
        admitted.
        """
        if step is SliceStep.RESTART:
            return True
        if not self._kind.is_suspended(job) or was_started(pod_sets, runs):
            return False
        reserved = model.condition_true(runs, names.CONDITION_QUOTA_RESERVED)
        if reserved and model.condition_true(runs, names.CONDITION_EVICTED):
            return False
        return not all(self._describes(job, pod_sets, w) for w in {id(w): w for w in (runs, wants)}.values())

    def _describes(self, job: JSON, pod_sets: Sequence[JSON], workload: wire.Workload) -> bool:
        """Whether a Workload describes the job, except for pod counts."""
        theirs = slices.counts_of(objects(as_json(workload), "spec", "podSets"))
        return self._workload.matches(job, slices.with_counts(pod_sets, theirs), workload, suspended=True)

    async def _follow(
        self, job: JSON, pod_sets: Sequence[JSON], plan: SlicePlan, *, runs: wire.Workload, wants: wire.Workload
    ) -> Settled:
        """Make the Workload's counts, priority and gates consistent with the job."""
        if plan.step is SliceStep.RESIZE and await self._steps.resize(wants, slices.counts_of(pod_sets)):
            self._workload.updated(job, wants, "to the job's pods")
            return _ACTED
        if plan.step is SliceStep.GROW:
            if isinstance(self._kind, ScaledKind) and (patch := self._kind.revise(job)):
                await self._writes.patch(job, patch)
                return _ACTED
            if not self._workload.just_made(job):
                await self._grow(job, pod_sets, wants)
            return Settled(runs, acted=False)
        for workload in {id(w): w for w in (wants, runs)}.values():
            if await self._workload.follow(job, pod_sets, workload):
                return _ACTED
        return Settled(runs)

    async def _grow(self, job: JSON, pod_sets: Sequence[JSON], older: wire.Workload) -> None:
        """Create a Workload that replaces `older`; it has the pod templates of `older`, not of the started job."""
        now = await self._steps.read(older)
        if now is None:
            raise NotFoundError(f"Workload {model.workload_key(older)} is gone, it cannot be replaced")
        taken = {w.metadata.name for w in self._workload.owned(job_key(job))}

        def change(new: JSON) -> JSON:
            annotations = {
                **annotations_of(new),
                names.WORKLOAD_SLICE_NAME_ANNOTATION: slices.origin_of(now),
                names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION: model.workload_key(older),
            }
            name = workload_name_of(self._kind, job, self._switches, taken=taken)
            same = slices.with_counts(objects(now, "spec", "podSets"), slices.counts_of(pod_sets))
            queue = {"queueName": text(now, "spec", "queueName")}
            return {
                **new,
                "metadata": {**mapping(new, "metadata"), "name": name, "annotations": annotations},
                "spec": {**mapping(new, "spec"), **queue, "podSets": same},
            }

        await self._workload.make(job, pod_sets, change=change)


def _newest_end(finished: Sequence[wire.Workload]) -> wire.Workload | None:
    """Return the newest of finished Workloads; None: it ended only because another slice was to go on."""
    if not finished:
        return None
    by_key = {model.workload_key(w): w for w in finished}
    last = by_key[slices.in_order([slices.slice_of(as_json(w)) for w in finished])[-1].key]
    why = model.condition(last.status.conditions, names.CONDITION_FINISHED)
    over = why is not None and why.reason not in (names.REASON_WORKLOAD_SLICE_REPLACED, names.REASON_OUT_OF_SYNC)
    return last if over else None
