"""Durations as Kubernetes writes them: `300ms`, `5m`, `1h30m`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

_UNIT_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = re.compile(r"([0-9]+)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)|\.([0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_WHOLE = re.compile(rf"([-+]?)((?:{_PART.pattern})+)")
_NANOSECONDS_MAX = 2**63 - 1


def parse_duration(text: str) -> timedelta:
    """Parse `text`, to the microsecond (finer digits are cut off).

    Numbers with a unit (ns, us, ms, s, m, h), several in a row, an optional sign in front; `0` alone needs no unit.

    Raises:
        ValueError: not a duration, or longer than 2^63-1 nanoseconds (292 years).

    Source: Go's time.ParseDuration, which Kubernetes' configuration files use.
    """
    if text in {"0", "+0", "-0"}:
        return timedelta(0)
    whole = _WHOLE.fullmatch(text)
    if whole is None:
        raise ValueError("must be a duration such as 300ms, 5m or 1h30m")
    total = sum(_nanoseconds(part) for part in _PART.finditer(whole.group(2)))
    if total > _NANOSECONDS_MAX:
        raise ValueError("must be shorter than 292 years")
    return timedelta(microseconds=(-total if whole.group(1) == "-" else total) // 1000)


def _nanoseconds(part: re.Match[str]) -> int:
    digits, fraction, unit, bare_fraction, bare_unit = part.groups()
    scale = _UNIT_NANOSECONDS[unit or bare_unit]
    behind = (fraction if unit else bare_fraction) or "0"
    whole = int(digits or "0") * scale
    return whole + int(int(behind) * scale // 10 ** len(behind))


def whole_seconds(text: str) -> int:
    """Parse a duration that is not negative, in seconds, rounded up.

    Raises:
        ValueError: no such duration; the message quotes the text and says what to write.
    """
    try:
        duration = parse_duration(text)
    except ValueError as e:
        raise ValueError(f"{text[:60]!r} {e}") from e
    if duration < timedelta(0):
        raise ValueError(f"{text[:60]!r} must not be negative; write 0 or more")
    return -(-duration // timedelta(seconds=1))


def duration_text(value: timedelta) -> str:
    """Return the shortest usual text for `value`, which `parse_duration` reads back: `1h30m`, `2.5s`, `0s`."""
    microseconds = value // timedelta(microseconds=1)
    sign, left = ("-", -microseconds) if microseconds < 0 else ("", microseconds)
    hours, left = divmod(left, 3_600_000_000)
    minutes, left = divmod(left, 60_000_000)
    seconds, fraction = divmod(left, 1_000_000)
    text = (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")
    if seconds or fraction or not text:
        behind = f".{fraction:06d}".rstrip("0") if fraction else ""
        text += f"{seconds}{behind}s"
    return sign + text


def _validated(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError("must be a duration as text, such as 300ms, 5m or 1h30m")
    return parse_duration(value)


def _not_negative(value: object) -> timedelta:
    duration = _validated(value)
    if duration < timedelta(0):
        raise ValueError("must not be negative")
    return duration


_AS_TEXT = PlainSerializer(duration_text, return_type=str)

AnyDuration = Annotated[timedelta, PlainValidator(_validated), _AS_TEXT]
"""A duration field of any sign."""

Duration = Annotated[timedelta, PlainValidator(_not_negative), _AS_TEXT]
"""A duration field that is zero or more."""
