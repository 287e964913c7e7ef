"""Labels and annotations under our prefixes that have no meaning: most likely misspelt ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.api import names
from kqueue.config.names import nearest

_PREFIXES = ("kueue.x-k8s.io/", "kqueue.dev/")
KNOWN = frozenset(
    value
    for name, value in vars(names).items()
    if name.endswith(("_LABEL", "_ANNOTATION")) and isinstance(value, str) and value.startswith(_PREFIXES)
)
"""Every key that Kueue or kqueue reads or writes."""
_PASSED_OVER = frozenset({"metadata", "status", "containers", "initContainers", "ephemeralContainers", "volumes"})
"""Parts in which there are no pod templates."""
_DEPTH, _MOST, _LONGEST = 12, 5, 64
"""How deep templates are looked for, how many keys are told, how long a key is compared: users write the objects."""


def unknown_keys(new: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[str]:
    """A warning for each key of the object or of its templates that has no meaning, five at most; none for those that
    the object had before (`old`).
    """
    had = {(path, key) for path, key in _ours(old)} if old is not None else set()
    found = [(path, key) for path, key in _ours(new) if key not in KNOWN and (path, key) not in had]
    return [_warning(path, key) for path, key in found[:_MOST]]


def _warning(path: str, key: str) -> str:
    prefix, _, name = key.partition("/")
    known = [each.partition("/")[2] for each in KNOWN if each.startswith(f"{prefix}/")]
    guess = nearest(name, known) if len(name) <= _LONGEST else ""
    meant = f"; did you mean {prefix}/{guess.removeprefix('; did you mean ')}" if guess else ""
    return f"{path}[{key}]: no such key is known, so it has no effect{meant}"


def _ours(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Path and key of each label and annotation under our prefixes, of the object and of what is in it."""
    if depth > _DEPTH:
        return
    if isinstance(value, Mapping):
        yield from _of_metadata(value.get("metadata"), f"{path}metadata")
        for name, part in value.items():
            if name not in _PASSED_OVER and isinstance(part, Mapping | list):
                yield from _ours(part, f"{path}{name}.", depth + 1)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            if isinstance(part, Mapping):
                yield from _ours(part, f"{path.removesuffix('.')}[{number}].", depth + 1)


def _of_metadata(metadata: object, path: str) -> Iterator[tuple[str, str]]:
    for field in ("labels", "annotations"):
        keys = metadata.get(field) if isinstance(metadata, Mapping) else None
        if isinstance(keys, Mapping):
            yield from ((f"{path}.{field}", key) for key in keys if isinstance(key, str) and key.startswith(_PREFIXES))
