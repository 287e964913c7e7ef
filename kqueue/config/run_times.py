"""The section of the configuration file about learned run times; it is kqueue's own."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Self

from pydantic import Field, model_validator

from kqueue.config.duration import Duration
from kqueue.config.section import Section, outside, refuse_any

_SHORTEST, _LONGEST = timedelta(minutes=1), timedelta(hours=1)


class RunTimeSettings(Section):
    """Run times learned from workloads that have finished in success."""

    learn: bool = True
    """Whether run times are learned, and kept in the ConfigMap `kqueue-run-times` of kqueue's namespace.  False: only
    promises and expectations count."""
    max_groups: Annotated[int, Field(ge=10, le=5_000)] = 2_000
    """The most groups of like workloads whose run times are known; a group has a LocalQueue, an owner and a shape."""
    interval: Duration = timedelta(minutes=5)
    """The least time between two writes of the ConfigMap, 1m to 1h."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        refuse_any(outside("interval", self.interval, _SHORTEST, _LONGEST))
        return self
