"""Calls webhooks over HTTPS, at a URL or behind a Service, for admission and for conversion."""

from __future__ import annotations

import base64
import functools
import json
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from kqueue.sandbox.api import GroupVersionResource, Object
from kqueue.sandbox.strategy import ClusterView

SERVICES = GroupVersionResource("", "v1", "services")
ENDPOINTS = GroupVersionResource("", "v1", "endpoints")
LARGEST_ANSWER = 32 * 1024 * 1024

Address = tuple[str, int]
Resolver = Callable[[str, str, int], Address | None]
"""Maps a Service's namespace, name and port to an address; None when it is not known."""


class CallError(Exception):
    """A webhook could not be called, or its answer is invalid."""


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where a webhook is reached, from a `clientConfig`."""

    url: str
    service: Object | None
    ca_bundle: str
    """Authorities in base64, as in the `clientConfig`; empty for the system's."""


def target_of(client: Object) -> WebhookTarget:
    """Return the target of a `clientConfig` with all defaults."""
    service = client.get("service")
    if service is None:
        url = client["url"]
    else:
        url = f"https://{service['name']}.{service['namespace']}.svc:{service['port']}{service.get('path', '/')}"
    return WebhookTarget(url, service, client.get("caBundle", ""))


class WebhookClient:
    """Sends reviews.

    Args:
        api: has services and endpoints.
    """

    def __init__(self, api: ClusterView) -> None:
        self._api = api
        self._session: aiohttp.ClientSession | None = None
        self.resolve: Resolver = self._from_endpoints
        """Finds a Service's address; by default from its Endpoints.  A caller may set another function."""

    def _from_endpoints(self, namespace: str, name: str, port: int) -> Address | None:
        endpoints = self._api.find(ENDPOINTS, name, namespace)
        for subset in (endpoints or {}).get("subsets") or ():
            for address in subset.get("addresses") or ():
                ports = subset.get("ports") or [{"port": port}]
                return str(address["ip"]), int(ports[0]["port"])
        return None

    async def post(self, target: WebhookTarget, review: Object, seconds: float) -> bytes:
        """Send one review and return the body of the answer.  Raises CallError."""
        url, name = self._address(target)
        body = json.dumps(review).encode()
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        try:
            async with self._open().post(
                url,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds),
                ssl=_tls(target.ca_bundle),
                server_hostname=name,
                allow_redirects=False,
            ) as answer:
                text = await _read(answer)
                if answer.status != 200:
                    raise CallError(f'Post "{target.url}": the server answered {answer.status}: {text[:200]!r}')
        except TimeoutError as error:
            raise CallError(f'Post "{target.url}": context deadline exceeded after {seconds:g} s') from error
        except (aiohttp.ClientError, OSError) as error:
            raise CallError(f'Post "{target.url}": {cause(error)}') from error
        return text

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session

    async def close(self) -> None:
        """Close connections to webhooks."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _address(self, target: WebhookTarget) -> tuple[str, str | None]:
        """Return the URL to connect to, and the server name in the certificate (None: the URL's)."""
        service = target.service
        if service is None:
            return target.url, None
        namespace, name, port = service["namespace"], service["name"], service["port"]
        address = self.resolve(namespace, name, port)
        if address is None:
            present = self._api.find(SERVICES, name, namespace)
            why = "no endpoints available for service" if present else "service not found:"
            raise CallError(f'Post "{target.url}": {why} "{name}" in namespace "{namespace}"')
        host = f"[{address[0]}]" if ":" in address[0] else address[0]
        path = service.get("path", "/")
        return f"https://{host}:{address[1]}{path}", f"{name}.{namespace}.svc"


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    """Return the whole body.  Raises CallError if it is too long."""
    parts = bytearray()
    async for part in answer.content.iter_any():
        parts += part
        if len(parts) > LARGEST_ANSWER:
            raise CallError(f"the answer is longer than {LARGEST_ANSWER} bytes")
    return bytes(parts)


@functools.lru_cache(maxsize=64)
def _tls(bundle: str) -> ssl.SSLContext:
    """Return a context that trusts a bundle.  Kept, and made at a call: the system's authorities take 50 ms to read."""
    pem = base64.b64decode(bundle).decode("ascii", "replace")
    try:
        return ssl.create_default_context(cadata=pem) if pem.strip() else ssl.create_default_context()
    except ssl.SSLError:
        return ssl.create_default_context()  # the call then fails with a verification error


def cause(error: Exception) -> str:
    """Return the text of a client error without the Python objects in it."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, aiohttp.ClientSSLError):
        why = os.strerror(error.os_error.errno).lower() if error.os_error.errno else str(error.os_error)
        return f"dial tcp {error.host}:{error.port}: connect: {why}"
    return str(error)
