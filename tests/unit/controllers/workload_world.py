"""A world with one Workload and its reconciler."""

from __future__ import annotations

from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.controllers.explaining import FirstWords
from kqueue.controllers.life_cycle import LifeRules
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.workload import WorkloadContext, WorkloadReconciler, WorkloadSettings
from kqueue.runtime.resources import ResourceType
from kqueue.state import status
from tests.unit.controllers.builders import JSON, World, condition, make_workload, read


def context_of(world: World) -> WorkloadContext:
    """The context of a reconciler of the Workloads of a world."""
    return WorkloadContext(
        workloads=world.workloads,
        local_queues=world.local_queues,
        client=world.client,
        writer=world.writer,
        cache=world.cache,
        queues=world.queues,
        namespace_labels=world.namespaces.get,
        recorder=world.recorder,
        clock=world.clock,
    )


class Workloads(World):
    """A world with a Workload `a` and its reconciler."""

    def __init__(self, workload: JSON | None = None, *objects: tuple[ResourceType, JSON], **settings: Any) -> None:
        super().__init__(*objects, (WORKLOADS, workload or make_workload()))
        words = FirstWords(after=settings.pop("tell_after", 10.0), at_once=settings.pop("at_once", False))
        rules = settings.pop("rules", None) or LifeRules()
        self.reconciler = WorkloadReconciler(
            context_of(self),
            settings=WorkloadSettings(rules=rules, first_words=words),
            **settings,
        )

    async def step(self) -> int:
        """One reconcile with everything seen; how many writes it made."""
        before = len(self.client.writes())
        self.sync()
        await self.reconciler.reconcile("ns/a")
        return len(self.client.writes()) - before

    async def rest(self) -> None:
        """Reconcile until nothing is left to do; fails if that does not end."""
        for _ in range(10):
            if not await self.step():
                return
        raise AssertionError("the workload goes on and on")

    def check(self, name: str = "budget") -> None:
        """An AdmissionCheck that answers."""
        obj = {
            "metadata": {"name": name},
            "spec": {"controllerName": "x"},
            "status": {"conditions": [condition("Active")]},
        }
        self.intake.on_check(None, read(wire.AdmissionCheck, obj))

    async def give_back(self) -> None:
        """What the job's controller does when the pods of an evicted Workload are gone."""
        self.sync()
        evicted = next(c for c in self.found["status"]["conditions"] if c["type"] == "Evicted")
        again, stamp = evicted["reason"] == "Preempted", status.Stamp(self.clock.now())
        reason, message = "PendingEvaluation", evicted["message"]
        await self.writer.write(
            "ns/a", lambda w: status.unreserve(w, reason=reason, message=message, stamp=stamp, requeued=again)
        )

    async def wake(self) -> float:
        """Advance the clock to when the reconciler wants to look again; for how many seconds."""
        self.sync()
        after = (await self.reconciler.reconcile("ns/a")).requeue_after
        assert after is not None, "it wants to be looked at when something happens only"
        await self.clock.advance(after)
        return after

    def heads(self) -> list[str]:
        """Who would be tried now, by key."""
        self.sync()
        return [item.key for _, item in self.queues.pop_heads(lambda _: True)]

    @property
    def found(self) -> JSON:
        """The Workload as the server has it."""
        obj = self.workload()
        assert obj is not None
        return obj
