"""Running workloads in networks: the one that loses least is proposed as a victim, and none that policies protect."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from kqueue.core import quota
from kqueue.core.cycle import plan as plan_cycle
from kqueue.core.decision import Admit, Decision, Preempt
from kqueue.core.hints import PlanHint, ProposedVictims, cheaper_targets
from kqueue.core.joint.answer import answer_of
from kqueue.core.joint.batch import Batch, RankedWorkload
from kqueue.core.joint.classes import ClassInput, PodClass, classes_of
from kqueue.core.joint.graph import Arc, Graph, problem_with
from kqueue.core.joint.network import build
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.running import RunningInput, lost_by, stopped_classes
from kqueue.core.joint.settings import JointOrder, JointSettings, VictimChoice
from kqueue.core.joint.units import Unit
from kqueue.core.joint.victims import in_ranks, may_preempt
from kqueue.core.lost_work import Checkpoints, RunLimits
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Findings, PreemptionReason, Rules, Target
from kqueue.core.quota import FlavorResource
from kqueue.core.topology import DomainUsage
from kqueue.core.workload import Admitted, Head, Preempts, Snapshot, TopologyView
from tests.builders import GPU, START, make_head, make_queue, make_snapshot
from tests.unit.core.joint.test_never_worse import drawn
from tests.unit.core.joint.worlds import anywhere, racks, world_of

SOLVE = solver()
COLUMN = FlavorResource("gpu", GPU)
HOUR = timedelta(hours=1)
LOWER = make_queue("team", preempts_own=Preempts.LOWER_PRIORITY)


# --- the graph ------------------------------------------------------------------------------------------------------


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize(("waited", "goes"), [(40, False), (50, False), (51, True)])
def test_who_loses_less_leaves_the_only_slot(waited: int, goes: bool) -> None:
    """E16 as a graph: `v` runs and would lose 50, `w` waits."""
    v, w, slot, unscheduled, sink = range(5)
    arcs = [
        Arc(v, slot, 1, 0),
        Arc(v, unscheduled, 1, 50),
        Arc(w, slot, 1, 0),
        Arc(w, unscheduled, 1, waited),
        Arc(slot, sink, 1, 0),
        Arc(unscheduled, sink, 2, 0),
    ]
    graph = Graph.of([1, 1, 0, 0, -2], arcs)
    assert SOLVE is not None
    flow = SOLVE(graph)
    assert problem_with(graph, flow) is None
    assert flow.cost == min(50, waited)
    assert flow.units.tolist() == ([0, 1, 1, 0, 1, 1] if goes else [1, 0, 0, 1, 1, 1])


def running(
    name: str,
    view: TopologyView,
    hosts: dict[str, int],
    *,
    queue: str = "team",
    priority: int = 0,
    seconds: int = 3600,
    **more: Any,
) -> Admitted:
    """A workload that runs on so many free hosts of each rack, charged to the racks."""
    usage = []
    for rack, number in hosts.items():
        row = view.capacity.row(GPU)
        assert row is not None
        free = [leaf for leaf, path in enumerate(view.tree.paths) if path[0] == rack and row.item(leaf) == 8]
        assert len(free) >= number
        usage += [DomainUsage(view.tree.written(leaf), {GPU: 8}, 1) for leaf in free[:number]]
        view.capacity.charge(usage[-number:])
    since = START - timedelta(seconds=seconds)
    return Admitted(
        key=f"default/{name}",
        uid=name,
        queue=queue,
        local_queue="default/main",
        priority=priority,
        timestamp=since,
        reserved_at=since,
        admitted_at=since,
        usage={COLUMN: 8 * len(usage)},
        domains={"gpu": tuple(usage)},
        **{"evicted": False, **more},
    )


def with_running(snapshot: Snapshot, workloads: Iterable[Admitted], *specs: Any) -> Snapshot:
    """The state in which these run; their hosts are charged already."""
    admitted: dict[str, dict[str, Admitted]] = {name: {} for name in snapshot.nodes}
    for one in workloads:
        admitted[one.queue][one.key] = one
        for column, amount in one.usage.items():
            quota.add_usage(snapshot.nodes[one.queue], column, amount)
    queues = {**snapshot.queues, **{spec.name: spec for spec in specs}}
    return replace(snapshot, admitted=admitted, queues=queues)


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize(("waited", "goes"), [(40, False), (50, False), (51, True)])
def test_who_loses_less_leaves_the_only_host(waited: int, goes: bool) -> None:
    """E16 as a network: both have one rank."""
    view, unit = racks(1), Unit(GPU, 8)
    v = running("v", view, {"r0": 1})
    snapshot = world_of(view, quota=8)
    head = make_head("w", pods=1)
    waits = RankedWorkload(head=head, rank=1, waited=waited)
    given = ClassInput(ranked=waits, requests=[p.request for p in head.pod_sets], quota={"main": 8})
    pending = classes_of([given], view.tree.levels, unit, JointOrder.STRICT)
    view.capacity.release(v.domains["gpu"])
    stopped = stopped_classes(v, "gpu", {"gpu": view}, unit, lost=50)
    assert [(one.demand, one.form.quota) for one in stopped] == [(1, 8)]
    network = build("gpu", snapshot, in_ranks(pending, stopped, JointOrder.PRIORITY), unit)
    assert SOLVE is not None
    flow = SOLVE(network.graph)
    assert problem_with(network.graph, flow) is None
    assert network.scheduled(flow) == ([1, 0] if goes else [0, 1])


def classed(*priorities: int, stay: bool = False) -> list[PodClass]:
    """A class of one workload for each priority."""
    view, unit = racks(2), Unit(GPU, 8)
    if stay:
        some = [running(f"v{n}", racks(1), {"r0": 1}, priority=priority) for n, priority in enumerate(priorities)]
        return [one for v in some for one in stopped_classes(v, "gpu", {"gpu": view}, unit, lost=0)]
    heads = [make_head(f"w{n}", pods=n + 1, priority=priority) for n, priority in enumerate(priorities)]
    inputs = [
        ClassInput(
            ranked=RankedWorkload(head=head, rank=n), requests=[p.request for p in head.pod_sets], quota={"main": 8}
        )
        for n, head in enumerate(heads)
    ]
    return classes_of(inputs, view.tree.levels, unit, JointOrder.STRICT)


@pytest.mark.parametrize(
    ("how", "waiting", "runs", "ranks"),
    [
        (JointOrder.STRICT, (5,), (5,), [2, 1]),
        (JointOrder.STRICT, (5,), (4,), [1, 2]),
        (JointOrder.STRICT, (5,), (6,), [2, 1]),
        (JointOrder.STRICT, (5, 3, 1), (3, 3, 2, 0), [1, 3, 5, 2, 2, 4, 6]),
        (JointOrder.STRICT, (5, 9, 1), (7,), [2, 3, 4, 1]),
        (JointOrder.STRICT, (5,), (4, 3), [1, 2, 3]),
        (JointOrder.PRIORITY, (5,), (5, 6, 4), [2, 2, 1, 3]),
        (JointOrder.PRIORITY, (5, 3), (4,), [1, 3, 2]),
    ],
)
def test_a_running_workload_is_before_all_of_equal_or_lower_priority(
    how: JointOrder, waiting: tuple[int, ...], runs: tuple[int, ...], ranks: list[int]
) -> None:
    found = in_ranks(classed(*waiting), classed(*runs, stay=True), how)
    assert [one.rank for one in found] == ranks


@pytest.mark.parametrize(
    ("checkpoints", "seconds"),
    [
        (None, 3660),
        (Checkpoints(age=120), 180),
        (Checkpoints(age=7200), 3660),
        (Checkpoints(interval=600), 660),
        (Checkpoints(age=120, restart=5), 125),
    ],
)
def test_what_a_running_workload_loses(checkpoints: Checkpoints | None, seconds: int) -> None:
    v = running("v", racks(1), {"r0": 1})
    assert lost_by(v, {"v": checkpoints} if checkpoints is not None else {}, START) == seconds


def test_a_workload_that_has_not_started_loses_its_restart() -> None:
    assert lost_by(replace(running("v", racks(1), {"r0": 1}), admitted_at=None), {}, START) == 60


# --- rounds ---------------------------------------------------------------------------------------------------------


def two_racks(**more: Any) -> tuple[Snapshot, list[Head]]:
    """Two full racks: `new` has run for ten minutes and `old` for an hour; gangs of two hosts wait."""
    view = racks(2, 2)
    old = running("old", view, {"r0": 2}, seconds=3600, **more)
    new = running("new", view, {"r1": 2}, seconds=600, **more)
    heads = [make_head("w", pods=2, priority=9), make_head("small", pods=1, priority=0, age=5)]
    return with_running(world_of(view), [old, new], LOWER), heads


def proposed(
    snapshot: Snapshot,
    heads: Sequence[Head],
    *,
    checkpoints: dict[str, Checkpoints] | None = None,
    victims: VictimChoice = VictimChoice.JOINT,
    rules: Rules | None = None,
    order: JointOrder = JointOrder.STRICT,
) -> dict[str, PlanHint]:
    """The hints of a round with proposed victims."""
    queues: dict[str, list[Head]] = {}
    for head in heads:
        queues.setdefault(head.queue, []).append(head)
    plan = plan_round(
        RoundInput(
            state=PlannedState(snapshot=snapshot, rules=rules or Rules(now=START)),
            batch=Batch(queues={name: tuple(some) for name, some in queues.items()}),
            waited={},
            settings=JointSettings(victims=victims, order=order),
            solver=solver(),
            running=RunningInput(checkpoints=checkpoints or {}),
        )
    )
    answer = answer_of(7, plan, {})
    return {entry.uid: entry.hint for entry in answer.entries if entry.hint is not None and entry.hint.victims}


def decided(snapshot: Snapshot, head: Head, hints: dict[str, PlanHint], rules: Rules | None = None) -> Decision:
    """The decision of a cycle on a copy of the state."""
    copy = PlannedState(snapshot=snapshot, rules=Rules(now=START)).copied(snapshot.nodes)
    (decision,) = plan_cycle(copy, [head], rules=rules or Rules(now=START), hints=hints)
    return decision


def gone(decision: Decision) -> list[str]:
    """The workloads that a decision preempts."""
    return sorted(target.admitted.uid for target in decision.targets) if isinstance(decision, Preempt) else []


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize(
    ("checkpoints", "usual", "joint"),
    [
        ({}, ["new"], ["new"]),
        ({"old": Checkpoints(age=10)}, ["new"], ["old"]),
        ({"old": Checkpoints(age=10), "new": Checkpoints(age=5)}, ["new"], ["new"]),
        ({"old": Checkpoints(interval=60)}, ["new"], ["old"]),
        ({"old": Checkpoints(age=600)}, ["new"], ["new"]),
        ({"old": Checkpoints(age=599)}, ["new"], ["old"]),
    ],
)
def test_the_workload_that_loses_less_is_preempted(
    checkpoints: dict[str, Checkpoints], usual: list[str], joint: list[str]
) -> None:
    """The cycle takes the one that was admitted last; a tie is the cycle's."""
    snapshot, heads = two_racks()
    hints = proposed(snapshot, heads, checkpoints=checkpoints)
    assert gone(decided(snapshot, heads[0], {})) == usual
    decision = decided(snapshot, heads[0], hints)
    assert gone(decision) == joint
    assert isinstance(decision, Preempt)
    assert decision.plan == ("joint round 7, gap 0.000" if joint != usual else "")
    assert ("which lose less work than others (joint round 7" in decision.message) is (joint != usual)


def test_a_gang_takes_what_its_victims_have_left_while_the_plan_still_names_them() -> None:
    """The plan has no places for it, and its claim has."""
    snapshot, heads = two_racks()
    hints = proposed(snapshot, heads, checkpoints={"old": Checkpoints(age=10)})
    preempts = decided(snapshot, heads[0], hints)
    assert isinstance(preempts, Preempt)
    view = racks(2, 2)
    left = with_running(world_of(view), [running("new", view, {"r1": 2}, seconds=600)], LOWER)
    admits = decided(replace(left, claims=(preempts.claim,)), heads[0], hints)
    assert isinstance(admits, Admit)
    assert admits.plan == ""
    assert [len(pod_set.topology.domains) for pod_set in admits.admission.pod_sets if pod_set.topology] == [2]


def test_by_default_a_round_proposes_no_victims() -> None:
    snapshot, heads = two_racks()
    checkpoints = {"old": Checkpoints(age=10)}
    assert proposed(snapshot, heads, checkpoints=checkpoints, victims=VictimChoice.CYCLE) == {}
    assert proposed(snapshot, heads, checkpoints=checkpoints) != {}


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize(
    ("spec", "change", "rules"),
    [
        (make_queue("team", preempts_own=Preempts.NEVER), {}, Rules(now=START)),
        (LOWER, {"priority": 0}, Rules(now=START)),
        (LOWER, {"closed_gates": ("gate",)}, Rules(now=START)),
        (LOWER, {"never_preempts": True}, Rules(now=START)),
        (LOWER, {}, Rules(now=START, limits=RunLimits(minimum={"team": 2 * HOUR}))),
        (LOWER, {}, Rules(now=START, spared={"w": {"old", "new"}})),
    ],
)
def test_who_may_not_preempt_never_does_however_long_it_waits(spec: Any, change: dict[str, Any], rules: Rules) -> None:
    snapshot, heads = two_racks()
    snapshot = replace(snapshot, queues={"team": spec})
    head = replace(heads[0], **change)
    assert proposed(snapshot, [head, heads[1]], checkpoints={"old": Checkpoints(age=1)}, rules=rules) == {}
    assert may_preempt(head, snapshot, Findings(rules)) == []
    forced = PlanHint(
        flavors={}, places={}, plan="p", victims=ProposedVictims(uids=("old",), lost={"old": 1, "new": 10**9})
    )
    assert gone(decided(snapshot, head, {"w": forced}, rules)) == []


def test_a_protected_workload_is_not_taken_in_place_of_a_dearer_one() -> None:
    """The minimum runtime protects `new`; the plan knows nothing of it."""
    snapshot, heads = two_racks()
    rules = Rules(now=START, limits=RunLimits(minimum={"team": timedelta(minutes=30)}))
    forced = PlanHint(
        flavors={}, places={}, plan="p", victims=ProposedVictims(uids=("new",), lost={"old": 10**9, "new": 1})
    )
    assert gone(decided(snapshot, heads[0], {"w": forced}, rules)) == ["old"]


@pytest.mark.parametrize(
    ("usual", "others", "lost", "taken"),
    [
        ("a", "b", {"a": 2, "b": 1}, "b"),
        ("a", "b", {"a": 1, "b": 1}, "a"),
        ("a", "b", {"a": 1, "b": 2}, "a"),
        ("ab", "c", {"a": 2, "b": 2, "c": 3}, "c"),
        ("a", "bc", {"a": 3, "b": 2, "c": 2}, "a"),
        ("a", "", {"a": 3}, "a"),
        ("", "b", {"b": 1}, ""),
        ("a", "b", {"b": 1}, "a"),
        ("a", "b", {"a": 5}, "a"),
        ("aE", "b", {"a": 5, "b": 4}, "b"),
        ("a", "Eb", {"a": 5, "b": 4}, "Eb"),
    ],
)
def test_the_smaller_loss_wins(usual: str, others: str, lost: dict[str, int], taken: str) -> None:
    """`E` leaves already.  What is unknown is not taken."""
    view = racks(1)

    def targets(names: str) -> tuple[Target, ...]:
        made = running("x", view, {})
        return tuple(
            Target(replace(made, uid=name, evicted=name == "E"), PreemptionReason.IN_CLUSTER_QUEUE) for name in names
        )

    asked: list[object] = []

    def find(only: Any) -> tuple[Target, ...]:
        asked.append(only)
        return targets(usual if only is None else others)

    found, is_proposed = cheaper_targets(ProposedVictims(uids=("b",), lost=lost), find)
    assert "".join(target.admitted.uid for target in found) == taken
    assert is_proposed is (taken == others != usual)
    assert asked in ([None], [None, {"b"}])


# --- random worlds --------------------------------------------------------------------------------------------------

WORLDS = int(os.environ.get("KQUEUE_JOINT_WORLDS", "160"))
PARTS = 4


def drawn_with_victims(seed: int) -> RoundInput:
    """A random world whose workloads have run for random times and have saved at random moments."""
    given, chance = drawn(seed), random.Random(seed)
    now, snapshot = given.state.rules.now, given.state.snapshot
    admitted = {
        queue: {
            key: replace(one, admitted_at=now - timedelta(seconds=chance.randint(0, 7200))) for key, one in some.items()
        }
        for queue, some in snapshot.admitted.items()
    }
    minimum = {queue: timedelta(seconds=1800) for queue in admitted if chance.randrange(4) == 0}
    return replace(
        given,
        state=PlannedState(
            snapshot=replace(snapshot, admitted=admitted),
            rules=replace(given.state.rules, limits=RunLimits(minimum=minimum)),
        ),
        settings=replace(given.settings, victims=VictimChoice.JOINT),
        running=RunningInput(
            checkpoints={
                one.uid: Checkpoints(age=chance.randint(0, 3600))
                for some in admitted.values()
                for one in some.values()
                if chance.randrange(2)
            }
        ),
    )


def full_racks(seed: int) -> RoundInput:
    """Racks on which many gangs run, of two ClusterQueues of one cohort; a few of higher priority wait."""
    chance = random.Random(seed)
    view = racks(*(chance.randint(3, 5) for _ in range(3)))
    hosts, policies = len(view.tree), [Preempts.LOWER_PRIORITY, Preempts.LOWER_OR_NEWER_EQUAL]
    specs = [
        make_queue(
            name,
            preempts_own=chance.choice([*policies, Preempts.NEVER]),
            reclaims=chance.choice([*policies, Preempts.ANY, Preempts.NEVER]),
        )
        for name in "ab"
    ]
    share = chance.randint(hosts // 3, hosts)
    snapshot = make_snapshot(
        {"a": {"gpu": 8 * share}, "b": {"gpu": 8 * (hosts - share)}}, cohort="c", topologies={"gpu": view}, specs=specs
    )
    workloads: list[Admitted] = []
    for rack, number in [("r0", 3), ("r1", 3), ("r2", 3)]:
        while number > 0:
            size = chance.randint(1, min(2, number))
            number -= size
            workloads.append(
                running(
                    f"v{len(workloads)}",
                    view,
                    {rack: size},
                    queue=chance.choice("ab"),
                    priority=chance.choice([0, 0, 1]),
                    seconds=chance.randint(0, 7200),
                )
            )
    heads = [
        make_head(f"w{n}", queue=chance.choice("ab"), pods=chance.randint(1, 4), priority=chance.randint(1, 2), age=n)
        for n in range(chance.randint(2, 4))
    ]
    queues = {name: tuple(head for head in heads if head.queue == name) for name in "ab"}
    minimum = {queue: timedelta(seconds=1800) for queue in "ab" if chance.randrange(4) == 0}
    return RoundInput(
        state=PlannedState(
            snapshot=with_running(snapshot, workloads), rules=Rules(now=START, limits=RunLimits(minimum=minimum))
        ),
        batch=Batch(queues={name: some for name, some in queues.items() if some}),
        waited={},
        settings=JointSettings(victims=VictimChoice.JOINT, order=chance.choice(list(JointOrder))),
        solver=solver(),
        running=RunningInput(
            checkpoints={one.uid: Checkpoints(age=chance.randint(0, 3600)) for one in workloads if chance.randrange(3)}
        ),
    )


def is_legal(v: Admitted, head: Head, snapshot: Snapshot, rules: Rules) -> bool:
    """Whether policies let a workload preempt another one; this shares no code with the search."""
    if v.evicted:
        return True
    spec = snapshot.queues[head.queue]
    policy = spec.preempts_own if v.queue == head.queue else spec.reclaims
    assert v.admitted_at is not None
    if v.admitted_at + rules.limits.minimum.get(v.queue, timedelta(0)) > rules.now:
        return False
    if policy is Preempts.LOWER_OR_NEWER_EQUAL and v.priority == head.priority:
        return v.timestamp > head.timestamp
    return policy is Preempts.ANY or (policy is not Preempts.NEVER and v.priority < head.priority)


def lost_with(decision: Preempt, given: RoundInput) -> int:
    """The work that is lost with the targets of a decision: seconds of their pods, by what each of these requests."""
    return sum(
        lost_by(target.admitted, given.running.checkpoints, given.state.rules.now) * amount * one.count
        for target in decision.targets
        if not target.admitted.evicted
        for some in target.admitted.domains.values()
        for one in some
        for amount in one.requests.values()
    )


@pytest.mark.mechanism("2.6")
@pytest.mark.parametrize(("worlds", "least"), [(drawn_with_victims, 0), (full_racks, 1)])
@pytest.mark.parametrize("part", range(PARTS))
def test_proposed_victims_are_legal_and_lose_less_than_those_of_the_cycle(
    worlds: Callable[[int], RoundInput], least: int, part: int
) -> None:
    taken = hinted = 0
    for seed in range(part, WORLDS, PARTS):
        given = worlds(seed)
        state, plan = given.state, plan_round(given)
        for entry in answer_of(1, plan, {}).entries:
            if entry.hint is None or entry.hint.victims is None:
                continue
            hinted += 1
            (head,) = [head for head in given.batch.heads() if head.uid == entry.uid]
            usual, joint = (
                next(iter(plan_cycle(state.copied(state.snapshot.nodes), [head], rules=state.rules, hints=hints)))
                for hints in ({}, {entry.uid: entry.hint})
            )
            assert type(joint) is type(usual), seed
            if not isinstance(joint, Preempt) or not isinstance(usual, Preempt):
                continue
            for target in joint.targets:
                assert is_legal(target.admitted, head, state.snapshot, state.rules), (seed, head.uid)
            if not joint.plan:
                assert joint.targets == usual.targets, seed
                continue
            taken += 1
            leave = {target.admitted.uid for target in joint.targets if not target.admitted.evicted}
            assert leave <= set(entry.hint.victims.uids), seed
            assert lost_with(joint, given) < lost_with(usual, given), seed
    assert hinted > 0
    assert taken >= least


@pytest.mark.parametrize("seed", range(12))
def test_victims_change_nothing_else_of_a_plan(seed: int) -> None:
    given = full_racks(seed)
    usual = plan_round(replace(given, settings=replace(given.settings, victims=VictimChoice.CYCLE)))
    joint = plan_round(given)
    assert replace(joint, workloads=tuple([replace(one, victims=None) for one in joint.workloads])) == usual
    assert plan_round(given) == joint


def test_a_gang_that_needs_one_rack_gets_the_cheapest_rack() -> None:
    """Two racks of two workloads each: the flow takes the cheaper one of each rack, which helps no gang of three."""
    view = racks(4, 4)
    some = [
        running("a", view, {"r0": 2}, seconds=100),
        running("b", view, {"r0": 2}, seconds=4000),
        running("c", view, {"r1": 2}, seconds=200),
        running("d", view, {"r1": 2}, seconds=3000),
    ]
    snapshot = with_running(world_of(view), some, LOWER)
    heads = [make_head("w", pods=4, priority=9), make_head("x", pods=40, priority=0, age=5)]
    hints = proposed(snapshot, heads)
    assert hints["w"].victims is not None
    assert hints["w"].victims.uids == ("c", "d")
    assert gone(decided(snapshot, heads[0], hints)) == ["c", "d"]


@pytest.mark.parametrize(("priority", "victims"), [(0, ("old",)), (1, ("new",)), (9, ("new",))])
def test_workloads_of_low_priority_leave_first_whatever_they_lose(priority: int, victims: tuple[str, ...]) -> None:
    view = racks(2, 2)
    old = running("old", view, {"r0": 2}, seconds=3600, priority=priority)
    new = running("new", view, {"r1": 2}, seconds=7200)
    snapshot = with_running(world_of(view), [old, new], LOWER)
    heads = [make_head("w", pods=2, priority=10), make_head("x", pods=40, priority=0, age=5)]
    hint = proposed(snapshot, heads)["w"]
    assert hint.victims is not None
    assert hint.victims.uids == victims


def test_a_gang_that_may_be_anywhere_takes_the_victims_of_the_flow() -> None:
    snapshot, heads = two_racks()
    hint = proposed(snapshot, [anywhere(heads[0]), heads[1]], checkpoints={"old": Checkpoints(age=10)})["w"]
    assert hint.victims is not None
    assert hint.victims.uids == ("old",)
    assert hint.victims.lost == {"old": 140, "new": 1320}
