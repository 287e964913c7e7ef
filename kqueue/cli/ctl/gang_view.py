"""Rows of gangs in lists."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kqueue.cli.ctl.table import Table
from kqueue.cli.tables import age

Object = Mapping[str, Any]


def _row(gang: Object, now: datetime) -> list[str]:
    meta, members = gang["metadata"], gang["members"]
    counts = [str(members[name]) for name in ("present", "running", "succeeded", "failed")]
    born = age(meta.get("creationTimestamp"), now)
    head = [meta["namespace"], meta["name"], gang["framework"], gang["phase"], str(gang["quorum"])]
    return [*head, *counts, gang["queue"], born]


def _more(gang: Object) -> list[str]:
    place = (gang.get("position") or {}).get("inLocalQueue", "")
    return [str(place), (gang.get("workload") or {}).get("name", ""), gang.get("message", "")]


GANGS = Table(
    columns=(
        *("Namespace", "Name", "Dialect", "Phase", "Quorum"),
        *("Present", "Running", "Succeeded", "Failed", "Queue", "Age"),
    ),
    row=_row,
    wide_columns=("Position in queue", "Workload", "Why"),
    wide_row=_more,
)
