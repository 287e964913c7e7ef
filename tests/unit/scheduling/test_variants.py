"""Variants of concurrent admission in the scheduling loop: one flavor each, one admission per parent."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kqueue.errors import UnreachableError
from kqueue.model.variants import variant_name
from kqueue.runtime.store import Store
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.cache_audit import Told
from kqueue.state.variants import VariantRules
from tests.unit.controllers.builders import (  # fmt: skip
    JSON,
    condition,
    make_cluster_queue,
    make_flavor,
    make_workload,
    message_of,
    reserved,
    status_of,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.state.families import PARENT, UID, admitted, evicted, gate_at, parent_json, variant_json, waiting

Make = Callable[..., Scheduled]
ON = LoopSettings(preemption_gates=True, variants=VariantRules())
SPOT, RESERVED, ON_DEMAND = (variant_name(PARENT, UID, flavor) for flavor in ("spot", "reserved", "on-demand"))


def world_of(make: Make, *, mode: str = "TryPreferredFlavors", settings: LoopSettings = ON, last: str = "", **cpus: int) -> Scheduled:  # fmt: skip
    """A ClusterQueue with these flavors, the most preferred first."""
    amounts = {"reserved": 4, "spot": 4, "on-demand": 4} | {name.replace("_", "-"): n for name, n in cpus.items()}
    migration: JSON = {"mode": mode} | ({"constraints": {"lastAcceptableFlavorName": last}} if last else {})
    queue = make_cluster_queue(
        cpus=amounts, concurrentAdmissionPolicy={"migration": migration}, preemption={"withinClusterQueue": "LowerPriority"}
    )  # fmt: skip
    flavors = [(RESOURCE_FLAVORS, make_flavor(name)) for name in amounts]
    return make(*flavors, (CLUSTER_QUEUES, queue), settings=settings)


def used(world: Scheduled) -> dict[str, int]:
    """Whole cpus that are charged, by flavor; the audit against the watches finds nothing."""
    told = Told(nodes=Store("nodes"), pods=Store("pods"), workloads=world.workloads)
    assert [str(drift) for found in world.cache.audits.audit_steps(told) for drift in found] == []
    node = world.cache.quota.node_of("team")
    assert node is not None
    return {column.flavor: amount // 1000 for column, amount in node.usage.items() if amount}


async def test_a_variant_gets_its_flavor_alone(make: Make) -> None:
    """Flavors 7.2.1: not the first one of the queue that has room."""
    world = world_of(make)
    world.add(parent_json(), variant_json("spot"))

    assert await world.cycle()

    assert used(world) == {"spot": 4}
    assert not await world.cycle()


async def test_a_variant_without_room_in_its_flavor_waits(make: Make) -> None:
    """Its message speaks of this flavor alone, and it is not tried again without a change."""
    world = world_of(make, spot=3)
    world.add(parent_json(), variant_json("spot"))

    assert not await world.cycle()
    world.sync()

    assert "spot" in message_of(world.workload(SPOT), "QuotaReserved")
    assert "reserved" not in message_of(world.workload(SPOT), "QuotaReserved")
    assert world.queues.counts("team") == (0, 1)


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        pytest.param(parent_json(), ("", ""), id="with the label"),
        pytest.param(
            parent_json(metadata={"labels": {}}), ("False", "PendingEvaluation"), id="before it has the label"
        ),
    ],
)
async def test_a_parent_is_never_admitted(make: Make, obj: JSON, reason: tuple[str, str]) -> None:
    """Queueing 1.1: it would be admitted beside its variants."""
    world = world_of(make)
    world.add(obj)

    assert not await world.cycle()

    assert used(world) == {}
    assert status_of(world.workload(PARENT), "QuotaReserved") == reason


FORGED = {
    "bigger than its parent": variant_json("spot", cpus=2),
    "of a parent that does not exist": variant_json("spot", metadata={"name": "x"}),
    "with two flavors": variant_json("spot", metadata={"annotations": {"kueue.x-k8s.io/workload-allowed-resource-flavors": "spot,reserved"}}),
    "that may preempt": variant_json("spot", preemptionGates=[]),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
async def test_a_forged_variant_is_not_tried(make: Make, forged: JSON) -> None:
    """It says why."""
    world = world_of(make)
    world.add(parent_json(), forged)

    assert not await world.cycle()

    name = forged["metadata"]["name"]
    assert status_of(world.workload(name), "QuotaReserved") == ("False", "Misconfigured")
    assert message_of(world.workload(name), "QuotaReserved").startswith("It is no variant")


async def test_a_forged_sibling_neither_stops_nor_evicts(make: Make) -> None:
    """Only variants of the same parent count: another Workload that names the parent as its owner does not."""
    forged = variant_json("on-demand", admitted("on-demand"), metadata={"name": "forged"})
    world = world_of(make, on_demand=8)
    world.add(parent_json(), forged, variant_json("spot"))

    assert await world.cycle()

    assert (used(world), world.observed.preemptions) == ({"spot": 4, "on-demand": 4}, [])


async def test_without_the_gate_variants_are_as_all_others(make: Make) -> None:
    """Labels, annotations and owners that anybody can write mean nothing."""
    world = world_of(make, settings=LoopSettings())
    world.add(variant_json("spot"))

    assert await world.cycle()

    assert used(world) == {"reserved": 4}


# --- siblings


async def test_a_less_preferred_variant_is_skipped(make: Make) -> None:
    """Cycle 4.1: a more preferred sibling is admitted already."""
    world = world_of(make)
    world.add(parent_json(admitted("reserved")), variant_json("reserved", admitted("reserved")), variant_json("spot"))

    assert not await world.cycle()

    assert used(world) == {"reserved": 4}
    assert status_of(world.workload(SPOT), "QuotaReserved") == ("False", "PendingEvaluation")


async def test_one_variant_at_a_time_is_being_admitted(make: Make) -> None:
    """Also while the write of the first one is under way."""
    world = world_of(make)
    world.add(parent_json(), variant_json("reserved"), variant_json("spot"))
    world.client.fail(UnreachableError("slow"), key=f"ns/{RESERVED}", times=1)

    for _ in range(6):
        await world.cycle()
        assert len(used(world)) <= 1


async def test_a_more_preferred_variant_takes_the_place_of_its_sibling(make: Make) -> None:
    """Cycle 4.13: FlavorMigration evicts the sibling, and the room is kept until it has left; nothing counts twice."""
    world = world_of(make)
    rival = make_workload("rival", cpus=4, minute=59)
    world.add(
        parent_json(admitted("on-demand")), variant_json("on-demand", admitted("on-demand")), variant_json("spot")
    )

    assert not await world.cycle()
    world.sync()

    assert status_of(world.workload(ON_DEMAND), "Evicted") == ("True", "FlavorMigration")
    assert status_of(world.workload(ON_DEMAND), "Preempted") == ("", "")
    assert status_of(world.workload(SPOT), "QuotaReserved") == ("False", "WaitingForPreemptedWorkloads")
    assert world.observed.preemptions == [(ON_DEMAND, SPOT)]
    rival["metadata"]["ownerReferences"] = []
    for _ in range(3):
        assert not await world.cycle()
        world.sync()
        assert used(world) == {"on-demand": 4}
    assert len(world.observed.preemptions) == 1

    for name in (PARENT, ON_DEMAND):
        world.client.change(WORKLOADS, f"ns/{name}", {"status": waiting() | {"admission": None}})
    await world.settle()
    await world.cycle()
    world.sync()
    assert status_of(world.workload(SPOT), "Admitted")[0] == "True"


@pytest.mark.parametrize(
    ("mode", "last", "want"),
    [
        pytest.param("RetainFirstAdmission", "", False, id="the first admission is kept"),
        pytest.param("TryPreferredFlavors", "reserved", False, id="the flavor is after lastAcceptableFlavorName"),
        pytest.param("TryPreferredFlavors", "spot", True, id="it is the last acceptable one"),
    ],
)
async def test_a_parent_moves_only_where_its_queue_lets_it(make: Make, mode: str, last: str, want: bool) -> None:
    """Cycle 4.13: otherwise requeue, reason PendingEvaluation."""
    world = world_of(make, mode=mode, last=last)
    world.add(
        parent_json(admitted("on-demand")), variant_json("on-demand", admitted("on-demand")), variant_json("spot")
    )

    await world.cycle()

    assert (world.observed.preemptions == [(ON_DEMAND, SPOT)]) is want
    if not want:
        assert status_of(world.workload(SPOT), "QuotaReserved") == ("False", "PendingEvaluation")
        assert "is kept" in message_of(world.workload(SPOT), "QuotaReserved") or last


async def test_a_variant_preempts_once_its_gate_is_open(make: Make) -> None:
    """Life-cycle 21; in its own flavor."""
    victim = make_workload("victim", status=reserved(condition("Admitted", reason="Admitted")), metadata={"labels": {}})
    victim["status"]["admission"]["podSetAssignments"][0] |= {"flavors": {"cpu": "spot"}, "resourceUsage": {"cpu": "4"}}
    world = world_of(make)
    variant = variant_json("spot", priority=1)
    world.add(parent_json(priority=1), victim, variant)

    await world.cycle()
    assert status_of(world.workload(SPOT), "BlockedOnPreemptionGates") == ("True", "PreemptionGated")

    world.client.change(WORKLOADS, f"ns/{SPOT}", {"status": {"preemptionGates": [gate_at(11)]}})
    world.sync()
    await world.cycle()
    assert world.observed.preemptions == [("victim", SPOT)]


# --- quota is charged once


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the parent first", "the variant first"])
async def test_a_parent_and_its_variant_count_once(make: Make, order: tuple[int, int]) -> None:
    """Whichever event comes first; whichever of them loses its reservation first, the other one still counts."""
    world = world_of(make, spot=8)
    both = [parent_json(admitted("spot")), variant_json("spot", admitted("spot", evicted()))]
    for index in order:
        world.add(both[index])
    assert used(world) == {"spot": 4}

    world.client.change(WORKLOADS, f"ns/{PARENT}", {"status": waiting() | {"admission": None}})
    world.sync()
    assert used(world) == {"spot": 4}
    world.client.change(WORKLOADS, f"ns/{SPOT}", {"status": waiting() | {"admission": None}})
    world.sync()
    assert used(world) == {}


async def test_a_parent_whose_variant_is_gone_counts_itself(make: Make) -> None:
    """Its job runs: whoever deletes the variant gets no quota for it."""
    world = world_of(make)
    world.add(parent_json(admitted("spot")), variant_json("spot", admitted("spot")))

    await world.client.delete(WORKLOADS, SPOT, "ns")
    world.sync()

    assert (used(world), [h.key for h in world.cache.held.holdings()]) == ({"spot": 4}, [f"ns/{PARENT}"])


async def test_ended_pods_of_the_parent_count_as_long_as_its_variant_does_not_tell_them(make: Make) -> None:
    """The parent uses less than its variant then, not something else."""
    ended: JSON = {"reclaimablePods": [{"name": "main", "count": 1}]}
    world = world_of(make)
    world.add(parent_json(admitted("spot", **ended)), variant_json("spot", admitted("spot")))
    assert used(world) == {"spot": 4}

    world.client.change(WORKLOADS, f"ns/{SPOT}", {"status": ended})
    world.sync()
    assert used(world) == {"spot": 3}


async def test_the_pods_of_a_parent_use_its_own_part(make: Make) -> None:
    """Node health judges them by it: they run under the name of the parent, and none under that of its variant."""
    world = world_of(make)
    world.add(
        parent_json(admitted("spot")), variant_json("spot", admitted("spot")), make_workload("a", status=reserved())
    )

    held = world.cache.held
    parts = {key: held.of_pods(f"ns/{key}") for key in (PARENT, SPOT, "a", "b")}
    assert {key: part.key if part is not None else None for key, part in parts.items()} == {
        PARENT: f"ns/{PARENT}",
        SPOT: None,
        "a": "ns/a",
        "b": None,
    }


FREE_RIDERS = {
    "it uses less than the job": (parent_json(admitted("spot")), "spot", 1),
    "it uses another flavor": (parent_json(admitted("spot")), "on-demand", 4),
}


@pytest.mark.parametrize(("parent", "flavor", "cpus"), FREE_RIDERS.values(), ids=FREE_RIDERS)
async def test_no_child_makes_the_quota_of_a_job_free(make: Make, parent: JSON, flavor: str, cpus: int) -> None:
    """Whoever may create Workloads can write any owner: then both count."""
    child = variant_json(flavor, admitted(flavor))
    child["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": str(cpus)}
    world = world_of(make, spot=8)
    world.add(parent, child)

    assert sum(used(world).values()) == 4 + cpus


async def test_two_variants_never_share_one_charge(make: Make) -> None:
    """Two that were admitted by checks hold both their quota; the parent counts with the one whose flavor it has."""
    world = world_of(make)
    world.add(variant_json("spot", admitted("spot")), variant_json("reserved", admitted("reserved")), parent_json(admitted("spot")))  # fmt: skip
    assert used(world) == {"spot": 4, "reserved": 4}

    world.client.change(WORKLOADS, f"ns/{SPOT}", {"status": waiting() | {"admission": None}})
    world.sync()
    assert used(world) == {"spot": 4, "reserved": 4}


@pytest.mark.parametrize("seed", range(12))
async def test_any_order_of_events_charges_the_same(make: Make, seed: int) -> None:
    """As computed from the objects alone: all that is reserved, without what a child covers that it controls."""
    chance = random.Random(seed)
    world = world_of(make, reserved=99, spot=99, on_demand=99)
    makers: dict[str, Callable[..., JSON]] = {"parent": parent_json} | {
        flavor: partial(variant_json, flavor) for flavor in ("reserved", "spot", "on-demand")
    }
    now: dict[str, tuple[str, int]] = {}
    for _ in range(40):
        name = chance.choice(list(makers))
        flavor, cpus = chance.choice(("reserved", "spot")), chance.choice((2, 4))
        made = makers[name](chance.choice((waiting(), admitted(flavor))))
        key = f"ns/{made['metadata']['name']}"
        if chance.random() < 0.2 and world.client.object(WORKLOADS, key) is not None:
            world.client.drop(WORKLOADS, key)
            now.pop(name, None)
        else:
            if "admission" in made["status"]:
                made["status"]["admission"]["podSetAssignments"][0]["resourceUsage"] = {"cpu": str(cpus)}
            world.client.put(WORKLOADS, made)
            now.pop(name, None)
            if "admission" in made["status"]:
                now[name] = (flavor, cpus)
        world.sync()

        own = now.get("parent")
        covered = own is not None and any(n != "parent" and f == own[0] and c >= own[1] for n, (f, c) in now.items())
        wanted: Counter[str] = Counter()
        for who, (where, amount) in now.items():
            wanted[where] += 0 if who == "parent" and covered else amount
        assert used(world) == {where: amount for where, amount in wanted.items() if amount}
