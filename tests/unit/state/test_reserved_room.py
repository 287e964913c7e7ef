"""Which workloads start on reserved hosts: Reservations, their claims and the planner together."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.core.decision import Admit, Decision, Preempt, Wait
from kqueue.core.explain import BlockerKind, sentence
from kqueue.core.plan_question import PlanQuestion
from kqueue.core.preemption import Rules
from kqueue.operations.defrag.reading import ClusterObjects
from kqueue.state.heads import Heads
from tests.unit.cli.defrag_cluster import GPU, NOW, cluster, ours, workload
from tests.unit.state.test_reservations import World, minutes, reservation

JSON = dict[str, Any]


def full(*, preempts: str = "Never") -> ClusterObjects:
    """The racks with none, six and five free hosts: a gang of six fits in rack b alone."""
    objects = cluster()
    (queue,) = objects.cluster_queues
    spec = {**queue["spec"], "preemption": {"withinClusterQueue": preempts, "reclaimWithinCohort": "Never"}}
    return replace(
        objects,
        cluster_queues=[ours("ClusterQueue", "team", spec)],
        workloads=[*objects.workloads, workload("fill", "a", 6, 10)],
    )


def decided(world: World, pods: int = 6, *, limit: int | None = None, priority: int = 0) -> Decision:
    """The planner's decision about a gang at the present time of the world."""
    obj = workload("gang", None, 0, pods)
    obj["spec"] |= {"priority": priority} | ({"maximumExecutionTimeSeconds": limit} if limit is not None else {})
    read = msgspec.convert(obj, wire.Workload, strict=False)
    head = Heads(world.cache, world.workloads.get).make(read, None, queue="team", now=world.now)
    snapshot = world.cache.snapshot(["team"], world.reservations.claims())
    (decision,) = PlanQuestion(snapshot=snapshot, heads=[head], rules=Rules(now=world.now)).decisions()
    return decision


def at(minute: int, *, preempts: str = "Never", **spec: Any) -> World:
    """The world with a Reservation of rack b from minute 60 to 120, at this minute."""
    world = World(full(preempts=preempts)).have(reservation(**spec))
    world.now = NOW + timedelta(minutes=minute)
    return world


@pytest.mark.parametrize(
    ("minute", "limit", "spec", "starts"),
    [
        pytest.param(0, None, {}, False, id="no limit"),
        pytest.param(0, 3600, {}, True, id="a limit that ends it in time"),
        pytest.param(0, 3601, {}, False, id="a limit that ends it a second late"),
        pytest.param(59, 61, {}, False, id="a short one shortly before"),
        pytest.param(60, 1, {}, False, id="nothing starts once it has begun"),
        pytest.param(119, 1, {}, False, id="nothing starts until it ends"),
        pytest.param(120, None, {}, True, id="after the end all is as before"),
        pytest.param(0, None, {"clusterQueue": "team"}, False, id="its ClusterQueue waits, too"),
        pytest.param(60, None, {"clusterQueue": "team"}, True, id="its ClusterQueue starts when it begins"),
        pytest.param(60, None, {"clusterQueue": "people"}, False, id="other ClusterQueues do not"),
        pytest.param(0, None, {"drainFrom": minutes(10)}, True, id="it is not drained yet"),
        pytest.param(10, None, {"drainFrom": minutes(10)}, False, id="it is drained from drainFrom on"),
        pytest.param(60, None, {"resources": {GPU: 1}}, False, id="a part of each host is reserved"),
        pytest.param(60, None, {"resources": {"cpu": 1}}, True, id="the gang needs another part"),
        pytest.param(0, None, {"domain": ["b", "b15"]}, False, id="one of the free hosts"),
        pytest.param(0, None, {"domain": ["b", "b00"]}, True, id="a host with another workload"),
    ],
)
def test_a_gang_starts_on_reserved_hosts_only_if_it_ends_in_time(
    minute: int, limit: int | None, spec: JSON, starts: bool
) -> None:
    decision = decided(at(minute, **spec), limit=limit)
    if starts:
        assert isinstance(decision, Admit)
        topology = decision.admission.pod_sets[0].topology
        assert topology is not None
        assert {domain.values[0][0] for domain in topology.domains} == {"b"}
    else:
        assert isinstance(decision, Wait)
        if limit is None:
            (blocker,) = [one for one in decision.blockers if one.kind is BlockerKind.RESERVATION]
            when = "from 2026-01-01T13:00:00Z on; runs limited" if minute < 60 else "since 2026-01-01T13:00:00Z"
            assert f"kept for Reservation r {when}" in sentence(blocker)


def test_a_gang_that_fits_elsewhere_starts_there() -> None:
    decision = decided(at(0), pods=5)
    assert isinstance(decision, Admit)
    topology = decision.admission.pod_sets[0].topology
    assert topology is not None
    assert {domain.values[0][0] for domain in topology.domains} == {"c"}


@pytest.mark.parametrize("pods", [10, 16])
@pytest.mark.parametrize("minute", [0, 60])
def test_no_workload_is_preempted_for_reserved_hosts(minute: int, pods: int) -> None:
    """Workload u has ten hosts of the reserved rack; its end would help nobody else."""
    decision = decided(at(minute, preempts="LowerPriority"), pods=pods, priority=100)
    if isinstance(decision, Preempt):
        assert "team-b/u" not in {target.admitted.key for target in decision.targets}
    else:
        assert isinstance(decision, Wait)


def test_two_reservations_of_the_same_hosts_are_as_one() -> None:
    world = at(0).have(reservation("s", made=1))
    assert isinstance(decided(world, limit=3600), Admit)
    assert isinstance(decided(world), Wait)
    free = at(0).have(reservation("s", made=1))
    free.now = NOW + timedelta(hours=2)
    assert isinstance(decided(free), Admit)
