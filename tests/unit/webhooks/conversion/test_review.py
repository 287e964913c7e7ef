"""ConversionReviews: many objects in one, or one failure for all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webhooks.conversion.review import answer
from webhooks.review import NotAReviewError

JSON = dict[str, Any]
OLD, NEW = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


def review(*objects: Any, wanted: Any = NEW, **changes: Any) -> bytes:
    """The question of the API server."""
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": list(objects)}
    whole = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}
    return json.dumps(whole | changes).encode()


def queue(name: str, version: str = OLD, **spec: Any) -> JSON:
    return {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec}


def response(body: bytes) -> JSON:
    whole = json.loads(answer(body)[0])
    assert (whole["apiVersion"], whole["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    found: JSON = whole["response"]
    return found


def test_all_objects_come_back_in_their_order() -> None:
    """One that is in the wanted version already stays as it is."""
    found = response(review(queue("a", cohort="c"), queue("b", NEW, cohortName="d")))

    assert (found["uid"], found["result"]) == ("u", {"status": "Success"})
    assert found["convertedObjects"] == [queue("a", NEW, cohortName="c"), queue("b", NEW, cohortName="d")]


def test_one_failure_fails_the_review() -> None:
    """As the protocol demands; the message names the object."""
    body = review(queue("a"), {"apiVersion": OLD, "kind": "Job", "metadata": {"name": "j", "namespace": "n"}})

    found = response(body)

    assert (found["result"]["status"], found["convertedObjects"]) == ("Failure", [])
    assert "Job n/j is of a kind" in found["result"]["message"]
    assert answer(body)[1] is False


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"{", "not JSON", id="no-json"),
        pytest.param(b"[]", "a list; send a ConversionReview", id="no-object"),
        pytest.param(review(kind="AdmissionReview"), "kind must be 'ConversionReview'", id="another-review"),
        pytest.param(review(apiVersion="v2"), "apiVersion must be", id="another-version"),
        pytest.param(review(request=[]), "request must be an object", id="no-request"),
        pytest.param(review(request={"uid": ""}), "uid is missing", id="no-uid"),
        pytest.param(review(wanted=7), "desiredAPIVersion must be a text", id="no-version"),
        pytest.param(review("x"), "objects must be a list of objects", id="no-objects"),
        pytest.param(review([[]] * 1_000_001), "more than 1000000 values", id="too-many-values"),
        pytest.param(b"[" * 300, "nested more than", id="too-deep"),
    ],
)
def test_a_body_that_is_no_review_is_refused(body: bytes, said: str) -> None:
    """With the field that is wrong."""
    with pytest.raises(NotAReviewError, match=said):
        answer(body)
