"""Select the pods that name a group and no queue: one entry for each dialect of gangs, none of which overlaps.

A pod with the marks of two dialects is in the entry of the first one, in the order in which dialects count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kqueue.jobs.gang.dialect import PodSelection
from kqueue.jobs.gang.registry import dialect_of, switched_on
from webhooks.selectors import JSON, absent, condition, exists

_NO_POD = "request.resource.group != '' || request.resource.resource != 'pods'"


@dataclass(frozen=True, slots=True)
class GangSelection:
    """The pods of one entry: label expressions and CEL conditions that all hold."""

    word: str
    """The dialect in the entry's name."""
    labels: tuple[JSON, ...] = ()
    conditions: tuple[JSON, ...] = ()

    def without(self, other: PodSelection) -> GangSelection:
        """Return the selection without the pods of another dialect."""
        if other.label:
            return GangSelection(self.word, (*self.labels, absent(other.label)), self.conditions)
        excluded = condition(f"not-{other.word}", f"!({other.condition})")
        return GangSelection(self.word, self.labels, (*self.conditions, excluded))


def gang_selections(frameworks: Collection[str]) -> Iterator[GangSelection]:
    """Yield the selection of each dialect that is on and has an entry."""
    earlier: list[PodSelection] = []
    for selection in _selections(frameworks):
        labels = (exists(selection.label),) if selection.label else ()
        conditions = (condition(f"is-{selection.word}", selection.condition),) if selection.condition else ()
        yield _without(GangSelection(selection.word, labels, conditions), earlier)
        earlier.append(selection)


def outside_gangs(frameworks: Collection[str]) -> GangSelection:
    """Return the pods that are in none of these entries."""
    return _without(GangSelection(""), _selections(frameworks))


def not_of_gangs(frameworks: Collection[str]) -> list[JSON]:
    """Return the same as a condition for an entry of many kinds: every object that is no pod passes."""
    marks = [_expression(selection) for selection in _selections(frameworks)]
    return [condition("no-pod-of-a-gang", f"{_NO_POD} || !({' || '.join(marks)})")] if marks else []


def _selections(frameworks: Collection[str]) -> list[PodSelection]:
    found = (dialect_of(framework).selection() for framework in switched_on(frameworks))
    return [selection for selection in found if selection is not None]


def _without(selection: GangSelection, others: list[PodSelection]) -> GangSelection:
    for other in others:
        selection = selection.without(other)
    return selection


def _expression(selection: PodSelection) -> str:
    """Return a dialect's selection as one CEL expression, in parentheses."""
    if selection.condition:
        return f"({selection.condition})"
    return f"(has(object.metadata.labels) && {selection.label!r} in object.metadata.labels)"
