"""The assignment of a gang's pods to domains: by rank if every pod has one, else greedily in listing order.

Source: KEP-2724 (topology-aware scheduling), rank-based ordering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import starmap

from kqueue.core.topology import Domain, TopologyAssignment
from kqueue.core.topology.result import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRules:
    """The numbering of pods of one pod set.

    `index_label` None: pods have no ranks.  With `group_label` pods are numbered per group, and there are `groups`
    groups.  Ranks begin at 0 after `offset` is subtracted, and an index must be below `limit`.  With `gaps` the pods
    are some of the numbered ones, as a quorum is, and higher numbers are no mistake: pods have places in the order of
    their numbers.
    """

    index_label: str | None
    group_label: str | None = None
    groups: int = 0
    offset: int = 0
    limit: int
    gaps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One live pod of the pod set.

    `selector` matters only for released pods (not `gated`).  `leaving`: the pod was deleted and still exists.
    """

    key: str
    gated: bool
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    leaving: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Remove this pod's gate and pin it to these values, one per written level."""

    key: str
    values: Path


class RankTrouble(StrEnum):
    """Reasons why the ranks of a pod set cannot be used.  The value is the name in metrics."""

    NO_INDEX = "no_index"
    """A pod has no index label, or its value is not a number."""
    INDEX_TOO_HIGH = "index_too_high"
    """An index is beyond the pod set, as in a Job whose parallelism is below its completions."""
    BAD_GROUP = "bad_group"
    """A pod names a sub-group that does not exist, or an index beyond its sub-group."""
    RANK_OUT_OF_RANGE = "rank_out_of_range"
    """After the offset is subtracted, a rank is below 0 or beyond the pod set."""
    DUPLICATE_RANK = "duplicate_rank"
    """Two live pods have the same rank."""
    BEYOND_ASSIGNMENT = "beyond_assignment"
    """The assignment has fewer places than the pod set has ranks."""
    PLACED_ELSEWHERE = "placed_elsewhere"
    """A pod was released to another domain than the domain of its rank, for example after a failed node was
    replaced.
    """
    PLACE_GIVEN_BACK = "place_given_back"
    """The place of a rank was given back, because its pods had run elsewhere when other pods ended."""


_BEYOND = (RankTrouble.INDEX_TOO_HIGH, RankTrouble.RANK_OUT_OF_RANGE, RankTrouble.BEYOND_ASSIGNMENT)


@dataclass(frozen=True, slots=True)
class OrderLost:
    """Ranks were not used; `message` names the pod that prevents their use."""

    trouble: RankTrouble
    message: str


@dataclass(frozen=True, slots=True)
class Releases:
    """The releases of one pod set.  `order_lost`: why ranks were not used; None when they were, or pods have none."""

    pods: tuple[Release, ...]
    order_lost: OrderLost | None = None


def left_over(assignment: TopologyAssignment, members: Sequence[Member], *, needed: int) -> TopologyAssignment | None:
    """Return the domains that no pod will use again, if at most `needed` pods run at once from now on.

    None while that is unknown.  It is known when `members`, all living pods, are exactly `needed`, and each was
    released to a domain of the assignment and is not being deleted.  All other domains are free then, and stay free
    when the result is passed to `releases`.  The domains of pods that have ended do not matter.
    """
    if needed >= assignment.count:
        return TopologyAssignment(assignment.levels, ())
    if len(members) != needed or any(member.gated or member.leaving for member in members):
        return None
    held = Counter(_place_of(member, assignment) for member in members)
    taken = TopologyAssignment(assignment.levels, tuple(starmap(Domain, held.items())))
    found = assignment.without(taken)
    return found if found.count == assignment.count - needed else None


def releases(
    assignment: TopologyAssignment,
    members: Sequence[Member],
    rules: RankRules,
    *,
    count: int,
    given_back: TopologyAssignment | None = None,
) -> Releases:
    """Choose a domain for every gated pod that has a place.

    `members` in listing order; `count` the pod set's number of pods.  No domain gets more pods than it was assigned
    and has not given back, pods that are released already included; surplus pods stay gated.

    A pod that is leaving is never released.  One that was released holds its place until it is gone: by rank its
    successor waits for that place, so a replacement costs no order.
    """
    alive = [m for m in members if not (m.gated and m.leaving)]
    left = assignment if given_back is None else assignment.without(given_back)
    if rules.index_label is None:
        return Releases(tuple(_greedy(left, alive)))
    ranked = _by_rank(assignment, alive, rules, count=count)
    if not isinstance(ranked, OrderLost):
        ranked = _within(left, alive, ranked)
    if isinstance(ranked, OrderLost) and rules.gaps and ranked.trouble in _BEYOND:
        return Releases(tuple(_greedy(left, sorted(alive, key=lambda member: _index(member, rules)))))
    if isinstance(ranked, OrderLost):
        return Releases(tuple(_greedy(left, alive)), ranked)
    return Releases(tuple(ranked))


def _within(left: TopologyAssignment, members: Sequence[Member], ranked: list[Release]) -> list[Release] | OrderLost:
    """Return the releases that have room now, unless one needs a domain that was given back.

    A pod that is being deleted may hold the domain of another rank, whose pod waits until it has ended.
    """
    room = Counter({domain.values: domain.count for domain in left.domains})
    room.subtract(_place_of(member, left) for member in members if not member.gated)
    leaving = Counter(_place_of(member, left) for member in members if member.leaving)
    found: list[Release] = []
    for release in ranked:
        if room[release.values] > 0:
            room[release.values] -= 1
            found.append(release)
        elif leaving[release.values] > 0:
            leaving[release.values] -= 1
        else:
            text = f"the place of pod {release.key} by its rank was given back when other pods had ended"
            return OrderLost(RankTrouble.PLACE_GIVEN_BACK, text)
    return found


def _by_rank(
    assignment: TopologyAssignment, members: Sequence[Member], rules: RankRules, *, count: int
) -> list[Release] | OrderLost:
    """Return the releases, or the problem with the ranks."""
    table = [domain.values for domain in assignment.domains for _ in range(domain.count)]
    taken: dict[int, str] = {}
    held: set[int] = set()
    wanted: list[tuple[int, str]] = []
    for member in members:
        rank = _rank(member, rules, count=count)
        if isinstance(rank, OrderLost):
            return rank
        if rank >= len(table):
            text = f"pod {member.key} has rank {rank}, the assignment holds {len(table)} pods"
            return OrderLost(RankTrouble.BEYOND_ASSIGNMENT, text)
        at_home = member.gated or _place_of(member, assignment) == table[rank]
        if member.leaving:
            held |= {rank} if at_home else set()
            continue
        if rank in taken:
            text = f"pods {taken[rank]} and {member.key} have the same rank {rank}"
            return OrderLost(RankTrouble.DUPLICATE_RANK, text)
        if not at_home:
            text = f"pod {member.key} of rank {rank} was released to another domain"
            return OrderLost(RankTrouble.PLACED_ELSEWHERE, text)
        taken[rank] = member.key
        if member.gated:
            wanted.append((rank, member.key))
    return [Release(key, table[rank]) for rank, key in wanted if rank not in held]


def _rank(member: Member, rules: RankRules, *, count: int) -> int | OrderLost:
    index = _number(member.labels.get(rules.index_label or ""))
    if index is None:
        text = f"pod {member.key}: label {rules.index_label} is not a number"
        return OrderLost(RankTrouble.NO_INDEX, text)
    if index >= rules.limit:
        text = f"pod {member.key}: label {rules.index_label} is {index}, not below {rules.limit}"
        return OrderLost(RankTrouble.INDEX_TOO_HIGH, text)
    rank = index - rules.offset
    if rules.group_label is not None:
        group = _number(member.labels.get(rules.group_label))
        size = count // rules.groups if rules.groups > 0 else 0
        if group is None or group >= rules.groups or index >= size:
            text = (
                f"pod {member.key}: label {rules.group_label} must be a number below {rules.groups}, "
                f"label {rules.index_label} below {size}"
            )
            return OrderLost(RankTrouble.BAD_GROUP, text)
        rank += group * size
    if not 0 <= rank < count:
        text = f"pod {member.key} has rank {rank}, the pod set has {count} pods"
        return OrderLost(RankTrouble.RANK_OUT_OF_RANGE, text)
    return rank


def _index(member: Member, rules: RankRules) -> tuple[bool, int, str]:
    """Return a key that sorts pods by their numbers; pods without one come last."""
    index = _number(member.labels.get(rules.index_label or ""))
    return index is None, index or 0, member.key


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
