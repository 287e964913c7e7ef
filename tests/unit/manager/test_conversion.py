"""The conversion webhook in our definitions: written where it differs, and nowhere else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kqueue.api.crd_files import crd_folder
from kqueue.clock import SystemClock
from kqueue.config import Configuration, parse
from kqueue.errors import ForbiddenError
from kqueue.manager.conversion import CONVERTED, DEFINITIONS, ConversionRegistrar, definition_of
from kqueue.runtime.certificates import make_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.transport import RequestRecord
from kqueue.sandbox import Sandbox, SandboxOptions
from webhooks.conversion.catalog import KINDS

JSON = dict[str, Any]
OLD, NEW = (make_bundle(["localhost"], now=SystemClock().now()).ca for _ in range(2))
QUEUES = "clusterqueues.kueue.x-k8s.io"
URL = "https://127.0.0.1:1"


def configuration() -> Configuration:
    return parse("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nnamespace: batch\n", source="test")


@pytest.fixture
def requests() -> list[str]:
    """Verbs of what the client asked."""
    return []


@pytest.fixture
async def client(requests: list[str]) -> AsyncIterator[Client]:
    """A user of an API server with our definitions."""
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))

    def on_request(record: RequestRecord) -> None:
        requests.append(record.verb)

    await sandbox.start()
    try:
        async with Client(sandbox.url, on_request=on_request) as made:
            yield made
    finally:
        await sandbox.stop()


async def clients(client: Client) -> dict[str, JSON]:
    """The `clientConfig` of each definition that has a conversion webhook."""
    found = {}
    for crd in await client.list_json(DEFINITIONS):
        if webhook := crd["spec"]["conversion"].get("webhook"):
            found[crd["metadata"]["name"]] = webhook["clientConfig"]
    return found


def test_the_definitions_are_those_of_the_converted_kinds() -> None:
    """One list for the conversion, one for the definitions."""
    assert {kind.kind for kind in CONVERTED} == set(KINDS)


async def test_a_service_is_written_once(client: Client, requests: list[str]) -> None:
    """With the namespace of the installation; a second look writes nothing, and replicas agree on the order."""
    registrar = ConversionRegistrar(client, configuration())
    first = await registrar.bring(OLD + NEW)
    requests.clear()
    again = await registrar.bring(NEW + OLD)
    asked = set(requests)

    found = await clients(client)
    assert (first, again, asked) == (True, False, {"get"})
    assert set(found) == set(map(definition_of, CONVERTED))
    assert {each["service"]["namespace"] for each in found.values()} == {"batch"}
    assert {base64.b64decode(each["caBundle"]) for each in found.values()} == {b"".join(sorted((OLD, NEW)))}


async def test_a_url_replaces_the_service_and_back(client: Client) -> None:
    """Outside of the cluster there is no Service; both at once are refused by API servers."""
    await ConversionRegistrar(client, configuration(), url=URL).bring(OLD)
    outside = (await clients(client))[QUEUES]
    await ConversionRegistrar(client, configuration()).bring(NEW)
    inside = (await clients(client))[QUEUES]

    assert (outside["url"], "service" in outside) == (f"{URL}/convert", False)
    assert ("url" in inside, inside["service"]["path"]) == (False, "/convert")
    assert base64.b64decode(inside["caBundle"]) == NEW


async def test_a_definition_that_another_writer_changed_is_corrected(client: Client) -> None:
    """Also one whose conversion was switched off: v1beta1 would lose fields."""
    await ConversionRegistrar(client, configuration()).bring(OLD)
    await client.patch(DEFINITIONS, QUEUES, {"spec": {"conversion": {"strategy": "None", "webhook": None}}})

    assert await ConversionRegistrar(client, configuration()).bring(OLD) is True
    assert QUEUES in await clients(client)


async def test_definitions_that_go_or_have_one_version_are_left_alone(client: Client) -> None:
    """An older chart may have brought them, and another tool may own them."""
    await client.delete(DEFINITIONS, definition_of(CONVERTED[1]))
    found = await client.get_json(DEFINITIONS, QUEUES)
    patch = {"versions": found["spec"]["versions"][:1], "conversion": {"strategy": "None", "webhook": None}}
    await client.patch(DEFINITIONS, QUEUES, {"spec": patch})

    await ConversionRegistrar(client, configuration()).bring(OLD)

    found = await clients(client)
    assert QUEUES not in found
    assert "caBundle" not in found[definition_of(CONVERTED[1])]
    assert all("caBundle" in found[definition_of(kind)] for kind in CONVERTED[2:])


async def test_what_an_injector_writes_is_left_to_it(client: Client) -> None:
    """The authority only; where the webhooks are is still written."""
    note = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": "batch/webhooks"}}}
    await client.patch(DEFINITIONS, QUEUES, note)

    await ConversionRegistrar(client, configuration()).bring(OLD)

    found = (await clients(client))[QUEUES]
    assert (found["service"]["namespace"], "caBundle" in found) == ("batch", False)


async def test_without_the_right_admission_goes_on(client: Client) -> None:
    """The log names the right; nothing is raised."""

    async def forbidden(*_: object, **__: object) -> JSON:
        raise ForbiddenError("no", status=403)

    client.patch = forbidden  # type: ignore[method-assign]

    assert await ConversionRegistrar(client, configuration()).bring(OLD) is False


async def test_replicas_that_register_at_once_agree(client: Client) -> None:
    """Each of them succeeds."""
    await asyncio.gather(*(ConversionRegistrar(client, configuration()).bring(OLD) for _ in range(4)))

    assert {base64.b64decode(each["caBundle"]) for each in (await clients(client)).values()} == {OLD}
