"""Copies the record of a running controller into a folder, through the API server."""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import random
import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kqueue.api import names
from kqueue.errors import ConfigError, KqueueError, NotFoundError
from kqueue.operations.grants import DECISION_RECORD, needs
from kqueue.operations.questions import ask, path

if TYPE_CHECKING:
    from kqueue.runtime.client import Client

JSON = dict[str, Any]
_FILES = (names.KQUEUE_VISIBILITY_GROUP, "v1alpha1", "decisionrecordfiles")
_NAME = re.compile(r"[0-9]{12}-[0-9TZ.]{1,40}-[A-Za-z0-9-]{1,63}\.kqrecord")
"""The form of the names that the record gives its files; none leads out of the folder."""
_TRIES = 8
"""Questions until a replica answers that has the file: only a replica that has led has files on its disk."""
_PAUSE_SECONDS = 0.25


class RecordWentOnError(KqueueError):
    """All files of the record made room for newer ones while they were copied."""


async def fetch_record(client: Client, folder: Path, progress: Callable[[int, int], None]) -> tuple[int, int]:
    """Copy all files of the record into a folder, which is made; an open file is copied as far as it was at first.

    `progress` gets the bytes that are copied and those of all files.  Files that make room for newer ones meanwhile are
    left out, and removed from the folder with those before them, so that the copy has no hole.

    Returns: the number of files, and of their bytes.

    Raises:
        ConfigError: the folder has files already, or cannot be written.
        NotFoundError: the controller keeps no record, or it has no file so far.
        ApiError: the user may not read the record, or the API server does not answer.
        RecordWentOnError: all files went.
    """
    with needs(DECISION_RECORD):
        items = await _listed(client)
        if not items:
            raise NotFoundError("the record has no file: no decision was recorded so far, or another replica has them")
        try:
            _make(folder)
            kept = await _copies(client, items, folder, progress)
        except OSError as e:
            raise ConfigError(f"{folder}: {(e.strerror or str(e)).lower()}; name a folder that can be written") from e
    if not kept:
        raise RecordWentOnError("all files made room for newer ones while they were copied; ask again")
    return len(kept), sum(kept.values())


async def _copies(
    client: Client, items: Sequence[JSON], folder: Path, progress: Callable[[int, int], None]
) -> dict[Path, int]:
    """Copy the files; return the bytes of those that are in the folder.  None are left there after a failure."""
    made: dict[Path, int] = {}
    whole, before = sum(int(item["bytes"]) for item in items), 0
    with ExitStack() as failed:
        failed.callback(_remove, made)
        for item in items:
            file, size = folder / item["file"], int(item["bytes"])
            made[file] = size
            try:
                await _copy(client, item["metadata"]["name"], size, file, partial(_tell, progress, before, whole))
            except NotFoundError:
                _remove(made)
            before += size
        failed.pop_all()
    return made


def _tell(progress: Callable[[int, int], None], before: int, whole: int, at: int) -> None:
    progress(before + at, whole)


def _remove(made: dict[Path, int]) -> None:
    for file in made:
        file.unlink(missing_ok=True)
    made.clear()


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    if any(folder.iterdir()):
        raise ConfigError(f"{folder}: has files already; name a new folder")


async def _listed(client: Client) -> list[JSON]:
    items: list[JSON] = []
    for turn in range(_TRIES):
        if turn:
            await _pause()
        items = (await ask(client, path(*_FILES))).get("items") or []
        if items:
            break
    for item in items:
        if not _NAME.fullmatch(str(item["file"])) or str(item["file"]).lower() != item["metadata"]["name"]:
            raise ConfigError(f"the server names a file {str(item['file'])!r:.100}, which is no file of a record")
    return items


async def _copy(client: Client, name: str, size: int, target: Path, progress: Callable[[int], None]) -> None:
    """Copy the first bytes of one file.  Raises NotFoundError: no replica has it (any more)."""
    at = 0
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while at < size:
            data = (await _piece(client, name, at))[: size - at]
            if not data:
                raise ConfigError(f"{name}: the server has {at} of {size} bytes; ask again")
            file.write(data)
            at += len(data)
            progress(at)


async def _piece(client: Client, name: str, offset: int) -> bytes:
    for turn in range(_TRIES):
        if turn:
            await _pause()
        try:
            found = await ask(client, path(*_FILES, name), {"offset": str(offset)})
        except NotFoundError:
            if turn == _TRIES - 1:
                raise
            continue
        try:
            return base64.b64decode(str(found["data"]), validate=True)
        except (binascii.Error, KeyError) as e:
            raise ConfigError(f"{name}: the server's answer has no bytes of a file") from e
    raise AssertionError("the last turn returns or raises")


async def _pause() -> None:
    await asyncio.sleep(_PAUSE_SECONDS * (1 + random.random()))
