"""The classes of known workloads, which a process keeps from round to round.

A workload whose head and flavors are those of an earlier round is not looked at again: it has the kind that it had.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from kqueue.core.joint.batch import RankedWorkload
from kqueue.core.joint.classes import GangShape, PodClass, forms_of
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import Choice
from kqueue.core.topology.request import PodSetRequest
from kqueue.core.value import value
from kqueue.core.workload import Head, PodSetAssignment, QueueSpec

Sees = Callable[[Head, Sequence[PodSetRequest]], Hashable]
"""Returns what policies see of a workload beyond its requests."""

_MOST_KINDS = 65_536
_NO_FORMS, _UNKNOWN = -1, -2
"""The kind of a workload without units, or that this topology cannot place; and that of a new workload."""

_Grant = tuple[Mapping[str, Sequence[PodSetRequest]], Sequence[PodSetAssignment]]


@value()
class _Kind:
    """Workloads that a network does not tell apart: their ClusterQueue, what policies see, and their gangs."""

    queue: str
    sight: Hashable
    forms: tuple[GangShape, ...]


class ClassBook:
    """The kinds of the workloads of one flavor, by UID; a kind is a number.

    An entry counts for one head and the flavors that it has: a workload that was changed is a new head.
    """

    def __init__(self, flavor: str, levels: tuple[str, ...], unit: Unit) -> None:
        """Begin with no workload."""
        self._flavor, self._levels, self._unit = flavor, levels, unit
        self._known: dict[str, tuple[Head, _Grant, Hashable, int]] = {}
        self._of_head: dict[int, int] = {}
        """The kinds of workloads with one pod set, by the identity of a head in `_known`: whatever flavors they have,
        their pods are in this one.
        """
        self._specs: dict[str, QueueSpec] = {}
        self._numbers: dict[Hashable, int] = {}
        self._kinds: list[_Kind] = []
        self.sorted = 0
        """Workloads that were looked at because they were new or changed."""

    def counts_for(self, levels: tuple[str, ...], unit: Unit) -> bool:
        """Whether the kinds are those of this topology and this unit."""
        return (self._levels, self._unit) == (levels, unit)

    def classes(
        self,
        some: Sequence[RankedWorkload],
        choices: Mapping[str, Sequence[Choice]],
        specs: Mapping[str, QueueSpec],
        how: JointOrder,
        sees: Sees | None = None,
    ) -> list[PodClass]:
        """Return the classes of workloads, which come in their order, as `classes_of` does.

        Args:
            choices: by UID, the flavors that a workload may have; one of them has the flavor of this book.
            specs: of the ClusterQueues.
            sees: None: no policy sees anything.
        """
        self._forget(some, specs)
        kinds = np.array(self._kinds_of(some, choices, sees), dtype=np.int64)
        placed = np.flatnonzero(kinds != _NO_FORMS)
        if len(placed) < len(some):
            some, kinds = [some[place] for place in placed.tolist()], kinds[placed]
        return self._neighbours(some, kinds) if how is JointOrder.STRICT else self._by_rank(some, kinds)

    def _kinds_of(
        self, some: Sequence[RankedWorkload], choices: Mapping[str, Sequence[Choice]], sees: Sees | None
    ) -> list[int]:
        if sees is not None:
            return [self._kind(one.head, choices[one.head.uid], sees) for one in some]
        known = self._of_head
        found = [known.get(id(one.head), _UNKNOWN) for one in some]
        if _UNKNOWN in found:
            found = [
                self._kind(one.head, choices[one.head.uid], None) if kind == _UNKNOWN else kind
                for one, kind in zip(some, found, strict=True)
            ]
        return found

    def _kind(self, head: Head, choices: Sequence[Choice], sees: Sees | None) -> int:
        """Return the kind of a workload whose entry may be of another head or other flavors."""
        assignment = next(choice.assignment for choice in choices if self._flavor in choice.requests)
        grant = assignment.places, assignment.pod_sets
        requests = assignment.places[self._flavor]
        sight = sees(head, requests) if sees is not None else ()
        entry = self._known.get(head.uid)
        if entry is not None and entry[0] is head and entry[1] == grant and entry[2] == sight:
            number = entry[3]
        else:
            self.sorted += 1
            counted = {p.name for p in assignment.pod_sets if self._unit.resource in p.flavors}
            quota = {
                pod_set.name: pod_set.quota_requests.get(self._unit.resource, 0)
                for pod_set in head.pod_sets
                if pod_set.name in counted
            }
            number = self._number(head.queue, sight, forms_of(requests, quota, self._levels, self._unit))
        if entry is not None:
            self._of_head.pop(id(entry[0]), None)
        self._known[head.uid] = head, grant, sight, number
        if sees is None and len(head.pod_sets) == 1:
            self._of_head[id(head)] = number
        return number

    def _number(self, queue: str, sight: Hashable, forms: tuple[GangShape, ...]) -> int:
        if not forms:
            return _NO_FORMS
        key = queue, sight, *(form.key() for form in forms)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._kinds)
            self._kinds.append(_Kind(queue, sight, forms))
        return number

    def _neighbours(self, some: Sequence[RankedWorkload], kinds: np.ndarray) -> list[PodClass]:
        """Return the classes of neighbours of one kind."""
        starts = np.flatnonzero(np.diff(kinds, prepend=_NO_FORMS)).tolist()
        found: list[PodClass] = []
        if not starts:
            return found
        for rank, (start, end) in enumerate(zip(starts, [*starts[1:], len(some)], strict=True), 1):
            found += self._made(int(kinds[start]), rank, some[start:end])
        return found

    def _by_rank(self, some: Sequence[RankedWorkload], kinds: np.ndarray) -> list[PodClass]:
        """Return the classes of one rank and kind, in the order of their first workloads."""
        members: dict[tuple[int, int], list[RankedWorkload]] = {}
        for one, kind in zip(some, kinds.tolist(), strict=True):
            members.setdefault((one.rank, kind), []).append(one)
        return [made for (rank, kind), of_one in members.items() for made in self._made(kind, rank, of_one)]

    def _made(self, number: int, rank: int, members: Sequence[RankedWorkload]) -> list[PodClass]:
        kind = self._kinds[number]
        return [
            PodClass(queue=kind.queue, rank=rank, form=form, members=list(members), sight=kind.sight)
            for form in kind.forms
        ]

    def _forget(self, some: Sequence[RankedWorkload], specs: Mapping[str, QueueSpec]) -> None:
        """Forget all kinds when a ClusterQueue counts other resources now, and workloads that are in no batch any more
        when they are many.
        """
        changed = any(specs.get(queue, spec) != spec for queue, spec in self._specs.items())
        if changed or len(self._kinds) > _MOST_KINDS:
            self._known, self._of_head, self._numbers, self._kinds = {}, {}, {}, []
        elif len(self._known) > 2 * len(some) + 4096:
            uids = {one.head.uid for one in some}
            self._known = {uid: entry for uid, entry in self._known.items() if uid in uids}
            heads = {id(entry[0]) for entry in self._known.values()}
            self._of_head = {head: kind for head, kind in self._of_head.items() if head in heads}
        self._specs = dict(specs)
