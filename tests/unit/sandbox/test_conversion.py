"""Custom kinds of two versions with a conversion webhook."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trustme
from aiohttp import web

from kqueue.errors import ApiError, ConflictError, ServerError
from kqueue.sandbox import listing, route, watching
from kqueue.sandbox.admission import MUTATING, VALIDATING
from kqueue.sandbox.api import APPLY_PATCH, CRDS, GroupVersionResource, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.collector import Collector
from kqueue.sandbox.objects import WriteOptions
from tests.unit.sandbox.objects import new_api

NEW, OLD = (GroupVersionResource("example.com", version, "boxes") for version in ("v2", "v1"))
VERSIONS = {"v2": "width", "v1": "wide"}
"""Version to the name of its only field."""


class Webhook:
    """Renames the field, keeps what it was asked, and answers admission reviews, too."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.asked: list[Object] = []
        self.reviewed: list[Object] = []
        self.result: Object = {"status": "Success"}
        self.change: Callable[[Object], Object] = lambda obj: obj
        self.patch: list[Object] = []
        self.port = 0

    async def convert(self, request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        self.asked.append(asked)
        found = [self.change(in_version(obj, asked["desiredAPIVersion"])) for obj in asked["objects"]]
        response = {"uid": asked["uid"], "convertedObjects": found, "result": self.result}
        return web.json_response(
            {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": response}
        )

    async def review(self, request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        self.reviewed.append(asked)
        response: Object = {"uid": asked["uid"], "allowed": True}
        if self.patch:
            text = base64.b64encode(json.dumps(self.patch).encode()).decode()
            response |= {"patchType": "JSONPatch", "patch": text}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})

    def client_config(self, path: str) -> Object:
        bundle = base64.b64encode(self.authority.cert_pem.bytes()).decode()
        return {"url": f"https://127.0.0.1:{self.port}{path}", "caBundle": bundle}

    def definition(self, stored: str = "v2") -> Object:
        def version(name: str, field: str) -> Object:
            spec = {"type": "object", "properties": {field: {"type": "integer"}, "other": {"type": "integer"}}}
            schema = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
            return {"name": name, "served": True, "storage": name == stored, "deprecated": name == "v1",
                    "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}  # fmt: skip

        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": self.client_config("/convert")}
        return {
            "metadata": {"name": "boxes.example.com"},
            "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"plural": "boxes", "kind": "Box"},
                "versions": [version(name, field) for name, field in VERSIONS.items()],
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        }  # fmt: skip


def in_version(obj: Object, api_version: str) -> Object:
    """The box with its field under the name of a version."""
    old, new = (VERSIONS[each.rpartition("/")[2]] for each in (obj["apiVersion"], api_version))
    spec = {new if key == old else key: value for key, value in obj.get("spec", {}).items()}
    return {**obj, "apiVersion": api_version, "spec": spec}


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    made = Webhook()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.authority.issue_cert("127.0.0.1").configure_cert(tls)
    app = web.Application()
    app.router.add_post("/convert", made.convert)
    app.router.add_post("/review", made.review)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def api(webhook: Webhook) -> AsyncIterator[ClusterApi]:
    made = new_api()
    await made.create(CRDS, webhook.definition())
    yield made
    await made.admission.close()


def box(name: str = "b", version: str = "v2", **spec: int) -> Object:
    return {"apiVersion": f"example.com/{version}", "kind": "Box", "metadata": {"name": name}, "spec": spec}


async def listed(api: ClusterApi, resource: GroupVersionResource, **query: str) -> list[Object]:
    """A list as the HTTP front makes it."""
    kind = api.kind(resource)
    found = route.parse(f"/apis/example.com/{resource.version}/boxes")
    assert found is not None
    page = await listing.page(api, kind, route.selection(found, kind, query), query)
    return [kind.shown(record) for record in page.records]


async def test_an_object_is_stored_in_one_version_and_shown_in_both(api: ClusterApi, webhook: Webhook) -> None:
    """The webhook is asked for the other version only; metadata of the server stays."""
    made = await api.create(OLD, box(version="v1", wide=3))
    new = api.get(NEW, "b")
    asked = len(webhook.asked)
    again = await api.update(NEW, {**new, "spec": {"width": 4}})

    assert (made["apiVersion"], made["spec"]) == ("example.com/v1", {"wide": 3})
    assert (new["apiVersion"], new["spec"]) == ("example.com/v2", {"width": 3})
    assert made["metadata"] == new["metadata"]
    assert (again["spec"], again["metadata"]["generation"]) == ({"width": 4}, 2)
    assert len(webhook.asked) == asked


async def test_a_list_is_converted_in_one_review(api: ClusterApi, webhook: Webhook) -> None:
    """And each object once, however often it is read."""
    for name in "abc":
        await api.create(NEW, box(name, width=1))

    found = [obj["spec"] for obj in await listed(api, OLD)]
    await listed(api, OLD)

    assert found == [{"wide": 1}] * 3
    assert [len(asked["objects"]) for asked in webhook.asked] == [3]


async def test_objects_keep_the_version_in_which_they_were_stored(api: ClusterApi, webhook: Webhook) -> None:
    """After a change of the stored version they are converted when read; a write without a change stores them anew."""
    made = await api.create(NEW, box(width=1))
    await api.update(CRDS, webhook.definition("v1") | {"metadata": api.get(CRDS, "boxes.example.com")["metadata"]})
    kind = api.kind(NEW)
    before = api.store(kind).get("", "b")
    written = await api.patch(NEW, "b", {})
    after = api.store(kind).get("", "b")

    assert before is not None
    assert after is not None
    assert (before.obj["apiVersion"], after.obj["apiVersion"]) == ("example.com/v2", "example.com/v1")
    assert written["spec"] == {"width": 1}
    assert written["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    with pytest.raises(ServerError, match=r"is stored as example\.com/v1"):
        api.get(
            GroupVersionResource("example.com", "v2", "boxes"),
            (await api.create(OLD, box("c", "v1")))["metadata"]["name"],
        )


@pytest.mark.parametrize("way", ["get", "list", "create", "update", "delete"])
async def test_a_webhook_that_fails_refuses_the_request(api: ClusterApi, webhook: Webhook, way: str) -> None:
    """With its words; nothing is stored."""
    await api.create(NEW, box(width=1))
    webhook.result = {"status": "Failure", "message": "no box"}
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: api.forms.shown(api.kind(OLD), api.record(api.kind(OLD), "b", None)),
        "list": lambda: listed(api, OLD),
        "create": lambda: api.create(OLD, box("c", "v1", wide=1)),
        "update": lambda: api.patch(OLD, "b", {"spec": {"wide": 2}}),
        "delete": lambda: api.delete(OLD, "b"),
    }

    with pytest.raises(ServerError, match=r"conversion webhook for example\.com/v., Kind=Box failed: no box"):
        await calls[way]()

    assert [obj["spec"] for obj in api.list(NEW)] == [{"width": 1}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda obj: {**obj, "kind": "Bag"}, "expected example.com/v1 Box", id="another-kind"),
        pytest.param(lambda obj: {**obj, "apiVersion": "v9"}, "got v9 Box", id="another-version"),
        pytest.param(lambda obj: {**obj, "metadata": None}, "no metadata", id="no-metadata"),
        pytest.param(
            lambda obj: {**obj, "metadata": {**obj["metadata"], "name": "x"}}, "metadata.name .* is 'x'", id="renamed"
        ),
    ],
)
async def test_a_converted_object_must_be_the_same_one(
    api: ClusterApi, webhook: Webhook, change: Callable[[Object], Object], said: str
) -> None:
    """As the real server checks it."""
    await api.create(NEW, box(width=1))
    webhook.change = change

    with pytest.raises(ServerError, match=said):
        await listed(api, OLD)


async def test_a_conversion_may_change_labels_and_annotations_only(api: ClusterApi, webhook: Webhook) -> None:
    """Of the metadata."""
    await api.create(NEW, box(width=1))
    webhook.change = lambda obj: {
        **obj, "metadata": {**obj["metadata"], "annotations": {"a": "b"}, "generation": 9}
    }  # fmt: skip

    (found,) = await listed(api, OLD)

    assert (found["metadata"]["annotations"], found["metadata"]["generation"]) == ({"a": "b"}, 1)


async def test_a_watch_shows_every_change_in_its_version(api: ClusterApi, webhook: Webhook) -> None:
    """Also of objects that begin and cease to match."""
    await api.create(NEW, box(width=1))
    kind = api.kind(OLD)
    found = route.parse("/apis/example.com/v1/boxes")
    assert found is not None
    wanted = watching.request(kind, route.selection(found, kind, {}), {}, listing.encoded)
    stream = watching.stream(api, wanted, lambda: False)
    first = await anext(stream)
    await api.patch(NEW, "b", {"spec": {"width": 2}})
    second = await anext(stream)
    webhook.result = {"status": "Failure", "message": "no box"}
    await api.patch(NEW, "b", {"spec": {"width": 3}})
    last = await anext(stream)
    await stream.aclose()

    assert b'"type":"ADDED"' in first
    assert b'"wide":1' in first
    assert b'"type":"MODIFIED"' in second
    assert b'"wide":2' in second
    assert b'"type":"ERROR"' in last
    assert b"no box" in last


async def test_webhooks_get_the_version_of_their_rules(api: ClusterApi, webhook: Webhook) -> None:
    """A write in another version is converted for them, and their patch back."""
    rule = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v2"], "resources": ["boxes"]}
    hook = {"name": "hook.example.com", "clientConfig": webhook.client_config("/review"), "rules": [rule],
            "sideEffects": "None", "admissionReviewVersions": ["v1"]}  # fmt: skip
    exact = {**hook, "name": "exact.example.com", "matchPolicy": "Exact"}
    await api.create(MUTATING, {"metadata": {"name": "m"}, "webhooks": [hook]})
    await api.create(VALIDATING, {"metadata": {"name": "v"}, "webhooks": [hook, exact]})
    webhook.patch = [{"op": "replace", "path": "/spec/width", "value": 7}]

    made = await api.create(OLD, box(version="v1", wide=3))
    webhook.patch = []
    await api.patch(OLD, "b", {"spec": {"wide": 8}})

    assert made["spec"] == {"wide": 7}
    assert [each["object"]["spec"] for each in webhook.reviewed] == [
        {"width": 3},
        {"width": 7},
        {"width": 8},
        {"width": 8},
    ]
    assert webhook.reviewed[-1]["oldObject"]["spec"] == {"width": 7}
    assert (webhook.reviewed[0]["kind"]["version"], webhook.reviewed[0]["requestKind"]["version"]) == ("v2", "v1")


async def test_owners_of_fields_are_known_in_both_versions(api: ClusterApi) -> None:
    """A field that was applied in one version clashes with the same field of the other, under its other name."""
    ours, theirs = (WriteOptions(manager=name) for name in ("ours", "theirs"))
    await api.patch(OLD, "b", box(version="v1", wide=1), content_type=APPLY_PATCH, options=ours)

    with pytest.raises(ConflictError, match=r"\.spec\.width"):
        await api.patch(NEW, "b", box(width=2), content_type=APPLY_PATCH, options=theirs)
    await api.patch(NEW, "b", box(other=5), content_type=APPLY_PATCH, options=theirs)
    released = await api.patch(NEW, "b", box(other=5), content_type=APPLY_PATCH, options=ours)

    assert released["spec"] == {"other": 5}


async def test_a_kind_is_deleted_with_its_objects_without_its_webhook(webhook: Webhook) -> None:
    """The stored version is enough for the collector."""
    api = new_api()
    await api.create(CRDS, webhook.definition())
    await api.create(OLD, box(version="v1", wide=1))
    webhook.result = {"status": "Failure"}
    collector = asyncio.create_task((running := Collector(api)).run())
    await api.delete(CRDS, "boxes.example.com")
    async with asyncio.timeout(5):
        while not running.idle or api.every(CRDS):
            await asyncio.sleep(0.01)
    collector.cancel()
    await api.admission.close()

    with pytest.raises(ApiError):
        api.list(NEW)
