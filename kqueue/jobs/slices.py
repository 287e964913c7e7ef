"""Plan the workload slices of an elastic job: the current Workload, its replacement, and the next step.

A running job that grows gets a second Workload, which replaces the first when it gets its quota.  `plan` returns the
next step for the job's counts and its existing Workloads.  It compares only names and counts of pod sets; the caller
compares the templates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kqueue.api import names
from kqueue.jobs.fields import JSON, annotations_of, condition_status, mapping, objects, text, whole

FRAMEWORKS = frozenset({"batch/job", "ray.io/raycluster", "ray.io/rayjob", "ray.io/rayservice"})
"""Kinds whose jobs may be elastic."""

Counts = tuple[tuple[str, int], ...]
"""The number of pods per pod set, in the order of the pod sets."""


class SliceStep(StrEnum):
    """The next step for the job's counts."""

    KEEP = "Keep"
    """Do nothing: the Workload matches the job, or is being removed."""
    CREATE = "Create"
    """Create the first Workload."""
    RESIZE = "Resize"
    """Write the job's counts into the slice `SlicePlan.wants`; its quota stays, except for removed pods."""
    GROW = "Grow"
    """Create a Workload that replaces the slice `SlicePlan.wants`."""
    WAIT = "Wait"
    """Wait: more pods run than the job requests, and their quota stays until they are gone."""
    RESTART = "Restart"
    """The pod sets have changed, so the Workload no longer fits the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The planning data of one Workload of the job."""

    key: str
    """namespace/name."""
    uid: str
    created: str
    """Creation time as the API's text, which sorts by time."""
    counts: Counts
    reserved: bool = False
    evicted: bool = False
    active: bool = True
    deleting: bool = False
    finished: bool = False
    replaces: str = ""
    """Key of the slice that it replaces; empty: none."""

    @property
    def is_leaving(self) -> bool:
        """Whether the slice is evicted or being deleted."""
        return self.evicted or self.deleting


@dataclass(frozen=True, slots=True, kw_only=True)
class SlicePlan:
    """The next step for the slices of one job."""

    step: SliceStep
    runs: str | None = None
    """Key of the slice by which the job runs, or with which it waits; None: there is none."""
    wants: str | None = None
    """Key of the slice that must match the job: a waiting replacement, else `runs`."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """Slices that must be finished first, each with the reason.  No new slice is created before."""


def counts_of(pod_sets: Iterable[Mapping[str, Any]]) -> Counts:
    """Return names and counts of the pod sets of a Workload; a missing count is 1."""
    return tuple((text(p, "name") or names.DEFAULT_PODSET, _count(p)) for p in pod_sets)


def with_counts(pod_sets: Iterable[Mapping[str, Any]], counts: Counts) -> list[JSON]:
    """Return the pod sets with other counts; pod sets that `counts` does not name stay as they are."""
    wanted = dict(counts)
    return [{**p, "count": wanted.get(text(p, "name") or names.DEFAULT_PODSET, _count(p))} for p in pod_sets]


def origin_of(workload: JSON) -> str:
    """Return the name that all slices of the Workload's job share: the name of the first slice."""
    own = annotations_of(workload).get(names.WORKLOAD_SLICE_NAME_ANNOTATION)
    return own or text(workload, "metadata", "name")


def slice_of(workload: JSON) -> Slice:
    """Return the planning data of a Workload."""
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
    """Return the plan for a job that requests `wanted`.

    Args:
        wanted: the job's pod sets.
        slices: all Workloads that the job controls.
        standing: per pod set, pods of the job that may use resources: released, and not ended.
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
        step = SliceStep.KEEP  # at most two are left: the others end first
    return SlicePlan(step=step, runs=runs.key, wants=wants.key, ends=ends)


def in_order(slices: Sequence[Slice]) -> list[Slice]:
    """Sort by age, the oldest first. Of two created in the same second a replacement is the younger one; then UIDs
    decide.
    """
    replaces = {s.key: s.replaces for s in slices}

    def depth(key: str) -> int:
        seen: set[str] = set()
        while key in replaces and key not in seen:
            seen.add(key)
            key = replaces[key]
        return len(seen)

    return sorted(slices, key=lambda s: (s.created, depth(s.key), s.uid))


def _taken_over(alive: Sequence[Slice]) -> set[str]:
    """Return the slices whose replacement has its quota: all their pods count for the replacement from then on.

    `alive` is in order: a slice that names a younger one, as written by hand, replaces nothing.
    """
    place = {s.key: i for i, s in enumerate(alive)}
    return {s.replaces for i, s in enumerate(alive) if s.reserved and place.get(s.replaces, i) < i}


def _running(left: Sequence[Slice]) -> Slice:
    """Return the slice by which the job runs (`left` is sorted, oldest first): the newest with quota, staying ones
    first.

    If none has quota, return the newest deactivated slice, else the newest that is not being deleted, else the newest.
    """
    holding = [s for s in left if s.reserved]
    off = [s for s in left if not s.active]
    present = [s for s in left if not s.deleting]
    for choice in ([s for s in holding if not s.is_leaving], holding, off, present):
        if choice:
            return choice[-1]
    return left[-1]


def _waiting(left: Sequence[Slice], runs: Slice) -> Slice | None:
    """Return the newest slice that waits to replace `runs`; None: there is none."""
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
