"""What is kept from round to round is what would be made anew, after events of all kinds."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace

import pytest

from kqueue.core.joint.answer import answer_of
from kqueue.core.joint.batch import ranked
from kqueue.core.joint.class_book import ClassBook
from kqueue.core.joint.classes import ClassInput, PodClass, classes_of
from kqueue.core.joint.graph import Flow, Graph
from kqueue.core.joint.kept import Kept
from kqueue.core.joint.ortools_flow import solver
from kqueue.core.joint.preparation import prepare
from kqueue.core.joint.relaxation import relax
from kqueue.core.joint.round import RoundInput, plan_round
from kqueue.core.joint.settings import JointOrder
from kqueue.core.joint.units import Unit
from kqueue.core.joint.world import World
from kqueue.core.topology.counting import pods_per_domain
from kqueue.core.topology.request import Shape
from kqueue.scheduling.joint.assembly import Assembly
from kqueue.scheduling.joint.frames import Resync, Sent, pieces
from kqueue.scheduling.joint.worker import audited
from tests.builders import GPU
from tests.unit.core.joint.changing import EVENTS, LEVELS, Cluster

EACH, WHOLE = 200, 100
"""Events of one cluster, and events from one whole plan to the next."""
PARTS = int(os.environ.get("KQUEUE_KEPT_EVENTS", "400")) // EACH
"""Clusters; `make test-deep` draws 10,000 events."""
ALL = list(range(PARTS))


def taken(given: RoundInput, assembly: Assembly, sent: Sent, number: int = 1) -> RoundInput:
    """The input as the process gets it that has this assembly."""
    (asked,) = [found for data in pieces(number, given, sent) if (found := assembly.take(data)) is not None]
    assert not isinstance(asked, Resync), "the process has something else than it should have"
    assert isinstance(asked[1], RoundInput), "a round was sent"
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
@pytest.mark.parametrize("part", ALL)
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


@pytest.mark.parametrize("how", JointOrder)
def test_a_book_makes_the_classes_that_are_made_anew(how: JointOrder) -> None:
    """Of any part of the workloads, in any order, and without looking at one of them twice."""
    cluster, kept = Cluster(1), Kept()
    for _ in range(400):
        cluster.event()
    given = cluster.followed()
    state = World(given.state, given.batch.queues, demands=kept.demands)
    heads = {head.uid: head for head in given.batch.heads()}
    found_choices = {uid: state.with_others(list(state.choices(head))) for uid, head in heads.items()}
    choices = {uid: of_one for uid, of_one in found_choices.items() if of_one}
    usable = [heads[uid] for uid in choices if any("gpu" in choice.requests for choice in choices[uid])]
    book, chance = ClassBook("gpu", LEVELS, Unit(GPU, 1)), random.Random(1)
    assert len(usable) > 3
    for _ in range(50):
        some = ranked(chance.sample(usable, chance.randint(0, len(usable))), how, {})
        inputs = []
        for one in some:
            assignment = next(c.assignment for c in choices[one.head.uid] if "gpu" in c.requests)
            requests = assignment.places["gpu"]
            inputs.append(
                ClassInput(
                    ranked=one,
                    requests=requests,
                    quota={p.name: p.quota_requests.get(GPU, 0) for p in one.head.pod_sets},
                )
            )
        classes = book.classes(some, choices, given.state.snapshot.queues, how)
        assert list(map(members, classes)) == list(map(members, classes_of(inputs, LEVELS, Unit(GPU, 1), how)))
    assert book.sorted <= len(usable)


def busy() -> tuple[RoundInput, Assembly, Sent]:
    """A cluster after a round, as its process has it."""
    cluster, assembly, sent = Cluster(1), Assembly(), Sent()
    for _ in range(60):
        cluster.event()
    given = taken(cluster.followed(), assembly, sent)
    arrays(given)
    return given, assembly, sent


def test_a_drift_is_found_and_healed() -> None:
    """J4.3: one shape of each flavor is counted anew before every 64th round."""
    given, _, _ = busy()
    wanted = arrays(given)
    capacity = given.state.snapshot.topologies["gpu"].capacity
    shapes = len(capacity.counted)
    rounds = [64 * turn for turn in range(shapes)]
    assert not any(audited(number, given) for number in rounds)
    for shape in [shape for shape in capacity.counted if isinstance(shape, Shape)]:
        pods_per_domain(capacity, shape)[-1][0] += 1
    assert arrays(given) != wanted
    assert not any(audited(number, given) for number in range(1, 64))
    found = [drift for number in rounds for drift in audited(number, given)]
    assert [drift.partition(":")[0] for drift in found] == ["flavor gpu"]
    assert arrays(given) == wanted


def test_a_row_that_drifts_is_found_and_healed() -> None:
    given, assembly, _ = busy()
    wanted = arrays(given)
    rows = assembly.kept.rows_of("gpu").rows
    assert rows
    for row in rows.values():
        row.reach.costs[:] += 1
    assert arrays(given) != wanted
    found = [drift for turn in range(len(rows)) for drift in audited(64 * turn, given)]
    assert found == ["flavor gpu: domains with arcs"]
    assert arrays(given) == wanted
