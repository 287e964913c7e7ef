"""The search for a plan of whole workloads, in their order of admission, with repairs where one finds no room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.candidate import Candidate, CandidateName
from kqueue.core.joint.repairs import eject, find, pack, repack
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import PlannedAdmission, World
from kqueue.core.workload import Claim, Head


class Guide(Protocol):
    """Domains that the relaxation proposes."""

    def place(self, world: World, head: Head) -> PlannedAdmission | None:
        """Return the workload in the domain that the relaxation gives all its pods; None: it gives it none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchInput:
    """The input of a search.

    Args:
        order: the workloads in the order in which they are placed.
        strict: ClusterQueues whose workloads never pass each other.
        claims: of the workloads for which one by one preempts others, by UID.
        unit_of: the unit of each flavor that has one.
        reduced: by UID, workloads with the fewer pods that one by one gave them.
        guide: None: there is no relaxation.
    """

    order: Sequence[RankedWorkload]
    strict: frozenset[str] = frozenset()
    claims: Mapping[str, Claim] = field(default_factory=dict)
    unit_of: Mapping[str, Unit] = field(default_factory=dict)
    reduced: Mapping[str, Head] = field(default_factory=dict)
    guide: Guide | None = None


def search(world: World, given: SearchInput, *, name: CandidateName) -> Candidate:
    """Return a candidate; its admissions are charged to the world.

    A workload that finds no room in its turn gets it by a repair, which moves workloads of this candidate, or is left
    out.  Where one by one preempts for it, its claim is kept, so that later workloads do not take what is freed.
    """
    found, blocked = Candidate(name), set[str]()
    for one in given.order:
        head = one.head
        if head.queue in blocked:
            continue
        if not _placed(world, found, one, given):
            if head.uid in given.claims:
                world.keep(given.claims[head.uid])
            if head.queue in given.strict:
                blocked.add(head.queue)
    return found


def _placed(world: World, found: Candidate, one: RankedWorkload, given: SearchInput) -> bool:
    """Admit a workload if there is a way; return whether it is admitted."""
    head, fewer = one.head, given.reduced.get(one.head.uid)
    planned = given.guide.place(world, head) if given.guide is not None else None
    planned = planned or find(world, found, head)
    if planned is None:
        if any(repair(world, found, one, given.unit_of) for repair in (pack, eject, repack)):
            return True
        planned = world.find(fewer) if fewer is not None else None
    if planned is None:
        return False
    world.admit(planned)
    found.admitted[head.uid] = planned
    return True
