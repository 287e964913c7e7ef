"""Rings of samples: how many are kept, which are used, and what they cost."""

from __future__ import annotations

import random

import pytest

from kqueue.clock import FakeClock
from kqueue.core.joint.statistics import NO_SAMPLE, measured_kind
from kqueue.state.statistics import MOST_KINDS, Rings, Sample, StatisticsStore

KIND = measured_kind("team", {"cpu": 1_000})
INTERVAL = 15.0


def sample(cpu: int, memory: int = 0, bandwidth: int = NO_SAMPLE) -> Sample:
    return cpu, memory, bandwidth


def made(samples: int = 10) -> tuple[StatisticsStore, FakeClock]:
    clock = FakeClock()
    return StatisticsStore(interval=INTERVAL, samples=samples, clock=clock.monotonic), clock


def cpus(store: StatisticsStore, node: str) -> list[int]:
    """The usable samples of a node, sorted."""
    found = store.statistics()
    column = found.samples[:, 0, found.nodes.index(node)]
    return sorted(column[column >= 0].tolist())


@pytest.mark.mechanism("2.24")
@pytest.mark.parametrize("samples", [1, 10, 100])
def test_the_last_samples_are_kept_and_one_more_drops_the_first(samples: int) -> None:
    store, _ = made(samples)
    for number in range(1, samples + 1):
        store.add_nodes({"a": sample(number)})
    assert cpus(store, "a") == list(range(1, samples + 1))
    store.add_nodes({"a": sample(samples + 1)})
    assert cpus(store, "a") == list(range(2, samples + 2))


@pytest.mark.mechanism("2.24")
async def test_a_sample_older_than_ten_intervals_is_not_used() -> None:
    store, clock = made()
    store.add_nodes({"a": sample(1), "b": sample(5)})
    await clock.advance(INTERVAL)
    store.add_nodes({"a": sample(2)})
    await clock.advance(9 * INTERVAL)
    assert (cpus(store, "a"), cpus(store, "b")) == ([1, 2], [5])
    await clock.advance(0.001)
    assert (cpus(store, "a"), cpus(store, "b")) == ([2], [])
    store.add_nodes({"a": sample(3)})
    assert store.nodes.names() == ("a",), "a node without a usable sample leaves with the next sample"


async def test_each_node_has_a_ring_of_its_own() -> None:
    """Like a plain reference, whatever nodes have samples, and when; a node that is gone leaves."""
    chance = random.Random(7)
    store, clock = made(3)
    reference: dict[str, list[tuple[float, int]]] = {}
    for _ in range(400):
        await clock.advance(chance.choice([0.0, INTERVAL, 4 * INTERVAL]), turns=0)
        some = {f"n{chance.randrange(90)}": sample(chance.randrange(1_000)) for _ in range(chance.randrange(40))}
        store.add_nodes(some)
        for node, (cpu, *_) in some.items():
            reference.setdefault(node, []).append((clock.monotonic(), cpu))
        gone = {f"n{chance.randrange(90)}" for _ in range(2)}
        store.keep_nodes((set(store.nodes.names()) - gone).__contains__)
        for node in gone:
            reference.pop(node, None)
        since = clock.monotonic() - 10 * INTERVAL
        usable = {node: sorted(cpu for at, cpu in taken[-3:] if at >= since) for node, taken in reference.items()}
        assert {node: found for node in store.nodes.names() if (found := cpus(store, node))} == {
            node: found for node, found in usable.items() if found
        }


def test_a_resource_without_samples_has_none_while_others_have() -> None:
    store, _ = made()
    store.add_nodes({"a": sample(1, 2), "b": sample(1, 2, 3)})
    found = store.statistics()
    assert found.nodes == ("a", "b")
    assert found.measured("memory", 90)[1].tolist() == [True, True]
    assert found.measured("kqueue.dev/bandwidth", 90)[0].tolist() == [0, 3]
    assert found.measured("kqueue.dev/bandwidth", 90)[1].tolist() == [False, True]


def test_the_mean_of_a_kind_of_pods_is_over_its_samples() -> None:
    store, _ = made()
    for cpu in (100, 200, 600):
        store.add_kinds({KIND: sample(cpu, 10)})
    found = store.statistics()
    assert (found.mean(KIND, "cpu"), found.mean(KIND, "memory")) == (300, 10)
    assert found.mean(KIND, "kqueue.dev/bandwidth") is None
    assert found.mean(measured_kind("team", {"cpu": 2_000}), "cpu") is None
    assert found.mean(KIND, "nvidia.com/gpu") is None


def test_statistics_do_not_change_with_later_samples() -> None:
    store, _ = made(1)
    store.add_nodes({"a": sample(1)})
    before = store.statistics()
    store.add_nodes({"a": sample(2)})
    store.clear()
    assert before.samples[:, 0, 0].tolist() == [1]
    assert store.statistics().nodes == ()


def test_memory_is_bounded() -> None:
    rings: Rings[int] = Rings(10)
    rings.add({node: sample(node) for node in range(12_500)}, 0.0)
    assert len(rings) == 12_500
    assert rings.size <= 8 << 20
    for node in range(12_500):
        rings.forget(node)
    before = rings.size
    rings.add({node: sample(node) for node in range(20_000, 32_500)}, 0.0)
    assert rings.size == before, "columns of nodes that are gone are used again"

    store, _ = made(1)
    store.add_kinds({measured_kind("team", {"cpu": n}): sample(1) for n in range(1, MOST_KINDS + 100)})
    assert len(store.kinds) == MOST_KINDS


def test_a_column_that_is_used_again_has_no_samples_of_its_former_node() -> None:
    store, _ = made(3)
    for _ in range(2):
        store.add_nodes({"a": sample(7, 7, 7)})
    store.nodes.forget("a")
    store.nodes.forget("a")
    store.add_nodes({"b": sample(1)})
    assert cpus(store, "b") == [1]
