"""Pods that no reservation pays for are charged to a ClusterQueue until they have ended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kqueue.core.quota import FlavorResource, available
from kqueue.core.topology import PodFacts
from kqueue.core.workload import Flavor, ResourceGroup
from kqueue.state.cache import Cache
from kqueue.state.unpaid import usage_of
from tests.unit.state.test_cache import CPU, holding, make_cache, make_workload, on_cohort, on_queue

RUNS = PodFacts(node="h1", requests=(("cpu", 3_000),))
GPU = "nvidia.com/gpu"
FLAVORS = {
    "small": Flavor(name="small", node_labels={"pool": "small"}),
    "large": Flavor(name="large", node_labels={"pool": "large"}),
    "any": Flavor(name="any"),
}


def running(facts: PodFacts = RUNS) -> Cache:
    """A cache of `team` with 10 cpu, and a pod of 3 that is charged to it."""
    cache = make_cache()
    cache.held.on_pod("ns/p", facts)
    assert cache.held.charge_pod("ns/p", "ns/main", "team")
    return cache


def left(cache: Cache) -> int:
    node = cache.quota.node_of("team")
    assert node is not None
    return available(node, CPU)


def test_a_charged_pod_takes_quota_and_is_shown() -> None:
    """The queue's sums have it, and count no workload for it; no workload can preempt it."""
    cache = running()
    held = cache.held.held_in("team")

    assert left(cache) == 7_000
    assert (held.reserved, held.used, held.reserving, held.admitted) == ({CPU: 3_000}, {CPU: 3_000}, 0, 0)
    assert cache.held.held_through("ns/main", "team").reserved == {CPU: 3_000}
    assert cache.held.charged_pod("ns/p") == "team"
    assert list(cache.snapshot(["team"]).admitted["team"]) == []
    assert cache.held.views() == []
    assert cache.audits.audit() == []


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        pytest.param(lambda c: c.held.on_pod("ns/p", None), 10_000, id="it-ends"),
        pytest.param(
            lambda c: c.held.on_pod("ns/p", PodFacts(node="h2", requests=RUNS.requests)),
            10_000,
            id="another-of-its-name-runs",
        ),
        pytest.param(
            lambda c: c.held.on_pod("ns/p", PodFacts(node="h1", requests=(("cpu", 5_000),))), 5_000, id="it-is-resized"
        ),
        pytest.param(lambda c: c.held.release_pod("ns/p"), 10_000, id="it-is-paid-for"),
        pytest.param(lambda c: c.held.charge_pod("ns/p", "ns/main", "team"), 7_000, id="it-is-charged-twice"),
        pytest.param(lambda c: on_queue(c, "team", cohortName="all"), 7_000, id="the-queue-changes"),
        pytest.param(lambda c: on_cohort(c, "all"), 7_000, id="the-trees-are-rebuilt"),
        pytest.param(lambda c: c.held.on_pod("ns/q", RUNS), 7_000, id="another-pod-runs"),
    ],
)
def test_a_charge_follows_its_pod(happens: Callable[[Cache], object], expected: int) -> None:
    cache = running()
    happens(cache)

    assert left(cache) == expected
    assert cache.audits.audit() == []
    cache.held.on_pod("ns/p", None)
    assert left(cache) == 10_000
    assert cache.held.held_in("team").is_empty


def test_only_a_part_of_a_pod_may_be_charged() -> None:
    """What is charged of it ends when the pod asks for something else: the part has to be found anew."""
    cache = make_cache()
    cache.held.on_pod("ns/p", RUNS)
    cache.held.charge_pod("ns/p", "ns/main", "team", {"cpu": 1_000})
    assert left(cache) == 9_000
    cache.held.on_pod("ns/p", PodFacts(node="h1", requests=(("cpu", 5_000),)))

    assert left(cache) == 10_000


@pytest.mark.parametrize(("pod", "queue"), [("ns/unknown", "team"), ("ns/p", "unknown")])
def test_what_is_unknown_is_not_charged(pod: str, queue: str) -> None:
    cache = make_cache()
    cache.held.on_pod("ns/p", RUNS)

    assert not cache.held.charge_pod(pod, "ns/main", queue)
    assert left(cache) == 10_000


def test_a_workload_does_not_fit_beside_a_charged_pod() -> None:
    """Its end makes another try worth while."""
    cache = running()
    large = holding(make_workload("large", host="h2", cpus=8)).admission
    generation, room = cache.generation, cache.quota.room_generation("team")

    assert not cache.fits(large)
    cache.held.on_pod("ns/p", None)
    assert cache.fits(large)
    assert cache.generation > generation
    assert cache.quota.room_generation("team") > room


def test_an_audit_drops_charges_of_pods_that_are_gone() -> None:
    cache = running()
    del cache.ledger._pods["ns/p"]

    assert "quota of pod ns/p" in " ".join(map(str, cache.audits.audit()))
    assert left(cache) == 10_000
    assert cache.held.held_in("team").is_empty


@pytest.mark.parametrize(
    ("labels", "flavors", "expected"),
    [
        pytest.param({"pool": "large"}, ("small", "large"), "large", id="the-nodes-labels-say"),
        pytest.param({"pool": "large"}, ("any", "large"), "any", id="the-first-that-matches"),
        pytest.param({"pool": "other"}, ("small", "large"), "small", id="none-matches"),
        pytest.param({}, ("gone", "large"), "large", id="a-flavor-does-not-exist"),
        pytest.param({}, ("gone",), None, id="no-flavor-exists"),
    ],
)
def test_the_flavor_of_a_charge(labels: dict[str, str], flavors: tuple[str, ...], expected: str | None) -> None:
    usage = usage_of({"cpu": 2, GPU: 1, "pods": 1}, [ResourceGroup((GPU, "memory"), flavors)], FLAVORS, labels)

    assert usage == ({FlavorResource(expected, GPU): 1} if expected is not None else {})
