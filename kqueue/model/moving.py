"""Wishes of the user of a running Workload about moves: consent, checkpoints, and the time of a restart.

A value that cannot be read counts as absent, and is a remark; a workload is never moved because of a misspelt word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kqueue.api import move_names, names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.clock import api_time
from kqueue.config.duration import parse_duration
from kqueue.core.joint.movable import Consent
from kqueue.core.lost_work import RESTART_SECONDS, Checkpoints
from kqueue.model.conditions import condition_true, since
from kqueue.model.workloads import is_admitted

_LONGEST = 10**9
"""More seconds than any restart takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWishes:
    """The annotations of one Workload about moves.

    Args:
        checkpoint_age: seconds since its last checkpoint; None: none is known.
        interval: seconds between its checkpoints; None: unknown.
        remarks: the annotations that count as absent, and why.
    """

    consent: Consent = Consent.NEVER
    checkpoint_age: int | None = None
    interval: int | None = None
    restart: int = RESTART_SECONDS
    remarks: tuple[str, ...] = ()

    @property
    def checkpoints(self) -> Checkpoints:
        """The times from which its loss follows."""
        return Checkpoints(age=self.checkpoint_age, interval=self.interval, restart=self.restart)

    def lost(self, running: int) -> int:
        """Return the seconds that each pod loses by a move after so many seconds."""
        return self.checkpoints.lost(running)


def has_move_wishes(meta: ObjectMeta) -> bool:
    """Whether the user of a Workload says anything about moves or checkpoints."""
    return any(name in meta.annotations for name in move_names.MOVE_TRAITS)


def move_wishes(meta: ObjectMeta, queue: ObjectMeta | None, now: datetime) -> MoveWishes:
    """Return the wishes of a Workload; without consent of its own, that of its ClusterQueue counts."""
    remarks: list[str] = []
    of_queue: list[str] = []
    consent = _consent(meta, remarks)
    if consent is None and queue is not None:
        consent = _consent(queue, of_queue)
        remarks += [f"ClusterQueue {queue.name}: {remark}" for remark in of_queue]
    return MoveWishes(
        consent=consent or Consent.NEVER,
        checkpoint_age=_checkpoint_age(meta, now, remarks),
        interval=_interval(meta.annotations, remarks),
        restart=_restart(meta.annotations, remarks),
        remarks=tuple(remarks),
    )


def running_seconds(obj: wire.Workload, now: datetime) -> int | None:
    """Return the seconds since the admission of a Workload; None: it is not admitted, or leaves already."""
    admitted = since(obj, names.CONDITION_ADMITTED) if is_admitted(obj) else None
    if admitted is None or condition_true(obj, names.CONDITION_EVICTED):
        return None
    return max(0, int((now - admitted).total_seconds()))


def _consent(meta: ObjectMeta, remarks: list[str]) -> Consent | None:
    text = meta.annotations.get(move_names.RESCHEDULE_ANNOTATION)
    if text is None:
        return None
    try:
        return Consent(text)
    except ValueError:
        remarks.append(
            _remark(move_names.RESCHEDULE_ANNOTATION, text, f"is none of {', '.join(Consent)}, and means Never")
        )
        return Consent.NEVER


def last_checkpoint(annotations: Mapping[str, str]) -> datetime | None:
    """Return the time of the last checkpoint, perhaps in the future; None: none is known."""
    return api_time(annotations.get(move_names.LAST_CHECKPOINT_ANNOTATION, ""))


def checkpoint_habits(annotations: Mapping[str, str]) -> Checkpoints:
    """Return the interval of checkpoints and the time of a restart; wrong values count as absent."""
    ignored: list[str] = []
    return Checkpoints(interval=_interval(annotations, ignored), restart=_restart(annotations, ignored))


def _checkpoint_age(meta: ObjectMeta, now: datetime, remarks: list[str]) -> int | None:
    text = meta.annotations.get(move_names.LAST_CHECKPOINT_ANNOTATION)
    if text is None:
        return None
    moment = api_time(text)
    if moment is None or moment > now:
        problem = "is no time as in 2026-01-02T15:04:05Z" if moment is None else "is in the future"
        remarks.append(_remark(move_names.LAST_CHECKPOINT_ANNOTATION, text, f"{problem}, and does not count"))
        return None
    return int((now - moment).total_seconds())


def _interval(annotations: Mapping[str, str], remarks: list[str]) -> int | None:
    text = annotations.get(move_names.CHECKPOINT_INTERVAL_ANNOTATION)
    if text is None:
        return None
    try:
        interval = parse_duration(text)
    except ValueError:
        interval = timedelta(0)
    if interval <= timedelta(0):
        problem = "is no duration above 0 such as 30m, and does not count"
        remarks.append(_remark(move_names.CHECKPOINT_INTERVAL_ANNOTATION, text, problem))
        return None
    return -(-interval // timedelta(seconds=1))


def _restart(annotations: Mapping[str, str], remarks: list[str]) -> int:
    text = annotations.get(move_names.RESTART_SECONDS_ANNOTATION)
    if text is None:
        return RESTART_SECONDS
    if text.isascii() and text.isdigit() and len(text) < len(str(_LONGEST)):
        return int(text)
    problem = f"is no whole number of seconds, and counts as {RESTART_SECONDS}"
    remarks.append(_remark(move_names.RESTART_SECONDS_ANNOTATION, text, problem))
    return RESTART_SECONDS


def _remark(annotation: str, text: str, problem: str) -> str:
    return f"metadata.annotations[{annotation}]: {text[:60]!r} {problem}"
