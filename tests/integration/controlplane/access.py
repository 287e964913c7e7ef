"""Requests to the API server of a kubeconfig; deliberately without kqueue's own client, which is under test."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

Object = dict[str, Any]

REQUEST_SECONDS = 30
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class RequestError(Exception):
    """The API server said no: carries the HTTP status and its message."""

    def __init__(self, method: str, path: str, status: int, message: str) -> None:
        super().__init__(f"{method} {path}: {status} {message}")
        self.status, self.message = status, message


@dataclass(frozen=True, slots=True)
class Access:
    """Where an API server is, and what it asks to see."""

    url: str
    tls: ssl.SSLContext | None
    """None for plain HTTP."""
    headers: Mapping[str, str]

    @classmethod
    def read(cls, kubeconfig: Path) -> Access:
        """The current context of a kubeconfig; data or files, client certificate or token."""
        config = yaml.safe_load(kubeconfig.read_text())
        context = named(config["contexts"], config["current-context"])["context"]
        cluster = named(config["clusters"], context["cluster"])["cluster"]
        user = named(config["users"], context["user"])["user"]
        token = user.get("token")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return cls(cluster["server"].rstrip("/"), tls_context(cluster, user), headers)

    @asynccontextmanager
    async def session(self, *, connections: int = 16) -> AsyncIterator[aiohttp.ClientSession]:
        """A pool of at most `connections` (0: any number) for many requests; belongs to the running event loop."""
        connector = aiohttp.TCPConnector(ssl=self.tls if self.tls is not None else True, limit=connections)
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        async with aiohttp.ClientSession(
            self.url, connector=connector, headers=self.headers, timeout=timeout
        ) as session:
            yield session

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        session: aiohttp.ClientSession | None = None,
    ) -> Object:
        """Send JSON, return JSON; an answer that is no JSON object comes back as `{"text": ...}`.

        Raises:
            RequestError: the answer's status is 400 or above.
            aiohttp.ClientError: there is no answer.
        """
        if session is None:
            async with self.session() as own:
                return await self.request(method, path, body, content_type=content_type, session=own)
        data = None if body is None else json.dumps(body).encode()
        headers = {} if body is None else {"Content-Type": content_type}
        async with session.request(method, path, data=data, headers=headers) as response:
            text = await response.text()
            try:
                answer = json.loads(text)
            except json.JSONDecodeError:
                answer = {"text": text}
            if not isinstance(answer, dict):
                answer = {"text": text}
            if response.status >= 400:
                raise RequestError(method, path, response.status, answer.get("message") or text)
            return answer


def named(entries: list[Object], name: str) -> Object:
    """The kubeconfig entry of this name."""
    return next(entry for entry in entries if entry["name"] == name)


def tls_context(cluster: Object, user: Object) -> ssl.SSLContext | None:
    """What a kubeconfig's cluster and user say about TLS; None for plain HTTP."""
    if not cluster["server"].startswith("https:"):
        return None
    authority = content(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    certificate, key = content(user, "client-certificate"), content(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as both:  # the ssl module reads certificates from files only
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def content(entry: Object, name: str) -> bytes | None:
    """The bytes behind `name-data` or `name` of a kubeconfig; None if it has neither."""
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    return Path(entry[name]).read_bytes() if name in entry else None
