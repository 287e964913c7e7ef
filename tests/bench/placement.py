"""`placement/*`: how long one decision takes on a ready state, beside the array arithmetic that it cannot do without.

Hosts of 96 cpu, 384 GiB and 110 pods, 16 in a rack, 16 racks in a block, all empty; pods of 24 cpu and 96 GiB, four to
a host.  Nothing is charged after a decision.

    nodes=N/<question>          `ms`: of a shape that was not seen since the last node change; `mean_50_shapes_ms`: the
                                mean over fifty such shapes, of which all counts are kept, so that memory is taken anew
    nodes=N/<question>_again    `ms`: the same shape asked again
    nodes=N/forked_rack_8       `ms`: the same shape on a fresh fork with 8 other leaves, as cycles see it
    slope/<question>            from 2,560 to 50,000 nodes: microseconds per 1,000 nodes, and x in time ~ nodes^x

The floor is numpy alone, in the same run: floor division of three int32 rows, minimum, sum per rack, tightest rack.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from math import log

import numpy as np

from kqueue.core.topology import (
    DEFAULT_PROFILE,
    HOSTNAME,
    PODS,
    Algorithm,
    Capacity,
    DomainUsage,
    Leaf,
    NodeFacts,
    Placement,
    PodSetRequest,
    Profile,
    TopologyRequest,
    Tree,
    place,
)
from tests.bench.table import REPETITIONS, Figure, Goal, Row, at_most, check, timed

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
GIB = 1 << 30
HOST = {"cpu": 96_000, "memory": 384 * GIB, PODS: 110}
POD = {"cpu": 24_000, "memory": 96 * GIB}
TO_A_HOST = 4
SIZES = (640, 2_560, 12_500, 50_000, 100_000)
SLOPE = (2_560, 50_000)
SHAPES = 50


@dataclass(frozen=True, slots=True)
class Question:
    """So many pods; `within` one domain of this level, which is large enough, or None: anywhere."""

    count: int
    topology: TopologyRequest
    within: str | None = None
    profile: Profile = DEFAULT_PROFILE


BALANCED = Profile(constrained=Algorithm.BALANCED)
QUESTIONS = {
    "required_rack_8": Question(8, TopologyRequest(required=RACK), RACK),
    "preferred_rack_8": Question(8, TopologyRequest(preferred=RACK), RACK),
    "unconstrained_8": Question(8, TopologyRequest(unconstrained=True)),
    "required_block_1024": Question(1024, TopologyRequest(required=BLOCK), BLOCK),
    "balanced_rack_8": Question(8, TopologyRequest(preferred=RACK), RACK, BALANCED),
    "balanced_rack_90": Question(90, TopologyRequest(preferred=RACK), BLOCK, BALANCED),
    "balanced_block_2304": Question(9 * 256, TopologyRequest(preferred=BLOCK), None, BALANCED),
}
"""The last: nine pods for each host of a block."""
GOALS = {
    **{("required_rack_8", n): us for n, us in zip(SIZES, (60, 70, 150, 400, 800), strict=True)},
    **{("required_rack_8_again", n): us for n, us in zip(SIZES, (30, 35, 60, 120, 250), strict=True)},
    ("preferred_rack_8", 12_500): 250,
    ("unconstrained_8", 12_500): 250,
    ("required_block_1024", 12_500): 400,
    **{(f"balanced_{question}", 2_500): 5_000 for question in ("rack_8", "rack_90", "block_2304")},
}
"""Microseconds."""


def goal_of(name: str, nodes: int) -> Goal | None:
    """In milliseconds."""
    limit = GOALS.get((name, nodes))
    return None if limit is None else at_most(limit / 1e3)


@cache
def empty_cluster(nodes: int) -> Capacity:
    """All hosts free."""
    leaves = []
    for i in range(nodes):
        name, rack, block = f"host-{i:05}", f"rack-{i // 16:04}", f"block-{i // 256:03}"
        facts = NodeFacts(name=name, labels={BLOCK: block, RACK: rack, HOSTNAME: name}, allocatable=HOST)
        leaves.append(Leaf((block, rack, name), (facts,)))
    tree = Tree(topology="default-topology", levels=LEVELS, leaves=leaves)
    free = np.repeat(np.array(list(HOST.values()), dtype=np.int64)[:, None], nodes, axis=1)
    return Capacity(tree, list(HOST), free, idle=free.copy())


def asked(question: Question, requests: dict[str, int]) -> list[PodSetRequest]:
    """As a workload asks it."""
    return [PodSetRequest(name="main", count=question.count, requests=requests, topology=question.topology)]


def verify(answer: object, question: Question, to_a_host: int = TO_A_HOST) -> None:
    """All pods have a place, no host too many, and they are together where they must be."""
    check(isinstance(answer, Placement), f"{answer} is no placement")
    assert isinstance(answer, Placement)
    found = answer["main"]
    pods = [domain.count for domain in found.assignment.domains]
    check(sum(pods) == question.count, f"{sum(pods)} of {question.count} pods are placed")
    check(min(pods) > 0 and max(pods) <= to_a_host, f"a host got {max(pods)} pods, {to_a_host} fit")
    check(max(Counter(found.paths).values()) == 1, "a host is named twice")
    if question.within is not None:
        domains = {path[LEVELS.index(question.within)] for path in found.paths}
        check(len(domains) == 1, f"{len(domains)} domains of {question.within} are used")


@cache
def floor_ms(nodes: int) -> float:
    """The bare scan: no masks, no names, no answer."""
    cpu, memory, pods = (np.full(nodes, amount, dtype=np.int32) for amount in (96_000, 384 * 1024, 110))
    starts = np.arange(0, nodes, 16)
    full = np.int32(np.iinfo(np.int32).max)

    def scan() -> int:
        fit = np.minimum(np.minimum(cpu // 24_000, memory // (96 * 1024)), pods)
        racks = np.add.reduceat(fit, starts)
        return int(np.where(racks >= 8, racks, full).argmin())

    return statistics.median(timed(scan))


@cache
def cold(nodes: int, name: str) -> list[float]:
    """Milliseconds for a shape not seen since the last node change."""
    live, question = empty_cluster(nodes), QUESTIONS[name]
    ask = partial(place, live, asked(question, POD), profile=question.profile)
    verify(ask(), question)
    return timed(ask, ready=live.counted.clear)


@cache
def again(nodes: int, name: str) -> list[float]:
    """Milliseconds for the shape asked last."""
    live, question = empty_cluster(nodes), QUESTIONS[name]
    ask = partial(place, live, asked(question, POD), profile=question.profile)
    verify(ask(), question)
    return timed(ask)


def of_many_shapes(nodes: int, name: str) -> list[float]:
    """Mean milliseconds over fifty shapes, none of them known; one value per repetition.

    A repetition asks all of them three times over and takes the median of each, or asks them once where that is long.
    """
    live, question = empty_cluster(nodes), QUESTIONS[name]
    shapes = [asked(question, {"cpu": 24_000 - 10 * i, "memory": 96 * GIB - (i << 20)}) for i in range(SHAPES)]
    for shape in shapes:
        verify(place(live, shape, profile=question.profile), question)
    passes = 3 if statistics.median(cold(nodes, name)) < 1 else 1
    means = []
    for _ in range(REPETITIONS):
        times: list[list[float]] = [[] for _ in shapes]
        for _ in range(passes):
            live.counted.clear()
            for mine, shape in zip(times, shapes, strict=True):
                start = time.perf_counter()
                place(live, shape, profile=question.profile)
                mine.append(time.perf_counter() - start)
        means.append(statistics.fmean(map(statistics.median, times)) * 1e3)
    return means


def ask_cold(nodes: int, name: str) -> Iterator[Figure]:
    """A shape not seen, and fifty of them."""
    floor = floor_ms(nodes)
    yield Figure("ms", cold(nodes, name), goal_of(name, nodes), floor)
    yield Figure("mean_50_shapes_ms", of_many_shapes(nodes, name), None, floor)


def try_again(nodes: int, name: str) -> Iterator[Figure]:
    """A known shape."""
    yield Figure("ms", again(nodes, name), goal_of(f"{name}_again", nodes), floor_ms(nodes))


def ask_forked(nodes: int, name: str) -> Iterator[Figure]:
    """A known shape in a new snapshot, where another workload has just been charged."""
    live, question = empty_cluster(nodes), QUESTIONS[name]
    pods = asked(question, POD)
    verify(place(live, pods), question)
    first_leaves = cycle(range(0, nodes - 8, 8))
    forks: list[Capacity] = []

    def fork() -> None:
        first = next(first_leaves)
        forks[:] = [live.fork()]
        forks[0].charge([DomainUsage(live.tree.written(leaf), POD, 1) for leaf in range(first, first + 8)])

    times = timed(lambda: place(forks[0], pods), ready=fork)
    verify(place(forks[0], pods), question)
    yield Figure("ms", times, None, floor_ms(nodes))


def slope(name: str, times: Callable[[int, str], Sequence[float]]) -> Iterator[Figure]:
    """How time grows with nodes."""
    small, large = (statistics.median(times(nodes, name)) for nodes in SLOPE)
    yield Figure("us_per_1000_nodes", [(large - small) * 1e6 / (SLOPE[1] - SLOPE[0])])
    yield Figure("exponent", [log(large / small) / log(SLOPE[1] / SLOPE[0])])


def _rows() -> Iterator[Row]:
    for nodes in SIZES:
        for name in QUESTIONS:
            if name == "balanced_block_2304":
                continue  # is asked of 2,500 nodes
            yield Row(f"placement/nodes={nodes}/{name}", partial(ask_cold, nodes, name))
            if name == "required_rack_8":
                yield Row(f"placement/nodes={nodes}/{name}_again", partial(try_again, nodes, name))
                yield Row(f"placement/nodes={nodes}/forked_rack_8", partial(ask_forked, nodes, name))
    for name in ("balanced_rack_8", "balanced_rack_90", "balanced_block_2304"):
        yield Row(f"placement/nodes=2500/{name}", partial(ask_cold, 2_500, name))
    yield Row("placement/slope/required_rack_8", partial(slope, "required_rack_8", cold))
    yield Row("placement/slope/required_rack_8_again", partial(slope, "required_rack_8", again))


ROWS = tuple(_rows())
