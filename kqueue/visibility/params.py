"""Checked parameters of a question: a value that cannot be parsed is refused with the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from kqueue.errors import ConfigError

_EVERYWHERE = frozenset(
    {"watch", "pretty", "timeoutSeconds", "timeout", "includeObject", "resourceVersion", "continue"}
)
"""Parameters that clients send to any resource, and that have no effect here."""
_SHOWN = 60
"""Characters of a wrong value in an error message."""


def whole(params: Mapping[str, str], name: str, *, default: int, most: int) -> int:
    """Return a whole number from 1 to `most`.

    Raises:
        ConfigError: the value is no such number.
    """
    text = params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and 1 <= int(text) <= most):
        raise ConfigError(f"{name}={text[:_SHOWN]!r} must be a whole number from 1 to {most}")
    return int(text)


def only(params: Mapping[str, str], *known: str) -> None:
    """Refuse unknown parameters: a misspelled parameter would otherwise be ignored.

    Raises:
        ConfigError: a parameter is unknown.
    """
    for name in params:
        if name not in known and name not in _EVERYWHERE:
            raise ConfigError(f"{name[:_SHOWN]!r} is no parameter here; known are {', '.join(known)}")
