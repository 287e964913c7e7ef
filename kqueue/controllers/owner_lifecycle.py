"""Takes the owner of a Workload through its life: one sequence of steps for jobs, single pods and groups of pods.

Each reconcile reads the owner and its Workload and ends at the first step that writes, so a process that is killed
anywhere goes on where it stopped.  A new kind of owner writes one `OwnerAdapter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.controllers.owner_context import OwnerContext
from kqueue.jobs.kind import Finished
from kqueue.runtime.controller import Result
from kqueue.state import retention


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerStop:
    """Why the pods of an owner have to end.

    Args:
        reason: as on the pods and in the log, as in `names.REASON_WORKLOAD_EVICTED`.
        message: a sentence for the user.
        eviction: the reason of the Workload's eviction, where that is the cause.
    """

    reason: str
    message: str
    eviction: str = ""


class OwnerAdapter(Protocol):
    """One owner with its Workload, as one reconcile sees them.

    Methods that write read their object again if the watch may be behind. A repeated call changes nothing.
    """

    @property
    def workload(self) -> wire.Workload:
        """The newest version known of the Workload."""
        ...

    @property
    def queue(self) -> str:
        """The LocalQueue that the owner names; empty: none."""
        ...

    @property
    def noun(self) -> str:
        """The owner in messages, as in `The job has moved`."""
        ...

    @property
    def deletion_message(self) -> str:
        """The message for pods that end because the Workload was deleted."""
        ...

    @property
    def waits(self) -> bool:
        """Whether some of the owner's pods are suspended or gated, so that an admission has something to start."""
        ...

    @property
    def may_move(self) -> bool:
        """Whether the owner may follow another queue now: no pod of it has begun."""
        ...

    @property
    def is_removable(self) -> bool:
        """Whether nothing of the owner runs or holds quota, so that a deactivated owner may be deleted in time."""
        ...

    @property
    def check_again(self) -> float | None:
        """Seconds after which pods that have to end are read again; None: events tell of their end."""
        ...

    def finished(self) -> Finished | None:
        """How the owner's work has ended; None while it has not."""
        ...

    def busy(self) -> bool:
        """Whether pods of the owner may still use the Workload's quota."""
        ...

    def reclaimable(self) -> Mapping[str, int]:
        """Pods that will not run again, by pod set."""
        ...

    def ready(self) -> bool | None:
        """Whether all pods are ready or have succeeded; None: unknown."""
        ...

    async def correct(self) -> bool:
        """Steps of this kind of owner before its pods are reported; True when one of them wrote."""
        ...

    async def closed(self) -> None:
        """The Workload has finished: let go of pods, and stop pods that run without it."""
        ...

    async def stop(self, why: OwnerStop) -> None:
        """Stop the owner's pods."""
        ...

    async def finish(self, end: Finished) -> None:
        """Finish the Workload, and report that on the owner."""
        ...

    async def give_back(self) -> None:
        """Release the quota of the evicted Workload, after the last pod has ended."""
        ...

    async def intercept(self) -> bool:
        """Handle an admission that must not start the owner, as where its user has suspended it; True: handled."""
        ...

    async def start(self) -> None:
        """Start the pods by the admission of the Workload."""
        ...

    async def wait(self) -> None:
        """The owner waits without an admission: report what its admission checks say, and hand on other wishes."""
        ...

    async def guard(self) -> None:
        """Stop pods that run although the Workload is not admitted."""
        ...

    async def remove(self) -> None:
        """Delete the owner, because kqueue deactivated it longer ago than such owners are kept."""
        ...


class OwnerLifecycle:
    """The sequence of steps.  It holds no memory of owners."""

    def __init__(self, context: OwnerContext) -> None:
        self._steps, self._clock = context.steps, context.clock
        self._keep_deactivated = context.policy.keep_deactivated

    async def step(self, owner: OwnerAdapter) -> Result:
        """Take the next step."""
        result = await self.close(owner)
        return result if result is not None else await self.advance(owner)

    async def close(self, owner: OwnerAdapter) -> Result | None:
        """Take the next step of an owner whose Workload has finished or is being deleted; None for an open one."""
        workload = owner.workload
        if model.condition_true(workload, names.CONDITION_FINISHED):
            await owner.closed()
            await self._steps.release(workload)
            return await self._retain(owner)
        if workload.metadata.deletion_timestamp is None:
            return None
        await owner.stop(OwnerStop(reason=names.REASON_WORKLOAD_DELETED, message=owner.deletion_message))
        if owner.busy():
            return Result(requeue_after=owner.check_again)
        await self._steps.release(workload)
        return await self._retain(owner)

    async def advance(self, owner: OwnerAdapter) -> Result:
        """Take the next step of an owner whose Workload is open, in the order of the compatible system."""
        workload = owner.workload
        if (end := owner.finished()) is not None:
            await owner.finish(end)
        elif await owner.correct():
            return Result()
        elif await self._steps.report(workload, reclaimable=owner.reclaimable(), ready=owner.ready()):
            pass
        elif (evicted := _true(workload, names.CONDITION_EVICTED)) is not None:
            if await self._leave(owner, evicted):
                return Result(requeue_after=owner.check_again)
        elif owner.waits:
            await self._start_or_follow(owner)
        else:
            await owner.guard()
        return await self._retain(owner)

    async def _leave(self, owner: OwnerAdapter, evicted: Condition) -> bool:
        """Stop the pods of an evicted Workload, and release its quota after the last of them; True while they end."""
        await owner.stop(
            OwnerStop(reason=names.REASON_WORKLOAD_EVICTED, message=evicted.message, eviction=evicted.reason)
        )
        if not model.condition_true(owner.workload, names.CONDITION_QUOTA_RESERVED):
            await self._follow_queue(owner)
        elif owner.busy():
            return True
        else:
            await owner.give_back()
        return False

    async def _start_or_follow(self, owner: OwnerAdapter) -> None:
        admitted = model.is_admitted(owner.workload)
        if admitted and await owner.intercept():
            return
        if await self._follow_queue(owner):
            return
        if admitted:
            await owner.start()
        else:
            await owner.wait()

    async def _follow_queue(self, owner: OwnerAdapter) -> bool:
        return owner.may_move and await self._steps.follow_queue(owner.workload, owner.queue, noun=owner.noun)

    async def _retain(self, owner: OwnerAdapter) -> Result:
        """Delete an owner that kqueue has deactivated, when nothing of it is left and its time has come."""
        expires = retention.deactivated_expires(owner.workload, self._keep_deactivated)
        if expires is None or not owner.is_removable:
            return Result()
        left = (expires - self._clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        await owner.remove()
        return Result()


def pending_checks(workload: wire.Workload) -> str:
    """Return the messages of the admission checks that a reservation waits for, as one sentence; empty: none."""
    if not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
        return ""
    said = [f"{c.name}: {c.message}" for c in workload.status.admission_checks if c.state == "Pending" and c.message]
    return "; ".join(sorted(said))


def start_message(workload: wire.Workload) -> str:
    """The sentence on an owner or pod that was started."""
    admission = workload.status.admission
    return f"Admitted by ClusterQueue {admission.cluster_queue if admission is not None else ''}"


def _true(workload: wire.Workload, kind: str) -> Condition | None:
    found = model.condition(workload.status.conditions, kind)
    return found if found is not None and found.status == "True" else None
