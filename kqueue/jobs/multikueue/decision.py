"""Decide the next steps for a workload that worker clusters are to run.

A repeated decision on unchanged facts changes nothing, so both the manager's own reconciler and the one of each worker
cluster decide anew and take the steps that are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum

from kqueue import model
from kqueue.api import names
from kqueue.jobs.check_entry import CheckAnswer
from kqueue.jobs.multikueue.dispatch import nominate, writes_nomination
from kqueue.jobs.multikueue.facts import MultiKueueFacts, Remote
from kqueue.jobs.multikueue.likeness import Likeness, likeness
from kqueue.jobs.multikueue.preemption import gates_to_open

_LAST_WORD = timedelta(seconds=30)
"""Time for which the end of a job is awaited after that of its workload: another watch brings it."""
_OF_JOB = (names.REASON_SUCCEEDED, names.REASON_FAILED)
"""Reasons of workloads whose job has ended."""
_LATEST = datetime.max.replace(tzinfo=UTC)


class RemoteStep(Enum):
    """The step on one worker cluster."""

    CREATE = "create"
    """Create the copy of the workload."""
    CATCH_UP = "catch up"
    """Give the copy the workload's priority and counts."""
    OPEN_GATE = "open its preemption gate"
    """Let the worker preempt for the copy."""
    RUN = "run"
    """Create the copy of the job, or what is missing of it, which the worker's own queue then starts."""
    DEACTIVATE = "deactivate"
    """Let the worker evict the copy."""
    DELETE = "delete"
    """Delete the copies of job and workload."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of the workload, as its worker cluster has reported it."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiKueueDecision:
    """The next steps.

    Args:
        steps: by cluster; a cluster that is not named is left as it is.
        answer: the new entry of the check; None: it stays.
        is_fault: the answer follows from a fault, so its event is a warning.
        status_of: the cluster whose job's status the manager's job gets; empty: none.
        end: the workload has finished; None: it has not.
        nominated: new `nominatedClusterNames`; None: they stay.
        cluster: new `clusterName`; empty: it stays.
        again: time after which the facts may ask for other steps without an event; None: only events change them.
    """

    steps: Mapping[str, RemoteStep] = field(default_factory=dict)
    answer: CheckAnswer | None = None
    is_fault: bool = False
    status_of: str = ""
    end: Ending | None = None
    nominated: tuple[str, ...] | None = None
    cluster: str = ""
    again: timedelta | None = None


def decide(facts: MultiKueueFacts) -> MultiKueueDecision:
    """Return the next steps, by the first rule that applies.  Source: `MultiKueue` of the workload life cycle."""
    if facts.is_deleted:
        return _all_gone(facts)
    if facts.is_true(names.CONDITION_FINISHED) or not facts.holds_quota:
        return MultiKueueDecision() if _keeps_slice(facts) else _all_gone(facts)
    if facts.entry.state == names.CHECK_REJECTED or facts.is_replaced:
        return MultiKueueDecision()
    if facts.problem and not facts.is_evicted:
        return MultiKueueDecision(answer=_answer(facts, names.CHECK_REJECTED, facts.problem))
    facts, corrections = _corrected(facts)
    found = _ended(facts) or _evicted(facts) or _admitted(facts) or _lost(facts) or _following(facts) or _waiting(facts)
    return replace(found, steps={**found.steps, **corrections})


# --- the end ----------------------------------------------------------------------------------------------------------


def _all_gone(facts: MultiKueueFacts) -> MultiKueueDecision:
    """Return the deletion of all copies, to be repeated while a cluster that may have some is unreachable."""
    return MultiKueueDecision(
        steps={remote.cluster: RemoteStep.DELETE for remote in facts.remotes if remote.has_copies},
        again=None if all(remote.is_connected for remote in facts.remotes) else facts.policy.lost_after,
    )


def _keeps_slice(facts: MultiKueueFacts) -> bool:
    """Whether the copies of a slice stay: another slice has taken over, or it has yet to get its quota.

    A slice whose forerunner is over has lost its own quota, so its job must end.
    """
    if not facts.is_elastic:
        return False
    finished = model.condition(facts.workload.status.conditions, names.CONDITION_FINISHED)
    if finished is not None and finished.status == "True":
        return finished.reason == names.REASON_WORKLOAD_SLICE_REPLACED
    return facts.stands_behind


def _ended(facts: MultiKueueFacts) -> MultiKueueDecision | None:
    """Return what follows from the copy that finished first; None: none has."""
    remote = _first(facts.remotes, names.CONDITION_FINISHED)
    if remote is None or remote.workload is None:
        return None
    told = model.condition(remote.workload.status.conditions, names.CONDITION_FINISHED)
    reason, message = (told.reason, told.message) if told is not None else ("", "")
    never_ran = reason == names.REASON_OUT_OF_SYNC and not facts.is_elastic
    if never_ran or (reason == names.REASON_OWNER_NOT_FOUND and remote.job is None):
        said = "no longer describes its job" if never_ran else "lost its job: another client deleted it there"
        return _retry(facts, f"the copy on {remote.cluster} {said}", is_fault=True) or MultiKueueDecision(
            steps={remote.cluster: RemoteStep.DELETE}
        )
    status_of = _status_of(remote)
    age = abs(facts.now - (remote.since(names.CONDITION_FINISHED) or _LATEST))
    if remote.runs and reason in _OF_JOB and age < _LAST_WORD:
        return MultiKueueDecision(status_of=status_of, again=_LAST_WORD - age)  # the copies have the job's last status
    return MultiKueueDecision(status_of=status_of, end=Ending(reason, message))


# --- evictions --------------------------------------------------------------------------------------------------------


def _evicted(facts: MultiKueueFacts) -> MultiKueueDecision | None:
    """Return what follows from the eviction of the copy that ran; None: it was not evicted."""
    winner = facts.workload.status.cluster_name
    ran = [remote for remote in facts.remotes if winner in (None, remote.cluster)]
    remote = _first(ran, names.CONDITION_EVICTED)
    if facts.is_evicted:
        return _leaving(facts, remote)
    if remote is None or facts.entry.state != names.CHECK_READY:
        return None
    return _retry(facts, f"{remote.cluster} has evicted the workload", status_of=remote)


def _leaving(facts: MultiKueueFacts, evicted: Remote | None) -> MultiKueueDecision:
    """Return the steps while the manager takes its quota back: the worker evicts what runs, and nothing new starts."""
    steps: dict[str, RemoteStep] = {}
    for remote in facts.remotes:
        if not remote.has_copies or remote.is_true(names.CONDITION_EVICTED):
            continue
        runs = remote.is_true(names.CONDITION_ADMITTED)
        if not runs:
            steps[remote.cluster] = RemoteStep.DELETE
        elif not remote.is_true(names.CONDITION_DEACTIVATION_TARGET):
            steps[remote.cluster] = RemoteStep.DEACTIVATE
    shown = evicted or _first(facts.remotes, names.CONDITION_ADMITTED)
    return MultiKueueDecision(steps=steps, status_of=_status_of(shown), again=facts.policy.lost_after)


# --- copies -----------------------------------------------------------------------------------------------------------


def _corrected(facts: MultiKueueFacts) -> tuple[MultiKueueFacts, dict[str, RemoteStep]]:
    """Return the facts without copies of another spec, and the steps that such copies need.

    A finished copy needs none: its end counts, whatever it looks like now.
    """
    steps: dict[str, RemoteStep] = {}
    remotes: list[Remote] = []
    for remote in facts.remotes:
        remotes.append(remote)
        if remote.workload is None or not remote.is_connected or remote.is_true(names.CONDITION_FINISHED):
            continue
        found = likeness(facts.workload, remote.workload, is_elastic=facts.is_elastic)
        runs = remote.job is not None and (not remote.is_partial or facts.entry.state == names.CHECK_READY)
        cannot_run = remote.is_taken and not runs
        if remote.is_leaving or remote.is_barred or cannot_run or found is Likeness.OTHER:
            steps[remote.cluster] = RemoteStep.DELETE
            remotes[-1] = replace(remote, is_leaving=True)
        elif found is Likeness.BEHIND:
            steps[remote.cluster] = RemoteStep.CATCH_UP
    return replace(facts, remotes=remotes), steps


def _admitted(facts: MultiKueueFacts) -> MultiKueueDecision | None:
    """Return the steps once a worker has admitted its copy: it runs the job, and the others lose theirs.

    Of several clusters, the one in `clusterName` stays, else the first one that admitted its copy.
    """
    named = facts.remote(facts.workload.status.cluster_name)
    if named is not None and not named.is_true(names.CONDITION_ADMITTED):
        return None
    winner = named or _first(facts.remotes, names.CONDITION_ADMITTED)
    if winner is None or facts.entry.state not in (names.CHECK_PENDING, names.CHECK_READY):
        return None
    nominated, again = facts.workload.status.nominated_cluster_names, facts.policy.lost_after
    if named is None and winner.cluster not in nominated:
        return MultiKueueDecision(nominated=(winner.cluster,), again=again)  # the API takes no other as clusterName
    steps = {r.cluster: RemoteStep.DELETE for r in facts.remotes if r is not winner and r.has_copies}
    if winner.job is None or (winner.is_partial and not winner.is_taken):
        steps[winner.cluster] = RemoteStep.RUN
    if winner.job is None or (winner.is_partial and facts.entry.state != names.CHECK_READY):
        return MultiKueueDecision(steps=steps, again=again)
    answer = _answer(facts, names.CHECK_READY, f"{winner.cluster} has admitted the workload and runs its job")
    return MultiKueueDecision(
        steps=steps,
        answer=answer,
        status_of=winner.cluster,
        cluster="" if named is not None else winner.cluster,
        nominated=() if nominated else None,
        again=again,
    )


def _lost(facts: MultiKueueFacts) -> MultiKueueDecision | None:
    """Return a retry if the work is lost on the cluster that admitted the workload; None: no cluster has."""
    if facts.entry.state != names.CHECK_READY:
        return None
    cluster = facts.workload.status.cluster_name
    remote = facts.remote(cluster)
    if remote is None or remote.is_connected:
        where = cluster or "the worker cluster"
        return _retry(facts, f"{where} does not run the workload any more", is_fault=True)
    lost = facts.policy.lost_after
    silent = max(facts.now - remote.lost_since, timedelta(0)) if remote.lost_since is not None else timedelta(0)
    if silent < lost:
        return MultiKueueDecision(again=lost - silent)
    return _retry(facts, f"{cluster} has not been reachable for {int(silent.total_seconds())} seconds", is_fault=True)


def _following(facts: MultiKueueFacts) -> MultiKueueDecision | None:
    """Return the steps of a slice that takes over a job which a cluster runs already; None: none runs it.

    It goes to that cluster alone, so that the job never runs in two.  The job runs on there with its older slice until
    the cluster admits the copy of the new one, and its status is told on.
    """
    status = facts.workload.status
    if not facts.is_elastic or facts.entry.state != names.CHECK_PENDING:
        return None
    remote, wait = _carrier(facts)
    if status.cluster_name and remote is None:
        why = f"{status.cluster_name} does not run the job any more"
        anew = CheckAnswer(state=names.CHECK_RETRY, message=f"The workload is dispatched anew: {why}")
        return MultiKueueDecision(answer=anew, is_fault=True)
    if remote is None or any(entry.state != names.CHECK_READY for entry in facts.other_checks):
        return None
    if not status.cluster_name:
        return MultiKueueDecision(cluster=remote.cluster, nominated=() if status.nominated_cluster_names else None)
    steps = {r.cluster: RemoteStep.DELETE for r in facts.remotes if r is not remote and r.has_copies}
    if remote.is_connected and remote.workload is None:
        steps[remote.cluster] = RemoteStep.CREATE
    said = f"Waits until {remote.cluster}, which runs the job, admits its new size"
    answer = _answer(facts, names.CHECK_PENDING, said)
    return MultiKueueDecision(steps=steps, answer=answer, status_of=_status_of(remote), again=wait)


def _carrier(facts: MultiKueueFacts) -> tuple[Remote | None, timedelta | None]:
    """Return the cluster that has the job, and how long a lost one is waited for; None: no cluster has it."""
    known = facts.workload.status.cluster_name or facts.inherited
    having = [remote for remote in facts.remotes if remote.is_connected and remote.job is not None]
    first = next((remote for remote in having if remote.cluster == known), next(iter(having), None))
    if first is not None and facts.workload.status.cluster_name in (None, first.cluster):
        return first, None
    remote = facts.remote(known)
    if remote is None or remote.is_connected:
        return None, None
    since = remote.lost_since or facts.now
    left = facts.policy.lost_after - max(facts.now - since, timedelta(0))
    return (remote, left) if left > timedelta(0) else (None, None)


def _waiting(facts: MultiKueueFacts) -> MultiKueueDecision:
    """Return the copies for the nominated clusters, once all other checks are ready.

    A cluster gets its copy after the nomination is written, so that the API accepts it as `clusterName`.
    """
    status = facts.workload.status
    if facts.entry.state != names.CHECK_PENDING or (status.cluster_name and not facts.is_elastic):
        return MultiKueueDecision()
    if any(entry.state != names.CHECK_READY for entry in facts.other_checks):
        return MultiKueueDecision()
    found = nominate(facts)
    is_new = writes_nomination(facts) and found.clusters != status.nominated_cluster_names
    steps: dict[str, RemoteStep] = {}
    for remote in facts.remotes:
        if remote.cluster not in found.clusters:
            if remote.has_copies:
                steps[remote.cluster] = RemoteStep.DELETE
        elif remote.is_connected and remote.workload is None and remote.cluster in status.nominated_cluster_names:
            steps[remote.cluster] = RemoteStep.CREATE
    waiting = [remote for remote in facts.remotes if remote.cluster in found.clusters]
    gates = gates_to_open(waiting, facts.now, orchestrated=facts.policy.orchestrates_preemption)
    steps |= dict.fromkeys(gates.clusters, RemoteStep.OPEN_GATE)
    return MultiKueueDecision(
        steps=steps,
        answer=_answer(facts, names.CHECK_PENDING, _waits_for(facts, found.clusters)),
        nominated=found.clusters if is_new else None,
        again=min((each for each in (found.again, gates.again) if each is not None), default=None),
    )


def _waits_for(facts: MultiKueueFacts, clusters: tuple[str, ...]) -> str:
    if facts.place.waits_for:
        return f"Waits for the cluster of Workload {facts.place.waits_for}: all groups of an owner go to one cluster"
    if not clusters:
        return "No worker cluster can be asked; conditions Active of the MultiKueueClusters say why"
    return f"Waits until one of these clusters admits the workload: {', '.join(clusters)}"


# --- shared -----------------------------------------------------------------------------------------------------------


def _first(remotes: Iterable[Remote], kind: str) -> Remote | None:
    """Return the cluster on whose copy a condition became true first; None: it is true on none."""
    having = [remote for remote in remotes if remote.is_true(kind)]
    return min(having, key=lambda remote: (remote.since(kind) or _LATEST, remote.cluster), default=None)


def _status_of(remote: Remote | None) -> str:
    return remote.cluster if remote is not None and remote.job is not None else ""


def _answer(facts: MultiKueueFacts, state: str, message: str) -> CheckAnswer | None:
    """Return a new entry; None: the check has it already."""
    entry = facts.entry
    if (entry.state, entry.message) == (state, message):
        return None
    return CheckAnswer(state=state, message=message, seconds=entry.requeue_after_seconds)


def _retry(
    facts: MultiKueueFacts, why: str, *, is_fault: bool = False, status_of: Remote | None = None
) -> MultiKueueDecision | None:
    """Return the decision that the workload is dispatched anew; None: no cluster had been chosen."""
    if facts.entry.state != names.CHECK_READY:
        return None
    answer = CheckAnswer(state=names.CHECK_RETRY, message=f"The workload is dispatched anew: {why}")
    return MultiKueueDecision(answer=answer, is_fault=is_fault, status_of=_status_of(status_of))
