"""Queues at a glance: figures are those of cache and queues, and nobody is told of namespaces that are not theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.errors import ConfigError
from kqueue.jobs.gang.stage import GangStage
from kqueue.visibility.queue_summaries import GangStages, QueueSummaries
from tests.unit.visibility.worlds import GPU, Place, asked, local_queue, read

LOCAL_QUEUES = [local_queue("a/main", "team"), local_queue("b/main", "other"), local_queue("b/spare", "team")]


def summaries(place: Place, **settings: Any) -> QueueSummaries:
    return QueueSummaries(
        cache=place.cache, queues=place.queues, local_queues=lambda: LOCAL_QUEUES, clock=place.clock, **settings
    )


def company() -> Place:
    """`team` and `other` of 16 GPUs each lend to each other in cohort `company`, which is part of `group`."""
    place = Place(gpus=16, cohortName="company")
    place.add_queue("other", gpus=16, cohortName="company")
    cohort = {"parentName": "group"}
    place.cache.quota.on_cohort("company", read(wire.Cohort, metadata={"name": "company"}, spec=cohort))
    return place


async def test_a_queue_tells_quota_use_and_what_it_has_borrowed() -> None:
    place = company()
    place.hold("a", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0")
    place.hold("b", "b1-r0-h0", queue="other", admitted=False)

    answer = await summaries(place).view(asked())

    other, team = answer["items"]
    assert (team["metadata"]["name"], team["cohort"], team["path"]) == ("team", "company", "/group/company/team")
    assert (team["active"], team["reserving"], team["admitted"]) == (True, 1, 1)
    assert (other["reserving"], other["admitted"]) == (1, 0)
    assert team["resources"] == [
        {
            "flavor": "gpu",
            "resource": GPU,
            "nominal": "16",
            "reserved": "24",
            "used": "24",
            "borrowed": "8",
            "available": "0",
        }
    ]
    assert (other["resources"][0]["reserved"], other["resources"][0]["used"]) == ("8", "0")


async def test_gangs_count_at_the_queue_that_admits_them_or_will() -> None:
    """By stage; gangs of LocalQueues that lead nowhere count nowhere."""

    async def gangs() -> GangStages:
        return {
            ("a/main", "", GangStage.GATHERING): 2,
            ("b/spare", "", GangStage.WAITING): 1,
            ("a/main", "other", GangStage.RUNNING): 3,
            ("a/main", "team", GangStage.FINISHED): 5,
            ("a/gone", "", GangStage.WAITING): 7,
        }

    other, team = (await summaries(company(), gangs=gangs).view(asked()))["items"]
    nothing = {"gathering": 0, "waiting": 0, "starting": 0, "running": 0, "failed": 0}
    assert team["gangs"] == nothing | {"gathering": 2, "waiting": 1}
    assert other["gangs"] == nothing | {"running": 3}


async def test_cohorts_tell_what_all_below_them_have_and_use_parents_first() -> None:
    place = company()
    place.hold("a", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0")

    cohorts = (await summaries(place).view(asked()))["cohorts"]

    assert [(c["name"], c["parent"], c["clusterQueues"]) for c in cohorts] == [
        ("group", "", 2),
        ("company", "group", 2),
    ]
    assert cohorts[0]["resources"] == [
        {"flavor": "gpu", "resource": GPU, "nominal": "0", "quota": "32", "reserved": "24"}
    ]


async def test_who_waits_longest_is_told() -> None:
    place = Place()
    place.wait("a/young", local_queue="a/main", since=5)
    place.wait("a/old", local_queue="a/main", since=65)
    for key in ("a/main", "b/main"):
        place.queues.set_local_queue(key, "team")

    (team,) = (await summaries(place).view(asked()))["items"]

    assert team["pending"] == {"active": 2, "inadmissible": 0}
    assert (team["longestWaitSeconds"], team["longestWaiting"]) == (65, "a/old")


async def test_a_queue_that_admits_nothing_says_why() -> None:
    """All who wait there are inadmissible, as its gauge says."""
    place = Place(stopPolicy="Hold")
    place.queues.set_local_queue("a/main", "team")
    place.wait("a/w", local_queue="a/main", since=1)

    (team,) = (await summaries(place).view(asked()))["items"]

    assert (team["active"], team["stopPolicy"], team["reason"]) == (False, "Hold", "Stopped")
    assert team["message"] == "its stopPolicy is Hold"
    assert team["pending"] == {"active": 0, "inadmissible": 1}


@pytest.mark.parametrize(
    ("reads", "params", "local_queues", "named"),
    [
        pytest.param(lambda _: True, {}, ["a/main", "b/main", "b/spare"], True, id="all namespaces"),
        pytest.param(lambda _: True, {"namespace": "b"}, ["b/main", "b/spare"], True, id="one of all"),
        pytest.param(lambda _: True, {"clusterQueue": "other"}, ["b/main"], True, id="those of one queue"),
        pytest.param(lambda ns: ns == "b", {"namespace": "b"}, ["b/main", "b/spare"], False, id="the one that may be read"),
        pytest.param(lambda ns: ns == "b", {"namespace": "a"}, [], False, id="one that may not be read"),
        pytest.param(lambda ns: ns == "b", {}, [], False, id="not all, and none was named"),
    ],
)  # fmt: skip
async def test_local_queues_and_names_are_shown_to_those_who_may_read_them(
    reads: Callable[[str], bool], params: dict[str, Any], local_queues: list[str], named: bool
) -> None:
    place = company()
    place.queues.set_local_queue("b/main", "other")
    place.wait("b/w", local_queue="b/main", since=1)

    answer = await summaries(place).view(asked(reads=reads, **params))

    assert [f"{q['namespace']}/{q['name']}" for q in answer["localQueues"]] == local_queues
    other = next(item for item in answer["items"] if item["metadata"]["name"] == "other")
    assert ("longestWaiting" in other) == named


async def test_the_share_is_told_where_it_decides() -> None:
    place = company()
    place.hold("a", "b0-r0-h0", "b0-r0-h1", "b0-r1-h0")

    assert "weightedShare" not in (await summaries(place).view(asked()))["items"][1]
    assert (await summaries(place, fair_sharing=True).view(asked()))["items"][1]["weightedShare"] == 250


async def test_an_answer_is_bounded_and_says_what_was_left() -> None:
    answer = await summaries(company()).view(asked(limit="1"))
    assert ([item["metadata"]["name"] for item in answer["items"]], answer["left"]) == (["other"], 1)


@pytest.mark.parametrize("params", [{"limit": "x"}, {"limit": "-1"}, {"limit": "٣"}, {"queue": "team"}])
async def test_parameters_that_cannot_be_read_are_refused(params: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await summaries(Place()).view(asked(**params))


async def test_what_any_client_sends_is_no_mistake() -> None:
    """kubectl asks for pages, and says that it does not watch."""
    answer = await summaries(Place()).view(asked(limit="500", watch="false", timeoutSeconds="30"))
    assert [item["metadata"]["name"] for item in answer["items"]] == ["team"]
