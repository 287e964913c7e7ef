"""Workloads with pods in one domain: named where the user may read them, else counted."""

from __future__ import annotations

from kqueue.core.topology import Tree
from kqueue.core.topology.result import Path
from kqueue.state.cache import Cache
from kqueue.state.holding import Holding
from kqueue.visibility.leaf_amounts import pods_by_leaf
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.question import JSON, AuthorizedQuestion

MOST = 50
"""Limit of named workloads, and of namespaces whose rights are requested."""
_AT_ONCE = 100


async def holders(
    cache: Cache, flavor: str, tree: Tree, domain: Path, asked: AuthorizedQuestion, pace: RequestPace
) -> JSON:
    """Return workloads, those with most pods first, and `others`: the number of workloads that are not named, because
    the user may not read their namespace or the list is full.
    """
    found: list[tuple[int, Holding]] = []
    for number, holding in enumerate(cache.held.holdings()):
        if number % _AT_ONCE == 0:
            await pace.step()
        pods = sum(
            count for leaf, count in pods_by_leaf(holding, flavor, tree) if tree.paths[leaf][: len(domain)] == domain
        )
        if pods:
            found.append((pods, holding))
    found.sort(key=lambda one: (-one[0], one[1].key))
    everywhere = await asked.reads("")
    named: list[JSON] = []
    for pods, holding in found[:MOST]:
        namespace = holding.key.partition("/")[0]
        if everywhere or await asked.reads(namespace):
            named.append({"workload": holding.key, "clusterQueue": holding.queue, "pods": pods})
    rest = sum(pods for pods, _ in found) - sum(one["pods"] for one in named)
    return {"named": named, "others": {"workloads": len(found) - len(named), "pods": rest}}
