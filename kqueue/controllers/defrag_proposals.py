"""Proposes DefragmentationPlans for gangs that wait although enough hosts are free, in several domains.

At most once in an interval, the first gangs that wait for topology get a search each.  A search runs in the planning
process of joint placement while no round needs it.  A plan that is found is stored, and moves nothing before it is
approved.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import structlog

from kqueue import model
from kqueue.api import names
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.defragmentation import DefragmentationPlan
from kqueue.clock import Clock
from kqueue.controllers.defrag_plan_ends import PlanEnds
from kqueue.controllers.defrag_settings import ProposalSettings, proposal_settings, why_no_proposals
from kqueue.controllers.manager import Manager
from kqueue.controllers.plan_watches import budgets_watch, plans_watch
from kqueue.controllers.record import Recorder, Reporter, record_waiting
from kqueue.controllers.resources import DEFRAGMENTATION_PLANS
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, NoPlan
from kqueue.core.joint.movable import MoveHistory
from kqueue.core.workload import Claim
from kqueue.errors import ApiError, ConfigError, InvalidObjectError, NotFoundError
from kqueue.isolation import isolated, isolated_logged
from kqueue.runtime.client import Client
from kqueue.runtime.deadline import within
from kqueue.runtime.reflector import Reflector
from kqueue.runtime.store import Store
from kqueue.state.cache import Cache
from kqueue.state.defrag.document import plan_object, pod_minutes, why_none
from kqueue.state.defrag.planning import AskedGoal, DefragAnswer, answer_of, question_steps
from kqueue.state.defrag.searches import SearchMemory, SearchResult, first_waiting
from kqueue.state.defrag.stored import BY_CONTROLLER, MOST_PLANS, dispensable, open_plan_for
from kqueue.state.defrag.view import DefragState
from kqueue.state.queues import Queues

T = TypeVar("T")
JSON = dict[str, Any]

_GANGS = 3
"""Gangs that get a search, or have a plan, each time."""
_LOOKED_AT = 32
"""Workloads that are looked at for that: others among them wait for quota, and moves free none."""
_TURN = 0.004
"""Seconds of work after which the event loop gets a turn."""
_POLL, _LONGEST_WAIT = 0.5, 120.0
"""Seconds between two looks at whether a round is planned, and seconds after which a search is given up for it."""
_SEARCH_LIMIT = 10.0
"""Seconds that a search may take, for which a round may have to wait."""

_log = structlog.get_logger(__name__)


class Searcher(Protocol):
    """Searches for moves beside the event loop."""

    def is_free(self) -> bool:
        """Whether no round is being planned, and none is carried out."""
        ...

    def claims(self) -> Sequence[Claim]:
        """Return the room that is kept for workloads that preempt others."""
        ...

    async def search(self, question: DefragQuestion) -> DefragPlan | NoPlan:
        """Return the answer; `question` must not change meanwhile.  Raises an error of any type: there is no answer."""
        ...


class QueueOf(NamedTuple):
    """Finds the ClusterQueues of LocalQueues."""

    queues: Queues

    def get(self, key: str, /) -> str | None:
        """Return the ClusterQueue of a LocalQueue (namespace/name), or None."""
        return self.queues.cluster_queue_of(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalState:
    """The state that proposals read.

    Args:
        plans_are_served: whether the API server has the kind of plans.
        history: the moves that have begun.
    """

    cache: Cache
    queues: Queues
    workloads: Store[wire.Workload]
    budgets: Store[wire_core.PodDisruptionBudget]
    plans: Store[DefragmentationPlan]
    plans_are_served: Callable[[], bool] = lambda: True
    history: Callable[[], MoveHistory] = MoveHistory
    memory: SearchMemory = field(default_factory=SearchMemory)


class ProposalMaker:
    """Looks for plans once in an interval."""

    def __init__(
        self,
        state: ProposalState,
        searcher: Searcher,
        *,
        client: Client,
        recorder: Recorder,
        clock: Clock,
        settings: ProposalSettings,
    ) -> None:
        self._state, self._searcher, self._client = state, searcher, client
        self._recorder, self._clock, self._settings = recorder, clock, settings
        self._made: set[str] = set()
        """Plans of the present look, which the watch may not have brought yet."""

    async def run(self) -> None:
        """Look for plans until cancelled, the first time after one interval."""
        while True:
            await self._clock.sleep(self._settings.interval)
            with isolated_logged(_log, "defragmentation plans could not be looked for"):
                await self.look()

    async def look(self) -> None:
        """Search once for each of the first gangs that wait for topology and have no plan."""
        state, clock = self._state, self._clock
        if not state.plans_are_served():
            return
        self._made.clear()
        left = _GANGS
        for key in await self._in_turns(first_waiting(state.queues, state.workloads, _LOOKED_AT)):
            if not left:
                return
            if open_plan_for(state.plans.values(), key, clock.now()) is not None:
                left -= 1
                continue
            with isolated() as looking:
                left -= await self._look_for(key)
            if looking.error is not None:
                self._note_failure(key, looking.error)
                left -= 1

    async def _look_for(self, key: str) -> bool:
        """Propose a plan for a workload if there is one; return whether it waits for topology and not for quota."""
        asked, settings = AskedGoal(workload=key), self._settings.search
        for _ in range(3):
            await within(self._clock, _LONGEST_WAIT, self._free_turn())
            state = self._defrag_state()
            try:
                question = await self._in_turns(
                    question_steps(state, asked, settings, limits=self._settings.limits, history=self._state.history())
                )
            except (NotFoundError, ConfigError, InvalidObjectError) as e:
                self._note(key, "NotPossible", f"no plan: {e}")
                return False
            if isinstance(question, str):
                self._note(key, "NotPossible", f"no plan: {question}")
                return False
            if self._searcher.is_free():  # else a round has begun, and goes first
                found = await within(self._clock, _SEARCH_LIMIT, self._searcher.search(question))
                await self._take(key, answer_of(state, asked, settings, question, found))
                return True
        raise TimeoutError("rounds of joint placement left no time for a search")

    async def _free_turn(self) -> None:
        while not self._searcher.is_free():
            await self._clock.sleep(_POLL)

    def _defrag_state(self) -> DefragState:
        state = self._state
        return DefragState(
            cache=state.cache,
            workloads=state.workloads,
            queue_of=QueueOf(state.queues),
            budgets=tuple(state.budgets.values()),
            claims=self._searcher.claims(),
            now=self._clock.now(),
        )

    async def _in_turns(self, steps: Generator[None, None, T]) -> T:
        """Return the result of some steps, and give the event loop a turn after some milliseconds of them."""
        since = self._clock.monotonic()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            if self._clock.monotonic() - since > _TURN:
                await self._clock.sleep(0)
                since = self._clock.monotonic()

    # --- what becomes of an answer

    async def _take(self, key: str, answer: DefragAnswer) -> None:
        if not isinstance(answer.found, DefragPlan):
            none = why_none(answer)
            self._note(key, none["reason"], none["message"])
            return
        workload = self._state.workloads.get(key)
        if workload is None or not await self._has_place():
            self._note(key, "TooManyPlans", _TOO_MANY)
            return
        plan = plan_object(answer, reason=BY_CONTROLLER, message="the controller computed it")
        await self._store(plan)
        self._note(key)
        name, status = plan["metadata"]["name"], plan["status"]
        _log.info(
            "defragmentation plan proposed",
            plan=name,
            workload=key,
            moves=[move["workload"] for move in status["moves"]],
            pod_seconds=status["cost"]["podSeconds"],
            hash=status["hash"],
        )
        record_waiting(
            self._recorder,
            workload,
            reason=names.EVENT_DEFRAGMENTATION_PROPOSED,
            message=_told(name, status),
            warning=False,
        )

    async def _has_place(self) -> bool:
        """Whether another plan may exist; for that, one that ended without an approval is deleted."""
        plans = self._state.plans
        if len({*plans, *self._made}) < MOST_PLANS:
            return True
        old = dispensable(plans.values(), self._clock.now())
        if old is None:
            return False
        await self._client.delete(DEFRAGMENTATION_PLANS, old.metadata.name, uid=old.metadata.uid)
        plans_left = {*plans, *self._made} - {old.metadata.name}
        return len(plans_left) < MOST_PLANS

    async def _store(self, plan: JSON) -> None:
        """Store a plan with its status; without its status it is deleted again."""
        name = plan["metadata"]["name"]
        await self._client.create(DEFRAGMENTATION_PLANS, {k: v for k, v in plan.items() if k != "status"})
        try:
            await self._client.patch(DEFRAGMENTATION_PLANS, name, {"status": plan["status"]}, subresource="status")
        except ApiError:
            with isolated_logged(_log, "a plan without its status could not be deleted", plan=name):
                await self._client.delete(DEFRAGMENTATION_PLANS, name)
            raise
        self._made.add(name)

    def _note_failure(self, key: str, error: Exception) -> None:
        why = str(error) or type(error).__name__
        self._note(key, "Failed", f"no plan: the search failed: {why}; it is tried again")
        _log.warning("no defragmentation plan could be made", workload=key, problem=why)

    def _note(self, key: str, reason: str = "", message: str = "") -> None:
        workload, now = self._state.workloads.get(key), self._clock.now()
        self._state.memory.last = now
        if workload is not None:
            self._state.memory.note(workload.metadata.uid, SearchResult(at=now, reason=reason, message=message))


_TOO_MANY = (
    f"no plan: {MOST_PLANS} DefragmentationPlans exist, and no more are allowed: delete old ones with kubectl delete "
    "defragmentationplans"
)


def _told(name: str, status: JSON) -> str:
    """Return the sentence of the event about a proposed plan; it names no other workload."""
    count = len(status["moves"])
    moved = "1 running workload" if count == 1 else f"{count} running workloads"
    return (
        f"DefragmentationPlan {name} would make room by moving {moved}, at a cost of "
        f"{pod_minutes(status['cost']['podSeconds'])}; look at it with: kqueue defrag show {name}; "
        f"approve it with: kqueue defrag approve {name} --hash {status['hash']}"
    )


class Searches:
    """The searcher of a process, which its scheduling loop brings; None: it has none."""

    def __init__(self) -> None:
        self.by: Searcher | None = None


def make_searches(_manager: Manager) -> Searches:
    """Return the searches of a process, still without a searcher."""
    return Searches()


def make_memory(_manager: Manager) -> SearchMemory:
    """Return an empty memory of searches."""
    return SearchMemory()


def setup(manager: Manager) -> None:
    """Add proposals and their ends, unless the configuration switches them off."""
    searcher = manager.shared(make_searches).by
    if searcher is None or why_no_proposals(manager.config):
        return
    settings, watches = proposal_settings(manager.config.joint), manager.watches
    plans, budgets = manager.shared(plans_watch), manager.shared(budgets_watch)
    state = ProposalState(
        cache=manager.cache,
        queues=manager.queues,
        workloads=watches.workloads.store,
        budgets=budgets.store,
        plans=plans.store,
        plans_are_served=lambda: not plans.missing,
        history=lambda: manager.moves.history(manager.clock.now()),
        memory=manager.shared(make_memory),
    )
    maker = ProposalMaker(
        state,
        searcher,
        client=manager.client,
        recorder=manager.recorder(Reporter.WORKLOADS),
        clock=manager.clock,
        settings=settings,
    )
    manager.background.append(maker.run)
    _add_ends(manager, plans, settings)


def _add_ends(
    manager: Manager, plans: Reflector[DefragmentationPlan, DefragmentationPlan], settings: ProposalSettings
) -> None:
    workloads = manager.watches.workloads

    def waits(key: str) -> bool:
        workload = workloads.store.get(key)
        return workload is not None and workload.status.admission is None and not model.is_over(workload)

    ends = PlanEnds(client=manager.client, plans=plans.store, waits=waits, clock=manager.clock, auto=settings.auto)
    controller = manager.controller("defragmentation_proposals", ends.reconcile)

    def on_plan(_old: DefragmentationPlan | None, new: DefragmentationPlan | None) -> None:
        if new is not None:
            controller.enqueue(new.metadata.name)

    def on_workload(old: wire.Workload | None, new: wire.Workload | None) -> None:
        seen = new or old
        if seen is not None and len(plans.store):
            for name in ends.of_workload(model.workload_key(seen)):
                controller.enqueue(name)

    def enqueue_all() -> None:
        for name in ends.names():
            controller.enqueue(name)

    plans.subscribe(on_plan)
    workloads.subscribe(on_workload)
    manager.on_lead.append(enqueue_all)
