"""Places of pods beyond a gang's quorum: they are tried near the pods that are counted by the quorum."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kqueue.api import gang_names
from kqueue.api.wire import kueue as wire
from kqueue.core.topology import GangDomains, TopologyAssignment, TopologyRequest, Tree
from kqueue.core.topology.request import AUTO
from kqueue.model.holdings import assignment
from kqueue.model.pod_sets import is_together, topology_request

Trees = Callable[[str], Tree | None]
"""Returns the domains of a topology flavor; None: the flavor has none."""


def extra_of(obj: wire.Workload) -> str:
    """Return namespace/name of the Workload that counts the quorum beyond which the pod is; empty: it is no extra's."""
    name = obj.metadata.annotations.get(gang_names.EXTRA_OF_ANNOTATION)
    return f"{obj.metadata.namespace}/{name}" if name and name != obj.metadata.name else ""


def base_key(obj: wire.Workload) -> str | None:
    """Return namespace/name of the Workload that counts the quorum of the pod's gang; None: the Workload is no
    extra's.
    """
    return extra_of(obj) or None


def gang_level(base: wire.Workload) -> TopologyRequest | None:
    """Return the level that the group object of a gang names for all its pods; None: it names none."""
    if not is_together(base):
        return None
    for pod_set in base.spec.pod_sets:
        request = topology_request(pod_set.topology_request)
        if request.required or request.preferred:
            return TopologyRequest(required=request.required, preferred=request.preferred)
    return None


def near_base(topology: TopologyRequest, base: wire.Workload, trees: Trees) -> GangDomains | None:
    """Return the domains of the requested level that have pods of the base; None: any domain will do.

    A required level excludes all other domains, even while the base has none: it is evicted, or its nodes are gone.
    Ended pods count, because extras may start after their base has finished.
    """
    label = topology.required or topology.preferred
    if label is None:
        return None
    found: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for tree, places in _places(base, trees):
        level = _level(tree, label)
        if level is not None:
            known = found.setdefault(tree.levels[: level + 1], set())
            known.update(path[: level + 1] for path in _paths(tree, places))
    levels, paths = next(iter(found.items()), ((label,), set[tuple[str, ...]]()))
    required = topology.required is not None
    return GangDomains(levels=levels, paths=tuple(sorted(paths)), required=required) if paths or required else None


def _places(base: wire.Workload, trees: Trees) -> Iterator[tuple[Tree, TopologyAssignment]]:
    stored = base.status.admission
    for held in stored.pod_set_assignments if stored is not None else ():
        tree = next((tree for flavor in sorted(held.flavors.values()) if (tree := trees(flavor)) is not None), None)
        if tree is not None and held.topology_assignment is not None:
            yield tree, assignment(held.topology_assignment)


def _level(tree: Tree, label: str) -> int | None:
    if label in tree.levels:
        return tree.levels.index(label)
    return tree.lowest if label == AUTO else None


def _paths(tree: Tree, places: TopologyAssignment) -> Iterator[tuple[str, ...]]:
    """Yield the full paths of the domains, as far as the tree still has them."""
    if places.levels == tree.written_levels:
        for domain in places.domains:
            leaf = tree.leaf_of(domain.values)
            if leaf is not None:
                yield tree.paths[leaf]
            elif not tree.is_hostname:
                yield domain.values
