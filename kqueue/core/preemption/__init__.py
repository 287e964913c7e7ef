"""Targets of preemption for one workload: candidates, two ways to choose among them, and their simulation.

    candidates  the workloads that the preemptor's queue may preempt, in order
    classical      by quota: reclaim quota that others borrowed, then workloads of lower priority of the own queue
    fair           by dominant resource shares, from the most borrowing branch of the tree
    fit         the test whether the preemptor fits
    reach       bounds about hosts before a search for domains
    simulation  a snapshot from which workloads are removed, rolled back at the end

This package evicts no workload, and does not depend on the reason for which a workload is tried.
Source: the compatible system's preemption (KEP-1337, KEP-1714, KEP-79).
"""

from kqueue.core.preemption.candidates import lesser
from kqueue.core.preemption.findings import Findings, Lowest
from kqueue.core.preemption.reach import VictimReach
from kqueue.core.preemption.search import all_candidates, find_targets, none_may_be_preempted
from kqueue.core.preemption.simulation import Simulation, simulate
from kqueue.core.preemption.target import (
    LocalQueueUsage,
    PreemptionReason,
    Preemptor,
    Rules,
    SharingStrategy,
    Target,
    preemptor_of,
)

__all__ = [
    "Findings",
    "LocalQueueUsage",
    "Lowest",
    "PreemptionReason",
    "Preemptor",
    "Rules",
    "SharingStrategy",
    "Simulation",
    "Target",
    "VictimReach",
    "all_candidates",
    "find_targets",
    "lesser",
    "none_may_be_preempted",
    "preemptor_of",
    "simulate",
]
