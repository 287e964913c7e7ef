"""Storage of certificates: a Secret that replicas share, or the memory of a single process."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from kqueue.clock import utc_text
from kqueue.errors import ConfigError, NotFoundError
from kqueue.runtime.certificates import CA, CERTIFICATE, KEY, Bundle, checked_bundle
from kqueue.runtime.client import Client
from kqueue.runtime.resources import ResourceType
from kqueue.runtime.rotation import CertificateHolding, split_authorities

SECRETS = ResourceType("", "v1", "secrets", "Secret")
NEXT_CERTIFICATE, NEXT_KEY, NEXT_CA, NEXT_SINCE = "next-tls.crt", "next-tls.key", "next-ca.crt", "next-since"
"""Keys of the Secret beside the standard keys of a TLS Secret; absent while no renewal is under way."""

_log = structlog.get_logger(__name__)


class Shelf(Protocol):
    """Stores the certificates that replicas share."""

    async def read(self) -> tuple[CertificateHolding, str]:
        """Return the stored certificates and their version; both are empty when nothing is stored."""
        ...

    async def write(self, holding: CertificateHolding, version: str) -> None:
        """Replace the certificates that were read at `version`.

        Raises:
            AlreadyExistsError, ConflictError: another replica was faster; read again.
        """
        ...


class MemoryShelf:
    """Stores certificates for a single process, which has an address of its own."""

    def __init__(self) -> None:
        self._held = CertificateHolding()

    async def read(self) -> tuple[CertificateHolding, str]:
        """Return the certificates written last."""
        return self._held, ""

    async def write(self, holding: CertificateHolding, version: str) -> None:
        """Store the certificates."""
        self._held = holding


class SecretShelf:
    """Stores certificates in a Secret of our namespace; an empty Secret, as a chart creates it, is filled."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name

    async def read(self) -> tuple[CertificateHolding, str]:
        """Return the certificates of the Secret.  Unusable contents are logged and count as none.

        Raises:
            ApiError: the Secret cannot be read.
        """
        try:
            secret = await self._client.get_json(SECRETS, self._name, self._namespace)
        except NotFoundError:
            return CertificateHolding(), ""
        return self._holding(secret), str(secret["metadata"]["resourceVersion"])

    async def write(self, holding: CertificateHolding, version: str) -> None:
        """Create the Secret, or change our keys in it."""
        data = _data(holding)
        if version:
            lock = {"resourceVersion": version}
            await self._client.patch(SECRETS, self._name, {"metadata": lock, "data": data}, self._namespace)
            return
        metadata = {"name": self._name, "namespace": self._namespace}
        kept = {key: value for key, value in data.items() if value is not None}
        secret = {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata, "data": kept}
        await self._client.create(SECRETS, secret)

    def _holding(self, secret: Mapping[str, Any]) -> CertificateHolding:
        data, where = secret.get("data") or {}, f"Secret {self._namespace}/{self._name}"
        if not data.get(CERTIFICATE):
            return CertificateHolding()
        try:
            return holding_of({key: base64.b64decode(value) for key, value in data.items()}, where=where)
        except (ConfigError, binascii.Error) as e:
            _log.warning("certificates cannot be used, new ones are made", secret=where, error=str(e))
            return CertificateHolding()


def holding_of(data: Mapping[str, bytes], *, where: str) -> CertificateHolding:
    """Return the certificates in the keys of a Secret.  An unreadable renewal is dropped, so another one begins.

    Raises:
        ConfigError: the current certificate cannot be used.
    """
    authorities = split_authorities(data.get(CA, b""))
    first = authorities[0] if authorities else b""
    current = checked_bundle(data.get(CERTIFICATE, b""), data.get(KEY, b""), first, where=where)
    upcoming, announced = _upcoming(data, where)
    known = {first, upcoming.ca if upcoming is not None else b""}
    retired = tuple(pem for pem in authorities if pem not in known)
    return CertificateHolding(current=current, upcoming=upcoming, announced=announced, retired=retired)


def _upcoming(data: Mapping[str, bytes], where: str) -> tuple[Bundle, datetime] | tuple[None, None]:
    if NEXT_CERTIFICATE not in data:
        return None, None
    try:
        announced = datetime.fromisoformat(data.get(NEXT_SINCE, b"").decode())
        texts = (data[NEXT_CERTIFICATE], data.get(NEXT_KEY, b""), data.get(NEXT_CA, b""))
        return checked_bundle(*texts, where=f"{where}, next"), announced.astimezone(UTC)
    except (ValueError, ConfigError) as e:
        _log.warning("a renewal that was begun cannot be read, it begins anew", secret=where, error=str(e))
        return None, None


def _data(holding: CertificateHolding) -> dict[str, str | None]:
    """Return the keys of the Secret; None removes a key."""
    current, upcoming = holding.current, holding.upcoming
    assert current is not None, "there is always something to serve"
    since = utc_text(holding.announced).encode() if holding.announced is not None else None
    data = {
        CERTIFICATE: current.certificate,
        KEY: current.key,
        CA: holding.authorities,
        NEXT_CERTIFICATE: upcoming.certificate if upcoming is not None else None,
        NEXT_KEY: upcoming.key if upcoming is not None else None,
        NEXT_CA: upcoming.ca if upcoming is not None else None,
        NEXT_SINCE: since,
    }
    return {key: None if value is None else base64.b64encode(value).decode() for key, value in data.items()}
