"""The record of decisions in a controller process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from kqueue.build import build
from kqueue.clock import Clock
from kqueue.manager.controller_manager import ControllerManager
from kqueue.record.recorder import DecisionRecorder
from kqueue.record.ring import RingSettings
from kqueue.record.s3 import S3Settings, S3Store
from kqueue.record.uploader import RecordUploader
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.start_times import StartAnswer, told_starts

_SECOND = timedelta(seconds=1)


def make_recorder(manager: ControllerManager) -> DecisionRecorder | None:
    """Return the recorder of the scheduling loop, which ends its file when the process leads no more; None: off.

    Raises ConfigError: the package that uploads files is missing.
    """
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
    recorder = DecisionRecorder(
        settings, count=manager.metrics.record, now=manager.clock.now, uploader=_make_uploader(manager)
    )

    async def end_with_the_lease() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(recorder.stop)

    manager.background.append(end_with_the_lease)
    return recorder


def _make_uploader(manager: ControllerManager) -> RecordUploader | None:
    """Return what uploads the record's files; None: off."""
    section = manager.config.decision_record
    upload = section.upload
    if not upload.bucket:
        return None
    store = S3Store(
        S3Settings(
            bucket=upload.bucket,
            prefix=f"{upload.prefix.rstrip('/')}/" if upload.prefix else "",
            endpoint=upload.endpoint,
            region=upload.region,
            path_style=upload.path_style,
            timeout=upload.timeout / _SECOND,
        )
    )
    return RecordUploader(
        Path(section.path),
        store,
        interval=upload.interval / _SECOND,
        count=manager.metrics.record,
        now=manager.clock.now,
    )


def recording_answers(
    recorder: DecisionRecorder | None, clock: Clock
) -> Callable[[StartAnswer], Awaitable[None]] | None:
    """Return the function that records the start times of an answer; None: the record is off."""
    if recorder is None:
        return None

    async def record(answer: StartAnswer) -> None:
        pace = RequestPace(clock)
        for told in told_starts(answer):
            await pace.step()
            if told.p50 is not None:
                p90 = (told.p90 - told.at) // _SECOND if told.p90 is not None else None
                recorder.note_start_times(told.at, [(told.uid, (told.p50 - told.at) // _SECOND, p90)])

    return record
