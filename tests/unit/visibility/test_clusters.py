"""What a manager's explanation tells of other clusters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from kqueue.api.wire import kueue as wire
from kqueue.cli.explain_page import page
from kqueue.jobs.multikueue.answers import ClusterAnswer, Start, unknown
from kqueue.runtime.store import Store
from kqueue.visibility.clusters import ClusterExplainer
from kqueue.visibility.question import JSON, AuthorizedQuestion
from tests.unit.controllers.builders import make_workload, read

OWN: JSON = {
    "metadata": {"namespace": "ns", "name": "a"},
    "state": "Reserved",
    "summary": "It has quota",
    "asOf": {"time": "2026-01-01T00:00:00Z", "generation": 1, "nodesGeneration": 1, "leading": True},
}
ANSWERS = {
    "east": unknown("no answer within 2 s"),
    "north": ClusterAnswer(start=Start.NEVER, message="no rack has 9 nodes"),
    "south": ClusterAnswer(
        start=Start.AFTER_PREEMPTION, preempts=4, preempted=("ns/b", "secret/c"), ahead=2, message="m"
    ),
    "west": ClusterAnswer(start=Start.NOW, level="rack", domains=2, fewest=1, room=3, borrows=True, message="fits"),
    "mid": ClusterAnswer(start=Start.LATER, message="5 cpu asked", at=datetime(2026, 1, 1, 0, 5, tzinfo=UTC)),
    "far": ClusterAnswer(start=Start.LATER, message="6 cpu asked"),
}


async def explained(found: Mapping[str, ClusterAnswer] | None) -> JSON:
    """The explanation of a Workload about which clusters say this; None: this replica sends nothing away."""
    workloads: Store[wire.Workload] = Store("workloads")
    workloads.put("ns/a", read(wire.Workload, make_workload(status={"nominatedClusterNames": ["west"]})))

    async def own(asked: AuthorizedQuestion) -> JSON:
        assert (asked.namespace, asked.name) == ("ns", "a")
        return dict(OWN)

    async def ask(workload: wire.Workload) -> Mapping[str, ClusterAnswer]:
        assert workload.metadata.name == "a"
        return found or {}

    async def reads(namespace: str) -> bool:
        return namespace == "ns"

    explainer = ClusterExplainer(own, workloads, lambda: ask if found is not None else None)
    return await explainer.view(AuthorizedQuestion(namespace="ns", name="a", params={}, reads=reads))


async def test_every_cluster_is_told_the_best_one_first() -> None:
    shown = (await explained(ANSWERS))["clusters"]
    assert [(one["cluster"], one["start"], one["sent"]) for one in shown] == [
        ("west", "Now", True),
        ("south", "AfterPreemption", False),
        ("east", "Unknown", False),
        ("mid", "Later", False),
        ("far", "Later", False),
        ("north", "Never", False),
    ]
    assert shown[0] | {"message": ""} == {
        "cluster": "west",
        "start": "Now",
        "message": "",
        "sent": True,
        "borrows": True,
        "room": 3,
        "level": "rack",
        "domains": 2,
        "fewestDomains": 1,
    }
    assert shown[1]["preempted"] == ["ns/b", "a workload of another namespace"]


@pytest.mark.parametrize("found", [None, {}])
async def test_a_workload_that_waits_for_no_cluster_is_explained_as_before(found: Any) -> None:
    assert await explained(found) == OWN


async def test_the_page_says_it_in_words() -> None:
    lines = [line.text for line in page(await explained(ANSWERS))]
    start = lines.index("Other clusters") + 1
    assert lines[start : start + 6] == [
        "west (has a copy): it would start now, in 2 of rack (1 at best), with borrowed quota",
        "south: it would start after the preemption of ns/b, a workload of another namespace and 2 more, "
        "after 2 ahead of it",
        "east: unknown when it would start: no answer within 2 s",
        "mid: it would start from 2026-01-01T00:05:00Z on: 5 cpu asked",
        "far: it would start later, at an unknown time: 6 cpu asked",
        "north: it can never start: no rack has 9 nodes",
    ]
