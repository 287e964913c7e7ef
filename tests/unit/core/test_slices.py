"""Elastic jobs: a larger slice takes over from the older one, and only the difference has to find room."""

from __future__ import annotations

import dataclasses

import pytest

from kqueue.core import quota
from kqueue.core.decision import Admit, Decision, Outcome, Wait
from kqueue.core.explain import WaitReason
from kqueue.core.quota import FlavorResource, available
from kqueue.core.topology import Domain, DomainUsage, PodSetRequest, TopologyAssignment, TopologyRequest
from kqueue.core.topology.node import HOSTNAME
from kqueue.core.workload import Admission, Flavor, Head, PodSet, Replaced, Snapshot
from tests.builders import GPU, make_head, make_queue, make_snapshot, make_view, plan

COLUMN = FlavorResource("gpu", GPU)
ANYWHERE = TopologyRequest(unconstrained=True)


def make_elastic(name: str, pods: int, topology: TopologyRequest = ANYWHERE, gpus: int = 8) -> Head:
    """A slice of so many pods."""
    request = PodSetRequest(name="main", count=pods, requests={GPU: gpus}, topology=topology)
    pod_set = PodSet(request=request, quota_requests={GPU: gpus}, asks_topology=True)
    return dataclasses.replace(make_head(name), pod_sets=(pod_set,))


def running(snapshot: Snapshot, pods: int, gpus: int = 8) -> Replaced:
    """A slice that was admitted to the snapshot."""
    (decision,) = plan(snapshot, [make_elastic("older", pods, gpus=gpus)])
    assert isinstance(decision, Admit)
    return Replaced(key="default/older", admission=decision.admission, requests={"main": {GPU: gpus}})


def slice_of(pods: int, older: Replaced, topology: TopologyRequest = ANYWHERE, gpus: int = 8) -> Head:
    """A slice of so many pods that replaces the older one."""
    return dataclasses.replace(make_elastic("newer", pods, topology, gpus), replaces=older)


def hosts(held: Admission) -> dict[str, int]:
    assert held.pod_sets[0].topology is not None
    return {domain.values[-1]: domain.count for domain in held.pod_sets[0].topology.domains}


def free(snapshot: Snapshot) -> dict[str, int]:
    """Free devices per host."""
    capacity = snapshot.topologies["gpu"].capacity
    return {path[-1]: capacity.free(leaf)[GPU] for leaf, path in enumerate(capacity.tree.paths)}


def beside(early: int, pods: int) -> tuple[Snapshot, Replaced]:
    """A slice that was admitted when so many hosts were taken, which are free now."""
    snapshot = make_snapshot({"team": {"gpu": 64}})
    (decision,) = plan(snapshot, [make_elastic("early", early)])
    left = admitted(decision)
    older = running(snapshot, pods)
    taken = [DomainUsage((host,), {GPU: 8}, count) for host, count in hosts(left).items()]
    snapshot.topologies["gpu"].capacity.release(taken)
    quota.remove_usage(snapshot.nodes["team"], COLUMN, left.usage()[COLUMN])
    return snapshot, older


def admitted(decision: Decision) -> Admission:
    assert isinstance(decision, Admit), decision
    return decision.admission


@pytest.mark.parametrize("pods", [pytest.param(3, id="more pods"), pytest.param(1, id="fewer pods")])
def test_running_pods_stay_where_they_are_and_only_the_difference_is_charged(pods: int) -> None:
    """The older slice is out of the snapshot, the newer one is in it as a whole."""
    snapshot, older = beside(4, 2)
    were = list(hosts(older.admission))
    assert were == ["b0-r1-h0", "b0-r1-h1"]

    (decision,) = plan(snapshot, [slice_of(pods, older)])

    assert set(were[:pods]) <= hosts(admitted(decision)).keys()
    assert sum(hosts(admitted(decision)).values()) == pods
    assert available(snapshot.nodes["team"], COLUMN) == 64 - 8 * pods
    assert sum(free(snapshot).values()) == 64 - 8 * pods


def test_a_full_queue_and_full_hosts_have_room_for_the_difference() -> None:
    """Seven of eight devices are the older slice's own: one more is all that is needed, on the same host."""
    snapshot = make_snapshot({"team": {"gpu": 8}}, topologies={"gpu": make_view((1, 1, 1))})
    older = running(snapshot, 7, gpus=1)

    (decision,) = plan(snapshot, [slice_of(8, older, gpus=1)])

    assert hosts(admitted(decision)) == {"b0-r0-h0": 8}
    assert (available(snapshot.nodes["team"], COLUMN), free(snapshot)) == (0, {"b0-r0-h0": 0})


@pytest.mark.parametrize(
    ("quotas", "view"),
    [
        pytest.param(24, make_view((1, 2, 4)), id="short of quota"),
        pytest.param(64, make_view((1, 1, 3)), id="short of hosts"),
    ],
)
def test_a_slice_that_does_not_fit_leaves_the_older_one_alone(quotas: int, view: object) -> None:
    """It waits, and nobody else gets what the older one holds."""
    snapshot = make_snapshot({"team": {"gpu": quotas}}, topologies={"gpu": view})  # type: ignore[dict-item]
    older = running(snapshot, 3)
    quota_before, hosts_before = available(snapshot.nodes["team"], COLUMN), free(snapshot)

    (decision,) = plan(snapshot, [slice_of(4, older)])

    assert isinstance(decision, Wait)
    assert decision.message
    assert available(snapshot.nodes["team"], COLUMN) == quota_before
    assert {host: hosts_before[host] for host in hosts(older.admission)} == {
        host: free(snapshot)[host] for host in hosts(older.admission)
    }


def test_what_a_slice_waits_for_is_kept_free_beyond_what_the_older_one_holds() -> None:
    """Two hosts are missing and one is free: nobody else of the cycle gets its quota, and nothing counts twice."""
    snapshot = make_snapshot({"a": {"gpu": 40}, "b": {"gpu": 0}}, cohort="company", topologies={"gpu": make_view()})
    older = running_in(snapshot, "a", 3)
    other = dataclasses.replace(make_elastic("other", 1), queue="a")
    assert isinstance(next(iter(plan(snapshot, [other]))), Admit)
    newer = dataclasses.replace(slice_of(5, older), queue="a", priority=9)
    lesser = dataclasses.replace(make_elastic("lesser", 1), queue="b")

    waiting, refused = plan(snapshot, [newer, lesser])

    assert isinstance(waiting, Wait)
    assert waiting.outcome is Outcome.NO_CANDIDATES
    assert isinstance(refused, Wait)
    assert available(snapshot.nodes["a"], COLUMN) == 0
    assert {free(snapshot)[host] for host in hosts(older.admission)} == {0}


def running_in(snapshot: Snapshot, queue: str, pods: int) -> Replaced:
    (decision,) = plan(snapshot, [dataclasses.replace(make_elastic("older", pods), queue=queue)])
    return Replaced(key="default/older", admission=admitted(decision), requests={"main": {GPU: 8}})


def test_a_slice_keeps_its_flavors() -> None:
    """A cheaper one that has room again does not tear the job apart; one that the queue lost is named."""
    cheap, dear = Flavor(name="cheap", topology="dc"), Flavor(name="gpu", topology="dc")
    views = {"cheap": make_view(), "gpu": make_view()}
    spec = make_queue("team", flavors=("cheap", "gpu"))
    quotas = {"team": {"cheap": 64, "gpu": 64}}
    only_dear = make_snapshot({"team": {"gpu": 64}}, topologies={"gpu": make_view()})
    older = running(only_dear, 2)
    both = make_snapshot(quotas, flavors=(cheap, dear), topologies=views, specs=[spec])
    without = make_snapshot({"team": {"cheap": 64}}, flavors=(cheap,), topologies={"cheap": make_view()})

    (kept,) = plan(both, [slice_of(3, older)])
    (lost,) = plan(without, [slice_of(3, older)])

    assert admitted(kept).pod_sets[0].flavors == {GPU: "gpu"}
    assert isinstance(lost, Wait)
    assert lost.reason is WaitReason.NO_MATCHING_FLAVOR
    assert "has not all flavors of default/older any more" in lost.message


def test_a_slice_that_names_a_level_is_placed_as_a_whole() -> None:
    """Its pods must share a rack with those that are new, and the room of the older slice counts as free."""
    snapshot, older = beside(3, 3)
    assert {host.rpartition("-")[0] for host in hosts(older.admission)} == {"b0-r0", "b0-r1"}

    (decision,) = plan(snapshot, [slice_of(4, older, TopologyRequest(required="rack"))])

    assert len({host.rpartition("-")[0] for host in hosts(admitted(decision))}) == 1


def test_places_that_are_gone_are_not_kept() -> None:
    """A host of the older slice has left the tree: the newer one is placed from scratch."""
    snapshot = make_snapshot({"team": {"gpu": 64}})
    older = running(snapshot, 1)
    (held,) = older.admission.pod_sets
    gone = TopologyAssignment((HOSTNAME,), (Domain(("gone",), 1),))
    stale = dataclasses.replace(older.admission, pod_sets=(dataclasses.replace(held, topology=gone),))

    (decision,) = plan(snapshot, [slice_of(2, dataclasses.replace(older, admission=stale))])

    assert "gone" not in hosts(admitted(decision))
    assert sum(hosts(admitted(decision)).values()) == 2
