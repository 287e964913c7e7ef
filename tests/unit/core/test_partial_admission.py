"""Workloads of which a part is of use: the largest part that fits, or that somebody makes room for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from kqueue.core.decision import Admit, Decision, Preempt, Wait
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Flavor, Head, PodSet, Snapshot
from tests.builders import GPU, make_head, make_queue, make_view, plan
from tests.unit.core.preemption_cases import GPUS, LOWER, NEVER, leaf, runs, world


def parts(*pod_sets: tuple[int, int | None], gpus: int = 1, required: str | None = None, priority: int = 5) -> Head:
    """A workload with pod sets of (pods, so few will do)."""
    whole = make_head("p", pods=1, gpus=gpus, required=required, priority=priority)
    (model,) = whole.pod_sets

    def part(index: int, count: int, least: int | None) -> PodSet:
        return replace(model, request=replace(model.request, name=f"s{index}", count=count), min_count=least)

    return replace(whole, pod_sets=tuple(part(i, *counts) for i, counts in enumerate(pod_sets)))


def team(nominal: int, *running: Admitted, preempts: bool = True) -> Snapshot:
    """One queue with so many devices."""
    spec = make_queue("team", preempts_own=LOWER if preempts else NEVER)
    return replace(world([leaf("team", nominal=nominal)], running, [spec]), flavors={"gpu": Flavor(name="gpu")})


def decide(snapshot: Snapshot, head: Head) -> Decision:
    (decision,) = plan(snapshot, [head])
    return decision


def counts(decision: Decision) -> list[int] | None:
    """Pods that start, or that room is made for; None: it waits."""
    match decision:
        case Admit():
            return [p.count for p in decision.admission.pod_sets]
        case Preempt():
            return [p.count for p in decision.claim.pod_sets]
        case Wait():
            return None


@pytest.mark.parametrize(
    ("nominal", "pod_sets", "admitted"),
    [
        pytest.param(10, [(10, 1)], [10], id="all of it where all of it fits"),
        pytest.param(7, [(10, 1)], [7], id="as much as fits"),
        pytest.param(1, [(10, 1)], [1], id="the least that is of use"),
        pytest.param(7, [(10, 8)], None, id="nothing where less than that fits"),
        pytest.param(7, [(10, None)], None, id="nothing of one that is all or nothing"),
        pytest.param(7, [(10, 10)], None, id="nor of one whose least is all"),
        pytest.param(14, [(10, 4), (10, 7)], [6, 8], id="pod sets shrink in step with what they can do without"),
        pytest.param(12, [(10, None), (10, 1)], [10, 2], id="those that cannot shrink do not"),
        pytest.param(10, [(10, None), (10, 1)], None, id="so that nothing is left for the others"),
        pytest.param(3, [(1_000_000, 1)], [3], id="of a million, three"),
        pytest.param(0, [(10, 0)], [0], id="none at all, if that is of use"),
    ],
)
def test_as_much_as_fits_is_admitted(
    nominal: int, pod_sets: Iterable[tuple[int, int | None]], admitted: list[int] | None
) -> None:
    """With no more than the pods in the admission charged."""
    snapshot = team(nominal)
    decision = decide(snapshot, parts(*pod_sets))

    assert counts(decision) == admitted
    if admitted is not None:
        assert snapshot.nodes["team"].usage.get(GPUS, 0) == sum(admitted)


LESSER, GREATER = runs("lesser", "team", 3), runs("greater", "team", 5, priority=9)


@pytest.mark.parametrize(
    ("pods", "least", "made_room_for", "gone"),
    [
        pytest.param(5, 1, [5], ["lesser"], id="room for all of it, rather than a part that fits at once"),
        pytest.param(8, 1, [5], ["lesser"], id="room for a part, and no one goes who may not"),
        pytest.param(8, 6, None, [], id="nobody goes where even the least does not fit then"),
    ],
)
def test_others_leave_for_as_much_as_they_make_room_for(
    pods: int, least: int, made_room_for: list[int] | None, gone: list[str]
) -> None:
    """Of ten devices a lesser workload holds three and a greater one five."""
    decision = decide(team(10, LESSER, GREATER), parts((pods, least)))

    assert counts(decision) == made_room_for
    assert [t.admitted.uid for t in getattr(decision, "targets", ())] == gone


def test_a_part_that_fits_starts_where_nobody_may_be_preempted() -> None:
    """Two of ten devices are free."""
    assert counts(decide(team(10, LESSER, GREATER, preempts=False), parts((5, 1)))) == [2]


def test_the_part_that_room_was_made_for_starts_when_it_is_there() -> None:
    """Although by then others could be made to leave for the whole."""
    decision = decide(team(10, LESSER, GREATER), parts((8, 1)))
    assert isinstance(decision, Preempt)
    smaller = runs("greater", "team", 5)  # its priority was lowered
    after = replace(team(10, smaller), claims=(decision.claim,))

    assert counts(decide(after, parts((8, 1)))) == [5]


def on(host: str, count: int) -> Mapping[str, tuple[DomainUsage, ...]]:
    return {"gpu": (DomainUsage((host,), {GPU: 8}, count),)}


@pytest.mark.parametrize(
    ("busy", "admitted"),
    [
        pytest.param([], [4], id="all hosts of a rack"),
        pytest.param(["b0-r0-h0", "b0-r1-h0"], [3], id="as many hosts as one rack has left"),
        pytest.param(["b0-r0-h0", "b0-r0-h1", "b0-r1-h0", "b0-r1-h1", "b0-r1-h2"], [2], id="of the roomier one"),
    ],
)
def test_a_part_has_to_find_its_place_as_well(busy: list[str], admitted: list[int]) -> None:
    """Four pods want a rack of four hosts, and there are two of them; quota is enough."""
    running = [runs(host, "team", 8, priority=9, domains=on(host, 1)) for host in busy]
    view = make_view()
    view.capacity.charge([usage for workload in running for usage in workload.domains["gpu"]])
    snapshot = replace(
        world([leaf("team", nominal=999)], running, topologies={"gpu": view}),
        flavors={"gpu": Flavor(name="gpu", topology="dc")},
    )
    decision = decide(snapshot, parts((4, 2), gpus=8, required="rack"))

    assert counts(decision) == admitted
    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].topology is not None
    assert sum(d.count for d in decision.admission.pod_sets[0].topology.domains) == admitted[0]
