"""Workload slices of an elastic job: which Workload it runs by, which one is to take over, and what to do about counts.

A job that grows while it runs gets a second Workload, which replaces the first when it is given its quota.  From what
the job asks for and the Workloads that there are, `plan` says the next step.  Only names and counts of pod sets are
looked at; whether the templates still say the same is for the caller to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kqueue.api import names
from kqueue.jobs.fields import JSON, annotations_of, condition_status, mapping, objects, text, whole

FRAMEWORKS = frozenset({"batch/job"})
"""Kinds whose jobs may be elastic."""

Counts = tuple[tuple[str, int], ...]
"""Pods per pod set, in the order of the pod sets."""


class SliceStep(StrEnum):
    """What is to be done about the job's counts."""

    KEEP = "Keep"
    """Nothing: the Workload says what the job says, or is on its way out."""
    CREATE = "Create"
    """There is no Workload: make the first one."""
    RESIZE = "Resize"
    """Write the job's counts into `Plan.wants`; what it holds stays, but for what fewer pods need no more."""
    GROW = "Grow"
    """Make a Workload that is to replace `Plan.wants`."""
    WAIT = "Wait"
    """Fewer pods are wanted than still run: their quota stays until they are gone."""
    RESTART = "Restart"
    """The pod sets are others: this is another job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What matters of one Workload of the job."""

    key: str
    """namespace/name."""
    uid: str
    created: str
    """As the API says it: sorts by time."""
    counts: Counts
    reserved: bool = False
    evicted: bool = False
    active: bool = True
    deleting: bool = False
    finished: bool = False
    replaces: str = ""
    """Key of the slice that it is to replace; empty: of none."""

    @property
    def is_leaving(self) -> bool:
        """Its pods are to end, or have."""
        return self.evicted or self.deleting


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """The next step for the slices of one job."""

    step: SliceStep
    runs: str | None = None
    """Key of the slice that the job runs by, or waits with; None: there is none."""
    wants: str | None = None
    """Key of the slice that is to say what the job says: a replacement that waits, else `runs`."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Slices that are to be finished, each with the reason.  No new one is made before they are."""


def counts_of(pod_sets: Iterable[Mapping[str, Any]]) -> Counts:
    """Names and counts of pod sets as they stand in a Workload; a missing count is 1."""
    return tuple((text(p, "name") or names.DEFAULT_PODSET, _count(p)) for p in pod_sets)


def with_counts(pod_sets: Iterable[Mapping[str, Any]], counts: Counts) -> list[JSON]:
    """The pod sets with other counts; those without a count in `counts` stay as they are."""
    wanted = dict(counts)
    return [{**p, "count": wanted.get(text(p, "name") or names.DEFAULT_PODSET, _count(p))} for p in pod_sets]


def origin_of(workload: JSON) -> str:
    """The name that all slices of its job share: that of the first one."""
    own = annotations_of(workload).get(names.WORKLOAD_SLICE_NAME_ANNOTATION)
    return own or text(workload, "metadata", "name")


def slice_of(workload: JSON) -> Slice:
    """What matters of a Workload."""
    metadata = mapping(workload, "metadata")
    return Slice(
        key=f"{text(metadata, 'namespace')}/{text(metadata, 'name')}",
        uid=text(metadata, "uid"),
        created=text(metadata, "creationTimestamp"),
        counts=counts_of(objects(workload, "spec", "podSets")),
        reserved=condition_status(workload, names.CONDITION_QUOTA_RESERVED) == "True",
        evicted=condition_status(workload, names.CONDITION_EVICTED) == "True",
        active=mapping(workload, "spec").get("active") is not False,
        deleting=bool(metadata.get("deletionTimestamp")),
        finished=condition_status(workload, names.CONDITION_FINISHED) == "True",
        replaces=annotations_of(workload).get(names.WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION, ""),
    )


def plan(wanted: Counts, slices: Sequence[Slice], *, standing: Mapping[str, int]) -> SlicePlan:
    """What to do for a job that asks for `wanted`.

    Args:
        wanted: the job's pod sets.
        slices: all Workloads that the job controls.
        standing: per pod set, pods of the job that may take room: released, and not ended.
    """
    alive = [s for s in in_order(slices) if not s.finished]
    if not alive:
        return SlicePlan(step=SliceStep.CREATE)
    over = _taken_over(alive)
    left = [s for s in alive if s.key not in over]
    runs = _running(left)
    waits = _waiting(left, runs)
    wants = waits or runs
    replaced = {s.replaces for s in slices}
    ends = {
        s.key: names.REASON_WORKLOAD_SLICE_REPLACED if s.key in replaced else names.REASON_OUT_OF_SYNC
        for s in alive
        if s not in (runs, waits)
    }
    step = SliceStep.KEEP if runs.is_leaving and runs.reserved else _step(wanted, wants, runs, standing)
    if ends and step is SliceStep.GROW:
        step = SliceStep.KEEP  # two at most: the others come to their end first
    return SlicePlan(step=step, runs=runs.key, wants=wants.key, ends=ends)


def in_order(slices: Sequence[Slice]) -> list[Slice]:
    """The oldest first.  Of those of one second a replacement is the younger one; then their UIDs decide."""
    replaces = {s.key: s.replaces for s in slices}

    def depth(key: str) -> int:
        seen: set[str] = set()
        while key in replaces and key not in seen:
            seen.add(key)
            key = replaces[key]
        return len(seen)

    return sorted(slices, key=lambda s: (s.created, depth(s.key), s.uid))


def _taken_over(alive: Sequence[Slice]) -> set[str]:
    """Slices whose replacement has its quota: all their pods count for that one, whatever becomes of it.

    `alive` is in order: who names a younger one, by hand, replaces nothing.
    """
    place = {s.key: i for i, s in enumerate(alive)}
    return {s.replaces for i, s in enumerate(alive) if s.reserved and place.get(s.replaces, i) < i}


def _running(left: Sequence[Slice]) -> Slice:
    """By which of them (the oldest first) the job runs: one that holds quota, and stays, before one that leaves.

    Where none holds any it is the newest; but one that was switched off speaks for the job.
    """
    holding = [s for s in left if s.reserved]
    off = [s for s in left if not s.active]
    present = [s for s in left if not s.deleting]
    for choice in ([s for s in holding if not s.is_leaving], holding, off, present):
        if choice:
            return choice[-1]
    return left[-1]


def _waiting(left: Sequence[Slice], runs: Slice) -> Slice | None:
    """The newest that waits to take over."""
    if not runs.reserved:
        return None
    found = [s for s in left if not s.reserved and not s.deleting and s.replaces == runs.key]
    return found[-1] if found else None


def _step(wanted: Counts, wants: Slice, runs: Slice, standing: Mapping[str, int]) -> SliceStep:
    if [name for name, _ in wanted] != [name for name, _ in wants.counts]:
        return SliceStep.RESTART
    if wanted == wants.counts:
        return SliceStep.KEEP
    held = dict(wants.counts)
    if wants.reserved and any(count > held[name] for name, count in wanted):
        return SliceStep.GROW
    if runs.reserved and any(standing.get(name, 0) > count < held[name] for name, count in wanted):
        return SliceStep.WAIT
    return SliceStep.RESIZE


def _count(pod_set: Mapping[str, Any]) -> int:
    count = whole(pod_set, "count")
    return 1 if count is None else count
