"""Pods of an owner of a custom kind are charged as far as they go beyond what the owner was admitted with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kqueue.controllers.excess_pods import ExcessPods
from kqueue.core.topology import PodFacts
from kqueue.model import CustomOwner, PodView
from kqueue.runtime.store import Store
from tests.unit.state.test_cache import holding, make_workload

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ADMITTED = make_workload("w", host="h1", cpus=2)
"""Two pods of one cpu."""
GROWN = make_workload("w2", host="h1", cpus=2)
HOLDINGS = {f"ns/{w.metadata.name}": holding(w) for w in (ADMITTED, GROWN)}


class World:
    def __init__(self, *cpus: int) -> None:
        """One pod for each of these, the oldest first."""
        self.charged: dict[str, dict[str, int]] = {}
        self.pods: Store[PodView] = Store("pods")
        self.excess = ExcessPods(pods=self.pods, holding=HOLDINGS.get, charge=self._charge, release=self._release)
        for number, amount in enumerate(cpus):
            self.run(f"ns/p{number}", amount, age=100 - number)

    def _release(self, pod: str) -> None:
        self.charged.pop(pod, None)

    def run(self, key: str, cpus: int, *, age: int = 0) -> None:
        owner = CustomOwner(
            api_version="example.com/v1",
            kind="Train",
            name="o",
            uid="uid-o",
            pod_created=NOON - timedelta(seconds=age),
            pod_is_queued=False,
        )
        self.pods.put(key, PodView(key, PodFacts(node="n", requests=(("cpu", cpus * 1000),)), custom_owner=owner))
        self.excess.add(key, "uid-o")

    def end(self, key: str) -> str | None:
        self.pods.remove(key)
        return self.excess.remove(key)

    def _charge(self, pod: str, queue: str, amounts: object) -> None:
        assert queue == "ns/main"
        assert isinstance(amounts, dict)
        self.charged[pod] = amounts


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        pytest.param((1, 1), {}, id="as-admitted"),
        pytest.param((2, 2), {}, id="each-is-larger-and-there-are-not-more"),
        pytest.param((1, 1, 0), {}, id="a-helper-that-asks-for-nothing"),
        pytest.param((1, 1, 4), {"ns/p2": {"cpu": 4000}}, id="one-more"),
        pytest.param((1, 3, 1), {"ns/p1": {"cpu": 2000}, "ns/p2": {"cpu": 1000}}, id="in-part"),
    ],
)
def test_what_is_beyond_an_admission_is_charged(cpus: tuple[int, ...], expected: dict[str, dict[str, int]]) -> None:
    world = World(*cpus)
    world.excess.weigh("uid-o", [ADMITTED])

    assert world.charged == expected


def test_a_charge_ends_when_the_pods_are_paid_for() -> None:
    """A pod has ended, the admission has grown, or the owner holds nothing and its pods are stopped elsewhere."""
    world = World(1, 1, 1)
    world.excess.weigh("uid-o", [ADMITTED])
    assert world.charged == {"ns/p2": {"cpu": 1000}}
    assert world.end("ns/p0") == "uid-o"
    world.excess.weigh("uid-o", [ADMITTED])
    assert world.charged == {}
    world.run("ns/late", 1)
    world.excess.weigh("uid-o", [ADMITTED])
    assert world.charged == {"ns/late": {"cpu": 1000}}
    world.excess.weigh("uid-o", [ADMITTED, GROWN])
    assert world.charged == {}
    world.run("ns/more", 9)
    world.excess.weigh("uid-o", [])
    assert world.charged == {}


def test_what_has_ended_is_forgotten() -> None:
    world = World(1, 1, 4)
    world.excess.weigh("uid-o", [ADMITTED])

    assert [world.end(f"ns/p{n}") for n in (2, 1, 0, 0)] == ["uid-o", "uid-o", None, None]
    assert world.charged == {}
    assert world.excess.any_of("uid-o") is None
