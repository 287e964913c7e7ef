"""The keys and certificates of one short-lived control plane: one authority, one leaf per part."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

LOOPBACK = ("127.0.0.1", "localhost")
FRONT_PROXY = "front-proxy-client"
"""Common name of the certificate under which the API server passes requests on."""
SERVICE = ("kubernetes.default.svc", "kubernetes.default", "10.96.0.1")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Certificates:
    """All that the parts need to trust each other and nobody else."""

    authority: Path
    etcd: KeyPair
    api_server: KeyPair
    admin: KeyPair
    front_proxy: KeyPair
    """What the API server shows to those to whom it passes requests on."""
    front_proxy_authority: Path
    """Signs nothing else: who is trusted to name other users must not be anybody with a certificate."""
    service_accounts: Path
    """The key that signs the tokens of service accounts."""


def issue(folder: Path) -> Certificates:
    """Write a fresh authority and its leaves to `folder` (P-256, milliseconds)."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.crt")
    authority.private_key_pem.write_to_path(folder / "ca.key")
    (folder / "ca.key").chmod(0o600)
    proxies = trustme.CA()
    proxies.cert_pem.write_to_path(folder / "front-proxy-ca.crt")
    tokens = trustme.CA()
    tokens.private_key_pem.write_to_path(folder / "service-accounts.key")

    # Each leaf names a host, the administrator's too: Go refuses the empty, critical list that it would carry else.
    def leaf(
        name: str, *hosts: str, user: str | None = None, group: str | None = None, signer: trustme.CA = authority
    ) -> KeyPair:
        cert = signer.issue_cert(*hosts, common_name=user or name, organization_name=group)
        pair = KeyPair(folder / f"{name}.crt", folder / f"{name}.key")
        cert.cert_chain_pems[0].write_to_path(pair.certificate)
        cert.private_key_pem.write_to_path(pair.key)
        pair.key.chmod(0o600)
        return pair

    (folder / "service-accounts.key").chmod(0o600)
    return Certificates(
        authority=folder / "ca.crt",
        etcd=leaf("etcd", *LOOPBACK),
        api_server=leaf("api-server", *LOOPBACK, *SERVICE),
        admin=leaf("admin", "admin.invalid", user="admin", group="system:masters"),
        front_proxy=leaf("front-proxy", "front-proxy.invalid", user=FRONT_PROXY, signer=proxies),
        front_proxy_authority=folder / "front-proxy-ca.crt",
        service_accounts=folder / "service-accounts.key",
    )


def issue_client(certificates: Certificates, to: KeyPair, *, seconds: float) -> float:
    """Another certificate of an administrator, which lives so long; when it ends, in Unix time."""
    authority = certificates.authority
    signer = trustme.CA.from_pem(authority.read_bytes(), authority.with_suffix(".key").read_bytes())
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).replace(microsecond=0)
    cert = signer.issue_cert(
        "admin.invalid", common_name="rotated", organization_name="system:masters", not_after=until
    )
    for path, blob in ((to.certificate, cert.cert_chain_pems[0]), (to.key, cert.private_key_pem)):
        new = path.with_suffix(".new")
        blob.write_to_path(new)
        new.rename(path)
    return until.timestamp()
