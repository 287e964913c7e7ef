"""Summaries of topologies: per flavor the tree of domains with free amounts, and the excluded nodes.

    GET topologysummaries[?flavor=F][&level=L][&domain=A,B][&limit=N]
    GET topologysummaries/{topology}[?...]

A list goes to the widest level, a single Topology to the lowest one above the hosts, unless `level` says otherwise: by
its label, the last word of that, or its number from 1.  `domain` is the path of one domain: the answer has only the
domains below it, and the workloads in it.  Where a level has more domains than `limit`, the answer has a wider level,
and `cut` says so.

Of each domain, per resource: `total` is the allocatable of its nodes, `foreign` the usage of foreign pods, `held` the
usage of workloads, `free` the rest.  In `free`, overcommitted leaves count as 0, so that it is the usable amount.
`idle` nodes have no usage of workloads, and no device in use by a foreign pod; `gangs` are the numbers of gangs of 1,
2, 4 ... idle nodes that fit, each inside one domain of a level, as in the metric `kqueue_gang_slots`.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kqueue.clock import Clock, utc_text
from kqueue.core.quantity import format_quantity
from kqueue.core.topology import Capacity, NodeFacts, Tree
from kqueue.core.topology.result import Path
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Flavor
from kqueue.errors import ConfigError, NotFoundError
from kqueue.state.cache import Cache
from kqueue.state.flavor_room import LeftOut
from kqueue.state.spare import room_of
from kqueue.visibility.catalog import OUR_API_VERSION
from kqueue.visibility.domain_holders import holders
from kqueue.visibility.leaf_amounts import LeafAmounts, foreign_on_leaves
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.params import only, whole
from kqueue.visibility.question import JSON, AuthorizedQuestion

KIND, LIST_KIND = "TopologySummary", "TopologySummaryList"
FEW_DOMAINS, MOST_DOMAINS = 200, 2000
"""Limit of domains per flavor, and of excluded nodes: without `limit`, and the largest `limit`."""
_WORDS = ("notReady", "unschedulable", "missingLevel", "duplicateHostname")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """The part of a flavor that the answer shows."""

    level: str
    """The lowest level; empty: the default level."""
    widest: bool
    """Whether the default level is the widest."""
    domain: Path
    limit: int


class TopologySummaries:
    """Answers questions about Topologies, including topologies that flavors define inline."""

    def __init__(self, *, cache: Cache, clock: Clock) -> None:
        self._cache, self._clock = cache, clock

    async def view(self, asked: AuthorizedQuestion) -> JSON:
        """Return one Topology, or the list of all.

        Raises: NotFoundError: there is no such Topology, flavor or domain. ConfigError: a parameter cannot be read.
        """
        params = asked.params
        only(params, "flavor", "level", "domain", "limit")
        wish = _Wish(
            level=params.get("level", ""),
            widest=not asked.name,
            domain=tuple(filter(None, re.split("[,/]", params.get("domain", "")))),
            limit=whole(params, "limit", default=FEW_DOMAINS, most=MOST_DOMAINS),
        )
        known, flavor = self._cache.quota.topologies(), params.get("flavor", "")
        if asked.name and asked.name not in known:
            raise NotFoundError(f"Topology {asked.name} not found; there are {_listed(known)}")
        names = [asked.name] if asked.name else sorted(known)
        if flavor:
            names = [name for name in names if flavor in self._cache.quota.flavors_of_topology(name)]
        if flavor and not names:
            raise NotFoundError(f"no flavor {flavor} uses {'Topology ' + asked.name if asked.name else 'a Topology'}")
        pace = RequestPace(self._clock)
        items = [await self._topology(name, known[name], flavor, wish, asked, pace) for name in names]
        if asked.name:
            return items[0]
        return {
            "kind": LIST_KIND,
            "metadata": {},
            "generatedAt": items[0]["generatedAt"] if items else "",
            "items": items,
        }

    async def _topology(
        self, name: str, levels: Sequence[str], flavor: str, wish: _Wish, asked: AuthorizedQuestion, pace: RequestPace
    ) -> JSON:
        flavors = sorted(f for f in self._cache.quota.flavors_of_topology(name) if flavor in ("", f))
        return {
            "kind": KIND,
            "apiVersion": OUR_API_VERSION,
            "metadata": {"name": name},
            "generatedAt": utc_text(self._clock.now()),
            "levels": list(levels),
            "flavors": [told async for told in self._flavors(flavors, wish, asked, pace)],
        }

    async def _flavors(
        self, names: Sequence[str], wish: _Wish, asked: AuthorizedQuestion, pace: RequestPace
    ) -> AsyncIterator[JSON]:
        for name in names:
            await pace.step()
            facts, live = self._cache.quota.flavor(name), self._cache.ledger.capacity(name)
            if facts is None or live is None:
                continue  # deleted meanwhile
            capacity = live.fork()
            meant = replace(wish, domain=_named_domain(capacity.tree, wish.domain))
            told = await self._flavor(facts, capacity, meant, pace)
            if meant.domain:
                told["holders"] = await holders(self._cache, name, capacity.tree, meant.domain, asked, pace)
            yield told

    async def _flavor(self, facts: Flavor, capacity: Capacity, wish: _Wish, pace: RequestPace) -> JSON:
        tree, ledger = capacity.tree, self._cache.ledger
        left_out = ledger.left_out(facts.name)
        lost = Counter(path for name in left_out for path in _above(ledger.nodes.get(name), tree.levels))
        foreign, taken = await foreign_on_leaves(self._cache, tree, pace)
        amounts = LeafAmounts.of(capacity, foreign)
        span = _leaves_below(tree, wish.domain)
        shown, cut = _depth(tree, span, wish)
        domains = [
            entry async for entry in _domains(amounts, tree, span, shown, limit=wish.limit, lost=lost, pace=pace)
        ]
        await pace.step()
        return {
            "name": facts.name,
            "nodeLabels": dict(facts.node_labels),
            "nodes": len(ledger.members(facts.name)),
            "domains": {level: tree.domains(number) for number, level in enumerate(tree.levels)},
            "level": tree.levels[shown],
            **({"cut": cut} if cut else {}),
            "tree": domains,
            "gangs": _gangs(capacity, taken),
            "leftOut": {reason: count for reason, count in _counted(left_out).items() if count},
            "leftOutNodes": list(self._left_out(left_out, tree.levels, wish)),
        }

    def _left_out(self, found: Mapping[str, LeftOut], levels: Sequence[str], wish: _Wish) -> Iterator[JSON]:
        """Yield excluded nodes by cause and name, up to the limit."""
        nodes = self._cache.ledger.nodes
        order = sorted(found, key=lambda name: (_WORDS.index(found[name].reason), name))
        for name in order[: wish.limit]:
            why, node = found[name], nodes.get(name)
            paths = _above(node, levels)
            yield {
                "node": name,
                "reason": why.reason,
                "message": _sentence(why, node),
                "domain": list(paths[-1]) if paths else [],
            }


# --- the part of the tree in the answer ----------------------------------------------------------------------------


def _named_domain(tree: Tree, values: Path) -> Path:
    """Return the path of the domain with these values: a whole path, or the last values of exactly one path.

    Raises:
        NotFoundError: there is no such domain, or more than one.
    """
    if not values or _leaves_below(tree, values):
        return values
    every = {path[:n] for path in tree.paths for n in range(len(values), len(path) + 1)}
    found = sorted(path for path in every if path[-len(values) :] == values)
    if len(found) == 1:
        return found[0]
    wanted = "/".join(values)
    if found:
        raise NotFoundError(f"domain {wanted} is ambiguous: {_listed(['/'.join(path) for path in found])}")
    near = difflib.get_close_matches(values[-1], {path[n] for path in tree.paths for n in range(len(path))}, n=1)
    hint = f"; did you mean {near[0]}?" if near else ": write it as conditions do, as in block-1/rack-7"
    raise NotFoundError(f"no domain {wanted} in this topology{hint}")


def _leaves_below(tree: Tree, domain: Path) -> range:
    """Return the leaves below a domain: all for the empty path, none for an unknown domain."""
    if not domain:
        return range(len(tree))
    first = last = bisect_left(tree.paths, domain)
    while last < len(tree) and tree.paths[last][: len(domain)] == domain:
        last += 1
    return range(first, last)


def _depth(tree: Tree, span: range, wish: _Wish) -> tuple[int, str]:
    """Return the lowest level in the answer, and what the limit has cut off (empty: nothing)."""
    usual = 0 if wish.widest else max(0, tree.lowest - 1)
    usual = min(tree.lowest, max(usual, len(wish.domain)))
    wanted = _level(tree.levels, wish.level) if wish.level else usual
    top = max(0, len(wish.domain) - 1)
    level = max(wanted, top)
    while level > top and sum(len(_range(tree, n, span)) for n in range(top, level + 1)) > wish.limit:
        level -= 1
    size = len(_range(tree, max(wanted, top), span))
    if level < wanted:
        return level, f"{tree.levels[wanted]} has {size} domains here; ask for one domain, or a higher limit"
    if size > wish.limit:
        return level, f"the first {wish.limit} of {size} domains"
    return level, ""


def _level(levels: Sequence[str], text: str) -> int:
    """Return the level that the text names.

    Raises:
        ConfigError: it names no level, or more than one.
    """
    if text.isascii() and text.isdigit() and len(text) < 3 and 1 <= int(text) <= len(levels):
        return int(text) - 1
    found = [n for n, level in enumerate(levels) if text == level]
    found = found or [n for n, level in enumerate(levels) if level.endswith((f"/{text}", f"-{text}", f".{text}"))]
    if len(found) != 1:
        raise ConfigError(f"level={text[:63]!r} is not one of {_listed(levels)}, nor a number from 1 to {len(levels)}")
    return found[0]


def _range(tree: Tree, level: int, span: range) -> range:
    """Return the domains of a level that have leaves in the span."""
    if not span:
        return range(0)
    of = tree.domain_of(level)
    return range(int(of[span.start]), int(of[span.stop - 1]) + 1)


async def _domains(
    amounts: LeafAmounts,
    tree: Tree,
    span: range,
    lowest: int,
    *,
    limit: int,
    lost: Mapping[Path, int],
    pace: RequestPace,
) -> AsyncIterator[JSON]:
    """Yield the domains of all levels down to `lowest`, each before the domains inside it."""
    tables = [_Sums.of(amounts, tree.first_leaf[level]) for level in range(lowest + 1)]
    await pace.step()
    order = sorted(
        (tree.path_of(level, domain), level, domain)
        for level in range(lowest + 1)
        for domain in _range(tree, level, span)
    )
    for path, level, domain in order[:limit]:
        await pace.step()
        yield tables[level].entry(domain, path, lost.get(path, 0))


@dataclass(frozen=True, slots=True)
class _Sums:
    """The sums of one level, per domain."""

    nodes: list[int]
    idle: list[int]
    columns: Mapping[str, tuple[list[int], list[int], list[int], list[int]]]

    @classmethod
    def of(cls, amounts: LeafAmounts, starts: Ints) -> _Sums:
        columns = {
            resource: (_summed(total, starts), _summed(others, starts), _summed(held, starts), _summed(free, starts))
            for resource, (total, others, held, free) in amounts.columns.items()
        }
        return cls(_summed(amounts.nodes, starts), _summed(amounts.idle, starts), columns)

    def entry(self, domain: int, path: Path, lost: int) -> JSON:
        """Return one domain for the answer; resources that it does not have are left out."""
        return {
            "path": list(path),
            "nodes": self.nodes[domain],
            "idleNodes": self.idle[domain],
            "leftOutNodes": lost,
            "resources": {
                resource: {
                    word: format_quantity(values[domain], resource)
                    for word, values in zip(("total", "foreign", "held", "free"), columns, strict=True)
                }
                for resource, columns in self.columns.items()
                if any(values[domain] for values in columns)
            },
        }


def _summed(row: Ints, starts: Ints) -> list[int]:
    """Return the exact sums of the runs that begin at `starts`, even beyond 64 bits."""
    if not len(starts):
        return []
    high, low = np.add.reduceat(row >> 32, starts), np.add.reduceat(row & 0xFFFF_FFFF, starts)
    return [(upper << 32) + lower for upper, lower in zip(high.tolist(), low.tolist(), strict=True)]


def _gangs(capacity: Capacity, taken: Collection[str]) -> list[JSON]:
    """Return per level above hosts the numbers of gangs of idle nodes that fit, each inside one domain."""
    tree, slots = capacity.tree, room_of(capacity, taken, ()).slots
    levels = tree.levels[: tree.lowest] if tree.is_hostname else tree.levels
    return [
        {"level": level, "slots": {str(size): n for (of, size), n in slots.items() if of == level and n}}
        for level in levels
    ]


# --- nodes that are left out -------------------------------------------------------------------------------------


def _above(node: NodeFacts | None, levels: Sequence[str]) -> list[Path]:
    """Return the domains of a node by its labels, widest first, up to the first missing label; without the host."""
    values: list[str] = []
    paths: list[Path] = []
    for level in levels[:-1] if node is not None else ():
        value = node.labels.get(level) if node is not None else None
        if value is None:
            break
        values.append(value)
        paths.append(tuple(values))
    return paths


def _counted(left_out: Mapping[str, LeftOut]) -> dict[str, int]:
    counts = Counter(why.reason for why in left_out.values())
    return {reason: counts[reason] for reason in _WORDS}


def _sentence(why: LeftOut, node: NodeFacts | None) -> str:
    match why.reason:
        case "notReady":
            since = node.not_ready_since if node is not None else None
            return "its condition Ready is not True" + (f" since {utc_text(since)}" if since is not None else "")
        case "unschedulable":
            return "it is cordoned"
        case "missingLevel":
            return f"it lacks the label {_listed(why.detail)}"
        case _:
            return f"node {_listed(why.detail)} has the same host name label"


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    shown = list(names)[:10]
    return ", ".join(shown) + (f" and {len(names) - 10} more" if len(names) > 10 else "") if names else "none"
