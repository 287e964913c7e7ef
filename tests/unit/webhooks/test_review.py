"""Reviews in and out, and patches made by hand."""

from __future__ import annotations

import base64
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kqueue.errors import FieldError
from kqueue.jobs.patch import apply_merge_patch
from webhooks.json_patch import operations
from webhooks.review import Fault, NotAReviewError, ReviewResult, read, write

JSON = dict[str, Any]


def review(**request: Any) -> bytes:
    body = {"uid": "u1", "operation": "CREATE", "object": {"kind": "Job", "metadata": {"name": "j"}}} | request
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": body}).encode()


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        pytest.param(b"", "not JSON", id="an-empty-body"),
        pytest.param(b"\xff\xfe{", "not JSON", id="bytes-that-are-no-text"),
        pytest.param(b"[]", "the body is a list", id="a-list"),
        pytest.param(b'{"kind": "Pod", "apiVersion": "v1"}', "kind is 'Pod'", id="another-kind"),
        pytest.param(
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}', "apiVersion", id="an-old-version"
        ),
        pytest.param(
            b'{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}', "request is missing", id="no-request"
        ),
        pytest.param(review(uid=""), "request.uid", id="no-uid"),
        pytest.param(review(object="text"), "request.object is a text", id="an-object-that-is-none"),
        pytest.param(review(oldObject=[1]), "request.oldObject is a list", id="an-old-object-that-is-none"),
        pytest.param(review(uid=7), "request.uid", id="a-uid-that-is-no-text"),
        pytest.param(b'{"kind": {"a": 1}}', "kind is an object", id="a-kind-that-is-no-text"),
        pytest.param(b"[" * 100_000, "nested more than 200", id="a-very-deep-body"),
        pytest.param(b'{"kind": "' + b"x" * 9999 + b'"}', "^.{40,200}$", id="a-long-kind-is-not-repeated"),
    ],
)
def test_what_is_no_review_is_refused_with_the_field(body: bytes, fact: str) -> None:
    """One sentence that names what is wrong."""
    with pytest.raises(NotAReviewError, match=fact.replace("'", ".")):
        read(body)


@pytest.mark.parametrize(
    ("extra", "uid"),
    [
        pytest.param({"authentication.kubernetes.io/pod-uid": ["u"]}, "u", id="one"),
        pytest.param({"authentication.kubernetes.io/pod-uid": ["u", "v"]}, "", id="two"),
        pytest.param({"authentication.kubernetes.io/pod-uid": []}, "", id="none"),
        pytest.param({"authentication.kubernetes.io/pod-name": ["u"]}, "", id="another-key"),
        pytest.param(None, "", id="no-extra-fields"),
    ],
)
def test_a_token_may_be_bound_to_a_pod(extra: object, uid: str) -> None:
    """The API server says to which; a user that says two says none."""
    assert read(review(userInfo={"username": "ann", "extra": extra})).user.pod_uid == uid


def test_all_problems_are_reported_at_once() -> None:
    """A refusal carries every mistake with its path, for people and as causes for programs."""
    problems = [FieldError("spec.a", "is wrong", 1), FieldError("spec.b", "is missing")]
    answer = json.loads(write(read(review()), ReviewResult(problems=problems)))["response"]

    assert answer["allowed"] is False
    assert answer["uid"] == "u1"
    assert "spec.a: is wrong (found 1); spec.b: is missing" in answer["status"]["message"]
    assert [cause["field"] for cause in answer["status"]["details"]["causes"]] == ["spec.a", "spec.b"]


def test_a_fault_of_ours_says_so() -> None:
    """It refuses as well, and does not blame the object."""
    answer = json.loads(write(read(review()), ReviewResult(fault=Fault(500, "InternalError", "a bug in kqueue"))))[
        "response"
    ]

    assert answer == {
        "uid": "u1",
        "allowed": False,
        "status": {"code": 500, "reason": "InternalError", "message": "a bug in kqueue"},
    }


def test_answers_end_somewhere() -> None:
    """A thousand mistakes and a long warning are cut where people stop reading."""
    problems = [FieldError(f"spec.containers[{i}]", "is wrong") for i in range(1000)]
    refused = json.loads(write(read(review()), ReviewResult(problems=problems)))["response"]
    warned = json.loads(write(read(review()), ReviewResult(warnings=["x" * 1000])))["response"]

    assert len(refused["status"]["message"]) == 8192
    assert refused["status"]["message"].endswith(" ...")
    assert len(warned["warnings"][0]) == 256


@pytest.mark.parametrize(
    ("metadata", "name"),
    [({"name": "j"}, "j"), ({"generateName": "j-"}, "j-"), ({}, ""), (None, ""), ("x", "")],
)
def test_the_refused_object_is_named(metadata: object, name: str) -> None:
    """By name or by the name to be; whatever stands in its metadata."""
    refused = write(
        read(review(object={"kind": "Job", "metadata": metadata})), ReviewResult(problems=[FieldError("a", "b")])
    )

    assert json.loads(refused)["response"]["status"]["message"] == f"Job {name} is not valid: a: b"


def test_a_patch_is_carried_as_operations() -> None:
    """A merge patch goes out as a JSON patch that does the same."""
    request = read(review(object={"metadata": {"labels": {"a/b": "1"}}}))
    answer = json.loads(
        write(request, ReviewResult(patch={"spec": {"suspend": True}, "metadata": {"labels": {"a/b": "2"}}}))
    )
    patch = json.loads(base64.b64decode(answer["response"]["patch"]))

    assert answer["response"]["patchType"] == "JSONPatch"
    assert {"op": "replace", "path": "/metadata/labels/a~1b", "value": "2"} in patch
    assert {"op": "add", "path": "/spec", "value": {"suspend": True}} in patch


KEYS = st.text(alphabet="ab/~.", min_size=1, max_size=3)
LEAVES = st.one_of(
    st.integers(0, 3), st.booleans(), st.text(alphabet="xy", max_size=2), st.lists(st.integers(), max_size=2)
)
OBJECTS = st.recursive(LEAVES, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)
PATCHES = st.recursive(st.one_of(LEAVES, st.none()), lambda x: st.dictionaries(KEYS, x, max_size=3), max_leaves=8)


@given(st.dictionaries(KEYS, OBJECTS, max_size=4), st.dictionaries(KEYS, PATCHES, max_size=4))
def test_the_operations_do_what_the_merge_patch_says(obj: JSON, patch: JSON) -> None:
    """Applied by another library, they give what the API server makes of the merge patch."""
    wanted = apply_merge_patch(obj, patch)

    assert jsonpatch.apply_patch(obj, list(operations(obj, patch))) == wanted
