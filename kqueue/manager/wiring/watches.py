"""All watches of the controller process.  They run in every replica, so that a follower is warm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock
from kqueue.config import Timings
from kqueue.controllers import resources as kinds
from kqueue.controllers.raw import RawObject, as_json
from kqueue.controllers.resources import resource_of
from kqueue.core.topology import NodeFacts
from kqueue.jobs.catalog import BY_FRAMEWORK, REVIEWED, child_labels
from kqueue.jobs.kind import JobKind
from kqueue.jobs.pod_view import ManagedPod
from kqueue.jobs.stateful_set import FRAMEWORK as STATEFUL_SET
from kqueue.kinds import GroupKind
from kqueue.model import PodView, pod_view
from kqueue.runtime.client import Client
from kqueue.runtime.reflector import Reflector, Selection, WatchSettings
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.store import Store

BATCH_JOB = "batch/job"
_BUILT_IN_GROUPS = frozenset({"", "apps", "batch"})
"""API groups that every cluster serves.  Kinds of others may be defined later, or never."""


@dataclass(slots=True)
class Watches:
    """All reflectors of the process."""

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
    jobs: dict[str, Reflector[RawObject, dict[str, Any]]] = field(default_factory=dict)
    """By framework: objects that name a queue, or all."""
    child_jobs: dict[str, Reflector[RawObject, dict[str, Any]]] = field(default_factory=dict)
    """By the framework of their parents: Jobs that name no queue themselves."""
    managed_pods: Reflector[RawObject, ManagedPod] | None = None
    """Pods that are queued themselves, as a whole; None where no kind is on that is queued through pods."""
    stateful_sets: Reflector[RawObject, dict[str, Any]] | None = None
    """Those that name a queue, or all; None where they are off."""

    def all(self) -> list[Reflector[Any, Any]]:
        """In the order in which they are started."""
        return [
            self.nodes,
            self.namespaces,
            self.limit_ranges,
            self.runtime_classes,
            self.topologies,
            self.flavors,
            self.cohorts,
            self.checks,
            self.cluster_queues,
            self.local_queues,
            self.priority_classes,
            self.workload_priorities,
            self.pods,
            self.workloads,
            *self.jobs.values(),
            *self.child_jobs.values(),
            *(watch for watch in (self.managed_pods, self.stateful_sets) if watch is not None),
        ]

    def jobs_by_kind(self) -> dict[GroupKind, list[Store[dict[str, Any]]]]:
        """What is watched of jobs: API group and kind -> stores."""
        found: dict[GroupKind, list[Store[dict[str, Any]]]] = {}
        for watch in (*self.jobs.values(), *self.child_jobs.values()):
            found.setdefault((watch.resource.group, watch.resource.kind), []).append(watch.store)
        return found

    def named(self) -> dict[str, Reflector[Any, Any]]:
        """`all`, by names that tell them apart."""
        parents = {id(watch): f"-of-{framework.rpartition('/')[2]}" for framework, watch in self.child_jobs.items()}
        parents[id(self.managed_pods)] = "-managed"
        return {f"{watch.resource}{parents.get(id(watch), '')}": watch for watch in self.all()}


def make_watches(
    client: Client,
    kinds_on: Sequence[JobKind],
    *,
    clock: Clock,
    timings: Timings,
    manages_all: bool = False,
    pods_as: Callable[[dict[str, Any]], ManagedPod] | None = None,
    stateful_sets: bool = False,
) -> Watches:
    """Reflectors of everything that the parts read; those of jobs for the kinds that are on.

    `manages_all`: jobs are managed even if they name no queue.  `pods_as` views a pod that is queued itself; None:
    pods are not.  `stateful_sets`: whether these are on.
    """
    frameworks = {kind.framework for kind in kinds_on}
    parents = () if manages_all or BATCH_JOB not in frameworks else [f for f in child_labels() if f in frameworks]
    children = resource_of(BY_FRAMEWORK[BATCH_JOB])
    queued = "" if manages_all else names.QUEUE_NAME_LABEL

    def reflector(
        resource: ResourceType,
        decode: type[Any],
        view: Callable[[Any], Any] = _same,
        selector: str = "",
        *,
        optional: bool = False,
    ) -> Reflector[Any, Any]:
        return Reflector(
            client,
            resource,
            decode=decode,
            view=view,
            clock=clock,
            selection=Selection(label_selector=selector),
            settings=WatchSettings(
                retry_base=timings.watch_retry_base, retry_max=timings.watch_retry_max, optional=optional
            ),
        )

    return Watches(
        nodes=reflector(kinds.NODES, wire_core.Node, model.node_facts),
        pods=reflector(kinds.PODS, wire_core.Pod, pod_view),
        namespaces=reflector(kinds.NAMESPACES, wire_core.Namespace),
        limit_ranges=reflector(kinds.LIMIT_RANGES, wire_core.LimitRange),
        runtime_classes=reflector(kinds.RUNTIME_CLASSES, wire_core.RuntimeClass),
        priority_classes=reflector(kinds.PRIORITY_CLASSES, wire_core.PriorityClass),
        workloads=reflector(kinds.WORKLOADS, wire.Workload),
        local_queues=reflector(kinds.LOCAL_QUEUES, wire.LocalQueue),
        cluster_queues=reflector(kinds.CLUSTER_QUEUES, wire.ClusterQueue),
        cohorts=reflector(kinds.COHORTS, wire.Cohort),
        flavors=reflector(kinds.RESOURCE_FLAVORS, wire.ResourceFlavor),
        topologies=reflector(kinds.TOPOLOGIES, wire.Topology),
        checks=reflector(kinds.ADMISSION_CHECKS, wire.AdmissionCheck),
        workload_priorities=reflector(kinds.WORKLOAD_PRIORITY_CLASSES, wire.WorkloadPriorityClass),
        jobs={
            kind.framework: reflector(
                resource_of(kind),
                RawObject,
                as_json,
                selector=queued,
                optional=kind.gvk.group not in _BUILT_IN_GROUPS,
            )
            for kind in kinds_on
        },
        child_jobs={
            parent: reflector(children, RawObject, as_json, selector=_child_selector(parent)) for parent in parents
        },
        managed_pods=None
        if pods_as is None
        else reflector(
            kinds.PODS, RawObject, lambda pod: pods_as(as_json(pod)), selector=f"{names.MANAGED_LABEL}=true"
        ),
        stateful_sets=reflector(resource_of(REVIEWED[STATEFUL_SET]), RawObject, as_json, selector=queued)
        if stateful_sets
        else None,
    )


def _child_selector(parent: str) -> str:
    return f"{child_labels()[parent]},!{names.QUEUE_NAME_LABEL}"


def _same(value: Any) -> Any:
    return value
