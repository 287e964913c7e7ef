"""Facts that a manager has about its workloads on worker clusters, from its own watches and theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kqueue import model
from kqueue.api import multikueue_names as words
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import multikueue as api
from kqueue.clock import Clock
from kqueue.controllers.check_answers import Activity, is_of
from kqueue.controllers.raw import key_of
from kqueue.controllers.worker_cluster import WorkerCluster, WorkerLink
from kqueue.jobs.fields import JSON, annotations_of, labels_of, text
from kqueue.jobs.kind import SentKind
from kqueue.jobs.managed_by import Way, way_of
from kqueue.jobs.multikueue.copies import Origin, dispatch_problem, forwarded, resized
from kqueue.jobs.multikueue.facts import DispatchPolicy, MultiKueueFacts, Remote
from kqueue.jobs.multikueue.owners import SentOwner, owner_of_groups
from kqueue.jobs.multikueue.pods import needs_copy, runs_here
from kqueue.jobs.multikueue.sets import place_of
from kqueue.jobs.patch import Patch
from kqueue.jobs.pod import PlainPod
from kqueue.jobs.rules import asks_for_slices

CONTROLLER = names.MULTIKUEUE_CONTROLLER


@dataclass(frozen=True, slots=True)
class DispatchedJob:
    """The owner of a workload: its kind (None: not enabled), and the job, or the pods of a group (empty: not known, or
    replaced).
    """

    kind: SentKind | None = None
    parts: tuple[JSON, ...] = ()
    pods: tuple[JSON, ...] = ()
    """The pods of the workload that such an owner has made on the manager."""

    def copy_on(self, link: WorkerLink, part: JSON) -> JSON | None:
        """Return what a cluster has under the name of a part, if it is the part's copy, also while it is deleted."""
        jobs = link.jobs.get(self.kind.framework) if self.kind is not None else None
        copy = jobs.store.get(key_of(part)) if jobs is not None else None
        is_it = copy is not None and link.origin.is_copy(
            labels_of(copy), annotations_of(copy), text(part, "metadata", "uid")
        )
        return copy if is_it else None

    def copied_on(self, link: WorkerLink) -> list[tuple[JSON, JSON]]:
        """Return the parts that have a copy on a cluster, each with it, also while it is being deleted."""
        return [(part, copy) for part in self.parts if (copy := self.copy_on(link, part)) is not None]

    def present_on(self, link: WorkerLink) -> list[tuple[JSON, JSON]]:
        """Return the parts that have a copy on a cluster which stays, each with it."""
        return [(part, copy) for part, copy in self.copied_on(link) if not _is_deleted(copy)]

    def missing_on(self, link: WorkerLink) -> list[JSON]:
        """Return the parts that have no copy on a cluster yet."""
        has = {key_of(part) for part, _ in self.present_on(link)}
        return [part for part in self.parts if key_of(part) not in has and (not self._are_pods or needs_copy(part))]

    def left_on(self, link: WorkerLink, workload: str) -> list[JSON]:
        """Return the copies of pods of a Workload on a cluster whose originals are gone, or are being deleted."""
        if self.kind is None or not self._are_pods or not self.parts:
            return []
        alive = {text(part, "metadata", "uid") for part in self.parts if not _is_deleted(part)}
        copies = link.copies_of(self.kind.framework, workload)
        return [
            copy
            for copy in copies
            if not _is_deleted(copy) and annotations_of(copy).get(words.ORIGIN_UID_ANNOTATION) not in alive
        ]

    def edits_on(
        self, link: WorkerLink, workload: wire.Workload, *, elastic: bool, forwards: bool
    ) -> list[tuple[JSON, Patch]]:
        """Return the copies on a cluster that lack an edit of their original, or the size of a slice of an elastic job,
        or the number of groups of their original, each with the patch.
        """
        owns_groups = isinstance(self.kind, SentOwner)
        if self.kind is None or not (elastic or forwards or owns_groups):
            return []
        found: list[tuple[JSON, Patch]] = []
        for part, copy in self.present_on(link):
            size = resized(self.kind, copy, workload) if elastic else {}
            if isinstance(self.kind, SentOwner):
                size = self.kind.scaled(part, copy)
            patch = size or (forwarded(self.kind, part, copy) if forwards else {})
            found += [(copy, patch)] if patch else []
        return found

    @property
    def _are_pods(self) -> bool:
        return self.kind is not None and self.kind.framework == PlainPod.framework


def _is_deleted(obj: JSON) -> bool:
    return bool(obj["metadata"].get("deletionTimestamp"))


def unasked(facts: MultiKueueFacts) -> MultiKueueFacts:
    """Return facts as they are: the dispatcher asks no cluster."""
    return facts


def ignored(_facts: MultiKueueFacts, _nominated: Sequence[str]) -> None:
    """Note nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiKueueSources:
    """Where the view finds objects, by name; functions return None for objects that do not exist.

    Args:
        answered: returns facts with the answers of clusters, where the dispatcher asks them.
        decided: notes the clusters to which a workload is sent.
    """

    check: Callable[[str], wire.AdmissionCheck | None]
    config: Callable[[str], api.MultiKueueConfig | None]
    clusters: Mapping[str, WorkerCluster]
    job: Callable[[wire.Workload], DispatchedJob]
    workload: Callable[[str], wire.Workload | None]
    heirs: Callable[[str], Sequence[wire.Workload]]
    """Returns the slices that are to replace, or have replaced, the Workload of a key."""
    groups: Callable[[wire.Workload], Sequence[wire.Workload]] = lambda _workload: ()
    """Returns the Workloads of the other groups of pods of the owner of a Workload."""
    answered: Callable[[MultiKueueFacts], MultiKueueFacts] = unasked
    decided: Callable[[MultiKueueFacts, Sequence[str]], object] = ignored


def _is_made(origin: Origin, copy: wire.Workload) -> bool:
    return origin.made(copy.metadata.labels, copy.metadata.annotations)


def _may_run_group(link: WorkerLink, workload: wire.Workload) -> bool:
    """Whether pods of a group may run on a cluster that has the copy of its owner: its quota there ends after them.

    Without the copy of its Workload, the copy of an owner with other groups there tells nothing about this one.
    """
    key = model.workload_key(workload)
    copy = link.workloads.store.get(key)
    if copy is None:
        return not link.has_others(key, owner_of_groups(workload))
    return model.condition_true(copy, names.CONDITION_QUOTA_RESERVED)


def may_run(kind: SentKind, copy: JSON) -> bool:
    """Whether pods of the copy of a job run, or may start."""
    return kind.finished(copy) is None and (kind.active(copy) or not kind.is_suspended(copy))


class MultiKueueView:
    """Collects the facts about one workload, or one check."""

    def __init__(
        self,
        sources: MultiKueueSources,
        *,
        policy: DispatchPolicy,
        elastic: bool,
        clock: Clock,
        forwards: bool = False,
    ) -> None:
        """`elastic`: workload slices are enabled; `forwards`: edits of jobs that run reach their copies."""
        self._sources, self._policy, self._forwards = sources, policy, forwards
        self._elastic, self._clock = elastic, clock

    def entry(self, workload: wire.Workload) -> wire.AdmissionCheckState | None:
        """Return the Workload's check of this controller; None: it has none."""
        entries = workload.status.admission_checks
        return next((entry for entry in entries if is_of(self._sources.check(entry.name), CONTROLLER)), None)

    def is_dropped(self, workload: wire.Workload) -> bool:
        """Whether no worker cluster is to run the workload any more, because its queue has no such check.

        A check whose object is missing may come back: its deletion by mistake must not end the work on all clusters.
        """
        entries = workload.status.admission_checks
        if not entries:
            return not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        return self.entry(workload) is None and all(self._sources.check(each.name) is not None for each in entries)

    def owner(self, workload: wire.Workload) -> DispatchedJob:
        """Return the job of a workload."""
        return self._sources.job(workload)

    def is_replaced(self, key: str) -> bool:
        """Whether a slice that replaces the Workload of a key, or replaces one that did, has quota."""
        seen, todo = set[str](), [key]
        while todo:
            for heir in self._sources.heirs(todo.pop()):
                name = model.workload_key(heir)
                if name in seen:
                    continue
                if model.condition_true(heir, names.CONDITION_QUOTA_RESERVED) and not model.is_over(heir):
                    return True
                seen.add(name)
                todo.append(name)
        return False

    def _forerunners(self, workload: wire.Workload) -> list[wire.Workload]:
        """Return the slices that a slice has replaced or is to replace, the nearest first."""
        found: list[wire.Workload] = []
        key = model.replaced_key(workload)
        while key and (before := self._sources.workload(key)) is not None and before not in found:
            found.append(before)
            key = model.replaced_key(before)
        return found

    def facts(self, workload: wire.Workload) -> MultiKueueFacts | None:
        """Return the facts about a workload; None: it has no check of this controller."""
        entry = self.entry(workload)
        if entry is None:
            return None
        owner = self._sources.job(workload)
        elastic = self._elastic and asks_for_slices({"metadata": {"annotations": workload.metadata.annotations}})
        older = self._forerunners(workload) if elastic else []
        is_replaced = elastic and self.is_replaced(model.workload_key(workload))
        waits = not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED)
        stands_behind = waits and any(not model.is_over(each) for each in older)
        evicted = model.condition(workload.status.conditions, names.CONDITION_EVICTED) is not None
        inherited = [each.status.cluster_name for each in older if each.status.cluster_name and not evicted]
        shown = DispatchedJob(owner.kind) if is_replaced or stands_behind else owner
        place = place_of(workload, [each for each in self._sources.groups(workload) if self.entry(each) is not None])
        found = MultiKueueFacts(
            workload=workload,
            entry=entry,
            remotes=[
                replace(remote, is_barred=place.bars(remote.cluster))
                for remote in self._remotes(workload, entry, shown, elastic=elastic)
            ],
            policy=self._policy,
            now=self._clock.now(),
            problem=dispatch_problem(owner.kind, owner.parts) or runs_here(owner.pods),
            is_elastic=elastic,
            forwards=self._forwards,
            is_replaced=is_replaced,
            stands_behind=stands_behind,
            place=place,
            inherited=next(iter(inherited), ""),
        )
        return found if place.decides else self._sources.answered(found)

    def is_ready(self, facts: MultiKueueFacts) -> bool | None:
        """Return whether the cluster that runs the workload says that all pods are ready, for owners whose status does
        not come back; None: their status tells, or nothing is known.
        """
        owner, remote = self.owner(facts.workload), facts.remote(facts.workload.status.cluster_name)
        copy = remote.counted if remote is not None else None
        if owner.kind is None or way_of(owner.kind) not in (Way.GATES, Way.FLAG) or copy is None or facts.is_evicted:
            return None
        told = model.condition(copy.status.conditions, names.CONDITION_PODS_READY)
        return told.status == "True" if told is not None else None

    def decided(self, facts: MultiKueueFacts, nominated: Sequence[str] | None) -> None:
        """Note to which clusters a workload is sent; None: to the same as before."""
        if nominated is not None:
            self._sources.decided(facts, nominated)

    def waits_for(self, workload: wire.Workload) -> Sequence[str]:
        """Return the clusters of which one is to admit a workload, in order; empty: it waits for none."""
        entry = self.entry(workload)
        if entry is None or workload.status.cluster_name or model.condition_true(workload, names.CONDITION_FINISHED):
            return ()
        found = self.config_of(self._sources.check(entry.name))
        return () if isinstance(found, str) else found

    def _remotes(
        self, workload: wire.Workload, entry: wire.AdmissionCheckState, owner: DispatchedJob, *, elastic: bool
    ) -> Sequence[Remote]:
        found = self.config_of(self._sources.check(entry.name))
        offered = [] if isinstance(found, str) else found
        known, winner = self._sources.clusters, workload.status.cluster_name
        others = [name for name in known if name not in offered]
        gone = [winner] if winner and winner not in known and winner not in offered else []
        remotes = [
            self._remote(name, workload, owner, is_offered=name in offered, elastic=elastic)
            for name in (*offered, *others, *gone)
        ]
        return [r for r in remotes if r.is_offered or r.has_copies or r.cluster == winner]

    def _remote(
        self, name: str, workload: wire.Workload, owner: DispatchedJob, *, is_offered: bool, elastic: bool
    ) -> Remote:
        cluster = self._sources.clusters.get(name)
        link = cluster.link if cluster is not None else None
        if cluster is None or link is None:
            since = cluster.lost_since if cluster is not None else None
            return Remote(cluster=name, is_offered=is_offered, is_connected=False, lost_since=since)
        key, meta = model.workload_key(workload), workload.metadata
        seen = link.workloads.store.get(key)
        copy = seen if seen is not None and _is_made(link.origin, seen) else None
        is_leaving = copy is not None and (
            copy.metadata.deletion_timestamp is not None
            or not link.origin.is_copy(copy.metadata.labels, copy.metadata.annotations, meta.uid)
        )
        if copy is None and link.has_others(key, owner_of_groups(workload)):
            owner = DispatchedJob(owner.kind)  # the copy of the owner is there for the other groups
        return Remote(
            cluster=name,
            is_offered=is_offered,
            workload=copy,
            is_leaving=is_leaving,
            is_taken=key in link.taken,
            job=next((copy for _, copy in owner.present_on(link)), None),
            runs=owner.kind is not None and any(not owner.kind.finished(copy) for _, copy in owner.present_on(link)),
            is_partial=bool(owner.missing_on(link) or owner.left_on(link, key))
            or bool(owner.edits_on(link, workload, elastic=elastic, forwards=self._forwards)),
        )

    def runs_elsewhere(self, workload: wire.Workload) -> bool:
        """Whether pods of a workload's job may run on a cluster that can be reached."""
        owner, key = self._sources.job(workload), model.workload_key(workload)
        if owner.kind is None:
            return False
        links = [cluster.link for cluster in self._sources.clusters.values() if cluster.link is not None]
        if isinstance(owner.kind, SentOwner):
            return any(_may_run_group(link, workload) and owner.present_on(link) for link in links)
        if owner.kind.framework == PlainPod.framework:  # a pod runs on while it is being deleted
            copies = [copy for link in links for copy in link.copies_of(owner.kind.framework, key)]
        else:
            copies = [copy for link in links for _, copy in owner.present_on(link)]
        return any(may_run(owner.kind, copy) for copy in copies)

    # --- checks --------------------------------------------------------------------------------------------------

    def config_of(self, check: wire.AdmissionCheck | None) -> Sequence[str] | str:
        """Return the clusters of a check in their order, or why it has none."""
        where = check.spec.parameters if check is not None and check.spec is not None else None
        kind = names.MULTIKUEUE_CONFIG_KIND
        if where is None:
            return f"spec.parameters is missing; name a {kind}"
        if (where.api_group, where.kind) != (names.GROUP, kind):
            return f"spec.parameters names {where.kind} of {where.api_group}; name a {kind} of {names.GROUP}"
        config = self._sources.config(where.name)
        return list(config.spec.clusters) if config is not None else f"{kind} {where.name} not found; create it"

    def activity(self, check: wire.AdmissionCheck) -> Activity | None:
        """Return whether a check can be used; None: another controller answers it."""
        if not is_of(check, CONTROLLER):
            return None
        clusters = self.config_of(check)
        if isinstance(clusters, str):
            return Activity(False, words.REASON_BAD_CONFIG, clusters)
        known = self._sources.clusters
        missing = [name for name in clusters if name not in known]
        inactive = [name for name in clusters if name in known and known[name].link is None]
        said = [
            f"{what}: {', '.join(which)}" for what, which in (("missing", missing), ("inactive", inactive)) if which
        ]
        problem = f"Clusters that cannot be used: {'; '.join(said)}"
        if len(missing) + len(inactive) == len(clusters):
            return Activity(False, words.REASON_NO_USABLE_CLUSTERS, problem)
        if said:
            return Activity(True, words.REASON_SOME_ACTIVE_CLUSTERS, problem)
        return Activity(True, words.REASON_ACTIVE, "All clusters can be used")
