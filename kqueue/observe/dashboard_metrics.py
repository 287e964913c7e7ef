"""Metrics of the page that is served to many people (`kqueue dashboard --serve`).

No label has anything that people bring: neither names nor tokens, paths or views.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kqueue.observe.family import Counter, Gauge, Registry

QuestionResult = Literal["answered", "unauthorized", "forbidden", "failed"]
Sources = dict[tuple[Gauge, tuple[str, ...]], Callable[[], float | None]]
"""Functions that return the number of a gauge with these label values."""


class DashboardMetrics:
    """Counts readers, questions to the cluster, and reviews of tokens."""

    def __init__(self, registry: Registry | None, sources: Sources | None = None) -> None:
        """`registry` None: no page of metrics shows them; `sources` are asked for each page."""
        self._sources = sources if sources is not None else {}
        self._readers = Gauge("kqueue_dashboard_readers", "Open streams of events, one a page", registry=registry)
        self._sessions = Gauge("kqueue_dashboard_sessions", "Sessions of people", registry=registry)
        self._picture_age = Gauge(
            "kqueue_dashboard_picture_age_seconds",
            "Age of the oldest answer that an open page shows",
            registry=registry,
        )
        self._dropped = Counter(
            "kqueue_dashboard_dropped_readers_total",
            "Readers that were cut because they read nothing",
            registry=registry,
        )
        self._questions = Counter(
            "kqueue_dashboard_questions_total", "Questions to the cluster by result", ("result",), registry=registry
        )
        self._reviews = Counter(
            "kqueue_dashboard_token_reviews_total", "Reviews of tokens by result", ("result",), registry=registry
        )

    def follow(
        self, *, readers: Callable[[], float], sessions: Callable[[], float], picture_age: Callable[[], float]
    ) -> None:
        """Call these at each page for the open streams, the sessions, and the age of the oldest answer on a page."""
        self._sources.update(
            {(self._readers, ()): readers, (self._sessions, ()): sessions, (self._picture_age, ()): picture_age}
        )

    def dropped_reader(self) -> None:
        """Count a reader that was cut because it read nothing for too long."""
        self._dropped.inc()

    def asked(self, result: QuestionResult) -> None:
        """Count a question to the cluster: `answered`, `unauthorized`, `forbidden` or `failed`."""
        self._questions.labels(result).inc()

    def reviewed(self, result: str) -> None:
        """Count a review: the API server says `known` or `unknown`; `refused`: too many were under way, so it was not
        asked; `failed`: it did not answer.
        """
        self._reviews.labels(result).inc()
