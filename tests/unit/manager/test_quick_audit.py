"""The audit of every few seconds: charges have owners, holdings have Workloads, and what waits is in a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kqueue import model
from kqueue.manager.upkeep import STANDING_INDEX, Auditor, QuickAuditor
from kqueue.observe import Metrics
from kqueue.state.cache_audit import Told
from tests.unit.controllers.builders import World, make_workload, reserved
from tests.unit.manager.test_upkeep import series


class Audited(World):
    """A world, and the audit that looks at it; `a` holds 4 of 10 cpus and `b` waits."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = Metrics()
        self.workloads.add_index(STANDING_INDEX, model.standing)
        told = Told(nodes={}, pods={}, workloads=self.workloads)
        self.quick = QuickAuditor(
            cache=self.cache,
            queues=self.queues,
            quarantine=self.quarantine,
            workloads=self.workloads,
            auditor=Auditor(cache=self.cache, told=told, intake=self.intake, metrics=self.metrics, clock=self.clock),
        )
        self.add(make_workload("a", cpus=4, status=reserved(cpus=4)), make_workload("b", cpus=20))

    def drifts(self) -> dict[tuple[str, ...], float]:
        """How many were healed, by cause."""
        return series(self.metrics, "kqueue_cache_drift_total")


@pytest.fixture
async def world() -> AsyncIterator[Audited]:
    made = Audited()
    yield made
    await made.close()


async def test_nothing_is_found_where_all_is_true(world: Audited) -> None:
    """However often it looks, also while a decision is being written."""
    held = world.cache.held.holding("ns/a")
    assert held is not None
    assert [world.quick.look() for _ in range(3)] == [0, 0, 0]
    waiting = world.workloads.get("ns/b")
    assert waiting is not None
    world.queues.delete("ns/b")
    charge = world.cache.held.assumed(replace(held, key="ns/b", uid=waiting.metadata.uid, assumed=True, admitted=False))

    assert [world.quick.look() for _ in range(3)] == [0, 0, 0]
    assert world.free() == 2
    charge.settle()


async def test_a_charge_without_an_owner_is_given_back_and_its_workload_is_queued(world: Audited) -> None:
    """At the first look; it is counted."""
    held, waiting = world.cache.held.holding("ns/a"), world.workloads.get("ns/b")
    assert held is not None
    assert waiting is not None
    world.queues.delete("ns/b")
    world.cache.held.assumed(replace(held, key="ns/b", uid=waiting.metadata.uid, assumed=True, admitted=False))
    world.cache.held._charges.clear()  # the bug that this audit is there for

    assert world.quick.look() == 1
    assert (world.free(), world.queues.is_known("ns/b")) == (6, True)
    assert world.drifts() == {("charge",): 1}
    assert world.quick.look() == 0


async def test_a_holding_whose_workload_holds_nothing_is_given_back(world: Audited) -> None:
    """At the second look: between two events the numbers may differ for a moment."""
    held = world.cache.held.holding("ns/a")
    assert held is not None
    world.cache.held._hold(replace(held, key="ns/gone", uid="gone"))

    assert (world.quick.look(), world.quick.look(), world.quick.look()) == (0, 1, 0)
    assert world.free() == 6
    assert world.drifts() == {("workload",): 1}


async def test_a_workload_that_waits_in_no_queue_is_queued(world: Audited) -> None:
    """At the second look."""
    world.queues.delete("ns/b")

    assert (world.quick.look(), world.quick.look(), world.quick.look()) == (0, 1, 0)
    assert world.queues.is_known("ns/b")
    assert world.drifts() == {("queue",): 1}
