"""Loads placers and planners of other packages by their entry points, when a process starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from kqueue.errors import ConfigError
from kqueue.jobs import profiles

PLACERS_GROUP = "kqueue.placers"
PLANNERS_GROUP = "kqueue.planners"
"""Groups of entry points; the name of an entry point is the name of its profile."""

_GROUPS = (PLACERS_GROUP, PLANNERS_GROUP)


def allow_profiles(found: Iterable[EntryPoint] | None = None) -> None:
    """Let jobs name the profiles of all installed packages (or of `found`); no package is imported for that."""
    for entry in _entries(found):
        profiles.allow(entry.name)


def load_profiles(found: Iterable[EntryPoint] | None = None) -> list[str]:
    """Register placers and planners of all installed packages (or of `found`) and return their names, sorted.

    Raises ConfigError that names the package when one cannot be loaded, or its name is taken.
    """
    entries = _entries(found)
    for entry in entries:
        kind, register = _kind(entry.group)
        try:
            function = entry.load()
            if not callable(function):
                raise TypeError("it is no function")
            register(entry.name, function)
        except Exception as e:
            package = entry.dist.name if entry.dist is not None else "an installed package"
            raise ConfigError(
                f"{kind} {entry.name} of {package} ({entry.value}) cannot be used: {type(e).__name__}: {e}; "
                "correct or uninstall the package"
            ) from e
    allow_profiles(entries)
    return [entry.name for entry in entries]


def _kind(group: str) -> tuple[str, Callable[[str, Any], None]]:
    """Return the word for entry points of a group, and the function that registers one."""
    from kqueue.core import planners  # imports numpy, which webhooks do not need
    from kqueue.core.topology import placers

    return ("planner", planners.register) if group == PLANNERS_GROUP else ("placer", placers.register)


def _entries(found: Iterable[EntryPoint] | None) -> list[EntryPoint]:
    entries = [entry for group in _GROUPS for entry in entry_points(group=group)] if found is None else found
    return sorted(entries, key=lambda entry: entry.name)
