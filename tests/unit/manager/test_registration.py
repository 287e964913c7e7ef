"""The webhook configurations at an API server: ours as a whole, of others' only the authority."""

from __future__ import annotations

import asyncio
import base64
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.clock import SystemClock
from kqueue.config import Configuration, parse
from kqueue.errors import ForbiddenError
from kqueue.manager.registration import CONFIGURATIONS, Registrar, covers, injection
from kqueue.runtime.certificates import make_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.transport import RequestRecord
from kqueue.sandbox import Sandbox, SandboxOptions
from webhooks.configuration import WebhookEndpoint, WebhookScope, webhook_configurations

JSON = dict[str, Any]
OLD, NEW = (make_bundle(["localhost"], now=SystemClock().now()).ca for _ in range(2))
NAMES = ("kueue-mutating-webhook-configuration", "kueue-validating-webhook-configuration")
SERVICE = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/mutate-batch-v1-job", "port": 443}


def make_configuration(text: str = "") -> Configuration:
    """The defaults and `text`."""
    return parse(f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{text}", source="test")


@pytest.fixture
def requests() -> list[str]:
    """Verbs of what the client asked."""
    return []


@pytest.fixture
async def client(requests: list[str]) -> AsyncIterator[Client]:
    """A user of an API server without webhooks."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))

    def on_request(record: RequestRecord) -> None:
        requests.append(record.verb)

    await sandbox.start()
    try:
        async with Client(sandbox.url, on_request=on_request) as made:
            yield made
    finally:
        await sandbox.stop()


async def stored(client: Client) -> list[JSON]:
    """The mutating and the validating configuration."""
    return [
        await client.get_json(resource, name) for resource, name in zip(CONFIGURATIONS.values(), NAMES, strict=True)
    ]


def bundles(configurations: list[JSON]) -> set[bytes]:
    """Every authority that is told."""
    return {
        base64.b64decode(hook["clientConfig"].get("caBundle", ""))
        for configuration in configurations
        for hook in configuration["webhooks"]
    }


async def test_a_second_look_writes_nothing(client: Client, requests: list[str]) -> None:
    """What the API server has filled in does not matter; the order of authorities does not either."""
    registrar = Registrar(client, make_configuration())
    first = await registrar.bring(OLD + NEW, ["a"])
    requests.clear()
    again = await registrar.bring(NEW + OLD, ["a"])

    assert (first, again) == (True, False)
    assert requests == ["get", "get"]


async def test_a_new_authority_replaces_the_old(client: Client) -> None:
    """After a restart with another certificate the same configurations tell of it; nothing is registered twice."""
    await Registrar(client, make_configuration(), url="https://127.0.0.1:1").bring(OLD)
    before = await stored(client)
    await Registrar(client, make_configuration(), url="https://127.0.0.1:2").bring(NEW)
    after = await stored(client)

    assert [[h["name"] for h in c["webhooks"]] for c in after] == [[h["name"] for h in c["webhooks"]] for c in before]
    assert bundles(after) == {NEW}
    assert all(h["clientConfig"]["url"].startswith("https://127.0.0.1:2/") for c in after for h in c["webhooks"])


async def test_a_kind_that_is_switched_off_loses_its_webhooks(client: Client) -> None:
    """At the next start; our own kinds always are looked at."""
    await Registrar(client, make_configuration()).bring(OLD)
    before = {h["name"] for c in await stored(client) for h in c["webhooks"]}
    off = make_configuration('integrations: {frameworks: ["workload.codeflare.dev/appwrapper"]}\n')
    await Registrar(client, off).bring(OLD)
    after = {h["name"] for c in await stored(client) for h in c["webhooks"]}

    assert before - after == {"mjob.kb.io", "vjob.kb.io"}
    assert {"vworkload.kb.io", "vclusterqueue.kb.io"} <= after


def of_a_chart() -> JSON:
    """A configuration that somebody else applied, with an entry of ours, one of ours elsewhere, and a stranger's."""
    (mutating, _) = webhook_configurations(
        WebhookEndpoint(ca_bundle=b"", service=SERVICE["name"], namespace=SERVICE["namespace"]),  # type: ignore[arg-type]
        WebhookScope(frameworks=["batch/job"], own_namespace="kueue-system"),
    )
    ours = {**mutating["webhooks"][0], "timeoutSeconds": 7, "failurePolicy": "Ignore"}
    del ours["clientConfig"]["caBundle"]
    moved = copy.deepcopy(ours) | {"name": "moved.kb.io"}
    moved["clientConfig"]["service"]["namespace"] = "elsewhere"
    stranger = copy.deepcopy(ours) | {"name": "stranger.example.com", "clientConfig": {"url": "https://x.example.com/"}}
    return mutating | {
        "metadata": {"name": NAMES[0], "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "webhooks": [stranger, ours, moved],
    }


async def test_what_a_chart_made_empty_is_kept_as_a_whole(client: Client, requests: list[str]) -> None:
    """Its labels and notes stay, which Helm needs; nothing is created."""
    empty = {
        "labels": {"app.kubernetes.io/managed-by": "Helm", "kqueue.dev/kept-by": "kqueue"},
        "annotations": {"meta.helm.sh/release-name": "kqueue"},
    }
    for (kind, resource), name in zip(CONFIGURATIONS.items(), NAMES, strict=True):
        body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name, **empty}}
        await client.create(resource, body)
    requests.clear()
    await Registrar(client, make_configuration()).bring(OLD)
    first = await stored(client)
    await Registrar(client, make_configuration()).bring(NEW)

    assert requests[:4] == ["get", "patch", "get", "patch"]
    assert "create" not in requests
    assert all(each["metadata"][key] == value for each in first for key, value in empty.items())
    assert (bundles(first), bundles(await stored(client))) == ({OLD}, {NEW})


async def test_an_account_that_may_not_create_says_what_does(client: Client) -> None:
    """A configuration that somebody deleted comes back with the chart."""

    async def forbidden(*_: object, **__: object) -> JSON:
        raise ForbiddenError("no", status=403)

    client.create = forbidden  # type: ignore[method-assign]
    with pytest.raises(ForbiddenError, match=f"{NAMES[0]} is not there.*helm upgrade"):
        await Registrar(client, make_configuration()).bring(OLD)


async def test_of_what_somebody_else_applied_only_the_authority_is_written(client: Client) -> None:
    """Into the entries that lead to us; everything else stays as it is written there."""
    mutating = CONFIGURATIONS["MutatingWebhookConfiguration"]
    before = await client.create(mutating, of_a_chart())
    await Registrar(client, make_configuration()).bring(OLD)
    after = await client.get_json(mutating, NAMES[0])

    told = [hook["clientConfig"].pop("caBundle", "") for hook in after["webhooks"]]
    assert [base64.b64decode(each) for each in told] == [b"", OLD, b""]
    assert after["webhooks"] == before["webhooks"]
    assert after["metadata"]["labels"] == before["metadata"]["labels"]


async def test_who_brings_certificates_of_a_folder_leaves_charts_alone(client: Client) -> None:
    """Somebody else's injector writes the authority then."""
    mutating = CONFIGURATIONS["MutatingWebhookConfiguration"]
    before = await client.create(mutating, of_a_chart())
    await Registrar(client, make_configuration(), inject=False).bring(OLD)

    assert (await client.get_json(mutating, NAMES[0]))["webhooks"] == before["webhooks"]


async def test_an_injection_into_a_list_that_was_changed_fails_as_a_whole(client: Client) -> None:
    """The authority never lands in an entry that has moved up; the next attempt reads again."""
    mutating = CONFIGURATIONS["MutatingWebhookConfiguration"]
    found = await client.create(mutating, of_a_chart())
    target = WebhookEndpoint(ca_bundle=OLD, service="kueue-webhook-service", namespace="kueue-system")
    patch = injection(found, target)
    registrar = Registrar(client, make_configuration())
    await client.patch(mutating, NAMES[0], {"webhooks": found["webhooks"][1:]})
    read = client.get_json
    stale = [found]

    async def outdated(*args: Any, **settings: Any) -> JSON:
        return stale.pop() if stale and args[0] is mutating else await read(*args, **settings)

    client.get_json = outdated  # type: ignore[method-assign]
    await registrar.bring(OLD)

    after = await read(mutating, NAMES[0])
    assert [each["path"] for each in patch] == ["/webhooks/1/name", "/webhooks/1/clientConfig/caBundle"]
    assert ["caBundle" in hook["clientConfig"] for hook in after["webhooks"]] == [True, False]


async def test_replicas_that_register_at_once_agree(client: Client) -> None:
    """Each of them succeeds, and one set of webhooks stands there."""
    registrars = [Registrar(client, make_configuration()) for _ in range(4)]
    await asyncio.gather(*(registrar.bring(OLD) for registrar in registrars))
    await asyncio.gather(*(registrar.bring(OLD + NEW) for registrar in registrars))

    assert bundles(await stored(client)) == {b"".join(sorted((OLD, NEW)))}


@pytest.mark.parametrize(
    ("found", "wanted", "want"),
    [
        pytest.param({"a": 1, "b": 2}, {"a": 1}, True, id="more-is-fine"),
        pytest.param({"a": 1}, {"a": 1, "b": 2}, False, id="less-is-not"),
        pytest.param({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, True, id="inside-lists"),
        pytest.param([1, 2], [1], False, id="lists-are-whole"),
        pytest.param([2, 1], [1, 2], False, id="and-in-order"),
        pytest.param({}, {"a": {}}, False, id="what-is-missing-is-not-empty"),
        pytest.param(None, {}, False, id="nothing"),
    ],
)
def test_covers(found: Any, wanted: Any, want: bool) -> None:
    """Maps may hold more than is wanted, lists may not."""
    assert covers(found, wanted) is want
