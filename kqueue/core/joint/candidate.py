"""A candidate of a round: the workloads that it admits, and where their pods are."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from kqueue.core.joint.world import PlannedAdmission


class CandidateName(StrEnum):
    """The ways to make a plan, in the order in which equal ones are preferred."""

    ONE_BY_ONE = "OneByOne"
    """As ordinary cycles place the batch."""
    PACKED = "Packed"
    """Searched without the relaxation."""
    GUIDED = "Guided"
    """Searched with the domains of the relaxation first."""
    BY_VALUE = "ByValue"
    """Searched by value inside each rank."""


@dataclass(slots=True)
class Candidate:
    """The admissions of a candidate, by UID, in the order in which they were made."""

    name: CandidateName
    admitted: dict[str, PlannedAdmission] = field(default_factory=dict)
    hopeless: dict[Hashable, int] = field(default_factory=dict, compare=False, repr=False)
    """By form: the smallest number of pods for which a repair found no room; since then no workload has moved."""
    domains: dict[tuple[int, str, int], tuple[PlannedAdmission, int | None]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """By identity of an admission, flavor and level: the one domain that has all its pods; None: several have them."""

    def in_flavors(self, flavors: frozenset[str]) -> Iterator[PlannedAdmission]:
        """Yield the admissions with pods on domains of these flavors."""
        return (planned for planned in self.admitted.values() if not flavors.isdisjoint(planned.requests))
