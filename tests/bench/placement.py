"""Placement: how long one decision takes, against the bare array arithmetic that it cannot do without.

`python -m tests.bench.placement [nodes ...]`.  Hosts of 96 cpu, 384 GiB and 110 pods, 16 in a rack, 16 racks in a
block, all empty; pods of 24 cpu and 96 GiB.  Nothing is charged after a decision.

    cold    a shape that was not seen since the last node change
    known   the same shape asked again
    fork    the same shape asked on a fresh fork, after 8 leaves changed: what a scheduling cycle sees
    floor   floor division of the three resources, minimum, sum per rack: numpy alone, in the same run
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from kqueue.core.topology import (
    HOSTNAME,
    Capacity,
    DomainUsage,
    NodeFacts,
    Placement,
    PodSetRequest,
    TopologyRequest,
    Tree,
    membership,
    place,
)

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
GIB = 1 << 30
REQUESTS = {"cpu": 24_000, "memory": 96 * GIB}
LIMITS_US = {  # the goals at 12,500 nodes
    ("required_rack_8", "cold"): 150,
    ("required_rack_8", "known"): 60,
    ("unconstrained_8", "cold"): 250,
    ("preferred_rack_8", "cold"): 250,
    ("required_block_1024", "cold"): 400,
}
QUESTIONS = {
    "required_rack_8": (8, TopologyRequest(required=RACK)),
    "preferred_rack_8": (8, TopologyRequest(preferred=RACK)),
    "unconstrained_8": (8, TopologyRequest(unconstrained=True)),
    "required_block_1024": (1024, TopologyRequest(required=BLOCK)),
}


def cluster(nodes: int) -> Capacity:
    """An empty cluster."""
    facts = [
        NodeFacts(
            name=f"host-{i:05}",
            labels={BLOCK: f"block-{i // 256:03}", RACK: f"rack-{i // 16:04}", HOSTNAME: f"host-{i:05}"},
            allocatable={"cpu": 96_000, "memory": 384 * GIB, "pods": 110},
        )
        for i in range(nodes)
    ]
    found = membership(facts, levels=LEVELS, node_labels={})
    return Capacity.of(Tree(topology="default-topology", levels=LEVELS, leaves=found.leaves))


def median_us(ask: Callable[[], object], rounds: int, before: Callable[[], object] = lambda: None) -> float:
    """Median of `ask` alone; `before` runs untimed ahead of each."""
    times = []
    for _ in range(rounds):
        before()
        start = time.perf_counter()
        ask()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def floor_us(capacity: Capacity, rounds: int) -> float:
    """The arithmetic alone: no mask, no choice, no answer."""
    rows = [(capacity.row("cpu"), 24_000), (capacity.row("memory"), 96 * GIB), (capacity.row("pods"), 1)]
    tables = [(row, amount) for row, amount in rows if row is not None]
    starts = capacity.tree.first_child[1]

    def arithmetic() -> None:
        fit = tables[0][0] // tables[0][1]
        for row, amount in tables[1:]:
            np.minimum(fit, row // amount, out=fit)
        np.add.reduceat(fit, starts)

    return median_us(arithmetic, rounds)


def rows(nodes: int, rounds: int) -> Iterator[tuple[str, str, float]]:
    """(question, state, median in microseconds) for a cluster of this size."""
    live = cluster(nodes)
    yield "floor", "", floor_us(live, rounds)
    for name, (count, topology) in QUESTIONS.items():
        if name == "required_block_1024" and nodes < 256:
            continue
        pod_sets = [PodSetRequest(name="main", count=count, requests=REQUESTS, topology=topology)]
        if not isinstance(place(live, pod_sets), Placement):
            raise SystemExit(f"{name} does not fit into {nodes} nodes: the figures would mean nothing")
        ask = partial(place, live, pod_sets)
        yield name, "cold", median_us(ask, rounds, live.counted.clear)
        yield name, "known", median_us(ask, rounds)
        yield name, "fork", fork_us(live, pod_sets, rounds)


def fork_us(live: Capacity, pod_sets: list[PodSetRequest], rounds: int) -> float:
    """Fork, charge 8 leaves, ask; the time of the question."""
    times = []
    for i in range(rounds):
        fork = live.fork()
        leaves = [(i * 8 + k) % len(live.tree) for k in range(8)]
        fork.charge([DomainUsage(live.tree.written(leaf), REQUESTS, 1) for leaf in leaves])
        start = time.perf_counter()
        place(fork, pod_sets)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main(sizes: list[int]) -> None:
    """Print the table."""
    print(f"placement: Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}, one thread")
    print(f"{'nodes':>7}  {'question':<20} {'state':<6} {'median':>10}  {'x floor':>7}  limit")
    for nodes in sizes:
        floor = 0.0
        for name, state, median in rows(nodes, rounds=300 if nodes <= 20_000 else 100):
            floor = floor or median
            limit = LIMITS_US.get((name, state)) if nodes == 12_500 else None
            mark = "" if limit is None else f"<= {limit} us: {'pass' if median <= limit else 'falls short'}"
            print(f"{nodes:>7}  {name:<20} {state:<6} {median:>7.1f} us  {median / floor:>7.2f}  {mark}")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [640, 2_560, 12_500, 50_000])
