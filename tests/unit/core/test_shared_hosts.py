"""Two flavors that stand on the same hosts, `red` and `blue`: what is decided in one counts in both at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from kqueue.core.claims import Claims
from kqueue.core.decision import Admit, Decision, Outcome, Preempt, Wait
from kqueue.core.preemption import Rules, SharingStrategy
from kqueue.core.quota import FlavorResource, QuotaNode
from kqueue.core.topology import PodSetRequest, TopologyRequest
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Claim, Flavor, Head, PodSet, Snapshot
from tests.builders import GPU, START, make_queue, make_view, plan
from tests.unit.core.preemption_cases import LOWER, NOW, RULES, cohort, leaf, runs, state, world

RED, BLUE = FlavorResource("red", GPU), FlavorResource("blue", GPU)
PLENTY = {RED: 80, BLUE: 80}


def on(flavor: str, **hosts: int) -> dict[str, tuple[DomainUsage, ...]]:
    """One pod on each of these hosts, with so many devices."""
    return {flavor: tuple(DomainUsage((f"b0-r0-{host}",), {GPU: gpus}, 1) for host, gpus in hosts.items())}


def holds(name: str, queue: str, domains: dict[str, tuple[DomainUsage, ...]], *, evicted: bool = False) -> Admitted:
    """A workload that holds devices on hosts, and their quota in the flavors in which it holds them."""
    usage = {
        FlavorResource(flavor, GPU): sum(u.requests[GPU] * u.count for u in taken) for flavor, taken in domains.items()
    }
    return runs(name, queue, usage, domains=domains, evicted=evicted)


def shared(hosts: int, running: Iterable[Admitted], queues: Sequence[QuotaNode], **flavors: Sequence[str]) -> Snapshot:
    """So many hosts with eight devices each; flavors by queue.  Queues preempt lesser workloads of their own."""
    running = list(running)
    view = make_view((1, 1, hosts))
    view.capacity.charge(usage for w in running for taken in w.domains.values() for usage in taken)
    specs = [make_queue(node.name, flavors=flavors[node.name], preempts_own=LOWER) for node in queues]
    topologies = {"red": view, "blue": replace(view, capacity=view.capacity.fork())}
    snapshot = world([cohort("all", *queues)], running, specs, topologies=topologies)
    return replace(snapshot, flavors={name: Flavor(name=name, topology="dc") for name in topologies})


def wants(name: str, queue: str, *gpus: int, age: int = 0) -> Head:
    """One pod per pod set, each with so many devices."""
    topology = TopologyRequest(unconstrained=True)
    pod_sets = tuple(
        PodSet(
            request=PodSetRequest(name=f"set{i}", count=1, requests={GPU: amount}, topology=topology),
            quota_requests={GPU: amount},
            asks_topology=True,
        )
        for i, amount in enumerate(gpus)
    )
    timestamp = START - timedelta(seconds=age)
    return Head(key=f"ns/{name}", uid=name, queue=queue, priority=5, timestamp=timestamp, pod_sets=pod_sets)


def free(snapshot: Snapshot) -> dict[str, list[int]]:
    """Devices free on every host, by flavor."""
    views = snapshot.topologies.items()
    return {name: [view.capacity.free(i)[GPU] for i in range(len(view.tree))] for name, view in views}


def decide(snapshot: Snapshot, *heads: Head, rules: Rules = RULES) -> dict[str, str]:
    """What became of whom, first come first."""
    return {decision.head.uid: _short(decision) for decision in plan(snapshot, heads, rules=rules)}


def _short(decision: Decision) -> str:
    match decision:
        case Admit():
            return "admitted"
        case Preempt():
            return "preempts " + " ".join(sorted(target.admitted.uid for target in decision.targets))
        case Wait():
            return decision.outcome.value


# --- what is decided ------------------------------------------------------------------------------------------------


def test_who_is_admitted_takes_hosts_of_both_flavors() -> None:
    """The second entry of the cycle finds its host taken, though by a workload of the other flavor."""
    snapshot = shared(1, [], [leaf("a", nominal=PLENTY), leaf("b", nominal=PLENTY)], a=["red"], b=["blue"])

    assert decide(snapshot, wants("first", "a", 8, age=1), wants("second", "b", 8)) == {
        "first": "admitted",
        "second": "Skipped",
    }
    assert free(snapshot) == {"red": [0], "blue": [0]}


def test_who_waits_keeps_hosts_of_both_flavors_free() -> None:
    """Nobody leaves for the first entry; the second one does not get its host either, in the same cycle."""
    running = [holds("greater", "a", on("red", h0=2))]
    running = [replace(workload, priority=9) for workload in running]
    snapshot = shared(1, running, [leaf("a", nominal=PLENTY), leaf("b", nominal=PLENTY)], a=["red"], b=["blue"])

    assert decide(snapshot, wants("first", "a", 8, age=1), wants("second", "b", 1)) == {
        "first": "NoCandidates",
        "second": "Skipped",
    }


def test_pod_sets_of_both_flavors_need_room_together() -> None:
    """Four devices are left on the only host; each of two pods of a workload would find them, and not both of them."""
    queues = [leaf("a", nominal=PLENTY), leaf("b", nominal={RED: 4, BLUE: 4}, borrows=0)]
    snapshot = shared(1, [], queues, a=["red"], b=["red", "blue"])

    assert decide(snapshot, wants("first", "a", 4, age=1), wants("second", "b", 4, 4)) == {
        "first": "admitted",
        "second": "Skipped",
    }
    assert free(snapshot) == {"red": [4], "blue": [4]}


# --- whom to preempt ------------------------------------------------------------------------------------------------

FAIR = Rules(now=NOW, fair=(SharingStrategy.LTE, SharingStrategy.LTI))


@pytest.mark.parametrize("rules", [RULES, FAIR], ids=["by quota and priority", "by fair shares"])
@pytest.mark.parametrize(
    ("running", "asks", "now", "afterwards"),
    [
        pytest.param([on("blue", h0=8)], [8], "preempts w0", "admitted", id="who holds the host in that flavor goes"),
        pytest.param([on("red", h0=8)], [8], "NoCandidates", "admitted", id="who holds it in the other one stays"),
        pytest.param(
            [on("red", h0=8) | on("blue", h1=8)],
            [8],
            "preempts w0",
            "admitted",
            id="who holds hosts in both goes for that of the one flavor",
        ),
        pytest.param(
            [on("red", h0=8) | on("blue", h1=8)],
            [8, 8],
            "NoCandidates",
            "admitted",
            id="and stays where the other host were needed, too",
        ),
        pytest.param(
            [on("red", h0=8), on("blue", h1=8)],
            [8],
            "preempts w1",
            "admitted",
            id="of two the one goes that holds its host in that flavor",
        ),
    ],
)
def test_who_looks_for_hosts_in_one_flavor_takes_them_from_those_who_were_assigned_it(
    rules: Rules, running: Sequence[dict[str, tuple[DomainUsage, ...]]], asks: list[int], now: str, afterwards: str
) -> None:
    """And gets any host that has become free, whoever held it."""
    hosts = len({usage.values for domains in running for taken in domains.values() for usage in taken})
    admitted = [holds(f"w{i}", "a", domains) for i, domains in enumerate(running)]
    head = wants("head", "a", *asks)

    def seen(running: Sequence[Admitted]) -> Snapshot:
        return shared(hosts, running, [leaf("a", nominal=PLENTY)], a=["blue"])

    snapshot = seen(admitted)
    before = free(snapshot)
    assert decide(snapshot, head, rules=rules) == {"head": now}
    assert (free(snapshot) == before) is now.startswith("preempts")  # else its place is kept for this cycle
    assert decide(seen([]), head, rules=rules) == {"head": afterwards}


# --- who was told to leave -------------------------------------------------------------------------------------------

LEAVES = on("red", h0=8) | on("blue", h1=8)
CLAIM = Claim(
    key="ns/first",
    uid="first",
    queue="a",
    usage={BLUE: 8},
    domains=on("blue", h1=8),
    victims={"leaves": ("a", "ns/leaves")},
)


def told(*others: Admitted) -> Snapshot:
    """`leaves` was told to: its host of the blue flavor is for `first`, and nobody has asked for that of the red one."""
    leaving = replace(holds("leaves", "a", LEAVES, evicted=True), key="ns/leaves")
    queues = [leaf("a", nominal=PLENTY), leaf("b", nominal=PLENTY)]
    snapshot = shared(2, [leaving, *others], queues, a=["blue"], b=["blue"])
    return replace(snapshot, claims=(CLAIM,))


def test_who_was_told_to_leave_will_be_gone_from_both_flavors() -> None:
    """Until then claims keep nothing that the victim holds; afterwards the snapshot is as before."""
    snapshot = told()
    claims = Claims(snapshot, snapshot.claims)
    assert free(snapshot) == {"red": [0, 0], "blue": [0, 0]}
    before = state(snapshot)
    with claims.fulfilled(besides=""):
        assert free(snapshot) == {"red": [8, 0], "blue": [8, 0]}
    assert state(snapshot) == before


def test_nobody_goes_for_a_host_that_is_about_to_be_free_in_another_flavor() -> None:
    """The second preemptor waits for the red host of the one who was told to leave."""
    snapshot = told()

    assert decide(snapshot, wants("first", "a", 8), wants("second", "b", 8)) == {
        "first": "Deferred",
        "second": Outcome.DEFERRED.value,
    }


def test_who_waited_gets_in_when_the_victim_has_left() -> None:
    """Both of them, in one cycle."""
    queues = [leaf("a", nominal=PLENTY), leaf("b", nominal=PLENTY)]
    snapshot = replace(shared(2, [], queues, a=["blue"], b=["blue"]), claims=(CLAIM,))

    assert decide(snapshot, wants("first", "a", 8), wants("second", "b", 8)) == {
        "first": "admitted",
        "second": "admitted",
    }
