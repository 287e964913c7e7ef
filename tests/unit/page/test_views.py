"""Rows of workloads from objects of any form, and what the views ask of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from kqueue.clock import FakeClock
from kqueue.errors import ForbiddenError
from kqueue.page.views import ClusterViews, workload_row
from kqueue.runtime.client import Client
from tests.browser.answers import queues, topology_list, topology_map

JSON = dict[str, Any]


def condition(kind: str, status: str = "True", message: str = "") -> JSON:
    return {"type": kind, "status": status, "message": message, "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("conditions", "active", "state"),
    [
        ([], True, "Pending"),
        ([], False, "Stopped"),
        ([condition("QuotaReserved", "False")], True, "Pending"),
        ([condition("QuotaReserved")], True, "Reserved"),
        ([condition("QuotaReserved"), condition("Admitted")], True, "Admitted"),
        ([condition("QuotaReserved"), condition("Admitted"), condition("PodsReady")], True, "Running"),
        ([condition("QuotaReserved", "False"), condition("PodsReady")], True, "Pending"),
        ([condition("Admitted"), condition("PodsReady"), condition("Finished")], True, "Finished"),
    ],
)
def test_the_state_is_the_furthest_condition(conditions: list[JSON], active: bool, state: str) -> None:
    """Pods that were ready before an eviction do not make a waiting workload a running one."""
    assert workload_row({"spec": {"active": active}, "status": {"conditions": conditions}})["state"] == state


def test_a_row_has_what_a_person_looks_for() -> None:
    """Its owner, its queues, its pods, and why it waits."""
    row = workload_row(
        {
            "metadata": {
                "namespace": "ns",
                "name": "job-a-1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"kind": "Job", "name": "a"}],
            },
            "spec": {"queueName": "main", "priority": 7, "podSets": [{"count": 2}, {}]},
            "status": {"conditions": [condition("QuotaReserved", "False", "no room")]},
        }
    )

    assert row == {
        "namespace": "ns",
        "name": "job-a-1",
        "owner": "Job/a",
        "queue": "main",
        "clusterQueue": "",
        "priority": 7,
        "pods": 3,
        "created": "2026-01-01T00:00:00Z",
        "state": "Pending",
        "since": "2026-01-01T00:00:00Z",
        "message": "no room",
    }


@pytest.mark.parametrize(
    "obj",
    [
        {},
        {"metadata": None, "spec": None, "status": None},
        {"spec": {"podSets": [None, {"count": "many"}]}, "metadata": {"ownerReferences": [{"kind": "Job"}]}},
        {"status": {"admission": []}},
    ],
)
def test_odd_objects_are_rows_too(obj: JSON) -> None:
    """One object of another version of ourselves does not empty the table."""
    assert workload_row(obj)["state"] == "Pending"


class Cluster:
    """An API server that remembers questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forbidden = ""
        """Requests that begin with it are refused."""

    def _take(self, question: str) -> None:
        self.asked.append(question)
        if self.forbidden and question.startswith(self.forbidden):
            raise ForbiddenError(f'{question} is forbidden: User "ann" cannot do it', status=403, reason="Forbidden")

    async def get_path(self, path: str, params: Mapping[str, str] | None = None, **_: Any) -> JSON:
        """Return an answer of the visibility API."""
        self._take(view := path.split("/v1alpha1/")[1])
        return {"queuesummaries": queues(), "topologysummaries": topology_list("dc")}.get(view, topology_map())

    async def get_json(self, resource: Any, name: str, namespace: str) -> JSON:
        """Return an object."""
        self._take(f"{resource.plural} {namespace}/{name}")
        return {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}

    async def list_json(self, resource: Any, namespace: str, *, field_selector: str) -> list[JSON]:
        """Return one event."""
        self._take(f"{resource.plural} {namespace} {field_selector}")
        return [{"reason": "Pending", "eventTime": "2026-01-01T00:00:01.000000Z"}]

    async def create(self, resource: Any, body: JSON, namespace: str | None) -> JSON:
        """Answer a question with its spec."""
        self._take(f"create {resource.plural} {namespace}")
        return {"was": body["spec"]}


def views_of(cluster: Cluster, clock: FakeClock) -> ClusterViews:
    return ClusterViews(
        cast("Client", cluster), lambda _: (), what_if_lines=lambda found: [(str(found), 0, "")], clock=clock
    )


async def test_trends_read_queues_each_time_and_maps_once_a_minute() -> None:
    """A map of 20,000 hosts is the costliest answer."""
    cluster, clock = Cluster(), FakeClock()
    views = views_of(cluster, clock)

    for _ in range(7):
        found = await views.one("trends")
        await clock.advance(10)

    assert [cluster.asked.count(view) for view in ("queuesummaries", "topologymaps/dc")] == [7, 2]
    assert len(found["time"]) == 7
    (broken,) = (one["values"] for one in found["series"] if one["of"] == "fragmentation")
    assert [value is not None for value in broken] == [True, *[False] * 5, True]


async def test_a_life_without_the_right_to_events_says_so() -> None:
    """The conditions are shown all the same."""
    cluster = Cluster()
    views = views_of(cluster, FakeClock())
    assert [one["what"] for one in (await views.life("ns", "a"))["moments"]] == ["Created", "Pending"]
    assert cluster.asked == [
        "workloads ns/a",
        "events ns involvedObject.kind=Workload,involvedObject.name=a",
    ]
    cluster.forbidden = "events"

    found = await views.life("ns", "a")

    assert [one["what"] for one in found["moments"]] == ["Created"]
    assert "events are not shown: events ns" in found["problem"]


async def test_a_what_if_is_asked_with_the_rights_of_the_user() -> None:
    """A refusal names the role."""
    cluster = Cluster()
    views = views_of(cluster, FakeClock())
    spec = {"drains": ["b0"]}
    assert (await views.what_if(spec))["lines"] == [(str({"was": spec}), 0, "")]
    cluster.forbidden = "create whatifs"

    with pytest.raises(ForbiddenError, match="kubectl create clusterrolebinding kqueue-whatifs-ann"):
        await views.what_if(spec)
