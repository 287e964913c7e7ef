"""Writes an explanation as JSON.  Other workloads are named only for users with the right to read them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from kqueue.clock import utc_text
from kqueue.config.duration import duration_text
from kqueue.core.decision import Admit, Preempt, Wait
from kqueue.core.explain import Blocker, brief, exclusions, sentence
from kqueue.core.quantity import format_quantity
from kqueue.core.topology.result import LevelQuality, Shortage
from kqueue.core.why import (
    ChangeSearch,
    ColumnLook,
    DomainLook,
    FlavorLook,
    Holder,
    LevelLook,
    Look,
    ResourceHolders,
    WhatIf,
    WorkloadsEnd,
    condition_for,
)
from kqueue.core.why.changes import facts
from kqueue.core.workload import Admission, Admitted
from kqueue.visibility.question import JSON

_BLOCKERS_SHOWN = 50
_WORKLOADS_SHOWN = 20
_NODES_SHOWN = 20
SOMEBODY = "a workload of another namespace"


class Audience:
    """The user of an explanation: the namespaces whose Workloads the user may read."""

    def __init__(self, readable: Collection[str]) -> None:
        """`readable` are namespaces."""
        self._readable = frozenset(readable)

    def may_name(self, key: str) -> bool:
        """Whether a workload (namespace/name) may be named."""
        return key.partition("/")[0] in self._readable

    def workload(self, workload: Admitted, **more: Any) -> JSON:
        """Return a workload as JSON, with its name only if the user may read it."""
        if not self.may_name(workload.key):
            return {**more, "hidden": True}
        namespace, _, name = workload.key.partition("/")
        known = {
            "namespace": namespace,
            "name": name,
            "clusterQueue": workload.queue,
            "priority": workload.priority,
            **more,
        }
        return {**known, "leaving": True} if workload.evicted else known

    def brief(self, blockers: Sequence[Blocker]) -> str:
        """Return the root cause as a sentence, without names that the user may not read."""
        return brief(blockers, self._readable.__contains__)

    def text(self, blocker: Blocker) -> str:
        """Return a blocker as a sentence, without names that the user may not read."""
        return sentence(blocker, self._readable.__contains__)


def namespaces_in(look: Look | None, found: Sequence[WhatIf]) -> set[str]:
    """Return namespaces of all workloads that an answer could name."""
    keys: set[str] = set()
    if look is not None:
        keys |= {h.workload.key for held in _all_held(look) for h in held.first}
        if isinstance(look.decision, Preempt):
            keys |= {target.admitted.key for target in look.decision.targets}
        if isinstance(look.decision, Wait):
            keys |= {workload.key for blocker in look.decision.blockers for workload in blocker.workloads}
    for what_if in found:
        keys |= {workload.key for workload in what_if.before or ()}
        if isinstance(what_if.change, WorkloadsEnd):
            keys |= {workload.key for workload in what_if.change.workloads}
    return {key.partition("/")[0] for key in keys}


def _all_held(look: Look) -> Iterator[ResourceHolders]:
    for flavor in look.flavors:
        yield from (column.held for column in flavor.columns if column.held is not None)
        for level in flavor.levels:
            yield from (domain.held for domain in level.best if domain.held is not None)


# --- blockers ----------- ------------------------------------------------------------------------------------------


def blockers(look: Look, queue: str, audience: Audience, joint: Iterable[Blocker] = ()) -> list[JSON]:
    """Return all blockers; the first one is the blocker that a cycle would report, those of rounds are last."""
    return [_blocker(blocker, audience) for blocker in (*look.blockers(queue)[:_BLOCKERS_SHOWN], *joint)]


def _blocker(blocker: Blocker, audience: Audience) -> JSON:
    shown: JSON = {"kind": str(blocker.kind)}
    if blocker.pod_set:
        shown["podSet"] = blocker.pod_set
    if blocker.flavor:
        shown["flavor"] = blocker.flavor
    misfit = blocker.misfit
    if blocker.resource:
        shown["resource"] = blocker.resource
        shown["asked"] = format_quantity(blocker.asked, blocker.resource)
        shown["free"] = format_quantity(blocker.free, blocker.resource)
    elif misfit is not None:
        if misfit.level is not None:
            shown["level"] = misfit.level
        if misfit.best_domain is not None:
            shown["domain"] = list(misfit.best_domain)
        if misfit.shortage is not None:
            shown |= _short(misfit.shortage)
        if misfit.excluded:
            shown["excluded"] = exclusions(misfit)
    if blocker.unusable:
        shown["unusable"] = list(blocker.unusable[:_NODES_SHOWN])
        shown["unusableCount"] = len(blocker.unusable)
    if blocker.never:
        shown["never"] = True
    shown["message"] = audience.text(blocker)
    return shown


def _short(short: Shortage) -> JSON:
    resource = short.resource
    return {
        "resource": resource,
        "asked": format_quantity(short.asked, resource),
        "free": format_quantity(short.free, resource),
        "held": format_quantity(short.held, resource),
    }


def flavors(look: Look, audience: Audience) -> list[JSON]:
    """Return every flavor that was tried."""
    return [_flavor(one, audience) for one in look.flavors]


def _flavor(one: FlavorLook, audience: Audience) -> JSON:
    shown: JSON = {"podSets": list(one.pod_sets), "flavor": one.flavor, "fits": one.fits}
    if one.problem is not None:
        shown["problem"] = sentence(one.problem)
    if one.columns:
        shown["quota"] = [_column(column, audience) for column in one.columns]
    if one.levels:
        shown["levels"] = [_level(level, audience) for level in one.levels]
    return shown


def _column(look: ColumnLook, audience: Audience) -> JSON:
    resource = look.column.resource
    amounts = {"asked": look.asked, "free": look.free, "most": look.most, "nominal": look.nominal, "used": look.used}
    shown: JSON = {"resource": resource}
    shown |= {name: format_quantity(amount, resource) for name, amount in amounts.items()}
    if look.asked > look.free:
        shown["lacking"] = format_quantity(look.asked - look.free, resource)
    if look.held is not None:
        shown["heldBy"] = _held(look.held, audience)
    return shown


def _level(look: LevelLook, audience: Audience) -> JSON:
    return {
        "level": look.level,
        "asked": look.asked,
        "unit": look.unit,
        "domains": look.domains,
        "fit": look.fit,
        "total": look.total,
        "best": [_domain(domain, audience) for domain in look.best],
    }


def _domain(look: DomainLook, audience: Audience) -> JSON:
    shown: JSON = {"domain": list(look.path), "fit": look.fit, "total": look.total}
    if look.short is not None and look.fit < look.total:
        shown["short"] = _short(look.short)
    if look.held is not None and look.fit < look.total:
        shown["heldBy"] = _held(look.held, audience)
    return shown


def _held(held: ResourceHolders, audience: Audience) -> JSON:
    shown: JSON = {
        "resource": held.resource,
        "workloads": [_holder(holder, held.resource, audience) for holder in held.first],
    }
    if held.others:
        shown["others"] = held.others
    if held.foreign:
        shown["foreign"] = format_quantity(held.foreign, held.resource)
    return shown


def _holder(holder: Holder, resource: str, audience: Audience) -> JSON:
    more: JSON = {"amount": format_quantity(holder.amount, resource)}
    if holder.pods:
        more["pods"] = holder.pods
    return audience.workload(holder.workload, **more)


# --- what would be ---------------------------------------------------------------------------------------------------


def decision(look: Look, audience: Audience, now: datetime) -> JSON:
    """Return the decision of a cycle that would try this workload alone now."""
    match look.decision:
        case Admit() as admit:
            return {"outcome": "Admit", **admitted(admit)}
        case Preempt(targets=targets):
            shown = [
                audience.workload(target.admitted, reason=str(target.reason)) for target in targets[:_WORKLOADS_SHOWN]
            ]
            lost = _loss([target.admitted for target in targets], audience, now)
            return {"outcome": "Preempt", "targets": shown, "targetCount": len(targets), **lost}
        case Wait(outcome=outcome, reason=reason, blockers=found, retry_at=at):
            waits = {"outcome": str(outcome), "reason": str(reason), "message": audience.brief(found)}
            return waits if at is None else {**waits, "at": utc_text(at)}
    return {"outcome": "Unknown"}


def preempting(now: JSON) -> str:
    """Return a decision to preempt as part of a sentence."""
    count = now["targetCount"]
    losing = f", losing {now['lost']['message']}" if "lost" in now else ""
    return f"preempting {count} workload{'s' if count != 1 else ''}{losing}"


def _loss(workloads: Iterable[Admitted], audience: Audience, now: datetime) -> JSON:
    """Return the work that preemption of these workloads would lose; empty: none.

    Workloads that the user may not read are left out, because their run time and size are nobody else's business.
    """
    known = [workload for workload in workloads if audience.may_name(workload.key) and not workload.evicted]
    lost = sum(workload.lost(now) for workload in known)
    if not lost:
        return {}
    pods = sum(workload.pods for workload in known)
    each = duration_text(timedelta(seconds=lost // pods))
    text = f"{each} of {pods} pod{'s' if pods != 1 else ''}"
    return {"lost": {"podSeconds": lost, "pods": pods, "message": text}}


def admitted(decision: Admit) -> JSON:
    """Return ClusterQueue and flavors of an admission, and its domains against the fewest possible."""
    return {**_admission(decision.admission), **_qualities([quality.levels for quality in decision.quality])}


def what_if(
    found: WhatIf, audience: Audience, *, also_needed: Sequence[str] = (), commands: Sequence[str] = ()
) -> JSON:
    """Return a change that would let the workload start, and its admission then.

    `also_needed` are sentences about further conditions, `commands` make the change.
    """
    change = found.change
    shown = facts(change)
    if isinstance(change, WorkloadsEnd):
        shown["workloads"] = [audience.workload(workload) for workload in change.workloads[:_WORKLOADS_SHOWN]]
    got: JSON = {"clusterQueue": found.queue, "flavors": {name: list(some) for name, some in found.flavors.items()}}
    lists = {"alsoNeeded": list(also_needed), "commands": list(commands)}
    more: JSON = {name: some for name, some in lists.items() if some}
    return {
        "if": condition_for(change, lambda workload: audience.may_name(workload.key)),
        **more,
        "change": shown,
        "then": {**got, **_qualities(found.quality)},
    }


def search(found: ChangeSearch, *, stopped: bool) -> JSON:
    """Return the extent of the search for changes."""
    shown: JSON = {"complete": not found.unfinished}
    if found.unfinished:
        shown["notSearched"] = found.unfinished
        shown["message"] = (
            f"the search {'was stopped at its time limit' if stopped else 'has not ended'}; not looked at to the end: "
            f"{', '.join(found.unfinished)}"
        )
    return shown


def _admission(admission: Admission) -> JSON:
    flavors_of = {p.name: sorted(set(p.flavors.values())) for p in admission.pod_sets}
    return {"clusterQueue": admission.queue, "flavors": flavors_of}


def _qualities(some: Sequence[Sequence[LevelQuality]]) -> JSON:
    """Return used domains and the fewest possible; one list per search if there are several."""
    shown = [levels(one) for one in some if one]
    return {"placement": shown} if shown else {}


def levels(quality: Sequence[LevelQuality]) -> list[JSON]:
    """Return used domains and the fewest possible, the widest level first."""
    return [
        {"level": one.level, "domains": one.used, "fewestPossible": min(one.used, one.lower_bound)} for one in quality
    ]
