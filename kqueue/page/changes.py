"""Differences of answers, for readers that have the answer before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import ne
from typing import Any

JSON = dict[str, Any]


def map_change(before: JSON, after: JSON) -> JSON | None:
    """Return what differs between two maps of one Topology: per flavor the changed leaves, with all their columns.

    None: hosts or domains differ, or so many leaves that the whole is as short.
    """
    if [_frame(flavor) for flavor in before["flavors"]] != [_frame(flavor) for flavor in after["flavors"]]:
        return None
    flavors: list[JSON] = []
    for old, new in zip(before["flavors"], after["flavors"], strict=True):
        columns = [column for column in new["leaves"] if column != "name"]
        was, now = ([one["leaves"].get(column) for column in columns] for one in (old, new))
        if None in was:
            return None
        where = _differing(was, now)
        if len(where) * 4 > len(new["leaves"]["name"]):
            return None
        flavors.append(
            {
                "columns": columns,
                "leaf": where,
                "values": list(zip(*([column[leaf] for leaf in where] for column in now), strict=True)),
                "holders": new["holders"],
                "leftOut": new["leftOut"],
            }
        )
    return {"flavors": flavors}


def _differing(was: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]) -> list[int]:
    """Return the places, in their order, at which any column has another value.

    Most columns of a large map are equal as a whole, so they are compared whole first.
    """
    found = set[int]()
    for before, after in zip(was, now, strict=True):
        if before != after:
            found.update(compress(range(len(after)), map(ne, before, after)))
    return sorted(found)


def _frame(flavor: JSON) -> tuple[Any, ...]:
    """Return the parts of a flavor's map that readers know already, unless nodes came or went."""
    return flavor["name"], flavor["resource"], flavor["resources"], flavor["domains"], flavor["leaves"]["name"]


def workloads_change(before: JSON, after: JSON) -> JSON | None:
    """Return the rows that differ between two tables of workloads: the places in the first one of rows that are gone,
    and of changed ones with the new row; then new rows, which are the last ones.

    None: the order of rows is another one, or so many differ that the whole is as short.
    """
    old, new = ({(row["namespace"], row["name"]): row for row in answer["items"]} for answer in (before, after))
    gone = [place for place, key in enumerate(old) if key not in new]
    changed = [(place, new[key]) for place, (key, row) in enumerate(old.items()) if new.get(key, row) != row]
    added = [row for key, row in new.items() if key not in old]
    if (len(gone) + len(added) + len(changed)) * 4 > len(new):
        return None
    if [key for key in old if key in new] + [key for key in new if key not in old] != list(new):
        return None
    return {"gone": gone, "changed": changed, "added": added, "left": after["left"]}
