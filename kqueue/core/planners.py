"""Planners: a planner places many workloads of one plan together, whereas a placer places one workload.

A plan nominates in three steps: it chooses flavors for each head, places the heads, and commits each of them.  For the
heads that name a planner as their profile, the planner replaces the second step only.  A planner returns hints, which
are checked like the answers of a placer.  A hint that is not a placement of its workload, or has no room, is dropped,
and the workload is placed by itself.

A new planner is one file, and one line that registers it under the name of a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kqueue.core.quota import Usage
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.placers import Placer, greedy
from kqueue.core.topology.placers import register as register_placer
from kqueue.core.topology.request import PodSetRequest, Profile
from kqueue.core.value import value
from kqueue.core.workload import Head, Snapshot


@value(kw_only=True)
class Wish:
    """A workload whose flavors have quota for it, and whose pods need domains.

    Args:
        head: the workload.
        requests: the pod sets to place, by flavor.
        profile: the placement profile.
        usage: the quota that the workload takes, by column.
    """

    head: Head
    requests: Mapping[str, Sequence[PodSetRequest]]
    profile: Profile
    usage: Usage


class Planner(Protocol):
    """Places workloads together."""

    def __call__(self, snapshot: Snapshot, wishes: Sequence[Wish]) -> Sequence[Hint | None]:
        """Return one hint for each wish, in their order; None: the workload is placed by itself.

        A planner does not change the snapshot, and answers equal questions equally.
        """
        ...


PLANNERS: dict[str, Planner] = {}
"""Planners by the name of their profile."""


def register(name: str, planner: Planner, *, alone: Placer = greedy) -> None:
    """Add a planner at the start of a process, and the placer for workloads of its profile that are placed alone.

    Raises ValueError when the name is taken or empty.
    """
    register_placer(name, alone)
    PLANNERS[name] = planner


def ask(planner: Planner, snapshot: Snapshot, wishes: Sequence[Wish]) -> Sequence[Hint | None]:
    """Return the answers of a planner.  Raises ValueError unless there is one answer for each wish."""
    hints = planner(snapshot, wishes)
    if len(hints) != len(wishes):
        raise ValueError(f"the planner gave {len(hints)} answers for {len(wishes)} workloads")
    return hints
