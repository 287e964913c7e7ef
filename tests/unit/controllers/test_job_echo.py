"""What a Job's reconciler has written is not written again before the watch has brought it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import ServerError
from tests.unit.controllers.test_job import JOBS, KEY, NAME, Jobs

CREATE, START = f"create workloads team/{NAME}", f"patch jobs {KEY}"


@pytest.fixture
async def world() -> AsyncIterator[Jobs]:
    made = Jobs()
    yield made
    await made.close()


async def test_a_workload_is_created_once_while_the_watch_is_late(world: Jobs) -> None:
    """The watch that does not bring it for a minute may have missed it: then the server is asked again."""
    assert await world.step() == [CREATE]
    assert await world.step(late=True) == []
    await world.clock.advance(61)

    assert await world.step(late=True) == [CREATE]
    assert world.client.keys(WORKLOADS) == [f"team/{NAME}"]


async def test_a_deleted_workload_is_created_anew_at_once(world: Jobs) -> None:
    """It was seen before it went."""
    await world.queued()
    world.client.drop(WORKLOADS, f"team/{NAME}")

    assert await world.step() == [CREATE]


async def test_a_job_that_is_gone_gets_no_workload_from_a_late_watch(world: Jobs) -> None:
    """Its end took the Workload along, and that was seen first."""
    await world.queued()
    world.client.drop(WORKLOADS, f"team/{NAME}")
    world.sync()
    world.client.drop(JOBS, KEY)

    assert await world.step(late=True) == []


async def test_a_create_that_failed_is_tried_again_at_once(world: Jobs) -> None:
    """Nothing is owed when nothing was written."""
    world.client.fail(ServerError("on fire", status=500), verb="create")
    with pytest.raises(ServerError):
        await world.step()

    assert await world.step() == [CREATE]


async def test_a_create_that_was_cut_off_is_tried_again_at_once(world: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the lead, as a rule: the same process may win it again, and the job does not wait for the end of a minute."""
    asked = asyncio.Event()

    async def hang(*_: object, **__: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(world.client, "create", hang)
        step = asyncio.ensure_future(world.step())
        await asyncio.wait_for(asked.wait(), 5)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)

    assert await world.step() == [CREATE]


async def test_a_job_is_started_once_while_the_watch_is_late(world: Jobs) -> None:
    """A second patch would only meet a conflict."""
    await world.queued()
    world.admit()

    assert await world.step() == [START]
    assert await world.step(late=True) == []
    version = world.client.object(JOBS, KEY)
    world.sync()
    assert await world.step() == []
    assert world.client.object(JOBS, KEY) == version
