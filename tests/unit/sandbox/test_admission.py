from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme
from aiohttp import web

from kqueue.errors import ForbiddenError, InvalidError, ServerError
from kqueue.sandbox.admission import MUTATING, VALIDATING
from kqueue.sandbox.api import JOBS, NAMESPACES, Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.objects import WriteOptions
from tests.unit.sandbox.objects import CONFIG_MAPS, config_map, job, new_api

Answer = Callable[[Object], Object]
RULE: Object = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}


class Webhook:
    """A webhook over HTTPS that keeps what it was asked."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.asked: list[Object] = []
        self.answer: Answer = lambda _: {"allowed": True}
        self.status = 200
        self.pause: asyncio.Event | None = None
        self.port = 0

    async def handle(self, request: web.Request) -> web.Response:
        review = await request.json()
        self.asked.append(review["request"])
        if self.pause is not None:
            await self.pause.wait()
        response = {"uid": review["request"]["uid"], **self.answer(review["request"])}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response},
                                 status=self.status)  # fmt: skip

    def configuration(self, **more: Any) -> Object:
        """A configuration with this webhook in it."""
        bundle = base64.b64encode(self.authority.cert_pem.bytes()).decode()
        client = {"url": f"https://127.0.0.1:{self.port}/hook", "caBundle": bundle}
        hook = {
            "name": "hook.example.com",
            "clientConfig": client,
            "rules": [RULE],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 2,
            **more,
        }
        return {"metadata": {"name": "w"}, "webhooks": [hook]}


@asynccontextmanager
async def served(webhook: Webhook, *names: str) -> AsyncIterator[Webhook]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    webhook.authority.issue_cert("127.0.0.1", *names).configure_cert(context)
    app = web.Application()
    app.router.add_post("/hook", webhook.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    webhook.port = runner.addresses[0][1]
    try:
        yield webhook
    finally:
        await runner.cleanup()


@pytest.fixture
async def webhook() -> AsyncIterator[Webhook]:
    async with served(Webhook(), "hook.default.svc") as webhook:
        yield webhook


@pytest.fixture
async def api() -> AsyncIterator[ClusterApi]:
    api = new_api()
    yield api
    await api.admission.close()


def patching(*operations: Object) -> Answer:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def adds(key: str, value: str = "x") -> Object:
    return {"op": "add", "path": f"/data/{key}", "value": value}


async def test_a_mutating_webhook_changes_the_object(api: ClusterApi, webhook: Webhook) -> None:
    """It is asked with everything a review carries, and its patch is applied."""
    await api.create(MUTATING, webhook.configuration())
    webhook.answer = patching(adds("b"))

    made = await api.create(CONFIG_MAPS, config_map())

    assert made["data"] == {"a": "1", "b": "x"}
    (request,) = webhook.asked
    assert (request["operation"], request["name"], request["namespace"]) == ("CREATE", "c", "default")
    assert request["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (request["object"]["data"], request["oldObject"], request["dryRun"]) == ({"a": "1"}, None, False)


async def test_what_a_webhook_adds_is_checked_and_defaulted(api: ClusterApi, webhook: Webhook) -> None:
    """A patch is as good as what a user writes: unknown fields go, quantities are normalized, rules hold."""
    rule = {**RULE, "apiGroups": ["batch"], "resources": ["jobs"]}
    await api.create(MUTATING, webhook.configuration(rules=[rule]))
    container = "/spec/template/spec/containers/0"
    webhook.answer = patching(
        {"op": "add", "path": f"{container}/resources/requests", "value": {"cpu": "1000m"}},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
        {"op": "replace", "path": "/spec/suspend", "value": True},
    )
    made = await api.create(JOBS, job())

    assert made["spec"]["suspend"] is True
    assert "nonsense" not in made["spec"]
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    webhook.answer = patching({"op": "replace", "path": "/spec/parallelism", "value": -1})
    with pytest.raises(InvalidError, match="greater than or equal to 0"):
        await api.create(JOBS, job("k"))


async def test_a_validating_webhook_refuses_with_its_own_words(api: ClusterApi, webhook: Webhook) -> None:
    """Message and code are passed on; nothing is stored; it sees what mutating ones left."""
    await api.create(VALIDATING, webhook.configuration())
    webhook.answer = lambda _: {"allowed": False, "status": {"message": "not on a Friday", "code": 422}}

    with pytest.raises(InvalidError, match="denied the request: not on a Friday") as caught:
        await api.create(CONFIG_MAPS, config_map())
    assert caught.value.status == 422
    assert not api.list(CONFIG_MAPS)
    webhook.answer = lambda _: {"allowed": False}
    with pytest.raises(ForbiddenError, match="without explanation"):
        await api.create(CONFIG_MAPS, config_map())


async def test_updates_and_deletions_are_asked_about(api: ClusterApi, webhook: Webhook) -> None:
    """With the object before and after."""
    await api.create(VALIDATING, webhook.configuration())
    await api.create(CONFIG_MAPS, config_map())
    await api.patch(CONFIG_MAPS, "c", {"data": {"a": "2"}}, namespace="default")
    await api.delete(CONFIG_MAPS, "c", namespace="default")

    _, update, delete = webhook.asked
    assert (update["operation"], update["oldObject"]["data"], update["object"]["data"]) == (
        "UPDATE", {"a": "1"}, {"a": "2"},
    )  # fmt: skip
    assert (delete["operation"], delete["object"], delete["oldObject"]["data"]) == ("DELETE", None, {"a": "2"})


NEVER: dict[str, Any] = {"objectSelector": {"matchLabels": {"managed": "yes"}}}


@pytest.mark.parametrize(
    ("how", "asked"),
    [
        pytest.param({}, True, id="a-rule-that-names-the-kind"),
        pytest.param({"rules": [{**RULE, "operations": ["UPDATE"]}]}, False, id="another-operation"),
        pytest.param({"rules": [{**RULE, "resources": ["pods"]}]}, False, id="another-kind"),
        pytest.param({"rules": [{**RULE, "resources": ["*"]}]}, True, id="all-kinds"),
        pytest.param({"rules": [{**RULE, "resources": ["configmaps/status"]}]}, False, id="only-a-subresource"),
        pytest.param({"rules": [{**RULE, "resources": ["*/*"]}]}, True, id="all-kinds-and-subresources"),
        pytest.param({"rules": [{**RULE, "apiGroups": ["apps"]}]}, False, id="another-group"),
        pytest.param({"rules": [{**RULE, "apiVersions": ["v2"]}]}, False, id="another-version"),
        pytest.param({"rules": [{**RULE, "scope": "Cluster"}]}, False, id="another-scope"),
        pytest.param({"rules": [{**RULE, "scope": "Namespaced"}]}, True, id="its-scope"),
        pytest.param({"objectSelector": {"matchLabels": {"x": "y"}}}, True, id="labels-of-the-object"),
        pytest.param(NEVER, False, id="other-labels"),
        pytest.param(
            {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True, id="its-namespace"
        ),
        pytest.param(
            {"namespaceSelector": {"matchExpressions": [{"key": "z", "operator": "Exists"}]}},
            False,
            id="not-its-namespace",
        ),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "object.metadata.name == 'c'"}]}, True, id="a-condition"
        ),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "has(object.data.b)"}]}, False, id="a-condition-that-fails"
        ),
    ],
)
async def test_who_is_asked(api: ClusterApi, webhook: Webhook, how: dict[str, Any], asked: bool) -> None:
    """Rules, selectors and conditions choose; all must agree."""
    await api.create(MUTATING, webhook.configuration(**how))

    await api.create(CONFIG_MAPS, config_map(labels={"x": "y"}))

    assert bool(webhook.asked) is asked


async def test_subresources_have_rules_of_their_own(api: ClusterApi, webhook: Webhook) -> None:
    """A rule for the kind is silent about its status, and the other way round."""
    rule = {**RULE, "apiGroups": ["batch"], "resources": ["jobs/status"]}
    await api.create(VALIDATING, webhook.configuration(rules=[rule]))
    await api.create(JOBS, job())
    await api.patch(JOBS, "j", {"status": {"active": 1}}, namespace="default", subresource="status")

    assert [(each["operation"], each["subResource"]) for each in webhook.asked] == [("UPDATE", "status")]


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize(
    "fault",
    ["gone", "slow", "status", "unsigned", "not-a-review", "bad-patch", "condition"],
)
async def test_a_webhook_that_fails(api: ClusterApi, webhook: Webhook, fault: str, policy: str) -> None:
    """Its policy decides: the write is refused with a sentence that names it, or goes on as if it were not there."""
    configuration = webhook.configuration(failurePolicy=policy, timeoutSeconds=1)
    hook = configuration["webhooks"][0]
    match fault:
        case "gone":
            hook["clientConfig"]["url"] = "https://127.0.0.1:1/hook"
        case "slow":
            webhook.pause = asyncio.Event()
        case "status":
            webhook.status = 500
        case "unsigned":
            hook["clientConfig"]["caBundle"] = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
        case "not-a-review":
            webhook.answer = lambda _: {"allowed": "perhaps"}
        case "bad-patch":
            webhook.answer = patching({"op": "remove", "path": "/data/nope"})
        case _:
            hook["matchConditions"] = [{"name": "c", "expression": "object.data.nope == 'x'"}]
    await api.create(MUTATING, configuration)

    if policy == "Ignore":
        assert (await api.create(CONFIG_MAPS, config_map()))["data"] == {"a": "1"}
    else:
        with pytest.raises(ServerError, match=r'failed calling webhook "hook\.example\.com"') as caught:
            await api.create(CONFIG_MAPS, config_map())
        assert caught.value.status == 500
        assert " object at 0x" not in str(caught.value)
        assert ("connect: connection refused" in str(caught.value)) is (fault == "gone")
    if webhook.pause is not None:
        webhook.pause.set()


async def test_a_service_is_found(api: ClusterApi, webhook: Webhook) -> None:
    """By whoever knows where services are; the certificate is the service's."""
    configuration = webhook.configuration()
    client = configuration["webhooks"][0]["clientConfig"]
    del client["url"]
    client["service"] = {"name": "hook", "namespace": "default", "path": "/hook"}
    await api.create(MUTATING, configuration)

    with pytest.raises(ServerError, match='service not found: "hook" in namespace "default"'):
        await api.create(CONFIG_MAPS, config_map())
    api.admission.resolve = lambda *_: ("127.0.0.1", webhook.port)
    await api.create(CONFIG_MAPS, config_map())

    assert len(webhook.asked) == 1


async def test_an_earlier_webhook_is_asked_again(api: ClusterApi, webhook: Webhook) -> None:
    """Once, if it wants that and a later one changed something."""
    configuration = webhook.configuration(reinvocationPolicy="IfNeeded")
    later = {**configuration["webhooks"][0], "name": "later.example.com", "reinvocationPolicy": "Never"}
    configuration["webhooks"].append(later)
    await api.create(MUTATING, configuration)
    answers: Iterator[Answer] = iter([patching(adds("one")), patching(adds("two")), patching(adds("three"))])
    webhook.answer = lambda request: next(answers)(request)

    made = await api.create(CONFIG_MAPS, config_map())

    assert made["data"] == {"a": "1", "one": "x", "two": "x", "three": "x"}
    assert [sorted(each["object"]["data"]) for each in webhook.asked] == [["a"], ["a", "one"], ["a", "one", "two"]]


async def test_a_write_in_between_is_noticed(api: ClusterApi, webhook: Webhook) -> None:
    """A patch that names no version starts again from what is there after the webhook has answered."""
    await api.create(CONFIG_MAPS, config_map())
    await api.create(VALIDATING, webhook.configuration())
    webhook.pause = asyncio.Event()

    first = asyncio.create_task(api.patch(CONFIG_MAPS, "c", {"data": {"b": "1"}}, namespace="default"))
    second = asyncio.create_task(api.patch(CONFIG_MAPS, "c", {"data": {"c": "1"}}, namespace="default"))
    while len(webhook.asked) < 2:
        await asyncio.sleep(0)
    webhook.pause.set()
    await asyncio.gather(first, second)

    assert len(webhook.asked) == 3
    assert api.get(CONFIG_MAPS, "c", namespace="default")["data"] == {"a": "1", "b": "1", "c": "1"}


def dry() -> WriteOptions:
    return WriteOptions(dry_run=True)


async def test_warnings_come_through(api: ClusterApi, webhook: Webhook) -> None:
    """In the options of whoever wrote."""
    await api.create(VALIDATING, webhook.configuration())
    webhook.answer = lambda _: {"allowed": True, "warnings": ["mind the step"]}
    options = WriteOptions()

    await api.create(CONFIG_MAPS, config_map(), options=options)

    assert options.warnings == ["mind the step"]


async def test_a_dry_run_is_told_to_the_webhook(api: ClusterApi, webhook: Webhook) -> None:
    """So that it has no side effects."""
    await api.create(VALIDATING, webhook.configuration())
    await api.create(CONFIG_MAPS, config_map(), options=dry())

    assert webhook.asked[0]["dryRun"] is True


async def test_nobody_locks_everybody_out(api: ClusterApi, webhook: Webhook) -> None:
    """Configurations themselves are asked about by no webhook, so a broken one can be taken away."""
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    broken = webhook.configuration(rules=[rule])
    broken["webhooks"][0]["clientConfig"]["url"] = "https://127.0.0.1:1/"
    await api.create(VALIDATING, broken)
    with pytest.raises(ServerError):
        await api.create(NAMESPACES, {"metadata": {"name": "n"}})

    await api.delete(VALIDATING, "w")

    await api.create(NAMESPACES, {"metadata": {"name": "n"}})


@pytest.mark.parametrize(
    ("how", "field"),
    [
        pytest.param({"name": "hook"}, "webhooks[0].name", id="a-short-name"),
        pytest.param({"clientConfig": {"url": "http://x"}}, "webhooks[0].clientConfig.url", id="no-tls"),
        pytest.param({"clientConfig": {}}, "webhooks[0].clientConfig", id="no-address"),
        pytest.param({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds", id="too-patient"),
        pytest.param({"sideEffects": "Some"}, "webhooks[0].sideEffects", id="side-effects"),
        pytest.param({"admissionReviewVersions": ["v1beta1"]}, "webhooks[0].admissionReviewVersions", id="old-reviews"),
        pytest.param(
            {"matchConditions": [{"name": "c", "expression": "object.spec.replicas * 2 == 6"}]},
            "webhooks[0].matchConditions[0].expression",
            id="a-condition-that-is-not-understood",
        ),
    ],
)
async def test_a_configuration_that_makes_no_sense_is_refused(
    api: ClusterApi, webhook: Webhook, how: dict[str, Any], field: str
) -> None:
    """When it is registered, not when it is needed."""
    with pytest.raises(InvalidError) as caught:
        await api.create(MUTATING, webhook.configuration(**how))
    assert field in str(caught.value)
