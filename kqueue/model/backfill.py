"""Backfill by time, as annotations of ClusterQueues and Cohorts say it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kqueue.api import backfill_names


class BackfillMode(StrEnum):
    """The values of the annotation."""

    TIME = backfill_names.BACKFILL_TIME
    EXPECTED = backfill_names.BACKFILL_EXPECTED
    NONE = backfill_names.BACKFILL_NONE


def parse_backfill(text: str) -> BackfillMode:
    """Parse the value of the annotation.

    Raises:
        ValueError: it is none of the modes; the message quotes it and says what to write.
    """
    try:
        return BackfillMode(text)
    except ValueError:
        raise ValueError(f"{text[:60]!r} must be one of {', '.join(BackfillMode)}") from None


def backfill_mode(annotations: Mapping[str, str]) -> BackfillMode | None:
    """Return what an object says about backfill; None: nothing, or nothing valid."""
    text = annotations.get(backfill_names.BACKFILL_ANNOTATION)
    try:
        return None if text is None else parse_backfill(text)
    except ValueError:
        return None


def backfill_problem(annotations: Mapping[str, str]) -> str:
    """Return the problem of the annotation of an object; empty: it has none, or a valid one."""
    try:
        if (text := annotations.get(backfill_names.BACKFILL_ANNOTATION)) is not None:
            parse_backfill(text)
    except ValueError as e:
        return str(e)
    return ""
