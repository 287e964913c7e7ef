"""The watches of a controller process.  All of them run in every replica, so that a follower has current caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config import Timings
from kqueue.controllers import resources as kinds
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.resources import read_resource, resource_of
from kqueue.core.topology import NodeFacts
from kqueue.jobs.catalog import BY_FRAMEWORK, child_labels
from kqueue.jobs.job import BatchJob
from kqueue.jobs.kind import JobKind
from kqueue.kinds import FRAMEWORKS, GroupKind, framework_of, kinds_between
from kqueue.model import PodView, pod_view
from kqueue.runtime.client import Client
from kqueue.runtime.reflector import Projection, Reflector, Selection, WatchSettings
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store

_BUILT_IN_GROUPS = frozenset({"", "apps", "batch"})
"""API groups that every cluster serves.  Kinds of other groups may be defined later, or never."""
BY_NAMESPACE = "namespace"
"""Index of Workloads by their namespace; the operator adds it."""


def _same(value: Any) -> Any:
    return value


class Watches:
    """All reflectors of the process.  A controller adds further ones in its `setup`, before any of them runs."""

    nodes: Reflector[wire_core.Node, NodeFacts]
    pods: Reflector[wire_core.Pod, PodView]
    namespaces: Reflector[wire_core.Namespace, wire_core.Namespace]
    limit_ranges: Reflector[wire_core.LimitRange, wire_core.LimitRange]
    runtime_classes: Reflector[wire_core.RuntimeClass, wire_core.RuntimeClass]
    priority_classes: Reflector[wire_core.PriorityClass, wire_core.PriorityClass]
    workloads: Reflector[wire.Workload, wire.Workload]
    local_queues: Reflector[wire.LocalQueue, wire.LocalQueue]
    cluster_queues: Reflector[wire.ClusterQueue, wire.ClusterQueue]
    cohorts: Reflector[wire.Cohort, wire.Cohort]
    flavors: Reflector[wire.ResourceFlavor, wire.ResourceFlavor]
    topologies: Reflector[wire.Topology, wire.Topology]
    checks: Reflector[wire.AdmissionCheck, wire.AdmissionCheck]
    workload_priorities: Reflector[wire.WorkloadPriorityClass, wire.WorkloadPriorityClass]

    def __init__(self, client: Client, *, clock: Clock, timings: Timings) -> None:
        """Create the watches of the kinds that every process reads, in the order in which they start."""
        self._client, self._clock, self._timings = client, clock, timings
        self._all: list[tuple[str, Reflector[Any, Any]]] = []
        self.jobs: dict[str, Reflector[RawObject, dict[str, Any]]] = {}
        """Objects with a queue name, or all objects, by framework."""
        self.child_jobs: dict[str, Reflector[RawObject, dict[str, Any]]] = {}
        """Jobs without a queue name of their own, by the framework of their parents."""
        self.between: dict[GroupKind, Reflector[RawObject, dict[str, Any]]] = {}
        """Objects between jobs of enabled kinds and the batch Jobs that run them, as the JobSets of TrainJobs are."""
        self.others: dict[GroupKind, Reflector[RawObject, dict[str, Any]]] = {}
        """Objects that jobs of enabled kinds refer to, by API group and kind."""
        self.nodes = self.watch(kinds.NODES, wire_core.Node, model.node_facts)
        self.namespaces = self.watch(kinds.NAMESPACES, wire_core.Namespace)
        self.limit_ranges = self.watch(kinds.LIMIT_RANGES, wire_core.LimitRange)
        self.runtime_classes = self.watch(kinds.RUNTIME_CLASSES, wire_core.RuntimeClass)
        self.topologies = self.watch(kinds.TOPOLOGIES, wire.Topology)
        self.flavors = self.watch(kinds.RESOURCE_FLAVORS, wire.ResourceFlavor)
        self.cohorts = self.watch(kinds.COHORTS, wire.Cohort)
        self.checks = self.watch(kinds.ADMISSION_CHECKS, wire.AdmissionCheck)
        self.cluster_queues = self.watch(kinds.CLUSTER_QUEUES, wire.ClusterQueue)
        self.local_queues = self.watch(kinds.LOCAL_QUEUES, wire.LocalQueue)
        self.priority_classes = self.watch(kinds.PRIORITY_CLASSES, wire_core.PriorityClass)
        self.workload_priorities = self.watch(kinds.WORKLOAD_PRIORITY_CLASSES, wire.WorkloadPriorityClass)
        self.pods = self.watch(kinds.PODS, wire_core.Pod, pod_view)
        self.workloads = self.watch(kinds.WORKLOADS, wire.Workload)

    def watch(
        self,
        resource: ResourceType,
        decode: type[Any],
        view: Callable[[Any], Any] = _same,
        *,
        selector: str = "",
        suffix: str = "",
        optional: bool = False,
    ) -> Reflector[Any, Any]:
        """Add a watch that the process runs.

        Args:
            resource: the kind.  A kind outside of the groups of Kubernetes and kqueue may be missing in the cluster.
            decode: the struct for an object as the API server sends it.
            view: converts an object into the value that the store keeps.
            selector: labels of the objects to watch; empty: all objects.
            suffix: distinguishes several watches of one kind in checks and metrics.
            optional: the kind may be missing in the cluster, whatever its group is.
        """
        timings = self._timings
        made: Reflector[Any, Any] = Reflector(
            self._client,
            resource,
            Projection(decode, view),
            clock=self._clock,
            selection=Selection(label_selector=selector),
            settings=WatchSettings(
                retry_base=timings.watch_retry_base,
                retry_max=timings.watch_retry_max,
                optional=optional or (decode is RawObject and resource.group not in _BUILT_IN_GROUPS),
            ),
        )
        self._all.append((f"{resource}{suffix}", made))
        return made

    def watch_owners(self, resource: ResourceType, *, selector: str, suffix: str = "") -> Reflector[Any, Any]:
        """Add a watch of objects that own Workloads: its store keeps them as JSON."""
        return self.watch(resource, RawObject, as_json, selector=selector, suffix=suffix)

    def watch_jobs(self, kinds_on: Sequence[JobKind], *, manages_all: bool) -> None:
        """Add the watches of the enabled job kinds.  `manages_all`: jobs without a queue name are managed, too."""
        selector = queued(manages_all=manages_all)
        for kind in kinds_on:
            self.jobs[kind.framework] = self.watch_owners(resource_of(kind), selector=selector)
        for kind in kinds_on:
            self._watch_others(kind.framework, manages_all=manages_all)
            self._watch_between(kind.framework, manages_all=manages_all)
        if manages_all or BatchJob.framework not in self.jobs:
            return
        children, seen = resource_of(BY_FRAMEWORK[BatchJob.framework]), set[str]()
        for parent, label in child_labels().items():
            if parent in self.jobs and label not in seen:
                seen.add(label)
                self.child_jobs[parent] = self.watch_owners(
                    children,
                    selector=f"{label},!{names.QUEUE_NAME_LABEL}",
                    suffix=f"-of-{parent.rpartition('/')[2]}",
                )

    def _watch_others(self, framework: str, *, manages_all: bool) -> None:
        """Watch the objects that jobs of a framework refer to, where no other watch has them."""
        for kind in FRAMEWORKS[framework].reads if framework in FRAMEWORKS else ():
            queued_themselves = framework_of(kind.group, kind.kind) in self.jobs
            if (kind.group, kind.kind) in self.others or (queued_themselves and manages_all):
                continue
            self.others[kind.group, kind.kind] = self.watch_owners(
                read_resource(kind),
                selector=f"!{names.QUEUE_NAME_LABEL}" if queued_themselves else "",
                suffix=f"-of-{framework.rpartition('/')[2]}" if queued_themselves else "",
            )

    def _watch_between(self, framework: str, *, manages_all: bool) -> None:
        """Watch the objects that jobs of a framework are run as, where no other watch has them."""
        for kind in kinds_between(framework):
            queued_themselves = kind.framework in self.jobs
            if kind.group_kind in self.between or (queued_themselves and manages_all):
                continue
            self.between[kind.group_kind] = self.watch_owners(
                resource_of(BY_FRAMEWORK[kind.framework]),
                selector=f"!{names.QUEUE_NAME_LABEL}" if queued_themselves else "",
                suffix=f"-of-{framework.rpartition('/')[2]}",
            )

    def all(self) -> list[Reflector[Any, Any]]:
        """Return all watches in the order in which they start."""
        return [watch for _, watch in self._all]

    def named(self) -> dict[str, Reflector[Any, Any]]:
        """Return all watches by unique names."""
        return dict(self._all)

    def jobs_by_kind(self) -> dict[GroupKind, list[Store[dict[str, Any]]]]:
        """Return the stores of jobs by API group and kind."""
        found: dict[GroupKind, list[Store[dict[str, Any]]]] = {}
        for watch in (*self.jobs.values(), *self.child_jobs.values(), *self.between.values()):
            found.setdefault((watch.resource.group, watch.resource.kind), []).append(watch.store)
        return found

    def read_by(self, kind: JobKind) -> dict[GroupKind, list[Store[dict[str, Any]]]]:
        """Return the stores of the other objects that jobs of a kind refer to or are run as."""
        row = FRAMEWORKS.get(kind.framework)
        jobs = self.jobs_by_kind()
        found = {between.group_kind: jobs.get(between.group_kind, []) for between in kinds_between(kind.framework)}
        for read in row.reads if row is not None else ():
            seen = self.others.get((read.group, read.kind))
            found[read.group, read.kind] = [
                *jobs.get((read.group, read.kind), []),
                *([seen.store] if seen is not None else []),
            ]
        return found


def queued(*, manages_all: bool) -> str:
    """Return the label selector of managed owners; empty (which selects every object) if all owners are managed."""
    return "" if manages_all else names.QUEUE_NAME_LABEL
