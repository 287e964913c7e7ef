"""The clock of gangs: deadlines, rejections, and pauses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from kqueue.clock import utc_text
from kqueue.controllers.gang_clock import GangClock, GangClockRules
from kqueue.controllers.resources import PODS
from kqueue.jobs.gang.coscheduling_labels import FRAMEWORK
from kqueue.jobs.gang.dialect import ScheduleTimeouts
from kqueue.jobs.gang.key import KUEUE_GROUPS, gang_key
from kqueue.jobs.gang.naming import workload_key_of_gang
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.store import split_key
from kqueue.state.gangs import Gangs
from kqueue.state.requeueing import RequeueBackoff
from tests.unit.controllers.builders import JSON, message_of, status_of
from tests.unit.controllers.pod_world import GROUP, Pods, grouped
from tests.unit.jobs.pods import make_pod

ON = JobFeatures(gangs=(KUEUE_GROUPS, FRAMEWORK))
NAME, QUORUM = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
WORDS = "0/9 nodes are available: 9 Insufficient cpu."
PATIENT = GangClockRules(reject_percentage=100)


def key_of(gang: str) -> str:
    return gang_key(FRAMEWORK, "team", gang)


def base_of(gang: str) -> str:
    """The name of a gang's Workload."""
    return split_key(workload_key_of_gang(key_of(gang), ON))[1]


def members_of(gang: str, quorum: int, **more: Any) -> list[JSON]:
    """Gated members of a gang, as many as the quorum."""
    pods = []
    for number in range(quorum):
        pod: JSON = make_pod(f"{gang}-{number:03}", role="r", **more)
        pod["metadata"]["labels"] |= {NAME: gang, QUORUM: str(quorum)}
        pods.append(pod)
    return pods


class Clocked(Pods):
    """A world of gangs by labels whose pods the test binds."""

    async def start(self, gang: str) -> None:
        """The gang is admitted and released."""
        await self.rest(key_of(gang))
        self.admit(base_of(gang))
        await self.rest(key_of(gang))

    def schedule(self, gang: str, *numbers: int, phase: str = "Pending") -> None:
        """Nodes are found for members now."""
        bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": utc_text(self.clock.now())}
        for number in numbers:
            change: JSON = {"spec": {"nodeName": "n"}, "status": {"phase": phase, "conditions": [bound]}}
            self.client.change(PODS, f"team/{gang}-{number:03}", change)

    def find_no_node(self, gang: str, numbers: Sequence[int]) -> None:
        """The scheduler finds no node for members."""
        found = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": WORDS}
        for number in numbers:
            self.client.change(PODS, f"team/{gang}-{number:03}", {"status": {"conditions": [found]}})

    def evicted(self, gang: str) -> str:
        """The reason of the eviction; empty: the gang goes on."""
        status, reason = status_of(self.workload_named(base_of(gang)), "Evicted")
        return reason if status == "True" else ""

    def state(self, gang: str) -> JSON | None:
        """The count and the time of the pause."""
        found: JSON | None = self.workload_named(base_of(gang))["status"].get("requeueState")
        return found

    async def restart(self) -> None:
        """Another process takes over, and reads all gangs."""
        context = self.context()
        self.starting = Gangs()
        clock = GangClock(context, gangs=self.starting, rules=self.times)
        clock.begin()
        self.group._gang_clock = clock


Make = Callable[..., Clocked]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    worlds: list[Clocked] = []

    def build(*pods: Any, **more: Any) -> Clocked:
        worlds.append(Clocked(*pods, switches=ON, **more))
        return worlds[-1]

    yield build
    for world in worlds:
        await world.close()


@pytest.mark.parametrize(
    ("quorum", "seconds"), [(2, 62), (5, 65), (100, 160), (1000, 1060), (5000, 1800)], ids=lambda value: f"{value}"
)
@pytest.mark.mechanism("0.13")
def test_the_default_deadline_grows_with_the_quorum(quorum: int, seconds: int) -> None:
    """G3.41."""
    assert ScheduleTimeouts().seconds(quorum) == seconds


@pytest.mark.mechanism("0.13")
@pytest.mark.parametrize(("quorum", "seconds"), [(2, 62), (5, 65)], ids=["two", "five"])
async def test_all_members_of_a_late_gang_are_stopped_at_its_deadline(make: Make, quorum: int, seconds: int) -> None:
    """G3.43, G3.44: not a second before; the next reconcile deletes all members, and the quota goes with the last."""
    world = make(*members_of("g", quorum), times=PATIENT)
    await world.start("g")
    world.schedule("g", *range(quorum - 1))
    await world.clock.advance(seconds - 1)
    await world.rest(key_of("g"))
    before = world.evicted("g")
    result = await world.reconcile(key_of("g"))
    await world.clock.advance(1)
    await world.look(key_of("g"))
    late = world.workload_named(base_of("g"))
    writes = await world.look(key_of("g"))

    assert before == ""
    assert result.requeue_after == 1.0
    assert world.evicted("g") == "GangScheduleTimeout"
    at = utc_text(world.clock.now() + timedelta(seconds=10))
    assert message_of(late, "Evicted") == (
        f"{quorum - 1} of {quorum} pods were scheduled within {seconds} s of the admission; all are stopped; "
        f"queued again at {at} (time 1)"
    )
    assert len([write for write in writes if write.startswith("delete pods")]) == quorum, writes
    assert "admission" in late["status"]


async def test_a_gang_that_gathers_or_waits_has_no_deadline(make: Make) -> None:
    """G3.43: nothing is held, so no clock runs."""
    world = make(*members_of("g", 3), times=PATIENT)
    await world.rest(key_of("g"))
    await world.clock.advance(100_000)
    await world.rest(key_of("g"))
    assert world.evicted("g") == ""


async def test_a_quorum_in_time_stops_the_clock_for_good(make: Make) -> None:
    """G7.6, G3.32: the quorum counts although the deadline is over; a later loss evicts nothing, also after a
    restart.
    """
    world = make(*members_of("g", 2))
    await world.start("g")
    world.schedule("g", 0, 1)
    await world.clock.advance(62)
    await world.rest(key_of("g"))
    world.client.change(PODS, "team/g-000", {"status": {"phase": "Failed"}})
    await world.clock.advance(1000)
    await world.restart()
    await world.rest(key_of("g"))
    assert world.evicted("g") == ""


@pytest.mark.proves("gang by labels", "eviction and requeue")
async def test_the_next_admission_starts_a_new_clock(make: Make) -> None:
    """A quorum of an earlier admission does not count for it."""
    world = make(*members_of("g", 2), times=PATIENT)
    await world.start("g")
    world.schedule("g", 0, 1)
    await world.rest(key_of("g"))
    marked = world.workload_named(base_of("g"))["metadata"]["annotations"]["kqueue.dev/quorum-scheduled"]
    for name in ("g-000", "g-001"):
        world.client.change(PODS, f"team/{name}", {"spec": {"nodeName": None}, "status": {"phase": "Pending"}})
    await world.clock.advance(5)
    world.admit(base_of("g"))
    await world.clock.advance(62)
    await world.look(key_of("g"))
    assert marked == "2026-01-01T00:00:00Z"
    assert world.evicted("g") == "GangScheduleTimeout"


async def test_a_number_of_the_gang_is_the_deadline_up_to_the_maximum(make: Make) -> None:
    """G3.42."""
    for written, seconds in (("7", 7), ("99999", 1800)):
        world = make(*members_of("g", 2, annotations={"kqueue.dev/schedule-timeout-seconds": written}), times=PATIENT)
        await world.start("g")
        await world.clock.advance(seconds - 1)
        await world.look(key_of("g"))
        before = world.evicted("g")
        await world.clock.advance(1)
        await world.look(key_of("g"))
        assert (before, world.evicted("g")) == ("", "GangScheduleTimeout")


async def test_a_deadline_counts_from_the_admission_over_a_restart(make: Make) -> None:
    """The time is that of the condition."""
    world = make(*members_of("g", 2), times=PATIENT)
    await world.start("g")
    await world.clock.advance(40)
    await world.restart()
    await world.rest(key_of("g"))
    await world.clock.advance(22)
    await world.look(key_of("g"))
    assert world.evicted("g") == "GangScheduleTimeout"


@pytest.mark.mechanism("3.4")
async def test_pauses_double_and_begin_again_after_success(make: Make) -> None:
    """G3.48: 10, 20, 40 ... 600 s; when the quorum has run, 10 s again."""
    world = make(*members_of("g", 2), times=PATIENT)
    pauses = []
    for _ in range(8):
        pauses.append(await _late_once(world))
    await world.clock.advance(601)
    await _admit_anew(world)
    world.schedule("g", 0, 1, phase="Running")
    await world.rest(key_of("g"))
    cleared = world.state("g")
    await world.clock.advance(60)
    again = await _late_once(world)

    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600]
    assert cleared is None
    assert again == 10


async def _admit_anew(world: Clocked) -> None:
    """Replace the members by others of the same names, which are admitted and released."""
    for pod in members_of("g", 2):
        key = f"team/{pod['metadata']['name']}"
        if world.client.object(PODS, key) is not None:
            world.client.drop(PODS, key)
        world.client.put(PODS, pod)
    world.sync()
    await world.start("g")


async def _late_once(world: Clocked) -> int:
    """Let the gang be late; return the seconds of its pause."""
    await _admit_anew(world)
    await world.clock.advance(62)
    await world.look(key_of("g"))
    assert world.evicted("g") == "GangScheduleTimeout"
    state = world.state("g")
    assert state is not None
    pause = datetime.fromisoformat(state["requeueAt"]) - world.clock.now()
    await world.rest(key_of("g"))
    return int(pause.total_seconds())


async def test_a_gang_that_is_late_too_often_is_deactivated(make: Make) -> None:
    """G3.48."""
    rules = GangClockRules(reject_percentage=100, backoff=RequeueBackoff(10, 600, 1))
    world = make(*members_of("g", 2), times=rules)
    await _late_once(world)
    await world.clock.advance(11)
    await _admit_anew(world)
    await world.clock.advance(62)
    await world.look(key_of("g"))
    workload = world.workload_named(base_of("g"))
    assert status_of(workload, "DeactivationTarget") == ("True", "RequeuingLimitExceeded")
    assert message_of(workload, "DeactivationTarget") == (
        "0 of 2 pods were scheduled within 62 s of the admission, for the 2nd time (gangs.backoff.limit 1)"
    )


async def test_groups_of_kueue_have_no_clock(make: Make) -> None:
    """Their behaviour is Kueue's."""
    world = make(grouped("a"), grouped("b"))
    await world.rest(GROUP)
    world.admit("g")
    await world.rest(GROUP)
    await world.clock.advance(100_000)
    await world.rest(GROUP)
    assert status_of(world.workload_named("g"), "Evicted") == ("", "")


@pytest.mark.mechanism("4.17")
@pytest.mark.parametrize(
    ("percentage", "unschedulable", "rejected"),
    [(10, 9, False), (10, 10, False), (10, 11, True), (0, 1, True), (100, 100, False)],
)
async def test_a_gang_is_rejected_when_too_many_members_find_no_node(
    make: Make, percentage: int, unschedulable: int, rejected: bool
) -> None:
    """G3.46: a share of exactly the limit waits for the deadline."""
    world = make(*members_of("g", 100), times=GangClockRules(reject_percentage=percentage))
    await world.start("g")
    world.schedule("g", *range(unschedulable, 100))
    world.find_no_node("g", range(unschedulable))
    await world.clock.advance(9)
    await world.rest(key_of("g"))
    before = world.evicted("g")
    await world.clock.advance(1)
    await world.look(key_of("g"))

    assert before == ""
    assert world.evicted("g") == ("GangRejected" if rejected else "")
    if unschedulable == 11:
        at = utc_text(world.clock.now() + timedelta(seconds=10))
        assert message_of(world.workload_named(base_of("g")), "Evicted") == (
            f"11 of 100 pods cannot be scheduled (11 %, more than 10 %): {WORDS.rstrip('.')}; queued again at {at}"
        )


async def test_each_scheduled_member_gives_the_gang_new_time(make: Make) -> None:
    """G3.46, G7.8: ten seconds without progress, whatever the scheduler says meanwhile; gated members are not stuck."""
    world = make(*members_of("g", 4))
    await world.start("g")
    await world.clock.advance(30)
    await world.rest(key_of("g"))
    world.find_no_node("g", [0, 1, 2, 3])
    world.schedule("g", 1)
    await world.clock.advance(9)
    world.schedule("g", 2)
    await world.clock.advance(9)
    await world.rest(key_of("g"))
    before = world.evicted("g")
    await world.clock.advance(1)
    await world.look(key_of("g"))
    assert (before, world.evicted("g")) == ("", "GangRejected")


async def near_and_far(make: Make) -> Clocked:
    """Two gangs of five in one flavor that may be rejected now; of one four members have nodes, of the other two."""
    world = make(*members_of("near", 5), *members_of("far", 5))
    for gang, numbers in (("near", (0, 1, 2, 3)), ("far", (0, 1))):
        await world.start(gang)
        world.schedule(gang, *numbers)
        world.find_no_node(gang, [number for number in range(5) if number not in numbers])
        await world.rest(key_of(gang))
    await world.clock.advance(10)
    return world


@pytest.mark.mechanism("4.13")
async def test_of_two_gangs_in_one_flavor_the_less_complete_one_is_rejected(make: Make) -> None:
    """G3.47: in either order of events; then the other one has its time again."""
    for order in (("near", "far"), ("far", "near")):
        world = await near_and_far(make)
        for gang in (*order, *order):
            await world.look(key_of(gang))
        first = world.evicted("near"), world.evicted("far")
        await world.clock.advance(9)
        await world.rest(key_of("near"))
        waits = world.evicted("near")
        await world.clock.advance(1)
        await world.look(key_of("near"))

        assert first == ("", "GangRejected"), order
        assert (waits, world.evicted("near")) == ("", "GangRejected")


@pytest.mark.mechanism("4.13")
async def test_the_event_of_a_rejection_may_come_before_its_answer(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gang has left the ranks then, and the other one still has its time again."""
    world = await near_and_far(make)
    write, near = world.writer.write, list[str]()

    async def seen_first(key: str, change: Any, **more: Any) -> Any:
        written = await write(key, change, **more)
        if key == workload_key_of_gang(key_of("far"), ON):
            world.starting.drop(key)
            await world.look(key_of("near"))
            near.append(world.evicted("near"))
        return written

    monkeypatch.setattr(world.writer, "write", seen_first)
    await world.look(key_of("far"))
    assert (world.evicted("far"), near[:1]) == ("GangRejected", [""])


async def test_a_restart_gives_gangs_time_before_a_rejection(make: Make) -> None:
    """The new process does not know yet which gang is closer to its quorum."""
    world = make(*members_of("g", 2))
    await world.start("g")
    world.find_no_node("g", [0, 1])
    await world.clock.advance(10)
    await world.restart()
    await world.rest(key_of("g"))
    before = world.evicted("g")
    await world.clock.advance(10)
    await world.look(key_of("g"))
    assert (before, world.evicted("g")) == ("", "GangRejected")
