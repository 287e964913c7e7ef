"""Connects the parts of MultiKueue: watches, connections to worker clusters, reconcilers, and events between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import multikueue as api
from kqueue.config.dispatchers import DISPATCHER_BEST_DOMAIN
from kqueue.config.policy import BestDomainConfig
from kqueue.controllers import resources as kinds
from kqueue.controllers.check_answers import CheckActivity, is_of
from kqueue.controllers.cluster_profiles import ClusterProfiles, providers_of
from kqueue.controllers.composed import watch_composed
from kqueue.controllers.elsewhere import make_elsewhere
from kqueue.controllers.job_workload import OWNER_INDEX, owner_key, owner_keys
from kqueue.controllers.manager import Manager
from kqueue.controllers.multikueue import ClusterSteps, MultiKueueChecks
from kqueue.controllers.multikueue_quota import QuotaAutomation, QuotaSources
from kqueue.controllers.multikueue_reports import MultiKueueReports
from kqueue.controllers.multikueue_steps import RemoteSteps
from kqueue.controllers.multikueue_view import (
    CONTROLLER,
    DispatchedJob,
    MultiKueueSources,
    MultiKueueView,
    ignored,
    unasked,
)
from kqueue.controllers.pod_owner import KIND as POD_KIND
from kqueue.controllers.pod_writes import GROUP_INDEX, make_pod_writes, watch_pods
from kqueue.controllers.raw import key_of
from kqueue.controllers.record import Reporter
from kqueue.controllers.worker_answers import WorkerAnswers
from kqueue.controllers.worker_cluster import IDENTITY, WorkerCluster, WorkerHandlers, WorkerTimes, WorkerTools
from kqueue.controllers.worker_clusters import WorkerClusters
from kqueue.controllers.worker_sources import KUBECONFIG_FOLDER, WorkerSources
from kqueue.jobs.catalog import COMPOSED
from kqueue.jobs.deployment import Deployment
from kqueue.jobs.fields import JSON, mapping
from kqueue.jobs.gang.key import is_of_kueue
from kqueue.jobs.gang.naming import gang_of_workload
from kqueue.jobs.kind import JobKind
from kqueue.jobs.managed_by import Way, way_of
from kqueue.jobs.multikueue.answers import ClusterAnswer
from kqueue.jobs.multikueue.copies import Origin
from kqueue.jobs.multikueue.facts import DispatchPolicy
from kqueue.jobs.multikueue.owners import SentOwner, index_of_owner
from kqueue.jobs.multikueue.owners import owner_key as groups_key
from kqueue.jobs.multikueue.sets import heeded
from kqueue.jobs.pod_view import ManagedPod
from kqueue.kinds import GroupKind
from kqueue.runtime.client import Client
from kqueue.runtime.store import Store, object_key, split_key

HEIR_INDEX = "multikueue heirs"
"""Index of Workloads by the key of the slice that they replace."""
GROUPS_INDEX = "multikueue groups"
"""Index of Workloads by the key of their owner of several groups of pods."""


def heir_of(workload: wire.Workload) -> list[str]:
    """Return the index values of a Workload."""
    key = model.replaced_key(workload)
    return [key] if key else []


def jobs_by_owner(
    known: Mapping[GroupKind, tuple[JobKind, Store[JSON]]],
    pods: Store[ManagedPod] | None = None,
    owners: Mapping[GroupKind, tuple[SentOwner, Store[JSON]]] = MappingProxyType({}),
    members: Store[ManagedPod] | None = None,
) -> Callable[[wire.Workload], DispatchedJob]:
    """Return a function that finds the job of a Workload among the enabled kinds, with the UID that it is owned by.

    `pods` are those that are queued themselves, with `GROUP_INDEX`; None: none are.  `owners` are owners of groups of
    pods, and `members` these pods, with the same index.
    """

    def job_of(workload: wire.Workload) -> DispatchedJob:
        for owner in owner_keys(workload):
            group, kind, namespace, name = owner.split("/")
            key = f"{namespace}/{name}"
            if pods is not None and (group, kind) == ("", "Pod"):
                return _owners(workload, [pods.get(key)])
            found = known.get((group, kind))
            if found is None:
                continue
            job = found[1].get(key)
            uids = {each.uid for each in workload.metadata.owner_references if each.controller}
            is_it = job is not None and mapping(job, "metadata").get("uid") in uids
            return DispatchedJob(found[0], (job,) if job is not None and is_it else ())
        if (owned := _of_owner(workload, owners, members)) is not None:
            return owned
        group_key = group_of(workload)
        if pods is None or not group_key:
            return DispatchedJob()
        return _owners(workload, pods.by_index(GROUP_INDEX, group_key))

    return job_of


def _of_owner(
    workload: wire.Workload,
    owners: Mapping[GroupKind, tuple[SentOwner, Store[JSON]]],
    members: Store[ManagedPod] | None,
) -> DispatchedJob | None:
    """Return the owner of the group of pods that a Workload counts, with these pods; None: it has no such owner."""
    meta = workload.metadata
    for reference in meta.owner_references if _is_group(workload) else ():
        kind, found = owners.get((reference.api_version.rpartition("/")[0], reference.kind), (None, None))
        if kind is None or found is None:
            continue
        obj = found.get(f"{meta.namespace}/{reference.name}")
        parts = (obj,) if obj is not None and mapping(obj, "metadata").get("uid") == reference.uid else ()
        key = gang_of_workload(meta.namespace, meta.name, meta.annotations)
        pods = members.by_index(GROUP_INDEX, key) if members is not None else []
        return DispatchedJob(kind, parts, tuple(pod.obj for pod in pods))
    return None


def group_of(workload: wire.Workload) -> str:
    """Return the key of the group of pods that a Workload counts; empty: it counts none that other clusters can run.

    A group with an object of its own needs that object on the worker, too, so only Kueue's own groups are sent.
    """
    meta = workload.metadata
    if not _is_group(workload):
        return ""
    key = gang_of_workload(meta.namespace, meta.name, meta.annotations)
    return key if is_of_kueue(key) else ""


def _is_group(workload: wire.Workload) -> bool:
    meta = workload.metadata
    return meta.annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) == "true" and model.controller_of(meta) is None


def groups_beside(workloads: Store[wire.Workload]) -> Callable[[wire.Workload], list[wire.Workload]]:
    """Return a function that finds the Workloads of the other groups of the owner of a Workload; `workloads` gets an
    index.
    """
    workloads.add_index(GROUPS_INDEX, index_of_owner)

    def beside(workload: wire.Workload) -> list[wire.Workload]:
        owned_by = {each.uid for each in workload.metadata.owner_references}
        return [
            other
            for owner in index_of_owner(workload)
            for other in workloads.by_index(GROUPS_INDEX, owner)
            if other.metadata.name != workload.metadata.name
            and owned_by & {each.uid for each in other.metadata.owner_references}
        ]

    return beside


def _owners(workload: wire.Workload, found: Iterable[ManagedPod | None]) -> DispatchedJob:
    """Return the pods that own a Workload: others of the group are not counted."""
    uids = {each.uid for each in workload.metadata.owner_references}
    return DispatchedJob(POD_KIND, tuple(pod.obj for pod in found if pod is not None and pod.uid in uids))


def policy_of(manager: Manager) -> DispatchPolicy:
    """Return the settings of the dispatcher."""
    settings, enabled = manager.config.multi_kueue, manager.config.enabled
    steps, asks = settings.incremental_dispatcher_config, settings.best_domain_config or BestDomainConfig()
    return DispatchPolicy(
        dispatcher=settings.dispatcher_name,
        step=steps.step_size if steps is not None and enabled("MultiKueueIncrementalDispatcherConfig") else 3,
        keeps_order=enabled("MultiKueueIncrementalDispatcherRespectConfigOrder"),
        lost_after=settings.worker_lost_timeout,
        orchestrates_preemption=enabled("MultiKueueOrchestratedPreemption"),
        patience=asks.patience,
        answer_within=asks.answer_timeout,
    )


def profiles_of(manager: Manager) -> ClusterProfiles | None:
    """Return what reads ClusterProfiles; None: they are off."""
    if not manager.config.enabled("MultiKueueClusterProfile"):
        return None
    providers = providers_of(manager.config.multi_kueue)
    return ClusterProfiles(manager.client, manager.config.namespace, providers, clock=manager.clock)


class _Parts:
    """The parts of one process."""

    def __init__(self, manager: Manager) -> None:
        watches, self._manager = manager.watches, manager
        self._follows_quota = manager.config.enabled("MultiKueueManagerQuotaAutomation")
        self.jobs = [kind for kind in manager.kinds if way_of(kind) in (Way.FIELD, Way.FLAG)]
        alone = {POD_KIND.framework, Deployment.framework} & set(manager.config.integrations.frameworks)
        watch = manager.shared(watch_pods) if alone else None
        manager.shared(make_pod_writes)  # it indexes them by group
        self.pods: Store[ManagedPod] | None = watch.store if watch is not None else None
        """Pods that are queued themselves; None: none are."""
        owned = manager.shared(watch_composed)
        self.owners = [(SentOwner(kind), owned[kind.framework]) for kind in COMPOSED if kind.framework in owned]
        """Owners of groups of pods, with their watches."""
        self.objects = watches.watch(kinds.MULTIKUEUE_CLUSTERS, api.MultiKueueCluster)
        self.configs = watches.watch(kinds.MULTIKUEUE_CONFIGS, api.MultiKueueConfig)
        folder = KUBECONFIG_FOLDER if manager.config.enabled("MultiKueueKubeConfigPathValidation") else None
        self._sources = WorkerSources(
            manager.client,
            manager.config.namespace,
            clock=manager.clock,
            folder=folder,
            profiles=profiles_of(manager),
        )
        self._tools = self._make_tools()
        writer = manager.writer(kinds.MULTIKUEUE_CLUSTERS, self.objects, api.MultiKueueCluster)
        self.clusters = WorkerClusters(self.objects.store, self._connection, writer, manager.clock)
        policy = policy_of(manager)
        self.answers = WorkerAnswers(
            self.clusters.connected,
            manager.clock,
            on_answer=lambda key: self.of_workloads.enqueue(key),
            answer_within=policy.answer_within,
            patience=policy.patience,
            workloads=watches.workloads.store.values,
        )
        self.view = self._make_view()
        reports = MultiKueueReports(manager.recorder(Reporter.WORKLOADS), manager.metrics.cluster_queue)
        gates = manager.config.enabled("MultiKueueOrchestratedPreemption")
        remote = RemoteSteps(manager.client, reports, manager.clock, gates_preemption=gates)
        self._steps = ClusterSteps(manager.workload_writer, self.view, remote, reports)
        self.checks = MultiKueueChecks(
            manager.workload_writer,
            self.view,
            self.clusters.connected,
            client=manager.client,
            steps=manager.steps,
            reports=reports,
            clock=manager.clock,
        )
        activity = CheckActivity(
            manager.writer(kinds.ADMISSION_CHECKS, watches.checks, wire.AdmissionCheck),
            self.view.activity,
            manager.clock,
        )
        self.of_quotas = manager.controller("multikueue_quota", self._make_quotas().reconcile)
        self.of_workloads = manager.controller("multikueue", self.checks.reconcile, workers=4)
        self.of_checks = manager.controller("multikueue_check", activity.reconcile)
        self.of_clusters = manager.controller("multikueue_cluster", self.clusters.reconcile)

    async def _identity(self) -> str:
        """Return the UID by which the manager's own cluster is known; empty: its watch does not have it."""
        found = self._manager.watches.namespaces.store.get(IDENTITY)
        return found.metadata.uid if found is not None else ""

    def _make_tools(self) -> WorkerTools:
        manager = self._manager
        return WorkerTools(
            origin=Origin(manager.config.multi_kueue.origin),
            kinds=[
                *self.jobs,
                *([POD_KIND] if self.pods is not None else []),
                *(kind for kind, _ in self.owners),
            ],
            switches=manager.switches,
            clock=manager.clock,
            identity=self._identity,
            on_quota=self.on_quota if self._follows_quota else None,
            times=WorkerTimes(
                probe=manager.timings.worker_probe,
                retry_base=manager.timings.worker_retry_base,
                retry_max=64 * manager.timings.worker_retry_base,
            ),
        )

    def _make_view(self) -> MultiKueueView:
        manager, watches = self._manager, self._manager.watches
        asks = policy_of(manager).dispatcher == DISPATCHER_BEST_DOMAIN
        known = {(k.gvk.group, k.gvk.kind): (k, watches.jobs[k.framework].store) for k in manager.kinds}
        members = manager.shared(watch_pods)
        owners = {(kind.gvk.group, kind.gvk.kind): (kind, watch.store) for kind, watch in self.owners}
        watches.workloads.store.add_index(HEIR_INDEX, heir_of)
        self.groups_beside = groups_beside(watches.workloads.store)
        sources = MultiKueueSources(
            check=watches.checks.store.get,
            config=self.configs.store.get,
            clusters=self.clusters.connected,
            job=jobs_by_owner(known, self.pods, owners, members.store if members is not None else None),
            groups=self.groups_beside,
            workload=watches.workloads.store.get,
            heirs=lambda key: watches.workloads.store.by_index(HEIR_INDEX, key),
            answered=self.answers.answered if asks else unasked,
            decided=self.answers.decided if asks else ignored,
        )
        elastic = manager.switches.elastic_jobs
        policy = policy_of(manager)
        return MultiKueueView(
            sources,
            policy=policy,
            elastic=elastic,
            forwards=manager.config.enabled("MultiKueueRemoteSpecSync"),
            clock=manager.clock,
        )

    def _make_quotas(self) -> QuotaAutomation:
        manager, watches = self._manager, self._manager.watches
        sources = QuotaSources(
            check=watches.checks.store.get,
            config=self.configs.store.get,
            local_queues=watches.local_queues.store.values,
            clusters=self.clusters.connected,
        )
        return QuotaAutomation(
            sources,
            self.view,
            manager.writer(kinds.CLUSTER_QUEUES, watches.cluster_queues, wire.ClusterQueue),
            is_on=self._follows_quota,
            lost_after=manager.config.multi_kueue.worker_lost_timeout,
            clock=manager.clock,
        )

    def _connection(self, cluster: api.MultiKueueCluster) -> WorkerCluster:
        name = cluster.metadata.name

        async def connect(content: bytes) -> Client:
            client = await self._sources.connect(cluster, content)
            return client.fenced(self._manager.leads)

        handlers = WorkerHandlers(
            source=self._sources.of(cluster),
            connect=connect,
            step=self._steps.reconcile,
            on_copy=self.of_workloads.enqueue,
            on_state=partial(self.on_state, name),
        )
        return WorkerCluster(name, handlers, self._tools)

    async def all_answers(self, workload: wire.Workload) -> Mapping[str, ClusterAnswer]:
        """Return what each cluster says about a Workload that waits for one of them; empty: it waits for none."""
        clusters = self.view.waits_for(workload)
        return await self.answers.all(workload, clusters) if clusters else {}

    # --- events --------------------------------------------------------------------------------------------------

    def on_state(self, cluster: str) -> None:
        """Tell users that a cluster was connected or lost, and decide again about all workloads."""
        self.of_clusters.enqueue(cluster)
        self.on_config(None, None)

    def on_config(self, _old: object, _new: object) -> None:
        """Judge all checks again, and decide about all workloads that have one, and about quotas."""
        self.on_quota()
        for check in self._manager.watches.checks.store.values():
            if is_of(check, CONTROLLER):
                self.of_checks.enqueue(check.metadata.name)
        for workload in self._manager.watches.workloads.store.values():
            if self.view.entry(workload) is not None:
                self.of_workloads.enqueue(model.workload_key(workload))

    def on_quota(self) -> None:
        """Compare quotas of all ClusterQueues with those of the workers."""
        for queue in self._manager.watches.cluster_queues.store.values():
            self.of_quotas.enqueue(queue.metadata.name)

    def on_cluster_queue(self, old: wire.ClusterQueue | None, new: wire.ClusterQueue | None) -> None:
        """Take in an event of a ClusterQueue of the manager."""
        if new is not None and (old is None or old.spec != new.spec or old.status.conditions != new.status.conditions):
            self.of_quotas.enqueue(new.metadata.name)

    def on_local_queue(self, old: wire.LocalQueue | None, new: wire.LocalQueue | None) -> None:
        """Take in an event of a LocalQueue of the manager."""
        if old is None or new is None or old.spec != new.spec:
            self.on_quota()

    def on_check(self, old: wire.AdmissionCheck | None, new: wire.AdmissionCheck | None) -> None:
        """Take in an event of an AdmissionCheck."""
        if old is not None and new is not None and old.spec == new.spec:
            if old.status != new.status and is_of(new, CONTROLLER):
                self.of_checks.enqueue(new.metadata.name)
        elif is_of(old, CONTROLLER) or is_of(new, CONTROLLER):
            self.on_config(old, new)

    def on_workload(self, old: wire.Workload | None, new: wire.Workload | None) -> None:
        """Take in an event of a Workload of the manager."""
        for seen in (old, new):
            if seen is not None and self.view.entry(seen) is not None:
                self.of_workloads.enqueue(model.workload_key(seen))
                for key in heir_of(seen):  # its quota ends what the older slice does, and the other way round
                    self.of_workloads.enqueue(key)
                for heir in self._manager.watches.workloads.store.by_index(HEIR_INDEX, model.workload_key(seen)):
                    self.of_workloads.enqueue(model.workload_key(heir))
                if heeded(old) != heeded(new):
                    for other in self.groups_beside(seen):  # the first one that gets a cluster decides for all
                        self.of_workloads.enqueue(model.workload_key(other))

    def on_cluster(self, old: api.MultiKueueCluster | None, new: api.MultiKueueCluster | None) -> None:
        """Take in an event of a MultiKueueCluster: its condition stays what its connection says."""
        self.clusters.on_cluster(old, new)
        if new is not None and old is not None and old.status != new.status:
            self.of_clusters.enqueue(new.metadata.name)
        elif old is None or new is None:
            self.on_config(old, new)

    def on_job(self, kind: JobKind, old: JSON | None, new: JSON | None) -> None:
        """Take in an event of a job that names this controller, or of a kind that cannot."""
        seen = new if new is not None else old
        named = seen is not None and kind.managed_by(seen) == names.MULTIKUEUE_CONTROLLER
        if seen is None or not (named or way_of(kind) is Way.FLAG):
            return
        owner = owner_key(kind.gvk.group, kind.gvk.kind, *split_key(key_of(seen)))
        for key in self._manager.watches.workloads.store.keys_by_index(OWNER_INDEX, owner):
            self.of_workloads.enqueue(key)

    def on_owner(self, kind: SentOwner, old: JSON | None, new: JSON | None) -> None:
        """Take in an event of an owner of groups of pods."""
        seen = new if new is not None else old
        if seen is None:
            return
        (namespace, name), workloads = split_key(key_of(seen)), self._manager.watches.workloads.store
        first = object_key(namespace, kind.workload_name(seen, self._manager.switches))
        for key in (first, *workloads.keys_by_index(GROUPS_INDEX, groups_key(kind.gvk, namespace, name))):
            self.of_workloads.enqueue(key)

    def on_pod(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        """Take in an event of a pod that is queued itself, alone or in a group."""
        seen = new if new is not None else old
        if seen is None:
            return
        workloads, owner = self._manager.watches.workloads.store, owner_key("", "Pod", *split_key(seen.key))
        group = [seen.group] if seen.group and is_of_kueue(seen.group) else []
        for key in (*workloads.keys_by_index(OWNER_INDEX, owner), *group):
            self.on_workload(None, workloads.get(key))

    async def collect(self) -> None:
        """Delete copies without an original every interval, until cancelled; an interval of 0: never."""
        seconds = self._manager.config.multi_kueue.gc_interval.total_seconds()
        while seconds > 0:
            await self._manager.clock.sleep(seconds)
            self.checks.collect_garbage()


def setup(manager: Manager) -> None:
    """Add the connections to worker clusters, and the reconcilers of checks and of the Workloads that have one."""
    parts, watches = _Parts(manager), manager.watches
    elsewhere = manager.shared(make_elsewhere)
    elsewhere.runs, elsewhere.answers = parts.view.runs_elsewhere, parts.all_answers
    manager.background += [parts.clusters.run, parts.collect, parts.answers.run]
    parts.objects.subscribe(parts.on_cluster)
    parts.configs.subscribe(parts.on_config)
    watches.checks.subscribe(parts.on_check)
    watches.cluster_queues.subscribe(parts.on_cluster_queue)
    if manager.config.enabled("MultiKueueManagerQuotaAutomation"):
        watches.local_queues.subscribe(parts.on_local_queue)
    watches.workloads.subscribe(parts.on_workload)
    if parts.pods is not None:
        parts.pods.subscribe(parts.on_pod)
    for owner, watch in parts.owners:
        watch.subscribe(partial(parts.on_owner, owner))
    for kind in parts.jobs:
        watches.jobs[kind.framework].subscribe(partial(parts.on_job, kind))
