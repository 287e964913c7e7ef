"""Questions to worker clusters: one for equal workloads, with a time limit, and what follows from the answers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from kqueue import model
from kqueue.api.wire import kueue as wire
from kqueue.config.dispatchers import DISPATCHER_BEST_DOMAIN
from kqueue.controllers.resources import WORKLOADS
from kqueue.controllers.worker_answers import FRESH_SECONDS, WorkerAnswers
from kqueue.controllers.worker_cluster import WorkerLink
from kqueue.errors import ApiError, ForbiddenError, NotFoundError, ServerError
from kqueue.jobs.multikueue.answers import Start
from tests.unit.controllers.builders import condition, make_workload, read, reserved
from tests.unit.controllers.multikueue_world import JOBS, OWNER, MultiKueueWorld, make_job

JSON = dict[str, Any]
NOW_ONE: JSON = {"start": "Now", "room": 1, "domains": 1, "fewestDomains": 1}
TWO_RACKS: JSON = {**NOW_ONE, "domains": 2}
SECOND = timedelta(seconds=1)


class AskingWorld(MultiKueueWorld):
    """A manager that asks its worker clusters `a` and `b`; `says` has their answers, None: it never answers."""

    def __init__(self, **says: JSON | ApiError | None) -> None:
        self.says, self.asked = says, list[tuple[str, JSON]]()
        self.told: list[str] = []
        super().__init__(clusters="".join(says), dispatcher=DISPATCHER_BEST_DOMAIN)

    def asking(self) -> dict[str, Any]:
        self.begin_anew()
        return {
            "answered": lambda facts: self.answers.answered(facts),
            "decided": lambda facts, nominated: self.answers.decided(facts, nominated),
        }

    def begin_anew(self) -> None:
        """A new process has no memory of the former one."""
        self.answers = WorkerAnswers(
            {name: worker.cluster for name, worker in self.workers.items()},
            self.clock,
            on_answer=self.told.append,
            answer_within=2 * SECOND,
            patience=30 * SECOND,
            workloads=self.workloads.values,
            post=self._post,
        )

    async def _post(self, link: WorkerLink, question: JSON) -> Any:
        self.asked.append((link.cluster, question))
        said = self.says[link.cluster]
        if said is None:
            await asyncio.Event().wait()
        if isinstance(said, ApiError):
            raise said
        return said

    async def turns(self) -> None:
        """All tasks that can go on do."""
        for _ in range(20):
            await asyncio.sleep(0)

    async def decided(self) -> list[str]:
        """The nominated clusters, after every answer that comes without waiting."""
        await self.step()
        await self.turns()
        await self.settled()
        return list(self.status.get("nominatedClusterNames", ()))

    async def one_more(self, name: str) -> None:
        """Another Workload of the same form; it is decided about as the first one."""
        owner = {**OWNER, "name": name, "uid": f"uid-of-job-{name}"}
        job = make_job()
        job["metadata"] |= {"name": name, "uid": owner["uid"]}
        self.client.put(JOBS, job)
        self.client.put(WORKLOADS, make_workload(name, metadata={"ownerReferences": [owner]}))
        entry = {"name": "multi", "state": "Pending", "message": "", "lastTransitionTime": "2025-12-31T00:00:00Z"}
        status = reserved(condition("Admitted", "False"), admissionChecks=[entry])
        self.client.change(WORKLOADS, f"ns/{name}", {"status": status})
        self.client.sync()
        await self.reconciler.reconcile(f"ns/{name}")
        await self.turns()
        await self.reconciler.reconcile(f"ns/{name}")
        self.client.sync()

    def nominated(self, name: str) -> list[str]:
        found: JSON = self.workload(name) or {}
        return list(found["status"].get("nominatedClusterNames", ()))

    async def ask(self) -> dict[str, tuple[Start, str]]:
        """What each cluster says."""
        self.client.sync()
        obj = self.writer.newest("ns/w")
        assert obj is not None
        found = await self.answers.all(obj, list(self.says))
        return {name: (answer.start, answer.message) for name, answer in found.items()}


async def test_the_best_cluster_alone_gets_a_copy() -> None:
    world = AskingWorld(a=TWO_RACKS, b=NOW_ONE)
    assert await world.decided() == ["b"]
    assert (world.workers["a"].workload, world.workers["b"].workload is None) == (None, False)
    assert world.told == ["ns/w", "ns/w"]
    _, question = world.asked[0]
    assert (question["kind"], question["metadata"]) == ("Placement", {"namespace": "ns"})
    assert question["spec"] == {"podSets": question["spec"]["podSets"], "queueName": "main", "priority": 0}


async def test_two_gangs_and_one_free_domain_in_each_cluster() -> None:
    """Equal workloads are asked about once; the second one goes where the first one did not; the third waits behind."""
    world = AskingWorld(a=NOW_ONE, b=NOW_ONE)
    first = await world.decided()
    await world.one_more("v")
    await world.one_more("u")
    assert (first, world.nominated("v"), world.nominated("u")) == (["a"], ["b"], ["a"])
    assert sorted(name for name, _ in world.asked) == ["a", "b"]


@pytest.mark.parametrize(
    ("seconds", "second"),
    [
        pytest.param(0, "b", id="it takes the room"),
        pytest.param(30, "a", id="the patience is over, and the answer counts"),
    ],
)
async def test_a_killed_controller_has_sent_the_first_gang(seconds: int, second: str) -> None:
    """The next process knows from its Workload that the gang is on its way, and sends no other one to the same rack."""
    world = AskingWorld(a=NOW_ONE, b=NOW_ONE)
    first = await world.decided()
    world.begin_anew()
    await world.step()
    await world.clock.advance(seconds)
    await world.one_more("v")
    assert (first, world.nominated("v")) == (["a"], [second])


async def test_a_silent_cluster_is_waited_for_two_seconds() -> None:
    """Then the incremental dispatcher goes on, or the cluster that can start it now."""
    world = AskingWorld(a=None, b=None)
    await world.step()
    await world.turns()
    before = world.status.get("nominatedClusterNames")
    await world.clock.advance(2)
    await world.turns()
    await world.settled()
    assert (before, world.status["nominatedClusterNames"]) == (None, ["a", "b"])
    assert (await world.ask())["a"] == (Start.UNKNOWN, "no answer within 2 s")


@pytest.mark.parametrize(
    ("error", "words", "again"),
    [
        pytest.param(NotFoundError("no such path", status=404), "does not serve", False, id="Kueue"),
        pytest.param(ApiError("only GET", status=405), "does not serve", False, id="an older kqueue"),
        pytest.param(ForbiddenError("cannot create", status=403), "right to create placements", True, id="no right"),
        pytest.param(ServerError("no endpoints", status=503), "no endpoints", True, id="no controller runs"),
    ],
)
async def test_a_cluster_that_cannot_be_asked_is_sent_copies(error: ApiError, words: str, again: bool) -> None:
    """A worker without the API is not asked at each decision."""
    world = AskingWorld(a=error, b=error)
    assert await world.decided() == ["a", "b"]
    start, message = (await world.ask())["a"]
    await world.clock.advance(FRESH_SECONDS + 1)
    await world.ask()
    assert (start, words in message) == (Start.UNKNOWN, True)
    assert len(world.asked) == (4 if again else 2)


async def test_a_cluster_that_is_lost_is_not_asked() -> None:
    world = AskingWorld(a=NOW_ONE, b=NOW_ONE)
    world.workers["a"].lose()
    assert await world.decided() == ["b"]
    assert await world.ask() == {"a": (Start.UNKNOWN, "it is not connected"), "b": (Start.NOW, "")}
    assert [name for name, _ in world.asked] == ["b"]


async def test_a_stale_answer_is_asked_for_again() -> None:
    """After the patience the next best cluster of that moment is added, and the first copy stays."""
    world = AskingWorld(a=NOW_ONE, b=TWO_RACKS, c=NOW_ONE)
    assert await world.decided() == ["a"]
    world.says |= {"b": NOW_ONE, "c": {"start": "Later"}}
    await world.clock.advance(29)
    assert await world.decided() == ["a"]
    await world.clock.advance(1)
    assert await world.decided() == ["a", "b"]


async def test_a_lie_costs_the_patience_and_nothing_else() -> None:
    """A worker that always has room gets copies, and the next one gets them, too."""
    world = AskingWorld(a={"start": "Now", "room": 10**9, "message": "\n"}, b=TWO_RACKS)
    assert await world.decided() == ["a"]
    await world.clock.advance(30)
    assert await world.decided() == ["a", "b"]


async def test_a_workload_of_another_form_is_another_question() -> None:
    world = AskingWorld(a=NOW_ONE)
    other: wire.Workload = read(wire.Workload, make_workload("other", pods=7))
    await world.ask()
    await world.answers.all(other, ["a"])
    assert [question["spec"]["podSets"][0].get("count", 1) for _, question in world.asked] == [1, 7]
    assert model.workload_key(other) == "ns/other"


async def test_questions_end_with_the_controller() -> None:
    world = AskingWorld(a=None)
    running = asyncio.create_task(world.answers.run())
    asking = asyncio.create_task(world.ask())
    await world.turns()
    running.cancel()
    await asyncio.wait({running, asking}, timeout=5)
    assert (running.done(), asking.done(), world.told) == (True, True, [])
