"""Identity and rights of users, requested from the API server and kept for seconds."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kqueue.api import names
from kqueue.clock import Clock
from kqueue.errors import ApiError, TooManyRequestsError
from kqueue.runtime.client import Client
from kqueue.runtime.lane import Lane
from kqueue.runtime.resources import ResourceType
from kqueue.visibility.front_proxy import User, with_authenticated
from kqueue.visibility.remembered import Remembered

TOKEN_REVIEWS = ResourceType("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
GRANTED_SECONDS, DENIED_SECONDS = 10.0, 5.0
_MOST = 4096
"""Limit of kept answers."""
_TOKENS_AT_ONCE = 8
"""Concurrent reviews of tokens, so that clients with invalid tokens cannot block users of the front proxy."""
ReviewResult = Literal["known", "unknown", "refused", "failed"]
"""Results of reviews of tokens; `refused`: too many were under way, so that the API server was not asked."""
_LONGEST_TOKEN = 8000
NAMESPACES_OF_A_QUESTION = 64
"""Limit of namespaces per question; each may need a request to the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """An action on a resource, or, with `path`, on a path that is no resource."""

    verb: str
    path: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def words(self) -> str:
        """Return the action in the wording of the API server."""
        if self.path:
            return f'{self.verb} path "{self.path}"'
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'{self.verb} resource "{what}" in API group "{self.group}" {where}'


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the authorizer; `reason` may be empty."""

    allowed: bool
    reason: str = ""


class Rights:
    """Rights of users, by the API server.  Without its answer no user is recognised and nothing is allowed."""

    def __init__(
        self, client: Client, *, clock: Clock, on_review: Callable[[ReviewResult], None] = lambda _: None
    ) -> None:
        """`on_review` gets the result of each review of a token; it must return at once."""
        self._client, self._on_review = client, on_review
        self._tokens = Remembered[bytes, User | None](clock, seconds=_seconds, most=_MOST)
        self._decisions = Remembered[tuple[User, Action], Decision](
            clock, seconds=lambda decision: _seconds(decision.allowed or None), most=_MOST
        )
        self._reviewing = 0

    async def user_of(self, token: str) -> User | None:
        """Return the user of a bearer token; None for an unknown token.

        Raises:
            TooManyRequestsError: too many unknown tokens are being checked.
            ApiError: the API server did not answer.
        """
        if not token or not token.isascii() or len(token) > _LONGEST_TOKEN:
            return None
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        return await self._tokens.get(digest, lambda: self._review(token))

    async def _review(self, token: str) -> User | None:
        if self._reviewing >= _TOKENS_AT_ONCE:
            self._on_review("refused")
            raise TooManyRequestsError("too many tokens are being looked at; try again", status=429, retry_after=1)
        self._reviewing += 1
        try:
            review = {"apiVersion": TOKEN_REVIEWS.api_version, "kind": TOKEN_REVIEWS.kind, "spec": {"token": token}}
            answer = await self._client.create(TOKEN_REVIEWS, review, lane=Lane.REVIEWS)
        except ApiError:
            self._on_review("failed")
            raise
        finally:
            self._reviewing -= 1
        status = answer.get("status") or {}
        user = _user(status.get("user") or {}) if status.get("authenticated") is True else None
        self._on_review("known" if user is not None else "unknown")
        return user

    async def may(self, user: User, action: Action) -> Decision:
        """Return whether the API server allows the action.

        Raises:
            ApiError: the API server did not answer.
        """
        return await self._decisions.get((user, action), lambda: self._ask(user, action))

    async def may_read_workloads(self, user: User, namespace: str) -> bool:
        """Whether a user may read the Workloads of a namespace; False without an answer of the API server."""
        action = Action(
            verb="get", group=names.GROUP, version=names.VERSION, resource="workloads", namespace=namespace
        )  # fmt: skip
        try:
            return (await self.may(user, action)).allowed
        except ApiError:
            return False

    async def _ask(self, user: User, action: Action) -> Decision:
        review = {"apiVersion": ACCESS_REVIEWS.api_version, "kind": ACCESS_REVIEWS.kind, "spec": _spec(user, action)}
        answer = await self._client.create(ACCESS_REVIEWS, review, lane=Lane.REVIEWS)
        status = answer.get("status") or {}
        allowed = status.get("allowed") is True and status.get("denied") is not True
        return Decision(allowed, str(status.get("reason") or ""))


class Reading:
    """The namespaces whose Workloads one user may read, for one question, with a limit of requests.

    A user who may read all Workloads costs one request.  Namespaces beyond the limit count as forbidden: a question
    about thousands of namespaces must not cause thousands of requests.
    """

    def __init__(self, rights: Rights, user: User, *, most: int = NAMESPACES_OF_A_QUESTION) -> None:
        self._rights, self._user, self._most = rights, user, most
        self._asked: set[str] = set()

    async def __call__(self, namespace: str) -> bool:
        """Whether the user may read the Workloads of this namespace."""
        if await self._rights.may_read_workloads(self._user, ""):
            return True
        if namespace not in self._asked and len(self._asked) >= self._most:
            return False
        self._asked.add(namespace)
        return await self._rights.may_read_workloads(self._user, namespace)


def _seconds(granted: object) -> float:
    return DENIED_SECONDS if granted is None else GRANTED_SECONDS


def _user(found: Mapping[str, Any]) -> User | None:
    name = str(found.get("username") or "")
    if not name:
        return None
    extra = found.get("extra") or {}
    return User(
        name=name,
        uid=str(found.get("uid") or ""),
        groups=with_authenticated(name, tuple(map(str, found.get("groups") or ()))),
        extra=tuple(sorted((str(key), tuple(map(str, values or ()))) for key, values in extra.items())),
    )


def _spec(user: User, action: Action) -> dict[str, Any]:
    spec: dict[str, Any] = {"user": user.name, "groups": list(user.groups)}
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    if action.path:
        return {**spec, "nonResourceAttributes": {"verb": action.verb, "path": action.path}}
    asked = {
        "verb": action.verb,
        "group": action.group,
        "version": action.version,
        "resource": action.resource,
        "subresource": action.subresource,
        "namespace": action.namespace,
        "name": action.name,
    }
    return {**spec, "resourceAttributes": {key: value for key, value in asked.items() if value}}
