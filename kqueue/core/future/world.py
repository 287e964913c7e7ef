"""The state of a simulated future: quota, hosts, workloads and claims, which decisions of the planner change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from kqueue.core import quota
from kqueue.core.charging import charge_domains, domains_held, same_hosts
from kqueue.core.decision import Admit, Preempt, Wait
from kqueue.core.explain import Blocker, BlockerKind
from kqueue.core.planned_state import PlannedState, release
from kqueue.core.preemption import Findings, Rules, none_may_be_preempted
from kqueue.core.quota import FlavorResource, TreeCopy
from kqueue.core.workload import Admitted, Claim, Head, Snapshot

_IN_VAIN = 2
"""The number of preemptions of a workload for the same preemptor after which it is spared by it."""
_SEARCH_ENDED = frozenset({BlockerKind.NO_CANDIDATES, BlockerKind.NEVER_PREEMPTS})
"""Blockers that say only that nothing is preempted."""


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
        self._claims: dict[str, Claim] = {claim.uid: claim for claim in state.snapshot.claims}
        self._preempted = Counter[tuple[str, str]]()
        self.generation = 0
        """Rises with each release."""

    def snapshot(self, queues: Iterable[str]) -> Snapshot:
        """Return a snapshot for a cycle over heads of these ClusterQueues."""
        nodes = {}
        for name in (*queues, *(claim.queue for claim in self._claims.values())):
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
            claims=tuple(self._claims.values()),
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
        workload = Admitted(
            key=head.key,
            uid=head.uid,
            queue=head.queue,
            local_queue="",
            priority=head.priority,
            timestamp=head.timestamp,
            reserved_at=now,
            admitted_at=now,
            evicted=False,
            usage=admission.usage(),
            domains=domains,
            further=further,
        )
        for column, amount in workload.usage.items():
            quota.add_usage(self._live.nodes[head.queue], column, amount)
        for flavor, usage in domains.items():
            charge_domains(flavor, usage, self._live.topologies)
        self._admitted[head.queue] = {**self._admitted[head.queue], head.key: workload}
        self.holders[head.uid] = workload
        self._claims.pop(head.uid, None)
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
        self.generation += 1

    # --- who may use what

    def beside(self, workload: Admitted) -> set[str]:
        """Return the ClusterQueues that may use what this workload releases."""
        helped, hosts = set(self.trees.get(workload.queue, ())), self.hosts_of(workload)
        if hosts:
            helped |= {name for name in self._own if not hosts.isdisjoint(self._flavors_of(name))}
        return helped

    def _flavors_of(self, queue: str) -> list[str]:
        spec = self._live.queues.get(queue)
        return [flavor for group in spec.groups for flavor in group.flavors] if spec is not None else []

    def hosts_of(self, workload: Admitted) -> set[str]:
        """Return the flavors whose free hosts change with this workload."""
        return {name for flavor in workload.domains for name in same_hosts(flavor, self._live.topologies)}

    def may_help(self, refused: Wait, hosts: Collection[str], findings: Findings) -> bool:
        """Whether the refusal may be over, by cheap tests that never say no wrongly.

        Args:
            refused: the last try.
            hosts: flavors whose hosts have changed since.
            findings: what is known about the present state.
        """
        head = refused.head
        spec = self._live.queues[head.queue]
        columns = frozenset(
            FlavorResource(f, r) for group in spec.groups for f in group.flavors for r in group.resources
        )
        if not head.never_preempts and not none_may_be_preempted(self._live, head, columns, findings):
            return True
        places: dict[tuple[str, str], bool] = {}
        for blocker in refused.blockers:
            if blocker.kind not in _SEARCH_ENDED:
                at = blocker.pod_set, blocker.flavor
                places[at] = places.get(at, True) and self._is_over(head, blocker, hosts)
        return not places or any(places.values())

    def _is_over(self, head: Head, blocker: Blocker, hosts: Collection[str]) -> bool:
        if blocker.never:
            return False
        if blocker.kind is BlockerKind.QUOTA:
            column = FlavorResource(blocker.flavor, blocker.resource)
            return quota.available(self._live.nodes[head.queue], column) >= blocker.asked
        return blocker.kind is not BlockerKind.TOPOLOGY or blocker.flavor in hosts
