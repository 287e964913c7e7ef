"""Optimal placement: domains used against the fewest that could do, beside best fit, and what the better answer costs.

`python -m tests.bench.optimal [nodes ...]`.  Hosts of 8 GPUs, 16 in a rack, 16 racks in a block, from a fixed seed
taken in one of two ways; pods of 1 GPU.  Every question is asked on the same cluster; nothing is charged.

    scattered   0 to 8 GPUs of every host are free
    whole       half of the hosts are free, the others are full

    bound       the fewest domains whose capacities sum to the need, at each level by itself
    used        domains at block / rack / host level, best fit then optimal
    ratio       hosts used / bound
    proven      yes: no placement is better; no: the search ended at its limit
"""

from __future__ import annotations

import platform
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kqueue.core.topology import (
    HOSTNAME,
    Algorithm,
    Capacity,
    NodeFacts,
    Placement,
    PodSetPlacement,
    PodSetRequest,
    Profile,
    TopologyRequest,
    Tree,
    membership,
    place,
)

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
GPU = "nvidia.com/gpu"
SEED = 2
QUESTIONS = {
    "required_rack_32": (32, TopologyRequest(required=RACK)),
    "preferred_rack_96": (96, TopologyRequest(preferred=RACK)),
    "required_block_256": (256, TopologyRequest(required=BLOCK)),
    "preferred_rack_768": (768, TopologyRequest(preferred=RACK)),
    "preferred_rack_3072": (3072, TopologyRequest(preferred=RACK)),
}
BEST_FIT, OPTIMAL = Profile(), Profile(constrained=Algorithm.OPTIMAL)


@dataclass(frozen=True, slots=True)
class Answer:
    """One placement and the median time it took."""

    placed: PodSetPlacement
    median_ms: float

    @property
    def used(self) -> list[int]:
        """Domains per level."""
        return [level.used for level in self.placed.quality]

    @property
    def ratio(self) -> float:
        """Hosts used against the fewest possible."""
        hosts = self.placed.quality[-1]
        return hosts.used / hosts.lower_bound


def cluster(nodes: int, taken: str) -> Capacity:
    """A partly used cluster."""
    chance = random.Random(SEED)
    facts = [
        NodeFacts(
            name=f"host-{i:05}",
            labels={BLOCK: f"block-{i // 256:03}", RACK: f"rack-{i // 16:04}", HOSTNAME: f"host-{i:05}"},
            allocatable={GPU: chance.randint(0, 8) if taken == "scattered" else chance.choice([0, 8]), "pods": 110},
        )
        for i in range(nodes)
    ]
    found = membership(facts, levels=LEVELS, node_labels={})
    return Capacity.of(Tree(topology="default-topology", levels=LEVELS, leaves=found.leaves))


def answer(capacity: Capacity, count: int, topology: TopologyRequest, profile: Profile, rounds: int) -> Answer | None:
    """The answer; None when the pods do not fit."""
    pod_sets = [PodSetRequest(name="main", count=count, requests={GPU: 1}, topology=topology)]
    found = place(capacity, pod_sets, profile=profile, measure=True)
    if not isinstance(found, Placement):
        return None
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        place(capacity, pod_sets, profile=profile)
        times.append(time.perf_counter() - start)
    return Answer(found["main"], statistics.median(times) * 1e3)


def rows(nodes: int, taken: str, rounds: int) -> Iterator[tuple[str, Answer, Answer]]:
    """(question, best fit, optimal) for a cluster of this size."""
    capacity = cluster(nodes, taken)
    for name, (count, topology) in QUESTIONS.items():
        best_fit = answer(capacity, count, topology, BEST_FIT, rounds)
        optimal = answer(capacity, count, topology, OPTIMAL, rounds)
        if best_fit is not None and optimal is not None:
            yield name, best_fit, optimal


def main(sizes: list[int]) -> None:
    """Print the table."""
    print(f"optimal: Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}, one thread")
    header = f"{'nodes':>6} {'free':<10} {'question':<20} {'bound':>10}"
    for name in ("best fit", "optimal"):
        header += f" {name:>12} {'ratio':>6} {'median':>10}"
    print(f"{header}  proven")
    for nodes in sizes:
        for taken in ("scattered", "whole"):
            for name, best_fit, optimal in rows(nodes, taken, rounds=20):
                bound = "/".join(str(level.lower_bound) for level in optimal.placed.quality)
                line = f"{nodes:>6} {taken:<10} {name:<20} {bound:>10}"
                for each in (best_fit, optimal):
                    used = "/".join(map(str, each.used))
                    line += f" {used:>12} {each.ratio:>6.2f} {each.median_ms:>7.2f} ms"
                print(f"{line}  {'yes' if optimal.placed.proven else 'no'}")


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [640, 2_560])
