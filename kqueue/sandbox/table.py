"""Rows and columns of `kubectl get`: the answer if a client requests a Table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kqueue.clock import short_span
from kqueue.sandbox.api import Object

TABLE_API_VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Moment:
    """The values that a cell may depend on besides its object."""

    now: datetime


@dataclass(frozen=True, slots=True)
class TableColumn:
    """One column: its head, and the function that reads a cell from an object."""

    name: str
    cell: Callable[[Object, Moment], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0
    """Columns above 0 are shown by `-o wide` only."""
    description: str = ""


def _name(obj: Object, _: Moment) -> str:
    return str(obj["metadata"]["name"])


def age_text(since: str | None, now: datetime) -> str:
    """Return an age in the short form of `kubectl`: `45s`, `3m20s`, `5h`, `12d`."""
    if not since:
        return "<unknown>"
    try:
        begun = datetime.fromisoformat(since)
    except ValueError:
        return "<invalid>"
    return duration_text(int((now - begun).total_seconds()))


def duration_text(seconds: int) -> str:
    """Return a time span in one or two units; the second unit is left out for long spans."""
    return short_span(max(seconds, 0))


def age(obj: Object, moment: Moment) -> str:
    """Return the cell of an AGE column."""
    return age_text(obj["metadata"].get("creationTimestamp"), moment.now)


NAME = TableColumn("Name", _name, format="name", description="Name must be unique within a namespace.")
AGE = TableColumn("Age", age, description="Time since the object was created.")
NAME_AND_AGE = (NAME, AGE)


def definitions(columns: tuple[TableColumn, ...]) -> list[Object]:
    """Return the column definitions of a Table."""
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in columns
    ]


def row(columns: tuple[TableColumn, ...], obj: Object, moment: Moment, include: str) -> Object:
    """Return one row; `include` is the part of the object in it: `Metadata`, `Object` or `None`."""
    out: Object = {"cells": [column.cell(obj, moment) for column in columns]}
    if include == "Object":
        out["object"] = obj
    elif include != "None":
        out["object"] = partial(obj)
    return out


def partial(obj: Object) -> Object:
    """Return an object's metadata as a PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": TABLE_API_VERSION, "metadata": obj["metadata"]}


def partial_list(items: list[Object], metadata: Object) -> Object:
    """Return a PartialObjectMetadataList."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": TABLE_API_VERSION,
        "metadata": metadata,
        "items": items,
    }


def table(columns: tuple[TableColumn, ...], rows: list[Object], *, metadata: Object, heads: bool = True) -> Object:
    """Return a Table."""
    return {
        "kind": "Table",
        "apiVersion": TABLE_API_VERSION,
        "metadata": metadata,
        "columnDefinitions": definitions(columns) if heads else None,
        "rows": rows,
    }
