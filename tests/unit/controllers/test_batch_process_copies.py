"""BatchProcesses of workspaces, copied by a controller on a server in memory."""

from __future__ import annotations

from typing import Any

import pytest

from kqueue.clock import FakeClock
from kqueue.controllers.batch_process_copies import BatchCopier
from kqueue.controllers.raw import status_writer
from kqueue.controllers.resources import BATCH_PROCESSES, WORKSPACE_BATCH_PROCESSES
from kqueue.errors import ForbiddenError
from kqueue.runtime.store import Store
from tests.unit.controllers.batch_world import KEY, batch
from tests.unit.controllers.fakes import FakeClient

JSON = dict[str, Any]
END = {"type": "Complete", "status": "True", "reason": "SuccessPolicyMet", "message": "m"}


class Workspace:
    """A server with a BatchProcess of a workspace, and the copier."""

    def __init__(self, **spec: Any) -> None:
        self.client, self.clock = FakeClient(), FakeClock()
        self.originals: Store[JSON] = Store("originals")
        self.copies: Store[JSON] = Store("copies")
        self.client.watch(WORKSPACE_BATCH_PROCESSES, self.originals, lambda obj: obj)
        self.client.watch(BATCH_PROCESSES, self.copies, lambda obj: obj)
        self.managed = {"team"}
        self.copier = BatchCopier(
            self.client,
            self.clock,
            originals=status_writer(self.client, WORKSPACE_BATCH_PROCESSES, self.originals),
            copies=self.copies,
            image_of=lambda _namespace: "train:2",
            manages=self.managed.__contains__,
        )
        made = batch(**spec)
        del made["spec"]["image"]
        self.client.put(WORKSPACE_BATCH_PROCESSES, {**made, "apiVersion": "workspace.brainpp.cn/v1alpha1"})

    async def rest(self) -> float | None:
        """Reconcile until nothing is written; returns when it wants to be called again."""
        for _ in range(6):
            self.client.sync()
            before = len(self.client.writes())
            result = await self.copier.reconcile(KEY)
            if len(self.client.writes()) == before:
                return result.requeue_after
        raise AssertionError("the copier goes on and on")

    @property
    def copy(self) -> JSON | None:
        return self.client.object(BATCH_PROCESSES, KEY)

    @property
    def original(self) -> JSON:
        found = self.client.object(WORKSPACE_BATCH_PROCESSES, KEY)
        assert found is not None
        return found

    def end(self) -> None:
        """The copy completes now."""
        status = {"phase": "Finished", "conditions": [END], "completionTime": "2026-01-01T00:00:00Z"}
        self.client.change(BATCH_PROCESSES, KEY, {"status": status})


async def test_it_is_copied_and_its_status_comes_back() -> None:
    world = Workspace()
    await world.rest()
    assert world.copy is not None
    assert world.copy["spec"]["image"] == "train:2"

    world.client.change(BATCH_PROCESSES, KEY, {"status": {"phase": "Running", "running": 2}})
    await world.rest()
    assert world.original["status"] == {"phase": "Running", "running": 2}


async def test_the_copy_follows_changes() -> None:
    world = Workspace()
    await world.rest()
    world.client.change(WORKSPACE_BATCH_PROCESSES, KEY, {"spec": {"suspend": True}})
    await world.rest()

    assert world.copy is not None
    assert world.copy["spec"]["suspend"] is True


@pytest.mark.parametrize("existing", [False, True], ids=["the webhook", "another object"])
async def test_what_is_refused_stands_on_the_original(existing: bool) -> None:
    world = Workspace()
    if existing:
        world.client.put(BATCH_PROCESSES, batch())
        world.client.change(BATCH_PROCESSES, KEY, {"metadata": {"ownerReferences": None}})
    else:
        world.client.fail(ForbiddenError("spec.podGroup.replicas: wrong", status=403), verb="create", times=9)
    world.client.sync()
    await world.copier.reconcile(KEY)

    (condition,) = world.original["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Queued", "False", "Invalid")
    assert ("exists; delete it" if existing else "replicas: wrong") in condition["message"]


async def test_an_ended_one_is_not_run_again_and_is_deleted_in_time() -> None:
    world = Workspace(ttlSecondsAfterFinished=60)
    await world.rest()
    world.end()
    assert await world.rest() == 60
    world.client.drop(BATCH_PROCESSES, KEY)
    assert await world.rest() == 60
    assert world.copy is None

    await world.clock.advance(61)
    await world.rest()
    assert world.client.keys(WORKSPACE_BATCH_PROCESSES) == []


async def test_nothing_is_done_in_a_namespace_that_is_not_managed() -> None:
    world = Workspace()
    world.managed.clear()
    await world.rest()

    assert world.client.writes() == []
