"""Queue summaries as rows: waiting workloads, their waiting times, quota and usage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from kqueue.cli.dashboard.amounts import HELD, amount, bar, chosen, short
from kqueue.cli.tables import duration

JSON = Mapping[str, Any]
HEADERS = (
    *("name", "cohort", "status", "pending", "inadmissible", "admitted", "longest wait"),
    *("gangs waiting", "gangs running"),
    *("flavor", "resource", "reserved", "quota", "borrowed"),
)
_OVER = "▓"


class Order(StrEnum):
    """The order of the list of queues."""

    PENDING = "pending"
    WAIT = "wait"
    USED = "used"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """A column of quota of a ClusterQueue.  Rows after a queue's first have no `name`."""

    name: str
    cohort: str
    status: str
    pending: str
    inadmissible: str
    admitted: str
    longest: str
    gangs_waiting: str
    """Gangs that do not run yet: gathering, waiting or starting."""
    gangs_running: str
    flavor: str
    resource: str
    reserved: str
    quota: str
    borrowed: str
    share: str
    bar: str
    is_active: bool

    def cells(self) -> tuple[str, ...]:
        """Return the cells in the order of the headers."""
        return (
            *(self.name, self.cohort, self.status, self.pending, self.inadmissible, self.admitted, self.longest),
            *(self.gangs_waiting, self.gangs_running),
            *(self.flavor, self.resource, self.reserved, self.quota, self.borrowed),
        )


def title(answer: JSON) -> str:
    """Return one line with the sums of all queues."""
    items = answer["items"]
    stopped = sum(not item["active"] for item in items)
    pending = sum(sum(item["pending"].values()) for item in items)
    waits = max((item.get("longestWaitSeconds", -1) for item in items), default=-1)
    parts = [f"{len(items) + answer.get('left', 0)} ClusterQueues", f"{pending} pending"]
    parts.append(f"{sum(item['admitted'] for item in items)} admitted")
    if waits >= 0:
        parts.append(f"longest wait {_wait(waits)}")
    gangs = gang_numbers(items)
    if gangs:
        parts.append(f"gangs: {', '.join(f'{number} {stage}' for stage, number in gangs.items())}")
    if stopped:
        parts.append(f"{stopped} not active")
    return ", ".join(parts)


def gang_numbers(items: Iterable[JSON]) -> dict[str, int]:
    """Return the numbers of gangs of all these queues by stage, without stages that no gang has."""
    found: dict[str, int] = {}
    for item in items:
        for stage, number in (item.get("gangs") or {}).items():
            found[stage] = found.get(stage, 0) + number
    return {stage: number for stage, number in found.items() if number}


_NOT_RUNNING = ("gathering", "waiting", "starting")


def rows(answer: JSON, resources: Sequence[str] = (), order: Order = Order.PENDING) -> list[QueueRow]:
    """Return one or more rows for each ClusterQueue; ties are ordered by name."""
    found: list[QueueRow] = []
    for item in sorted(answer["items"], key=lambda item: (-_ORDERS[order](item), item["metadata"]["name"])):
        shown = chosen((r["resource"] for r in item["resources"]), resources)
        columns = [r for r in item["resources"] if r["resource"] in shown] or [{}]
        found += [_row(item if number == 0 else None, item, column) for number, column in enumerate(columns)]
    return found


def _row(head: JSON | None, item: JSON, column: JSON) -> QueueRow:
    resource = column.get("resource", "")
    reserved, nominal = (amount(column.get(word, "0"), resource) for word in ("reserved", "nominal"))
    borrowed = amount(column.get("borrowed", "0"), resource)
    own = reserved - borrowed
    pending, gangs = item["pending"], item.get("gangs") or {}
    return QueueRow(
        name=item["metadata"]["name"] if head is not None else "",
        cohort=(item["cohort"] or "-") if head is not None else "",
        status=("Active" if item["active"] else item["reason"]) if head is not None else "",
        pending=str(sum(pending.values())) if head is not None else "",
        inadmissible=str(pending["inadmissible"]) if head is not None else "",
        admitted=str(item["admitted"]) if head is not None else "",
        longest=_wait(item.get("longestWaitSeconds", -1)) if head is not None else "",
        gangs_waiting=str(sum(gangs.get(stage, 0) for stage in _NOT_RUNNING)) if head is not None else "",
        gangs_running=str(gangs.get("running", 0)) if head is not None else "",
        flavor=column.get("flavor", ""),
        resource=resource,
        reserved=short(reserved, resource) if column else "",
        quota=short(nominal, resource) if column else "",
        borrowed=short(borrowed, resource) if borrowed else "",
        share=str(item.get("weightedShare", "")) if head is not None else "",
        bar=bar([(own, HELD), (borrowed, _OVER)], max(nominal, reserved)) if column else "",
        is_active=bool(item["active"]),
    )


def _wait(seconds: int) -> str:
    return "-" if seconds < 0 else duration(timedelta(seconds=seconds))


def _used(item: JSON) -> float:
    """Return the highest ratio of usage to quota among the columns."""
    parts = []
    for column in item["resources"]:
        nominal = amount(column["nominal"], column["resource"])
        parts.append(amount(column["reserved"], column["resource"]) / nominal if nominal > 0 else 0.0)
    return max(parts, default=0.0)


_ORDERS: Mapping[Order, Callable[[JSON], float]] = {
    Order.PENDING: lambda item: sum(item["pending"].values()),
    Order.WAIT: lambda item: item.get("longestWaitSeconds", -1),
    Order.USED: _used,
    Order.NAME: lambda _: 0,
}


COHORT_HEADERS = ("cohort", "clusterqueues", "flavor", "resource", "reserved", "quota")


def cohort_rows(answer: JSON, resources: Sequence[str] = ()) -> list[tuple[str, ...]]:
    """Return the tree of cohorts with the sums of usage and quota below each."""
    below: dict[str, list[JSON]] = {}
    for cohort in answer["cohorts"]:
        below.setdefault(cohort["parent"], []).append(cohort)
    found: list[tuple[str, ...]] = []

    def add(parent: str, depth: int) -> None:
        for cohort in sorted(below.pop(parent, ()), key=lambda one: str(one["name"])):
            shown = chosen((r["resource"] for r in cohort["resources"]), resources)
            columns = [r for r in cohort["resources"] if r["resource"] in shown] or [{}]
            for number, column in enumerate(columns):
                head = ("  " * depth + cohort["name"], str(cohort["clusterQueues"])) if number == 0 else ("", "")
                found.append((*head, *_amounts(column)))
            add(cohort["name"], depth + 1)

    add("", 0)
    return found


def _amounts(column: JSON) -> tuple[str, str, str, str]:
    resource = column.get("resource", "")
    if not resource:
        return "", "", "", ""
    held, quota = (short(amount(column[word], resource), resource) for word in ("reserved", "quota"))
    return column["flavor"], resource, held, quota


def local_rows(answer: JSON) -> list[tuple[str, ...]]:
    """Return LocalQueues as (namespace, name, ClusterQueue, pending, admitted)."""
    return [
        (q["namespace"], q["name"], q["clusterQueue"] or "-", str(q["pending"]), str(q["admitted"]))
        for q in answer["localQueues"]
    ]
