"""The encoding of answers: JSON in pieces, and failures in the wording of the API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from kqueue.clock import Clock
from kqueue.visibility.question import JSON

JSON_TYPE = "application/json"
_ITEMS = 100
"""Items of a list that are encoded between two yields to the event loop: 2 ms, and 30 KB."""

_encode = msgspec.json.Encoder().encode
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    413: "RequestEntityTooLarge",
    414: "RequestURITooLong",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refusal(Exception):
    """Ends a question with a failure as its answer."""

    def __init__(
        self, code: int, message: str, *, details: JSON | None = None, retry_after: int = 0, allow: str = "GET"
    ) -> None:
        """`allow` is the only method of the path, for 405."""
        super().__init__(message)
        self.allow = allow
        self.code, self.message, self.details, self.retry_after = code, message, details or {}, retry_after

    def response(self) -> web.Response:
        """Return the failure as an HTTP response."""
        details = {**self.details, **({"retryAfterSeconds": self.retry_after} if self.retry_after else {})}
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": _REASONS.get(self.code, ""),
            **({"details": details} if details else {}),
            "code": self.code,
        }
        headers = {"Content-Type": JSON_TYPE, "X-Content-Type-Options": "nosniff"}
        if self.retry_after:
            headers["Retry-After"] = str(self.retry_after)
        if self.code == 405:
            headers["Allow"] = self.allow
        if self.code == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return web.Response(body=_encode(status), status=self.code, headers=headers)


async def pieces(found: JSON, clock: Clock) -> AsyncIterator[bytes]:
    """Yield an answer in encoded pieces, with turns of the event loop between them; whole if it has no `items`."""
    if "items" not in found:
        yield _encode(found)
        return
    whole = _encode({key: value for key, value in found.items() if key != "items"})
    lead = whole[:-1] + (b',"items":[' if len(whole) > len(b"{}") else b'"items":[')
    items = iter(found["items"])
    while batch := list[Any](islice(items, _ITEMS)):
        yield lead + _encode(batch)[1:-1]
        lead = b","
        await clock.sleep(0)
    yield b"]}" if lead == b"," else lead + b"]}"
