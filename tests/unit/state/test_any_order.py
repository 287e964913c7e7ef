"""Objects come, change and go in any order while workloads wait and run; what is believed follows from what is there.

Random histories go through the intake as watches tell them.  After each event, cache and queues equal those of a
process that has just started and hears of what is left, in another order.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.intake import Intake, IntakeState
from kqueue.core.topology import NodeFacts
from kqueue.model.pending import RequeueReason
from kqueue.state.cache import Cache
from kqueue.state.holding import Holding
from kqueue.state.queues import Queues
from tests.readings import free_by_node
from tests.unit.controllers.builders import DAY, condition, read

JSON = dict[str, Any]
HOST = "kubernetes.io/hostname"
SEEDS = range(24)
EVENTS = 150


# --- what there may be -----------------------------------------------------------------------------------------------


def make_node(name: str, *, cpus: int = 8, pool: str = "a") -> NodeFacts:
    node = {
        "metadata": {"name": name, "labels": {HOST: name, "rack": f"r-{name}", "pool": pool}},
        "status": {"allocatable": {"cpu": str(cpus), "pods": "99"}, "conditions": [condition("Ready")]},
    }
    return model.node_facts(read(wire_core.Node, node))


def make_flavor(name: str, *, topology: str | None = None, pool: str | None = None) -> wire.ResourceFlavor:
    spec = {"nodeLabels": {"pool": pool} if pool else {}, "topologyName": topology}
    return read(wire.ResourceFlavor, {"metadata": {"name": name}, "spec": spec})  # type: ignore[no-any-return]


def make_topology(*levels: str) -> wire.Topology:
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return read(wire.Topology, {"metadata": {"name": "dc"}, "spec": spec})  # type: ignore[no-any-return]


def groups(cpu: int | str = 9, *, mem: str = "halls") -> list[JSON]:
    """cpu in `racks` or `plain`, and mem in a flavor of its own."""
    return [
        {
            "coveredResources": ["cpu"],
            "flavors": [
                {"name": name, "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]} for name in ("racks", "plain")
            ],
        },
        {
            "coveredResources": ["mem"],
            "flavors": [{"name": mem, "resources": [{"name": "mem", "nominalQuota": "50", "lendingLimit": "20"}]}],
        },
    ]


def make_queue(name: str, **spec: Any) -> wire.ClusterQueue:
    obj = {"metadata": {"name": name}, "spec": {"resourceGroups": groups(), "namespaceSelector": {}, **spec}}
    return read(wire.ClusterQueue, obj)  # type: ignore[no-any-return]


def make_cohort(name: str, *, parent: str = "", cpu: int = 0) -> wire.Cohort:
    own = [{"name": "racks", "resources": [{"name": "cpu", "nominalQuota": str(cpu)}]}]
    resource_groups = [{"coveredResources": ["cpu"], "flavors": own}] if cpu else []
    obj = {"metadata": {"name": name}, "spec": {"parentName": parent or None, "resourceGroups": resource_groups}}
    return read(wire.Cohort, obj)  # type: ignore[no-any-return]


def make_local(name: str, queue: str, policy: str = "None") -> wire.LocalQueue:
    obj = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"clusterQueue": queue, "stopPolicy": policy}}
    return read(wire.LocalQueue, obj)  # type: ignore[no-any-return]


def make_namespace(**labels: str) -> wire_core.Namespace:
    return read(wire_core.Namespace, {"metadata": {"name": "ns", "labels": labels}})  # type: ignore[no-any-return]


def make_check(status: str) -> wire.AdmissionCheck:
    obj = {
        "metadata": {"name": "budget"},
        "spec": {"controllerName": "x"},
        "status": {"conditions": [condition("Active", status)]},
    }
    return read(wire.AdmissionCheck, obj)  # type: ignore[no-any-return]


def make_limits(**limits: JSON) -> wire_core.LimitRange:
    items = [{"type": "Container", **limits}]
    obj = {"metadata": {"name": "bounds", "namespace": "ns"}, "spec": {"limits": items}}
    return read(wire_core.LimitRange, obj)  # type: ignore[no-any-return]


def make_class(cpu: str) -> wire_core.RuntimeClass:
    obj = {"metadata": {"name": "sandboxed"}, "overhead": {"podFixed": {"cpu": cpu}}}
    return read(wire_core.RuntimeClass, obj)  # type: ignore[no-any-return]


def make_pod(name: str, *, node: str, of: str = "", cpu: int = 1, phase: str = "Running") -> model.PodView:
    """A pod on a node that names a Workload, or none."""
    marks = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    annotations = {**marks, "kueue.x-k8s.io/workload": of} if of else marks
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}
    meta = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
    return model.pod_view(read(wire_core.Pod, {"metadata": meta, "spec": spec, "status": {"phase": phase}}))


CHECKS = {"admissionChecks": [{"name": "budget"}]}
QUEUE_SPECS: tuple[JSON, ...] = (
    {},
    {"cohortName": "one"},
    {"cohortName": "two", "queueingStrategy": "StrictFIFO"},
    {"cohortName": "one", "stopPolicy": "Hold"},
    {"namespaceSelector": {"matchLabels": {"team": "a"}}},
    {"admissionChecksStrategy": CHECKS},
    {"resourceGroups": groups("many")},
    {"cohortName": "two", "resourceGroups": groups(3, mem="racks")},
    {"resourceGroups": groups(mem="plain")[:1]},
)
ASSIGNED = (("racks", "halls"), ("plain", "halls"), ("racks", "racks"), ("plain", "plain"), ("gone", "halls"))


def make_workload(pick: random.Random, name: str, version: int) -> wire.Workload:
    """A workload that waits, holds something, is over, or may not wait at all; of one of two owners of its name."""
    pods = pick.choice((1, 2))
    requests = pick.choice(({"cpu": "1", "mem": "2"}, {"cpu": "1"}, {}))
    pod = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
    if pick.random() < 0.3:
        pod["runtimeClassName"] = "sandboxed"  # type: ignore[assignment]
    conditions, status = [], dict[str, Any]()
    state = pick.choice(
        ("waits", "waits", "waits", "waits", "holds", "holds", "over", "gated", "later", "evicted", "held back")
    )
    annotations = {"kueue.x-k8s.io/admission-gated-by": "x"} if state == "gated" else {}
    if state in ("holds", "over", "evicted"):
        conditions += [
            condition(kind, reason=kind) | {"lastTransitionTime": f"{DAY}T01:{version // 60:02}:{version % 60:02}Z"}
            for kind in ("QuotaReserved", "Admitted")
        ]
        status["admission"] = admission(pick, pods)
    if state == "over":
        conditions.append(condition("Finished", reason="Succeeded"))
    if state == "evicted":
        conditions.append(condition("Evicted", reason="Preempted"))
    if state == "later":
        status["requeueState"] = {"count": 1, "requeueAt": "2026-01-01T00:02:00Z"}
    if state == "held back":
        conditions.append(condition("QuotaReserved", "False", "OnHold"))
    elif "admission" not in status:  # as whoever gives one back leaves it
        conditions.append(condition("QuotaReserved", "False", "PendingEvaluation"))
    obj = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"{name}-{pick.choice('ab')}",
            "generation": version,
            "resourceVersion": str(version),
            "annotations": annotations,
            "creationTimestamp": f"{DAY}T00:{pick.randrange(60):02}:00Z",
        },
        "spec": {
            "queueName": pick.choice(("main", "main", "side", "nowhere")),
            "priority": pick.choice((0, 5)),
            "podSets": [{"name": "main", "count": pods, "template": {"spec": pod}}],
        },
        "status": {**status, "conditions": conditions},
    }
    return read(wire.Workload, obj)  # type: ignore[no-any-return]


def admission(pick: random.Random, pods: int) -> JSON:
    cpu, mem = pick.choice(ASSIGNED)
    entry: JSON = {
        "name": "main",
        "flavors": {"cpu": cpu, "mem": mem},
        "resourceUsage": {"cpu": str(pods), "mem": str(2 * pods)},
        "count": pods,
    }
    if pick.random() < 0.7:
        host = pick.choice(("h1", "h2", "h3"))
        slices = {"domainCount": 1, "valuesPerLevel": [{"universal": host}], "podCounts": {"universal": pods}}
        entry["topologyAssignment"] = {"levels": [HOST], "slices": [slices]}
    return {"clusterQueue": pick.choice(("left", "right")), "podSetAssignments": [entry]}


VARIANTS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "node": {name: (make_node(name), make_node(name, cpus=4, pool="b")) for name in ("h1", "h2")},
    "topology": {"dc": (make_topology(HOST), make_topology("rack", HOST))},
    "flavor": {
        "racks": (make_flavor("racks", topology="dc"), make_flavor("racks"), make_flavor("racks", topology="none")),
        "halls": (make_flavor("halls", topology="dc", pool="a"), make_flavor("halls")),
        "plain": (make_flavor("plain"), make_flavor("plain", pool="a"), make_flavor("plain", topology="dc", pool="b")),
    },
    "cohort": {
        "one": (make_cohort("one"), make_cohort("one", parent="two"), make_cohort("one", parent="one", cpu=3)),
        "two": (make_cohort("two", cpu=5), make_cohort("two", parent="one"), make_cohort("two", parent="root")),
    },
    "check": {"budget": (make_check("True"), make_check("False"))},
    "namespace": {"ns": (make_namespace(), make_namespace(team="a"))},
    "limits": {
        "bounds": (make_limits(defaultRequest={"cpu": "2"}), make_limits(max={"cpu": "500m"}, default={"mem": "3"}))
    },
    "class": {"sandboxed": (make_class("1"), make_class("250m"))},
    "queue": {name: tuple(make_queue(name, **spec) for spec in QUEUE_SPECS) for name in ("left", "right")},
    "local": {
        "main": (make_local("main", "left"), make_local("main", "right"), make_local("main", "left", "Hold")),
        "side": (make_local("side", "right"), make_local("side", "missing")),
    },
}
VARIANTS = {
    **VARIANTS,
    "pod": {
        f"{of or 'alone'}-{number}": tuple(
            make_pod(f"{of or 'alone'}-{number}", node=node, of=of, cpu=cpu)
            for node, cpu in (("h1", 1), ("h2", 1), ("h2", 3), ("h3", 1))
        )
        for of, number in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1), ("", 1))
    },
}
WORKLOADS = tuple("abcdefgh")


# --- processes -------------------------------------------------------------------------------------------------------


@dataclass
class Process:
    """Cache, queues and intake of a process, and all that it was told."""

    clock: FakeClock = field(default_factory=FakeClock)
    told: dict[tuple[str, str], Any] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)
    """In flight."""

    def __post_init__(self) -> None:
        self.cache = Cache()
        self.queues = Queues(self.clock.now)
        self.intake = Intake(
            IntakeState(cache=self.cache, queues=self.queues),
            namespace_labels=self._labels,
            wake=lambda: None,
            clock=self.clock,
        )
        intake, requests = self.intake, self.cache.requests
        self._handlers: dict[str, Callable[[Any, Any], object]] = {
            "node": intake.on_node,
            "topology": intake.on_topology,
            "flavor": intake.on_flavor,
            "cohort": intake.on_cohort,
            "check": intake.on_check,
            "namespace": intake.on_namespace,
            "queue": intake.on_cluster_queue,
            "local": intake.on_local_queue,
            "workload": intake.on_workload,
            "pod": intake.on_pod,
            "limits": lambda old, new: self._again(requests.on_limit_range(old, new)),
            "class": lambda old, new: self._again(requests.on_runtime_class(old, new)),
        }

    def _labels(self, name: str) -> Mapping[str, str] | None:
        namespace = self.told.get(("namespace", name))
        return None if namespace is None else namespace.metadata.labels

    def _again(self, concerned: str | None) -> None:
        for workload in self.workloads() if concerned is not None else ():
            self.intake.on_workload(workload, workload)

    def workloads(self) -> list[wire.Workload]:
        return [obj for (kind, _), obj in self.told.items() if kind == "workload"]

    def tell(self, kind: str, name: str, new: Any) -> None:
        """An event; None: the object is gone."""
        key = (kind, name)
        old = self.told.pop(key, None)
        if old is None and new is None:
            return
        if new is not None:
            self.told[key] = new
        self._handlers[kind](old, new)

    def heads(self) -> list[str]:
        """A cycle begins: what it is to try is in flight."""
        return [item.key for _, item in self.queues.pop_heads(lambda name: self.cache.quota.inactive(name) is None)]


def believed(cache: Cache) -> dict[str, Any]:
    """All that decisions depend on."""
    cohorts = [cache.quota.cohort_node(name) for name in cache.quota.cohort_names()]
    nodes = [cache.quota.node_of(name) for name in cache.quota.queue_names()] + cohorts
    capacities = {flavor: cache.ledger.capacity(flavor) for flavor in cache.ledger.flavors()}
    return {
        "quota": {
            (node.name, node.is_cohort): (
                node.parent.name if node.parent is not None else None,
                {str(column): amount for column, amount in node.usage.items() if amount},
                dict(node.quotas),
                {str(column): amount for column, amount in node.subtree.items() if amount},
            )
            for node in nodes
            if node is not None
        },
        "hosts": {
            flavor: {
                path: {r: a for r, a in capacity.free(leaf).items() if a}
                for leaf, path in enumerate(capacity.tree.paths)
            }
            for flavor, capacity in capacities.items()
            if capacity is not None
        },
        "nodes": free_by_node(cache.ledger),
        "foreign": {node: cache.ledger.foreign_on(node) for node in cache.ledger.nodes},
        "holdings": {h.key: (h.uid, h.admission, h.requests, h.evicted) for h in cache.held.holdings()},
        "inactive": {name: cache.quota.inactive(name) for name in cache.quota.queue_names()},
    }


def started_anew(process: Process, pick: random.Random) -> Process:
    """A process that hears only of what is there, in another order."""
    anew = Process(clock=process.clock)
    left = list(process.told.items())
    pick.shuffle(left)
    for (kind, name), obj in left:
        anew.tell(kind, name, obj)
    return anew


def home_of(process: Process, workload: wire.Workload) -> str | None:
    """The ClusterQueue in which it must wait; None: it waits in none."""
    local = process.told.get(("local", workload.spec.queue_name or ""))
    if local is None or local.spec.stop_policy != "None" or ("queue", local.spec.cluster_queue) not in process.told:
        return None
    return str(local.spec.cluster_queue)


def assert_everybody_waits_once(process: Process) -> None:
    """Who waits is known, and stands in just one bucket of the ClusterQueue of its LocalQueue, if there is one."""
    waiting: dict[str, list[str]] = {name: [] for name in process.queues.names()}
    local: dict[str, int] = {}
    for workload in process.workloads():
        key = model.workload_key(workload)
        waits = model.is_queueable(workload) and process.cache.held.holding(key) is None
        assert process.queues.is_known(key) is waits, key
        home = home_of(process, workload) if waits else None
        assert (process.queues.position(key) is not None) is (home is not None), key
        if home is not None:
            waiting[home].append(key)
        if waits:
            local[model.local_queue_key(workload)] = local.get(model.local_queue_key(workload), 0) + 1
    assert {name: sum(process.queues.counts(name)) for name in waiting} == {n: len(k) for n, k in waiting.items()}
    stands = (process.queues.status_of(key) for key in process.queues.known())
    assert Counter(where[0] for where in stands if where is not None) == local
    for keys in waiting.values():
        assert sorted(process.queues.position(key) or () for key in keys) == [
            (place, len(keys)) for place in range(1, len(keys) + 1)
        ]


# --- writes under way ------------------------------------------------------------------------------------------------


@dataclass
class Write:
    """An admission that is charged already and not written yet."""

    name: str
    holding: Holding
    charged: ExitStack


def begin_write(process: Process, pick: random.Random, key: str) -> Write:
    """A head is admitted, as the scheduling loop does it."""
    name = key.partition("/")[2]
    workload = process.told["workload", name]
    decided = model.admission(with_reservation(workload, admission(pick, workload.spec.pod_sets[0].count), 0))
    assert decided is not None
    holding = Holding(
        key=key,
        uid=workload.metadata.uid,
        local_queue=model.local_queue_key(workload),
        admission=decided,
        requests=process.cache.requests.per_pod(workload),
        admitted=False,
        assumed=True,
    )
    charged = ExitStack()
    charged.enter_context(process.cache.held.assumed(holding))
    process.queues.settle(key)
    return Write(name, holding, charged)


def end_write(process: Process, pick: random.Random, write: Write, version: int) -> None:
    """It is written, and its echo comes; or it fails, and the workload waits again."""
    key = write.holding.key
    workload = process.told.get(("workload", write.name))
    if workload is not None and process.cache.held.holding(key) is write.holding and pick.random() < 0.5:
        with write.charged:
            stored = admission(pick, workload.spec.pod_sets[0].count)
            process.tell("workload", write.name, with_reservation(workload, stored, version))
        return
    with pytest.raises(ConnectionError), write.charged:
        raise ConnectionError
    if workload is not None and model.is_queueable(workload) and process.cache.held.holding(key) is None:
        process.queues.push(process.cache.requests.pending(workload))


def with_reservation(workload: wire.Workload, stored: JSON, version: int) -> wire.Workload:
    conditions = [
        condition("QuotaReserved", reason="QuotaReserved") | {"lastTransitionTime": f"{DAY}T02:{version % 60:02}:00Z"}
    ]
    status = msgspec.convert({"conditions": conditions, "admission": stored}, wire.WorkloadStatus)
    return msgspec.structs.replace(workload, status=status)


# --- histories -------------------------------------------------------------------------------------------------------


def begin_usually(process: Process, pick: random.Random) -> None:
    """Most of what is needed is there, and came in any order."""
    usual = [(kind, name, variants[0]) for kind, named in VARIANTS.items() for name, variants in named.items()]
    for kind, name, obj in pick.sample(usual, len(usual) - pick.randrange(3)):
        process.tell(kind, name, obj)


async def live(process: Process, pick: random.Random, version: int) -> list[Write]:
    """Something happens: an object comes, changes or goes, a cycle begins or ends, or time passes."""
    writes: list[Write] = []
    chance = pick.random()
    if chance < 0.35:
        name = pick.choice(WORKLOADS)
        process.tell("workload", name, make_workload(pick, name, version) if pick.random() < 0.85 else None)
    elif chance < 0.75:
        kind = pick.choice(list(VARIANTS))
        name = pick.choice(list(VARIANTS[kind]))
        usual, *others = VARIANTS[kind][name]
        process.tell(kind, name, usual if pick.random() < 0.75 else pick.choice((*others, None)))
    elif chance < 0.95:
        while process.tried:
            process.queues.requeue(process.tried.pop(), pick.choice(list(RequeueReason)), has_more=pick.random() < 0.2)
        for key in process.heads():
            if pick.random() < 0.5:
                writes.append(begin_write(process, pick, key))
            else:
                process.tried.append(key)  # events come while it is in flight
    else:
        await process.clock.advance(pick.choice((0.5, 2, 60)))
    return writes


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_is_believed_does_not_depend_on_the_order_of_events(seed: int) -> None:
    """After every event all is as if the process had just begun, and every workload is in the one place it must be."""
    pick = random.Random(seed)
    process = Process()
    try:
        begin_usually(process, pick)
        writes: list[Write] = []
        for version in range(1, EVENTS + 1):
            writes += await live(process, pick, version)
            assert_everybody_waits_once(process)
            if version % 5 == 0:
                while writes:
                    end_write(process, pick, writes.pop(), version)
                    assert_everybody_waits_once(process)
                anew = started_anew(process, pick)
                assert believed(process.cache) == believed(anew.cache)
                await anew.intake.close()
        assert process.cache.audits.audit() == []
    finally:
        await process.intake.close()


@pytest.mark.parametrize("first", ["workload", "racks", "halls", "topology"])
@pytest.mark.parametrize("last", ["workload", "racks", "halls", "topology"])
async def test_pods_in_two_flavors_take_their_place_once(first: str, last: str) -> None:
    """Both flavors have the topology, and the hosts are the same: whichever is told first, a pod stands there once."""
    admitted = {
        "clusterQueue": "left",
        "podSetAssignments": [
            {
                "name": "main",
                "flavors": {"cpu": "racks", "mem": "halls"},
                "resourceUsage": {"cpu": "1"},
                "count": 1,
                "topologyAssignment": {
                    "levels": [HOST],
                    "slices": [
                        {"domainCount": 1, "valuesPerLevel": [{"universal": "h1"}], "podCounts": {"universal": 1}}
                    ],
                },
            }
        ],
    }
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    workload = {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]},
        "status": {"admission": admitted, "conditions": [condition("QuotaReserved")]},
    }
    events: dict[str, tuple[str, str, Any]] = {
        "workload": ("workload", "a", read(wire.Workload, workload)),
        "racks": ("flavor", "racks", make_flavor("racks", topology="dc")),
        "halls": ("flavor", "halls", make_flavor("halls", topology="dc")),
        "topology": ("topology", "dc", make_topology(HOST)),
    }
    process = Process()
    process.tell("node", "h1", make_node("h1"))
    for event in sorted(events, key=lambda e: (e == last, e != first)):
        process.tell(*events[event])

    assert free_by_node(process.cache.ledger) == {"h1": {"cpu": 7000, "pods": 98}}
    process.tell("flavor", "halls", None)
    assert free_by_node(process.cache.ledger) == {"h1": {"cpu": 7000, "pods": 98}}
    process.tell("workload", "a", None)
    assert free_by_node(process.cache.ledger) == {"h1": {"cpu": 8000, "pods": 99}}
    await process.intake.close()


HEALS = [
    pytest.param("flavor", "racks", id="a flavor"),
    pytest.param("flavor", "halls", id="the flavor of another resource"),
    pytest.param("topology", "dc", id="a topology"),
    pytest.param("cohort", "one", id="a cohort"),
    pytest.param("queue", "left", id="a ClusterQueue"),
    pytest.param("local", "main", id="a LocalQueue"),
    pytest.param("namespace", "ns", id="a namespace"),
    pytest.param("check", "budget", id="a check"),
]


@pytest.mark.parametrize(("kind", "name"), HEALS)
@pytest.mark.parametrize("seed", SEEDS[:6])
async def test_what_was_taken_away_heals_when_it_returns(kind: str, name: str, seed: int) -> None:
    """Whatever came before, and though all was tried in vain: the object goes and returns, and all is tried again."""
    pick = random.Random(seed)
    process = Process()
    spec = {"cohortName": "one", "admissionChecksStrategy": CHECKS, "namespaceSelector": {"matchLabels": {"team": "a"}}}
    good = {
        **{(kind, name): variants[0] for kind, named in VARIANTS.items() for name, variants in named.items()},
        ("namespace", "ns"): make_namespace(team="a"),
        ("queue", "left"): make_queue("left", **spec),
        ("queue", "right"): make_queue("right"),
    }
    try:
        for version in range(1, 60):
            for write in await live(process, pick, version):
                end_write(process, pick, write, version)
        settled = list(good.items())
        pick.shuffle(settled)
        for (k, n), obj in settled:
            process.tell(k, n, obj)
        await process.clock.advance(600)
        for key in process.tried:
            process.queues.requeue(key, RequeueReason.NAMESPACE_MISMATCH)
        while heads := process.heads():
            for key in heads:
                process.queues.requeue(key, RequeueReason.NAMESPACE_MISMATCH)
        process.tell(kind, name, None)
        await process.clock.advance(10)
        process.tell(kind, name, good[kind, name])
        await process.clock.advance(10)

        assert process.cache.quota.inactive("left") is None
        assert_everybody_waits_once(process)
        waiting = [w for w in process.workloads() if process.queues.is_known(model.workload_key(w))]
        homes = [home_of(process, workload) for workload in waiting]
        assert process.queues.counts("left") == (homes.count("left"), 0)
    finally:
        await process.intake.close()
