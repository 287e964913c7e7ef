"""What the simulated StatefulSet controller does next: a pure function from a StatefulSet and its pods."""

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
    """What is done now; more follows when that has had its effect."""

    create: tuple[int, ...] = ()
    """Ordinals of pods to be made."""
    delete: tuple[Object, ...] = ()


def plan(stateful_set: Object, pods: Mapping[int, Object], update: str) -> StatefulSetPlan:
    """The next step.  `pods` by ordinal; `update` is the revision of the template as it is now."""
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
    """Those that the StatefulSet is to have."""
    first = (stateful_set["spec"].get("ordinals") or {}).get("start") or 0
    return range(first, first + stateful_set["spec"]["replicas"])


def _next_to_go(condemned: Sequence[Object]) -> tuple[Object, ...]:
    """The highest of the pods that go, given highest first, once those above it are gone.

    One that does not serve waits until all below it do.
    """
    highest, below = condemned[0], condemned[1:]
    if is_deleting(highest) or (not _serves(highest) and not all(map(_serves, below))):
        return ()
    return (highest,)


def _outdated(
    stateful_set: Object, pods: Mapping[int, Object], wanted: Iterable[int], update: str
) -> tuple[Object, ...]:
    """The highest pod of another revision, once all above it serve; those below the partition are left as they are."""
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
    """Pods with lower ordinals keep the revision that they have."""
    strategy = stateful_set["spec"].get("updateStrategy") or {}
    return int((strategy.get("rollingUpdate") or {}).get("partition") or 0)


def revision_of(pod: Object) -> str:
    """The revision that a pod was made from."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def ordinal_of(pod: Object) -> int | None:
    """The pod's number, from its name; None where it ends in none."""
    _, dash, number = pod["metadata"]["name"].rpartition("-")
    return int(number) if dash and number.isdigit() else None


def new_pod(stateful_set: Object, template: Object, ordinal: int, revision: str) -> Object:
    """The pod of one ordinal."""
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    labels = {STATEFUL_SET_POD_INDEX_LABEL: str(ordinal), POD_NAME_LABEL: name, REVISION_LABEL: revision}
    pod = pod_from(template, stateful_set, KIND, name=name, labels=labels)
    pod["spec"]["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        pod["spec"]["subdomain"] = stateful_set["spec"]["serviceName"]
    return pod


def status(stateful_set: Object, pods: Sequence[Object], update: str) -> Object:
    """The counts and revisions; the update has become the current revision when every pod is of it and ready."""
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
