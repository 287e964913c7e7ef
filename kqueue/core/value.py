"""Dataclasses of which every admission creates dozens (`docs/decisions/0012`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(*, slots: bool = True, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Make a dataclass that is frozen for the type checker, but not at run time.

    Setting a field of a frozen dataclass takes three times as long, which was a tenth of the time of an admission.
    """

    def as_value(cls: type[T]) -> type[T]:
        return dataclass(slots=slots, kw_only=kw_only, unsafe_hash=True)(cls)

    return as_value


def made_anew(instance: Any) -> tuple[Any, ...]:
    """Return the value of `__reduce__` for a dataclass that keeps its hash: another process computes its own hash.

    Hashes of strings differ between processes.
    """
    given = {f.name: getattr(instance, f.name) for f in fields(instance) if f.init}
    return _made, (type(instance), given)


def _made(kind: type[T], given: dict[str, Any]) -> T:
    return kind(**given)
