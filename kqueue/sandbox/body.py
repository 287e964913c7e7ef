"""Bodies of requests: JSON, YAML and protobuf in, JSON out; hostile bodies are refused with a sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml
from aiohttp import web

from kqueue.documents import TooMuchError, check_json, load_yaml
from kqueue.sandbox import failure, protobuf

LARGEST = 3 * 1024 * 1024
"""Bytes of a request's body, as in the real server."""
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
YAMLS = ("application/yaml", "application/x-yaml", "application/apply-patch+yaml")
_decode_json = msgspec.json.Decoder().decode
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """YAML without timestamps: in Kubernetes they are text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}


async def read(request: web.BaseRequest) -> bytes:
    """Return the whole body.  Raises InvalidError (413) as soon as it is too long."""
    if (request.content_length or 0) > LARGEST:
        raise failure.too_large(LARGEST)
    if not request.body_exists:
        return b""
    parts: list[bytes] = []
    size = 0
    async for part in request.content.iter_any():
        size += len(part)
        if size > LARGEST:
            raise failure.too_large(LARGEST)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decode(body: bytes, content_type: str) -> Any:
    """Return the value in a body.

    Raises:
        InvalidError: 415 for an unknown content type, 400 for a body that does not have its type.
    """
    if content_type in (JSON, "", "*/*") or content_type.endswith("+json"):
        return from_json(body)
    if content_type in YAMLS:
        return from_yaml(body)
    if content_type == PROTOBUF:
        return protobuf.decode(body)
    raise failure.unsupported_media(
        "the body of the request was in an unknown format - accepted media types include: "
        f"{JSON}, {YAMLS[0]}, {PROTOBUF}"
    )


def from_json(body: bytes) -> Any:
    """Parse JSON.  Raises InvalidError (400)."""
    try:
        check_json(body)
        return _decode_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise failure.bad_request(f"the body is not JSON: {error}") from error
    except TooMuchError as error:
        raise failure.bad_request(f"the body is refused: {error}") from error


def from_yaml(body: bytes) -> Any:
    """Parse YAML.  Raises InvalidError (400), also for aliases, because a few of them can mean terabytes."""
    if body[:1] == b"{":
        try:
            check_json(body)
            return _decode_json(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TooMuchError):
            pass  # YAML in braces, perhaps
    try:
        documents = load_yaml(body.decode(), _Loader, aliases=False)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise failure.bad_request(f"the body is not YAML: {error}") from error
    if len(documents) > 1:
        raise failure.bad_request(f"the body has {len(documents)} YAML documents; send one")
    return documents[0] if documents else None
