"""What Reservations keep: claims, their domains, and what their status says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kqueue import model
from kqueue.api.reservation_names import MOST_RESERVATIONS
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.reservation import DomainReservation
from kqueue.clock import utc_text
from kqueue.core.future.run_time import NOT_KNOWN, RunTime, RunTimeSource
from kqueue.core.reserving import ReservationStage
from kqueue.core.workload import Claim
from kqueue.operations.defrag.reading import ClusterObjects, state_of
from kqueue.state.reservations import Reservations
from tests.unit.cli.defrag_cluster import GPU, HOST, NOW, cluster, ours, workload

JSON = dict[str, Any]
PODS_OF_A_HOST = 110


def reservation(name: str = "r", *, made: int = 0, status: JSON | None = None, **spec: Any) -> DomainReservation:
    """A Reservation of rack b from one hour from now for an hour, unless `spec` says otherwise; None: no such field."""
    asked: JSON = {
        "topology": "dc",
        "domain": ["b"],
        "from": utc_text(NOW + timedelta(hours=1)),
        "to": utc_text(NOW + timedelta(hours=2)),
        **spec,
    }
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": utc_text(NOW + timedelta(seconds=made))}
    found = {"metadata": metadata, "spec": {k: v for k, v in asked.items() if v is not None}, "status": status or {}}
    return msgspec.convert(found, DomainReservation, strict=False)


def minutes(number: int) -> str:
    return utc_text(NOW + timedelta(minutes=number))


class World:
    """Racks a, b and c: v1 and v2 run in a, u in b (10 hosts), c in c (11 hosts)."""

    def __init__(self, objects: ClusterObjects | None = None, **run_times: RunTime) -> None:
        found = state_of(objects or cluster(), NOW)
        self.cache, self.workloads = found.cache, found.workloads
        self.now = NOW
        self.freed: list[Claim] = []
        self.reservations = Reservations(
            self.cache,
            self.workloads.get,
            lambda: self.now,
            lambda obj: run_times.get(obj.metadata.name, NOT_KNOWN),
        )
        self.reservations.on_freed = self.freed.append

    def have(self, *objects: DomainReservation) -> World:
        for obj in objects:
            self.reservations.on_reservation(None, obj)
        return self

    def claims(self) -> dict[str, Claim]:
        return {claim.key: claim for claim in self.reservations.claims()}

    def hosts(self, name: str = "r") -> set[str]:
        claim = self.claims().get(name)
        return {one.values[0] for usage in claim.domains.values() for one in usage} if claim is not None else set()

    def choose(self, name: str = "r") -> tuple[str, ...]:
        for _ in self.reservations.choose(name):
            pass
        seen = self.reservations.seen(name)
        assert seen is not None
        return tuple("/".join(path) for path, _hosts in seen.domains)

    def condition(self, kind: str, name: str = "r") -> tuple[bool, str, str]:
        seen = self.reservations.seen(name)
        assert seen is not None
        return next((v.holds, v.reason, v.message) for v in seen.verdicts if v.kind == kind)

    def put(self, obj: JSON) -> None:
        read = msgspec.convert(obj, wire.Workload, strict=False)
        key = model.workload_key(read)
        self.workloads[key] = read  # type: ignore[index]
        self.cache.held.on_workload(key, read)


def promised(seconds: int) -> RunTime:
    return RunTime(promised=seconds)


def names(rack: str, numbers: range = range(16)) -> set[str]:
    return {f"{rack}{number:02}" for number in numbers}


# --- claims


def test_a_claim_has_every_host_of_the_domain() -> None:
    claim = World().have(reservation()).claims()["r"]
    assert (claim.queue, claim.usage, claim.uid, claim.victims) == ("", {}, "uid-r", {})
    assert (claim.at, claim.open_to) == (NOW + timedelta(hours=1), frozenset())
    (usage,) = claim.domains.values()
    assert {one.values[0] for one in usage} == names("b")
    assert all((one.requests, one.count) == ({}, PODS_OF_A_HOST) for one in usage)


def test_a_part_of_each_host_is_beside_the_workloads_of_others() -> None:
    world = World().have(reservation(resources={GPU: 4}, clusterQueue="people"))
    claim = world.claims()["r"]
    assert claim.ends == {}
    assert {tuple(one.requests.items()) for usage in claim.domains.values() for one in usage} == {((GPU, 4),)}
    own = World().have(reservation(resources={GPU: 4}, clusterQueue="team"))
    assert own.claims()["r"].ends == {"uid-u": ("team", "team-b/u")}


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        pytest.param(-1, False, id="before drainFrom"),
        pytest.param(30, True, id="while it drains"),
        pytest.param(60, True, id="once it has begun"),
        pytest.param(119, True, id="until it ends"),
        pytest.param(120, False, id="after its end"),
    ],
)
def test_a_claim_lasts_from_the_drain_to_the_end(after: int, kept: bool) -> None:
    world = World().have(reservation(drainFrom=minutes(0)))
    world.now = NOW + timedelta(minutes=after)
    assert bool(world.claims()) is kept


def test_a_clock_that_is_set_back_brings_a_claim_back() -> None:
    world = World().have(reservation())
    world.now = NOW + timedelta(hours=3)
    assert not world.claims()
    world.now = NOW
    assert world.hosts() == names("b")
    assert [claim.key for claim in world.freed] == []


def test_workloads_of_its_cluster_queue_that_begin_and_end_there_are_followed() -> None:
    world = World().have(reservation(resources={GPU: 4}, clusterQueue="team"))
    world.claims()
    world.put(workload("short", "b", 12, 2))
    assert world.claims()["r"].ends == {"uid-u": ("team", "team-b/u"), "uid-short": ("team", "team-a/short")}
    world.cache.held.on_workload("team-b/u", None)
    assert world.claims()["r"].ends == {"uid-short": ("team", "team-a/short")}


def test_claims_are_made_again_only_after_changes() -> None:
    world = World().have(reservation())
    first = world.claims()["r"]
    world.now += timedelta(minutes=30)
    world.put(workload("elsewhere", "a", 8, 2))
    world.put(workload("short", "b", 12, 2))
    assert world.claims()["r"] is first


def test_a_node_that_joins_the_domain_is_reserved_at_once() -> None:
    world = World().have(reservation())
    world.claims()
    node = world.cache.ledger.nodes["b00"]
    labels = {**node.labels, HOST: "b99"}
    world.cache.on_node("b99", replace(node, name="b99", labels=labels))
    assert world.hosts() == names("b") | {"b99"}
    world.cache.on_node("b99", replace(node, name="b99", labels=labels, allocatable={"pods": 3}))
    assert {one.count for usage in world.claims()["r"].domains.values() for one in usage if one.values == ("b99",)} == {
        3
    }


def test_a_cordoned_host_counts_and_its_workload_is_still_there() -> None:
    world = World().have(reservation())
    for name in sorted(names("b")):
        world.cache.on_node(name, replace(world.cache.ledger.nodes[name], unschedulable=True))
    seen = world.reservations.seen("r")
    assert seen is not None
    assert (seen.domains, [one.key for one in seen.occupants]) == (((("b",), 16),), ["team-b/u"])
    assert not world.claims(), "nothing starts on cordoned nodes"


def test_deletion_frees_the_hosts_for_others() -> None:
    obj = reservation()
    world = World().have(obj)
    world.claims()
    world.reservations.on_reservation(obj, None)
    assert (world.claims(), [claim.key for claim in world.freed]) == ({}, ["r"])
    assert world.reservations.seen("r") is None


def test_the_cluster_queue_is_told_when_its_time_begins_and_others_when_it_ends() -> None:
    world = World().have(reservation(clusterQueue="people"))
    assert world.claims()["r"].open_to == {"people"}
    assert not world.freed
    world.now = NOW + timedelta(hours=1)
    world.claims()
    assert [claim.queue for claim in world.freed] == ["people"]
    world.now = NOW + timedelta(hours=2)
    assert world.claims() == {}
    assert [claim.queue for claim in world.freed] == ["people", ""]


def test_a_reservation_on_which_plans_fail_keeps_nothing() -> None:
    world = World().have(reservation())
    world.claims()
    world.reservations.give_up("uid-r")
    assert (world.claims(), world.condition("Planned")[1]) == ({}, "PlanFailed")


# --- refusals


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        pytest.param({"topology": "x"}, "TopologyNotFound", "there is no Topology x; there are dc", id="topology"),
        pytest.param({"domain": ["z"]}, "DomainNotFound", "has no nodes in z", id="domain"),
        pytest.param({"domain": ["b", "b00", "x"]}, "DomainNotFound", "b/b00/x", id="a path that is too long"),
        pytest.param({"domain": []}, "DomainNotFound", "names no domain", id="a path without a value"),
        pytest.param({"domain": None, "level": "row", "count": 1}, "LevelNotFound", f"it has rack, {HOST}", id="level"),
        pytest.param(
            {"domain": None, "level": "rack", "count": 4}, "TooFewDomains", "asks for 4 domains of rack", id="count"
        ),
        pytest.param({"resources": {GPU: "many"}}, "InvalidResources", "spec.resources", id="no quantity"),
        pytest.param({"resources": {GPU: -1}}, "InvalidResources", "must not be negative", id="a negative quantity"),
    ],
)
def test_what_cannot_be_reserved_keeps_nothing_and_says_why(spec: JSON, reason: str, words: str) -> None:
    world = World().have(reservation(**spec))
    holds, why, message = world.condition("Planned")
    assert (world.claims(), holds, why) == ({}, False, reason)
    assert words in message


@pytest.mark.parametrize(
    ("older", "newer", "reason"),
    [
        pytest.param({"clusterQueue": "p"}, {"clusterQueue": "q"}, "Overlaps", id="two ClusterQueues"),
        pytest.param({"clusterQueue": "p"}, {"clusterQueue": "p"}, "Planned", id="one ClusterQueue"),
        pytest.param({"clusterQueue": "p"}, {}, "Planned", id="maintenance of reserved hosts"),
        pytest.param({}, {"clusterQueue": "q"}, "Planned", id="a ClusterQueue in a time of maintenance"),
        pytest.param(
            {"clusterQueue": "p"},
            {"clusterQueue": "q", "from": minutes(120), "to": minutes(180)},
            "Planned",
            id="one after the other",
        ),
        pytest.param(
            {"clusterQueue": "p"}, {"clusterQueue": "q", "domain": ["b", "b03"]}, "Overlaps", id="a host of the rack"
        ),
        pytest.param({"clusterQueue": "p"}, {"clusterQueue": "q", "domain": ["c"]}, "Planned", id="other hosts"),
    ],
)
def test_two_cluster_queues_do_not_get_the_same_hosts(older: JSON, newer: JSON, reason: str) -> None:
    world = World().have(reservation("newer", made=2, **newer), reservation("older", made=1, **older))
    assert world.condition("Planned", "older")[1] == "Planned"
    assert world.condition("Planned", "newer")[1] == reason
    if reason == "Overlaps":
        assert "Reservation older" in world.condition("Planned", "newer")[2]


def test_the_number_of_reservations_is_bounded_and_the_oldest_count() -> None:
    world = World()
    for number in range(MOST_RESERVATIONS + 1):
        world.have(reservation(f"r{number:02}", made=number, domain=["b", "b00"]))
    assert world.condition("Planned", f"r{MOST_RESERVATIONS:02}")[1] == "TooManyReservations"
    assert len(world.claims()) == MOST_RESERVATIONS


# --- the choice of domains


@pytest.mark.parametrize(
    ("run_times", "spec", "chosen"),
    [
        pytest.param({}, {}, ("a",), id="v1 and v2 in a lose the least"),
        pytest.param({"c": promised(7200)}, {}, ("c",), id="c ends in time"),
        pytest.param({"c": promised(7201)}, {}, ("a",), id="c ends a second late"),
        pytest.param({"c": promised(7200)}, {"count": 2}, ("a", "c"), id="two domains"),
        pytest.param({}, {"clusterQueue": "team"}, ("a",), id="its own workloads need not leave"),
    ],
)
def test_domains_are_chosen_with_the_least_loss(
    run_times: Mapping[str, RunTime], spec: JSON, chosen: tuple[str, ...]
) -> None:
    world = World(None, **run_times).have(reservation(**{"domain": None, "level": "rack", "count": 1, **spec}))
    assert not world.claims(), "nothing is kept before the choice"
    assert world.choose() == chosen
    assert {host[0] for host in world.hosts()} == set(chosen)


def test_the_choice_of_the_status_stays() -> None:
    status = {"domains": [{"path": ["c"], "hosts": 16}]}
    world = World().have(reservation(domain=None, level="rack", count=1, status=status))
    assert (world.hosts(), world.choose()) == (names("c"), ("c",))


@pytest.mark.parametrize(
    "domains",
    [
        pytest.param([], id="none"),
        pytest.param([{"path": ["b"]}, {"path": ["c"]}], id="too many"),
        pytest.param([{"path": ["b", "b00"]}], id="another level"),
    ],
)
def test_a_status_that_does_not_fit_the_spec_changes_no_choice(domains: list[JSON]) -> None:
    asked: JSON = {"domain": None, "level": "rack", "count": 1}
    world = World().have(reservation(**asked))
    world.choose()
    world.have(reservation(**asked, status={"domains": domains}))
    assert world.hosts() == names("a")


def test_a_domain_that_is_reserved_at_the_same_time_is_not_chosen() -> None:
    world = World().have(reservation("old", domain=["a"]), reservation(made=1, domain=None, level="rack", count=1))
    assert world.choose() == ("b",)


# --- the workloads that run there


@pytest.mark.parametrize(
    ("run_time", "ends", "source", "late"),
    [
        pytest.param(NOT_KNOWN, None, "Unknown", True, id="nothing is known"),
        pytest.param(promised(5400), 30, "Promised", False, id="promised to end in time"),
        pytest.param(promised(9000), 90, "Promised", True, id="promised to end too late"),
        pytest.param(
            RunTime(p50=1, p90=5400, source=RunTimeSource.LEARNED), 30, "Learned", False, id="learned to end in time"
        ),
        pytest.param(
            RunTime(p50=1, p90=5400, promised=9000, source=RunTimeSource.EXPECTED), 30, "Expected", False, id="expected"
        ),
        pytest.param(
            RunTime(p50=1, p90=10, promised=5400, source=RunTimeSource.LEARNED),
            30,
            "Promised",
            False,
            id="it has run for longer than most, and has a limit",
        ),
        pytest.param(promised(60), 0, "Promised", False, id="its limit is over, and it ends now"),
        pytest.param(
            RunTime(p50=1, p90=10, source=RunTimeSource.LEARNED), None, "Unknown", True, id="it has run for too long"
        ),
    ],
)
def test_the_status_says_when_workloads_end(run_time: RunTime, ends: int | None, source: str, late: bool) -> None:
    seen = World(u=run_time).have(reservation()).reservations.seen("r")
    assert seen is not None
    (one,) = seen.occupants
    assert (one.key, one.pods, str(one.source), seen.late) == ("team-b/u", 10, source, int(late))
    assert one.ends == (NOW + timedelta(minutes=ends) if ends is not None else None)


def test_workloads_of_its_own_cluster_queue_need_not_end() -> None:
    seen = World().have(reservation(clusterQueue="team")).reservations.seen("r")
    assert seen is not None
    assert (seen.occupants, seen.stage) == ((), ReservationStage.DRAINING)


@pytest.mark.parametrize(("queue", "is_told"), [("team", False), ("nobody", True)])
def test_a_cluster_queue_that_does_not_exist_is_told(queue: str, is_told: bool) -> None:
    holds, _, message = World().have(reservation(clusterQueue=queue)).condition("Planned")
    assert (holds, "ClusterQueue nobody does not exist" in message) == (True, is_told)


def test_late_workloads_come_first() -> None:
    world = World(v1=promised(3700)).have(reservation(domain=["a"]))
    seen = world.reservations.seen("r")
    assert seen is not None
    assert [one.key for one in seen.occupants] == ["team-a/v2", "team-a/v1"]


def test_hosts_that_several_flavors_have_are_reserved_once() -> None:
    objects = cluster()
    other = ours("ResourceFlavor", "also", {"topologyName": "dc", "nodeLabels": {"pool": "gpu"}})
    world = World(replace(objects, flavors=[*objects.flavors, other])).have(reservation())
    claim = world.claims()["r"]
    assert (list(claim.domains), world.hosts()) == (["also"], names("b"))
    seen = world.reservations.seen("r")
    assert seen is not None
    assert [one.key for one in seen.occupants] == ["team-b/u"]
