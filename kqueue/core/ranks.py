"""Which pod of a gang goes to which domain: by rank where every pod has one, else greedily in listing order.

Source: KEP-2724 (topology-aware scheduling), rank-based ordering.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kqueue.core.topology import TopologyAssignment
from kqueue.core.topology.result import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRules:
    """How pods of one pod set are numbered.

    `index_label` None: not at all.  With `group_label` the pods are numbered per group, and there are `groups` of them.
    Ranks run from 0 after `offset` is taken off, and an index must be below `limit`.
    """

    index_label: str | None
    group_label: str | None = None
    groups: int = 0
    offset: int = 0
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One live pod of the pod set.  `selector` matters only for pods that were released already (not `gated`)."""

    key: str
    gated: bool
    labels: Mapping[str, str]
    selector: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Release:
    """Remove this pod's gate and pin it to these values, one per written level."""

    key: str
    values: Path


@dataclass(frozen=True, slots=True)
class Releases:
    """What to do for one pod set.  `order_lost` says why ranks were not used; empty when they were, or none exist."""

    pods: tuple[Release, ...]
    order_lost: str = ""


def releases(assignment: TopologyAssignment, members: Sequence[Member], rules: RankRules, *, count: int) -> Releases:
    """Choose a domain for every gated pod that has a place.

    `members` in listing order; `count` the pod set's number of pods.  No domain gets more pods than it was assigned,
    pods that are released already included; surplus pods stay gated.
    """
    if rules.index_label is None:
        return Releases(tuple(_greedy(assignment, members)))
    ranked = _by_rank(assignment, members, rules, count=count)
    if isinstance(ranked, str):
        return Releases(tuple(_greedy(assignment, members)), ranked)
    return Releases(tuple(ranked))


def _by_rank(
    assignment: TopologyAssignment, members: Sequence[Member], rules: RankRules, *, count: int
) -> list[Release] | str:
    """The releases, or in words what is wrong with the ranks."""
    table = [domain.values for domain in assignment.domains for _ in range(domain.count)]
    taken: dict[int, str] = {}
    out: list[Release] = []
    for member in members:
        rank = _rank(member, rules, count=count)
        if isinstance(rank, str):
            return rank
        if rank in taken:
            return f"pods {taken[rank]} and {member.key} have the same rank {rank}"
        if rank >= len(table):
            return f"pod {member.key} has rank {rank}, the assignment holds {len(table)} pods"
        taken[rank] = member.key
        if member.gated:
            out.append(Release(member.key, table[rank]))
        elif _place_of(member, assignment) != table[rank]:
            return f"pod {member.key} of rank {rank} was released to another domain"
    return out


def _rank(member: Member, rules: RankRules, *, count: int) -> int | str:
    index = _number(member.labels.get(rules.index_label or ""))
    if index is None or index >= rules.limit:
        return f"pod {member.key}: label {rules.index_label} is not a number below {rules.limit}"
    rank = index - rules.offset
    if rules.group_label is not None:
        group = _number(member.labels.get(rules.group_label))
        size = count // rules.groups if rules.groups > 0 else 0
        if group is None or group >= rules.groups or index >= size:
            return f"pod {member.key}: label {rules.group_label} or {rules.index_label} is out of range"
        rank += group * size
    if not 0 <= rank < count:
        return f"pod {member.key} has rank {rank}, the pod set has {count} pods"
    return rank


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _place_of(member: Member, assignment: TopologyAssignment) -> Path:
    return tuple(member.selector.get(level, "") for level in assignment.levels)


def _greedy(assignment: TopologyAssignment, members: Sequence[Member]) -> Iterator[Release]:
    released: dict[Path, int] = {}
    for member in members:
        if not member.gated:
            place = _place_of(member, assignment)
            released[place] = released.get(place, 0) + 1
    gated = iter([m.key for m in members if m.gated])
    for domain in assignment.domains:
        for _ in range(domain.count - released.get(domain.values, 0)):
            key = next(gated, None)
            if key is None:
                return
            yield Release(key, domain.values)
