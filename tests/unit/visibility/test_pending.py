"""Who waits in a queue, in which order, and what of it is shown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.api.wire.meta import ObjectMeta, OwnerReference
from kqueue.clock import FakeClock
from kqueue.errors import InvalidObjectError, NotFoundError
from kqueue.model.pending import Pending, RequeueReason
from kqueue.runtime.store import Store, split_key
from kqueue.state.queue_policy import BEST_EFFORT_FIFO
from kqueue.state.queues import Queues
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.question import JSON, AuthorizedQuestion

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Hall:
    """ClusterQueue `team` behind LocalQueues `a/main` and `b/main`; `c/lost` leads to a ClusterQueue that is not there."""

    def __init__(self) -> None:
        self.clock = FakeClock(start=NOW)
        self.queues = Queues(self.clock.now)
        self.workloads, self.local_queues = Store[wire.Workload](), Store[wire.LocalQueue]()
        self.queues.set_cluster_queue("team", BEST_EFFORT_FIFO)
        for key, home in {"a/main": "team", "b/main": "team", "c/lost": "gone"}.items():
            namespace, name = split_key(key)
            spec = wire.LocalQueueSpec(cluster_queue=home)
            self.local_queues.put(key, wire.LocalQueue(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec))
            self.queues.set_local_queue(key, home)
        self.view = PendingWorkloads(
            queues=self.queues, workloads=self.workloads, local_queues=self.local_queues, clock=self.clock
        )

    def wait(self, key: str, *, priority: int = 0, boost: int = 0, age: int = 0, queue: str = "main") -> None:
        namespace, name = split_key(key)
        owner = OwnerReference(api_version="batch/v1", kind="Job", name="job", uid="u-job", controller=True)
        metadata = ObjectMeta(
            name=name,
            namespace=namespace,
            uid=name,
            owner_references=(owner,),
            creation_timestamp=NOW,
            labels={"x": "y"},
        )
        self.workloads.put(key, wire.Workload(metadata=metadata, spec=wire.WorkloadSpec(priority=priority)))
        self.queues.push(
            Pending(
                key=key,
                uid=name,
                local_queue=f"{namespace}/{queue}",
                priority=priority + boost,
                timestamp=NOW - timedelta(seconds=age),
                shape=name,
                version="1",
            )
        )

    async def ask(self, name: str, namespace: str = "", params: Mapping[str, str] | None = None) -> list[JSON]:
        """Items of the answer for a ClusterQueue, or for a LocalQueue when a namespace is given."""
        asked = AuthorizedQuestion(namespace=namespace, name=name, params=params or {}, reads=never)
        found = await (self.view.of_local_queue(asked) if namespace else self.view.of_cluster_queue(asked))
        assert (found["kind"], found["metadata"]) == ("PendingWorkloadsSummary", {})
        return list(found["items"])


async def never(namespace: str) -> bool:
    raise AssertionError(f"who waits says nothing of {namespace}")


def places(items: list[JSON]) -> list[tuple[Any, ...]]:
    return [
        (
            f"{item['metadata']['namespace']}/{item['metadata']['name']}",
            item["positionInClusterQueue"],
            item["positionInLocalQueue"],
        )
        for item in items
    ]


@pytest.fixture
def hall() -> Hall:
    """Five wait: the oldest was set aside, the one of high priority is being tried, three are to be tried."""
    hall = Hall()
    hall.wait("a/old", age=50)
    assert hall.queues.pop_heads(lambda _: True)
    hall.queues.requeue("a/old", RequeueReason.NO_FIT)
    hall.wait("b/high", priority=10)
    assert hall.queues.pop_heads(lambda _: True)
    hall.wait("a/new", age=10)
    hall.wait("b/new", age=20)
    hall.wait("b/boosted", priority=1, boost=4)
    assert hall.queues.counts("team") == (4, 1)
    return hall


ORDER = [("b/high", 0, 0), ("b/boosted", 1, 1), ("a/old", 2, 0), ("b/new", 3, 2), ("a/new", 4, 1)]


async def test_all_who_wait_stand_in_one_order(hall: Hall) -> None:
    """Tried, to be tried and set aside are one line, by priority with its boost and then by age; places are from 0."""
    assert places(await hall.ask("team")) == ORDER


async def test_an_item_says_whose_and_what(hall: Hall) -> None:
    """Owners are reduced to what identifies them, and the priority is the one asked for, without its boost."""
    item = (await hall.ask("team"))[1]

    assert item == {
        "metadata": {
            "name": "boosted",
            "namespace": "b",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u-job"}],
        },
        "priority": 1,
        "localQueueName": "main",
        "positionInClusterQueue": 1,
        "positionInLocalQueue": 1,
    }


@pytest.mark.parametrize(
    ("params", "cluster", "local"),
    [
        pytest.param({}, slice(0, 5), slice(0, 3), id="all"),
        pytest.param({"limit": "0"}, slice(0, 5), slice(0, 3), id="no-limit-is-the-default"),
        pytest.param({"limit": "2"}, slice(0, 2), slice(0, 2), id="the-first-two"),
        pytest.param({"limit": "-1"}, slice(0, 0), slice(0, 0), id="a-negative-limit-leaves-nothing"),
        pytest.param({"offset": "1", "limit": "1"}, slice(1, 2), slice(1, 2), id="the-second"),
        pytest.param({"offset": "-3"}, slice(0, 5), slice(0, 3), id="a-negative-offset-is-none"),
        pytest.param({"offset": "9"}, slice(0, 0), slice(0, 0), id="beyond-the-end"),
        pytest.param({"limit": "9223372036854775807"}, slice(0, 5), slice(0, 3), id="a-huge-limit"),
    ],
)
async def test_a_part_of_the_order(hall: Hall, params: Mapping[str, str], cluster: slice, local: slice) -> None:
    """`offset` and `limit` cut the order of the queue that is asked; places stay those of the whole."""
    of_b = [place for place in ORDER if place[0].startswith("b/")]

    assert places(await hall.ask("team", params=params)) == ORDER[cluster]
    assert places(await hall.ask("main", "b", params)) == of_b[local]


async def test_an_answer_has_a_thousand_items_unless_more_are_asked_for(hall: Hall) -> None:
    """The default limit is 1000; many are put in order like few."""
    for number in range(2500):
        hall.wait(f"a/many-{number:04}")

    everyone = places(await hall.ask("team", params={"limit": "100000"}))

    assert len(await hall.ask("team")) == 1000
    assert [place[1] for place in everyone] == list(range(2505))
    assert everyone[:2] == ORDER[:2]
    assert [place[0] for place in everyone[5:]] == [f"a/many-{number:04}" for number in range(2500)]


@pytest.mark.parametrize("text", ["", "ten", "1.5", "0x10", "9223372036854775808", "1" * 5000, "1 ", "\u0663"])
@pytest.mark.parametrize("name", ["limit", "offset"])
async def test_what_is_no_number_is_refused(hall: Hall, name: str, text: str) -> None:
    """The refusal names the parameter."""
    with pytest.raises(InvalidObjectError, match=name):
        await hall.ask("team", params={name: text})


@pytest.mark.parametrize(
    ("name", "namespace"),
    [
        pytest.param("nobody", "", id="cluster-queue"),
        pytest.param("nobody", "a", id="local-queue"),
        pytest.param("main", "c", id="local-queue-of-another-namespace"),
        pytest.param("a/main", "", id="a-key-is-no-name"),
    ],
)
async def test_unknown_queues_are_not_found(hall: Hall, name: str, namespace: str) -> None:
    """A queue that nobody made is told from one that is empty."""
    with pytest.raises(NotFoundError, match=name):
        await hall.ask(name, namespace)


async def test_without_its_cluster_queue_nobody_waits(hall: Hall) -> None:
    """A LocalQueue that leads nowhere answers an empty list."""
    hall.wait("c/one", queue="lost")

    assert await hall.ask("lost", "c") == []


async def test_who_was_deleted_while_the_answer_is_written_is_left_out(hall: Hall) -> None:
    """Items are looked up one by one; the places of the others stay."""
    asked = AuthorizedQuestion(namespace="", name="team", params={}, reads=never)
    found = await hall.view.of_cluster_queue(asked)
    hall.workloads.remove("b/boosted")

    assert places(list(found["items"])) == [ORDER[0], *ORDER[2:]]


async def test_many_who_ask_at_once_cost_one_look(hall: Hall) -> None:
    """A long line is put in order once for all who ask within a moment, and anew after it."""
    for number in range(1500):
        hall.wait(f"a/many-{number:04}")
    looks = 0
    whole = hall.queues.waiting

    def counted(name: str) -> list[Pending]:
        nonlocal looks
        looks += 1
        return whole(name)

    hall.queues.waiting = counted  # type: ignore[method-assign]
    await asyncio.gather(*(hall.ask("team") for _ in range(20)))
    await hall.ask("main", "a")
    assert looks == 1

    await hall.clock.advance(1.1)
    await hall.ask("team")
    assert looks == 2


async def test_one_who_goes_away_does_not_take_the_answer_from_the_others(hall: Hall) -> None:
    """The look that is shared goes on when who began it is cut off."""
    for number in range(1500):
        hall.wait(f"a/many-{number:04}")
    first = asyncio.create_task(hall.ask("team"))
    second = asyncio.create_task(hall.ask("team"))
    await asyncio.sleep(0)
    first.cancel()

    assert len(await second) == 1000


async def test_a_queue_that_goes_during_the_look_is_empty(hall: Hall) -> None:
    """Nothing is read of a ClusterQueue that is gone."""
    for number in range(1500):
        hall.wait(f"a/many-{number:04}")
    asked = asyncio.create_task(hall.ask("team"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    hall.queues.remove_cluster_queue("team")

    assert await asked == []
