"""The record of decisions in a controller process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kqueue.build import build
from kqueue.manager.controller_manager import ControllerManager
from kqueue.record.recorder import DecisionRecorder
from kqueue.record.ring import RingSettings


def make_recorder(manager: ControllerManager) -> DecisionRecorder | None:
    """Return the recorder of the scheduling loop, which ends its file when the process leads no more; None: off."""
    section = manager.config.decision_record
    if not section.path:
        return None
    settings = RingSettings(
        path=Path(section.path),
        max_bytes=section.max_bytes,
        max_age=section.max_age,
        version=build().version,
        within=manager.config.joint.within,
    )
    recorder = DecisionRecorder(settings, count=manager.metrics.record, now=manager.clock.now)

    async def end_with_the_lease() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(recorder.stop)

    manager.background.append(end_with_the_lease)
    return recorder
