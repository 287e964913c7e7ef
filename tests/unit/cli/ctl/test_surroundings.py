"""What a list of Workloads asks for beside them, and what it says when it gets no answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from kqueue.cli.ctl.workloads import Surroundings, read_surroundings
from kqueue.errors import ForbiddenError, KqueueError, NotFoundError, ServerError
from kqueue.runtime.client import Client

Object = dict[str, Any]


class Answers:
    """A client that answers what it is told to: LocalQueues `a` and `b`, and positions in them."""

    def __init__(self, *, queues: KqueueError | None = None, positions: dict[str, Any] | None = None) -> None:
        self._queues, self._positions = queues, positions or {}
        self.asked: list[str] = []
        self.starts: Object = {"items": []}

    async def list_json(self, *_: object, **__: object) -> list[Object]:
        self.asked.append("localqueues")
        if self._queues is not None:
            raise self._queues
        return [{"metadata": {"name": n, "namespace": "ns"}, "spec": {"clusterQueue": f"cq-{n}"}} for n in "ab"]

    async def get_path(self, path: str, *_: object, **__: object) -> Object:
        parts = path.split("/")
        if parts[-1] == "starttimes":
            self.asked.append(path)
            return self.starts
        if "localqueues" not in parts:
            return {}  # the API is there
        queue = parts[parts.index("localqueues") + 1]
        self.asked.append(queue)
        found = self._positions.get(queue, [])
        if isinstance(found, KqueueError):
            raise found
        return {"items": [{"metadata": {"name": name}, "positionInLocalQueue": n} for n, name in enumerate(found)]}

    async def get_json(self, *_: object, **__: object) -> Object:
        return {}


def workload(name: str, queue: str, *, admitted: bool = False) -> Object:
    """A Workload that waits, or not."""
    made: Object = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"queueName": queue}, "status": {}}
    if admitted:
        made["status"] = {
            "admission": {"clusterQueue": "cq"},
            "conditions": [{"type": "QuotaReserved", "status": "True"}, {"type": "Admitted", "status": "True"}],
        }
    return made


async def read(
    client: Answers, *workloads: Object, namespace: str | None = "ns", starts_at: datetime | None = None
) -> Surroundings:
    return await read_surroundings(cast("Client", client), workloads, namespace, starts_at=starts_at)


async def test_only_queues_in_which_somebody_waits_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Once each."""
    client = Answers(positions={"a": ["x", "y"]})
    found = await read(client, workload("x", "a"), workload("y", "a"), workload("z", "b", admitted=True))
    assert found.positions == {("ns", "x"): 1, ("ns", "y"): 2}
    assert found.cluster_queues == {("ns", "a"): "cq-a", ("ns", "b"): "cq-b"}
    assert client.asked == ["localqueues", "a"]
    assert capsys.readouterr().err == ""


async def test_start_times_are_asked_for_wide_lists(capsys: pytest.CaptureFixture[str]) -> None:
    """Once for the namespace; a message takes their place when there are none."""
    client, now = Answers(positions={"a": ["x"]}), datetime(2026, 5, 1, 12, tzinfo=UTC)
    start = {"p50": "2026-05-01T12:05:00Z", "p90": "2026-05-01T12:20:00Z"}
    client.starts = {"items": [{"metadata": {"namespace": "ns", "name": "x"}, "startTime": start}]}
    waits = workload("x", "a")
    found = await read(client, waits, starts_at=now)
    assert found.wide_row(waits)[-1] == "in 5m to 20m"
    assert client.asked[-2:] == ["/apis/visibility.kqueue.dev/v1alpha1/namespaces/ns/starttimes", "a"]
    client.starts = {"items": [], "message": "start times are being computed"}
    found = await read(client, waits, namespace=None, starts_at=now)
    assert found.wide_row(waits)[-1] == ""
    assert capsys.readouterr().err == "kqueue: start times are not shown: start times are being computed\n"


async def test_nothing_is_asked_where_nobody_waits() -> None:
    """All that is to be told stands in the Workloads."""
    client = Answers()
    await read(client, workload("z", "b", admitted=True))
    assert client.asked == []


async def test_a_queue_that_does_not_exist_has_no_places(capsys: pytest.CaptureFixture[str]) -> None:
    """Others have, and nothing is noted."""
    client = Answers(positions={"a": NotFoundError("no such queue", status=404), "b": ["y"]})
    assert (await read(client, workload("x", "a"), workload("y", "b"))).positions == {("ns", "y"): 1}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("client", "note"),
    [
        pytest.param(Answers(positions={"a": ForbiddenError("not\x1b you", status=403)}),
                     "kqueue: positions in queues are not shown: not\\x1b you", id="positions-are-forbidden"),
        pytest.param(Answers(positions={"a": ServerError("away", status=503)}),
                     "kqueue: positions in queues are not shown: ", id="the-controller-is-away"),
        pytest.param(Answers(queues=ForbiddenError("no", status=403)),
                     "kqueue: ClusterQueues of pending workloads are not shown: no", id="localqueues-are-forbidden"),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_noted_once(
    client: Answers, note: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr, with the reason; the list is printed all the same."""
    found = await read(client, workload("x", "a"), workload("y", "a"))
    assert found.positions == {}
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(note)
