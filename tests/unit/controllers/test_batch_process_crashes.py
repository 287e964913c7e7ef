"""A controller that is killed at any of its writes, before or after it is done: the next one brings the BatchProcess to
the same end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.controllers.resources import WORKLOADS
from tests.unit.controllers.batch_world import Batches, batch
from tests.unit.controllers.builders import status_of
from tests.unit.controllers.fakes import Call

MOST = 80
"""More writes than the story below has."""


class KilledError(BaseException):
    """The process that wanted to write does not exist any more."""


class BatchStory:
    """A world whose controller dies once, at its `at`-th write; `done`: the server has seen that one."""

    def __init__(self, obj: Any, *, at: int, done: bool) -> None:
        self._at, self._done, self._writes = at, done, 0
        self.died = False
        self.world = Batches(obj)
        answer = self.world.client._answer

        async def counted(call: Call, act: Callable[[], Any]) -> Any:
            if call.verb not in ("get", "list", "dry-run"):
                self._writes += 1
                if self._writes == self._at:
                    if self._done:
                        act()
                    raise KilledError
            return await answer(call, act)

        self.world.client._answer = counted  # type: ignore[method-assign]

    async def rest(self) -> None:
        """Reconcile until nothing is left to do, by a new process where the first has died."""
        try:
            await self.world.settle_all()
        except (KilledError, BaseExceptionGroup):
            assert not self.died
            self.died = True
            old = self.world
            await old.close()
            self.world = Batches()
            await self.world.clock.advance((old.clock.now() - self.world.clock.now()).total_seconds())
            self.world.client._objects = old.client._objects
            self.world.client._version = old.client._version
            await self.world.settle_all()


async def life(story: BatchStory) -> None:
    """Queued, started, one failed and replaced, evicted, started again, complete."""
    await story.rest()
    assert story.world.names() == []
    story.world.admit(story.world.load)
    await story.rest()
    assert story.world.pods_held() == []
    assert story.world.places() == ["student-0", "teacher-0", "teacher-1"]
    story.world.end_pods("Running")
    await story.rest()
    assert story.world.told_status["phase"] == "Running"
    story.world.end_pods("Failed", "teacher-0")
    await story.rest()
    assert story.world.places() == ["student-0", "teacher-0", "teacher-0/1", "teacher-1"]
    assert story.world.told_status["failures"] == 1
    story.world.evict(story.world.load)
    await story.rest()
    story.world.end_pods("Failed")
    await story.rest()
    assert status_of(story.world.workload_named(story.world.load), "QuotaReserved")[0] == "False"
    assert story.world.told_status["failures"] == 1
    story.world.admit(story.world.load)
    await story.rest()
    assert story.world.pods_held() == []
    alive = story.world.alive()
    assert len(alive) == 3
    story.world.end_pods("Succeeded", *alive)
    await story.rest()
    assert story.world.condition_of("Complete") == ("True", "SuccessPolicyMet")
    assert status_of(story.world.workload_named(story.world.load), "Finished") == ("True", "Succeeded")
    assert not any(story.world.finalizer(name) for name in story.world.names())
    assert len(story.world.client.keys(WORKLOADS)) == 1


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
async def test_the_next_process_goes_on(done: bool) -> None:
    """Rows 3.32, 4.8: at every write of the life of a BatchProcess."""
    obj = batch(
        {"name": "teacher", "replicas": 2, "minAvailable": 2}, {"name": "student", "minAvailable": 1},
        group={"minAvailable": 3},
    )  # fmt: skip
    for at in range(1, MOST):
        story = BatchStory(obj, at=at, done=done)
        await life(story)
        await story.world.close()
        if not story.died:
            assert at > 20, "the story has fewer writes than expected"
            return
    raise AssertionError(f"the story has more than {MOST} writes")
