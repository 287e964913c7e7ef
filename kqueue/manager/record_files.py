"""Reads the files of the record for the visibility API, in threads: a slow disk must not hold the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from kqueue.record.ring import files_in
from kqueue.visibility.record_files import RecordFile, RecordFiles


def record_files(folder: str) -> RecordFiles | None:
    """Return the files of decisionRecord.path; None: it is empty, so there is no record."""
    if not folder:
        return None
    path, disk = Path(folder), asyncio.Semaphore(2)  # a disk that hangs holds two threads, not all of them

    async def listing() -> Sequence[RecordFile]:
        async with disk:
            return await asyncio.to_thread(_listing, path)

    async def read(name: str, begin: int, most: int) -> bytes:
        async with disk:
            return await asyncio.to_thread(_read, path / name, begin, most)

    return RecordFiles(listing=listing, read=read)


def _listing(path: Path) -> list[RecordFile]:
    found = []
    for file in files_in(path):
        try:
            found.append(RecordFile(file.name, file.stat().st_size))
        except FileNotFoundError:  # it has just made room
            continue
    return found


def _read(path: Path, begin: int, most: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        file.seek(begin)
        return file.read(most)
