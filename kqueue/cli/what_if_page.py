"""The effects of changed quotas, priorities or nodes, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.cli.explain_page import PageLine, as_of, section

JSON = Mapping[str, Any]
_GOOD, _BAD, _HEAD, _DIM = "green", "red", "bold", "dim"
_AGAIN = {
    "Now": "it would start again at once",
    "AfterPreemption": "it would start again after preemption",
    "Later": "it would wait",
    "Never": "it could never start again",
}


def what_if_page(answer: JSON) -> Iterator[PageLine]:
    """Yield the lines of the answer."""
    counts = answer["counts"]
    yield PageLine(
        f"{counts['starts']} would start, {counts['evicted']} would be evicted, {counts['startsNoLonger']} would not "
        f"start any more, {counts['neverStarts']} could never start",
        style=_HEAD,
    )
    if not answer["finished"]:
        yield PageLine(answer["message"], style=_BAD)
    for title, name, style in (
        ("Would start", "starts", _GOOD),
        ("Would be evicted", "evicted", _BAD),
        ("Would not start any more", "startsNoLonger", _BAD),
        ("Could never start", "neverStarts", _BAD),
    ):
        lines = [PageLine(_words(one), 1, style) for one in answer[name]]
        more = counts[name] - len(lines)
        yield from section(title, [*lines, *([PageLine(f"and {more} more", 1)] if more else [])])
    yield from section("Queues that change", (line for queue in answer["queues"] for line in _queue(queue)))
    yield PageLine("")
    yield PageLine(as_of(answer["asOf"]), style=_DIM)


def _words(one: JSON) -> str:
    name = "a workload of another namespace" if one.get("hidden") else f"{one['namespace']}/{one['name']}"
    queue = f" (ClusterQueue {one['clusterQueue']})" if "clusterQueue" in one else ""
    said = [_AGAIN[one["again"]]] if "again" in one else []
    if "by" in one:
        said.append(f"preempted for {_words(one['by'])}")
    if one.get("preempts"):
        said.append(f"after preemption of {one['preempts']}")
    if one.get("reason") == "Drained":
        said.insert(0, "its nodes go")
    if "message" in one:
        said.append(one["message"])
    return f"{name}{queue}{': ' if said else ''}{'; '.join(said)}"


def _queue(queue: JSON) -> Iterator[PageLine]:
    lines = []
    if queue["shareWith"] != queue["shareWithout"]:
        lines.append(PageLine(f"share {queue['shareWith']} instead of {queue['shareWithout']}", 2))
    for one in queue["resources"]:
        is_other_quota, is_other_use = one["nominal"] != one["nominalAfter"], one["usedWith"] != one["usedWithout"]
        if is_other_quota or is_other_use:
            quota = f"quota {one['nominalAfter']}" + (f" instead of {one['nominal']}" if is_other_quota else "")
            used = f"uses {one['usedWith']}" + (f" instead of {one['usedWithout']}" if is_other_use else "")
            lines.append(PageLine(f"{one['resource']} of {one['flavor']}: {quota}, {used}", 2))
    if lines:
        yield PageLine(queue["clusterQueue"], 1, _HEAD)
        yield from lines
