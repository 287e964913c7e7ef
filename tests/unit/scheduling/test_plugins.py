"""Plugins in the scheduling loop: what a refusal does to a workload, and what becomes of their reservations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import CLUSTER_QUEUES
from kqueue.core.hooks import ProfileHooks
from kqueue.core.plugins import AGREED, Verdict
from kqueue.errors import UnreachableError
from kqueue.scheduling.settings import LoopSettings
from tests.unit.controllers.builders import make_cluster_queue, make_workload, status_of
from tests.unit.core.test_hooks import Says
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.scheduling.test_cut_off import cut_off, lead_again

Make = Callable[..., Scheduled]


def with_hooks(**hooks: Any) -> LoopSettings:
    return LoopSettings(hooks={"default": ProfileHooks(**hooks)})


def booking(name: str, calls: list[str], answer: Any = AGREED) -> Says:
    return Says(name, calls, reserve=answer, unreserve=None)


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
async def test_a_refused_workload_says_why_and_is_asked_about_again(make: Make, strategy: str) -> None:
    """The plugin is asked after half a minute, though nothing else happens; the loop is quiet in between."""
    calls: list[str] = []
    world: Scheduled

    def screen(_head: Any) -> Verdict:
        return AGREED if world.clock.monotonic() > 20 else Verdict("it is day")

    night = Says("night", calls, screen=screen)
    world = make((CLUSTER_QUEUES, make_cluster_queue(queueingStrategy=strategy)), settings=with_hooks(screens=(night,)))
    world.add(make_workload("a", cpus=6))
    world.start()
    await world.clock.advance(1)
    world.sync()
    assert status_of(world.workload("a"), "QuotaReserved") == ("False", "AdmissionGated")
    said = world.workload("a") or {}
    assert said["status"]["conditions"][0]["message"] == "Plugin night: it is day; see kqueue explain a -n ns"
    before = len(calls)
    await world.clock.advance(25)
    assert len(calls) <= before + 1
    await world.clock.advance(10)
    world.sync()
    assert len(calls) <= before + 2
    assert status_of(world.workload("a"), "QuotaReserved")[0] == "True"


async def test_reservations_are_kept_when_the_decision_is_written_g5_6(make: Make) -> None:
    calls: list[str] = []
    world = make(settings=with_hooks(reserves=(booking("one", calls), booking("two", calls))))
    world.add(make_workload("a", cpus=6))
    await world.cycle()
    assert calls == ["one.reserve", "two.reserve"]
    assert status_of(world.workload("a"), "QuotaReserved")[0] == "True"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(Verdict("no licence"), "Plugin two: no licence", id="it refuses"),
        pytest.param(OSError("x"), "Plugin two failed: OSError: x", id="it fails"),
    ],
)
@pytest.mark.mechanism("3.20")
async def test_a_refused_reservation_is_undone_in_reverse_g5_6(make: Make, answer: Any, said: str) -> None:
    """Row 3.20: the third plugin is not asked, usage is as before, and another workload is admitted."""
    calls: list[str] = []
    two = Says(
        "two", calls, reserve=lambda admit: AGREED if admit.head.key == "ns/b" else _raised(answer), unreserve=None
    )
    world = make(settings=with_hooks(reserves=(booking("one", calls), two, booking("three", calls))))
    world.add(make_workload("a", cpus=6, priority=1))
    await world.cycle()
    assert calls == ["one.reserve", "two.reserve", "two.unreserve", "one.unreserve"]
    assert world.free() == 10
    assert world.cache.held.holding("ns/a") is None
    assert (world.workload("a") or {})["status"]["conditions"][0]["message"].startswith(f"{said}; see")

    world.add(make_workload("b", cpus=10))
    assert await world.cycle()


def _raised(answer: Any) -> Verdict:
    if isinstance(answer, Exception):
        raise answer
    assert isinstance(answer, Verdict)
    return answer


async def test_a_refused_reservation_does_not_spin_g5_6(make: Make) -> None:
    """Also where the head of the queue is tried again at once."""
    calls: list[str] = []
    world = make(
        (CLUSTER_QUEUES, make_cluster_queue(queueingStrategy="StrictFIFO")),
        settings=with_hooks(reserves=(booking("one", calls, Verdict("no licence")),)),
    )
    world.add(make_workload("a", cpus=6))
    world.start()
    await world.clock.advance(29)
    assert calls.count("one.reserve") <= 3


@pytest.mark.mechanism("3.20")
async def test_a_write_that_fails_undoes_reservations_in_reverse_g5_6(make: Make) -> None:
    """Row 3.20."""
    calls: list[str] = []
    world = make(settings=with_hooks(reserves=(booking("one", calls), booking("two", calls))))
    world.add(make_workload("a", cpus=6))
    world.client.fail(UnreachableError("away"), times=1)
    await world.cycle()
    assert calls == ["one.reserve", "two.reserve", "two.unreserve", "one.unreserve"]
    assert world.free() == 10


async def test_a_write_that_never_began_undoes_reservations_g5_6(make: Make) -> None:
    calls: list[str] = []
    world = make(settings=with_hooks(reserves=(booking("one", calls),)))
    world.add(make_workload("a", cpus=6))
    await cut_off(world)
    assert calls == ["one.reserve", "one.unreserve"]
    await lead_again(world)
    assert calls == ["one.reserve", "one.unreserve", "one.reserve"]


async def test_a_failing_unreserve_keeps_no_other_plugin_from_its_own(make: Make) -> None:
    calls: list[str] = []
    two = Says("two", calls, reserve=Verdict("no"), unreserve=OSError("x"))
    world = make(settings=with_hooks(reserves=(booking("one", calls), two)))
    world.add(make_workload("a", cpus=6))
    await world.cycle()
    assert calls == ["one.reserve", "two.reserve", "two.unreserve", "one.unreserve"]
