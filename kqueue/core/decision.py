"""Decisions of a plan for a workload: admit it, preempt other workloads for it, or let it wait for a reason."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from kqueue.core.explain import Blocker, BlockerKind, WaitReason, brief, message
from kqueue.core.mention import Mention, mentioned, readers_of
from kqueue.core.preemption import Target
from kqueue.core.quota import FlavorResource
from kqueue.core.topology.result import LevelQuality
from kqueue.core.value import value
from kqueue.core.workload import Admission, Claim, Head, LastTried, Leader, Promise, has_more_flavors

_QUOTA = BlockerKind.QUOTA
"""A constant, because an attribute lookup in an enum takes 0.1 us."""


class Outcome(StrEnum):
    """The reasons why an entry waits.  The outcome decides how the workload is requeued."""

    NO_FIT = "NoFit"
    """No flavor can serve the workload, or not even an empty cluster has a domain for it."""
    NO_CANDIDATES = "NoCandidates"
    """The workload would fit after preemption, but too few workloads may be preempted for it."""
    SKIPPED = "Skipped"
    """The workload fitted when the cycle began, but an earlier entry took its resources."""
    DEFERRED = "Deferred"
    """The workload waits until workloads that were preempted for it, or for other workloads, release their
    resources.
    """
    YIELDS = "Yields"
    """The workload was preempted for another workload that is not admitted yet."""
    GATED = "Gated"
    """There are targets for preemption, but a closed gate of the workload forbids preemption."""
    AFTER_LOWER_SHARE = "AfterLowerShare"
    """The workload could preempt, but the next workload of a ClusterQueue with a lower share goes first."""
    HELD = "Held"
    """No workload is admitted until the pods of the workloads admitted before are ready."""
    LEADER = "Leader"
    """A flavor of the workload is kept for a gang that is closer to its quorum."""
    LEAST = "Least"
    """Less is free than the gang's `minResources`."""
    LOCALITY = "Locality"
    """The workload waits for a better place than those that are free."""
    PLANNED = "Planned"
    """Room is kept for a workload with a planned start, or for a Reservation."""
    SIBLING = "Sibling"
    """Another variant of the same parent is admitted, and the parent does not move to this one's flavor."""
    REFUSED = "Refused"
    """The ClusterQueue is inactive now."""
    PLUGIN = "Plugin"
    """A plugin refused the workload, or failed."""
    BROKEN = "Broken"
    """Planning the workload failed on a bug; the cycle continued with all other workloads."""


KEEPS_CLAIM = frozenset({Outcome.DEFERRED, Outcome.SKIPPED, Outcome.HELD, Outcome.LEADER})
"""Outcomes after which a preemptor keeps its claim."""


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
    """The second nomination found other targets."""
    DEFERRED_FIT = "deferred_fit"
    """The entry fits after the workloads that were preempted for earlier entries have left."""
    SKIPPED = "skipped"
    """No target is left for the workload."""


@value()
class PlacementQuality:
    """Quality of the domains that a search has found.

    Args:
        algorithm: the algorithm that placed the request.
        proven: with `optimal`, whether no placement is better; None with other algorithms.
        levels: domains used against the fewest possible, widest level first.
    """

    algorithm: str
    proven: bool | None
    levels: tuple[LevelQuality, ...]


@value(kw_only=True)
class Admit:
    """Admit this workload: the assignment to write and to charge."""

    head: Head
    admission: Admission
    quality: tuple[PlacementQuality, ...] = ()
    """One per search, so one for a leader and its workers.  Domains of an older slice have no quality."""
    made_way: tuple[Leader, ...] = ()
    """Gangs of lower priority that are evicted, because flavors were kept for them."""
    promise: Promise | None = None
    """Amounts of its least resources that the gang may still use; None: it has none."""
    plan: str = ""
    """The name of the joint plan that proposed flavors and domains; empty: none did."""
    joins: tuple[str, ...] = ()
    """UIDs of claims with a time: the workload uses their room, and ends before."""
    takes: tuple[str, ...] = ()
    """UIDs of claims with a time whose room the workload takes for good, because they do not bind it."""


@value(kw_only=True)
class Wait:
    """The workload waits; `blockers` are the reasons.  `last_tried` is the position where the flavor scan of the next
    try continues.
    """

    head: Head
    outcome: Outcome
    reason: WaitReason
    blockers: tuple[Blocker, ...]
    last_tried: LastTried = field(default_factory=dict)
    error: Exception | None = None
    """The bug, for the outcome BROKEN."""
    is_robbed: bool = False
    """Whether earlier entries took the targets that were found for it, or the resources of these targets."""
    retargeted: Retargeted | None = None
    retry_at: datetime | None = None
    """The time from which a workload that is protected now may be preempted for it; None: no workload is protected."""

    @property
    def has_more_flavors(self) -> bool:
        """Whether the next attempt would try flavors that this one did not reach."""
        return has_more_flavors(self.last_tried)

    @property
    def lacks(self) -> tuple[tuple[FlavorResource, int], ...]:
        """Return the request for each column of quota with too little free; empty: no quota is missing."""
        short = [b for b in self.blockers if b.kind is _QUOTA]
        return tuple([(FlavorResource(b.flavor, b.resource), b.asked) for b in short])

    @property
    def message(self) -> str:
        """Return the root cause as one sentence, for readers of the workload."""
        return brief(self.blockers, readers_of(self.head.key))

    @property
    def details(self) -> str:
        """Return all blockers as sentences."""
        return message(self.blockers, readers_of(self.head.key))


def refused_by_plugin(head: Head, sentence: str) -> Wait:
    """Return the decision for a workload that a plugin refused, or failed on."""
    blocker = Blocker(kind=BlockerKind.PLUGIN, detail=sentence)
    return Wait(head=head, outcome=Outcome.PLUGIN, reason=WaitReason.ADMISSION_GATED, blockers=(blocker,))


def waits_for_place(head: Head, until: datetime | None) -> Wait:
    """Return the decision for a workload that waits for a better place, until the next one opens (None: none does)."""
    detail = f"{until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if until is not None else ""
    blocker = Blocker(kind=BlockerKind.LOCALITY, detail=detail)
    reason = WaitReason.WAITING_FOR_LOCALITY
    return Wait(head=head, outcome=Outcome.LOCALITY, reason=reason, blockers=(blocker,), retry_at=until)


@value(kw_only=True)
class Preempt:
    """Preempt these workloads for this one.  `claim` reserves the freed resources for it."""

    head: Head
    targets: tuple[Target, ...]
    claim: Claim
    retargeted: Retargeted | None = None
    plan: str = ""
    """The name of the joint plan that proposed the targets, because less work is lost with them; empty: none did."""

    @property
    def message(self) -> str:
        """Return the reason for waiting as a sentence, for readers of the workload."""
        going = [Mention(target.admitted.key, target.admitted.queue) for target in self.targets]
        shown = mentioned(going, readers_of(self.head.key), most=2)
        by_plan = f", which lose less work than others ({self.plan})" if self.plan else ""
        return f"Preempting {len(going)} workload{'s' if len(going) != 1 else ''} to make room: {shown}{by_plan}"


Decision = Admit | Preempt | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondLooks:
    """Which entries are nominated a second time after earlier entries took their resources; others are skipped.

    `for_targets`: entries that lost targets of preemption.  `for_domains`: entries that lost domains, but no quota.
    """

    for_targets: bool = True
    for_domains: bool = True


ALL_LOOKS = SecondLooks()
