"""How the configuration reaches the scheduling loop, and who wakes it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.config import Configuration, Timings, parse
from kqueue.core.decision import SecondLooks
from kqueue.core.ordering import OrderRules
from kqueue.core.preemption import SharingStrategy
from kqueue.core.scan import ScanRules
from kqueue.core.workload import Claim
from kqueue.manager.operator import Operator
from kqueue.manager.rules import loop_settings
from kqueue.model import QueueOrder
from kqueue.model.pending import RequeueReason
from kqueue.observe import Checks, Metrics
from kqueue.runtime.client import Client
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.variants import VariantRules
from tests.unit.controllers.builders import condition, make_cluster_queue, make_workload, read, reserved

FAIR = "fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}\n"
BLOCKED = "waitForPodsReady: {blockAdmission: true}\n"


def configuration(text: str = "") -> Configuration:
    """The defaults and `text`."""
    return parse(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}", source="test")


def gate(name: str, *, on: bool) -> str:
    return f"featureGates: {{{name}: {str(on).lower()}}}\n"


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        pytest.param("", {}, id="as-it-comes"),
        pytest.param(FAIR, {"fair": (SharingStrategy.LTE, SharingStrategy.LTI)}, id="fair-sharing"),
        pytest.param(
            gate("FairSharingPreemptWithinNominal", on=False), {"within_nominal": False}, id="shares-within-nominal-too"
        ),
        pytest.param(
            gate("FairSharingPrioritizeNonBorrowing", on=False),
            {"order": OrderRules(non_borrowing_first=False)},
            id="borrowers-are-not-put-back",
        ),
        pytest.param(
            gate("PrioritizePreemptorWorkloads", on=True), {"order": OrderRules(preemptors_first=True)}, id="preemptors"
        ),
        pytest.param(
            gate("PrioritySortingWithinCohort", on=False),
            {"order": OrderRules(priority=False), "queue_order": QueueOrder(by_reclaim=True)},
            id="priority-does-not-count-in-a-cohort",
        ),
        pytest.param(
            gate("FlavorFungibilityPreserveScanProgress", on=False),
            {"scan": ScanRules(keeps_progress=False)},
            id="no-progress-of-scans",
        ),
        pytest.param(
            gate("SchedulingEquivalenceHashing", on=False),
            {"scan": ScanRules(by_shape=False)},
            id="shapes-do-not-count",
        ),
        pytest.param(
            gate("RecomputeAssignmentUponPreemptionTargetsOverlap", on=False),
            {"looks": SecondLooks(for_targets=False)},
            id="no-second-look-for-targets",
        ),
        pytest.param(
            gate("TASRecomputeAssignmentWithinSchedulingCycle", on=False),
            {"looks": SecondLooks(for_domains=False)},
            id="no-second-look-for-domains",
        ),
        pytest.param(
            gate("ConcurrentAdmission", on=True),
            {"preemption_gates": True, "variants": VariantRules()},
            id="variants-and-their-gates",
        ),
        pytest.param(
            gate("MultiKueueOrchestratedPreemption", on=True), {"preemption_gates": True}, id="gates-of-other-clusters"
        ),
        pytest.param(gate("PriorityBoost", on=True), {"queue_order": QueueOrder(boosts=True)}, id="boosts"),
        pytest.param(
            gate("DisableWaitForPodsReady", on=True), {"waits_for_ready": False}, id="pods-are-not-waited-for"
        ),
        pytest.param(BLOCKED, {"block_admission": True}, id="one-at-a-time"),
        pytest.param(
            "waitForPodsReady: {requeuingStrategy: {timestamp: Creation}}\n",
            {"queue_order": QueueOrder(by_timeout=False)},
            id="timeouts-do-not-move-back",
        ),
    ],
)
def test_the_configuration_says_how_cycles_go(text: str, settings: dict[str, Any]) -> None:
    """Each setting by itself; all others are as they come."""
    usual = loop_settings(configuration(), Timings())
    assert loop_settings(configuration(text), Timings()) == replace(usual, **settings)
    assert usual.waits_for_ready


@contextlib.asynccontextmanager
async def operator(clock: FakeClock, text: str = "") -> AsyncIterator[Operator]:
    """One with nobody to ask, which does not run."""
    client = Client("http://127.0.0.1:1", clock=clock)
    try:
        yield Operator(
            client=client,
            config=configuration(text),
            timings=Timings(),
            clock=clock,
            metrics=Metrics(clock=clock),
            checks=Checks(),
        )
    finally:
        await client.close()


UNFUNGIBLE = "featureGates: {FlavorFungibility: false, FlavorFungibilityPreserveScanProgress: false}\n"


@pytest.mark.parametrize(
    ("text", "fungible"),
    [pytest.param("", True, id="policies-count"), pytest.param(UNFUNGIBLE, False, id="the-best-mode-counts")],
)
async def test_flavors_are_chosen_as_the_gates_say(text: str, fungible: bool) -> None:
    """In every ClusterQueue alike."""
    async with operator(FakeClock(), text) as made:
        made.watches.cluster_queues.store.put("team", read(wire.ClusterQueue, make_cluster_queue()))
        spec = made.cache.quota.queue_spec("team")

    assert spec is not None
    assert spec.fungible is fungible


@pytest.mark.parametrize(
    ("text", "parked"),
    [
        pytest.param("", ["ns/b"], id="what-was-said-of-one-counts-for-its-equals"),
        pytest.param(gate("SchedulingEquivalenceHashing", on=False), [], id="each-is-tried-for-itself"),
    ],
)
async def test_equal_workloads_are_tried_as_the_gates_say(text: str, parked: list[str]) -> None:
    """The second one of two, when the first was refused."""
    async with operator(FakeClock(), text) as made:
        made.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
        made.queues.set_local_queue("ns/main", "team")
        for name in ("a", "b"):
            made.queues.push(made.cache.requests.pending(read(wire.Workload, make_workload(name))))
        told: list[str] = []
        made.queues.on_parked = told.extend
        ((_, first),) = made.queues.pop_heads(lambda _queue: True)
        made.queues.requeue(first.key, RequeueReason.NO_FIT)

    assert (first.key, told) == ("ns/a", parked)


@pytest.mark.parametrize(
    ("text", "wakes"), [pytest.param("", False, id="others-may-start"), pytest.param(BLOCKED, True, id="one-at-a-time")]
)
async def test_who_gets_ready_wakes_a_loop_that_waits_for_it(text: str, wakes: bool) -> None:
    """And no other."""
    async with operator(FakeClock(), text) as made:
        woken: list[bool] = []
        made.loop.wake = lambda: woken.append(True)  # type: ignore[method-assign]
        store = made.watches.workloads.store
        store.put("ns/a", read(wire.Workload, make_workload(status=reserved())))
        woken.clear()

        store.put("ns/a", read(wire.Workload, make_workload(status=reserved(condition("PodsReady")))))

    assert bool(woken) is wakes


async def test_what_a_preemptor_gives_up_has_others_tried_again() -> None:
    """The end of a claim comes to those who may want what it kept."""
    clock = FakeClock()
    async with operator(clock) as made:
        made.watches.cluster_queues.store.put("team", read(wire.ClusterQueue, make_cluster_queue()))
        await clock.advance(2)
        flushed: list[str] = []
        made.queues.flush = lambda names, *_: len(flushed.extend(names) or [])  # type: ignore[method-assign, func-returns-value]
        made.manager.preemptions.begin(Claim(key="ns/p", uid="p", queue="team", usage={}, victims={}))

        made.manager.preemptions.end("p")
        await clock.advance(2)

    assert flushed == ["team"]


@pytest.mark.parametrize(
    ("busy", "flushed_at"),
    [
        pytest.param(0.0, 0.02, id="a loop that has nothing to do is given what was freed at once"),
        pytest.param(0.2, 0.4, id="one that has is given time"),
    ],
)
async def test_what_cycles_take_decides_when_the_next_flush_comes(busy: float, flushed_at: float) -> None:
    """The loop's own time is what tries cost."""
    clock = FakeClock()
    async with operator(clock) as made:
        made.watches.cluster_queues.store.put("team", read(wire.ClusterQueue, make_cluster_queue()))
        await clock.advance(2)
        flushes: list[float] = []
        made.queues.flush = lambda *_: len(flushes.append(clock.monotonic()) or [])  # type: ignore[method-assign, func-returns-value]
        made.loop._runner.busy += busy
        begun = clock.monotonic()
        made.manager.preemptions.begin(Claim(key="ns/p", uid="p", queue="team", usage={}, victims={}))
        made.manager.preemptions.end("p")
        await clock.advance(2)

    assert [at - begun for at in flushes] == [pytest.approx(flushed_at)]
