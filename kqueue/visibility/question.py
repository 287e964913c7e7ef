"""Question and answer of a view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]


async def _creates_nothing(_group: str, _version: str, _resource: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedQuestion:
    """A question of a user; the user's right to ask it was checked."""

    namespace: str
    """The namespace; empty for cluster-wide resources."""
    name: str
    """The name of the object; empty for a list."""
    params: Mapping[str, str]
    """The parameters of the query; their size is limited, their values are not checked."""
    body: bytes = b""
    """The posted bytes; their size is limited, their content is not checked."""
    reads: Callable[[str], Awaitable[bool]]
    """Whether this user may read the Workloads of a namespace; an empty text means all namespaces.

    False if the API server does not answer; and false beyond some dozens of namespaces of one question, unless the
    user may read all namespaces.
    """
    user: str = ""
    """The name of the user."""
    groups: tuple[str, ...] = ()
    """The groups of the user."""
    creates: Callable[[str, str, str], Awaitable[bool]] = _creates_nothing
    """Whether this user may create objects of a group, version and resource (plural) in the namespace of the question.

    Raises:
        ApiError: the API server did not answer.
    """


View = Callable[[AuthorizedQuestion], Awaitable[JSON]]
"""Returns an object or a list with `kind` and `metadata`; a missing `apiVersion` is added.

`items` may be an iterator of JSON: a long list is read from it and written in pieces, with yields between them.

Raises:
    NotFoundError: there is no such object (404).
    InvalidObjectError, ConfigError: the question is not valid (400).
    ForbiddenError: the user may not ask about this (403).
    TooManyRequestsError: the user asks too much at once (429).
"""
