"""One scheduling cycle: nominate every head, order the nominees, accept one after the other on the snapshot.

    nominate    in three steps, against the untouched snapshot: choose flavors by quota for each head; place the heads,
                one by one or together by a planner; commit each, with the workloads to preempt where there is no room
    order       less borrowing first, then higher priority, then older; with fair sharing by a tournament of shares
    process     accepted entries are charged to the snapshot, so the next entry sees the rest; an entry whose domains
                or targets were taken in this cycle is nominated once more in its nominated flavors

Resources that preemption frees are claimed for the preemptor (`claims`) from the decision until the preemptor is
admitted or gives up.  No other workload gets them meanwhile, and the victims are not admitted again before.

Source: the compatible system's scheduling cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kqueue.core import ordering, quota
from kqueue.core.backfill.passing import Passing
from kqueue.core.charging import charge_domains, fit_together
from kqueue.core.claims import Claims
from kqueue.core.decision import (
    ALL_LOOKS,
    Admit,
    Decision,
    Outcome,
    Phase,
    PlacementQuality,
    Preempt,
    Retargeted,
    SecondLooks,
    Wait,
    refused_by_plugin,
    waits_for_place,
)
from kqueue.core.explain import Blocker, BlockerKind, WaitReason
from kqueue.core.gang_gate import GangGate
from kqueue.core.hints import NO_HINTS, Hints, wait_of
from kqueue.core.hooks import HooksByProfile, PluginRefusal
from kqueue.core.least import uncounted
from kqueue.core.lenders import Lenders
from kqueue.core.mention import Mention
from kqueue.core.nomination import FITS, FITS_LATER, NEVER, PREEMPTS, WAITS, NominatedHead, Nominator
from kqueue.core.placed_entries import quality_of, with_domains
from kqueue.core.plan_cache import PlanCache
from kqueue.core.planners import PLANNERS
from kqueue.core.preemption import Findings, Rules, Target, lesser, none_may_be_preempted, simulate
from kqueue.core.quota import QuotaNode, Usage
from kqueue.core.refusals import mistaken, queue_refusal
from kqueue.core.share_order import NextHead, ShareOrder, differences, no_next_head
from kqueue.core.siblings import behind_sibling, sibling_to_leave
from kqueue.core.slices import added_pods, added_quota, without_older
from kqueue.core.topology.request import Profile
from kqueue.core.topology.result import DomainUsage, Placement, usage_of
from kqueue.core.waiting import kept_for_others, waits
from kqueue.core.withheld import WithheldCapacity
from kqueue.core.workload import (
    Admission,
    Claim,
    Head,
    PodSetAssignment,
    Preempts,
    QueueSpec,
    Snapshot,
)
from kqueue.errors import PluginError
from kqueue.isolation import isolated

_NO_FIT, _NO_CANDIDATES = Outcome.NO_FIT, Outcome.NO_CANDIDATES
_NEVER_ITS_OWN, _FROM_ANYBODY = Preempts.NEVER, Preempts.ANY
_NOBODY, _NEVER_PREEMPTS = BlockerKind.NO_CANDIDATES, BlockerKind.NEVER_PREEMPTS
"""A constant for speed, as `flavors.FIT`."""


def plan(
    snapshot: Snapshot,
    heads: Sequence[Head],
    *,
    rules: Rules,
    order: ordering.OrderRules = ordering.DEFAULT_RULES,
    held_by: str = "",
    one_at_a_time: bool = False,
    looks: SecondLooks = ALL_LOOKS,
    cache: PlanCache | None = None,
    enter: Callable[[Phase], None] = lambda _phase: None,
    withheld: WithheldCapacity | None = None,
    next_head: NextHead = no_next_head,
    planner_failed: Callable[[str, Exception], None] = lambda _name, _error: None,
    hooks: HooksByProfile | None = None,
    hints: Hints = NO_HINTS,
    explains: bool = True,
) -> Iterator[Decision]:
    """Decide every head, in the order in which they are processed.

    The snapshot is charged as decisions are yielded; between two decisions the caller may let the event loop run. Every
    head gets exactly one decision.

    Args:
        snapshot: the state, with the claims of earlier cycles.
        rules: the rules of preemption.
        order: the rules for the order of entries.
        held_by: a workload whose pods must be ready before the next admission; empty: none.
        one_at_a_time: after an admission no other workload is admitted.
        looks: the entries that are nominated a second time.
        cache: results that the next plan may use again; None: the plan begins without a cache.
        enter: called when the plan enters another phase, and after each decision.
        withheld: gets the capacity of the snapshot that an entry waits for, and that is withheld from later entries.
        next_head: returns the next workload of a ClusterQueue: with fair sharing behind a preemptor, otherwise behind
            an admitted head.
        planner_failed: called with the name of a planner that raises; its workloads are placed one by one.
        hooks: plugins by the profile that a ClusterQueue names; None: there are none.
        hints: what a joint plan proposes.
        explains: whether blockers have the costlier facts, which only messages need; decisions are the same without.
    """
    enter(Phase.NOMINATE)
    cache = cache if cache is not None else PlanCache()
    cache.trim()
    findings = Findings(rules, cache.lowest)
    hooks = hooks or {}
    nominator = Nominator(snapshot, Claims(snapshot, snapshot.claims), findings, cache.demands, hooks, hints, explains)
    withheld = withheld if withheld is not None else WithheldCapacity(snapshot)
    cycle = _Cycle(snapshot, nominator.claims, findings, held_by, one_at_a_time, looks, order, nominator, withheld)
    cycle.share_order, cycle.lenders = ShareOrder(snapshot.nodes, next_head), Lenders(snapshot, next_head)
    cycle.gangs = GangGate(snapshot)
    cycle.passing = Passing(nominator, rules.now)
    entries: list[NominatedHead] = []
    for wait in _nominated(cycle, heads, entries, planner_failed):
        yield wait
        enter(Phase.NOMINATE)
    enter(Phase.ORDER)
    for entry in cycle.turns(entries, order):
        enter(Phase.PROCESS)
        yield _decided(cycle, entry)
        enter(Phase.ORDER)


def _nominated(
    cycle: _Cycle,
    heads: Sequence[Head],
    entries: list[NominatedHead],
    planner_failed: Callable[[str, Exception], None],
) -> Iterator[Wait]:
    """Nominate heads in three steps and add them to `entries`; yields decisions for heads that are not tried."""
    chosen: list[tuple[Head, NominatedHead | None]] = []
    for head in heads:
        wait = None
        with isolated() as choice:
            wait = cycle.not_now(head)
            if wait is None:
                chosen.append((head, cycle.choose(head)))
        if choice.error is not None:
            wait = _broken(head, choice.error)
        if wait is not None:
            yield wait
    if PLANNERS:
        cycle.nominator.place_together([entry for _, entry in chosen if entry is not None], planner_failed)
    for head, entry in chosen:
        with isolated() as nomination:
            entries.append(cycle.nominate(head) if entry is None else cycle.passing.commit(entry))
        if nomination.error is not None:
            yield _broken(head, nomination.error)


def _decided(cycle: _Cycle, entry: NominatedHead) -> Decision:
    with isolated() as turn:
        return cycle.with_time(cycle.process(entry))
    assert turn.error is not None, "the turn has ended by an error"
    return _broken(entry.head, turn.error)


def _broken(head: Head, error: Exception) -> Wait:
    if isinstance(error, PluginError):
        return refused_by_plugin(head, str(error))
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


_DomainUsage = dict[str, tuple[DomainUsage, ...]]
"""Usage of domains, by flavor."""
_Placed = tuple[tuple[PodSetAssignment, ...], tuple[PlacementQuality, ...]]


@dataclass(slots=True)
class _Cycle:
    """The state of one plan."""

    snapshot: Snapshot
    claims: Claims
    findings: Findings
    held_by: str
    one_at_a_time: bool
    looks: SecondLooks
    order: ordering.OrderRules
    nominator: Nominator
    withheld: WithheldCapacity
    share_order: ShareOrder = field(init=False)
    gangs: GangGate = field(init=False)
    lenders: Lenders = field(init=False)
    passing: Passing = field(init=False)
    placed: dict[tuple[object, ...], tuple[object, _Placed]] = field(default_factory=dict, init=False)
    """Cached by the identity of request and placement; the value keeps both, so that identities stay unique."""
    usages: dict[int, tuple[Mapping[str, Placement], _DomainUsage]] = field(default_factory=dict, init=False)
    """Usage of placements, by their identity."""

    def not_now(self, head: Head) -> Wait | None:
        """Return the reason for which a head is not tried at all; None: it is tried."""
        if head.queue not in self.snapshot.queues:
            return queue_refusal(head, self.snapshot)
        if head.problem:
            return mistaken(head, head.problem)
        if head.least and (wrong := uncounted(head, self.snapshot.queues[head.queue])):
            return mistaken(head, wrong)
        if head.plugin_problem:
            return refused_by_plugin(head, head.plugin_problem)
        if self.nominator.hooks and (refusal := self.nominator.hooks_of(head).screened(head)) is not None:
            return refused_by_plugin(head, str(refusal))
        if (wait := wait_of(self.nominator.hints, head.uid)) is not None:
            return waits_for_place(head, wait.until(self.findings.rules.now))
        if head.variant is not None and (behind := behind_sibling(head)) is not None:
            return behind
        claim = self.claims.because_of(head)
        if claim is None:
            return None
        blocker = Blocker(kind=BlockerKind.YIELDS, workloads=(Mention(claim.key, claim.queue),))
        return Wait(head=head, outcome=Outcome.YIELDS, reason=WaitReason.WAITING_FOR_QUOTA, blockers=(blocker,))

    def choose(self, head: Head) -> NominatedHead | None:
        """Return the head with its flavors; None: it must be nominated in one step."""
        return self.passing.choose(head, self._profile(head))

    def nominate(self, head: Head) -> NominatedHead:
        """Return the nominated head."""
        return self.passing.nominate(head, self._profile(head))

    def _profile(self, head: Head) -> Profile:
        return self.snapshot.queues[head.queue].profile.with_algorithm(head.algorithm)

    def turns(self, entries: Sequence[NominatedHead], order: ordering.OrderRules) -> Iterator[NominatedHead]:
        """Yield entries in the order in which they are decided.

        Entries that fit into their claim come first: they take no capacity that another entry could get, and must not
        lose their claim to an entry that only reserves capacity for later.
        """
        first = (FITS,) if self.findings.rules.fair is None else (FITS, FITS_LATER)
        kept = [e for e in entries if e.result in first and self.claims.of(e.head.uid) is not None]
        served = {entry.head.uid for entry in kept}
        for some in (kept, [e for e in entries if e.head.uid not in served] if kept else entries):
            if self.findings.rules.fair is None:
                yield from ordering.classical(some, order)
            else:
                yield from ordering.tournament(some, self.snapshot.nodes, order, self._under_way(some))

    def _under_way(self, entries: Sequence[NominatedHead]) -> Mapping[QuotaNode, Usage]:
        """Return the change in usage of the nodes above these entries after all claims are fulfilled."""
        if not self.claims or not entries:
            return {}
        nodes = {node: None for e in entries for node in self.snapshot.nodes[e.head.queue].path_to_root()}
        before = {node: dict(node.usage) for node in nodes}
        with self.claims.fulfilled(besides=""):
            return differences(nodes, before)

    def with_time(self, decision: Decision) -> Decision:
        """Return the decision with the time at which a protected workload may be preempted for the workload."""
        if not self.findings.retry_at or not isinstance(decision, Wait):
            return decision
        at = self.findings.retry_at.get(decision.head.uid)
        return decision if at is None else replace(decision, retry_at=at)

    def process(self, entry: NominatedHead) -> Decision:
        """Decide an entry, and charge its resources to the snapshot."""
        if (entry.result is FITS or entry.result is PREEMPTS) and (stop := self.gangs.stops(entry)) is not None:
            return waits(entry, stop.outcome, stop.reason, stop.blocker)
        if entry.result is not PREEMPTS:
            return self._decide(entry)
        overlaps = self.looks.for_targets and self._overlaps(entry)
        decision = self._decide(entry)
        match decision:
            case Preempt():
                return replace(decision, retargeted=Retargeted.NEW_TARGETS) if overlaps else decision
            case Wait(outcome=Outcome.DEFERRED):
                return replace(decision, retargeted=Retargeted.DEFERRED_FIT) if overlaps else decision
            case Wait(outcome=Outcome.GATED):
                return replace(decision, retargeted=Retargeted.NEW_TARGETS) if overlaps else decision
            case Wait():
                is_robbed = decision.outcome is Outcome.SKIPPED
                return replace(decision, is_robbed=is_robbed, retargeted=Retargeted.SKIPPED if overlaps else None)
        return decision

    def _overlaps(self, entry: NominatedHead) -> bool:
        if not entry.targets:
            return False
        spoken_for = self.claims.leaving(besides=entry.head.uid)
        return any(target.admitted.uid in spoken_for for target in entry.targets)

    def _decide(self, entry: NominatedHead) -> Decision:
        uid = entry.head.uid
        if entry.head.replaces is not None and (yields := self.not_now(entry.head)) is not None:
            return yields  # an earlier entry evicts the slice that the workload replaces
        if entry.result is FITS or entry.is_preemptor:
            still = self._still(entry)
            if still is None:
                return _skipped(entry)
            entry = still
        result = entry.result
        if result is FITS:
            return self._admit(entry) if self._may_borrow(entry) else _left_to_lenders(entry)
        if entry.is_preemptor and (lower := self._lower_share(entry)) is not None:
            blocker = Blocker(kind=BlockerKind.LOWER_SHARE, queue=lower)
            return waits(entry, Outcome.AFTER_LOWER_SHARE, WaitReason.WAITING_FOR_QUOTA, blocker)
        if result is PREEMPTS:
            return self._preempt(entry)
        if result is FITS_LATER:
            if self.claims.of(uid) is None:
                self.claims.keep(entry.claim())
            others = () if self.claims.waits_for_its_own(uid) else self.claims.preemptors(besides=uid)
            leaving = Blocker(kind=BlockerKind.LEAVING, workloads=others)
            return waits(entry, Outcome.DEFERRED, WaitReason.WAITING_FOR_PREEMPTED_WORKLOADS, leaving)
        if entry.kept_for:
            return kept_for_others(entry, self.findings.rules.now)
        comes_first = self.order.preemptors_first and self.claims.of(uid) is not None
        is_planned = self.claims.is_planned(uid)
        if not is_planned:
            self.claims.give_up(uid)
        if result is NEVER:
            return waits(entry, _NO_FIT)
        if not is_planned:
            self._reserve(entry, anyway=comes_first)
        after = (self._no_candidates(entry), *_vetoes(self.findings.spared.get(uid, {})))
        return waits(entry, _NO_CANDIDATES if len(after) == 1 else Outcome.PLUGIN, after=after)

    def _may_borrow(self, entry: NominatedHead) -> bool:
        """Whether a borrowing entry leaves other queues the quota that their own next workloads would reclaim."""
        if self.findings.rules.fair is not None or not entry.level or self.claims.of(entry.head.uid) is not None:
            return True
        return self.lenders.leave(entry.head.queue, entry.usage)

    def _preempt(self, entry: NominatedHead) -> Decision:
        if entry.head.closed_gates:
            self.claims.give_up(entry.head.uid)
            gates = Blocker(kind=BlockerKind.PREEMPTION_GATED, detail=", ".join(entry.head.closed_gates))
            return waits(entry, Outcome.GATED, WaitReason.ADMISSION_GATED, gates)
        claim = self._claim(entry)
        self.claims.keep(claim)
        return Preempt(head=entry.head, targets=entry.targets, claim=claim, plan=entry.targets_by)

    def _lower_share(self, entry: NominatedHead) -> str | None:
        """Return a ClusterQueue whose next workload goes before this preemption; None: there is none.

        Claims of earlier cycles are not affected.
        """
        if self.findings.rules.fair is None or self.claims.of(entry.head.uid) is not None:
            return None
        claims = self.share_order.concerns(self.claims.all())
        if not claims:
            return None
        with (
            without_older(entry.head, self.snapshot),
            self.claims.fulfilled(besides=entry.head.uid),
            simulate(self.snapshot, with_domains=False) as simulation,
        ):
            for target in entry.targets:
                simulation.remove(target.admitted)
            simulation.charge(entry.head.queue, entry.usage)
            return self.share_order.first_below(entry.head.queue, claims)

    def _claim(self, entry: NominatedHead) -> Claim:
        """Return the new claim of a preemptor. Victims of its earlier claim that are leaving belong to it, too."""
        claim, earlier = entry.claim(), self.claims.of(entry.head.uid)
        counts_on = self.claims.counted_on(besides=entry.head.uid)
        if earlier is None:
            return replace(claim, counts_on=counts_on) if counts_on else claim
        return replace(claim, counts_on=counts_on, victims={**earlier.victims, **claim.victims})

    def _still(self, entry: NominatedHead) -> NominatedHead | None:
        """Return the entry adapted to the earlier decisions of this cycle; None: they took its resources.

        The entry keeps its claim until the result is known.
        """
        if entry.result is FITS and entry.head.replaces is None and self.claims.of(entry.head.uid) is None:
            possible = self._fits(entry)
        else:
            with self.claims.without(entry.head.uid):
                possible = self._possible(entry)
        if possible:
            return entry
        if possible is None and self.claims.of(entry.head.uid) is None and not self._may_preempt(entry):
            return None
        if not self._may_look_again(entry):  # an entry with a claim may have to use the claimed domains
            return None
        entry = self._again(entry)
        return entry if entry.result not in (WAITS, NEVER) else None

    def _may_look_again(self, entry: NominatedHead) -> bool:
        if self._overlaps(entry):
            return self.looks.for_targets
        return self.looks.for_domains or self.claims.of(entry.head.uid) is not None

    def _may_preempt(self, entry: NominatedHead) -> bool:
        if entry.head.never_preempts:
            return False
        columns = frozenset(entry.usage)
        return not none_may_be_preempted(self.snapshot, entry.head, columns, self.findings)

    def _again(self, entry: NominatedHead) -> NominatedHead:
        """Nominate the entry again after the earlier decisions of this cycle, in the same flavors."""
        takes_free = entry.result is FITS and self.claims.of(entry.head.uid) is None
        if takes_free and self._fits(entry) is not None and self.passing.moves(entry):
            return entry
        return self.passing.nominate(entry.head, entry.profile, pinned=entry.assignment.flavors)

    def _admit(self, entry: NominatedHead) -> Decision:
        if self.held_by:
            blocker = Blocker(kind=BlockerKind.PODS_NOT_READY, workloads=(Mention(self.held_by),))
            if self.claims.of(entry.head.uid) is None:
                self.claims.keep(entry.claim())  # the entry is not admitted yet: later entries must not use its room
            return waits(entry, Outcome.HELD, WaitReason.WAITING_FOR_PODS_READY, blocker)
        if entry.head.variant is not None and (first := self._migrate(entry)) is not None:
            return first
        if self.one_at_a_time:
            self.held_by = entry.head.key
        if (claim := self.claims.of(entry.head.uid)) is not None:
            self.share_order.fulfilled(claim)
        self.claims.give_up(entry.head.uid)
        if not entry.level:
            self.lenders.admitted(entry.head, entry.usage)
        if entry.head.replaces is None:
            self._charge(entry)
        else:
            with without_older(entry.head, self.snapshot) as older:
                self._charge(entry)
                older.for_good = True
        pod_sets, quality = self._placed(entry) if entry.placement else (entry.assignment.pod_sets, ())
        found = Admission(queue=entry.head.queue, pod_sets=pod_sets, known_usage=entry.usage)
        way, owed = self.gangs.admitted(entry, pod_sets)
        joins, takes = self.passing.start(entry, self._usage(entry)) if entry.passes else ((), ())
        return Admit(
            head=entry.head,
            admission=found,
            quality=quality,
            made_way=way,
            promise=owed,
            plan=entry.by_plan,
            joins=joins,
            takes=takes,
        )

    def _migrate(self, entry: NominatedHead) -> Decision | None:
        """Return the decision for a variant in whose place a sibling is admitted; None: no sibling is."""
        found = sibling_to_leave(entry.head, self.snapshot)
        if not isinstance(found, Target):
            return found
        held = found.admitted
        if held.evicted and self.claims.of(entry.head.uid) is not None:
            leaving = Blocker(kind=BlockerKind.LEAVING, workloads=(Mention(held.key, held.queue),))
            return waits(entry, Outcome.DEFERRED, WaitReason.WAITING_FOR_PREEMPTED_WORKLOADS, leaving)
        claim = self._claim(replace(entry, targets=(found,)))
        self.claims.keep(claim)
        return Preempt(head=entry.head, targets=(found,), claim=claim)

    def _placed(self, entry: NominatedHead) -> _Placed:
        """Return pod sets with their domains, and the quality of the domains; computed once for equal requests and
        placements.
        """
        same = (entry.head.pod_sets, entry.assignment.pod_sets, entry.placement)
        key = (*map(id, same), entry.profile)
        known = self.placed.get(key)
        if known is None:
            known = self.placed[key] = same, (with_domains(entry), tuple(quality_of(entry)))
        return known[1]

    def _charge(self, entry: NominatedHead) -> None:
        node = self.snapshot.nodes[entry.head.queue]
        for column, amount in entry.usage.items():
            quota.add_usage(node, column, amount)
        for flavor, taken in self._usage(entry).items():
            charge_domains(flavor, taken, self.snapshot.topologies)

    def _usage(self, entry: NominatedHead) -> _DomainUsage:
        """Return the usage of an entry's pods, computed once for all entries with the same domains."""
        known = self.usages.get(id(entry.placement))
        if known is None:
            usage = {flavor: usage_of(found) for flavor, found in entry.placement.items()}
            known = self.usages[id(entry.placement)] = entry.placement, usage
        return known[1]

    # --- remaining resources ---------------------------------------------------------------------------------------

    def _possible(self, entry: NominatedHead) -> bool | None:
        """Whether the nomination is still valid; None: its quota is gone, so that a second nomination cannot help."""
        with without_older(entry.head, self.snapshot):
            if entry.as_claimed:
                with self.claims.first_in_line(entry.head.uid):
                    return self._fits(entry)
            if entry.result is FITS:
                return self._fits(entry)
            if self._overlaps(entry):
                return False
            with self.claims.fulfilled(besides=entry.head.uid), simulate(self.snapshot) as simulation:
                for target in entry.targets:
                    simulation.remove(target.admitted)
                return self._fits(entry)

    def _fits(self, entry: NominatedHead) -> bool | None:
        """Whether the domains and the quota of an entry are free; None: the quota is not."""
        with self.passing.past(entry):
            if not quota.has_room(self.snapshot.nodes[entry.head.queue], entry.usage):
                return None
            if not entry.placement:
                return True
            return fit_together(self._usage(entry), self.snapshot.topologies)

    def _no_candidates(self, entry: NominatedHead) -> Blocker:
        """Return a blocker with the policies that forbid preemption, and the number of workloads of the own queue that
        were candidates.
        """
        head, spec = entry.head, self.snapshot.queues[entry.head.queue]
        if head.never_preempts:
            return Blocker(kind=_NEVER_PREEMPTS)
        policies = _policies(spec, alone=self.snapshot.nodes[head.queue].parent is None)
        holders = None
        if spec.preempts_own is not _NEVER_ITS_OWN:  # otherwise the search did not consider these workloads either
            lacking = entry.assignment.lacking
            holders = len(lesser(self.snapshot, head.queue, head.priority, lacking, self.findings))
        return Blocker(kind=_NOBODY, queue=head.queue, holders=holders, detail=policies)

    def _reserve(self, entry: NominatedHead, *, anyway: bool = False) -> None:
        """Reserve the amounts that the entry waits for, so that later entries of this cycle do not take them.

        A queue that may reclaim from any queue gets them back without a reservation; `anyway` reserves them even then.
        """
        spec, node = self.snapshot.queues[entry.head.queue], self.snapshot.nodes[entry.head.queue]
        if spec.reclaims is _FROM_ANYBODY and not anyway:
            return
        added = added_quota(entry.head, entry.usage)
        has_quota = quota.has_room(node, added)
        for column, amount in added.items():
            own = node.quota(column)
            used = node.usage.get(column, 0)
            if entry.level == 0:
                amount = max(0, min(amount, quota.minus(own.nominal, used)))
            elif own.borrowing_limit is not None:
                amount = min(amount, quota.minus(quota.plus(own.nominal, own.borrowing_limit), used))
            # only free quota can be reserved: a larger charge would make later preemptors evict too much
            self.withheld.add_quota(node, column, min(amount, max(0, quota.available(node, column))))
        if not has_quota:
            return  # hosts would be kept in vain, from all ClusterQueues, for as long as the entry is a head
        for flavor, found in entry.placement.items():
            self.withheld.add_domains(flavor, added_pods(entry.head, found))


def _policies(spec: QueueSpec, *, alone: bool) -> str:
    """Return the preemption policies of a ClusterQueue as text; `alone`: it is in no cohort."""
    own = f"withinClusterQueue {spec.preempts_own}"
    return own if alone else f"{own} and reclaimWithinCohort {spec.reclaims}"


def _vetoes(spared: Mapping[str, str]) -> Iterator[Blocker]:
    """Yield one blocker for each plugin that keeps workloads (UID -> plugin) from being preempted."""
    for plugin, count in sorted(Counter(spared.values()).items()):
        noun = "workload" if count == 1 else "workloads"
        sentence = PluginRefusal(plugin, f"{count} {noun} must not be preempted for it")
        yield Blocker(kind=BlockerKind.PLUGIN, detail=str(sentence))


def _skipped(entry: NominatedHead) -> Wait:
    taken = Blocker(kind=BlockerKind.TAKEN_THIS_CYCLE, detail="another workload")
    return waits(entry, Outcome.SKIPPED, WaitReason.WAITING_FOR_QUOTA, taken)


def _left_to_lenders(entry: NominatedHead) -> Wait:
    lent = Blocker(kind=BlockerKind.LENDERS, queue=entry.head.queue)
    return waits(entry, Outcome.SKIPPED, WaitReason.WAITING_FOR_QUOTA, lent)
