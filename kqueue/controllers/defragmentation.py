"""Carries out approved DefragmentationPlans, one step at a time.

Each step is written to the status of the plan before anything else happens, so that a new leader goes on where the last
one was.  `kqueue.core.joint.move_steps` decides the steps; what plans keep for workloads is in `kqueue.state.moves`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan, PlannedMove
from kqueue.clock import Clock, utc_text
from kqueue.controllers.defrag_proposals import QueueOf
from kqueue.controllers.defrag_settings import move_limits
from kqueue.controllers.manager import Manager, MoveMetrics
from kqueue.controllers.plan_watches import budgets_watch, plans_watch
from kqueue.controllers.record import ObjectReference, Recorder, Reporter, workload_reference
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.controllers.workload_book import WorkloadBook
from kqueue.core.joint.move_steps import MoveChange, MoveState, PlanPhase, Step, StepLimits, next_step
from kqueue.errors import ConflictError, KqueueError
from kqueue.isolation import isolated
from kqueue.runtime.client import Client
from kqueue.runtime.controller import Result
from kqueue.runtime.status_writer import StatusWriter
from kqueue.state import status
from kqueue.state.defrag.carrying import CarryLimits, PlanFacts
from kqueue.state.defrag.document import change, hash_of
from kqueue.state.defrag.view import DefragState
from kqueue.state.moves import Moves, followed, is_planned

_log = structlog.get_logger(__name__)

_GATE = "JointPlacement"
_SOON = 0.0
_ENDED = frozenset((MoveState.DONE, MoveState.ABORTED, MoveState.FAILED))


class Defragmentation:
    """The reconciler of plans that are approved or carried out."""

    def __init__(
        self,
        *,
        client: Client,
        plans: StatusWriter[DefragmentationPlan],
        workloads: WorkloadBook,
        moves: Moves,
        facts: PlanFacts,
        limits: StepLimits,
        reports: MoveReports,
    ) -> None:
        self._client, self._plans, self._workloads = client, plans, workloads
        self._moves, self._facts, self._limits, self._reports = moves, facts, limits, reports
        self._tries = Counter[str]()
        """Evictions that failed to be written, by plan and workload."""

    async def reconcile(self, name: str) -> Result:
        """Take the next step of a plan."""
        plan = self._plans.newest(name)
        if plan is None:
            self._tries = Counter({about: n for about, n in self._tries.items() if not about.startswith(f"{name} ")})
            return Result()
        self._moves.on_plan(None, plan)
        step = self._next(plan)
        if step.writes:
            if step.withdraw and plan.spec.approved:
                return await self._withdraw(plan)
            await self._write(plan, step)
            return Result(requeue_after=_SOON)
        for number in step.evict:
            await self._evict(plan, plan.status.moves[number])
        return Result(requeue_after=step.look)

    def _next(self, plan: DefragmentationPlan) -> Step:
        seen = self._facts.of(followed(plan), lambda workload: self._tries[_about(plan, workload)])
        return next_step(seen, self._limits)

    async def _withdraw(self, plan: DefragmentationPlan) -> Result:
        """Take back the approval of a plan that was changed; its phase is written at the next call."""
        version = {"resourceVersion": plan.metadata.resource_version}
        change_ = {"metadata": version, "spec": {"approved": ""}}
        await self._client.patch(DEFRAGMENTATION_PLANS, plan.metadata.name, change_)
        self._reports.withdrawn(plan)
        return Result()

    async def _write(self, plan: DefragmentationPlan, step: Step) -> None:
        """Write a step on the version of the plan for which it was decided.  Raises ConflictError: it has changed."""
        at = self._reports.stamp()
        version = plan.metadata.resource_version

        def patch(newest: DefragmentationPlan) -> Mapping[str, Any] | None:
            if newest.metadata.resource_version != version:
                raise ConflictError(f"DefragmentationPlan {plan.metadata.name} has changed", status=409)
            return {"status": _changed_status(newest, step, at)}

        written = await self._plans.write(plan.metadata.name, patch)
        if written is not None:
            self._moves.on_plan(None, written)
            self._reports.written(written, step)

    async def _evict(self, plan: DefragmentationPlan, move: PlannedMove) -> None:
        """Evict the workload of a move, unless it is evicted already."""
        message = self._reports.eviction(plan)
        stamp = status.Stamp(self._reports.now())

        def patch(obj: wire.Workload) -> status.Patch | None:
            if not is_planned(move, obj) or model.is_over(obj) or obj.status.admission is None:
                return None
            return status.evict(obj, reason=names.REASON_RESCHEDULED, message=message, stamp=stamp)

        with isolated(partial(self._not_evicted, plan, move)):
            written = await self._workloads.write(move.workload, patch)
            if written is not None:
                self._reports.evicted(written, message)

    def _not_evicted(self, plan: DefragmentationPlan, move: PlannedMove, error: Exception) -> None:
        self._tries[_about(plan, move.workload)] += 1
        bug = None if isinstance(error, KqueueError) else error
        _log.warning("the eviction of a move was not written", workload=move.workload, error=str(error), exc_info=bug)


def _about(plan: DefragmentationPlan, workload: str) -> str:
    return f"{plan.metadata.name} {plan.metadata.uid} {workload}"


def _changed_status(plan: DefragmentationPlan, step: Step, at: str) -> dict[str, Any]:
    """Return the changed fields of the status."""
    changed: dict[str, Any] = {}
    if step.moves:
        moves = [msgspec.to_builtins(move) for move in plan.status.moves]
        for number, of_move in step.moves.items():
            moves[number] |= _entered(of_move, at)
            if of_move.state is MoveState.PLANNED:
                moves[number].pop("since", None)
        changed["moves"] = moves
    if step.phase is not None:
        others = [msgspec.to_builtins(c) for c in plan.status.conditions if c.type != step.phase]
        changed["phase"] = step.phase
        changed["conditions"] = [*others, change(step.phase, step.reason, _cut(step.message), at)]
        if step.phase is PlanPhase.PROPOSED:
            changed["hash"] = hash_of(plan)
    return changed


def _entered(of_move: MoveChange, at: str) -> dict[str, Any]:
    """Return the fields of a move that enters a state."""
    found: dict[str, Any] = {"state": of_move.state, "message": _cut(of_move.message)}
    if of_move.state is not MoveState.PLANNED:
        found["since"] = at
    if of_move.state is MoveState.EVICTING:
        found["begun"] = at
    return found


def _cut(text: str) -> str:
    return text if len(text) <= 1000 else f"{text[:997]}..."


class MoveReports:
    """Tells of steps: a log line each, Events on plan, gang and workload, and metrics."""

    def __init__(self, *, workloads: WorkloadBook, recorder: Recorder, metrics: MoveMetrics, clock: Clock) -> None:
        self._workloads, self._recorder, self._metrics, self._clock = workloads, recorder, metrics, clock
        self.now = clock.now

    def stamp(self) -> str:
        """Return the present time as objects have it."""
        return utc_text(self._clock.now())

    def eviction(self, plan: DefragmentationPlan) -> str:
        """Return the message of an eviction: it names the plan, and what it gains."""
        found, gain = plan.status, plan.status.gain
        starts = f", so that {gain.starts} can start" if gain is not None and gain.starts else ""
        slots = f": slots {gain.slots_before} to {gain.slots_after}" if gain is not None else ""
        domain = "/".join(found.domain)
        return f"Moved by DefragmentationPlan {plan.metadata.name} to free {domain}{starts}{slots}"

    def evicted(self, workload: wire.Workload, message: str) -> None:
        """Tell that a workload was evicted."""
        reason = f"{names.EVENT_EVICTED_DUE_TO_PREFIX}{names.REASON_RESCHEDULED}"
        self._recorder.record(workload_reference(workload), reason=reason, message=message)
        _log.info("workload evicted", workload=model.workload_key(workload), reason=names.REASON_RESCHEDULED)

    def withdrawn(self, plan: DefragmentationPlan) -> None:
        """Tell that the approval of a changed plan does not count."""
        message = "Its text was changed after its approval, which was withdrawn; nothing was moved"
        self._recorder.record(_reference(plan), reason="ApprovalWithdrawn", message=message, warning=True)
        _log.warning("approval withdrawn, because the plan was changed", plan=plan.metadata.name)

    def written(self, plan: DefragmentationPlan, step: Step) -> None:
        """Tell of a step that was written."""
        name, found = plan.metadata.name, plan.status
        cost = found.cost.pod_seconds if found.cost is not None else 0
        for number, of_move in step.moves.items():
            move = found.moves[number]
            self._moved(plan, move, of_move)
            _log.info(
                "move of a defragmentation plan",
                plan=name,
                hash=found.hash,
                approver=_approver(plan),
                workload=move.workload,
                state=str(of_move.state),
                cost=move.cost,
                message=of_move.message,
            )
        if step.phase is not None:
            _log.info(
                "defragmentation plan",
                plan=name,
                hash=found.hash,
                approver=_approver(plan),
                phase=str(step.phase),
                reason=step.reason,
                cost=cost,
                message=step.message,
            )
            self._entered(plan, step)

    def _moved(self, plan: DefragmentationPlan, move: PlannedMove, of_move: MoveChange) -> None:
        name = plan.metadata.name
        if of_move.state in _ENDED:
            self._metrics.move_ended(of_move.state.lower(), move.cost if move.begun is not None else 0)
        obj = self._workloads.newest(move.workload)
        warning = of_move.state in (MoveState.FAILED, MoveState.ABORTED)
        message = f"Move of {move.workload} by DefragmentationPlan {name} is {of_move.state}: {of_move.message}"
        self._recorder.record(_reference(plan), reason=f"Move{of_move.state}", message=message, warning=warning)
        if obj is not None and is_planned(move, obj):
            self._recorder.record(
                workload_reference(obj), reason=f"Move{of_move.state}", message=message, warning=warning
            )

    def _entered(self, plan: DefragmentationPlan, step: Step) -> None:
        message = f"DefragmentationPlan {plan.metadata.name} is {step.phase}: {step.message}"
        warning = step.phase in (PlanPhase.ABORTED, PlanPhase.FAILED)
        self._recorder.record(_reference(plan), reason=f"Plan{step.phase}", message=message, warning=warning)
        goal = plan.spec.goal.workload
        gang = self._workloads.newest(f"{goal.namespace}/{goal.name}") if goal is not None else None
        if gang is not None:
            self._recorder.record(workload_reference(gang), reason=f"Plan{step.phase}", message=message)


def _approver(plan: DefragmentationPlan) -> str:
    """Return the cause of the approval, as the plan has it."""
    found = [c for c in plan.status.conditions if c.type == PlanPhase.APPROVED]
    return f"{found[0].reason}: {found[0].message}" if found else ""


def _reference(plan: DefragmentationPlan) -> ObjectReference:
    meta = plan.metadata
    return ObjectReference(
        names.KQUEUE_API_VERSION, names.DEFRAGMENTATION_PLAN_KIND, meta.name, meta.namespace, meta.uid
    )


def setup(manager: Manager) -> None:
    """Add the reconciler, if the feature gate of joint placement is on."""
    config, moves = manager.config, manager.moves
    if not config.enabled(_GATE):
        return
    plans, budgets = manager.shared(plans_watch), manager.shared(budgets_watch)
    workloads, rescheduling = manager.watches.workloads, config.joint.rescheduling
    queue_of = QueueOf(manager.queues)

    def state() -> DefragState:
        return DefragState(
            cache=manager.cache,
            workloads=workloads.store,
            queue_of=queue_of,
            budgets=tuple(budgets.store.values()),
            now=manager.clock.now(),
        )

    limits = CarryLimits(moves=move_limits(config.joint), least_gain=rescheduling.min_gain)
    facts = PlanFacts(moves, state, limits)
    moves.goal_claim = facts.goal_claim
    reconciler = Defragmentation(
        client=manager.client,
        plans=manager.writer(DEFRAGMENTATION_PLANS, plans, DefragmentationPlan),
        workloads=manager.workload_writer,
        moves=moves,
        facts=facts,
        limits=StepLimits(timeout=int(rescheduling.move_timeout.total_seconds()), parallel=rescheduling.parallel_moves),
        reports=MoveReports(
            workloads=manager.workload_writer,
            recorder=manager.recorder(Reporter.DEFRAGMENTATION),
            metrics=manager.metrics.joint,
            clock=manager.clock,
        ),
    )
    controller = manager.controller("defragmentation", reconciler.reconcile)

    def on_plan(old: DefragmentationPlan | None, new: DefragmentationPlan | None) -> None:
        moves.on_plan(old, new)
        seen = new if new is not None else old
        if seen is not None:
            controller.enqueue(seen.metadata.name)
            manager.wake()

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new if new is not None else old
        if seen is not None:
            for name in moves.plans_of(model.workload_key(seen)):
                controller.enqueue(name)

    def enqueue_all() -> None:
        for name in plans.store:
            controller.enqueue(name)

    plans.subscribe(on_plan)
    workloads.subscribe(on_workload)
    manager.on_lead.append(enqueue_all)
