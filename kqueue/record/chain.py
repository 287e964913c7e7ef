"""Files of entries, each of which names the hash of all that is before it.

    file     "kqueue-record 1\n", then entries; the last entry of a complete file is an `End`
    entry    length of the stored text, length of the plain text (4 bytes each), stored text, hash (32 bytes)
    hash     blake2b over the hash before, both lengths and the stored text

The stored text is compressed by zlib with the 32 KiB before it as dictionary: entries resemble each other, and each
can be written at once.  A changed byte or a missing entry breaks the hashes from there on.  A text is read up to a
bound, and only up to the length that its entry names.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, ClassVar

from kqueue.errors import ConfigError

_MAGIC_WORD = b"kqueue-record "
MAGIC = _MAGIC_WORD + b"1\n"
_LENGTHS = struct.Struct(">II")
_HASH = 32
MOST_PLAIN = 64 << 20
"""Bytes of the longest entry: free amounts of 20,000 nodes take 2 MiB."""
_LEVEL = 3


class DamagedRecordError(ConfigError):
    """A record is cut off, was changed, or is of another version.  The text says where, and what to do."""

    def __init__(self, path: str, problem: str, *, entry: int, offset: int, is_cut: bool = False) -> None:
        super().__init__(f"{path}: entry {entry} at byte {offset}: {problem}")
        self.entry, self.offset = entry, offset
        self.is_cut = is_cut
        """Whether the file ends in the middle of an entry."""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One entry: its number in the file, from 0, the offset of its first byte, its text, and its hash."""

    number: int
    offset: int
    text: bytes
    digest: bytes


class ChainWriter:
    """Writes the entries of one file.  Methods raise OSError."""

    WINDOW: ClassVar = 32 << 10
    """The bytes that zlib can look back at."""

    def __init__(self, file: BinaryIO) -> None:
        """`file` is empty and not buffered, so that an entry is written or is not."""
        self._file = file
        self._digest, self._before = blake2b(MAGIC, digest_size=_HASH).digest(), b""
        self.size = 0
        """The bytes of all whole entries."""
        self.entries = 0
        _write_all(file, MAGIC)
        self.size = len(MAGIC)

    @property
    def digest(self) -> str:
        """The hash of all entries so far."""
        return self._digest.hex()

    def append(self, text: bytes, make_room: Callable[[int], None] = lambda _size: None) -> None:
        """Write an entry; after an error the file ends where it ended before.

        `make_room` is called with the size of the file behind the entry, before it is written.
        """
        lengths, stored = self._packed(text)
        make_room(self.size + len(lengths) + len(stored) + _HASH)
        digest = _digest(self._digest, lengths, stored)
        try:
            _write_all(self._file, lengths + stored + digest)
        except OSError:
            self._file.truncate(self.size)
            self._file.seek(self.size)
            raise
        self.size += len(lengths) + len(stored) + len(digest)
        self.entries += 1
        self._digest, self._before = digest, (self._before + text)[-self.WINDOW :]

    def _packed(self, text: bytes) -> tuple[bytes, bytes]:
        if len(text) > MOST_PLAIN:
            raise OSError(f"an entry of {len(text)} bytes is longer than {MOST_PLAIN}")
        packer = zlib.compressobj(_LEVEL, zdict=self._before) if self._before else zlib.compressobj(_LEVEL)
        stored = packer.compress(text) + packer.flush()
        return _LENGTHS.pack(len(stored), len(text)), stored

    @classmethod
    def continued(cls, file: BinaryIO, last: StoredEntry, before: bytes, size: int) -> ChainWriter:
        """Return the writer that continues a file behind its last whole entry.

        `before` are the plain bytes of the entries so far, at least the last `WINDOW`; `size` is where they end.
        """
        writer = object.__new__(cls)
        writer._file, writer._digest, writer._before = file, last.digest, before[-cls.WINDOW :]
        writer.size, writer.entries = size, last.number + 1
        file.truncate(size)
        file.seek(size)
        return writer


def read_chain(path: Path) -> Iterator[StoredEntry]:
    """Yield the entries of a file.  Raises DamagedRecordError, and OSError where the file cannot be read."""
    with path.open("rb") as file:
        yield from read_stream(file, str(path))


def last_hash(path: Path) -> str:
    """Return the hash at the end of a complete file, without a look at its entries.  Raises OSError."""
    with path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _HASH))
        return file.read(_HASH).hex()


def read_stream(file: BinaryIO, name: str) -> Iterator[StoredEntry]:
    """Yield the entries of a file that is open at its begin."""
    size = os.fstat(file.fileno()).st_size
    _check_magic(file.read(len(MAGIC)), name)
    digest, before = blake2b(MAGIC, digest_size=_HASH).digest(), b""
    offset, number = len(MAGIC), 0
    while offset < size:
        lengths = file.read(_LENGTHS.size)

        def damaged(problem: str, *, is_cut: bool = False, number: int = number, offset: int = offset) -> Exception:
            return DamagedRecordError(name, problem, entry=number, offset=offset, is_cut=is_cut)

        if len(lengths) < _LENGTHS.size:
            raise damaged("the file ends within the entry", is_cut=True)
        stored_length, plain_length = _LENGTHS.unpack(lengths)
        end = offset + _LENGTHS.size + stored_length + _HASH
        if plain_length > MOST_PLAIN:
            raise damaged(f"it says that it has {plain_length} bytes, more than {MOST_PLAIN}; the record was changed")
        if end > size:
            raise damaged("the file ends within the entry, or its length was changed", is_cut=True)
        stored, found = file.read(stored_length), file.read(_HASH)
        digest = _digest(digest, lengths, stored)
        if digest != found:
            raise damaged("its hash is not that of its bytes and the entries before it; the record was changed")
        text = _unpacked(stored, plain_length, before)
        if text is None:
            raise damaged(f"its text is not compressed to {plain_length} bytes; the record was changed")
        yield StoredEntry(number, offset, text, digest)
        before = (before + text)[-ChainWriter.WINDOW :]
        offset, number = end, number + 1


def _check_magic(found: bytes, name: str) -> None:
    if found == MAGIC:
        return
    if found.startswith(_MAGIC_WORD):
        problem = f"the file has another form than {MAGIC.decode().strip()!r}; read it with the version that wrote it"
    else:
        problem = "this is no record of decisions"
    raise DamagedRecordError(name, problem, entry=0, offset=0, is_cut=MAGIC.startswith(found))


def _unpacked(stored: bytes, length: int, before: bytes) -> bytes | None:
    """Return the plain text; None: it is not of this length.  Not a byte beyond the length is unpacked."""
    unpacker = zlib.decompressobj(zdict=before) if before else zlib.decompressobj()
    try:
        text = unpacker.decompress(stored, length) if length else b""
        rest = unpacker.decompress(unpacker.unconsumed_tail, 1) if length else unpacker.decompress(stored, 1)
    except zlib.error:
        return None
    is_whole = len(text) == length and not rest and unpacker.eof and not unpacker.unused_data
    return text if is_whole else None


def _digest(before: bytes, lengths: bytes, stored: bytes) -> bytes:
    return blake2b(before + lengths + stored, digest_size=_HASH).digest()


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
