"""The aggregation layer: forwards requests for the groups of APIServices to their servers.

Headers name the user; the request has a client certificate whose authority is in a ConfigMap of kube-system.  The
servers are probed regularly, and the result is the APIService's condition Available.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from aiohttp import web
from yarl import URL

from kqueue.errors import AlreadyExistsError, ApiError, ServerError
from kqueue.kube.conditions import transition_time
from kqueue.sandbox.access import ADMIN, SandboxUser
from kqueue.sandbox.api import MERGE_PATCH, GroupVersionResource, Object
from kqueue.sandbox.webhook_client import cause

if TYPE_CHECKING:
    from kqueue.sandbox.cluster_api import ClusterApi
    from kqueue.sandbox.registry import ServedKind
    from kqueue.sandbox.store import StoreChange

GROUP = "apiregistration.k8s.io"
API_SERVICES = GroupVersionResource(GROUP, "v1", "apiservices")
SERVICES = GroupVersionResource("", "v1", "services")
CONFIG_MAPS = GroupVersionResource("", "v1", "configmaps")
CONFIG_MAP = "extension-apiserver-authentication"
CLIENT = "sandbox-front-proxy"
"""Common name of the client certificate of forwarded requests."""
_LOOK_SECONDS, _CHECK_SECONDS, _PASS_SECONDS = 2.0, 5.0, 60.0
_PIECE = 64 * 1024
_LIVES = timedelta(days=3650)
_PASSED_BACK = ("Content-Type", "Retry-After", "Allow", "Cache-Control", "WWW-Authenticate")


@dataclass(slots=True)
class _Served:
    """One group and version of another server."""

    name: str
    spec: Object
    tls: ssl.SSLContext
    resources: Object | None = None
    """The discovery document; None while the server is not available."""


@dataclass(slots=True)
class Aggregator:
    """All APIServices that refer to a Service."""

    api: ClusterApi
    _served: dict[tuple[str, str], _Served] = field(default_factory=dict)
    _files: TemporaryDirectory[str] | None = None
    _session: aiohttp.ClientSession | None = None
    _task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        """Publish the authority of the client certificate, and begin to follow and probe APIServices."""
        self._files = TemporaryDirectory(prefix="kqueue-sandbox-")
        authority = _make_certificates(Path(self._files.name), self.api)
        data = {
            "requestheader-client-ca-file": authority,
            "requestheader-allowed-names": json.dumps([CLIENT]),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        told = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": CONFIG_MAP}, "data": data}
        with contextlib.suppress(AlreadyExistsError):
            await self.api.create(CONFIG_MAPS, told, namespace="kube-system")
        self.api.listen(self._on_change)
        self._session = aiohttp.ClientSession(auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar())
        self._task = asyncio.create_task(self._run(), name="aggregation")

    async def stop(self) -> None:
        """End forwarding.  May be called twice."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._session is not None:
            await self._session.close()
        if self._files is not None:
            self._files.cleanup()
        self._task = self._session = self._files = None

    # --- what is served

    def groups(self) -> dict[str, list[str]]:
        """Return available groups with their versions."""
        found: dict[str, list[str]] = {}
        for (group, version), served in self._served.items():
            if served.resources is not None:
                found.setdefault(group, []).append(version)
        return found

    def resources(self, group: str, version: str) -> Object | None:
        """Return the discovery document of a group and version, or None."""
        served = self._served.get((group, version))
        return served.resources if served is not None else None

    def claims(self, path: str) -> bool:
        """Whether a path belongs to another server."""
        return self._at(path) is not None

    def _at(self, path: str) -> _Served | None:
        parts = path.split("/")
        if parts[:3] == ["", "openapi", "v3"]:
            parts = ["", *parts[3:]]
        return self._served.get((parts[2], parts[3])) if parts[:2] == ["", "apis"] and len(parts) > 3 else None

    # --- one request

    async def passed_on(self, request: web.BaseRequest, user: SandboxUser) -> web.StreamResponse:
        """Forward a request and return the answer.

        Raises:
            ServerError: the server is not available (503).
        """
        served = self._at(request.path)
        assert served is not None, "the path is claimed"
        body = await request.read() if request.can_read_body else None
        headers = [(name, request.headers[name]) for name in ("Accept", "Content-Type") if name in request.headers]
        asked = self._asked(served, request.method, request.raw_path, user, headers, body, _PASS_SECONDS)
        response: web.StreamResponse | None = None
        try:
            async with asked as found:
                kept = {name: found.headers[name] for name in _PASSED_BACK if name in found.headers}
                response = web.StreamResponse(status=found.status, headers=kept)
                await response.prepare(request)
                async for piece in found.content.iter_chunked(_PIECE):
                    await response.write(piece)
                await response.write_eof()
                return response
        except ServerError as e:
            if response is None:
                raise
            raise ConnectionResetError("the answer broke off") from e  # its status is sent already

    @contextlib.asynccontextmanager
    async def _asked(
        self,
        served: _Served,
        method: str,
        path: str,
        user: SandboxUser,
        headers: list[tuple[str, str]],
        body: bytes | None,
        seconds: float,
    ) -> Any:
        assert self._session is not None, "it has started"
        service = served.spec["service"]
        host, port = self._address(service)
        try:
            async with self._session.request(
                method,
                URL(f"https://{host}:{port}{path}", encoded=True),
                data=body,
                headers=[*headers, *_named(user)],
                ssl=served.tls,
                server_hostname=f"{service['name']}.{service['namespace']}.svc",
                timeout=aiohttp.ClientTimeout(total=seconds),
                allow_redirects=False,
            ) as answer:
                yield answer
        except (aiohttp.ClientError, OSError) as e:  # TimeoutError is one too
            raise _unavailable(f"error trying to reach service: {cause(e) or type(e).__name__}") from e

    def _address(self, service: Object) -> tuple[str, int]:
        namespace, name, port = service["namespace"], service["name"], int(service.get("port") or 443)
        found = self.api.find(SERVICES, name, namespace)
        if found is None:
            raise _unavailable(f'service/{name} in "{namespace}" is not present')
        if found["spec"].get("type") == "ExternalName":
            return found["spec"]["externalName"], port
        address = self.api.admission.resolve(namespace, name, port)
        if address is None:
            raise _unavailable(f'endpoints for service/{name} in "{namespace}" have no addresses')
        return (f"[{address[0]}]" if ":" in address[0] else address[0]), address[1]

    # --- looking after APIServices

    def _on_change(self, kind: ServedKind, _: StoreChange) -> None:
        if kind.resource in (API_SERVICES, SERVICES):
            if kind.resource == API_SERVICES:
                self._take_in()
            self._changed.set()

    def _take_in(self) -> None:
        """Read the present APIServices; an entry stays the same if only its condition has changed."""
        found: dict[tuple[str, str], _Served] = {}
        for obj in self.api.every(API_SERVICES):
            spec, name = obj.get("spec") or {}, obj["metadata"]["name"]
            if not spec.get("service"):
                continue
            place = str(spec.get("group", "")), str(spec.get("version", ""))
            known = self._served.get(place)
            same = known is not None and known.spec == spec
            found[place] = known if known is not None and same else _Served(name, spec, self._tls(spec))
        self._served = found

    def _tls(self, spec: Object) -> ssl.SSLContext:
        assert self._files is not None, "it has started"
        bundle = base64.b64decode(spec.get("caBundle") or "").decode("ascii", "replace")
        try:
            context = ssl.create_default_context(cadata=bundle or None)
        except ssl.SSLError:
            context = ssl.create_default_context()  # the call then fails with a verification error
        if spec.get("insecureSkipTLSVerify"):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(Path(self._files.name) / "client.pem")
        return context

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            for place, served in list(self._served.items()):
                await self._look(place, served)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._changed.wait()

    async def _look(self, place: tuple[str, str], served: _Served) -> None:
        path = f"/apis/{place[0]}/{place[1]}"
        try:
            async with self._asked(served, "GET", path, ADMIN, [], None, _CHECK_SECONDS) as answer:
                if answer.status != 200:
                    raise _unavailable(f"bad status from {path}: {answer.status}")
                found = json.loads(await answer.read())
            served.resources = found if isinstance(found, dict) and isinstance(found.get("resources"), list) else None
            condition = ("True", "Passed", "all checks passed")
        except (ApiError, aiohttp.ClientError, OSError, ValueError) as e:
            served.resources = None
            condition = ("False", "FailedDiscoveryCheck", f"failing or missing response from {path}: {e}")
        await self._tell(served, *condition)

    async def _tell(self, served: _Served, status: str, reason: str, message: str) -> None:
        obj = self.api.find(API_SERVICES, served.name)
        wanted = {"type": "Available", "status": status, "reason": reason, "message": message}
        held = ((obj or {}).get("status") or {}).get("conditions") or [{}]
        if obj is None or {key: held[0].get(key) for key in wanted} == wanted:
            return
        since = transition_time(held[0], status, self.api.now_text())
        patch = {"status": {"conditions": [{**wanted, "lastTransitionTime": since}]}}
        with contextlib.suppress(ApiError):  # deleted or changed: the next probe reads it again
            await self.api.patch(API_SERVICES, served.name, patch, subresource="status", content_type=MERGE_PATCH)


def _named(user: SandboxUser) -> Iterator[tuple[str, str]]:
    yield "X-Remote-User", user.name
    if user.uid:
        yield "X-Remote-Uid", user.uid
    for group in user.groups:
        yield "X-Remote-Group", group
    for key, values in user.extra:
        for value in values:
            yield f"X-Remote-Extra-{quote(key, safe='')}", value


def _unavailable(message: str) -> ServerError:
    return ServerError(message, status=503, reason="ServiceUnavailable")


def _make_certificates(folder: Path, api: ClusterApi) -> str:
    """Write a client certificate with its key to `client.pem`; return the certificate of its authority, PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now, pem = api.clock.now(), serialization.Encoding.PEM
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def certificate(name: str, public: ec.EllipticCurvePublicKey, *, ca: bool) -> x509.Certificate:
        made = x509.CertificateBuilder(
            subject_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
            issuer_name=x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sandbox front proxies")]),
            public_key=public,
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(hours=1),
            not_valid_after=now + _LIVES,
        ).add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        if not ca:
            made = made.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        return made.sign(signer, hashes.SHA256())

    authority = certificate("sandbox front proxies", signer.public_key(), ca=True).public_bytes(pem)
    own = certificate(CLIENT, key.public_key(), ca=False).public_bytes(pem)
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "client.pem"
    file.touch(mode=0o600)
    file.write_bytes(private + own)
    return authority.decode()
