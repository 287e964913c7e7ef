"""Choose the worker clusters that get a copy of a workload which waits for one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.config.dispatchers import DISPATCHER_ALL_AT_ONCE, DISPATCHER_BEST_DOMAIN, DISPATCHER_INCREMENTAL
from kqueue.jobs.multikueue.facts import ROUND, MultiKueueFacts, Remote
from kqueue.jobs.multikueue.ranking import best

_MOST = 20
"""Clusters that `status.nominatedClusterNames` can hold."""


@dataclass(frozen=True, slots=True)
class Nomination:
    """The clusters that get a copy, in order, and the time until there may be more; None: there will not be."""

    clusters: tuple[str, ...]
    again: timedelta | None = None


def nominate(facts: MultiKueueFacts) -> Nomination:
    """Return the nominated clusters.  A dispatcher that is not ours has written them into the status."""
    dispatcher, now = facts.policy.dispatcher, facts.workload.status.nominated_cluster_names
    offered = [remote.cluster for remote in facts.remotes if remote.is_free or _is_kept(remote, now)]
    if dispatcher == DISPATCHER_ALL_AT_ONCE or facts.place.decides:
        return Nomination(tuple(sorted(offered))[:_MOST])
    if dispatcher == DISPATCHER_INCREMENTAL:
        return _incremental(facts, offered)
    if dispatcher == DISPATCHER_BEST_DOMAIN:
        found = best(facts, offered)
        if found.incremental is not None:
            return _in_rounds(facts, [*found.clusters, *found.incremental])
        return Nomination(found.clusters[:_MOST], found.again)
    return Nomination(tuple(name for name in now if name in offered))


def _is_kept(remote: Remote, nominated: Sequence[str]) -> bool:
    """Whether a lost cluster stays nominated: a worker that comes and goes must not rewrite all waiting workloads."""
    return not remote.is_connected and remote.is_offered and not remote.is_barred and remote.cluster in nominated


def writes_nomination(facts: MultiKueueFacts) -> bool:
    """Whether the nomination is written by this controller."""
    return bool(facts.place.cluster) or facts.policy.dispatcher in (
        DISPATCHER_ALL_AT_ONCE,
        DISPATCHER_INCREMENTAL,
        DISPATCHER_BEST_DOMAIN,
    )


def _incremental(facts: MultiKueueFacts, offered: list[str]) -> Nomination:
    """Return `step` clusters per begun round, those first that were nominated before."""
    before = [name for name in facts.workload.status.nominated_cluster_names if name in offered]
    rest = [name for name in offered if name not in before]
    return _in_rounds(facts, [*before, *(rest if facts.policy.keeps_order else sorted(rest))])


def _in_rounds(facts: MultiKueueFacts, order: list[str]) -> Nomination:
    """Return the first `step` clusters per begun round, and all that were nominated before.

    The number of rounds follows from the time since which the workload can be dispatched, so a controller that starts
    anew goes on where the former one ended.
    """
    start = _dispatchable_since(facts)
    passed = max(facts.now - start, timedelta(0)) if start is not None else timedelta(0)
    rounds = passed // ROUND + 1
    most = min(rounds * facts.policy.step, _MOST)
    before = [name for name in facts.workload.status.nominated_cluster_names if name in order]
    chosen = tuple(order[: max(most, len(before))])
    return Nomination(chosen, None if len(chosen) == len(order) or most == _MOST else rounds * ROUND - passed)


def _dispatchable_since(facts: MultiKueueFacts) -> datetime | None:
    """Return the time of the reservation, or of the last other check that became ready after it."""
    reserved = model.since(facts.workload, names.CONDITION_QUOTA_RESERVED)
    times = [entry.last_transition_time for entry in facts.other_checks]
    return max([*times, reserved], default=None) if reserved is not None else None
