"""Flavors that are kept for the gang closest to its quorum.

A flavor without topology has no places to reserve, so members of a gang with quota may find no node.  While that is so,
no workload of lower or equal priority takes further nodes of the flavor: the first node that becomes free goes to the
gang, and two gangs cannot stand in each other's way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC

from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.mention import Mention
from kqueue.core.quota import FlavorResource
from kqueue.core.workload import Head, Leader


class KeptFlavors:
    """The leaders of one cycle, by flavor."""

    def __init__(self, leaders: Mapping[str, Leader]) -> None:
        self._leaders = dict(leaders)

    def __bool__(self) -> bool:
        return bool(self._leaders)

    def before(self, head: Head, columns: Iterable[FlavorResource]) -> Blocker | None:
        """Return why a head must not use these columns now; None: it may, or no flavor of it is kept."""
        for flavor, leader in self._met(head, columns):
            if head.priority <= leader.priority:
                return _blocker(flavor, leader)
        return None

    def make_way(self, head: Head, columns: Iterable[FlavorResource]) -> tuple[Leader, ...]:
        """Return the leaders that make way for a head that is admitted; their flavors are not kept any more."""
        found = {leader.uid: leader for _, leader in self._met(head, columns)}
        if found:
            self._leaders = {flavor: one for flavor, one in self._leaders.items() if one.uid not in found}
        return tuple(found.values())

    def _met(self, head: Head, columns: Iterable[FlavorResource]) -> Iterator[tuple[str, Leader]]:
        """Yield the kept flavors that a head uses, unless it belongs to their leader."""
        for column in columns:
            leader = self._leaders.get(column.flavor)
            if leader is not None and head.extra_of != leader.workload:
                yield column.flavor, leader


def _blocker(flavor: str, leader: Leader) -> Blocker:
    return Blocker(
        kind=BlockerKind.GANG_LEADER,
        flavor=flavor,
        asked=leader.quorum,
        free=leader.scheduled,
        workloads=(Mention(leader.key, leader.queue),),
        detail=f"{leader.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
    )
