"""AdmissionReview in, AdmissionReview out.  Pure: bytes in, values out.

Source: admission.k8s.io/v1.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kqueue.errors import FieldError, KqueueError
from webhooks.json_patch import operations

JSON = dict[str, Any]

API_VERSION = "admission.k8s.io/v1"
MESSAGE_LENGTH = 8192
"""Longest answer; beyond it a terminal is no help any more."""


class NotAReviewError(KqueueError):
    """The request's body is not an AdmissionReview that we can answer; answered with 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the API server asks about one object.  `old` is None on create, `obj` empty on delete."""

    uid: str
    operation: str
    obj: JSON
    old: JSON | None
    namespace: str = ""
    subresource: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What we say.  `patch` is a merge patch of the object; `problems` refuse the request."""

    patch: Mapping[str, Any] = field(default_factory=dict)
    problems: Sequence[FieldError] = ()
    warnings: Sequence[str] = ()


ALLOWED = Answer()


def read(body: bytes) -> Request:
    """The request inside an AdmissionReview.

    Raises:
        NotAReviewError: the body is something else; says which field is wrong and what is expected there.
    """
    try:
        review = msgspec.json.decode(body)
    except msgspec.DecodeError as e:
        raise NotAReviewError(f"the body is not JSON ({e}); send an AdmissionReview of {API_VERSION}") from e
    if not isinstance(review, dict):
        raise NotAReviewError(f"the body is {_kind(review)}; send an AdmissionReview of {API_VERSION}")
    for name, wanted in (("kind", "AdmissionReview"), ("apiVersion", API_VERSION)):
        if review.get(name) != wanted:
            raise NotAReviewError(f"{name} is {review.get(name)!r}; it must be {wanted!r}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise NotAReviewError(f"request is {_kind(request)}; it must be an object with uid, operation and object")
    uid = request.get("uid")
    if not isinstance(uid, str) or not uid:
        raise NotAReviewError("request.uid is missing; it must be the review's identifier")
    obj, old = request.get("object"), request.get("oldObject")
    for name, value in (("object", obj), ("oldObject", old)):
        if value is not None and not isinstance(value, dict):
            raise NotAReviewError(f"request.{name} is {_kind(value)}; it must be an object or null")
    return Request(
        uid=uid,
        operation=str(request.get("operation", "")),
        obj=obj or {},
        old=old,
        namespace=str(request.get("namespace", "")),
        subresource=str(request.get("subResource", "")),
        dry_run=request.get("dryRun") is True,
    )


def write(request: Request, answer: Answer) -> bytes:
    """The AdmissionReview that carries the answer.  All problems are reported at once, each with its path."""
    response: JSON = {"uid": request.uid, "allowed": not answer.problems}
    if answer.problems:
        response["status"] = _status(request, answer.problems)
    else:
        patch = list(operations(request.obj, answer.patch))
        if patch:
            response["patchType"] = "JSONPatch"
            response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if answer.warnings:
        response["warnings"] = [warning[:256] for warning in answer.warnings]
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})


def _status(request: Request, problems: Iterable[FieldError]) -> JSON:
    kind = str(request.obj.get("kind", "object"))
    metadata = request.obj.get("metadata") or {}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    text = "; ".join(str(problem) for problem in problems)
    causes = [{"reason": "FieldValueInvalid", "field": p.path, "message": p.problem} for p in problems]
    return {
        "code": 403,
        "reason": "Forbidden",
        "message": f"{kind} {name} is not valid: {text}"[:MESSAGE_LENGTH],
        "details": {"name": name, "kind": kind, "causes": causes},
    }


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    return {"list": "a list", "str": "a text", "bool": "a boolean"}.get(type(value).__name__, "a number")
