"""Questions about who may do what.  Whoever can reach the sandbox may do everything in it, and is told so."""

from __future__ import annotations

from kqueue.sandbox import failure
from kqueue.sandbox.api import Object

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
USER = "system:admin"
GROUPS = ["system:masters", "system:authenticated"]
REVIEWS = (
    (AUTHENTICATION, "v1", "tokenreviews", "TokenReview"),
    (AUTHENTICATION, "v1", "selfsubjectreviews", "SelfSubjectReview"),
    (AUTHORIZATION, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    (AUTHORIZATION, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    (AUTHORIZATION, "v1", "subjectaccessreviews", "SubjectAccessReview"),
    (AUTHORIZATION, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview"),
)
_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}


def find(group: str, version: str, plural: str) -> str | None:
    """The review kind at a path, None when there is none."""
    return next((kind for *path, kind in REVIEWS if path == [group, version, plural]), None)


def answer(group: str, kind: str, asked: Object, token: str | None) -> Object:
    """The review with its status filled in; `token` is the server's own, None when it asks for none.

    Raises:
        InvalidError: 400 when the body is another kind.
    """
    if asked.get("kind", kind) != kind:
        raise failure.bad_request(f"the body must be a {kind}, found {asked.get('kind')}")
    user = {"username": USER, "groups": GROUPS}
    match kind:
        case "TokenReview":
            known = token is None or (asked.get("spec") or {}).get("token") == token
            status: Object = {"authenticated": True, "user": user} if known else {"authenticated": False}
        case "SelfSubjectReview":
            status = {"userInfo": user}
        case "SelfSubjectRulesReview":
            status = {
                "resourceRules": [_EVERYTHING],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            }
        case _:
            status = {"allowed": True, "reason": "the sandbox lets everybody do everything"}
    return {"metadata": {}, "spec": {}, **asked, "apiVersion": f"{group}/v1", "kind": kind, "status": status}
