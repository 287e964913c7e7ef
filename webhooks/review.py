"""Parse AdmissionReview requests and build their responses.  Pure: takes bytes, returns values.

Source: admission.k8s.io/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kqueue.documents import LIMITS, DocumentLimits, TooMuchError, check_json
from kqueue.errors import FieldError, KqueueError
from kqueue.jobs.fields import mapping, sequence, text
from webhooks.json_patch import operations

JSON = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
_POD_UID = "authentication.kubernetes.io/pod-uid"
"""In the extra fields of a user: UID of the pod that the token was made for.  Source: Kubernetes' service accounts."""
MESSAGE_LENGTH = 8192
"""Longest message of a refusal in characters; a longer one would be unreadable in a terminal."""
WARNING_LENGTH = 256
"""Longest warning in characters; the API server cuts longer ones."""


class NotAReviewError(KqueueError):
    """The request's body is not a valid AdmissionReview; the response is 400."""


@dataclass(frozen=True, slots=True)
class RequestUser:
    """The user of the reviewed request, as authenticated by the API server."""

    name: str = ""
    groups: tuple[str, ...] = ()
    pod_uid: str = ""
    """UID of the pod to which the token of the request is bound; empty: it is bound to none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The API server's request for one object.  `old` is None on create, `obj` empty on delete."""

    uid: str
    operation: str
    obj: JSON
    old: JSON | None
    group: str = ""
    kind: str = ""
    """Kind of the object, as the webhook's rules name it; empty if the request does not have it."""
    namespace: str = ""
    subresource: str = ""
    dry_run: bool = False
    user: RequestUser = RequestUser()


@dataclass(frozen=True, slots=True)
class Fault:
    """The failure of a review: HTTP `code`, `reason` of one CamelCase word, one sentence."""

    code: int
    reason: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewResult:
    """The result of a review.  `patch` is a merge patch of the object; `problems` refuse the request.

    `fault` refuses it too, with one sentence about a failure of kqueue instead of the object.
    """

    patch: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()
    fault: Fault | None = None

    @property
    def allowed(self) -> bool:
        """Whether the request may pass."""
        return not self.problems and self.fault is None


ALLOWED = ReviewResult()


def read(body: bytes, *, judged: bool = False) -> Request:
    """Parse an AdmissionReview.  `judged`: depth and number of values were checked to be within limits.

    Raises:
        NotAReviewError: the body is no review; the message has the wrong field and the expected value.
    """
    review = decoded(body, LIMITS, judged=judged, wanted=f"an AdmissionReview of {API_VERSION}")
    for name, wanted in (("kind", "AdmissionReview"), ("apiVersion", API_VERSION)):
        if review.get(name) != wanted:
            raise NotAReviewError(f"{name} is {_quoted(review.get(name))}; it must be {wanted!r}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise NotAReviewError(f"request is {_kind(request)}; it must be an object with uid, operation and object")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise NotAReviewError("request.uid is missing; it must be the review's identifier")
    kind = mapping(request, "kind")
    return Request(
        uid=uid,
        group=text(kind, "group"),
        kind=text(kind, "kind"),
        operation=text(request, "operation"),
        obj=_object(request, "object") or {},
        old=_object(request, "oldObject"),
        namespace=text(request, "namespace"),
        subresource=text(request, "subResource"),
        dry_run=request.get("dryRun") is True,
        user=_user(mapping(request, "userInfo")),
    )


def write(request: Request, answer: ReviewResult) -> bytes:
    """Return the AdmissionReview with the answer.  All problems are reported at once, each with its path."""
    response: JSON = {"uid": request.uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = _fault(answer.fault) if answer.fault else _refusal(request, answer.problems)
    else:
        patch = list(operations(request.obj, answer.patch))
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if answer.warnings:
        response["warnings"] = [cut(warning, WARNING_LENGTH) for warning in answer.warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def decoded(body: bytes, limits: DocumentLimits, *, judged: bool, wanted: str) -> JSON:
    """Parse the body of a review; `judged` as in `read`, `wanted` names the review in messages.

    Raises:
        NotAReviewError: the body is no JSON object, or larger or deeper than the limits.
    """
    try:
        if not judged:
            check_json(body, limits)
        review = msgspec.json.decode(body)
    except TooMuchError as e:
        raise NotAReviewError(f"the body is refused: {e}") from e
    except UnicodeDecodeError as e:
        raise NotAReviewError(f"the body is not UTF-8 (byte {e.start} of a text); send JSON in UTF-8") from e
    except (msgspec.DecodeError, RecursionError) as e:
        raise NotAReviewError(f"the body is not JSON ({e}); send {wanted}") from e
    if not isinstance(review, dict):
        raise NotAReviewError(f"the body is {_kind(review)}; send {wanted}")
    return review


def _user(info: Mapping[str, Any]) -> RequestUser:
    pods = sequence(info, "extra", _POD_UID)
    groups = tuple(str(group) for group in sequence(info, "groups"))
    return RequestUser(text(info, "username"), groups, str(pods[0]) if len(pods) == 1 else "")


def _object(request: JSON, name: str) -> JSON | None:
    value = request.get(name)
    if value is not None and not isinstance(value, dict):
        raise NotAReviewError(f"request.{name} is {_kind(value)}; it must be an object or null")
    return value


def refusal(obj: JSON, problems: Sequence[FieldError]) -> str:
    """Return the message about an object that is refused: all problems at once, each with its path."""
    metadata = mapping(obj, "metadata")
    name = text(metadata, "name") or text(metadata, "generateName")
    return f"{text(obj, 'kind') or 'object'} {name} is not valid: {'; '.join(str(problem) for problem in problems)}"


def _refusal(request: Request, problems: Sequence[FieldError]) -> JSON:
    """Return a refusal with code 403, as other webhooks do; schemas refuse with 422."""
    metadata = mapping(request.obj, "metadata")
    name = text(metadata, "name") or text(metadata, "generateName")
    causes = [{"reason": "FieldValueInvalid", "field": p.path, "message": p.problem} for p in problems]
    return {
        "code": 403,
        "reason": "Forbidden",
        "message": cut(refusal(request.obj, problems), MESSAGE_LENGTH),
        "details": {"name": name, "kind": text(request.obj, "kind") or "object", "causes": causes},
    }


def _fault(fault: Fault) -> JSON:
    return {"code": fault.code, "reason": fault.reason, "message": cut(fault.sentence, MESSAGE_LENGTH)}


def cut(said: str, limit: int) -> str:
    """Return a text of at most `limit` characters."""
    return said if len(said) <= limit else f"{said[: limit - 4]} ..."


def _quoted(value: object) -> str:
    return _kind(value) if value is None or isinstance(value, dict | list) else cut(repr(value), 64)


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    words = {"list": "a list", "dict": "an object", "str": "a text", "bool": "a boolean"}
    return words.get(type(value).__name__, "a number")
