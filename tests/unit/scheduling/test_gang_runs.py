"""In a ClusterQueue with profile back-to-back, the members of a gang reserve quota in one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.controllers.resources import CLUSTER_QUEUES, WORKLOADS
from kqueue.errors import ServerError
from kqueue.state.gang_hold import HOLD_FOR
from tests.unit.controllers.builders import JSON, condition, make_cluster_queue, make_workload, read
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]


def team(profile: str = "back-to-back", **spec: Any) -> tuple[Any, JSON]:
    queue = make_cluster_queue(cpus=20, **spec)
    queue["metadata"]["annotations"] = {"kqueue.dev/profile": profile}
    return CLUSTER_QUEUES, queue


def gang(name: str, *, minute: int, **more: Any) -> JSON:
    annotations = {"kueue.x-k8s.io/is-group-workload": "true", "kqueue.dev/gang": f"labels:{name}"}
    made = make_workload(name, pods=3, minute=minute, **more)
    made["metadata"]["annotations"] = annotations
    return made


def extra(name: str, *, of: str, minute: int = 30) -> JSON:
    made = make_workload(name, minute=minute)
    made["metadata"]["annotations"] = {"kqueue.dev/extra-of": of}
    return made


async def run_of(world: Scheduled) -> list[str]:
    """Two gangs wait, and the extras of the first come after its admission."""
    world.extras = {"one": 2}
    world.add(gang("one", minute=0), gang("two", minute=1))
    world.start()
    await world.clock.advance(0.5)
    world.add(extra("one-x", of="one"))
    await world.clock.advance(0.5)
    world.add(extra("one-y", of="one"))
    await world.clock.advance(1)
    return world.observed.reservations


@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
async def test_extras_that_come_after_the_admission_go_before_the_next_gang(make: Make, strategy: str) -> None:
    """G3.69."""
    world = make(team(queueingStrategy=strategy))
    assert await run_of(world) == ["one", "one-x", "one-y", "two"]


async def test_in_other_profiles_the_next_gang_does_not_wait(make: Make) -> None:
    assert (await run_of(make(team("default"))))[:2] == ["one", "two"]


async def test_the_loop_goes_on_when_the_extras_do_not_come(make: Make) -> None:
    """G3.69: the next gang is admitted after five seconds, without any event."""
    world = make(team())
    world.extras = {"one": 16}
    world.add(gang("one", minute=0), gang("two", minute=1))
    world.start()
    await world.clock.advance(HOLD_FOR.total_seconds() - 0.01)
    before = list(world.observed.reservations)
    await world.clock.advance(0.02)
    assert (before, world.observed.reservations) == (["one"], ["one", "two"])


async def held_up(make: Make) -> Scheduled:
    """A world in which `one` was admitted, and `two` waits for its extras."""
    world = make(team())
    world.extras = {"one": 2}
    world.add(gang("one", minute=0), gang("two", minute=1))
    world.start()
    await world.clock.advance(0.5)
    return world


def change_conditions(world: Scheduled, name: str, **wanted: str) -> None:
    """Another writer sets conditions of a Workload; without quota it has no admission."""
    stored = world.client.object(WORKLOADS, f"ns/{name}")
    assert stored is not None
    kept = [c for c in stored["status"]["conditions"] if c["type"] not in wanted]
    body: JSON = {"conditions": [*kept, *(condition(kind, value) for kind, value in wanted.items())]}
    if wanted.get("QuotaReserved") == "False":
        body["admission"] = None
    world.client.change(WORKLOADS, f"ns/{name}", {"status": body})
    world.sync()


@pytest.mark.parametrize("kind", ["Evicted", "Finished"])
async def test_the_loss_of_the_admission_ends_the_hold(make: Make, kind: str) -> None:
    """G3.69: the extras are no extras any more, also while pods of an evicted quorum still end."""
    world = await held_up(make)
    change_conditions(world, "one", **{kind: "True"})
    await world.clock.advance(1.5)
    assert world.observed.reservations == ["one", "two"]


async def test_a_gang_without_its_quota_does_not_wait_for_itself(make: Make) -> None:
    """Another writer has taken the reservation: the gang is tried again at once."""
    world = await held_up(make)
    world.extras = {}
    change_conditions(world, "one", QuotaReserved="False", Admitted="False")
    await world.clock.advance(1.5)
    assert world.observed.reservations == ["one", "one", "two"]


async def test_the_deletion_of_the_workload_ends_the_hold(make: Make) -> None:
    world = await held_up(make)
    world.client.drop(WORKLOADS, "ns/one")
    world.sync()
    await world.clock.advance(1.5)
    assert world.observed.reservations == ["one", "two"]


async def test_an_admission_that_is_not_written_holds_nobody(make: Make) -> None:
    """The gang is queued again, and the next one does not wait for its extras."""
    world = make(team())
    world.extras = {"one": 2}
    world.add(gang("one", minute=0), gang("two", minute=1))
    world.client.fail(ServerError("down", status=500), key="ns/one", times=1000)
    world.start()
    await world.clock.advance(HOLD_FOR.total_seconds() - 1)
    assert world.observed.reservations == ["two"]


async def test_a_gang_with_admission_checks_holds_nobody(make: Make) -> None:
    """Its extras get their Workloads after the checks."""
    checks = {"admissionChecks": [{"name": "budget"}]}
    world = make(team(admissionChecksStrategy=checks))
    world.extras = {"one": 2}
    world.add(gang("one", minute=0), gang("two", minute=1))
    check = {"metadata": {"name": "budget"}, "spec": {"controllerName": "x"}}
    world.intake.on_check(None, read(wire.AdmissionCheck, {**check, "status": {"conditions": [condition("Active")]}}))
    world.start()
    await world.clock.advance(1)
    assert world.observed.reservations == ["one", "two"]
