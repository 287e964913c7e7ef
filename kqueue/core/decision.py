"""Decisions of a plan for a workload: admit it, preempt others for it, or let it wait for a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from kqueue.core.explain import Blocker, BlockerKind, WaitReason, brief, message
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.preemption import Target
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.result import LevelQuality
from kqueue.core.value import value
from kqueue.core.workload import Admission, Claim, Head, LastTried, has_more_flavors

_QUOTA = BlockerKind.QUOTA
"""By name, because looking a member up in its class takes 0.1 us."""


class Outcome(StrEnum):
    """What became of an entry that waits; decides how it is requeued."""

    NO_FIT = "NoFit"
    """No flavor could serve it, or no domain even of an empty cluster."""
    NO_CANDIDATES = "NoCandidates"
    """It would fit if other workloads released quota or hosts, and too few of them may be preempted for it."""
    SKIPPED = "Skipped"
    """It fitted when the cycle began; an earlier entry took the room."""
    DEFERRED = "Deferred"
    """It waits for the workloads preempted for it, or for others, to release their resources."""
    YIELDS = "Yields"
    """It was preempted for a workload that is not admitted yet."""
    GATED = "Gated"
    """There are targets for preemption, and a closed gate of the workload forbids it."""
    AFTER_LOWER_SHARE = "AfterLowerShare"
    """It could preempt; a ClusterQueue with a lower share waits for its victims, and its next workload goes first."""
    HELD = "Held"
    """No workload is admitted until the pods of the workloads admitted before are ready."""
    REFUSED = "Refused"
    """Its queue may not admit now."""
    BROKEN = "Broken"
    """Planning the workload failed on a bug; the cycle continued with all others."""


class Phase(StrEnum):
    """Phases of a cycle.  The value is the phase's name in metrics."""

    SNAPSHOT = "snapshot"
    """Take the snapshot, and replace failed hosts."""
    NOMINATE = "nominate"
    ORDER = "order"
    PROCESS = "process"
    APPLY = "apply"
    """Charge decisions to the cache, and begin to write them."""


class Retargeted(StrEnum):
    """Result of a second look at a preemptor whose targets earlier entries of the cycle had taken in part."""

    NEW_TARGETS = "new_targets"
    """It has other targets."""
    DEFERRED_FIT = "deferred_fit"
    """It fits when the workloads preempted for those entries have left."""
    SKIPPED = "skipped"
    """No target is left for it."""


@value()
class PlacementQuality:
    """Quality of the domains that a search has found.

    Args:
        algorithm: what served the request.
        proven: with `optimal`, whether no placement is better; None: nobody asked.
        levels: domains used against the fewest possible, widest level first.
    """

    algorithm: str
    proven: bool | None
    levels: tuple[LevelQuality, ...]


@value(kw_only=True)
class Admit:
    """Start this workload: what to write and what to charge."""

    head: Head
    admission: Admission
    quality: tuple[PlacementQuality, ...] = ()
    """One per search, so one for a leader and its workers.  What was taken over from another workload has none."""


@value(kw_only=True)
class Wait:
    """Not now, and why.  `last_tried` is where the next attempt's flavor scan goes on."""

    head: Head
    outcome: Outcome
    reason: WaitReason
    blockers: tuple[Blocker, ...]
    last_tried: LastTried = field(default_factory=dict)
    error: Exception | None = None
    """The bug, for BROKEN."""
    is_robbed: bool = False
    """It had found whom to preempt, and earlier entries took them, or what they would have left."""
    retargeted: Retargeted | None = None
    retry_at: datetime | None = None
    """When a workload that it may not preempt yet may be preempted; None: there is no such workload."""

    @property
    def has_more_flavors(self) -> bool:
        """Whether the next attempt would look at flavors that this one did not reach."""
        return has_more_flavors(self.last_tried)

    @property
    def lacks(self) -> tuple[tuple[FlavorResource, int], ...]:
        """What is asked of each column of quota that has not enough free; empty: no quota is missing."""
        short = [b for b in self.blockers if b.kind is _QUOTA]
        return tuple([(FlavorResource(b.flavor, b.resource), b.asked) for b in short])

    @property
    def message(self) -> str:
        """The root cause in one sentence, for those who read the workload."""
        return brief(self.blockers, readers_of(self.head.key))

    @property
    def details(self) -> str:
        """All blockers as sentences."""
        return message(self.blockers, readers_of(self.head.key))


@value(kw_only=True)
class Preempt:
    """Make these workloads leave for this one.  `claim` is what is kept for it from here on."""

    head: Head
    targets: tuple[Target, ...]
    claim: Claim
    retargeted: Retargeted | None = None

    @property
    def message(self) -> str:
        """What it waits for, as a sentence for those who read the workload."""
        going = [Mention(target.admitted.key, target.admitted.queue) for target in self.targets]
        shown = mentioned(going, readers_of(self.head.key), most=2)
        return f"Preempting {len(going)} workload{'s' if len(going) != 1 else ''} to make room: {shown}"


Decision = Admit | Preempt | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLooks:
    """Who is nominated once more in the cycle in which earlier entries took something of it; others are skipped.

    `for_targets`: some of those it was to preempt.  `for_domains`: its domains, while its quota is left.
    """

    for_targets: bool = True
    for_domains: bool = True


ALL_LOOKS = SecondLooks()
