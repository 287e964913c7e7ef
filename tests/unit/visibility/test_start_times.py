"""The view `starttimes`: what users see, how often it is computed, and what a failure costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import utc_text
from kqueue.controllers.resources import CLUSTER_QUEUES, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from kqueue.core.future.question import StartQuestion, WaitingWorkload
from kqueue.core.future.run_time import NOT_KNOWN, RunTime, RunTimeSource
from kqueue.core.future.start_times import StartsFailedError, StartTimes, start_times
from kqueue.runtime.store import object_key
from kqueue.state.run_times import RunTimes
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.start_question import DrainRules, StartQuestions
from kqueue.visibility.start_times import RENEWED_AFTER, StartAnswer, StartTimesSource, StartTimeViews
from tests.unit.controllers.builders import (
    make_cluster_queue,
    make_flavor,
    make_local_queue,
    make_workload,
    reserved,
)
from tests.unit.scheduling.scheduled import Scheduled
from tests.unit.visibility.worlds import known_of, planning_of

FOR = 500_000
"""The seconds that the running workload may run."""


class Here:
    """Computes in this process; counts the questions, and may fail or hang."""

    def __init__(self) -> None:
        self.asked: list[StartQuestion] = []
        self.stops = 0
        self.failure = ""
        self.gate: asyncio.Event | None = None

    async def ask(self, question: StartQuestion) -> StartTimes:
        """Return the start times."""
        self.asked.append(question)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure:
            raise StartsFailedError(self.failure)
        return start_times(question)

    async def stop(self) -> None:
        """Note the call."""
        self.stops += 1


DEFAULT = DrainRules()
CHECKED = {"admissionChecks": [{"name": "license"}]}


class Cluster:
    """Ten cpus of quota: one workload runs with all of them, others wait in two namespaces."""

    def __init__(self, rules: DrainRules = DEFAULT, **queue: Any) -> None:
        elsewhere = make_local_queue()
        elsewhere["metadata"]["namespace"] = "other"
        self.world = world = Scheduled(
            (RESOURCE_FLAVORS, make_flavor()),
            (CLUSTER_QUEUES, make_cluster_queue(**queue)),
            (LOCAL_QUEUES, make_local_queue()),
            (LOCAL_QUEUES, elsewhere),
            (WORKLOADS, make_workload("runs", cpus=10, status=reserved(cpus=10), maximumExecutionTimeSeconds=FOR)),
            (WORKLOADS, make_workload("first", cpus=10, minute=1, maximumExecutionTimeSeconds=60)),
            (WORKLOADS, make_workload("second", cpus=10, minute=2, metadata={"namespace": "other"})),
            (WORKLOADS, make_workload("third", cpus=10, minute=3)),
        )
        world.sync()
        checks = {"type": "Active", "status": "True", "reason": "Active"}
        check = {"metadata": {"name": "license"}, "spec": {"controllerName": "x"}, "status": {"conditions": [checks]}}
        world.intake.on_check(None, msgspec.convert(check, wire.AdmissionCheck))
        self.computer = Here()
        pending = PendingWorkloads(
            queues=world.queues, workloads=world.workloads, local_queues=world.local_queues, clock=world.clock
        )
        questions = StartQuestions(
            known=known_of(world),
            planning=planning_of(world),
            pending=pending,
            held_back=lambda _workload: (),
            run_times=RunTimes(None, world.clock.now),
            rules=rules,
        )
        self.source = StartTimesSource(questions, self.computer, clock=world.clock)
        self.views = StartTimeViews(self.source, world.clock)

    async def every(self, namespace: str = "", *, reads: Callable[[str], bool] = lambda _: True) -> JSON:
        """The answer to a user."""
        return await self.views.every(question(namespace, reads=reads))


def question(
    namespace: str = "", name: str = "", *, reads: Callable[[str], bool] = lambda _: True
) -> AuthorizedQuestion:
    """A question of a user who may read some namespaces."""

    async def may(asked: str) -> bool:
        return reads(asked)

    return AuthorizedQuestion(namespace=namespace, name=name, params={}, reads=may)


async def test_a_user_who_reads_all_sees_all_in_their_order() -> None:
    """The first workload starts when the running one ends; behind a workload without a run time there is no start time."""
    cluster = Cluster()
    answer = await cluster.every()
    assert [one["metadata"]["name"] for one in answer["items"]] == ["first", "second", "third"]
    first, second, third = [one["startTime"] for one in answer["items"]]
    assert first["p50"] == first["p90"]
    assert first["after"] == {"workloads": ["ns/runs"], "others": 0}
    assert second["p50Seconds"] == first["p50Seconds"] + 60
    assert (third["known"], third["reason"]) == (False, "UnknownRunTimes")
    assert third["unknown"] == {"workloads": ["other/second"], "others": 0}
    assert third["message"] == "1 workload has no known run time"
    assert answer["assumptions"]["running"] == {"Promised": 1}
    assert answer["assumptions"]["waiting"] == {"Promised": 1, "Unknown": 2}
    assert (answer["complete"], answer["hidden"]) == (True, 0)


async def test_a_tenant_sees_its_own_namespace() -> None:
    """Workloads of other namespaces are counted, in lists and in reasons."""
    cluster = Cluster()
    answer = await cluster.every(reads=lambda namespace: namespace == "ns")
    assert [one["metadata"]["name"] for one in answer["items"]] == ["first", "third"]
    assert answer["hidden"] == 1
    assert answer["items"][1]["startTime"]["unknown"] == {"workloads": [], "others": 1}
    assert "other" not in str([one["metadata"] for one in answer["items"]])
    assert (await cluster.every("other", reads=lambda namespace: namespace == "ns"))["items"] == []
    own = await cluster.every("ns", reads=lambda namespace: namespace == "ns")
    assert [one["metadata"]["name"] for one in own["items"]] == ["first", "third"]


async def test_an_answer_is_computed_once_for_a_time() -> None:
    """Questions within 30 seconds share an answer; later questions get it while the next answer is computed."""
    cluster = Cluster()
    for _ in range(3):
        await cluster.every()
    assert len(cluster.computer.asked) == 1
    await cluster.world.clock.advance(RENEWED_AFTER)
    before = (await cluster.every())["generatedAt"]
    assert before == utc_text(cluster.world.clock.now() - timedelta(seconds=RENEWED_AFTER))
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(cluster.computer.asked) == 2
    assert (await cluster.every())["generatedAt"] == utc_text(cluster.world.clock.now())


async def test_a_new_workload_is_told_its_start_time_soon() -> None:
    """An answer that does not know the workload is renewed after a rest, and not for each question."""
    cluster = Cluster()
    key = object_key("ns", "fourth")
    await cluster.every()
    cluster.world.add(make_workload("fourth", cpus=10, minute=4))
    await cluster.source.current(key)
    assert len(cluster.computer.asked) == 1

    await cluster.world.clock.advance(3)
    for _ in range(3):
        answer = await cluster.source.current(key)

    assert isinstance(answer, StartAnswer)
    assert key in answer.uids
    assert len(cluster.computer.asked) == 2


async def test_a_failure_is_a_message_and_is_tried_again_later() -> None:
    """After a failure, start times are computed no more often than answers are renewed."""
    cluster = Cluster()
    cluster.computer.failure = "it has died"
    for _ in range(2):
        answer = await cluster.every()
        assert answer["items"] == []
        assert answer["message"] == "start times are not known: it has died; ask again later"
    assert len(cluster.computer.asked) == 1
    cluster.computer.failure = ""
    await cluster.world.clock.advance(RENEWED_AFTER)
    assert len((await cluster.every())["items"]) == 3


async def test_nobody_waits_for_long() -> None:
    """A slow computation goes on, and the answer says so."""
    cluster = Cluster()
    cluster.computer.gate = asyncio.Event()
    asked = asyncio.ensure_future(cluster.every())
    for _ in range(50):
        await asyncio.sleep(0)
    await cluster.world.clock.advance(2.0)
    assert (await asked)["message"] == "start times are being computed; ask again in some seconds"
    cluster.computer.gate.set()
    for _ in range(50):
        await asyncio.sleep(0)
    assert len((await cluster.every())["items"]) == 3
    await cluster.source.stop()
    assert cluster.computer.stops == 1


async def test_an_explanation_has_the_start_time() -> None:
    """An explanation of a workload that runs has none."""
    cluster = Cluster()

    async def explain(asked: AuthorizedQuestion) -> JSON:
        return {"pending": {}} if asked.name != "runs" else {"running": {}}

    view = cluster.views.explained(explain)
    found = (await view(question("ns", "first")))["pending"]["startTime"]
    assert found["known"]
    assert found["assumptions"]["horizonSeconds"] == 7 * 86_400
    assert (await view(question("ns", "new")))["pending"]["startTime"]["known"] is False
    assert await view(question("ns", "runs")) == {"running": {}}


@pytest.mark.parametrize(
    ("cluster", "left_out"),
    [
        pytest.param(lambda: Cluster(), None, id="nothing"),
        pytest.param(lambda: Cluster(admissionChecksStrategy=CHECKED), ["AdmissionChecks"], id="checks"),
        pytest.param(lambda: Cluster(DrainRules(one_by_one=True)), ["PodsReady"], id="one by one"),
    ],
)
async def test_delays_that_no_drain_knows_are_named(cluster: Callable[[], Cluster], left_out: list[str] | None) -> None:
    """For workloads that exist, and for one that does not."""
    one = cluster()
    every = {item["metadata"]["name"]: "leftOut" in item["startTime"] for item in (await one.every())["items"]}
    (asked,) = await asked_about(one, added(one, "new", priority=5))
    assert asked.get("leftOut") == left_out
    assert every["first"] is (left_out is not None)


# --- workloads that do not exist --------------------------------------------------------------------------------------


def added(cluster: Cluster, *names: str, priority: int = 0, run_time: RunTime = NOT_KNOWN) -> list[WaitingWorkload]:
    """Workloads of ten cpus that nobody has created."""
    heads = planning_of(cluster.world).heads
    objs = [msgspec.convert(make_workload(name, cpus=10, priority=priority), wire.Workload) for name in names]
    made = [heads.make(obj, None, queue="team", now=cluster.world.clock.now()) for obj in objs]
    return [WaitingWorkload(head=head, run_time=run_time, shape="asked") for head in made]


async def asked_about(cluster: Cluster, some: list[WaitingWorkload]) -> list[JSON]:
    """The start times of workloads that nobody has created, in their order."""
    found = await cluster.views.of_added(question(), some)
    return [dict(found[one.head.uid]) for one in some]


async def test_what_does_not_exist_waits_behind_all_of_its_priority() -> None:
    """Run times of all that wait ahead count; a higher priority goes ahead of them."""
    cluster = Cluster()
    minute = RunTime(p50=60, p90=60, source=RunTimeSource.EXPECTED)

    (behind,) = await asked_about(cluster, added(cluster, "behind"))
    assert (behind["known"], behind["reason"]) == (False, "UnknownRunTimes")
    await cluster.world.clock.advance(60)
    first, second = await asked_about(cluster, added(cluster, "one", "two", priority=9, run_time=minute))

    assert second["p50Seconds"] == first["p50Seconds"] + 60
    assert first["after"] == {"workloads": ["ns/runs"], "others": 0}
    assert [one["metadata"]["name"] for one in (await cluster.every())["items"]] == ["first", "second", "third"]


async def test_questions_about_what_does_not_exist_take_turns() -> None:
    """A second user is told to ask again, also while the process rests; a question that fails says why."""
    cluster = Cluster()
    cluster.computer.gate = asyncio.Event()
    first = asyncio.ensure_future(asked_about(cluster, added(cluster, "one")))
    await cluster.world.clock.advance(1)
    (busy,) = await asked_about(cluster, added(cluster, "two"))
    assert busy == {
        "known": False,
        "message": "start times are computed for other questions; ask again in some seconds",
    }
    cluster.computer.gate.set()
    assert (await first)[0]["reason"] == "UnknownRunTimes"

    assert (await asked_about(cluster, added(cluster, "two"))) == [busy]
    await cluster.world.clock.advance(60)
    cluster.computer.failure = "it died"
    assert (await asked_about(cluster, added(cluster, "two")))[0]["message"] == "start times are not known: it died"
    assert len(cluster.computer.asked) == 2


async def test_start_times_that_take_long_are_not_waited_for() -> None:
    """The answer about the workload itself is not held up for longer."""
    cluster = Cluster()
    cluster.computer.gate = asyncio.Event()
    asking = asyncio.ensure_future(asked_about(cluster, added(cluster, "one")))
    await cluster.world.clock.advance(10)
    assert (await asking)[0]["message"] == "start times take longer than 8 s to compute"
    await cluster.source.stop()
