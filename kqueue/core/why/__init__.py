"""The complete reasons why a workload waits, and the changes with which it would start.

    world      the state of a question: a snapshot, all workloads with reservations, nodes that are left out
    holders    the workloads in a domain, or in a column of quota
    blockers   all blockers: each pod set, flavor, column and level, not only the first one that ends a cycle's try
    trials     the planner on a changed copy of the snapshot
    policy     a state with other quotas, priorities, drained domains and added nodes
    sequence   the planner's decisions about workloads that are tried one after the other
    changes    possible changes, and their costs
    card_types other card types that the workload could name
    places     the domains that would have room if workloads left or nodes returned
    sets       lines of candidates, and the sets that are found in them
    search     the changes that would start the workload: the planner verifies each

Searches are generators that yield between pieces of some milliseconds: their caller gives the event loop a turn, or
stops.
"""

from kqueue.core.planned_state import PlannedState
from kqueue.core.spares import Spare
from kqueue.core.why.blockers import ColumnLook, DomainLook, FlavorLook, LevelLook, Look, look
from kqueue.core.why.changes import (
    Change,
    FewerPods,
    MoreQuota,
    NodesReturn,
    OtherCardType,
    OtherQueue,
    OtherWish,
    WhatIf,
    WorkloadsEnd,
    condition_for,
)
from kqueue.core.why.holders import Holder, ResourceHolders
from kqueue.core.why.policy import PolicyChange, changed, drained_workloads, has_domain, nodes_like
from kqueue.core.why.search import Alternative, ChangeSearch
from kqueue.core.why.sequence import PlanSequence
from kqueue.core.why.trials import Trials

__all__ = [
    "Alternative",
    "Change",
    "ChangeSearch",
    "ColumnLook",
    "DomainLook",
    "FewerPods",
    "FlavorLook",
    "Holder",
    "LevelLook",
    "Look",
    "MoreQuota",
    "NodesReturn",
    "OtherCardType",
    "OtherQueue",
    "OtherWish",
    "PlanSequence",
    "PlannedState",
    "PolicyChange",
    "ResourceHolders",
    "Spare",
    "Trials",
    "WhatIf",
    "WorkloadsEnd",
    "changed",
    "condition_for",
    "drained_workloads",
    "has_domain",
    "look",
    "nodes_like",
]
