"""Answers AdmissionChecks whose controller is a plugin: `kqueue.dev/plugin.NAME`.

A workload with quota is shown to the plugin, and the answer is kept in its Workload: Ready, Retry, or Pending with the
seconds after the reservation at which Pending becomes Retry.  So a later leader continues with the same deadline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.clock import Clock, utc_text
from kqueue.controllers import resources as kinds
from kqueue.controllers.check_answers import Activity, CheckActivity
from kqueue.controllers.manager import Manager
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.core.decision import Admit
from kqueue.core.hooks import PermitHooks
from kqueue.core.plugins import Approve, Deny, Permission, WaitFor
from kqueue.errors import InvalidObjectError, PluginError
from kqueue.runtime.controller import Result
from kqueue.state import checks, status
from kqueue.state.conditions import Stamp, cut
from kqueue.state.heads import HeadOptions, Heads

_log = structlog.get_logger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 10.0
"""Seconds between two questions about one workload: 1, 2, 4, 8, 10, 10 and so on."""
_LONGEST_WAIT = 2**31 - 1
"""Seconds that the schema of Workloads can hold."""


def plugin_of(check: wire.AdmissionCheck | None) -> str | None:
    """Return the name of the plugin that answers a check; None: another controller does."""
    if check is None or check.spec is None:
        return None
    controller, prefix = check.spec.controller_name, names.PLUGIN_CONTROLLER_PREFIX
    return controller.removeprefix(prefix) if controller.startswith(prefix) else None


# --- the checks -------------------------------------------------------------------------------------------------------


def plugin_activity(permits: PermitHooks) -> Callable[[wire.AdmissionCheck], Activity | None]:
    """Return a function that says whether this kqueue has the plugin of a check; None: the check names no plugin."""

    def judge(check: wire.AdmissionCheck) -> Activity | None:
        plugin = plugin_of(check)
        if plugin is None:
            return None
        if plugin in permits.plugins:
            return Activity(True, names.REASON_READY, f"plugin {plugin} answers this check")
        message = f"no enabled plugin {plugin} has method permit; add it to plugins.enabled, or remove the check"
        return Activity(False, names.REASON_PLUGIN_NOT_ENABLED, message)

    return judge


# --- the workloads ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Question:
    """A check of one workload that a plugin is to answer."""

    check: str
    plugin: str
    reserved: datetime
    """The time of the reservation."""
    deadline: datetime | None
    """The time at which the wait ends, if the plugin has asked to wait since the reservation."""


@dataclass(slots=True)
class _Asked:
    """When a plugin is asked again."""

    reserved: datetime
    pause: float
    again: float
    """In the time of `Clock.monotonic`."""


class PluginChecks:
    """The reconciler of Workloads that have quota and wait for plugins."""

    def __init__(
        self,
        workloads: WorkloadBook,
        *,
        check: Callable[[str], wire.AdmissionCheck | None],
        permits: PermitHooks,
        admit: Callable[[wire.Workload], Admit | None],
        clock: Clock,
    ) -> None:
        """`check` returns an AdmissionCheck; `admit` returns the decision that a Workload's status holds, None: it
        holds none.
        """
        self._workloads, self._check, self._permits, self._admit, self._clock = workloads, check, permits, admit, clock
        self._asked: dict[str, dict[str, _Asked]] = {}
        """By workload, by check."""

    async def reconcile(self, key: str) -> Result:
        """Ask each plugin whose answer is due, and write the answers."""
        workload = self._workloads.newest(key)
        questions = list(self.questions(workload)) if workload is not None else []
        if not questions or workload is None:
            self._asked.pop(key, None)
            return Result()
        left = [await self._follow(key, workload, question) for question in questions]
        return Result(requeue_after=min((seconds for seconds in left if seconds is not None), default=None))

    def questions(self, workload: wire.Workload) -> Iterator[_Question]:
        """Yield the checks of a Workload that wait for plugins; none without a reservation."""
        reserved = model.since(workload, names.CONDITION_QUOTA_RESERVED)
        if reserved is None or not checks.must_answer(workload) or model.is_over(workload):
            return
        for state in checks.in_state(workload, names.CHECK_PENDING):
            plugin = plugin_of(self._check(state.name))
            if plugin is not None and plugin in self._permits.plugins:
                yield _Question(state.name, plugin, reserved, _deadline(state, reserved))

    async def _follow(self, key: str, workload: wire.Workload, question: _Question) -> float | None:
        """Ask about one check if that is due; return the seconds until the next step, None: it is answered."""
        now, known = self._clock.monotonic(), self._asked.setdefault(key, {})
        asked = known.get(question.check)
        if asked is None or asked.reserved != question.reserved:
            asked = known[question.check] = _Asked(question.reserved, _FIRST_PAUSE, now)
        if question.deadline is not None and question.deadline <= self._clock.now():
            await self._write(key, workload, question, _timed_out(question))
            return None
        if asked.again > now:
            return self._next(asked, question.deadline)
        permission = await self._ask(workload, question)
        asked.again, asked.pause = self._clock.monotonic() + asked.pause, min(asked.pause * 2, _LONGEST_PAUSE)
        answer = _answer(question, permission)
        await self._write(key, workload, question, answer)
        return self._next(asked, answer.deadline) if answer.state == names.CHECK_PENDING else None

    def _next(self, asked: _Asked, deadline: datetime | None) -> float:
        left = asked.again - self._clock.monotonic()
        if deadline is not None:
            left = min(left, (deadline - self._clock.now()).total_seconds())
        return max(0.0, left)

    async def _ask(self, workload: wire.Workload, question: _Question) -> Permission | str:
        """Return the answer, or why there is none."""
        try:
            admit = self._admit(workload)
            return await self._permits.permission(question.plugin, admit) if admit is not None else ""
        except (PluginError, InvalidObjectError) as e:
            return str(e)

    async def _write(self, key: str, workload: wire.Workload, question: _Question, answer: _Answer) -> None:
        """Write an answer, unless the reservation has ended or another client has answered."""

        stamp = Stamp(self._clock.now())

        def change(now: wire.Workload) -> status.Patch | None:
            if now.metadata.uid != workload.metadata.uid:
                return None
            if question.check not in [q.check for q in self.questions(now) if q.reserved == question.reserved]:
                return None
            states = [msgspec.to_builtins(state) for state in now.status.admission_checks]
            wanted = [_answered(s, answer, stamp) if s["name"] == question.check else s for s in states]
            return {"status": {"admissionChecks": wanted}} if wanted != states else None

        if await self._workloads.write(key, change) is not None:
            _log.info("plugin answered", workload=key, check=question.check, state=answer.state, why=answer.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The new state of a check; `seconds` are after the reservation with Pending, and until the next try with Retry."""

    state: str
    message: str
    at: datetime | None = None
    """The transition time; None: the time of the write."""
    seconds: int | None = None
    deadline: datetime | None = None


def _deadline(state: wire.AdmissionCheckState, reserved: datetime) -> datetime | None:
    """Return when a wait ends.  An entry of this reservation has its time; all others were reset by an eviction."""
    if state.requeue_after_seconds is None or state.last_transition_time != reserved:
        return None
    return reserved + timedelta(seconds=state.requeue_after_seconds)


def _timed_out(question: _Question) -> _Answer:
    assert question.deadline is not None
    seconds = int((question.deadline - question.reserved).total_seconds())
    message = f"plugin {question.plugin} did not approve within {seconds} s of the reservation"
    return _Answer(state=names.CHECK_RETRY, message=message)


def _answer(question: _Question, said: Permission | str) -> _Answer:
    """Return the state for an answer of the plugin, or for a sentence about its failure."""
    plugin = question.plugin
    if isinstance(said, Approve):
        return _Answer(state=names.CHECK_READY, message=f"plugin {plugin} approves")
    if isinstance(said, Deny):
        pause = min(max(0, math.ceil(said.seconds)), _LONGEST_WAIT)
        return _Answer(state=names.CHECK_RETRY, message=f"plugin {plugin}: {said.reason}", seconds=pause)
    deadline, reason = question.deadline, said
    if isinstance(said, WaitFor):
        until = question.reserved + timedelta(seconds=min(max(0, math.ceil(said.seconds)), _LONGEST_WAIT))
        deadline, reason = (until if deadline is None else min(until, deadline)), ""
        reason = f"plugin {plugin} waits, until {utc_text(deadline)} at the latest"
        reason += f": {said.reason}" if said.reason else ""
    seconds = int((deadline - question.reserved).total_seconds()) if deadline is not None else None
    return _Answer(
        state=names.CHECK_PENDING, message=str(reason), at=question.reserved, seconds=seconds, deadline=deadline
    )


def _answered(state: dict[str, Any], answer: _Answer, stamp: Stamp) -> dict[str, Any]:
    """Return the entry of a check with its answer."""
    kept = {field: told for field, told in state.items() if field != "requeueAfterSeconds"}
    if answer.seconds is not None:
        kept["requeueAfterSeconds"] = answer.seconds
    at = utc_text(answer.at) if answer.at is not None else stamp.text
    return {**kept, "state": answer.state, "message": cut(answer.message), "lastTransitionTime": at}


# --- setup ------------------------------------------------------------------------------------------------------------


def _admits(manager: Manager) -> Callable[[wire.Workload], Admit | None]:
    elastic = manager.config.enabled("ElasticJobsViaWorkloadSlices")
    heads = Heads(manager.cache, manager.workload_writer.newest, HeadOptions(elastic=elastic, order=manager.order))

    def admit(workload: wire.Workload) -> Admit | None:
        admission = manager.cache.requests.admission(workload)
        if admission is None:
            return None
        head = heads.make(workload, None, queue=admission.queue, now=manager.clock.now())
        return Admit(head=head, admission=admission)

    return admit


def setup(manager: Manager) -> None:
    """Add the reconcilers of the checks that name plugins, and of Workloads that wait for them."""
    watches, permits = manager.watches, manager.permits
    writer = manager.writer(kinds.ADMISSION_CHECKS, watches.checks, wire.AdmissionCheck)
    active = manager.controller(
        "plugin_check_status", CheckActivity(writer, plugin_activity(permits), manager.clock).reconcile
    )

    def on_check(_old: wire.AdmissionCheck | None, new: wire.AdmissionCheck | None) -> None:
        if plugin_of(new) is not None and new is not None:
            active.enqueue(new.metadata.name)

    watches.checks.subscribe(on_check)
    if permits.plugins:
        _ask_plugins(manager, permits)


def _ask_plugins(manager: Manager, permits: PermitHooks) -> None:
    """Add the reconciler of Workloads that wait for plugins."""
    watches, admit = manager.watches, _admits(manager)
    asker = PluginChecks(
        manager.workload_writer, check=watches.checks.store.get, permits=permits, admit=admit, clock=manager.clock
    )
    waiting = manager.controller("plugin_checks", asker.reconcile, workers=8)

    def on_check(old: wire.AdmissionCheck | None, new: wire.AdmissionCheck | None) -> None:
        if plugin_of(new) != plugin_of(old):
            for workload in watches.workloads.store.values():
                on_workload(workload, workload)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        if new is None and old is not None:
            waiting.enqueue(model.workload_key(old))
        elif new is not None and new.status.admission_checks and any(True for _ in asker.questions(new)):
            waiting.enqueue(model.workload_key(new))

    watches.checks.subscribe(on_check)
    watches.workloads.subscribe(on_workload)
