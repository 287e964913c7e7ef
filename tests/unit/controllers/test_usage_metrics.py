"""Readers of measured use: what they ask, what becomes of each sample, and what happens when the API fails."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import structlog

from kqueue import model
from kqueue.api.wire import core as wire_core
from kqueue.api.wire import kueue as wire
from kqueue.clock import FakeClock
from kqueue.controllers.usage_metrics import KnownObjects, UsageMetrics, UseSettings, amount_of
from kqueue.core.joint.registry import PolicySpec
from kqueue.core.joint.statistics import MOST, MeasuredKind, measured_kind
from kqueue.errors import ForbiddenError, NotFoundError, ServerError
from kqueue.runtime.client import Client
from kqueue.runtime.deadline import cancel_and_wait
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.state.statistics import StatisticsStore
from tests.unit.controllers.builders import make_cluster_queue, read

GROUP = "/apis/metrics.k8s.io"
NODES, PODS = f"{GROUP}/v1beta1/nodes", f"{GROUP}/v1beta1/pods"
BANDWIDTH = "/apis/custom.metrics.k8s.io/v1beta1/nodes/%2A/bytes_in_use"
SELECTOR = {"labelSelector": "kueue.x-k8s.io/podset"}
INTERVAL = 15.0
UTILISATION = (PolicySpec(name="utilisation"),)
ALICE = measured_kind("team", {"cpu": 1_000, "memory": 1 << 30})


def versions(*names: str) -> bytes:
    return json.dumps({"kind": "APIGroup", "versions": [{"version": name} for name in names]}).encode()


def listed(*items: Any) -> bytes:
    return json.dumps({"kind": "List", "metadata": {}, "items": items}, separators=(",", ":")).encode()


def node_use(name: str, cpu: Any = "2", memory: Any = "1Ki") -> Any:
    usage = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    return {"metadata": {"name": name}, "usage": usage}


def pod_use(key: str, *containers: tuple[Any, Any]) -> Any:
    namespace, _, name = key.partition("/")
    usages = [{"name": "c", "usage": {"cpu": cpu, "memory": memory}} for cpu, memory in containers or [("1", "1Ki")]]
    return {"metadata": {"name": name, "namespace": namespace}, "containers": usages}


class Api(Client):
    """Answers by path: bytes, an error, or nothing for ever."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, str], Lane]] = []
        self.answers: dict[str, bytes | Exception | None] = {
            GROUP: versions("v1beta1"),
            "/apis/custom.metrics.k8s.io": versions("v1beta1"),
            NODES: listed(),
            PODS: listed(),
        }

    async def get_bytes(
        self, path: str, params: Mapping[str, str] | None = None, *, resource: ResourceType, lane: Lane = Lane.JOBS
    ) -> bytes:
        self.asked.append((path, params or {}, lane))
        answer = self.answers.get(path, NotFoundError(f"get {path}: not found", status=404))
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return answer

    def times(self, path: str) -> int:
        return [asked for asked, *_ in self.asked].count(path)


class Counts:
    """Counts by kind."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.bad: list[str] = []
        self.failed: list[str] = []

    def unknown_use(self, kind: str) -> None:
        self.unknown.append(kind)

    def bad_use(self, kind: str) -> None:
        self.bad.append(kind)

    def use_failed(self, kind: str) -> None:
        self.failed.append(kind)


def pod_view(key: str, *, workload: str = "alice", node: str = "a", phase: str = "Running") -> model.PodView:
    namespace, _, name = key.partition("/")
    annotations = {"kueue.x-k8s.io/workload": workload} if workload else {}
    requests = {"cpu": "1", "memory": "1Gi"}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": {"requests": requests}}]}
    meta = {"name": name, "namespace": namespace, "annotations": annotations}
    return model.pod_view(read(wire_core.Pod, {"metadata": meta, "spec": spec, "status": {"phase": phase}}))


def workload(name: str, queue: str | None = "team") -> wire.Workload:
    status: Any = {"admission": {"clusterQueue": queue, "podSetAssignments": []}} if queue else {}
    spec = {"queueName": "main", "podSets": []}
    made: wire.Workload = read(
        wire.Workload, {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": status}
    )
    return made


class Desk:
    """Both readers with an API, a store and a clock."""

    def __init__(self, specs: tuple[PolicySpec, ...] = UTILISATION, bandwidth: str = "") -> None:
        self.api, self.clock, self.count = Api(), FakeClock(), Counts()
        self.store = StatisticsStore(interval=INTERVAL, samples=10, clock=self.clock.monotonic)
        self.nodes = {"a", "b"}
        self.pods = {view.key: view for view in (pod_view("ns/p"), pod_view("ns/q"))}
        self.workloads = {"ns/alice": workload("alice")}
        self.usage = UsageMetrics(
            self.api,
            self.store,
            KnownObjects(is_node=self.nodes.__contains__, pod=self.pods.get, workload=self.workloads.get),
            settings=UseSettings(interval=INTERVAL, bandwidth_metric=bandwidth, specs=specs),
            clock=self.clock,
            count=self.count,
            chance=random.Random(1),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(run()) for run in self.usage.runs]
        try:
            await self.clock.advance(0)
            yield
        finally:
            for task in tasks:
                await cancel_and_wait(task)

    def cpu(self) -> dict[str, int]:
        """The largest usable sample of cpu of each node that has one."""
        found = self.store.statistics()
        amounts, known = found.measured("cpu", 100)
        return {n: int(a) for n, a, k in zip(found.nodes, amounts, known, strict=True) if k}

    def mean(self, kind: MeasuredKind = ALICE) -> tuple[int | None, int | None]:
        found = self.store.statistics()
        return found.mean(kind, "cpu"), found.mean(kind, "memory")


# --- what is asked


async def test_both_lists_are_read_at_each_interval_in_lanes_of_their_own() -> None:
    desk = Desk()
    desk.api.answers[NODES] = listed(node_use("a", "1500m", "2Ki"), node_use("b", "1n", "0"))
    async with desk.running():
        assert desk.cpu() == {"a": 1_500, "b": 1}
        await desk.clock.advance(INTERVAL)
    asked = [one for one in desk.api.asked if one[0] in (NODES, PODS)]
    assert sorted(asked, key=lambda one: one[0]) == [
        *[(NODES, {}, Lane.NODE_USE)] * 2,
        *[(PODS, SELECTOR, Lane.POD_USE)] * 2,
    ]
    assert desk.api.times(GROUP) == 2, "each reader looks for the version once"


async def test_the_newest_version_that_is_served_is_read() -> None:
    desk = Desk()
    desk.api.answers |= {GROUP: versions("v1beta1", "v1"), f"{GROUP}/v1/nodes": listed(node_use("a"))}
    async with desk.running():
        assert desk.cpu() == {"a": 2_000}
    assert desk.api.times(NODES) == 0


async def test_nothing_is_asked_unless_a_policy_looks_at_measured_use() -> None:
    desk = Desk(specs=(PolicySpec(name="topology"), PolicySpec(name="packing")))
    desk.api.answers[NODES] = listed(node_use("a"))
    annotated = make_cluster_queue()
    annotated["metadata"]["annotations"] = {"kqueue.dev/joint-policies": "[{name: network}]"}
    plain, named = read(wire.ClusterQueue, make_cluster_queue()), read(wire.ClusterQueue, annotated)
    async with desk.running():
        desk.usage.wanted.on_cluster_queue(None, plain)
        await desk.clock.advance(10 * INTERVAL)
        assert (desk.api.asked, desk.usage.summary()) == ([], None)
        desk.usage.wanted.on_cluster_queue(plain, named)
        await desk.clock.advance(0)
        assert desk.cpu() == {"a": 2_000}
        summary = desk.usage.summary()
        assert summary is not None
        assert (summary.nodes, summary.kinds, summary.problems) == (1, 0, ())
        desk.usage.wanted.on_cluster_queue(named, None)
        before = len(desk.api.asked)
        await desk.clock.advance(10 * INTERVAL)
        assert len(desk.api.asked) == before
        assert len(desk.store.nodes) == 0, "samples that no policy looks at are forgotten"


async def test_bandwidth_is_read_where_a_metric_is_named() -> None:
    desk = Desk(bandwidth="bytes_in_use")
    desk.api.answers |= {
        NODES: listed(node_use("a"), node_use("b")),
        BANDWIDTH: listed(
            {"describedObject": {"kind": "Node", "name": "a"}, "metricName": "bytes_in_use", "value": "6"},
            {"describedObject": {"kind": "Node", "name": "b"}, "metricName": "bytes_in_use", "value": "-6"},
            {"describedObject": {"kind": "Node", "name": "other"}, "metricName": "bytes_in_use", "value": "6"},
        ),
    }
    async with desk.running():
        found = desk.store.statistics()
    amounts, known = found.measured("kqueue.dev/bandwidth", 90)
    assert dict(zip(found.nodes, zip(amounts.tolist(), known.tolist(), strict=True), strict=True)) == {
        "a": (6, True),
        "b": (0, False),
    }
    assert desk.count.bad == ["node"]


# --- what becomes of samples


@pytest.mark.mechanism("2.25")
async def test_samples_of_pods_reach_the_kind_of_their_workload() -> None:
    desk = Desk()
    desk.api.answers[PODS] = listed(pod_use("ns/p", ("100m", "1Ki"), ("200m", "1Ki")), pod_use("ns/q", ("500m", "4Ki")))
    async with desk.running():
        assert desk.mean() == (400, 3 * 1024)
        desk.api.answers[PODS] = listed(pod_use("ns/p", ("600m", "3Ki")))
        await desk.clock.advance(INTERVAL)
        assert desk.mean() == (500, 3 * 1024), "the mean of both samples of the kind"
    assert (desk.count.unknown, desk.count.bad) == ([], [])


@pytest.mark.mechanism("2.25")
@pytest.mark.parametrize(
    "view",
    [
        pytest.param(None, id="no such pod"),
        pytest.param(pod_view("ns/p", workload=""), id="names no Workload"),
        pytest.param(pod_view("ns/p", workload="gone"), id="Workload is gone"),
        pytest.param(pod_view("ns/p", workload="waits"), id="Workload without quota"),
        pytest.param(pod_view("ns/p", node=""), id="no node runs it"),
        pytest.param(pod_view("ns/p", phase="Succeeded"), id="has ended"),
    ],
)
async def test_unknown_pods_are_dropped_and_counted(view: model.PodView | None) -> None:
    desk = Desk()
    desk.workloads["ns/waits"] = workload("waits", queue=None)
    desk.pods.pop("ns/p")
    if view is not None:
        desk.pods["ns/p"] = view
    desk.api.answers[PODS] = listed(pod_use("ns/p"))
    async with desk.running():
        assert len(desk.store.kinds) == 0
    assert desk.count.unknown == ["pod"]


@pytest.mark.mechanism("2.25")
async def test_unknown_nodes_are_dropped_and_counted_and_nodes_that_are_gone_leave() -> None:
    desk = Desk()
    desk.api.answers[NODES] = listed(node_use("a"), node_use("other"))
    async with desk.running():
        assert desk.store.nodes.names() == ("a",)
        assert desk.count.unknown == ["node"]
        desk.nodes.discard("a")
        await desk.clock.advance(INTERVAL)
        assert desk.store.nodes.names() == ()


HUGE = str(MOST + 1)


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(node_use("a", cpu="-1"), id="negative"),
        pytest.param(node_use("a", memory="-1Ki"), id="negative memory"),
        pytest.param(node_use("a", memory=HUGE), id="huge"),
        pytest.param(node_use("a", cpu="1e400"), id="absurd"),
        pytest.param(node_use("a", cpu=None), id="cpu is missing"),
        pytest.param(node_use("a", memory=None), id="memory is missing"),
        pytest.param(node_use("a", cpu="much"), id="no amount"),
        pytest.param(node_use("a", cpu=["1"]), id="a list"),
        pytest.param({"metadata": {}, "usage": {"cpu": "1", "memory": "1"}}, id="no name"),
        pytest.param("text", id="no object"),
    ],
)
async def test_a_sample_that_cannot_be_is_dropped_and_counted(item: Any) -> None:
    desk = Desk()
    desk.api.answers[NODES] = listed(item, node_use("b"))
    async with desk.running():
        assert desk.cpu() == {"b": 2_000}
    assert (desk.count.bad, desk.count.failed) == (["node"], [])


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(pod_use("ns/p", ("1", "1"), ("-1", "1")), id="negative"),
        pytest.param(pod_use("ns/p", (str(MOST // 1000), "1"), (str(MOST // 1000), "1")), id="huge sum"),
        pytest.param({**pod_use("ns/p"), "containers": []}, id="no container"),
    ],
)
async def test_a_sample_of_a_pod_that_cannot_be_is_dropped_and_counted(item: Any) -> None:
    desk = Desk()
    desk.api.answers[PODS] = listed(item, pod_use("ns/q", ("7m", "1Ki")))
    async with desk.running():
        assert desk.mean() == (7, 1024)
    assert desk.count.bad == ["pod"]


async def test_of_samples_with_one_name_the_first_counts() -> None:
    desk = Desk()
    desk.api.answers |= {
        NODES: listed(node_use("a", "1"), node_use("a", "9")),
        PODS: listed(pod_use("ns/p", ("1m", "1")), pod_use("ns/p", ("9m", "9"))),
    }
    async with desk.running():
        assert (desk.cpu(), desk.mean()) == ({"a": 1_000}, (1, 1))
    assert sorted(desk.count.bad) == ["node", "pod"]


@pytest.mark.parametrize(
    ("text", "places", "amount"),
    [("123456789n", 3, 124), ("0", 3, 0), (2, 3, 2_000), ("1Ki", 0, 1_024), (None, 0, None), (str(MOST), 0, MOST)],
)
def test_amounts_are_rounded_up(text: str | int | None, places: int, amount: int | None) -> None:
    assert amount_of(text, places) == amount


# --- an API that fails


FAILURES = [
    pytest.param(None, id="hangs"),
    pytest.param(ServerError("down", status=503), id="fails"),
    pytest.param(ForbiddenError("no right", status=403), id="forbidden"),
    pytest.param(b"<html>", id="nonsense"),
    pytest.param(ZeroDivisionError(), id="a bug"),
]


@pytest.mark.mechanism("2.26")
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_list_that_fails_delays_no_other_and_is_read_again(failure: bytes | Exception | None) -> None:
    """Nodes and pods in turn; pauses grow to five minutes, and end with the first success."""
    for broken, other in ((NODES, PODS), (PODS, NODES)):
        desk = Desk()
        whole = {NODES: listed(node_use("a")), PODS: listed(pod_use("ns/p"))}
        desk.api.answers |= {**whole, broken: failure}
        with structlog.testing.capture_logs() as logs:
            async with desk.running():
                await desk.clock.advance(100 * INTERVAL)
                assert desk.api.times(other) == 101, "one at the beginning, and one at each interval"
                assert 4 <= desk.api.times(broken) <= 20
                kind = "node" if broken == NODES else "pod"
                assert set(desk.count.failed) == {kind}
                summary = desk.usage.summary()
                assert summary is not None
                assert len(summary.problems) == 1
                desk.api.answers |= whole
                await desk.clock.advance(315)
                assert desk.cpu() == {"a": 2_000}
                assert desk.mean() == (1_000, 1_024)
                before = desk.api.times(broken)
                await desk.clock.advance(10 * INTERVAL)
                assert desk.api.times(broken) == before + 10
                mended = desk.usage.summary()
                assert mended is not None
                assert mended.problems == ()
        assert [log["log_level"] for log in logs].count("warning") == 1
        assert [log["log_level"] for log in logs].count("error") == isinstance(failure, ZeroDivisionError)


async def test_samples_are_kept_while_the_api_fails_until_they_are_old() -> None:
    desk = Desk()
    desk.api.answers[NODES] = listed(node_use("a"))
    async with desk.running():
        desk.api.answers[NODES] = ServerError("down", status=503)
        await desk.clock.advance(10 * INTERVAL)
        assert desk.cpu() == {"a": 2_000}
        await desk.clock.advance(1)
        assert desk.cpu() == {}


async def test_an_api_that_is_not_served_is_told_once_and_found_when_it_comes() -> None:
    desk = Desk()
    desk.api.answers[GROUP] = NotFoundError("get /apis/metrics.k8s.io: not found", status=404)
    with structlog.testing.capture_logs() as logs:
        async with desk.running():
            await desk.clock.advance(3_600)
            summary = desk.usage.summary()
            desk.api.answers |= {GROUP: versions("v1beta1"), NODES: listed(node_use("a"))}
            await desk.clock.advance(315)
            assert desk.cpu() == {"a": 2_000}
    told = [log["problem"] for log in logs if log["log_level"] == "warning"]
    assert told == [
        "the API metrics.k8s.io is not served: install a metrics server, or set joint.statistics.source to none"
    ]
    assert summary is not None
    assert list(summary.problems) == told
    assert [log["event"] for log in logs if log["log_level"] == "info"] == ["measured use is read again"]


async def test_a_version_that_is_not_served_any_more_is_replaced_at_once() -> None:
    desk = Desk()
    async with desk.running():
        desk.api.answers.pop(NODES)
        desk.api.answers |= {GROUP: versions("v1"), f"{GROUP}/v1/nodes": listed(node_use("a"))}
        await desk.clock.advance(INTERVAL)
        assert desk.cpu() == {"a": 2_000}
    assert desk.count.failed == []


@pytest.mark.mechanism("2.16")
async def test_samples_of_an_api_that_is_taken_away_are_forgotten_within_an_interval() -> None:
    desk = Desk()
    desk.api.answers |= {NODES: listed(node_use("a")), PODS: listed(pod_use("ns/p"))}
    async with desk.running():
        assert (desk.cpu(), desk.mean()) == ({"a": 2_000}, (1_000, 1_024))
        for path in (GROUP, NODES, PODS):
            del desk.api.answers[path]
        await desk.clock.advance(INTERVAL)
        assert (desk.cpu(), desk.mean()) == ({}, (None, None))


async def test_a_group_in_unknown_versions_is_a_problem() -> None:
    desk = Desk()
    desk.api.answers[GROUP] = versions("v7")
    async with desk.running():
        summary = desk.usage.summary()
    assert summary is not None
    assert "metrics.k8s.io in one of the versions v1, v1beta1 is not served" in summary.problems[0]


@pytest.mark.mechanism("2.26")
async def test_a_long_list_of_pods_is_read_in_turns_of_the_loop() -> None:
    """Other tasks run between pieces of some hundred pods, and the sample of nodes does not wait for the pods."""
    desk = Desk()
    items = [*(pod_use(f"ns/unknown-{n}") for n in range(20_000)), pod_use("ns/p", ("100m", "1Ki"))]
    for item in items:
        item["metadata"]["labels"] = {"kueue.x-k8s.io/podset": "main", "text": "x" * 180}
    desk.api.answers |= {NODES: listed(node_use("a")), PODS: listed(*items)}
    pods_read: list[int] = []
    has_nodes: list[bool] = []

    async def beat() -> None:
        while True:
            pods_read.append(len(desk.count.unknown))
            has_nodes.append(bool(desk.cpu()))
            await asyncio.sleep(0)

    beating = asyncio.ensure_future(beat())
    async with desk.running():
        while not len(desk.store.kinds):
            await asyncio.sleep(0)
    await cancel_and_wait(beating)
    assert desk.mean() == (100, 1_024)
    assert max(after - before for before, after in pairwise(pods_read)) <= 500
    assert has_nodes[next(turn for turn, read in enumerate(pods_read) if read > 1_000)]


async def test_ending_the_lead_ends_the_readers_at_any_moment() -> None:
    """Whatever they wait for: a policy, an answer, or the next interval."""
    for prepare in (_unwanted, _hanging, lambda _desk: None):
        desk = Desk()
        prepare(desk)
        async with desk.running():
            pass
        before = len(desk.api.asked)
        await desk.clock.advance(1_000)
        assert len(desk.api.asked) == before


def _unwanted(desk: Desk) -> None:
    desk.usage.wanted.event.clear()


def _hanging(desk: Desk) -> None:
    desk.api.answers |= {NODES: None, PODS: None}
