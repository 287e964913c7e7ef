"""The ring of files on disk: a controller appends cycles, and the oldest files make room."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import FileIO
from itertools import pairwise
from pathlib import Path

import msgspec

from kqueue.record.capture import CapturedCycle
from kqueue.record.chain import ChainWriter, DamagedRecordError, StoredEntry, read_chain, read_stream
from kqueue.record.encoding import CycleEncoder
from kqueue.record.entries import FORMAT, Begin, End, from_text, to_text

SUFFIX = ".kqrecord"
_MOST_PLAIN = 256 << 20
"""Bytes of plain text in one file: a reader holds no more than four times as much."""
_MOST_FILES = 16
"""The ring has about so many files, so that the oldest one that makes room is a small part of it."""
_NO_BYTES = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSettings:
    """The bounds of a ring.

    Args:
        path: the folder; it is made if its parent exists.
        max_bytes: the most bytes of all files.
        max_age: files whose last entry is older are removed.
        version: kqueue's version, for readers.
        within: the profile inside one workload of joint placement.
    """

    path: Path
    max_bytes: int
    max_age: timedelta
    version: str
    within: str = ""

    @property
    def file_bytes(self) -> int:
        """The bytes after which another file begins."""
        return self.max_bytes // _MOST_FILES


class Ring:
    """Appends cycles.  Used by one thread; methods raise OSError, after which the next cycle begins another file."""

    def __init__(self, settings: RingSettings) -> None:
        self._settings = settings
        self._file: FileIO | None = None
        self._chain: ChainWriter | None = None
        self._encoder = CycleEncoder()
        self._began: datetime | None = None
        self._plain = 0
        self._after: str | None = None
        """The last hash of the file before; None: the folder was not looked at yet."""
        self.remarks: list[str] = []
        """Sentences about files of writers that were killed."""

    def write(self, captured: CapturedCycle, now: datetime) -> int:
        """Append a cycle; return the bytes on disk that it took."""
        chain = self._open(now)
        before = chain.size
        try:
            for text in self._encoder.entries(captured):
                chain.append(text, self._make_room)
                self._plain += len(text)
        except OSError:
            self.close()  # pieces of the cycle may be missing, so that later cycles could not be read
            raise
        if chain.size >= self._settings.file_bytes or self._plain > _MOST_PLAIN:
            self.close()
        return chain.size - before

    def close(self) -> None:
        """End the present file; the next cycle begins another one."""
        file, chain, self._file, self._chain = self._file, self._chain, None, None
        if file is None or chain is None:
            return
        try:
            chain.append(to_text(End()))
            self._after = chain.digest
        except OSError:  # the disk is full: the file has whole entries and no end, as after a kill
            self._after = None
        finally:
            file.close()

    def _open(self, now: datetime) -> ChainWriter:
        """Return the present file, or a new one."""
        if self._began is not None and now - self._began > self._settings.max_age / _MOST_FILES:
            self.close()
        if self._chain is not None:
            return self._chain
        self._settings.path.mkdir(mode=0o700, exist_ok=True)
        if self._after is None:
            self._after = self._end_others()
        self._remove_old(now)
        name = f"{_next_number(self._settings.path):012}-{_time_text(now)}-{_host()}{SUFFIX}"
        descriptor = os.open(self._settings.path / name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        file = FileIO(descriptor, "r+")
        fcntl.flock(file, fcntl.LOCK_EX)  # says to the next process that this one lives
        self._file, self._began, self._encoder, self._plain = file, now, CycleEncoder(), 0
        begin = Begin(
            format=FORMAT,
            version=self._settings.version,
            time=now.isoformat(),
            after=self._after,
            within=self._settings.within,
        )
        try:
            self._chain = ChainWriter(file)
            self._chain.append(to_text(begin))
        except OSError:
            self._file, self._chain = None, None
            file.close()
            (self._settings.path / name).unlink(missing_ok=True)
            raise
        return self._chain

    # --- bounds

    def _remove_old(self, now: datetime) -> None:
        oldest = _time_text(now - self._settings.max_age)
        for path, following in pairwise(files_in(self._settings.path)):
            if following.name[13:] < oldest:  # no entry of the file is younger than the file behind it
                path.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        """Remove the oldest files until the present one may have this size.  Raises OSError: it may not."""
        others = files_in(self._settings.path)[:-1]
        sizes = [path.stat().st_size for path in others]
        total = sum(sizes) + size
        for path, freed in zip(others, sizes, strict=True):
            if total <= self._settings.max_bytes:
                return
            path.unlink(missing_ok=True)
            total -= freed
        if total > self._settings.max_bytes:
            raise OSError(f"a file of {size} bytes is needed, and the record may have {self._settings.max_bytes}")

    # --- files of writers that were killed

    def _end_others(self) -> str:
        """End files that have no end, and whose writers live no more; return the last hash of the newest file."""
        digest = ""
        for path in files_in(self._settings.path):
            with FileIO(path, "r+") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    continue  # its writer lives
                digest = self._ended(file, path)
        return digest

    def _ended(self, file: FileIO, path: Path) -> str:
        size = os.fstat(file.fileno()).st_size
        last, before, torn = _last_whole(file, path)
        if last is not None and torn is None and isinstance(from_text(last.text), End):
            return last.digest.hex()
        end = size if torn is None else torn.offset
        if torn is not None and not torn.is_cut:
            self.remarks.append(f"{torn}; the file is left as it is")
            return ""
        if last is None:
            self.remarks.append(f"{path}: a writer was killed before its first entry, and the file is removed")
            path.unlink(missing_ok=True)
            return ""
        if torn is not None:
            self.remarks.append(f"{path}: a writer was killed in the middle of entry {torn.entry}, which is dropped")
        chain = ChainWriter.continued(file, last, before, end)
        chain.append(to_text(End(torn=torn is not None)))
        return chain.digest


def files_in(folder: Path) -> list[Path]:
    """Return the files of a record, the oldest first."""
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX) and path.is_file())


def is_complete(path: Path) -> bool:
    """Whether all entries of a file are whole and the last one is its end, behind which no writer adds entries.

    Raises OSError: the file cannot be read.
    """
    text = b""
    try:
        for entry in read_chain(path):
            text = entry.text
        return isinstance(from_text(text), End)
    except (DamagedRecordError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False


def _last_whole(file: FileIO, path: Path) -> tuple[StoredEntry | None, bytes, DamagedRecordError | None]:
    """Return the last whole entry, the plain bytes up to it, and the damage behind it (None: there is none)."""
    last, before = None, _NO_BYTES
    try:
        for last in _rewound(file, path):
            before = (before + last.text)[-ChainWriter.WINDOW :]
    except DamagedRecordError as e:
        return last, before, e
    return last, before, None


def _rewound(file: FileIO, path: Path) -> Iterator[StoredEntry]:
    file.seek(0)
    yield from read_stream(file, str(path))


def _next_number(folder: Path) -> int:
    """Return the number of the next file.  Names begin with it, so that their order outlives steps of the clock."""
    numbers = [name[:12] for path in files_in(folder) if (name := path.name)[:12].isdecimal()]
    return int(numbers[-1]) + 1 if numbers else 1


def _time_text(time: datetime) -> str:
    """Return a time as part of a file's name; such texts compare as their times."""
    return f"{time.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}"


def _host() -> str:
    """Return the name of this machine as part of a file's name; in a cluster it is the pod's name."""
    return "".join(c for c in socket.gethostname() if c.isalnum() or c == "-")[:63] or str(os.getpid())
