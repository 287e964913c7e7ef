"""Carries out plans on worlds with joint placement."""

from __future__ import annotations

from tests.sim.actor import Actor
from tests.sim.joint_invariants import JointWatch
from tests.sim.joint_planner import Desk, PlannerFault
from tests.sim.plan import Plan
from tests.sim.reading import Invariant
from tests.sim.terms import Deposer
from tests.sim.world import World


class JointActor(Actor):
    """One plan on one world whose rounds are planned at a desk."""

    named = "joint"

    def __init__(self, world: World, plan: Plan, desk: Desk) -> None:
        super().__init__(world, plan)
        self.desk, self.watch = desk, JointWatch(world, desk)

    def check(self, which: tuple[Invariant, ...]) -> None:
        """Raise BrokenWorldError if one of these invariants, or one of rounds, is broken."""
        super().check((*which, *self.watch.always))

    async def rest(self) -> None:
        """Wait without faults of planners and without losses of the lease, too."""
        how, on_turn = (self.desk.per_thousand, self.desk.slow), self.world.on_turn
        self.world.on_turn = lambda: None
        await super().rest()
        self.check(self.watch.at_rest)
        (self.desk.per_thousand, self.desk.slow), self.world.on_turn = how, on_turn

    async def _calm(self, seconds: float) -> None:
        self.desk.calm()
        await super()._calm(seconds)

    async def end(self) -> None:
        """Repair everything, wait for the end of all gangs, and see that no round is planned any more."""
        self.world.on_turn = lambda: None
        await super().end()
        self.check(self.watch.at_rest)
        rounds = len(self.desk.rounds)
        await self._calm(600)
        self.watch.settled_after(rounds)
        self.check(())

    # --- actions -----------------------------------------------------------------------------------------------------

    async def fail_rounds(self, fault: str, times: int) -> None:
        """The planner fails in the next rounds."""
        self.desk.next += [PlannerFault(fault)] * times

    async def slow_round(self, seconds: float) -> None:
        """The plan of the next round takes time."""
        self.desk.delays.append(seconds)

    async def set_quota(self, queue: str, gpus: int) -> None:
        """A ClusterQueue's quota of GPUs changes."""
        self.world.disturb_all()
        await super().set_quota(queue, gpus)

    async def choose_profile(self, queue: str, profile: str) -> None:
        """A ClusterQueue is planned jointly from now on, or not any more."""
        self.world.disturb_all()
        await super().choose_profile(queue, profile)


def losing_the_lease(world: World, seed: int | str, *, every: int) -> Deposer:
    """End terms of the world's controllers at drawn turns of the event loop."""
    world.on_turn = deposer = Deposer(world, f"{seed}/joint", every=every)
    return deposer
