"""A simulation for people: one line for each workload, then the details of those that do not start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.cli.explain_page import (
    PageLine,
    flavor_lines,
    held_back_lines,
    placement_words,
    section,
    what_if_lines,
    workload_words,
)
from kqueue.cli.question_page import BAD, GOOD, HEAD, framed
from kqueue.cli.start_lines import start_sentences

JSON = Mapping[str, Any]
_WORDS = {
    "Now": "starts now",
    "AfterPreemption": "starts after preemption",
    "Later": "waits",
    "Never": "can never start",
    "NotPlanned": "not planned",
}


def simulate_page(answer: JSON) -> Iterator[PageLine]:
    """Return the lines of a simulation."""
    return framed(answer, answer["summary"], _parts(answer))


def _parts(answer: JSON) -> Iterator[PageLine]:
    yield PageLine("")
    for one in answer["workloads"]:
        for run in one["results"]:
            yield PageLine(_line(one, run), 1, GOOD if _starts(run) else BAD)
    for one in answer["workloads"]:
        for run in one["results"]:
            yield from _details(one, run)


def _starts(run: JSON) -> bool:
    return run["start"] in ("Now", "AfterPreemption")


def _line(one: JSON, run: JSON) -> str:
    """Return a workload in one line."""
    copies = f" ({run['copies']} of {one['copies']} copies)" if one["copies"] > 1 else ""
    said = _WORDS[run["start"]]
    if run["start"] == "Now":
        said += f": {placement_words(run['then'])}"
        if run.get("borrows"):
            said += f", borrowing {', '.join(_amount(each) for each in run['borrows'])}"
    elif run["start"] == "AfterPreemption":
        said += f" of {run['preempts']} workload{'s' if run['preempts'] != 1 else ''}"
    elif "message" in run:
        said += f": {run['message']}"
    when = next(start_sentences(run.get("startTime") or {}), "")
    said += f"; start {when}" if when else ""
    return f"{one['object']}{copies} {said}"


def _amount(borrowed: JSON) -> str:
    return f"{borrowed['amount']} {borrowed['resource']} of {borrowed['flavor']}"


def _details(one: JSON, run: JSON) -> Iterator[PageLine]:
    """Yield where a workload starts or whom it preempts; of one that waits, all that is in its way."""
    copy = " (the first copy)" if run["copies"] > 1 else ""
    if run["start"] == "Now":
        lines = (line for pod_set in run["podSets"] for line in _pod_set(pod_set))
        yield from section(f"{one['object']} starts{copy}", lines)
    elif run["start"] == "AfterPreemption":
        victims = [PageLine(f"{workload_words(each)} ({each['reason']})", 1) for each in run["preempted"]]
        more = run["preempts"] - len(victims)
        victims += [PageLine(f"and {more} more", 1)] if more else []
        yield from section(f"{one['object']} preempts{copy}", victims)
    elif run["start"] != "NotPlanned":
        yield from section(f"{one['object']} {_WORDS[run['start']]}{copy}", _waits(one, run))


def _pod_set(pod_set: JSON) -> Iterator[PageLine]:
    flavors = ", ".join(dict.fromkeys(pod_set["flavors"].values())) or "no flavor"
    pods = f"{pod_set['count']} pod{'s' if pod_set['count'] != 1 else ''}"
    yield PageLine(f"pod set {pod_set['name']}: {pods} on {flavors}", 1)
    for domain in pod_set.get("domains") or ():
        yield PageLine(f"{'/'.join(domain['domain'])}: {domain['pods']}", 2)
    if pod_set.get("moreDomains"):
        yield PageLine(f"and {pod_set['moreDomains']} more domains", 2)


def _waits(one: JSON, run: JSON) -> Iterator[PageLine]:
    yield PageLine(f"LocalQueue {one['localQueue'] or '(none)'}, ClusterQueue {one['clusterQueue'] or '(none)'}", 1)
    if one["waitingAhead"]:
        yield PageLine(f"{one['waitingAhead']} workloads of the ClusterQueue are tried before it", 1)
    for sentence in start_sentences(run.get("startTime") or {}):
        yield PageLine(f"start {sentence}" if sentence.startswith(("at ", "between ", "not known")) else sentence, 1)
    for held in one.get("heldBackBy") or ():
        yield from held_back_lines(held)
    blockers, flavors = run.get("blockers") or (), run.get("flavors") or ()
    shown = {each["flavor"] for each in flavors}
    for blocker in (each for each in blockers if each.get("flavor") not in shown):
        yield PageLine(blocker["message"], 1, BAD)
    for flavor in flavors:
        yield from flavor_lines(flavor, blockers)
    if run.get("wouldStartIf"):
        yield PageLine("It would start if", 1, HEAD)
    yield from (PageLine(line.text, line.depth + 1, line.style) for line in what_if_lines(run))
