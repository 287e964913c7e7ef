"""Nodes and the rules of pods for nodes, as plain values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from kqueue.kube.names import HOSTNAME_LABEL
from kqueue.kube.requirement import Requirement
from kqueue.kube.taints import Taint, Toleration

HOSTNAME = HOSTNAME_LABEL
"""The level label whose topologies have one node per leaf."""

PODS = "pods"
"""The resource of which every pod uses one unit."""


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Expressions on labels and on fields (`metadata.name`), all of which must hold.  An empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedTerm:
    """A preferred node affinity term."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The rules by which a pod accepts nodes: one hashable value, so that equal rules are checked once per tree.

    `selector` is sorted (key, value) pairs.  `required` holds ORed terms, None when the pod has no required node
    affinity (an empty tuple matches nothing). `preferred` counts only in profiles with preferred affinity. `avoided`
    are sorted hosts that the workload must not get; they count only if leaves are hosts. `refused` are sorted
    hosts that plugins keep it from, each with the reason; the same holds for them.
    """

    selector: tuple[tuple[str, str], ...] = ()
    required: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    preferred: tuple[WeightedTerm, ...] = ()
    avoided: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def avoiding(self, hosts: Collection[str]) -> NodeRules:
        """Return the same rules with these hosts to be avoided."""
        return replace(self, avoided=tuple(sorted(hosts))) if hosts or self.avoided else self


ANY_NODE = NodeRules()
"""No rules: a pod accepts every untainted node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """The facts about a node that placement uses.

    Args:
        labels: all labels of the node.
        allocatable: `status.allocatable` by `parse_quantity`; cpu in milli, everything else in base units.
        taints: in the node's order, which decides only which taint is named as the cause of an exclusion.
        ready: the node has a condition `Ready` with status True; other conditions do not matter.
        not_ready_since: when the condition `Ready` left True; None: it is True, or the node has no such condition.
        unschedulable: `spec.unschedulable`.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    not_ready_since: datetime | None = None
    unschedulable: bool = False

    @property
    def usable(self) -> bool:
        """Whether the node is ready and not cordoned."""
        return self.ready and not self.unschedulable

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """A pod that uses resources of a node: `spec.nodeName` is set, and its phase is neither Failed nor Succeeded.

    A pod with a deletion timestamp counts until it is terminal or gone.

    Args:
        node: `spec.nodeName`.
        requests: `core.pod_requests.pod_requests` of its spec, as sorted (resource, amount) pairs; without `pods`.
        workload: namespace/name of the Workload that the pod names; empty: none. The Workload's usage on the node
        covers the pod's usage; uncovered usage counts as foreign.
    """

    node: str
    requests: tuple[tuple[str, int], ...] = field(default=())
    workload: str = ""
