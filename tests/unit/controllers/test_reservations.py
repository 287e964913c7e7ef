"""The reconciler of Reservations: status, choice of domains, deletion, and other writers of the same objects."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kqueue.api.reservation import DomainReservation as Model
from kqueue.api.reservation_names import MOST_LISTED
from kqueue.api.wire.reservation import DomainReservation
from kqueue.clock import FakeClock, utc_text
from kqueue.controllers.reservations import ReservationReconciler, status_of
from kqueue.controllers.resources import RESERVATIONS
from kqueue.core.future.run_time import NOT_KNOWN
from kqueue.core.reserving import ReservationStage
from kqueue.operations.defrag.reading import state_of
from kqueue.operations.drain.target import DrainTarget, reservation_object
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store
from kqueue.state.reservations import Reservations, ReservationSeen
from tests.unit.cli.defrag_cluster import NOW, cluster, workload
from tests.unit.controllers.fakes import FakeClient, FakeRecorder

JSON = dict[str, Any]


def minutes(number: int) -> str:
    return utc_text(NOW + timedelta(minutes=number))


class World:
    """Racks a, b and c with workloads, an API server, and the reconciler."""

    def __init__(self, *, crowd: int = 0) -> None:
        objects = cluster()
        crowd_of_b = [workload(f"w{number:02}", "b", 15, 1) for number in range(crowd)]
        found = state_of(replace(objects, workloads=[*objects.workloads, *crowd_of_b]), NOW)
        self.cache = found.cache
        self.clock = FakeClock(NOW)
        self.client, self.recorder = FakeClient(), FakeRecorder()
        store: Store[DomainReservation] = Store()
        self.reservations = Reservations(self.cache, found.workloads.get, self.clock.now, lambda _obj: NOT_KNOWN)
        store.subscribe(self.reservations.on_reservation)
        self.client.watch(RESERVATIONS, store, lambda obj: msgspec.convert(obj, DomainReservation, strict=False))
        writer = StatusWriter(
            self.client,
            RESERVATIONS,
            store=store,
            decode=DomainReservation,
            key_of=lambda obj: obj.metadata.name,
            version_of=lambda obj: obj.metadata.resource_version,
        )
        self.reconciler = ReservationReconciler(
            client=self.client,
            objects=writer,
            reservations=self.reservations,
            recorder=self.recorder,
            clock=self.clock,
        )

    def create(self, name: str = "r", **spec: Any) -> None:
        asked = {"topology": "dc", "domain": ["b"], "from": minutes(60), "to": minutes(120), **spec}
        found = {key: value for key, value in asked.items() if value is not None}
        meta = {"name": name, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": minutes(0)}
        self.client.put(RESERVATIONS, {"metadata": meta, "spec": found})
        self.client.sync()

    async def look(self, name: str = "r") -> float | None:
        result = await self.reconciler.reconcile(name)
        self.client.sync()
        return result.requeue_after

    def status(self, name: str = "r") -> JSON:
        obj = self.client.object(RESERVATIONS, name)
        assert obj is not None
        return dict(obj["status"])

    def condition(self, kind: str) -> JSON:
        return next(c for c in self.status()["conditions"] if c["type"] == kind)


async def test_the_status_has_domains_conditions_and_the_workloads_there() -> None:
    world = World()
    world.create()
    assert await world.look() == 60.0
    status = world.status()
    assert (status["domains"], status["domainPaths"]) == ([{"path": ["b"], "hosts": 16}], "b")
    assert (status["workloads"], status["lateWorkloads"], status["observedGeneration"]) == (1, 1, 1)
    assert status["running"] == [{"workload": "team-b/u", "pods": 10, "source": "Unknown", "late": True}]
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Planned": "True",
        "Draining": "True",
        "Ready": "False",
        "Ended": "False",
    }
    obj = world.client.object(RESERVATIONS, "r")
    assert obj is not None
    Model.read(obj)
    assert world.recorder.reasons == ["ReservationPlanned"]


async def test_an_unchanged_status_is_not_written_again() -> None:
    world = World()
    world.create()
    await world.look()
    written = len(world.client.writes())
    await world.clock.advance(30.0)
    await world.look()
    assert len(world.client.writes()) == written


async def test_the_stages_follow_the_clock() -> None:
    world = World()
    world.create(ttlSecondsAfterEnded=600)
    world.cache.held.on_workload("team-b/u", None)
    pauses = [await world.look()]
    await world.clock.advance(3590.0)
    pauses.append(await world.look())
    await world.clock.advance(10.0)
    pauses.append(await world.look())
    assert world.condition("Ready")["status"] == "True"
    await world.clock.advance(3600.0)
    pauses.append(await world.look())
    assert (world.condition("Ended")["status"], world.condition("Ready")["reason"]) == ("True", "Ended")
    await world.clock.advance(600.0)
    await world.look()
    assert world.client.object(RESERVATIONS, "r") is None
    assert pauses == [60.0, 10.0, 60.0, 60.0]
    assert world.recorder.reasons == ["ReservationPlanned", "ReservationReady"]


async def test_an_ended_reservation_without_a_time_to_live_is_kept() -> None:
    world = World()
    world.create()
    await world.clock.advance(10 * 86_400.0)
    assert await world.look() is None
    assert world.condition("Ended")["status"] == "True"


async def test_domains_are_chosen_once() -> None:
    world = World()
    world.create(domain=None, level="rack", count=1)
    await world.look()
    assert world.status()["domains"] == [{"path": ["a"], "hosts": 16}]
    world.cache.held.on_workload("team-b/u", None)
    await world.look()
    assert world.status()["domains"] == [{"path": ["a"], "hosts": 16}], "b would be the better choice now"


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"domains": [{"path": ["c"], "hosts": 16}]}, id="another domain"),
        pytest.param({"domains": []}, id="no domain"),
        pytest.param({"running": [], "workloads": 0, "lateWorkloads": 0}, id="no workload there"),
        pytest.param(
            {
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "r", "message": "", "lastTransitionTime": minutes(0)}
                ]
            },
            id="it is ready",
        ),
    ],
)
async def test_a_status_that_another_client_has_written_is_put_right(forged: JSON) -> None:
    world = World()
    world.create()
    await world.look()
    true = world.status()
    kept = world.reservations.claims()
    world.client.change(RESERVATIONS, "r", {"status": forged})
    world.client.sync()
    assert world.reservations.claims() == kept or [c.domains for c in world.reservations.claims()] == [
        c.domains for c in kept
    ]
    await world.look()
    found = world.status()
    assert {key: found[key] for key in ("domains", "running", "workloads", "lateWorkloads")} == {
        key: true[key] for key in ("domains", "running", "workloads", "lateWorkloads")
    }
    assert {c["type"]: c["status"] for c in found["conditions"]} == {c["type"]: c["status"] for c in true["conditions"]}


async def test_a_deletion_between_two_looks_is_no_error() -> None:
    world = World()
    world.create()
    await world.look()
    world.client.drop(RESERVATIONS, "r")
    world.client.sync()
    assert await world.look() is None
    assert world.reservations.claims() == ()


async def test_a_refusal_is_told_as_a_warning() -> None:
    world = World()
    world.create(domain=["z"])
    await world.look()
    assert (world.condition("Planned")["reason"], world.status()["domains"]) == ("DomainNotFound", [])
    assert world.recorder.reasons == ["ReservationDomainNotFound"]


async def test_the_list_of_workloads_is_bounded() -> None:
    world = World(crowd=MOST_LISTED + 3)
    world.create()
    await world.look()
    status = world.status()
    assert (len(status["running"]), status["workloads"]) == (MOST_LISTED, MOST_LISTED + 4)
    obj = world.client.object(RESERVATIONS, "r")
    assert obj is not None
    Model.read(obj)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, ""), (1, "x/r0"), (2, "x/r0, x/r1"), (3, "x/r0, x/r1 and 1 more"), (64, "x/r0, x/r1 and 62 more")],
)
def test_kubectl_shows_the_first_domains_as_paths(count: int, shown: str) -> None:
    written = reservation_object(DrainTarget(topology="dc", domain=("b",)), NOW, NOW + timedelta(hours=1), "")
    obj = msgspec.convert(written, DomainReservation, strict=False)
    seen = ReservationSeen(
        stage=ReservationStage.DRAINING,
        domains=tuple((("x", f"r{number}"), 1) for number in range(count)),
        occupants=(),
        late=0,
        verdicts=(),
        must_choose=False,
        next_change=None,
    )
    assert status_of(obj, seen, "2026-01-01T00:00:00Z")["domainPaths"] == shown
