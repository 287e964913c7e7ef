"""The quality of a placement: the number of domains that it uses, against the smallest possible number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from kqueue.core.topology.counting import Tally
from kqueue.core.topology.request import Resolved
from kqueue.core.topology.result import LevelQuality
from kqueue.core.topology.tree import Ints, Tree

_NO_LEADER = -1


def quality_of(
    tree: Tree, counts: Tally, resolved: Resolved, leaves: Sequence[int], leader_leaf: int
) -> tuple[LevelQuality, ...]:
    """Return the domains used per level, and the smallest number of domains whose capacities sum to the need."""
    used_leaves = sorted({*leaves, *([leader_leaf] if leader_leaf != _NO_LEADER else [])})
    if len(used_leaves) == 1:
        return _one_of_each(tree.levels)
    result = []
    for level, label in enumerate(tree.levels):
        in_slices = level <= resolved.slice_level
        room = counts.slices[level] if in_slices else counts.pods[level]
        need = resolved.need if in_slices else resolved.need * resolved.slice_size
        used = len(set(tree.domain_of(level)[used_leaves].tolist()))
        result.append(LevelQuality(label, used, fewest_domains(room, need) if used > 1 else 1))
    return tuple(result)


@lru_cache(maxsize=256)
def _one_of_each(levels: tuple[str, ...]) -> tuple[LevelQuality, ...]:
    """Return the quality of a placement on one leaf."""
    return tuple(LevelQuality(level, 1, 1) for level in levels)


def fewest_domains(room: Ints, need: int) -> int:
    """Return the smallest number of domains whose rooms sum to the need; one more than there are, if none do."""
    largest = int(np.maximum.reduce(room))
    if largest > 0:
        at_least = -(-need // largest)
        if at_least == 1 or np.count_nonzero(room == largest) >= at_least:
            return at_least  # most clusters return here, without a sort
    return int(np.sort(room)[::-1].cumsum().searchsorted(need)) + 1
