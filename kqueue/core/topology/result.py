"""Results of placement: the domains of the pods, or the reason for a misfit, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.value import value

Path = tuple[str, ...]
"""The level values of a domain and the domains around it, widest first."""


@value()
class DomainUsage:
    """`count` pods of `requests` each, in the lowest-level domain with these written `values`.

    `values` is the host name alone where that is the lowest level, else the full path.  The `pods` resource is not in
    `requests`: it follows from `count`.
    """

    values: Path
    requests: Mapping[str, int]
    count: int


@value()
class LevelQuality:
    """The number of domains of one level that have pods, and the smallest possible number."""

    level: str
    used: int
    lower_bound: int


@value(kw_only=True)
class PodSetPlacement:
    """The domains of the pods of one pod set.

    Args:
        assignment: ordered by full path; its counts sum to the pods placed.
        paths: full path of each domain of `assignment`, same order.
        requests: the requests of one pod, without `pods`.
        quality: widest level first; empty unless `measure` was set.  Members of a group have the same.
        proven: with `optimal`, whether no placement is better; None otherwise, and if pods kept earlier places.
    """

    name: str
    assignment: TopologyAssignment
    paths: tuple[Path, ...]
    requests: Mapping[str, int]
    quality: tuple[LevelQuality, ...] = ()
    proven: bool | None = None


@value()
class Placement:
    """The domains of every pod set."""

    pod_sets: tuple[PodSetPlacement, ...]

    def __getitem__(self, name: str) -> PodSetPlacement:
        """Return the pod set of that name.  KeyError: the request had none."""
        for pod_set in self.pod_sets:
            if pod_set.name == name:
                return pod_set
        raise KeyError(name)


def usage_of(placement: Placement) -> tuple[DomainUsage, ...]:
    """Return the usage of the placed pods, to charge it to a capacity."""
    return tuple(
        [
            DomainUsage(domain.values, pod_set.requests, domain.count)
            for pod_set in placement.pod_sets
            for domain in pod_set.assignment.domains
        ]
    )


class MisfitCode(StrEnum):
    """The reasons why a request cannot be placed.  Written into conditions, explain output and logs."""

    LEVEL_NOT_SPECIFIED = "LevelNotSpecified"
    LEVEL_NOT_FOUND = "LevelNotFound"
    SLICE_LEVEL_NOT_FOUND = "SliceLevelNotFound"
    SLICE_LEVEL_ABOVE_POD_SET_LEVEL = "SliceLevelAbovePodSetLevel"
    SLICE_SIZE_MISSING = "SliceSizeMissing"
    INNER_LEVEL_NOT_FOUND = "InnerLevelNotFound"
    INNER_LEVEL_NOT_LOWER = "InnerLevelNotLower"
    INNER_SIZE_NOT_DIVISOR = "InnerSizeNotDivisor"
    COUNT_BELOW_SLICE_SIZE = "CountBelowSliceSize"
    NO_DOMAINS_AT_LEVEL = "NoDomainsAtLevel"
    NO_FIT = "NoFit"
    INVALID_NODE_SELECTOR = "InvalidNodeSelector"
    INVALID_NODE_AFFINITY = "InvalidNodeAffinity"
    INVALID_GROUP = "InvalidGroup"
    STALE_ASSIGNMENT = "StaleAssignment"
    NO_REPLACEMENT = "NoReplacement"
    INTERNAL_INCONSISTENCY = "InternalInconsistency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """Leaves that cannot hold one single pod, by the first cause found.  Empty maps and zeros: no such cause.

    `taints` is keyed `key=value:Effect` (`key:Effect` without value), `resources` by the resource that a leaf lacks
    most (the alphabetically first on a tie).  `topology_domain` are leaves outside of the one domain that was searched,
    `others` leaves with another pod of the workload that the pod must not share a host with.
    """

    node_selector: int = 0
    affinity: int = 0
    topology_domain: int = 0
    others: int = 0
    taints: Mapping[str, int] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    """By the reason that a plugin gives."""

    def total(self) -> int:
        """Return the number of excluded leaves."""
        by_rules = self.node_selector + self.affinity + self.topology_domain + self.others
        return by_rules + sum(map(sum, (self.taints.values(), self.resources.values(), self.refused.values())))

    def __bool__(self) -> bool:
        return self.total() > 0


@dataclass(frozen=True, slots=True)
class LayerFit:
    """The number of groups of one slice layer, of `total`, that fit under the best domain."""

    level: str
    fit: int
    total: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """The scarce resource in the domain that came closest.

    `asked` is the request of all pods with the leader; `free` the free amount, never negative; `held` the usage of
    workloads placed by topology there.
    """

    resource: str
    asked: int
    free: int
    held: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why a request was not placed, with the facts that its message must carry.

    Args:
        code: the first check or search that failed.
        pod_set: the first failing pod set in request order; `group` its group, None without a group.
        topology: name of the Topology.
        level: for NoFit and NoDomainsAtLevel the level where the search ended; else the invalid level.
        other_level, count, size, other_size: the compared values of the checks that compare two.
        unit: `pod` or `slice`; `fit` of `total` units fit. `fit` can equal `total` when only the leader does not fit.
        leader: the leader has no place; the workers may have room.
        spread: the units might lie in several domains of `level`, and `fit` is the sum over all of them; else `fit` is
            that of the best domain.
        layers: per slice layer, only when there are several: the slices that fit in the domain of `level` with most
            slices.
        best_domain: full path of the domain of `level` to which `fit` belongs; None: there is none, or `spread` is set.
        shortage: the scarcest resource in it (with `spread`: in all) for the workers, or with `leader` for the leader;
            None when rules, not resources, exclude the pods.
        one_pod: if no leaf has room for one pod, for lack of resources only: the request of one pod, and the largest
            free amount of a leaf.
        selector: the node selector as `key=value,...`, if it excludes leaves.
        alone: a host takes at most one pod of the pod set.
        leaves: the number of leaves examined; `excluded` the leaves that cannot hold one pod, by cause.
        hosts: for StaleAssignment the assigned host that is gone, for NoReplacement the failed ones.
        detail: the problem as text, for the codes about invalid input and failed hosts.
        placed: pod sets of earlier groups, which were placed.
        together: the pod sets that were to share a domain; empty: each was placed for itself.
    """

    code: MisfitCode
    pod_set: str
    group: str | None = None
    topology: str = ""
    level: str | None = None
    other_level: str | None = None
    count: int = 0
    size: int = 0
    other_size: int = 0
    unit: str = "pod"
    fit: int = 0
    total: int = 0
    spread: bool = False
    leader: bool = False
    layers: tuple[LayerFit, ...] = ()
    best_domain: Path | None = None
    shortage: Shortage | None = None
    one_pod: Shortage | None = None
    selector: str = ""
    alone: bool = False
    leaves: int = 0
    excluded: Exclusions = field(default_factory=Exclusions)
    hosts: tuple[str, ...] = ()
    detail: str = ""
    placed: tuple[PodSetPlacement, ...] = ()
    together: tuple[str, ...] = ()
