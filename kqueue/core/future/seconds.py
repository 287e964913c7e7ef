"""Seconds that users write as text."""

from __future__ import annotations

MOST_EXPECTED_SECONDS = 365 * 24 * 60 * 60
"""The largest expected run time: a year."""
_MOST_DIGITS = 10
"""The longest text that is read: a number of more digits is above every bound."""


def expected_seconds(text: str) -> int | None:
    """Return an expected run time; None: the text is no whole number from 1 to `MOST_EXPECTED_SECONDS`."""
    found = positive_seconds(text)
    return found if found is not None and found <= MOST_EXPECTED_SECONDS else None


def positive_seconds(text: str) -> int | None:
    """Return the whole number of seconds in the text; None: it is none, is below 1, or has more than ten digits."""
    if not (0 < len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit()):
        return None
    return int(text) or None
