"""The next step of the simulated StatefulSet controller: a pure function of a StatefulSet and its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kqueue.kube.names import STATEFUL_SET_POD_INDEX_LABEL
from kqueue.sandbox.api import Object
from kqueue.sandbox.job_status import is_active, is_ready
from kqueue.sandbox.json_object import is_deleting, is_terminal
from kqueue.sandbox.replicas import pod_from

KIND = "StatefulSet"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
REVISION_LABEL = "controller-revision-hash"


@dataclass(frozen=True, slots=True)
class StatefulSetPlan:
    """The writes of one step; further steps follow when these have had their effect."""

    create: tuple[int, ...] = ()
    """Ordinals of pods to create."""
    delete: tuple[Object, ...] = ()


def plan(stateful_set: Object, pods: Mapping[int, Object], update: str) -> StatefulSetPlan:
    """Return the next step.  `pods` by ordinal; `update` is the revision of the present template."""
    spec = stateful_set["spec"]
    in_order = spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    wanted = ordinals(stateful_set)
    create: list[int] = []
    delete: list[Object] = []
    for ordinal in wanted:
        pod = pods.get(ordinal)
        if pod is None:
            create.append(ordinal)
        elif is_terminal(pod) and not is_deleting(pod):
            delete.append(pod)
        if in_order and (pod is None or not _serves(pod)):
            return StatefulSetPlan(tuple(create), tuple(delete))
    condemned = [pods[ordinal] for ordinal in sorted(pods, reverse=True) if ordinal not in wanted]
    if condemned and in_order:
        return StatefulSetPlan(delete=_next_to_go(condemned))
    delete += [pod for pod in condemned if not is_deleting(pod)]
    if create or delete:
        return StatefulSetPlan(tuple(create), tuple(delete))
    return StatefulSetPlan(delete=_outdated(stateful_set, pods, wanted, update))


def ordinals(stateful_set: Object) -> range:
    """Return the ordinals that the StatefulSet should have."""
    first = (stateful_set["spec"].get("ordinals") or {}).get("start") or 0
    return range(first, first + stateful_set["spec"]["replicas"])


def _next_to_go(condemned: Sequence[Object]) -> tuple[Object, ...]:
    """Return the next pod to delete: the first of `condemned` (highest first), unless it is terminating already.

    A pod that is not ready waits until all lower pods are ready.
    """
    highest, below = condemned[0], condemned[1:]
    if is_deleting(highest) or (not _serves(highest) and not all(map(_serves, below))):
        return ()
    return (highest,)


def _outdated(
    stateful_set: Object, pods: Mapping[int, Object], wanted: Iterable[int], update: str
) -> tuple[Object, ...]:
    """Return the highest pod of another revision, once all higher pods are ready; pods below the partition stay."""
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return ()
    for ordinal in sorted(wanted, reverse=True):
        if ordinal < partition(stateful_set):
            return ()
        pod = pods[ordinal]
        if revision_of(pod) != update and not is_deleting(pod):
            return (pod,)
        if not _serves(pod):
            return ()
    return ()


def partition(stateful_set: Object) -> int:
    """Return the partition: pods with lower ordinals keep their revision."""
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    return int((strategy.get("rollingUpdate") or {}).get("partition") or 0)


def revision_of(pod: Object) -> str:
    """Return the revision that a pod was created from."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def ordinal_of(pod: Object) -> int | None:
    """Return the number at the end of the pod's name, or None."""
    _, dash, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if dash and number.isdigit() else None


def new_pod(stateful_set: Object, template: Object, ordinal: int, revision: str) -> Object:
    """Return a new pod for one ordinal."""
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    labels = {STATEFUL_SET_POD_INDEX_LABEL: str(ordinal), POD_NAME_LABEL: name, REVISION_LABEL: revision}
    pod = pod_from(template, stateful_set, KIND, name=name, labels=labels)
    pod["spec"]["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = stateful_set["spec"]["serviceName"]
    return pod


def status(stateful_set: Object, pods: Sequence[Object], update: str) -> Object:
    """Return counts and revisions; `update` becomes the current revision when every pod has it and is ready."""
    current = (stateful_set.get("status") or {}).get("currentRevision") or update
    alive = [pod for pod in pods if is_active(pod)]
    ready = sum(map(is_ready, alive))
    updated = _count(alive, lambda pod: revision_of(pod) == update)
    if updated == len(pods) == ready == stateful_set["spec"]["replicas"]:
        current = update
    return {
        "observedGeneration": stateful_set["metadata"].get("generation"),
        "replicas": len(pods),
        "readyReplicas": ready or None,
        "availableReplicas": ready,
        "currentReplicas": _count(alive, lambda pod: revision_of(pod) == current) or None,
        "updatedReplicas": updated or None,
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": 0,
    }


def _count(pods: Iterable[Object], matches: Callable[[Object], bool]) -> int:
    return sum(1 for pod in pods if matches(pod))


def _serves(pod: Object) -> bool:
    return is_ready(pod) and is_active(pod)
