"""Readers of API objects that use no code of the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from kqueue.api import names
from kqueue.sandbox.amount import amount
from kqueue.sandbox.api import Object
from tests.sim.history import admission_of
from tests.sim.objects import WORKLOADS
from tests.sim.world import World, is_true

Breaches = Iterator[str]
Invariant = Callable[[World], Breaches]


def holds(workload: Object) -> bool:
    """Whether a Workload has quota: it is admitted and not finished.  A deactivated one has quota until its pods end.

    A Workload that another client evicted and released has none, although its admission is still to be cleared.
    """
    if admission_of(workload) is None or is_true(workload, names.CONDITION_FINISHED):
        return False
    return is_true(workload, names.CONDITION_QUOTA_RESERVED) or not is_true(workload, names.CONDITION_EVICTED)


def holders(world: World) -> list[Object]:
    """Return all Workloads with quota."""
    return [w for w in world.objects(WORKLOADS) if holds(w)]


def assigned_pod_sets(workload: Object) -> Iterator[tuple[Object, dict[str, Any]]]:
    """Yield (pod set of the spec, its assignment)."""
    specs = {p["name"]: p for p in workload["spec"]["podSets"]}
    admission = admission_of(workload)
    for assigned in admission["podSetAssignments"] if admission is not None else ():
        yield specs[assigned["name"]], dict(assigned)


def requests_of(pod_spec: Object) -> dict[str, int]:
    """Return the requests of one pod; the simulated pods have one container."""
    asked = pod_spec["containers"][0].get("resources", {}).get("requests") or {}
    return {resource: amount(written, resource) for resource, written in asked.items()} | {"pods": 1}


def quota_usage(workload: Object) -> Counter[tuple[str, str]]:
    """Return the Workload's usage by (flavor, resource), without the part that its finished pods released."""
    back = {r["name"]: r["count"] for r in (workload.get("status") or {}).get("reclaimablePods") or ()}
    total: Counter[tuple[str, str]] = Counter()
    for spec, assigned in assigned_pod_sets(workload):
        count: int = assigned["count"] if "count" in assigned else spec["count"]
        left = max(0, spec["count"] - back.get(spec["name"], 0))
        for resource, flavor in assigned.get("flavors", {}).items():
            used = amount(assigned["resourceUsage"][resource], resource)
            total[flavor, resource] += used if left >= count else used // count * left
    return total
