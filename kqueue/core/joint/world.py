"""The world of one candidate plan: a copy of the state in which workloads are placed, charged, and taken back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count

from kqueue.core import flavors, quota
from kqueue.core.charging import charge_domains, release_domains
from kqueue.core.claims import Claims
from kqueue.core.decision import Admit
from kqueue.core.demand import Demands
from kqueue.core.flavors import FIT, Assignment
from kqueue.core.hooks import NO_HOOKS, ProfileHooks
from kqueue.core.joint.policy import Depth
from kqueue.core.joint.policy_places import cheapest_hosts, domains_to_try
from kqueue.core.joint.round_policies import RoundPolicies
from kqueue.core.planned_state import PlannedState
from kqueue.core.quota import Usage
from kqueue.core.topology.arranged import Hint
from kqueue.core.topology.placement import place_workload
from kqueue.core.topology.request import GangDomains, PodSetRequest
from kqueue.core.topology.result import DomainUsage, Placement, usage_of
from kqueue.core.value import value
from kqueue.core.workload import Claim, Head, PodSetAssignment, Snapshot, has_more_flavors


@value(kw_only=True)
class PlannedAdmission:
    """A workload that a candidate admits: its quota, and its pods on domains.

    Args:
        requests: the pod sets with domains, by topology flavor.
        domains: the usage of their pods, by topology flavor.
        pod_sets: flavors, counts and domains, as an admission has them.
    """

    head: Head
    usage: Usage
    requests: Mapping[str, Sequence[PodSetRequest]]
    domains: Mapping[str, tuple[DomainUsage, ...]]
    pod_sets: tuple[PodSetAssignment, ...]


@value(kw_only=True)
class Choice:
    """Flavors whose quota has room for a workload."""

    head: Head
    assignment: Assignment

    @property
    def requests(self) -> Mapping[str, Sequence[PodSetRequest]]:
        """The pod sets that need domains, by topology flavor."""
        return self.assignment.places


@dataclass(slots=True)
class _LastChoices:
    """The choices of the workload that was asked about last.

    Args:
        changes: the changes of quota before the question.
        others: yields those that are not found yet.
    """

    head: Head
    changes: int
    others: Iterator[Choice]
    found: list[Choice] = field(default_factory=list)


class World:
    """A copy of the state.  All changes go through `admit` and `withdraw`, so that they can be undone."""

    def __init__(
        self,
        state: PlannedState,
        queues: Iterable[str],
        *,
        demands: Demands,
        steps: int = 0,
        charged: bool = True,
        policies: RoundPolicies | None = None,
    ) -> None:
        """Copy the state; `queues` are the ClusterQueues whose quota may change.

        `steps` is the number of searches for domains that repairs may make.  `charged`: claims of preemptors are
        charged; a plan of a cycle charges them itself.  `policies` choose among places; None: profiles do.
        """
        self.snapshot = state.copied(queues)
        self.claims = Claims(self.snapshot, self.snapshot.claims if charged else ())
        self.steps_left = steps
        self.steps_made = 0
        self._hooks, self._demands = state.hooks, demands
        self._policies = policies if policies is not None and policies.have_say else None
        self._residents = self._policies.residents() if self._policies is not None else None
        self._log: list[tuple[PlannedAdmission, bool]] = []
        self._changes = 0
        """Changes of quota."""
        self._last: _LastChoices | None = None
        self._free: dict[tuple[str, str], tuple[int, int | None]] = {}
        """By flavor and resource, the generation of the capacity and the free amount then."""

    def choices(self, head: Head) -> Iterator[Choice]:
        """Yield flavors whose quota has room for all pods, in the order in which they are tried.

        A search and its repairs ask one after the other for the same workload: they are looked for once.
        """
        last = self._last
        if last is None or last.head is not head or last.changes != self._changes:
            last = self._last = _LastChoices(head, self._changes, self._tried_in_turn(head))
        for number in count():
            if number == len(last.found):
                choice = next(last.others, None)
                if choice is None:
                    return
                last.found.append(choice)
            yield last.found[number]

    def _tried_in_turn(self, head: Head) -> Iterator[Choice]:
        tried, seen = head, set[tuple[tuple[str, str], ...]]()
        hooks = self._hooks_of(head.queue)
        while True:
            assignment = flavors.assign(tried, self.snapshot, demands=self._demands, hooks=hooks)
            chosen = tuple([item for pod_set in assignment.pod_sets for item in sorted(pod_set.flavors.items())])
            if chosen in seen:  # queues without fungibility try the same flavors again
                return
            seen.add(chosen)
            if assignment.mode is FIT:
                yield Choice(head=head, assignment=assignment)
            if not has_more_flavors(assignment.last_tried):
                return
            tried = replace(head, last_tried=assignment.last_tried)

    def free(self, flavor: str, resource: str) -> int | None:
        """Return the free amount of a resource on all leaves of a flavor together; None: no leaf ever had any."""
        capacity = self.snapshot.topologies[flavor].capacity
        known = self._free.get((flavor, resource))
        if known is None or known[0] != capacity.generation:
            row = capacity.row(resource)
            total = int(row.clip(0).sum()) if row is not None else None
            known = self._free[flavor, resource] = capacity.generation, total
        return known[1]

    def with_others(self, choices: Sequence[Choice]) -> Sequence[Choice]:
        """Return the choices of a workload, and one more for each other flavor with a topology that it may get later:
        when the quota of these is used up.
        """
        if not choices:
            return choices
        head, found = choices[0].head, list(choices)
        have = {flavor for choice in choices for flavor in choice.requests}
        for group in self.snapshot.queues[head.queue].groups:
            for flavor in group.flavors:
                if flavor not in have and flavor in self.snapshot.topologies:
                    pins = {
                        pod_set.name: {r: flavor if r in group.resources else f for r, f in pod_set.flavors.items()}
                        for pod_set in choices[0].assignment.pod_sets
                    }
                    assignment = flavors.assign(
                        head, self.snapshot, pinned=pins, demands=self._demands, hooks=self._hooks_of(head.queue)
                    )
                    if assignment.mode is FIT:
                        found.append(Choice(head=head, assignment=assignment))
        return found

    def _hooks_of(self, queue: str) -> ProfileHooks:
        return self._hooks.get(self.snapshot.queues[queue].plugin_profile, NO_HOOKS) if self._hooks else NO_HOOKS

    def place(
        self, choice: Choice, *, within: GangDomains | None = None, hint: Hint | None = None
    ) -> PlannedAdmission | None:
        """Return the workload with domains, by the algorithm of its profile; None: it has no room.

        `within`: the only domains for all its pods; None: all of the flavors.  `hint`: the places to use if they have
        room.  This is one step.
        """
        assignment = choice.assignment
        return self._placed(choice.head, choice.requests, assignment.usage, assignment.pod_sets, within, hint)

    def again(self, planned: PlannedAdmission, *, within: GangDomains | None = None) -> PlannedAdmission | None:
        """Return a withdrawn workload with domains, in the flavors that it had if it has room there; None: it has none.

        Its quota is free, because it was withdrawn.  `within`: the only domains for all its pods; None: all.
        """
        if within is not None:
            return self._placed(planned.head, planned.requests, planned.usage, planned.pod_sets, within)
        queue = self.snapshot.queues[planned.head.queue]
        if self._policies is None:
            found = self._placed(planned.head, planned.requests, planned.usage, planned.pod_sets)
            if found is not None or all(len(group.flavors) == 1 for group in queue.groups):
                return found
        return self.find(planned.head)

    def _placed(
        self,
        head: Head,
        wanted: Mapping[str, Sequence[PodSetRequest]],
        usage: Usage,
        pod_sets: Sequence[PodSetAssignment],
        within: GangDomains | None = None,
        hint: Hint | None = None,
    ) -> PlannedAdmission | None:
        self.steps_made += 1
        requests = wanted
        if within is not None:
            limited = {f: [p.limited_to(within) for p in some] for f, some in wanted.items()}
            requests = {f: [p for p in some if p is not None] for f, some in limited.items()}
            if any(None in some for some in limited.values()):
                return None
        capacities = {flavor: self.snapshot.topologies[flavor].capacity for flavor in requests}
        profile = self.snapshot.queues[head.queue].profile.with_algorithm(head.algorithm)
        found = place_workload(capacities, requests, profile=profile, explain=False, hint=hint)
        placed = {flavor: answer for flavor, answer in found.items() if isinstance(answer, Placement)}
        if len(placed) < len(found):
            return None
        where = {pod_set.name: pod_set.assignment for p in placed.values() for pod_set in p.pod_sets}
        return PlannedAdmission(
            head=head,
            usage=usage,
            requests=wanted,
            domains={flavor: usage_of(placement) for flavor, placement in placed.items()},
            pod_sets=tuple([p.placed(where.get(p.name)) for p in pod_sets]),
        )

    def find(self, head: Head) -> PlannedAdmission | None:
        """Return the workload with the first flavors in which it has domains; None: it has none."""
        for choice in self.choices(head):
            found = self.by_policy(choice) or self.place(choice)
            if found is not None:
                return found
        return None

    def by_policy(self, choice: Choice) -> PlannedAdmission | None:
        """Return the workload with the domains that the policies of its flavor choose; None: its profile chooses."""
        if self._policies is None or len(choice.requests) != 1:
            return None
        ((flavor, requests),) = choice.requests.items()
        policies = self._policies.of(flavor)
        if not policies.has_say:
            return None
        view = self._policies.view(flavor, self.snapshot.topologies[flavor], self._residents)
        gang = [self._policies.judged(choice.head, request, flavor) for request in requests]
        if all(pods.is_free for pods in gang):
            hint = cheapest_hosts(policies, gang, view) if policies.depth is Depth.HOST else None
            return self.place(choice, hint=hint) if hint is not None else None
        largest = max(gang, key=lambda pods: pods.units * pods.request.count)
        if largest.level < 0:
            return None
        found = [
            planned
            for within in domains_to_try(policies, largest, view)
            if (planned := self.place(choice, within=within)) is not None
        ]
        return min(found, key=self.policy_cost, default=None)

    def policy_cost(self, planned: PlannedAdmission) -> int:
        """Return the points of the policies for the places of a workload that is not charged."""
        if self._policies is None:
            return 0
        where = {pod_set.name: pod_set.topology for pod_set in planned.pod_sets if pod_set.topology is not None}
        total = 0
        for flavor, requests in planned.requests.items():
            view = self._policies.view(flavor, self.snapshot.topologies[flavor], self._residents)
            places = [
                (self._policies.judged(planned.head, r, flavor), where[r.name]) for r in requests if r.name in where
            ]
            total += self._policies.cost(flavor, places, view)
        return total

    # --- changes ------------------------------------------------------------------------------------------------

    def admit(self, planned: PlannedAdmission) -> None:
        """Charge a workload."""
        self._change(planned, admitted=True)
        self._log.append((planned, True))

    def withdraw(self, planned: PlannedAdmission) -> None:
        """Release what `admit` charged."""
        self._change(planned, admitted=False)
        self._log.append((planned, False))

    def keep(self, claim: Claim) -> None:
        """Reserve resources for a workload that preempts others; this is not undone by `attempt`."""
        self.claims.keep(claim)
        self._changes += 1

    @contextmanager
    def attempt(self) -> Iterator[Undoable]:
        """Undo the changes of the block at its end, unless `keep` was called on its value.

        Attempts may be nested.
        """
        mark, attempt = len(self._log), Undoable()
        try:
            yield attempt
        finally:
            while not attempt.kept and len(self._log) > mark:
                planned, admitted = self._log.pop()
                self._change(planned, admitted=not admitted)

    @contextmanager
    def unchanged(self) -> Iterator[Snapshot]:
        """Undo all changes of quota and capacity that the block makes in the snapshot."""
        roots = {id(node.root): node.root for node in self.snapshot.nodes.values()}
        before = [(node, node.usage.copy()) for root in roots.values() for node in root.walk()]
        with ExitStack() as stack:
            for view in self.snapshot.topologies.values():
                stack.enter_context(view.capacity.trial())
            yield self.snapshot
        for node, usage in before:
            if node.usage != usage:
                quota.set_usage(node, usage)

    def _change(self, planned: PlannedAdmission, *, admitted: bool) -> None:
        """Charge a workload, or release what it was charged with."""
        self._changes += 1
        node = self.snapshot.nodes[planned.head.queue]
        change_usage = quota.add_usage if admitted else quota.remove_usage
        change_domains = charge_domains if admitted else release_domains
        for column, amount in planned.usage.items():
            change_usage(node, column, amount)
        for flavor, taken in planned.domains.items():
            change_domains(flavor, taken, self.snapshot.topologies)
        if self._residents is not None:
            self._residents.note(planned.head.uid, planned.domains, 1 if admitted else -1)


class Undoable:
    """Changes that are undone unless they are kept."""

    __slots__ = ("kept",)

    def __init__(self) -> None:
        self.kept = False

    def keep(self) -> None:
        """Let the changes stay."""
        self.kept = True


def as_planned(decision: Admit, world: World) -> PlannedAdmission:
    """Return an admission of a cycle as that of a candidate."""
    requests: dict[str, list[PodSetRequest]] = {}
    domains: dict[str, list[DomainUsage]] = {}
    asked = {pod_set.name: pod_set.request for pod_set in decision.head.pod_sets}
    for pod_set in decision.admission.pod_sets:
        if pod_set.topology is None:
            continue
        flavor = next(name for name in sorted(set(pod_set.flavors.values())) if name in world.snapshot.topologies)
        request = asked[pod_set.name]
        requests.setdefault(flavor, []).append(
            request if request.count == pod_set.count else replace(request, count=pod_set.count)
        )
        domains.setdefault(flavor, []).extend(
            [DomainUsage(domain.values, request.requests, domain.count) for domain in pod_set.topology.domains]
        )
    return PlannedAdmission(
        head=decision.head,
        usage=decision.admission.usage(),
        requests=requests,
        domains={flavor: tuple(usage) for flavor, usage in domains.items()},
        pod_sets=decision.admission.pod_sets,
    )


def needs_one_domain(requests: Mapping[str, Sequence[PodSetRequest]]) -> bool:
    """Whether one domain of a level must have all pods of one of these pod sets."""
    return any(request.topology.required is not None for of_flavor in requests.values() for request in of_flavor)
