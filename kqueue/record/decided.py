"""Decisions of a record as typed values: what reports need of them, and nothing else."""

from __future__ import annotations

from typing import Literal

import msgspec


class DecidedWorkload(msgspec.Struct, frozen=True):
    """The workload of a decision."""

    key: str
    uid: str
    queue: str


class DecidedLevel(msgspec.Struct, frozen=True):
    """The number of domains of one level that a search has used, and the fewest possible."""

    level: str
    used: int
    lower_bound: int


class DecidedSearch(msgspec.Struct, frozen=True):
    """The quality of the domains of one search."""

    levels: list[DecidedLevel]


class DecidedPodSet(msgspec.Struct, frozen=True):
    """Flavors and usage of a pod set, by resource."""

    flavors: dict[str, str]
    usage: dict[str, int]


class DecidedAdmission(msgspec.Struct, frozen=True):
    """The admission of a workload."""

    pod_sets: list[DecidedPodSet]


class DecidedTarget(msgspec.Struct, frozen=True):
    """A workload that is preempted, and the reason."""

    admitted: DecidedWorkload
    reason: str


class DecidedLeader(msgspec.Struct, frozen=True):
    """A gang that is evicted because flavors were kept for it."""

    workload: str
    uid: str
    queue: str


class Decided(msgspec.Struct, frozen=True):
    """A decision; `admission` and what follows it is of `Admit`, `targets` of `Preempt`."""

    decision: Literal["Admit", "Preempt", "Wait"]
    head: DecidedWorkload
    admission: DecidedAdmission | None = None
    quality: list[DecidedSearch] = []
    made_way: list[DecidedLeader] = []
    targets: list[DecidedTarget] = []


read_decided = msgspec.json.Decoder(Decided).decode
