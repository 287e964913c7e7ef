"""Pod sets of a Workload as values of the core."""

from __future__ import annotations

from dataclasses import replace

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.core.node_classes import NO_CLASS_REQUEST, ClassRequest
from kqueue.core.pod_requests import Amounts
from kqueue.core.topology import PodSetRequest, SliceLayer, TopologyRequest
from kqueue.core.workload import PodSet
from kqueue.model.neighbours import NO_RULES, NeighbourRules, neighbours
from kqueue.model.node_classes import class_request
from kqueue.model.nodes import node_rules
from kqueue.model.resources import template_requests


def ended_pods(obj: wire.Workload) -> tuple[tuple[str, int], ...]:
    """Return, per pod set, the number of pods that have ended for good, and need no quota again."""
    return tuple(sorted((r.name, r.count) for r in obj.status.reclaimable_pods)) if obj.status.reclaimable_pods else ()


def pod_sets_of(obj: wire.Workload, *, implied: bool) -> tuple[PodSet, ...]:
    """Return the pod sets in the form of planning, without ended pods. Raises InvalidObjectError."""
    ended, rules = dict(ended_pods(obj)), neighbours(obj)
    found: list[PodSet] = []
    for i, p in enumerate(obj.spec.pod_sets):
        requests = template_requests(p.template.spec, template_path(i))
        found.append(
            pod_set(
                p,
                requests,
                ended=ended.get(p.name, 0),
                implied=implied,
                rules=rules.get(p.name, NO_RULES),
                node_class=class_request(p.template.metadata, obj.metadata),
                together=is_together(obj),
            )
        )
    return tuple(found)


def is_together(obj: wire.Workload) -> bool:
    """Whether one domain of the requested level is for all pod sets."""
    return obj.metadata.annotations.get(gang_names.GANG_TOPOLOGY_ANNOTATION) == gang_names.TOGETHER


def template_path(index: int) -> str:
    """Return the path of a pod set's pod spec in a Workload."""
    return f"spec.podSets[{index}].template.spec"


def pod_set(
    p: wire.PodSet,
    requests: Amounts,
    *,
    costs: Amounts | None = None,
    ended: int = 0,
    implied: bool = False,
    partial: bool = False,
    rules: NeighbourRules = NO_RULES,
    node_class: ClassRequest = NO_CLASS_REQUEST,
    together: bool = False,
) -> PodSet:
    """Return a pod set in the form of planning.

    `requests` are the requests of one pod, `costs` its quota requests (None: the same); `ended` pods are not needed
    again; `implied`: it is placed without an explicit request, too; `partial`: partial admission is on; `rules`: see
    `neighbours`; `node_class`: see `class_request`; `together`: see `is_together`.
    """
    topology = topology_request(p.topology_request)
    asks = _asks(p.topology_request)
    count = max(0, p.count - ended)
    return PodSet(
        request=PodSetRequest(
            name=p.name,
            count=count,
            requests=requests,
            topology=topology if asks else replace(topology, implied=implied),
            group=p.topology_request.pod_set_group_name if p.topology_request is not None else None,
            rules=node_rules(p.template.spec),
            ended=p.count - count,
            apart=rules.apart,
            one_domain=rules.one_domain,
            together=together and asks,
        ),
        quota_requests=requests if costs is None else costs,
        asks_topology=asks,
        min_count=p.min_count if partial and p.min_count is not None and p.min_count < count else None,
        node_class=node_class,
    )


def topology_request(request: wire.TopologyRequest | None) -> TopologyRequest:
    """Return the part of a topology request that decides placement."""
    if request is None:
        return TopologyRequest()
    slices = tuple(SliceLayer(c.topology, c.size) for c in request.podset_slice_required_topology_constraints)
    if not slices and request.pod_set_slice_required_topology:
        slices = (SliceLayer(request.pod_set_slice_required_topology, request.pod_set_slice_size or 0),)
    return TopologyRequest(
        required=request.required, preferred=request.preferred, unconstrained=request.unconstrained, slices=slices
    )


def _asks(request: wire.TopologyRequest | None) -> bool:
    """Whether the request names a topology; an incomplete request counts, so that it is refused and not ignored."""
    return request is not None and bool(
        request.required
        or request.preferred
        or request.unconstrained is not None
        or request.pod_set_slice_required_topology
        or request.pod_set_slice_size is not None
        or request.podset_slice_required_topology_constraints
    )
