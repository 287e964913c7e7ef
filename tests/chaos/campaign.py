"""One campaign: load, losses of the lead, rests, and the judge's verdict after each rest."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.audit import Audit, auditing
from tests.chaos.faults import FAULTS, Pair, pair
from tests.chaos.judge import PATIENCE, Breach, Judge, Totals
from tests.chaos.load import Load
from tests.chaos.world import Change
from tests.integration.controlplane.cluster import Cluster

REST_SECONDS = 15.0
"""What the statuses of ClusterQueues have to catch up when all Jobs have ended."""
_POLL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is asked of a campaign."""

    losses: int
    kinds: Sequence[str]
    seed: int
    first: int = 1
    """The number of the first loss: the ones before it were made by an earlier process of the same campaign."""
    rate: float = 3.0
    """Jobs per second at most."""
    backlog: int = 12
    """Jobs without an end at most."""
    between: tuple[float, float] = (0.5, 3.0)
    """Seconds of undisturbed lead before a fault."""
    rest_every: int = 5
    patience: float = PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What is known of one fault."""

    number: int
    kind: str
    lost: bool
    seconds: float
    """From the fault to the moment at which a process led again; 0 when the lead was not lost."""
    jobs: int
    """Jobs that have ended so far in this process of the campaign."""


@dataclass(slots=True)
class Outcome:
    """All that a campaign has found."""

    lines: list[Line] = field(default_factory=list)
    rests: list[dict[str, Any]] = field(default_factory=list)
    breaches: list[Breach] = field(default_factory=list)
    totals: Totals = field(default_factory=Totals)


Report = Callable[[str, dict[str, Any]], None]
"""Gets what has happened ("loss", "rest", "breach") and its facts, at once."""


class Campaign:
    """Runs a plan on a cluster."""

    def __init__(self, plan: Plan, cluster: Cluster, folder: Path, report: Report) -> None:
        self._plan, self._cluster, self._folder, self._report = plan, cluster, folder, report
        self._judge = Judge(plan.patience)
        self._submitting = asyncio.Event()
        self._history: list[Change] = []  # since the last rest
        self.outcome = Outcome(breaches=self._judge.breaches, totals=self._judge.totals)

    async def run(self) -> Outcome:
        """Make the world, take the lead away again and again, rest in between and at the end.

        Raises:
            NoLeaderError: nobody led for a minute after a fault.
            HistoryLostError: an event may be missing, so nothing can be judged.
        """
        async with auditing(self._cluster, time.monotonic) as audit, pair(self._cluster, self._folder) as both:
            chance = random.Random(f"{self._plan.seed}/load/{self._plan.first}")
            load = Load(self._cluster, audit, chance, rate=self._plan.rate, backlog=self._plan.backlog)
            await load.prepare()
            submitting = asyncio.create_task(load.run(self._submitting))
            try:
                await self._losses(both, load, audit)
                if submitting.done():
                    submitting.result()
                    raise AssertionError("the load ended before the campaign")
            finally:
                submitting.cancel()
                await asyncio.gather(submitting, return_exceptions=True)
        return self.outcome

    async def _losses(self, both: Pair, load: Load, audit: Audit) -> None:
        since_rest, number = 0, self._plan.first
        while number < self._plan.first + self._plan.losses:
            line = await self._one_fault(number, both, audit)
            number += line.lost
            since_rest += 1
            if since_rest >= self._plan.rest_every or line.kind == "regain":
                await self._rest(load, audit)
                since_rest = 0
        if since_rest:
            await self._rest(load, audit)

    async def _one_fault(self, number: int, both: Pair, audit: Audit) -> Line:
        """Load, a warm pair, a moment of lead, and the fault.  The same seed draws the same kinds."""
        chance = random.Random(f"{self._plan.seed}/{number}/{len(self.outcome.lines)}")
        self._submitting.set()
        leader = await both.warm()
        await asyncio.sleep(chance.uniform(*self._plan.between))  # the moment of a fault is drawn, not waited for
        kind = chance.choice(list(self._plan.kinds))
        loss = await FAULTS[kind](both, leader, chance)
        seconds = round(loss.seconds, 2)
        line = Line(number=number, kind=kind, lost=loss.lost, seconds=seconds, jobs=len(audit.complete))
        self.outcome.lines.append(line)
        self._report("loss", asdict(line))
        return line

    async def _rest(self, load: Load, audit: Audit) -> None:
        """No new Jobs; when all have ended, or no more end, the judge reads what has happened since the last rest."""
        self._submitting.clear()
        began, known = time.monotonic(), len(self._judge.breaches)
        await self._until_quiet(load, audit)
        await self._hear(audit)
        until = time.monotonic() + REST_SECONDS
        while self._judge.unsettled() and time.monotonic() < until:
            await asyncio.sleep(_POLL)
            await self._hear(audit)
        self._judge.at_rest(time.monotonic())
        self._tell_rest(time.monotonic() - began, known)
        self._history.clear()
        await load.remove()

    async def _until_quiet(self, load: Load, audit: Audit) -> None:
        """Return when every Job has ended, or when none has for longer than the patience."""
        last = time.monotonic()
        while load.unfinished():
            last = max([last, *audit.complete.values()])
            if time.monotonic() - last > self._plan.patience:
                return
            await asyncio.sleep(_POLL)

    async def _hear(self, audit: Audit) -> None:
        for change in await audit.drain():
            self._history.append(change)
            self._judge.take(change)

    def _tell_rest(self, seconds: float, known: int) -> None:
        facts = {"seconds": round(seconds, 2), **asdict(self._judge.totals)}
        self.outcome.rests.append(facts)
        self._report("rest", facts)
        history = write_history(self._folder, len(self.outcome.rests), self._history)
        for breach in self._judge.breaches[known:]:
            self._report("breach", {**asdict(breach), "evidence": str(history)})


def write_history(folder: Path, number: int, changes: Sequence[Change]) -> Path:
    """Write what happened up to one rest since the one before; returns the file."""
    path = folder / f"history-{number:03d}.jsonl"
    path.write_text("".join(f"{json.dumps(asdict(change))}\n" for change in changes))
    return path


def judged_again(folder: Path, patience: float = PATIENCE) -> Judge:
    """The verdict on the histories that a campaign has left in a folder, with a rest after each of them."""
    judge = Judge(patience)
    for path in sorted(folder.glob("history-*.jsonl")):
        now = 0.0
        for line in path.read_text().splitlines():
            change = Change(**json.loads(line))
            judge.take(change)
            now = change.at
        judge.at_rest(now)
    return judge
