"""Quota of LocalQueues as tables: a heading for each LocalQueue, its amounts, its waiting workloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kqueue.cli.dashboard.amounts import amount, short
from kqueue.cli.output import printable
from kqueue.cli.tables import print_nothing_found, print_table

JSON = Mapping[str, Any]
_AMOUNTS = {
    "quota": "nominal",
    "own": "reserved",
    "in use": "clusterQueueReserved",
    "borrowed": "borrowed",
    "borrowable": "borrowable",
}
"""Field of the answer for each column."""
QUOTA_HEADERS = ("flavor", "resource", *_AMOUNTS)
WAITING_HEADERS = ("waiting", "position", "in clusterqueue", "priority")


def print_quotas(answer: JSON, namespace: str) -> None:
    """Print each LocalQueue of the namespace; names are not cut."""
    if not answer["items"]:
        print_nothing_found(namespace)
        return
    for number, item in enumerate(answer["items"]):
        if number:
            print()
        for line in heading(item):
            print(printable(line))
        if item["resources"]:
            print_table(QUOTA_HEADERS, quota_rows(item))
        if item.get("waiting"):
            print()
            print_table(WAITING_HEADERS, waiting_rows(item))
            more = item["pending"] - len(item["waiting"])
            if more > 0:
                print(f"and {more} more; --limit shows more")
    if answer.get("left"):
        print(f"\nand {answer['left']} more LocalQueues; name one to see it")


def heading(item: JSON) -> list[str]:
    """Return lines with name, counts, share and budgets (if any), and why the LocalQueue is inactive (if it is)."""
    share = f", share {item['weightedShare']}" if "weightedShare" in item else ""
    lines = [
        f"LocalQueue {item['metadata']['name']}, ClusterQueue {item['clusterQueue'] or '(none)'}{share}",
        f"{item['admitted']} admitted, {item['pending']} waiting ({item['clusterQueuePending']} in the ClusterQueue)",
    ]
    lines += [f"budget of {budget['of']}: {budget['message']}" for budget in item.get("budgets", ())]
    return [*lines, f"not active: {item['message']}"] if item.get("active") is False else lines


def quota_rows(item: JSON) -> list[tuple[str, ...]]:
    """Return one row for each flavor and resource."""
    return [
        (column["flavor"], column["resource"], *(_short(column, field) for field in _AMOUNTS.values()))
        for column in item["resources"]
    ]


def _short(column: JSON, field: str) -> str:
    resource = column["resource"]
    return short(amount(column[field], resource), resource)


def waiting_rows(item: JSON) -> list[tuple[str, ...]]:
    """Return one row for each waiting workload, in the order of the LocalQueue."""
    counts = item["pending"], item["clusterQueuePending"]
    return [
        (
            each["name"],
            f"{each['position']} of {counts[0]}",
            f"{each['positionInClusterQueue']} of {counts[1]}",
            str(each["priority"]),
        )
        for each in item["waiting"]
    ]
