"""Failures as an API server words them, and the Status object that carries each to a client.

Every function builds one error of the `ApiError` tree, with the details that `kubectl` and client libraries read:
which object, which field, which rule.
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
    """A field that must be there is missing."""
    return Cause("FieldValueRequired", field, "Required value" + (f": {detail}" if detail else ""))


def invalid(field: str, value: Any, detail: str) -> Cause:
    """A field holds something it must not hold."""
    return Cause("FieldValueInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def wrong_type(field: str, value: Any, detail: str) -> Cause:
    """A field holds a value of another type."""
    return Cause("FieldValueTypeInvalid", field, f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: Any, allowed: list[str]) -> Cause:
    """A field holds none of the words it may hold."""
    words = ", ".join(f'"{word}"' for word in allowed)
    return Cause("FieldValueNotSupported", field, f"Unsupported value: {shown(value)}: supported values: {words}")


def forbidden_field(field: str, detail: str) -> Cause:
    """A field must not be set, or must not change."""
    return Cause("FieldValueForbidden", field, f"Forbidden: {detail}")


def duplicate(field: str, value: Any) -> Cause:
    """A list holds the same key twice."""
    return Cause("FieldValueDuplicate", field, f"Duplicate value: {shown(value)}")


def shown(value: Any) -> str:
    """A value inside a message: text in quotes, anything else as JSON, cut when it is long."""
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
    """What a Status says beyond its message."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()

    def as_json(self) -> Object:
        """The `details` member of a Status, without empty fields."""
        out: Object = {
            key: value
            for key, value in (("name", self.name), ("group", self.group), ("kind", self.kind), ("uid", self.uid))
            if value
        }
        if self.causes:
            out["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in self.causes]
        return out


class Detailed(ApiError):
    """Mixed into errors of the tree that know more than a sentence."""

    details: Details = Details()


class ObjectMissingError(Detailed, NotFoundError):
    """No object of that name."""


class ObjectExistsError(Detailed, AlreadyExistsError):
    """An object of that name is there."""


class ObjectConflictError(Detailed, ConflictError):
    """Somebody else wrote first, or a precondition does not hold."""


class ObjectInvalidError(Detailed, InvalidError):
    """The object breaks rules of its kind."""


class ObjectForbiddenError(Detailed, ForbiddenError):
    """The server's policy says no."""


class LoadError(Detailed, ServerError):
    """A 5xx with details."""


class BudgetError(Detailed, TooManyRequestsError):
    """An eviction that has to wait."""


def qualified(resource: GroupVersionResource) -> str:
    """`pods`, `jobs.batch`."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(resource: GroupVersionResource, name: str, causes: tuple[Cause, ...] = ()) -> Details:
    return Details(name=name, group=resource.group, kind=resource.plural, causes=causes)


def not_found(resource: GroupVersionResource, name: str) -> NotFoundError:
    """404 for one object."""
    error = ObjectMissingError(f'{qualified(resource)} "{name}" not found', status=404, reason="NotFound")
    error.details = _details(resource, name)
    return error


class UnknownPathError(NotFoundError):
    """A path or kind that is not served."""


def unknown_path() -> UnknownPathError:
    """404 for a path or kind that is not served."""
    return UnknownPathError("the server could not find the requested resource", status=404, reason="NotFound")


def already_exists(resource: GroupVersionResource, name: str) -> AlreadyExistsError:
    """409 for a create."""
    error = ObjectExistsError(f'{qualified(resource)} "{name}" already exists', status=409, reason="AlreadyExists")
    error.details = _details(resource, name)
    return error


def conflict(
    resource: GroupVersionResource, name: str, why: str = STALE, causes: tuple[Cause, ...] = ()
) -> ConflictError:
    """409 for an update, a patch or a precondition."""
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    error = ObjectConflictError(message, status=409, reason="Conflict")
    error.details = _details(resource, name, causes)
    return error


def apply_conflict(message: str, causes: tuple[Cause, ...]) -> ConflictError:
    """409 for a server-side apply that would take fields away from other managers."""
    error = ObjectConflictError(message, status=409, reason="Conflict")
    error.details = Details(causes=causes)
    return error


def invalid_object(group: str, kind: str, name: str, causes: list[Cause]) -> InvalidError:
    """422 with every mistake, not the first."""
    texts = [str(cause) for cause in causes]
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    what = f"{kind}.{group}" if group else kind
    error = ObjectInvalidError(f'{what} "{name}" is invalid: {text}', status=422, reason="Invalid")
    error.details = Details(name=name, group=group, kind=kind, causes=tuple(causes))
    return error


def bad_request(message: str) -> InvalidError:
    """400: the request makes no sense."""
    return InvalidError(message, status=400, reason="BadRequest")


class UndecodableError(InvalidError):
    """What was sent is not of its kind; `problem` says where, without the kind."""

    problem: str = ""


def undecodable(resource: GroupVersionResource, kind: str, problem: str) -> UndecodableError:
    """400: a field is of another type, or not one of the kind's."""
    text = f'{kind} in version "{resource.version}" cannot be handled as a {kind}: {problem}'
    error = UndecodableError(text, status=400, reason="BadRequest")
    error.problem = problem
    return error


def bad_patch(patch: object, error: UndecodableError) -> InvalidError:
    """422: the patch makes something of the object that is not of its kind."""
    return invalid_object("", "", "", [invalid("patch", patch, error.problem)])


def unsupported_media(message: str) -> InvalidError:
    """415: the body is of a type that is not read here."""
    return InvalidError(message, status=415, reason="UnsupportedMediaType")


def too_large(limit: int) -> InvalidError:
    """413: the body is longer than a server takes."""
    return InvalidError(
        f"the request body is larger than the limit of {limit} bytes", status=413, reason="RequestEntityTooLarge"
    )


def wrong_method(detail: str = "the server does not allow this method on the requested resource") -> InvalidError:
    """405."""
    return InvalidError(detail, status=405, reason="MethodNotAllowed")


def forbidden(resource: GroupVersionResource, name: str, why: str, causes: tuple[Cause, ...] = ()) -> ForbiddenError:
    """403 by a rule of the server."""
    error = ObjectForbiddenError(f'{qualified(resource)} "{name}" is forbidden: {why}', status=403, reason="Forbidden")
    error.details = _details(resource, name, causes)
    return error


def unauthorized() -> UnauthorizedError:
    """401."""
    return UnauthorizedError("Unauthorized", status=401, reason="Unauthorized")


def expired(message: str) -> GoneError:
    """410: a resource version or continue token from before what is kept."""
    return GoneError(message, status=410, reason="Expired")


def too_new(wanted: int, current: int) -> ServerError:
    """504: a resource version that this server has not reached."""
    error = LoadError(
        f"Too large resource version: {wanted}, current: {current}", status=504, reason="Timeout", retry_after=1.0
    )
    cause = Cause("ResourceVersionTooLarge", "", "Too large resource version")
    error.details = Details(causes=(cause,))
    return error


def internal(message: str) -> ServerError:
    """500."""
    return ServerError(f"Internal error occurred: {message}", status=500, reason="InternalError")


def unforeseen(message: str) -> ServerError:
    """500 for a mistake of the client's that a real server answers in this way, without a reason."""
    return ServerError(message, status=500)


def status_object(error: ApiError) -> Object:
    """The Status that tells a client of `error`."""
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
    """The error of the tree for a status that somebody else chose; what is no failure becomes 403."""
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
