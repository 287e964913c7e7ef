"""The explanation of a gang for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kqueue.cli.explain_page import PageLine, page

JSON = Mapping[str, Any]
_WIDTH = 13
_HEAD = "bold"
_MOST_EXTRAS = 16


def gang_page(gang: JSON) -> Iterator[PageLine]:
    """Yield the lines of a gang, and of the explanation of its Workload while the Workload waits."""
    meta, members = gang["metadata"], gang["members"]
    quorum, present = gang["quorum"], members["present"]
    yield PageLine(
        f"{gang.get('groupKind') or 'Gang'} {meta['namespace']}/{meta['name']}: {gang['phase']}, "
        f"{members['running']} of {quorum} {_pods(quorum)} run; quorum {quorum}, "
        f"{present} {_pods(present)} {_are(present)} there",
        style=_HEAD,
    )
    yield _line("form", gang["framework"])
    yield _line("queue", gang["queue"] or "none is known")
    yield _line("Workload", _workload(gang.get("workload") or {}))
    yield _line("members", _members(gang))
    missing = gang.get("missing") or {}
    if missing:
        yield _line("missing", ", ".join(f"{n} of {_role(role)}" for role, n in missing.items()))
    if gang.get("message"):
        yield _line("reason", _reason(gang))
    if "position" in gang:
        place = gang["position"]
        yield _line(
            "position", f"{place['inClusterQueue']} in its ClusterQueue, {place['inLocalQueue']} in its LocalQueue"
        )
    levels = [f"{kind} {level}" for kind, named in (gang.get("topology") or {}).items() for level in named]
    if levels:
        yield _line("topology", ", ".join(levels))
    if "deadline" in gang:
        yield _line("deadline", _deadline(gang["deadline"]))
    domains = (gang.get("workload") or {}).get("domains") or ()
    if domains:
        yield _line("domains", ", ".join(f"{one['domain']} ({one['pods']})" for one in domains))
    waiting = [one for one in gang.get("extras") or () if one["state"] == "waiting"]
    for one in waiting[:_MOST_EXTRAS]:
        yield _line("extra", f"{one['pod']} waits" + (f": {one['message']}" if one.get("message") else ""))
    if len(waiting) > _MOST_EXTRAS:
        yield _line("extra", f"{len(waiting) - _MOST_EXTRAS} more wait")
    if "explanation" in gang:
        yield PageLine("")
        yield from page(gang["explanation"])


def _reason(gang: JSON) -> str:
    """Return the reason of a wait; without the command for details where these follow."""
    from kqueue.state.waiting import cause_of

    message = cause_of(gang["message"]) if "explanation" in gang else gang["message"]
    return f"{gang['reason']}: {message}" if gang.get("reason") else message


def _line(word: str, text: str) -> PageLine:
    return PageLine(f"{word:<{_WIDTH}}{text}", 1)


def _pods(number: int) -> str:
    return "pod" if number == 1 else "pods"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _role(role: str) -> str:
    return "any role" if role == "(any)" else f"role {role}"


def _workload(workload: JSON) -> str:
    if not workload:
        return "none yet"
    if workload.get("finished"):
        return f"{workload['name']}, finished"
    if "admittedAt" not in workload:
        state = (
            f"quota reserved in ClusterQueue {workload['clusterQueue']}"
            if "clusterQueue" in workload
            else "waits for quota"
        )
        return f"{workload['name']}, {state}"
    flavors = workload.get("flavors") or ()
    on = f", flavor {', '.join(flavors)}" if flavors else ""
    time = workload["admittedAt"].partition("T")[2]
    return f"{workload['name']}, admitted by ClusterQueue {workload['clusterQueue']} at {time}{on}"


def _members(gang: JSON) -> str:
    counts = gang["members"]
    told = ", ".join(f"{counts[name]} {name}" for name in ("released", "scheduled", "running", "succeeded", "failed"))
    stuck = f", {counts['unschedulable']} unschedulable" if counts["unschedulable"] else ""
    waiting = sum(one["state"] == "waiting" for one in gang.get("extras") or ())
    extras = f"; {waiting} {'extra waits' if waiting == 1 else 'extras wait'}" if waiting else ""
    return f"{told}{stuck}{extras}"


def _deadline(deadline: JSON) -> str:
    since = "the admission" if deadline["since"] == "admission" else "the creation"
    source = "the default of gangs.scheduleTimeout" if deadline.get("isAssumed") else "gangs.scheduleTimeout"
    by_default = f", by {source}" if deadline.get("isDefault") else ""
    if "time" not in deadline:
        return f"{deadline['seconds']:g} s after {since}{by_default}"
    state = "reached, the quorum is scheduled" if deadline["reached"] else "the quorum is not scheduled yet"
    return f"{deadline['time'].partition('T')[2]} ({deadline['seconds']:g} s after {since}{by_default}): {state}"
