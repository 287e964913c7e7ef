"""New domains for pods whose hosts failed, while all other pods of the workload stay where they are.

The failed hosts leave the assignment, their pods get other domains, and both parts are merged in path order. The
remaining pods decide the possible domains: a slice that lost pods gets new ones in the domain of its other pods. A
required level keeps the domain of the pod set, or, if the pod set has no pods left, the domain of its group.

If one host failed, its pods stay together, inside the domain of the group that they belong to. If several failed, each
incomplete group gets, innermost layer first, exactly the pods that it lacks; remaining whole slices may go anywhere
that the request allows. A gang with ended pods may have one incomplete slice, and has at most one afterwards. Source:
KEP-2724, extended to several hosts at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kqueue.core.assignment import Domain, TopologyAssignment
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.node import HOSTNAME, NodeFacts
from kqueue.core.topology.placement import place
from kqueue.core.topology.request import (
    DEFAULT_PROFILE,
    GangDomains,
    PodSetRequest,
    Profile,
    Resolved,
    SliceLayer,
    is_slice_only,
    resolve,
)
from kqueue.core.topology.result import Misfit, MisfitCode, Path, Placement, PodSetPlacement, usage_of
from kqueue.core.topology.tree import Tree


@dataclass(frozen=True, slots=True)
class Replacement:
    """A pod set after a replacement: `whole` is the new assignment, `added` the newly chosen part of it."""

    whole: PodSetPlacement
    added: PodSetPlacement


@dataclass(frozen=True, slots=True)
class _Part:
    """Pods to be searched together: `layers` apply to them, `within` is the only domain that they may use (None: that
    of the request).

    `ragged`: their last slice need not be whole.
    """

    count: int
    layers: tuple[SliceLayer, ...]
    within: Path | None
    ragged: bool = False


def failed_hosts(unhealthy: Iterable[str], nodes: Iterable[NodeFacts]) -> frozenset[str]:
    """Return the host names of these entries of `unhealthyNodes`: the entry itself, and the host name of the node with
    this name.
    """
    entries = frozenset(unhealthy)
    return entries | {node.labels[HOSTNAME] for node in nodes if node.name in entries and HOSTNAME in node.labels}


def uses_host(assignment: TopologyAssignment, failed: Collection[str]) -> bool:
    """Whether any pod of the assignment is on one of these hosts."""
    return assignment.levels[-1] == HOSTNAME and any(domain.values[-1] in failed for domain in assignment.domains)


def repair(
    capacity: Capacity,
    pod_sets: Sequence[tuple[PodSetRequest, TopologyAssignment]],
    failed: Collection[str],
    *,
    profile: Profile = DEFAULT_PROFILE,
    explain: bool = True,
) -> tuple[Replacement, ...] | Misfit:
    """Replace failed hosts in all pod sets of one workload in one flavor, each by itself, in this order.

    A pod set without remaining pods joins the remaining pods of its group, or the places found for the group already.

    Args:
        capacity: of a hostname topology, with the workload's present pods charged; unchanged afterwards.
        pod_sets: requests and assignments; pod sets without a pod on a failed host are skipped.
        failed: host names.
        profile, explain: as for `place`.

    Returns:
        The pod sets that changed; or the Misfit of the first that has no room, with earlier pod sets in `placed`.
    """
    done: list[Replacement] = []
    groups = _hosts_of_groups(capacity.tree, pod_sets, failed)
    there = {pod_set.name: _left(capacity.tree, assignment, failed) for pod_set, assignment in pod_sets}
    with capacity.trial():
        for pod_set, assignment in pod_sets:
            if not uses_host(assignment, failed):
                continue
            beside = groups.get(pod_set.group) if pod_set.group is not None else None
            found = find_replacement(
                capacity, pod_set, assignment, failed, profile=profile, explain=explain, beside=beside, there=there
            )
            if isinstance(found, Misfit):
                return replace(found, placed=tuple(replacement.whole for replacement in done))
            done.append(found)
            capacity.charge(usage_of(Placement((found.added,))))
            groups.setdefault(pod_set.group, found.whole.paths[0])
            there[pod_set.name] |= set(found.added.paths)
    return tuple(done)


def _left(tree: Tree, assignment: TopologyAssignment, failed: Collection[str]) -> set[Path]:
    """Return the full paths of the hosts that keep their pods."""
    leaves = (tree.leaf_of(domain.values) for domain in assignment.domains if domain.values[-1] not in failed)
    return {tree.paths[leaf] for leaf in leaves if leaf is not None}


def _hosts_of_groups(
    tree: Tree, pod_sets: Iterable[tuple[PodSetRequest, TopologyAssignment]], failed: Collection[str]
) -> dict[str | None, Path]:
    """Return the full path of the first host that still has pods of a group; without groups that lost all pods."""
    found: dict[str | None, Path] = {}
    for pod_set, assignment in pod_sets:
        for path in _left(tree, assignment, failed):
            found[pod_set.group] = min(found.get(pod_set.group, path), path)
    return found


def find_replacement(
    capacity: Capacity,
    pod_set: PodSetRequest,
    assignment: TopologyAssignment,
    failed: Collection[str],
    *,
    profile: Profile = DEFAULT_PROFILE,
    explain: bool = True,
    beside: Path | None = None,
    there: Mapping[str, Collection[Path]] | None = None,
) -> Replacement | Misfit:
    """Replace the failed hosts of one pod set, some of which must be in its assignment.

    The pods on other hosts keep their places and their order. `pod_set.count` is ignored: the search is for as many
    pods as the failed hosts had. `beside` is a host of the group: if the pod set has no pods left, a required level
    means the domain of that host. `there` are full paths of the hosts that keep pods of the workload, by pod set; None:
    the hosts of this pod set.
    """
    there = {pod_set.name: _left(capacity.tree, assignment, failed)} if there is None else there
    found = _find(capacity, pod_set, assignment, failed, profile, there, explain=explain, beside=beside)
    if isinstance(found, Misfit):
        return replace(found, pod_set=pod_set.name, group=pod_set.group, topology=capacity.tree.topology)
    return found


def _find(
    capacity: Capacity,
    pod_set: PodSetRequest,
    assignment: TopologyAssignment,
    failed: Collection[str],
    profile: Profile,
    there: Mapping[str, Collection[Path]],
    *,
    explain: bool,
    beside: Path | None,
) -> Replacement | Misfit:
    tree = capacity.tree
    lost = [domain for domain in assignment.domains if domain.values[-1] in failed]
    missing = sum(domain.count for domain in lost)
    kept: Counter[Path] = Counter()
    for domain in assignment.domains:
        if domain.values[-1] in failed:
            continue
        leaf = tree.leaf_of(domain.values)
        if leaf is None:
            return _stale(domain)
        kept[tree.paths[leaf]] += domain.count
    resolved = _resolve(pod_set, assignment.count, tree, profile)
    if isinstance(resolved, Misfit):
        return resolved
    layers = pod_set.topology.slices
    one = len({domain.values[-1] for domain in lost}) == 1
    within = _required_domain(resolved, kept, beside)
    ragged = bool(layers) and pod_set.ended > 0 and assignment.count % layers[0].size > 0
    split = _of_ragged if ragged else _of_one_host if one else _of_several
    parts = split(resolved, layers, kept, missing, within)
    if parts is None:
        return _no_replacement(lost, "no domain holds the rest of the slices that are incomplete")
    added = _search(capacity, pod_set, parts, profile, there, explain=explain)
    finer = _dividing(layers, missing) if not ragged else ()
    if one and len(finer) > 1 and not isinstance(added, Misfit) and not _whole_slices(resolved, kept + added):
        added = _search(capacity, pod_set, [replace(parts[0], layers=finer)], profile, there, explain=explain)
    if isinstance(added, Misfit):
        return added
    if added.total() != missing:
        return _no_replacement(lost, f"{added.total()} of {missing} pods found a place")
    return Replacement(whole=_placement(tree, pod_set, kept + added), added=_placement(tree, pod_set, added))


def _stale(domain: Domain) -> Misfit:
    host = domain.values[-1]
    return Misfit(
        code=MisfitCode.STALE_ASSIGNMENT,
        pod_set="",
        hosts=(host,),
        detail=f"host {host}, which holds other pods of the workload, is not usable either",
    )


def _no_replacement(lost: Sequence[Domain], why: str) -> Misfit:
    hosts = tuple(domain.values[-1] for domain in lost)
    return Misfit(
        code=MisfitCode.NO_REPLACEMENT,
        pod_set="",
        hosts=hosts,
        detail=f"no replacement for the pods on {', '.join(hosts)}: {why}",
    )


def _resolve(pod_set: PodSetRequest, assigned: int, tree: Tree, profile: Profile) -> Resolved | Misfit:
    """Resolve the request with its full count: the missing part may be smaller than a slice."""
    layers = pod_set.topology.slices
    count = max(assigned, layers[0].size) if layers else assigned
    return resolve(replace(pod_set, count=count), tree.levels, profile)


# --- the parts --------------------------------------------------------------------------------------------------------


def _of_one_host(
    resolved: Resolved, layers: Sequence[SliceLayer], kept: Mapping[Path, int], missing: int, within: Path | None
) -> list[_Part] | None:
    """Return one part with all pods of the host, in the domain of the innermost group that lost pods, if any did."""
    broken = [(level, size) for level, size in resolved.layers if missing % size]
    if not broken:
        return [_Part(missing, tuple(layers), within)]
    level, size = broken[-1]
    incomplete = [path for path, held in _per_domain(kept, level).items() if (held + missing) % size == 0]
    if not incomplete:
        return None
    return [_Part(missing, _dividing(layers, missing)[-1:], min(incomplete))]


def _of_several(
    resolved: Resolved, layers: Sequence[SliceLayer], kept: Mapping[Path, int], missing: int, within: Path | None
) -> list[_Part] | None:
    """Give each incomplete group the pods that it lacks, innermost layer first; then place whole slices.

    Once a layer is complete, layers above it lack a multiple of its size.
    """
    parts: list[_Part] = []
    held = Counter(kept)
    for number in reversed(range(len(layers))):
        level, size = resolved.layers[number]
        for path, count in sorted(_per_domain(held, level).items()):
            lack = -count % size
            if lack:
                parts.append(_Part(lack, tuple(layers[number + 1 :]), path))
                held[path] += lack
                missing -= lack
    if missing < 0 or (layers and missing % layers[0].size):
        return None
    if missing:
        parts.append(_Part(missing, tuple(layers), within))
    return parts


def _of_ragged(
    resolved: Resolved, layers: Sequence[SliceLayer], kept: Mapping[Path, int], missing: int, within: Path | None
) -> list[_Part]:
    """Return parts as for several hosts, if one unknown slice is smaller than the others: the group that lacks most
    pods comes last, and gets the remaining pods.

    Afterwards at most one slice is smaller, because the only pods still missing are the pods that this slice never had.
    A group is filled with all groups within it before the next one; otherwise the smaller slice would get pods of
    another one.
    """
    parts = list(_filled(resolved, layers, kept, missing))
    rest = missing - sum(part.count for part in parts)
    return [*parts, _Part(rest, tuple(layers), within, ragged=True)] if rest else parts


def _filled(
    resolved: Resolved,
    layers: Sequence[SliceLayer],
    kept: Mapping[Path, int],
    missing: int,
    number: int = 0,
    inside: Path = (),
) -> Iterator[_Part]:
    """Return the missing pods for the groups of a layer inside a domain; inner groups come first."""
    for lack, path in _lacks(resolved, kept, number, inside):
        gets = min(lack, missing)
        missing -= gets
        if gets and number + 1 < len(layers):
            for part in _filled(resolved, layers, kept, gets, number + 1, path):
                gets -= part.count
                yield part
        if gets:
            yield _Part(gets, tuple(layers[number + 1 :]), path, ragged=True)


def _lacks(resolved: Resolved, kept: Mapping[Path, int], number: int, inside: Path) -> list[tuple[int, Path]]:
    """Return the pods that each incomplete group of a layer inside a domain lacks, including all groups within it; the
    group that lacks least comes first.
    """
    if number == len(resolved.layers):
        return []
    level, size = resolved.layers[number]
    lacks: list[tuple[int, Path]] = []
    for path, count in _per_domain(kept, level).items():
        if path[: len(inside)] == inside:
            inner = sum(lack for lack, _ in _lacks(resolved, kept, number + 1, path))
            lacks.append((inner + -(count + inner) % size, path))
    return sorted((lack, path) for lack, path in lacks if lack)


def _dividing(layers: Iterable[SliceLayer], pods: int) -> tuple[SliceLayer, ...]:
    """Return the layers that this many pods can fill with whole groups."""
    return tuple(layer for layer in layers if pods % layer.size == 0)


def _required_domain(resolved: Resolved, kept: Mapping[Path, int], beside: Path | None) -> Path | None:
    """Return the one domain that must have the pod set, from the places of the pod set or of its group; None: no level
    is required, or no pod is left.
    """
    host = min(kept, default=beside)
    bound = resolved.binding
    return host[: bound + 1] if bound is not None and host is not None else None


def _per_domain(held: Mapping[Path, int], level: int) -> Counter[Path]:
    """Return the pods per domain of `level`, without pods assigned to wider domains."""
    result: Counter[Path] = Counter()
    for path, count in held.items():
        if len(path) > level:
            result[path[: level + 1]] += count
    return result


def _whole_slices(resolved: Resolved, held: Mapping[Path, int]) -> bool:
    """Whether every domain of every slice layer has whole groups."""
    return all(count % size == 0 for level, size in resolved.layers for count in _per_domain(held, level).values())


# --- search and merge ------------------------------------------------------------------------------------------------


def _search(
    capacity: Capacity,
    pod_set: PodSetRequest,
    parts: Sequence[_Part],
    profile: Profile,
    there: Mapping[str, Collection[Path]],
    *,
    explain: bool,
) -> Counter[Path] | Misfit:
    """Return pods per leaf path for all parts; each part sees the usage of earlier ones."""
    added: Counter[Path] = Counter()
    with capacity.trial():
        for i, part in enumerate(parts):
            request = _request(pod_set, part, capacity.tree)
            beside = {**there, pod_set.name: {*there.get(pod_set.name, ()), *added}}
            found = place(capacity, [request], profile=profile, explain=explain, beside=beside)
            if isinstance(found, Misfit):
                return found
            placed = found[pod_set.name]
            for path, domain in zip(placed.paths, placed.assignment.domains, strict=True):
                added[path] += domain.count
            if i + 1 < len(parts):
                capacity.charge(usage_of(found))
    return added


def _request(pod_set: PodSetRequest, part: _Part, tree: Tree) -> PodSetRequest:
    topology = replace(pod_set.topology, slices=part.layers)
    if is_slice_only(pod_set.topology) and not part.layers:
        topology = replace(topology, unconstrained=True)
    ended, within = pod_set.ended if part.ragged else 0, pod_set.within
    if part.within is not None:
        within = GangDomains(levels=tree.levels[: len(part.within)], paths=(part.within,))
    return replace(pod_set, count=part.count, group=None, topology=topology, ended=ended, within=within)


def _placement(tree: Tree, pod_set: PodSetRequest, pods: Mapping[Path, int]) -> PodSetPlacement:
    paths = tuple(sorted(pods))
    domains = tuple(Domain((path[-1],), pods[path]) for path in paths)
    assignment = TopologyAssignment(tree.written_levels, domains)
    return PodSetPlacement(name=pod_set.name, assignment=assignment, paths=paths, requests=pod_set.requests)
