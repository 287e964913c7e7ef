"""The section of the configuration file about told start times; it is kqueue's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from kqueue.config.duration import Duration
from kqueue.config.section import Section, outside, refuse_any
from kqueue.errors import FieldError

_BOUNDS = {
    "interval": (timedelta(minutes=1), timedelta(hours=1)),
    "smallestChange": (timedelta(seconds=10), timedelta(hours=24)),
}


class StartTimeSettings(Section):
    """Start times written to waiting Workloads."""

    annotate: bool = False
    """Whether the leader writes the start time of each waiting Workload to its annotation `kqueue.dev/start-time`.
    False: annotations that were written before are removed."""
    interval: Duration = timedelta(minutes=5)
    """The time between two computations of start times for annotations, 1m to 1h."""
    writes_per_second: Annotated[int, Field(ge=1, le=50)] = 5
    """The most annotations that are written or removed in a second."""
    smallest_change: Duration = timedelta(minutes=5)
    """The smallest change of a start time that is written, 10s to 24h.  A change by less than a tenth of the time until
    the start is not written either."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        problems: list[FieldError] = []
        for path, found in (("interval", self.interval), ("smallestChange", self.smallest_change)):
            problems += outside(path, found, *_BOUNDS[path])
        refuse_any(problems)
        return self
