"""Access reviews and token reviews."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kqueue.sandbox import access, failure
from kqueue.sandbox.access import ADMIN, AccessAttempt, SandboxUser
from kqueue.sandbox.api import Object

AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
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
    """Return the review kind at a path, or None."""
    return next((kind for *path, kind in REVIEWS if path == [group, version, plural]), None)


def answer(
    group: str,
    kind: str,
    asked: Object,
    user: SandboxUser,
    *,
    tokens: Mapping[str, SandboxUser],
    allows: Callable[[SandboxUser, AccessAttempt], bool],
) -> Object:
    """Return the review with its status; `user` sent it, `tokens` maps known tokens to users.

    Raises:
        InvalidError: 400 if the body has another kind.
    """
    if asked.get("kind", kind) != kind:
        raise failure.bad_request(f"the body must be a {kind}, found {asked.get('kind')}")
    spec = asked.get("spec") or {}
    match kind:
        case "TokenReview":
            known = tokens.get(spec.get("token") or "")
            status: Object = {"authenticated": True, "user": known.as_json()} if known else {"authenticated": False}
        case "SelfSubjectReview":
            status = {"userInfo": user.as_json()}
        case "SelfSubjectRulesReview":
            everything = access.MASTERS in user.groups
            status = {
                "resourceRules": [_EVERYTHING] if everything else [],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}] if everything else [],
                "incomplete": not everything,
            }
        case _:
            who = user if kind == "SelfSubjectAccessReview" else _subject(spec)
            status = {"allowed": allows(who, access.attempt_of(spec))}
    return {"metadata": {}, "spec": {}, **asked, "apiVersion": f"{group}/v1", "kind": kind, "status": status}


def _subject(spec: Object) -> SandboxUser:
    name = str(spec.get("user") or "")
    return ADMIN if name == ADMIN.name else SandboxUser(name, tuple(map(str, spec.get("groups") or ())))
