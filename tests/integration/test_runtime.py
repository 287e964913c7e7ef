"""The runtime's promises on the sandbox and on a real control plane, with a network that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import msgspec
import pytest
import yaml

from kqueue import errors
from kqueue.api.wire.meta import ObjectMeta, Struct
from kqueue.clock import SystemClock
from kqueue.runtime.client import Client, PatchType, connect
from kqueue.runtime.leader import ElectionSettings, LeaderElection
from kqueue.runtime.reflector import Listed, Projection, Reflector, Selection, WatchSettings
from kqueue.runtime.resources import LEASES, ResourceType
from kqueue.runtime.transport import ClientSettings, RequestRecord
from tests.integration.controlplane.cluster import Cluster
from tests.integration.network import (
    Fault,
    Gateway,
    Relay,
    acts_then,
    answers,
    drops,
    error_event,
    hangs,
    shows_page,
    streams,
)
from tests.integration.polling import eventually

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


class Plane(Protocol):
    """Either control plane, as `either_plane` gives it."""

    kubeconfig: Path
    cluster: Cluster


@pytest.fixture
async def relay(either_plane: Plane) -> AsyncIterator[Relay]:
    """A network to the API server that can be cut."""
    url = urlsplit(either_plane.cluster.url)
    assert url.hostname
    assert url.port
    async with Relay(url.hostname, url.port).serving() as relay:
        yield relay


@pytest.fixture
def kubeconfig(either_plane: Plane, relay: Relay, tmp_path: Path) -> Path:
    """The administrator's kubeconfig, by way of the relay."""
    config = yaml.safe_load(either_plane.kubeconfig.read_text())
    for each in config["clusters"]:
        scheme = urlsplit(each["cluster"]["server"]).scheme
        each["cluster"]["server"] = f"{scheme}://127.0.0.1:{relay.port}"
    path = tmp_path / "by-way-of-the-relay"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture
async def gateway(either_plane: Plane) -> AsyncIterator[Gateway]:
    """A proxy to the API server that can misbehave."""
    async with Gateway(either_plane.cluster.access).serving() as gateway:
        yield gateway


@pytest.fixture
async def requests() -> list[RequestRecord]:
    """What the client has asked."""
    return []


SHORT = ClientSettings(call_timeout=10, retry_base=0.02, watch_read_timeout=1.0)


@pytest.fixture
async def client(kubeconfig: Path, requests: list[RequestRecord]) -> AsyncIterator[Client]:
    """A client over the relay, with short times."""
    async with await connect(kubeconfig, settings=SHORT, on_request=requests.append) as client:
        yield client


@pytest.fixture
async def proxied(gateway: Gateway, requests: list[RequestRecord]) -> AsyncIterator[Client]:
    """A client over the gateway, with short times."""
    async with Client(gateway.url, settings=SHORT, on_request=requests.append) as client:
        yield client


@pytest.fixture
async def namespace(either_plane: Plane) -> str:
    """A namespace of the test's own."""
    return await either_plane.cluster.create_namespace()


def reflect(client: Client, namespace: str, **settings: Any) -> Reflector[ConfigMap, int]:
    """A reflector of our ConfigMaps' numbers."""
    return Reflector(
        client,
        CONFIG_MAPS,
        Projection(ConfigMap, lambda obj: int(obj.data["n"])),
        clock=SystemClock(),
        selection=Selection(namespace=namespace, label_selector=LABEL),
        settings=WatchSettings(retry_base=0.05, retry_max=0.5, **settings),
    )


def held(reflector: Reflector[ConfigMap, int]) -> dict[str, int | None]:
    """Names and numbers in the store."""
    return {key.partition("/")[2]: reflector.store.get(key) for key in reflector.store}


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


async def test_verbs(client: Client, namespace: str) -> None:
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


async def test_refusals_become_errors(client: Client, namespace: str) -> None:
    """The server's refusals become the errors that callers catch."""
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


async def test_lists_are_whole(client: Client, namespace: str) -> None:
    """All items come, and say what they are."""
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"c{i}", namespace)) for i in range(20)))

    found = await client.list_json(CONFIG_MAPS, namespace, label_selector=LABEL)

    assert len(found) == 20
    assert {(o["apiVersion"], o["kind"]) for o in found} == {("v1", "ConfigMap")}


@pytest.mark.parametrize("streaming", [pytest.param(True, id="streamed"), pytest.param(False, id="paged")])
async def test_the_store_follows_the_server(
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
    client: Client, either_plane: Plane, relay: Relay, namespace: str, fault: str
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
        await either_plane.cluster.request("DELETE", f"{path}/a")
        await either_plane.cluster.request("POST", path, config_map("c", namespace, 3))
        await eventually(lambda: reflector.counters.failures >= 1)
        relay.resume()
        await eventually(lambda: held(reflector) == {"b": 1, "c": 3})

    assert reflector.counters.syncs == 1


async def test_a_version_that_the_server_has_forgotten_leads_to_a_new_list(client: Client, either_plane: Plane) -> None:
    """410 of the server: what was deleted unseen is delivered as a deletion.

    A custom kind, because the server's history of it begins when its CRD was made.
    """
    reflector = Reflector(
        client, FLAVORS, Projection(Named, lambda obj: obj.metadata.name), clock=SystemClock(), settings=RESTLESS
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
    """After etcd was restored a real server accepts such a watch and stays silent, the sandbox refuses it; we list again."""
    for name in "ab":
        await client.create(CONFIG_MAPS, config_map(name, namespace, 1))
    reflector = reflect(client, namespace)

    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"a": 1, "b": 1})
    await client.delete(CONFIG_MAPS, "a", namespace)
    reflector.state, reflector._version = Listed(), "999999999999"
    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"b": 1})

    assert reflector.counters.syncs == 1 + reflector.counters.failures  # one new list for each refused watch
    assert reflector.counters.failures >= 1


async def test_calls_survive_a_cut_connection(client: Client, relay: Relay, namespace: str) -> None:
    """Kept-alive connections that were reset meanwhile are replaced without the caller noticing."""
    await client.create(CONFIG_MAPS, config_map("a", namespace))
    for n in range(5):
        relay.cut()
        await client.patch(CONFIG_MAPS, "a", {"data": {"n": str(n)}}, namespace)

    assert (await client.get(CONFIG_MAPS, "a", namespace, decode=ConfigMap)).data == {"n": "4"}


async def test_a_silent_server_is_given_up(kubeconfig: Path, relay: Relay, namespace: str) -> None:
    """A call that hangs ends at its time limit and says so; the next one, on a network that flows, goes through."""
    async with await connect(kubeconfig, settings=ClientSettings(call_timeout=0.5)) as client:
        await client.create(CONFIG_MAPS, config_map("a", namespace))
        relay.silence()
        with pytest.raises(errors.UnreachableError, match="timed out"):
            await client.get_json(CONFIG_MAPS, "a", namespace)
        relay.resume()

        assert (await client.get_json(CONFIG_MAPS, "a", namespace))["data"] == {"n": "0"}


PASSING = [
    pytest.param(answers(500, "InternalError"), id="an internal error"),
    pytest.param(answers(429, "TooManyRequests"), id="a server that is busy"),
    pytest.param(shows_page(502), id="a page of a proxy whose server is away"),
    pytest.param(shows_page(503), id="a page of a proxy that is overloaded"),
    pytest.param(drops, id="a dropped connection"),
    pytest.param(acts_then(drops), id="an answer that was lost"),
    pytest.param(acts_then(shows_page(504)), id="an answer that came too late for the proxy"),
]


@pytest.mark.parametrize("fault", PASSING)
async def test_passing_trouble_is_invisible_to_callers(
    proxied: Client, gateway: Gateway, namespace: str, fault: Fault
) -> None:
    """Reads, patches and deletions are tried again until they are done, and are done once."""
    await proxied.create(CONFIG_MAPS, config_map("a", namespace))
    for verb in ("GET", "PATCH", "DELETE"):
        gateway.plan(verb, fault, fault)

    patched = await proxied.patch(CONFIG_MAPS, "a", {"data": {"n": "1"}}, namespace)
    read = await proxied.get_json(CONFIG_MAPS, "a", namespace)
    await proxied.delete(CONFIG_MAPS, "a", namespace)

    assert patched == read
    assert patched["data"] == {"n": "1"}
    assert [len(gateway.arrivals(verb)) for verb in ("GET", "PATCH", "DELETE")] == [3, 3, 3]
    with pytest.raises(errors.NotFoundError):
        await proxied.get_json(CONFIG_MAPS, "a", namespace)


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        pytest.param(acts_then(drops), errors.UnreachableError, id="an answer that was lost"),
        pytest.param(acts_then(shows_page(502)), errors.ServerError, id="a page of a proxy in its place"),
    ],
)
async def test_a_create_that_may_have_happened_is_not_repeated(
    proxied: Client, gateway: Gateway, namespace: str, fault: Fault, raised: type[Exception]
) -> None:
    """The caller is told that it is in doubt, and finds the object when it looks."""
    gateway.plan("POST", fault)

    with pytest.raises(raised):
        await proxied.create(CONFIG_MAPS, config_map("a", namespace))

    assert len(gateway.arrivals("POST")) == 1
    with pytest.raises(errors.AlreadyExistsError):
        await proxied.create(CONFIG_MAPS, config_map("a", namespace))


async def test_retry_after_is_sat_out(proxied: Client, gateway: Gateway, namespace: str) -> None:
    """A busy server is left in peace for as long as it asks, by creates too: it has not acted."""
    gateway.plan("POST", answers(429, "TooManyRequests", Retry_After="1"))

    await proxied.create(CONFIG_MAPS, config_map("a", namespace))

    first, second = gateway.arrivals("POST")
    assert second - first >= 1


async def test_a_long_retry_after_is_for_the_caller(proxied: Client, gateway: Gateway, namespace: str) -> None:
    """Longer than the client sits out by itself: raised at once, with the time that was asked for."""
    gateway.plan("GET", answers(429, "TooManyRequests", Retry_After="60"))

    with pytest.raises(errors.TooManyRequestsError) as caught:
        await proxied.get_json(CONFIG_MAPS, "a", namespace)

    assert caught.value.retry_after == 60


async def test_a_rotated_token_is_read_again(either_plane: Plane, gateway: Gateway, tmp_path: Path) -> None:
    """When the token expires, calls and watches read the new one from its file, and nobody notices."""
    namespace = await either_plane.cluster.create_namespace()
    token = tmp_path / "token"
    token.write_text("old")
    gateway.token = "old"
    path = kubeconfig_with_token(tmp_path, gateway.url, token)

    async with await connect(path, settings=SHORT) as client:
        await client.create(CONFIG_MAPS, config_map("a", namespace, 1))
        reflector = reflect(client, namespace)
        async with running(reflector.run()):
            await eventually(lambda: held(reflector) == {"a": 1})
            gateway.token = "new"
            token.write_text("new")
            gateway.plan("WATCH", drops)
            await client.patch(CONFIG_MAPS, "a", {"data": {"n": "2"}}, namespace)
            await eventually(lambda: held(reflector) == {"a": 2})
        token.write_text("newest")
        gateway.token = "newest"
        late = reflect(client, namespace)
        async with running(late.run()):
            await eventually(lambda: held(late) == {"a": 2})

    assert late.counters.failures == 0


def kubeconfig_with_token(folder: Path, server: str, token: Path) -> Path:
    """A kubeconfig whose user is who the token in a file says."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": server}}],
        "users": [{"name": "it", "user": {"tokenFile": str(token)}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    path = folder / "with-token"
    path.write_text(yaml.safe_dump(document))
    return path


# --- watches through a network that speaks HTTP, badly

BROKEN_WATCHES = [
    pytest.param(answers(500, "InternalError"), id="an internal error"),
    pytest.param(answers(429, "TooManyRequests"), id="a server that is busy"),
    pytest.param(shows_page(502), id="a page of a proxy whose server is away"),
    pytest.param(shows_page(200), id="a page of a proxy that calls it a success"),
    pytest.param(drops, id="a dropped connection"),
    pytest.param(hangs, id="no answer"),
    pytest.param(streams(), id="an end at once"),
    pytest.param(streams(then=hangs), id="silence"),
    pytest.param(streams(b'{"type":"MODIFIED","object":{"meta', then=drops), id="half an event"),
    pytest.param(streams(b"<html>\n"), id="a line that is no event"),
    pytest.param(streams(error_event(500, "InternalError")), id="an event that tells of an internal error"),
    pytest.param(streams(error_event(410, "Expired")), id="an event that tells of an old version"),
    pytest.param(answers(410, "Expired"), id="an answer that tells of an old version"),
]


@pytest.mark.parametrize("fault", BROKEN_WATCHES)
@pytest.mark.parametrize("streaming", [pytest.param(True, id="streamed"), pytest.param(False, id="paged")])
async def test_a_watch_heals(
    proxied: Client, either_plane: Plane, gateway: Gateway, namespace: str, fault: Fault, streaming: bool
) -> None:
    """Whether trouble meets the first watch or a later one, the store becomes true, deletions included."""
    await proxied.create(CONFIG_MAPS, config_map("a", namespace, 1))
    await proxied.create(CONFIG_MAPS, config_map("b", namespace, 1))
    reflector = reflect(proxied, namespace, streaming=streaming)
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    gateway.plan("WATCH", fault)

    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"a": 1, "b": 1} and len(gateway.arrivals("WATCH")) >= 2)
        gateway.plan("WATCH", fault)
        gateway.end_watches()
        await either_plane.cluster.request("DELETE", f"{path}/a")
        await either_plane.cluster.request("POST", path, config_map("c", namespace, 3))
        await eventually(lambda: held(reflector) == {"b": 1, "c": 3} and not gateway.plans["WATCH"])


LISTS = [
    pytest.param(answers(500, "InternalError"), id="an internal error"),
    pytest.param(shows_page(503), id="a page of a proxy that is overloaded"),
    pytest.param(shows_page(200), id="a page of a proxy that calls it a success"),
    pytest.param(drops, id="a dropped connection"),
    pytest.param(answers(410, "Expired"), id="a continue token that has expired"),
]


@pytest.mark.parametrize("fault", LISTS)
async def test_a_list_heals(proxied: Client, gateway: Gateway, namespace: str, fault: Fault) -> None:
    """Trouble on the second of three pages loses no object and names none twice."""
    await asyncio.gather(*(proxied.create(CONFIG_MAPS, config_map(f"c{i}", namespace, i)) for i in range(7)))
    reflector = reflect(proxied, namespace, streaming=False, page_size=3)
    added: list[int | None] = []
    reflector.subscribe(lambda old, new: added.append(new) if old is None else None)
    gateway.plan("GET", lambda each, request: each.forward(request), fault)

    async with running(reflector.run()):
        await eventually(reflector.synced.is_set)

    assert held(reflector) == {f"c{i}": i for i in range(7)}
    assert sorted(n for n in added if n is not None) == list(range(7))
    assert len(gateway.arrivals("GET")) > 3


async def test_a_busy_server_is_not_watched_before_its_time(proxied: Client, gateway: Gateway, namespace: str) -> None:
    """A watch that is refused with Retry-After waits for so long."""
    reflector = reflect(proxied, namespace)
    gateway.plan("WATCH", answers(429, "TooManyRequests", Retry_After="1"))

    async with running(reflector.run()):
        await eventually(reflector.synced.is_set)

    first, second = gateway.arrivals("WATCH")[:2]
    assert second - first >= 1


async def test_deletions_behind_an_expired_version_are_delivered(
    proxied: Client, either_plane: Plane, gateway: Gateway, namespace: str
) -> None:
    """After a 410 the new list tells what has gone unseen, and handlers hear of it once."""
    for name in "ab":
        await proxied.create(CONFIG_MAPS, config_map(name, namespace, 1))
    reflector = reflect(proxied, namespace)
    gone: list[int | None] = []
    reflector.subscribe(lambda old, new: gone.append(old) if new is None else None)

    async with running(reflector.run()):
        await eventually(lambda: held(reflector) == {"a": 1, "b": 1})
        gateway.hold()
        await either_plane.cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/a")
        await gateway.deliver([error_event(410, "Expired")])
        await eventually(lambda: held(reflector) == {"b": 1})

    assert gone == [1]
    assert reflector.counters.syncs == 2


def backwards(lines: list[bytes]) -> list[bytes]:
    return lines[::-1]


def twice(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines for _ in range(2)]


def again(lines: list[bytes]) -> list[bytes]:
    return lines + lines


@pytest.mark.parametrize(
    "disorder",
    [
        pytest.param(backwards, id="backwards"),
        pytest.param(twice, id="each twice"),
        pytest.param(again, id="all again"),
        pytest.param(lambda lines: again(backwards(lines)), id="backwards and again"),
    ],
)
async def test_events_in_disorder_leave_the_store_true(
    proxied: Client,
    either_plane: Plane,
    gateway: Gateway,
    namespace: str,
    disorder: Callable[[list[bytes]], list[bytes]],
) -> None:
    """Changed, deleted, deleted and made again, made and deleted: only what is newest counts."""
    for name in ("changed", "deleted", "renewed"):
        await proxied.create(CONFIG_MAPS, config_map(name, namespace, 1))
    reflector = reflect(proxied, namespace)

    async with running(reflector.run()):
        await eventually(lambda: len(held(reflector)) == 3)
        lines = gateway.hold()
        for n in (2, 3):
            await proxied.patch(CONFIG_MAPS, "changed", {"data": {"n": str(n)}}, namespace)
        await proxied.patch(CONFIG_MAPS, "deleted", {"data": {"n": "2"}}, namespace)
        await proxied.delete(CONFIG_MAPS, "deleted", namespace)
        await proxied.delete(CONFIG_MAPS, "renewed", namespace)
        await proxied.create(CONFIG_MAPS, config_map("renewed", namespace, 5))
        await proxied.create(CONFIG_MAPS, config_map("brief", namespace, 1))
        await proxied.delete(CONFIG_MAPS, "brief", namespace)
        await eventually(lambda: len(lines) == 8)
        sent = disorder(lines)
        before = reflector.counters.events
        await gateway.deliver(sent)
        await eventually(lambda: reflector.counters.events == before + len(sent))
        first = held(reflector)
        gateway.end_watches()
        await proxied.patch(CONFIG_MAPS, "changed", {"data": {"n": "4"}}, namespace)
        await eventually(lambda: held(reflector).get("changed") == 4)

    assert first == {"changed": 3, "renewed": 5}
    assert held(reflector) == {"changed": 4, "renewed": 5}
    assert reflector.counters.dropped >= 3
    assert reflector.counters.syncs == 1


# --- election


class Stage:
    """Who leads, and the most that ever led at once."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.at_work: list[str] = []
        self.terms = self.most = 0

    async def candidate(
        self, api: Client, name: str, *, lease: float = 3, deadline: float = 2, period: float = 0.3
    ) -> None:
        """Compete under this name until cancelled."""
        times = ElectionSettings(namespace=self._namespace, name="l", identity=name, lease_duration=lease,
                                 renew_deadline=deadline, retry_period=period)  # fmt: skip
        election = LeaderElection(api, times, clock=SystemClock(), abort=lambda: pytest.fail("aborted"))
        await election.run(lambda: self._lead(name))

    async def _lead(self, name: str) -> None:
        self.at_work.append(name)
        self.terms += 1
        self.most = max(self.most, len(self.at_work))
        try:
            await asyncio.Event().wait()
        finally:
            self.at_work.remove(name)


async def test_leadership_is_handed_over_and_taken_over(
    client: Client, either_plane: Plane, relay: Relay, namespace: str
) -> None:
    """At shutdown at once, after a dead network when the lease has run out, and never two."""
    stage = Stage(namespace)

    async with (
        await connect(either_plane.kubeconfig) as direct,
        running(stage.candidate(direct, "first")) as first,
    ):
        await eventually(lambda: stage.at_work == ["first"])
        async with running(stage.candidate(client, "second")):
            first[0].cancel()
            await eventually(lambda: stage.at_work == ["second"], within=2)
            async with running(stage.candidate(direct, "third")):
                relay.silence()
                await eventually(lambda: stage.at_work == ["third"])
                relay.resume()
                lease = await direct.get_json(LEASES, "l", namespace)

    assert stage.most == 1
    assert lease["spec"]["leaseTransitions"] == 2


@pytest.mark.parametrize("fault", [*PASSING, pytest.param(hangs, id="no answer")])
async def test_a_leader_outlives_trouble_with_its_renewals(
    proxied: Client, either_plane: Plane, gateway: Gateway, namespace: str, fault: Fault
) -> None:
    """Two renewals in trouble within the deadline cost nothing: the term goes on, and nobody else gets in."""
    stage = Stage(namespace)
    times = {"lease": 9, "deadline": 6, "period": 0.2}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/l"

    async with await connect(either_plane.kubeconfig) as direct, running(stage.candidate(proxied, "us", **times)):
        await eventually(lambda: stage.at_work == ["us"])
        async with running(stage.candidate(direct, "other", **times)):
            gateway.plan("PUT", fault, fault)
            await eventually(lambda: not gateway.plans["PUT"])
            before = (await either_plane.cluster.get(path))["spec"]["renewTime"]
            lease = await either_plane.cluster.until(
                path, lambda found: found["spec"]["renewTime"] > before, what="the lease is renewed"
            )

    assert (stage.terms, stage.most) == (1, 1)
    assert lease["spec"]["holderIdentity"] == "us"
    assert lease["spec"]["leaseTransitions"] == 0


async def test_a_claim_whose_answer_was_lost_is_noticed(proxied: Client, gateway: Gateway, namespace: str) -> None:
    """The lease is ours although nobody told us: we lead at the next look, without waiting for ourselves to expire."""
    stage = Stage(namespace)
    gateway.plan("POST", acts_then(drops))

    async with running(stage.candidate(proxied, "us", lease=60, deadline=40)):
        await eventually(lambda: stage.at_work == ["us"], within=10)
