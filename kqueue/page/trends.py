"""The memory of the page: numbers of queues, free room and placements, each at the same times.

The memory is bounded: the oldest points go first, and series beyond the limit are not kept.  Fractions are thousandths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from kqueue.core.quantity import parse_quantity

JSON = dict[str, Any]
MOST_POINTS = 2880
"""A day of points, one every 30 seconds."""
MOST_SERIES = 300
_Key = tuple[str, str, str]
"""The measured number, the name of its object, and the resource of an amount (empty: it is no amount)."""
_NONE = 1000


class Trends:
    """Series of numbers with common times; None where a series has no number at a time."""

    def __init__(self, *, points: int = MOST_POINTS, series: int = MOST_SERIES) -> None:
        self._points, self._most = points, series
        self._times: list[int] = []
        self._series: dict[_Key, list[int | None]] = {}
        self._left = 0

    def add(self, time: int, queues: JSON | None, maps: Mapping[str, JSON]) -> None:
        """Take a point of all series.

        Args:
            time: seconds since 1970; a time that is not later than the last point adds nothing.
            queues: QueueSummaryList; None: there is none.
            maps: TopologyMap of each Topology that was read.
        """
        if self._times and time <= self._times[-1]:
            return
        found = dict(_of_queues(queues or {}))
        for name, topology in maps.items():
            found.update(_of_map(name, topology))
        before = len(self._times)
        self._times.append(time)
        for values in self._series.values():
            values.append(None)
        self._left = 0
        for key, value in found.items():
            series = self._series.get(key)
            if series is None and len(self._series) < self._most:
                series = self._series[key] = [None] * (before + 1)
            if series is None:
                self._left += 1
            else:
                series[-1] = value
        if len(self._times) > self._points:
            del self._times[0]
            for values in self._series.values():
                del values[0]
        for key in [key for key, values in self._series.items() if not any(value is not None for value in values)]:
            del self._series[key]

    def answer(self) -> JSON:
        """Return all series; the answer stays as it is when points are added."""
        return {
            "time": list(self._times),
            "series": [
                {"of": of, "name": name, "resource": resource, "values": list(values)}
                for (of, name, resource), values in self._series.items()
            ],
            "left": self._left,
        }


def trends_change(before: JSON, after: JSON) -> JSON | None:
    """Return the points that were added and the number of dropped ones; None: there are other series."""
    frames = [[(one["of"], one["name"], one["resource"]) for one in answer["series"]] for answer in (before, after)]
    if frames[0] != frames[1] or not before["time"]:
        return None
    added = sum(time > before["time"][-1] for time in after["time"])
    return {
        "time": after["time"][len(after["time"]) - added :],
        "values": [one["values"][len(one["values"]) - added :] for one in after["series"]],
        "dropped": len(before["time"]) + added - len(after["time"]),
        "left": after["left"],
    }


def _of_queues(answer: JSON) -> Iterator[tuple[_Key, int]]:
    """Yield the numbers of each ClusterQueue, those with most workloads first: they get the places in the memory."""
    items = sorted(answer.get("items", ()), key=lambda one: -(_waiting(one) + one["admitted"]))
    for item in items:
        name = item["metadata"]["name"]
        yield ("waiting", name, ""), _waiting(item)
        yield ("wait", name, ""), item.get("longestWaitSeconds", 0)
        used: dict[str, int] = {}
        for amount in item["resources"]:
            resource = amount["resource"]
            used[resource] = used.get(resource, 0) + parse_quantity(amount["reserved"], resource)
        for resource, reserved in used.items():
            yield ("reserved", name, resource), reserved


def _waiting(item: JSON) -> int:
    return int(item["pending"]["active"] + item["pending"]["inadmissible"])


def _of_map(name: str, topology: JSON) -> Iterator[tuple[_Key, int]]:
    for flavor in topology["flavors"]:
        of = f"{name}/{flavor['name']}"
        if flavor["domains"]:
            yield ("fragmentation", of, ""), fragmentation(flavor)
            yield ("spread", of, ""), spread(flavor)


def fragmentation(flavor: JSON) -> int:
    """Return the fraction of the free amount that lies in domains above the hosts which are partly used, in
    thousandths, as the metric `kqueue_fragmentation_ratio`; 0: nothing is free.
    """
    leaves, count = flavor["leaves"], len(flavor["domains"][-1]["name"])
    free, used = [0] * count, [False] * count
    for domain, amount, held, foreign in zip(
        leaves["domain"], leaves["free"], leaves["held"], leaves["foreign"], strict=True
    ):
        free[domain] += amount
        used[domain] = used[domain] or held > 0 or foreign > 0
    whole = sum(free)
    partly = sum(amount for amount, is_used in zip(free, used, strict=True) if is_used)
    return _NONE * partly // whole if whole else 0


def spread(flavor: JSON) -> int:
    """Return the domains above the hosts that workloads use, divided by the fewest that have as many hosts, in
    thousandths: 1000 is the best.  Workloads with one host do not count; 1000: there are no others.
    """
    leaves = flavor["leaves"]
    hosts, domains = dict[int, int](), dict[int, set[int]]()
    for holder, domain in zip(leaves["holder"], leaves["domain"], strict=True):
        if holder >= 0:
            hosts[holder] = hosts.get(holder, 0) + 1
            domains.setdefault(holder, set()).add(domain)
    sizes = [0] * len(flavor["domains"][-1]["name"])
    for domain in leaves["domain"]:
        sizes[domain] += 1
    room = list(accumulate(sorted(sizes, reverse=True)))
    used = fewest = 0
    for holder, count in hosts.items():
        if count > 1:
            used += len(domains[holder])
            fewest += _fewest(room, count)
    return _NONE * used // fewest if fewest else _NONE


def _fewest(room: Sequence[int], count: int) -> int:
    return next(number for number, hosts in enumerate(room, start=1) if hosts >= count)
