"""The modes of backfill by time."""

from __future__ import annotations

from enum import StrEnum


class BackfillMode(StrEnum):
    """The values of the annotation `kqueue.dev/backfill`."""

    TIME = "time"
    EXPECTED = "expected"
    ENFORCED = "enforced"
    NONE = "none"


def parse_backfill(text: str) -> BackfillMode:
    """Parse the value of the annotation.

    Raises:
        ValueError: it is none of the modes; the message quotes it and says what to write.
    """
    try:
        return BackfillMode(text)
    except ValueError:
        raise ValueError(f"{text[:60]!r} must be one of {', '.join(BackfillMode)}") from None
