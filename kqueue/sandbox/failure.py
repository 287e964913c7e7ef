"""Errors in the wording of an API server, and the Status object for each.

Every function builds one error of the `ApiError` tree, with the details that `kubectl` and client libraries read:
the object, the field and the rule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kqueue.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
)
from kqueue.sandbox.api import GroupVersionResource, Object

LONGEST_SHOWN = 300
STALE = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class Cause:
    """One mistake in one field: `reason` for programs (`FieldValueInvalid`), `message` for people."""

    reason: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def required(field: str, detail: str = "") -> Cause:
    """Return the cause: a required field is missing."""
    return Cause("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))


def invalid(field: str, value: Any, detail: str) -> Cause:
    """Return the cause: a field has an invalid value."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    """Return the cause: a field has a value of the wrong type."""
    return Cause("FieldValueTypeInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: Any, allowed: list[str]) -> Cause:
    """Return the cause: a field has none of the allowed values."""
    words = ", ".join(f'"{word}"' for word in allowed)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {shown(value)}: supported values: {words}")


def forbidden_field(field: str, detail: str) -> Cause:
    """Return the cause: a field must not be set, or must not change."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> Cause:
    """Return the cause: a list has the same key twice."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def shown(value: Any) -> str:
    """Return a value for a message: text in quotes, other values as JSON, cut if long."""
    match value:
        case str():
            return f'"{value}"'
        case dict() | list():
            text = json.dumps(value, separators=(",", ":"))
            return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The details of a Status."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()

    def as_json(self) -> Object:
        """Return the `details` member of a Status, without empty fields."""
        out: Object = {
            key: value
            for key, value in (("name", self.name), ("group", self.group), ("kind", self.kind), ("uid", self.uid))
            if value
        }
        if self.causes:
            out["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in self.causes]
        return out


class Detailed(ApiError):
    """A mixin for errors that have details besides their message."""

    details: Details = Details()


class ObjectMissingError(Detailed, NotFoundError):
    """No object has this name."""


class ObjectExistsError(Detailed, AlreadyExistsError):
    """An object of this name exists."""


class ObjectConflictError(Detailed, ConflictError):
    """The object was changed meanwhile, or a precondition is not met."""


class ObjectInvalidError(Detailed, InvalidError):
    """The object breaks rules of its kind."""


class ObjectForbiddenError(Detailed, ForbiddenError):
    """A policy of the server forbids the request."""


class LoadError(Detailed, ServerError):
    """A 5xx with details."""


class BudgetError(Detailed, TooManyRequestsError):
    """An eviction that has to wait."""


def qualified(resource: GroupVersionResource) -> str:
    """Return the name with its group: `pods`, `jobs.batch`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(resource: GroupVersionResource, name: str, causes: tuple[Cause, ...] = ()) -> Details:
    return Details(name=name, group=resource.group, kind=resource.plural, causes=causes)


def not_found(resource: GroupVersionResource, name: str) -> NotFoundError:
    """Return a 404 for one object."""
    error = ObjectMissingError(f'{qualified(resource)} "{name}" not found', status=404, reason="NotFound")
    error.details = _details(resource, name)
    return error


class UnknownPathError(NotFoundError):
    """A path or kind that is not served."""


def unknown_path() -> UnknownPathError:
    """Return a 404 for a path or kind that is not served."""
    return UnknownPathError("the server could not find the requested resource", status=404, reason="NotFound")


def already_exists(resource: GroupVersionResource, name: str) -> AlreadyExistsError:
    """Return a 409 for a create."""
    error = ObjectExistsError(f'{qualified(resource)} "{name}" already exists', status=409, reason="AlreadyExists")
    error.details = _details(resource, name)
    return error


def conflict(
    resource: GroupVersionResource, name: str, why: str = STALE, causes: tuple[Cause, ...] = ()
) -> ConflictError:
    """Return a 409 for an update, a patch or a precondition."""
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    error = ObjectConflictError(message, status=409, reason="Conflict")
    error.details = _details(resource, name, causes)
    return error


def apply_conflict(message: str, causes: tuple[Cause, ...]) -> ConflictError:
    """Return a 409 for a server-side apply that would take fields away from other managers."""
    error = ObjectConflictError(message, status=409, reason="Conflict")
    error.details = Details(causes=causes)
    return error


def invalid_object(group: str, kind: str, name: str, causes: list[Cause]) -> InvalidError:
    """Return a 422 with every mistake, not the first."""
    texts = [str(cause) for cause in causes]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    what = f"{kind}.{group}" if group else kind
    error = ObjectInvalidError(f'{what} "{name}" is invalid: {text}', status=422, reason="Invalid")
    error.details = Details(name=name, group=group, kind=kind, causes=tuple(causes))
    return error


def bad_request(message: str) -> InvalidError:
    """Return a 400: the request is malformed."""
    return InvalidError(message, status=400, reason="BadRequest")


class UndecodableError(InvalidError):
    """An object that does not match its kind; `problem` says where, without the kind."""

    problem: str = ""


def undecodable(resource: GroupVersionResource, kind: str, problem: str) -> UndecodableError:
    """Return a 400: a field has the wrong type, or is unknown."""
    text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {problem}'
    error = UndecodableError(text, status=400, reason="BadRequest")
    error.problem = problem
    return error


def bad_patch(patch: object, error: UndecodableError) -> InvalidError:
    """Return a 422: the patched object does not match its kind."""
    return invalid_object("", "", "", [invalid("patch", patch, error.problem)])


def unsupported_media(message: str) -> InvalidError:
    """Return a 415: the content type is not supported."""
    return InvalidError(message, status=415, reason="UnsupportedMediaType")


def too_large(limit: int) -> InvalidError:
    """Return a 413: the body is too long."""
    return InvalidError(
        f"the request body is larger than the limit of {limit} bytes", status=413, reason="RequestEntityTooLarge"
    )


def wrong_method(detail: str = "the server does not allow this method on the requested resource") -> InvalidError:
    """Return a 405."""
    return InvalidError(detail, status=405, reason="MethodNotAllowed")


def forbidden(resource: GroupVersionResource, name: str, why: str, causes: tuple[Cause, ...] = ()) -> ForbiddenError:
    """Return a 403 by a rule of the server."""
    error = ObjectForbiddenError(f'{qualified(resource)} "{name}" is forbidden: {why}', status=403, reason="Forbidden")
    error.details = _details(resource, name, causes)
    return error


def unauthorized() -> UnauthorizedError:
    """Return a 401."""
    return UnauthorizedError("Unauthorized", status=401, reason="Unauthorized")


def expired(message: str) -> GoneError:
    """Return a 410: a resource version or continue token is older than the kept log."""
    return GoneError(message, status=410, reason="Expired")


def too_new(wanted: int, current: int) -> ServerError:
    """Return a 504: a resource version that this server has not reached."""
    error = LoadError(
        f"Too large resource version: {wanted}, current: {current}", status=504, reason="Timeout", retry_after=1.0
    )
    cause = Cause("ResourceVersionTooLarge", "", "Too large resource version")
    error.details = Details(causes=(cause,))
    return error


def internal(message: str) -> ServerError:
    """Return a 500."""
    return ServerError(f"Internal error occurred: {message}", status=500, reason="InternalError")


def unforeseen(message: str) -> ServerError:
    """Return a 500 without a reason, which a real server gives for some mistakes of clients."""
    return ServerError(message, status=500)


def status_object(error: ApiError) -> Object:
    """Return the Status for an error."""
    out: Object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        **({"reason": error.reason} if error.reason else {}),
        "code": error.status,
    }
    details = error.details.as_json() if isinstance(error, Detailed) else {}
    if error.retry_after is not None:
        details["retryAfterSeconds"] = int(error.retry_after)
    if details:
        out["details"] = details
    return out


def by_status(status: int, reason: str, message: str) -> ApiError:
    """Return the ApiError for a status of a webhook; a status that is no failure becomes 403."""
    if not 400 <= status <= 599:
        status = 403
    if status >= 500:
        return ServerError(message, status=status, reason=reason)
    kinds: dict[int, type[ApiError]] = {
        401: UnauthorizedError,
        403: ForbiddenError,
        404: NotFoundError,
        409: ConflictError,
        410: GoneError,
        429: TooManyRequestsError,
    }
    return kinds.get(status, InvalidError)(message, status=status, reason=reason)
