"""Why a workload waits, in full, and what would let it start.

    world      what is asked about: a snapshot, all who hold anything, nodes that are left out
    holders    who holds what in a domain or a column of quota
    blockers   all that stands in the way: each pod set, flavor, column and level, not only what a cycle stops at
    trials     the planner on a changed copy of the snapshot
    changes    what could be different, and what that would cost whom
    places     the domains in which it could stand if others left, or nodes came back
    sets       lines of candidates, and the sets that are found in them
    search     which of these changes would let the workload start: each is verified by the planner

Searches are generators that stop between pieces of some milliseconds: whoever runs them gives others a turn, or stops.
"""

from kqueue.core.spares import Spare
from kqueue.core.why.blockers import ColumnLook, DomainLook, FlavorLook, LevelLook, Look, look
from kqueue.core.why.changes import (
    Change,
    FewerPods,
    MoreQuota,
    NodesReturn,
    OtherQueue,
    OtherWish,
    WhatIf,
    WorkloadsEnd,
    condition_for,
)
from kqueue.core.why.holders import Held, Holder
from kqueue.core.why.search import Alternative, Search
from kqueue.core.why.trials import Trials
from kqueue.core.why.world import World

__all__ = [
    "Alternative",
    "Change",
    "ColumnLook",
    "DomainLook",
    "FewerPods",
    "FlavorLook",
    "Held",
    "Holder",
    "LevelLook",
    "Look",
    "MoreQuota",
    "NodesReturn",
    "OtherQueue",
    "OtherWish",
    "Search",
    "Spare",
    "Trials",
    "WhatIf",
    "WorkloadsEnd",
    "World",
    "condition_for",
    "look",
]
