"""A waiting Workload, in the form of the queues and in the form of planning."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from kqueue.api import gang_names, names
from kqueue.api.wire import kueue as wire
from kqueue.core.queued import QueuedGang
from kqueue.core.workload import Head, PodSet, Replaced
from kqueue.kube import names as kube_names
from kqueue.model.conditions import condition
from kqueue.model.extras import base_key, extra_of
from kqueue.model.least import least_text
from kqueue.model.neighbours import neighbours
from kqueue.model.node_classes import class_problem, class_requests
from kqueue.model.order import DEFAULT_ORDER, QueueOrder, boost, closed_gates, priority, queue_time
from kqueue.model.pending import Pending, RequestSummary
from kqueue.model.pod_sets import ended_pods, is_together, pod_sets_of
from kqueue.model.profiles import chosen_algorithm, profile_name
from kqueue.model.variants import allowed_flavor
from kqueue.model.workloads import local_queue_key, replaced_key, workload_key


def pending(
    obj: wire.Workload, order: QueueOrder = DEFAULT_ORDER, *, added: Sequence[str] = (), reclaims: bool = True
) -> Pending:
    """Return the queues' entry for a waiting workload.

    `added` is a text for the additions of its namespace and its runtime classes to its requests, equal for equal
    additions. `reclaims`: pods in `status.reclaimablePods` are not requested again (gate ReclaimablePods).
    """
    requeued = condition(obj.status.conditions, names.CONDITION_REQUEUED)
    evicted = condition(obj.status.conditions, names.CONDITION_EVICTED)
    state = obj.status.requeue_state
    asked = asked_for(obj, reclaims=reclaims)
    profile = profile_name(obj.metadata)
    others = (replaced_key(obj), base_key(obj), allowed_flavor(obj))
    origin = obj.spec.priority_class_ref
    by_class = origin.name if origin is not None and origin.kind == kube_names.PRIORITY_CLASS_KIND else ""
    rank = [priority(obj, order), by_class]
    shape = sys.intern(_digest([rank, asked.pods, asked.ended, profile, others, added]))
    version = _digest(
        [
            obj.metadata.generation,
            [(c.type, c.status, c.reason) for c in (requeued, evicted) if c is not None],
            state.requeue_at if state is not None else None,
            obj.status.reclaimable_pods if reclaims else (),
            bool(closed_gates(obj)),
            boost(obj, order),
            profile,
            class_requests(obj),
            is_together(obj),
            base_key(obj),
            least_text(obj),
            added,
        ]
    )
    return Pending(
        key=workload_key(obj),
        uid=obj.metadata.uid,
        local_queue=sys.intern(local_queue_key(obj)),
        priority=priority(obj, order),
        timestamp=queue_time(obj, order),
        shape=shape,
        version=version,
        not_before=state.requeue_at if state is not None else None,
        on_hold=requeued is not None and requeued.status == "False",
        created=obj.metadata.creation_timestamp,
        gang=_gang(obj, order),
        asked=asked,
    )


def _gang(obj: wire.Workload, order: QueueOrder) -> QueuedGang | None:
    """Return the group of pods that a Workload represents, or of whose pods it has one; None: it represents none."""
    annotations, base = obj.metadata.annotations, extra_of(obj)
    if not base and annotations.get(names.IS_GROUP_WORKLOAD_ANNOTATION) != "true":
        return None
    uid = annotations.get(gang_names.GANG_UID_ANNOTATION, "") or obj.metadata.uid
    return QueuedGang(key=base or workload_key(obj), since=queue_time(obj, order), uid=uid, extra=bool(base))


def asked_for(obj: wire.Workload, *, reclaims: bool = True) -> RequestSummary:
    """Return the workload's own requests.

    `reclaims`: pods in `status.reclaimablePods` are not requested again (gate ReclaimablePods).
    """
    # labels are left out: the labels of a Job's pods name the Job
    pods: list[Any] = [(p.name, p.count, p.min_count, p.topology_request, p.template.spec) for p in obj.spec.pod_sets]
    rules = neighbours(obj)  # the matches of the templates' selectors among these labels
    pods += [(name, sorted(rules[name].apart), rules[name].one_domain) for name in sorted(rules)]
    pods += class_requests(obj)
    if is_together(obj):
        pods.append(gang_names.TOGETHER)
    if least_text(obj):
        pods.append(least_text(obj))
    return _asked(obj.metadata.generation, ended_pods(obj) if reclaims else (), _digest(pods))


@lru_cache(maxsize=10_000)
def _asked(generation: int, ended: tuple[tuple[str, int], ...], pods: str) -> RequestSummary:
    """Return one shared object for equal requests: most waiting workloads have many equals."""
    return RequestSummary(generation, ended, pods)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16]


def head(
    obj: wire.Workload,
    *,
    queue: str,
    topology_only: bool,
    last_tried: Mapping[tuple[str, str], int],
    replaces: Replaced | None = None,
    order: QueueOrder = DEFAULT_ORDER,
    key: str | None = None,
    pod_sets: tuple[PodSet, ...] | None = None,
    refused: str = "",
) -> Head:
    """Return a pending workload in the form of planning.

    `key`: its namespace/name, if the caller has it already.  `pod_sets`: its requests, if they are parsed already.
    `refused`: the reason why its requests are refused. `topology_only`: all flavors of its queue have a topology, so
    pod sets without a request are placed, too. `replaces`: the slice of `replaced_key`, if that slice uses quota of the
    same queue. Raises InvalidObjectError when its requests cannot be parsed.
    """
    algorithm, unknown = chosen_algorithm(obj.metadata)
    return Head(
        key=key or workload_key(obj),
        uid=obj.metadata.uid,
        queue=queue,
        priority=priority(obj, order),
        timestamp=queue_time(obj, order),
        pod_sets=pod_sets_of(obj, implied=topology_only) if pod_sets is None else pod_sets,
        last_tried=last_tried,
        algorithm=algorithm,
        problem="; ".join(filter(None, (unknown, class_problem(obj), refused))),
        replaces=replaces,
    )
