from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import trustme

from kqueue.clock import FakeClock
from kqueue.errors import ConfigError
from kqueue.sandbox.api import Object
from kqueue.sandbox.body import LARGEST
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.server import ApiServer
from tests.unit.sandbox.objects import CONFIG_MAPS, CRDS, config_map, definition, new_api, thing

MAPS = "/api/v1/namespaces/default/configmaps"
THINGS = "/apis/example.com/v1/namespaces/default/things"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
MERGE = "application/merge-patch+json"
END = "k8s.io/initial-events-end"


class Client:
    """HTTP against a server of its own."""

    def __init__(self, api: ClusterApi, server: ApiServer, session: aiohttp.ClientSession) -> None:
        self.api, self.server, self.session = api, server, session

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int = 200,
        kind: str = "application/json",
        **headers: str,
    ) -> Any:
        """The decoded answer, whose status must be `status`."""
        data: Any = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None and len(data) > 1 << 20:
            data = io.BytesIO(data)
        sent = {"Content-Type": kind, **headers} if data is not None else headers
        async with self.session.request(method, self.server.url + path, data=data, headers=sent) as answer:
            text = await answer.read()
            assert answer.status == status, text
            return json.loads(text)

    async def add(self, *names: str, namespace: str = "default", **labels: str) -> None:
        for name in names:
            await self.api.create(CONFIG_MAPS, config_map(name, namespace=namespace, labels=labels))

    @asynccontextmanager
    async def watch(self, query: str = "", path: str = MAPS, **headers: str) -> AsyncIterator[Watch]:
        async with self.session.get(f"{self.server.url}{path}?watch=1&{query}", headers=headers) as answer:
            assert answer.status == 200
            yield Watch(answer.content)

    def version(self) -> str:
        return str(self.api.versions.current)


class Watch:
    """The events of a watch."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    async def next(self) -> tuple[str, Object]:
        event = json.loads(await self._content.readline())
        return event["type"], event["object"]

    async def names(self, count: int) -> list[tuple[str, str]]:
        return [(kind, obj["metadata"]["name"]) for kind, obj in [await self.next() for _ in range(count)]]

    async def ended(self) -> bool:
        return await self._content.readline() == b""


@asynccontextmanager
async def serving(api: ClusterApi | None = None, **options: Any) -> AsyncIterator[Client]:
    api = api or new_api()
    server = ApiServer(api, **options)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield Client(api, server, session)
    await server.stop()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving() as client:
        yield client


async def test_objects_are_made_read_changed_and_deleted(client: Client) -> None:
    """The verbs of Kubernetes over HTTP, each with its status."""
    made = await client.ask("POST", MAPS, config_map(), status=201)
    read = await client.ask("GET", f"{MAPS}/c")
    changed = await client.ask("PATCH", f"{MAPS}/c", {"data": {"b": "2"}}, kind=MERGE)
    replaced = await client.ask("PUT", f"{MAPS}/c", {**changed, "data": {"z": "9"}})
    deleted = await client.ask("DELETE", f"{MAPS}/c")
    gone = await client.ask("GET", f"{MAPS}/c", status=404)

    assert read == made
    assert (changed["data"], replaced["data"]) == ({"a": "1", "b": "2"}, {"z": "9"})
    assert (deleted["status"], deleted["details"]["uid"]) == ("Success", made["metadata"]["uid"])
    assert gone == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'configmaps "c" not found',
        "reason": "NotFound",
        "code": 404,
        "details": {"name": "c", "kind": "configmaps"},
    }


JSON = "application/json"


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status", "reason"),
    [
        pytest.param("POST", MAPS, b"{nope", JSON, 400, "BadRequest", id="malformed-json"),
        pytest.param("POST", MAPS, b"\xff\xfe", JSON, 400, "BadRequest", id="not-even-text"),
        pytest.param("POST", MAPS, b"[" * 200_000, JSON, 400, "BadRequest", id="nested-without-end"),
        pytest.param("POST", MAPS, b"[1]", JSON, 400, "BadRequest", id="a-list-for-an-object"),
        pytest.param("POST", MAPS, b"", JSON, 400, "BadRequest", id="nothing"),
        pytest.param("POST", MAPS, b'{"metadata": 1}', JSON, 400, "BadRequest", id="metadata-that-is-a-number"),
        pytest.param("POST", MAPS, b'{"metadata":{"name":["x"]}}', JSON, 400, "BadRequest", id="a-name-that-is-a-list"),
        pytest.param("POST", MAPS, b"{}", "text/plain", 415, "UnsupportedMediaType", id="a-wrong-type"),
        pytest.param("POST", MAPS, b"x", "application/cbor", 415, "UnsupportedMediaType", id="cbor"),
        pytest.param("POST", MAPS, b"a: &a [x]\nb: *a", "application/yaml", 400, "BadRequest", id="yaml-with-aliases"),
        pytest.param("POST", MAPS, b"x" * (LARGEST + 1), JSON, 413, "RequestEntityTooLarge", id="too-long"),
        pytest.param("PATCH", f"{MAPS}/c", b"{}", "text/plain", 415, "UnsupportedMediaType", id="an-unknown-patch"),
        pytest.param("PATCH", f"{MAPS}/c", b"[1", MERGE, 400, "BadRequest", id="a-malformed-patch"),
        pytest.param("PATCH", f"{MAPS}/c", b"[]", MERGE, 400, "BadRequest", id="a-patch-that-is-a-list"),
        pytest.param("GET", "/api/v1/namespaces/default/nothing", None, JSON, 404, "NotFound", id="an-unknown-kind"),
        pytest.param("GET", "/apis/batch/v9/jobs", None, JSON, 404, "NotFound", id="an-unknown-version"),
        pytest.param("GET", f"{MAPS}/c/status", None, JSON, 404, "NotFound", id="a-subresource-it-does-not-have"),
        pytest.param("GET", f"{MAPS}/c/x/y/z", None, JSON, 404, "NotFound", id="a-path-too-deep"),
        pytest.param("POST", "/version", b"{}", JSON, 405, "MethodNotAllowed", id="writing-the-version"),
        pytest.param("PUT", MAPS, b"{}", JSON, 405, "MethodNotAllowed", id="a-method-that-makes-no-sense"),
        pytest.param("GET", f"{MAPS}?limit=abc", None, JSON, 400, "BadRequest", id="a-limit-that-is-no-number"),
        pytest.param("GET", f"{MAPS}?continue=zzz", None, JSON, 400, "BadRequest", id="a-token-that-is-none"),
        pytest.param("GET", f"{MAPS}?labelSelector=a%20b", None, JSON, 400, "BadRequest", id="a-bad-selector"),
        pytest.param("GET", f"{MAPS}?resourceVersion=999999", None, JSON, 504, "Timeout", id="a-version-of-the-future"),
        pytest.param("POST", f"{MAPS}?dryRun=Some", b"{}", JSON, 422, "Invalid", id="half-a-dry-run"),
        pytest.param("DELETE", f"{MAPS}/c", b'{"gracePeriodSeconds":"x"}', JSON, 400, "BadRequest", id="bad-grace"),
        pytest.param("DELETE", f"{MAPS}/c", b'{"propagationPolicy":"x"}', JSON, 422, "Invalid", id="bad-propagation"),
    ],
)
async def test_bad_requests_get_a_status(
    client: Client, method: str, path: str, body: bytes | None, kind: str, status: int, reason: str
) -> None:
    """Each has its code, its reason and a sentence, and the server goes on."""
    await client.add("c")

    answer = await client.ask(method, path, body, kind=kind, status=status)

    assert (answer["kind"], answer["code"], answer["reason"]) == ("Status", status, reason)
    assert answer["message"]
    assert await client.ask("GET", f"{MAPS}/c")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/apis/nope.example/v1", id="an-unknown-group"),
        pytest.param("/apis/nope.example/v1/things", id="a-kind-of-an-unknown-group"),
        pytest.param("/apis/example.com/v1/nothings", id="an-unknown-kind-of-a-custom-group"),
        pytest.param("/somewhere", id="an-unknown-path"),
    ],
)
async def test_what_nobody_serves_is_plain_text(client: Client, path: str) -> None:
    """As of a real server; clients tell a missing kind from a missing object by it."""
    await client.api.create(CRDS, definition())

    async with client.session.get(client.server.url + path) as answer:
        told = answer.status, answer.content_type, await answer.text()

    assert told == (404, "text/plain", "404 page not found\n")


async def test_a_deep_object_is_taken_or_refused(client: Client) -> None:
    """At no depth does the server fail; beyond what it can walk it says so."""
    await client.api.create(CRDS, definition())
    for depth in (10, 100, 300, 500, 700, 900):
        deep = "{}"
        for _ in range(depth):
            deep = f'{{"a":{deep}}}'
        text = f'{{"metadata":{{"name":"d{depth}"}},"spec":{{"free":{deep}}}}}'
        async with client.session.post(client.server.url + THINGS, data=text, headers={"Content-Type": JSON}) as answer:
            assert answer.status in ((201,) if depth <= 100 else (201, 400))


async def test_a_body_of_unknown_length_is_cut_off(client: Client) -> None:
    """413 comes before the end of a body that never ends."""

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(LARGEST // 65536 + 10):
            yield b"x" * 65536

    async with client.session.post(client.server.url + MAPS, data=endless()) as answer:
        assert answer.status == 413


async def test_discovery_names_all_kinds(client: Client) -> None:
    """Per group, per version, and in one document; custom kinds too."""
    await client.api.create(CRDS, definition())

    groups = {group["name"] for group in (await client.ask("GET", "/apis"))["groups"]}
    things = (await client.ask("GET", "/apis/example.com/v1"))["resources"]
    core = {each["name"]: each for each in (await client.ask("GET", "/api/v1"))["resources"]}
    whole = await client.ask(
        "GET", "/apis", Accept="application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )

    assert {"batch", "apps", "example.com", "authorization.k8s.io"} <= groups
    assert [each["name"] for each in things] == ["things", "things/status"]
    assert (core["pods"]["shortNames"], core["pods/eviction"]["group"]) == (["po"], "policy")
    found = {item["metadata"]["name"]: item["versions"][0]["resources"] for item in whole["items"]}
    assert found["example.com"][0]["subresources"][0]["subresource"] == "status"
    for path in ("/version", "/api", "/openapi/v3", "/openapi/v3/apis/example.com/v1", "/openapi/v3/api/v1"):
        assert await client.ask("GET", path)


async def test_a_schema_carries_the_words_of_its_definition(client: Client) -> None:
    """So that kubectl explain can say them."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "description": "What is wanted."}}}
    await client.api.create(CRDS, definition(schema=schema))

    document = await client.ask("GET", "/openapi/v3/apis/example.com/v1")

    found = document["components"]["schemas"]["com.example.v1.Thing"]
    assert found["properties"]["spec"]["description"] == "What is wanted."
    assert found["x-kubernetes-group-version-kind"] == [{"group": "example.com", "version": "v1", "kind": "Thing"}]


async def test_a_list_in_pages_shows_one_moment(client: Client) -> None:
    """Whatever is written between pages, all pages show the objects of the first one's version."""
    await client.add("a", "b", "c", "d", "e")
    first = await client.ask("GET", f"{MAPS}?limit=2")
    await client.add("bb")
    await client.ask("DELETE", f"{MAPS}/d")
    await client.ask("PATCH", f"{MAPS}/e", {"data": {"a": "new"}}, kind=MERGE)
    pages = [first]
    while token := pages[-1]["metadata"].get("continue"):
        pages.append(await client.ask("GET", f"{MAPS}?limit=2&continue={token}"))

    items = [item for page in pages for item in page["items"]]
    assert [item["metadata"]["name"] for item in items] == ["a", "b", "c", "d", "e"]
    assert items[-1]["data"] == {"a": "1"}
    assert {page["metadata"]["resourceVersion"] for page in pages} == {first["metadata"]["resourceVersion"]}
    assert first["metadata"]["remainingItemCount"] == 3


async def test_a_page_that_comes_too_late_is_gone() -> None:
    """When the log no longer knows the first page's moment, 410 says: start again."""
    async with serving(new_api(log_length=3)) as client:
        await client.add("a", "b")
        token = (await client.ask("GET", f"{MAPS}?limit=1"))["metadata"]["continue"]
        await client.add("c", "d", "e", "f")

        gone = await client.ask("GET", f"{MAPS}?limit=1&continue={token}", status=410)

    assert gone["reason"] == "Expired"


async def test_lists_are_narrowed(client: Client) -> None:
    """By namespace, labels and fields."""
    await client.add("a", "b", x="1")
    await client.add("c", x="2")
    await client.add("a", namespace="kube-system", x="1")

    async def names(path: str) -> list[str]:
        return [each["metadata"]["name"] for each in (await client.ask("GET", path))["items"]]

    assert await names("/api/v1/configmaps") == ["a", "b", "c", "a", "extension-apiserver-authentication"]
    assert await names(f"{MAPS}?labelSelector=x%3D1") == ["a", "b"]
    assert await names(f"{MAPS}?fieldSelector=metadata.name%3Dc") == ["c"]
    assert await names("/api/v1/configmaps?labelSelector=x+in+(1)&fieldSelector=metadata.namespace!%3Ddefault") == ["a"]


async def test_a_collection_can_be_deleted(client: Client) -> None:
    """What the selector chooses goes, the rest stays."""
    await client.add("a", "b", x="1")
    await client.add("c", x="2")

    deleted = await client.ask("DELETE", f"{MAPS}?labelSelector=x%3D1")

    assert [each["metadata"]["name"] for each in deleted["items"]] == ["a", "b"]
    assert [each["metadata"]["name"] for each in client.api.list(CONFIG_MAPS, namespace="default")] == ["c"]


async def test_tables_have_columns_and_rows(client: Client) -> None:
    """In lists, for one object, and in watches with the heads only once."""
    await client.add("a", "b")

    table = await client.ask("GET", MAPS, Accept=TABLE)
    one = await client.ask("GET", f"{MAPS}/a?includeObject=Object", Accept=TABLE)
    async with client.watch(Accept=TABLE) as watch:
        (_, first), (_, second) = await watch.next(), await watch.next()

    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"] for row in table["rows"]] == [["a", 1, "0s"], ["b", 1, "0s"]]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert one["rows"][0]["object"]["data"] == {"a": "1"}
    assert first["columnDefinitions"]
    assert second["columnDefinitions"] is None
    assert second["rows"][0]["cells"][0] == "b"


async def test_a_watch_follows_from_a_version(client: Client) -> None:
    """Everything after it, in order, each once."""
    await client.add("before")
    version = client.version()
    await client.add("a")
    async with client.watch(f"resourceVersion={version}") as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        await client.ask("PATCH", f"{MAPS}/a", {"data": {"b": "2"}}, kind=MERGE)
        await client.ask("DELETE", f"{MAPS}/a")
        kinds = [await watch.next() for _ in range(2)]

    assert [kind for kind, _ in kinds] == ["MODIFIED", "DELETED"]
    assert int(kinds[1][1]["metadata"]["resourceVersion"]) > int(kinds[0][1]["metadata"]["resourceVersion"])


async def test_a_watch_without_a_version_begins_with_what_is_there(client: Client) -> None:
    """As if it had just been added."""
    await client.add("a", "b")
    async with client.watch() as watch:
        assert await watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_streamed_list_says_where_it_ends(client: Client) -> None:
    """sendInitialEvents: all objects, then a marked bookmark, then what comes."""
    await client.add("a", "b")
    query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with client.watch(query) as watch:
        assert await watch.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        kind, bookmark = await watch.next()
        await client.add("c")
        assert await watch.names(1) == [("ADDED", "c")]

    assert (kind, bookmark["metadata"]["annotations"]) == ("BOOKMARK", {END: "true"})
    assert int(bookmark["metadata"]["resourceVersion"]) <= client.api.versions.current
    refused = await client.ask("GET", f"{MAPS}?watch=1&sendInitialEvents=true", status=422)
    assert "resourceVersionMatch" in refused["message"]


async def test_objects_come_into_a_selection_and_leave_it(client: Client) -> None:
    """Coming in is ADDED, going out is DELETED, what stays outside is silent."""
    version = client.version()
    async with client.watch(f"resourceVersion={version}&labelSelector=x%3D1") as watch:
        await client.add("in", x="1")
        await client.add("out", x="2")
        for name, value in (("out", "1"), ("in", "2"), ("out", "1b"), ("in", "1")):
            await client.ask("PATCH", f"{MAPS}/{name}", {"metadata": {"labels": {"x": value}}}, kind=MERGE)
        seen = await watch.names(5)

    assert seen == [("ADDED", "in"), ("ADDED", "out"), ("DELETED", "in"), ("DELETED", "out"), ("ADDED", "in")]


async def test_a_watch_sees_one_namespace_or_one_name(client: Client) -> None:
    """What is elsewhere is none of its business."""
    version = client.version()
    async with (
        client.watch(f"resourceVersion={version}") as space,
        client.watch(f"resourceVersion={version}&fieldSelector=metadata.name%3Db", "/api/v1/configmaps") as name,
    ):
        await client.add("a", "b", namespace="kube-system")
        await client.add("a", "b")
        assert await space.names(2) == [("ADDED", "a"), ("ADDED", "b")]
        assert await name.names(2) == [("ADDED", "b"), ("ADDED", "b")]


async def test_a_version_that_is_too_old_is_told_in_the_stream() -> None:
    """ERROR with 410, and the watch ends."""
    async with serving(new_api(log_length=2)) as client:
        version = client.version()
        await client.add("a", "b", "c", "d")
        async with client.watch(f"resourceVersion={version}") as watch:
            kind, status = await watch.next()
            assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
            assert await watch.ended()


async def test_bookmarks_come_each_minute_and_watches_end() -> None:
    """On the server's clock: a bookmark after a minute, and one more at the end of the time asked for."""
    clock = FakeClock()
    async with serving(ClusterApi(clock)) as client:
        query = f"resourceVersion={client.version()}&allowWatchBookmarks=1&timeoutSeconds=90"
        async with client.watch(query) as watch:
            await client.add("a")
            assert await watch.names(1) == [("ADDED", "a")]
            await clock.advance(60)
            first = await watch.next()
            await clock.advance(30)
            second = await watch.next()
            assert await watch.ended()

    for kind, obj in (first, second):
        assert (kind, obj["kind"], obj["metadata"]["resourceVersion"]) == ("BOOKMARK", "ConfigMap", client.version())


async def test_a_watch_ends_with_its_kind_and_with_the_server(client: Client) -> None:
    """Nobody waits for ever."""
    await client.api.create(CRDS, definition())
    async with client.watch("", THINGS) as things, client.watch(f"resourceVersion={client.version()}") as maps:
        await client.api.delete(CRDS, "things.example.com")
        await client.api.patch(CRDS, "things.example.com", {"metadata": {"finalizers": []}})
        assert await things.ended()
        stopping = asyncio.create_task(client.server.stop())
        assert await maps.ended()
        await stopping


async def test_many_watchers_see_the_same(client: Client) -> None:
    """Fifty watchers, a hundred changes: each sees all of them in order."""
    version = client.version()

    async def follow() -> list[str]:
        async with client.watch(f"resourceVersion={version}") as watch:
            return [name for _, name in await watch.names(100)]

    client.session._connector._limit = 0  # type: ignore[union-attr]
    watchers = [asyncio.create_task(follow()) for _ in range(50)]
    names = [f"c{index:03d}" for index in range(100)]
    for name in names:
        await client.add(name)
        await asyncio.sleep(0)

    assert all(seen == names for seen in await asyncio.gather(*watchers))


async def test_server_side_apply_over_http(client: Client) -> None:
    """Creates with 201, changes with 200, takes YAML, and wants to know who asks."""
    path = f"{MAPS}/c?fieldManager=me"
    yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  when: '2026-01-01'\n"
    apply = "application/apply-patch+yaml"

    made = await client.ask("PATCH", path, yaml, kind=apply, status=201)
    again = await client.ask("PATCH", path, {**config_map(), "data": {"b": "2"}}, kind=apply)
    refused = await client.ask("PATCH", f"{MAPS}/c", yaml, kind=apply, status=400)

    assert made["data"] == {"when": "2026-01-01"}
    assert again["data"] == {"b": "2"}
    assert "fieldManager is required" in refused["message"]


async def test_warnings_are_a_header(client: Client) -> None:
    """Unknown fields are dropped with a word."""
    body = {**config_map(), "dta": {}, "x": 1}
    async with client.session.post(client.server.url + MAPS, json=body) as answer:
        assert answer.status == 201
        assert answer.headers["Warning"] == '299 - "unknown field \\"dta\\"", 299 - "unknown field \\"x\\""'


async def test_access_reviews_say_yes(client: Client) -> None:
    """Everybody may do everything, and is told who they are."""
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = await client.ask("POST", path, {"spec": {"resourceAttributes": {"verb": "get"}}}, status=201)
    self = await client.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, status=201)

    assert review["status"]["allowed"] is True
    assert self["status"]["userInfo"]["username"] == "system:admin"


async def test_a_custom_object_over_http(client: Client) -> None:
    """Stored by JSON, refused as a strategic patch, with all its mistakes in the details."""
    await client.api.create(CRDS, definition())
    await client.ask("POST", THINGS, thing(n=3), status=201)
    refused = await client.ask("PATCH", f"{THINGS}/t", {"spec": {"n": 99, "color": "x"}}, kind=MERGE, status=422)

    assert [cause["field"] for cause in refused["details"]["causes"]] == ["spec.n", "spec.color"]
    strategic = "application/strategic-merge-patch+json"
    assert await client.ask("PATCH", f"{THINGS}/t", {}, kind=strategic, status=415)


async def test_a_port_that_is_taken_is_named() -> None:
    """With the remedy."""
    async with serving() as first:
        second = ApiServer(new_api(), port=first.server.port)
        with pytest.raises(ConfigError, match=rf"port {first.server.port} on 127\.0\.0\.1 is taken: .*choose another"):
            await second.start()
        await second.stop()


async def test_an_address_that_is_not_ours_is_named() -> None:
    """And stopping what has not started does nothing."""
    with pytest.raises(ConfigError, match="cannot listen on"):
        await ApiServer(new_api(), "203.0.113.1").start()


async def test_tls_and_token() -> None:
    """HTTPS with the given certificate; without the token only health is told."""
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)
    async with serving(tls=server_side, token="secret") as client:
        url = client.server.url
        assert url.startswith("https://")
        for path, headers, status in (
            ("/version", {}, 401),
            ("/version", {"Authorization": "Bearer wrong"}, 401),
            ("/version", {"Authorization": "Bearer secret"}, 200),
            ("/readyz", {}, 200),
        ):
            async with client.session.get(url + path, headers=headers, ssl=client_side) as answer:
                assert answer.status == status
