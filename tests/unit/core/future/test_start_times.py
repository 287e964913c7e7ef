"""Start times in worlds that are small enough to be computed by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kqueue.core.future.drain import NoStart, NotPlanned
from kqueue.core.future.question import DAY, DrainBounds
from kqueue.core.future.run_time import RunTime, RunTimeSource
from kqueue.core.future.start_times import start_times
from kqueue.core.lost_work import RunLimits
from kqueue.core.preemption import Rules
from kqueue.core.workload import Head, Preempts, Snapshot
from tests.builders import START, make_head, make_queue, make_snapshot, make_view
from tests.unit.core.future.worlds import Times, ask, starts, waits


def one_rack(gpus: int = 32) -> Snapshot:
    """One ClusterQueue, and one rack of four hosts with eight GPUs each."""
    return make_snapshot({"team": {"gpu": gpus}}, topologies={"gpu": make_view((1, 1, 4))})


def two_racks(quota: int = 64) -> Snapshot:
    """One ClusterQueue, and two racks of four hosts."""
    return make_snapshot({"team": {"gpu": quota}})


def test_a_gang_starts_when_the_gang_before_it_ends() -> None:
    """A gang of a whole rack starts at the end of the running one, the next one at the end of that."""
    found = starts(
        one_rack(),
        [(make_head("first"), 100)],
        [waits(make_head("second", age=2), 60), waits(make_head("third", age=1), 30)],
    )
    assert found == {"second": (100, 100), "third": (160, 160)}


def test_a_workload_that_fits_starts_now() -> None:
    """The start time is zero seconds, and nothing has to end."""
    found = start_times(ask(one_rack(), [], [waits(make_head("first"), 60)]))
    start = found.of["first"].earlier
    assert start is not None
    assert (start.seconds, start.after) == (0, ())


def test_the_ended_holders_are_named() -> None:
    """The second gang of a rack waits for both that share the rack, and starts after the later of them."""
    halves = [(make_head("short", pods=2, required="rack"), 50), (make_head("long", pods=2, required="rack"), 80)]
    found = start_times(ask(one_rack(), halves, [waits(make_head("whole"), 60)]))
    start = found.of["whole"].later
    assert start is not None
    assert (start.seconds, [m.key for m in start.after], start.after_count) == (80, ["default/long"], 1)


def test_ends_in_one_second_are_one_event() -> None:
    """Two halves of a rack end together: the gang that needs both starts, not the two smaller ones behind it."""
    halves = [(make_head("a", pods=2), 50), (make_head("b", pods=2), 50)]
    line = [waits(make_head("whole", age=3), 60), waits(make_head("half", pods=2, age=2), 10)]
    assert starts(one_rack(), halves, line) == {"whole": (50, 50), "half": (110, 110)}


def test_p50_and_p90_are_the_ends_of_the_interval() -> None:
    """The waiting time of the third gang is the sum of two run times."""
    found = starts(
        one_rack(),
        [(make_head("first"), (100, 200))],
        [waits(make_head("second", age=2), (10, 40)), waits(make_head("third", age=1), 5)],
    )
    assert found == {"second": (100, 200), "third": (110, 240)}


def test_a_strict_line_waits_for_its_first_workload() -> None:
    """With StrictFIFO a small workload that fits now starts only after the large one ahead of it; otherwise now."""
    running = [(make_head("runs", pods=2), 100)]
    line = [waits(make_head("large", age=2), 60), waits(make_head("small", pods=1, age=1), 10)]
    assert starts(one_rack(), running, line, strict=["team"]) == {"large": (100, 100), "small": (160, 160)}
    assert starts(one_rack(), running, line) == {"large": (100, 100), "small": (0, 0)}


def test_the_higher_priority_starts_first() -> None:
    """The order of the line counts; the planner's cycle tries the first workload."""
    running = [(make_head("runs"), 100)]
    line = [waits(make_head("urgent", priority=5), 7), waits(make_head("older", age=9), 60)]
    assert starts(one_rack(), running, line) == {"urgent": (100, 100), "older": (107, 107)}


def test_a_required_rack_waits_for_a_whole_rack() -> None:
    """Two hosts are free in each rack: a gang of four hosts waits for one rack, an unbound one starts now."""
    running = [
        (make_head("a", pods=2), 100),
        (make_head("b", pods=3), 300),
    ]
    bound = [waits(make_head("bound", pods=4), 60)]
    found = start_times(ask(two_racks(), running, bound))
    start = found.of["bound"].earlier
    assert start is not None
    assert (start.seconds, start.domains, start.domain_count) == (100, ((("b0", "b0-r0"), 4),), 1)
    assert start.flavors == {"main": ("gpu",)}
    unbound = [waits(make_head("unbound", pods=3, required=None, preferred="rack"), 60)]
    assert starts(two_racks(), running, unbound) == {"unbound": (0, 0)}


def test_quota_of_the_cohort_is_borrowed_when_it_is_free() -> None:
    """A queue without quota of its own starts when the other queue's workload has given back what it may borrow."""
    snapshot = make_snapshot({"rich": {"gpu": 32}, "poor": {"gpu": 0}}, cohort="all")
    running = [(make_head("runs", queue="rich"), 100)]
    line = [waits(make_head("borrows", queue="poor"), 60), waits(make_head("owner", queue="rich", age=5), 40)]
    assert starts(snapshot, running, line) == {"owner": (100, 100), "borrows": (140, 140)}


def test_a_future_preemption_delays_its_victim() -> None:
    """An urgent workload preempts the running one when its pause is over; the victim runs anew after it, behind all of
    its priority, and before those of a lower one.
    """

    def world() -> Snapshot:
        return make_snapshot(
            {"team": {"gpu": 32}},
            specs=[make_queue("team", preempts_own=Preempts.LOWER_PRIORITY)],
            topologies={"gpu": make_view((1, 1, 4))},
        )

    urgent = waits(make_head("urgent", priority=9), 50, not_before=START + timedelta(seconds=30))
    behind = waits(make_head("behind"), 10)
    found = starts(world(), [(make_head("runs", age=9), 100)], [urgent, behind])
    assert found == {"urgent": (30, 30), "behind": (80, 80)}
    late = waits(make_head("late", age=-60), 10)
    found = starts(world(), [(make_head("runs", age=9, priority=1), 100)], [urgent, late])
    assert found == {"urgent": (30, 30), "late": (180, 180)}


def test_a_protected_workload_is_preempted_when_its_minimum_run_time_is_over() -> None:
    """The planner says when the workload may be looked at again, and the drain looks then."""
    snapshot = make_snapshot(
        {"team": {"gpu": 32}},
        specs=[make_queue("team", preempts_own=Preempts.LOWER_PRIORITY, minimum_runtime=40)],
        topologies={"gpu": make_view((1, 1, 4))},
    )
    rules = Rules(now=START, limits=RunLimits(minimum={"team": timedelta(seconds=40)}))
    line = [waits(make_head("low", age=5), 100), waits(make_head("urgent", priority=9, age=1), 50)]
    # the lower one is ahead in its line, so it starts first and is protected from then on
    assert starts(snapshot, [], line, rules=rules) == {"low": (0, 0), "urgent": (40, 40)}


def test_an_unknown_run_time_takes_the_start_times_behind_it() -> None:
    """The reason names what has no known run time."""
    found = start_times(
        ask(one_rack(), [(make_head("forever"), None)], [waits(make_head("one"), 60), waits(make_head("two"), 60)])
    )
    for name in ("one", "two"):
        assert found.of[name].earlier is None
        reason = found.of[name].reason
        assert isinstance(reason, NotPlanned)
        assert (reason.reason, [m.key for m in reason.workloads], reason.count) == (
            NoStart.UNKNOWN_RUN_TIMES,
            ["default/forever"],
            1,
        )


def test_a_waiting_workload_without_run_time_blocks_those_behind_it_alone() -> None:
    """The workload without run time has a start time; the workload behind it has none."""
    line = [waits(make_head("unknown", age=2)), waits(make_head("behind", age=1), 60)]
    assert starts(one_rack(), [(make_head("runs"), 100)], line) == {
        "unknown": (100, 100),
        "behind": str(NoStart.UNKNOWN_RUN_TIMES),
    }


@pytest.mark.parametrize(
    ("times", "elapsed", "interval"),
    [
        pytest.param((100, 200), 40, (60, 160), id="within p50"),
        pytest.param((100, 200), 100, (100, 100), id="p50 is over: p90"),
        pytest.param(
            RunTime(p50=100, p90=200, promised=500, source=RunTimeSource.LEARNED),
            250,
            (250, 250),
            id="p90 is over: the promise",
        ),
        pytest.param((100, 200), 200, str(NoStart.UNKNOWN_RUN_TIMES), id="all is over: unknown, never at once"),
        pytest.param(100, 5000, str(NoStart.UNKNOWN_RUN_TIMES), id="beyond its promise"),
    ],
)
def test_an_outlived_run_time(times: Times, elapsed: int, interval: object) -> None:
    """A workload that has run longer than expected ends by the next longer time that is known."""
    found = starts(one_rack(), [(make_head("runs"), times)], [waits(make_head("next"), 9)], elapsed={"runs": elapsed})
    assert found == {"next": interval}


def test_one_drain_may_have_no_start() -> None:
    """With the longer run time the start is beyond the horizon."""
    question = ask(
        one_rack(),
        [(make_head("runs"), (100, 8 * DAY))],
        [waits(make_head("next"), 9)],
        bounds=DrainBounds(horizon=7 * DAY),
    )
    found = start_times(question).of["next"]
    assert found.earlier is not None
    assert (found.earlier.seconds, found.later) == (100, None)
    assert found.reason == NotPlanned(reason=NoStart.BEYOND_HORIZON)


def test_what_never_fits_is_not_in_sight() -> None:
    """All running workloads end, and the huge workload does not start."""
    line = [waits(make_head("huge", pods=5), 60), waits(make_head("fits", pods=4), 60)]
    assert starts(one_rack(), [(make_head("runs"), 100)], line) == {
        "huge": str(NoStart.NOT_IN_SIGHT),
        "fits": (100, 100),
    }


def test_a_workload_on_hold_has_no_start_and_does_not_block() -> None:
    """The workload behind it starts as if the held one did not wait."""
    line = [waits(make_head("held", age=2), 60, on_hold=True), waits(make_head("free", age=1), 60)]
    assert starts(one_rack(), [], line) == {"held": str(NoStart.ON_HOLD), "free": (0, 0)}


def test_an_evicted_workload_leaves_and_waits_again() -> None:
    """The evicted workload is gone after a second, and waits behind the workloads that waited already."""
    found = starts(one_rack(), [(make_head("leaves"), 100)], [waits(make_head("next"), 60)], evicted=["leaves"])
    assert found == {"next": (1, 1), "leaves": (61, 61)}


def test_ten_thousand_workloads_are_bounded() -> None:
    """The bound of workloads is kept, and the bound of tries ends the drain: the others have no start time."""
    line = [waits(make_head(f"w{n}", pods=1, age=20_000 - n), 600) for n in range(10_050)]
    question = ask(one_rack(), [(make_head("runs"), 100)], line, bounds=DrainBounds(tries=300, workloads=10_000))
    found = start_times(question)
    assert len(found.of) == 10_050
    assert not found.is_complete
    assert found.tries <= 2 * 301
    reasons = {one.reason.reason for one in found.of.values() if one.reason is not None}
    assert reasons == {NoStart.NOT_COMPUTED}
    assert found.of["w0"].earlier is not None
    assert found.of["w10000"].earlier is None


def test_the_clock_of_the_caller_stops_a_drain() -> None:
    """A drain that must stop says so, and what it has found is given."""
    calls = iter([True, False])
    found = start_times(
        ask(one_rack(), [(make_head("runs"), 100)], [waits(make_head("next"), 60)]), goes_on=lambda: next(calls, False)
    )
    assert not found.is_complete
    reason = found.of["next"].reason
    assert reason is not None
    assert reason.reason is NoStart.NOT_COMPUTED


def test_the_state_is_unchanged() -> None:
    """Two answers to one question are equal, and the question's snapshot has the same free amounts."""
    question = ask(one_rack(), [(make_head("first"), 100)], [waits(make_head("second"), 60)])
    free = question.state.snapshot.topologies["gpu"].capacity.tables()[1].tolist()
    assert start_times(question) == start_times(question)
    assert question.state.snapshot.topologies["gpu"].capacity.tables()[1].tolist() == free
    assert set(question.state.snapshot.admitted["team"]) == {"default/first"}


def test_assumptions_count_the_sources_of_run_times() -> None:
    """Promised, learned and unknown run times are counted, and those that are outlived."""
    running: list[tuple[Head, Times]] = [
        (make_head("a", pods=1), 100),
        (make_head("b", pods=1), (10, 20)),
        (make_head("c", pods=1), None),
    ]
    found = start_times(ask(one_rack(), running, [waits(make_head("next"), 60)], elapsed={"b": 30})).assumptions
    assert dict(found.running) == {RunTimeSource.PROMISED: 1, RunTimeSource.LEARNED: 1, RunTimeSource.UNKNOWN: 1}
    assert dict(found.waiting) == {RunTimeSource.PROMISED: 1}
    assert (found.outlived, found.unknown, found.horizon) == (1, 2, 7 * DAY)
