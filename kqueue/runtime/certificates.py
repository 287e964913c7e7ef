"""Server certificates: make them, read them from a folder, and pick up new ones without a restart."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kqueue.clock import Clock
from kqueue.errors import ConfigError

CERTIFICATE = "tls.crt"
KEY = "tls.key"
CA = "ca.crt"
"""File names of a Kubernetes TLS Secret that is mounted as a folder."""

_BACKDATED = timedelta(hours=1)
"""Certificates become valid so long before now, because the clocks of other machines may be behind ours."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A server's certificate, its private key and the CA that clients must trust; all PEM."""

    certificate: bytes
    key: bytes
    ca: bytes
    not_after: datetime
    """When the certificate expires (UTC)."""


def make_bundle(names: Sequence[str], *, now: datetime, valid: timedelta = timedelta(days=365)) -> Bundle:
    """Return a server certificate for `names` (DNS names and IP addresses) under a new CA (P-256).

    The CA's key is not kept, so the CA cannot sign another certificate; a renewal makes a new CA.

    Raises:
        ValueError: `names` is empty.
    """
    if not names:
        raise ValueError("a server certificate needs at least one DNS name or IP address")
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    end = now + valid
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kqueue CA")])
    ca = _template(ca_name, ca_name, ca_key.public_key(), now, end)
    ca = ca.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    ca = ca.add_extension(_usage(signs_certificates=True), critical=True)
    ca_certificate = ca.sign(ca_key, hashes.SHA256())
    leaf_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])  # 64: RFC 5280's upper bound
    leaf = _template(leaf_name, ca_name, key.public_key(), now, end)
    leaf = leaf.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    leaf = leaf.add_extension(_usage(signs_certificates=False), critical=True)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    leaf = leaf.add_extension(x509.SubjectAlternativeName([_general_name(n) for n in names]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    leaf_certificate = leaf.add_extension(issuer, critical=False).sign(ca_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    return Bundle(
        certificate=leaf_certificate.public_bytes(pem),
        key=key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        ca=ca_certificate.public_bytes(pem),
        not_after=leaf_certificate.not_valid_after_utc,
    )


def write_bundle(bundle: Bundle, folder: Path) -> None:
    """Write the three files, each whole or not at all; the key is readable by its owner only.

    Raises:
        ConfigError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The key first: a reader that meets the new key with the old certificate waits for its next look.
        for name, data in ((KEY, bundle.key), (CERTIFICATE, bundle.certificate), (CA, bundle.ca)):
            fresh = folder / f".{name}.{os.getpid()}"
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(data)
            fresh.replace(folder / name)
    except OSError as e:
        raise ConfigError(f"certificate folder {folder}: cannot be written: {e.strerror or e}") from e


def read_bundle(folder: Path) -> Bundle:
    """Read and check the three files.

    A missing `ca.crt` is no error (`ca` is then empty): public CAs need none, and only webhook registration reads it.

    Raises:
        ConfigError: a file is missing or unreadable, is not PEM, or key and certificate do not belong together; names
            the file and the remedy.
    """
    certificate, key = _read(folder / CERTIFICATE), _read(folder / KEY)
    ca = _read(folder / CA) if (folder / CA).exists() else b""
    return checked_bundle(certificate, key, ca, where=str(folder))


def checked_bundle(certificate: bytes, key: bytes, ca: bytes, *, where: str) -> Bundle:
    """Check the three PEM texts and return them as a bundle.  `where` names their place in errors.

    Raises:
        ConfigError: see `read_bundle`.
    """
    try:
        leaf = x509.load_pem_x509_certificates(certificate)[0]
    except ValueError as e:
        raise ConfigError(f"{where}/{CERTIFICATE}: is not a PEM certificate; put the server's chain there") from e
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError) as e:  # TypeError: the key is encrypted
        raise ConfigError(f"{where}/{KEY}: is not a PEM private key without a password") from e
    spki = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*spki) != leaf.public_key().public_bytes(*spki):
        raise ConfigError(f"{where}: {KEY} is not the key of {CERTIFICATE}; replace both together")
    _check_issuer(leaf, ca, where)
    return Bundle(certificate=certificate, key=key, ca=ca, not_after=leaf.not_valid_after_utc)


class CertificateFolder:
    """A server's TLS context that follows the files of a folder.

    `context` is always the same object: new handshakes use the new certificate, and open connections stay open.  While
    the files are broken or half-replaced, the last good certificate stays, and the files are read again later.
    """

    def __init__(self, folder: Path, *, clock: Clock, on_reload: Callable[[Bundle], None] | None = None) -> None:
        """Read the folder at once.

        Raises:
            ConfigError: see `read_bundle`.
        """
        self.folder = folder
        self._clock, self._on_reload = clock, on_reload
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.bundle = self._load()
        self._digest = _digest(self.bundle)
        self._complained_of = ""

    def expires_in(self) -> timedelta:
        """Return the time until the served certificate expires; negative after its expiry."""
        return self.bundle.not_after - self._clock.now()

    def check(self) -> bool:
        """Load the files if they have changed; return whether a new certificate is served from now on."""
        try:
            found = read_bundle(self.folder)
            if _digest(found) == self._digest:
                return False
            self.bundle = self._load()
        except ConfigError as e:
            if str(e) != self._complained_of:  # once for each problem, not at every look
                _log.error("certificate not reloaded, the last good one is served", error=str(e))
            self._complained_of = str(e)
            return False
        self._digest, self._complained_of = _digest(self.bundle), ""
        _log.info("certificate reloaded", folder=str(self.folder), not_after=self.bundle.not_after.isoformat())
        if self._on_reload is not None:
            self._on_reload(self.bundle)
        return True

    async def watch(self, interval: float = 10.0) -> None:
        """Check the files every `interval` seconds until cancelled (a mounted Secret changes within a minute)."""
        while True:
            await self._clock.sleep(interval)
            self.check()

    def _load(self) -> Bundle:
        """Load the files of the folder into the live context.

        OpenSSL loads certificate and key one after the other and keeps a certificate whose key fails, so the files are
        first loaded into a temporary context.
        """
        bundle = read_bundle(self.folder)
        files = (self.folder / CERTIFICATE, self.folder / KEY)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
            self.context.load_cert_chain(*files)
        except OSError as e:  # SSLError is one too
            raise ConfigError(f"{self.folder}: {CERTIFICATE} and {KEY} cannot be loaded: {e}") from e
        return bundle


def _template(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _BACKDATED).not_valid_after(end)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _check_issuer(leaf: x509.Certificate, ca: bytes, where: str) -> None:
    """Check that a ca.crt with one certificate has the issuer; a longer ca.crt may have old and new CAs."""
    if not ca.strip():
        return
    try:
        roots = x509.load_pem_x509_certificates(ca)
    except ValueError as e:
        raise ConfigError(f"{where}/{CA}: is not a PEM certificate; put the CA that signed {CERTIFICATE} there") from e
    if len(roots) == 1 and leaf.issuer == roots[0].subject:
        try:
            leaf.verify_directly_issued_by(roots[0])
        except (InvalidSignature, ValueError, TypeError) as e:
            raise ConfigError(f"{where}: {CA} has not signed {CERTIFICATE}; replace them together") from e


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read ({e.strerror or e}); mount the TLS Secret there") from e


def _digest(bundle: Bundle) -> bytes:
    return hashlib.sha256(b"\0".join((bundle.certificate, bundle.key, bundle.ca))).digest()
