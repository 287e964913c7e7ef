"""Answers ConversionReviews: bytes in, bytes out.

One review has all objects of a request, and its answer as many in the same order, or one failure for all.
Source: apiextensions.k8s.io/v1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kqueue.documents import DocumentLimits
from webhooks.conversion.catalog import NotConvertedError, converted
from webhooks.conversion.fields import JSON
from webhooks.review import NotAReviewError, cut, decoded

API_VERSION = "apiextensions.k8s.io/v1"
MAX_BODY = 16 * 1024 * 1024
"""Bytes of one review.  An object has at most 1.5 MiB, and API servers send most objects in a review of their own."""
LIMITS = DocumentLimits(values=1_000_000)
MESSAGE_LENGTH = 8192


def answer(body: bytes, *, judged: bool = False) -> tuple[bytes, bool]:
    """Return the answer to a ConversionReview, and whether its objects were converted.

    `judged`: depth and number of values were checked to be within limits.

    Raises:
        NotAReviewError: the body is no review; the message has the wrong field and the expected value.
    """
    request = _request(decoded(body, LIMITS, judged=judged, wanted=f"a ConversionReview of {API_VERSION}"))
    try:
        found = [converted(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    except NotConvertedError as e:
        result = {"status": "Failure", "message": cut(str(e), MESSAGE_LENGTH)}
        return _write(request["uid"], [], result), False
    return _write(request["uid"], found, {"status": "Success"}), True


def _request(review: JSON) -> JSON:
    for name, wanted in (("kind", "ConversionReview"), ("apiVersion", API_VERSION)):
        if review.get(name) != wanted:
            raise NotAReviewError(f"{name} must be {wanted!r}, found {str(review.get(name))[:64]!r}")
    request = review.get("request")
    if not isinstance(request, dict):
        raise NotAReviewError("request must be an object with uid, desiredAPIVersion and objects")
    if not isinstance(request.get("uid"), str) or not request["uid"]:
        raise NotAReviewError("request.uid is missing; it must be the review's identifier")
    if not isinstance(request.get("desiredAPIVersion"), str):
        raise NotAReviewError("request.desiredAPIVersion must be a text such as kueue.x-k8s.io/v1beta2")
    objects = request.get("objects")
    if not isinstance(objects, list) or not all(isinstance(obj, dict) for obj in objects):
        raise NotAReviewError("request.objects must be a list of objects")
    return request


def _write(uid: str, objects: list[Any], result: JSON) -> bytes:
    response = {"uid": uid, "convertedObjects": objects, "result": result}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "ConversionReview", "response": response})
