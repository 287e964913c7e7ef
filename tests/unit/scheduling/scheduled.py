"""A world with a scheduling loop, and the loop's reports."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from kqueue.api.wire import kueue as wire
from kqueue.core.backfill.plans import MoveCause, StartPlans
from kqueue.core.decision import Admit, Phase, Retargeted
from kqueue.core.mention import Mention
from kqueue.core.preemption import Target
from kqueue.core.workload import Admission
from kqueue.scheduling.context import Lookups, SchedulingState
from kqueue.scheduling.loop import SchedulingLoop
from kqueue.scheduling.settings import LoopSettings
from kqueue.state.fair_usage import FairUsage
from kqueue.state.preemptions import Preemptions
from kqueue.state.second_pass import SecondPass
from kqueue.state.tries import Tries
from tests.unit.controllers.builders import World


class Observed:
    """What the loop reported."""

    def __init__(self) -> None:
        self.cycles: list[bool] = []
        self.phases: list[dict[Phase, float]] = []
        self.robbed: dict[str, int] = {}
        self.retargets: list[tuple[str, str]] = []
        self.planned: list[tuple[str, object]] = []
        self.reservations: list[str] = []
        self.waiting: list[tuple[str, str]] = []
        self.preemptions: list[tuple[str, str]] = []
        self.loops: list[tuple[str, tuple[str, ...]]] = []
        self.not_mended_messages: list[str] = []
        self.taken_over: list[tuple[str, str]] = []
        self.quarantines: list[tuple[str, str, str]] = []
        self.gangs_away: list[tuple[str, str]] = []
        self.overruns: list[tuple[str, str]] = []

    def cycle_ended(
        self, *, seconds: float, success: bool, robbed: Mapping[str, int], phases: Mapping[Phase, float]
    ) -> None:
        del seconds
        self.phases.append(dict(phases))
        self.robbed |= robbed
        self.cycles.append(success)

    def reserved(self, workload: wire.Workload, admission: Admission, *, decision: Admit) -> None:
        del admission, decision
        self.reservations.append(workload.metadata.name)

    def waits(self, workload: wire.Workload, *, reason: str, message: str) -> None:
        del message
        self.waiting.append((workload.metadata.name, reason))

    def quarantined(self, workload: wire.Workload, *, queue: str, message: str) -> None:
        self.quarantines.append((workload.metadata.name, queue, message))

    def replaced(self, workload: wire.Workload, *, by: str) -> None:
        self.taken_over.append((workload.metadata.name, by))

    def preempted(
        self, workload: wire.Workload, *, target: Target, queue: str, preemptor: wire.Workload, message: str
    ) -> None:
        del target, queue, message
        self.preemptions.append((workload.metadata.name, preemptor.metadata.name))

    def planned_start_kept(self, queue: str, *, in_time: bool) -> None:
        self.planned.append((queue, in_time))

    def planned_start_moved(self, queue: str, cause: MoveCause) -> None:
        self.planned.append((queue, cause))

    def retargeted(self, queue: str, result: Retargeted) -> None:
        self.retargets.append((queue, result))

    def preemption_loop(self, preemptor: wire.Workload, *, queue: str, victims: Sequence[Mention]) -> None:
        del queue
        self.loops.append((preemptor.metadata.name, tuple(victim.key for victim in victims)))

    def made_way(self, workload: wire.Workload, *, message: str) -> None:
        self.gangs_away.append((workload.metadata.name, message))

    def overran(self, workload: wire.Workload, *, message: str) -> None:
        self.overruns.append((workload.metadata.name, message))

    def no_domains(self, workload: wire.Workload, *, message: str) -> None:
        del workload
        self.not_mended_messages.append(message)

    def hosts_not_replaced(self, workload: wire.Workload, *, message: str) -> None:
        del workload
        self.not_mended_messages.append(message)


class Scheduled(World):
    """A world with a scheduling loop."""

    def __init__(
        self, *objects: Any, settings: LoopSettings | None = None, fair_usage: FairUsage | None = None
    ) -> None:
        waits_for_ready = settings is not None and settings.block_admission
        concurrent = settings is not None and settings.variants is not None
        super().__init__(*objects, waits_for_ready=waits_for_ready, concurrent=concurrent, fair_usage=fair_usage)
        self.observed = Observed()
        self.second_pass = SecondPass()
        self.pauses: list[float] = []
        self.second_pass.later = lambda _key, seconds: self.pauses.append(seconds)
        self.settings = settings
        self.extras: dict[str, int] = {}
        """The present pods beyond the quorum of a gang, by its Workload."""
        self.running: asyncio.Task[None] | None = None
        self.begin()

    def begin(self) -> None:
        """A loop that knows of nothing but what cache and queues have: the first one, or that after a restart."""
        self.preemptions = Preemptions()
        self.tries = Tries()
        self.preemptions.on_ended = self.intake.on_claim_ended
        self.start_plans = StartPlans()
        self.start_plans.on_ended = self.intake.on_claim_ended
        self.loop = SchedulingLoop(
            SchedulingState(
                cache=self.cache,
                queues=self.queues,
                second_pass=self.second_pass,
                preemptions=self.preemptions,
                quarantine=self.quarantine,
                tries=self.tries,
                fair_usage=self.fair_usage,
                start_plans=self.start_plans,
            ),
            Lookups(
                namespace_labels=self.namespaces.get,
                host_of=lambda node: node.removeprefix("node-") if node.startswith("node-") else None,
                look_at_parked=self.intake.look_at_parked,
                extras_of=lambda obj: self.extras.get(obj.metadata.name, 0),
            ),
            writer=self.writer,
            observer=self.observed,
            clock=self.clock,
            settings=self.settings,
        )
        self.on_wake = self.loop.wake

    def start(self) -> None:
        self.running = asyncio.create_task(self.loop.run())

    async def cycle(self) -> bool:
        """One cycle, and the end of its writes."""
        success = await self.loop.cycle()
        await self.loop.drain()
        return success

    async def until_quiet(self) -> int:
        """Let a running loop work until nothing is due any more; the cycles that it took.  Fails if it does not end."""
        before = self.loop.cycles
        for _ in range(200):
            await self.clock.advance(0.05)
            if self.clock.next_wake() is None:
                return self.loop.cycles - before
        raise AssertionError("the loop goes on and on")

    async def close(self) -> None:
        self.client.open.set()
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        await self.loop.drain()
        await super().close()
