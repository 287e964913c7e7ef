"""The stage of a gang between its first pod and its end, for summaries.  Pure."""

from __future__ import annotations

from enum import StrEnum

from kqueue.api import names
from kqueue.jobs.fields import JSON, condition_status
from kqueue.jobs.gang.match import on_hold
from kqueue.jobs.gang.value import GangPhase


class GangStage(StrEnum):
    """The stages of gangs.  A phase `Pending` is one of the first two stages."""

    GATHERING = "gathering"
    """Not queued: members are missing, or a mistake prevents the Workload."""
    WAITING = "waiting"
    """Queued, not admitted."""
    STARTING = "starting"
    """Released; fewer members run than the quorum."""
    RUNNING = "running"
    FAILED = "failed"
    """A member of the quorum has failed and is not replaced."""
    FINISHED = "finished"


_OF_PHASE = {
    GangPhase.SCHEDULING: GangStage.STARTING,
    GangPhase.UNKNOWN: GangStage.STARTING,
    GangPhase.RUNNING: GangStage.RUNNING,
    GangPhase.FAILED: GangStage.FAILED,
    GangPhase.FINISHED: GangStage.FINISHED,
}


def stage_of(phase: GangPhase, workload: JSON | None) -> GangStage:
    """Return the stage of a gang with this phase; `workload` counts its quorum, None: it does not exist."""
    if workload is not None and condition_status(workload, names.CONDITION_FINISHED) == "True":
        return GangStage.FINISHED
    if phase in _OF_PHASE:
        return _OF_PHASE[phase]
    return GangStage.GATHERING if workload is None or on_hold(workload) else GangStage.WAITING
