from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest

from kqueue.errors import InvalidError
from kqueue.sandbox import protobuf


def varint(value: int) -> bytes:
    out = b""
    while True:
        value, low = value >> 7, value & 0x7F
        out += bytes([low | (0x80 if value else 0)])
        if not value:
            return out


def field(number: int, value: int | str | bytes) -> bytes:
    """One field on the wire."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (2**64 - 1))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    """What clients send."""
    return protobuf.MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, raw)


def metadata(name: str, *more: bytes) -> bytes:
    return field(1, field(1, name) + b"".join(more))


@pytest.mark.parametrize(
    ("body", "obj"),
    [
        pytest.param(
            envelope("v1", "Namespace", metadata("n", field(11, field(1, "a") + field(2, "b")))),
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"a": "b"}}},
            id="text-and-maps",
        ),
        pytest.param(
            envelope("batch/v1", "Job", metadata("j") + field(2, field(1, 3) + field(10, 1) + field(4, b""))),
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j"},
                "spec": {"parallelism": 3, "suspend": True, "selector": {}},
            },
            id="numbers-booleans-and-empty-messages",
        ),
        pytest.param(
            envelope("v1", "Secret", metadata("s") + field(2, field(1, "k") + field(2, b"\x00\xff"))),
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"k": "AP8="}},
            id="bytes",
        ),
        pytest.param(
            envelope("scheduling.k8s.io/v1", "PriorityClass", metadata("p", field(8, field(1, 0))) + field(2, -5)),
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:00Z"},
                "value": -5,
            },
            id="negative-numbers-and-times",
        ),
        pytest.param(
            envelope("v1", "Pod", metadata("p") + field(2, field(1, field(1, "v") + field(2, field(2, b""))))),
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p"},
                "spec": {"volumes": [{"name": "v", "emptyDir": {}}]},
            },
            id="messages-that-json-writes-inline",
        ),
        pytest.param(
            envelope("v1", "DeleteOptions", field(1, 0) + field(4, "Foreground")),
            {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground"},
            id="options-of-a-deletion",
        ),
    ],
)
def test_objects_are_read(body: bytes, obj: dict[str, Any]) -> None:
    """As JSON would have said it."""
    assert protobuf.decode(body) == obj


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"{}", 400, id="no-envelope"),
        pytest.param(protobuf.MAGIC + b"\xff" * 20, 400, id="a-number-without-end"),
        pytest.param(envelope("v1", "Pod", field(1, b"\xff" * 3)), 400, id="a-field-cut-short"),
        pytest.param(envelope("v1", "Pod", field(1, 5)), 400, id="a-number-for-a-message"),
        pytest.param(envelope("v1", "Pod", metadata("p", field(8, field(1, 2**62)))), 400, id="a-time-beyond-time"),
        pytest.param(envelope("example.com/v1", "Thing", b""), 415, id="a-kind-whose-fields-are-not-known"),
        pytest.param(protobuf.MAGIC + struct.pack("<B", 7), 400, id="an-unknown-wire-type"),
    ],
)
def test_bytes_that_are_no_object_are_refused(body: bytes, status: int) -> None:
    """With a sentence, not a crash."""
    with pytest.raises(InvalidError) as caught:
        protobuf.decode(body)
    assert caught.value.status == status


def test_noise_never_crashes() -> None:
    """Whatever the bytes, there is an object or a refusal."""
    chance = Random(1)
    whole = envelope("v1", "Pod", metadata("p") + field(2, field(1, field(1, "v") + field(2, field(2, b"")))))
    for _ in range(3000):
        body = bytearray(whole)
        for _ in range(chance.randrange(1, 5)):
            body[chance.randrange(4, len(body))] = chance.randrange(256)
        try:
            assert isinstance(protobuf.decode(bytes(body)), dict)
        except InvalidError as error:
            assert error.status in (400, 415)  # noqa: PT017 -- either outcome is right
