"""Free capacity: charging, trials, forks, and counts that follow every change."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kqueue.core.quantity import INT64_MAX, INT64_MIN
from kqueue.core.topology import ANY_NODE, PODS, Capacity, DomainUsage, NodeRules, Taint
from kqueue.core.topology.counting import COUNT_MAX, pods_per_domain
from kqueue.core.topology.request import Shape
from tests.unit.core.topology_cases import make_node, make_tree

SHAPES = (
    Shape((("cpu", 1000), (PODS, 1)), ANY_NODE),
    Shape((("cpu", 3000), (PODS, 1)), NodeRules(selector=(("disk", "ssd"),))),
    Shape((("gpu", 1), (PODS, 1)), ANY_NODE),
)
HOSTS = [f"h{i:02}" for i in range(40)]


def make_capacity() -> Capacity:
    nodes = [
        make_node(
            host,
            4 + i % 5,
            block=f"b{i // 20}",
            rack=f"r{i // 5}",
            labels={"disk": "ssd" if i % 3 else "hdd"},
            taints=(Taint("burning"),) if i == 7 else (),
        )
        for i, host in enumerate(HOSTS)
    ]
    return Capacity.of(make_tree(nodes))


def usage(host: str, cores: int, count: int, resource: str = "cpu") -> DomainUsage:
    return DomainUsage((host,), {resource: cores * 1000}, count)


def test_charging_takes_requests_and_pods_and_releasing_gives_them_back() -> None:
    """Both resources move, also below zero."""
    capacity = make_capacity()
    before = capacity.free(0)
    capacity.charge([usage("h00", 3, 2)])
    assert capacity.free(0) == {"cpu": before["cpu"] - 6000, PODS: before[PODS] - 2}
    capacity.release([usage("h00", 3, 2)])
    assert capacity.free(0) == before


def test_what_is_put_on_a_leaf_leaves_other_resources_and_what_is_replaced_does_not() -> None:
    """Either is noted as a change of the leaf."""
    capacity = make_capacity()
    pods, generation = capacity.free(0)[PODS], capacity.generation
    capacity.put(0, {"cpu": 5, "gpu": 2**80})
    assert capacity.free(0) == {"cpu": 5, PODS: pods, "gpu": INT64_MAX}
    capacity.replace(1, {"cpu": 7})
    assert capacity.free(1) == {"cpu": 7, PODS: 0, "gpu": 0}
    assert capacity.touched_since(generation) == {0, 1}


def test_usage_of_an_unknown_domain_is_ignored_when_charged_and_never_fits() -> None:
    """A node that is gone takes nothing, and holds nothing."""
    capacity = make_capacity()
    generation = capacity.generation
    capacity.charge([usage("gone", 1, 1)])
    assert capacity.generation == generation
    assert not capacity.fits([usage("gone", 1, 1)])


def test_several_pod_sets_on_one_domain_are_checked_together() -> None:
    """Each alone would fit; pods are checked, and empty requests are fine."""
    capacity = make_capacity()
    assert capacity.fits([usage("h00", 1, 3)])
    assert capacity.overdrawn_by([usage("h00", 1, 3), usage("h01", 1, 1), usage("h00", 1, 2)]) == ("h00",)
    assert capacity.fits([DomainUsage(("h00",), {}, 110)])
    assert not capacity.fits([DomainUsage(("h00",), {}, 111)])


def test_amounts_saturate_at_64_bits() -> None:
    """A crafted request cannot wrap free capacity around to a gain."""
    capacity = make_capacity()
    capacity.charge([DomainUsage(("h00",), {"cpu": INT64_MAX}, 3)])
    assert capacity.free(0)["cpu"] == INT64_MIN
    assert pods_per_domain(capacity, SHAPES[0])[-1][0] == 0


@pytest.mark.parametrize(
    ("cpus", "then"),
    [
        pytest.param([-1000, 0, 500], [3000, 5000, 6500], id="plain"),
        pytest.param([INT64_MIN, -1000, INT64_MAX], [INT64_MIN + 4000, 4000, INT64_MAX], id="saturated"),
    ],
)
def test_amounts_are_added_to_many_leaves_as_to_one_after_the_other(cpus: list[int], then: list[int]) -> None:
    """A resource that is new among them; a trial takes all of it back."""
    capacity, one_by_one = make_capacity(), make_capacity()
    before, since = [capacity.free(leaf) for leaf in range(3)], capacity.generation
    for leaf, cpu in enumerate(cpus):
        one_by_one.add(leaf, {"cpu": cpu, "gpu": leaf})
    with capacity.trial():
        capacity.add_many(np.arange(3), {"cpu": np.array(cpus), "gpu": np.arange(3)})
        assert [capacity.free(leaf)["cpu"] for leaf in range(3)] == then
        assert [capacity.free(leaf) for leaf in range(4)] == [one_by_one.free(leaf) for leaf in range(4)]
        assert capacity.touched_since(since) == {0, 1, 2}
    assert [capacity.free(leaf) for leaf in range(3)] == [{**free, "gpu": 0} for free in before]
    assert capacity.touched_since(since) == {0, 1, 2}


def test_counts_of_pods_are_capped_at_31_bits() -> None:
    """Also when one leaf is counted anew, and by a leaf more they add up."""
    shape = Shape(((PODS, 1),), ANY_NODE)
    capacity = Capacity.of(make_tree([make_node("h1", 1, pods=2**40), make_node("h2", 1, pods=2**40)]))
    for _ in range(2):
        counts = pods_per_domain(capacity, shape)
        assert counts[-1].tolist() == [COUNT_MAX, COUNT_MAX]
        assert counts[0].tolist() == [2 * COUNT_MAX]
        capacity.add(0, {PODS: -1})


def test_amounts_that_a_node_reports_saturate_too() -> None:
    """One leaf beyond 64 bits does not change what the others have."""
    nodes = [make_node("h1", 1, allocatable={"cpu": 2**80}), make_node("h2", 3)]
    capacity = Capacity.of(make_tree(nodes), foreign={"node-h2": {"memory": 2**80}})
    assert [capacity.free(leaf)["cpu"] for leaf in (0, 1)] == [INT64_MAX, 3000]
    assert [capacity.free(leaf)["memory"] for leaf in (0, 1)] == [0, INT64_MIN]


def test_a_resource_that_came_up_in_a_trial_is_rolled_back_to_nothing() -> None:
    """Also on a leaf that the trial had changed before."""
    capacity = make_capacity()
    before = capacity.free(0)
    with capacity.trial():
        capacity.charge([usage("h00", 1, 1), usage("h00", 2, 1, "gpu")])
        assert capacity.free(0)["gpu"] == -2000
    assert capacity.free(0) == {**before, "gpu": 0}


def test_a_trial_leaves_no_trace_even_when_it_fails() -> None:
    """Everything is rolled back, new resources and nested trials included."""
    capacity = make_capacity()
    before = [capacity.free(leaf) for leaf in range(len(HOSTS))]

    def attempt() -> None:
        with capacity.trial():
            capacity.charge([usage("h01", 1, 1), usage("h02", 1, 1, "gpu")])
            with capacity.trial():
                capacity.charge([usage("h01", 2, 1)])
            assert capacity.free(1)["cpu"] == before[1]["cpu"] - 1000
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attempt()
    assert [{r: n for r, n in capacity.free(leaf).items() if r != "gpu"} for leaf in range(len(HOSTS))] == before
    assert {capacity.free(leaf)["gpu"] for leaf in range(len(HOSTS))} == {0}


def test_a_fork_made_inside_a_trial_keeps_what_it_saw() -> None:
    """Rolling the trial back does not reach into the fork."""
    live = make_capacity()
    with live.trial():
        live.charge([usage("h00", 1, 1)])
        fork = live.fork()
    assert fork.free(0)["cpu"] == live.free(0)["cpu"] - 1000
    assert_counts_are_true(fork)
    assert_counts_are_true(live)


def test_a_fork_and_its_origin_do_not_see_each_other() -> None:
    """Neither charging one nor the other shows on the other side; the empty companions are apart, too."""
    live = make_capacity()
    fork = live.fork()
    live.charge([usage("h00", 1, 1)])
    fork.charge([usage("h01", 1, 1)])
    live.empty().add(2, {"cpu": -1000})
    assert fork.free(0)["cpu"] == live.free(0)["cpu"] + 1000
    assert live.free(1)["cpu"] == fork.free(1)["cpu"] + 1000
    assert fork.empty().free(2)["cpu"] == live.empty().free(2)["cpu"] + 1000


def test_charging_leaves_the_empty_cluster_alone() -> None:
    """What workloads placed by topology take does not count there."""
    capacity = make_capacity()
    capacity.charge([usage("h00", 1, 1)])
    assert capacity.empty().free(0)["cpu"] == capacity.free(0)["cpu"] + 1000


def assert_counts_are_true(capacity: Capacity) -> None:
    """What is remembered equals what a capacity without memory counts."""
    fresh = Capacity.of_columns(
        capacity.tree,
        [capacity.free(leaf) for leaf in range(len(capacity.tree))],
        idle=[{} for _ in range(len(capacity.tree))],
    )
    for shape in SHAPES:
        for kept, counted in zip(pods_per_domain(capacity, shape), pods_per_domain(fresh, shape), strict=True):
            np.testing.assert_array_equal(kept, counted)


steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["charge", "release", "replace", "sweep", "many", "trial", "rollback", "fork", "switch", "ask"]
        ),
        st.integers(0, len(HOSTS) - 1),
        st.integers(0, 3),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(steps=steps)
def test_remembered_counts_follow_every_history(steps: list[tuple[str, int, int]]) -> None:
    """Whatever happens to a capacity and its forks, counts per shape equal a count from scratch."""
    live = current = make_capacity()
    fork = live.fork()
    with ExitStack() as everything:
        trials = everything.enter_context(ExitStack())
        for step, host, cores in steps:
            resource = "gpu" if cores == 3 else "cpu"
            match step:
                case "charge":
                    current.charge([usage(HOSTS[host], cores, 1, resource)])
                case "release":
                    current.release([usage(HOSTS[host], cores, 1, resource)])
                case "replace":
                    current.replace(host, {"cpu": cores * 1500, PODS: 5})
                case "sweep":
                    current.charge([usage(name, cores, 1) for name in HOSTS[: host + 1]])
                case "many":
                    current.add_many(np.arange(host + 1), {resource: np.full(host + 1, -1000 * cores)})
                case "trial":
                    trials.enter_context(current.trial())
                case "rollback":
                    trials.close()
                case "fork":
                    current = fork = live.fork()
                case "switch":
                    current = fork if current is live else live
                case _:
                    assert_counts_are_true(current)
        assert_counts_are_true(fork)
        assert_counts_are_true(live)
    assert_counts_are_true(live)
    assert_counts_are_true(fork)


def test_a_fork_keeps_its_counts_when_its_origin_changes() -> None:
    """Both remember the same counts at first; a change on one side stays there."""
    live = make_capacity()
    fork = live.fork()
    assert_counts_are_true(fork)
    live.charge([usage("h00", 1, 1)])
    assert_counts_are_true(live)
    assert_counts_are_true(fork)
    fork.charge([usage("h01", 1, 1)])
    assert_counts_are_true(fork)
    assert_counts_are_true(live)


def test_a_long_history_is_forgotten_not_misremembered() -> None:
    """The log of changes is cut; counts older than what is left are made anew."""
    capacity = make_capacity()
    pods_per_domain(capacity, SHAPES[0])
    for i in range(10_000):
        capacity.add(i % len(HOSTS), {"cpu": 1 if i % 2 else -2})
    assert capacity.touched_since(0) is None
    assert_counts_are_true(capacity)


def test_seldom_used_shapes_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of remembered shapes is bounded, and those used last stay."""
    monkeypatch.setattr("kqueue.core.topology.counting._KEPT_BYTES", 0)
    capacity = make_capacity()
    shapes = [Shape((("cpu", 1000 + i), (PODS, 1)), ANY_NODE) for i in range(20)]
    for shape in shapes:
        pods_per_domain(capacity, shapes[0])
        pods_per_domain(capacity, shape)
    assert len(capacity.counted) == 16
    assert shapes[0] in capacity.counted
    assert shapes[1] not in capacity.counted
