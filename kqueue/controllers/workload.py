"""Reconciles one Workload: each reconcile reads the current objects and takes the next step.

`life_cycle` decides the steps, and `explaining` the reasons of waiting Workloads.  This module writes them and records
the events.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import structlog

from kqueue import model
from kqueue.api import check_names, names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import Condition
from kqueue.clock import Clock
from kqueue.config import Configuration, Timings
from kqueue.config.policy import RequeuingStrategy
from kqueue.controllers.blockers import Blockers
from kqueue.controllers.explaining import FirstWords, PendingExplainer
from kqueue.controllers.life_cycle import LifeCycle, LifeCycleStep, LifeRules
from kqueue.controllers.manager import KEYS_PER_TURN, Manager
from kqueue.controllers.ranks import workload_rank
from kqueue.controllers.record import Recorder, Reporter, record_waiting, workload_reference
from kqueue.controllers.resources import WORKLOADS
from kqueue.errors import NotFoundError
from kqueue.jobs.registry import owner_kinds_for
from kqueue.model import PodView
from kqueue.runtime.client import Client, Propagation
from kqueue.runtime.controller import Result
from kqueue.runtime.lane import Lane
from kqueue.runtime.status_writer import StatusWriter
from kqueue.runtime.store import Store, split_key
from kqueue.runtime.turns import Turns
from kqueue.state import checks, requeueing, status
from kqueue.state.cache import Cache
from kqueue.state.queues import Queues
from kqueue.state.readiness import ReadyRules
from kqueue.state.requeueing import RequeueBackoff

_log = structlog.get_logger(__name__)

_CALM = (
    names.REASON_DEACTIVATED,
    names.REASON_ADMISSION_GATED,
    names.REASON_PENDING_EVALUATION,
    check_names.REASON_PENDING_DELAYED_TOPOLOGY_REQUESTS,
)
"""Reasons of waits that a client requested, or that have ended: they cause no warnings."""
_TOLD = (names.CONDITION_EVICTED, names.CONDITION_ADMITTED, names.CONDITION_QUOTA_RESERVED, names.CONDITION_REQUEUED)
"""Conditions whose changes cause an event; of several changes in one write only the first causes one."""
_WISHES = {
    names.REASON_ADMISSION_CHECK: names.EVENT_ADMISSION_CHECK_REJECTED,
    names.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED: names.EVENT_MAXIMUM_EXECUTION_TIME_EXCEEDED,
}
"""Reasons for which kqueue deactivates a Workload, and the warning for each; the eviction reports all other reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadContext:
    """The clients, state and watches of the reconciler; `namespace_labels` returns None for an unknown namespace."""

    workloads: Store[wire.Workload]
    local_queues: Store[wire.LocalQueue]
    client: Client
    writer: StatusWriter[wire.Workload]
    cache: Cache
    queues: Queues
    namespace_labels: Callable[[str], Mapping[str, str] | None]
    recorder: Recorder
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSettings:
    """The rules for Workloads, read once from the configuration."""

    rules: LifeRules = field(default_factory=LifeRules)
    first_words: FirstWords = field(default_factory=FirstWords)


DEFAULT_SETTINGS = WorkloadSettings()


class WorkloadReconciler:
    """The reconciler of Workloads."""

    def __init__(
        self,
        context: WorkloadContext,
        *,
        settings: WorkloadSettings = DEFAULT_SETTINGS,
        pods_left: Callable[[str], bool] = lambda _key: False,
        turns: Turns | None = None,
    ) -> None:
        """Take the context and the options; `turns` is as in `PendingExplainer`, `pods_left` as in `LifeCycle`."""
        self._workloads, self._client, self._writer = context.workloads, context.client, context.writer
        self._cache, self._recorder, self._clock = context.cache, context.recorder, context.clock
        blockers = Blockers(
            local_queues=context.local_queues, cache=context.cache, namespace_labels=context.namespace_labels
        )
        self.explainer = PendingExplainer(
            workloads=context.workloads,
            blockers=blockers,
            cache=context.cache,
            queues=context.queues,
            clock=context.clock,
            first_words=settings.first_words,
            turns=turns,
        )
        self._life = LifeCycle(blockers=blockers, clock=context.clock, rules=settings.rules, pods_left=pods_left)

    async def reconcile(self, key: str) -> Result:
        """Take the next step of one Workload; each reconcile ends at the first step that writes."""
        workload = self._writer.newest(key)
        if workload is None:
            return Result()
        if self._life.is_orphan(workload) and await self._let_go(key):
            return Result()
        if workload.metadata.deletion_timestamp is not None:
            return Result()
        if model.condition_true(workload, names.CONDITION_FINISHED):
            return await self._retain(key, workload)
        lost = self._cache.held.lost_status(key)
        if lost is not None and await self._put_back(key, lost):
            return Result()
        self.explainer.look(key)
        for step in self._steps(workload):
            if step.look(workload) is None:
                continue  # the usual case; the writer need not read the Workload
            written = await self._writer.write(key, step.look, subresource=step.subresource, lane=step.lane)
            if written is not None:
                if step.warned is not None:
                    self._event(written, step.warned.reason, step.warned.message, warning=True)
                if step != self._life.match_gates:
                    self._report(workload, written)
                return Result()
        return Result(requeue_after=self._wake_after(key, workload))

    def _steps(self, workload: wire.Workload) -> Iterator[LifeCycleStep]:
        yield from self._life.steps(workload)
        yield LifeCycleStep(self.explainer.explain, lane=Lane.WORDS)
        yield from self._life.late_steps(workload)

    def _wake_after(self, key: str, workload: wire.Workload) -> float | None:
        """Return the seconds until a step or a reason is due without an event; None: nothing is due."""
        left = [self.explainer.seconds_to_reason(workload), self.explainer.until_look(key)]
        at = self._life.next_time(workload)
        if at is not None:
            left.append((at - self._clock.now()).total_seconds())
        return min((seconds for seconds in left if seconds > 0), default=None)

    async def _put_back(self, key: str, lost: wire.WorkloadStatus) -> bool:
        """Restore the status of a workload that another client has changed while its pods run; return whether it was
        written.
        """
        stamp = status.Stamp(self._clock.now())
        written = await self._writer.write(key, lambda workload: status.put_back(workload, lost, stamp=stamp))
        if written is None:
            return False
        message = "The reservation was changed by hand while the workload was admitted; it was put back as it was"
        self._event(written, names.EVENT_STATUS_RESTORED, message, warning=True)
        _log.warning("reservation put back", workload=key)
        return True

    # --- the end -------------------------------------------------------------------------------------------------

    async def _let_go(self, key: str) -> bool:
        """Finish a Workload whose owner is gone, unless it is being deleted, and remove its finalizer; return whether
        it was written.
        """
        stamp = status.Stamp(self._clock.now())

        def finish(workload: wire.Workload) -> status.Patch | None:
            if workload.metadata.deletion_timestamp is not None or not self._life.is_orphan(workload):
                return None
            message = "The job that the workload was made for is gone"
            return status.finish(workload, reason=names.REASON_OWNER_NOT_FOUND, message=message, stamp=stamp)

        finished = await self._writer.write(key, finish)
        if finished is not None:
            self._event(finished, "FinishedWorkload", f"Workload {key} finished: the job that it was made for is gone")
            _log.info("workload finished", workload=key, reason=names.REASON_OWNER_NOT_FOUND)
        released = await self._writer.write(key, status.release, subresource=None)
        return finished is not None or released is not None

    async def _retain(self, key: str, workload: wire.Workload) -> Result:
        """Delete a finished Workload after its retention time."""
        expires = self._life.expires(workload)
        if expires is None:
            return Result()
        left = (expires - self._clock.now()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        await self._writer.write(key, status.release, subresource=None)
        meta = workload.metadata
        try:
            await self._client.delete(
                WORKLOADS, meta.name, meta.namespace, uid=meta.uid, propagation=Propagation.BACKGROUND
            )
        except NotFoundError:
            return Result()
        self._event(workload, names.EVENT_DELETED, f"Deleted Workload {key}, which finished longer ago than it is kept")
        _log.info("finished workload deleted", workload=key)
        return Result()

    # --- events --------------------------------------------------------------------------------------------------

    def _report(self, before: wire.Workload, after: wire.Workload) -> None:
        """Record events and a log line for the change that matters to the user."""
        key = model.workload_key(after)
        wish = _changed(before, after, names.CONDITION_DEACTIVATION_TARGET)
        if wish is not None and wish.reason in _WISHES:
            self._event(after, _WISHES[wish.reason], wish.message, warning=True)
        until = requeueing.requeue_at(after)
        if (
            until is not None and before.status.conditions == after.status.conditions
        ):  # a check wants to be asked again later
            asked = checks.messages_of(checks.in_state(after, names.CHECK_RETRY))
            message = f"To be tried again after {status.Stamp(until).text}, as admission checks ask for: {asked}"
            self._event(after, names.EVENT_ADMISSION_CHECK_RETRY, message)
        for kind in _TOLD:
            new = _changed(before, after, kind)
            if new is None or (kind == names.CONDITION_ADMITTED and new.reason == names.REASON_NO_RESERVATION):
                continue  # another condition has the reason
            evicted = kind == names.CONDITION_EVICTED and new.status == "True"
            if evicted and before.status.admission is None:
                continue  # the workload had no usage
            if kind == names.CONDITION_REQUEUED:
                if new.status == "True":
                    self._event(after, names.EVENT_REQUEUED, new.message)
                return
            reason = f"{names.EVENT_EVICTED_DUE_TO_PREFIX}{new.reason}" if evicted else new.reason
            was = model.condition(before.status.conditions, kind)
            if was is not None and was.reason == names.REASON_ADMISSION_GATED and new.status == "False":
                reason = names.EVENT_ADMISSION_GATE_CLEARED if new.reason == names.REASON_PENDING_EVALUATION else reason
            warning = new.status == "False" and not evicted and new.reason not in _CALM
            message = new.message + _wait_for_checks(after, new)
            if kind == names.CONDITION_QUOTA_RESERVED and new.status == "False":
                record_waiting(self._recorder, after, reason=reason, message=message, warning=warning)
            else:
                self._event(after, reason, message, warning=warning)
            _log.info("workload changed", workload=key, condition=kind, status=new.status, reason=new.reason)
            return

    def _event(self, workload: wire.Workload, reason: str, message: str, *, warning: bool = False) -> None:
        self._recorder.record(workload_reference(workload), reason=reason, message=message, warning=warning)


def _wait_for_checks(workload: wire.Workload, told: Condition) -> str:
    """Return the message part on the time from reservation to admission; empty for all other changes."""
    reserved = model.since(workload, names.CONDITION_QUOTA_RESERVED)
    if told.reason != names.REASON_ADMITTED or told.last_transition_time is None or reserved is None:
        return ""
    return f", {max(0, int((told.last_transition_time - reserved).total_seconds()))} s after the reservation"


def _changed(before: wire.Workload, after: wire.Workload, kind: str) -> Condition | None:
    """Return a condition whose status or reason has changed; None: it is unchanged or gone."""
    new, old = (model.condition(obj.status.conditions, kind) for obj in (after, before))
    if new is None or (old is not None and (old.status, old.reason) == (new.status, new.reason)):
        return None
    return new


def life_rules(config: Configuration, timings: Timings) -> LifeRules:
    """Return the times and limits of Workloads from the configuration."""
    owners = owner_kinds_for(config.integrations)
    ready, kept = config.wait_for_pods_ready, config.object_retention_policies
    strategy = ready.requeuing_strategy if ready is not None else RequeuingStrategy()
    return LifeRules(
        ready=ReadyRules(ready.timeout, ready.recovery_timeout or timedelta(0)) if ready is not None else None,
        backoff=RequeueBackoff(
            strategy.backoff_base_seconds, strategy.backoff_max_seconds, strategy.backoff_limit_count
        ),
        keep_finished=kept.workloads.after_finished if kept is not None and kept.workloads is not None else None,
        finish_orphans=config.enabled("FinishOrphanedWorkloads"),
        abandoned=frozenset(of for of, kind in owners.items() if not kind.queued),
        managed=frozenset(of for of, kind in owners.items() if kind.queued),
        eviction_ended_after=timedelta(seconds=timings.eviction_ended_after),
        concurrent=config.enabled("ConcurrentAdmission"),
        keeps_gates=config.enabled("MultiKueueOrchestratedPreemption"),
    )


def make_reconciler(manager: Manager) -> WorkloadReconciler:
    """Return the reconciler of a process."""
    watches, config, timings = manager.watches, manager.config, manager.timings
    return WorkloadReconciler(
        WorkloadContext(
            workloads=watches.workloads.store,
            local_queues=watches.local_queues.store,
            client=manager.client,
            writer=manager.workload_writer,
            cache=manager.cache,
            queues=manager.queues,
            namespace_labels=manager.namespace_labels,
            recorder=manager.recorder(Reporter.WORKLOADS),
            clock=manager.clock,
        ),
        settings=WorkloadSettings(
            rules=life_rules(config, timings),
            first_words=FirstWords(
                after=timings.untried_told_after, at_once=config.enabled("UnadmittedWorkloadsExplicitStatus")
            ),
        ),
        pods_left=manager.pods_left,
        turns=manager.turns,
    )


def setup(manager: Manager) -> None:
    """Add the reconciler of Workloads.  After a change of the configuration it reads every Workload."""
    store, reconciler = manager.watches.workloads.store, make_reconciler(manager)
    workloads = manager.controller(
        "workload",
        reconciler.reconcile,
        workers=8,
        group_kind="Workload.kueue.x-k8s.io",
        rank_of=lambda key: workload_rank(store.get(key)),
    )

    def on_parked(keys: Collection[str]) -> None:
        for key in reconciler.explainer.pending_notifications.among(keys):
            if not reconciler.explainer.until_turn(key):  # otherwise its turn enqueues it
                workloads.enqueue(key)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is not None:
            workloads.enqueue(model.workload_key(seen))

    def on_pod(old: PodView | None, new: PodView | None) -> None:
        """Enqueue a Workload when its last pod has ended, because its quota may be released now."""
        if new is not None and new.stray_of and (old is None or not old.stray_of):
            _warn_of_stray(manager, new)
        held = old.workload if old is not None else ""
        if held and (new is None or new.workload != held) and not manager.pods_left(held):
            workloads.enqueue(held)

    async def enqueue_all() -> None:
        for number, key in enumerate(list(store), start=1):
            workloads.enqueue(key)
            if number % KEYS_PER_TURN == 0:
                await manager.clock.sleep(0)

    manager.queues.on_parked = on_parked
    manager.on_configuration.append(enqueue_all)
    manager.watches.workloads.subscribe(on_workload)
    manager.watches.pods.subscribe(on_pod)


def _warn_of_stray(manager: Manager, view: PodView) -> None:
    """Report a pod that names a Workload although no job controls the pod."""
    workload = manager.watches.workloads.store.get(view.stray_of)
    if workload is None or not manager.leads():
        return
    message = (
        f"Pod {split_key(view.key)[1]} names this Workload by annotation {names.WORKLOAD_ANNOTATION}, but no "
        "job controls the pod: it keeps no quota; delete the pod or take the annotation off"
    )
    manager.recorder(Reporter.WORKLOADS).record(
        workload_reference(workload), reason=names.EVENT_STRAY_POD, message=message, warning=True, once=True
    )
