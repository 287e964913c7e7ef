"""Finds the user in whose name the API server's aggregation layer sends a request.

The aggregation layer proves its identity by a TLS client certificate and names the user in headers.  A ConfigMap of
the API server has the authority of that certificate, its allowed names, and the names of the headers.
Pure: the ConfigMap, certificate and headers in; a user out.

Source: Kubernetes, "Configure the Aggregation Layer".
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import unquote

from kqueue.errors import ConfigError

NAMESPACE, CONFIG_MAP = "kube-system", "extension-apiserver-authentication"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
_ANONYMOUS = "system:anonymous"


class Headers(Protocol):
    """Headers of a request; the case of names does not matter."""

    def getall(self, key: str, default: list[str], /) -> list[str]:
        """Return all values of a header, in their order."""
        ...

    def keys(self) -> Iterable[str]:
        """Return the names of all headers, in the request's case."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The user of a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Extra keys with their values, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxy:
    """A trusted front proxy, and the headers in which it names users."""

    authorities: str
    """PEM certificates of authorities; one of them must have signed the proxy's certificate."""
    names: frozenset[str] = frozenset()
    """Common names that its certificate may have; empty for any."""
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


def front_proxy_of(data: Mapping[str, str]) -> FrontProxy | None:
    """Read the ConfigMap's data; None where the API server has no aggregation layer.

    Raises:
        ConfigError: the data cannot be read; then no front proxy may be trusted.
    """
    authorities = data.get("requestheader-client-ca-file", "")
    if not authorities.strip():
        return None
    found = FrontProxy(
        authorities=authorities,
        names=frozenset(_strings(data, "requestheader-allowed-names")),
        user_headers=_strings(data, "requestheader-username-headers"),
        uid_headers=_strings(data, "requestheader-uid-headers"),
        group_headers=_strings(data, "requestheader-group-headers"),
        extra_prefixes=_strings(data, "requestheader-extra-headers-prefix"),
    )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as e:
        raise _unreadable("requestheader-client-ca-file", f"is no PEM certificate: {e}") from e
    return found


def proves(certificate: Mapping[str, Any], proxy: FrontProxy, now: datetime) -> bool:
    """Whether a client certificate, signed by one of the authorities, is the front proxy's and has not expired.

    `certificate` is in the form of `ssl.SSLSocket.getpeercert`: empty without one.
    """
    if not certificate or ssl.cert_time_to_seconds(str(certificate["notAfter"])) <= now.timestamp():
        return False
    subject = (pair for part in certificate.get("subject", ()) for pair in part)
    common = [value for key, value in subject if key == "commonName"]
    return not proxy.names or any(name in proxy.names for name in common)


def spoken_for(headers: Headers, proxy: FrontProxy) -> User | None:
    """Return the user that a trusted front proxy names; None when it names no user."""
    name = _first(headers, proxy.user_headers)
    if not name:
        return None
    groups = tuple(value for header in proxy.group_headers for value in headers.getall(header, []) if value)
    return User(
        name=name,
        uid=_first(headers, proxy.uid_headers),
        groups=with_authenticated(name, groups),
        extra=_extra(headers, proxy.extra_prefixes),
    )


def with_authenticated(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups with the group of authenticated users, which has the rights on discovery."""
    if name == _ANONYMOUS or AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, AUTHENTICATED)


def _first(headers: Headers, names: Iterable[str]) -> str:
    return next((value for name in names for value in headers.getall(name, []) if value), "")


def _extra(headers: Headers, prefixes: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, dict[str, None]] = {}
    for prefix in (each.lower() for each in prefixes):
        for header in {key.lower() for key in headers.keys()}:  # noqa: SIM118  (a multi-dictionary)
            if header.startswith(prefix):
                values = found.setdefault(unquote(header[len(prefix) :]), {})
                values.update(dict.fromkeys(headers.getall(header, [])))
    return tuple(sorted((key, tuple(values)) for key, values in found.items()))


def _strings(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    if not text.strip():
        return ()
    try:
        found = json.loads(text)
    except ValueError as e:
        raise _unreadable(key, "is no JSON") from e
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise _unreadable(key, "is no list of strings")
    return tuple(found)


def _unreadable(key: str, problem: str) -> ConfigError:
    return ConfigError(f"ConfigMap {NAMESPACE}/{CONFIG_MAP}: {key} {problem}; the API server writes it, see its flags")
