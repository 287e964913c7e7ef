"""Where pods go: trees of domains, free capacity, counting and placement.  Knows no Kubernetes object.

node.py        nodes and node rules as values
tree.py        one flavor's domains: levels, leaves sorted by path (never changes)
capacity.py    free capacity: charge, release, trial, fork (changes in place)
request.py     the request of a pod set, resolved against the levels of a tree
matching.py    which nodes accept a pod
counting.py    pods and slices that fit per domain, kept per request shape
knapsack.py    given numbers of domains, the best leaves
balanced.py    few domains, filled evenly, for preferred requests
together.py    one domain for several pod sets
packing.py     all ways to fill the leaves of one domain
elastic.py     the places that a workload slice inherits from the replaced one
optimal.py     the best of all placements, with proof
placement.py   the choice of level and domains: `place`
replacement.py new domains for the pods of failed hosts: `repair`
result.py      the answers: Placement, or Misfit with its numbers
"""

from __future__ import annotations

from kqueue.core.assignment import Domain, TopologyAssignment, decode, encode, encode_plain
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import (
    ANY_NODE,
    HOSTNAME,
    PODS,
    NodeFacts,
    NodeRules,
    NodeTerm,
    PodFacts,
    WeightedTerm,
)
from kqueue.core.topology.placement import place, place_workload
from kqueue.core.topology.replacement import Replacement, failed_hosts, find_replacement, repair, uses_host
from kqueue.core.topology.request import (
    DEFAULT_PROFILE,
    Algorithm,
    GangDomains,
    PodSetRequest,
    Profile,
    SliceLayer,
    TopologyRequest,
    missing_level,
)
from kqueue.core.topology.result import (
    DomainUsage,
    Exclusions,
    LayerFit,
    LevelQuality,
    Misfit,
    MisfitCode,
    Placement,
    PodSetPlacement,
    Shortage,
    usage_of,
)
from kqueue.core.topology.tree import Leaf, Membership, Tree, membership
from kqueue.kube.requirement import Requirement
from kqueue.kube.taints import Taint, Toleration

__all__ = [
    "ANY_NODE",
    "DEFAULT_PROFILE",
    "HOSTNAME",
    "PODS",
    "Algorithm",
    "Capacity",
    "Domain",
    "DomainUsage",
    "Exclusions",
    "GangDomains",
    "LayerFit",
    "Leaf",
    "LevelQuality",
    "Membership",
    "Misfit",
    "MisfitCode",
    "NodeFacts",
    "NodeRules",
    "NodeTerm",
    "Placement",
    "PodFacts",
    "PodSetPlacement",
    "PodSetRequest",
    "Profile",
    "Replacement",
    "Requirement",
    "Shortage",
    "SliceLayer",
    "Taint",
    "Toleration",
    "TopologyAssignment",
    "TopologyRequest",
    "Tree",
    "WeightedTerm",
    "decode",
    "encode",
    "encode_plain",
    "failed_hosts",
    "find_replacement",
    "membership",
    "missing_level",
    "place",
    "place_workload",
    "repair",
    "usage_of",
    "uses_host",
]
