"""The storage of objects as an uploader needs it, and the names of files of the record there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from kqueue.errors import KqueueError
from kqueue.record.ring import SUFFIX

_RING_NAME = re.compile(rf"(\d{{12}})-(\d{{8}}T\d{{6}}\.\d{{6}}Z)-([A-Za-z0-9-]{{1,63}}){re.escape(SUFFIX)}")
_STORED_NAME = re.compile(rf"\d{{8}}T\d{{6}}\.\d{{6}}Z-\d{{12}}-[A-Za-z0-9-]{{1,63}}{re.escape(SUFFIX)}")


class StoreError(KqueueError):
    """The storage did not take an object.

    `is_final`: it will not take this one as long as nobody changes its settings, so another try soon cannot help.
    """

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class RecordStorage(Protocol):
    """A place for objects, used by one thread at a time."""

    @property
    def place(self) -> str:
        """The place for people and for the state of an uploader: storage, bucket and prefix."""
        ...

    def put(self, name: str, path: Path) -> None:
        """Store a file whole under a name below the prefix, or not at all; the same name is replaced.

        Raises:
            StoreError: it is not stored.
            FileNotFoundError: there is no such file any more.
        """
        ...


def stored_name(name: str) -> str | None:
    """Return the name of a file of the ring as an object; None: the ring did not name this file.

    The time comes first, so that objects of several rings sort by their begin; then the number in the ring, and the
    machine that wrote the file.
    """
    found = _RING_NAME.fullmatch(name)
    return f"{found[2]}-{found[1]}-{found[3]}{SUFFIX}" if found is not None else None


def is_stored_name(name: str) -> bool:
    """Whether a file is named as an object is."""
    return _STORED_NAME.fullmatch(name) is not None
