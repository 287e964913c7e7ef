"""Answers AdmissionChecks of controller `kueue.x-k8s.io/multikueue`: another cluster runs the job.

The reconciler of a Workload decides by all facts, writes what changes on the manager's own cluster, and enqueues the
Workload on every cluster on which a step is due.  There the decision is made again and that one step taken, so nothing
that a worker does or fails to do delays the manager.  The rules are in `kqueue.jobs.multikueue`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers import resources as kinds
from kqueue.controllers.multikueue_reports import MultiKueueReports
from kqueue.controllers.multikueue_steps import RemoteSteps
from kqueue.controllers.multikueue_view import MultiKueueView
from kqueue.controllers.raw import key_of
from kqueue.controllers.worker_cluster import WorkerCluster, WorkerLink
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.errors import ForbiddenError, InvalidError, NotFoundError
from kqueue.jobs.check_entry import answered
from kqueue.jobs.fields import JSON, text
from kqueue.jobs.kind import SentKind
from kqueue.jobs.multikueue.copies import status_back
from kqueue.jobs.multikueue.decision import MultiKueueDecision, RemoteStep, decide
from kqueue.jobs.multikueue.facts import MultiKueueFacts
from kqueue.jobs.multikueue.pods import status_cleared
from kqueue.jobs.pod import PlainPod
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.many import each
from kqueue.runtime.store import split_key
from kqueue.state import delayed_status, status

_log = structlog.get_logger(__name__)

_AT_ONCE = 32
"""The number of concurrent writes for the pods of one group."""
_REFUSED_SECONDS = 30.0
"""Seconds before a step is taken again that a cluster refused."""


class MultiKueueChecks:
    """The reconciler of Workloads with a MultiKueue check, on the manager's own cluster."""

    def __init__(
        self,
        workloads: WorkloadBook,
        view: MultiKueueView,
        clusters: Mapping[str, WorkerCluster],
        *,
        client: Client,
        steps: WorkloadSteps,
        reports: MultiKueueReports,
        clock: Clock,
    ) -> None:
        """`clusters` are the connections by name; `steps` finish Workloads."""
        self._workloads, self._view, self._clusters = workloads, view, clusters
        self._client, self._steps, self._reports, self._clock = client, steps, reports, clock

    async def reconcile(self, key: str) -> Result:
        """Write what changes on the manager's cluster, and enqueue the Workload where a step is due."""
        workload = self._workloads.newest(key)
        facts = self._view.facts(workload) if workload is not None else None
        if workload is None or facts is None:
            self._clean_up(key)
            return Result()
        decision = decide(facts)
        self._view.decided(facts, decision.nominated)
        if decision.status_of:
            await self._bring_status(workload, decision.status_of)
        elif not facts.holds_quota:
            await self._clear_status(workload)
        if decision.end is not None:
            await self._steps.finish(workload, decision.end.reason, decision.end.message)
        else:
            await self._write(key, facts, decision)
            if (ready := self._view.is_ready(facts)) is not None:
                await self._steps.report(workload, reclaimable={}, ready=ready)
        for cluster in decision.steps:
            if cluster in self._clusters:
                self._clusters[cluster].enqueue(key)
        return Result(requeue_after=decision.again.total_seconds() if decision.again is not None else None)

    def _clean_up(self, key: str) -> None:
        """Enqueue a Workload that has no check on all clusters with copies, which are deleted there."""
        for cluster in self._clusters.values():
            if cluster.link is not None and cluster.link.has(key):
                cluster.enqueue(key)

    def collect_garbage(self) -> None:
        """Enqueue all copies whose Workload is gone."""
        for cluster in self._clusters.values():
            for key in cluster.link.copied() if cluster.link is not None else ():
                if self._workloads.newest(key) is None:
                    cluster.enqueue(key)

    # --- writing -------------------------------------------------------------------------------------------------

    async def _write(self, key: str, facts: MultiKueueFacts, decision: MultiKueueDecision) -> None:
        """Write the answer and the clusters, unless what they were decided by has changed."""
        since, before = status.Stamp(self._clock.now()).text, facts.workload

        def change(now: wire.Workload) -> status.Patch | None:
            if not _is_same(now, before):
                return None
            fields: status.Patch = {}
            if decision.answer is not None:
                entries = answered(now.status.admission_checks, {facts.entry.name: decision.answer}, since)
                fields |= {"admissionChecks": entries} if entries is not None else {}
                if decision.answer.state == names.CHECK_READY:
                    fields |= delayed_status.placed_elsewhere(now)  # else this cluster would choose domains, too
            if decision.nominated is not None:
                fields["nominatedClusterNames"] = list(decision.nominated) or None
            if decision.cluster:
                fields["clusterName"] = decision.cluster
            return {"status": fields} if fields else None

        written = await self._workloads.write(key, change)
        answer = decision.answer
        if written is not None and answer is not None and answer.state != facts.entry.state:
            message = (
                f"AdmissionCheck {facts.entry.name} went from {facts.entry.state} to {answer.state}: {answer.message}"
            )
            self._reports.told(written, message, is_fault=decision.is_fault)
            if answer.state == names.CHECK_READY:
                self._reports.admitted(written, decision.cluster or written.status.cluster_name or "")
            _log.info("multikueue check answered", workload=key, state=answer.state)

    async def _bring_status(self, workload: wire.Workload, cluster: str) -> None:
        """Give the manager's job, or the pods of a group, the status of their copies.  A status that the API server
        refuses is left out.
        """
        owner, link = self._view.owner(workload), self._clusters[cluster].link
        kind = owner.kind
        if kind is None or link is None:
            return
        patches = [(part, status_back(kind, part, copy)) for part, copy in owner.copied_on(link)]
        await each(
            [(part, patch) for part, patch in patches if patch],
            partial(self._write_status, workload, kind, cluster),
            at_once=_AT_ONCE,
        )

    async def _clear_status(self, workload: wire.Workload) -> None:
        """Take the status of a run on another cluster from pods that wait again; jobs lose theirs when they stop."""
        owner = self._view.owner(workload)
        if owner.kind is not None and owner.kind.framework == PlainPod.framework:
            patches = [(part, status_cleared(part)) for part in owner.parts]
            write = partial(self._write_status, workload, owner.kind, "")
            await each([(part, patch) for part, patch in patches if patch], write, at_once=_AT_ONCE)

    async def _write_status(
        self, workload: wire.Workload, kind: SentKind, cluster: str, change: tuple[JSON, status.Patch]
    ) -> None:
        part, patch = change
        resource, (namespace, name) = kinds.resource_of(kind), split_key(key_of(part))
        lock = {"metadata": {"resourceVersion": text(part, "metadata", "resourceVersion")}}
        try:
            await self._client.patch(resource, name, {**lock, **patch}, namespace, subresource="status")
        except NotFoundError:
            return
        except InvalidError as e:
            self._reports.refused(workload, f"The status of {name} on {cluster or 'no cluster'} is refused here: {e}")


def _is_same(now: wire.Workload, then: wire.Workload) -> bool:
    """Whether a decision about the Workload is still valid."""
    reserved, evicted = names.CONDITION_QUOTA_RESERVED, names.CONDITION_EVICTED
    return (
        now.metadata.uid == then.metadata.uid
        and model.since(now, reserved) == model.since(then, reserved)
        and model.condition_true(now, evicted) == model.condition_true(then, evicted)
        and now.status.admission_checks == then.status.admission_checks
        and now.status.cluster_name == then.status.cluster_name
        and now.status.nominated_cluster_names == then.status.nominated_cluster_names
    )


class ClusterSteps:
    """Takes the step that is due for a Workload on one cluster."""

    def __init__(
        self, workloads: WorkloadBook, view: MultiKueueView, steps: RemoteSteps, reports: MultiKueueReports
    ) -> None:
        self._workloads, self._view, self._steps, self._reports = workloads, view, steps, reports

    async def reconcile(self, link: WorkerLink, key: str) -> Result:
        """Decide anew, and take the step of the cluster of this link."""
        workload = self._workloads.newest(key)
        facts = self._view.facts(workload) if workload is not None else None
        if workload is None or (facts is None and self._view.is_dropped(workload)):
            await self._steps.delete(link, key, spares_job=self._view.is_replaced(key))
        elif facts is not None:
            step = decide(facts).steps.get(link.cluster)
            if step is not None:
                return await self._take(step, link, facts)
        return Result()

    async def _take(self, step: RemoteStep, link: WorkerLink, facts: MultiKueueFacts) -> Result:
        """Take a step; tell users what a cluster refuses, such as a namespace that it lacks, and try it again later."""
        workload = facts.workload
        try:
            await self._steps.take(step, link, facts, self._view.owner(workload))
        except (InvalidError, ForbiddenError, NotFoundError) as e:
            self._reports.refused(workload, f"Cluster {link.cluster} refused a step ({step.value}): {e}")
            return Result(requeue_after=_REFUSED_SECONDS)
        return Result()
