"""What a load run counts: changes of Workloads as a watch shows them, counters of the controller."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire

EARLY_SECONDS = 5.0
"""An eviction within this time of the workload's latest admission counts as early."""


@dataclass(slots=True)
class Changes:
    """Changes of Workloads, by the versions that one watch delivered; a version that a relist skips is not counted."""

    kinds: Counter[str] = field(default_factory=Counter)
    """admission, eviction, finalizers, words (all other status changes of the controller)."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Evictions by the reason of the Preempted condition, else of the Evicted one."""
    early: int = 0
    """Evictions within `EARLY_SECONDS` of the same workload's admission."""
    _admitted_at: dict[str, float] = field(default_factory=dict)

    def add(self, key: str, old: wire.Workload | None, new: wire.Workload, *, now: float) -> None:
        """Count one delivered version; `now` is in seconds of a monotonic clock."""
        if old is None:
            return
        kind = change_kind(old, new)
        if kind is not None:
            self.kinds[kind] += 1
        if kind == "admission":
            self._admitted_at[key] = now
        if kind == "eviction":
            self.reasons[eviction_reason(new)] += 1
            self.early += now - self._admitted_at.get(key, -math.inf) <= EARLY_SECONDS


def change_kind(old: wire.Workload, new: wire.Workload) -> str | None:
    """What a write changed; None for the bench's own writes (finished, reservation taken away) and for no change."""
    if turned(old, new, names.CONDITION_FINISHED):
        return None
    if turned(old, new, names.CONDITION_EVICTED):
        return "eviction"
    if old.status.admission is None and new.status.admission is not None:
        return "admission"
    if old.status.admission is not None and new.status.admission is None:
        return None
    if old.metadata.finalizers != new.metadata.finalizers:
        return "finalizers"
    return "words" if old.status != new.status else None


def turned(old: wire.Workload, new: wire.Workload, condition: str) -> bool:
    """Whether the condition became true with this version."""
    return model.condition_true(new, condition) and not model.condition_true(old, condition)


def eviction_reason(workload: wire.Workload) -> str:
    """Of the Preempted condition when that is true, else of the Evicted one."""
    reasons = {c.type: c.reason for c in workload.status.conditions if c.status == "True"}
    return reasons.get(names.CONDITION_PREEMPTED) or reasons.get(names.CONDITION_EVICTED, "")


async def samples(metrics: str) -> list[Sample]:
    """All samples that the controller's metrics endpoint serves now."""
    async with aiohttp.ClientSession() as session, session.get(metrics) as answer:
        answer.raise_for_status()
        text = await answer.text()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def total(found: list[Sample], name: str, **labels: str) -> float:
    """Sum of the samples of this name with these labels; 0 when there is none."""
    return sum(s.value for s in found if s.name == name and labels.items() <= s.labels.items())


def cycle_counts(found: list[Sample]) -> Iterator[tuple[str, float]]:
    """(metric, value): cycles, those that admitted no workload, events that were not written."""
    yield "cycles", total(found, "kueue_admission_attempts_total")
    yield "empty_cycles", total(found, "kueue_admission_attempts_total", result="inadmissible")
    yield "events_lost", total(found, "kqueue_events_lost_total")
