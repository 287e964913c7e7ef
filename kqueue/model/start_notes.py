"""The annotation of a waiting Workload with its start time: JSON with the field names of the view `starttimes`."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from kqueue.clock import api_time, utc_text
from kqueue.core.future.told import ToldStart

_MOST_BYTES = 1024
"""The longest text that is read: kqueue's own texts are much shorter."""


class _Note(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True, rename="camel"):
    p50: str = ""
    p90: str = ""
    reason: str = ""
    message: str = ""
    generated_at: str = ""


def start_note(told: ToldStart) -> str:
    """Return the text of the annotation."""
    return msgspec.json.encode(
        _Note(
            p50=_text(told.p50),
            p90=_text(told.p90),
            reason=told.reason,
            message=told.message,
            generated_at=utc_text(told.at),
        )
    ).decode()


def says_nearly(text: str, told: ToldStart, smallest: timedelta) -> bool:
    """Whether an annotation says what was told, but for changes that are not worth a write.

    Such a change moves a time by less than `smallest`, or by less than a tenth of the time until then.  A text that
    kqueue would not write, which another client may have written, says something else.
    """
    if len(text) > _MOST_BYTES:
        return False
    try:
        note = msgspec.json.decode(text, type=_Note)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return False
    at = api_time(note.generated_at)
    if at is None or at > told.at or (note.reason, note.message) != (told.reason, told.message):
        return False
    pairs = ((note.p50, told.p50), (note.p90, told.p90))
    return all(_is_near(written, now, told.at, smallest) for written, now in pairs)


def _is_near(written: str, now: datetime | None, at: datetime, smallest: timedelta) -> bool:
    if now is None or not written:
        return now is None and not written
    before = api_time(written)
    return before is not None and abs(before - now) <= max(smallest, (now - at) / 10)


def _text(moment: datetime | None) -> str:
    return utc_text(moment) if moment is not None else ""
