"""Nominations of one head on a snapshot: its flavors, its domains, and the workloads to preempt.

    present state    flavors by quota, then domains by topology: the head fits, or does not
    future state     if it does not fit, with all claims of other preemptors fulfilled: the head fits then, or after
                     further preemptions, or with fewer pods (partial admission), or never

A nomination is not charged: the cycle charges it when it decides the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

from kqueue.core import flavors, quota
from kqueue.core.claims import Claims
from kqueue.core.demand import Demands
from kqueue.core.explain import Blocker, BlockerKind, WaitReason
from kqueue.core.flavors import FIT, NO_CANDIDATES, NO_FIT, Assignment, Mode, Pins
from kqueue.core.hints import NO_HINTS, Hints, cheaper_targets
from kqueue.core.hooks import NO_HOOKS, HooksByProfile, ProfileHooks
from kqueue.core.planners import PLANNERS, Wish, ask
from kqueue.core.preemption import (
    Findings,
    Preemptor,
    Target,
    VictimReach,
    find_targets,
    none_may_be_preempted,
    preemptor_of,
    simulate,
)
from kqueue.core.quota import FlavorResource, Usage
from kqueue.core.slices import added_pods, added_quota, flavors_to_keep, places_to_keep, without_older
from kqueue.core.topology.arranged import Hint, has_domains
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.request import PodSetRequest, Profile
from kqueue.core.topology.result import Misfit, Placement
from kqueue.core.topology_blockers import topology_blocker
from kqueue.core.value import value
from kqueue.core.workload import Claim, Head, Snapshot
from kqueue.isolation import isolated


class NominationResult(StrEnum):
    """The results for an entry."""

    FITS = "Fits"
    """The entry fits now."""
    FITS_LATER = "FitsLater"
    """The entry fits after workloads that are leaving already have left."""
    PREEMPTS = "Preempts"
    """The entry fits after its own targets have left, too."""
    WAITS = "Waits"
    """Other workloads use the resources, and too few of them may be preempted for the entry."""
    NEVER = "Never"
    """No flavor can serve the entry, or not even an empty cluster has a domain for it."""


FITS, FITS_LATER, PREEMPTS, WAITS, NEVER = NominationResult
"""Constants for speed, as `flavors.FIT`."""
_IN_VAIN = (WAITS, NEVER)
_NOTHING: dict[Any, Any] = {}
"""A shared empty dictionary: do not change it."""


Answers = dict[tuple[FlavorResource, int], tuple[Target, ...]]
"""By a column and an amount: the targets for a workload that requests only this amount."""


@dataclass(slots=True)
class NominatedHead:
    """A nominated head.

    `placement` is by topology flavor; for a waiting entry it is the placement on an empty cluster.
    """

    head: Head
    profile: Profile
    assignment: Assignment
    result: NominationResult = WAITS
    placement: Mapping[str, Placement] = field(default_factory=dict)
    targets: tuple[Target, ...] = ()
    place_requests: Mapping[str, Sequence[PodSetRequest]] = field(default_factory=dict)
    """The requests for domains, by topology flavor."""
    avoids: frozenset[str] = frozenset()
    """Hosts that are avoided while the entry fits without them."""

    as_claimed: bool = False
    """Whether the entry takes exactly its claim."""

    asked: Answers = field(default_factory=dict)
    """The answers about preemption from the choice of flavors."""

    hint: Hint | None = None
    """The domains that a planner proposes."""

    plan: str = ""
    """The name of the joint plan that proposes the hint and the flavors; empty: none does."""

    targets_by: str = ""
    """The name of the joint plan that proposes the targets; empty: none does."""

    passes: tuple[str, ...] = ()
    """UIDs of claims with a time that leave too little room, and do not bind the entry."""

    kept_for: tuple[Claim, ...] = ()
    """Claims with a time that bind the entry; without them it would fit now."""

    holds_reservation: bool = field(default=False, init=False)
    """Always False: workloads with a reservation are not nominated, their failed hosts are replaced."""

    @property
    def usage(self) -> Usage:
        """The quota usage per column, for all pods. Callers must not change it."""
        return self.assignment.usage

    @property
    def level(self) -> int:
        """Levels of the cohort tree through which the entry borrows; 0: no borrowing."""
        return self.assignment.level

    @property
    def is_preemptor(self) -> bool:
        """Whether workloads are being preempted for the head."""
        return self.result is PREEMPTS or self.result is FITS_LATER

    @property
    def by_plan(self) -> str:
        """The name of the joint plan whose domains the entry has; empty: it has others, or there is no plan."""
        placed = [pod_set for found in self.placement.values() for pod_set in found.pod_sets]
        if not self.plan or not all(
            has_domains(pod_set.assignment, self.hint or {}, pod_set.name) for pod_set in placed
        ):
            return ""
        return self.plan

    def claim(self) -> Claim:
        """Return the claim while its targets leave: the request without the holdings of an older slice."""
        return Claim(
            key=self.head.key,
            uid=self.head.uid,
            queue=self.head.queue,
            usage=added_quota(self.head, self.usage),
            domains={flavor: tuple(added_pods(self.head, found)) for flavor, found in self.placement.items()},
            victims={t.admitted.uid: (t.admitted.queue, t.admitted.key) for t in self.targets},
            pod_sets=self.assignment.pod_sets,
        )


@value()
class _Found:
    """The placement or misfit of pod sets, by flavor.  Heads share it: do not change it."""

    places: Mapping[str, Placement]
    misfits: Mapping[str, Misfit]

    @classmethod
    def of(cls, answers: Mapping[str, Placement | Misfit]) -> _Found:
        """Return the answers, sorted into placements and misfits."""
        return cls(
            {flavor: answer for flavor, answer in answers.items() if isinstance(answer, Placement)},
            {flavor: answer for flavor, answer in answers.items() if isinstance(answer, Misfit)},
        )


@value()
class _Answer:
    """The result for pod sets, valid while the capacities have these generations."""

    requests: Mapping[str, Sequence[PodSetRequest]]
    """The answer's key has the identities of the requests; this reference keeps these identities unique."""
    free: list[int]
    found: _Found


@dataclass(frozen=True, slots=True)
class Nominator:
    """Nominates heads of one cycle."""

    snapshot: Snapshot
    claims: Claims
    findings: Findings
    demands: Demands = field(default_factory=Demands)
    """Demands by the form of workloads; may be kept from cycle to cycle."""
    hooks: HooksByProfile = field(default_factory=dict)
    """Plugins by the profile of a ClusterQueue."""
    hints: Hints = field(default_factory=lambda: NO_HINTS)
    """The proposals of a joint plan."""
    explains: bool = True
    """Whether misfits have the costlier facts, which only messages need."""
    _answers: dict[tuple[object, ...], _Answer] = field(default_factory=dict, init=False, repr=False)
    """Results for equal pod sets: many queues often have equal heads, and no charge is made during nomination."""

    def hooks_of(self, head: Head) -> ProfileHooks:
        """Return the plugins of the profile of the head's ClusterQueue."""
        return self.hooks.get(self.snapshot.queues[head.queue].plugin_profile, NO_HOOKS) if self.hooks else NO_HOOKS

    def nominate(self, head: Head, profile: Profile, *, pinned: Pins | None = None) -> NominatedHead:
        """Return the best nomination of a head; `pinned` restricts it to the flavors of an earlier nomination.

        A preemptor is restricted to the flavors of its claim, unless all of it fits in others.
        """
        pinned = pinned or flavors_to_keep(head)
        claim = self.claims.of(head.uid)
        if claim is None and head.replaces is None:
            return self._most(self._assigned(head, profile, pinned), pinned)
        with self.claims.without(head.uid), without_older(head, self.snapshot):
            if claim is not None and claim.pod_sets:
                entry = self._claimed(claim, head, profile)
                if entry is not None:
                    return entry
            return self._most(self._assigned(head, profile, pinned), pinned)

    # --- in steps ------------------------------------------------------------------------------------------------

    def choose(self, head: Head, profile: Profile) -> NominatedHead | None:
        """Return the head with its flavors, undecided: the first step.

        None: the head has a claim or replaces a slice, so it is nominated as a whole on a snapshot without these.
        """
        if head.replaces is not None or self.claims.of(head.uid) is not None:
            return None
        hint = self.hints.get(head.uid) if self.hints else None
        if hint is not None and hint.victims is None:
            entry = self._assigned(head, profile, hint.flavors)
            if entry.assignment.mode is FIT:
                entry.hint, entry.plan = hint.places, hint.plan
                return entry
        return self._assigned(head, profile, flavors_to_keep(head))

    def place_together(self, chosen: Sequence[NominatedHead], failed: Callable[[str, Exception], None]) -> None:
        """Set the planner's hint for each entry whose profile names a planner: the second step.

        `failed` is called with the name of a planner that raises; its entries are placed one by one.
        """
        for name, planner in PLANNERS.items():
            mine = [e for e in chosen if e.profile.constrained == name and e.place_requests]
            mine = [e for e in mine if e.assignment.mode is FIT]
            if not mine:
                continue
            wishes = [Wish(head=e.head, requests=e.place_requests, profile=e.profile, usage=e.usage) for e in mine]
            with isolated(partial(failed, name)) as answer:
                hints = ask(planner, self.snapshot, wishes)
            if answer.error is not None:
                continue
            for entry, hint in zip(mine, hints, strict=True):
                entry.hint = hint

    def commit(self, entry: NominatedHead) -> NominatedHead:
        """Nominate an entry with its chosen flavors: the third step."""
        if entry.plan and self._misplaced(entry):  # other flavors may have room
            entry = self._assigned(entry.head, entry.profile, flavors_to_keep(entry.head))
        return self._most(entry, flavors_to_keep(entry.head))

    def _most(self, entry: NominatedHead, pinned: Pins | None) -> NominatedHead:
        """Nominate all pods, or else the largest number of pods that fits."""
        entry = self._judged(entry, pinned)
        if entry.result in _IN_VAIN:
            entry = self._part(entry.head, entry.profile, pinned) or entry
        return entry

    def fitting(self, head: Head, profile: Profile, pinned: Pins | None) -> NominatedHead | None:
        """Return the nomination of a head with all its pods if it fits now; None: it does not."""
        with without_older(head, self.snapshot):
            entry = self._assigned(head, profile, pinned or flavors_to_keep(head))
            if entry.assignment.mode is not FIT or self._misplaced(entry):
                return None
        entry.result = FITS
        return entry

    def moves(self, entry: NominatedHead) -> bool:
        """Whether an entry whose quota fits finds other domains in its flavors; nothing else is checked."""
        with self.claims.without(entry.head.uid), without_older(entry.head, self.snapshot):
            entry.avoids = entry.head.avoided
            return not self.place(entry, measure=True)

    def place(self, entry: NominatedHead, *, empty: bool = False, measure: bool = False) -> Mapping[str, Misfit]:
        """Find domains for every pod set that has a topology flavor; return the misfits by flavor.

        `entry.placement` holds the domains found.  Flavors with hosts as leaves share the usage of this workload. Hosts
        on which the workload failed repeatedly are avoided, unless it does not fit without them.
        """
        if not entry.place_requests:
            entry.placement = {}
            return {}
        if empty:
            found = _Found.of(self._ask(entry, empty=True, measure=measure))
        else:
            found = self._answer(entry, measure=measure)
        if found.misfits and entry.avoids and not empty:
            entry.avoids = frozenset()
            return self.place(entry, measure=measure)
        entry.placement = found.places
        return found.misfits

    def _answer(self, entry: NominatedHead, *, measure: bool) -> _Found:
        """Return the cached result for equal pod sets while their capacities are unchanged, else search."""
        requests = entry.place_requests
        if entry.avoids or entry.head.replaces is not None or entry.hint is not None:
            return _Found.of(self._ask(entry, empty=False, measure=measure))
        asked = [(flavor, *map(id, pod_sets)) for flavor, pod_sets in requests.items()]
        key = (*asked, entry.profile, measure)
        free = [self.snapshot.topologies[flavor].capacity.generation for flavor in requests]
        known = self._answers.get(key)
        if known is None or known.free != free:
            found = _Found.of(self._ask(entry, empty=False, measure=measure))
            known = self._answers[key] = _Answer(requests, free, found)
        return known.found

    def _ask(
        self, entry: NominatedHead, *, empty: bool, measure: bool, explain: bool = True
    ) -> Mapping[str, Placement | Misfit]:
        requests = entry.place_requests
        if entry.avoids and not empty:
            requests = {f: [p.avoiding(entry.avoids) for p in pod_sets] for f, pod_sets in requests.items()}
        return place_workload(
            {name: self.snapshot.topologies[name].capacity for name in requests},
            requests,
            profile=entry.profile,
            empty=empty,
            explain=explain and self.explains,
            measure=measure,
            previous=places_to_keep(entry.head),
            hint=None if empty else entry.hint,
            thorough=explain,
        )

    # --- the whole workload --------------------------------------------------------------------------------------

    def _claimed(self, claim: Claim, head: Head, profile: Profile) -> NominatedHead | None:
        """Return the entry with the flavors and domains of its claim; None: the claim no longer fits."""
        hint = self.hints.get(head.uid) if self.hints else None
        for planned in (hint, None) if hint is not None and hint.has_place else (None,):
            whole = self._assigned(head, profile, planned.flavors if planned is not None else flavors_to_keep(head))
            if planned is not None:
                whole.hint, whole.plan = planned.places, planned.plan
            if whole.assignment.mode is FIT and not self._misplaced(whole):
                whole.result = FITS
                return whole
        counts = {p.name: p.count for p in claim.pod_sets}
        if counts.keys() != {p.name for p in head.pod_sets}:
            return None
        part, pinned = head.of_counts(counts), {p.name: p.flavors for p in claim.pod_sets}
        with self.claims.first_in_line(head.uid):
            entry = self._assigned(part, profile, pinned)
            if entry.assignment.mode is FIT and not self._misplaced(entry):
                entry.result, entry.as_claimed = FITS, True
                return entry
        entry = self._whole(part, profile, pinned)
        return entry if entry.result not in _IN_VAIN else None

    def _whole(self, head: Head, profile: Profile, pinned: Pins | None) -> NominatedHead:
        return self._judged(self._assigned(head, profile, pinned), pinned)

    def _judged(self, entry: NominatedHead, pinned: Pins | None) -> NominatedHead:
        """Return the nomination of the entry with all its pods."""
        if entry.assignment.mode is FIT and not self._misplaced(entry):
            entry.result = FITS
            return entry
        if entry.assignment.mode is NO_FIT and not self.claims:
            entry.result = NEVER
            return entry
        if not self.claims:
            return self._later(entry, pinned)
        with self.claims.fulfilled(besides=entry.head.uid):
            return self._later(entry, pinned)

    def _later(self, entry: NominatedHead, pinned: Pins | None) -> NominatedHead:
        """Return the entry as it will be when all claims are fulfilled."""
        if self.claims.leaving(besides=entry.head.uid):
            entry = self._assigned(entry.head, entry.profile, pinned)
            if entry.assignment.mode is FIT and not self._misplaced(entry):
                entry.result = FITS_LATER
                return entry
        if entry.assignment.mode is NO_FIT:
            entry.result = NEVER
            return entry
        if entry.place_requests:
            never = self.place(entry, empty=True)
            if never:
                self._refuse_for_ever(entry, never)
                return entry
            lacking = entry.assignment.lacking | _placed_columns(entry)
            entry.assignment = replace(entry.assignment, lacking=lacking)
        entry.targets = self._targets(entry)
        if not entry.targets and entry.avoids:
            entry.avoids = frozenset()
            entry.targets = self._targets(entry)
        if not entry.targets:
            return entry
        entry.result = PREEMPTS
        with simulate(self.snapshot) as simulation:
            for target in entry.targets:
                simulation.remove(target.admitted)
            self.place(entry)
        return entry

    def _assigned(self, head: Head, profile: Profile, pinned: Pins | None) -> NominatedHead:
        asked: Answers = {}
        hooks = self.hooks_of(head)
        assignment = flavors.assign(
            head,
            self.snapshot,
            oracle=self._oracle(head, asked),
            fair=self.findings.rules.fair is not None,
            pinned=pinned,
            demands=self.demands,
            hooks=hooks,
            victims=asked,
        )
        entry = NominatedHead(
            head,
            profile,
            assignment,
            placement=_NOTHING,
            place_requests=_NOTHING,
            avoids=head.avoided,
            asked=asked,
        )
        if head.replaces is not None and assignment.mode is NO_FIT and not assignment.blockers:
            older = head.replaces.key
            gone = f"ClusterQueue {head.queue} has not all flavors of {older} any more, which it is to replace"
            blocker = Blocker(kind=BlockerKind.QUEUE, detail=gone)
            entry.assignment = replace(assignment, blockers=(blocker,))
        if assignment.mode is not NO_FIT:
            entry.place_requests = assignment.places
            if hooks.filters_nodes and assignment.places:
                entry.place_requests = self._filtered(head, assignment.places, hooks)
        return entry

    def _filtered(
        self, head: Head, places: Mapping[str, Sequence[PodSetRequest]], hooks: ProfileHooks
    ) -> Mapping[str, Sequence[PodSetRequest]]:
        """Return requests without the nodes that plugins refuse."""
        pod_sets = {pod_set.name: pod_set for pod_set in head.pod_sets}
        return {
            flavor: [hooks.without_refused(r, pod_sets[r.name], self.snapshot.topologies[flavor].tree) for r in some]
            for flavor, some in places.items()
        }

    def _misplaced(self, entry: NominatedHead) -> bool:
        """Whether the entry has quota but no domains, so that workloads on the hosts may be preempted."""
        if not entry.place_requests:
            return False
        misfits = self.place(entry, measure=True)
        if not misfits:
            return False
        found = [self._topology_blocker(flavor, misfit) for flavor, misfit in misfits.items()]
        entry.assignment = replace(
            entry.assignment,
            mode=NO_CANDIDATES,
            reason=WaitReason.WAITING_FOR_QUOTA,
            blockers=(*entry.assignment.blockers, *found),
        )
        return True

    def _topology_blocker(self, flavor: str, misfit: Misfit, *, never: bool = False) -> Blocker:
        return topology_blocker(flavor, misfit, unusable=self.snapshot.topologies[flavor].unusable, never=never)

    def _refuse_for_ever(self, entry: NominatedHead, never: Mapping[str, Misfit]) -> None:
        entry.result = NEVER
        others = [b for b in entry.assignment.blockers if b.kind is not BlockerKind.TOPOLOGY]
        found = [self._topology_blocker(flavor, misfit, never=True) for flavor, misfit in never.items()]
        entry.assignment = replace(
            entry.assignment,
            mode=NO_FIT,
            reason=WaitReason.TOPOLOGY_PLACEMENT_FAILED,
            blockers=(*others, *found),
        )

    # --- preemption --------------------------------------------------------------------------------------

    def _targets(self, entry: NominatedHead) -> tuple[Target, ...]:
        """Return the workloads to preempt; () when there are none, or too many of them must stay.

        Targets that plugins veto are spared, and others are searched for once; a veto of these ends the search.
        """
        if entry.head.never_preempts:
            return ()
        targets, hooks = self._chosen_targets(entry), self.hooks_of(entry.head)
        if not targets or not hooks.vetoes:
            return targets
        stay = hooks.vetoed(entry.head, targets)
        if not stay:
            return targets
        self.findings.spare(entry.head.uid, stay)
        entry.asked.clear()
        targets = self._chosen_targets(entry)
        stay = hooks.vetoed(entry.head, targets) if targets else {}
        if stay:
            self.findings.spare(entry.head.uid, stay)
        return () if stay else targets

    def _chosen_targets(self, entry: NominatedHead) -> tuple[Target, ...]:
        if not entry.place_requests and not self.claims and len(entry.usage) == 1:
            (question,) = entry.usage.items()
            if question in entry.asked:  # this is the whole request, on the same snapshot
                return entry.asked[question]
        hint = self.hints.get(entry.head.uid) if self.hints else None
        if hint is None or hint.victims is None:
            return self._found_targets(entry)
        targets, is_proposed = cheaper_targets(hint.victims, partial(self._found_targets, entry))
        entry.targets_by = hint.plan if is_proposed else ""
        return targets

    def _found_targets(self, entry: NominatedHead, only: Collection[str] | None = None) -> tuple[Target, ...]:
        """Return the workloads to preempt, with `only` among these alone."""
        preemptor = preemptor_of(entry.head, entry.usage, entry.assignment.lacking, only)
        if not entry.place_requests:
            return find_targets(self.snapshot, preemptor, self.findings)

        reach = VictimReach(self.snapshot, entry.place_requests, entry.profile)

        def places() -> bool:
            answers = self._ask(entry, empty=False, measure=False, explain=False)
            found = {flavor: answer for flavor, answer in answers.items() if isinstance(answer, Placement)}
            if len(found) == len(answers):
                reach.note(found)
            return len(found) == len(answers)

        if places_to_keep(entry.head):  # pods that keep their places need no further capacity
            return find_targets(self.snapshot, preemptor, self.findings, places=places, matters=reach.matters)
        return find_targets(
            self.snapshot,
            preemptor,
            self.findings,
            places=places,
            matters=reach.matters,
            lacks=reach.lacks,
            disturbs=reach.disturbs,
        )

    def _oracle(self, head: Head, asked: Answers) -> flavors.Oracle:
        """Return a function that says whether preemption could free one column, with the borrowing level afterwards.

        The function stores the targets in `asked`.
        """
        if head.never_preempts:
            return flavors.nobody
        preemptor: Preemptor | None = None  # most heads never need it

        def ask(column: FlavorResource, amount: int, level: int) -> tuple[Mode, int]:
            nonlocal preemptor
            if none_may_be_preempted(self.snapshot, head, frozenset((column,)), self.findings):
                asked[column, amount] = ()
                return NO_CANDIDATES, level
            if preemptor is None:
                preemptor = preemptor_of(head, {}, frozenset())
            targets = find_targets(self.snapshot, preemptor.alone(column, amount), self.findings)
            asked[column, amount] = targets
            if not targets:
                return NO_CANDIDATES, level
            with simulate(self.snapshot, with_domains=False, columns=(column,)) as simulation:
                for target in targets:
                    simulation.remove(target.admitted)
                level = quota.lowest_subtree(self.snapshot.nodes[head.queue], column, amount).height
            own = any(target.admitted.queue == head.queue for target in targets)
            return (Mode.PREEMPT if own else Mode.RECLAIM), level

        return ask

    # --- a part of the workload --------------------------------------------------------------------------------------

    def _part(self, head: Head, profile: Profile, pinned: Pins | None) -> NominatedHead | None:
        """Return the largest part that fits or finds targets; None when there is none, or partial admission is off."""
        if not [p for p in head.pod_sets if p.min_count is not None]:
            return None
        slack = [p.request.count - p.min_count if p.min_count is not None else 0 for p in head.pod_sets]
        total = sum(s for s in slack if s > 0)
        found: NominatedHead | None = None
        low, high = 1, total  # the result, if any, is the smallest step that suffices
        while low <= high:
            step = (low + high) // 2
            entry = self._whole(_reduced(head, slack, step, total), profile, pinned)
            if entry.result in _IN_VAIN:
                low = step + 1
            else:
                found, high = entry, step - 1
        return found


def _placed_columns(entry: NominatedHead) -> set[FlavorResource]:
    """Return the columns of pod sets with domains: a workload on the needed hosts holds quota of one of them."""
    placed = {request.name for requests in entry.place_requests.values() for request in requests}
    return {
        FlavorResource(flavor, resource)
        for pod_set in entry.assignment.pod_sets
        if pod_set.name in placed
        for resource, flavor in pod_set.flavors.items()
    }


def _reduced(head: Head, slack: list[int], step: int, total: int) -> Head:
    pairs = zip(head.pod_sets, slack, strict=True)
    return head.of_counts({p.name: p.request.count - max(0, s) * step // total for p, s in pairs})
