"""A kind of owner in one file: a lamp that shines while its Workload is admitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kqueue.api.wire import kueue as wire
from kqueue.controllers.owner_lifecycle import OwnerStop
from kqueue.controllers.workload_steps import WorkloadSteps
from kqueue.jobs.kind import Finished


@dataclass(slots=True)
class Lamp:
    """A lamp: it shines or not, has burnt out or not, and glows for a while after it was switched off."""

    queue: str = "main"
    shines: bool = False
    glows: bool = False
    burnt_out: bool = False
    done: list[str] = field(default_factory=list)
    """What the life cycle did to it."""


class LampOwner:
    """`OwnerAdapter` for one lamp."""

    noun = "The lamp"
    deletion_message = "The Workload of the lamp was deleted"
    check_again = 3.0
    may_move = True

    def __init__(self, lamp: Lamp, workload: wire.Workload, steps: WorkloadSteps) -> None:
        self.lamp, self.workload, self._steps = lamp, workload, steps
        self.queue, self.waits, self.is_removable = lamp.queue, not lamp.shines, not lamp.shines

    def finished(self) -> Finished | None:
        """A lamp ends when it has burnt out."""
        return Finished("burnt out", success=True) if self.lamp.burnt_out else None

    def busy(self) -> bool:
        """A lamp uses power while it glows."""
        return self.lamp.glows

    def reclaimable(self) -> Mapping[str, int]:
        """Nothing."""
        return {}

    def ready(self) -> bool | None:
        """Unknown."""
        return None

    async def correct(self) -> bool:
        """Nothing."""
        return False

    async def closed(self) -> None:
        """Note it."""
        self.lamp.done.append("closed")

    async def stop(self, why: OwnerStop) -> None:
        """Switch it off."""
        self.lamp.shines = False
        self.lamp.done.append(f"stopped: {why.message}")

    async def finish(self, end: Finished) -> None:
        """Finish the Workload."""
        await self._steps.finish(self.workload, "Succeeded", end.message)

    async def give_back(self) -> None:
        """Release the quota."""
        await self._steps.give_back(self.workload)

    async def intercept(self) -> bool:
        """Never."""
        return False

    async def start(self) -> None:
        """Switch it on."""
        self.lamp.shines = True
        self.lamp.done.append("started")

    async def wait(self) -> None:
        """Note it."""
        self.lamp.done.append("waits")

    async def guard(self) -> None:
        """Note it."""
        self.lamp.done.append("guarded")

    async def remove(self) -> None:
        """Note it."""
        self.lamp.done.append("removed")
