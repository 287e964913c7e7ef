"""The effects of changed policy, priorities or nodes, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.cli.explain_page import PageLine, section
from kqueue.cli.question_page import BAD, DIM, GOOD, HEAD, framed
from kqueue.cli.start_lines import start_sentences

JSON = Mapping[str, Any]
_LEAVES = {"Drained": "its nodes go", "Stopped": "its queue drains"}
_AGAIN = {
    "Now": "it would start again at once",
    "AfterPreemption": "it would start again after preemption",
    "Later": "it would wait",
    "Never": "it could never start again",
}


def what_if_page(answer: JSON) -> Iterator[PageLine]:
    """Return the lines of the answer."""
    counts = answer["counts"]
    summary = (
        f"{counts['starts']} would start, {counts['evicted']} would be evicted, {counts['startsNoLonger']} would not "
        f"start any more, {counts['neverStarts']} could never start"
    )
    return framed(answer, summary, _parts(answer))


def _parts(answer: JSON) -> Iterator[PageLine]:
    for title, name, style in (
        ("Would start", "starts", GOOD),
        ("Would be evicted", "evicted", BAD),
        ("Would not start any more", "startsNoLonger", BAD),
        ("Could never start", "neverStarts", BAD),
    ):
        lines = [PageLine(_words(one), 1, style) for one in answer[name]]
        yield from section(title, [*lines, *_more(answer["counts"][name] - len(lines))])
    if "startTimes" in answer:
        yield from section("Start times", _times(answer["startTimes"]))
    yield from section("Queues that change", (line for queue in answer["queues"] for line in _queue(queue)))


def _more(number: int) -> Iterator[PageLine]:
    if number > 0:
        yield PageLine(f"and {number} more", 1)


def _times(times: JSON) -> Iterator[PageLine]:
    if not times["known"]:
        yield PageLine(f"not known: {times['message']}", 1, BAD)
        return
    counts, items = times["counts"], times["items"]
    yield PageLine(
        f"{counts['earlier']} would start earlier, {counts['later']} later, {counts['again']} again after they had to "
        f"leave, {counts['neverAgain']} would never start again",
        1,
    )
    if not times["complete"]:
        yield PageLine("not complete: the computation has reached a limit", 1, BAD)
    for one in items:
        yield PageLine(f"{_name(one)}: {_when(one['with'])} instead of {_when(one['without'])}", 1)
    yield from _more(sum(counts.values()) - len(items))
    yield PageLine("if no workload arrives, and nothing else is changed", 1, DIM)


def _when(start: JSON) -> str:
    return next(start_sentences(start), "") if start["known"] else f"no start ({start['message']})"


def _name(one: JSON) -> str:
    name = "a workload of another namespace" if one.get("hidden") else f"{one['namespace']}/{one['name']}"
    return f"{name} (ClusterQueue {one['clusterQueue']})" if "clusterQueue" in one else name


def _words(one: JSON) -> str:
    said = [_AGAIN[one["again"]]] if "again" in one else []
    if "by" in one:
        said.append(f"preempted for {_words(one['by'])}")
    if one.get("preempts"):
        said.append(f"after preemption of {one['preempts']}")
    if one.get("reason") in _LEAVES:
        said.insert(0, _LEAVES[one["reason"]])
    if "message" in one:
        said.append(one["message"])
    return f"{_name(one)}{': ' if said else ''}{'; '.join(said)}"


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
        yield PageLine(queue["clusterQueue"], 1, HEAD)
        yield from lines
