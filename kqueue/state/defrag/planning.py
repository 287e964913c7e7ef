"""Defragmentation plans of the cluster's present state."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime

from kqueue import model
from kqueue.core.demand import Demands
from kqueue.core.joint.defrag import DefragPlan, DefragQuestion, DefragSettings, Goal, NoPlan
from kqueue.core.joint.goals import goal_of, goal_of_nodes
from kqueue.core.joint.movable import MoveHistory, MoveLimits
from kqueue.core.joint.moving import RunningGang
from kqueue.core.joint.world import World
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.steps import result_of
from kqueue.errors import ConfigError, NotFoundError
from kqueue.state.defrag.running import running_steps
from kqueue.state.defrag.view import DefragState
from kqueue.state.heads import Heads


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedGoal:
    """The goal as its user names it: a waiting Workload (namespace/name), or flavor, level and nodes."""

    workload: str = ""
    flavor: str = ""
    level: str = ""
    nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragAnswer:
    """The plan, or the sentence that says why there is none; `found` has the details, where a search was made."""

    asked: AskedGoal
    settings: DefragSettings
    goal: Goal | None = None
    found: DefragPlan | NoPlan | None = None
    problem: str = ""
    at: datetime


def plan(
    state: DefragState,
    asked: AskedGoal,
    settings: DefragSettings,
    *,
    limits: MoveLimits,
    history: MoveHistory | None = None,
) -> DefragAnswer:
    """Return the cheapest moves for a goal.

    Raises:
        NotFoundError: there is no such Workload, flavor or level.
        ConfigError: the Workload does not wait.
        InvalidObjectError: the requests of the Workload cannot be read.
    """
    question = result_of(question_steps(state, asked, settings, limits=limits, history=history))
    found = None if isinstance(question, str) else question.answer()
    return answer_of(state, asked, settings, question, found)


def question_steps(
    state: DefragState,
    asked: AskedGoal,
    settings: DefragSettings,
    *,
    limits: MoveLimits,
    history: MoveHistory | None = None,
) -> Generator[None, None, DefragQuestion | str]:
    """Prepare a search in short steps; return its input, or why moves cannot help.

    The first step reads the room of the cluster, as of one moment.  Raises what `plan` raises.
    """
    world, goal = _goal(state, asked)
    if isinstance(goal, str):
        return goal
    topologies, running = world.snapshot.topologies, list[RunningGang]()
    yield from running_steps(state, topologies, running, limits=limits, history=history or MoveHistory())
    return DefragQuestion(topologies=topologies, goal=goal, running=running, settings=settings)


def answer_of(
    state: DefragState,
    asked: AskedGoal,
    settings: DefragSettings,
    question: DefragQuestion | str,
    found: DefragPlan | NoPlan | None,
) -> DefragAnswer:
    """Return the answer to a question; `found` is the result of its search, None: there was none."""
    if isinstance(question, str):
        return DefragAnswer(asked=asked, settings=settings, problem=question, at=state.now)
    return DefragAnswer(asked=asked, settings=settings, goal=question.goal, found=found, at=state.now)


def _goal(state: DefragState, asked: AskedGoal) -> tuple[World, Goal | str]:
    if asked.workload:
        return _goal_of_workload(state, asked.workload)
    world = _world(state, "")
    view = world.snapshot.topologies.get(asked.flavor)
    if view is None:
        known = ", ".join(sorted(world.snapshot.topologies)) or "none"
        raise NotFoundError(f"no ResourceFlavor {asked.flavor} with a topology; there are {known}")
    levels = [level for level in view.tree.levels if asked.level in (level, level.rpartition("/")[2])]
    if len(levels) != 1:
        raise NotFoundError(f"flavor {asked.flavor} has no level {asked.level}; it has {', '.join(view.tree.levels)}")
    level = view.tree.levels.index(levels[0])
    return world, goal_of_nodes(asked.flavor, level, asked.nodes, view.capacity)


def _goal_of_workload(state: DefragState, key: str) -> tuple[World, Goal | str]:
    obj = state.workloads.get(key)
    if obj is None:
        raise NotFoundError(f"Workload {key} not found; kubectl get workloads -A lists all")
    if state.cache.held.holding(key) is not None or model.is_over(obj):
        raise ConfigError(f"Workload {key} does not wait: it has its quota already, or is over")
    queue = state.queue_of.get(model.local_queue_key(obj)) or ""
    inactive = state.cache.quota.inactive(queue) if queue else None
    world = _world(state, queue)
    if not queue or queue not in world.snapshot.queues:
        why = inactive.message if inactive is not None else "there is no such LocalQueue, or its ClusterQueue is gone"
        return world, f"nothing of LocalQueue {model.local_queue_key(obj)} is admitted: {why}"
    head = Heads(state.cache, state.workloads.get).make(obj, None, queue=queue, now=state.now)
    if head.problem:
        return world, head.problem
    waited = int((state.now - head.timestamp).total_seconds())
    return world, goal_of(head, world, waited=waited)


def _world(state: DefragState, queue: str) -> World:
    """Return a copy of the state with its claims, which are known to the controller alone."""
    queues = [queue] if queue else []
    snapshot = state.cache.snapshot(queues, state.claims)
    return World(PlannedState(snapshot=snapshot, rules=Rules(now=state.now)), queues, demands=Demands())
