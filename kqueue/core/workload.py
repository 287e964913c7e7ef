"""Workloads, queues and flavors in the form of planning: frozen values, created by `kqueue/state`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from kqueue.core.assignment import TopologyAssignment
from kqueue.core.lost_work import NO_FACTS, RunFacts
from kqueue.core.node_classes import NO_CLASS_REQUEST, NO_NODE_CLASS, ClassRequest, NodeClass
from kqueue.core.quota import FlavorResource, QuotaNode, Usage
from kqueue.core.topology.capacity import Capacity
from kqueue.core.topology.request import DEFAULT_PROFILE, PodSetRequest, Profile
from kqueue.core.topology.result import DomainUsage
from kqueue.core.topology.tree import Tree
from kqueue.core.value import value
from kqueue.kube.taints import Taint, Toleration

LastTried = Mapping[tuple[str, str], int]
"""(pod set, resource) -> position in the order of tries at which the last scan ended; -1: it saw all flavors."""
_ALL_SEEN = frozenset({-1})


def has_more_flavors(last_tried: LastTried) -> bool:
    """Whether the next attempt would try flavors that this one did not reach."""
    return not _ALL_SEEN.issuperset(last_tried.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Flavor:
    """A ResourceFlavor, with the facts that decide its choice."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str | None = None
    node_class: NodeClass = NO_NODE_CLASS


class ResourceGroup(NamedTuple):
    """Resources that get one flavor together, and the flavors in the order in which they are tried.

    A tuple, because every try looks up its demand by the groups of its queue.
    """

    resources: tuple[str, ...]
    flavors: tuple[str, ...]


class Preempts(StrEnum):
    """The workloads that a ClusterQueue may preempt, by priority and age."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL = "LowerOrNewerEqualPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A ClusterQueue in the form of planning."""

    name: str
    groups: tuple[ResourceGroup, ...]
    borrow_before_next_flavor: bool = True
    """whenCanBorrow = MayStopSearch"""
    preempt_before_next_flavor: bool = False
    """whenCanPreempt = MayStopSearch"""
    prefers_preemption: bool = False
    """preference = PreemptionOverBorrowing"""
    fungible: bool = True
    """Whether the three fields above count.  If not, the flavor with the best mode is used, and each scan begins at the
    first flavor.
    """
    preempts_own: Preempts = Preempts.NEVER
    """The policy `withinClusterQueue`."""
    reclaims: Preempts = Preempts.NEVER
    """The policy `reclaimWithinCohort`.  With ANY, quota that the queue may reclaim need not be reserved for it."""
    borrow_preempts: bool = False
    """borrowWithinCohort.policy is not Never"""
    borrow_preempts_up_to: int | None = None
    """borrowWithinCohort.maxPriorityThreshold"""
    profile: Profile = DEFAULT_PROFILE

    ignores_undeclared: bool = False
    """Resources that no group lists are not counted; otherwise a workload that requests them waits."""
    minimum_runtime: int = 0
    """Seconds for which an admitted workload is safe from preemption, unless its job asks for another time."""
    longest_runtime: int | None = None
    """The most such seconds that a job may ask for; None: `minimum_runtime`."""
    most_lost: int | None = None
    """Workloads that would lose more pod-seconds are preempted after all others; None: there is no such limit."""
    plugin_profile: str = "default"
    """The profile of the configuration whose plugins judge its workloads."""
    delayed: frozenset[str] = frozenset()
    """Flavors whose domains are chosen when the admission checks are ready, because a check makes their nodes."""
    covered: frozenset[str] = field(init=False, repr=False, compare=False)
    """Resources that any group lists."""

    def __post_init__(self) -> None:
        covered = frozenset(resource for group in self.groups for resource in group.resources)
        object.__setattr__(self, "covered", covered)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """One pod set of a workload.

    `request` carries name, count, per-pod requests (cpu in milli), topology wish and node rules;
    `quota_requests` is what one pod costs in quota (differs where resources are transformed or excluded);
    `asks_topology`: the user requested a topology explicitly; `min_count`: the least number of pods for partial
    admission (None: all or nothing); `node_class`: the card types and the private group that its user names.
    """

    request: PodSetRequest
    quota_requests: Mapping[str, int]
    asks_topology: bool = False
    min_count: int | None = None
    node_class: ClassRequest = NO_CLASS_REQUEST

    @property
    def name(self) -> str:
        """The pod set's name."""
        return self.request.name


@value(kw_only=True)
class Sibling:
    """Another variant of the same parent that is admitted, or is being admitted: `key` is namespace/name.

    Args:
        is_preferred: whether its ClusterQueue prefers the sibling's flavor.
        may_leave: whether the parent may move from the sibling's flavor to the other one.
        is_assumed: whether the admission is not written yet.
    """

    key: str
    flavor: str
    is_preferred: bool
    may_leave: bool
    is_assumed: bool


@value(kw_only=True)
class Variant:
    """A head that is tried in place of its parent, in one flavor alone; `sibling` None: no sibling is admitted."""

    flavor: str
    sibling: Sibling | None = None


@value(kw_only=True)
class Head:
    """A workload that is tried.

    `algorithm` places its constrained requests; None: the algorithm of its queue.  `problem`: a mistake of its user;
    the workload is not tried while it has one.  `replaces`: the slice of its elastic job that it replaces, in the same
    ClusterQueue; None: it replaces none.
    """

    key: str
    uid: str
    queue: str
    priority: int
    timestamp: datetime
    pod_sets: tuple[PodSet, ...]
    last_tried: LastTried = field(default_factory=dict)
    algorithm: str | None = None
    problem: str = ""
    replaces: Replaced | None = None
    avoided: frozenset[str] = frozenset()
    """Hosts on which the workload failed repeatedly: they are avoided, unless it fits nowhere else."""
    closed_gates: tuple[str, ...] = ()
    """The workload's gates that forbid it to preempt."""
    never_preempts: bool = False
    """Whether its priority class never preempts."""
    plugin_problem: str = ""
    """Why a plugin gives the workload no place in the order; the workload is not tried then."""
    least: Mapping[str, int] = field(default_factory=dict)
    """Amounts by resource that must be free before the gang starts (`minResources`)."""
    extra_of: str = ""
    """The Workload (namespace/name) of the gang beyond whose quorum the workload's pod is; empty: of none."""
    variant: Variant | None = None
    """The one flavor that the workload may use; None: it may use all flavors."""
    promised: int | None = None
    """Seconds from its start after which a limit ends it; None: there is no limit."""
    guessed: int | None = None
    """Seconds within which nine of ten such workloads end; None: not known, or no ClusterQueue asks for it."""

    def of_counts(self, counts: Mapping[str, int]) -> Head:
        """Return the workload with these numbers of pods, by pod set."""
        pod_sets = (replace(p, request=replace(p.request, count=counts[p.name])) for p in self.pod_sets)
        return replace(self, pod_sets=tuple(pod_sets))

    def ends_within(self, *, guesses: bool) -> int | None:
        """Return the seconds from its start after which it has ended; None: no limit and, with `guesses`, no guess."""
        return self.guessed if self.promised is None and guesses else self.promised


@value(kw_only=True)
class PodSetAssignment:
    """The assignment of one pod set: flavor per resource, quota usage, pods, domains (None without topology).

    `delayed`: its domains are chosen when the admission checks are ready.
    """

    name: str
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    count: int
    topology: TopologyAssignment | None = None
    delayed: bool = False

    def placed(self, topology: TopologyAssignment | None) -> PodSetAssignment:
        """Return the assignment with these domains; `dataclasses.replace` takes more than twice as long."""
        return PodSetAssignment(
            name=self.name,
            flavors=self.flavors,
            usage=self.usage,
            count=self.count,
            topology=topology,
            delayed=self.delayed,
        )

    @property
    def waits_for_domains(self) -> bool:
        """Whether domains are still to be chosen."""
        return self.delayed and (self.topology is None or not self.topology.domains)


@value(kw_only=True)
class Admission:
    """The admission of a whole workload."""

    queue: str
    pod_sets: tuple[PodSetAssignment, ...]
    known_usage: InitVar[Usage | None] = None
    """The usage of all pod sets, if it is known already; None: it is summed."""
    _usage: Usage = field(init=False, repr=False, compare=False)

    def __post_init__(self, known_usage: Usage | None) -> None:
        object.__setattr__(self, "_usage", _summed(self.pod_sets) if known_usage is None else known_usage)

    def usage(self) -> Usage:
        """Return the quota usage per column, over all pod sets. Callers must not change it."""
        return self._usage


def _summed(pod_sets: Iterable[PodSetAssignment]) -> Usage:
    total: Usage = {}
    for pod_set in pod_sets:
        for resource, amount in pod_set.usage.items():
            column = FlavorResource(pod_set.flavors[resource], resource)
            total[column] = total.get(column, 0) + amount
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """The older slice of an elastic job: its holdings, and the requests of one pod of each pod set."""

    key: str
    admission: Admission
    requests: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Admitted:
    """A workload with a reservation, in the form of preemption; it may be leaving already.

    `timestamp` orders it among equals when it waits, `reserved_at` is the time of its reservation (None: not written
    yet, which counts as now), `admitted_at` the time since which it may run (None: it may not); `usage` is its quota
    usage, `domains` its usage of hosts, by topology flavor.  Pods that were assigned several flavors are counted in one
    of them: `further` has, by that flavor, their usage in the others.  `pods` is the number of its pods, `facts` what
    its user says about its run.
    """

    key: str
    uid: str
    queue: str
    local_queue: str
    priority: int
    timestamp: datetime
    reserved_at: datetime | None
    evicted: bool
    usage: Usage
    admitted_at: datetime | None = None
    domains: Mapping[str, tuple[DomainUsage, ...]] = field(default_factory=dict)
    further: Mapping[str, Mapping[str, tuple[DomainUsage, ...]]] = field(default_factory=dict)
    pods: int = 0
    facts: RunFacts = NO_FACTS

    @classmethod
    def starting(
        cls,
        head: Head,
        now: datetime,
        usage: Usage,
        domains: Mapping[str, tuple[DomainUsage, ...]],
        further: Mapping[str, Mapping[str, tuple[DomainUsage, ...]]] | None = None,
    ) -> Admitted:
        """Return a head as the workload that starts now with this usage of quota and hosts."""
        return cls(
            key=head.key,
            uid=head.uid,
            queue=head.queue,
            local_queue="",
            priority=head.priority,
            timestamp=head.timestamp,
            reserved_at=now,
            admitted_at=now,
            evicted=False,
            usage=usage,
            domains=domains,
            further=further or {},
        )

    def lost(self, now: datetime) -> int:
        """Return the pod-seconds of work that are lost when the workload stops now; 0: it does not run."""
        return self.pods * self.facts.lost(self.admitted_at, now) if self.admitted_at is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Claim:
    """The reservation for a preemptor: quota in its queue, hosts by topology flavor, and the workloads that leave for
    it.

    `victims` (uid -> its ClusterQueue and key) may have left already: only victims that still have usage count.
    `pod_sets` are the flavors and counts for which the resources are freed; `counts_on` are victims of earlier claims
    that must leave, too, before there is room; `movers` leave hosts that the claim has, and keep their quota.

    A claim with a time (`at`) is no preemptor's: its resources must be free from then on, for a workload with a planned
    start or for a Reservation.  No workload leaves for it.
    """

    key: str
    uid: str
    queue: str
    usage: Usage
    domains: Mapping[str, tuple[DomainUsage, ...]] = field(default_factory=dict)
    victims: Mapping[str, tuple[str, str]]
    pod_sets: tuple[PodSetAssignment, ...] = ()
    counts_on: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    movers: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    at: datetime | None = None
    """The time from which the resources must be free; None: as soon as the victims have left."""
    until: datetime | None = None
    """The time at which a Reservation ends; None: the claim ends when its workload starts."""
    ends: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Workloads that are taken to end before `at` (uid -> ClusterQueue and key); they are not preempted for it."""
    open_to: frozenset[str] = frozenset()
    """ClusterQueues whose workloads a claim with a time does not bind from `at` on."""
    rank: tuple[int, datetime] | None = None
    """Priority and timestamp of the workload with a planned start; None: no workload is ahead of the claim."""
    borrows: bool = False
    """Whether the planned start borrows quota."""
    guesses: bool = False
    """Whether guessed run times count as promised ones for workloads that are to end before `at`."""

    @property
    def is_timed(self) -> bool:
        """Whether the claim has a time."""
        return self.at is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damaged:
    """An admitted workload with pods on failed hosts: it keeps queue and flavors, and needs other hosts.

    `pod_sets` are its requests, `failed` the names of the hosts, `avoided` the hosts on which it failed repeatedly.
    """

    key: str
    uid: str
    admission: Admission
    pod_sets: tuple[PodSet, ...]
    failed: frozenset[str]
    avoided: frozenset[str] = frozenset()
    profile: Profile = DEFAULT_PROFILE


@value(kw_only=True)
class Leader:
    """The gang for which a flavor is kept.

    Args:
        key: the key of the gang.
        workload: namespace/name of its Workload, and `uid` the UID of that.
        queue: its ClusterQueue.
        scheduled: members of the quorum that have nodes.
        until: when the flavor is free at the latest.
    """

    key: str
    workload: str
    uid: str
    queue: str
    priority: int
    scheduled: int
    quorum: int
    until: datetime


@value(kw_only=True)
class Promise:
    """Amounts that an admitted gang may still use of its least resources, beyond its requests.

    They count for gangs with least resources alone, of the tree of `queue`; `workload` is namespace/name.
    """

    workload: str
    queue: str
    amounts: Usage


@dataclass(slots=True)
class TopologyView:
    """The domains of one flavor with their free amounts, in a cycle.  `capacity` belongs to the cycle.

    `unusable`: names of the flavor's nodes that are cordoned or not ready; they are not in the tree.
    """

    name: str
    tree: Tree
    capacity: Capacity
    unusable: tuple[str, ...] = ()


@dataclass(slots=True)
class Snapshot:
    """The state on which one cycle decides.  The cycle charges accepted entries, so later entries see the rest.

    `queues` and `nodes` have only ClusterQueues that may admit; `inactive` has the reasons of the others.
    """

    queues: Mapping[str, QueueSpec]
    nodes: Mapping[str, QuotaNode]
    flavors: Mapping[str, Flavor]
    topologies: Mapping[str, TopologyView]
    inactive: Mapping[str, str] = field(default_factory=dict)
    admitted: Mapping[str, Mapping[str, Admitted]] = field(default_factory=dict)
    """Workloads with reservations, by ClusterQueue and key, in all trees of `nodes`."""
    claims: Sequence[Claim] = ()
    """Reservations for preemptors of earlier cycles."""
    promises: Sequence[Promise] = ()
    """Amounts that admitted gangs may still use of their least resources."""
    leaders: Mapping[str, Leader] = field(default_factory=dict)
    """The gangs for which flavors without topology are kept, by flavor."""
