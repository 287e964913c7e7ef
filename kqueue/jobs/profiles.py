"""Placement profiles that jobs may name: kqueue's own, and those of installed packages."""

from __future__ import annotations

from kqueue.api import names

_known = dict.fromkeys(names.PLACEMENT_PROFILES)


def known() -> tuple[str, ...]:
    """Return the names of all profiles, kqueue's own first."""
    return tuple(_known)


def allow(name: str) -> None:
    """Let jobs name another profile; called when a process starts."""
    _known[name] = None
