"""Delayed domains in the status of a Workload, and what its ready checks add to its requests.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from kqueue import model
from kqueue.api import check_names
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import NodeRules, TopologyAssignment, encode
from kqueue.core.workload import PodSet
from kqueue.state.conditions import Patch


def with_updates(obj: wire.Workload, pod_sets: Sequence[PodSet]) -> tuple[PodSet, ...]:
    """Return the pod sets with the node selectors and tolerations that checks add to their pods."""
    added: dict[str, list[wire.PodSetUpdate]] = {}
    for check in obj.status.admission_checks:
        for update in check.pod_set_updates:
            if update.node_selector or update.tolerations:
                added.setdefault(update.name, []).append(update)
    return tuple(_updated(pod_set, added[pod_set.name]) if pod_set.name in added else pod_set for pod_set in pod_sets)


def _updated(pod_set: PodSet, updates: Sequence[wire.PodSetUpdate]) -> PodSet:
    rules: NodeRules = pod_set.request.rules
    selector, tolerations = set(rules.selector), [*rules.tolerations]
    for update in updates:
        selector.update(update.node_selector.items())
        tolerations += [model.toleration(t) for t in update.tolerations]
    rules = replace(rules, selector=tuple(sorted(selector)), tolerations=tuple(tolerations))
    return replace(pod_set, request=replace(pod_set.request, rules=rules))


def with_domains(obj: wire.Workload, assignments: Mapping[str, TopologyAssignment]) -> wire.Workload:
    """Return the workload with these domains, which wait no longer."""
    stored = obj.status.admission
    assert stored is not None
    pod_sets = tuple(
        msgspec.structs.replace(
            held,
            topology_assignment=msgspec.convert(encode(assignments[held.name]), wire.TopologyAssignment),
            delayed_topology_request=check_names.DELAYED_READY,
        )
        if held.name in assignments
        else held
        for held in stored.pod_set_assignments
    )
    admission = msgspec.structs.replace(stored, pod_set_assignments=pod_sets)
    return msgspec.structs.replace(obj, status=msgspec.structs.replace(obj.status, admission=admission))


def choose_domains(obj: wire.Workload, assignments: Mapping[str, TopologyAssignment]) -> Patch:
    """Return the patch that writes these domains."""
    now = with_domains(obj, assignments).status.admission
    assert now is not None
    pod_sets = [{**msgspec.to_builtins(held), "name": held.name} for held in now.pod_set_assignments]
    return {"status": {"admission": {"podSetAssignments": pod_sets}}}


def placed_elsewhere(obj: wire.Workload) -> Patch:
    """Return the status field by which domains wait no longer, as another cluster has chosen them; empty: none wait."""
    stored = obj.status.admission
    if stored is None or not model.waits_for_domains(obj):
        return {}
    ready = {"delayedTopologyRequest": check_names.DELAYED_READY}
    pod_sets = [
        {**msgspec.to_builtins(held), "name": held.name, **(ready if held.delayed_topology_request else {})}
        for held in stored.pod_set_assignments
    ]
    return {"admission": {"podSetAssignments": pod_sets}}
