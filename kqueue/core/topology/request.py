"""Topology requests of workloads, and the checks that need no capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from typing import Any

from kqueue.core.quantity import saturating_add
from kqueue.core.topology.node import ANY_NODE, PODS, NodeRules
from kqueue.core.topology.result import Misfit, MisfitCode, Path
from kqueue.core.topology.tree import Tree
from kqueue.core.value import made_anew

AUTO = "auto"
"""A value of `preferred`: the lowest level, unless the topology has a level of that name."""


class Algorithm(StrEnum):
    """The rule by which domains with room are chosen."""

    BEST_FIT = "BestFit"
    """The roomiest domains first; the last domain is the tightest with room for the rest."""
    LEAST_FREE_CAPACITY = "LeastFreeCapacity"
    """The smallest domain with room for all pods; if there is none, the smallest domains first."""
    OPTIMAL = "optimal"
    """Fewest domains, then least surplus, of all placements; BestFit for unconstrained requests."""
    BALANCED = "balanced"
    """For preferred requests: few domains, filled evenly.  BestFit for all others, and where that is not possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The algorithm for each form of request.

    `unconstrained` serves unconstrained, implied and slice-only requests, `constrained` required and preferred ones;
    LeastFreeCapacity for constrained requests applies to all.  `constrained` may be any name in `placers.py`.
    `preferred_affinity` puts preferred node affinity before capacity in every order, but not for `optimal`.
    `search_limit` is the largest number of steps that `optimal` makes: partial placements, and other work of about the
    same time. A step takes 1 to 3 us, so the default keeps every search below 100 ms on any tree.
    """

    constrained: str = Algorithm.BEST_FIT
    unconstrained: Algorithm = Algorithm.LEAST_FREE_CAPACITY
    preferred_affinity: bool = False
    search_limit: int = 30_000
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once: every search looks up cached counts by it."""
        fields = (self.constrained, self.unconstrained, self.preferred_affinity, self.search_limit)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return made_anew(self)

    def with_algorithm(self, algorithm: str | None) -> Profile:
        """Return the profile with this algorithm for constrained requests; None: return this profile."""
        return self if algorithm is None else replace(self, constrained=algorithm)


DEFAULT_PROFILE = Profile()


@dataclass(frozen=True, slots=True)
class SliceLayer:
    """`size` pods of each slice share one domain of `level`."""

    level: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """`Workload.spec.podSets[].topologyRequest`, the part that decides placement.

    Args:
        required: level whose one domain must hold all pods.
        preferred: level to try first; may be `auto`.
        unconstrained: any nodes; None: the request does not set it.
        implied: the user made no request, but all flavors of the queue have a topology.
        slices: coarse to fine; empty without slices.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool | None = None
    implied: bool = False
    slices: tuple[SliceLayer, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once, as in `Profile`."""
        fields = (self.required, self.preferred, self.unconstrained, self.implied, self.slices)
        object.__setattr__(self, "_hash", hash(fields))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return made_anew(self)


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a pod that decide how many fit on a leaf. Pods of one shape are interchangeable.

    `requests` is per pod with `pods` included, without zeros, sorted by resource.  `rules` is without preferred terms,
    which score leaves but exclude none.  `alone`: a host takes at most one such pod.
    """

    requests: tuple[tuple[str, int], ...]
    rules: NodeRules
    alone: bool = False
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash once: every search looks up a shape, and its rules are deep."""
        object.__setattr__(self, "_hash", hash((self.requests, self.rules, self.alone)))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return made_anew(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDomains:
    """Domains that have other pods of the same gang.

    Args:
        levels: the levels of the paths, widest first; trees with other levels have no such domain.
        paths: full paths, sorted.
        required: no other domain may be used; if not, these domains are tried first.
    """

    levels: tuple[str, ...]
    paths: tuple[Path, ...]
    required: bool = True

    def common(self, other: GangDomains) -> GangDomains | None:
        """Return the other domains as far as these allow them; None: they allow none of them."""
        if not self.required:
            return other
        if self.levels != other.levels:
            return None
        pairs = [(one, two) for one in self.paths for two in other.paths]
        paths = {max(one, two, key=len) for one, two in pairs if one[: len(two)] == two[: len(one)]}
        return replace(other, paths=tuple(sorted(paths))) if paths else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetRequest:
    """A group of identical pods to place.

    Args:
        count: pods to place (> 0; pod sets without pods take no part in placement).
        ended: pods that are not placed because they have ended for good.
        requests: per pod, of the template; cpu in milli, everything else in base units. `pods` is added here.
        group: pod sets of one group (a leader and its workers) share one domain. None: no group.
        rules: the node rules of the template. Tolerations of the flavor are added by the tree.
        apart: names of pod sets, perhaps this one, whose pods may not share a host with a pod of this one. It counts if
            hosts are the lowest level, and must be mutual.
        one_domain: node labels for which all pods need the same value; labels that are no level do not count.
        together: the required or preferred level is that of the gang: one domain is for all pod sets with this mark and
            the same level.
        within: domains for the pods; that of the workers counts for a group. None: all domains.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    topology: TopologyRequest = field(default=TopologyRequest(implied=True))
    group: str | None = None
    rules: NodeRules = ANY_NODE
    ended: int = 0
    apart: frozenset[str] = frozenset()
    one_domain: tuple[str, ...] = ()
    together: bool = False
    within: GangDomains | None = None
    shape: Shape = field(init=False, repr=False, compare=False)
    """The shape of the pods."""

    def __post_init__(self) -> None:
        """Compute the shape once for all searches."""
        requests = {resource: amount for resource, amount in self.requests.items() if amount}
        requests[PODS] = saturating_add(requests.get(PODS, 0), 1)
        rules = replace(self.rules, preferred=()) if self.rules.preferred else self.rules
        object.__setattr__(self, "shape", Shape(tuple(sorted(requests.items())), rules, self.name in self.apart))

    @property
    def surplus(self) -> int:
        """The pods to search for beyond `count`, so that the last slice of a partly finished gang is whole.

        The search is for whole slices, so the rest of a gang never needs more than the whole gang did. 0 while no pod
        has ended: then the count is a multiple of the slice.
        """
        slices = self.topology.slices
        return -self.count % slices[0].size if self.ended and slices and slices[0].size > 0 else 0

    def limited_to(self, domains: GangDomains) -> PodSetRequest | None:
        """Return the request for these domains, as far as it allows them; None: it allows none of them."""
        both = domains if self.within is None else self.within.common(domains)
        return replace(self, within=both) if both is not None else None

    def avoiding(self, hosts: frozenset[str]) -> PodSetRequest:
        """Return the same request, which also avoids these hosts."""
        return replace(self, rules=self.rules.avoiding(hosts)) if hosts else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A request in terms of one tree: levels as indices, amounts as slices.

    Args:
        level: where the search starts.
        slice_level: at or below `level`; the lowest level without slices.
        slice_size: pods of a slice; 1 without slices.
        inner_sizes: per level the size of the slice layer that binds it, 0 where none does.
        layers: all slice layers as (level index, size).
        count, need: pods and slices to place, the surplus of a pod set included.
        widest: the widest level that the search may reach, one domain of which must have all pods; None: any level, and
            several domains are allowed.  It has no effect together with `required`.
        algorithm: name of the placer.
        least: LeastFreeCapacity, so the smallest domains come first.
    """

    level: int
    slice_level: int
    slice_size: int
    inner_sizes: tuple[int, ...]
    layers: tuple[tuple[int, int], ...]
    count: int
    need: int
    required: bool
    unconstrained: bool
    least: bool
    algorithm: str = Algorithm.BEST_FIT
    widest: int | None = None

    @property
    def binding(self) -> int | None:
        """The level of which one domain must have all pods; None: several domains are allowed."""
        return self.level if self.required else self.widest

    @property
    def layered(self) -> bool:
        """Whether there are slice layers below the outermost one."""
        return len(self.layers) > 1


def resolve(pod_set: PodSetRequest, levels: tuple[str, ...], profile: Profile) -> Resolved | Misfit:
    """Return the request as level indices and sizes, or the first check that it fails."""
    found = _resolve(pod_set.topology, pod_set.count + pod_set.surplus, levels, profile)
    if isinstance(found, Misfit):
        return replace(found, pod_set=pod_set.name)
    return _bound(found, pod_set.one_domain, levels) if pod_set.one_domain else found


def _bound(resolved: Resolved, labels: tuple[str, ...], levels: tuple[str, ...]) -> Resolved:
    """Return the request with all pods in one domain of each of these labels that is a level."""
    bound = max((level for level, label in enumerate(levels) if label in labels), default=-1)
    if bound < 0 or (resolved.required and resolved.level >= bound):
        return resolved
    if resolved.level > bound and not resolved.unconstrained:  # a preferred level stays, within one domain
        return replace(resolved, widest=bound, algorithm=_without(resolved, Algorithm.BALANCED, Algorithm.OPTIMAL))
    slice_level = max(resolved.slice_level, bound)  # one domain has all slices, so each slice is in one domain
    algorithm = _without(resolved, Algorithm.BALANCED)
    return replace(
        resolved, level=bound, slice_level=slice_level, required=True, unconstrained=False, algorithm=algorithm
    )


def _without(resolved: Resolved, *algorithms: Algorithm) -> str:
    """Return best fit in place of algorithms that do not support the request."""
    return Algorithm.BEST_FIT if resolved.algorithm in algorithms else resolved.algorithm


@lru_cache(maxsize=4096)
def _resolve(request: TopologyRequest, count: int, levels: tuple[str, ...], profile: Profile) -> Resolved | Misfit:
    """Compute `resolve` without the name of the pod set in a Misfit, so that equal requests share the result."""
    index = {label: i for i, label in enumerate(levels)}
    lowest = len(levels) - 1
    slice_size = request.slices[0].size if request.slices else 1
    if slice_size <= 0:
        return Misfit(code=MisfitCode.SLICE_SIZE_MISSING, pod_set="")
    label = _main_level(request, levels)
    if label is None:
        return Misfit(code=MisfitCode.LEVEL_NOT_SPECIFIED, pod_set="")
    if label not in index:
        return Misfit(code=MisfitCode.LEVEL_NOT_FOUND, pod_set="", level=label)
    slice_label = request.slices[0].level if request.slices else levels[lowest]
    if slice_label not in index:
        return Misfit(code=MisfitCode.SLICE_LEVEL_NOT_FOUND, pod_set="", level=slice_label)
    level, slice_level = index[label], index[slice_label]
    if level > slice_level:
        return Misfit(code=MisfitCode.SLICE_LEVEL_ABOVE_POD_SET_LEVEL, pod_set="", level=label, other_level=slice_label)
    inner_sizes = _inner_sizes(request.slices, index)
    if isinstance(inner_sizes, Misfit):
        return inner_sizes
    need = count // slice_size
    if need == 0:
        return Misfit(code=MisfitCode.COUNT_BELOW_SLICE_SIZE, pod_set="", count=count, size=slice_size)
    unconstrained = _is_unconstrained(request)
    algorithm = algorithm_for(request, profile)
    return Resolved(
        level=level,
        slice_level=slice_level,
        slice_size=slice_size,
        inner_sizes=inner_sizes,
        layers=tuple((index[layer.level], layer.size) for layer in request.slices),
        count=count,
        need=need,
        required=request.required is not None,
        unconstrained=unconstrained,
        least=algorithm == Algorithm.LEAST_FREE_CAPACITY,
        algorithm=algorithm,
    )


def algorithm_for(request: TopologyRequest, profile: Profile) -> str:
    """Return the algorithm for a request; `balanced` may still use BestFit when it finds no placement."""
    if profile.constrained == Algorithm.LEAST_FREE_CAPACITY:
        return Algorithm.LEAST_FREE_CAPACITY
    if _is_unconstrained(request):
        least = profile.unconstrained is Algorithm.LEAST_FREE_CAPACITY
        return Algorithm.LEAST_FREE_CAPACITY if least else Algorithm.BEST_FIT
    if profile.constrained == Algorithm.BALANCED and request.required is not None:
        return Algorithm.BEST_FIT
    return profile.constrained


def _is_unconstrained(request: TopologyRequest) -> bool:
    return bool(request.unconstrained) or request.implied or is_slice_only(request)


def is_slice_only(request: TopologyRequest) -> bool:
    """Whether the request has slices, and no level for the whole pod set."""
    return bool(request.slices) and request.required is None and request.preferred is None


def missing_level(tree: Tree, pod_set: PodSetRequest) -> str | None:
    """Return the first level that the request names and the tree lacks; None: it has them all.

    This check runs when flavors are chosen, before any capacity is counted.
    """
    request = pod_set.topology
    main = _main_level(request, tree.levels)
    named = (*((main,) if main is not None else ()), *(layer.level for layer in request.slices))
    return next((level for level in named if level not in tree.levels), None)


def _main_level(request: TopologyRequest, levels: Sequence[str]) -> str | None:
    """Return the label of the level where the search starts, known to the topology or not; None: the request names
    none.
    """
    if request.required is not None:
        return request.required
    if request.preferred is not None:
        return levels[-1] if request.preferred == AUTO and AUTO not in levels else request.preferred
    if request.slices:
        return levels[0]
    return levels[-1] if request.unconstrained or request.implied else None


def _inner_sizes(layers: Sequence[SliceLayer], index: Mapping[str, int]) -> tuple[int, ...] | Misfit:
    """Return, per level, the size of the layer that applies (levels between two layers belong to the lower one)."""
    sizes = [0] * len(index)
    for above, layer in pairwise(layers):
        if layer.level not in index:
            return Misfit(code=MisfitCode.INNER_LEVEL_NOT_FOUND, pod_set="", level=layer.level)
        level, level_above = index[layer.level], index[above.level]
        if level <= level_above:
            return Misfit(
                code=MisfitCode.INNER_LEVEL_NOT_LOWER,
                pod_set="",
                level=layer.level,
                other_level=above.level,
            )
        if layer.size <= 0 or above.size % layer.size:
            return Misfit(
                code=MisfitCode.INNER_SIZE_NOT_DIVISOR,
                pod_set="",
                level=layer.level,
                size=layer.size,
                other_size=above.size,
            )
        sizes[level_above + 1 : level + 1] = [layer.size] * (level - level_above)
    return tuple(sizes)
