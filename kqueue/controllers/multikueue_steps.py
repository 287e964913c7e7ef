"""Takes the steps for one workload on one worker cluster.  Each may be repeated, and none touches a foreign object."""

from __future__ import annotations

from functools import partial

import structlog

from kqueue import model
from kqueue.api import multikueue_names as words
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.controllers.multikueue_reports import MultiKueueReports
from kqueue.controllers.multikueue_view import DispatchedJob
from kqueue.controllers.originals import Originals
from kqueue.controllers.raw import key_of
from kqueue.controllers.resources import WORKLOADS, resource_of
from kqueue.controllers.worker_cluster import WorkerLink
from kqueue.errors import AlreadyExistsError, ConflictError, NotFoundError
from kqueue.jobs import rules
from kqueue.jobs.fields import JSON, annotations_of, labels_of, text
from kqueue.jobs.kind import SentKind
from kqueue.jobs.multikueue.copies import caught_up, deactivation, reclassed
from kqueue.jobs.multikueue.decision import RemoteStep
from kqueue.jobs.multikueue.facts import MultiKueueFacts
from kqueue.jobs.multikueue.owners import SentOwner
from kqueue.jobs.multikueue.preemption import gated
from kqueue.jobs.patch import Patch
from kqueue.runtime.client import Client, Propagation
from kqueue.runtime.many import each
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import split_key
from kqueue.state.conditions import Stamp
from kqueue.state.preemption_gates import open_gate

_log = structlog.get_logger(__name__)

_AT_ONCE = 32
"""The number of concurrent writes for the pods of one group."""


class RemoteSteps:
    """Writes copies on worker clusters."""

    def __init__(
        self, client: Client, reports: MultiKueueReports, clock: Clock, *, gates_preemption: bool = False
    ) -> None:
        """`client` is that of the manager's own cluster; `gates_preemption`: a copy gets a preemption gate, which
        the manager opens.
        """
        self._originals, self._reports, self._clock = Originals(client), reports, clock
        self._gates_preemption = gates_preemption

    async def take(self, step: RemoteStep, link: WorkerLink, facts: MultiKueueFacts, owner: DispatchedJob) -> None:
        """Take one step for a Workload of the manager and its job."""
        workload, key = facts.workload, model.workload_key(facts.workload)
        match step:
            case RemoteStep.CREATE:
                await self._create(link, workload)
            case RemoteStep.RUN:
                await self._run(link, key, owner)
                await self._edit(link, facts, owner)
            case RemoteStep.CATCH_UP:
                await self._reclass(link, owner)  # first: without it, nothing else asks for this step again
                await self._catch_up(link, workload)
            case RemoteStep.OPEN_GATE:
                await self._open_gate(link, workload)
            case RemoteStep.DEACTIVATE:
                await self._deactivate(link, key)
            case RemoteStep.DELETE:
                spared = facts.is_replaced or facts.stands_behind or link.has_others(key, link.owner_of(key))
                by_name = facts.is_elastic or isinstance(owner.kind, SentOwner)  # it may name another Workload
                if by_name and not spared and owner.kind is not None:
                    copies = [copy for _, copy in owner.present_on(link)]
                    await each(copies, partial(self._delete, link, resource_of(owner.kind)), at_once=_AT_ONCE)
                await self.delete(link, key, spares_job=spared)

    async def delete(self, link: WorkerLink, key: str, *, spares_job: bool = False) -> None:
        """Delete the copies of the job and of the Workload of a key.  `spares_job`: another slice has the job.

        The copy of an owner stays while other groups of it are on the cluster.
        """
        namespace, name = split_key(key)
        spared = spares_job or link.has_others(key, link.owner_of(key))
        jobs = [] if spared else link.jobs_of(key)
        await each(jobs, lambda found: self._delete(link, *found), at_once=_AT_ONCE)
        copy = link.workloads.store.get(key)
        if (
            copy is not None
            and link.origin.made(copy.metadata.labels, copy.metadata.annotations)
            and copy.metadata.deletion_timestamp is None
        ):
            await self._end(link, WORKLOADS, name, namespace, copy.metadata.uid)

    async def _delete(self, link: WorkerLink, resource: ResourceType, job: JSON) -> None:
        meta = job["metadata"]
        if link.origin.made(labels_of(job), annotations_of(job)) and not meta.get("deletionTimestamp"):
            await self._end(link, resource, meta["name"], meta["namespace"], meta["uid"])

    async def _end(self, link: WorkerLink, resource: ResourceType, name: str, namespace: str, uid: str) -> None:
        try:
            await link.client.delete(resource, name, namespace, uid=uid, propagation=Propagation.BACKGROUND)
        except (NotFoundError, ConflictError):
            return  # it is gone, or another object has its name by now
        _log.info("copy deleted", cluster=link.cluster, resource=str(resource), copy=f"{namespace}/{name}")

    async def _create(self, link: WorkerLink, workload: wire.Workload) -> None:
        key = model.workload_key(workload)
        namespace, name = split_key(key)
        original = await self._originals.read(WORKLOADS, name, namespace)
        if original is None:
            return
        copy = link.origin.workload_copy(original)
        try:
            await link.client.create(WORKLOADS, gated(copy) if self._gates_preemption else copy)
        except AlreadyExistsError:
            await self._look_at_holder(link, WORKLOADS, key, key)
            return
        self._reports.dispatched(workload, link.cluster)
        _log.info("workload copied", cluster=link.cluster, workload=key)

    async def _look_at_holder(self, link: WorkerLink, resource: ResourceType, name: str, workload: str) -> None:
        """Note that a name on the cluster is taken, unless by our own copy, which the watch has yet to report."""
        namespace, short = split_key(name)
        present = await link.client.get_json(resource, short, namespace)
        if not link.origin.made(labels_of(present), annotations_of(present)):
            _log.warning("name taken by a foreign object", cluster=link.cluster, resource=str(resource), object=name)
            link.taken.remember(workload, None)
            link.changed(workload)

    async def _run(self, link: WorkerLink, key: str, owner: DispatchedJob) -> None:
        """Create what is missing of the copy of the job, and delete what is left of parts that are gone."""
        kind, (namespace, name) = owner.kind, split_key(key)
        if kind is None:
            return
        await each(owner.left_on(link, key), partial(self._delete, link, resource_of(kind)), at_once=_AT_ONCE)
        missing = owner.missing_on(link)
        workload = await self._originals.read(WORKLOADS, name, namespace) if missing else None
        if workload is not None:
            await each(missing, partial(self._run_part, link, key, kind, workload), at_once=_AT_ONCE)

    async def _run_part(self, link: WorkerLink, key: str, kind: SentKind, workload: JSON, part: JSON) -> None:
        """Create the copy of one part, after an older copy of ours with its name has gone."""
        resource, (namespace, name) = resource_of(kind), split_key(key_of(part))
        older = link.jobs[kind.framework].store.get(key_of(part))
        if older is not None and link.origin.made(labels_of(older), annotations_of(older)):
            await self._delete(link, resource, older)
            return
        original = await self._originals.read(resource, name, namespace)
        if original is None or text(original, "metadata", "uid") != text(part, "metadata", "uid"):
            return
        try:
            await link.client.create(resource, link.origin.job_copy(kind, original, workload))
        except AlreadyExistsError:
            await self._look_at_holder(link, resource, f"{namespace}/{name}", key)
            return
        _log.info("job copied", cluster=link.cluster, job=key_of(part))

    async def _edit(self, link: WorkerLink, facts: MultiKueueFacts, owner: DispatchedJob) -> None:
        """Give the copy of a job the edits of its original, or the size of a slice, whose copy it is from then on."""
        if owner.kind is None:
            return
        workload, elastic, forwards = facts.workload, facts.is_elastic, facts.forwards
        for copy, patch in owner.edits_on(link, workload, elastic=elastic, forwards=forwards):
            await self._change(link, owner.kind, (copy, patch))
            _log.info("job changed", cluster=link.cluster, job=key_of(copy), workload=workload.metadata.name)

    async def _reclass(self, link: WorkerLink, owner: DispatchedJob) -> None:
        """Give the copies of the job, or of pods, the priority class of the originals."""
        if owner.kind is not None:
            parts = owner.present_on(link)
            if isinstance(owner.kind, SentOwner):  # with ready pods it takes another class, and no first one
                parts = [each for each in parts if rules.priority_class(each[1])]
            changes = [(copy, reclassed(part, copy)) for part, copy in parts]
            write = partial(self._change, link, owner.kind)
            await each([(copy, patch) for copy, patch in changes if patch], write, at_once=_AT_ONCE)

    async def _change(self, link: WorkerLink, kind: SentKind, change: tuple[JSON, Patch]) -> None:
        """Patch a copy of a job, in the version that was seen."""
        copy, patch = change
        meta = copy["metadata"]
        body = {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": meta["resourceVersion"]}}
        await link.client.patch(resource_of(kind), meta["name"], body, meta["namespace"])

    async def _catch_up(self, link: WorkerLink, workload: wire.Workload) -> None:
        name, namespace = workload.metadata.name, workload.metadata.namespace
        copy = await link.client.get_json(WORKLOADS, name, namespace)
        patch = caught_up(workload, copy)
        if patch and link.origin.made(labels_of(copy), annotations_of(copy)):
            lock = {"metadata": {"resourceVersion": text(copy, "metadata", "resourceVersion")}}
            await link.client.patch(WORKLOADS, name, {**lock, **patch}, namespace)

    async def _open_gate(self, link: WorkerLink, workload: wire.Workload) -> None:
        name, namespace = workload.metadata.name, workload.metadata.namespace
        copy = await link.client.get(WORKLOADS, name, namespace, decode=wire.Workload)
        patch = open_gate(copy, words.PREEMPTION_GATE, stamp=Stamp(self._clock.now()))
        if patch is not None and link.origin.made(copy.metadata.labels, copy.metadata.annotations):
            lock = {"metadata": {"resourceVersion": copy.metadata.resource_version}}
            await link.client.patch(WORKLOADS, name, {**lock, **patch}, namespace, subresource="status")
            self._reports.told(workload, f"Cluster {link.cluster} may preempt for the workload")

    async def _deactivate(self, link: WorkerLink, key: str) -> None:
        namespace, name = split_key(key)
        copy = await link.client.get(WORKLOADS, name, namespace, decode=wire.Workload)
        patch = deactivation(copy, self._clock.now())
        if patch is not None and link.origin.made(copy.metadata.labels, copy.metadata.annotations):
            lock = {"metadata": {"resourceVersion": copy.metadata.resource_version}}
            await link.client.patch(WORKLOADS, name, {**lock, **patch}, namespace, subresource="status")
            _log.info("copy deactivated", cluster=link.cluster, workload=key)
