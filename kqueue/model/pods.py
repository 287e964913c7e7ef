"""Compact values of pods, with the fields that kqueue stores."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire.meta import ObjectMeta, OwnerReference
from kqueue.core.topology import PodFacts
from kqueue.kinds import POD
from kqueue.model.conditions import NO_TIME, condition
from kqueue.model.resources import template_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPod:
    """A pod that kqueue places, in the form of the ungater.

    `index` has the pod's labels that can number it; `gates` all its scheduling gates by name, in order.
    """

    key: str
    uid: str
    resource_version: str
    workload: str
    """namespace/name of the pod's Workload."""
    pod_set: str
    gates: tuple[str, ...]
    node_selector: Mapping[str, str]
    labels: Mapping[str, str]
    index_offset: str | None
    terminal: bool
    deleting: bool
    node: str = ""
    """Name of the node that runs the pod; empty: no node yet."""
    slice_name: str | None = None
    """Name shared by the Workloads of an elastic job; None: the job is not elastic."""
    controller: tuple[str, str] | None = None
    """Kind (with its version) and UID of the object that controls the pod; None: no object controls it."""
    failed: bool = False
    """Whether the pod has ended without success."""
    created: datetime = NO_TIME

    @property
    def gated(self) -> bool:
        """Whether the pod still has the topology gate."""
        return names.TOPOLOGY_GATE in self.gates

    @property
    def siblings(self) -> str:
        """namespace/name by which all pods of the pod's job are found; see `siblings_key`."""
        return f"{self.key.partition('/')[0]}/{self.slice_name}" if self.slice_name else self.workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticPod:
    """A pod of an elastic job that has not ended, in the form of its ungater.

    `annotations` are the annotations that admission checks may set; `gates` all its scheduling gates by name, in order.
    """

    key: str
    uid: str
    resource_version: str
    siblings: str
    """namespace/name by which all pods of the pod's job are found; see `siblings_key`.  Empty: kqueue did not start the
    pod.
    """
    pod_set: str
    gates: tuple[str, ...]
    node_selector: Mapping[str, str]
    annotations: Mapping[str, str]
    deleting: bool
    controller: tuple[str, str] | None = None
    """Kind (with its version) and UID of the object that controls the pod; None: no object controls it."""

    @property
    def gated(self) -> bool:
        """Whether the pod still has the gate of elastic jobs."""
        return names.ELASTIC_JOB_GATE in self.gates

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended: always False, because ended pods have no `ElasticPod`."""
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOwner:
    """The controller of a running pod, if it is a Deployment or an object of a custom kind."""

    api_version: str
    kind: str
    name: str
    uid: str
    pod_created: datetime
    pod_is_queued: bool
    """Whether the pod is queued itself, or is a member of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnboundPod:
    """A pod without gates that names a Workload and that no node runs."""

    uid: str
    siblings: str
    """namespace/name by which all pods of the pod's job are found; see `siblings_key`."""
    controller: str
    """UID of the object that controls the pod; empty: no object does."""
    since: datetime
    """The time of the last change of condition PodScheduled; the pod's creation if it has no such condition."""
    message: str
    """The message of the scheduler, of at most 512 characters; empty: no scheduler has tried the pod."""


@dataclass(frozen=True, slots=True)
class PodView:
    """The stored part of any pod: its key, its usage of its node, and the Workload whose quota it may still need."""

    key: str
    bound: PodFacts | None = None
    """None: no node runs the pod yet, or the pod has ended."""
    gang: GangPod | None = None
    workload: str = ""
    """namespace/name of the Workload whose quota the pod may need, or the name that all slices of its job share; see
    `siblings_key`.  Empty: the pod names no Workload, has ended, or cannot run: it is not bound, and it has a gate, it
    is being deleted, or no object controls it.
    """
    elastic: ElasticPod | None = None
    owner: str = ""
    """UID of the controller of a pod that no node runs yet: such a pod needs quota only if the Workload's job created
    it. Empty: the pod is bound, or needs no quota.
    """
    stray_of: str = ""
    """namespace/name of the Workload that a pod names if no node runs the pod, no object controls it, and it is not
    queued itself.  Empty: one of these does not apply.
    """
    custom_owner: CustomOwner | None = None
    """The Deployment, pod or object of a custom kind that the pod names as its controller.  None: it names no such
    controller, no node runs it, or it is being deleted.
    """

    leaving: bool = False
    """Whether the pod needs quota, runs on a node, and is being deleted."""
    unbound: UnboundPod | None = None
    """None: a node runs the pod, or the pod has a gate, has ended, is being deleted, or names no Workload."""

    def needs_quota(self, controllers: Collection[str]) -> bool:
        """Whether the pod needs the quota of the Workload that it names.

        `controllers`: UIDs of the Workload's owners, and of the Jobs that these owners created.

        A pod needs the quota if a node runs the pod, or the job controls the pod: any user may write the name of a
        Workload onto a pod, and a pod that can never run must not block quota. A pod that was deleted before a node ran
        it is never bound: the API server refuses the binding, however long finalizers keep the pod.
        """
        return bool(self.workload) and (not self.owner or self.owner in controllers)


_shapes: dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = {}
"""Cache of request tuples, so that equal tuples are stored once: thousands of pods of one DaemonSet have equal
requests.
"""
_forms: dict[tuple[Any, ...], tuple[tuple[str, int], ...]] = {}
"""Cache of requests by the resources of a pod's containers."""
_FORMS_MAX = 10_000
"""More forms than any cluster has; further forms are not cached, so that a tenant cannot fill the memory."""


def pod_view(pod: wire_core.Pod) -> PodView:
    """Return the compact value of a pod: its usage of a node, its gang data, or only its key if neither matters."""
    meta = pod.metadata
    key = sys.intern(f"{meta.namespace}/{meta.name}")
    terminal = pod.status.phase in ("Succeeded", "Failed")
    named = _named(pod)
    started_by = "" if terminal else named
    bound, gang = None, None
    if pod.spec.node_name and not terminal:
        bound = PodFacts(node=sys.intern(pod.spec.node_name), requests=_requests_of(pod.spec), workload=named)
    if any(marker in meta.annotations for marker in names.TOPOLOGY_MARKER_ANNOTATIONS):
        owner = _owner_name(meta.annotations)
        gang = _gang_pod(pod, owner, terminal=terminal) if owner else None
    elastic = _elastic_pod(pod, started_by, terminal=terminal)
    if not started_by or pod.spec.node_name:
        leaving = meta.deletion_timestamp is not None
        custom = None if terminal else _custom_owner(pod)
        return PodView(key, bound, gang, started_by, elastic, leaving=leaving, custom_owner=custom)
    controller = controller_of(meta)
    may_run = not pod.spec.scheduling_gates and meta.deletion_timestamp is None
    unbound = _unbound_pod(pod, started_by, controller[1] if controller is not None else "") if may_run else None
    if controller is None:
        stray_of = started_by if not _is_queued(meta) else ""
        return PodView(key, bound, gang, "", elastic, stray_of=stray_of, unbound=unbound)
    needs = (started_by, controller[1]) if may_run else ("", "")
    return PodView(key, bound, gang, needs[0], elastic, needs[1], unbound=unbound)


def _unbound_pod(pod: wire_core.Pod, siblings: str, controller: str) -> UnboundPod:
    """Return the value of an unbound pod; equal messages are stored once, because all pods of a gang have the same
    message.
    """
    said = condition(pod.status.conditions, _SCHEDULED)
    tried = said is not None and said.reason != _GATED
    return UnboundPod(
        uid=pod.metadata.uid,
        siblings=siblings,
        controller=sys.intern(controller),
        since=(said.last_transition_time if said is not None else None) or pod.metadata.creation_timestamp or NO_TIME,
        message=sys.intern(said.message[:_SENTENCE]) if said is not None and tried else "",
    )


_SCHEDULED, _GATED = "PodScheduled", "SchedulingGated"
"""The condition that a scheduler writes, and its reason while the pod has gates."""
_SENTENCE = 512
"""The number of characters of a scheduler's message that are stored.  kube-scheduler puts the sums over all nodes
first.
"""


def _owner_name(annotations: Mapping[str, str]) -> str:
    """Return the name of the Workload that a pod names by one of two annotations; empty: none."""
    return annotations.get(names.WORKLOAD_ANNOTATION) or annotations.get(names.TOPOLOGY_WORKLOAD_ALIAS_ANNOTATION, "")


def _named(pod: wire_core.Pod) -> str:
    """Return the namespace/name by which the pods of the named Workload are found; empty: the pod names no Workload."""
    annotations = pod.metadata.annotations
    name = annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION) or _owner_name(annotations)
    return sys.intern(f"{pod.metadata.namespace}/{name}") if name else ""


def _custom_owner(pod: wire_core.Pod) -> CustomOwner | None:
    """Return the controller that a running pod names, if this controller ignores pods that it did not create; else
    None.

    Source: the controllers of Jobs, ReplicaSets, StatefulSets and DaemonSets release pods that their selector does not
    match, and count the others as their own; the controller of Deployments reads only ReplicaSets.  A pod has no
    controller: it makes pods itself, as a driver makes its executors.
    """
    meta = pod.metadata
    found = next((o for o in meta.owner_references if o.controller), None)
    if found is None or not pod.spec.node_name or meta.deletion_timestamp is not None:
        return None
    group = found.api_version.rpartition("/")[0]
    if (group, found.kind) not in (("apps", "Deployment"), POD) and "." not in group:
        return None
    return CustomOwner(
        api_version=sys.intern(found.api_version),
        kind=sys.intern(found.kind),
        name=sys.intern(found.name),
        uid=sys.intern(found.uid),
        pod_created=meta.creation_timestamp or NO_TIME,
        pod_is_queued=_is_queued(meta),
    )


def _is_queued(meta: ObjectMeta) -> bool:
    """Whether the pod is queued itself, or is a member of a group."""
    return names.MANAGED_LABEL in meta.labels or names.POD_GROUP_NAME_LABEL in meta.labels


def _elastic_pod(pod: wire_core.Pod, siblings: str, *, terminal: bool) -> ElasticPod | None:
    """Return the value of a pod that has the name of a slice, or the gate; None: the pod has neither."""
    meta, gates = pod.metadata, tuple(gate.name for gate in pod.spec.scheduling_gates)
    if names.WORKLOAD_SLICE_NAME_ANNOTATION not in meta.annotations and names.ELASTIC_JOB_GATE not in gates:
        return None
    if not siblings and (terminal or names.ELASTIC_JOB_GATE not in gates):
        return None
    return ElasticPod(
        key=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        resource_version=meta.resource_version,
        siblings=siblings,
        pod_set=sys.intern(meta.labels.get(names.PODSET_LABEL) or names.DEFAULT_PODSET),
        gates=gates,
        node_selector=dict(pod.spec.node_selector),
        annotations={key: meta.annotations[key] for key in names.CHECKED_POD_ANNOTATIONS if key in meta.annotations},
        deleting=meta.deletion_timestamp is not None,
        controller=controller_of(meta),
    )


def _requests_of(spec: wire_core.PodSpec) -> tuple[tuple[str, int], ...]:
    """Return the requests of a pod, sorted by resource. Pods have few forms, so each form is computed once."""
    level = spec.resources
    form = (
        tuple([_form(c) for c in spec.containers]),
        tuple([_form(c) for c in spec.init_containers]),
        None if level is None else (tuple(level.requests.items()), tuple(level.limits.items())),
        tuple(spec.overhead.items()),
    )
    known = _forms.get(form)
    if known is None:
        shape = tuple(sorted(template_requests(spec, "spec").items()))
        if len(_forms) >= _FORMS_MAX:
            _forms.clear()
        known = _forms[form] = _shapes.setdefault(shape, shape)
    return known


def _form(container: wire_core.Container) -> tuple[Any, ...]:
    resources = container.resources
    return (tuple(resources.requests.items()), tuple(resources.limits.items()), container.restart_policy == "Always")


def _gang_pod(pod: wire_core.Pod, owner: str, *, terminal: bool) -> GangPod:
    meta = pod.metadata
    pod_set = meta.labels.get(names.PODSET_LABEL) or meta.annotations.get(
        names.TOPOLOGY_PODSET_ALIAS_ANNOTATION, names.DEFAULT_PODSET
    )
    return GangPod(
        key=f"{meta.namespace}/{meta.name}",
        uid=meta.uid,
        resource_version=meta.resource_version,
        workload=f"{meta.namespace}/{owner}",
        pod_set=sys.intern(pod_set),
        gates=tuple(gate.name for gate in pod.spec.scheduling_gates),
        node_selector=dict(pod.spec.node_selector),
        labels=dict(meta.labels),
        index_offset=meta.annotations.get(names.POD_INDEX_OFFSET_ANNOTATION),
        terminal=terminal,
        deleting=meta.deletion_timestamp is not None,
        node=pod.spec.node_name or "",
        slice_name=meta.annotations.get(names.WORKLOAD_SLICE_NAME_ANNOTATION),
        controller=controller_of(meta),
        failed=pod.status.phase == "Failed",
        created=meta.creation_timestamp or NO_TIME,
    )


def controller_of(meta: ObjectMeta) -> tuple[str, str] | None:
    """Return kind (with its version) and UID of the owner that controls the object; None: it has no controller."""
    return next((_owner(o) for o in meta.owner_references if o.controller), None)


def _owner(reference: OwnerReference) -> tuple[str, str]:
    return sys.intern(f"{reference.api_version}/{reference.kind}"), sys.intern(reference.uid)
