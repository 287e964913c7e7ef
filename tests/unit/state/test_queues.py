"""Where pending workloads wait: no workload is lost, and who waits for what is as documented."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.core.quota import FlavorResource
from kqueue.model.pending import LastTry, Pending, RequeueReason
from kqueue.state import queue_policy
from kqueue.state.queue_policy import BEST_EFFORT_FIFO, POLICIES, SHAPE_WIDE, STRICT_FIFO, QueuePolicy
from kqueue.state.queues import Queues
from kqueue.state.second_pass import SecondPass

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_pending(
    name: str,
    *,
    priority: int = 0,
    age: int = 0,
    version: str = "1",
    shape: str = "",
    local_queue: str = "ns/main",
    **more: Any,
) -> Pending:
    return Pending(
        key=f"ns/{name}",
        uid=name,
        local_queue=local_queue,
        priority=priority,
        timestamp=NOW - timedelta(seconds=age),
        shape=shape or name,
        version=version,
        **more,
    )


IMMEDIATE = {
    RequeueReason.FAILED_AFTER_NOMINATION,
    RequeueReason.PENDING_PREEMPTION,
    RequeueReason.PREEMPTION_FAILED,
}


def make_queues(strategy: QueuePolicy = BEST_EFFORT_FIFO, *, by_shape: bool = True) -> Queues:
    queues = Queues(lambda: NOW, by_shape=by_shape)
    queues.set_cluster_queue("team", strategy)
    queues.set_local_queue("ns/main", "team")
    return queues


def pop_and_settle(queues: Queues) -> str | None:
    uid = pop(queues)
    if uid is not None:
        queues.settle(f"ns/{uid}")
    return uid


def pop(queues: Queues) -> str | None:
    heads = queues.pop_heads(lambda _queue: True)
    return heads[0][1].uid if heads else None


@pytest.mark.mechanism("3.3")
def test_heads_come_by_priority_then_age_then_uid() -> None:
    """Higher priority first, then older, then the smaller uid."""
    queues = make_queues()
    for item in (make_pending("b"), make_pending("a"), make_pending("old", age=5), make_pending("high", priority=1)):
        queues.push(item)
    order = []
    while (uid := pop(queues)) is not None:
        order.append(uid)
        queues.settle(f"ns/{uid}")

    assert order == ["high", "old", "a", "b"]


@pytest.mark.mechanism("3.5")
def test_a_best_effort_head_that_does_not_fit_is_passed() -> None:
    """It is parked; the next one is tried; a flush brings it back."""
    queues = make_queues()
    queues.push(make_pending("large", age=9))
    queues.push(make_pending("small"))
    assert pop(queues) == "large"
    queues.requeue("ns/large", RequeueReason.NO_FIT)
    assert (pop(queues), queues.counts("team")) == ("small", (1, 1))
    queues.settle("ns/small")
    assert queues.flush(["team"]) == 1
    assert pop(queues) == "large"


def test_a_strict_head_blocks_its_queue() -> None:
    """It goes back to the front at once, whatever waits behind it."""
    queues = make_queues(STRICT_FIFO)
    queues.push(make_pending("large", age=9))
    queues.push(make_pending("small"))
    assert pop(queues) == "large"
    queues.requeue("ns/large", RequeueReason.NO_FIT)
    assert pop(queues) == "large"


@pytest.mark.parametrize(
    ("reason", "strict", "best_effort"),
    [
        pytest.param(RequeueReason.GENERIC, True, False, id="it could not be tried"),
        pytest.param(RequeueReason.FAILED_AFTER_NOMINATION, True, True, id="it fitted, and lost its room"),
        pytest.param(RequeueReason.NAMESPACE_MISMATCH, False, False, id="its namespace may not use the queue"),
        pytest.param(RequeueReason.NO_FIT, True, False, id="no flavor serves it"),
        pytest.param(RequeueReason.PREEMPTION_NO_CANDIDATES, True, False, id="nobody may be preempted for it"),
        pytest.param(RequeueReason.PREEMPTION_GATED, True, False, id="it may preempt nobody yet"),
        pytest.param(RequeueReason.PENDING_PREEMPTION, True, True, id="others leave for it"),
        pytest.param(RequeueReason.PREEMPTION_FAILED, True, True, id="nobody could be told to leave"),
    ],
)
def test_who_is_tried_again_at_once(reason: RequeueReason, strict: bool, best_effort: bool) -> None:
    """The head of a StrictFIFO queue is, unless it can never be served; else only who may have what it needs soon."""
    for strategy, again in ((STRICT_FIFO, strict), (BEST_EFFORT_FIFO, best_effort)):
        queues = make_queues(strategy)
        queues.push(make_pending("a"))
        assert pop(queues) == "a"
        assert queues.requeue("ns/a", reason) is again
        assert pop(queues) == ("a" if again else None)


@pytest.mark.mechanism("3.6")
def test_the_flush_that_came_while_a_head_was_tried_counts() -> None:
    """The worked example: a flush between pop and requeue sends the workload to the heap, not to the parking place."""
    queues = make_queues()
    queues.push(make_pending("a", age=1))
    queues.push(make_pending("b"))
    queues.flush(["team"])
    assert pop(queues) == "a"
    queues.requeue("ns/a", RequeueReason.NO_FIT)
    assert queues.counts("team") == (1, 1)
    assert pop(queues) == "b"
    queues.flush(["team"])
    queues.requeue("ns/b", RequeueReason.NO_FIT)
    assert queues.counts("team") == (2, 0)


def test_equals_of_one_that_does_not_fit_are_parked_with_it() -> None:
    """Equal shapes are tried once; a later arrival of that shape waits too, until the next flush."""
    queues = make_queues()
    parked: list[str] = []
    queues.on_parked = parked.extend
    for name in ("a", "b"):
        queues.push(make_pending(name, shape="same"))
    assert pop(queues) == "a"
    verdict = LastTry("WaitingForQuota", "8 asked, 4 free")
    queues.requeue("ns/a", RequeueReason.NO_FIT, verdict=verdict)
    queues.push(make_pending("late", shape="same"))
    assert pop(queues) is None
    assert parked == ["ns/b"]
    assert [queues.bulk_verdict(f"ns/{name}") for name in ("b", "late")] == [verdict, verdict]
    assert queues.flush(["team"]) == 3


def test_single_shapes_come_back_and_the_others_stay_parked() -> None:
    """What is asked for each is what was said of its shape; an arrival of a shape that stays parked is parked, too."""
    queues = make_queues()
    for name in ("large", "medium", "medium-2"):
        queues.push(make_pending(name, shape=name[:6], priority=name == "large"))
    lacks = {"large": ((FlavorResource("gpu", "cpu"), 8),), "medium": ((FlavorResource("gpu", "cpu"), 4),)}
    for name in ("large", "medium"):
        assert pop(queues) == name
        verdict = LastTry("WaitingForQuota", "short", lacks[name])
        queues.requeue(f"ns/{name}", RequeueReason.NO_FIT, verdict=verdict)
    queues.push(make_pending("alone"))
    assert pop(queues) == "alone"
    queues.requeue("ns/alone", RequeueReason.NO_FIT)
    assert queues.counts("team") == (0, 4)

    came = queues.bring_back(["team", "unknown"], lambda _queue, _item, verdict: verdict.lacks == lacks["medium"])

    assert came == 1
    assert queues.counts("team") == (2, 2)
    assert pop(queues) == "medium"
    queues.push(make_pending("large-2", shape="large"))
    assert queues.bulk_verdict("ns/large-2") == LastTry("WaitingForQuota", "short", lacks["large"])
    assert queues.bring_back(["team"], lambda _queue, _item, _verdict: False) == 0


def test_where_shapes_do_not_count_each_is_tried_for_itself() -> None:
    """Nobody is parked on what was said of another one."""
    queues = make_queues(by_shape=False)
    parked: list[str] = []
    queues.on_parked = parked.extend
    for name in ("a", "b"):
        queues.push(make_pending(name, shape="same"))
    assert pop(queues) == "a"
    queues.requeue("ns/a", RequeueReason.NO_FIT, verdict=LastTry("WaitingForQuota", "8 asked, 4 free"))
    queues.push(make_pending("late", shape="same"))

    assert (pop(queues), parked) == ("b", [])
    assert queues.counts("team") == (2, 1)


def test_all_that_wait_are_ranked_wherever_they_wait() -> None:
    """Those set aside, the one in flight and those to be tried, by priority and age."""
    queues = make_queues()
    for name, priority in (("low", -1), ("a", 0), ("b", 0), ("high", 1)):
        queues.push(make_pending(name, priority=priority))
    assert pop(queues) == "high"
    queues.requeue("ns/high", RequeueReason.NO_FIT)
    assert pop(queues) == "a"

    ranked = sorted(queues.waiting("team"), key=lambda item: queues.rank("team", item))
    assert [item.key for item in ranked] == ["ns/high", "ns/a", "ns/b", "ns/low"]
    assert queues.waiting("no") == []


@pytest.mark.mechanism("3.7")
def test_an_update_replaces_activates_or_adds() -> None:
    """Of a waiting workload, of a parked one whose version has changed, and of one that the queues do not know."""
    queues = make_queues(by_shape=False)
    queues.push(make_pending("waiting"))
    queues.push(make_pending("waiting", priority=5))
    assert pop(queues) == "waiting"
    queues.requeue("ns/waiting", RequeueReason.NO_FIT)

    queues.push(make_pending("waiting"))
    assert pop(queues) is None, "an update without a new version leaves a parked workload parked"
    queues.push(make_pending("waiting", version="2"))
    assert pop(queues) == "waiting"
    queues.settle("ns/waiting")

    queues.push(make_pending("new"))
    assert pop(queues) == "new"


@pytest.mark.mechanism("3.8", "4.16")
def test_back_off_holds_until_its_time() -> None:
    """A workload with a future time is not offered, not even after a flush."""
    queues = make_queues()
    queues.push(make_pending("later", not_before=NOW + timedelta(minutes=1)))
    queues.flush(["team"])
    assert pop(queues) is None
    queues.push(make_pending("later", version="2"))
    assert pop(queues) == "later"


def test_the_order_in_which_objects_are_created_does_not_matter() -> None:
    """A workload that came before its queues is offered once they are there."""
    queues = Queues(lambda: NOW)
    queues.push(make_pending("early"))
    queues.set_local_queue("ns/main", "team")
    queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
    assert pop(queues) == "early"


@given(st.integers(0, 2**32), st.integers(1, 80))
def test_no_workload_is_ever_in_no_bucket_or_in_two(seed: int, steps: int) -> None:
    """After any history every known workload is active, parked or in flight, exactly once."""
    chance = random.Random(seed)
    queues = make_queues(chance.choice(list(POLICIES.values())))
    known: set[str] = set()
    flying: set[str] = set()
    for step in range(steps):
        name = f"w{chance.randrange(6)}"
        match chance.randrange(6):
            case 0 | 1:
                queues.push(make_pending(name, priority=chance.randrange(3), version=str(step), shape=f"s{name[-1]}"))
                known.add(name)
            case 2:
                flying |= {item.uid for _, item in queues.pop_heads(lambda _queue: True)}
            case 3 if flying:
                uid = flying.pop()
                queues.requeue(f"ns/{uid}", chance.choice(list(RequeueReason)))
            case 4:
                queues.flush(["team"])
            case 5:
                queues.delete(f"ns/{name}")
                known.discard(name)
                flying.discard(name)
            case _:
                pass
        assert sum(queues.counts("team")) == len(known)
        places = [queues.position(f"ns/{name}") for name in known]
        assert sorted(place[0] for place in places if place) == list(range(1, len(known) + 1))
        assert all(queues.position(f"ns/{name}", most=len(known)) for name in known)
        waiting = len(known) - (queues.in_flight("team") is not None)
        assert not any(queues.position(f"ns/{name}", most=waiting - 1) for name in known)


# --- second pass -----------------------------------------------------------------------------------------------------


def make_second_pass() -> tuple[SecondPass, list[tuple[str, float]]]:
    """A second pass, and the pauses that it asks for."""
    second_pass, pauses = SecondPass(), list[tuple[str, float]]()
    second_pass.later = lambda key, seconds: pauses.append((key, seconds))
    return second_pass, pauses


# --- order by usage --------------------------------------------------------------------------------------------------

USAGE = {"ns/main": 2.0, "ns/lean": 1.0, "ns/idle": 1.0}


def make_fair(strategy: QueuePolicy = BEST_EFFORT_FIFO) -> tuple[Queues, dict[str, float]]:
    """Three LocalQueues of one ClusterQueue that goes by what they used, and what that is."""
    queues, usage = Queues(lambda: NOW), dict(USAGE)
    queues.set_cluster_queue("team", strategy, usage=usage.__getitem__)
    for name in usage:
        queues.set_local_queue(name, "team")
    return queues, usage


def drain(queues: Queues) -> list[str]:
    order = []
    while (uid := pop(queues)) is not None:
        order.append(uid)
        queues.settle(f"ns/{uid}")
    return order


def test_who_used_least_goes_first_whatever_the_priority() -> None:
    """Among those who used as much as each other, priority and age decide, across LocalQueues."""
    queues, _ = make_fair()
    for item in (
        make_pending("much", priority=9, age=9),
        make_pending("young", local_queue="ns/lean"),
        make_pending("old", local_queue="ns/idle", age=5),
        make_pending("high", local_queue="ns/lean", priority=1),
    ):
        queues.push(item)

    assert [queues.position(f"ns/{name}") for name in ("high", "old", "young", "much")] == [
        (n, 4) for n in (1, 2, 3, 4)
    ]
    assert drain(queues) == ["high", "old", "young", "much"]


def test_usage_counts_as_it_is_when_a_head_is_taken() -> None:
    """What was used since a workload came moves it back; nobody is lost on the way."""
    queues, usage = make_fair()
    for name, home in (("a", "ns/lean"), ("b", "ns/lean"), ("c", "ns/main")):
        queues.push(make_pending(name, local_queue=home))
    assert pop(queues) == "a"
    queues.settle("ns/a")
    usage["ns/lean"] = 3.0

    assert drain(queues) == ["c", "b"]


def test_a_preemptor_waits_for_those_who_used_less() -> None:
    """It goes first only among the workloads of LocalQueues with the same usage."""
    queues, _ = make_fair()
    queues.push(make_pending("preemptor"))
    assert pop(queues) == "preemptor"
    queues.requeue("ns/preemptor", RequeueReason.PENDING_PREEMPTION)
    queues.push(make_pending("high", priority=9))
    queues.push(make_pending("lean", local_queue="ns/lean"))

    assert drain(queues) == ["lean", "preemptor", "high"]


def test_a_workload_that_changes_its_local_queue_waits_there() -> None:
    """It stands where the usage of its new one puts it."""
    queues, _ = make_fair()
    queues.push(make_pending("moves"))
    queues.push(make_pending("lean", local_queue="ns/lean"))
    queues.push(make_pending("moves", local_queue="ns/idle", age=5, version="2"))

    assert drain(queues) == ["moves", "lean"]


def test_the_front_of_a_line_is_without_those_set_aside() -> None:
    """Those who will be tried, and how many there are; the one that is being tried is not among them."""
    queues = make_queues()
    for item in (make_pending("set-aside", age=9), make_pending("tried", age=8), make_pending("b"), make_pending("a")):
        queues.push(item)
    assert pop(queues) == "set-aside"
    queues.requeue("ns/set-aside", RequeueReason.NO_FIT)
    assert pop(queues) == "tried"

    assert queues.front("team", 1) == (["ns/a"], 2)
    assert queues.front("nobody", 1) == ([], 0)
    assert [queues.is_active(f"ns/{name}") for name in ("set-aside", "tried", "a", "no")] == [False, False, True, False]
    assert queues.home("ns/a") == "team"


def test_a_queue_may_begin_and_cease_to_go_by_usage() -> None:
    """Those who wait are put in order afresh."""
    queues, usage = make_fair()
    for item in (make_pending("high", priority=9), make_pending("lean", local_queue="ns/lean")):
        queues.push(item)
    queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
    assert pop(queues) == "high"
    queues.requeue("ns/high", RequeueReason.FAILED_AFTER_NOMINATION)
    queues.set_cluster_queue("team", BEST_EFFORT_FIFO, usage=usage.__getitem__)

    assert drain(queues) == ["lean", "high"]


def test_a_preemptor_is_not_lost_when_its_queue_becomes_strict() -> None:
    """It is no longer preferred, and stands where it belongs."""
    queues = make_queues()
    queues.push(make_pending("preemptor"))
    assert pop(queues) == "preemptor"
    queues.requeue("ns/preemptor", RequeueReason.PENDING_PREEMPTION)
    queues.push(make_pending("high", priority=9))
    queues.set_cluster_queue("team", STRICT_FIFO)

    assert drain(queues) == ["high", "preemptor"]


@pytest.mark.mechanism("0.5")
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_the_head_is_always_the_first_by_usage_and_rank(seed: int, steps: int) -> None:
    """Against a plain sort of those who wait, while they come, change, are parked, and usage moves."""
    chance = random.Random(seed)
    queues, usage = make_fair(chance.choice(list(POLICIES.values())))
    waiting: dict[str, Pending] = {}
    for _ in range(steps):
        usage[chance.choice(list(usage))] = float(chance.randrange(3))
        name, home = f"w{chance.randrange(8)}", chance.choice(list(usage))
        item = make_pending(name, priority=chance.randrange(2), local_queue=home, version=str(chance.random()))
        queues.push(item)
        waiting[item.key] = item
        if chance.random() < 0.4:
            order = sorted(waiting.values(), key=lambda p: (usage[p.local_queue], -p.priority, p.timestamp, p.uid))
            want = order[0]
            assert queues.front("team", 3) == ([p.key for p in order[:3]], len(order))
            assert pop(queues) == want.uid
            if chance.random() < 0.5:
                queues.settle(want.key)
                del waiting[want.key]
            else:
                queues.requeue(want.key, RequeueReason.FAILED_AFTER_NOMINATION)


def test_one_that_often_comes_to_the_front_of_its_line_leaves_no_trace() -> None:
    """However long another line goes before it, so that nobody looks at its own."""
    queues = make_queues()
    queues.push(make_pending("first", priority=10_000))
    for priority in range(1000):
        queues.push(make_pending("rises", priority=priority, shape="same", version=str(priority)))
        queues.push(make_pending("stays", priority=500, shape="same"))

    assert len(queues._queues["team"].fronts[""]) < 100
    assert queues.front("team", 3) == (["ns/first", "ns/rises", "ns/stays"], 3)
    assert [pop_and_settle(queues) for _ in range(4)] == ["first", "rises", "stays", None]


# --- against plain buckets -------------------------------------------------------------------------------------------


class Plain:
    """The queues of one ClusterQueue that passes who does not fit, workload by workload: what `Queues` promises."""

    def __init__(self) -> None:
        self.now = NOW
        self.active: dict[str, Pending] = {}
        self.parked: dict[str, Pending] = {}
        self.flying: Pending | None = None
        self.newest: dict[str, Pending] = {}
        self.preemptor = ""
        self.marked: set[str] = set()
        self.flushed = False

    def push(self, item: Pending) -> None:
        old = self.newest.get(item.key)
        self.newest[item.key] = item
        if self.flying is not None and self.flying.key == item.key:
            return
        parked = self.parked.get(item.key)
        if parked is not None and old is not None and parked.version == item.version:
            self.parked[item.key] = item
            if parked.may_run(self.now) or not item.may_run(self.now):
                return
        waits = item.key not in self.active and (not item.may_run(self.now) or item.shape in self.marked)
        self._move(item, self.parked if waits else self.active)

    def _move(self, item: Pending, to: dict[str, Pending]) -> None:
        for bucket in (self.active, self.parked):
            bucket.pop(item.key, None)
        to[item.key] = item

    def order(self) -> list[str]:
        ranked = sorted(self.active.values(), key=lambda p: (p.key != self.preemptor, -p.priority, p.timestamp, p.uid))
        return [item.key for item in ranked]

    def pop(self) -> str | None:
        order = self.order()
        if self.flying is not None or not order:
            return None
        self.flying, self.flushed = self.active.pop(order[0]), False
        return self.flying.uid

    def requeue(self, reason: RequeueReason) -> list[str]:
        assert self.flying is not None
        item = self.newest[self.flying.key]
        self.flying = None
        if reason is RequeueReason.PENDING_PREEMPTION:
            self.preemptor = item.key
        if item.may_run(self.now) and (reason in IMMEDIATE or self.flushed):
            self._move(item, self.active)
            return []
        self._move(item, self.parked)
        if reason not in SHAPE_WIDE:
            return []
        self.marked.add(item.shape)
        equals = [other for other in self.active.values() if other.shape == item.shape]
        for other in equals:
            self._move(other, self.parked)
        return [other.key for other in equals]

    def flush(self, open_to: str) -> int:
        self.flushed = True
        self.marked.clear()
        back = [p for p in self.parked.values() if p.may_run(self.now) and open_to in p.local_queue]
        for item in back:
            self._move(item, self.active)
        return len(back)

    def delete(self, key: str) -> None:
        self.newest.pop(key, None)
        self.active.pop(key, None)
        self.parked.pop(key, None)
        if self.preemptor == key:
            self.preemptor = ""
        if self.flying is not None and self.flying.key == key:
            self.flying = None


def entering(open_to: str) -> Callable[[str, Pending], bool]:
    """Only workloads of LocalQueues with this in their name may enter."""
    return lambda _queue, item: open_to in item.local_queue


@given(st.integers(0, 2**32), st.integers(1, 120))
def test_lines_of_equals_move_as_if_each_workload_moved(seed: int, steps: int) -> None:
    """Heads, counts, the order, who is parked for whom and who comes back, against plain buckets of workloads."""
    chance, plain, told = random.Random(seed), Plain(), list[str]()
    queues = Queues(lambda: plain.now)
    queues.on_parked = told.extend
    queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
    for name in ("ns/red", "ns/blue"):
        queues.set_local_queue(name, "team")
    for _ in range(steps):
        name = f"w{chance.randrange(9)}"
        match chance.randrange(8):
            case 0 | 1 | 2:
                back_off = chance.choice([None, None, None, plain.now + timedelta(seconds=chance.randrange(3))])
                item = make_pending(
                    name,
                    priority=chance.randrange(2),
                    shape=chance.choice("abc"),
                    local_queue=chance.choice(["ns/red", "ns/blue"]),
                    version=chance.choice("12"),
                    not_before=back_off,
                    on_hold=chance.random() < 0.1,
                )
                queues.push(item)
                plain.push(item)
            case 3 | 4:
                assert pop(queues) == plain.pop()
            case 5 if plain.flying is not None:
                reason = chance.choice(list(RequeueReason))
                told.clear()
                queues.requeue(plain.flying.key, reason)
                assert sorted(told) == sorted(plain.requeue(reason))
            case 6:
                plain.now += timedelta(seconds=chance.randrange(2))
                open_to = chance.choice(["ns/", "red", "blue"])
                assert queues.flush(["team"], entering(open_to)) == plain.flush(open_to)
            case 7:
                queues.delete(f"ns/{name}")
                plain.delete(f"ns/{name}")
            case _:
                pass
        order = plain.order()
        assert queues.front("team", 99) == (order, len(order))
        assert queues.counts("team") == (len(order) + (plain.flying is not None), len(plain.parked))
        for key, item in plain.newest.items():
            assert queues.is_active(key) == (key in plain.active)
            assert (queues.bulk_verdict(key) is not None) == (key in plain.parked and item.shape in plain.marked)


# --- second passes ---------------------------------------------------------------------------------------------------


def test_a_second_pass_comes_after_a_pause_and_once() -> None:
    """Asking again while it waits changes nothing; before its pause is over it is not taken."""
    second_pass, pauses = make_second_pass()
    second_pass.ask("a")
    second_pass.ask("a")
    assert (second_pass.take(), pauses) == ([], [("a", 1.0)])

    assert second_pass.ready("a")

    second_pass.ask("a")
    assert second_pass.take() == ["a"]
    assert second_pass.take() == []
    assert pauses == [("a", 1.0)]


def test_pauses_double_with_each_failure_and_begin_anew_when_it_was_dropped() -> None:
    """1, 2, 4, 8, 16 and then 30 seconds."""
    second_pass, pauses = make_second_pass()
    second_pass.ask("a")
    for _ in range(6):
        second_pass.failed("a")
    assert [seconds for _, seconds in pauses] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]

    second_pass.drop("a")
    second_pass.failed("a")  # nobody waits for it
    second_pass.ask("a")

    assert [seconds for _, seconds in pauses[7:]] == [1.0]


def test_a_dropped_second_pass_is_not_taken() -> None:
    """Neither when its pause ends afterwards, nor when it has ended."""
    second_pass, _ = make_second_pass()
    for key in ("early", "late"):
        second_pass.ask(key)
    second_pass.ready("early")

    second_pass.drop("early")
    second_pass.drop("late")

    assert not second_pass.ready("late")
    assert second_pass.take() == []


class Patient:
    """A policy of one class: a workload that does not fit is tried again at once, and others behind it, too."""

    name = "Patient"
    skips_heads = True

    def is_immediate(self, reason: RequeueReason) -> bool:
        """Always."""
        return True


def test_a_policy_of_one_class_decides_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line registers it under the name that ClusterQueues use."""
    monkeypatch.setattr(queue_policy, "_policies", dict(POLICIES))
    queue_policy.register(Patient())
    queues = make_queues(queue_policy._policies["Patient"], by_shape=False)
    queues.push(make_pending("one"))
    queues.pop_heads(lambda _: True)
    assert queues.requeue("ns/one", RequeueReason.NO_FIT)
    with pytest.raises(ValueError, match="empty or taken"):
        queue_policy.register(Patient())
