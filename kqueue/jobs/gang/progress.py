"""The progress of a gang's start: how many members of its quorum have nodes, and which find none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from kqueue.clock import api_time
from kqueue.jobs.fields import JSON, condition_of, text
from kqueue.jobs.pod_view import ManagedPod


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProgress:
    """The progress of one start."""

    quorum: int
    scheduled: int
    """Members of the base that are bound, or have succeeded."""
    running: int
    """Members of the base that run, or have succeeded."""
    unschedulable: tuple[ManagedPod, ...] = ()
    """Members of the base for which the scheduler found no node, in order."""
    last: datetime | None = None
    """The time at which the newest of the scheduled members got its node; None: not known."""

    @property
    def has_quorum(self) -> bool:
        """Whether as many members as the quorum are scheduled."""
        return self.scheduled >= self.quorum

    @property
    def runs(self) -> bool:
        """Whether as many members as the quorum run or have succeeded."""
        return self.running >= self.quorum

    @property
    def words(self) -> str:
        """Return the message of the scheduler for the oldest member without a node; empty: there is none."""
        return text(_scheduling(self.unschedulable[0]), "message") if self.unschedulable else ""


def progress_of(base: Sequence[ManagedPod], quorum: int) -> StartProgress:
    """Return the progress of the members that the Workload counts."""
    scheduled = [member for member in base if member.scheduled]
    times = (api_time(text(_scheduling(member), "lastTransitionTime")) for member in scheduled)
    return StartProgress(
        quorum=quorum,
        scheduled=len(scheduled),
        running=sum(m.succeeded or (m.phase == "Running" and not m.deleting) for m in scheduled),
        unschedulable=tuple(member for member in base if member.unschedulable),
        last=max((at for at in times if at is not None), default=None),
    )


def _scheduling(member: ManagedPod) -> JSON:
    return dict(condition_of(member.obj, "PodScheduled"))
