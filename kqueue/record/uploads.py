"""Sends complete files of the ring to a storage of objects, the oldest first: one look at the folder at a time.

Every mistake of its memory costs a request and no object: the same file has the same bytes and the same name, and an
object is stored whole or not at all.  So two processes on one folder may send the same file, and nothing has to be
listed or read in the storage: the right to put objects is enough.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from kqueue.isolation import isolated
from kqueue.record.ring import files_in, is_complete
from kqueue.record.store import RecordStorage, StoreError, stored_name

_log = structlog.get_logger(__name__)

STATE = ".uploads.json"
"""The file beside the ring that says which files were sent."""
_MOST_STATE = 1 << 20
_TRIES = 4
"""Tries of one file in one look."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0


class UploadCounter(Protocol):
    """Counts files by what became of them.  Called from the thread of the uploader."""

    def uploaded(self, result: str) -> None:
        """Count a file: `uploaded`, `failed` (one try) or `lost` (the ring removed it before it was uploaded)."""
        ...

    def upload_lag(self, seconds: float) -> None:
        """Show the seconds since the end of the oldest complete file that is not uploaded; 0: there is none."""
        ...


class _State(msgspec.Struct, frozen=True, kw_only=True):
    place: str = ""
    uploaded: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()


class _Outcome(Enum):
    UPLOADED = auto()
    LEFT = auto()
    """The storage does not take this file, or the ring has removed it; the next file has its turn."""
    ENOUGH = auto()
    """The storage does not answer, or the process ends: no further file is tried in this look."""


class Uploads:
    """The files of one folder.  Used by one thread."""

    def __init__(
        self,
        folder: Path,
        store: RecordStorage,
        *,
        count: UploadCounter,
        now: Callable[[], datetime],
        wait: Callable[[float], bool],
        chance: random.Random,
    ) -> None:
        """`wait` waits so many seconds, or returns True as soon as the process wants to end."""
        self._folder, self._store, self._count, self._now = folder, store, count, now
        self._wait, self._chance = wait, chance
        self._state: _State | None = None
        self._written: _State | None = None
        """The content of the state file, as far as this process knows."""
        self._looked: dict[str, tuple[tuple[int, int], bool | None]] = {}
        """By file its size and time at the last look, and whether it was complete; None: it was not read."""
        self._failure = ""
        """The last words of the storage, so that they are logged once."""

    def look(self, *, is_last: bool = False) -> None:
        """Send what is complete and was not sent.  Raises OSError: the folder cannot be read.

        `is_last`: the ring writes no more, and a file gets one try.
        """
        found = [path for path in _files(self._folder) if stored_name(path.name) is not None]
        names = frozenset(path.name for path in found)
        state = self._known(names)
        self._looked = {name: known for name, known in self._looked.items() if name in names}
        newest = found[-1] if found and not is_last else None
        waiting = [
            path
            for path in found
            if path.name not in state.uploaded and self._is_complete(path, may_grow=path is newest)
        ]
        self._remember(state.uploaded, frozenset(path.name for path in waiting))
        left = waiting[:]
        self._show_lag(left)
        for path in waiting:
            outcome = self._send(path, tries=1 if is_last else _TRIES)
            if outcome is _Outcome.ENOUGH:
                return
            if outcome is _Outcome.UPLOADED:
                left.remove(path)
                self._show_lag(left)

    # --- one file

    def _send(self, path: Path, *, tries: int) -> _Outcome:
        name = stored_name(path.name)
        assert name is not None
        for number in range(tries):
            if number and self._wait(self._pause(number)):
                return _Outcome.ENOUGH
            with isolated() as put:
                self._store.put(name, path)
            if put.error is None:
                self._sent(path)
                return _Outcome.UPLOADED
            if isinstance(put.error, FileNotFoundError):
                return _Outcome.LEFT  # the ring has removed it; the next look counts it
            self._count.uploaded("failed")
            self._tell(put.error, path)
            if isinstance(put.error, StoreError) and put.error.is_final:
                return _Outcome.LEFT
        return _Outcome.ENOUGH

    def _sent(self, path: Path) -> None:
        self._count.uploaded("uploaded")
        if self._failure:
            _log.info("decision record is uploaded again", place=self._store.place)
            self._failure = ""
        assert self._state is not None
        self._remember(self._state.uploaded | {path.name}, self._state.waiting - {path.name})

    def _pause(self, number: int) -> float:
        most = min(_LONGEST_PAUSE, _FIRST_PAUSE * 4 ** (number - 1))
        return self._chance.uniform(most / 2, most)

    def _tell(self, error: Exception, path: Path) -> None:
        words = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        if words != self._failure:
            trace = None if isinstance(error, StoreError) else error  # what the storage says needs no traceback
            place = self._store.place
            _log.error("decision record is not uploaded", place=place, file=path.name, error=words, exc_info=trace)
        self._failure = words

    def _is_complete(self, path: Path, *, may_grow: bool) -> bool:
        """Whether a file has its end; one that may grow is read when it has stayed as it was since the last look."""
        try:
            status = path.stat()
            found = status.st_size, status.st_mtime_ns
            known, answer = self._looked.get(path.name, (None, None))
            if known != found:
                answer = None
            if answer is None and (known == found or not may_grow):
                answer = is_complete(path)
        except FileNotFoundError:
            return False
        self._looked[path.name] = found, answer
        return bool(answer)

    def _show_lag(self, waiting: list[Path]) -> None:
        """Show the age of the oldest file that is still there."""
        seconds = 0.0
        for path in waiting:
            with contextlib.suppress(FileNotFoundError):
                ended = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                seconds = max(0.0, (self._now() - ended).total_seconds())
                break
        self._count.upload_lag(seconds)

    # --- what was sent

    def _known(self, names: frozenset[str]) -> _State:
        """Return the state without files that are gone, and count those of them that were not sent."""
        state = self._state or self._read()
        for name in sorted(state.waiting - state.uploaded - names):
            self._count.uploaded("lost")
            _log.warning("a file of the decision record was removed before it was uploaded", file=name)
        return _State(place=self._store.place, uploaded=state.uploaded & names, waiting=state.waiting & names)

    def _read(self) -> _State:
        """Return the state of the process before; empty where it cannot be read or is that of another place."""
        try:
            with (self._folder / STATE).open("rb") as file:
                state = msgspec.json.decode(file.read(_MOST_STATE), type=_State)
        except (OSError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return _State()
        self._written = state
        return state if state.place == self._store.place else _State()

    def _remember(self, uploaded: frozenset[str], waiting: frozenset[str]) -> None:
        state = self._state = _State(place=self._store.place, uploaded=uploaded, waiting=waiting)
        if state == self._written or (self._written is None and not (uploaded or waiting)):
            return
        new = self._folder / f"{STATE}.{os.getpid()}"
        with contextlib.suppress(OSError):  # a full disk: the next process sends the files again
            new.touch(mode=0o600)
            new.write_bytes(msgspec.json.encode(state))
            new.replace(self._folder / STATE)
            self._written = state


def _files(folder: Path) -> list[Path]:
    try:
        return files_in(folder)
    except FileNotFoundError:  # nothing was recorded yet
        return []
