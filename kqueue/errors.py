"""The error tree. It imports nothing, and every room may import it.

```
KqueueError                      everything that kqueue raises on purpose
├── TerminalError                needs a change of the object: log, count, wait for the change
├── ConfigError                  a setting, flag or file is wrong; the command line turns it into exit code 2
├── PluginError                  a plugin raised, answered wrongly or too late
├── InvalidObjectError           an object cannot be read; carries all its field errors
├── NotLeadingError              a write that only the leader may make, and this process does not lead any more
├── NotServedError               an API that the controller answers is not registered, or not reached
└── ApiError                     the API server answered with a failure, or not at all
    ├── NotFoundError            404
    ├── AlreadyExistsError       409, reason AlreadyExists
    ├── ConflictError            409: another client wrote first; read again
    ├── InvalidError             400, 415, 422: the request itself is wrong
    ├── ForbiddenError           403: not allowed, or an admission webhook said no
    ├── UnauthorizedError        401
    ├── GoneError                410: the resource version is too old; list again
    ├── TooManyRequestsError     429; carries how long to wait
    ├── ServerError              5xx, or an answer that is no Kubernetes Status
    └── UnreachableError         no answer: refused, reset, timed out
```

"Does not fit" is never an exception: it is a value that carries numbers.
"""

from __future__ import annotations

from dataclasses import dataclass


class KqueueError(Exception):
    """Everything that kqueue raises on purpose."""


class TerminalError(KqueueError):
    """Trying again cannot help until the object changes."""


class ConfigError(KqueueError):
    """A setting, a flag or a file is wrong.  The text names it and the remedy."""


class PluginError(KqueueError):
    """A plugin has no usable answer.  The text names it and its error."""


class NotLeadingError(KqueueError):
    """A write was not sent, because this process may not write any more: another one may lead by now."""


class NotServedError(KqueueError):
    """An API that the controller answers behind the API server is not registered, or not reached."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One mistake in one field of an object.

    `path` is the dotted path from the object's root, as in `spec.template.metadata.annotations[key]`;
    `value` is its value, None when the field is missing;
    `problem` is one sentence with the problem and the remedy.
    """

    path: str
    problem: str
    value: object = None

    def __str__(self) -> str:
        found = "" if self.value is None else f" (found {self.value!r})"
        return f"{self.path}: {self.problem}{found}"


class InvalidObjectError(TerminalError):
    """An object breaks its own rules.  Carries every mistake, not the first."""

    def __init__(self, what: str, errors: list[FieldError]) -> None:
        super().__init__(f"{what} is not valid: " + "; ".join(str(e) for e in errors))
        self.errors = errors


class ApiError(KqueueError):
    """The API server answered with a failure, or not at all.

    `status` is the HTTP status, 0 when there was no answer; `reason` the Status object's reason, possibly empty;
    `retry_after` the seconds that the server asked us to wait, None when it did not say.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.reason, self.retry_after = status, reason, retry_after


class NotFoundError(ApiError):
    """404: the object, or its kind, does not exist."""


class AlreadyExistsError(ApiError):
    """409 with reason AlreadyExists: an object of this name is there."""


class ConflictError(ApiError):
    """409: the object changed since it was read.  Read again, decide again."""


class InvalidError(ApiError):
    """400, 415 or 422: the request is wrong, and would be wrong again."""


class ForbiddenError(ApiError):
    """403: no permission, or an admission webhook refused."""


class UnauthorizedError(ApiError):
    """401: the credentials were not accepted, even after they were read again."""


class GoneError(ApiError):
    """410: the resource version is too old to continue from.  List again."""


class TooManyRequestsError(ApiError):
    """429: the server asks us to slow down; `retry_after` says by how much."""


class ServerError(ApiError):
    """5xx, or an answer that is not Kubernetes JSON (a proxy's error page)."""


class UnreachableError(ApiError):
    """No answer: connection refused or reset, name not found, time out."""
