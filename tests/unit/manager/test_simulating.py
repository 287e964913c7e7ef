"""A simulation says of manifests what becomes of their objects when these are created."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import pytest

from kqueue.errors import ConfigError, ForbiddenError, TooManyRequestsError
from kqueue.visibility.question import JSON
from tests.unit.controllers.builders import reserved
from tests.unit.manager.simulated import Simulated, job, results, simulated


@pytest.fixture
async def asked() -> AsyncIterator[Simulated]:
    async with simulated() as found:
        yield found


async def test_a_job_that_fits_starts_now(asked: Simulated) -> None:
    """The answer names queue, pods and flavors; the question changes nothing."""
    before = asked.operator.cache.generation
    answer = await asked.ask(job(pods=2, cpus=3))

    (one,) = answer["workloads"]
    assert (answer["startsNow"], answer["summary"]) == (True, "1 workload: 1 would start now")
    assert (one["object"], one["localQueue"], one["clusterQueue"], one["pods"]) == ("Job train", "main", "team", 2)
    assert one["results"][0]["podSets"] == [{"name": "main", "count": 2, "flavors": {"cpu": "default"}}]
    assert asked.operator.cache.generation == before
    assert asked.asked == [("batch", "v1", "jobs")]


async def test_copies_start_until_the_room_is_used(asked: Simulated) -> None:
    """Three copies of three cpus fit into ten; the copies behind them wait with blockers and the cheapest changes."""
    answer = await asked.ask(job(cpus=3), copies=5)

    (first, rest) = answer["workloads"][0]["results"]
    assert results(answer) == [[("Now", 3), ("Later", 2)]]
    assert answer["startsNow"] is False
    assert first["then"]["flavors"] == {"main": ["default"]}
    assert rest["blockers"][0]["kind"] == "Quota"
    assert "MoreQuota" in {change["change"]["kind"] for change in rest["wouldStartIf"]}


async def test_workloads_are_planned_one_after_the_other(asked: Simulated) -> None:
    """The workload with the higher priority is first, although its manifest is the second in the file."""
    asked.put_priority("high", 10)
    answer = await asked.ask(job("low", cpus=6), job("high", cpus=6, priority="high"))
    assert results(answer) == [[("Later", 1)], [("Now", 1)]]


async def test_victims_have_names_for_those_who_may_read_them(asked: Simulated) -> None:
    asked.put_queue(preemption={"withinClusterQueue": "LowerPriority"})
    asked.put_workload("b", priority=-1, status=reserved(cpus=6))
    named = await asked.ask(job(cpus=5))
    asked.readable.clear()
    (run,) = named["workloads"][0]["results"]
    assert (run["start"], run["preempts"], run["preempted"][0]["name"]) == ("AfterPreemption", 1, "b")
    assert named["startsNow"] is True


async def test_one_that_is_too_large_never_starts(asked: Simulated) -> None:
    answer = await asked.ask(job(cpus=11))
    assert results(answer) == [[("Never", 1)]]


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(job(queue=""), "names no LocalQueue", id="no-queue"),
        pytest.param(job(queue="A b"), "metadata.labels[kueue.x-k8s.io/queue-name]", id="no-name-of-a-queue"),
        pytest.param({**job(), "metadata": {"labels": {}}}, "metadata.name", id="no-name"),
        pytest.param({**job(), "kind": "CronJob"}, "CronJob of batch/v1 is not queued here", id="no-such-kind"),
        pytest.param({**job(), "spec": []}, "has no containers; add one", id="no-spec"),
        pytest.param(job(priority="none"), "WorkloadPriorityClass none does", id="no-class"),
        pytest.param(job(cpus="much"), "cpu", id="no-amount"),
    ],
)
async def test_what_webhooks_refuse_is_refused_with_their_words(asked: Simulated, manifest: JSON, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        await asked.ask(manifest)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"spec": {"parallelism": -1}}, "spec.parallelism: must not be negative, is -1", id="a count"),
        pytest.param({"metadata": {"name": "a\x1b[2J"}}, "metadata.name: 'a\\x1b[2J' must be", id="a name"),
        pytest.param({"metadata": {"generateName": "A-"}}, "metadata.generateName: 'A-' must be", id="a prefix"),
    ],
)
async def test_what_the_api_server_refuses_is_refused(asked: Simulated, change: JSON, words: str) -> None:
    manifest = job()
    for part, fields in change.items():
        manifest[part] = {**manifest[part], **fields}
    with pytest.raises(ConfigError, match=re.escape(words)):
        await asked.ask(manifest)


async def test_a_namespace_that_does_not_exist_says_so(asked: Simulated) -> None:
    asked.operator.watches.namespaces.store.remove("ns")
    with pytest.raises(ConfigError, match="namespace ns does not exist"):
        await asked.ask(job())


async def test_all_mistakes_of_all_manifests_are_told_at_once(asked: Simulated) -> None:
    with pytest.raises(ConfigError) as refused:
        await asked.ask(job("a", queue=""), job("b", queue="B b"))
    assert "Job a" in str(refused.value)
    assert "Job b is not valid" in str(refused.value)


async def test_another_queue_takes_the_place_of_their_own(asked: Simulated) -> None:
    asked.put_queue("other", local="spare", cpus=4)
    answer = await asked.ask(job(cpus=5, queue="main"), queue="spare")
    assert answer["workloads"][0]["clusterQueue"] == "other"
    assert results(answer) == [[("Never", 1)]]


async def test_the_default_queue_is_that_of_admission(asked: Simulated) -> None:
    asked.put_queue(local="default")
    answer = await asked.ask(job(queue=""))
    assert answer["workloads"][0]["localQueue"] == "default"


async def test_a_stopped_queue_says_so(asked: Simulated) -> None:
    asked.put_queue(stopPolicy="Hold")
    (one,) = (await asked.ask(job()))["workloads"]
    assert one["heldBackBy"][0]["command"] == "kqueue resume clusterqueue team"
    assert one["results"][0]["start"] == "Later"


async def test_who_may_not_create_may_not_ask(asked: Simulated) -> None:
    """The user is refused before a manifest is looked at."""
    asked.creatable = False
    with pytest.raises(ForbiddenError, match=r"cannot create jobs\.batch"):
        await asked.ask(job(queue="B b"))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        pytest.param({"copies": 1001}, "spec.copies is 1001", id="copies"),
        pytest.param({"copies": 0}, "spec.copies is 0", id="no-copies"),
        pytest.param({"manifests": []}, "spec.manifests has 0", id="no-manifests"),
        pytest.param({"manifests": [job()] * 65}, "spec.manifests has 65", id="manifests"),
        pytest.param({"manifests": [job()] * 2, "copies": 501}, "1002 workloads", id="workloads"),
        pytest.param({"manifests": [job(pods=1001)], "copies": 1000}, "1001000 pods", id="pods"),
    ],
)
async def test_large_questions_are_refused_with_the_bound(asked: Simulated, spec: JSON, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        await asked.ask(*spec.get("manifests", [job()]), copies=spec.get("copies", 1))


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="no-text"),
        pytest.param(b'{"spec": {"manifests": [1]}}', id="no-objects"),
        pytest.param(b'{"spec": {"manifests": ' + b"[" * 10_000, id="deep"),
        pytest.param(b'{"metadata": {"namespace": "other"}, "spec": {"manifests": [{}]}}', id="other-namespace"),
    ],
)
async def test_what_cannot_be_read_is_refused(asked: Simulated, raw: bytes) -> None:
    with pytest.raises(ConfigError):
        await asked.ask(raw=raw)


async def test_a_user_has_one_question_at_a_time(asked: Simulated) -> None:
    """Other users' questions are answered meanwhile, and so is the user's next question."""
    asked.answers.clear()
    first = asyncio.create_task(asked.ask(job()))
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequestsError, match="ask one at a time"):
        await asked.ask(job())
    asked.answers.set()
    assert (await asked.ask(job(), user="bob"))["startsNow"]
    assert (await first)["startsNow"]
    assert (await asked.ask(job()))["startsNow"]
