"""Memory of a workload's scan of flavors: where the next try continues, and how long the memory is valid.

A scan that stopped at a flavor, for a place or a victim that it then did not get there, continues behind that flavor.
This is useful as long as no quota has been released since: then the earlier flavors may serve again.

Source: the compatible system's scan of flavors (KEP-582, and observed behaviour).
"""

from __future__ import annotations

from dataclasses import dataclass

from kqueue.core.decision import Outcome, Wait
from kqueue.core.value import value
from kqueue.core.workload import LastTried

_NOT_LOOKED = frozenset(
    {
        Outcome.HELD,
        Outcome.LEADER,
        Outcome.LEAST,
        Outcome.LOCALITY,
        Outcome.PLANNED,
        Outcome.YIELDS,
        Outcome.REFUSED,
        Outcome.BROKEN,
    }
)
"""Outcomes that do not depend on flavors: the next try begins at the same flavor as this one."""
_BEGINS_ANEW = frozenset({Outcome.DEFERRED, Outcome.GATED, Outcome.AFTER_LOWER_SHARE})
"""Outcomes after which the state of earlier flavors has changed."""

Place = frozenset[tuple[tuple[str, str], int]]
"""The end of a scan: pod set and resource, with the index of the flavor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRules:
    """The cases in which the end of a scan is remembered.

    Args:
        keeps_progress: it is kept when the workload is updated without a change of its requests, when quota was
            released before the next cycle, and when another workload took the resources.
        by_shape: equal requests can be recognised by their shape.
    """

    keeps_progress: bool = True
    by_shape: bool = True


DEFAULT_SCAN = ScanRules()


@value(kw_only=True)
class Attempt:
    """The state on which a try is made.

    Args:
        uid: of the workload.
        queue: its ClusterQueue.
        shape: equal while the workload has the same requests.
        version: equal while the workload has no change that matters for a try.
        generation: rises when a workload leaves its ClusterQueue, and when quota of its tree is changed.
        cycle: number of the cycle.
    """

    uid: str
    queue: str
    shape: str
    version: str
    generation: int
    cycle: int


@value()
class ScanMemory:
    """The end of a scan, and the state of its try.  `been`: the ends of the scans that it continued."""

    attempt: Attempt
    last_tried: LastTried
    been: frozenset[Place] = frozenset()

    def is_outdated(self, now: Attempt, rules: ScanRules = DEFAULT_SCAN) -> bool:
        """Whether a try on the state `now` begins at the first flavor nevertheless."""
        then = self.attempt
        if (then.uid, then.queue) != (now.uid, now.queue):
            return True
        if rules.keeps_progress:
            if rules.by_shape and then.shape != now.shape:
                return True
            if then.cycle >= now.cycle - 1:
                return False
        elif then.version != now.version:
            return True
        return then.generation < now.generation


def remembered(
    wait: Wait, attempt: Attempt, before: ScanMemory | None, rules: ScanRules = DEFAULT_SCAN
) -> ScanMemory | None:
    """Return the memory after a try; None: there is none, so the next scan begins at the first flavor.

    `before`: the memory that the try used; None: it used none.
    """
    if wait.outcome in _NOT_LOOKED:
        return before
    if wait.outcome in _BEGINS_ANEW or (wait.outcome is Outcome.SKIPPED and not rules.keeps_progress):
        return None
    if not wait.has_more_flavors or is_round(wait, before):
        return None
    return ScanMemory(attempt, wait.last_tried, _been(before))


def is_round(wait: Wait, before: ScanMemory | None) -> bool:
    """Whether a scan ended where an earlier one of the series ended, so that all flavors on the way have been tried.

    The scan of one pod set ends by itself.  The scans of several pod sets advance together: a scan that has reached its
    last flavor begins again while another one has more flavors; a failed scan begins again, too.
    """
    return before is not None and _place(wait.last_tried) in _been(before)


def _been(before: ScanMemory | None) -> frozenset[Place]:
    """Return the ends of all scans since the last one that began at the first flavor."""
    if before is None or all(index == -1 for index in before.last_tried.values()):
        return frozenset()
    return before.been | {_place(before.last_tried)}


def _place(last_tried: LastTried) -> Place:
    return frozenset(last_tried.items())
