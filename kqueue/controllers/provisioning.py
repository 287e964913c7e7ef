"""Answers AdmissionChecks of controller `kueue.x-k8s.io/provisioning-request` by ProvisioningRequests.

A workload with quota gets a request for nodes; the autoscaler's conditions on it become the state of the check.  What
the requests should be, and what they mean, is decided in `kqueue.jobs.provisioning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from kqueue import model
from kqueue.api import check_names, names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire import provisioning as api
from kqueue.clock import Clock
from kqueue.controllers import resources as kinds
from kqueue.controllers.check_answers import Activity, CheckActivity, is_of
from kqueue.controllers.manager import Manager
from kqueue.controllers.provisioning_writes import NotCreatedError, ProvisioningWrites
from kqueue.controllers.record import Recorder, Reporter, workload_reference
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.jobs.check_entry import CheckAnswer, answered
from kqueue.jobs.provisioning.meaning import CheckDecision, Facts, decide
from kqueue.runtime.controller import Controller, Result
from kqueue.runtime.reflector import Reflector
from kqueue.state import checks, status

_log = structlog.get_logger(__name__)

_CONTROLLER = names.PROVISIONING_REQUEST_CONTROLLER
_BY_OWNER = "owner"
"""Index of requests and pod templates by the UIDs of their owners."""
_LOOK_FOR_KIND = 2.0
"""Seconds between two looks whether the API server serves ProvisioningRequests by now."""
_TRY_AGAIN = 30.0
"""Seconds before a request is tried again that the API server refused."""

_Decided = tuple[Facts, CheckDecision]

Requests = Reflector[api.ProvisioningRequest, api.ProvisioningRequest]
Configs = Reflector[api.ProvisioningRequestConfig, api.ProvisioningRequestConfig]
Templates = Reflector[api.OwnedObject, api.OwnedObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningWatches:
    """The watches of the check, beside those of every process."""

    requests: Requests
    configs: Configs
    templates: Templates

    @property
    def is_served(self) -> bool:
        """Whether the API server serves the kind of the requests."""
        return self.requests.synced.is_set() and not self.requests.missing

    def config_of(self, check: wire.AdmissionCheck) -> api.ProvisioningRequestConfigSpec | str:
        """Return the config of a check, or why it has none."""
        where = check.spec.parameters if check.spec is not None else None
        kind = names.PROVISIONING_REQUEST_CONFIG_KIND
        if where is None:
            return f"spec.parameters is missing; name a {kind}"
        if (where.api_group, where.kind) != (names.GROUP, kind):
            return f"spec.parameters names {where.kind} of {where.api_group}; name a {kind} of {names.GROUP}"
        unreadable = self.configs.unreadable.get(where.name)
        if unreadable is not None:
            return f"{kind} {where.name} cannot be read: {unreadable}"
        config = self.configs.store.get(where.name)
        if config is None:
            return f"{kind} {where.name} not found; create it"
        return config.spec if config.spec is not None else f"{kind} {where.name} has no spec"

    def activity(self, check: wire.AdmissionCheck) -> Activity | None:
        """Return whether a check can be used; None: another controller answers it."""
        if not is_of(check, _CONTROLLER):
            return None
        config = self.config_of(check)
        if isinstance(config, str):
            return Activity(False, check_names.REASON_BAD_PARAMETERS_REF, config, _LOOK_FOR_KIND)
        if not self.is_served:
            message = (
                f"the API server does not serve {self.requests.resource}; install the autoscaler's definition of it"
            )
            return Activity(False, check_names.REASON_KIND_NOT_SERVED, message, _LOOK_FOR_KIND)
        again = _LOOK_FOR_KIND * 15  # the definition may be removed
        return Activity(True, check_names.REASON_CHECK_ACTIVE, "nodes are requested by ProvisioningRequests", again)


class ProvisioningChecks:
    """The reconciler of Workloads with a provisioning check."""

    def __init__(
        self,
        workloads: WorkloadBook,
        watches: ProvisioningWatches,
        writes: ProvisioningWrites,
        *,
        check: Callable[[str], wire.AdmissionCheck | None],
        recorder: Recorder,
        clock: Clock,
        cleans_up: bool,
    ) -> None:
        """`check` returns an AdmissionCheck by name; `cleans_up`: evicted workloads lose their requests."""
        self._workloads, self._watches, self._writes, self._check = workloads, watches, writes, check
        self._recorder, self._clock, self._cleans_up = recorder, clock, cleans_up
        self._not_before: dict[str, float] = {}
        """By workload: the time before which a request that was refused is not tried again."""

    async def reconcile(self, key: str) -> Result:
        """Write the answers, and create and delete requests."""
        workload = self._workloads.newest(key)
        if workload is None:
            self._not_before.pop(key, None)
            return Result()
        if not self._watches.is_served:
            return Result(requeue_after=_LOOK_FOR_KIND) if self.concerns(workload) else Result()
        mine = self._writes.present(self._watches.requests.store.by_index(_BY_OWNER, workload.metadata.uid))
        if self._is_over(workload):
            await self._delete(workload, mine)
            return Result()
        if not checks.must_answer(workload):
            return Result()
        decided = [(facts, decide(facts)) for facts in self._facts(workload, mine)]
        active = {decision.active.metadata.uid for _, decision in decided if decision.active is not None}
        await self._delete(workload, [request for request in mine if request.metadata.uid not in active])
        await self._answer(key, workload, decided)
        return await self._create(key, workload, decided)

    def concerns(self, workload: wire.Workload) -> bool:
        """Whether the Workload has a check of this controller."""
        return any(is_of(self._check(entry.name), _CONTROLLER) for entry in workload.status.admission_checks)

    def forget_failures(self, key: str | None = None) -> None:
        """Try refused requests again at once, of a workload or of all: their cause may be gone."""
        if key is None:
            self._not_before.clear()
        else:
            self._not_before.pop(key, None)

    def _is_over(self, workload: wire.Workload) -> bool:
        """Whether the workload's requests are of no use any more."""
        evicted = model.condition_true(workload, names.CONDITION_EVICTED)
        return model.condition_true(workload, names.CONDITION_FINISHED) or (evicted and self._cleans_up)

    def _facts(self, workload: wire.Workload, mine: Sequence[api.ProvisioningRequest]) -> Iterable[Facts]:
        for entry in workload.status.admission_checks:
            check = self._check(entry.name)
            if check is not None and is_of(check, _CONTROLLER):
                config = self._watches.config_of(check)
                found = None if isinstance(config, str) else config
                yield Facts(workload=workload, entry=entry, config=found, requests=mine)

    # --- writing -------------------------------------------------------------------------------------------------

    async def _delete(self, workload: wire.Workload, requests: Iterable[api.ProvisioningRequest]) -> None:
        for request in requests:
            await self._writes.delete(request)
            _log.info(
                "provisioning request deleted", workload=model.workload_key(workload), request=request.metadata.name
            )

    async def _answer(self, key: str, workload: wire.Workload, decided: Sequence[_Decided]) -> None:
        """Write the answers, unless the reservation or an entry has changed since they were decided."""
        answers = {facts.entry.name: (facts, d.answer) for facts, d in decided if d.answer is not None}
        since = status.Stamp(self._clock.now()).text

        def change(now: wire.Workload) -> status.Patch | None:
            if not answers or not _is_same(now, workload):
                return None
            said = {name: answer for name, (_, answer) in answers.items()}
            wanted = answered(now.status.admission_checks, said, since)
            return None if wanted is None else {"status": {"admissionChecks": wanted}}

        written = await self._workloads.write(key, change)
        if written is None:
            return
        for facts, answer in answers.values():
            if answer.state != facts.entry.state:
                self._report(written, facts.entry, answer)

    def _report(self, workload: wire.Workload, before: wire.AdmissionCheckState, answer: CheckAnswer) -> None:
        message = f"AdmissionCheck {before.name} went from {before.state} to {answer.state}"
        message += f": {answer.message}" if answer.message else ""
        reason = check_names.EVENT_ADMISSION_CHECK_UPDATED
        self._recorder.record(workload_reference(workload), reason=reason, message=message)
        _log.info("provisioning check answered", workload=model.workload_key(workload), state=answer.state)

    async def _create(
        self, key: str, workload: wire.Workload, decided: Sequence[tuple[Facts, CheckDecision]]
    ) -> Result:
        """Create the requests that are due, and the pod templates that requests lack."""
        left = self._not_before.get(key, 0.0) - self._clock.monotonic()
        if left > 0:
            return Result(requeue_after=left)
        for facts, decision in decided:
            try:
                if decision.create is not None:
                    name = await self._writes.create(facts, decision.create)
                    if name:
                        self._created(workload, facts.entry.name, name)
                elif decision.active is not None and facts.entry.state == names.CHECK_PENDING:
                    await self._writes.mend_templates(facts, decision.active)
            except NotCreatedError as e:
                await self._refused(key, workload, facts, str(e))
                self._not_before[key] = self._clock.monotonic() + _TRY_AGAIN
                return Result(requeue_after=_TRY_AGAIN)
        self._not_before.pop(key, None)
        return Result()

    def _created(self, workload: wire.Workload, check: str, name: str) -> None:
        message = f"Created ProvisioningRequest {name} for AdmissionCheck {check}"
        reason = check_names.EVENT_PROVISIONING_REQUEST_CREATED
        self._recorder.record(workload_reference(workload), reason=reason, message=message)
        _log.info("provisioning request created", workload=model.workload_key(workload), request=name)

    async def _refused(self, key: str, workload: wire.Workload, facts: Facts, why: str) -> None:
        """Tell why a request could not be created: by an event, and in the message of the check."""
        message = f"No nodes can be requested: {why}"
        self._recorder.record(
            workload_reference(workload),
            reason=check_names.EVENT_FAILED_CREATE,
            message=message,
            warning=True,
            once=True,
        )
        answer = CheckAnswer(state=names.CHECK_PENDING, message=message, seconds=facts.entry.requeue_after_seconds)
        if facts.entry.state == names.CHECK_PENDING:
            newest = self._workloads.newest(key)
            if newest is not None:
                await self._answer(key, newest, [(facts, CheckDecision(answer=answer))])


def _is_same(now: wire.Workload, then: wire.Workload) -> bool:
    """Whether a decision about the Workload is still valid: the reservation, whether it is admitted, the checks and
    `active` are the same.
    """
    reserved, admitted = names.CONDITION_QUOTA_RESERVED, names.CONDITION_ADMITTED
    return (
        now.metadata.uid == then.metadata.uid
        and checks.must_answer(now)
        and model.since(now, reserved) == model.since(then, reserved)
        and model.condition_true(now, admitted) == model.condition_true(then, admitted)
        and now.status.admission_checks == then.status.admission_checks
        and now.spec.active == then.spec.active
    )


# --- setup ------------------------------------------------------------------------------------------------------------


def _owners(obj: api.ProvisioningRequest | api.OwnedObject) -> Iterable[str]:
    return (owner.uid for owner in obj.metadata.owner_references)


def _make_watches(manager: Manager) -> ProvisioningWatches:
    watch, managed = manager.watches.watch, f"{names.MANAGED_LABEL}=true"
    made = ProvisioningWatches(
        requests=watch(kinds.PROVISIONING_REQUESTS, api.ProvisioningRequest, selector=managed, optional=True),
        configs=watch(kinds.PROVISIONING_REQUEST_CONFIGS, api.ProvisioningRequestConfig),
        templates=watch(kinds.POD_TEMPLATES, api.OwnedObject, selector=managed),
    )
    made.requests.store.add_index(_BY_OWNER, _owners)
    return made


def setup(manager: Manager) -> None:
    """Add the reconcilers of provisioning checks and of the Workloads that have one."""
    watches, own = manager.watches, _make_watches(manager)
    writer = manager.writer(kinds.ADMISSION_CHECKS, watches.checks, wire.AdmissionCheck)
    activity = manager.controller("provisioning_check", CheckActivity(writer, own.activity, manager.clock).reconcile)
    writes = ProvisioningWrites(
        manager.client, own.templates.store, flavor=watches.flavors.store.get, clock=manager.clock
    )
    reconciler = ProvisioningChecks(
        manager.workload_writer,
        own,
        writes,
        check=watches.checks.store.get,
        recorder=manager.recorder(Reporter.PROVISIONING),
        clock=manager.clock,
        cleans_up=manager.config.enabled("CleanupProvisioningRequestsOnEviction"),
    )
    workloads = manager.controller("provisioning", reconciler.reconcile, workers=4)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is not None and (
            reconciler.concerns(seen) or own.requests.store.count_by_index(_BY_OWNER, seen.metadata.uid)
        ):
            workloads.enqueue(model.workload_key(seen))

    def on_config(_old: object, _new: object) -> None:
        reconciler.forget_failures()
        for check in watches.checks.store.values():
            if is_of(check, _CONTROLLER):
                activity.enqueue(check.metadata.name)
        for workload in watches.workloads.store.values():
            on_workload(workload, workload)

    def on_check(old: wire.AdmissionCheck | None, new: wire.AdmissionCheck | None) -> None:
        if old is not None and new is not None and old.spec == new.spec:
            if old.status != new.status and is_of(new, _CONTROLLER):
                activity.enqueue(new.metadata.name)
        elif is_of(old, _CONTROLLER) or is_of(new, _CONTROLLER):
            on_config(old, new)

    watches.checks.subscribe(on_check)
    own.configs.subscribe(on_config)
    watches.workloads.subscribe(on_workload)
    _follow_requests(own, writes, reconciler, workloads)


def _follow_requests(
    own: ProvisioningWatches, writes: ProvisioningWrites, reconciler: ProvisioningChecks, workloads: Controller
) -> None:
    """Enqueue the Workload of each request that changes, or whose pod template is gone."""

    def on_request(old: api.ProvisioningRequest | None, new: api.ProvisioningRequest | None) -> None:
        seen = new if new is not None else old
        if seen is None:
            return
        writes.observe(seen, gone=new is None)
        for owner in seen.metadata.owner_references:
            if owner.kind == names.WORKLOAD_KIND:
                key = f"{seen.metadata.namespace}/{owner.name}"
                if new is None:
                    reconciler.forget_failures(key)
                workloads.enqueue(key)

    def on_template(old: api.OwnedObject | None, new: api.OwnedObject | None) -> None:
        if new is not None or old is None:
            return
        for owner in old.metadata.owner_references:
            request = own.requests.store.get(f"{old.metadata.namespace}/{owner.name}")
            if request is not None:
                writes.lost_template(request)
                on_request(request, request)

    own.requests.subscribe(on_request)
    own.templates.subscribe(on_template)
