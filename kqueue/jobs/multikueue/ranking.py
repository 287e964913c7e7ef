"""Choose the one cluster on which a gang would stand best now, by the answers of all clusters.

A gang is sent to the best cluster alone.  After a while without an admission the clusters are asked again, and the best
of the others is added; what has been sent stays there, so that a gang never loses its place in a line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kqueue import model
from kqueue.api import names
from kqueue.config.dispatchers import DISPATCHER_BEST_DOMAIN
from kqueue.jobs.multikueue.answers import ClusterAnswer, Start
from kqueue.jobs.multikueue.facts import MultiKueueFacts

_LATEST = datetime.max.replace(tzinfo=UTC)
_SILENT = ClusterAnswer(start=Start.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Best:
    """The clusters that get a copy, and the time until there may be more.

    Args:
        clusters: in order.
        incremental: the incremental dispatcher chooses among these clusters instead, in this order.
    """

    clusters: tuple[str, ...]
    again: timedelta | None = None
    incremental: tuple[str, ...] | None = None


def rank(answer: ClusterAnswer) -> tuple[object, ...]:
    """Return the rank of a cluster with this answer; a smaller one is better.  Equal clusters keep their order."""
    return (
        answer.start,
        answer.domains - answer.fewest,
        answer.domains,
        answer.preempts,
        answer.borrows,
        (answer.left is None, answer.left or 0),
        answer.at or _LATEST,
        answer.ahead,
    )


def ranked(clusters: Sequence[str], answers: Mapping[str, ClusterAnswer]) -> list[str]:
    """Return the clusters, the best one first."""
    return sorted(clusters, key=lambda cluster: rank(answers.get(cluster, _SILENT)))


def asked_clusters(facts: MultiKueueFacts) -> Sequence[str]:
    """Return the clusters whose answers the next decision needs; empty: it needs none."""
    if facts.policy.dispatcher != DISPATCHER_BEST_DOMAIN or not _is_waiting(facts):
        return ()
    before = facts.workload.status.nominated_cluster_names
    if _may_still_admit(facts, before) and patience_left(facts) > timedelta(0):
        return ()
    return [remote.cluster for remote in facts.remotes if remote.is_free and remote.cluster not in before]


def _may_still_admit(facts: MultiKueueFacts, nominated: Sequence[str]) -> bool:
    """Whether one of the clusters that have the workload can be reached, so that it is waited for."""
    return any(remote.is_free and remote.cluster in nominated for remote in facts.remotes)


def _is_waiting(facts: MultiKueueFacts) -> bool:
    """Whether the workload waits until a cluster admits it."""
    return (
        facts.entry.state == names.CHECK_PENDING
        and facts.holds_quota
        and not facts.is_evicted
        and not facts.is_deleted
        and not facts.is_true(names.CONDITION_FINISHED)
        and not facts.workload.status.cluster_name
        and all(entry.state == names.CHECK_READY for entry in facts.other_checks)
    )


def patience_left(facts: MultiKueueFacts) -> timedelta:
    """Return the time for which the clusters that have the workload are waited for; never negative.

    A controller that does not know when it sent the workload goes by the time since which it could be sent.
    """
    since = facts.sent_at or model.since(facts.workload, names.CONDITION_QUOTA_RESERVED)
    passed = max(facts.now - since, timedelta(0)) if since is not None else timedelta(0)
    return max(facts.policy.patience - passed, timedelta(0))


def best(facts: MultiKueueFacts, offered: Sequence[str]) -> Best:
    """Return the clusters for a workload: those that it was sent to, and perhaps the best of the others."""
    kept = tuple(name for name in facts.workload.status.nominated_cluster_names if name in offered)
    rest = [name for name in offered if name not in kept]
    left = patience_left(facts)
    if not rest or (_may_still_admit(facts, kept) and left > timedelta(0)):
        return Best(kept, left if rest else None)
    answers = facts.answers
    if any(name not in answers for name in rest):
        return Best(kept, facts.policy.answer_within)
    order = ranked(rest, answers)
    first = answers[order[0]].start
    if first is Start.NOW or all(answers[name].start is not Start.UNKNOWN for name in rest):
        if first is not Start.NEVER:
            return Best((*kept, order[0]), facts.policy.patience if len(rest) > 1 else None)
        if kept:
            return Best(kept, facts.policy.patience)
    return Best(kept, incremental=tuple(order))
