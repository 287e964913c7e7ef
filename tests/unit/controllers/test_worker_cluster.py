"""Connections to worker clusters: opened, lost, refused and opened again, in the time of a fake clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from aiohttp import web

from kqueue.api.wire import multikueue as api
from kqueue.api.wire.meta import ObjectMeta
from kqueue.clock import FakeClock, SystemClock
from kqueue.controllers.resources import NAMESPACES, WORKLOADS
from kqueue.controllers.worker_cluster import (
    WorkerCluster,
    WorkerHandlers,
    WorkerLink,
    WorkerSourceError,
    WorkerTools,
)
from kqueue.controllers.worker_sources import WorkerSources
from kqueue.errors import (
    ConfigError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ServerError,
    UnauthorizedError,
    UnreachableError,
)
from kqueue.jobs.catalog import BY_FRAMEWORK
from kqueue.jobs.multikueue.copies import Origin
from kqueue.jobs.switches import JobFeatures
from kqueue.runtime.client import Json
from kqueue.runtime.controller import Result
from kqueue.runtime.kubeconfig_secret import InsecureKubeconfigError
from tests.unit.controllers.builders import make_workload
from tests.unit.controllers.fakes import FakeClient
from tests.unit.runtime.conftest import eventually, serving
from tests.unit.runtime.fake_server import FakeServer, endless

COPY = make_workload("w", metadata={"labels": {"kueue.x-k8s.io/multikueue-origin": "west"}})


class QuietStream:
    """A watch on which nothing happens until it is closed."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    async def lines(self) -> list[bytes]:
        """Wait for the end."""
        await self._closed.wait()
        return []

    def close(self) -> None:
        self._closed.set()


class WorkerServer(FakeClient):
    """The API server of a worker; `answers` is called for each request for its version."""

    def __init__(self, uid: str = "worker") -> None:
        super().__init__()
        self.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": uid}})
        self.answers: Callable[[], Awaitable[None]] = self._answer_at_once
        self.closed = 0
        self.served = {"/apis/kueue.x-k8s.io/v1beta2"}
        self.hidden = ""
        """A kind that the user may not list."""

    async def _answer_at_once(self) -> None:
        return

    async def version(self) -> Json:
        await self.answers()
        return {}

    async def get_path(self, path: str, params: Any = None, **_: Any) -> Json:
        """Discovery of Kueue's API."""
        if path not in self.served:
            raise NotFoundError("no such version", status=404)
        return {}

    async def list_page(self, resource: Any, namespace: Any = None, *, params: Any, **more: Any) -> bytes:
        if resource.plural == self.hidden:
            raise ForbiddenError("may not list", status=403)
        return (await super().list_page(resource, namespace, params=params, **more)).replace(
            b'"metadata":{}', b'"metadata":{"resourceVersion":"9"}', 1
        )

    async def open_watch(self, *_: Any, params: Any, **_more: Any) -> Any:
        if "sendInitialEvents" in params:
            raise InvalidError("lists are paged here", status=422)
        return QuietStream()

    async def close(self) -> None:
        self.closed += 1


class Connected:
    """One cluster and what it was told and has told."""

    def __init__(
        self, server: WorkerServer | None = None, *, name: str = "a", holders: dict[str, str] | None = None
    ) -> None:
        self.clock, self.server = FakeClock(), server or WorkerServer()
        self.content: bytes | Exception = b"one"
        self.contents: list[bytes] = []
        self.refusal: Exception | None = None
        self.copies: list[str] = []
        self.steps: list[str] = []
        self.states: list[tuple[bool, str]] = []
        self.messages: list[str] = []
        tools = WorkerTools(
            origin=Origin("west"),
            kinds=[BY_FRAMEWORK["batch/job"]],
            switches=JobFeatures(),
            clock=self.clock,
            identity=self._identity,
            holders={} if holders is None else holders,
        )
        handlers = WorkerHandlers(
            source=self._source,
            connect=self._connect,
            step=self._step,
            on_copy=self.copies.append,
            on_state=self._on_state,
        )
        self.cluster = WorkerCluster(name, handlers, tools)

    def _on_state(self) -> None:
        self.states.append((self.cluster.link is not None, self.cluster.reason))
        self.messages.append(self.cluster.message)

    async def _identity(self) -> str:
        return "manager"

    async def _source(self) -> bytes:
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    async def _connect(self, content: bytes) -> FakeClient:
        self.contents.append(content)
        if self.refusal is not None:
            raise self.refusal
        return self.server

    async def _step(self, _link: WorkerLink, key: str) -> Result:
        self.steps.append(key)
        return Result()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the connection; at the end nothing of it is left."""
        task = asyncio.ensure_future(self.cluster.run())
        await self.clock.advance(1)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})


async def fail() -> None:
    raise UnreachableError("refused")


async def hang() -> None:
    await asyncio.Event().wait()


async def test_a_cluster_is_connected_with_all_copies_known() -> None:
    """The manager is told of the state first, and then of each copy."""
    world = Connected()
    world.server.put(WORKLOADS, COPY)
    async with world.running():
        assert (world.states, world.copies) == ([(True, "Active")], ["ns/w"])
        link = world.cluster.link
        assert link is not None
        assert list(link.workloads.store) == ["ns/w"]
        assert world.cluster.lost_since is None
    assert world.cluster.link is None
    assert world.server.closed == 1


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [pytest.param(fail, 12, id="it refuses connections"), pytest.param(hang, 22, id="it does not answer")],
)
async def test_a_lost_cluster_is_noticed_and_comes_back(answers: Callable[[], Awaitable[None]], seconds: int) -> None:
    """Steps that are due meanwhile are taken when it is back."""
    world = Connected()
    async with world.running():
        world.server.answers = answers
        await world.clock.advance(seconds)
        assert world.states[-1] == (False, "ClientConnectionFailed")
        assert world.cluster.lost_since is not None
        world.cluster.enqueue("ns/w")
        await world.clock.advance(60)
        assert (world.steps, world.cluster.link) == ([], None)

        world.server.answers = WorkerServer().answers
        await world.clock.advance(130)
        assert world.states[-1] == (True, "Active")
        assert world.steps == ["ns/w"]


async def test_a_watch_without_news_is_lost() -> None:
    """The server answers probes, but its watch has died: what it has is not known any more."""
    world = Connected()
    async with world.running():
        await world.clock.advance(165)
        assert (False, "ClientConnectionFailed") in world.states
        assert any("no news of workloads" in message for message in world.messages)


async def test_a_kind_that_we_may_not_watch_is_named() -> None:
    """The kubeconfig's user lacks a right: the cluster is not used with half of its state."""
    world = Connected()
    world.server.hidden = "jobs"
    async with world.running():
        await world.clock.advance(61)
        assert world.states == [(False, "ClientConnectionFailed")]
        assert "jobs.batch cannot be watched" in world.messages[0]
        assert "workloads" not in world.messages[0]


async def test_attempts_become_rarer() -> None:
    """5 s, doubled in 7 steps."""
    world = Connected()
    world.server.answers = fail
    async with world.running():
        await world.clock.advance(3600)
        assert 10 <= len(world.contents) <= 24
        assert world.states == [(False, "ClientConnectionFailed")]


@pytest.mark.parametrize(
    ("content", "refusal", "reason"),
    [
        pytest.param(WorkerSourceError("no Secret"), None, "BadKubeConfig", id="no Secret"),
        pytest.param(
            WorkerSourceError("no", "MultiKueueClusterProfileFeatureDisabled"),
            None,
            "MultiKueueClusterProfileFeatureDisabled",
            id="a ClusterProfile",
        ),
        pytest.param(b"x", ConfigError("no YAML"), "BadKubeConfig", id="no kubeconfig"),
        pytest.param(b"x", InsecureKubeconfigError("a file"), "InsecureKubeConfig", id="insecure"),
    ],
)
async def test_a_kubeconfig_that_cannot_be_used_is_told_and_read_again(
    content: bytes | Exception, refusal: Exception | None, reason: str
) -> None:
    world = Connected()
    world.content, world.refusal = content, refusal
    async with world.running():
        assert world.states == [(False, reason)]
        world.content, world.refusal = b"two", None
        world.cluster.look()
        await world.clock.advance(1)
        assert world.states[-1] == (True, "Active")


async def test_another_kubeconfig_is_another_connection() -> None:
    """The old client is closed: its credentials were taken back."""
    world = Connected()
    async with world.running():
        world.content = b"two"
        await world.clock.advance(11)
        assert world.contents == [b"one", b"two"]
        assert world.server.closed == 1
        assert world.states[-1] == (True, "Active")


async def test_credentials_that_expire_are_told() -> None:
    world = Connected()

    async def expired() -> None:
        raise UnauthorizedError("the token has expired", status=401)

    async with world.running():
        world.server.answers = expired
        await world.clock.advance(11)
        assert world.states[-1] == (False, "ClientConnectionFailed")
        assert "expired" in world.cluster.message


async def test_a_manager_whose_own_server_does_not_answer_keeps_its_workers() -> None:
    """The kubeconfig cannot be read for a while: that says nothing about the worker."""
    world = Connected()
    async with world.running():
        world.content = UnreachableError("our own server")
        await world.clock.advance(60)
        assert world.states == [(True, "Active")]


async def test_the_manager_itself_is_no_worker() -> None:
    """Its queue would take copies for workloads of its own."""
    world = Connected(WorkerServer("manager"))
    async with world.running():
        assert world.states == [(False, "BadKubeConfig")]
        assert "own cluster" in world.cluster.message
        assert world.server.closed == 1


async def test_one_cluster_is_connected_under_one_name() -> None:
    """Two objects that lead to one cluster would delete each other's copies; the second waits until the first is gone."""
    holders: dict[str, str] = {}
    first, second = Connected(name="a", holders=holders), Connected(name="b", holders=holders)
    async with second.running():
        assert second.states == [(True, "Active")]
        async with first.running():
            assert first.states == [(False, "BadKubeConfig")]
            assert "MultiKueueCluster b leads to the same cluster" in first.cluster.message
        assert holders == {"worker": "b"}
    async with first.running():
        assert first.states[-1] == (True, "Active")
    assert holders == {}


async def test_clusters_whose_identity_cannot_be_read_are_told_apart_by_nothing() -> None:
    """The user of the kubeconfig may not read kube-system: the cluster is used all the same."""
    holders: dict[str, str] = {}
    worlds = [Connected(name=name, holders=holders) for name in "ab"]
    for world in worlds:
        world.server.drop(NAMESPACES, "kube-system")
    async with worlds[0].running(), worlds[1].running():
        assert [world.states for world in worlds] == [[(True, "Active")]] * 2


@pytest.mark.parametrize(
    ("uid", "states"),
    [
        pytest.param("rebuilt", [(False, "ClientConnectionFailed"), (True, "Active")], id="it was built anew"),
        pytest.param(
            "manager", [(False, "ClientConnectionFailed"), (False, "BadKubeConfig")], id="it is the manager now"
        ),
    ],
)
async def test_another_cluster_at_the_same_address_is_noticed(uid: str, states: list[tuple[bool, str]]) -> None:
    """A name of DNS leads elsewhere: what is known of copies is of the former cluster."""
    world = Connected()
    async with world.running():
        world.server.put(NAMESPACES, {"metadata": {"name": "kube-system", "uid": uid}})
        await world.clock.advance(11)
        assert world.states == [(True, "Active"), *states]
        assert "another cluster answers" in world.messages[1]


async def test_a_worker_with_another_version_of_the_api_is_told() -> None:
    """Older ones of Kueue serve v1beta1 alone; the cluster is used once it is upgraded."""
    world = Connected()
    world.server.served = {"/apis/kueue.x-k8s.io/v1beta1"}
    async with world.running():
        assert world.states == [(False, "ClientConnectionFailed")]
        assert "serves no kueue.x-k8s.io/v1beta2; install" in world.cluster.message
        world.server.served = {"/apis/kueue.x-k8s.io/v1beta2"}
        await world.clock.advance(11)
        assert world.states[-1] == (True, "Active")


async def test_a_worker_that_answers_with_no_json_is_lost() -> None:
    """A proxy answers in its place with a page."""
    world = Connected()

    async def page() -> None:
        raise ServerError("get /version: the answer is not a JSON object", status=200)

    async with world.running():
        world.server.answers = page
        await world.clock.advance(11)
        assert world.states[-1] == (False, "ClientConnectionFailed")
        assert "not a JSON object" in world.cluster.message


@pytest.mark.parametrize("metadata", [{"name": "kube-system"}, {"name": "kube-system", "uid": 7}])
async def test_a_worker_without_a_uid_has_no_identity(metadata: Json) -> None:
    world = Connected()
    world.server.put(NAMESPACES, {"metadata": metadata})
    async with world.running():
        assert world.states == [(True, "Active")]


async def test_an_answer_that_is_a_bug_to_us_is_told_too() -> None:
    """The condition does not go on saying that the cluster is fine."""
    world = Connected()

    async def strange() -> None:
        raise KeyError("surprise")

    async with world.running():
        fine = world.server.answers
        world.server.answers = strange
        await world.clock.advance(11)
        assert world.states == [(True, "Active"), (False, "ClientConnectionFailed")]
        assert "does not understand" in world.cluster.message
        world.server.answers = fine
        await world.clock.advance(30)
        assert world.states[-1] == (True, "Active")


async def test_a_worker_that_answers_late_delays_nothing_else() -> None:
    """Its probe takes nine seconds, which is in time; steps of other clusters have queues of their own."""
    world, other = Connected(), Connected(name="b")

    async def late() -> None:
        await world.clock.sleep(9)

    async with world.running(), other.running():
        world.server.answers = late
        for _ in range(5):
            await world.clock.advance(10)
        other.cluster.enqueue("ns/w")
        await other.clock.advance(1)
        assert world.states == [(True, "Active")]
        assert other.steps == ["ns/w"]


class EndlessServer(FakeServer):
    """A worker whose answers do not end."""

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", endless())
        return app


class ReallyConnected(Connected):
    """A cluster that is connected to with its kubeconfig."""

    async def _connect(self, content: bytes) -> Any:
        named = api.MultiKueueCluster(metadata=ObjectMeta(name="a"))
        return await WorkerSources(self.server, "own", clock=SystemClock()).connect(named, content)


async def test_a_worker_that_answers_without_end_is_lost() -> None:
    """The manager reads no more than a limit of it, and tries again later as for each lost worker."""
    async with serving(EndlessServer()) as server:
        world = ReallyConnected()
        world.content = kubeconfig(server.url)
        async with world.running():
            await eventually(lambda: "answer of more than 64 MiB" in world.cluster.message)

        assert (world.cluster.link, world.cluster.reason) == (None, "ClientConnectionFailed")


def kubeconfig(url: str) -> bytes:
    """Return a kubeconfig for a server."""
    told = {
        "clusters": [{"name": "it", "cluster": {"server": url}}],
        "users": [{"name": "me", "user": {"token": "secret"}}],
        "contexts": [{"name": "here", "context": {"cluster": "it", "user": "me"}}],
        "current-context": "here",
    }
    return yaml.safe_dump(told).encode()
