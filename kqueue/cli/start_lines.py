"""The start time of a waiting workload in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

JSON = Mapping[str, Any]


def start_sentences(start: JSON) -> Iterator[str]:
    """Yield what an explanation's `startTime` says; nothing without one."""
    if not start:
        return
    if "p50" in start and "p90" in start:
        same = start["p50"] == start["p90"]
        yield f"at {start['p50']}" if same else f"between {start['p50']} (p50) and {start['p90']} (p90)"
    elif "p50" in start:
        yield f"at {start['p50']} at the earliest; with longer run times, {start['message']}"
    elif "message" in start:
        yield f"not known: {start['message']}"
    yield from _facts(start)


def planned_sentences(planned: JSON) -> Iterator[str]:
    """Yield what an explanation's `plannedStart` says; nothing without one."""
    if not planned:
        return
    yield f"at {planned['at']} at the latest: others start only if they do not delay it"
    later = planned.get("lastLater")
    if later:
        times = planned["timesLater"]
        yield f"first planned at {planned['first']}; later since then {times} {'time' if times == 1 else 'times'}"
        others = later["workloadCount"] - len(later["workloads"])
        who = _workloads({"workloads": later["workloads"], "others": others}) if later["workloadCount"] else ""
        yield _CAUSES.get(later["cause"], "{}").format(who)


_CAUSES = {
    "Overrun": "last because of a longer run of {}",
    "Passed": "last because of the start of {}, which it does not hold up",
    "LessRoom": "last because quota or hosts are gone",
}


_LEFT_OUT = {
    "AdmissionChecks": "admission checks of the ClusterQueue take",
    "PodsReady": "pods of workloads before it take to become ready (waitForPodsReady.blockAdmission)",
}


def _facts(start: JSON) -> Iterator[str]:
    domains = ["/".join(one["domain"]) for one in start.get("domains") or ()]
    if domains:
        more = f" and {start['moreDomains']} more" if "moreDomains" in start else ""
        yield f"in {', '.join(domains)}{more}"
    for name, verb in (("after", "after the end of"), ("unknown", "without known run time:")):
        if name in start:
            yield f"{verb} {_workloads(start[name])}"
    left_out = [_LEFT_OUT.get(one, one) for one in start.get("leftOut") or ()]
    if left_out:
        yield f"without the time that {' and '.join(left_out)}"
    assumed = start.get("assumptions")
    if assumed:
        sources = [f"{count} {source.lower()}" for source, count in assumed["running"].items()]
        yield f"if {assumed['arrivals']}; run times of running workloads: {', '.join(sources) or 'none'}"


def _workloads(some: JSON) -> str:
    named, others, asked = list(some["workloads"]), some["others"], some.get("asked", 0)
    if asked:
        named.append(f"{asked} of this question")
    if others:
        named.append(f"{others} {'other' if others == 1 else 'others'}")
    return ", ".join(named)
