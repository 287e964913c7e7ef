"""A watch connection, read as complete lines."""

from __future__ import annotations

import aiohttp

from kqueue.errors import ServerError, UnreachableError

LINE_MAX = 32 << 20
"""Limit of a frame in bytes.  etcd's default limit of an object is 1.5 MiB, so a longer line is no watch event."""


class Stream:
    """An open watch.

    Reads chunks, because the limit of `readline` would refuse big events.  A last line without its end is a truncated
    frame; it is dropped, and a watch from the last resourceVersion brings the event again.
    """

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self._response, self._what = response, what
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    async def lines(self) -> list[bytes]:
        """Return the next complete lines, at least one; an empty list when the server has closed the stream.

        Raises:
            UnreachableError: the connection broke, or was silent for longer than the read timeout.
            ServerError: one line grew beyond `LINE_MAX`.
        """
        while True:
            chunk = await self._chunk()
            if not chunk:
                return []
            end = chunk.rfind(b"\n")
            if end < 0:
                self._keep(chunk)
                continue
            self._rest.append(chunk[:end])
            complete = b"".join(self._rest)
            self._rest, self._rest_bytes = [], 0
            if end + 1 < len(chunk):
                self._keep(chunk[end + 1 :])
            lines = [line for line in complete.split(b"\n") if line]
            if lines:
                return lines

    def close(self) -> None:
        """Close the connection; the connection of a stream never returns to the pool."""
        self._response.close()

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_bytes += len(piece)
        if self._rest_bytes > LINE_MAX:
            raise ServerError(f"{self._what}: a watch event of more than {LINE_MAX >> 20} MiB", status=200)

    async def _chunk(self) -> bytes:
        try:
            return await self._response.content.readany()
        except TimeoutError as e:
            raise UnreachableError(f"{self._what}: the watch was silent for too long") from e
        except (aiohttp.ClientError, OSError) as e:
            raise UnreachableError(f"{self._what}: the watch broke: {e or type(e).__name__}") from e
