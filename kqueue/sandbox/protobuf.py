"""Objects that `kubectl create` and typed clients send as protobuf, turned into JSON.

Answers are always JSON, which every client accepts.
Source: the envelope `k8s\\0` + runtime.Unknown of Kubernetes, and the wire numbers in `builtin_types.txt`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from kqueue.sandbox import failure
from kqueue.sandbox.api import Object
from kqueue.sandbox.decoding import MESSAGES
from kqueue.sandbox.shape import FieldShape, wire_fields

MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
DEEPEST = 64
OPTIONS = ("DeleteOptions", "meta.DeleteOptions")


class _BrokenError(ValueError):
    """The bytes are not valid protobuf."""


def decode(body: bytes) -> Object:
    """Return the object in the envelope.

    Raises:
        InvalidError: 400 for bytes that are no valid object, 415 for a kind with unknown fields.
    """
    if not body.startswith(MAGIC):
        raise failure.bad_request("the body is not Kubernetes protobuf: it does not begin with k8s\\0")
    try:
        api_version, kind, raw = _envelope(body[len(MAGIC) :])
        group = api_version.rpartition("/")[0]
        message = OPTIONS[1] if kind == OPTIONS[0] else MESSAGES.get((group, kind))
        if message is None:
            raise failure.unsupported_media(f"{kind} of {api_version} is not read as protobuf here: send it as JSON")
        obj = _message(message, raw, 0)
    except (ValueError, OSError, struct.error, OverflowError, msgspec.MsgspecError) as error:
        raise failure.bad_request(f"the body is not Kubernetes protobuf: {error}") from error
    return {"apiVersion": api_version, "kind": kind, **obj}


def _envelope(data: bytes) -> tuple[str, str, bytes]:
    api_version = kind = ""
    raw = b""
    for number, value in _fields(data):
        if number == 1:
            for inner, text in _fields(_as_bytes(value)):
                if inner == 1:
                    api_version = _as_bytes(text).decode()
                elif inner == 2:
                    kind = _as_bytes(text).decode()
        elif number == 2:
            raw = _as_bytes(value)
    return api_version, kind, raw


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field; varints and fixed numbers as int, the rest as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        match kind:
            case 0:
                value, at = _varint(data, at)
                yield number, value
            case 1:
                yield number, struct.unpack_from("<q", data, at)[0]
                at += 8
            case 2:
                size, at = _varint(data, at)
                if at + size > len(data):
                    raise _BrokenError("it ends within a field")
                yield number, data[at : at + size]
                at += size
            case 5:
                yield number, struct.unpack_from("<i", data, at)[0]
                at += 4
            case _:
                raise _BrokenError(f"wire type {kind} is unknown")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _BrokenError("a number does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _BrokenError("it has a number in place of bytes")
    return value


def _message(name: str, data: bytes, depth: int) -> Object:
    if depth > DEEPEST:
        raise _BrokenError("it is nested too deeply")
    known = wire_fields(name)
    out: Object = {}
    for number, value in _fields(data):
        field = known.get(number)
        if field is None:
            continue
        shape = field.shape
        if field.inline:
            out.update(_message(shape.message, _as_bytes(value), depth + 1))
        elif shape.type == "list":
            assert shape.element is not None
            out.setdefault(field.name, []).append(_value(shape.element, value, depth))
        elif shape.type == "map":
            assert shape.element is not None
            key, item = _entry(shape.element, _as_bytes(value), depth)
            out.setdefault(field.name, {})[key] = item
        else:
            out[field.name] = _value(shape, value, depth)
    return {key: value for key, value in out.items() if value is not None and value != ""}


def _entry(shape: FieldShape, data: bytes, depth: int) -> tuple[str, Any]:
    key, value = "", None
    for number, found in _fields(data):
        if number == 1:
            key = _as_bytes(found).decode()
        elif number == 2:
            value = _value(shape, found, depth)
    return key, "" if value is None and shape.type in ("string", "bytes") else value


def _value(shape: FieldShape, value: int | bytes, depth: int) -> Any:
    match shape.type:
        case "string":
            return _as_bytes(value).decode()
        case "bool":
            return bool(value)
        case "integer":
            if isinstance(value, bytes):
                raise _BrokenError("it has bytes in place of a number")
            return value - (1 << 64) if value >= 1 << 63 else value
        case "number":
            return struct.unpack("<d", struct.pack("<q", value))[0]
        case "bytes":
            return base64.b64encode(_as_bytes(value)).decode()
        case "object":
            return _message(shape.message, _as_bytes(value), depth + 1)
        case _:
            return _special(shape.type, _as_bytes(value))


def _special(kind: str, data: bytes) -> Any:
    fields = dict(_fields(data))
    match kind:
        case "quantity":
            return _as_bytes(fields.get(1, b"0")).decode()
        case "time" | "micro_time":
            return _time(fields, kind)
        case "int_or_string":
            return _as_bytes(fields.get(3, b"")).decode() if fields.get(1) == 1 else fields.get(2, 0)
        case _:
            raw = fields.get(1)
            return None if raw is None else msgspec.json.decode(_as_bytes(raw))


def _time(fields: dict[int, int | bytes], kind: str) -> str | None:
    seconds, nanos = fields.get(1, 0), fields.get(2, 0)
    if isinstance(seconds, bytes) or isinstance(nanos, bytes):
        raise _BrokenError("it has bytes in place of a time")
    if seconds >= 1 << 63:
        return None  # Go's zero time
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanos // 1000, tzinfo=None)
    return moment.isoformat(timespec="microseconds" if kind == "micro_time" else "seconds") + "Z"
