"""`backfill/*` and `quality/backfill`: what planned starts cost, and what they are worth.

backfill/cycle    a cycle over 1,000 gangs with a planned start that is first in line, against the same cycle without
                  one; `last`: all gangs are ahead of the planned start in line; a fifth of the 2,560 hosts is free
backfill/search   the search for the planned start of a gang of a rack among 640 running gangs
quality/backfill  half a day on 160 hosts of eight GPUs: gangs of 1 to 4 hosts, and one in twelve takes a whole
                  rack of 16; run times from 5 to 60 minutes, limits of one and a half times that for two of three.
                  The same arrivals run with and without backfill
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import mean

from kqueue.api.backfill_names import BACKFILL_ANNOTATION
from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta
from kqueue.core import cycle, quota
from kqueue.core.backfill.plans import LineRule
from kqueue.core.backfill.search import ExpectedEnd, earliest
from kqueue.core.charging import release_domains
from kqueue.core.decision import Admit
from kqueue.core.future.day import Day, lived
from kqueue.core.future.question import DrainBounds, Line, StartQuestion, WaitingWorkload
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.core.topology import TopologyRequest
from kqueue.core.workload import Claim, Head, Snapshot
from kqueue.operations.day_comparison import compare
from kqueue.operations.day_policy import DayPolicy, question_of
from kqueue.record.day import RecordedDay, read_day
from kqueue.record.queries import Filter
from kqueue.record.records import Record
from tests.bench import future
from tests.bench._joint_worlds import GPUS, NOW, gang
from tests.bench.table import Figure, Row, at_least, at_most, check
from tests.recorded_days import make_question, record_day

SECONDS, GANGS, RACK = 43_200, 800, 16
LINE = LineRule(name="Cohort/all", guesses=False)


def _room() -> tuple[Snapshot, list[Head], list[ExpectedEnd]]:
    """The world of `future/*` after every fifth running gang has ended, its waiting gangs, and the ends of the rest."""
    asked = future.question()
    state = asked.state
    gone = [one for number, one in enumerate(state.holders) if number % 5 == 0]
    copy = state.copied([line.queue for line in asked.lines])
    copy.admitted = {
        queue: {key: one for key, one in some.items() if one not in gone} for queue, some in copy.admitted.items()
    }
    for one in gone:
        for column, amount in one.usage.items():
            quota.remove_usage(copy.nodes[one.queue], column, amount)
        for flavor, domains in one.domains.items():
            release_domains(flavor, domains, copy.topologies)
    heads = [one.head for line in asked.lines for one in line.workloads]
    ends = [
        ExpectedEnd(at=NOW + timedelta(seconds=asked.running[one.uid].run_time.p90 or 1), workload=one)
        for one in state.holders
        if one not in gone
    ]
    return copy, heads, ends


def _planned(ends: Sequence[ExpectedEnd], snapshot: Snapshot) -> tuple[Claim, float, float]:
    """The planned start of a gang of a rack, the milliseconds of the search, and of its longest step."""
    asked = future.question()
    head = replace(gang("first", RACK, GPUS, 0, TopologyRequest(required="rack")), queue="q0")
    state = replace(asked.state, snapshot=snapshot, holders=[end.workload for end in ends])
    begun = last = time.process_time()
    longest, steps = 0.0, earliest(state, head, ends, now=NOW)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            claim: Claim | None = end.value
            break
        now = time.process_time()
        longest, last = max(longest, now - last), now
    check(claim is not None, "the gang has no planned start")
    assert claim is not None
    return claim, (time.process_time() - begun) * 1e3, max(longest, time.process_time() - last) * 1e3


def cycles() -> Iterator[Figure]:
    """Alternately without the claim, with it behind all heads in line, and ahead of them; a cycle with the claim must not
    admit more.
    """
    took: dict[str, list[float]] = {"without": [], "behind": [], "ahead": []}
    admitted: dict[str, int] = {}
    for _ in range(5):
        for place, figures in took.items():
            snapshot, heads, ends = _room()
            if place != "without":
                claim = _planned(ends, snapshot)[0]
                first = min(head.timestamp for head in heads) - timedelta(seconds=1)
                snapshot.claims = (replace(claim, rank=(0, first)) if place == "ahead" else claim,)
            begun = time.process_time()
            decisions = list(cycle.plan(snapshot, heads, rules=future.question().state.rules))
            figures.append((time.process_time() - begun) * 1e3)
            admitted[place] = sum(isinstance(decision, Admit) for decision in decisions)
    check(0 < admitted["ahead"] <= admitted["without"], f"{admitted} workloads are admitted")
    yield Figure("without_ms", took["without"])
    yield Figure("ms", took["ahead"])
    yield Figure("ratio", _ratios(took["ahead"], took["without"]), at_most(1.2))
    yield Figure("last_ms", took["behind"])
    yield Figure("last_ratio", _ratios(took["behind"], took["without"]), at_most(1.2))


def _ratios(some: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(some, others, strict=True)]


def searched() -> Iterator[Figure]:
    """On a world of its own each time."""
    found = [_planned(ends, snapshot)[1:] for snapshot, _, ends in (_room() for _ in range(5))]
    yield Figure("ms", [whole for whole, _ in found])
    yield Figure("hold_ms", [longest for _, longest in found], at_most(20))


def _day(seed: int) -> StartQuestion:
    chance = random.Random(seed)
    asked = make_question(seed, 0, size=(2, 5, RACK), preempts=False, seconds=SECONDS)
    lines: dict[str, list[WaitingWorkload]] = {line.queue: [] for line in asked.lines}
    for number in range(GANGS):
        queue, at = chance.choice(sorted(lines)), chance.randint(0, SECONDS * 3 // 4)
        is_large = number % 12 == 0
        pods = RACK if is_large else chance.randint(1, 4)
        topology = TopologyRequest(required="rack") if is_large else TopologyRequest(unconstrained=True)
        seconds = chance.randint(300, 3_600)
        promised = seconds * 3 // 2 if chance.random() < 2 / 3 else None
        moment = asked.state.rules.now + timedelta(seconds=at)
        head = replace(
            gang("large" if is_large else "small", pods, GPUS, 0, topology),
            key=f"default/{'large' if is_large else 'small'}-{number}",
            uid=f"{'large' if is_large else 'small'}-{number}",
            queue=queue,
            timestamp=moment,
            promised=promised,
        )
        run_time = RunTime(p50=seconds, p90=seconds, source=RunTimeSource.EXPECTED)
        lines[queue].append(WaitingWorkload(head=head, run_time=run_time, shape=head.uid, not_before=moment))
    return replace(
        asked,
        lines=tuple(
            Line(queue=queue, is_strict=False, workloads=tuple(sorted(some, key=lambda one: one.head.timestamp)))
            for queue, some in lines.items()
        ),
        bounds=DrainBounds(horizon=2 * SECONDS, tries=10_000_000, workloads=1_000_000),
    )


def _waits(asked: StartQuestion, day: Day, kind: str) -> list[float]:
    starts, now = day.first_starts(), asked.state.rules.now
    came = {one.head.uid: one.head.timestamp for line in asked.lines for one in line.workloads}
    return [starts[uid] - (at - now).total_seconds() for uid, at in came.items() if uid.startswith(kind)]


def worth() -> Iterator[Figure]:
    """Waits in minutes, and the use of all GPUs until the last arrival in percent."""
    waits: dict[tuple[bool, str], list[float]] = {}
    uses: dict[bool, list[float]] = {False: [], True: []}
    for seed in range(3):
        asked = _day(seed)
        for with_line in (False, True):
            rules = {line.queue: LINE for line in asked.lines} if with_line else {}
            day = lived(replace(asked, line_of=rules))
            for kind in ("large", "small"):
                waits.setdefault((with_line, kind), []).append(mean(_waits(asked, day, kind)) / 60)
            window = SECONDS * 3 // 4
            used = sum(day.used(window).values())
            uses[with_line].append(100 * used / (window * 2 * 5 * RACK * GPUS))
    yield Figure("large_wait_before", waits[False, "large"])
    yield Figure("large_wait", waits[True, "large"])
    yield Figure("small_wait_before", waits[False, "small"])
    yield Figure("small_wait", waits[True, "small"])
    yield Figure("use_before", uses[False])
    yield Figure("use", uses[True])
    shorter = [one / other for one, other in zip(waits[True, "large"], waits[False, "large"], strict=True)]
    yield Figure("large_wait_ratio", shorter, at_most(1.0))
    kept = [one / other for one, other in zip(uses[True], uses[False], strict=True)]
    yield Figure("use_ratio", kept, at_least(1.0))


def replayed() -> Iterator[Figure]:
    """Through the record on disk, as `kqueue replay --policy` does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "record"
        record_day(_day(0), path)
        day = read_day(Record(path), Filter())
    cohort = wire.Cohort(metadata=ObjectMeta(name="all", annotations={BACKFILL_ANNOTATION: "time"}))
    before, after = compare(day, DayPolicy(cohorts=(cohort,)))
    large = {uid for uid in day.arrivals if uid.startswith("large")}
    check(len(large) > GANGS // 20, "the record has no large gangs")
    asked = question_of(day, DayPolicy(cohorts=(cohort,)))
    waits = {
        with_line: mean(_recorded_waits(day, lived(question), large)) / 60
        for with_line, question in ((False, replace(asked, line_of={})), (True, asked))
    }
    yield Figure("large_wait_before", [waits[False]])
    yield Figure("large_wait", [waits[True]])
    yield Figure("started_before", [before.all_waits.started])
    yield Figure("started", [after.all_waits.started])
    yield Figure("large_wait_ratio", [waits[True] / waits[False]], at_most(1.0))


def _recorded_waits(day: RecordedDay, again: Day, some: set[str]) -> list[float]:
    starts = again.first_starts()
    return [starts[uid] - (day.arrivals[uid].at - day.begin).total_seconds() for uid in some if uid in starts]


ROWS = (
    Row("backfill/cycle", cycles),
    Row("backfill/search", searched),
    Row("quality/backfill", worth, alone=True, asked="quality"),
    Row("quality/recorded", replayed, alone=True, asked="quality"),
)
