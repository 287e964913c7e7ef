"""The section of the configuration file about the record of decisions; it is kqueue's own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, model_validator

from kqueue.config.duration import Duration, duration_text
from kqueue.config.section import Section, refuse_any
from kqueue.errors import FieldError

_SHORTEST, _LONGEST = timedelta(minutes=10), timedelta(days=365)


class DecisionRecordSettings(Section):
    """The record of all plans of the scheduling loop, for `kqueue record`."""

    path: str = ""
    """The folder of the files, as an absolute path; it is made if its parent exists.  Replicas may share it: only the
    leader writes.  Empty: nothing is recorded."""
    max_bytes: Annotated[int, Field(ge=1 << 20, le=1 << 40)] = 512 << 20
    """The most bytes of all files, 1 MiB to 1 TiB; the oldest files make room."""
    max_age: Duration = timedelta(hours=48)
    """The age after which files are removed, 10m to 365 days."""

    @model_validator(mode="after")
    def _bounds(self) -> Self:
        problems = []
        if self.path and not PurePosixPath(self.path).is_absolute():
            problems.append(FieldError("path", "must be an absolute path, such as /var/lib/kqueue/record", self.path))
        if not _SHORTEST <= self.max_age <= _LONGEST:
            bounds = f"must be from {duration_text(_SHORTEST)} to {duration_text(_LONGEST)}"
            problems.append(FieldError("maxAge", bounds, duration_text(self.max_age)))
        refuse_any(problems)
        return self
