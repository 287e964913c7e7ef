"""Random worlds of queues, cohorts, hosts and workloads, and a model of their changes from cycle to cycle.

The model does exactly the work of the shell around the planner: it keeps claims, requeues, and ends victims some time
after their preemption.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from kqueue.core import quota
from kqueue.core.charging import charge_domains
from kqueue.core.cycle import plan
from kqueue.core.decision import Admit, Decision, Outcome, Preempt, Wait
from kqueue.core.preemption import Rules, SharingStrategy
from kqueue.core.quota import FlavorResource, QuotaNode, Usage, available
from kqueue.core.scan import Attempt, ScanMemory, is_round, remembered
from kqueue.core.topology import HOSTNAME, Capacity, Leaf, NodeFacts, PodSetRequest, TopologyRequest, Tree
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import (
    Admitted,
    Claim,
    Flavor,
    Head,
    PodSet,
    Preempts,
    QueueSpec,
    ResourceGroup,
    Snapshot,
    TopologyView,
)
from kqueue.state.preemptions import Preemptions
from tests.builders import START
from tests.unit.core.preemption_cases import cohort, leaf

NOW = START + timedelta(days=1)
CPU = "cpu"
FLAVORS = (
    Flavor(name="racks", topology="dc"),
    Flavor(name="rows", topology="floor"),
    Flavor(name="pool"),
    Flavor(name="spot"),
)
PLACED, PLAIN = ("racks", "rows"), ("pool", "spot")
_LEVELS = {"racks": ("rack", HOSTNAME), "rows": ("row", HOSTNAME)}
_GIVES_UP = frozenset({Outcome.NO_FIT, Outcome.NO_CANDIDATES, Outcome.REFUSED, Outcome.YIELDS, Outcome.BROKEN})


def trees(hosts: int) -> dict[str, Tree]:
    """Two ways to group the same hosts: in racks of two, and in rows of every third."""
    out = {}
    for flavor, levels in _LEVELS.items():
        leaves = []
        for i in range(hosts):
            labels = {"rack": f"rack{i // 2}", "row": f"row{i % 3}", HOSTNAME: f"h{i}"}
            node = NodeFacts(name=f"h{i}", labels=labels, allocatable={CPU: 4, "pods": 10})
            leaves.append(Leaf(tuple(labels[level] for level in levels), (node,)))
        out[flavor] = Tree(topology=levels[0], levels=levels, leaves=leaves)
    return out


@dataclass(eq=False)
class Model:
    """A world as its seed makes it; `chance` goes on deciding what happens next."""

    seed: int
    fair: tuple[SharingStrategy, ...] | None = None
    chance: random.Random = field(init=False)
    queues: list[str] = field(init=False, default_factory=list)
    specs: dict[str, QueueSpec] = field(init=False, default_factory=dict)
    pending: dict[str, Head] = field(init=False, default_factory=dict)
    parked: set[str] = field(init=False, default_factory=set)
    admitted: dict[str, tuple[Admitted, Head]] = field(init=False, default_factory=dict)
    preemptions: Preemptions = field(init=False, default_factory=Preemptions)
    memory: dict[str, ScanMemory] = field(init=False, default_factory=dict)
    pairs: set[tuple[str, str]] = field(init=False, default_factory=set)
    """(preemptor, victim), as long as the preemptor was not admitted."""
    counted_on: dict[str, set[str]] = field(init=False, default_factory=dict)
    """Who was on the way out, or told to go, when room began to be made for a preemptor."""
    moves: int = field(init=False, default=0)
    """How many were admitted or made to leave."""
    clock: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.preemptions.on_ended = lambda _: self.parked.clear()
        self.trees = trees(self.chance.randint(2, 6))
        self.shape = self._cohort_shape(levels=self.chance.randint(1, 2))
        for name in self.queues:
            self.specs[name] = self._spec(name)

    def one_in(self, n: int) -> bool:
        """Chance."""
        return self.chance.randrange(n) == 0

    # --- what it is made of ---------------------------------------------------------------------------------------

    def _quotas(self) -> dict[str, Any]:
        most = {"racks": 12, "rows": 8, "pool": 8, "spot": 6}
        nominal = {FlavorResource(f, CPU): self.chance.choice([0, most[f] // 2, most[f]]) for f in (*PLACED, *PLAIN)}
        return {
            "nominal": nominal,
            "lends": self.chance.randint(0, 6) if self.one_in(4) else None,
            "borrows": self.chance.randint(0, 6) if self.one_in(4) else None,
        }

    def _cohort_shape(self, *, levels: int) -> list[Any]:
        """[own quotas, children], a child being the like, or (name, quotas) of a queue."""
        children: list[Any] = []
        for _ in range(self.chance.randint(1, 2)):
            self.queues.append(f"q{len(self.queues)}")
            children.append((self.queues[-1], self._quotas()))
        if levels > 1:
            children += [self._cohort_shape(levels=levels - 1) for _ in range(self.chance.randint(1, 2))]
        return [self._quotas() if self.one_in(3) else {}, children]

    def _spec(self, name: str) -> QueueSpec:
        chance = self.chance
        flavors = [*PLACED] if self.one_in(2) else [*PLAIN]
        chance.shuffle(flavors)
        return QueueSpec(
            name=name,
            groups=(ResourceGroup((CPU,), tuple(flavors[: chance.randint(1, 2)])),),
            preempts_own=chance.choice([Preempts.NEVER, Preempts.LOWER_PRIORITY, Preempts.LOWER_OR_NEWER_EQUAL]),
            reclaims=chance.choice([Preempts.NEVER, Preempts.LOWER_PRIORITY, Preempts.ANY]),
            borrow_preempts=self.fair is None and self.one_in(2),
            borrow_before_next_flavor=self.one_in(2),
            preempt_before_next_flavor=self.one_in(2),
            prefers_preemption=self.one_in(2),
        )

    def _tree(self, shape: list[Any], used: Mapping[str, Usage], name: str = "c") -> QuotaNode:
        quotas, children = shape
        nodes = []
        for i, child in enumerate(children):
            if isinstance(child, tuple):
                node = leaf(child[0], **child[1])
                node.usage = dict(used.get(child[0], {}))
                nodes.append(node)
            else:
                nodes.append(self._tree(child, used, f"{name}{i}"))
        return cohort(name, *nodes, **quotas)

    def arrive(self) -> Head:
        """One more workload waits."""
        chance, uid = self.chance, f"w{self.clock:03}"
        self.clock += 1
        queue = chance.choice(self.queues)
        is_placed = self.specs[queue].groups[0].flavors[0] in PLACED
        pod_sets = [self._pod_set("main", queue, placed=is_placed)]
        if is_placed and self.one_in(3):
            pod_sets.append(self._pod_set("more", queue, placed=True))
        head = Head(
            key=f"ns/{uid}",
            uid=uid,
            queue=queue,
            priority=chance.randint(0, 3),
            timestamp=START + timedelta(seconds=self.clock),
            pod_sets=tuple(pod_sets),
        )
        self.pending[uid] = head
        return head

    def _pod_set(self, name: str, queue: str, *, placed: bool) -> PodSet:
        chance, count, topology = self.chance, self.chance.randint(1, 4), TopologyRequest()
        if placed:
            level = "rack" if "racks" in self.specs[queue].groups[0].flavors else "row"
            topology = chance.choice([TopologyRequest(required=level), TopologyRequest(unconstrained=True)])
        per_pod = {CPU: chance.choice([1, 2, 4])}
        return PodSet(
            request=PodSetRequest(name=name, count=count, requests=per_pod, topology=topology),
            quota_requests=per_pod,
            asks_topology=placed,
            min_count=chance.randint(1, count) if self.one_in(4) else None,
        )

    @property
    def claims(self) -> dict[str, Claim]:
        """What is kept for whom."""
        return {claim.uid: claim for claim in self.preemptions.claims(lambda _: True)}

    def snapshot(self, claims: Iterable[Claim] = ()) -> Snapshot:
        """What holds now."""
        used: dict[str, Usage] = {q: {} for q in self.queues}
        running: dict[str, dict[str, Admitted]] = {q: {} for q in self.queues}
        for workload, _ in self.admitted.values():
            running[workload.queue][workload.key] = workload
            used[workload.queue] = quota.total([used[workload.queue], workload.usage])
        root = self._tree(self.shape, used)
        quota.rebuild(root)
        views = {
            f: TopologyView(tree.topology, tree, Capacity.of(tree, usage=self._on_hosts()))
            for f, tree in self.trees.items()
        }
        return Snapshot(
            queues=self.specs,
            nodes={n.name: n for n in root.walk() if not n.is_cohort},
            flavors={f.name: f for f in FLAVORS},
            topologies=views,
            admitted=running,
            claims=tuple(claims),
        )

    def _on_hosts(self) -> list[DomainUsage]:
        return [u for workload, _ in self.admitted.values() for taken in workload.domains.values() for u in taken]

    # --- what happens ---------------------------------------------------------------------------------------------

    def heads(self) -> list[Head]:
        """The first of every queue: who claims something, then priority, then age."""
        out: dict[str, Head] = {}
        for head in sorted(
            self.pending.values(), key=lambda h: (h.uid not in self.claims, -h.priority, h.timestamp, h.uid)
        ):
            if head.uid not in self.parked and head.queue not in out:
                memory = self.memory.get(head.uid)
                out[head.queue] = head if memory is None else replace(head, last_tried=memory.last_tried)
        heads = list(out.values())
        self.chance.shuffle(heads)
        return heads

    def next_head(self, queue: str, without: Collection[str]) -> Head | None:
        """The first of a queue besides these."""
        waits = [h for h in self.pending.values() if h.queue == queue and h.uid not in self.parked]
        left = [head for head in waits if head.key not in without]
        return min(left, key=lambda h: (-h.priority, h.timestamp, h.uid), default=None)

    def rules(self) -> Rules:
        """How preemption chooses in this world."""
        spared = self.preemptions.spared(head.uid for head in self.pending.values())
        return Rules(now=NOW, fair=self.fair, spared=spared)

    def cycle(self) -> list[Decision]:
        """One cycle, and what follows from it at once; every decision is checked."""
        heads = self.heads()
        leaving = set(self.leaving)
        ready = {uid for uid in self.claims if leaving.isdisjoint(self.counted_on[uid])}
        decisions = []
        snapshot = self.snapshot(self.claims.values())
        for decision in plan(snapshot, heads, rules=self.rules(), next_head=self.next_head):
            uid = decision.head.uid
            decisions.append(decision)
            match decision:
                case Admit():
                    self._admit(decision)
                case Preempt():
                    assert uid not in ready, f"{uid}: all who were to leave for it have, and it wants more to"
                    self._preempt(decision)
                case Wait():
                    assert uid not in ready, f"{uid}: all who were to leave for it have, and it waits: {decision}"
                    self._wait(decision)
        assert sorted(d.head.uid for d in decisions) == sorted(h.uid for h in heads)
        return decisions

    def _admit(self, decision: Admit) -> None:
        head, admission = decision.head, decision.admission
        for claim in self.claims.values():
            assert head.uid not in claim.victims, f"{head.uid} is admitted before {claim.uid}, for which it left"
        now, usage = self.snapshot(), admission.usage()
        for column, amount in usage.items():
            assert amount <= max(0, available(now.nodes[head.queue], column)), f"{head.uid}: {column} {amount}"
        requests = {p.name: p.request.requests for p in head.pod_sets}
        domains: dict[str, tuple[DomainUsage, ...]] = {}
        for p in admission.pod_sets:
            if p.topology is not None:
                (flavor,) = set(p.flavors.values())
                placed = tuple(DomainUsage(d.values, requests[p.name], d.count) for d in p.topology.domains)
                domains[flavor] = domains.get(flavor, ()) + placed
        for flavor, taken in domains.items():
            assert now.topologies[flavor].capacity.fits(taken), f"{head.uid}: hosts"
            charge_domains(flavor, taken, now.topologies)
        self.clock += 1
        running = Admitted(
            key=head.key,
            uid=head.uid,
            queue=head.queue,
            local_queue="ns/main",
            priority=head.priority,
            timestamp=head.timestamp,
            reserved_at=START + timedelta(seconds=self.clock),
            evicted=False,
            usage=usage,
            domains=domains,
        )
        self.admitted[head.uid] = running, self.pending.pop(head.uid)
        self.moves += 1
        self.preemptions.admitted(head.uid)
        self.memory.pop(head.uid, None)
        self.pairs = {pair for pair in self.pairs if pair[0] != head.uid}

    def _preempt(self, decision: Preempt) -> None:
        uid = decision.head.uid
        assert decision.targets
        claims = [*self.claims.values(), decision.claim]
        self.counted_on[uid] = {victim for claim in claims for victim in claim.victims} | {*decision.claim.counts_on}
        self.preemptions.begin(decision.claim)
        self.memory.pop(uid, None)
        self.preemptions.evicts(uid, (t.admitted.uid for t in decision.targets if not t.admitted.evicted))
        for target in decision.targets:
            victim, head = self.admitted[target.admitted.uid]
            assert decision.claim.victims[victim.uid] == (victim.queue, victim.key)
            if not victim.evicted:
                assert (uid, victim.uid) not in self.pairs, f"{victim.uid} has left for {uid} before, in vain"
                self.pairs.add((uid, victim.uid))
                self.moves += 1
                self.admitted[victim.uid] = replace(victim, evicted=True), head

    def _wait(self, decision: Wait) -> None:
        uid = decision.head.uid
        assert decision.outcome is not Outcome.BROKEN, decision.error
        assert decision.message
        if decision.outcome in _GIVES_UP:
            self.preemptions.end(uid)
        before = self.memory.pop(uid, None)
        attempt = Attempt(uid=uid, queue=decision.head.queue, shape="", version="", generation=0, cycle=0)
        after = remembered(decision, attempt, before)
        if after is not None:
            self.memory[uid] = after
        has_more = decision.has_more_flavors and not is_round(decision, before)
        if decision.outcome not in (Outcome.SKIPPED, Outcome.AFTER_LOWER_SHARE) and not has_more:
            self.parked.add(uid)

    def release(self, uid: str) -> None:
        """An evicted workload has left, and waits again; one that was not has finished."""
        workload, head = self.admitted.pop(uid)
        if workload.evicted:
            self.pending[uid] = head
        self.parked.clear()

    @property
    def leaving(self) -> list[str]:
        """Who was told to leave, and is still there."""
        return sorted(uid for uid, (workload, _) in self.admitted.items() if workload.evicted)

    def decide(self, heads: Iterable[Head]) -> list[tuple[object, ...]]:
        """What a cycle would decide, in short; nothing happens."""
        decisions = plan(self.snapshot(self.claims.values()), list(heads), rules=self.rules())
        return [in_short(decision) for decision in decisions]


def in_short(decision: Decision) -> tuple[object, ...]:
    """What a decision says, to be compared with another one."""
    match decision:
        case Admit():
            return "admit", decision.head.uid, decision.admission
        case Preempt():
            return "preempt", decision.head.uid, sorted(t.admitted.uid for t in decision.targets)
        case Wait():
            return "wait", decision.head.uid, decision.outcome, decision.message
