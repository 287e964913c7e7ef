"""Askers: one for each token that people have signed in with, with a client of its own that sends this token.

Sessions with the same token share an asker, because they have the same rights; nothing else is ever shared.  The API
server reviews each token when it comes, and again at a bounded rate while it is used.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from kqueue.clock import Clock
from kqueue.errors import ApiError
from kqueue.isolation import isolated_logged
from kqueue.observe.dashboard_metrics import DashboardMetrics
from kqueue.page.asker_page import AskerLimits, AskerPage, Pace
from kqueue.page.views import ClusterViews
from kqueue.visibility.front_proxy import User
from kqueue.visibility.rights import Rights

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedViews:
    """Views that ask with one token, and how they are closed."""

    views: ClusterViews
    close: Callable[[], Awaitable[None]]


OpenViews = Callable[[str, User], Awaitable[OpenedViews]]
"""Opens views that ask with this token.  Sends no request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewTimes:
    """Times of reviews in seconds."""

    every: float = 60.0
    """From one review of a token that is used to the next one."""
    failed: float = 600.0
    """For so long a token stays good while the API server answers no review.  Its questions fail then anyway."""


@dataclass(slots=True, kw_only=True, eq=False)
class Asker:
    """One token, its user, and the page that asks with it."""

    token: str = field(repr=False)
    user: User
    page: AskerPage = field(repr=False)
    opened: OpenedViews = field(repr=False)
    reviewed: float
    """When the API server last said that the token is good."""
    due: float
    """When it is to be asked again."""
    sessions: int = 0


class Askers:
    """The askers of one server, by their tokens."""

    def __init__(
        self,
        rights: Rights,
        open_views: OpenViews,
        *,
        clock: Clock,
        pace: Pace,
        limits: AskerLimits,
        times: ReviewTimes,
        metrics: DashboardMetrics | None = None,
    ) -> None:
        """`rights` reviews tokens with the server's own account, which does nothing else."""
        self._rights, self._open_views, self._clock, self._pace = rights, open_views, clock, pace
        self._limits, self._times, self._metrics = limits, times, metrics
        self._by_digest: dict[bytes, Asker] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._by_digest)

    def all(self) -> list[Asker]:
        """Return the askers with sessions."""
        return list(self._by_digest.values())

    async def asker_of(self, token: str) -> Asker | None:
        """Return the asker of a token, reviewed now; call `hold` before the next await.  None: the token is not good.

        Raises:
            ApiError: the API server did not answer, or too many tokens are being reviewed.
        """
        user = await self._rights.user_of(token)
        if user is None:
            return None
        known = self._by_digest.get(_digest(token))
        if known is not None:
            return known
        opened = await self._open_views(token, user)
        known = self._by_digest.get(_digest(token))
        if known is not None:  # made by another request in the meantime
            self._close(opened)
            return known
        return self._made(token, user, opened)

    def _made(self, token: str, user: User, opened: OpenedViews) -> Asker:
        now = self._clock.monotonic()
        asker: Asker

        def refused() -> None:
            asker.due = self._clock.monotonic()

        page = AskerPage(
            opened.views,
            clock=self._clock,
            limits=self._limits,
            pace=self._pace,
            on_unauthorized=refused,
            metrics=self._metrics,
        )
        asker = Asker(
            token=token, user=user, page=page, opened=opened, reviewed=now, due=now + self._times.every
        )  # fmt: skip
        return asker

    def hold(self, asker: Asker) -> None:
        """Note one more session of the asker."""
        asker.sessions += 1
        self._by_digest[_digest(asker.token)] = asker

    def release(self, asker: Asker) -> None:
        """Note one session less; without any, the token is forgotten and the client closed."""
        asker.sessions -= 1
        if asker.sessions > 0:
            return
        if self._by_digest.pop(_digest(asker.token), None) is not None:
            self._close(asker.opened)
        asker.token = ""

    async def is_good(self, asker: Asker) -> bool:
        """Whether the asker's token is good, by a review where one is due.

        While the API server does not answer, a token stays good for a while: with each question that it is sent with,
        the API server judges it again.
        """
        now = self._clock.monotonic()
        if now < asker.due:
            return True
        asker.due = now + self._times.every  # other requests do not wait
        try:
            found = await self._rights.user_of(asker.token)
        except ApiError as e:
            _log.warning("a token was not reviewed", user=asker.user.name, error=str(e))
            asker.due = now + self._times.every / 4
            return now - asker.reviewed < self._times.failed
        if found is None or (found.name, found.uid) != (asker.user.name, asker.user.uid):
            return False
        asker.reviewed, asker.user = now, found
        return True

    async def close(self) -> None:
        """Wait until the clients of askers without sessions are closed."""
        while self._closing:
            await asyncio.gather(*self._closing)

    def _close(self, opened: OpenedViews) -> None:
        async def closed() -> None:
            with isolated_logged(_log, "a client was not closed"):
                await opened.close()

        task = asyncio.create_task(closed(), name="close a client")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
