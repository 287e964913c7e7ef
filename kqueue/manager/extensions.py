"""Parts that other packages bring: placement algorithms, found by their entry points when a process starts."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from kqueue.errors import ConfigError
from kqueue.jobs import profiles

PLACERS_GROUP = "kqueue.placers"
"""Entry points of this group are placers; the name of each is that of its profile."""


def allow_profiles(found: Iterable[EntryPoint] | None = None) -> None:
    """Let jobs name the placers of all installed packages (or of `found`); no package is imported for that."""
    for entry in _entries(found):
        profiles.allow(entry.name)


def load_placers(found: Iterable[EntryPoint] | None = None) -> list[str]:
    """Register the placers of all installed packages (or of `found`) and return their names, sorted.

    Raises ConfigError that names the package when one cannot be loaded, or its name is taken.
    """
    from kqueue.core.topology.placers import register  # brings in numpy, which webhooks do without

    entries = _entries(found)
    for entry in entries:
        try:
            placer = entry.load()
            if not callable(placer):
                raise TypeError("it is no function")
            register(entry.name, placer)
        except Exception as e:
            package = entry.dist.name if entry.dist is not None else "an installed package"
            raise ConfigError(
                f"placer {entry.name} of {package} ({entry.value}) cannot be used: {type(e).__name__}: {e}; "
                "correct or uninstall the package"
            ) from e
    allow_profiles(entries)
    return [entry.name for entry in entries]


def _entries(found: Iterable[EntryPoint] | None) -> list[EntryPoint]:
    entries = entry_points(group=PLACERS_GROUP) if found is None else found
    return sorted(entries, key=lambda entry: entry.name)
