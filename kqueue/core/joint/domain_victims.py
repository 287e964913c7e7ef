"""The cheapest victims for a gang that needs one domain: by units, domain by domain, without a flow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kqueue.core.charging import own_domains
from kqueue.core.joint.classes import ClassInput, classes_of
from kqueue.core.joint.covers import cheapest_covers
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import World
from kqueue.core.topology.tree import Ints
from kqueue.core.workload import Admitted

_Inside = dict[int, dict[str, int]]
"""By domain of a level, the units of running workloads there, by UID."""


class DomainVictims:
    """The running workloads of one flavor by domain.

    Only units of the flavor are counted, so the victims that are found need not suffice: a search for targets says it.
    """

    def __init__(self, world: World, running: Mapping[str, Admitted], flavor: str, unit: Unit) -> None:
        """Take the world without the running workloads, and these by UID."""
        self._view, self._running, self._flavor, self._unit = world.snapshot.topologies[flavor], running, flavor, unit
        self._topologies = world.snapshot.topologies
        self._levels: dict[int, tuple[Ints, _Inside]] = {}

    def cheapest(self, given: ClassInput, allowed: Mapping[str, Admitted], lost: Mapping[str, int]) -> frozenset[str]:
        """Return the UIDs of the workloads that lose least if a gang starts in any one domain.

        Allowed workloads of low priority come first, whatever they lose.  Empty: the gang needs no
        one domain, or no domain can be freed.

        Args:
            given: the gang.
            allowed: the workloads that may leave for it, by UID.
            lost: points by UID.
        """
        classes = classes_of([given], self._view.tree.levels, self._unit, JointOrder.STRICT)
        if len(classes) != 1 or not classes[0].form.required:
            return frozenset()
        form = classes[0].form
        free, inside = self._level(form.level)
        costs = _costs(allowed, inside.values(), lost)
        best: tuple[int, tuple[str, ...]] | None = None
        for domain, there in sorted(inside.items()):
            missing = form.units - (int(free[domain]) - sum(there.values()))
            able = sorted(uid for uid in there if uid in allowed)
            if missing <= 0 or sum(there[uid] for uid in able) < missing:
                continue
            sets = cheapest_covers([there[uid] for uid in able], [costs[uid] for uid in able], missing)
            for chosen in sets[:1]:
                uids = tuple([able[number] for number in chosen])
                found = sum(costs[uid] for uid in uids), uids
                best = found if best is None or found < best else best
        return frozenset(best[1]) if best is not None else frozenset()

    def _level(self, level: int) -> tuple[Ints, _Inside]:
        """Return the free units of each domain of a level once all running workloads have left, and their own."""
        known = self._levels.get(level)
        if known is None:
            tree, row = self._view.tree, self._view.capacity.row(self._unit.resource)
            units = row.clip(0) // self._unit.size if row is not None else tree.nothing(tree.lowest)
            free = np.add.reduceat(units, tree.first_leaf[level]) if len(units) else units
            known = self._levels[level] = free, self._inside(level)
        return known

    def _inside(self, level: int) -> _Inside:
        tree, found = self._view.tree, _Inside()
        domain_of = tree.domain_of(level)
        for uid, workload in self._running.items():
            for usage in dict(own_domains(workload, self._topologies)).get(self._flavor, ()):
                leaf = tree.leaf_of(usage.values)
                units = usage.requests.get(self._unit.resource, 0) // self._unit.size * usage.count
                if leaf is not None and units:
                    there = found.setdefault(int(domain_of[leaf]), {})
                    there[uid] = there.get(uid, 0) + units
        return found


def _costs(
    allowed: Mapping[str, Admitted], inside: Iterable[Mapping[str, int]], lost: Mapping[str, int]
) -> dict[str, int]:
    """Return the cost of each workload that may leave, by UID.

    A unit of a higher priority costs more than all units of lower ones, and a unit above the lowest priority more than
    all lost work.
    """
    units: dict[str, int] = {}
    for there in inside:
        for uid, number in there.items():
            if uid in allowed:
                units[uid] = units.get(uid, 0) + number
    levels = sorted({allowed[uid].priority for uid in units})
    every, points = 1 + sum(units.values()), 1 + sum(lost[uid] for uid in units)
    above = {priority: points * every**number for number, priority in enumerate(levels[1:])}
    return {uid: lost[uid] + number * above.get(allowed[uid].priority, 0) for uid, number in units.items()}
