"""Other clients of the API that write to the same Workloads: their changes, and their ways of writing."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.integration.controlplane.access import APPLY_PATCH, MERGE_PATCH, RequestError
from tests.integration.controlplane.cluster import Cluster
from tests.integration.road import Object

MANAGER = "kueue-admission"
"""The field manager under which the compatible system writes what concerns admission."""
ATTEMPTS = 20

Change = Callable[[Object], None]
"""Changes a whole object in place, as the client wants it to be."""


def now() -> str:
    """The time as it stands in an object."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Writer:
    """One way to write an object."""

    def __init__(self, cluster: Cluster, how: str) -> None:
        self._cluster, self.how = cluster, how

    async def write(self, path: str, change: Change) -> Object | None:
        """Write the change; the object as answered, None where the API server refuses it for a conflict of managers.

        `path` is that of the object or of its status.
        """
        for _ in range(ATTEMPTS):
            old = await self._cluster.get(path.removesuffix("/status"))
            new = copy.deepcopy(old)
            change(new)
            try:
                return await self._send(path, old, new)
            except RequestError as error:
                if error.status != 409:
                    raise
            now = await self._cluster.get(path.removesuffix("/status"))
            if now["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"]:
                return None
        raise AssertionError(f"{path} changed faster than it could be written")

    async def _send(self, path: str, old: Object, new: Object) -> Object:
        request, part = self._cluster.request, "status" if path.endswith("/status") else "spec"
        match self.how:
            case "merge":
                change = {part: merge_patch(old.get(part, {}), new.get(part, {}))}
                return await request("PATCH", path, change, content_type=MERGE_PATCH)
            case "update":
                return await request("PUT", path, new)
            case "apply" | "force":
                meta = {key: new["metadata"][key] for key in ("name", "namespace")}
                wanted = {"apiVersion": new["apiVersion"], "kind": new["kind"], "metadata": meta, part: new[part]}
                query = f"?fieldManager={MANAGER}&force={'true' if self.how == 'force' else 'false'}"
                return await request("PATCH", path + query, wanted, content_type=APPLY_PATCH)
        raise AssertionError(self.how)


WRITERS = ("merge", "apply", "force", "update")


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Object:
    """What makes `new` of `old`."""
    changed = {key: value for key, value in new.items() if old.get(key) != value}
    return {**dict.fromkeys(old.keys() - new.keys()), **changed}


# --- acts ------------------------------------------------------------------------------------------------------------


def set_conditions(workload: Object, **conditions: tuple[str, str]) -> None:
    """Write conditions: (status, reason) by type."""
    status = workload.setdefault("status", {})
    others = [c for c in status.get("conditions", []) if c["type"] not in conditions]
    written = [
        {"type": kind, "status": value, "reason": reason, "message": "by another client", "lastTransitionTime": now()}
        for kind, (value, reason) in conditions.items()
    ]
    status["conditions"] = [*others, *written]


def reserve(workload: Object) -> None:
    """Reserve quota, in the queue of its name and for all of its pods."""
    set_conditions(workload, QuotaReserved=("True", "QuotaReserved"))
    status, pod_set = workload["status"], workload["spec"]["podSets"][0]
    count = pod_set["count"]
    assigned = {"name": "main", "flavors": {"cpu": "plain"}, "resourceUsage": {"cpu": str(count)}, "count": count}
    status["admission"] = {"clusterQueue": workload["spec"]["queueName"], "podSetAssignments": [assigned]}
    status.pop("resourceRequests", None)


def admit(workload: Object) -> None:
    """Admit, whatever the checks say."""
    set_conditions(workload, Admitted=("True", "Admitted"))


def answer(state: str) -> Change:
    """What the controller of the check `nodes` says."""

    def change(workload: Object) -> None:
        entry = {"name": "nodes", "state": state, "message": "said", "lastTransitionTime": now()}
        workload["status"]["admissionChecks"] = [entry]

    return change


def pods_ready(workload: Object) -> None:
    """Say that all pods are ready."""
    set_conditions(workload, PodsReady=("True", "Started"))


def evict(workload: Object) -> None:
    """Evict; whoever owns it ends that."""
    set_conditions(workload, Evicted=("True", "Preempted"))


def end_eviction(workload: Object) -> None:
    """Take the reservation back."""
    set_conditions(
        workload,
        QuotaReserved=("False", "Pending"),
        Admitted=("False", "NoReservation"),
        Requeued=("True", "Preempted"),
    )
    workload["status"].pop("admission", None)


def evict_and_end(workload: Object) -> None:
    """Evict and take the reservation back in one write."""
    evict(workload)
    end_eviction(workload)


def deny(workload: Object) -> None:
    """Deny the reservation of a workload that nobody evicted, and leave its admission there."""
    set_conditions(workload, QuotaReserved=("False", "Pending"))


def finish(workload: Object) -> None:
    """Say that it has ended."""
    set_conditions(workload, Finished=("True", "Succeeded"))


def reclaim(workload: Object) -> None:
    """Say that one of its pods will not run again."""
    workload["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]


def report_node(workload: Object) -> None:
    """Say that a node failed."""
    workload["status"]["unhealthyNodes"] = [{"name": "gone"}]


def switch(*, active: bool) -> Change:
    """Deactivate or activate."""

    def change(workload: Object) -> None:
        workload["spec"]["active"] = active

    return change


# --- transitions -----------------------------------------------------------------------------------------------------

Conditions = Mapping[str, tuple[str, str] | str]
"""By type: status and reason, or the status alone."""


@dataclass(frozen=True, slots=True)
class Before:
    """How a workload comes to where an act meets it."""

    queue: str
    want: Conditions
    acts: tuple[tuple[str, Change], ...] = ()
    """Part (`spec` or `status`) and change, all written by merge patch."""


PENDING = Before("closed", {"QuotaReserved": "False"})
CHECKED = Before("checked", {"QuotaReserved": "True", "Admitted": ("False", "UnsatisfiedAdmissionChecks")})
ADMITTED = Before("open", {"Admitted": "True", "PodsReady": ("False", "WaitForStart")})
EVICTED = Before("open", {"Evicted": ("True", "Preempted"), "QuotaReserved": "True"}, (("status", evict),))
INACTIVE = Before(
    "open", {"Evicted": ("True", "Deactivated"), "QuotaReserved": "True"}, (("spec", switch(active=False)),)
)
ENDED = Before(
    "open",
    {"Evicted": "True", "QuotaReserved": ("False", "Deactivated")},
    (*INACTIVE.acts, ("status", evict_and_end)),
)
RUNNING = Before("jobs", {"Admitted": "True", "PodsReady": ("True", "Started")})
"""Of a Job."""


@dataclass(frozen=True, slots=True)
class Transition:
    """An act of another client, and what is to become of the workload."""

    before: Before
    act: Change
    want: Conditions
    part: str = "status"
    gone: tuple[str, ...] = field(default=())
    """Fields of the status that are not there in the end."""


BACK: Conditions = {"Admitted": "True", "QuotaReserved": "True", "Evicted": ("False", "QuotaReserved")}
TRANSITIONS: Mapping[str, Transition] = {
    "reserve": Transition(PENDING, reserve, {"QuotaReserved": "True", **ADMITTED.want}),
    "admit": Transition(CHECKED, admit, {"QuotaReserved": "True", "Admitted": "True"}),
    "ready-check": Transition(CHECKED, answer("Ready"), {"Admitted": "True"}),
    "retry-check": Transition(CHECKED, answer("Retry"), {"Evicted": ("True", "AdmissionCheck"), "QuotaReserved": "True"}),
    "rejected-check": Transition(
        CHECKED, answer("Rejected"), {"Evicted": ("True", "DeactivatedDueToAdmissionCheck"), "QuotaReserved": "True"}
    ),
    "pods-ready": Transition(ADMITTED, pods_ready, {"PodsReady": ("True", "Started"), "Admitted": "True"}),
    "evict": Transition(ADMITTED, evict, EVICTED.want),
    "end": Transition(EVICTED, end_eviction, BACK),
    "evict-and-end": Transition(ADMITTED, evict_and_end, BACK),
    "end-inactive": Transition(
        INACTIVE, end_eviction, {"QuotaReserved": ("False", "Deactivated"), "Admitted": "False"}, gone=("admission",)
    ),
    "reactivate": Transition(ENDED, switch(active=True), BACK, part="spec"),
    "deny": Transition(ADMITTED, deny, {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": "True"}),
    "finish": Transition(ADMITTED, finish, {"Finished": ("True", "Succeeded")}),
    "deactivate": Transition(ADMITTED, switch(active=False), INACTIVE.want, part="spec"),
    "reclaim": Transition(ADMITTED, reclaim, {"Admitted": "True", "QuotaReserved": "True"}),
    "node": Transition(ADMITTED, report_node, {"Admitted": "True", "QuotaReserved": "True"}),
    "evict-job": Transition(RUNNING, evict, {**BACK, **RUNNING.want}),
    # whether pods that are stopped count as failed ones meanwhile hangs on which write comes first
    "evict-and-end-job": Transition(RUNNING, evict_and_end, {**BACK, **RUNNING.want, "PodsReady": "True"}),
}  # fmt: skip


# --- looks -----------------------------------------------------------------------------------------------------------


def unmet(workload: Object, want: Conditions, gone: tuple[str, ...] = ()) -> str:
    """What of the wanted conditions is not so; empty when all is."""
    status = workload.get("status", {})
    found = {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}
    wrong = [
        f"{kind} is {found.get(kind)}, not {wanted}"
        for kind, wanted in want.items()
        if (found.get(kind, ("",))[0] if isinstance(wanted, str) else found.get(kind)) != wanted
    ]
    return "; ".join([*wrong, *(f"status.{name} is left" for name in gone if name in status)])


def charged(workload: Object) -> int:
    """Whole CPUs that a workload holds by what the API server has of it."""
    status = workload.get("status", {})
    found = {c["type"]: c["status"] for c in status.get("conditions", [])}
    if found.get("QuotaReserved") != "True" or found.get("Finished") == "True":
        return 0
    (held,) = status["admission"]["podSetAssignments"]
    ended = sum(entry["count"] for entry in status.get("reclaimablePods", []))
    return int(held["resourceUsage"]["cpu"]) // int(held["count"]) * (int(held["count"]) - int(ended))
