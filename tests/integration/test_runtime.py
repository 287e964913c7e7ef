"""The runtime's promises on a real control plane, with a network that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from kqueue import errors
from kqueue.api.wire.meta import ObjectMeta, Struct
from kqueue.clock import SystemClock
from kqueue.runtime.client import Client, ClientSettings, PatchType, RequestRecord, connect
from kqueue.runtime.leader import ElectionSettings, LeaderElection
from kqueue.runtime.reflector import Listed, Reflector, Selection, WatchSettings
from kqueue.runtime.resources import LEASES, ResourceType
from tests.integration.controlplane.plane import ControlPlane

pytestmark = pytest.mark.controlplane

CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
UNKNOWN = ResourceType("example.dev", "v1", "things", "Thing")
FLAVORS = ResourceType("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
HEADER = {"apiVersion": FLAVORS.api_version, "kind": FLAVORS.kind}
LABEL = "runtime-test=yes"
RESTLESS = WatchSettings(retry_base=0.05, retry_max=0.5)


class Named(Struct, frozen=True, kw_only=True):
    """An object of which only the name matters."""

    metadata: ObjectMeta


class ConfigMap(Struct, frozen=True, kw_only=True):
    """A kind that needs no controller."""

    metadata: ObjectMeta
    data: dict[str, str] = msgspec.field(default_factory=dict)


def config_map(name: str, namespace: str, n: int = 0) -> dict[str, Any]:
    """A labelled ConfigMap that holds a number."""
    labels = dict([LABEL.split("=")])
    return {"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": str(n)},
            "metadata": {"name": name, "namespace": namespace, "labels": labels}}  # fmt: skip


class Relay:
    """The network between us and the API server: it can be cut, or go silent."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Relay]:
        """Listen on a free port of loopback."""
        server = await asyncio.start_server(
            lambda reader, writer: self._spawn(self._accept(reader, writer)), "127.0.0.1", 0
        )
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection."""
        for writer in self._open:
            writer.transport.abort()

    def silence(self) -> None:
        """Keep connections open and let nothing through."""
        self._flowing.clear()

    def resume(self) -> None:
        """Let everything through again."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, far_writer}
        back = self._spawn(self._pump(far_reader, writer))
        await self._pump(reader, far_writer)
        await back
        self._open -= {writer, far_writer}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


@pytest.fixture
async def relay(plane: ControlPlane) -> AsyncIterator[Relay]:
    """A network to the real API server."""
    url = urlsplit(plane.url)
    assert url.hostname
    assert url.port
    async with Relay(url.hostname, url.port).serving() as relay:
        yield relay


@pytest.fixture
def kubeconfig(plane: ControlPlane, relay: Relay, tmp_path: Path) -> Path:
    """The administrator's kubeconfig, by way of the relay."""
    config = yaml.safe_load(plane.kubeconfig.read_text())
    for cluster in config["clusters"]:
        cluster["cluster"]["server"] = f"https://127.0.0.1:{relay.port}"
        authority = cluster["cluster"].get("certificate-authority")
        if authority:
            cluster["cluster"]["certificate-authority"] = str((plane.kubeconfig.parent / authority).resolve())
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
async def requests() -> list[RequestRecord]:
    """What the client has asked."""
    return []


@pytest.fixture
async def client(kubeconfig: Path, requests: list[RequestRecord]) -> AsyncIterator[Client]:
    """A client over the relay, with short times."""
    settings = ClientSettings(call_timeout=10, retry_base=0.02, watch_read_timeout=1.0)
    async with await connect(kubeconfig, settings=settings, on_request=requests.append) as client:
        yield client


@pytest.fixture
async def namespace(plane: ControlPlane) -> str:
    """A namespace of the test's own."""
    return await plane.cluster.create_namespace()


def reflect(client: Client, namespace: str, **settings: Any) -> Reflector[ConfigMap, int]:
    """A reflector of our ConfigMaps' numbers."""
    return Reflector(
        client,
        CONFIG_MAPS,
        decode=ConfigMap,
        view=lambda obj: int(obj.data["n"]),
        clock=SystemClock(),
        selection=Selection(namespace=namespace, label_selector=LABEL),
        settings=WatchSettings(retry_base=0.05, retry_max=0.5, **settings),
    )


def held(reflector: Reflector[ConfigMap, int]) -> dict[str, int | None]:
    """Names and numbers in the store."""
    return {key.partition("/")[2]: reflector.store.get(key) for key in reflector.store}


async def eventually(true: Callable[[], bool], within: float = 30.0) -> None:
    """Return as soon as `true` holds; fail if it does not within a generous time."""
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run `work` beside the block."""
    tasks = [asyncio.create_task(w) for w in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_verbs_on_a_real_server(client: Client, namespace: str) -> None:
    """Create, read, patch in three ways, and delete under a precondition."""
    made = await client.create(CONFIG_MAPS, config_map("a", namespace))
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]

    merged = await client.patch(CONFIG_MAPS, "a", {"data": {"n": "1"}}, namespace)
    applied = await client.patch(
        CONFIG_MAPS,
        "a",
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"m": "2"}},
        namespace,
        content_type=PatchType.APPLY,
        field_manager="runtime-test",
        force=True,
    )
    edited = await client.patch(
        CONFIG_MAPS, "a", [{"op": "remove", "path": "/data/m"}], namespace, content_type=PatchType.JSON
    )
    read = await client.get(CONFIG_MAPS, "a", namespace, decode=ConfigMap)

    assert (merged["data"], applied["data"], edited["data"]) == ({"n": "1"}, {"n": "1", "m": "2"}, {"n": "1"})
    assert read.data == {"n": "1"}
    assert int(read.metadata.resource_version) > int(version)
    with pytest.raises(errors.ConflictError):
        await client.delete(CONFIG_MAPS, "a", namespace, uid="another")
    await client.delete(CONFIG_MAPS, "a", namespace, uid=uid)
    with pytest.raises(errors.NotFoundError):
        await client.get_json(CONFIG_MAPS, "a", namespace)


async def test_failures_on_a_real_server(client: Client, namespace: str) -> None:
    """A real server's refusals become the errors that callers catch."""
    made = await client.create(CONFIG_MAPS, config_map("a", namespace))
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"n": "1"}}
    await client.patch(CONFIG_MAPS, "a", stale, namespace)

    with pytest.raises(errors.ConflictError):
        await client.patch(CONFIG_MAPS, "a", stale, namespace)
    with pytest.raises(errors.AlreadyExistsError):
        await client.create(CONFIG_MAPS, config_map("a", namespace))
    with pytest.raises(errors.InvalidError, match="Upper"):
        await client.create(CONFIG_MAPS, config_map("Upper", namespace))
    with pytest.raises(errors.NotFoundError, match="is the kind installed"):
        await client.list_json(UNKNOWN)


async def test_lists_of_a_real_server_are_whole(client: Client, namespace: str) -> None:
    """All items come, and say what they are."""
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"c{i}", namespace)) for i in range(20)))

    found = await client.list_json(CONFIG_MAPS, namespace, label_selector=LABEL)

    assert len(found) == 20
    assert {(o["apiVersion"], o["kind"]) for o in found} == {("v1", "ConfigMap")}


@pytest.mark.parametrize("streaming", [pytest.param(True, id="streamed"), pytest.param(False, id="paged")])
async def test_the_store_follows_a_real_server(
    client: Client, namespace: str, requests: list[RequestRecord], streaming: bool
) -> None:
    """Initial state and changes arrive, in the way that was asked for."""
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"c{i}", namespace, i)) for i in range(7)))
    reflector = reflect(client, namespace, streaming=streaming, page_size=3)

    async with running(reflector.run()):
        await eventually(reflector.synced.is_set)
        first = held(reflector)
        await client.patch(CONFIG_MAPS, "c0", {"data": {"n": "100"}}, namespace)
        await client.delete(CONFIG_MAPS, "c1", namespace)
        await eventually(lambda: held(reflector) == {**{f"c{i}": i for i in range(2, 7)}, "c0": 100})

    assert first == {f"c{i}": i for i in range(7)}
    assert [r.verb for r in requests if r.verb in {"list", "watch"} and r.status == 200][:3] == (
        ["watch"] if streaming else ["list", "list", "list"]
    )


async def test_an_object_that_loses_its_label_leaves_the_store(client: Client, namespace: str) -> None:
    """Out of the selection is as good as deleted, and back in is as good as new."""
    await client.create(CONFIG_MAPS, config_map("a", namespace, 1))
    reflector = reflect(client, namespace)
    name, value = LABEL.split("=")

    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"a": 1})
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {name: None}}}, namespace)
        await eventually(lambda: held(reflector) == {})
        await client.patch(CONFIG_MAPS, "a", {"metadata": {"labels": {name: value}}}, namespace)
        await eventually(lambda: held(reflector) == {"a": 1})


@pytest.mark.parametrize("fault", ["cut", "silence"])
async def test_the_watch_resumes_after_the_network_failed(
    client: Client, plane: ControlPlane, relay: Relay, namespace: str, fault: str
) -> None:
    """Reset or silent connections are replaced; what happened meanwhile arrives without a new list."""
    for name in "ab":
        await client.create(CONFIG_MAPS, config_map(name, namespace, 1))
    reflector = reflect(client, namespace)
    path = f"/api/v1/namespaces/{namespace}/configmaps"

    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"a": 1, "b": 1})
        relay.silence()
        if fault == "cut":
            relay.cut()
        await plane.cluster.request("DELETE", f"{path}/a")
        await plane.cluster.request("POST", path, config_map("c", namespace, 3))
        await eventually(lambda: reflector.counters.failures >= 1)
        relay.resume()
        await eventually(lambda: held(reflector) == {"b": 1, "c": 3})

    assert reflector.counters.syncs == 1


async def test_a_version_that_the_server_has_forgotten_leads_to_a_new_list(client: Client, plane: ControlPlane) -> None:
    """410 of a real server: what was deleted unseen is delivered as a deletion.

    A custom kind, because the server's history of it begins when its CRD was made.
    """
    reflector = Reflector(
        client, FLAVORS, decode=Named, view=lambda obj: obj.metadata.name, clock=SystemClock(), settings=RESTLESS
    )
    gone: list[str | None] = []
    for name in "ab":
        await client.create(FLAVORS, {**HEADER, "metadata": {"name": name}, "spec": {}})

    async with running(reflector.run()):
        await eventually(lambda: set(reflector.store) == {"a", "b"})
    reflector.subscribe(lambda old, new: gone.append(old) if new is None else None)
    await client.delete(FLAVORS, "a")
    reflector.state, reflector._version = Listed(), "1"
    async with running(reflector.run()):
        await eventually(lambda: set(reflector.store) == {"b"})

    assert gone == ["a"]
    assert reflector.counters.syncs == 2


async def test_a_version_from_the_future_leads_to_a_new_list(client: Client, namespace: str) -> None:
    """After etcd was restored a real server accepts such a watch and stays silent; we notice and list again."""
    for name in "ab":
        await client.create(CONFIG_MAPS, config_map(name, namespace, 1))
    reflector = reflect(client, namespace)

    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"a": 1, "b": 1})
    await client.delete(CONFIG_MAPS, "a", namespace)
    reflector.state, reflector._version = Listed(), "999999999999"
    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"b": 1})

    assert reflector.counters.syncs == 2


async def test_calls_survive_a_cut_connection(client: Client, relay: Relay, namespace: str) -> None:
    """Kept-alive connections that were reset meanwhile are replaced without the caller noticing."""
    await client.create(CONFIG_MAPS, config_map("a", namespace))
    for n in range(5):
        relay.cut()
        await client.patch(CONFIG_MAPS, "a", {"data": {"n": str(n)}}, namespace)

    assert (await client.get(CONFIG_MAPS, "a", namespace, decode=ConfigMap)).data == {"n": "4"}


async def test_leadership_is_handed_over_and_taken_over(
    client: Client, plane: ControlPlane, relay: Relay, namespace: str
) -> None:
    """On a real server: at shutdown at once, after a dead network when the lease has run out, and never two."""
    at_work: list[str] = []
    most = 0

    def candidate(api: Client, name: str) -> Coroutine[Any, Any, None]:
        async def lead() -> None:
            nonlocal most
            at_work.append(name)
            most = max(most, len(at_work))
            try:
                await asyncio.Event().wait()
            finally:
                at_work.remove(name)

        times = ElectionSettings(namespace=namespace, name="l", identity=name, lease_duration=3, renew_deadline=2,
                                 retry_period=0.3)  # fmt: skip
        return LeaderElection(api, times, clock=SystemClock(), abort=lambda: pytest.fail("aborted")).run(lead)

    async with await connect(plane.kubeconfig) as direct, running(candidate(direct, "first")) as first:
        await eventually(lambda: at_work == ["first"])
        async with running(candidate(client, "second")):
            first[0].cancel()
            await eventually(lambda: at_work == ["second"], within=2)
            async with running(candidate(direct, "third")):
                relay.silence()
                await eventually(lambda: at_work == ["third"])
                relay.resume()
                lease = await direct.get_json(LEASES, "l", namespace)

    assert most == 1
    assert lease["spec"]["leaseTransitions"] == 2
