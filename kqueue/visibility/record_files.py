"""The files of the decision record, piece by piece, for people who may read the decisions about all tenants.

    GET decisionrecordfiles                        the files of the replica that answers, the oldest first
    GET decisionrecordfiles/{name}[?offset=N]      bytes of one file from N on, at most 1 MiB, in base64

Names in paths are those of the files in lower case, because names in paths have no capitals.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from kqueue.errors import ApiError, ConfigError, NotFoundError
from kqueue.visibility.params import only
from kqueue.visibility.question import JSON, AuthorizedQuestion

PLURAL = "decisionrecordfiles"
KIND, LIST_KIND = "DecisionRecordFile", "DecisionRecordFileList"
MOST_BYTES = 1 << 20
"""The bytes of one answer."""
_LONGEST_OFFSET = 15


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A file of the record: its name, and its bytes on disk so far."""

    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFiles:
    """The files of a folder.  Both functions wait for the disk beside the event loop, and raise OSError."""

    listing: Callable[[], Awaitable[Sequence[RecordFile]]]
    """Returns the files, the oldest first."""
    read: Callable[[str, int, int], Awaitable[bytes]]
    """Returns bytes of a file by its name, the first one and the limit of their number."""


class RecordFileViews:
    """Answers with the files of the record; `files` None: this controller keeps no record."""

    def __init__(self, files: RecordFiles | None) -> None:
        self._files = files

    async def every(self, asked: AuthorizedQuestion) -> JSON:
        """Return names and sizes.

        Raises:
            NotFoundError: no record is kept.
            ApiError: the disk cannot be read.
        """
        only(asked.params)
        files = await self._listed()
        return {"kind": LIST_KIND, "metadata": {}, "items": [_shown(name, file) for name, file in files.items()]}

    async def one(self, asked: AuthorizedQuestion) -> JSON:
        """Return a piece of one file, and its size; no bytes behind its end.

        Raises:
            NotFoundError: no record is kept, or this replica has no such file (any more).
            ConfigError: the offset is no number of bytes.
            ApiError: the disk cannot be read.
        """
        only(asked.params, "offset")
        text = asked.params.get("offset", "0")
        if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST_OFFSET):
            raise ConfigError(f"offset {text:.40}: must be a number of bytes")
        file = (await self._listed()).get(asked.name)
        if file is None:
            raise _gone(asked.name)
        assert self._files is not None, "it has listed the file"
        try:
            data = await self._files.read(file.name, int(text), MOST_BYTES)
        except FileNotFoundError:
            raise _gone(asked.name) from None
        except OSError as e:
            raise _unreadable(e) from e
        return {**_shown(asked.name, file), "kind": KIND, "offset": int(text), "data": base64.b64encode(data).decode()}

    async def _listed(self) -> Mapping[str, RecordFile]:
        if self._files is None:
            raise NotFoundError("the controller keeps no record of decisions; set decisionRecord.path")
        try:
            return {file.name.lower(): file for file in await self._files.listing()}
        except FileNotFoundError:  # the folder is made with the first decision
            return {}
        except OSError as e:
            raise _unreadable(e) from e


def _shown(name: str, file: RecordFile) -> JSON:
    return {"metadata": {"name": name}, "file": file.name, "bytes": file.size}


def _gone(name: str) -> NotFoundError:
    return NotFoundError(f"file {name} is not in this record: it made room for newer ones, or another replica has it")


def _unreadable(error: OSError) -> ApiError:
    return ApiError(f"the record cannot be read: {(error.strerror or str(error)).lower()}")
