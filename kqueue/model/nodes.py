"""Nodes, and the rules by which pods accept them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache

from kqueue.api.wire import core as wire_core
from kqueue.core.topology import NodeFacts, NodeRules, NodeTerm, Requirement, Taint, Toleration, WeightedTerm
from kqueue.model.conditions import NO_TIME, condition
from kqueue.model.resources import amounts


def node_facts(node: wire_core.Node) -> NodeFacts:
    """Return the facts about a node that placement uses."""
    condition_ready = condition(node.status.conditions, "Ready")
    ready = condition_ready is not None and condition_ready.status == "True"
    return NodeFacts(
        name=sys.intern(node.metadata.name),
        labels={sys.intern(k): sys.intern(v) for k, v in node.metadata.labels.items()},
        allocatable=_shared(tuple(sorted(amounts(node.status.allocatable, "status.allocatable").items()))),
        taints=tuple(taint(t) for t in node.spec.taints),
        ready=ready,
        not_ready_since=condition_ready.last_transition_time or NO_TIME if condition_ready and not ready else None,
        unschedulable=node.spec.unschedulable,
    )


@lru_cache(maxsize=1024)
def _shared(amounts: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """Return one shared mapping for all nodes with equal amounts, as most nodes of a pool have."""
    return dict(amounts)


def taint(t: wire_core.Taint) -> Taint:
    """Return a taint as a value."""
    return Taint(t.key, t.value, t.effect)


def toleration(t: wire_core.Toleration) -> Toleration:
    """Return a toleration as a value."""
    return Toleration(t.key or "", t.operator or "", t.value or "", t.effect or "")


def node_rules(spec: wire_core.PodSpec) -> NodeRules:
    """Return the rules for nodes in a pod template."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return NodeRules(
        selector=tuple(sorted(spec.node_selector.items())),
        required=None if required is None else tuple(_term(t) for t in required.node_selector_terms),
        tolerations=tuple(toleration(t) for t in spec.tolerations),
        preferred=tuple(
            WeightedTerm(p.weight, _term(p.preference)) for p in (affinity.preferred if affinity is not None else ())
        ),
    )


def _term(t: wire_core.NodeSelectorTerm) -> NodeTerm:
    return NodeTerm(
        tuple(Requirement(r.key, r.operator, r.values) for r in t.match_expressions),
        tuple(Requirement(r.key, r.operator, r.values) for r in t.match_fields),
    )
