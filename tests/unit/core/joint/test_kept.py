"""What is kept from round to round is what would be made anew, after events of all kinds."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kqueue.core.joint.answer import answer_of
from kqueue.core.joint.batch import ranked
from kqueue.core.joint.classes import PodClass
from kqueue.core.joint.graph import Flow, Graph
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.preparation import prepare
from kqueue.core.joint.relaxation import relax
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.world import World
from kqueue.core.topology.counting import pods_per_domain
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, Sent, pieces
from tests.unit.core.joint.changing import EVENTS, Cluster

PARTS, EACH, WHOLE = 20, 500, 50
"""Clusters, events of each, and events from one whole plan to the next."""


def taken(given: RoundInput, assembly: Assembly, sent: Sent, number: int = 1) -> RoundInput:
    """The input as the process gets it that has this assembly."""
    (asked,) = [found for data in pieces(number, given, sent) if (found := assembly.take(data)) is not None]
    assert not isinstance(asked, Resync), "the process has something else than it should have"
    return asked[1]


def arrays(given: RoundInput) -> list[object]:
    """The arrays of all networks of a round, counts of pods, free amounts, and the members of classes."""
    found: list[object] = []

    def note(graph: Graph) -> Flow:
        found.extend(
            one.tobytes()
            for one in (graph.supplies, graph.tails, graph.heads, graph.capacities, graph.costs, graph.order)
        )
        return Flow.of(graph, graph.capacities * 0)

    kept = given.kept or Kept()
    start = World(given.state, given.batch.queues, demands=kept.demands)
    prepared = prepare(start, given.batch, given.waited, given.settings.order, given.policies)
    order = ranked(list(prepared.batch.heads()), prepared.how, prepared.waited)
    relaxed = relax(
        start.snapshot,
        order,
        {uid: start.with_others(some) for uid, some in prepared.choices.items()},
        prepared.unit_of,
        how=prepared.how,
        solver=note,
        policies=prepared.policies,
        kept=kept,
    )
    found += [members(one) for one, _ in relaxed.scheduled]
    for name, view in given.state.snapshot.topologies.items():
        rows = [(resource, view.capacity.row(resource)) for resource in sorted(view.capacity.resources)]
        found += [(name, r, row.tobytes()) for r, row in rows if row is not None and row.any()]
        shapes = {pod_set.request.shape for head in given.batch.heads() for pod_set in head.pod_sets}
        for shape in sorted(shapes, key=lambda one: one.requests):
            found += [pods.tobytes() for pods in pods_per_domain(view.capacity, shape)]
    return found


def members(one: PodClass) -> tuple[object, ...]:
    """What a class is."""
    return one.queue, one.rank, one.form, one.sight, [member.head.uid for member in one.members]


@pytest.mark.mechanism("2.18")
@pytest.mark.parametrize("part", range(PARTS))
def test_kept_tables_equal_those_made_anew_after_each_event(part: int) -> None:
    """J4.3, through the messages of the process; and J1.12 for whole plans."""
    cluster, assembly, sent = Cluster(part), Assembly(), Sent()
    seen, graphs = Counter[str](), 0
    for number in range(EACH):
        event = cluster.event()
        seen[event] += 1
        kept = taken(cluster.followed(), assembly, sent, number)
        anew = taken(cluster.anew(), Assembly(), Sent())
        followed, wanted = arrays(kept), arrays(anew)
        assert followed == wanted, f"after event {number}, {event}"
        graphs += len(wanted)
        if number % WHOLE == 0:
            plans = [answer_of(1, plan_round(replace(one, solver=solver())), {}) for one in (kept, anew)]
            assert repr(plans[0]) == repr(plans[1]), f"after event {number}, {event}"
    assert len(seen) == len(set(EVENTS))
    assert graphs > EACH
