"""Whatever is said to let a workload start does: the change is made to the world, and a cycle is run in it."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kqueue.core.cycle import plan
from kqueue.core.decision import Admit
from kqueue.core.preemption import SharingStrategy
from kqueue.core.quota import rebuild
from kqueue.core.topology import Tree
from kqueue.core.why import (
    Alternative,
    FewerPods,
    MoreQuota,
    NodesReturn,
    OtherQueue,
    OtherWish,
    PlannedState,
    Spare,
    WhatIf,
    WorkloadsEnd,
)
from kqueue.core.workload import Head, Snapshot
from tests.unit.core.cycle_worlds import Model
from tests.unit.core.why_cases import what_ifs

_SEEDS = 40


def worlds(seed: int) -> tuple[Model, dict[str, Tree], list[Spare]]:
    """A model after some cycles, its trees as they are with all nodes, and the nodes that it lacks."""
    model = Model(seed, fair=(SharingStrategy.LTE, SharingStrategy.LTI) if seed % 4 == 3 else None)
    whole, spares = dict(model.trees), list[Spare]()
    lost = {f"h{i}" for i in range(model.chance.randint(0, 3))}
    for flavor, tree in whole.items():
        gone = [leaf for leaf in tree.leaves if leaf.path[-1] in lost]
        model.trees[flavor], _ = tree.edited([tree.leaves.index(leaf) for leaf in gone], [])
        spares += [
            Spare(
                node=leaf.path[-1],
                flavor=flavor,
                reason="unschedulable",
                leaf=leaf,
                free=leaf.nodes[0].allocatable,
                idle=leaf.nodes[0].allocatable,
            )
            for leaf in gone
        ]
    for _ in range(12):
        for _ in range(model.chance.randint(0, 3)):
            model.arrive()
        model.cycle()
        for uid in model.leaving:
            if model.one_in(2):
                model.release(uid)
    return model, whole, spares


def changed(what_if: WhatIf, head: Head, model: Model, whole: dict[str, Tree]) -> tuple[Model, Head]:
    """The world after the change, and the workload in it."""
    after = copy.deepcopy(model)
    match what_if.change:
        case WorkloadsEnd(workloads=workloads):
            for workload in workloads:
                del after.admitted[workload.uid]
        case NodesReturn(nodes=nodes):
            back = {node for node, _ in nodes}
            for flavor, tree in whole.items():
                there = {leaf.path for leaf in after.trees[flavor].leaves}
                kept = [leaf for leaf in tree.leaves if leaf.path in there or leaf.path[-1] in back]
                after.trees[flavor] = Tree(topology=tree.topology, levels=tree.levels, leaves=kept)
        case OtherQueue(queue=queue):
            head = replace(head, queue=queue)
        case FewerPods(pod_set=name, count=count):
            head = _with(head, name, count=count)
        case OtherWish() as wish:
            for name in wish.pod_sets:
                topology = replace(
                    next(p for p in head.pod_sets if p.name == name).request.topology,
                    required=wish.level if wish.required else None,
                    preferred=None if wish.required else wish.level,
                )
                head = _with(head, name, topology=topology)
    return after, head


def _grant(what_if: WhatIf, snapshot: Snapshot) -> None:
    """Give the ClusterQueue the quota that the change says, if it says so."""
    if isinstance(what_if.change, MoreQuota):
        node = snapshot.nodes[what_if.change.queue]
        for one in what_if.change.increases:
            before = node.quota(one.column)
            if one.field == "borrowingLimit":
                assert before.borrowing_limit == one.instead_of
                after = replace(before, borrowing_limit=one.to)
            else:
                assert before.nominal == one.instead_of
                after = replace(before, nominal=one.to)
            node.quotas = {**node.quotas, one.column: after}
        rebuild(node.root)


def _with(head: Head, name: str, **changes: object) -> Head:
    pod_sets = (
        replace(p, request=replace(p.request, **changes), min_count=None if "count" in changes else p.min_count)  # type: ignore[arg-type]
        if p.name == name
        else p
        for p in head.pod_sets
    )
    return replace(head, pod_sets=tuple(pod_sets))


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_every_change_that_is_named_lets_the_workload_start(seed: int) -> None:
    """Random queues, hosts and workloads, with room that is being made for some of them."""
    model, whole, spares = worlds(seed)
    claims = tuple(model.claims.values())
    for head in list(model.pending.values())[:6]:
        holders = [workload for workload, _ in model.admitted.values()]
        world = PlannedState(snapshot=model.snapshot(claims), rules=model.rules(), holders=holders, spares=spares)
        others = [Alternative(local_queue=q, head=replace(head, queue=q)) for q in model.queues if q != head.queue]
        for what_if in what_ifs(head, world, others):
            after, head_after = changed(what_if, head, model, whole)
            snapshot = after.snapshot(claims)
            _grant(what_if, snapshot)
            (decision,) = plan(snapshot, [head_after], rules=after.rules())
            assert isinstance(decision, Admit), (head, what_if.change, decision)
            placed = {p.name: p.count for p in decision.admission.pod_sets}
            assert placed == {p.name: p.request.count for p in head_after.pod_sets}


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_where_the_end_of_one_workload_is_enough_some_end_is_named(seed: int) -> None:
    """Each of them is taken away, and a cycle is run."""
    model, _, _ = worlds(seed)
    for head in list(model.pending.values())[:4]:
        holders = [workload for workload, _ in model.admitted.values()]
        world = PlannedState(snapshot=model.snapshot(), rules=model.rules(), holders=holders)
        (now,) = plan(model.snapshot(), [head], rules=model.rules())
        if isinstance(now, Admit):
            continue
        enough = []
        for uid in model.admitted:
            after = copy.deepcopy(model)
            del after.admitted[uid]
            (decision,) = plan(after.snapshot(), [head], rules=after.rules())
            if isinstance(decision, Admit) and all(
                p.count == q.request.count for p, q in zip(decision.admission.pod_sets, head.pod_sets, strict=True)
            ):
                enough.append(uid)
        ends = [w.change.workloads for w in what_ifs(head, world) if isinstance(w.change, WorkloadsEnd)]
        assert bool(enough) <= any(len(workloads) == 1 for workloads in ends), (head, enough, ends)


def test_all_kinds_of_changes_come_up() -> None:
    """What the property is shown for."""
    kinds = set()
    for seed in range(_SEEDS):
        model, _, spares = worlds(seed)
        holders = [workload for workload, _ in model.admitted.values()]
        for head in list(model.pending.values())[:4]:
            world = PlannedState(snapshot=model.snapshot(), rules=model.rules(), holders=holders, spares=spares)
            others = [Alternative(local_queue=q, head=replace(head, queue=q)) for q in model.queues if q != head.queue]
            kinds |= {type(what_if.change) for what_if in what_ifs(head, world, others)}
    assert kinds == {WorkloadsEnd, NodesReturn, OtherQueue, FewerPods, OtherWish, MoreQuota}
