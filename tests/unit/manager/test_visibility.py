"""The visibility API served and registered: certificates, whom it believes, and what the API server is told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme

from kqueue.api.crd_files import crd_folder
from kqueue.clock import SystemClock
from kqueue.config import parse
from kqueue.errors import ConfigError, NotFoundError
from kqueue.manager import visibility as server
from kqueue.manager.visibility import SECRET, VisibilityEndpoint, visibility
from kqueue.observe import Checks, Metrics
from kqueue.runtime.certificate_secret import SECRETS
from kqueue.runtime.certificates import make_bundle, write_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.rotation import Rhythm
from kqueue.runtime.transport import RequestRecord
from kqueue.sandbox import Sandbox, SandboxOptions
from kqueue.visibility.catalog import Catalog, CatalogResource
from kqueue.visibility.question import JSON, AuthorizedQuestion
from kqueue.visibility.registration import API_SERVICES, NAMESPACES, SERVICE, SERVICES, reached_at
from kqueue.visibility.server import VisibilityServer
from tests.readings import failing

CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
NAME, OURS = "v1.g.example", {"app.kubernetes.io/managed-by": "kqueue"}
URL = "https://localhost:{port}"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(server, "_AFTER_FAILURE_SECONDS", 0.05)


@pytest.fixture
def writes() -> list[str]:
    """What was written: verb and resource."""
    return []


@pytest.fixture
async def client(writes: list[str]) -> AsyncIterator[Client]:
    sandbox = Sandbox(SandboxOptions(parts=frozenset({"server"}), crds=(crd_folder(),)))

    def on_request(record: RequestRecord) -> None:
        if record.verb not in ("get", "list") and "reviews" not in record.resource:
            writes.append(f"{record.verb} {record.resource}")

    await sandbox.start()
    try:
        async with Client(sandbox.url, on_request=on_request) as made:
            await made.create(NAMESPACES, {"metadata": {"name": "kueue-system"}})
            writes.clear()
            yield made
    finally:
        await sandbox.stop()


async def told(asked: AuthorizedQuestion) -> JSON:
    return {"of": asked.name}


@contextlib.asynccontextmanager
async def served(
    client: Client, *, rhythm: Rhythm | None = None, **place: Any
) -> AsyncIterator[tuple[VisibilityServer, Checks]]:
    """The server on a free port of loopback, as soon as it is ready."""
    configuration = parse("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n", source="test")
    catalog = Catalog([CatalogResource(group="g.example", version="v1", name="things", kind="Thing", view=told)])
    chosen: dict[str, Any] = {"host": "127.0.0.1", "port": 0}
    checks, settings = Checks(), VisibilityEndpoint(**(chosen | place))
    async with visibility(
        client,
        configuration,
        settings,
        catalog,
        warm=lambda: True,
        checks=checks,
        metrics=Metrics(),
        clock=SystemClock(),
        rhythm=rhythm,
    ) as server:
        async with asyncio.timeout(10):
            while failing(checks):
                await asyncio.sleep(0.01)
        yield server, checks


async def until(look: Any) -> Any:
    """What `look` returns, as soon as it is something."""
    async with asyncio.timeout(10):
        while not (found := await look()):
            await asyncio.sleep(0.02)
    return found


async def chart(client: Client, **spec: Any) -> None:
    """What somebody applies in a cluster."""
    service = {"name": SERVICE, "namespace": "kueue-system", "port": 443}
    whole = {"group": "g.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": service}
    await client.create(
        API_SERVICES,
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": NAME, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
            "spec": {**whole, **spec},
        },
    )


async def bundle_of(client: Client) -> str:
    spec = (await client.get_json(API_SERVICES, NAME))["spec"]
    return str(spec.get("caBundle", ""))


async def get(
    port: int, tls: ssl.SSLContext, path: str = "/healthz", name: str = "localhost", headers: str = ""
) -> int:
    """The status of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
        async with asyncio.timeout(10):
            return int((await reader.readline()).split(b" ")[1])
    finally:
        writer.transport.abort()


def trusting(bundle: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())


async def test_in_a_cluster_only_the_authority_is_written(client: Client, writes: list[str]) -> None:
    """Somebody's APIService gets the authority of our certificate, which all replicas share; nothing else is touched."""
    await chart(client)
    writes.clear()
    async with served(client) as (server, _), served(client) as (other, _):
        bundle = await until(lambda: bundle_of(client))
        service = f"{SERVICE}.kueue-system.svc"
        answers = [await get(each.port, trusting(bundle), name=service) for each in (server, other)]
        settled = list(writes)
        await asyncio.sleep(0.3)
    after = (await client.get_json(API_SERVICES, NAME))["spec"]

    assert answers == [200, 200]
    assert writes == settled, "a look at what is as it should be writes nothing"
    assert set(writes) == {"create secrets", "patch apiservices.apiregistration.k8s.io"}
    assert after["service"]["port"] == 443
    assert (await client.get_json(SECRETS, SECRET, "kueue-system"))["data"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            {"service": {"name": "kueue-visibility-server", "namespace": "elsewhere"}}, id="another-namespace"
        ),
        pytest.param({"service": {"name": "another", "namespace": "kueue-system"}}, id="another-service"),
        pytest.param({"insecureSkipTLSVerify": True}, id="nobody-looks-at-certificates"),
    ],
)
async def test_what_does_not_lead_here_is_left_alone(client: Client, spec: dict[str, Any]) -> None:
    """Also where somebody chose to trust everybody: the API server takes no authority beside that."""
    await chart(client, **spec)
    async with served(client):
        await asyncio.sleep(0.3)
        assert await bundle_of(client) == ""


async def test_the_authority_is_put_back_and_a_missing_apiservice_is_nobodys_fault(client: Client) -> None:
    """It is looked after for as long as the process runs."""
    async with served(client) as (_, checks):
        await asyncio.sleep(0.2)
        assert failing(checks) == {}
        await chart(client)
        bundle = await until(lambda: bundle_of(client))
        await client.patch(API_SERVICES, NAME, {"spec": {"caBundle": base64.b64encode(b"junk").decode()}})

        async def mended() -> bool:
            return bool(await bundle_of(client) == bundle)

        await until(mended)


async def test_outside_of_a_cluster_service_and_apiservices_are_made_and_taken_away(client: Client) -> None:
    """While the process runs the API server leads to it; afterwards nothing is left that nobody answers."""
    async with served(client, url=URL) as (server, _):
        spec = await until(lambda: spec_of(client))
        service = await client.get_json(SERVICES, SERVICE, "kueue-system")
        answer = await get(server.port, trusting(spec["caBundle"]))
        available = await until(lambda: condition_of(client))
        listed = await client.get_path("/apis/g.example/v1", resource=API_SERVICES)
    with pytest.raises(NotFoundError):
        await client.get_json(API_SERVICES, NAME)
    with pytest.raises(NotFoundError):
        await client.get_json(SERVICES, SERVICE, "kueue-system")

    assert (service["spec"]["type"], service["spec"]["externalName"]) == ("ExternalName", "localhost")
    assert spec["service"] == {"name": SERVICE, "namespace": "kueue-system", "port": server.port}
    assert (spec["groupPriorityMinimum"], spec["versionPriority"]) == (100, 100)
    assert (answer, available) == (200, "True")
    assert [each["name"] for each in listed["resources"]] == ["things"]


async def spec_of(client: Client) -> dict[str, Any]:
    with contextlib.suppress(NotFoundError):
        return dict((await client.get_json(API_SERVICES, NAME))["spec"])
    return {}


async def condition_of(client: Client) -> str:
    status = (await client.get_json(API_SERVICES, NAME)).get("status") or {}
    return next((each["status"] for each in status.get("conditions", ()) if each["status"] == "True"), "")


async def test_a_later_process_takes_over(client: Client) -> None:
    """Two at one desk: when the first one ends, the API server is led to the one that came last."""
    async with contextlib.AsyncExitStack() as later:
        async with served(client, url=URL):
            await until(lambda: spec_of(client))
            server, _ = await later.enter_async_context(served(client, url=URL))

        async def leads_there() -> bool:
            return bool((await spec_of(client)).get("service", {}).get("port") == server.port)

        await until(leads_there)


async def test_an_apiservice_of_somebody_else_is_not_taken(client: Client, writes: list[str]) -> None:
    """Outside of a cluster that was installed by a chart: it says so, and the process goes on."""
    await chart(client)
    async with served(client, url=URL) as (_, checks):
        await asyncio.sleep(0.3)
        assert failing(checks) == {}
    assert (await client.get_json(API_SERVICES, NAME))["spec"]["service"]["port"] == 443


@pytest.mark.parametrize(
    "url",
    ["http://localhost:1", "localhost", "https://localhost", "https://a:1/path", "https://a:{p}", "https://A B:1"],
)
def test_a_url_that_no_service_could_lead_to_is_refused(url: str) -> None:
    """With an example of one that could."""
    with pytest.raises(ConfigError, match=r"as in https://localhost:\{port\}"):
        reached_at(url, 1)


async def test_whom_to_believe_is_read_again_and_again(client: Client) -> None:
    """Another authority in the ConfigMap counts within a look; a ConfigMap that cannot be read, or is gone, lets nobody in."""
    await chart(client)
    proxies = trustme.CA()
    name, namespace = "extension-apiserver-authentication", "kube-system"
    async with served(client) as (server, _):
        tls = trusting(await until(lambda: bundle_of(client)))
        proxies.issue_cert("client.invalid", common_name="my-proxy").configure_cert(tls)

        async def status() -> int:
            try:
                return await get(server.port, tls, "/apis", headers="X-Remote-User: system:admin\r\n")
            except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError, IndexError):
                return 0

        async def becomes(wanted: int) -> None:
            async with asyncio.timeout(10):
                while await status() != wanted:
                    await asyncio.sleep(0.02)

        await becomes(0)  # the certificate is a stranger's
        data = {"requestheader-client-ca-file": proxies.cert_pem.bytes().decode()}
        names = {"requestheader-allowed-names": json.dumps(["my-proxy"])}
        await client.patch(CONFIG_MAPS, name, {"data": {**data, **names}}, namespace)
        await becomes(200)
        await client.patch(CONFIG_MAPS, name, {"data": {"requestheader-allowed-names": "my-proxy"}}, namespace)
        await becomes(401)
        await client.patch(CONFIG_MAPS, name, {"data": names}, namespace)
        await becomes(200)
        await client.delete(CONFIG_MAPS, name, namespace)
        await becomes(401)


async def test_a_renewed_certificate_is_never_met_by_somebody_who_does_not_trust_it(client: Client) -> None:
    """Authorities are told before they are used: whoever trusts what the APIService says now is answered now."""
    await chart(client)
    rhythm = Rhythm(valid=timedelta(hours=3), renew_before=timedelta(hours=3), pause=timedelta(seconds=0.2))
    seen = set()
    async with served(client, rhythm=rhythm) as (server, _):
        await until(lambda: bundle_of(client))
        for _ in range(60):
            bundle = await bundle_of(client)
            seen.add(bundle)
            assert await get(server.port, trusting(bundle)) == 200
            await asyncio.sleep(0.02)

    assert len(seen) > 2


async def test_certificates_of_somebody_else_are_followed(client: Client, tmp_path: Path) -> None:
    """A folder that cert-manager fills: nothing is written to the API server, and new files are served."""
    await chart(client)
    now = SystemClock().now()
    first, second = (make_bundle(["localhost"], now=now) for _ in range(2))
    write_bundle(first, tmp_path)
    async with served(client, certificates=tmp_path) as (server, _):
        before = await get(server.port, ssl.create_default_context(cadata=first.ca.decode()))
        write_bundle(second, tmp_path)
        tls = ssl.create_default_context(cadata=second.ca.decode())

        async def follows() -> int:
            with contextlib.suppress(ssl.SSLError):
                return await get(server.port, tls)
            return 0

        after = await until(follows)

    assert (before, after, await bundle_of(client)) == (200, 200, "")


async def test_an_address_that_is_taken_is_named(client: Client) -> None:
    """Before anything else is done."""
    async with served(client) as (server, _):
        with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}: address already in use; .* bindPort"):
            async with served(client, port=server.port):
                raise AssertionError("listens twice")
