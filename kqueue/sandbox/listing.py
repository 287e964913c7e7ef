"""Lists with selectors, in pages of the same resourceVersion, joined from encoded objects."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from kqueue.sandbox import failure
from kqueue.sandbox.api import Object
from kqueue.sandbox.cluster_api import ClusterApi
from kqueue.sandbox.registry import ServedKind
from kqueue.sandbox.route import RequestSelection, number
from kqueue.sandbox.store import StoredObject

MATCHES = ("Exact", "NotOlderThan")


@dataclass(frozen=True, slots=True)
class ListPage:
    """Records of a page, the version of the whole list, and the continue token ("" at the end)."""

    records: list[StoredObject]
    version: int
    token: str
    remaining: int | None

    def metadata(self) -> Object:
        """Return the list's metadata."""
        out: Object = {"resourceVersion": str(self.version)}
        if self.token:
            out["continue"] = self.token
        if self.remaining:
            out["remainingItemCount"] = self.remaining
        return out


async def page(api: ClusterApi, kind: ServedKind, chosen: RequestSelection, query: Mapping[str, str]) -> ListPage:
    """Return the page for a query.

    Raises:
        GoneError: the continue token, or the exact version in the query, is older than the kept log.
        InvalidError: 400 for parameters that cannot be parsed, 422 for parameters that exclude each other.
        ServerError: 504 for a version that this server has not reached; 500 if objects cannot be converted.
    """
    _check(query)
    limit = 0 if query.get("limit", "").startswith("-") else number(query, "limit") or 0
    token = query.get("continue", "")
    start: tuple[str, str] = ("", "")
    if token:
        version, start = _from_token(token)
        records = _at(api, kind, version, chosen)
    else:
        version, records = _fresh(api, kind, chosen, query)
    if start != ("", ""):
        records = [record for record in records if (record.namespace, record.name) > start]
    if not chosen.is_all:
        await api.forms.prepare(kind, records)
        records = [record for record in records if chosen.selects(kind.shown(record))]
    await api.forms.prepare(kind, records[:limit] if limit else records)
    if not limit or len(records) <= limit:
        return ListPage(records, version, "", None)
    last = records[limit - 1]
    remaining = len(records) - limit if chosen.is_all else None
    return ListPage(records[:limit], version, _to_token(version, last), remaining)


def _check(query: Mapping[str, str]) -> None:
    """Raise InvalidError for parameters that cannot be parsed (400), or that exclude each other (422)."""
    number(query, "timeoutSeconds")
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    found = []
    if "sendInitialEvents" in query:
        found.append(failure.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    rules = {
        "resourceVersionMatch is forbidden unless resourceVersion is provided": not version,
        "resourceVersionMatch is forbidden when continue is provided": bool(query.get("continue")),
        'resourceVersionMatch "exact" is forbidden for resourceVersion "0"': match == "Exact" and version == "0",
    }
    if match:
        found += [failure.forbidden_field("resourceVersionMatch", why) for why, broken in rules.items() if broken]
    if match not in ("", *MATCHES):
        found.append(failure.unsupported("resourceVersionMatch", match, [*MATCHES, ""]))
    if found:
        raise failure.invalid_object("meta.k8s.io", "ListOptions", "", found)


def _fresh(
    api: ClusterApi, kind: ServedKind, chosen: RequestSelection, query: Mapping[str, str]
) -> tuple[int, list[StoredObject]]:
    wanted = number(query, "resourceVersion")
    match = query.get("resourceVersionMatch", "")
    if wanted is not None and wanted > api.versions.current:
        raise failure.too_new(wanted, api.versions.current)
    if match == "Exact" and wanted:
        return wanted, _at(api, kind, wanted, chosen)
    return api.versions.current, list(api.store(kind).records(chosen.namespace))


def _at(api: ClusterApi, kind: ServedKind, version: int, chosen: RequestSelection) -> list[StoredObject]:
    return api.store(kind).at(version, chosen.namespace)


def _to_token(version: int, last: StoredObject) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, last.namespace, last.name])).decode().rstrip("=")


def _from_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        padded = token + "=" * (-len(token) % 4)
        version, namespace, name = msgspec.json.decode(
            base64.urlsafe_b64decode(padded), type=tuple[int, str, str], strict=True
        )
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise failure.bad_request("continue key is not valid: it was not given out by this server") from error
    return version, (namespace, name)


def encoded(kind: ServedKind, record: StoredObject) -> bytes:
    """Return a record as JSON in the kind's version; cached bytes if that is the stored version."""
    return record.encoded if kind.is_as_stored(record) else msgspec.json.encode(kind.shown(record))


def joined(kind: ServedKind, found: ListPage) -> bytes:
    """Return a page as one JSON document."""
    head = msgspec.json.encode({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": found.metadata()})
    return head[:-1] + b',"items":[' + b",".join(encoded(kind, record) for record in found.records) + b"]}"
