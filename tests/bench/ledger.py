"""`snapshot/*` and `ledger/*`: what the node ledger's changes cost, and what is held.

Hosts of 96 cpu, 384 GiB and 110 pods, 16 in a rack, 16 racks in a block; one flavor of all of them by block, rack and
host, unless a row says how many.

    snapshot/empty/nodes=N/...      what a cycle pays before its first decision: `reused` when nothing changed;
                                    `node_changed` after one node's cpu did (95 and 96 in turn), the change included;
                                    `node_tainted` after its taints did, so that the tree is edited; `first_decision`
                                    the change, the snapshot, and 8 pods placed in one rack
    snapshot/agents/flavors=F/...   the same for 2,500 hosts with a foreign pod on each, which F flavors match
    ledger/what_if/...              2,000 hosts, filled by 700 workloads; three pods are taken out of a snapshot, placed
                                    again in one rack, and put back; `refused`: 64 are asked for in one block, which
                                    fails; `explained`: and why is asked, too
    ledger/event/nodes=N/...        one change of one node, pod or workload, without a question after it
    ledger/first/nodes=N            nodes become known one after the other, then tables are made in steps, then the
                                    first snapshot: the longest single call or step, and all of it; and the same tables
                                    made in one go, as for a flavor that comes later
    ledger/audit/nodes=N            the longest step of an audit, and all of it, with a foreign pod on each host
    ledger/memory                   100,000 nodes and 300,000 foreign pods, read from JSON as the controller reads them,
                                    and one tree; resident memory of the process at its highest, interpreter and
                                    libraries included
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import cycle
from typing import Any

import msgspec

from kqueue.api.wire import core as wire
from kqueue.core.topology import (
    HOSTNAME,
    Domain,
    DomainUsage,
    Misfit,
    NodeFacts,
    Placement,
    PodFacts,
    PodSetRequest,
    Taint,
    TopologyAssignment,
    TopologyRequest,
    place,
)
from kqueue.core.workload import Flavor
from kqueue.model import PodView, node_facts, pod_view
from kqueue.state.ledger import AssignedUsage, NodeLedger
from tests.bench.table import REPETITIONS, Figure, Row, at_most, check, timed

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
GIB = 1 << 30
AGENT = (("cpu", 1000), ("memory", GIB))
GANG = {"cpu": 32_000, "nvidia.com/gpu": 8}
EIGHT = PodSetRequest(
    name="main", count=8, requests={"cpu": 24_000, "memory": 96 * GIB}, topology=TopologyRequest(required=RACK)
)


def host(i: int, cpu: int = 96_000, **facts: Any) -> NodeFacts:
    """Host number i."""
    labels = {BLOCK: f"block-{i // 256:03}", RACK: f"rack-{i // 16:04}", HOSTNAME: f"host-{i:05}", "pool": "a"}
    allocatable = {"cpu": cpu, "memory": 384 * GIB, "pods": 110, "nvidia.com/gpu": 8}
    return NodeFacts(name=f"host-{i:05}", labels=labels, allocatable=allocatable, **facts)


def opened(flavors: int = 1) -> NodeLedger:
    """Without nodes."""
    ledger = NodeLedger()
    ledger.on_topology("default", LEVELS)
    for i in range(flavors):
        ledger.on_flavor(f"flavor-{i}", Flavor(name=f"flavor-{i}", topology="default", node_labels={"pool": "a"}))
    return ledger


@cache
def filled(nodes: int, flavors: int = 1, *, agents: bool = True) -> NodeLedger:
    """With nodes, and a foreign pod on each; asked once, so that the tables are there."""
    ledger = opened(flavors)
    for i in range(nodes):
        ledger.on_node(f"host-{i:05}", host(i))
    for i in range(nodes if agents else 0):
        ledger.on_pod(f"agents/agent-{i:05}", PodFacts(node=f"host-{i:05}", requests=AGENT))
    check(len(ledger.snapshot()["flavor-0"].tree) == nodes, "nodes are missing in the tree")
    return ledger


def held(*hosts: str) -> AssignedUsage:
    """A pod of a gang on each of these."""
    assignment = TopologyAssignment((HOSTNAME,), tuple(Domain((name,), 1) for name in hosts))
    return AssignedUsage(flavor="flavor-0", assignment=assignment, requests=GANG)


def longest_step(steps: Iterator[object]) -> float:
    """Seconds.  Steps that find something mean that the ledger is wrong."""
    longest, found = 0.0, None
    while found is not steps:
        start = time.perf_counter()
        found = next(steps, steps)
        longest = max(longest, time.perf_counter() - start)
        assert found is steps or not found
    return longest


# --- rows


def cores(i: int) -> list[NodeFacts]:
    """Two versions of a host that differ in an amount."""
    return [host(i, 95_000), host(i)]


def taints(i: int) -> list[NodeFacts]:
    """Two versions of a host that differ in a taint."""
    return [host(i, taints=(Taint("burning"),)), host(i)]


def in_turn(act: Callable[[Any], object], *values: object) -> Callable[[], object]:
    """What does `act` with one value after the other, over and over."""
    order = cycle(values)
    return lambda: act(next(order))


def tell(ledger: NodeLedger, node: NodeFacts) -> None:
    """The node is now so."""
    ledger.on_node(node.name, node)


def tell_and_ask(ledger: NodeLedger, node: NodeFacts) -> None:
    """The same, and the snapshot after it."""
    ledger.on_node(node.name, node)
    ledger.snapshot()


def tell_and_place(ledger: NodeLedger, node: NodeFacts) -> None:
    """The same, and the first decision on it."""
    ledger.on_node(node.name, node)
    answer = place(ledger.snapshot()["flavor-0"], [EIGHT])
    assert isinstance(answer, Placement)


def snapshot(nodes: int, flavors: int, agents: bool, what: str) -> Iterator[Figure]:
    """What a cycle pays first."""
    ledger = filled(nodes, flavors, agents=agents)
    goal = at_most(1.0) if (flavors, what) == (15, "node_changed") else None
    if what == "reused":
        yield Figure("ms", timed(ledger.snapshot))
    elif what == "first_decision":
        yield Figure("ms", timed(in_turn(partial(tell_and_place, ledger), *cores(0))))
    else:
        versions = cores(0) if what == "node_changed" else taints(0)
        yield Figure("ms", timed(in_turn(partial(tell_and_ask, ledger), *versions)), goal)
    free = 96_000 - (1_000 if agents else 0)
    for node, changed in ((host(0, 95_000), 1_000), (host(0), 0)):
        tell(ledger, node)
        seen = {found.free(0)["cpu"] for found in ledger.snapshot().values()}
        check(seen == {free - changed}, f"{seen} are free after the change")


@cache
def taken() -> NodeLedger:
    """2,000 hosts with 700 workloads."""
    ledger = filled(2_000, agents=False)
    hosts = iter(range(2_000))
    for i in range(700):
        ledger.add_usage(f"low-{i:03}", [held(*[f"host-{next(hosts):05}" for _ in range(2 if i % 7 == 6 else 3)])])
    return ledger


def what_if(kind: str) -> Iterator[Figure]:
    """Remove one workload from a snapshot and ask again, as a search for victims does."""
    now = taken().snapshot()["flavor-0"]
    usages = [[DomainUsage((f"host-{16 * i + k:05}",), GANG, 1) for k in range(3)] for i in range(125)]
    count, level = (3, RACK) if kind == "fits" else (64, BLOCK)
    asked = [PodSetRequest(name="main", count=count, requests=GANG, topology=TopologyRequest(required=level))]

    asked_of: list[tuple[list[DomainUsage], Placement | Misfit]] = []

    def removed(usage: list[DomainUsage]) -> None:
        with now.trial():
            now.release(usage)
            asked_of.append((usage, place(now, asked, explain=kind == "explained")))

    def verify() -> None:
        for usage, answer in asked_of:
            if isinstance(answer, Placement):
                hosts = [domain.values for domain in answer["main"].assignment.domains]
                check(kind == "fits" and hosts == [item.values for item in usage], f"{hosts} are free")
            else:
                check(kind != "fits" and answer.fit == 3, f"{answer.fit} pods fit")
        asked_of.clear()

    times = timed(in_turn(removed, *usages), ready=verify)
    verify()
    yield Figure("ms", times, at_most(0.060) if kind == "fits" else None)


def event(nodes: int, what: str) -> Iterator[Figure]:
    """Single events."""
    ledger = filled(nodes)
    pods = [PodFacts(node="host-00007", requests=(("cpu", 1000 + i),)) for i in (1, 2)]
    acts = {
        "same": in_turn(partial(tell, ledger), host(9)),
        "amounts": in_turn(partial(tell, ledger), *cores(7)),
        "taints": in_turn(partial(tell, ledger), *taints(7)),
        "comes_and_goes": in_turn(partial(ledger.on_node, "new"), host(99_999), None),
        "foreign_pod": in_turn(partial(ledger.on_pod, "agents/agent-00007"), *pods),
        "usage": in_turn(partial(ledger.add_usage, "w"), [held("host-00007")], []),
    }
    yield Figure("ms", timed(acts[what]))
    check(len(ledger.snapshot()["flavor-0"].tree) in (nodes, nodes + 1), "the tree has lost nodes")


def first(nodes: int) -> Iterator[Figure]:
    """From nothing to the first snapshot."""
    facts = [host(i) for i in range(nodes)]
    longest, total, at_once = zip(*(first_once(facts) for _ in range(REPETITIONS)), strict=True)
    yield Figure("longest_call_ms", longest, at_most(50) if nodes == 12_500 else None)
    yield Figure("all_ms", total)
    yield Figure("in_one_go_ms", at_once)


def first_once(facts: list[NodeFacts]) -> tuple[float, float, float]:
    """Milliseconds: the longest call, all of them, and a second flavor's tables in one go."""
    ledger, longest = opened(), 0.0
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    for node in facts:
        began = time.perf_counter()
        ledger.on_node(node.name, node)
        longest = max(longest, time.perf_counter() - began)
    longest = max(longest, longest_step(ledger.build_steps()))
    asked = time.perf_counter()
    found = ledger.snapshot()
    end = time.perf_counter()
    check(len(found["flavor-0"].tree) == len(facts), "nodes are missing in the tree")
    ledger.on_flavor("flavor-1", Flavor(name="flavor-1", topology="default", node_labels={"pool": "a"}))
    again = time.perf_counter()
    ledger.snapshot()
    return max(longest, end - asked) * 1e3, (end - start) * 1e3, (time.perf_counter() - again) * 1e3


def audit(nodes: int) -> Iterator[Figure]:
    """The ledger's own audit."""
    ledger = filled(nodes)
    for i in range(600):
        ledger.add_usage(f"ns/w{i}", [held(f"host-{i:05}")])
    gc.collect()
    gc.freeze()
    longest, total = [], []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        longest.append(longest_step(ledger.audit_steps()) * 1e3)
        total.append((time.perf_counter() - start) * 1e3)
    yield Figure("longest_step_ms", longest, at_most(50) if nodes == 12_500 else None)
    yield Figure("all_ms", total)


def memory() -> Iterator[Figure]:
    """What a very large cluster costs to hold."""
    labels = {f"node.example.dev/label-{i}": f"value-{i % 3}" for i in range(12)}
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ledger = opened()
    views: dict[str, PodView] = {}
    for i in range(100_000):
        body = {
            "metadata": {"name": f"host-{i:05}", "labels": {**labels, **host(i).labels}},
            "status": {
                "allocatable": {"cpu": "95", "memory": "384Gi", "pods": "110", "nvidia.com/gpu": "8"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        node = node_facts(msgspec.json.decode(msgspec.json.encode(body), type=wire.Node))
        ledger.on_node(node.name, node)
    for i in range(300_000):
        requests = {"requests": {"cpu": f"{100 + i % 5}m", "memory": "128Mi"}}
        body = {
            "metadata": {"name": f"agent-{i:06}", "namespace": "agents"},
            "spec": {"nodeName": f"host-{i % 100_000:05}", "containers": [{"name": "c", "resources": requests}]},
            "status": {"phase": "Running"},
        }
        view = pod_view(msgspec.json.decode(msgspec.json.encode(body), type=wire.Pod))
        views[view.key] = view
        ledger.on_pod(view.key, view.bound)
    assert len(ledger.snapshot()["flavor-0"].tree) == 100_000
    yield Figure("peak_rss_mib", [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024], at_most(400))
    yield Figure("interpreter_mib", [base])


def _rows() -> Iterator[Row]:
    for nodes in (640, 2_560, 12_500, 50_000):
        for what in ("reused", "node_changed", "node_tainted", "first_decision"):
            yield Row(f"snapshot/empty/nodes={nodes}/{what}", partial(snapshot, nodes, 1, False, what))
    for flavors in (1, 15):
        for what in ("reused", "node_changed", "node_tainted"):
            yield Row(f"snapshot/agents/flavors={flavors}/{what}", partial(snapshot, 2_500, flavors, True, what))
    for kind in ("fits", "refused", "explained"):
        yield Row(f"ledger/what_if/{kind}", partial(what_if, kind))
    for nodes in (2_560, 50_000):
        for what in ("same", "amounts", "taints", "comes_and_goes", "foreign_pod", "usage"):
            yield Row(f"ledger/event/nodes={nodes}/{what}", partial(event, nodes, what))
    for nodes in (12_500, 50_000):
        yield Row(f"ledger/first/nodes={nodes}", partial(first, nodes), alone=True)
        yield Row(f"ledger/audit/nodes={nodes}", partial(audit, nodes), alone=True)
    yield Row("ledger/memory", memory, alone=True)


ROWS = tuple(_rows())
