"""Values of gangs: names and keys, the wish of a dialect, and what kqueue knows and counts of a gang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.pod_view import ManagedPod


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class GangRef:
    """The identity of a gang."""

    framework: str
    namespace: str
    name: str

    @classmethod
    def of_key(cls, key: str) -> GangRef:
        """Return the gang of a key of `gang_key`."""
        namespace, _, rest = key.partition("/")
        framework, colon, name = rest.partition(":")
        if not colon:
            return cls(framework=KUEUE_GROUPS, namespace=namespace, name=rest)
        return cls(framework=framework, namespace=namespace, name=name)

    @property
    def key(self) -> str:
        """Return the key of `gang_key`."""
        return gang_key(self.framework, self.namespace, self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMembership:
    """The gang that a pod names."""

    framework: str
    name: str
    """The group's name within the pod's namespace; never empty."""
    role: str = ""
    """The role that the dialect names; empty: pods of one shape form a role."""
    rank: str = ""
    """The rank in the gang by marks of the dialect, a number from 0 as text; empty: it has no such marks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangRole:
    """The properties of one role according to a dialect."""

    name: str
    minimum: int = 0
    """Members of the role among the members that start first."""
    desired: int | None = None
    """Members of the role in the end; None: the dialect does not say."""
    template: Mapping[str, Any] | None = None
    """Pod template; None: that of the oldest member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangDeadline:
    """The time in which the quorum has to be scheduled."""

    seconds: float
    since: Literal["admission", "creation"] = "admission"
    """Whether it begins with the admission of the Workload, or with the creation of the group object."""
    then: Literal["retry", "fail"] = "retry"
    """Whether the gang is queued again afterwards, or has failed."""


@dataclass(frozen=True, slots=True)
class GroupProblem:
    """The reason why a group gets no Workload now.  `pod` is the member that causes it; None: the group as a whole."""

    message: str
    pod: ManagedPod | None = None
    incomplete: bool = False
    """Whether the group only lacks members that may still be created."""


@dataclass(frozen=True, slots=True)
class GangNotice:
    """A contradiction in a gang that does not hold it up; `pod` is the member that has it."""

    message: str
    pod: ManagedPod
    reason: str = "MembersDiffer"
    """Reason of the event that reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSpec:
    """The wish of a dialect for one gang.

    Raises:
        ValueError: the quorum is not positive, or the minima of the roles exceed it (a bug of the dialect).
    """

    quorum: int
    """The least number of members that start, together; the Workload counts as many."""
    desired: int | None = None
    """Members in the end; None: the dialect does not say."""
    roles: tuple[GangRole, ...] = ()
    """Roles with a rule of their own."""
    least: Mapping[str, str] = field(default_factory=dict)
    """Resources to quantities that have to be free before the gang starts (`minResources`)."""
    deadline: GangDeadline | None = None
    """None: no deadline."""
    queue: str = ""
    """LocalQueue of the group object, for members that name none."""
    priority_class: str = ""
    """WorkloadPriorityClass of the group object; empty: the oldest member decides."""
    pod_priority_class: str = ""
    """PriorityClass of the group object, which counts before those of the members."""
    topology: Mapping[str, str] = field(default_factory=dict)
    """Topology annotations of the group object."""
    limit: int | None = None
    """Maximum execution time of the group object in seconds; None: that of the oldest member."""
    fast: bool = False
    """Whether the gang is queued as soon as one member exists."""
    serving: bool = False
    """Whether the gang never finishes."""
    ends: Mapping[str, Any] | None = None
    """Policy by which the gang ends; None: when all members have succeeded."""
    quorum_field: str = ""
    """The field with the quorum, for messages."""
    notices: tuple[GangNotice, ...] = ()

    def __post_init__(self) -> None:
        needed = sum(role.minimum for role in self.roles)
        if self.quorum < 1 or needed > self.quorum:
            raise ValueError(f"the quorum is {self.quorum}, and the roles need {needed} members together")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCounts:
    """Numbers of members by state; a member may be in several states."""

    present: int = 0
    """Neither failed nor deleted before it was bound."""
    released: int = 0
    """Present, without gates of kqueue."""
    scheduled: int = 0
    """Present and bound to a node, or succeeded."""
    running: int = 0
    """Phase Running, not being deleted."""
    succeeded: int = 0
    failed: int = 0
    unschedulable: int = 0
    """Present, released and reported as unschedulable by the scheduler."""


NO_MEMBERS = MemberCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The record of a gang: its wish, and the members that represent it."""

    ref: GangRef
    uid: str
    """UID of the group object; without one, of the first member that was seen."""
    since: datetime
    """Creation of the group object; without one, of the first member that was seen."""
    wish: GangSpec | None
    """None: the dialect finds a contradiction, which `problem` has."""
    members: tuple[ManagedPod, ...]
    """All members, oldest first; of a huge gang those that kqueue looks at."""
    base: tuple[ManagedPod, ...]
    """Members that the Workload counts."""
    extras: tuple[ManagedPod, ...] = ()
    """Members beyond the base, which are queued alone."""
    absent: Mapping[str, int] = field(default_factory=dict)
    """Members that the base lacks, by role."""
    owner: Mapping[str, Any] | None = None
    """Owner reference of the group object; None: the members own the Workload."""
    quorum: int = 0
    """Members of the base, as the Workload counts them while it holds quota, else as wished; 0: not known."""
    is_admitted: bool = False
    """Whether the Workload holds quota, so that its counts fix the base."""
    problem: GroupProblem | None = None
    """Why the members make no Workload: a contradiction, or what they lack; None: they are complete."""
    priority: int | None = None
    """The lowest `spec.priority` of present members; None: no member has one."""
    unseen: MemberCounts = NO_MEMBERS
    """Numbers of the members of a huge gang that kqueue does not look at yet."""


class GangPhase(StrEnum):
    """The phase of a gang, as the status of a group object has it."""

    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    FAILED = "Failed"
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class GangCounts(MemberCounts):
    """The state of a gang in numbers, with its phase."""

    by_role: Mapping[str, MemberCounts] = field(default_factory=dict)
    phase: GangPhase = GangPhase.PENDING
    reason: str = ""
    """Why the gang waits, or was last stopped, as the condition of its Workload has it; empty: neither."""
    message: str = ""
    """The sentence of the same condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangState:
    """All that the status of a group object depends on."""

    gang: Gang
    counts: GangCounts
    workload: Mapping[str, Any] | None
    """The Workload as JSON; None: it does not exist."""
    status: Mapping[str, Any]
    """The status that the group object has now."""
    has_room: bool = False
    """Whether a group without pods may say that there is room for them; False for all others, and where nobody asks."""
    occupant: str
    """UID of the object whose pods are the members; empty: no object, or the dialect does not guard it."""
    now: datetime
