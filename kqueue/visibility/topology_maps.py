"""One Topology leaf by leaf, in columns: the answer from which a heat map is drawn.

    GET topologymaps/{topology}[?flavor=F][&resource=R]

A list of domains with names and amounts, as `topologysummaries` has it, would be megabytes for 20,000 hosts.  Here each
leaf (a host, or a domain of the lowest level) is one entry in some columns of equal length, and a name is written once.
The amounts are those of one resource: by default the device that most leaves have, else cpu.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kqueue.clock import Clock, utc_text
from kqueue.core.topology import Tree
from kqueue.core.topology.tree import Ints
from kqueue.errors import NotFoundError
from kqueue.state.cache import Cache
from kqueue.state.holding import Holding
from kqueue.visibility.catalog import OUR_API_VERSION
from kqueue.visibility.leaf_amounts import LeafAmounts, foreign_on_leaves, is_device, pods_by_leaf
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only
from kqueue.visibility.question import JSON, AuthorizedQuestion

KIND = "TopologyMap"
_AT_ONCE = 100
_NOBODY = -1
_PLAIN = "cpu"


class TopologyMaps:
    """Answers with one Topology in columns."""

    def __init__(self, *, cache: Cache, clock: Clock) -> None:
        self._cache, self._clock = cache, clock

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return the map of one Topology.

        Raises:
            NotFoundError: there is no such Topology, or it has no such flavor.
            ConfigError: a parameter is not known.
        """
        only(asked.params, "flavor", "resource")
        known = self._cache.quota.topologies()
        if asked.name not in known:
            raise NotFoundError(f"Topology {asked.name} not found; there are {', '.join(sorted(known)[:10]) or 'none'}")
        flavors = sorted(self._cache.quota.flavors_of_topology(asked.name))
        wanted = asked.params.get("flavor", "")
        if wanted and wanted not in flavors:
            raise NotFoundError(f"no flavor {wanted} uses Topology {asked.name}; there are {', '.join(flavors)}")
        pace = RequestPace(self._clock)
        resource = asked.params.get("resource", "")
        shown = [await self._flavor(name, resource, asked, pace) for name in flavors if wanted in ("", name)]
        return {
            "kind": KIND,
            "apiVersion": OUR_API_VERSION,
            "metadata": {"name": asked.name},
            "generatedAt": utc_text(self._clock.now()),
            "levels": list(known[asked.name]),
            "flavors": [flavor for flavor in shown if flavor is not None],
        }

    async def _flavor(self, name: str, wanted: str, asked: AuthorizedQuestion, pace: RequestPace) -> JSON | None:
        """Return the columns of one flavor; None: it was deleted meanwhile."""
        live = self._cache.ledger.capacity(name)
        if live is None:
            return None
        capacity = live.fork()
        tree = capacity.tree
        foreign, _ = await foreign_on_leaves(self._cache, tree, pace)
        amounts = LeafAmounts.of(capacity, foreign)
        await pace.step()
        resource = wanted or _main_resource(amounts)
        nothing = np.zeros(len(tree), dtype=np.int64)
        total, others, held, free = amounts.columns.get(resource, (nothing,) * 4)
        holder, unbound, holders = await self._holders(name, tree, asked, pace)
        return {
            "name": name,
            "resource": resource,
            "resources": sorted(amounts.columns),
            "domains": [_level(tree, level) for level in range(tree.lowest)],
            "leaves": {
                "name": [path[-1] for path in tree.paths],
                "domain": tree.domain_of(tree.lowest - 1).tolist() if tree.lowest else [_NOBODY] * len(tree),
                "nodes": amounts.nodes.tolist(),
                "total": total.tolist(),
                "foreign": others.tolist(),
                "held": held.tolist(),
                "free": free.tolist(),
                "holder": holder,
                "unbound": unbound,
            },
            "holders": holders,
            "leftOut": self._left_out(name),
        }

    async def _holders(
        self, flavor: str, tree: Tree, asked: AuthorizedQuestion, pace: RequestPace
    ) -> tuple[list[int], list[int], list[JSON]]:
        """Return per leaf the index of the workload with most pods there (-1: none), and 1 where none of its pods is
        bound there yet; then these workloads: with names where the user may read them.
        """
        most, of_leaf = [0] * len(tree), [_NOBODY] * len(tree)
        found: list[Holding] = []
        for number, holding in enumerate(self._cache.held.holdings()):
            if number % _AT_ONCE == 0:
                await pace.step()
            counts: dict[int, int] = {}
            for leaf, pods in pods_by_leaf(holding, flavor, tree):
                counts[leaf] = counts.get(leaf, 0) + pods
            for leaf, pods in counts.items():
                if pods > most[leaf]:
                    most[leaf], of_leaf[leaf] = pods, len(found)
            found.append(holding)
        await pace.step()
        unbound = [
            int(index != _NOBODY and self._is_unbound(found[index], tree, leaf)) for leaf, index in enumerate(of_leaf)
        ]
        await pace.step()
        used = sorted({index for index in of_leaf if index != _NOBODY})
        numbers = {index: number for number, index in enumerate(used)}
        everywhere = await asked.reads("")
        readable: dict[str, bool] = {}
        for index in used:
            namespace = found[index].key.partition("/")[0]
            if namespace not in readable:
                readable[namespace] = everywhere or await asked.reads(namespace)
        holders = [_holder(found[index], readable) for index in used]
        return [numbers.get(index, _NOBODY) for index in of_leaf], unbound, holders

    def _is_unbound(self, holding: Holding, tree: Tree, leaf: int) -> bool:
        """Whether no pod of the workload is bound to a node of the leaf."""
        name = holding.pods_of or holding.key
        return not any(name in self._cache.ledger.workloads_on(node.name) for node in tree.leaves[leaf].nodes)

    def _left_out(self, flavor: str) -> list[JSON]:
        """Return the nodes that get no pods, with the cause and the domains that their labels name."""
        ledger = self._cache.ledger
        levels = tree.levels[:-1] if (tree := ledger.tree(flavor)) is not None else ()
        shown: list[JSON] = []
        for name, why in sorted(ledger.left_out(flavor).items()):
            node = ledger.nodes.get(name)
            labels = node.labels if node is not None else {}
            shown.append({"name": name, "reason": why.reason, "path": [labels.get(level, "") for level in levels]})
        return shown


def _main_resource(amounts: LeafAmounts) -> str:
    """Return the device that most leaves have, by name where equal; `cpu` without devices."""
    devices = [resource for resource in amounts.columns if is_device(resource)]
    return min(devices, key=lambda resource: (-_leaves_with(amounts, resource), resource), default=_PLAIN)


def _leaves_with(amounts: LeafAmounts, resource: str) -> int:
    return int(np.count_nonzero(amounts.columns[resource][0]))


def _level(tree: Tree, level: int) -> JSON:
    """Return the domains of a level above the leaves: names, and the index of the domain around each."""
    firsts: Ints = tree.first_leaf[level]
    inside: Sequence[int] = tree.domain_of(level - 1)[firsts].tolist() if level else []
    return {
        "level": tree.levels[level],
        "name": [tree.paths[leaf][level] for leaf in firsts.tolist()],
        "inside": inside,
    }


def _holder(holding: Holding, readable: Mapping[str, bool]) -> JSON:
    if not readable[holding.key.partition("/")[0]]:
        return {}
    return {"workload": holding.key, "clusterQueue": holding.queue}
