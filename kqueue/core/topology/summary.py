"""The domains of an assignment in short: above the hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Tree


def domains_above_hosts(tree: Tree, where: TopologyAssignment) -> tuple[list[tuple[Path, int]], Mapping[str, int]]:
    """Return domains above the lowest level with their pods, and pods by lost host.

    With one level only, the domains are hosts.  A lost host is a lowest domain that is no longer in the tree.
    """
    found, lost = Counter[Path](), Counter[str]()
    depth = max(1, tree.lowest)
    for domain in where.domains:
        leaf = tree.leaf_of(where.named(domain.values))
        if leaf is None:
            lost[domain.values[-1]] += domain.count
        else:
            found[tree.paths[leaf][:depth]] += domain.count
    return sorted(found.items()), lost
