"""The meaning of the requests of one check: the state of the check, and the requests to create and delete."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import provisioning as api
from kqueue.jobs.check_entry import CheckAnswer
from kqueue.jobs.fields import JSON
from kqueue.jobs.provisioning.naming import attempt_of
from kqueue.jobs.provisioning.wanted import counts_in_need, parameters

_LONGEST_WAIT = 2**31 - 1
"""Seconds that the schema of Workloads can hold."""
_MOST_DOUBLINGS = 31
"""Doublings after which any wait is above the longest one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDecision:
    """The steps for one check of a workload.

    Args:
        active: the request that counts; None: there is none.  All others of the check must go.
        create: the attempt to request nodes for; None: none.
        answer: the new entry; None: the entry stays.
    """

    active: api.ProvisioningRequest | None = None
    create: int | None = None
    answer: CheckAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One check of a workload with a reservation.

    Args:
        entry: the check in the Workload's status.
        config: how its requests are made; None: the check is not active.
        requests: those of the workload for any check.
    """

    workload: wire.Workload
    entry: wire.AdmissionCheckState
    config: api.ProvisioningRequestConfigSpec | None
    requests: Sequence[api.ProvisioningRequest]

    @property
    def is_admitted(self) -> bool:
        """Whether the workload may run, or runs."""
        return model.condition_true(self.workload, names.CONDITION_ADMITTED)

    @property
    def retries(self) -> int:
        """How often the check was retried."""
        return max(0, self.entry.retry_count or 0)


def decide(facts: Facts) -> CheckDecision:
    """Return what follows from the requests.  Repeated without a change, nothing remains to be done."""
    mine = _attempts(facts)
    if facts.config is None:
        message = f"AdmissionCheck {facts.entry.name} is not active; its condition Active says why"
        return CheckDecision(answer=_if_pending(facts, message))
    in_need = counts_in_need(msgspec.to_builtins(facts.workload), facts.config.managed_resources)
    if not in_need:
        return _not_needed(facts)
    pods = sum(in_need.values())
    matching = [attempt for attempt, request in mine.items() if _matches(request, facts, facts.config, pods)]
    attempt = max(matching, default=None)
    active = mine[attempt] if attempt is not None else None
    is_pending = facts.entry.state == names.CHECK_PENDING
    if active is None or attempt is None:
        create = max(facts.retries + 1, *mine, 1) if is_pending else None
        return CheckDecision(create=create, answer=_in_vain(facts, facts.config.retry_strategy))
    answer = _answer(facts, facts.config, active, attempt, tuple(in_need))
    again = is_pending and attempt <= facts.retries and _failure(active, facts) is not None
    return CheckDecision(active=active, create=attempt + 1 if again else None, answer=answer)


# --- requests ---------------------------------------------------------------------------------------------------------


def _attempts(facts: Facts) -> dict[int, api.ProvisioningRequest]:
    """Return the requests of the check by attempt."""
    workload, check = facts.workload.metadata.name, facts.entry.name
    found = {attempt_of(request.metadata.name, workload, check): request for request in facts.requests}
    return {attempt: request for attempt, request in found.items() if attempt is not None}


def _matches(
    request: api.ProvisioningRequest, facts: Facts, config: api.ProvisioningRequestConfigSpec, pods: int
) -> bool:
    """Whether a request has the class of the config, its parameters as the workload has them, and the admitted pods.

    A request that is answered may have other pods: the workload gives pods back as they end.
    """
    wanted = parameters(facts.workload, config)
    has = request.spec.parameters
    if facts.entry.state != names.CHECK_READY and sum(one.count for one in request.spec.pod_sets) != pods:
        return False
    return request.spec.provisioning_class_name == config.provisioning_class_name and all(
        has.get(key) == wanted[key] for key in config.parameters
    )


def _not_needed(facts: Facts) -> CheckDecision:
    """Return the decision for a workload whose pods need none of the managed resources."""
    if facts.entry.state != names.CHECK_PENDING:
        return CheckDecision()
    message = "No pod set requests a resource for which nodes are provisioned"
    return CheckDecision(answer=CheckAnswer(state=names.CHECK_READY, message=message))


# --- states -----------------------------------------------------------------------------------------------------------


def _told(request: api.ProvisioningRequest, kind: str) -> str | None:
    """Return the message of a condition that is true; None: it is not true."""
    found = model.condition(request.status.conditions, kind)
    return (found.message or "") if found is not None and found.status == "True" else None


def _failure(request: api.ProvisioningRequest, facts: Facts) -> str | None:
    """Return why a request gives no nodes any more; None: it may, or the workload is admitted already."""
    failed = _told(request, api.FAILED)
    if failed is not None or facts.is_admitted or _told(request, api.CAPACITY_REVOKED) is not None:
        return failed
    return _told(request, api.BOOKING_EXPIRED)


def _answer(
    facts: Facts,
    config: api.ProvisioningRequestConfigSpec,
    request: api.ProvisioningRequest,
    attempt: int,
    in_need: Sequence[str],
) -> CheckAnswer | None:
    """Return the entry for the conditions of the request, by the first that applies; None: it stays."""
    failure = _failure(request, facts)
    if failure is not None:
        return _failed(facts, config.retry_strategy, attempt, failure)
    revoked = _told(request, api.CAPACITY_REVOKED)
    if revoked is not None:
        runs = facts.workload.spec.active and not model.is_over(facts.workload)
        return CheckAnswer(state=names.CHECK_REJECTED, message=revoked) if runs else None
    provisioned = _told(request, api.PROVISIONED)
    if provisioned is not None:
        if facts.is_admitted and facts.entry.state == names.CHECK_READY:
            return None  # pods run with what they were given
        updates = tuple(_update(name, request, config) for name in in_need)
        return CheckAnswer(state=names.CHECK_READY, message=provisioned, updates=updates)
    if _told(request, api.ACCEPTED) is not None:
        expected = model.condition(request.status.conditions, api.PROVISIONED)
        return _if_pending(facts, expected.message or "") if expected is not None else None
    return _if_pending(facts, "")


def _if_pending(facts: Facts, message: str) -> CheckAnswer | None:
    """Return an answer with state Pending; None: the check has been answered, and only an eviction resets it."""
    entry = facts.entry
    if entry.state != names.CHECK_PENDING:
        return None
    return CheckAnswer(state=names.CHECK_PENDING, message=message, seconds=entry.requeue_after_seconds)


def _failed(facts: Facts, retry: api.RetryStrategy, attempt: int, message: str) -> CheckAnswer:
    """Return the entry after a failed attempt: another attempt later, or the end."""
    entry = facts.entry
    if attempt > retry.backoff_limit_count:
        return CheckAnswer(state=names.CHECK_REJECTED, message=message)
    if attempt <= facts.retries:
        updates = tuple(msgspec.to_builtins(entry.pod_set_updates))
        return CheckAnswer(state=entry.state, message=message, seconds=entry.requeue_after_seconds, updates=updates)
    return _retry(facts, retry, message)


def _in_vain(facts: Facts, retry: api.RetryStrategy) -> CheckAnswer | None:
    """Return another attempt for a workload that still waits for domains, and whose request is gone: no autoscaler will
    make nodes for it, or tell that a booking has expired.
    """
    if not model.needs_domains(facts.workload):
        return None
    return _retry(facts, retry, "There is no request for its nodes any more; they are requested again")


def _retry(facts: Facts, retry: api.RetryStrategy, message: str) -> CheckAnswer:
    wait = min(retry.backoff_base_seconds * 2 ** min(facts.retries, _MOST_DOUBLINGS), retry.backoff_max_seconds)
    return CheckAnswer(state=names.CHECK_RETRY, message=message, seconds=min(max(0, wait), _LONGEST_WAIT))


def _update(pod_set: str, request: api.ProvisioningRequest, config: api.ProvisioningRequestConfigSpec) -> JSON:
    """Return what pods of a pod set get: the request whose nodes they use, and the labels of these nodes."""
    details = request.status.provisioning_class_details
    wanted = config.pod_set_updates.node_selector if config.pod_set_updates is not None else ()
    selector = {
        one.key: details[one.value_from_provisioning_class_detail]
        for one in wanted
        if one.value_from_provisioning_class_detail in details
    }
    annotations = {
        names.CONSUME_PROVISIONING_REQUEST_ANNOTATION: request.metadata.name,
        names.PROVISIONING_CLASS_NAME_ANNOTATION: request.spec.provisioning_class_name,
    }
    found: JSON = {"name": pod_set, "annotations": annotations}
    return {**found, "nodeSelector": selector} if selector else found
