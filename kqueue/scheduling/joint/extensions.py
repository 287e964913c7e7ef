"""Loads policies of joint placement of other packages by their entry points, when a process starts."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from kqueue.errors import ConfigError
from kqueue.isolation import isolated

GROUP = "kqueue.joint_policies"
"""The group of entry points; the name of an entry point is the name of its policy."""


def load_policies(found: Iterable[EntryPoint] | None = None) -> list[str]:
    """Register the policies of all installed packages (or of `found`), and return their names, sorted.

    Raises ConfigError that names the package when one cannot be loaded, or its name is taken.
    """
    entries = sorted(entry_points(group=GROUP) if found is None else found, key=lambda entry: entry.name)
    for entry in entries:
        from kqueue.core.joint import registry  # with numpy, which a process that only reviews objects does not need

        with isolated() as loading:
            registry.register_foreign(entry.name, entry.load())
        if loading.error is not None:
            package = entry.dist.name if entry.dist is not None else "an installed package"
            raise ConfigError(
                f"policy {entry.name} of {package} ({entry.value}) cannot be used: "
                f"{type(loading.error).__name__}: {loading.error}; correct or uninstall the package"
            ) from loading.error
    return [entry.name for entry in entries]
