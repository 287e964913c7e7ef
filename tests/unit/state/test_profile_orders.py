"""Waiting workloads go by the profile of their ClusterQueue."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from kqueue.core.order_keys import BUILT_IN_KEYS, ProfileOrder, comparable
from kqueue.core.queued import Queued, QueuedGang
from kqueue.errors import PluginError
from kqueue.model.pending import Pending, RequeueReason
from kqueue.state.profile_orders import ProfileOrders
from kqueue.state.queue_policy import BEST_EFFORT_FIFO, STRICT_FIFO
from kqueue.state.queues import Queues
from kqueue.state.tries import Tries, Try
from tests.unit.state.test_queues import NOW, make_pending, pop, pop_and_settle


def in_group(item: Pending, since: int) -> Pending:
    gang = QueuedGang(key=item.key, since=NOW - timedelta(seconds=since), uid=item.uid)
    return Pending(**{name: getattr(item, name) for name in item.__dataclass_fields__} | {"gang": gang})


def make_queues(orders: ProfileOrders, **profiles: str) -> Queues:
    queues = Queues(lambda: NOW)
    for name, profile in profiles.items():
        queues.set_cluster_queue(name, BEST_EFFORT_FIFO, order=orders.of(name, profile))
        queues.set_local_queue(f"ns/{name}", name)
    return queues


def popped(queues: Queues) -> list[str]:
    found = []
    while (uid := pop_and_settle(queues)) is not None:
        found.append(uid)
    return found


def test_the_same_objects_have_another_order_in_another_profile() -> None:
    """Row 3.2."""
    orders = ProfileOrders()
    found = {}
    for profile in ("default", "pod-group"):
        queues = make_queues(orders, team=profile)
        old = in_group(make_pending("old-gang", age=9, local_queue="ns/team"), since=9)
        for item in (old, make_pending("young", age=1, local_queue="ns/team")):
            queues.push(item)
        found[profile] = popped(queues)
    assert found == {"default": ["old-gang", "young"], "pod-group": ["young", "old-gang"]}


def test_a_queue_that_changes_its_profile_is_sorted_anew() -> None:
    orders = ProfileOrders()
    queues = make_queues(orders, team="default")
    queues.push(in_group(make_pending("old-gang", age=9, local_queue="ns/team"), since=9))
    queues.push(make_pending("young", age=1, local_queue="ns/team"))
    queues.set_cluster_queue("team", BEST_EFFORT_FIFO, order=orders.of("team", "pod-group"))
    assert queues.front("team", 9) == (["ns/young", "ns/old-gang"], 2)
    assert queues.position("ns/young") == (1, 2)
    queues.set_cluster_queue("team", BEST_EFFORT_FIFO, order=orders.of("team", "default"))
    assert popped(queues) == ["old-gang", "young"]


@pytest.mark.mechanism("0.6")
def test_single_pods_keep_the_order_of_their_first_tries_g3_40() -> None:
    """Row 0.6: retried in the other order, they stand as they were tried first."""
    tries = Tries()
    queues = make_queues(ProfileOrders(first_try=tries.first), team="back-to-back")
    for name, age in (("a", 9), ("b", 8)):
        queues.push(make_pending(name, age=age, shape="s", local_queue="ns/team"))
    at = NOW
    for turn in range(2):
        for name in ("b", "a") if turn else ("a", "b"):
            tries.note(Try(key=f"ns/{name}", at=at, cycle=1, generation=1, nodes=1, reason=""), "team", name)
            at += timedelta(seconds=1)
        for _ in range(2):
            uid = pop(queues)
            queues.requeue(f"ns/{uid}", RequeueReason.NAMESPACE_MISMATCH)
        queues.flush(["team"])
    assert popped(queues) == ["a", "b"]


def test_a_later_workload_of_the_same_name_has_no_first_try() -> None:
    tries = Tries()
    tries.note(Try(key="ns/a", at=NOW, cycle=1, generation=1, nodes=1, reason=""), "team", "a")
    assert tries.first("ns/a", NOW - timedelta(seconds=1)) == NOW
    assert tries.first("ns/a", NOW + timedelta(seconds=1)) is None
    later = NOW + timedelta(seconds=5)
    tries.note(Try(key="ns/a", at=later, cycle=2, generation=1, nodes=1, reason=""), "team", "a")
    assert tries.first("ns/a", NOW + timedelta(seconds=1)) == later


class Deadlines:
    """A plugin's key, which notes its calls."""

    def __init__(self) -> None:
        self.of: dict[str, int] = {}
        self.calls: list[str] = []
        self.fails = False

    def __call__(self, item: Queued) -> Any:
        self.calls.append(item.uid)
        if self.fails:
            raise PluginError("plugin acme failed: ValueError: no deadline")
        return comparable(self.of.get(item.uid, 0))


@pytest.fixture
def deadlines() -> Deadlines:
    return Deadlines()


def with_deadlines(deadlines: Deadlines, **profiles: str) -> Queues:
    orders = {"night": ProfileOrder([deadlines, BUILT_IN_KEYS["timestamp"]])}
    return make_queues(ProfileOrders(orders), **profiles)


@pytest.mark.mechanism("0.16", "3.2")
def test_two_queues_go_by_different_profiles_g5_18_g5_19(deadlines: Deadlines) -> None:
    """Row 0.16: a key of a plugin before the timestamp in one queue, none in the other."""
    queues = with_deadlines(deadlines, night="night", day="default")
    deadlines.of = {"n-old": 2, "n-young": 1}
    for prefix, queue in (("n", "night"), ("d", "day")):
        queues.push(make_pending(f"{prefix}-old", age=9, local_queue=f"ns/{queue}"))
        queues.push(make_pending(f"{prefix}-young", age=1, local_queue=f"ns/{queue}"))
    assert queues.front("night", 9)[0] == ["ns/n-young", "ns/n-old"]
    assert queues.front("day", 9)[0] == ["ns/d-old", "ns/d-young"]


def test_a_key_is_computed_when_a_workload_enters_or_changes_g5_1(deadlines: Deadlines) -> None:
    """A comparison of two workloads calls no plugin."""
    queues = with_deadlines(deadlines, team="night")
    items = [make_pending(f"w{n}", age=n, local_queue="ns/team") for n in range(50)]
    random.Random(1).shuffle(items)
    for item in items:
        queues.push(item)
    queues.front("team", 50)
    queues.position("ns/w7")
    assert sorted(deadlines.calls) == sorted(item.uid for item in items)

    deadlines.calls.clear()
    queues.push(make_pending("w7", age=7, priority=1, version="2", local_queue="ns/team"))
    assert deadlines.calls == ["w7"]


def test_a_workload_without_a_key_goes_last_and_is_asked_about_again_g5_14(deadlines: Deadlines) -> None:
    """The queue has the reason while the workload is in flight."""
    queues = with_deadlines(deadlines, team="night")
    deadlines.fails = True
    queues.push(make_pending("a", age=9, local_queue="ns/team"))
    assert pop(queues) == "a"
    assert queues.unplaced("team") == "plugin acme failed: ValueError: no deadline"

    deadlines.fails = False
    queues.requeue("ns/a", RequeueReason.GENERIC)
    assert queues.unplaced("team") == ""
    queues.flush(["team"])
    assert pop(queues) == "a"
    assert queues.unplaced("team") == ""


def test_keys_are_asked_for_anew_when_a_process_begins_to_lead_g5_16(deadlines: Deadlines) -> None:
    queues = with_deadlines(deadlines, team="night")
    queues.push(make_pending("old", age=9, local_queue="ns/team"))
    queues.push(make_pending("young", age=1, local_queue="ns/team"))
    deadlines.of = {"old": 5}
    queues.sort_anew()
    assert popped(queues) == ["young", "old"]


def test_a_preemptor_goes_first_whatever_the_profile(deadlines: Deadlines) -> None:
    queues = with_deadlines(deadlines, team="night")
    deadlines.of = {"first": 0, "second": 1, "preemptor": 9}
    for name in deadlines.of:
        queues.push(make_pending(name, local_queue="ns/team"))
    queues._queues["team"].prefer("ns/preemptor")
    assert popped(queues) == ["preemptor", "first", "second"]


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_leave_the_order_of_the_keys(seed: int) -> None:
    """Heads come as a sorted list of what waits would have them."""
    chance = random.Random(seed)
    orders = ProfileOrders()
    queues = Queues(lambda: NOW)
    queues.set_cluster_queue("team", STRICT_FIFO, order=orders.of("team", "back-to-back"))
    queues.set_local_queue("ns/team", "team")
    known: dict[str, Pending] = {}
    order = orders.of("team", "back-to-back")
    assert order is not None
    for _ in range(80):
        name = f"w{chance.randrange(12)}"
        if chance.random() < 0.2:
            queues.delete(f"ns/{name}")
            known.pop(name, None)
        elif chance.random() < 0.3 and known:
            uid = pop(queues)
            best = min(known.values(), key=lambda item: order.place(item).keys)
            assert uid == best.uid
            queues.requeue(best.key, RequeueReason.NO_FIT)
        else:
            item = make_pending(
                name,
                priority=chance.randrange(3),
                age=chance.randrange(5),
                local_queue="ns/team",
                version=str(chance.random()),
            )
            queues.push(item)
            known[name] = item
    assert popped(queues) == [i.uid for i in sorted(known.values(), key=lambda item: order.place(item).keys)]
