"""Makes errors from HTTP answers.  Pure: status, headers and body in, an exception value out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kqueue import errors

_MESSAGE_MAX = 2000
"""Limit of a server's message in characters, because admission webhooks may answer with whole documents."""


class FailureStatus(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The fields read of a Kubernetes `FailureStatus`: the body of a failure, or the object of an ERROR watch event."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class StatusDetails(msgspec.Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Details of a Status; 0 seconds: the server did not ask for a pause."""

    retry_after_seconds: int = 0


_status_decoder = msgspec.json.Decoder(FailureStatus)

_BY_CODE: Mapping[int, type[errors.ApiError]] = {
    400: errors.InvalidError,
    401: errors.UnauthorizedError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    405: errors.InvalidError,
    409: errors.ConflictError,
    410: errors.GoneError,
    413: errors.InvalidError,
    415: errors.InvalidError,
    422: errors.InvalidError,
    429: errors.TooManyRequestsError,
}
_PLAIN_TEXT = frozenset({401, 404, 429})
"""Statuses that a real API server also answers as plain text, outside of its Status machinery."""


def error_from_answer(what: str, *, status: int, headers: Mapping[str, str], body: bytes) -> errors.ApiError:
    """Return the error for an unsuccessful answer.

    Args:
        what: the request in words (`get pods default/a`); it leads the message.
        status: HTTP status.
        headers: headers of the answer; `Retry-After` is read in seconds, not as a date.
        body: a Kubernetes Status, or anything else.

    A body that is no Status, such as a proxy's page, gives a ServerError.  Exceptions are 401, 404 and 429, for which
    API servers also send plain text.
    """
    told = _status(body)
    if told is None:
        return _from_foreign_page(what, status=status, headers=headers, body=body)
    asked = told.details.retry_after_seconds if told.details else 0
    wait = _retry_after(headers)
    return error_from_status(what, told, code=status, retry_after=wait if wait is not None else asked or None)


def error_from_status(
    what: str, told: FailureStatus, *, code: int = 0, retry_after: float | None = None
) -> errors.ApiError:
    """Return the error for a Status object; `code` overrides the Status' own (an ERROR event has no HTTP status)."""
    status = code or told.code
    kind = _BY_CODE.get(status, errors.ServerError)
    if status == 409 and told.reason == "AlreadyExists":
        kind = errors.AlreadyExistsError
    if status not in _BY_CODE and told.reason in {"Expired", "Gone"}:
        kind = errors.GoneError
    text = _clip(told.message) or told.reason or "the API server gave no message"
    if retry_after is None and told.details and told.details.retry_after_seconds:
        retry_after = told.details.retry_after_seconds
    return kind(f"{what}: {text}", status=status, reason=told.reason, retry_after=retry_after)


def _from_foreign_page(what: str, *, status: int, headers: Mapping[str, str], body: bytes) -> errors.ApiError:
    wait = _retry_after(headers)
    html = "html" in headers.get("Content-Type", "")
    if status in _PLAIN_TEXT and not html:
        hint = " (is the kind installed on this cluster?)" if status == 404 else ""
        return _BY_CODE[status](f"{what}: {_excerpt(body)}{hint}", status=status, retry_after=wait)
    text = f"{what}: status {status} with {headers.get('Content-Type') or 'an unnamed type'} instead of a Kubernetes "
    text += f"answer, is there a proxy in between? It begins: {_excerpt(body)}"
    return errors.ServerError(text, status=status, retry_after=wait)


def _status(body: bytes) -> FailureStatus | None:
    try:
        told = _status_decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return told if told.kind == "Status" else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    given = headers.get("Retry-After", "").strip()
    return float(given) if given.isdecimal() else None


def _clip(text: str) -> str:
    return text if len(text) <= _MESSAGE_MAX else text[:_MESSAGE_MAX] + " ..."


def _excerpt(body: bytes) -> str:
    return repr(" ".join(body[:200].decode("utf-8", "replace").split()))
