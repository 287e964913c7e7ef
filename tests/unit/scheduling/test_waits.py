"""Reasons for waiting: the newest counts, few are written at once, and nothing is said twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.scheduling.waits import Waits, Why
from kqueue.scheduling.writes import Writes
from tests.unit.controllers.builders import make_workload, message_of, status_of
from tests.unit.scheduling.scheduled import Scheduled

Make = Callable[..., Scheduled]


class Telling:
    """A world of workloads, and what tells them why they wait."""

    def __init__(self, world: Scheduled, *names: str, at_once: int = 9) -> None:
        self.world, self.held = world, set[str]()
        self.writes = Writes(world.writer, in_flight=9)
        self.waits = Waits(
            writes=self.writes,
            is_held=self.held.__contains__,
            observer=world.observed,
            clock=world.clock,
            at_once=at_once,
        )
        world.add(*map(make_workload, names))

    def tell(
        self, name: str, reason: str, message: str = "none is left", *, briefly: bool = False, gated: bool = False
    ) -> None:
        obj = self.world.writer.newest(f"ns/{name}")
        assert obj is not None
        self.waits.tell(f"ns/{name}", obj, Why(reason, message, gated=gated), briefly=briefly)

    async def written(self) -> list[tuple[str, str]]:
        """Who was told what, once all is written that there is."""
        self.world.client.open.set()
        await self.writes.drain()
        return self.world.observed.waiting


async def test_only_the_newest_reason_is_written(make: Make) -> None:
    """What came while a write is under way follows it; what was overtaken before its turn is never written."""
    telling = Telling(make(), "a", "b", at_once=1)
    telling.world.client.open.clear()
    telling.tell("a", "First")
    await telling.world.clock.advance(0)
    for reason in ("Second", "Third"):
        telling.tell("a", reason)
        telling.tell("b", reason)

    assert await telling.written() == [("a", "First"), ("a", "Third"), ("b", "Third")]


async def test_no_more_are_told_at_once_than_may_be(make: Make) -> None:
    """The others come later, and nobody is left out."""
    names = [f"w{n}" for n in range(7)]
    telling = Telling(make(), *names, at_once=3)
    telling.world.client.open.clear()
    for name in names:
        telling.tell(name, "Waits")
    await telling.world.clock.advance(0)

    assert len(telling.world.client.calls) == 3

    assert sorted(await telling.written()) == [(name, "Waits") for name in names]


@pytest.mark.parametrize(
    ("reason", "message", "more", "writes"),
    [
        pytest.param("Waits", "5 of 8 are left", {}, 1, id="who says it already is not written to"),
        pytest.param("Waits", "3 of 8 are left", {}, 2, id="another message is"),
        pytest.param("Waits", "3 of 8 are left", {"briefly": True}, 1, id="unless only the reason counts"),
        pytest.param("Never", "5 of 8 are left", {"briefly": True}, 2, id="which is another one"),
        pytest.param("Waits", "5 of 8 are left", {"gated": True}, 2, id="that a gate keeps it is news"),
    ],
)
async def test_what_a_workload_says_already_is_not_written(
    make: Make, reason: str, message: str, more: dict[str, bool], writes: int
) -> None:
    """Neither is it reported again."""
    telling = Telling(make(), "a")
    telling.tell("a", "Waits", "5 of 8 are left")
    await telling.written()
    telling.tell("a", reason, message, **more)

    assert len(await telling.written()) == writes
    assert len(telling.world.client.calls) == writes


async def test_a_reason_on_its_way_is_overtaken_by_what_the_workload_says_now(make: Make) -> None:
    """What is being written is older than what it says, so that is written once more."""
    telling = Telling(make(), "a")
    telling.tell("a", "Old")
    await telling.written()
    telling.world.client.open.clear()
    telling.tell("a", "Passing")
    await telling.world.clock.advance(0)
    telling.tell("a", "Old", briefly=True)
    await telling.written()

    assert status_of(telling.world.workload(), "QuotaReserved") == ("False", "Old")
    assert message_of(telling.world.workload(), "QuotaReserved") == "none is left"


async def test_who_is_admitted_before_its_turn_is_told_nothing(make: Make) -> None:
    """An old reason does not go over an admission."""
    telling = Telling(make(), "a")
    telling.tell("a", "Waits")
    telling.held.add("ns/a")

    assert await telling.written() == []
    assert telling.world.client.calls == []


async def test_a_bug_on_one_workload_silences_no_other(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are told; and so is that one the next time."""
    world = make()
    telling, write = Telling(world, "bad", "good", at_once=1), world.writer.write
    failed = list[str]()

    async def failing(key: str, *rest: Any, **more: Any) -> Any:
        if key == "ns/bad" and not failed:
            failed.append(key)
            raise ZeroDivisionError
        return await write(key, *rest, **more)

    monkeypatch.setattr(world.writer, "write", failing)
    telling.tell("bad", "Waits")
    telling.tell("good", "Waits")
    assert await telling.written() == [("good", "Waits")]
    telling.tell("bad", "Waits")

    assert await telling.written() == [("good", "Waits"), ("bad", "Waits")]
