"""The life cycle of the owner of a Workload: one sequence of steps for jobs, single pods and groups of pods.

Each reconcile reads the owner and its Workload and ends at the first step that writes, so a process that is killed
anywhere continues where it stopped.  A new kind of owner needs one `OwnerAdapter`.
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

CHECK_AGAIN = 10.0
"""Seconds after which an owner is looked at again while its eviction waits for another cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerStop:
    """The reason why the pods of an owner must end.

    Args:
        reason: as on the pods and in the log, as in `names.REASON_WORKLOAD_EVICTED`.
        message: a sentence for the user.
        eviction: the reason of the Workload's eviction, if the eviction is the cause.
    """

    reason: str
    message: str
    eviction: str = ""


class OwnerAdapter(Protocol):
    """One owner with its Workload, as seen by one reconcile.

    Methods that write read their object again if the watch may be behind. A repeated call changes nothing.
    """

    @property
    def workload(self) -> wire.Workload:
        """The newest known version of the Workload."""
        ...

    @property
    def queue(self) -> str:
        """The LocalQueue that the owner names; empty: none."""
        ...

    @property
    def noun(self) -> str:
        """The name of the owner in messages, as in `The job has moved`."""
        ...

    @property
    def deletion_message(self) -> str:
        """The message for pods that end because the Workload was deleted."""
        ...

    @property
    def waits(self) -> bool:
        """Whether any of the owner's pods is suspended or gated, so that an admission has pods to start."""
        ...

    @property
    def may_move(self) -> bool:
        """Whether the owner may move to another queue now: none of its pods has begun."""
        ...

    @property
    def is_removable(self) -> bool:
        """Whether no pod of the owner runs and it has no quota, so that a deactivated owner may be deleted in time."""
        ...

    @property
    def check_again(self) -> float | None:
        """Seconds after which ending pods are read again; None: events report their end."""
        ...

    def finished(self) -> Finished | None:
        """Return the result of the owner's work; None: it has not finished."""
        ...

    def busy(self) -> bool:
        """Whether pods of the owner may still use the Workload's quota."""
        ...

    def reclaimable(self) -> Mapping[str, int]:
        """Return the number of pods that will not run again, by pod set."""
        ...

    def ready(self) -> bool | None:
        """Whether all pods are ready or have succeeded; None: unknown."""
        ...

    async def correct(self) -> bool:
        """Take steps of this kind of owner before its pods are reported; return whether any step wrote."""
        ...

    async def closed(self) -> None:
        """Handle a finished Workload: remove finalizers of pods, and stop pods that run without it."""
        ...

    async def stop(self, why: OwnerStop) -> None:
        """Stop the owner's pods."""
        ...

    async def finish(self, end: Finished) -> None:
        """Finish the Workload, and report the end on the owner."""
        ...

    async def give_back(self) -> None:
        """Release the quota of the evicted Workload, after the last pod has ended."""
        ...

    async def intercept(self) -> bool:
        """Handle an admission that must not start the owner, for example if its user has suspended it; return whether
        handled.
        """
        ...

    async def start(self) -> None:
        """Start the pods according to the admission of the Workload."""
        ...

    async def wait(self) -> None:
        """Handle an owner that waits without an admission: report messages of its admission checks, and apply other
        wishes.
        """
        ...

    async def guard(self) -> None:
        """Stop pods that run although the Workload is not admitted."""
        ...

    async def remove(self) -> None:
        """Delete the owner, because kqueue deactivated it longer ago than such owners are kept."""
        ...


class OwnerLifecycle:
    """The sequence of steps.  It stores no state of owners."""

    def __init__(self, context: OwnerContext) -> None:
        self._steps, self._clock = context.steps, context.clock
        self._keep_deactivated, self._releases = context.policy.keep_deactivated, context.releases

    async def step(self, owner: OwnerAdapter) -> Result:
        """Take the next step."""
        result = await self.close(owner)
        return result if result is not None else await self.advance(owner)

    async def close(self, owner: OwnerAdapter) -> Result | None:
        """Take the next step of an owner whose Workload has finished or is being deleted; return None if the Workload
        is open.
        """
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
            pause = await self._start_or_follow(owner)
            if pause is not None:
                return Result(requeue_after=pause)
        else:
            await owner.guard()
        return await self._retain(owner)

    async def _leave(self, owner: OwnerAdapter, evicted: Condition) -> bool:
        """Stop the pods of an evicted Workload, and release its quota after the last of them; return whether pods still
        end.
        """
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

    async def _start_or_follow(self, owner: OwnerAdapter) -> float | None:
        """Take the step of an owner that waits; return the seconds after which an admitted owner that a plugin holds
        is read again, None: none holds it.
        """
        admitted = model.is_admitted(owner.workload)
        if (admitted and await owner.intercept()) or await self._follow_queue(owner):
            return None
        if not admitted:
            await owner.wait()
            return None
        pause = await self._releases.pause_before(owner.workload)
        if pause is None:
            await owner.start()
        return pause

    async def _follow_queue(self, owner: OwnerAdapter) -> bool:
        return owner.may_move and await self._steps.follow_queue(owner.workload, owner.queue, noun=owner.noun)

    async def _retain(self, owner: OwnerAdapter) -> Result:
        """Delete an owner that kqueue has deactivated, after its last pod and its retention time."""
        expires = retention.deactivated_expires(owner.workload, self._keep_deactivated)
        if expires is None or not owner.is_removable:
            return Result()
        left = (expires - self._clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        await owner.remove()
        return Result()


def pending_checks(workload: wire.Workload) -> str:
    """Return the messages of the admission checks for which a reservation waits, as one sentence; empty: there are
    none.
    """
    if not model.condition_true(workload, names.CONDITION_QUOTA_RESERVED):
        return ""
    said = [f"{c.name}: {c.message}" for c in workload.status.admission_checks if c.state == "Pending" and c.message]
    return "; ".join(sorted(said))


def start_message(workload: wire.Workload) -> str:
    """Return the message on an owner or pod that was started."""
    admission = workload.status.admission
    return f"Admitted by ClusterQueue {admission.cluster_queue if admission is not None else ''}"


def _true(workload: wire.Workload, kind: str) -> Condition | None:
    found = model.condition(workload.status.conditions, kind)
    return found if found is not None and found.status == "True" else None
