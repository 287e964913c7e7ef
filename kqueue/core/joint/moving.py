"""Other places for a running gang: on room that is free now, and at no level worse than its present ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from kqueue.core.charging import charge_domains, release_domains, same_hosts
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Profile
from kqueue.core.topology.result import DomainUsage, Path, Placement, usage_of
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value
from kqueue.core.workload import PodSetAssignment, TopologyView

Topologies = Mapping[str, TopologyView]


@value(kw_only=True)
class RunningGang:
    """A workload that runs.

    Args:
        key: namespace/name.
        requests: the pod sets that have domains, by topology flavor.
        places: their domains; full paths.
        usage: the usage of their pods, by topology flavor.
        lost: seconds that each pod loses by a move.
    elsewhere: its pods without domains, which stop with the others.
        checkpoint_age: seconds since its last checkpoint; None: none is known.
        immovable: the reasons for which it may not be moved; empty: it may be.
    """

    key: str
    queue: str
    requests: Mapping[str, tuple[PodSetRequest, ...]]
    places: Hint
    usage: Mapping[str, tuple[DomainUsage, ...]]
    profile: Profile = DEFAULT_PROFILE
    lost: int = 0
    elsewhere: int = 0
    checkpoint_age: int | None = None
    immovable: tuple[str, ...] = ()
    uid: str = ""
    assigned: tuple[PodSetAssignment, ...] = ()
    """Its present admission."""

    @property
    def pods(self) -> int:
        """The number of all its pods."""
        return self.elsewhere + sum(usage.count for of_flavor in self.usage.values() for usage in of_flavor)

    @property
    def cost(self) -> int:
        """The pod-seconds that are lost by a move."""
        return self.pods * self.lost


@value(kw_only=True)
class MoveTarget:
    """Free domains for all pods of a workload."""

    places: Hint
    usage: Mapping[str, tuple[DomainUsage, ...]]


@contextmanager
def trial(topologies: Topologies) -> Iterator[None]:
    """Undo all changes of capacity that the block makes."""
    with ExitStack() as stack:
        for view in topologies.values():
            stack.enter_context(view.capacity.trial())
        yield


def charge(usage: Mapping[str, Iterable[DomainUsage]], topologies: Topologies) -> None:
    """Charge the pods of a workload."""
    for flavor, taken in usage.items():
        charge_domains(flavor, taken, topologies)


def release(usage: Mapping[str, Iterable[DomainUsage]], topologies: Topologies) -> None:
    """Release the pods of a workload."""
    for flavor, taken in usage.items():
        release_domains(flavor, taken, topologies)


def close(flavor: str, leaves: slice, topologies: Topologies) -> None:
    """Take all free room of these leaves of a flavor, in all flavors that have the same hosts."""
    tree = topologies[flavor].tree
    written = [tree.written(leaf) for leaf in range(leaves.start, leaves.stop)]
    for name in same_hosts(flavor, topologies):
        capacity = topologies[name].capacity
        nothing = dict.fromkeys(capacity.resources, 0)
        for values in written:
            leaf = capacity.tree.leaf_of(values)
            if leaf is not None:
                capacity.put(leaf, nothing)


def placed(
    requests: Mapping[str, Sequence[PodSetRequest]], topologies: Topologies, profile: Profile
) -> MoveTarget | None:
    """Return domains for these pod sets; None: there is no room."""
    if not all(flavor in topologies for flavor in requests):
        return None
    capacities = {flavor: topologies[flavor].capacity for flavor in requests}
    found = place_workload(capacities, requests, profile=profile, explain=False)
    places: dict[str, Sequence[tuple[Path, int]]] = {}
    usage: dict[str, tuple[DomainUsage, ...]] = {}
    for flavor, answer in found.items():
        if not isinstance(answer, Placement):
            return None
        usage[flavor] = usage_of(answer)
        for pod_set in answer.pod_sets:
            counts = [domain.count for domain in pod_set.assignment.domains]
            places[pod_set.name] = tuple(zip(pod_set.paths, counts, strict=True))
    return MoveTarget(places=places, usage=usage)


def relocated(gang: RunningGang, topologies: Topologies) -> MoveTarget | None:
    """Return free domains for all pods of a gang, at no level more than it has now; None: there are none.

    Pods that are all in one domain of a level stay together in one domain of that level.
    """
    requests = {
        flavor: _as_close(pod_sets, gang.places, topologies[flavor].tree) if flavor in topologies else pod_sets
        for flavor, pod_sets in gang.requests.items()
    }
    target = placed(requests, topologies, gang.profile)
    if target is None or any(_is_worse(gang.places, target.places, names) for names in _together(gang.requests)):
        return None
    return target


def _together(requests: Mapping[str, Sequence[PodSetRequest]]) -> list[tuple[str, ...]]:
    """Return the names of pod sets whose domains are counted together: each alone, and all of a flavor."""
    names = [tuple([pod_set.name for pod_set in pod_sets]) for pod_sets in requests.values()]
    return [*names, *[(name,) for some in names if len(some) > 1 for name in some]]


def _is_worse(before: Hint, after: Hint, names: Sequence[str]) -> bool:
    """Whether these pod sets use more domains of any level than before."""
    return any(now > then for now, then in zip(_domains(after, names), _domains(before, names), strict=False))


def _domains(places: Hint, names: Sequence[str]) -> list[int]:
    """Return the number of domains that pod sets use, by level."""
    paths = {path for name in names for path, _ in places.get(name, ())}
    return [len({path[: depth + 1] for path in paths}) for depth in range(max(map(len, paths), default=0))]


def _as_close(pod_sets: Sequence[PodSetRequest], places: Hint, tree: Tree) -> tuple[PodSetRequest, ...]:
    """Return the pod sets, each of which needs one domain of the narrowest level at which it has one domain now."""
    units: dict[str, list[str]] = defaultdict(list)
    for pod_set in pod_sets:
        units[_unit(pod_set)].append(pod_set.name)
    return tuple([_closer(pod_set, common_path(places, units[_unit(pod_set)]), tree) for pod_set in pod_sets])


def _unit(pod_set: PodSetRequest) -> str:
    """Return a name of the pod sets that must keep equal requests of levels."""
    return "together" if pod_set.together else f"group/{pod_set.group}" if pod_set.group else f"set/{pod_set.name}"


def common_path(places: Hint, names: Iterable[str]) -> Path:
    """Return the narrowest domain that has all pods of these pod sets; empty: there is none."""
    paths = [path for name in names for path, _ in places.get(name, ())]
    if not paths:
        return ()
    first, last = min(paths), max(paths)
    same = next(
        (depth for depth, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[:same]


def _closer(pod_set: PodSetRequest, common: Path, tree: Tree) -> PodSetRequest:
    depth, request = len(common) - 1, pod_set.topology
    if request.slices and request.slices[0].level in tree.levels:  # whole slices are above their own level
        depth = min(depth, tree.levels.index(request.slices[0].level))
    if request.required in tree.levels:
        depth = max(depth, tree.levels.index(request.required))
    if depth < 0:
        return pod_set
    closer = replace(request, required=tree.levels[depth], preferred=None, unconstrained=None, implied=False)
    return replace(pod_set, topology=closer)
