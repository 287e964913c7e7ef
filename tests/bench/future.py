"""`future/*`: start times of 1,000 gangs that wait for 2,560 hosts of eight GPUs, all of which are taken.

Gangs of four hosts run in all 160 racks of 16 hosts; the waiting ones have 24 forms, from 2 to 16 pods, within a rack or a
block, in four ClusterQueues of a cohort.  Run times are drawn from 10 minutes to 10 hours; p90 is twice p50.
`ms` is processor time of one core for both drains, `stall_ms` the longest time for which the event loop is held while
the child process gets the question and gives the answer; it counts the turns of other processes, too.  `hold_ms` is the
longest processor time of one step of that; with `future/read` of reading the question from the state of a controller.

`future/coverage`: how well told start times hold.  Run times are drawn from a distribution whose p90 is three times its
p50, and known only as far as they were learned from runs that have ended; workloads arrive all the time.
`first_by_p90_percent` are the workloads that started by the first p90 that was told of them, `last_...` by the last one
before their start, `..._before_p50_percent` before p50; `untold` ones started without.  `future/coverage/burst` is one
cohort of the published load: 600 workloads of three classes in an hour, the large ones preempt the small ones.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache

from kqueue.clock import Clock, SystemClock
from kqueue.core import quota
from kqueue.core.future.learned import LearnedRunTimes
from kqueue.core.future.question import DAY, Line, StartQuestion, WaitingWorkload, WorkloadRun
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.core.future.start_times import StartTimes, start_times
from kqueue.core.future.told import StartOutcome, Telling
from kqueue.core.planned_state import PlannedState
from kqueue.core.preemption import Rules
from kqueue.core.quota import FlavorResource, Quota, QuotaNode
from kqueue.core.topology import HOSTNAME, Capacity, Leaf, NodeFacts, TopologyRequest, Tree
from kqueue.core.topology.result import DomainUsage
from kqueue.core.workload import Admitted, Flavor, Head, QueueSpec, ResourceGroup, Snapshot, TopologyView
from kqueue.runtime.loop import run
from kqueue.scheduling.child import without_collector
from kqueue.scheduling.future.frames import StartMessages, answer_parts
from kqueue.scheduling.future.process import StartTimesProcess
from kqueue.scheduling.joint.frames import Sent
from kqueue.state.run_times import RunTimes
from kqueue.visibility.pacing import RequestPace
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.start_question import DrainRules, StartQuestions
from tests.bench import explain
from tests.bench._joint_worlds import GPU, GPUS, NOW, gang
from tests.bench._loop import LoopLag
from tests.bench._told_days import Told, ToldDay, published
from tests.bench.table import Figure, Goal, Row, at_least, at_most, check
from tests.recorded_days import make_question

BLOCKS, RACKS, HOSTS = 10, 16, 16
QUEUES, WAITING, FORMS, RUNNING_HOSTS = 4, 1_000, 24, 4
COLUMN = FlavorResource("gpu", GPU)


def _tree() -> Tree:
    """Blocks of racks of hosts."""
    leaves = []
    for block in range(BLOCKS):
        for rack in range(RACKS):
            for host in range(HOSTS):
                path = (f"b{block}", f"b{block}-r{rack:02}", f"b{block}-r{rack:02}-h{host:02}")
                labels = dict(zip(("block", "rack", HOSTNAME), path, strict=True))
                node = NodeFacts(name=path[-1], labels=labels, allocatable={GPU: GPUS, "pods": 110})
                leaves.append(Leaf(path, (node,)))
    return Tree(topology="dc", levels=("block", "rack", HOSTNAME), leaves=leaves)


def _run_time(chance: random.Random) -> RunTime:
    half = chance.randint(600, 36_000)
    return RunTime(p50=half, p90=2 * half, source=RunTimeSource.LEARNED, samples=20)


@cache
def question() -> StartQuestion:
    """The state, and the gangs that wait."""
    chance, tree = random.Random(5), _tree()
    capacity, nodes, names = Capacity.of(tree), dict[str, QuotaNode](), [f"q{n}" for n in range(QUEUES)]
    root = QuotaNode("all", is_cohort=True)
    for name in names:
        nodes[name] = QuotaNode(name, quotas={COLUMN: Quota(len(tree) * GPUS // QUEUES)}, parent=root)
        root.children.append(nodes[name])
    admitted: dict[str, dict[str, Admitted]] = {name: {} for name in names}
    for number, first in enumerate(range(0, len(tree), RUNNING_HOSTS)):
        paths = tree.paths[first : first + RUNNING_HOSTS]
        usage = tuple(DomainUsage((path[-1],), {GPU: GPUS}, 1) for path in paths)
        capacity.charge(usage)
        name = names[number % QUEUES]
        admitted[name][f"default/r{number}"] = Admitted(
            key=f"default/r{number}",
            uid=f"r{number}",
            queue=name,
            local_queue=f"default/{name}",
            priority=0,
            timestamp=NOW,
            reserved_at=NOW,
            evicted=False,
            usage={COLUMN: GPUS * RUNNING_HOSTS},
            domains={"gpu": usage},
        )
    for name, node in nodes.items():
        node.usage = quota.total(one.usage for one in admitted[name].values())
    quota.rebuild(root)
    holders = [one for some in admitted.values() for one in some.values()]
    snapshot = Snapshot(
        queues={n: QueueSpec(name=n, groups=(ResourceGroup((GPU,), ("gpu",)),)) for n in names},
        nodes=nodes,
        flavors={"gpu": Flavor(name="gpu", topology="dc")},
        topologies={"gpu": TopologyView("dc", tree, capacity)},
        admitted=admitted,
    )
    return StartQuestion(
        state=PlannedState(snapshot=snapshot, rules=Rules(now=NOW), holders=holders),
        lines=tuple(_lines(chance, names)),
        running={one.uid: WorkloadRun(run_time=_run_time(chance)) for one in holders},
    )


def _lines(chance: random.Random, names: list[str]) -> Iterator[Line]:
    levels = (TopologyRequest(required="rack"), TopologyRequest(required="rack"), TopologyRequest(required="block"))
    forms = [
        gang("form", chance.choice((2, 4, 8, 12, 16)), chance.choice((4, 8)), 0, chance.choice(levels))
        for _ in range(FORMS)
    ]
    lines: dict[str, list[WaitingWorkload]] = {name: [] for name in names}
    for number in range(WAITING):
        name, form = names[number % QUEUES], number % FORMS
        head: Head = replace(
            forms[form],
            key=f"default/w{number}",
            uid=f"w{number}",
            queue=name,
            timestamp=NOW - timedelta(seconds=WAITING - number),
        )
        lines[name].append(WaitingWorkload(head=head, run_time=_run_time(chance), shape=str(form)))
    return (Line(queue=name, is_strict=False, workloads=tuple(some)) for name, some in lines.items())


def drained() -> Iterator[Figure]:
    """Both drains, in this process."""
    asked, times, found = question(), list[float](), list[StartTimes]()
    for _ in range(3):
        begun = time.process_time()
        with without_collector():
            found.append(start_times(asked))
        times.append((time.process_time() - begun) * 1e3)
    answer = found[-1]
    check(answer.is_complete, "a bound has stopped a drain")
    check(all(one.later is not None for one in answer.of.values()), "a gang has no start time")
    yield Figure("ms", times, at_most(5_000))
    yield Figure("tries", [answer.tries])


def held() -> Iterator[Figure]:
    """The child process is asked twice: the second time it has most of the state."""
    asked = question()

    async def longest() -> tuple[float, float]:
        clock, process = SystemClock(), StartTimesProcess(seconds=120.0)
        lag = LoopLag(clock=clock, interval=0.001)
        beating = asyncio.ensure_future(lag.run())
        stalls = []
        for _ in range(2):
            await asyncio.sleep(0.01)
            lag.reset()
            answer = await process.ask(asked)
            check(len(answer.of) == WAITING, f"{len(answer.of)} of {WAITING} have an answer")
            stalls.append(lag.longest * 1e3)
        beating.cancel()
        await process.stop()
        return stalls[0], stalls[1]

    yield Figure("hold_ms", [_longest_hold(asked)], at_most(20))
    first, again = run(longest())
    yield Figure("first_stall_ms", [first], at_most(20))
    yield Figure("again_stall_ms", [again], at_most(20))


def _longest_hold(asked: StartQuestion) -> float:
    """The longest step of sending a question and of reading its answer, in milliseconds of processor time."""
    sent, longest = Sent(), 0.0
    for _ in range(2):
        begun = time.thread_time()
        pieces = StartMessages(1, asked, 1.0).pieces(sent)
        while next(pieces, None) is not None:
            longest, begun = max(longest, time.thread_time() - begun), time.thread_time()
    for part in answer_parts(1, start_times(asked)):
        data = pickle.dumps(part, protocol=pickle.HIGHEST_PROTOCOL)
        begun = time.thread_time()
        check(isinstance(pickle.loads(data), type(part)), "an answer was not read")
        longest = max(longest, time.thread_time() - begun)
    return longest * 1e3


def read() -> Iterator[Figure]:
    """The question is read from the state of `explain/*`: 12,500 nodes and 10,000 waiting workloads."""
    _, explainer, loop = explain.stage()
    known, clock = explainer._known, SystemClock()
    questions = StartQuestions(
        known=known,
        planning=explainer._planning,
        pending=PendingWorkloads(
            queues=known.queues, workloads=known.workloads, local_queues=known.local_queues, clock=clock
        ),
        held_back=lambda _: (),
        run_times=RunTimes(LearnedRunTimes(most_groups=100), clock.now),
        rules=DrainRules(),
    )
    holds, times = list[float](), list[float]()
    for _ in range(5):
        begun = time.thread_time()
        holds.append(1e3 * loop.run_until_complete(_longest_step(questions, clock)))
        times.append(1e3 * (time.thread_time() - begun))
    yield Figure("ms", times)
    yield Figure("hold_ms", holds, at_most(20))


async def _longest_step(questions: StartQuestions, clock: Clock) -> float:
    """The longest processor time between two turns of the event loop while a question is read, in seconds."""
    longest = 0.0

    async def others() -> None:
        nonlocal longest
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    beside = asyncio.create_task(others())
    await asyncio.sleep(0)
    asked, _ = await questions.read(clock.now(), RequestPace(clock))
    await asyncio.sleep(0)
    beside.cancel()
    waiting = sum(len(line.workloads) for line in asked.lines)
    check(waiting >= 10_000, f"{waiting} workloads wait")
    return longest


def covered() -> Iterator[Figure]:
    """Five days of gangs whose run times are learned: every hour is asked when the waiting ones start."""
    day = make_question(4, 2_200, size=(1, 4, 16), preempts=False, seconds=5 * DAY)
    yield from _coverage(ToldDay(day).live(every=3_600, first=3 * 3_600), at_least(80))


def covered_burst() -> Iterator[Figure]:
    """A cohort of the published load, sixty times as slow, asked every minute: nothing like it was seen before."""
    load = published(1, per_queue=100, cohorts=1)
    yield from _coverage(ToldDay(load).live(every=60, first=180), None)


def _coverage(told: Told, first: Goal | None) -> Iterator[Figure]:
    before, inside = StartOutcome.BEFORE, StartOutcome.INSIDE
    yield Figure("first_by_p90_percent", [told.percent(Telling.FIRST, before, inside)], first)
    yield Figure("last_by_p90_percent", [told.percent(Telling.LAST, before, inside)], at_least(80))
    yield Figure("first_before_p50_percent", [told.percent(Telling.FIRST, before)])
    yield Figure("last_before_p50_percent", [told.percent(Telling.LAST, before)])
    yield Figure("starts", [sum(n for (telling, _), n in told.held.items() if telling is Telling.FIRST)])
    yield Figure("untold", [told.held[Telling.FIRST, StartOutcome.UNTOLD]])


ROWS = (
    Row("future/drain", drained),
    Row("future/stall", held),
    Row("future/read", read, alone=True),
    Row("future/coverage", covered, asked="future/coverage"),
    Row("future/coverage/burst", covered_burst, asked="future/coverage"),
)
