"""Quota as users of one namespace see it: figures of cache and queues, and nothing of other namespaces but sums."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.core.quota import FlavorResource
from kqueue.errors import ConfigError, NotFoundError
from kqueue.runtime.store import Store
from kqueue.visibility.pending import PendingWorkloads
from kqueue.visibility.question import JSON
from kqueue.visibility.queue_quotas import QueueQuotas
from tests.unit.visibility.worlds import GPU, Place, asked, local_queue, read

OWN, FOREIGN = "mine/main", "secret/hidden"


def company(**settings: Any) -> tuple[Place, QueueQuotas]:
    """`team` and `other` have 16 GPUs each and lend to each other; `mine` and `secret` use `team`."""
    place = Place(gpus=16, cohortName="company")
    place.add_queue("other", gpus=16, cohortName="company")
    objects = [local_queue(OWN, "team"), local_queue(FOREIGN, "team"), local_queue("mine/lost", "gone")]
    store = Store[wire.LocalQueue]()
    for obj in objects:
        key = f"{obj.metadata.namespace}/{obj.metadata.name}"
        store.put(key, obj)
        place.queues.set_local_queue(key, obj.spec.cluster_queue or "")
    pending = PendingWorkloads(
        queues=place.queues, workloads=Store[wire.Workload](), local_queues=store, clock=place.clock
    )
    view = QueueQuotas(
        cache=place.cache,
        queues=place.queues,
        pending=pending,
        local_queues=store.values,
        clock=place.clock,
        **settings,
    )
    return place, view


async def answer(view: QueueQuotas, *, reads: Callable[[str], bool] = lambda ns: ns == "mine", **params: Any) -> JSON:
    return await view.view(replace(asked(reads=reads, **params), namespace="mine"))


async def main_queue(view: QueueQuotas, **settings: Any) -> JSON:
    return next(item for item in (await answer(view, **settings))["items"] if item["metadata"]["name"] == "main")


async def test_use_of_the_local_queue_stands_beside_sums_of_its_cluster_queue() -> None:
    """The LocalQueue holds 8 of 24 GPUs, 8 of which are borrowed, and 8 more may be borrowed."""
    place, view = company()
    place.hold("a", "b0-r0-h0", namespace="mine")
    place.hold("b", "b0-r0-h1", "b0-r1-h0", namespace="secret", admitted=False)

    main = await main_queue(view)

    assert (main["clusterQueue"], main["reserving"], main["admitted"]) == ("team", 1, 1)
    assert main["resources"] == [
        {
            "flavor": "gpu",
            "resource": GPU,
            "nominal": "16",
            "reserved": "8",
            "used": "8",
            "clusterQueueReserved": "24",
            "borrowed": "8",
            "borrowable": "8",
            "available": "8",
        }
    ]


@pytest.mark.parametrize(
    ("held", "borrowable", "available"),
    [
        pytest.param({}, "16", "32", id="an empty cohort lends its free quota"),
        pytest.param({"other": 2}, "0", "16", id="a sibling that uses its quota lends nothing"),
        pytest.param({"other": 3}, "0", "8", id="a sibling that borrows takes quota of the queue"),
        pytest.param({"other": 1, "team": 1}, "8", "16", id="free quota of the queue itself is not borrowed"),
    ],
)
async def test_what_may_be_borrowed_is_what_exceeds_the_own_free_quota(
    held: dict[str, int], borrowable: str, available: str
) -> None:
    place, view = company()
    for queue, pods in held.items():
        for number in range(pods):
            place.hold(f"{queue}-{number}", queue=queue, namespace="secret")

    (column,) = (await main_queue(view))["resources"]

    assert (column["borrowable"], column["available"]) == (borrowable, available)


async def test_own_workloads_have_positions_and_others_are_counted() -> None:
    """The older workload of the other namespace is first in the ClusterQueue."""
    place, view = company()
    place.wait("secret/payroll", local_queue=FOREIGN, since=90)
    place.wait("mine/b", local_queue=OWN, since=10)
    place.wait("mine/a", local_queue=OWN, since=20)

    main = await main_queue(view)

    assert (main["pending"], main["clusterQueuePending"]) == (2, 3)
    assert main["waiting"] == [
        {"name": "a", "position": 1, "positionInClusterQueue": 2, "priority": 0},
        {"name": "b", "position": 2, "positionInClusterQueue": 3, "priority": 0},
    ]


async def test_nothing_of_other_namespaces_is_named() -> None:
    place, view = company(fair_sharing=True)
    place.hold("payroll", "b0-r0-h0", namespace="secret")
    place.wait("secret/bonus", local_queue=FOREIGN, since=90)

    text = json.dumps(await answer(view, reads=lambda _: True))

    assert "main" in text
    assert not [word for word in ("secret", "hidden", "payroll", "bonus", "other", "company") if word in text]


async def test_names_of_workloads_need_the_right_to_read_workloads() -> None:
    place, view = company()
    place.wait("mine/a", local_queue=OWN, since=20)

    main = await main_queue(view, reads=lambda _: False)

    assert main["pending"] == 1
    assert "waiting" not in main


async def test_a_limit_bounds_the_waiting_workloads_of_a_queue() -> None:
    place, view = company()
    for number in range(30):
        place.wait(f"mine/w{number:02}", local_queue=OWN, since=100 - number)

    assert [len((await main_queue(view, **params))["waiting"]) for params in ({}, {"limit": "2"})] == [20, 2]


async def test_a_share_is_shown_where_shares_decide() -> None:
    place, view = company(fair_sharing=True)
    place.hold("a", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0", namespace="mine")

    assert (await main_queue(view))["weightedShare"] == 250  # 8 of the cohort's 32 GPUs are borrowed
    assert "weightedShare" not in await main_queue(company()[1])


async def test_a_missing_cluster_queue_has_no_resources() -> None:
    _, view = company()
    (lost,) = (await answer(view, localQueue="lost"))["items"]
    assert (lost["clusterQueue"], lost["resources"], lost["waiting"]) == ("gone", [], [])


async def test_the_condition_says_why_a_queue_admits_nothing() -> None:
    place, _ = company()
    conditions = [{"type": "Active", "status": "False", "reason": "Stopped", "message": "LocalQueue is stopped"}]
    obj = read(
        wire.LocalQueue,
        metadata={"name": "main", "namespace": "mine"},
        spec={"clusterQueue": "team", "stopPolicy": "Hold"},
        status={"conditions": conditions},
    )
    pending = PendingWorkloads(
        queues=place.queues,
        workloads=Store[wire.Workload](),
        local_queues=Store[wire.LocalQueue](),
        clock=place.clock,
    )
    view = QueueQuotas(
        cache=place.cache, queues=place.queues, pending=pending, local_queues=lambda: [obj], clock=place.clock
    )

    main = await main_queue(view)

    assert (main["active"], main["reason"], main["message"]) == (False, "Stopped", "LocalQueue is stopped")
    assert main["stopPolicy"] == "Hold"


@pytest.mark.parametrize(
    ("params", "error"),
    [
        pytest.param({"localQueue": "hidden"}, NotFoundError, id="a queue of another namespace does not exist here"),
        pytest.param({"limit": "0"}, ConfigError, id="a limit below one is refused"),
        pytest.param({"namespace": "secret"}, ConfigError, id="the namespace stands in the path alone"),
    ],
)
async def test_wrong_questions_are_refused(params: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        await answer(company()[1], **params)


async def test_budgets_are_shown_with_what_is_left() -> None:
    """A follower measures no use, so it shows none."""
    place, view = company()
    assert "budgets" not in await main_queue(view)
    queue = place.cache.quota.queue_object("team")
    assert queue is not None
    notes = {"kqueue.dev/budgets": "cpu=10h/day"}
    with_budget = msgspec.structs.replace(queue, metadata=msgspec.structs.replace(queue.metadata, annotations=notes))
    budgets = place.cache.budgets
    budgets.on_cluster_queue("team", with_budget)
    budgets.begin(clock := FakeClock(), [with_budget], [])
    budgets.follow("team", "mine/main", {FlavorResource("gpu", "cpu"): 2000})
    await clock.advance(3 * 3600 + 1)

    (shown,) = (await main_queue(view))["budgets"]

    assert shown == {
        "of": "mine",
        "resource": "cpu",
        "period": "day",
        "hours": "10",
        "leftHours": "3.99",
        "renewsAt": "2026-01-02T00:00:00Z",
        "message": "3.99 of 10 h of cpu are left until 2026-01-02T00:00:00Z",
    }
