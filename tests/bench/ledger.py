"""The node ledger: what one change costs, and what is held.

`python -m tests.bench.ledger [row ...]`.  Hosts of 96 cpu, 384 GiB and 110 pods, 16 in a rack, 16 racks in a block;
one flavor of all of them by block, rack and host, unless a row says how many.

    change      one node's cpu changes (95 and 96 in turn), then a snapshot of every flavor, with a foreign pod on each
                host; `tree`: one node's taints change, so that the trees are edited
    what-if     2,000 hosts, filled by 700 workloads; three pods are taken out of a snapshot, placed again in one rack, and
                put back; or 64 asked for in one block, which fails and is explained
    event       one change of one node, pod or workload at 2,560 and 50,000 hosts, without a question after it
    first       nodes become known one after the other, then tables are made in steps, then the first snapshot: the longest
                single call or step, and all of it; and the same tables made in one go, as for a flavor that comes later
    audit       the longest step of an audit, and all of it, with a foreign pod on each host
    memory      100,000 nodes and 300,000 foreign pods, read from JSON as the controller reads them, and one tree;
                resident memory of the process at its highest, interpreter and libraries included
"""

from __future__ import annotations

import gc
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from subprocess import run
from typing import Any

import msgspec
import numpy as np

from kqueue.api.wire import core as wire
from kqueue.core.topology import (
    HOSTNAME,
    Domain,
    DomainUsage,
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
from kqueue.state.from_api import PodView, node_facts, pod_view
from kqueue.state.ledger import AssignedUsage, NodeLedger

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
LEVELS = (BLOCK, RACK, HOSTNAME)
GIB = 1 << 30
AGENT = (("cpu", 1000), ("memory", GIB))
GANG = {"cpu": 32_000, "nvidia.com/gpu": 8}
ROUNDS = 300
GOALS = {
    "change 1 flavor": 1.0,
    "change 15 flavors": 1.0,
    "what-if": 0.060,
    "audit 12,500 nodes longest step": 50.0,
    "first 12,500 nodes longest call": 50.0,
    "memory": 400.0,
}

Row = tuple[str, str, float]
"""(what, unit, value)"""


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


def filled(nodes: int, flavors: int = 1, *, agents: bool = True) -> NodeLedger:
    """With nodes, and a foreign pod on each; asked once, so that the tables are there."""
    ledger = opened(flavors)
    for i in range(nodes):
        ledger.on_node(f"host-{i:05}", host(i))
    for i in range(nodes if agents else 0):
        ledger.on_pod(f"agents/agent-{i:05}", PodFacts(node=f"host-{i:05}", requests=AGENT))
    if len(ledger.snapshot()["flavor-0"].tree) != nodes:
        raise SystemExit("nodes are missing in the tree: the figures would mean nothing")
    return ledger


def median_ms(act: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Median of `act(round)`, collector as shipped."""
    times = []
    gc.collect()
    for i in range(rounds):
        start = time.perf_counter()
        act(i)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


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


def tell(ledger: NodeLedger, versions: list[NodeFacts], i: int) -> None:
    """One version or the other."""
    ledger.on_node(versions[0].name, versions[i % 2])


def alternate(act: Callable[[Any], object], values: list[Any], i: int) -> None:
    """One value or the other."""
    act(values[i % 2])


def tell_and_ask(ledger: NodeLedger, versions: list[NodeFacts], i: int) -> None:
    """The same, and the snapshot after it."""
    tell(ledger, versions, i)
    snapshot = ledger.snapshot()
    assert snapshot["flavor-0"].free(0)["cpu"] == versions[i % 2].allocatable["cpu"] - 1000


def change() -> Iterator[Row]:
    """A change and a snapshot."""
    for flavors in (1, 15):
        ledger = filled(2_500, flavors)
        name = f"change {flavors} flavor{'s' * (flavors > 1)}"
        yield name, "ms", median_ms(partial(tell_and_ask, ledger, cores(0)))
        yield f"{name} tree", "ms", median_ms(partial(tell_and_ask, ledger, taints(0)))


def what_if() -> Iterator[Row]:
    """Remove one workload from a snapshot and ask again, as a search for victims does."""
    ledger = filled(2_000, agents=False)
    taken = iter(range(2_000))
    for i in range(700):
        ledger.add_usage(f"low-{i:03}", [held(*[f"host-{next(taken):05}" for _ in range(2 if i % 7 == 6 else 3)])])
    snapshot = ledger.snapshot()["flavor-0"]
    usages = [[DomainUsage((f"host-{16 * i + k:05}",), GANG, 1) for k in range(3)] for i in range(125)]

    def removed(question: list[PodSetRequest], fits: bool, i: int) -> None:
        with snapshot.trial():
            snapshot.release(usages[i % len(usages)])
            assert isinstance(place(snapshot, question), Placement) == fits

    for name, count, level in (("what-if", 3, RACK), ("what-if that does not fit", 64, BLOCK)):
        asked = PodSetRequest(name="main", count=count, requests=GANG, topology=TopologyRequest(required=level))
        yield name, "ms", median_ms(partial(removed, [asked], count == 3), 2_000)


def event() -> Iterator[Row]:
    """Single events at two sizes."""
    pods = [PodFacts(node="host-00007", requests=(("cpu", 1000 + i),)) for i in (1, 2)]
    for nodes in (2_560, 50_000):
        ledger = filled(nodes)
        acts: dict[str, Callable[[int], object]] = {
            "same": partial(tell, ledger, [host(9), host(9)]),
            "amounts": partial(tell, ledger, cores(7)),
            "taints": partial(tell, ledger, taints(7)),
            "comes and goes": partial(alternate, partial(ledger.on_node, "new"), [host(99_999), None]),
            "foreign pod": partial(alternate, partial(ledger.on_pod, "agents/agent-00007"), pods),
            "usage": partial(alternate, partial(ledger.add_usage, "w"), [[held("host-00007")], []]),
        }
        for name, act in acts.items():
            yield f"event {nodes:,} nodes {name}", "ms", median_ms(act)
            ledger.snapshot()
        yield f"event {nodes:,} nodes amounts + snapshot", "ms", median_ms(partial(tell_and_ask, ledger, cores(0)))
        yield f"event {nodes:,} nodes taints + snapshot", "ms", median_ms(partial(tell_and_ask, ledger, taints(0)))


def first() -> Iterator[Row]:
    """From nothing to the first snapshot."""
    for nodes in (12_500, 50_000):
        facts = [host(i) for i in range(nodes)]
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
        ledger.snapshot()
        end = time.perf_counter()
        yield f"first {nodes:,} nodes longest call", "ms", max(longest, end - asked) * 1e3
        yield f"first {nodes:,} nodes in all", "ms", (end - start) * 1e3
        ledger.on_flavor("flavor-1", Flavor(name="flavor-1", topology="default", node_labels={"pool": "a"}))
        asked = time.perf_counter()
        ledger.snapshot()
        yield f"first {nodes:,} nodes in one go", "ms", (time.perf_counter() - asked) * 1e3


def audit() -> Iterator[Row]:
    """The ledger's own audit."""
    for nodes in (12_500, 50_000):
        ledger = filled(nodes)
        for i in range(600):
            ledger.add_usage(f"ns/w{i}", [held(f"host-{i:05}")])
        gc.collect()
        gc.freeze()
        start = time.perf_counter()
        longest = longest_step(ledger.audit_steps())
        yield f"audit {nodes:,} nodes longest step", "ms", longest * 1e3
        yield f"audit {nodes:,} nodes in all", "ms", (time.perf_counter() - start) * 1e3


def memory() -> Iterator[Row]:
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
        ledger.on_pod(view.key, view.foreign)
    assert len(ledger.snapshot()["flavor-0"].tree) == 100_000
    yield "memory", "MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield "memory interpreter and libraries", "MiB", base


ROWS = {"change": change, "what-if": what_if, "event": event, "first": first, "audit": audit, "memory": memory}


def main(names: list[str]) -> int:
    """Print the table; every row in a process of its own."""
    if len(names) != 1:
        print(f"ledger: Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}, one thread")
        commands = [[sys.executable, "-m", "tests.bench.ledger", name] for name in names or ROWS]
        return max(run(command, check=False).returncode for command in commands)
    for name, unit, value in ROWS[names[0]]():
        goal = GOALS.get(name)
        mark = "" if goal is None else f"<= {goal:g} {unit}: {'pass' if value <= goal else 'falls short'}"
        print(f"{name:<45} {value:>10.3f} {unit:<3}  {mark}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
