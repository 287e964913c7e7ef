"""Certificates: accepted by strict clients, checked when read, replaced while serving."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from kqueue.clock import FakeClock, SystemClock
from kqueue.errors import ConfigError
from kqueue.runtime.certificates import Bundle, CertificateFolder, make_bundle, read_bundle, write_bundle

NAMES = ["kqueue-webhook.kqueue-system.svc", "127.0.0.1"]


def fresh() -> Bundle:
    """A bundle that is valid now."""
    return make_bundle(NAMES, now=datetime.now(UTC))


async def served_serial(folder: CertificateFolder, ca: bytes, name: str) -> int:
    """Serial number of the certificate that a strict client gets."""
    client = ssl.create_default_context(cadata=ca.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    server = await asyncio.start_server(lambda r, w: w.close(), "127.0.0.1", 0, ssl=folder.context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client, server_hostname=name)
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return x509.load_der_x509_certificate(der).serial_number


@pytest.mark.parametrize("name", NAMES)
async def test_a_strict_client_accepts_what_we_make(tmp_path: Path, name: str) -> None:
    """By DNS name and by address, under OpenSSL's strict rules."""
    bundle = fresh()
    write_bundle(bundle, tmp_path)

    folder = CertificateFolder(tmp_path, clock=SystemClock())

    assert await served_serial(folder, bundle.ca, name) > 0


async def test_new_files_are_served_without_a_restart(tmp_path: Path) -> None:
    """The same TLS context hands out the new certificate after a look at the folder."""
    old, new = fresh(), fresh()
    write_bundle(old, tmp_path)
    told: list[Bundle] = []
    folder = CertificateFolder(tmp_path, clock=SystemClock(), on_reload=told.append)
    before = await served_serial(folder, old.ca, NAMES[0])

    unchanged = folder.check()
    write_bundle(new, tmp_path)
    changed = folder.check()

    assert (unchanged, changed) == (False, True)
    assert await served_serial(folder, new.ca, NAMES[0]) != before
    assert [b.ca for b in told] == [new.ca]


async def test_the_folder_is_looked_at_again_and_again(tmp_path: Path) -> None:
    """`watch` picks up a change within its interval."""
    write_bundle(fresh(), tmp_path)
    clock = FakeClock()
    folder = CertificateFolder(tmp_path, clock=clock)
    watching = asyncio.ensure_future(folder.watch(interval=10))
    await clock.advance(0)

    new = fresh()
    write_bundle(new, tmp_path)
    await clock.advance(10)
    watching.cancel()

    assert folder.bundle == new


def half_replaced(folder: Path) -> None:
    """Only the key is new."""
    (folder / "tls.key").write_bytes(fresh().key)


def emptied(folder: Path) -> None:
    """The certificate file is empty."""
    (folder / "tls.crt").write_bytes(b"")


def gone(folder: Path) -> None:
    """The key is gone."""
    (folder / "tls.key").unlink()


def foreign_ca(folder: Path) -> None:
    """The CA did not sign the certificate."""
    (folder / "ca.crt").write_bytes(fresh().ca)


def garbage(folder: Path) -> None:
    """The key is no PEM."""
    (folder / "tls.key").write_bytes(b"secret")


def too_weak(folder: Path) -> None:
    """A key so short that OpenSSL refuses it, though the files belong together."""
    key = rsa.generate_private_key(65537, 1024)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    certificate = made.sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "tls.crt").write_bytes(certificate.public_bytes(pem))
    (folder / "tls.key").write_bytes(key.private_bytes(pem, form, secret))


BREAKAGES = [
    pytest.param(too_weak, "cannot be loaded", id="weak-key"),
    pytest.param(half_replaced, "replace both together", id="key-of-another"),
    pytest.param(emptied, "is not a PEM certificate", id="empty-certificate"),
    pytest.param(gone, "mount the TLS Secret", id="key-missing"),
    pytest.param(foreign_ca, "has not signed", id="ca-of-another"),
    pytest.param(garbage, "is not a PEM private key", id="garbage-key"),
]


@pytest.mark.parametrize(("harm", "match"), BREAKAGES)
def test_a_broken_folder_says_what_is_wrong(tmp_path: Path, harm: Callable[[Path], None], match: str) -> None:
    """At start the error names the file and the remedy."""
    write_bundle(fresh(), tmp_path)
    harm(tmp_path)

    with pytest.raises(ConfigError, match=match) as caught:
        CertificateFolder(tmp_path, clock=SystemClock())

    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(("harm", "match"), BREAKAGES)
async def test_a_folder_that_breaks_later_leaves_the_good_certificate(
    tmp_path: Path, harm: Callable[[Path], None], match: str
) -> None:
    """While serving, broken files change nothing, and good ones are taken when they come."""
    old, new = fresh(), fresh()
    write_bundle(old, tmp_path)
    folder = CertificateFolder(tmp_path, clock=SystemClock())
    harm(tmp_path)

    assert not folder.check()
    assert await served_serial(folder, old.ca, NAMES[0]) > 0
    write_bundle(new, tmp_path)
    assert folder.check()


def test_the_key_is_for_its_owner_only(tmp_path: Path) -> None:
    """Nobody else on the machine can read the private key."""
    write_bundle(fresh(), tmp_path / "new" / "folder")

    assert (tmp_path / "new" / "folder" / "tls.key").stat().st_mode & 0o077 == 0
    assert read_bundle(tmp_path / "new" / "folder").ca


def test_expiry_is_counted_down(tmp_path: Path) -> None:
    """The time left is what metrics and renewal look at."""
    clock = FakeClock()
    write_bundle(make_bundle(NAMES, now=clock.now(), valid=timedelta(days=10)), tmp_path)

    assert CertificateFolder(tmp_path, clock=clock).expires_in() == timedelta(days=10)


def test_a_certificate_without_names_is_refused() -> None:
    """Nobody could connect to it."""
    with pytest.raises(ValueError, match="at least one"):
        make_bundle([], now=datetime.now(UTC))
