"""The members of a gang with far more of them than start together: some in order, and numbers of the others.

A tenant may give one label to any number of pods.  Each event of a pod changes an order that is kept, so that a look at
the gang costs as much as its quorum, not as the number of its pods.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from itertools import islice
from typing import TypeAlias

from kqueue.jobs.gang.counts import MemberStates, member_counts, states_of
from kqueue.jobs.gang.dialect import LARGEST_QUORUM
from kqueue.jobs.gang.value import GangSpec, GroupProblem, MemberCounts
from kqueue.jobs.pod_view import ManagedPod
from kqueue.runtime.sorted_items import SortedItems
from kqueue.runtime.store import Store

CROWD = 2_000
"""Members of the largest gang that is always looked at whole."""
MARGIN = 1_000
"""Members of each part that are looked at beyond the quorum."""
_FIRST = 16
"""Members of each part from which the quorum is read."""
LARGEST_NEED = 2 * LARGEST_QUORUM
"""The largest quorum that is looked for: the Workload of more members, all of them its owners, is larger than the API
server takes.
"""


class Part(IntEnum):
    """The part of a crowd that a member is in, which decides the members that go before it."""

    RELEASED = 0
    """Members of the base that run, will run, or have succeeded and are still held for the end of their gang."""
    WAITING = 1
    """Gated members that may start with the base."""
    LEAVING = 2
    """Members that end or are being deleted, and have the finalizer of kqueue."""
    EXTRA = 3
    """Members that are marked as extras."""
    GONE = 4
    """Members that have ended, and are held by nobody."""


_Rank: TypeAlias = tuple[int, datetime, str]
"""The rank of a member in its part: by state, creation, and key."""
_Place: TypeAlias = tuple[Part, str, _Rank]
"""Part, role and rank of a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The number of members that a gang starts together."""

    quorum: int = 0
    roles: Mapping[str, int] = field(default_factory=dict)
    """Members that are needed of roles, wherever they are in the order of all."""


def need_of(wish: GangSpec | GroupProblem | None, counts: Mapping[str, int], *, total: int | None) -> Need:
    """Return the number of members that start together, now or with the next admission.

    Args:
        wish: that of the dialect from some members; None: the gang has neither members nor an object.
        counts: members by role that its Workload counts; empty: it does not exist.
        total: the members that a group of Kueue's says to have; None: of other dialects.
    """
    quorum, roles = max(sum(counts.values()), total or 0), Counter(counts)
    if isinstance(wish, GangSpec):
        quorum = max(quorum, wish.quorum, wish.desired or 0)
        roles |= Counter({role.name: max(role.minimum, role.desired or 0) for role in wish.roles})
    return Need(quorum=min(quorum, LARGEST_NEED), roles=roles if roles.total() <= LARGEST_NEED else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unseen:
    """The members of a crowd that a look leaves out."""

    counts: MemberCounts = field(default_factory=MemberCounts)
    waiting: int = 0
    """Of these, gated members that are no extras."""


NONE_UNSEEN = Unseen()


@dataclass(frozen=True, slots=True)
class MembersSeen:
    """The members of a gang that decide, and the numbers of all others."""

    members: Sequence[ManagedPod]
    unseen: Unseen = NONE_UNSEEN


def place_of(pod: ManagedPod) -> _Place:
    """Return the place of a member in a crowd."""
    ended = pod.terminated or not pod.runnable
    if pod.extra:
        # the number of those that wait decides about more of them, and a stop has already reached those that leave
        return Part.EXTRA, pod.role, (2 if pod.deleting else int(not pod.gated), pod.created, pod.key)
    if pod.finalizer and (pod.deleting or not pod.runnable):
        return Part.LEAVING, pod.role, (int(not ended), pod.created, pod.key)
    if ended and not pod.finalizer:
        return Part.GONE, pod.role, (0, pod.created, pod.key)
    part = Part.WAITING if pod.gated else Part.RELEASED
    return part, pod.role, (0, pod.created, pod.key)


class Crowd:
    """The members of one gang, each in its place.  The views are those of the watch."""

    def __init__(self, pods: Iterable[ManagedPod]) -> None:
        self._parts = {part: SortedItems[_Rank]() for part in Part}
        self._waiting: defaultdict[str, SortedItems[_Rank]] = defaultdict(SortedItems)
        """The members of WAITING by role."""
        self._states = [0] * len(MemberStates._fields)
        for pod in pods:
            self.change(None, pod)

    @property
    def waiting(self) -> int:
        """The number of gated members that may start with the base, or be queued beyond it."""
        return len(self._parts[Part.WAITING])

    def change(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        """Follow one event of a member; None: the member was not there, or is not any more."""
        before = place_of(old) if old is not None else None
        after = place_of(new) if new is not None else None
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)
        if before == after:
            return
        if before is not None:
            self._remove(*before)
        if after is not None:
            self._add(*after)

    def _count(self, pod: ManagedPod, by: int) -> None:
        for index, holds in enumerate(states_of(pod)):
            if holds:
                self._states[index] += by

    def _add(self, part: Part, role: str, rank: _Rank) -> None:
        self._parts[part].add(rank)
        if part is Part.WAITING:
            self._waiting[role].add(rank)

    def _remove(self, part: Part, role: str, rank: _Rank) -> None:
        self._parts[part].remove(rank)
        if part is Part.WAITING:
            self._waiting[role].remove(rank)
            if not self._waiting[role]:
                del self._waiting[role]

    def first(self) -> list[str]:
        """Return the keys of the first members of each part."""
        return [key for items in self._parts.values() for key in _keys(items, _FIRST)]

    def chosen(self, need: Need) -> list[str]:
        """Return the keys of the members to look at: the first ones of each part, of those that run, wait or
        have ended as many more as the quorum, and of each needed role as many as are needed.
        """
        found: dict[str, None] = {}
        for part, items in self._parts.items():
            more = 0 if part in (Part.LEAVING, Part.EXTRA) else need.quorum
            found |= dict.fromkeys(_keys(items, MARGIN + more))
        for role, number in need.roles.items():
            if role in self._waiting:
                found |= dict.fromkeys(_keys(self._waiting[role], number))
        return list(found)

    def unseen(self, seen: Iterable[ManagedPod]) -> Unseen:
        """Return the numbers of the members that are not among those looked at, in the watch's views."""
        views = list(seen)
        looked_at = member_counts(views)
        left = {name: n - getattr(looked_at, name) for name, n in zip(MemberStates._fields, self._states, strict=True)}
        waiting = self.waiting - sum(place_of(pod)[0] is Part.WAITING for pod in views)
        return Unseen(counts=MemberCounts(**left), waiting=waiting)


def _keys(items: SortedItems[_Rank], number: int) -> Iterator[str]:
    return (key for _, _, key in islice(items, number))


class Crowds:
    """The gangs of a watch with more than `CROWD` members.  Smaller ones cost nothing here."""

    def __init__(self, pods: Store[ManagedPod], index: str) -> None:
        """Follow the watch; `index` has the members by the key of their gang."""
        self._pods, self._index = pods, index
        self._crowds: dict[str, Crowd] = {}
        pods.subscribe(self._observe)

    def get(self, key: str) -> Crowd | None:
        """Return the crowd of a gang; None: the gang has few members."""
        return self._crowds.get(key)

    def _observe(self, old: ManagedPod | None, new: ManagedPod | None) -> None:
        before, after = (pod.group if pod is not None else "" for pod in (old, new))
        if before == after:
            self._change(before, old, new)
        else:
            self._change(before, old, None)
            self._change(after, None, new)

    def _change(self, key: str, old: ManagedPod | None, new: ManagedPod | None) -> None:
        if not key:
            return
        crowd, number = self._crowds.get(key), self._pods.count_by_index(self._index, key)
        if crowd is not None and number < CROWD // 2:
            del self._crowds[key]
        elif crowd is not None:
            crowd.change(old, new)
        elif number > CROWD:
            self._crowds[key] = Crowd(self._pods.by_index(self._index, key))
