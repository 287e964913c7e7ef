"""Invariants of worlds with joint placement.  Each method yields one sentence per breach."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import Any

from kqueue.api import names
from kqueue.core.assignment import decode
from kqueue.sandbox.api import Object
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange
from tests.readings import page_of
from tests.sim.api_client import NONE
from tests.sim.history import admission_of
from tests.sim.joint_planner import AskedRound, Desk
from tests.sim.joint_tenancy import TIME_LIMIT
from tests.sim.objects import WORKLOADS
from tests.sim.reading import Breaches, Invariant, holds
from tests.sim.world import World, condition, is_true

_NAMED = re.compile(r"joint round (\d+)")
_COUNTED = re.compile(r'^kqueue_joint_rounds_total\{.*?result="(\w+)".*?\} (\S+)', re.MULTILINE)
_MOST_AT_ONCE = 40
"""Rounds within one moment; a batch of few workloads needs several."""


class JointWatch:
    """Looks at the rounds of a world."""

    def __init__(self, world: World, desk: Desk) -> None:
        self._world, self._desk = world, desk
        self._looked, self._found = 0, list[str]()
        self._since: tuple[tuple[int, int], float] | None = None
        """The round that is being planned, and the time since which it is."""
        self._admitted: set[tuple[int, int, int, str]] = set()
        self.by_plan = 0
        """Admissions that name a round."""
        world.history.witnesses.append(self._admission)
        world.on_settled.append(self._settled)
        self._pods = 0
        """Changes of pods, which may give room back or take it."""
        world.api.listen(self._pod)
        desk.era = lambda: (world.history.era, world.history.stirred, self._pods)
        self.always: tuple[Invariant, ...] = (self.plans_are_right, self.rounds_do_not_repeat_themselves)
        self.at_rest: tuple[Invariant, ...] = (
            self.rounds_are_counted,
            self.those_who_wait_know_their_round,
            self.nothing_is_left_of_plans,
        )

    def plans_are_right(self, _world: World) -> Breaches:
        """No plan overdraws a host or quota, splits a gang, passes a strict queue, or is worse than one by one; no queue is
        held longer than the time limit; no leader carries out the plan of another one.
        """
        yield from self._desk.breaches
        yield from self._found

    def rounds_do_not_repeat_themselves(self, _world: World) -> Breaches:
        """No round is planned again with the same workloads on the same state, unless one of them waits for a place."""
        rounds, self._looked = self._desk.rounds[max(0, self._looked - 1) :], len(self._desk.rounds)
        for before, after in pairwise(rounds):
            same = (before.process, before.term, before.uids) == (after.process, after.term, after.uids)
            if not same or before.answer is None or before.world != after.world or before.era != after.era:
                continue
            waits = any(entry.is_deferred for entry in before.answer.entries)
            if self._world.faults == NONE and (not waits or before.at == after.at):
                told = f"{before.fault.value}: {[(e.key, e.is_admitted) for e in before.answer.entries]}"
                yield f"round {after.number} at t={after.at:.1f} repeats round {before.number} at t={before.at:.1f} {told}"
        moments = Counter(asked.at for asked in rounds)
        yield from (f"{n} rounds at t={at:.1f}" for at, n in moments.items() if n > _MOST_AT_ONCE)

    def settled_after(self, rounds: int) -> None:
        """Note a breach if there were more rounds than these: nothing has happened since."""
        if len(self._desk.rounds) > rounds:
            self._found.append(
                f"{len(self._desk.rounds) - rounds} rounds were planned although nothing happens any more"
            )

    # --- at rest -----------------------------------------------------------------------------------------------------

    def rounds_are_counted(self, world: World) -> Breaches:
        """A process that led all the time has counted each of its rounds once, by its result."""
        controller = world.controller
        if controller is None:
            return
        rounds, operator = controller.operator.rounds, controller.operator
        assert rounds is not None
        counted = {
            result: int(float(number)) for result, number in _COUNTED.findall(page_of(operator.metrics).decode())
        }
        if getattr(operator, "terms", 1) > 1:
            return
        if sum(counted.values()) != rounds.number:
            yield f"{rounds.number} rounds have ended, {counted} are counted"
        remembered = rounds.history.rounds()
        if [record.number for record in remembered] != sorted((r.number for r in remembered), reverse=True):
            yield f"the history has the rounds {[record.number for record in remembered]}"
        if len(remembered) != min(rounds.number, 32):
            yield f"{rounds.number} rounds have ended, {len(remembered)} are remembered"
        mine = [asked for asked in self._desk.rounds if asked.process == self._desk.processes]
        answered = sum(asked.answer is not None and not asked.given_up for asked in mine)
        with_plan = counted.get("applied", 0) + counted.get("greedy", 0)
        if with_plan != answered:
            yield f"{answered} plans were made, {with_plan} are counted"

    def those_who_wait_know_their_round(self, world: World) -> Breaches:
        """A waiting Workload that the last plan has left out can be told so, with the number of the round."""
        if world.controller is None or world.controller.operator.rounds is None:
            return
        history = world.controller.operator.rounds.history
        for workload in world.objects(WORKLOADS):
            found = history.of(workload["metadata"]["uid"])
            if holds(workload) or is_true(workload, names.CONDITION_FINISHED) or found is None:
                continue
            blocker = found.blocker()
            if (blocker is None) != (found.entry.hint is not None):
                yield f"{workload['metadata']['name']} was left out by round {found.plan.round}, which is not told"
            if blocker is not None and f"joint round {found.plan.round}" not in blocker.detail:
                yield f"{workload['metadata']['name']}: {blocker.detail} does not name round {found.plan.round}"

    def nothing_is_left_of_plans(self, world: World) -> Breaches:
        """No round is being planned and no plan carried out when the world is at rest."""
        rounds = world.controller.operator.rounds if world.controller is not None else None
        if rounds is not None and (rounds.is_planning or rounds.goes_on):
            yield f"round {rounds.number} is not over: planning {rounds.is_planning}, entries {rounds.goes_on}"

    def _pod(self, kind: ServedKind, _change: StoreChange) -> None:
        self._pods += kind.resource.plural == "pods"

    # --- at writes and moments ---------------------------------------------------------------------------------------

    def _admission(self, workload: Object) -> Breaches:
        """An admission that names a round is one of the present leader's plan, at its domains, and the only one."""
        told = _NAMED.search(str((condition(workload, names.CONDITION_QUOTA_RESERVED) or {}).get("message", "")))
        controller = self._world.controller
        if told is None or controller is None:
            return
        self.by_plan += 1
        name, uid = workload["metadata"]["name"], workload["metadata"]["uid"]
        asked = self._asked(int(told[1]), getattr(controller.operator, "terms", 0))
        if asked is None or asked.answer is None:
            yield f"{name} was admitted by round {told[1]}, which this leader has not planned"
            return
        entry = next((e for e in asked.answer.entries if e.uid == uid), None)
        if entry is None or not entry.is_admitted or entry.hint is None:
            yield f"{name} was admitted by round {told[1]}, which has not admitted it"
            return
        if asked.fault.value == "none":
            planned = {n: _hosts(places) for n, places in entry.hint.places.items()}
            if planned != (given := _placed(workload)):
                yield f"{name} was given {given}, round {told[1]} has planned {planned}"
        key = (asked.process, asked.term, asked.number, uid)
        if key in self._admitted:
            yield f"{name} was admitted twice by round {told[1]}"
        self._admitted.add(key)

    def _asked(self, number: int, term: int) -> AskedRound | None:
        mine = (self._desk.processes, term, number)
        return next((a for a in reversed(self._desk.rounds) if (a.process, a.term, a.number) == mine), None)

    def _settled(self) -> None:
        controller, now = self._world.controller, self._world.clock.monotonic()
        rounds = controller.operator.rounds if controller is not None else None
        if rounds is None or not rounds.is_planning:
            self._since = None
            return
        which = self._desk.processes, rounds.number
        if self._since is None or self._since[0] != which:
            self._since = which, now
        elif now - self._since[1] > TIME_LIMIT + 0.001:
            self._found.append(f"round {rounds.number + 1} holds its queues for {now - self._since[1]:.1f} s")


def _hosts(places: Any) -> dict[str, int]:
    return {path[-1]: count for path, count in places}


def _placed(workload: Object) -> dict[str, dict[str, int]]:
    admission = admission_of(workload)
    assert admission is not None
    return {
        each["name"]: {d.values[-1]: d.count for d in decode(each["topologyAssignment"]).domains}
        for each in admission["podSetAssignments"]
        if each.get("topologyAssignment") is not None
    }
