"""One scheduling cycle: nominate every head, order the nominees, accept one after the other on the snapshot.

    nominate    flavors by quota, then domains by topology, each head against the untouched snapshot
    order       less borrowing first, then higher priority, then older
    process     accepted entries are charged to the snapshot, so the next one sees what is left; an entry whose
                domains were taken in this cycle is placed once more in the flavors it was nominated for

Before the heads come admitted workloads that lost hosts (`mend`): they hold their quota, and need only other domains.

Source: the compatible system's scheduling cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kqueue.core import flavors, quota
from kqueue.core.charging import charge_domains
from kqueue.core.explain import Blocker, BlockerKind, WaitReason, message
from kqueue.core.flavors import Assignment, Mode
from kqueue.core.slices import Removal, added_pods, added_quota, flavors_to_keep, places_to_keep, without_older
from kqueue.core.topology.assignment import TopologyAssignment
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.replacement import Replacement, repair, stands_on
from kqueue.core.topology.request import Algorithm, PodSetRequest, Profile, algorithm_for
from kqueue.core.topology.result import DomainUsage, LevelQuality, Misfit, MisfitCode, Placement, usage_of
from kqueue.core.workload import (
    Admission,
    Damaged,
    Head,
    LastTried,
    PodSetAssignment,
    Preempts,
    Snapshot,
)


class Outcome(StrEnum):
    """What became of an entry that waits; decides how it is requeued."""

    NO_FIT = "NoFit"
    """No flavor could serve it, or no domain even of an empty cluster."""
    NO_CANDIDATES = "NoCandidates"
    """It would fit if others gave back what they use."""
    SKIPPED = "Skipped"
    """It fitted when the cycle began; an earlier entry took the room."""
    REFUSED = "Refused"
    """Its queue may not admit now."""
    BROKEN = "Broken"
    """Planning it failed on a bug; the others of the cycle went on."""


@dataclass(frozen=True, slots=True)
class PlacementQuality:
    """How good the domains are that a search has found.

    Args:
        algorithm: what served the request.
        proven: with `optimal`, whether no placement is better; None: nobody asked.
        levels: domains used against the fewest possible, widest level first.
    """

    algorithm: Algorithm
    proven: bool | None
    levels: tuple[LevelQuality, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Start this workload: what to write and what to charge."""

    head: Head
    admission: Admission
    quality: tuple[PlacementQuality, ...] = ()
    """One per search, so one for a leader and its workers.  What was taken over from another workload has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Not now, and why.  `last_tried` is where the next attempt's flavor scan goes on."""

    head: Head
    outcome: Outcome
    reason: WaitReason
    blockers: tuple[Blocker, ...]
    last_tried: LastTried = field(default_factory=dict)
    error: Exception | None = None
    """The bug, for BROKEN."""

    @property
    def has_more_flavors(self) -> bool:
        """Whether the next attempt would look at flavors that this one did not reach."""
        return any(index != -1 for index in self.last_tried.values())

    @property
    def message(self) -> str:
        """All blockers as sentences."""
        return message(self.blockers)


Decision = Admit | Wait


@dataclass(frozen=True, slots=True)
class Mended:
    """New assignments for the pod sets of a damaged workload that lost hosts; the others keep theirs."""

    damaged: Damaged
    assignments: Mapping[str, TopologyAssignment]
    stays: str = ""
    """Why pods stay on hosts on which they failed repeatedly; empty when they do not."""


@dataclass(frozen=True, slots=True)
class Unmended:
    """Why the pods of failed hosts find no place."""

    damaged: Damaged
    blockers: tuple[Blocker, ...]

    @property
    def may_pass(self) -> bool:
        """All that stands in the way is that another of its hosts is out of use and not known to have failed (yet)."""
        return all(b.misfit is not None and b.misfit.code is MisfitCode.STALE_ASSIGNMENT for b in self.blockers)

    @property
    def message(self) -> str:
        """All blockers as sentences."""
        return message(self.blockers)


@dataclass(slots=True)
class _Entry:
    """A nominated head."""

    head: Head
    assignment: Assignment
    profile: Profile
    placement: dict[str, Placement] = field(default_factory=dict)
    """Per flavor.  For an entry that waits: where it would go on an empty cluster."""
    may_avoid: bool = True
    """It may still fit without the hosts on which it failed repeatedly."""


def plan(snapshot: Snapshot, heads: Sequence[Head]) -> Iterator[Decision]:
    """Decide every head, in the order in which they are processed.

    The snapshot is charged as decisions are yielded; between two of them the caller may give the loop back.
    Every head gets exactly one decision.
    """
    entries: list[_Entry] = []
    for head in heads:
        if head.queue not in snapshot.queues:
            yield _refusal(head, snapshot)
            continue
        if head.problem:
            yield _mistaken(head)
            continue
        try:
            entries.append(_nominate(head, snapshot))
        except Exception as e:  # noqa: BLE001 - the boundary that keeps one workload from stopping the others
            yield _broken(head, e)
    for entry in sorted(entries, key=_order):
        try:
            decision = _process(entry, snapshot)
        except Exception as e:  # noqa: BLE001 - as above
            decision = _broken(entry.head, e)
        yield decision


def _broken(head: Head, error: Exception) -> Wait:
    blocker = Blocker(
        kind=BlockerKind.REQUESTS,
        detail=f"planning this workload failed on a bug in kqueue ({type(error).__name__}: {error}); please report it",
    )
    return Wait(
        head=head,
        outcome=Outcome.BROKEN,
        reason=WaitReason.PENDING_EVALUATION,
        blockers=(blocker,),
        error=error,
    )


def _refusal(head: Head, snapshot: Snapshot) -> Wait:
    why = snapshot.inactive.get(head.queue)
    if why is None:
        blocker = Blocker(kind=BlockerKind.QUEUE, detail=f"ClusterQueue {head.queue} does not exist; create it")
        return Wait(head=head, outcome=Outcome.REFUSED, reason=WaitReason.MISCONFIGURED, blockers=(blocker,))
    blocker = Blocker(kind=BlockerKind.QUEUE, detail=f"ClusterQueue {head.queue} is not active: {why}")
    return Wait(head=head, outcome=Outcome.REFUSED, reason=WaitReason.SUSPENDED, blockers=(blocker,))


def _mistaken(head: Head) -> Wait:
    blocker = Blocker(kind=BlockerKind.REQUESTS, detail=head.problem)
    return Wait(head=head, outcome=Outcome.NO_FIT, reason=WaitReason.MISCONFIGURED, blockers=(blocker,))


def _order(entry: _Entry) -> tuple[int, int, float, str]:
    head = entry.head
    return (entry.assignment.level, -head.priority, head.timestamp.timestamp(), head.uid)


def mend(snapshot: Snapshot, damaged: Damaged) -> Mended | Unmended:
    """Find other hosts for the pods of failed ones, in the flavors that the workload has.  Nobody is preempted for it.

    What is found is charged to the snapshot.  What the failed hosts held stays charged: they are of no use.  Hosts on
    which the workload failed repeatedly are avoided; where that leaves no place they do, and pods stay on them.
    """
    found = _mend(snapshot, damaged, damaged.failed, avoided=damaged.avoided)
    if isinstance(found, Mended) or not damaged.avoided:
        return found
    stay = _may_stay(damaged, snapshot)
    least = _mend(snapshot, damaged, damaged.failed - stay, avoided=frozenset())
    if isinstance(least, Unmended) or not stay:
        return least
    hosts = ", ".join(sorted(stay))
    return replace(least, stays=f"Pods stay on {hosts}, where they failed repeatedly: {found.message}")


def _may_stay(damaged: Damaged, snapshot: Snapshot) -> frozenset[str]:
    """Failed hosts that have failed for this workload only, and still accept its pods."""
    requests = {pod_set.name: pod_set.request for pod_set in damaged.pod_sets}
    stay = damaged.failed & damaged.avoided
    for held in damaged.admission.pod_sets:
        view = next((snapshot.topologies[f] for f in held.flavors.values() if f in snapshot.topologies), None)
        for host in [host for host in stay if held.topology is not None and stands_on(held.topology, (host,))]:
            leaf = view.tree.leaf_of((host,)) if view is not None else None
            mask = view.tree.eligible(requests[held.name].rules).mask if view is not None else None
            if leaf is None or (mask is not None and not mask[leaf]):
                stay -= {host}
    return stay


def _mend(
    snapshot: Snapshot, damaged: Damaged, failed: frozenset[str], *, avoided: frozenset[str]
) -> Mended | Unmended:
    found: dict[str, tuple[Replacement, ...]] = {}
    blockers: list[Blocker] = []
    on_hosts: list[DomainUsage] = []
    for flavor, pod_sets in sorted(_held_by_flavor(damaged, failed, avoided, snapshot).items()):
        view = snapshot.topologies.get(flavor)
        if view is None:
            gone = f"the nodes of flavor {flavor} are not known any more, it or its Topology is gone"
            blockers.append(Blocker(kind=BlockerKind.TOPOLOGY, flavor=flavor, detail=gone))
            continue
        capacity = view.capacity
        with capacity.trial():
            capacity.charge(on_hosts)  # a flavor with failed hosts has hosts as leaves, as those before it
            answer = repair(capacity, pod_sets, failed, profile=damaged.profile)
        if isinstance(answer, Misfit):
            blockers.append(_topology_blocker(flavor, answer))
            continue
        found[flavor] = answer
        on_hosts += usage_of(Placement(tuple(replacement.added for replacement in answer)))
    if blockers:
        return Unmended(damaged, tuple(blockers))
    for flavor, replacements in found.items():
        added = Placement(tuple(replacement.added for replacement in replacements))
        charge_domains(flavor, usage_of(added), snapshot.topologies)
    whole = {r.whole.name: r.whole.assignment for replacements in found.values() for r in replacements}
    return Mended(damaged, whole)


def _held_by_flavor(
    damaged: Damaged, failed: frozenset[str], avoided: frozenset[str], snapshot: Snapshot
) -> dict[str, list[tuple[PodSetRequest, TopologyAssignment]]]:
    """Pod sets and what they hold, by their topology flavor, for the flavors in which hosts failed."""
    requests = {pod_set.name: _avoiding(pod_set.request, avoided) for pod_set in damaged.pod_sets}
    out: dict[str, list[tuple[PodSetRequest, TopologyAssignment]]] = {}
    for held in damaged.admission.pod_sets:
        if held.topology is None:
            continue
        flavors_held = sorted(set(held.flavors.values()))
        flavor = next((f for f in flavors_held if f in snapshot.topologies), flavors_held[0])
        out.setdefault(flavor, []).append((requests[held.name], held.topology))
    return {flavor: held for flavor, held in out.items() if any(stands_on(a, failed) for _, a in held)}


def _avoiding(request: PodSetRequest, hosts: frozenset[str]) -> PodSetRequest:
    return replace(request, rules=request.rules.avoiding(hosts)) if hosts else request


# --- nominate --------------------------------------------------------------------------------------------------------


def _nominate(head: Head, snapshot: Snapshot) -> _Entry:
    profile = snapshot.queues[head.queue].profile.with_algorithm(head.algorithm)
    with without_older(head, snapshot):
        return _nominated(head, profile, snapshot)


def _nominated(head: Head, profile: Profile, snapshot: Snapshot) -> _Entry:
    entry = _Entry(head, flavors.assign(head, snapshot, pinned=flavors_to_keep(head)), profile)
    if head.replaces is not None and entry.assignment.mode is Mode.NO_FIT and not entry.assignment.blockers:
        gone = f"ClusterQueue {head.queue} has not all flavors of {head.replaces.key} any more, which it is to replace"
        entry.assignment.blockers.append(Blocker(kind=BlockerKind.QUEUE, detail=gone))
    if entry.assignment.mode is Mode.FIT:
        misfits = _place(entry, snapshot, empty=False)
        if misfits:
            entry.assignment.mode = Mode.NO_CANDIDATES
            entry.assignment.reason = WaitReason.WAITING_FOR_QUOTA
            entry.assignment.blockers += [_topology_blocker(flavor, misfit) for flavor, misfit in misfits.items()]
    if entry.assignment.mode is Mode.NO_CANDIDATES:
        never = _place(entry, snapshot, empty=True)
        if never:
            entry.assignment.mode = Mode.NO_FIT
            entry.assignment.reason = WaitReason.TOPOLOGY_PLACEMENT_FAILED
            others = [b for b in entry.assignment.blockers if b.kind is not BlockerKind.TOPOLOGY]
            entry.assignment.blockers = others + [_topology_blocker(f, m, never=True) for f, m in never.items()]
    return entry


def _topology_blocker(flavor: str, misfit: Misfit, *, never: bool = False) -> Blocker:
    return Blocker(kind=BlockerKind.TOPOLOGY, pod_set=misfit.pod_set, flavor=flavor, misfit=misfit, never=never)


def _place(entry: _Entry, snapshot: Snapshot, *, empty: bool) -> dict[str, Misfit]:
    """Find domains for every pod set that has a topology flavor; returns what does not fit, by flavor.

    On success `entry.placement` holds the domains.  Flavors whose leaves are hosts share what this workload takes.
    Hosts on which it failed repeatedly are avoided, unless it does not fit then.
    """
    avoided = entry.head.avoided if entry.may_avoid and not empty else frozenset()
    requests = _by_topology_flavor(entry, snapshot, avoided)
    if not requests:
        entry.placement = {}
        return {}
    capacities = {name: snapshot.topologies[name].capacity for name in requests}
    previous = places_to_keep(entry.head)
    found = place_workload(
        capacities, requests, profile=entry.profile, empty=empty, measure=not empty, previous=previous
    )
    entry.placement = {flavor: answer for flavor, answer in found.items() if isinstance(answer, Placement)}
    misfits = {flavor: answer for flavor, answer in found.items() if isinstance(answer, Misfit)}
    if misfits and avoided:
        entry.may_avoid = False
        return _place(entry, snapshot, empty=False)
    return misfits


def _by_topology_flavor(entry: _Entry, snapshot: Snapshot, avoided: frozenset[str]) -> dict[str, list[PodSetRequest]]:
    """Pod sets that need domains, by the topology flavor they were assigned."""
    requests = {p.name: p for p in entry.head.pod_sets}
    out: dict[str, list[PodSetRequest]] = {}
    for assigned in entry.assignment.pod_sets:
        pod_set = requests[assigned.name]
        if assigned.count == 0 or not (pod_set.asks_topology or pod_set.request.topology.implied):
            continue
        with_topology = sorted({f for f in assigned.flavors.values() if f in snapshot.topologies})
        if with_topology:
            counted = replace(_avoiding(pod_set.request, avoided), count=assigned.count)
            out.setdefault(with_topology[0], []).append(counted)
    return out


# --- process ---------------------------------------------------------------------------------------------------------


def _process(entry: _Entry, snapshot: Snapshot) -> Decision:
    if entry.assignment.mode is Mode.NO_FIT:
        return _wait(entry, Outcome.NO_FIT)
    if entry.assignment.mode is Mode.NO_CANDIDATES:
        _reserve(entry, snapshot)
        return _wait(entry, Outcome.NO_CANDIDATES)
    with without_older(entry.head, snapshot) as older:
        return _start(entry, snapshot, older)


def _start(entry: _Entry, snapshot: Snapshot, older: Removal) -> Decision:
    if not _quota_fits(entry, snapshot):
        return _skipped(entry)
    if not _topology_fits(entry, snapshot):
        misfits = _place(entry, snapshot, empty=False)
        if misfits:
            return _skipped(entry, [_topology_blocker(f, m) for f, m in misfits.items()])
    _charge(entry, snapshot)
    older.for_good = True
    return Admit(head=entry.head, admission=_admission(entry), quality=tuple(_quality(entry)))


def _wait(entry: _Entry, outcome: Outcome) -> Wait:
    assignment = entry.assignment
    return Wait(
        head=entry.head,
        outcome=outcome,
        reason=assignment.reason,
        blockers=tuple(assignment.blockers),
        last_tried=assignment.last_tried,
    )


def _skipped(entry: _Entry, blockers: Sequence[Blocker] = ()) -> Wait:
    taken = Blocker(kind=BlockerKind.TAKEN_THIS_CYCLE, detail="another workload")
    return Wait(
        head=entry.head,
        outcome=Outcome.SKIPPED,
        reason=WaitReason.WAITING_FOR_QUOTA,
        blockers=(taken, *blockers),
        last_tried=entry.assignment.last_tried,
    )


def _quota_fits(entry: _Entry, snapshot: Snapshot) -> bool:
    node = snapshot.nodes[entry.head.queue]
    return all(amount <= max(0, quota.available(node, column)) for column, amount in entry.assignment.usage.items())


def _topology_fits(entry: _Entry, snapshot: Snapshot) -> bool:
    return all(snapshot.topologies[f].capacity.fits(usage_of(found)) for f, found in entry.placement.items())


def _charge(entry: _Entry, snapshot: Snapshot) -> None:
    node = snapshot.nodes[entry.head.queue]
    for column, amount in entry.assignment.usage.items():
        quota.add_usage(node, column, amount)
    for flavor, found in entry.placement.items():
        charge_domains(flavor, usage_of(found), snapshot.topologies)


def _reserve(entry: _Entry, snapshot: Snapshot) -> None:
    """Keep free what the entry waits for, so that smaller or lesser entries of this cycle do not take it.

    A queue that may reclaim from anybody gets it back anyway.
    """
    spec, node = snapshot.queues[entry.head.queue], snapshot.nodes[entry.head.queue]
    if spec.reclaims is Preempts.ANY:
        return
    for column, amount in added_quota(entry.head, entry.assignment.usage).items():
        own = node.quota(column)
        used = node.usage.get(column, 0)
        if entry.assignment.level == 0:
            amount = max(0, min(amount, quota.minus(own.nominal, used)))
        elif own.borrowing_limit is not None:
            amount = min(amount, quota.minus(quota.plus(own.nominal, own.borrowing_limit), used))
        quota.add_usage(node, column, amount)
    for flavor, found in entry.placement.items():
        charge_domains(flavor, added_pods(entry.head, found), snapshot.topologies)


def _admission(entry: _Entry) -> Admission:
    domains = {p.name: p.assignment for found in entry.placement.values() for p in found.pod_sets}
    pod_sets: list[PodSetAssignment] = [
        replace(assigned, topology=domains.get(assigned.name)) for assigned in entry.assignment.pod_sets
    ]
    return Admission(queue=entry.head.queue, pod_sets=tuple(pod_sets))


def _quality(entry: _Entry) -> Iterator[PlacementQuality]:
    requests = {p.name: p.request for p in entry.head.pod_sets}
    for found in entry.placement.values():
        seen: set[str] = set()
        for placed in found.pod_sets:
            request = requests[placed.name]
            if not placed.quality or request.group in seen:
                continue
            if request.group is not None:
                seen.add(request.group)
            yield PlacementQuality(algorithm_for(request.topology, entry.profile), placed.proven, placed.quality)
