"""Certificates of a connection that are replaced while a client runs: the server's authority, and our own."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kqueue import errors
from kqueue.runtime.certificates import Bundle, make_bundle, write_bundle
from kqueue.runtime.client import connect
from kqueue.runtime.transport import ClientSettings

QUICK = ClientSettings(call_timeout=5, attempts=2, retry_base=0.01)


class Server:
    """Says which version it is, to whoever shows the certificate that it wants; None: to everybody."""

    def __init__(self, folder: Path) -> None:
        self._folder, self.port = folder, 0
        self.wanted: Own | None = None
        self.refused = 0

    @asynccontextmanager
    async def serving(self, bundle: Bundle, *clients: Own) -> AsyncIterator[None]:
        """Serve a certificate on the port that was taken first, trusting the authorities of these clients."""
        write_bundle(bundle, self._folder)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._folder / "tls.crt", self._folder / "tls.key")
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        for client in clients:
            context.load_verify_locations(cadata=client.certificate.decode())
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.01)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, ssl_context=context).start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        shown = request.transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if self.wanted is not None and shown != ssl.PEM_cert_to_DER_cert(self.wanted.certificate.decode()):
            self.refused += 1
            return web.json_response({"kind": "Status", "code": 401, "reason": "Unauthorized"}, status=401)
        return web.json_response({"gitVersion": "v1.0.0"})


def bundle() -> Bundle:
    return make_bundle(["127.0.0.1"], now=datetime.now(UTC))


@dataclass(frozen=True)
class Own:
    """A client's certificate, which it has signed itself, and its key."""

    certificate: bytes
    key: bytes


def own() -> Own:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "client")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Own(
        certificate.public_bytes(pem),
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def write_kubeconfig(path: Path, server: Server, trusted: Bundle, own: Own | None = None) -> None:
    """How to reach the server."""

    def inline(content: bytes) -> str:
        return base64.b64encode(content).decode()

    user = (
        {"client-certificate-data": inline(own.certificate), "client-key-data": inline(own.key)}
        if own is not None
        else {"token": "some"}
    )
    cluster = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority-data": inline(trusted.ca)}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "clusters": [{"name": "x", "cluster": cluster}],
                "users": [{"name": "x", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
            }
        )
    )


@pytest.fixture
def server(tmp_path: Path) -> Server:
    folder = tmp_path / "served"
    folder.mkdir()
    return Server(folder)


async def test_another_authority_of_the_server_is_trusted_once_it_is_written(server: Server, tmp_path: Path) -> None:
    """Without a restart; while only the server has changed, calls fail and say why."""
    first, second = bundle(), bundle()
    path = tmp_path / "kubeconfig"
    async with server.serving(first):
        write_kubeconfig(path, server, first)
        client = await connect(path, settings=QUICK)
        assert (await client.version())["gitVersion"] == "v1.0.0"
    async with client, server.serving(second):
        with pytest.raises(errors.UnreachableError, match=r"(?i)certificate"):
            await client.version()
        write_kubeconfig(path, server, second)

        assert (await client.version())["gitVersion"] == "v1.0.0"


async def test_a_certificate_of_our_own_is_replaced_without_a_restart(server: Server, tmp_path: Path) -> None:
    """The former one has expired: it is refused once, however many calls are under way, and new connections are made."""
    authority, first, second = bundle(), own(), own()
    path = tmp_path / "kubeconfig"
    async with server.serving(authority, first, second):
        write_kubeconfig(path, server, authority, first)
        server.wanted = first
        async with await connect(path, settings=QUICK) as client:
            await client.version()
            server.wanted = second
            write_kubeconfig(path, server, authority, second)

            assert (await client.version())["gitVersion"] == "v1.0.0"
            await client.version()
            assert server.refused == 1


async def test_nothing_new_is_no_reason_for_new_connections(server: Server, tmp_path: Path) -> None:
    """A refusal that goes on is told, and no connection is thrown away for it."""
    authority, first, other = bundle(), own(), own()
    path = tmp_path / "kubeconfig"
    async with server.serving(authority, first):
        write_kubeconfig(path, server, authority, first)
        server.wanted = other
        async with await connect(path, settings=QUICK) as client:
            session = client._link.session
            with pytest.raises(errors.UnauthorizedError):
                await client.version()
            assert client._link.session is session
