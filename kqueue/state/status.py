"""A Workload's status: each transition as a pure function from the Workload to a merge patch.

Merge patches replace lists, so every patch that touches a condition carries all conditions; the writer adds the
resource version, and a patch made from an older object is refused and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from kqueue import model
from kqueue.api import check_names, names
from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.core.quantity import format_quantity
from kqueue.core.topology import TopologyAssignment, encode
from kqueue.core.workload import Admission
from kqueue.state import checks, execution_time, requeueing, waiting
from kqueue.state.conditions import MESSAGE_BYTES as MESSAGE_BYTES
from kqueue.state.conditions import Conditions as Conditions
from kqueue.state.conditions import Patch as Patch
from kqueue.state.conditions import Stamp as Stamp
from kqueue.state.conditions import conditions_of, status_patch
from kqueue.state.conditions import cut as cut

PREVIOUSLY = "Previously: "
"""The beginning of the message of a condition that a reservation has ended; the former message follows."""
_NOT_READY = "Not all pods are ready or succeeded"
_EVICTION_COUNTS_MAX = 256
"""The maximum of the Workload's schema."""
_COUNT_MAX = 2**31 - 1
_ENDED_BY_A_RESERVATION = frozenset(
    {names.CONDITION_EVICTED, names.CONDITION_PREEMPTED, names.CONDITION_BLOCKED_ON_PREEMPTION_GATES}
)

Change = Callable[[wire.Workload], Patch | None]
"""Returns a status patch from the newest object; None when nothing remains to be written."""


def _not_admitted(conditions: Conditions) -> None:
    """Set Admitted=False, because quota is not reserved."""
    conditions.set(
        names.CONDITION_ADMITTED,
        status=False,
        reason=names.REASON_NO_RESERVATION,
        message="The workload has no quota reservation",
    )


def _sync_admitted(
    conditions: Conditions, states: Iterable[wire.AdmissionCheckState], *, queue: str, placed: bool = True
) -> None:
    """Set Admitted: True exactly when quota is reserved, every check is ready, and no domains are still to be chosen
    (`placed`).
    """
    if conditions.status(names.CONDITION_QUOTA_RESERVED) != "True":
        _not_admitted(conditions)
    elif waiting := [check.name for check in states if check.state != names.CHECK_READY]:
        conditions.set(
            names.CONDITION_ADMITTED,
            status=False,
            reason=names.REASON_UNSATISFIED_ADMISSION_CHECKS,
            message=f"Waiting for admission checks {', '.join(sorted(waiting))}",
        )
    elif not placed:
        conditions.set(
            names.CONDITION_ADMITTED,
            status=False,
            reason=check_names.REASON_PENDING_DELAYED_TOPOLOGY_REQUESTS,
            message="The admission checks are ready, and domains for the pods are being chosen",
        )
    else:
        conditions.set(
            names.CONDITION_ADMITTED,
            status=True,
            reason=names.REASON_ADMITTED,
            message=f"Admitted by ClusterQueue {queue}",
        )


def admission_json(admission: Admission) -> Patch:
    """Return the admission in the form of the status."""
    out = []
    for pod_set in admission.pod_sets:
        entry: Patch = {
            "name": pod_set.name,
            "flavors": dict(pod_set.flavors),
            "resourceUsage": {r: format_quantity(v, r) for r, v in pod_set.usage.items()},
            "count": pod_set.count,
        }
        if pod_set.topology is not None and pod_set.topology.domains:
            entry["topologyAssignment"] = encode(pod_set.topology)
        if pod_set.delayed:
            entry["delayedTopologyRequest"] = (
                check_names.DELAYED_PENDING if pod_set.waits_for_domains else check_names.DELAYED_READY
            )
        out.append(entry)
    return {"clusterQueue": admission.queue, "podSetAssignments": out}


def wait_for_start(conditions: Conditions) -> None:
    """Set PodsReady=False, because the pods of the present admission have not been ready yet."""
    conditions.set(names.CONDITION_PODS_READY, status=False, reason=names.REASON_WAIT_FOR_START, message=_NOT_READY)


def reserve(
    obj: wire.Workload,
    admission: Admission,
    *,
    wanted: Collection[str],
    stamp: Stamp,
    waits_for_ready: bool = False,
    plan: str = "",
) -> Patch | None:
    """Return one patch that reserves quota and, without pending admission checks, admits.

    `wanted` are the checks that the admission needs; the same patch adds the missing ones. `waits_for_ready`:
    `waitForPodsReady` is on, so the same patch sets PodsReady=False (WaitForStart). `plan` is the name of the joint
    plan that proposed the admission. None when the workload cannot be
    admitted any more: finished, deleted, gated, refused or reserved in the meantime.
    """
    if not model.is_queueable(obj):
        return None
    conditions = conditions_of(obj, stamp)
    conditions.set(
        names.CONDITION_QUOTA_RESERVED,
        status=True,
        reason=names.REASON_QUOTA_RESERVED,
        message=f"Quota reserved in ClusterQueue {admission.queue}{f', {plan}' if plan else ''}",
    )
    end_by_reservation(obj, conditions)
    fields: Patch = {"admission": admission_json(admission)}
    listed = checks.synced_checks(obj.status.admission_checks, wanted, stamp.text)
    if listed is not None:
        fields["admissionChecks"] = listed or None
    states = obj.status.admission_checks if listed is None else msgspec.convert(listed, _CHECKS)
    placed = not any(pod_set.waits_for_domains for pod_set in admission.pod_sets)
    _sync_admitted(conditions, states, queue=admission.queue, placed=placed)
    if obj.status.resource_requests:
        fields["resourceRequests"] = None
    if obj.status.finished_pods:
        fields["finishedPods"] = None
    if waits_for_ready:
        wait_for_start(conditions)
    return status_patch(conditions, **fields)


_CHECKS = tuple[wire.AdmissionCheckState, ...]


def end_by_reservation(obj: wire.Workload, conditions: Conditions) -> None:
    """Set the conditions of an earlier eviction to False, because quota is reserved again."""
    for before in obj.status.conditions:
        if before.type in _ENDED_BY_A_RESERVATION and before.status == "True":
            conditions.set(
                before.type, status=False, reason=names.REASON_QUOTA_RESERVED, message=f"{PREVIOUSLY}{before.message}"
            )


def wait(
    obj: wire.Workload,
    *,
    reason: str,
    message: str,
    stamp: Stamp,
    requests: list[Patch] | None = None,
    gated: bool = False,
    dated: bool = False,
) -> Patch | None:
    """Return a patch with the reason why a pending workload waits; None when the status has the same cause, or the
    workload no longer waits.

    `requests` comes from `requested`: patches share it, so it must not be changed. `gated`: the workload could preempt
    other workloads if its preemption gates were open. `dated`: the message gets the present time, whatever the reason.
    """
    before = model.condition(obj.status.conditions, names.CONDITION_QUOTA_RESERVED)
    if (before is not None and before.status == "True") or model.condition_true(obj, names.CONDITION_FINISHED):
        return None
    conditions = conditions_of(obj, stamp)
    at = stamp.now if dated or reason in waiting.OF_A_MOMENT else None
    text = waiting.message(model.workload_key(obj), message, at=at)
    if before is not None and before.reason == reason and waiting.is_same_cause(before.message, text):
        text = before.message
    conditions.set(names.CONDITION_QUOTA_RESERVED, status=False, reason=reason, message=text)
    if gated:
        kind, cause = names.CONDITION_BLOCKED_ON_PREEMPTION_GATES, names.REASON_PREEMPTION_GATED
        conditions.set(kind, status=True, reason=cause, message=text)
    _not_admitted(conditions)
    if not conditions.changed:
        return None
    fields: Patch = {} if requests is None else {"resourceRequests": requests}
    fields["conditions"] = conditions.list()
    return {"status": fields}


def requested(totals: Mapping[str, Mapping[str, int]]) -> list[Patch]:
    """Return the quota requests of pod sets, each with all its pods, in the form of the status."""
    return [
        {"name": name, "resources": {r: format_quantity(v, r) for r, v in of_one.items()}}
        for name, of_one in totals.items()
    ]


def match_gates(obj: wire.Workload, *, stamp: Stamp) -> Patch | None:
    """Return a patch that lists exactly the workload's preemption gates, new ones closed; None when the list is already
    correct.
    """
    known = {gate.name: gate for gate in obj.status.preemption_gates}
    named = [gate.name for gate in obj.spec.preemption_gates]
    if known.keys() == set(named):
        return None
    closed = {"position": "Closed", "lastTransitionTime": stamp.text}
    gates = [msgspec.to_builtins(known[n]) if n in known else {"name": n, **closed} for n in named]
    return {"status": {"preemptionGates": gates or None}}


def unreserve(obj: wire.Workload, *, reason: str, message: str, stamp: Stamp, requeued: bool | None) -> Patch | None:
    """Return a patch that removes the reservation, so that the quota is free; None when there is no reservation.

    `requeued` sets the condition Requeued with the eviction's reason (None does not change it).
    """
    if obj.status.admission is None and not model.condition_true(obj, names.CONDITION_QUOTA_RESERVED):
        return None
    conditions = conditions_of(obj, stamp)
    evicted = model.condition(obj.status.conditions, names.CONDITION_EVICTED)
    if requeued is not None and evicted is not None:
        conditions.set(names.CONDITION_REQUEUED, status=requeued, reason=evicted.reason, message=evicted.message)
    fields: Patch = {"admission": None}
    if obj.status.finished_pods:
        fields["finishedPods"] = None
    ran = execution_time.accumulated(obj, stamp.now)
    if ran is not None:
        fields["accumulatedPastExecutionTimeSeconds"] = ran
    if conditions.status(names.CONDITION_PODS_READY):  # the next admission has no pods yet
        wait_for_start(conditions)
    text = waiting.message(model.workload_key(obj), message)
    conditions.set(names.CONDITION_QUOTA_RESERVED, status=False, reason=reason, message=text)
    _sync_admitted(conditions, (), queue="")
    return status_patch(conditions, **fields)


def evict(
    obj: wire.Workload,
    *,
    reason: str,
    message: str,
    stamp: Stamp,
    preempted: str | None = None,
    cause: str = "",
    requeue_state: wire.RequeueState | None = None,
) -> Patch | None:
    """Return a patch that marks a workload as evicted; None when it is evicted already.

    Its admission stays until its pods are gone. `preempted` is the rule of a preemption, for the condition Preempted.
    `cause` is the underlying cause for the counters. `requeue_state`: the number of requeues, and the time of the next.
    """
    if model.condition_true(obj, names.CONDITION_EVICTED) or model.condition_true(obj, names.CONDITION_FINISHED):
        return None
    conditions = conditions_of(obj, stamp)
    deactivated = reason == names.REASON_DEACTIVATED
    written = f"{names.DEACTIVATED_DUE_TO_PREFIX}{cause}" if deactivated and cause else reason
    conditions.set(names.CONDITION_EVICTED, status=True, reason=written, message=message)
    if preempted is not None:
        conditions.set(names.CONDITION_PREEMPTED, status=True, reason=preempted, message=message)
    if conditions.status(names.CONDITION_BLOCKED_ON_PREEMPTION_GATES) == "True":
        conditions.set(names.CONDITION_BLOCKED_ON_PREEMPTION_GATES, status=False, reason=written, message=message)
    fields = {"schedulingStats": {"evictions": _counted(obj, reason, cause)}, **_reset_fields(obj, stamp)}
    if deactivated:
        conditions.remove(names.CONDITION_DEACTIVATION_TARGET)
        if obj.status.requeue_state is not None:
            fields["requeueState"] = None
    if requeue_state is not None:
        fields["requeueState"] = requeueing.state_json(requeue_state)
    return status_patch(conditions, **fields)


def _counted(obj: wire.Workload, reason: str, cause: str) -> list[Patch]:
    """Return the counters with one more eviction; the oldest are dropped beyond the limit of the schema."""
    stats = obj.status.scheduling_stats
    counts = {(e.reason, e.underlying_cause): e.count for e in (stats.evictions if stats is not None else ())}
    counts[reason, cause] = min(max(0, counts.pop((reason, cause), 0)) + 1, _COUNT_MAX)
    kept = list(counts.items())[-_EVICTION_COUNTS_MAX:]
    return [{"reason": r, "underlyingCause": c, "count": n} for (r, c), n in kept]


def _reset_fields(obj: wire.Workload, stamp: Stamp) -> Patch:
    """Return the changes of an eviction to the fields of the ended admission."""
    now = obj.status
    fields: Patch = {}
    if now.admission_checks:
        fields["admissionChecks"] = [_reset_check(check, stamp) for check in now.admission_checks]
    if now.preemption_gates:
        fields["preemptionGates"] = [
            {"name": gate.name, "position": "Closed", "lastTransitionTime": stamp.text} for gate in now.preemption_gates
        ]
    if now.unhealthy_nodes:
        fields["unhealthyNodes"] = None
    if now.cluster_name is not None:
        fields["clusterName"] = None
    if now.nominated_cluster_names:
        fields["nominatedClusterNames"] = None
    return fields


def _reset_check(check: wire.AdmissionCheckState, stamp: Stamp) -> Patch:
    if check.state == "Pending":
        return dict(msgspec.to_builtins(check))
    out: Patch = {
        "name": check.name,
        "state": "Pending",
        "lastTransitionTime": stamp.text,
        "message": cut(f"Reset by an eviction; it was {check.state}{f': {check.message}' if check.message else ''}"),
    }
    if check.requeue_after_seconds is not None:
        out["requeueAfterSeconds"] = check.requeue_after_seconds
    if check.state == "Retry":
        out["retryCount"] = (check.retry_count or 0) + 1
    return out


def finish(obj: wire.Workload, *, reason: str, message: str, stamp: Stamp) -> Patch | None:
    """Return a patch that finishes the workload; None when it is finished already."""
    if model.condition_true(obj, names.CONDITION_FINISHED):
        return None
    conditions = conditions_of(obj, stamp)
    conditions.set(names.CONDITION_FINISHED, status=True, reason=reason, message=message)
    return status_patch(conditions)


def put_back(obj: wire.Workload, lost: wire.WorkloadStatus, *, stamp: Stamp) -> Patch | None:
    """Return a patch that restores a running workload's reservation after another client removed it from the status.

    Conditions and admission are those of `lost`, with their times. None when the status is consistent.
    """
    if not model.is_damaged_status(obj) or lost.admission is None:
        return None
    conditions = Conditions(lost.conditions, generation=obj.metadata.generation, stamp=stamp)
    held = [{**msgspec.to_builtins(held), "name": held.name} for held in lost.admission.pod_set_assignments]
    fields: Patch = {"admission": {"clusterQueue": lost.admission.cluster_queue, "podSetAssignments": held}}
    if not obj.status.admission_checks and lost.admission_checks:
        fields["admissionChecks"] = msgspec.to_builtins(lost.admission_checks)
    if not obj.status.reclaimable_pods and lost.reclaimable_pods:
        fields["reclaimablePods"] = msgspec.to_builtins(lost.reclaimable_pods)
    if not obj.status.finished_pods and lost.finished_pods:  # other workloads may have these domains by now
        fields["finishedPods"] = msgspec.to_builtins(lost.finished_pods)
    return status_patch(conditions, **fields)


def release(obj: wire.Workload) -> Patch | None:
    """Return a patch of the object, not of its status, that removes kqueue's finalizer; None when the finalizer is
    absent.
    """
    ours = names.RESOURCE_IN_USE_FINALIZER
    if ours not in obj.metadata.finalizers:
        return None
    return {"metadata": {"finalizers": [f for f in obj.metadata.finalizers if f != ours] or None}}


def pods_ready(obj: wire.Workload, *, ready: bool, stamp: Stamp) -> Patch | None:
    """Return a patch that updates PodsReady from the state of the job's pods; None when the condition is correct."""
    conditions = conditions_of(obj, stamp)
    now = (conditions.status(names.CONDITION_PODS_READY), conditions.reason(names.CONDITION_PODS_READY))
    admitted = conditions.status(names.CONDITION_ADMITTED) == "True"
    recovering = now[1] in (names.REASON_WAIT_FOR_RECOVERY, names.REASON_RECOVERED)
    if admitted and ready:
        reason = names.REASON_RECOVERED if recovering else names.REASON_STARTED
        message = "All pods were ready or succeeded since the workload was admitted"
    elif admitted and (now[0] == "True" or now[1] == names.REASON_WAIT_FOR_RECOVERY):
        reason, message = names.REASON_WAIT_FOR_RECOVERY, "At least one pod has failed, waiting for recovery"
    else:
        reason, message = names.REASON_WAIT_FOR_START, _NOT_READY
    wanted = ("True" if admitted and ready else "False", reason)
    if wanted == now:
        return None
    conditions.set(names.CONDITION_PODS_READY, status=wanted[0] == "True", reason=reason, message=message)
    return status_patch(conditions)


def finished_pods(places: Mapping[str, TopologyAssignment]) -> Patch:
    """Return the status field that releases these places, by pod set."""
    written = [
        {"name": name, "topologyAssignment": encode(given)} for name, given in sorted(places.items()) if given.domains
    ]
    return {"finishedPods": written or None}


def requeue(obj: wire.Workload, *, reason: str, message: str, stamp: Stamp) -> Patch | None:
    """Return a patch with Requeued=True and without a time to wait for, because the cause of the eviction is gone."""
    conditions = conditions_of(obj, stamp)
    conditions.set(names.CONDITION_REQUEUED, status=True, reason=reason, message=message)
    return status_patch(conditions, **_without_time(obj)) if conditions.changed else end_backoff(obj)


def _without_time(obj: wire.Workload) -> Patch:
    state = obj.status.requeue_state
    if state is None or state.requeue_at is None:
        return {}
    return {"requeueState": {"requeueAt": None} if state.count else None}


def end_backoff(obj: wire.Workload) -> Patch | None:
    """Return a patch that ends the back-off and keeps the count of requeues; None when no back-off is set."""
    fields = _without_time(obj)
    return {"status": fields} if fields else None


def postpone(obj: wire.Workload, until: datetime) -> Patch:
    """Return a patch that delays the next step of the workload until then."""
    return {"status": {"requeueState": {"requeueAt": utc_text(until)}}}


def request_deactivation(
    obj: wire.Workload, *, reason: str, message: str, stamp: Stamp, spent: bool = False
) -> Patch | None:
    """Return a patch with DeactivationTarget=True and its reason; None when it is there already.

    `spent`: the execution time so far is reset.
    """
    if model.condition_true(obj, names.CONDITION_DEACTIVATION_TARGET):
        return None
    conditions = conditions_of(obj, stamp)
    conditions.set(names.CONDITION_DEACTIVATION_TARGET, status=True, reason=reason, message=message)
    fields: Patch = {"accumulatedPastExecutionTimeSeconds": None} if spent else {}
    return status_patch(conditions, **fields)


def settle_deactivated(obj: wire.Workload, *, stamp: Stamp) -> Patch | None:
    """Return a patch that removes back-off and DeactivationTarget of an inactive workload after its eviction.

    A DeactivationTarget that stayed would deactivate the workload again when its user makes it active.
    """
    conditions = conditions_of(obj, stamp)
    conditions.remove(names.CONDITION_DEACTIVATION_TARGET)
    fields: Patch = {"requeueState": None} if obj.status.requeue_state is not None else {}
    return status_patch(conditions, **fields)


def sync_checks(obj: wire.Workload, wanted: Collection[str], *, stamp: Stamp) -> Patch | None:
    """Return a patch that lists exactly the wanted checks, new ones Pending; None when they are listed."""
    listed = checks.synced_checks(obj.status.admission_checks, wanted, stamp.text)
    return None if listed is None else {"status": {"admissionChecks": listed or None}}


def sync_admitted(obj: wire.Workload, *, stamp: Stamp, waits_for_ready: bool = False) -> Patch | None:
    """Return a patch that makes Admitted consistent with reservation and checks; None when it is consistent.

    `waits_for_ready`: a workload that is admitted now gets PodsReady=False in the same patch, unless it has PodsReady.
    """
    conditions = conditions_of(obj, stamp)
    queue = obj.status.admission.cluster_queue if obj.status.admission is not None else ""
    _sync_admitted(conditions, obj.status.admission_checks, queue=queue, placed=not model.waits_for_domains(obj))
    admitted = conditions.status(names.CONDITION_ADMITTED) == "True"
    if waits_for_ready and admitted and conditions.changed and not conditions.status(names.CONDITION_PODS_READY):
        wait_for_start(conditions)
    return status_patch(conditions) if conditions.changed else None
