"""The state of a simulated future: quota, hosts, workloads and claims, which decisions of the planner change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from math import inf

from kqueue.core import quota
from kqueue.core.charging import charge_domains, counted_in, domains_held, same_hosts
from kqueue.core.decision import Admit, Preempt, Wait
from kqueue.core.explain import BlockerKind
from kqueue.core.planned_state import PlannedState, release
from kqueue.core.preemption import Findings, Rules, none_may_be_preempted
from kqueue.core.quota import FlavorResource, TreeCopy
from kqueue.core.topology.counting import COUNT_MAX, pods_per_domain
from kqueue.core.topology.request import PodSetRequest, Shape
from kqueue.core.topology.result import Path
from kqueue.core.topology.summary import domains_above_hosts
from kqueue.core.workload import (
    Admitted,
    Claim,
    Head,
    PodSet,
    PodSetAssignment,
    Preempts,
    QueueSpec,
    Snapshot,
)

_IN_VAIN = 2
"""The number of preemptions of a workload for the same preemptor after which it is spared by it."""
_FLAVOR_FAULTS = frozenset(
    {
        BlockerKind.FLAVOR_MISSING,
        BlockerKind.FLAVOR_TAINT,
        BlockerKind.FLAVOR_LABELS,
        BlockerKind.FLAVOR_TOPOLOGY,
        BlockerKind.FLAVOR_CLASS,
    }
)
"""Blockers that do not depend on usage."""


def _highest_preempted(policy: Preempts, priority: int) -> float:
    """Return the highest priority of workloads that a policy lets a head of this priority preempt."""
    if policy is Preempts.ANY:
        return inf
    if policy is Preempts.NEVER:
        return -inf
    return priority if policy is Preempts.LOWER_OR_NEWER_EQUAL else priority - 1


class FutureWorld:
    """Changes a copy of the present state; cycles plan on snapshots of it."""

    def __init__(self, state: PlannedState, queues: Iterable[str]) -> None:
        """Copy the trees of these ClusterQueues; the state itself is not changed."""
        self._state = state
        self._live: Snapshot = state.copied(queues)
        self._own = {name for name, node in self._live.nodes.items() if node is not state.snapshot.nodes.get(name)}
        self.trees: dict[str, frozenset[str]] = {}
        """By ClusterQueue, the ClusterQueues of its tree."""
        self._copies: dict[int, TreeCopy] = {}
        for name in self._own:
            if name not in self.trees:
                tree = frozenset(n.name for n in self._live.nodes[name].root.walk() if not n.is_cohort)
                self.trees.update(dict.fromkeys(tree, tree))
        self._admitted: dict[str, Mapping[str, Admitted]] = {
            name: dict(self._live.admitted.get(name, {})) for name in self._own
        }
        self._live.admitted = self._admitted
        self.holders: dict[str, Admitted] = {holder.uid: holder for holder in state.holders}
        """All workloads with usage, by UID."""
        for workloads in self._admitted.values():
            self.holders.update({holder.uid: holder for holder in workloads.values()})
        self._claims: dict[str, Claim] = {claim.uid: claim for claim in state.snapshot.claims if not claim.is_timed}
        self._preempted = Counter[tuple[str, str]]()
        self._columns: dict[str, frozenset[FlavorResource]] = {}
        """All columns of a ClusterQueue."""
        self._held = Counter[tuple[str, FlavorResource, int]]()
        """Usage by ClusterQueue, column and priority."""
        for name, workloads in self._admitted.items():
            for holder in workloads.values():
                self._count_held(name, holder, 1)
        self._gains: dict[tuple[str, FlavorResource, int], int] = {}
        """The most that preemptions release, by ClusterQueue, column and priority of the preemptor, until usage
        changes."""
        self._free: dict[tuple[str, str, str], int] = {}
        """Free quota by ClusterQueue, flavor and resource, until usage changes."""
        self._room: dict[tuple[str, Shape, str | None], int] = {}
        """The most pods by flavor, shape and required level, until usage changes."""
        self._freed = Counter[int]()
        """The number of releases by tree, as the identity of its root."""

    def snapshot(self, queues: Iterable[str], timed: Sequence[Claim] = ()) -> Snapshot:
        """Return a snapshot for a cycle over heads of these ClusterQueues; `timed` are the claims with a time."""
        nodes = {}
        ending = {queue for claim in timed for queue, _ in claim.ends.values()}
        for name in (*queues, *ending, *(claim.queue for claim in (*self._claims.values(), *timed))):
            if name in self._own and name not in nodes:
                root = self._live.nodes[name].root
                copy = self._copies.get(id(root))
                if copy is None:
                    copy = self._copies[id(root)] = TreeCopy(root)
                copy.refresh()
                nodes.update(copy.queues)
        return replace(
            self._live,
            nodes=nodes,
            topologies={n: replace(v, capacity=v.capacity.fork()) for n, v in self._live.topologies.items()},
            admitted={name: self._admitted[name] for name in nodes},
            claims=(*self._claims.values(), *timed),
        )

    def rules(self, now: datetime, heads: Iterable[Head]) -> Rules:
        """Return the rules of preemption at this time for these heads."""
        rules = self._state.rules
        if not self._preempted:
            return replace(rules, now=now)
        uids = {head.uid for head in heads}
        spared = {uid: frozenset(some) for uid, some in rules.spared.items()}
        for (preemptor, victim), times in self._preempted.items():
            if preemptor in uids and times >= _IN_VAIN:
                spared[preemptor] = spared.get(preemptor, frozenset()) | {victim}
        return replace(rules, now=now, spared=spared)

    # --- changes

    def admit(self, decision: Admit, now: datetime) -> Admitted:
        """Charge an admission; return the workload as it holds it."""
        head, admission = decision.head, decision.admission
        if head.replaces is not None:
            self._forget(self._admitted.get(head.queue, {}).get(head.replaces.key))
        requests = {pod_set.name: pod_set.request.requests for pod_set in head.pod_sets}
        domains, further = domains_held(admission.pod_sets, requests, self._live.topologies)
        workload = Admitted.starting(head, now, admission.usage(), domains, further)
        for column, amount in workload.usage.items():
            quota.add_usage(self._live.nodes[head.queue], column, amount)
        for flavor, usage in domains.items():
            charge_domains(flavor, usage, self._live.topologies)
        self._admitted[head.queue] = {**self._admitted[head.queue], head.key: workload}
        self._count_held(head.queue, workload, 1)
        self.holders[head.uid] = workload
        self._claims.pop(head.uid, None)
        self._changed()
        return workload

    def preempt(self, decision: Preempt) -> list[Admitted]:
        """Keep the claim of a preemptor; return the workloads that end for it, which are not released yet."""
        uid = decision.head.uid
        self._claims.pop(uid, None)
        self._claims[uid] = decision.claim
        victims = [target.admitted for target in decision.targets]
        self._preempted.update((uid, victim.uid) for victim in victims)
        return victims

    def end_claim(self, uid: str) -> bool:
        """End the claim of a workload; return whether it had one."""
        return self._claims.pop(uid, None) is not None

    def holder(self, uid: str) -> Admitted | None:
        """Return a workload with usage; None: it has none."""
        return self.holders.get(uid)

    def release(self, uid: str) -> Admitted | None:
        """Release the usage of a workload; None: it has none."""
        workload = self.holders.get(uid)
        self._forget(workload)
        return workload

    def _forget(self, workload: Admitted | None) -> None:
        if workload is None or self.holders.pop(workload.uid, None) is None:
            return
        release(workload, self._live, self._own)
        of_queue = self._admitted.get(workload.queue)
        if of_queue is not None and of_queue.get(workload.key) is workload:
            self._admitted[workload.queue] = {key: one for key, one in of_queue.items() if one is not workload}
            self._count_held(workload.queue, workload, -1)
        self._freed[id(self._live.nodes[workload.queue].root)] += 1
        self._changed()

    def freed(self, queue: str) -> int:
        """Return a number that rises with each release of quota in the tree of a ClusterQueue."""
        return self._freed[id(self._live.nodes[queue].root)]

    def scans_several_flavors(self, queue: str) -> bool:
        """Whether a try of a workload of this ClusterQueue may go on at another flavor than the try before it."""
        spec = self._live.queues.get(queue)
        return spec is not None and spec.fungible and any(len(group.flavors) > 1 for group in spec.groups)

    def domains_of(self, pod_sets: Iterable[PodSetAssignment]) -> list[tuple[Path, int]]:
        """Return the domains above the hosts of these pod sets, with their pods."""
        found = Counter[Path]()
        for pod_set in pod_sets:
            view = self._live.topologies.get(counted_in(pod_set, self._live.topologies) or "")
            if view is not None and pod_set.topology is not None:
                found.update(dict(domains_above_hosts(view.tree, pod_set.topology)[0]))
        return sorted(found.items())

    # --- who may use what

    def beside(self, workload: Admitted | Claim) -> set[str]:
        """Return the ClusterQueues that may use what this workload, or the end of this claim, releases."""
        helped = set(self.trees.get(workload.queue, ()))
        hosts = {name for flavor in workload.domains for name in same_hosts(flavor, self._live.topologies)}
        if hosts:
            helped |= {name for name in self._own if not hosts.isdisjoint(self._flavors_of(name))}
        return helped

    def _flavors_of(self, queue: str) -> list[str]:
        spec = self._live.queues.get(queue)
        return [flavor for group in spec.groups for flavor in group.flavors] if spec is not None else []

    def may_start(self, head: Head, refused: Wait | None, findings: Findings) -> bool:
        """Whether a try of the head may have success, by tests that are cheaper than a try and never say no wrongly.

        They compare what each pod set asks for with all that is free.  `refused` is an earlier try of an equal head;
        None: there was none.  `findings` are those of the present state.
        """
        spec = self._live.queues.get(head.queue)
        if spec is None or head.replaces is not None:
            return True
        if self._may_preempt(head, spec, findings):
            # in all other queues a try that fails keeps what it waits for from the other heads of its cycle
            is_without_effect = spec.reclaims is Preempts.ANY and head.uid not in self._claims
            return not is_without_effect or all(
                self._may_have_quota(pod_set, spec, head.priority) for pod_set in head.pod_sets
            )
        hopeless = {
            (blocker.pod_set, blocker.flavor)
            for blocker in (refused.blockers if refused is not None else ())
            if blocker.never or blocker.kind in _FLAVOR_FAULTS
        }
        return all(self._may_fit(pod_set, spec, hopeless) for pod_set in head.pod_sets)

    def _may_preempt(self, head: Head, spec: QueueSpec, findings: Findings) -> bool:
        """Whether policies let the head preempt any workload of its tree."""
        if head.never_preempts or (spec.preempts_own is Preempts.NEVER and spec.reclaims is Preempts.NEVER):
            return False
        columns = self._columns.get(spec.name)
        if columns is None:
            columns = self._columns[spec.name] = frozenset(
                FlavorResource(f, r) for group in spec.groups for f in group.flavors for r in group.resources
            )
        return not none_may_be_preempted(self._live, head, columns, findings)

    def _may_have_quota(self, pod_set: PodSet, spec: QueueSpec, priority: int) -> bool:
        """Whether each group of resources has a flavor with enough quota for the fewest pods, if all workloads leave
        that a head of this priority may preempt.
        """
        pods = pod_set.min_count or pod_set.request.count
        for group in spec.groups:
            asked = [(r, pods * pod_set.quota_requests[r]) for r in group.resources if r in pod_set.quota_requests]
            if asked and not any(
                self._has_quota(spec.name, f, asked, preempting=(spec, priority)) for f in group.flavors
            ):
                return False
        return True

    def _most_gained(self, spec: QueueSpec, column: FlavorResource, priority: int) -> int:
        """Return the most quota of a column that preemptions of a head of this priority release."""
        key = spec.name, column, priority
        found = self._gains.get(key)
        if found is None:
            policies = (
                (name, spec.preempts_own if name == spec.name else spec.reclaims) for name in self.trees[spec.name]
            )
            limits = {name: _highest_preempted(policy, priority) for name, policy in policies}
            found = self._gains[key] = sum(
                amount
                for (name, of, holds), amount in self._held.items()
                if of == column and name in limits and holds <= limits[name]
            )
        return found

    def _count_held(self, queue: str, workload: Admitted, sign: int) -> None:
        for column, amount in workload.usage.items():
            key = queue, column, workload.priority
            self._held[key] += sign * amount
            if not self._held[key]:
                del self._held[key]

    def _may_fit(self, pod_set: PodSet, spec: QueueSpec, hopeless: Collection[tuple[str, str]]) -> bool:
        """Whether each group of resources has a flavor with enough free quota and hosts for the fewest pods."""
        pods = pod_set.min_count or pod_set.request.count
        for group in spec.groups:
            asked = [(r, pods * pod_set.quota_requests[r]) for r in group.resources if r in pod_set.quota_requests]
            if asked and not any(
                self._has_quota(spec.name, flavor, asked) and self._may_have_room(pod_set, flavor, pods)
                for flavor in group.flavors
                if (pod_set.name, flavor) not in hopeless
            ):
                return False
        return True

    def _has_quota(
        self,
        queue: str,
        flavor: str,
        asked: Iterable[tuple[str, int]],
        preempting: tuple[QueueSpec, int] | None = None,
    ) -> bool:
        """Whether a flavor has so much free quota; `preempting`: with all that a head of this priority may preempt."""
        free = self._free
        for resource, amount in asked:
            key = queue, flavor, resource
            if key not in free:
                free[key] = quota.available(self._live.nodes[queue], FlavorResource(flavor, resource))
            if amount <= 0 or amount <= free[key]:
                continue
            if preempting is None:
                return False
            spec, priority = preempting
            if amount > free[key] + self._most_gained(spec, FlavorResource(flavor, resource), priority):
                return False
        return True

    def _may_have_room(self, pod_set: PodSet, flavor: str, pods: int) -> bool:
        """Whether this many pods fit in the best domain of the required level, or in all domains."""
        request = pod_set.request
        key = flavor, request.shape, request.topology.required
        most = self._room.get(key)
        if most is None:
            most = self._room[key] = self._most_pods(flavor, request)
        return most >= pods

    def _most_pods(self, flavor: str, request: PodSetRequest) -> int:
        view, required = self._live.topologies.get(flavor), request.topology.required
        if view is None or request.count == 0:
            return COUNT_MAX
        fit, levels = pods_per_domain(view.capacity, request.shape), view.tree.levels
        return int(fit[levels.index(required)].max(initial=0) if required in levels else fit[0].sum())

    def _changed(self) -> None:
        """Forget what depends on usage."""
        self._free.clear()
        self._gains.clear()
        self._room.clear()
