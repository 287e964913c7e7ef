"""Where replicas share what `rotation` works out: a Secret, or the memory of a process that is alone."""

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
from kqueue.runtime.rotation import Holding, split_authorities

SECRETS = ResourceType("", "v1", "secrets", "Secret")
NEXT_CERTIFICATE, NEXT_KEY, NEXT_CA, NEXT_SINCE = "next-tls.crt", "next-tls.key", "next-ca.crt", "next-since"
"""Keys of the Secret beside those of every TLS Secret; absent while no renewal is under way."""

_log = structlog.get_logger(__name__)


class Shelf(Protocol):
    """Holds what replicas share."""

    async def read(self) -> tuple[Holding, str]:
        """What is held, and its version; an empty holding and an empty version where there is nothing yet."""
        ...

    async def write(self, holding: Holding, version: str) -> None:
        """Hold this instead of what was read at `version`.

        Raises:
            AlreadyExistsError, ConflictError: another replica was faster; read again.
        """
        ...


class MemoryShelf:
    """For a process that is reached by an address of its own and shares nothing."""

    def __init__(self) -> None:
        self._held = Holding()

    async def read(self) -> tuple[Holding, str]:
        """What was written last."""
        return self._held, ""

    async def write(self, holding: Holding, version: str) -> None:
        """Keep it."""
        self._held = holding


class SecretShelf:
    """A Secret in our namespace; one that exists empty, as a chart makes it, is filled."""

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client, self._namespace, self._name = client, namespace, name

    async def read(self) -> tuple[Holding, str]:
        """What the Secret says.  Contents that cannot be used count as none; they are said in the log.

        Raises:
            ApiError: the Secret cannot be read.
        """
        try:
            secret = await self._client.get_json(SECRETS, self._name, self._namespace)
        except NotFoundError:
            return Holding(), ""
        return self._holding(secret), str(secret["metadata"]["resourceVersion"])

    async def write(self, holding: Holding, version: str) -> None:
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

    def _holding(self, secret: Mapping[str, Any]) -> Holding:
        data, where = secret.get("data") or {}, f"Secret {self._namespace}/{self._name}"
        if not data.get(CERTIFICATE):
            return Holding()
        try:
            return holding_of({key: base64.b64decode(value) for key, value in data.items()}, where=where)
        except (ConfigError, binascii.Error) as e:
            _log.warning("certificates cannot be used, new ones are made", secret=where, error=str(e))
            return Holding()


def holding_of(data: Mapping[str, bytes], *, where: str) -> Holding:
    """What the keys of a Secret say.  A renewal that cannot be read is dropped: another will be begun.

    Raises:
        ConfigError: the certificate that is to be served cannot be used.
    """
    authorities = split_authorities(data.get(CA, b""))
    first = authorities[0] if authorities else b""
    current = checked_bundle(data.get(CERTIFICATE, b""), data.get(KEY, b""), first, where=where)
    upcoming, announced = _upcoming(data, where)
    known = {first, upcoming.ca if upcoming is not None else b""}
    retired = tuple(pem for pem in authorities if pem not in known)
    return Holding(current=current, upcoming=upcoming, announced=announced, retired=retired)


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


def _data(holding: Holding) -> dict[str, str | None]:
    """The keys of the Secret; None takes one away."""
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
