"""Decodes the bytes of lists and watches into events and objects of one kind."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from kqueue.errors import ServerError
from kqueue.runtime.failure import FailureStatus, error_from_status


class Metadata(Protocol):
    """The fields that the runtime reads of an object's metadata.  `namespace` is empty for cluster-scoped kinds."""

    @property
    def name(self) -> str:
        """Name, unique in its namespace."""
        ...

    @property
    def namespace(self) -> str:
        """Namespace or empty."""
        ...

    @property
    def resource_version(self) -> str:
        """Version of the last write."""
        ...


class KubernetesObject(Protocol):
    """A decoded object of any kind."""

    @property
    def metadata(self) -> Metadata:
        """Its metadata."""
        ...


T = TypeVar("T", bound=KubernetesObject)


class EventType(Enum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An object was added, changed or deleted."""

    type: EventType
    object: T


@dataclass(frozen=True, slots=True)
class Bookmark:
    """The watch has sent all events up to `version`; `initial_end` marks the end of the initial events."""

    version: str
    initial_end: bool


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object with an unexpected shape.  `type` is None in a list."""

    type: EventType | None
    namespace: str
    name: str
    version: str
    problem: str


Event = Change[T] | Bookmark | Unreadable


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list.  `continue_token` is empty on the last page."""

    items: list[T | Unreadable]
    version: str
    continue_token: str


class _ListMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _LooseMeta(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _LooseObject(msgspec.Struct, frozen=True, gc=False):
    metadata: _LooseMeta = _LooseMeta()


class _LooseFrame(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


class _LoosePage(msgspec.Struct, frozen=True, gc=False):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


_INITIAL_END = "k8s.io/initial-events-end"
_TYPES = {t.value: t for t in EventType}
_loose_frame = msgspec.json.Decoder(_LooseFrame)
_loose_page = msgspec.json.Decoder(_LoosePage)
_loose_object = msgspec.json.Decoder(_LooseObject)
_status = msgspec.json.Decoder(FailureStatus)


class FrameDecoder(Generic[T]):
    """Decodes pages and watch lines of one kind; an unreadable object gives an `Unreadable`, not an error.

    An object of the expected shape, the common case, takes one pass over the bytes.
    """

    def __init__(self, kind: type[T]) -> None:
        frame = msgspec.defstruct("Frame", [("type", str), ("object", kind)], frozen=True, gc=False)
        page = msgspec.defstruct(
            "Page",
            [("metadata", _ListMeta, _ListMeta()), ("items", list[kind] | None, None)],  # type: ignore[valid-type]
            frozen=True,
            gc=False,
        )
        self._frame: msgspec.json.Decoder[Any] = msgspec.json.Decoder(frame)
        self._page: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def event(self, line: bytes, what: str) -> Event[T]:
        """Return the event on one line of a watch.

        Raises:
            GoneError and other ApiErrors: the line is an ERROR event.
            ServerError: the line is no watch event at all (garbage, a proxy's page, an unknown type).
        """
        if b"BOOKMARK" in line[:40] or b"ERROR" in line[:40]:
            return self._loose_event(line, what)
        try:
            frame = self._frame.decode(line)
        except msgspec.ValidationError:
            return self._loose_event(line, what)
        except msgspec.DecodeError as e:
            raise _garbage(line, what) from e
        known = _TYPES.get(frame.type)
        return Change(known, frame.object) if known else self._loose_event(line, what)

    def page(self, body: bytes, what: str) -> Page[T]:
        """Return one page of a list.

        Raises:
            ServerError: the body is not a list.
        """
        try:
            page = self._page.decode(body)
            return Page(page.items or [], page.metadata.resource_version, page.metadata.continue_)
        except msgspec.ValidationError:
            return self._loose_page(body, what)
        except msgspec.DecodeError as e:
            raise _garbage(body, what) from e

    def _loose_event(self, line: bytes, what: str) -> Event[T]:
        """Decode any line that has no object of the expected shape, in two passes over the bytes."""
        try:
            frame = _loose_frame.decode(line)
            if frame.type == "ERROR":
                raise error_from_status(what, _status.decode(frame.object))
            meta = _loose_object.decode(frame.object).metadata
        except msgspec.DecodeError as e:
            raise _garbage(line, what) from e
        if frame.type == "BOOKMARK":
            return Bookmark(meta.resource_version, (meta.annotations or {}).get(_INITIAL_END) == "true")
        known = _TYPES.get(frame.type)
        if known is None:
            raise ServerError(f"{what}: a watch event of unknown type {frame.type!r}", status=200)
        read = self._read(frame.object, known)
        return read if isinstance(read, Unreadable) else Change(known, read)

    def _loose_page(self, body: bytes, what: str) -> Page[T]:
        try:
            page = _loose_page.decode(body)
            items = [self._read(raw, None) for raw in page.items or ()]
        except msgspec.DecodeError as e:
            raise _garbage(body, what) from e
        return Page(items, page.metadata.resource_version, page.metadata.continue_)

    def _read(self, raw: msgspec.Raw, event: EventType | None) -> T | Unreadable:
        try:
            return self._object.decode(raw)
        except msgspec.ValidationError as e:
            meta = _loose_object.decode(raw).metadata
            return Unreadable(event, meta.namespace, meta.name, meta.resource_version, str(e))


def _garbage(data: bytes, what: str) -> ServerError:
    begins = " ".join(data[:120].decode("utf-8", "replace").split())
    return ServerError(f"{what}: not what a Kubernetes API server sends, it begins: {begins!r}", status=200)
