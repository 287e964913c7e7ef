"""Sessions of people who have signed in, by an opaque identifier, with limits of time and number.

A session knows its asker and nothing of tokens.  Identifiers are kept as digests only, so that neither a dump of memory
nor the time of a look-up helps to guess one.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kqueue.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """Limits of sessions; times in seconds."""

    most: int = 1024
    most_of_user: int = 64
    """Beyond them the user's least recently used session ends."""
    idle: float = 30 * 60.0
    """Without a request, and without an open stream of events; a stream is a request that is being answered."""
    absolute: float = 12 * 3600.0
    """From the beginning, whatever happens."""


@dataclass(slots=True, kw_only=True, eq=False)
class PageSession(Generic[T]):
    """One browser of one asker."""

    asker: T
    user: str
    began: float
    used: float
    answering: int = 0
    """Requests that are being answered, such as open streams of events: while there are any, it is not idle."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the session is over."""


class Sessions(Generic[T]):
    """The sessions of one server."""

    def __init__(
        self, *, clock: Clock, limits: SessionLimits | None = None, on_end: Callable[[T], None] = lambda _: None
    ) -> None:
        """`on_end` is called with the asker of each session that has ended."""
        self._clock, self._limits, self._on_end = clock, limits or SessionLimits(), on_end
        self._by_digest: dict[bytes, PageSession[T]] = {}

    def __len__(self) -> int:
        return len(self._by_digest)

    def all(self) -> list[PageSession[T]]:
        """Return the sessions that are not over."""
        return list(self._by_digest.values())

    @property
    def is_full(self) -> bool:
        """Whether no session can begin."""
        self.sweep()
        return len(self._by_digest) >= self._limits.most

    def begin(self, asker: T, user: str, *, key: str = "") -> str:
        """Begin a session and return its identifier, 256 random bits; or `key`, where the asker brings its own secret.

        Raises:
            OverflowError: there are too many sessions.
        """
        own = sorted((each for each in self.all() if each.user == user), key=lambda each: each.used)
        for oldest in own[: max(0, len(own) - self._limits.most_of_user + 1)]:
            self._end(oldest)
        if self.is_full:
            raise OverflowError("too many sessions")
        identifier, now = key or secrets.token_urlsafe(32), self._clock.monotonic()
        self._by_digest[_digest(identifier)] = PageSession(asker=asker, user=user, began=now, used=now)
        return identifier

    def find(self, identifier: str, *, touch: bool = True) -> PageSession[T] | None:
        """Return the session of an identifier, and note its use; None: there is none, or it is over."""
        session = self._by_digest.get(_digest(identifier))
        if session is None:
            return None
        if self._is_over(session):
            self._end(session)
            return None
        if touch:
            session.used = self._clock.monotonic()
        return session

    def end(self, identifier: str) -> None:
        """End the session of an identifier, if there is one."""
        session = self._by_digest.get(_digest(identifier))
        if session is not None:
            self._end(session)

    def end_of(self, asker: T) -> None:
        """End all sessions of an asker."""
        for session in self.all():
            if session.asker is asker:
                self._end(session)

    def sweep(self) -> None:
        """End the sessions whose time is over."""
        for session in self.all():
            if self._is_over(session):
                self._end(session)

    def _is_over(self, session: PageSession[T]) -> bool:
        now = self._clock.monotonic()
        if session.answering:
            session.used = now
        return now - session.used > self._limits.idle or now - session.began > self._limits.absolute

    def _end(self, session: PageSession[T]) -> None:
        self._by_digest = {digest: each for digest, each in self._by_digest.items() if each is not session}
        session.ended.set()
        self._on_end(session.asker)


def _digest(identifier: str) -> bytes:
    return hashlib.sha256(identifier.encode(errors="replace")).digest()
