"""Question and answer of a view."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

JSON = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedQuestion:
    """A question of a user whose right to ask it was checked."""

    namespace: str
    """Empty for what has no namespace."""
    name: str
    """Empty for a list."""
    params: Mapping[str, str]
    """The query; how much of it there may be is bounded already, what stands in it is not."""
    reads: Callable[[str], Awaitable[bool]]
    """Whether this user may read the Workloads of a namespace; of an empty one: of all.

    When that cannot be found out, they may not; nor may they beyond some dozens of namespaces of one question, unless
    they may read those of all.
    """


View = Callable[[AuthorizedQuestion], Awaitable[JSON]]
"""Answers an object or a list with `kind` and `metadata`; `apiVersion` is added where it is missing.

`items` may be an iterator of JSON: a long list is read from it and written in pieces, between which others run.

Raises:
    NotFoundError: there is no such object (404).
    InvalidObjectError, ConfigError: the question makes no sense (400).
"""
