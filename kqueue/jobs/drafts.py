"""The Workloads that objects would get which do not exist yet, by the functions that make those of existing ones.

The objects were reviewed: they have the defaults of the webhooks.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from kqueue.jobs.composed import ComposedKind, GroupPlan
from kqueue.jobs.copied import COPIES_NONE, CopiedKeys
from kqueue.jobs.fields import JSON, mapping, text, whole
from kqueue.jobs.gang import batch_workload
from kqueue.jobs.gang.batch_process import plan_of
from kqueue.jobs.gang.compose import compose, workload_of
from kqueue.jobs.gang.dialect import DEFAULT_TIMEOUTS, GroupProblem, ScheduleTimeouts
from kqueue.jobs.gang.members import in_order
from kqueue.jobs.gang.naming import workload_of_gang
from kqueue.jobs.gang.pods import managed_pod
from kqueue.jobs.gang.record import least_annotation
from kqueue.jobs.gang.value import GangRef
from kqueue.jobs.kind import JobKind
from kqueue.jobs.patch import apply_merge_patch
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.switches import JobFeatures
from kqueue.jobs.workload import Priority, workload_for

PriorityOf = Callable[[JSON, Sequence[JSON]], Priority]
"""Resolves the priority of an object and its pod sets."""
SINGLE_POD = PlainPod()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWorkload:
    """The Workload that an object would get.

    Args:
        source: kind and name of the object, as in `Job train`.
        workload: the complete Workload.
        copies: how many equal ones the object would get.
        extras: pods beyond the quorum of its gang, which start one by one behind it.
    """

    source: str
    workload: JSON
    copies: int = 1
    extras: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """The settings by which Workloads are made.

    Args:
        priority: resolves priorities; raises TerminalError for a class that does not exist.
        switches: feature switches.
        copied: labels and annotations that a Workload gets from its owner.
        timeouts: the deadlines of gangs that name none.
    """

    priority: PriorityOf
    switches: JobFeatures
    copied: CopiedKeys = COPIES_NONE
    timeouts: ScheduleTimeouts = DEFAULT_TIMEOUTS

    def of_job(self, kind: JobKind, job: JSON) -> DraftWorkload:
        """Return the Workload of a job, or of a pod that is queued alone.

        Raises:
            InvalidObjectError: an annotation cannot be read.
        """
        priority = self.priority(job, kind.pod_sets(job, self.switches))
        made = workload_for(kind, job, priority=priority, switches=self.switches, copied=self.copied)
        return DraftWorkload(source=called(job), workload=made)

    def of_composed(self, kind: ComposedKind, owner: JSON) -> Iterator[DraftWorkload]:
        """Yield the Workloads of the groups of pods of an owner; equal groups that follow each other are one draft."""
        for _, groups in groupby(kind.groups(owner, self.switches), key=lambda group: list(group.pod_sets)):
            first, *others = groups
            plan = GroupPlan(kind=kind, owner=owner, group=first, switches=self.switches)
            if not first.count:
                continue
            made = plan.workload(self.priority(owner, first.pod_sets), self.copied)
            yield DraftWorkload(source=called(owner), workload=made, copies=1 + len(others))

    def of_deployment(self, deployment: JSON) -> DraftWorkload:
        """Return the Workload of each pod of a Deployment: its pods are queued one by one."""
        template, meta = mapping(deployment, "spec", "template"), mapping(deployment, "metadata")
        own = mapping(template, "metadata")
        kept = {key: meta[key] for key in ("name", "namespace", "uid", "creationTimestamp") if key in meta}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**own, **kept}, "spec": dict(mapping(template, "spec"))}
        drafted = self.of_job(SINGLE_POD, batch_workload.queued(pod, self.switches))
        replicas = whole(deployment, "spec", "replicas")
        return replace(drafted, source=called(deployment), copies=1 if replicas is None else replicas)

    def of_batch_process(self, obj: JSON, queue: str) -> DraftWorkload:
        """Return the Workload of a valid BatchProcess in a LocalQueue; its pods beyond the quorum are extras."""
        plan = plan_of(obj)
        pod_sets = batch_workload.pod_sets_of(obj, self.switches)
        priority = self.priority(batch_workload.as_job(obj, queue), pod_sets)
        made = batch_workload.workload_of(
            obj, queue=queue, priority=priority, switches=self.switches, copied=self.copied
        )
        extras = plan.replicas - sum(role.base for role in plan.roles)
        return DraftWorkload(source=called(obj), workload=made, extras=extras)

    def of_gang(self, pods: Iterable[JSON], group_object: JSON | None) -> DraftWorkload | GroupProblem:
        """Return the Workload of the pods of one gang, or the problem that prevents it.

        `group_object`: the object that its dialect has for the gang; None: there is none.
        """
        members = in_order(managed_pod(pod, self.switches) for pod in pods)
        made = compose(members, self.switches, group_object=group_object, timeouts=self.timeouts)
        if isinstance(made, GroupProblem):
            return made
        ref = GangRef.of_key(members[0].group)
        built = workload_of(
            made,
            name=workload_of_gang(ref, self.switches, uid=text(group_object or {}, "metadata", "uid")),
            priority=self.priority(made.speaker, made.priority_sets),
            copied=self.copied,
            switches=self.switches,
        )
        if isinstance(built, GroupProblem):
            return built
        workload = apply_merge_patch(built, {"metadata": {"annotations": least_annotation(made.wish)}})
        return DraftWorkload(source=f"gang {ref.name}", workload=workload, extras=len(made.extras))


def called(obj: JSON) -> str:
    """Return kind and name of an object."""
    return f"{text(obj, 'kind')} {text(obj, 'metadata', 'name')}"
