"""Admission checks of one Workload: the needed checks, their states, and the consequences.  Pure.

Other controllers set the states in `status.admissionChecks`; kqueue adds and removes the entries of that list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import moment_after
from kqueue.core.workload import Admission
from kqueue.kinds import CHECK_CONTROLLERS


def wanted_checks(spec: wire.ClusterQueueSpec, flavors: Collection[str] | None) -> tuple[str, ...]:
    """Return the sorted names of the checks that a workload needs.

    `flavors` are the assigned flavors; None: no flavor is assigned yet, and only checks for all flavors are returned. A
    check that names no flavor is for all flavors.
    """
    strategy = spec.admission_checks_strategy
    if strategy is None:
        return ()
    every = {flavor.name for group in spec.resource_groups for flavor in group.flavors}
    found = set[str]()
    for rule in strategy.admission_checks:
        concerned = set(rule.on_flavors) or every
        if not rule.on_flavors or (every <= concerned if flavors is None else not concerned.isdisjoint(flavors)):
            found.add(rule.name)
    return tuple(sorted(found))


def delayed_flavors(spec: wire.ClusterQueueSpec, known: Mapping[str, wire.AdmissionCheck]) -> frozenset[str]:
    """Return the flavors of a ClusterQueue whose domains are chosen when its checks are ready: a check makes their
    nodes, or another cluster chooses.
    """
    strategy = spec.admission_checks_strategy
    every = frozenset(flavor.name for group in spec.resource_groups for flavor in group.flavors)
    found = frozenset[str]()
    for rule in strategy.admission_checks if strategy is not None else ():
        check = known.get(rule.name)
        if check is not None and check.spec is not None and check.spec.controller_name in _PLACE_LATER:
            found |= every.intersection(rule.on_flavors) if rule.on_flavors else every
    return found


_PLACE_LATER = frozenset({names.PROVISIONING_REQUEST_CONTROLLER, names.MULTIKUEUE_CONTROLLER})
"""Controllers of checks before whose answer there are no nodes: one has them made, the other uses another cluster's."""


def assigned_flavors(obj: wire.Workload) -> frozenset[str] | None:
    """Return the flavors of the admission in the Workload's status; None: the status has no admission."""
    admission = obj.status.admission
    if admission is None:
        return None
    return frozenset(flavor for held in admission.pod_set_assignments for flavor in held.flavors.values())


def flavors_of(admission: Admission) -> frozenset[str]:
    """Return the flavors that an admission assigns."""
    return frozenset(flavor for held in admission.pod_sets for flavor in held.flavors.values())


def synced_checks(
    states: Sequence[wire.AdmissionCheckState], wanted: Iterable[str], since: str
) -> list[dict[str, Any]] | None:
    """Return the list with exactly the wanted checks, sorted by name; None when the list is already correct.

    Present entries stay as they are; new ones are Pending since `since` (a timestamp as in objects).
    """
    known = {state.name: state for state in states}
    names_wanted = sorted(set(wanted))
    if [state.name for state in states] == names_wanted:
        return None
    fresh = {"state": names.CHECK_PENDING, "message": "", "lastTransitionTime": since}
    return [msgspec.to_builtins(known[n]) if n in known else {"name": n, **fresh} for n in names_wanted]


def missing_controller(check: wire.AdmissionCheck) -> str | None:
    """Return the controller of a check without condition Active; None: the check has the condition, or names no
    controller.
    """
    if check.spec is None or model.condition(check.status.conditions, names.CONDITION_ACTIVE) is not None:
        return None
    return check.spec.controller_name


def missing_controller_message(controller: str) -> str:
    """Return a sentence about the controller that has not set condition Active, and the remedy."""
    remedy = "start it"
    if controller in CHECK_CONTROLLERS:
        remedy = "name it in admissionChecks.controllers of the configuration"
    return f"controller {controller} has not set condition Active: {remedy}"


def in_state(obj: wire.Workload, state: str) -> list[wire.AdmissionCheckState]:
    """Return the Workload's checks that are in this state, by name."""
    return sorted((c for c in obj.status.admission_checks if c.state == state), key=lambda check: check.name)


def refusing(obj: wire.Workload) -> list[wire.AdmissionCheckState]:
    """Return the checks that prevent a try of the Workload, by name: the rejected checks, and the checks that ask for a
    retry.
    """
    return [*in_state(obj, names.CHECK_REJECTED), *in_state(obj, names.CHECK_RETRY)]


def messages_of(checks: Iterable[wire.AdmissionCheckState]) -> str:
    """Return the checks with their messages as text: `budget: over the limit, licences`."""
    return ", ".join(f"{check.name}: {check.message}" if check.message else check.name for check in checks)


def retry_at(obj: wire.Workload) -> datetime | None:
    """Return the latest time at which a check of the Workload can be asked again; None: no check has such a time."""
    times = [
        moment_after(check.last_transition_time, timedelta(seconds=check.requeue_after_seconds))
        for check in in_state(obj, names.CHECK_RETRY)
        if check.requeue_after_seconds is not None
    ]
    return max(times, default=None)


def delayed_until(obj: wire.Workload, now: datetime) -> datetime | None:
    """Return the time to which `requeueAt` must move because a check asks for a later retry; None: no move is
    necessary.

    The move comes before the eviction: until then the workload keeps its reservation.
    """
    until = retry_at(obj)
    if until is None or until <= now:
        return None
    state = obj.status.requeue_state
    planned = state.requeue_at if state is not None else None
    return until if planned is None or planned < until else None


def must_answer(obj: wire.Workload) -> bool:
    """Whether the states of the checks end the Workload's reservation: it has a reservation and is not evicted
    yet.
    """
    reserved = model.condition_true(obj, names.CONDITION_QUOTA_RESERVED)
    return reserved and not model.condition_true(obj, names.CONDITION_EVICTED)
