"""Worlds in which running gangs are moved: their users consent or not, persons approve plans or end them, and leaders
are lost in the middle of moves.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter, defaultdict
from datetime import timedelta
from typing import Any

from kqueue.api import move_names, names
from kqueue.clock import api_time, utc_text
from kqueue.config.joint import DefragProposals, JointPlacementSettings, ReschedulingSettings
from kqueue.errors import ConfigError, ConflictError, NotFoundError
from kqueue.operations.defrag import storing
from kqueue.sandbox.api import JOBS, GroupVersionResource, Object
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.store import StoreChange
from tests.sim.joint_actor import JointActor
from tests.sim.joint_planner import Desk
from tests.sim.objects import FOREIGN, NAMESPACE, WORKLOADS
from tests.sim.plan import COMMON, Actions, Draft, End, Plan
from tests.sim.reading import Breaches, Invariant
from tests.sim.world import World, condition, subject_of

PLANS = GroupVersionResource("kqueue.dev", "v1alpha1", "defragmentationplans")
LEAST_RUNTIME, CHECKPOINT_AGE = 600.0, 600.0
"""Seconds that a gang runs before it is moved, and that its checkpoint may be old."""
_SLACK = 5.0
"""Seconds between the decision to evict and its write, without faults."""
_STATES = ("Planned", "Reserved", "Evicting", "Replacing", "Running", "Done")
_NAMED = re.compile(r"Moved by DefragmentationPlan (\S+)")
_HOSTS = tuple(f"b0-r{r}-h{h}" for r in range(3) for h in range(4))


def moving(*, auto: bool, an_hour: int = 4, parallel: int = 1) -> JointPlacementSettings:
    """Settings with frequent searches; no least gain, and no rest between two moves."""
    rescheduling = ReschedulingSettings(
        migration="Auto" if auto else "Propose",
        min_gain=0,
        cooldown=timedelta(0),
        max_moves_per_hour=an_hour,
        parallel_moves=parallel,
    )
    return JointPlacementSettings(rescheduling=rescheduling, defrag=DefragProposals(interval=timedelta(seconds=30)))


class MoveWatch:
    """Judges each move at its writes."""

    def __init__(self, world: World, *, an_hour: int) -> None:
        self._world, self._an_hour = world, an_hour
        self._states: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._moved: Counter[tuple[str, str]] = Counter()
        self._found: list[str] = []
        self._at: list[float] = []
        self.phases: Counter[str] = Counter()
        """The number of plans that have ever had each phase."""
        self._seen: set[tuple[str, str]] = set()
        world.api.listen(self._take)
        self.always: tuple[Invariant, ...] = (self.moves_are_allowed,)

    @property
    def moves(self) -> int:
        """The number of evictions by plans."""
        return sum(self._moved.values())

    def moves_are_allowed(self, _world: World) -> Breaches:
        """No workload is moved without consent, before its target is reserved, twice by one plan, or beyond the limit."""
        yield from self._found

    def _take(self, kind: ServedKind, change: StoreChange) -> None:
        if change.record is None or change.type == "DELETED":
            return
        new, old = change.record.obj, None if change.old is None else change.old.obj
        if kind.resource.plural == PLANS.plural:
            self._plan(new)
        elif kind.resource.plural == WORKLOADS.plural:
            now, before = condition(new, names.CONDITION_EVICTED), condition(old, names.CONDITION_EVICTED)
            is_new = now is not None and now["status"] == "True" and (before is None or before["status"] != "True")
            if now is not None and is_new and now["reason"] == names.REASON_RESCHEDULED:
                self._found += [f"t={self._world.clock.monotonic():.1f}: {told}" for told in self._moved_now(new, now)]

    def _plan(self, plan: Object) -> None:
        uid, status = plan["metadata"]["uid"], plan.get("status") or {}
        if status.get("phase") and (uid, status["phase"]) not in self._seen:
            self._seen.add((uid, status["phase"]))
            self.phases[status["phase"]] += 1
        for move in status.get("moves") or ():
            states = self._states[uid, move["workload"]]
            if not states or states[-1] != move["state"]:
                states.append(move["state"])

    def _moved_now(self, workload: Object, evicted: Object) -> Breaches:
        name, key = subject_of(workload), f"{NAMESPACE}/{workload['metadata']['name']}"
        told = _NAMED.match(evicted["message"])
        plan = self._world.find(PLANS, told[1]) if told is not None else None
        if plan is None:
            yield f"{name} was moved by no plan: {evicted['message']}"
            return
        uid = plan["metadata"]["uid"]
        states = self._states[uid, key]
        if "Reserved" not in states or states[-1] != "Evicting":
            yield f"{name} was evicted in the states {states} of plan {told[1] if told else ''}"
        if plan["spec"].get("approved") != plan["status"]["hash"] or plan["status"]["phase"] not in (
            "Running",
            "Aborted",
        ):
            yield f"{name} was moved by a plan that is {plan['status']['phase']}, approved {plan['spec'].get('approved')!r}"
        self._moved[uid, workload["metadata"]["uid"]] += 1
        if self._moved[uid, workload["metadata"]["uid"]] > 1:
            yield f"{name} was moved twice by one plan"
        now = self._world.clock.monotonic()
        self._at.append(now)
        within = [at for at in self._at if at > now - 3600.0]
        if len(within) > self._an_hour:
            yield f"{name} is the move number {len(within)} within an hour, {self._an_hour} are allowed"
        yield from self._without_consent(workload, name)

    def _without_consent(self, workload: Object, name: str) -> Breaches:
        notes, now = workload["metadata"].get("annotations") or {}, self._world.clock.now()
        slack = _SLACK + self._world.horizon
        consent = notes.get(move_names.RESCHEDULE_ANNOTATION, "Never")
        if consent not in ("Always", "AfterCheckpoint"):
            yield f"{name} was moved, its consent is {consent}"
        saved = api_time(notes.get(move_names.LAST_CHECKPOINT_ANNOTATION))
        if consent == "AfterCheckpoint" and (saved is None or (now - saved).total_seconds() > CHECKPOINT_AGE + slack):
            yield f"{name} was moved, its last checkpoint is {saved}"
        admitted = condition(workload, names.CONDITION_ADMITTED)
        since = api_time(admitted["lastTransitionTime"]) if admitted is not None else None
        if since is None or (now - since).total_seconds() < LEAST_RUNTIME:
            yield f"{name} was moved, it runs since {since}"


class MovesDraft(Draft):
    """The draft of a plan with moves: racks of four hosts fill, and gangs that need whole racks wait."""

    def add(self, action: str, **arguments: Any) -> None:
        """Append a step; gangs run for ten minutes before they may be moved, so pauses are long."""
        super().add(action, **arguments)
        last = self.plan.steps.pop()
        self.plan.steps.append(type(last)(last.action, last.arguments, self.chance.choice((0, 1, 5, 30, 60, 120, 300))))

    def at_once(self, kind: str, **settings: Any) -> None:
        """Submit a gang without a pause afterwards."""
        self.submit(kind, End.COMPLETE, queue="q", gpus=8, retries=100, **settings)
        last = self.plan.steps.pop()
        self.plan.steps.append(type(last)(last.action, last.arguments, 0))

    def wave(self) -> None:
        """Submit gangs of two hosts, every second of which ends soon, so that racks are half full then; later a gang comes
        that needs a rack.
        """
        for number in range(6):
            consent = self.chance.choice(("Always", "Always", "Always", "AfterCheckpoint", ""))
            self.at_once("small", pods=2, run_seconds=20 if number % 2 else 1100, consent=consent)
        self.add("wait")
        self.big()

    def small(self) -> None:
        """Submit a gang of one to three hosts, whose user consents to moves or not."""
        consent = self.chance.choice(("Always", "AfterCheckpoint", ""))
        self.at_once(
            "small", pods=self.chance.randint(1, 3), run_seconds=self.chance.choice((60, 900)), consent=consent
        )

    def big(self) -> None:
        """Submit a gang that needs a rack, or most of one."""
        pods = self.chance.choice((3, 4, 4))
        self.submit("big", End.COMPLETE, queue="q", pods=pods, gpus=8, run_seconds=200, retries=100)

    def stranger(self) -> None:
        """A stranger takes a host."""
        host = self.chance.choice(_HOSTS)
        self.add("add_foreign_pod", name=f"{FOREIGN}{len(self.plan.steps)}", node=host, gpus=self.chance.randint(1, 8))

    def node(self, action: str) -> None:
        """Append an action on a node."""
        self.add(action, name=self.chance.choice(_HOSTS))


_MOVES: Actions = (
    (MovesDraft.wave, 3),
    (MovesDraft.small, 2),
    (MovesDraft.big, 3),
    (lambda d: d.add("approve_plans"), 24),
    (lambda d: d.add("abort_plan"), 2),
    (lambda d: d.add("save_checkpoints"), 6),
    (lambda d: d.add("wait"), 10),
    (MovesDraft.stranger, 2),
    (lambda d: d.add("remove_strangers"), 3),
    *((action, 1) for action, _ in COMMON[:1]),
    *COMMON[4:],
)


class MovesActor(JointActor):
    """Carries out a plan on a world with moves."""

    named = "moves"

    def __init__(self, world: World, plan: Plan, desk: Desk, *, an_hour: int) -> None:
        super().__init__(world, plan, desk)
        self.moves = MoveWatch(world, an_hour=an_hour)
        self.watch.always += self.moves.always

    async def submit(self, name: str, *, slow: float = 0.0, consent: str = "", **settings: Any) -> None:
        """A user creates a gang, and says whether it may be moved."""
        await super().submit(
            name, slow=slow, **settings, notes={move_names.RESCHEDULE_ANNOTATION: consent} if consent else {}
        )

    async def approve_plans(self) -> None:
        """A person approves all plans that are proposed."""
        for plan in self.world.objects(PLANS):
            if (plan.get("status") or {}).get("phase") == "Proposed":
                with contextlib.suppress(ConfigError, ConflictError, NotFoundError):
                    await storing.approve(self.world.asking, plan["metadata"]["name"], "", self.world.clock.now())

    async def abort_plan(self) -> None:
        """A person ends the first plan that is not over."""
        for plan in self.world.objects(PLANS):
            if (plan.get("status") or {}).get("phase") in ("Proposed", "Approved", "Running"):
                with contextlib.suppress(ConfigError, ConflictError, NotFoundError):
                    await storing.abort(self.world.asking, plan["metadata"]["name"], self.world.clock.now())
                return

    async def save_checkpoints(self) -> None:
        """All gangs write a checkpoint."""
        notes = {move_names.LAST_CHECKPOINT_ANNOTATION: utc_text(self.world.clock.now())}
        for found in self.world.objects(JOBS):
            if found["metadata"]["name"] in self.plan.ends:
                await self._patch(JOBS, found["metadata"]["name"], {"metadata": {"annotations": notes}})

    async def restore(self) -> None:
        """Delete plans that are over, which the controller would delete an hour later."""
        await super().restore()
        for plan in self.world.objects(PLANS):
            if (plan.get("status") or {}).get("phase") not in ("Approved", "Running"):
                with contextlib.suppress(NotFoundError):
                    await self.world.api.delete(PLANS, plan["metadata"]["name"])


def draw_moves(seed: int | str, *, steps: int = 36) -> Plan:
    """Return the plan of a seed."""
    draft = MovesDraft(f"{seed}/moves")
    draft.wave()
    return draft.draw(steps, _MOVES)
