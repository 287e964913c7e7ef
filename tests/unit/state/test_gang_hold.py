"""After the admission of a gang, its ClusterQueue tries the pods beyond the quorum first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from kqueue.core.queued import EXTRAS_WAITING, QueuedGang
from kqueue.model.pending import RequeueReason
from kqueue.state.gang_hold import HOLD_FOR
from kqueue.state.profile_orders import ProfileOrders
from kqueue.state.queue_policy import BEST_EFFORT_FIFO, STRICT_FIFO, QueuePolicy
from kqueue.state.queues import Queues
from tests.unit.state.test_queues import NOW, make_pending, pop, pop_and_settle

ORDERS = ProfileOrders()
POLICIES = pytest.mark.parametrize("policy", [BEST_EFFORT_FIFO, STRICT_FIFO])


class Line:
    """One ClusterQueue with a clock; `base` was admitted, `first` is the next workload."""

    def __init__(self, policy: QueuePolicy = BEST_EFFORT_FIFO, profile: str = "back-to-back") -> None:
        self.now, self.wakes, self.policy = NOW, 0, policy
        self.queues = Queues(lambda: self.now, self._wake)
        self.choose(profile)
        self.queues.set_local_queue("ns/team", "team")
        self.push("first", age=900)

    def admit(self) -> str | None:
        """Admit the next workload, and write it."""
        uid = pop_and_settle(self.queues)
        if uid is not None:
            self.queues.note_end_of_write("team", f"ns/{uid}")
        return uid

    def _wake(self) -> None:
        self.wakes += 1

    def choose(self, profile: str) -> None:
        self.queues.set_cluster_queue("team", self.policy, order=ORDERS.of("team", profile))

    def push(self, name: str, *, age: int = 0, shape: str = "") -> None:
        self.queues.push(make_pending(name, age=age, shape=shape or name, local_queue="ns/team"))

    def push_extra(self, name: str, *, of: str = "base", shape: str = "") -> None:
        gang = QueuedGang(key=f"ns/{of}", since=NOW, uid=of, extra=True)
        item = make_pending(name, age=0, shape=shape or name, local_queue="ns/team")
        self.queues.push(replace(item, gang=gang))

    def hold(self, extras: int) -> datetime | None:
        return self.queues.hold_for("team", "ns/base", extras)

    def refuse(self, reason: RequeueReason = RequeueReason.NO_FIT) -> str | None:
        """Try the next workload in vain."""
        uid = pop(self.queues)
        if uid is not None:
            self.queues.requeue(f"ns/{uid}", reason)
        return uid


@POLICIES
def test_extras_of_the_gang_are_tried_before_all_others(policy: QueuePolicy) -> None:
    """G3.69: in their own order, although an older workload waits, and also when they come late."""
    line = Line(policy)
    assert line.hold(2) == NOW + HOLD_FOR
    assert pop(line.queues) is None
    line.push_extra("x1")
    line.push_extra("stranger", of="other")
    assert line.admit() == "x1"
    assert pop(line.queues) is None
    line.push_extra("x2")
    assert [line.admit() for _ in range(3)] == ["x2", "first", "stranger"]


@POLICIES
@pytest.mark.parametrize("reason", [RequeueReason.NO_FIT, RequeueReason.FAILED_AFTER_NOMINATION])
def test_one_try_of_each_is_enough(policy: QueuePolicy, reason: RequeueReason) -> None:
    """Whether a refused extra is parked or comes back at once."""
    line = Line(policy)
    line.hold(2)
    line.push_extra("x1")
    assert line.refuse(reason) == "x1"
    assert pop(line.queues) is None
    line.push_extra("x2")
    assert line.refuse(reason) == "x2"
    assert pop(line.queues) == "first"


def test_a_hold_waits_for_the_writes_of_its_extras() -> None:
    """Writes that are under way together end in any order; the end of one wakes the loop."""
    line = Line()
    line.hold(1)
    line.push_extra("x1")
    assert pop_and_settle(line.queues) == "x1"
    assert pop(line.queues) is None
    before = line.wakes
    for other in ("ns/base", "ns/other"):
        line.queues.note_end_of_write("team", other)
    assert (pop(line.queues), line.wakes) == (None, before)
    line.queues.note_end_of_write("team", "ns/x1")
    assert (pop(line.queues), line.wakes > before) == ("first", True)


def test_an_extra_that_cannot_be_tried_counts_as_tried() -> None:
    """One of the same shape was refused, or its pod is gone."""
    line = Line()
    line.hold(4)
    for name in ("x1", "x2", "x3"):
        line.push_extra(name, shape="s")
    assert line.refuse() == "x1"
    assert pop(line.queues) is None
    line.push_extra("x4", shape="t")
    line.queues.delete("ns/x4")
    assert pop(line.queues) == "first"


def test_a_hold_ends_with_its_time() -> None:
    """G3.69: after five seconds others are tried, whatever has come."""
    line = Line()
    line.hold(2)
    line.now += HOLD_FOR - timedelta(milliseconds=1)
    assert pop(line.queues) is None
    line.now += timedelta(milliseconds=1)
    assert pop(line.queues) == "first"


def test_the_first_extras_are_enough() -> None:
    """G3.69: so many wait at a time; a tenant cannot hold others longer with more of them."""
    line = Line()
    line.hold(1000)
    for number in range(EXTRAS_WAITING + 3):
        line.push_extra(f"x{number:02}")
    found = [line.admit() for _ in range(EXTRAS_WAITING + 1)]
    assert (found.index("first"), len(found)) == (EXTRAS_WAITING, EXTRAS_WAITING + 1)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda line: line.queues.end_hold("ns/base"), id="the-gang-lost-its-admission"),
        pytest.param(lambda line: line.choose("default"), id="another-profile"),
        pytest.param(
            lambda line: (line.queues.remove_cluster_queue("team"), line.choose("back-to-back")), id="removed"
        ),
    ],
)
def test_a_hold_ends_early(end: Callable[[Line], object]) -> None:
    """And the loop is woken, so that the others do not wait for the end of its time."""
    line = Line()
    line.hold(2)
    before = line.wakes
    end(line)
    assert pop(line.queues) == "first"
    assert line.wakes > before or not line.queues.keeps_runs("team")


def test_the_end_of_another_gang_changes_nothing() -> None:
    """Nor that of a gang whose hold was followed by another one."""
    line = Line()
    line.queues.hold_for("team", "ns/earlier", 1)
    line.hold(1)
    for other in ("ns/other", "ns/earlier"):
        line.queues.end_hold(other)
    assert pop(line.queues) is None


@pytest.mark.parametrize("extras", [0, -1])
def test_a_gang_without_extras_holds_nobody(extras: int) -> None:
    line = Line()
    assert line.hold(extras) is None
    assert pop(line.queues) == "first"


@pytest.mark.parametrize("profile", ["default", "pod-group"])
def test_other_profiles_hold_nobody(profile: str) -> None:
    line = Line(profile=profile)
    assert line.hold(3) is None
    assert pop(line.queues) == "first"


def test_a_hold_concerns_one_cluster_queue() -> None:
    line = Line()
    line.queues.set_cluster_queue("beside", BEST_EFFORT_FIFO, order=ORDERS.of("beside", "back-to-back"))
    line.queues.set_local_queue("ns/beside", "beside")
    line.queues.push(make_pending("other", age=1, local_queue="ns/beside"))
    line.hold(1)
    assert pop(line.queues) == "other"


def test_extras_go_first_in_a_queue_that_goes_by_usage() -> None:
    """Although another LocalQueue has used less."""
    line = Line()
    line.queues.set_cluster_queue(
        "team",
        BEST_EFFORT_FIFO,
        usage={"ns/team": 9.0, "ns/idle": 0.0}.__getitem__,
        order=ORDERS.of("team", "back-to-back"),
    )
    line.queues.set_local_queue("ns/idle", "team")
    line.queues.push(make_pending("idle", age=1, local_queue="ns/idle"))
    line.hold(1)
    line.push_extra("x1")
    assert [line.admit() for _ in range(3)] == ["x1", "idle", "first"]
