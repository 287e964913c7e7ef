"""An explanation for people: the same lines on a terminal and in a pipe; a terminal highlights some of them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kqueue.cli.output import printable
from kqueue.cli.start_lines import planned_sentences, start_sentences

JSON = Mapping[str, Any]
_INDENT = 2
_GOOD, _BAD, _HEAD, _DIM = "green", "red", "bold", "dim"


@dataclass(frozen=True, slots=True)
class PageLine:
    """A line; text from the cluster is escaped when the line is printed."""

    text: str
    depth: int = 0
    style: str = ""


def print_page(answer: JSON) -> None:
    """Print an explanation to stdout."""
    print_lines(page(answer))


def print_lines(page: Iterable[PageLine]) -> None:
    """Print the lines of a page to stdout."""
    lines = [PageLine(printable(line.text), line.depth, line.style) for line in page]
    if not sys.stdout.isatty():
        print("\n".join(" " * _INDENT * line.depth + line.text for line in lines))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False, emoji=False)
    for line in lines:  # Text: rich never reads names as markup
        console.print(Padding(Text(line.text, style=line.style), (0, 0, 0, _INDENT * line.depth), expand=False))


def page(answer: JSON) -> Iterator[PageLine]:
    """Yield the lines of an explanation."""
    meta = answer["metadata"]
    owner = f" of {answer['owner']}" if answer.get("owner") else ""
    yield PageLine(f"Workload {meta['namespace']}/{meta['name']}{owner}: {answer['state']}", style=_HEAD)
    yield PageLine(answer["summary"])
    pending = answer.get("pending")
    if pending is not None:
        yield from _pending(answer, pending)
    if "running" in answer:
        yield from _running(answer["running"])
    yield from section("Variants", map(_variant, answer.get("variants") or ()))
    yield from section("Joint round", _joint(answer.get("joint") or {}))
    yield from section("Defragmentation plan", _plan(answer.get("defragmentation") or {}))
    yield from section("Not judged", (PageLine(one, 1) for one in answer.get("unjudged") or ()))
    yield from section("Waits for admission checks", map(_check, answer.get("waitsForChecks") or ()))
    yield from section("Other clusters", map(_cluster, answer.get("clusters") or ()))
    if "evictions" in answer:
        yield from section("Evictions", _evictions(answer["evictions"]))
    if "finished" in answer:
        finished = answer["finished"]
        yield from section("Finished", [PageLine(f"{finished['reason']}{_ago(finished)}: {finished['message']}", 1)])
    yield PageLine("")
    yield PageLine(as_of(answer["asOf"]), style=_DIM)


def section(title: str, lines: Iterable[PageLine]) -> Iterator[PageLine]:
    """Yield a title and its lines, or nothing if there are no lines."""
    for number, line in enumerate(lines):
        if not number:
            yield PageLine("")
            yield PageLine(title, style=_HEAD)
        yield line


def _variant(one: JSON) -> PageLine:
    """Return the line about the variant of a parent for one flavor."""
    name = f" ({one['name']})" if "name" in one else ""
    why = f": {one['reason']}: {one['message']}" if "message" in one else ""
    return PageLine(f"{one['flavor']}{name}: {one['state']}{why}", 1, _GOOD if one["state"] == "Running" else "")


def _plan(plan: JSON) -> Iterator[PageLine]:
    if not plan:
        return
    many = f"{plan['moves']} workload{'' if plan['moves'] == 1 else 's'}"
    yield PageLine(
        f"plan {plan['plan']} is {plan['phase']}: it moves {many} at a cost of {plan['podMinutes']} pod-minutes, "
        "to make room for this one",
        1,
        _GOOD,
    )
    yield PageLine(f"run: {plan['show']}", 3)
    if "approve" in plan:
        yield PageLine(f"run: {plan['approve']}", 3)


def _joint(joint: JSON) -> Iterator[PageLine]:
    planning, last = joint.get("planning"), joint.get("last")
    if planning:
        yield PageLine(f"round {planning['number']} is being planned, with {planning['workloads']} workloads", 1)
    if not last:
        return
    verdict, style = ("planned", _GOOD) if last["planned"] else (last.get("message", "waits for a better place"), _BAD)
    yield PageLine(f"round {last['number']}: number {last['rank']} of {last['workloads']}: {verdict}", 1, style)
    plan = last["plan"]
    bound = f" of at most {plan['bound']}, gap {plan['gap']}" if "gap" in plan else ", no bound"
    yield PageLine(
        f"plan {plan['chosen']}, {plan['status']}: {plan['units']} units{bound}; one by one {plan['greedyUnits']}",
        1,
        _DIM,
    )
    if "staticNodes" in plan:
        yield PageLine(f"reservations counted on {plan['staticNodes']} nodes without samples of their use", 1, _DIM)


# --- waiting ---------------------------------------------------------------------------------------------------------


def _pending(answer: JSON, pending: JSON) -> Iterator[PageLine]:
    yield from section("Queue", _queue(answer, pending))
    held = (line for one in pending.get("heldBackBy") or () for line in held_back_lines(one))
    yield from section("Held back by", held)
    planned = planned_sentences(answer.get("plannedStart") or {})
    yield from section("Planned start", (PageLine(one, 1) for one in planned))
    yield from section("Start", (PageLine(one, 1) for one in start_sentences(pending.get("startTime") or {})))
    yield from section("Now", _now(pending.get("now") or {}))
    blockers, flavors = pending.get("blockers") or (), pending.get("flavors") or ()
    shown = {one["flavor"] for one in flavors}
    others = [one for one in blockers if one.get("flavor") not in shown]
    yield from section("In its way", (PageLine(f"{n}. {one['message']}", 1) for n, one in enumerate(others, start=1)))
    yield from section("Flavors", (line for one in flavors for line in flavor_lines(one, blockers)))
    yield from section("It would start if", what_if_lines(pending))


def _queue(answer: JSON, pending: JSON) -> Iterator[PageLine]:
    behind = f", of ClusterQueue {pending['clusterQueue']}" if pending.get("clusterQueue") else ""
    yield PageLine(f"LocalQueue {answer['localQueue'] or '(none)'}{behind}", 1)
    place = pending.get("position")
    if place:
        line = f"; {place['line']}" if place.get("line") else ""
        yield PageLine(
            f"number {place['place']} of {place['of']} by {place['order']}{line} "
            f"(number {place['placeInLocalQueue']} of {place['ofInLocalQueue']} in its LocalQueue)",
            1,
        )
        for budget in place.get("budgets") or ():
            yield PageLine(f"budget of {budget['of']}: {budget['message']}", 1)
    tried = pending.get("lastTried")
    if tried and tried["known"]:
        equal = ", by an equal workload" if tried.get("byEqual") else ""
        changes = tried["changesSince"]
        since = f"{changes} change{'s' if changes != 1 else ''} since" if changes else "nothing has changed since"
        yield PageLine(f"tried {tried['secondsAgo']} s ago{equal}: {tried['reason']}; {since}", 1)
    elif tried:
        yield PageLine(tried["message"], 1)
    told = answer.get("told")
    if told and told["reason"] != (pending.get("now") or {}).get("reason"):
        yield PageLine(f"its status says{_ago(told)}: {told['reason']}: {told['message']}", 1, _DIM)


def held_back_lines(one: JSON) -> Iterator[PageLine]:
    """Yield a reason why no cycle tries a workload, with the command that removes it."""
    yield PageLine(f"{one['kind']}: {one['message']}", 1, _BAD)
    if one.get("command"):
        yield PageLine(f"run: {one['command']}", 2)


def _now(now: JSON) -> Iterator[PageLine]:
    if "at" in now:
        yield PageLine(f"a workload that is safe from preemption now may be preempted for it from {now['at']} on", 1)
    match now.get("outcome"):
        case "Admit":
            yield PageLine(f"it fits: {placement_words(now)}", 1, _GOOD)
        case "Preempt":
            losing = f", losing {now['lost']['message']}" if "lost" in now else ""
            yield PageLine(f"it would preempt {now['targetCount']}{losing}:", 1)
            for target in now["targets"]:
                yield PageLine(f"{workload_words(target)} ({target['reason']})", 2)


def flavor_lines(one: JSON, blockers: Sequence[JSON]) -> Iterator[PageLine]:
    """Yield what a flavor has and lacks; `blockers` are those of all flavors."""
    verdict, style = ("fits", _GOOD) if one["fits"] else ("does not fit", _BAD)
    yield PageLine(f"{one['flavor']} for pod set {', '.join(one['podSets'])}: {verdict}", 1, style)
    if "problem" in one:
        yield PageLine(one["problem"], 2)
    quota = one.get("quota") or ()
    for column in quota:
        if "lacking" in column:
            yield PageLine(
                f"quota of {column['resource']}: asked {column['asked']}, free {column['free']}; the queue uses "
                f"{column['used']} of its own {column['nominal']}, and could get {column['most']} at most",
                2,
            )
            yield from _held(column.get("heldBy"))
    if quota and not any("lacking" in column for column in quota):
        yield PageLine("quota is there", 2, _GOOD)
    yield from _topology(one, blockers)
    for level in one.get("levels") or ():
        asked = " (asked for)" if level["asked"] else ""
        yield PageLine(
            f"level {level['level']}{asked}: room for {level['fit']} {level['unit']}s in all {level['domains']} "
            f"domains together, {level['total']} are asked for; the best are",
            2,
        )
        for domain in level["best"]:
            yield from _domain(domain)


def _topology(one: JSON, blockers: Sequence[JSON]) -> Iterator[PageLine]:
    """Yield facts beside the levels: nodes that are left out, and the whole sentence if there are no levels."""
    for blocker in blockers:
        if blocker["kind"] != "Topology" or blocker.get("flavor") != one["flavor"]:
            continue
        if blocker.get("podSet") not in one["podSets"]:
            continue
        if not one.get("levels"):
            yield PageLine(blocker["message"], 2)
            continue
        if blocker.get("never"):
            yield PageLine("it would not fit with no workload running either", 2, _BAD)
        if blocker.get("excluded"):
            yield PageLine(f"nodes that cannot hold one pod: {blocker['excluded']}", 2)
        if blocker.get("unusable"):
            more = blocker["unusableCount"] - len(blocker["unusable"])
            rest = f" and {more} more" if more else ""
            yield PageLine(f"cordoned or not ready: {', '.join(blocker['unusable'])}{rest}", 2)


def _domain(domain: JSON) -> Iterator[PageLine]:
    short = domain.get("short")
    lacking = ""
    if short:
        what = "places for pods, in use or reserved" if short["resource"] == "pods" else short["resource"]
        lacking = f"; short of {what}: asked {short['asked']}, free {short['free']}"
    yield PageLine(f"{'/'.join(domain['domain'])}: room for {domain['fit']}{lacking}", 3)
    yield from _held(domain.get("heldBy"), 4)


def _held(held: JSON | None, depth: int = 3) -> Iterator[PageLine]:
    if not held:
        return
    parts = [f"{workload_words(one)} {one['amount']}" for one in held["workloads"]]
    if held.get("others"):
        parts.append(f"{held['others']} more")
    if held.get("foreign"):
        parts.append(f"pods that are not placed by topology {held['foreign']}")
    if parts:
        yield PageLine(f"held by {', '.join(parts)}", depth, _DIM)


def what_if_lines(pending: JSON) -> Iterator[PageLine]:
    """Yield the changes with which a workload would start, and how far the search for them went."""
    for number, one in enumerate(pending.get("wouldStartIf") or (), start=1):
        yield PageLine(f"{number}. {one['if']}", 1, _GOOD)
        yield from (PageLine(f"also needed: {needed}", 3, _BAD) for needed in one.get("alsoNeeded") or ())
        yield from (PageLine(f"run: {command}", 3) for command in one.get("commands") or ())
        yield PageLine(f"then: {placement_words(one['then'])}", 3, _DIM)
    search = pending.get("search")
    if search and not search["complete"]:
        yield PageLine(search["message"], 1, _BAD)
    elif search and not pending.get("wouldStartIf") and (pending.get("now") or {}).get("outcome") != "Admit":
        yield PageLine("no change was found that would be enough: nodes that come back, another topology request,", 1)
        yield PageLine("another queue, fewer pods, the end of others, more quota", 1)


def placement_words(then: JSON) -> str:
    """Return ClusterQueue, flavors and domains of an admission as part of a sentence."""
    flavors = ", ".join(f"{name} on {'+'.join(some)}" for name, some in then["flavors"].items())
    places = [f"{one['domains']} of {one['level']}" for levels in then.get("placement") or () for one in levels]
    where = f", in {', '.join(places)}" if places else ""
    return f"ClusterQueue {then['clusterQueue']}, {flavors}{where}"


# --- running, evicted ------------------------------------------------------------------------------------------------


def _running(running: JSON) -> Iterator[PageLine]:
    since = f" since {running['admittedAt']}" if running.get("admittedAt") else ""
    lines = [PageLine(f"admitted by ClusterQueue {running['clusterQueue'] or '(none)'}{since}", 1)]
    if "problem" in running:
        lines.append(PageLine(running["problem"], 1, _BAD))
    if running.get("podsReady") is False:
        lines.append(PageLine("its pods are not all ready", 1, _BAD))
    if running.get("failedNodes"):
        lines.append(PageLine(f"nodes that failed under it: {', '.join(running['failedNodes'])}", 1, _BAD))
    lines += _not_running(running.get("podsNotRunning"))
    for pod_set in running["podSets"]:
        lines += _pod_set(pod_set)
    for one in running.get("borrows") or ():
        lines.append(
            PageLine(
                f"borrows: its queue uses {one['usedByQueue']} {one['resource']} of {one['flavor']}, "
                f"{one['borrowedByQueue']} more than its own {one['nominal']}, from {one['from']}",
                1,
            )
        )
    yield from section("Runs", lines)


def _not_running(pods: JSON | None) -> Iterator[PageLine]:
    if pods is None:
        return
    named = ", ".join(pods["pods"]) + (", ..." if pods["count"] > len(pods["pods"]) else "")
    do = "pod does" if pods["count"] == 1 else "pods do"
    yield PageLine(f"{pods['count']} {do} not run since {pods['time']}: {named}", 1, _BAD)
    for one in pods["sentences"]:
        yield PageLine(f"the scheduler says of {one['pods']}: {one['message']}", 2, _BAD)


def _pod_set(pod_set: JSON) -> Iterator[PageLine]:
    flavors = ", ".join(dict.fromkeys(pod_set["flavors"].values())) or "no flavor"
    pods = f"{pod_set['count']} pod{'s' if pod_set['count'] != 1 else ''}"
    yield PageLine(f"pod set {pod_set['name']}: {pods} on {flavors}", 1)
    placement = pod_set.get("placement")
    if not placement:
        return
    for level in placement["levels"]:
        used, fewest = level["domains"], level["fewestPossible"]
        could = "as few as possible" if used <= fewest else f"{fewest} would do now"
        yield PageLine(f"level {level['level']}: {used} domain{'s' if used != 1 else ''}, {could}", 2)
    for domain in placement.get("domains") or ():
        yield PageLine(f"{'/'.join(domain['domain'])}: {domain['pods']}", 3)
    if placement.get("moreDomains"):
        yield PageLine(f"and {placement['moreDomains']} more domains", 3)
    if placement.get("lost"):
        hosts = ", ".join(placement.get("lostHosts") or ())
        named = f": {hosts}" if hosts else ""
        yield PageLine(f"{_pods_on_hosts(placement['lost'])} no part of the topology now{named}", 2, _BAD)


def _pods_on_hosts(pods: int) -> str:
    return "1 pod is on a host that is" if pods == 1 else f"{pods} pods are on hosts that are"


def _evictions(evictions: JSON) -> Iterator[PageLine]:
    if evictions.get("current"):
        rule = f" by rule {evictions['rule']}" if evictions.get("rule") else ""
        yield PageLine(f"evicted{_ago(evictions)}: {evictions['reason']}{rule}: {evictions['message']}", 1)
    elif "message" in evictions:
        again = evictions.get("reservedAgainSecondsAgo")
        ago = f" {again} s ago" if again is not None else ""
        yield PageLine(f"evicted before it got quota again{ago}: {evictions['message']}", 1)
    if evictions.get("returns"):
        yield PageLine(evictions["returns"], 1)
    counts: Sequence[JSON] = evictions.get("counts") or ()
    if counts:
        yield PageLine("so far: " + ", ".join(f"{one['reason']} {_times(one['count'])}" for one in counts), 1, _DIM)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _check(check: JSON) -> PageLine:
    said = f": {check['message']}" if check["message"] else ""
    return PageLine(f"{check['name']} is {check['state']}{said}", 1)


def _cluster(one: JSON) -> PageLine:
    """Return the line about what a worker cluster says."""
    start, said = one["start"], one["message"]
    words = {
        "Now": "it would start now",
        "AfterPreemption": f"it would start after the preemption of {_named(one) if 'preempts' in one else 'others'}",
        "Later": f"it would start {'from ' + one['at'] + ' on' if 'at' in one else 'later, at an unknown time'}",
        "Never": "it can never start",
    }.get(start, "unknown when it would start")
    if "level" in one and start == "Now":
        words += f", in {one['domains']} of {one['level']} ({one['fewestDomains']} at best)"
    words += ", with borrowed quota" if one.get("borrows") else ""
    words += f", after {one['waitingAhead']} ahead of it" if "waitingAhead" in one else ""
    why = f": {said}" if said and start in ("Later", "Never", "Unknown") else ""
    sent = " (has a copy)" if one.get("sent") else ""
    return PageLine(f"{one['cluster']}{sent}: {words}{why}", 1, _GOOD if start == "Now" else "")


def _named(one: JSON) -> str:
    """Return the workloads that would be preempted: some by name, the others by number."""
    shown, count = list(one.get("preempted") or ()), one["preempts"]
    if not shown:
        return f"{count} workload{'s' if count != 1 else ''}"
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return f"{', '.join(shown)}{more}"


def workload_words(one: JSON) -> str:
    """Return a workload as part of a sentence, without its name if the user may not read it."""
    if one.get("hidden"):
        return "a workload of another namespace"
    leaving = ", leaving" if one.get("leaving") else ""
    return f"{one['namespace']}/{one['name']} (ClusterQueue {one['clusterQueue']}, priority {one['priority']}{leaving})"


def _ago(part: JSON) -> str:
    return f" {part['secondsAgo']} s ago" if "secondsAgo" in part else ""


def as_of(seen: JSON) -> str:
    """Return the origin of an answer as one line."""
    if seen.get("source") == "status":
        return f"read from the Workload's status at {seen['time']}; no controller was asked"
    leads = "the replica that decides" if seen["leading"] else "a replica that does not decide"
    return f"as of {seen['time']}, answered by {leads}"
