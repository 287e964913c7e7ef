"""The table of a list of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns and the cells of a row; columns of `-o wide` come last."""

    columns: tuple[str, ...]
    row: Callable[[Object, datetime], Sequence[str]]
    """Returns the cells of an object at a time."""
    wide_columns: tuple[str, ...]
    wide_row: Callable[[Object], Sequence[str]]
